//! What is known of a frame's checksums, and what is left to do before the frame is on a wire.
//!
//! ```text
//!  virtio-net header (VIRTIO 1.2, 5.1.6)                 Offload
//!  flags      needs_csum | data_valid                     flags      PARTIAL | VALID
//!  gso_type   tcpv4, tcpv6, udp_l4 | ecn          <->     segment, flags ECN
//!  hdr_len    all headers                                 checksum_start + transport_len
//!  gso_size                                               segment_bytes
//!  csum_start, csum_offset                                checksum_start, checksum_offset
//! ```
//!
//! An offload with all fields zero asks for nothing. `checksum_start` is the only place in the frame that
//! it names: the code that adds or removes bytes in front of the transport header calls [`Offload::shifted`].
//!
//! Thread-safety: plain data.

use std::fmt;

use crate::ip::proto;
use crate::{Headers, LinkType, Net, checksum};

/// What is known of one checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Verdict {
    /// It was not verified: there is none (UDP over IPv4 may leave it out), or not all that it covers is here
    /// (fragments, frames cut by a capture), or nobody looked.
    #[default]
    NotChecked,
    /// It is correct.
    Good,
    /// It is wrong.
    Bad,
    /// It covers the pseudo header only. The sender left the rest to its adapter.
    Partial,
}

impl Verdict {
    /// Every verdict, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::NotChecked, Self::Good, Self::Bad, Self::Partial];

    /// The name for counters and JSON, in snake case; it does not change between versions.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotChecked => "not_checked",
            Self::Good => "good",
            Self::Bad => "bad",
            Self::Partial => "partial",
        }
    }

    /// Good or bad.
    #[must_use]
    pub const fn of(good: bool) -> Self {
        if good { Self::Good } else { Self::Bad }
    }
}

/// What is known of the checksums of a frame: those of the outermost IP header and of the transport above
/// it, and those of the innermost if the frame has a tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Verdicts {
    /// The outermost IPv4 header; not checked for IPv6, which has no checksum.
    pub ip: Verdict,
    /// TCP, UDP, SCTP, ICMP or ICMPv6 above the outermost IP header.
    pub l4: Verdict,
    /// As `ip`, for the innermost IP header; not checked without a tunnel.
    pub inner_ip: Verdict,
    /// As `l4`, above the innermost IP header; not checked without a tunnel.
    pub inner_l4: Verdict,
}

impl Verdicts {
    /// Whether any checksum is wrong.
    #[must_use]
    pub const fn any_bad(self) -> bool {
        matches!(self.ip, Verdict::Bad)
            || matches!(self.l4, Verdict::Bad)
            || matches!(self.inner_ip, Verdict::Bad)
            || matches!(self.inner_l4, Verdict::Bad)
    }
}

/// Into what a frame is to be cut. The numbers are those of the virtio-net header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Segment {
    /// The frame is not to be cut.
    #[default]
    None = 0,
    /// Into TCP segments over IPv4.
    Tcp4 = 1,
    /// Into TCP segments over IPv6.
    Tcp6 = 4,
    /// Into UDP datagrams over IPv4 or IPv6, each with a part of the payload.
    Udp = 5,
}

/// What is left to do to a frame before it is on a wire. All zero: nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Offload {
    /// Into what the frame is to be cut.
    pub segment: Segment,
    /// [`Offload::PARTIAL`] and the other constants.
    pub flags: u8,
    /// The payload bytes of each segment but the last, which may be shorter; 0 without `segment`.
    pub segment_bytes: u16,
    /// Offset of the transport header: the first byte that a partial checksum covers. 0 if the frame is
    /// neither to be cut nor has a partial checksum.
    pub checksum_start: u16,
    /// Offset of the checksum field in the transport header.
    pub checksum_offset: u8,
    /// The length of the transport header; 0 without `segment`.
    pub transport_len: u8,
}

/// Why a virtio-net header is refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
#[repr(u8)]
pub enum Refused {
    /// The segmentation type is none that flowyard knows, such as UDP fragmentation (3).
    Kind,
    /// The checksum field is not inside the frame.
    ChecksumOutside,
    /// The headers of the frame are not those of the segmentation type.
    Headers,
    /// The segmentation type has no segment size.
    NoSize,
    /// UDP segmentation needs a checksum to be completed.
    UdpWithoutChecksum,
}

impl Refused {
    /// Every reason, in the order of their numbers.
    pub const ALL: [Self; 5] =
        [Self::Kind, Self::ChecksumOutside, Self::Headers, Self::NoSize, Self::UdpWithoutChecksum];
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kind => "the segmentation type is not TCP or UDP segmentation",
            Self::ChecksumOutside => "the checksum field lies outside the frame",
            Self::Headers => "the frame's headers are not those of the segmentation type",
            Self::NoSize => "the segment size is 0",
            Self::UdpWithoutChecksum => "UDP segmentation needs a checksum to be completed",
        })
    }
}

impl std::error::Error for Refused {}

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM` and `VIRTIO_NET_HDR_F_DATA_VALID`.
const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;
/// `VIRTIO_NET_HDR_GSO_ECN`, a bit beside the type.
const GSO_ECN: u8 = 0x80;
/// The offset of the checksum in the header of SCTP. The field has four bytes (RFC 9260 section 3.1).
const SCTP_CHECKSUM: usize = 8;

impl Offload {
    /// Nothing is left to do.
    pub const NONE: Self = Self {
        segment: Segment::None,
        flags: 0,
        segment_bytes: 0,
        checksum_start: 0,
        checksum_offset: 0,
        transport_len: 0,
    };
    /// Flag: the transport checksum covers the pseudo header only, and is to be completed.
    pub const PARTIAL: u8 = 1;
    /// Flag: the checksums were verified.
    pub const VALID: u8 = 2;
    /// Flag: the TCP header has CWR set, which belongs into the first segment only (RFC 3168 section 6.1.2).
    pub const ECN: u8 = 4;
    /// Flag: all segments have the IPv4 identification of the frame, which is not to be counted up. For the
    /// header next to the transport; a virtio-net header cannot say this.
    pub const FIXED_ID: u8 = 8;
    /// Flag: as [`Offload::FIXED_ID`], for the IPv4 headers of tunnels around it.
    pub const FIXED_OUTER_ID: u8 = 16;
    /// The length of the virtio-net header without its optional number of buffers.
    pub const VIRTIO_LEN: usize = 10;
    /// The largest number of datagrams that the kernel accepts in one frame (`UDP_MAX_SEGMENTS`).
    pub const MAX_DATAGRAMS: usize = 128;

    /// Whether nothing is left to do. The verdict in [`Offload::VALID`] is nothing to do.
    #[must_use]
    #[inline]
    pub const fn is_none(self) -> bool {
        matches!(self.segment, Segment::None) && self.flags & Self::PARTIAL == 0
    }

    /// Whether the partial checksum is the CRC-32C of SCTP. In a virtio-net header, only the offset of the field tells, and
    /// Linux does not look at it: it completes every partial checksum that it is given with the Internet checksum.
    #[must_use]
    #[inline]
    pub const fn has_crc(self) -> bool {
        self.has(Self::PARTIAL) && self.checksum_offset as usize == SCTP_CHECKSUM
    }

    /// Whether all bits of `flag` are set.
    #[must_use]
    #[inline]
    pub const fn has(self, flag: u8) -> bool {
        self.flags & flag == flag
    }

    /// The offset of the payload of a frame that is to be cut.
    #[must_use]
    #[inline]
    pub const fn headers_len(self) -> usize {
        self.checksum_start as usize + self.transport_len as usize
    }

    /// The number of frames that a frame of `len` bytes becomes.
    #[must_use]
    #[inline]
    pub const fn segments(self, len: usize) -> usize {
        match self.segment_bytes {
            0 => 1,
            size => match len.saturating_sub(self.headers_len()).div_ceil(size as usize) {
                0 => 1,
                count => count,
            },
        }
    }

    /// The length of the longest frame that a frame of `len` bytes becomes.
    #[must_use]
    #[inline]
    pub const fn longest(self, len: usize) -> usize {
        let most = self.headers_len() + self.segment_bytes as usize;
        if self.segment_bytes == 0 || len < most { len } else { most }
    }

    /// The offload after `by` bytes were added in front of the transport header, or removed if `by` is
    /// negative. `None` if the header would leave the range of the offsets; then the caller drops the frame or
    /// cuts it first.
    #[must_use]
    #[inline]
    pub fn shifted(self, by: isize) -> Option<Self> {
        if self.is_none() {
            return Some(self);
        }
        let checksum_start = (self.checksum_start as isize).checked_add(by)?;
        let checksum_start = u16::try_from(checksum_start).ok().filter(|start| *start > 0)?;
        Some(Self { checksum_start, ..self })
    }

    /// Reads the virtio-net header of the Ethernet frame `frame`, little-endian as in VIRTIO 1 and on every
    /// little-endian host. Unknown flags are ignored, as the specification asks. A frame that is no longer
    /// than one segment is not to be cut, as in the kernel.
    ///
    /// # Errors
    /// When the header does not fit the frame, or asks for what flowyard does not do. The frame is to be
    /// dropped then: what it should become is unknown.
    pub fn from_virtio(header: &[u8; Self::VIRTIO_LEN], frame: &[u8]) -> Result<Self, Refused> {
        Self::from_virtio_front(header, frame, frame.len())
    }

    /// As [`Offload::from_virtio`], for a frame of `whole` bytes of which only the first ones, `front`, are here.
    ///
    /// # Errors
    /// As [`Offload::from_virtio`]; also when `front` does not have all of the headers of a frame that is to be cut.
    pub fn from_virtio_front(
        header: &[u8; Self::VIRTIO_LEN],
        front: &[u8],
        whole: usize,
    ) -> Result<Self, Refused> {
        let field = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let mut offload = Self::NONE;
        if header[0] & NEEDS_CSUM != 0 {
            offload.flags |= Self::PARTIAL;
            offload.checksum_start = field(6);
            let outside = |_| Refused::ChecksumOutside;
            offload.checksum_offset = u8::try_from(field(8)).map_err(outside)?;
            let at = usize::from(offload.checksum_offset);
            let field_len = if at == SCTP_CHECKSUM { 4 } else { 2 };
            let end = usize::from(field(6)) + at + field_len;
            if end > whole || field(6) == 0 {
                return Err(Refused::ChecksumOutside);
            }
        } else if header[0] & DATA_VALID != 0 {
            offload.flags |= Self::VALID;
        }
        offload.segment = match header[1] & !GSO_ECN {
            0 => return Ok(offload),
            1 => Segment::Tcp4,
            4 => Segment::Tcp6,
            5 => Segment::Udp,
            _ => return Err(Refused::Kind),
        };
        offload.segment_bytes = field(4);
        if header[1] & GSO_ECN != 0 {
            offload.flags |= Self::ECN;
        }
        offload.place(front, whole)
    }

    /// Finds the transport header of a frame that is to be cut, and checks the description against it.
    fn place(mut self, front: &[u8], whole: usize) -> Result<Self, Refused> {
        let partial = self.has(Self::PARTIAL);
        if self.segment_bytes == 0 {
            return Err(Refused::NoSize);
        }
        if self.segment == Segment::Udp && !partial {
            return Err(Refused::UdpWithoutChecksum);
        }
        let start = usize::from(self.checksum_start);
        // In a tunnel, the checksum to be completed tells which level is meant; else it is the outermost.
        let level = Headers::levels(LinkType::Ethernet, front)
            .find(|level| level.l4 != 0 && (!partial || level.l4 as usize >= start))
            .filter(|level| !partial || level.l4 as usize == start)
            .ok_or(Refused::Headers)?;
        let (proto, offset) = match (self.segment, level.net) {
            (Segment::Tcp4, Net::Ipv4) | (Segment::Tcp6, Net::Ipv6) => (proto::TCP, 16),
            (Segment::Udp, Net::Ipv4 | Net::Ipv6) => (proto::UDP, 6),
            _ => return Err(Refused::Headers),
        };
        if level.proto != proto
            || level.fragment.is_fragment()
            || (partial && self.checksum_offset != offset)
        {
            return Err(Refused::Headers);
        }
        let (len, least) = match (proto, front.get(level.l4 as usize + 12)) {
            (proto::TCP, Some(words)) => ((words >> 4) * 4, 20),
            (proto::TCP, None) => return Err(Refused::Headers),
            _ => (8, 8),
        };
        self.checksum_start = u16::try_from(level.l4).map_err(|_| Refused::Headers)?;
        self.checksum_offset = offset;
        self.transport_len = len;
        if len < least || self.headers_len() > front.len() {
            return Err(Refused::Headers);
        }
        if whole - self.headers_len() <= usize::from(self.segment_bytes) {
            self.segment = Segment::None;
            self.segment_bytes = 0;
            self.transport_len = 0;
            self.flags &= !Self::ECN;
            if !partial {
                (self.checksum_start, self.checksum_offset) = (0, 0);
            }
        }
        Ok(self)
    }

    /// The virtio-net header that describes this offload, little-endian.
    #[must_use]
    pub fn to_virtio(self) -> [u8; Self::VIRTIO_LEN] {
        let mut header = [0; Self::VIRTIO_LEN];
        if self.has(Self::PARTIAL) {
            header[0] = NEEDS_CSUM;
            header[6..8].copy_from_slice(&self.checksum_start.to_le_bytes());
            header[8] = self.checksum_offset;
        } else if self.has(Self::VALID) {
            header[0] = DATA_VALID;
        }
        if self.segment != Segment::None {
            header[1] = self.segment as u8 | if self.has(Self::ECN) { GSO_ECN } else { 0 };
            header[2..4].copy_from_slice(&(self.headers_len() as u16).to_le_bytes());
            header[4..6].copy_from_slice(&self.segment_bytes.to_le_bytes());
        }
        header
    }
}

/// Completes the partial checksum of `frame`, if `offload` has one: over all bytes from the transport header to
/// the end of the frame, as the specification says. Returns false, and changes nothing, if the field is not in the
/// frame.
///
/// A field at offset 8 is that of SCTP, whose CRC-32C is computed as if the field were zero; no other transport
/// has its checksum there. A sum of zero is stored as 0xffff, as the kernel does for all protocols.
pub fn complete(frame: &mut [u8], offload: Offload) -> bool {
    if !offload.has(Offload::PARTIAL) {
        return true;
    }
    let Some(covered) = frame.get_mut(offload.checksum_start.into()..) else { return false };
    let offset = usize::from(offload.checksum_offset);
    if offset == SCTP_CHECKSUM {
        let Some((header, chunks)) = covered.split_first_chunk_mut::<12>() else { return false };
        let crc = checksum::crc32c(&[&header[..8], &[0; 4], chunks]);
        header[8..].copy_from_slice(&crc.to_le_bytes());
        return true;
    }
    if covered.len() < offset + 2 {
        return false;
    }
    let sum = match checksum::checksum(covered) {
        0 => 0xffff,
        sum => sum,
    };
    covered[offset..offset + 2].copy_from_slice(&sum.to_be_bytes());
    true
}

#[cfg(test)]
mod tests;

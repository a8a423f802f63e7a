//! The levels of a frame that is to be cut: which fields differ between its segments.

use super::Uncut;
use crate::checksum::{Sum, checksum};
use crate::ip::{extension_size, is_extension, proto};
use crate::{Headers, LinkType, Net, Offload, Segment};

/// The largest number of levels.
pub(crate) const MAX: usize = 4;

/// The UDP port of GTP-U, whose header has a length.
const GTP_PORT: u16 = 2152;

/// What is above the IP header of a level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Upper {
    /// A tunnel header without length and checksum, or none.
    #[default]
    Plain,
    /// TCP, in the innermost level.
    Tcp,
    /// UDP, in the innermost level.
    Datagram,
    /// UDP with a tunnel in it: the sum of its pseudo header without the length, if it has a checksum.
    Udp(Option<Sum>),
    /// As `Udp`, with GTP-U in it.
    Gtp(Option<Sum>),
    /// GRE, with or without a checksum.
    Gre {
        /// Whether there is a checksum.
        sum: bool,
    },
}

/// One level: an IP header and what is above it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Level {
    pub(crate) net: Net,
    pub(crate) upper: Upper,
    /// A PPPoE header is right in front of IP.
    pub(crate) pppoe: bool,
    l3: u16,
    l4: u16,
}

impl Level {
    #[inline]
    pub(crate) fn l3(&self) -> usize {
        self.l3.into()
    }

    #[inline]
    pub(crate) fn l4(&self) -> usize {
        self.l4.into()
    }
}

/// The levels of one frame, outermost first; at least one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Levels {
    levels: [Level; MAX],
    count: u8,
}

impl Levels {
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.count.into()
    }

    #[inline]
    pub(crate) fn get(&self, at: usize) -> &Level {
        &self.levels[at]
    }

    /// The levels, outermost first.
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Level> {
        self.levels[..self.count().min(MAX)].iter()
    }

    /// Writes what depends on the length of the frame, from the inside to the outside: the lengths of all headers
    /// but the innermost transport's, and the checksums of IPv4 and of tunnels. `out` has the headers of a frame of
    /// `len` bytes; `sum` is the sum of the innermost transport header and its payload. `step` is added to the
    /// identification of each level.
    pub(crate) fn finish(
        &self,
        out: &mut [u8],
        len: usize,
        mut sum: Sum,
        step: impl Fn(usize) -> u16,
    ) {
        for (at, level) in self.iter().enumerate().rev() {
            level.set_lengths(out, len, step(at));
            if let Some(around) = at.checked_sub(1) {
                sum = self.get(around).set_checksum(out, level.l4(), len, sum);
            }
        }
    }

    #[inline]
    pub(crate) fn innermost(&self) -> &Level {
        &self.levels[self.count().saturating_sub(1)]
    }

    /// The offset of the outermost IP header.
    pub(crate) fn outermost(&self) -> usize {
        self.levels[0].l3()
    }

    /// The levels down to the transport header that `offload` names, and the sum of its pseudo header
    /// without the length.
    pub(crate) fn find(frame: &[u8], offload: Offload) -> Result<(Self, Sum), Uncut> {
        let start = u32::from(offload.checksum_start);
        let (found, headers) = Self::walk(frame, |level| level.l4 >= start)?;
        let fits = match (offload.segment, headers.net) {
            (Segment::Tcp4, Net::Ipv4) | (Segment::Tcp6, Net::Ipv6) => {
                found.innermost().upper == Upper::Tcp
            }
            (Segment::Udp, _) => found.innermost().upper == Upper::Datagram,
            _ => false,
        };
        let len = found.transport_len(frame) == usize::from(offload.transport_len);
        if headers.l4 != start || !fits || !len {
            return Err(Uncut::Headers);
        }
        Ok((found, pseudo_header(&headers, frame, offload)?))
    }

    /// The levels down to the first with a transport header that `is_last`, and the headers of that level. Its
    /// transport is TCP or UDP, and its header is complete.
    pub(crate) fn walk(
        frame: &[u8],
        is_last: impl Fn(&Headers) -> bool,
    ) -> Result<(Self, Headers), Uncut> {
        let mut found = Self::default();
        for headers in Headers::levels(LinkType::Ethernet, frame) {
            let is_last = headers.l4 != 0 && is_last(&headers);
            if headers.fault.is_some() || headers.l4 > u16::MAX.into() {
                return Err(Uncut::Headers);
            }
            check_link(&headers, frame)?;
            if !matches!(headers.net, Net::Ipv4 | Net::Ipv6) {
                continue; // Ethernet over MPLS
            }
            check_ip(&headers, frame)?;
            let upper = match (is_last, headers.proto) {
                (true, proto::TCP) => Upper::Tcp,
                (true, proto::UDP) => Upper::Datagram,
                (true, _) => return Err(Uncut::Headers),
                (false, _) => tunnel(&headers, frame)?,
            };
            found.push(&headers, upper, frame)?;
            if is_last {
                return Ok((found, headers));
            }
        }
        Err(Uncut::Headers)
    }

    /// The length of the innermost transport header.
    pub(crate) fn transport_len(&self, frame: &[u8]) -> usize {
        match self.innermost().upper {
            Upper::Tcp => {
                frame.get(self.innermost().l4() + 12).map_or(0, |b| usize::from(b >> 4) * 4)
            }
            _ => 8,
        }
    }

    fn push(&mut self, headers: &Headers, upper: Upper, frame: &[u8]) -> Result<(), Uncut> {
        // Sums are of whole words.
        if self.count > 0 && !(headers.l4 as usize - self.innermost().l4()).is_multiple_of(2) {
            return Err(Uncut::Unrepeatable);
        }
        let slot = self.levels.get_mut(usize::from(self.count)).ok_or(Uncut::TooDeep)?;
        let pppoe = headers.pppoe.is_some();
        // Address and control, or a protocol of one byte, may be in front of IP: then this is no PPPoE header.
        let l3 = headers.l3 as usize;
        if pppoe && frame.get(l3.wrapping_sub(8)) != Some(&0x11) {
            return Err(Uncut::Unrepeatable);
        }
        *slot =
            Level { net: headers.net, upper, pppoe, l3: headers.l3 as u16, l4: headers.l4 as u16 };
        self.count += 1;
        Ok(())
    }
}

impl Level {
    /// The length fields of a segment of `len` bytes, the IPv4 identification, and the IPv4 checksum.
    fn set_lengths(&self, out: &mut [u8], len: usize, step: u16) {
        let l3 = self.l3();
        match self.net {
            Net::Ipv4 => {
                put(out, l3 + 2, (len - l3) as u16);
                put(out, l3 + 4, get(out, l3 + 4).wrapping_add(step));
                put(out, l3 + 10, 0);
                let end = l3 + usize::from(out[l3] & 0xf) * 4;
                put(out, l3 + 10, checksum(&out[l3..end]));
            }
            _ => put(out, l3 + 4, (len - l3 - 40) as u16),
        }
        if self.pppoe {
            // The length counts from the PPP protocol number, right in front of IP.
            put(out, l3 - 4, (len - l3 + 2) as u16);
        }
    }

    /// The lengths of this level's tunnel header, and then its checksum. `sum` is the sum of what is behind the
    /// transport header of the level inside, at `inner`. Returns the sum from this level's own.
    fn set_checksum(&self, out: &mut [u8], inner: usize, len: usize, sum: Sum) -> Sum {
        let l4 = self.l4();
        if let Upper::Udp(_) | Upper::Gtp(_) = self.upper {
            put(out, l4 + 4, (len - l4) as u16);
        }
        if let Upper::Gtp(_) = self.upper {
            put(out, l4 + 10, (len - l4 - 16) as u16);
        }
        let (field, pseudo) = match self.upper {
            Upper::Udp(Some(pseudo)) | Upper::Gtp(Some(pseudo)) => {
                (l4 + 6, pseudo.word((len - l4) as u64))
            }
            Upper::Gre { sum: true } => (l4 + 4, Sum::ZERO),
            _ => return sum.bytes(&out[l4..inner]),
        };
        put(out, field, 0);
        let sum = sum.bytes(&out[l4..inner]);
        let check = match pseudo.plus(sum).finish() {
            0 if !matches!(self.upper, Upper::Gre { .. }) => 0xffff,
            check => check,
        };
        put(out, field, check);
        sum.word(check.into())
    }
}

/// Refuses Ethernet headers with an 802.3 length: the bytes between Ethernet and IP are all of known headers.
fn check_link(headers: &Headers, frame: &[u8]) -> Result<(), Uncut> {
    let Some(eth) = headers.eth else { return Ok(()) };
    let tags = u32::from(headers.tags.count);
    let pppoe = if headers.pppoe.is_some() { 8 } else { 0 };
    let known = eth + 14 + 4 * tags + 4 * u32::from(headers.labels.count) + pppoe;
    debug_assert!(headers.l3 as usize <= frame.len());
    if headers.l3 == known { Ok(()) } else { Err(Uncut::Unrepeatable) }
}

/// Refuses fragments, and headers between IP and its transport that depend on the packet's length or bytes.
fn check_ip(headers: &Headers, frame: &[u8]) -> Result<(), Uncut> {
    if headers.fragment.is_fragment() {
        return Err(Uncut::Fragment);
    }
    let (l3, l4) = (headers.l3 as usize, headers.l4 as usize);
    if headers.net == Net::Ipv4 {
        let is_direct = frame.get(l3 + 9) == Some(&headers.proto);
        return if is_direct { Ok(()) } else { Err(Uncut::Unrepeatable) };
    }
    let (mut at, Some(&first)) = (l3 + 40, frame.get(l3 + 6)) else { return Err(Uncut::Headers) };
    let mut next = first;
    // Without a length and with options, this may be a jumbogram.
    if next == proto::HOP_BY_HOP && get(frame, l3 + 4) == 0 {
        return Err(Uncut::Unrepeatable);
    }
    while at < l4 && is_extension(next) {
        if matches!(next, proto::AH | proto::FRAGMENT) {
            return Err(Uncut::Unrepeatable);
        }
        let Some(header) = frame.get(at..at + 2) else { return Err(Uncut::Headers) };
        at += extension_size(next, header[1]);
        next = header[0];
    }
    Ok(())
}

/// The tunnel header of a level around another.
fn tunnel(headers: &Headers, frame: &[u8]) -> Result<Upper, Uncut> {
    let l4 = headers.l4 as usize;
    match headers.proto {
        proto::UDP => {
            let sum = match get(frame, l4 + 6) {
                0 => None,
                _ => Some(addresses(headers, frame)?),
            };
            if headers.ports.is_none_or(|(_, to)| to != GTP_PORT) {
                return Ok(Upper::Udp(sum));
            }
            // A sequence number would be repeated.
            let flags = frame.get(l4 + 8).copied().ok_or(Uncut::Headers)?;
            if flags & 0x02 == 0 { Ok(Upper::Gtp(sum)) } else { Err(Uncut::Unrepeatable) }
        }
        proto::GRE => {
            // A checksum, perhaps a key; no routing, no sequence number; version 0.
            let flags = get(frame, l4);
            let fits = flags & 0x5007 == 0;
            let sum = flags & 0x8000 != 0;
            if fits { Ok(Upper::Gre { sum }) } else { Err(Uncut::Unrepeatable) }
        }
        _ => Ok(Upper::Plain),
    }
}

/// The sum of the innermost pseudo header without the length: what is in a partial checksum, or the sum of the
/// addresses and the protocol.
fn pseudo_header(headers: &Headers, frame: &[u8], offload: Offload) -> Result<Sum, Uncut> {
    if !offload.has(Offload::PARTIAL) {
        return addresses(headers, frame);
    }
    let l4 = headers.l4 as usize;
    let is_udp = headers.proto == proto::UDP;
    let (field, len) = match is_udp {
        true => (6, get(frame, l4 + 4).into()),
        false => (16, (frame.len() - l4) as u32),
    };
    Ok(Sum::ZERO.word(get(frame, l4 + field).into()).word((!len).into()))
}

/// The sum of the addresses and the protocol of a pseudo header.
pub(crate) fn addresses(headers: &Headers, frame: &[u8]) -> Result<Sum, Uncut> {
    let (src, dst) = (headers.checksum_src(frame), headers.checksum_dst(frame));
    let (src, dst) = src.zip(dst).ok_or(Uncut::Headers)?;
    Ok(Sum::ZERO.address(src).address(dst).word(headers.proto.into()))
}

/// The 16-bit field at `at`; 0 if it is not in the bytes.
#[inline]
pub(crate) fn get(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |field| u16::from_be_bytes([field[0], field[1]]))
}

/// Sets the 16-bit field at `at`, if it is in the bytes.
#[inline]
pub(crate) fn put(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(field) = bytes.get_mut(at..at + 2) {
        field.copy_from_slice(&value.to_be_bytes());
    }
}

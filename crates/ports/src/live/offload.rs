//! Adapter offloads in software: checksum completion and segmentation.
//!
//! ```text
//!  from a local sender    [eth ip tcp | 40,000 bytes ...]   checksum: sum of the pseudo header only
//!  on the wire            [eth ip tcp | 1448] [eth ip tcp | 1448] ...   each with its checksums
//! ```
//!
//! The kernel passes frames between local interfaces before these offloads are done, and coalesces
//! received segments. Frames that leave flowyard must look as they would on a wire.
//!
//! Invariants: nothing is written outside the given frame; a frame whose headers contradict the
//! sender's description is not segmented, and the caller drops it.
//! Thread-safety: pure functions.

use flowyard_frame::proto;
use flowyard_wire::checksum::{Sum, checksum, transport_checksum};
use flowyard_wire::{Headers, LinkType, Net};

/// The offloads still to be done for a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Offload {
    /// A checksum to complete: the offset of the first byte it covers, and the position of the
    /// checksum field relative to that. The field contains the sum of the pseudo header.
    pub checksum: Option<(u16, u16)>,
    /// Payload bytes per segment, if the frame is to be segmented.
    pub segment: Option<u16>,
}

/// Completes the checksum over the bytes from `start` on, stored at `start + offset`. Returns false
/// if it does not lie in the frame.
pub fn complete(frame: &mut [u8], start: usize, offset: usize) -> bool {
    if frame.len() < start + offset + 2 {
        return false;
    }
    let sum = match Sum::ZERO.bytes(&frame[start..]).finish() {
        0 => 0xffff, // RFC 768: zero means no checksum
        sum => sum,
    };
    frame[start + offset..][..2].copy_from_slice(&sum.to_be_bytes());
    true
}

/// Recomputes the checksum of TCP or UDP, whatever the field contains, for frames whose sender may
/// have left it to an adapter without saying so. Returns whether there is a checksum: not in a
/// fragment, nor with a source route whose last address counts, nor if a UDP sender uses none.
pub fn recompute(frame: &mut [u8]) -> bool {
    let found = Headers::parse(LinkType::Ethernet, frame);
    let (l4, end) = (found.l4 as usize, found.end as usize);
    let straight = found.routing2 == 0 && found.home_address == 0;
    let field = match found.proto {
        proto::TCP if end >= l4 + 20 => l4 + 16,
        proto::UDP if end >= l4 + 8 => l4 + 6,
        _ => return false,
    };
    if l4 == 0 || end > frame.len() || found.fragment.is_fragment() || !straight {
        return false;
    }
    if found.proto == proto::UDP && frame[field..field + 2] == [0, 0] {
        return false;
    }
    let (Some(src), Some(dst)) = (found.src_ip(frame), found.dst_ip(frame)) else { return false };
    frame[field..field + 2].fill(0);
    let sum = match transport_checksum(src, dst, found.proto, &frame[l4..end]) {
        0 => 0xffff, // RFC 768: zero means no checksum
        sum => sum,
    };
    frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    true
}

/// The segmentation of a long frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    l3: usize,
    l4: usize,
    headers: usize,
    end: usize,
    size: usize,
    net: Net,
    proto: u8,
}

impl Cut {
    /// Segments the Ethernet frame `frame` into segments with `size` payload bytes. Returns `None`
    /// if it is neither TCP nor UDP, or incomplete.
    #[must_use]
    pub fn new(frame: &[u8], size: usize) -> Option<Self> {
        let found = Headers::parse(LinkType::Ethernet, frame);
        let (l3, l4) = (found.l3 as usize, found.l4 as usize);
        if l4 == 0 || size == 0 || found.fragment.is_fragment() {
            return None;
        }
        let headers = match found.proto {
            proto::TCP => l4 + 4 * usize::from(frame.get(l4 + 12)? >> 4),
            proto::UDP => l4 + 8,
            _ => return None,
        };
        let least = if found.proto == proto::TCP { l4 + 20 } else { l4 + 8 };
        let whole = headers >= least && headers < frame.len();
        let (end, net, proto) = (frame.len(), found.net, found.proto);
        let known = matches!(net, Net::Ipv4 | Net::Ipv6);
        (whole && known).then_some(Self { l3, l4, headers, end, size, net, proto })
    }

    /// The number of segments.
    #[must_use]
    pub const fn segments(&self) -> usize {
        (self.end - self.headers).div_ceil(self.size)
    }

    /// The length of segment `n` with its headers.
    #[must_use]
    pub fn len(&self, n: usize) -> usize {
        let left = (self.end - self.headers).saturating_sub(n * self.size);
        self.headers + left.min(self.size)
    }

    /// Always false, because there is at least one segment.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes segment `n` of `frame` into `out`, which must have the length [`Cut::len`], with
    /// adjusted lengths, numbers, flags and checksums (RFC 9293 section 3.1, RFC 791).
    pub fn write(&self, frame: &[u8], n: usize, out: &mut [u8]) {
        let Self { l3, l4, headers, size, .. } = *self;
        let payload = headers + n * size;
        if out.len() != self.len(n) || frame.len() < payload + (out.len() - headers) {
            return;
        }
        out[..headers].copy_from_slice(&frame[..headers]);
        let rest = out.len() - headers;
        out[headers..].copy_from_slice(&frame[payload..payload + rest]);
        match self.net {
            Net::Ipv4 => {
                let total = (out.len() - l3) as u16;
                out[l3 + 2..l3 + 4].copy_from_slice(&total.to_be_bytes());
                let id = u16::from_be_bytes([out[l3 + 4], out[l3 + 5]]).wrapping_add(n as u16);
                out[l3 + 4..l3 + 6].copy_from_slice(&id.to_be_bytes());
                out[l3 + 10..l3 + 12].fill(0);
                let sum = checksum(&out[l3..l3 + usize::from(out[l3] & 0xf) * 4]);
                out[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
            }
            _ => {
                let length = (out.len() - l3 - 40) as u16;
                out[l3 + 4..l3 + 6].copy_from_slice(&length.to_be_bytes());
            }
        }
        let field = if self.proto == proto::TCP {
            let number = out[l4 + 4..].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
            let number = number.wrapping_add((n * size) as u32);
            out[l4 + 4..l4 + 8].copy_from_slice(&number.to_be_bytes());
            if n + 1 < self.segments() {
                out[l4 + 13] &= !(FIN | PSH);
            }
            if n > 0 {
                out[l4 + 13] &= !CWR; // only in the first segment, RFC 3168 section 6.1.2
            }
            l4 + 16
        } else {
            let length = (out.len() - l4) as u16;
            out[l4 + 4..l4 + 6].copy_from_slice(&length.to_be_bytes());
            l4 + 6
        };
        out[field..field + 2].fill(0);
        let found = Headers::parse(LinkType::Ethernet, out);
        if let (Some(src), Some(dst)) = (found.src_ip(out), found.dst_ip(out)) {
            let sum = match transport_checksum(src, dst, self.proto, &out[l4..]) {
                0 if self.proto == proto::UDP => 0xffff,
                sum => sum,
            };
            out[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        }
    }
}

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

#[cfg(test)]
mod tests;

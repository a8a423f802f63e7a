//! What senders leave to adapters, done in software: checksums, and the cutting of long segments.
//!
//! ```text
//!  from a local sender    [eth ip tcp | 40,000 bytes ...]   checksum: sum of the pseudo header only
//!  on the wire            [eth ip tcp | 1448] [eth ip tcp | 1448] ...   each with its checksums
//! ```
//!
//! The kernel hands frames between local interfaces before that is done, and glues received
//! segments together; what leaves the yard must be as it would have been on a wire.
//!
//! Invariants: nothing is written outside the frame given; a frame whose headers are not what the
//! sender says is not cut, and the caller drops it.
//! Thread-safety: pure functions.

use flowyard_frame::proto;
use flowyard_wire::checksum::{Sum, checksum, transport_checksum};
use flowyard_wire::{Headers, LinkType, Net};

/// What is left to do to a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Offload {
    /// A checksum to complete: from which byte of the frame on it sums, and where from there it is
    /// stored. The field holds the sum of the pseudo header.
    pub checksum: Option<(u16, u16)>,
    /// Payload bytes of each segment, if the frame is to be cut.
    pub segment: Option<u16>,
}

/// Completes the checksum that starts at `start` and is stored at `start + offset`. Whether it
/// lies in the frame.
pub fn complete(frame: &mut [u8], start: usize, offset: usize) -> bool {
    if frame.len() < start + offset + 2 {
        return false;
    }
    let sum = match Sum::ZERO.bytes(&frame[start..]).finish() {
        0 => 0xffff, // RFC 768: zero says that there is none
        sum => sum,
    };
    frame[start + offset..][..2].copy_from_slice(&sum.to_be_bytes());
    true
}

/// Computes the checksum of TCP or UDP anew, whatever the field holds: where a sender left it to
/// an adapter, and nothing says so. Whether there is one: not in a fragment, nor behind a route of
/// which only the last address counts, nor where a UDP sender did without.
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
        0 => 0xffff, // RFC 768: zero says that there is none
        sum => sum,
    };
    frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    true
}

/// How a long frame is cut.
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
    /// Cuts `frame`, of Ethernet, into segments of `size` bytes of payload; `None` if it is neither
    /// TCP nor UDP, or not whole.
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

    /// How many segments there are.
    #[must_use]
    pub const fn segments(&self) -> usize {
        (self.end - self.headers).div_ceil(self.size)
    }

    /// How long segment `n` is, headers included.
    #[must_use]
    pub fn len(&self, n: usize) -> usize {
        let left = (self.end - self.headers).saturating_sub(n * self.size);
        self.headers + left.min(self.size)
    }

    /// Always false: there is at least one segment.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes segment `n` of `frame` into `out`, which is as long as [`Cut::len`] says, with
    /// lengths, numbers, flags and checksums of its own (RFC 9293 section 3.1, RFC 791).
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
                out[l4 + 13] &= !CWR; // RFC 3168 section 6.1.2: once
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

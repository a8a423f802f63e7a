//! Checksums that a sender has left to an adapter without a virtio-net header, in software. [`flowyard_wire::offload`]
//! completes those that such a header describes.
//!
//! The kernel passes frames between local interfaces before their checksums are complete. Frames that leave flowyard
//! must look as they would on a wire, unless the receiver accepts unfinished ones.
//!
//! Invariant: nothing is written outside the given frame.
//! Thread-safety: pure functions.

use flowyard_frame::proto;
use flowyard_wire::checksum::transport_checksum;
use flowyard_wire::{Headers, LinkType};

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

#[cfg(test)]
mod tests;

//! What is done with a frame of which a checksum or the segmentation is left to a port.
//!
//! ```text
//!  no policy protects it        it stays unfinished
//!  to be sealed                 checksum completed; a long frame is cut, and each segment becomes a packet
//!  to be opened, or its fields  finished first; what comes of it is classified as if the port had finished it
//!  may change when finished
//! ```
//!
//! Policies compare addresses, protocol and ports, which all segments of a frame share. A description that comes with a
//! frame is its sender's: it may place the checksum field in what policies compare. Such a frame is finished first, so that
//! no packet passes as another one than it leaves as.
//!
//! Thread-safety: plain functions.

use flowyard_frame::{FlowKey, proto};
use flowyard_wire::segment::Cut;
use flowyard_wire::{Offload, Segment};
use flowyard_yard::DropReason;

use super::{Class, IpsecHub};
use crate::ip::Ip;

/// The most segments into which a frame is cut: those of the largest frame of a sender whose segments have 36 bytes, which
/// is less than any sender makes (RFC 879: 536 bytes).
pub(crate) const MOST: usize = 2048;

/// What is done with an unfinished frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Left {
    /// What its packet is: finishing it does not change that.
    Class(Class),
    /// It is finished, and what comes of it is classified.
    Finish,
}

/// How the frame `bytes` is cut.
pub(crate) fn cut_of(bytes: &[u8], left: Offload) -> Result<Cut, DropReason> {
    let cut = Cut::new(bytes, left).map_err(|_| DropReason::Malformed)?;
    if cut.count() > MOST { Err(DropReason::TooManyCopies) } else { Ok(cut) }
}

/// Whether lengths are those of the frame, so that they say the same before and after it is cut.
fn is_whole(packet: &[u8], ip: &Ip) -> bool {
    let udp_len = || packet.get(ip.upper + 4..)?.first_chunk().map(|len| u16::from_be_bytes(*len));
    ip.total == packet.len()
        && (ip.proto != proto::UDP || udp_len().map(usize::from) == Some(ip.total - ip.upper))
}

/// Whether the partial checksum at `field` is in none of the fields that are compared: it is that of the transport header at
/// `start`, or is behind the header of a tunnel.
fn is_behind(ip: &Ip, start: usize, field: usize) -> bool {
    let offset = field.checked_sub(ip.upper);
    let own = match ip.proto {
        proto::TCP => 16,
        proto::UDP => 6,
        proto::SCTP => 8,
        proto::ICMP | proto::ICMPV6 => 2,
        _ => return start >= ip.upper + 4,
    };
    start == ip.upper && offset == Some(own) || ip.proto == proto::UDP && start >= ip.upper + 8
}

impl IpsecHub {
    /// What is done with the frame `bytes`, whose packet starts at `l3`.
    pub(crate) fn unfinished(&self, bytes: &[u8], l3: usize, key: &FlowKey, left: Offload) -> Left {
        let packet = bytes.get(l3..).unwrap_or_default();
        let Some(ip) = Ip::parse(packet) else { return Left::Finish };
        let Some(start) = usize::from(left.checksum_start).checked_sub(l3) else {
            return Left::Finish;
        };
        let stays = if left.segment == Segment::None {
            is_behind(&ip, start, start + usize::from(left.checksum_offset))
        } else {
            is_whole(packet, &ip) && start >= ip.upper
        };
        // Each segment of a frame to a port of NAT traversal is a message of its own.
        let is_here = || key.dst_ip().is_some_and(|dst| self.locals.contains(&dst));
        if !stays || ip.proto == proto::UDP && self.nat_ports.contains(&key.dport) && is_here() {
            return Left::Finish;
        }
        match self.classify(packet, key) {
            Class::Open(..) => Left::Finish,
            class => Left::Class(class),
        }
    }
}

//! The tag that marks a test frame: 18 bytes, which fit into every frame of 64 bytes or more.
//!
//! ```text
//!  Ethernet 14 | IPv4 20 or IPv6 40 | UDP 8 | tag 18 | filler ... | (FCS 4, not in memory)
//!                                             │
//!   signature 2 | source 1 | flow 2 | index 4 | sent 5 | check 4
//! ```
//!
//! `index` counts the frames of one source (a tester port); the receiver extends its 32 bits to 64
//! by choosing the value nearest to the newest frame. `sent` is the departure time in nanoseconds,
//! modulo 2^40 (18 minutes). `check` is a CRC-32 over everything that the device must not change
//! ([`Cover`]), without the check itself. It detects all errors of one to three bits at these
//! lengths. Over IPv6 the UDP checksum is mandatory. It depends on the tag, so the CRC does not
//! cover it and it is verified separately.
//!
//! Invariant: [`read`] accepts as a test frame only what [`write()`] wrote, whatever the input.

use crc32fast::Hasher;
use flowyard_frame::{Nanos, proto};
use flowyard_wire::checksum::{Sum, update_bytes, verify_ipv4_header};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Length of a tag in bytes.
pub const LEN: usize = 18;

/// Offset of the tag in an IPv4 frame without a VLAN tag.
const AT: usize = 42;
/// Offset of the tag in an IPv6 frame without a VLAN tag.
const AT_SIX: usize = 62;

/// The offset of the tag in `frame`.
#[inline]
#[must_use]
pub fn place(frame: &[u8]) -> usize {
    if frame.get(12..14) == Some(&[0x86, 0xdd]) { AT_SIX } else { AT }
}

const SIGNATURE: [u8; 2] = [0xf1, 0x0d];

/// Which part of a frame the CRC covers, and therefore what a device may change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Cover {
    /// The whole frame; the device may change nothing (a bridge, a wire).
    #[default]
    Frame,
    /// All but MAC addresses, TTL and header checksum (a router). The IPv4 header checksum is
    /// verified instead.
    Network,
    /// The payload only (a load balancer, a translator).
    Payload,
}

/// The contents of a tag, without signature and check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag {
    /// The tester port that sent the frame.
    pub source: u8,
    /// The flow's number within its source.
    pub flow: u16,
    /// The low 32 bits of the frame's number among all frames of the source.
    pub index: u32,
    /// Departure time in nanoseconds modulo 2^40.
    pub sent: Nanos,
}

/// The classification of a received frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// An undamaged test frame.
    Good(Tag),
    /// A test frame with changed bits.
    Corrupt,
    /// Not a test frame: routing updates, ARP and other traffic of the network.
    Foreign,
}

/// Time stamps wrap around at this value.
pub const SENT_WRAP: Nanos = 1 << 40;

/// Writes `tag` into `frame`, whose headers and filler must be complete.
///
/// A frame too short for a tag is left unchanged.
pub fn write(frame: &mut [u8], tag: &Tag, cover: Cover) {
    let at = place(frame);
    let Some(room) = frame.get_mut(at..at + LEN) else { return };
    let was: [u8; LEN] = *room.first_chunk().unwrap_or(&[0; LEN]);
    room[..2].copy_from_slice(&SIGNATURE);
    room[2] = tag.source;
    room[3..5].copy_from_slice(&tag.flow.to_be_bytes());
    room[5..9].copy_from_slice(&tag.index.to_be_bytes());
    room[9..14].copy_from_slice(&tag.sent.to_be_bytes()[3..]);
    let check = check(frame, at, cover);
    frame[at + 14..at + LEN].copy_from_slice(&check.to_be_bytes());
    if at == AT_SIX {
        let before = u16::from_be_bytes([frame[at - 2], frame[at - 1]]);
        let after = update_bytes(before, &was, &frame[at..at + LEN]).unwrap_or(before);
        let sent = if after == 0 { 0xffff } else { after }; // 0 means no checksum, RFC 768
        frame[at - 2..at].copy_from_slice(&sent.to_be_bytes());
    }
}

/// Classifies `frame`; `cover` is the part that the device must not change.
#[must_use]
pub fn read(frame: &[u8], cover: Cover) -> Seen {
    let at = place(frame);
    let Some(room) = frame.get(at..at + LEN) else {
        return if is_ours(frame) { Seen::Corrupt } else { Seen::Foreign };
    };
    let [s0, s1, source, f0, f1, i0, i1, i2, i3, t0, t1, t2, t3, t4, c0, c1, c2, c3] =
        *room.first_chunk::<LEN>().unwrap_or(&[0; LEN]);
    let whole = [s0, s1] == SIGNATURE
        && u32::from_be_bytes([c0, c1, c2, c3]) == check(frame, at, cover)
        && match at {
            AT_SIX => datagram_is_whole(frame),
            _ => cover != Cover::Network || header_is_whole(frame),
        };
    if whole {
        return Seen::Good(Tag {
            source,
            flow: u16::from_be_bytes([f0, f1]),
            index: u32::from_be_bytes([i0, i1, i2, i3]),
            sent: u64::from_be_bytes([0, 0, 0, t0, t1, t2, t3, t4]),
        });
    }
    if is_ours(frame) { Seen::Corrupt } else { Seen::Foreign }
}

/// The time from `sent` (a time stamp modulo 2^40) to `now`.
#[must_use]
pub const fn age(sent: Nanos, now: Nanos) -> Nanos {
    now.wrapping_sub(sent) % SENT_WRAP
}

/// The CRC-32 of the covered bytes, without the check itself.
fn check(frame: &[u8], at: usize, cover: Cover) -> u32 {
    let mut crc = Hasher::new();
    let mut add = |from: usize, to: usize| crc.update(frame.get(from..to).unwrap_or_default());
    match (cover, at) {
        (Cover::Frame, AT_SIX) => add(0, at - 2),
        (Cover::Frame, _) => add(0, at),
        (Cover::Network, AT_SIX) => {
            add(12, 21); // not the hop limit
            add(22, at - 2);
        }
        (Cover::Network, _) => {
            add(12, 22); // not the TTL
            add(23, 24); // not the header checksum
            add(26, at);
        }
        (Cover::Payload, _) => {}
    }
    add(at, at + 14);
    add(at + LEN, frame.len());
    crc.finalize()
}

/// Whether EtherType, IP version and IPv4 header checksum are correct.
fn header_is_whole(frame: &[u8]) -> bool {
    let Some(header) = frame.get(14..34) else { return false };
    frame[12..15] == [8, 0, 0x45] && verify_ipv4_header(header)
}

/// Whether the UDP checksum of an IPv6 frame is correct.
fn datagram_is_whole(frame: &[u8]) -> bool {
    let Some(&[high, low]) = frame.get(58..60).and_then(|bytes| bytes.first_chunk()) else {
        return false;
    };
    let len = u16::from_be_bytes([high, low]);
    let Some(datagram) = frame.get(54..54 + usize::from(len)) else { return false };
    let pseudo = Sum::ZERO.bytes(&frame[22..54]).word(len.into()).word(proto::UDP.into());
    pseudo.bytes(datagram).finish() == 0
}

/// Whether a frame with a wrong check was sent as a test frame: at least two of five marks are
/// intact. Three wrong bits leave at least two marks intact. Other traffic has at most one, unless
/// it uses the benchmarking network itself.
fn is_ours(frame: &[u8]) -> bool {
    let has = |at: usize, bytes: &[u8]| frame.get(at..at + bytes.len()) == Some(bytes);
    let four = |at: usize| has(at, &[198, 18]) || has(at, &[198, 19]); // RFC 2544 appendix C.2.2
    let six = |at: usize| has(at, &[0x20, 1, 0, 2, 0, 0]); // RFC 5180
    let signed = |at: usize| [has(at, &SIGNATURE[..1]), has(at + 1, &SIGNATURE[1..])];
    let enough = |marks: [bool; 3], signed: [bool; 2]| {
        marks.into_iter().chain(signed).filter(|mark| *mark).count() >= 2
    };
    enough([has(12, &[8, 0, 0x45]) && has(23, &[17]), four(26), four(30)], signed(AT))
        || enough([has(12, &[0x86, 0xdd]) && has(20, &[17]), six(22), six(38)], signed(AT_SIX))
}

#[cfg(test)]
mod tests;

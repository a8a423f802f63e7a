//! The tag: what makes a frame a test frame, in 18 bytes that fit every size from 64 bytes on.
//!
//! ```text
//!  Ethernet 14 | IPv4 20 or IPv6 40 | UDP 8 | tag 18 | filler ... | (FCS 4, not in memory)
//!                                             │
//!   signature 2 | source 1 | flow 2 | index 4 | sent 5 | check 4
//! ```
//!
//! `index` counts the frames of one source (a tester port), 32 bits that the receiver makes 64 by
//! nearness. `sent` is the time of departure in nanoseconds, modulo 2^40 (18 minutes). `check` is a
//! CRC-32 over everything that the device must not change, itself left out: what that is, [`Cover`]
//! says. It finds every one to three wrong bits at these lengths. Over IPv6, UDP has to have its checksum:
//! it is of the tag, too, and so not the check's but checked beside it.
//!
//! Invariant: [`read`] takes for a test frame only what `write` wrote, whatever bytes come.

use crc32fast::Hasher;
use flowyard_frame::{Nanos, proto};
use flowyard_wire::checksum::{Sum, update_bytes, verify_ipv4_header};
use serde::{Deserialize, Serialize};

/// Bytes of a tag.
pub const LEN: usize = 18;

/// Where the tag of an IPv4 frame without VLAN tag begins.
const AT: usize = 42;
/// The same of an IPv6 frame.
const AT_SIX: usize = 62;

/// Where the tag of a frame begins.
#[inline]
#[must_use]
pub fn place(frame: &[u8]) -> usize {
    if frame.get(12..14) == Some(&[0x86, 0xdd]) { AT_SIX } else { AT }
}

const SIGNATURE: [u8; 2] = [0xf1, 0x0d];

/// What a device may change in a frame, and so what the check leaves out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cover {
    /// Nothing: a bridge, a wire.
    #[default]
    Frame,
    /// MAC addresses, TTL and header checksum: a router. The IPv4 checksum guards the header.
    Network,
    /// All headers: a balancer, a translator.
    Payload,
}

/// What a test frame says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag {
    /// The tester's port that sent it.
    pub source: u8,
    /// The flow.
    pub flow: u16,
    /// The low half of its number among all frames of the source.
    pub index: u32,
    /// When it was sent, in nanoseconds modulo 2^40.
    pub sent: Nanos,
}

/// What a received frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// A test frame, whole.
    Good(Tag),
    /// A test frame that something changed.
    Corrupt,
    /// Not ours: routing updates, ARP, whatever else lives on a network.
    Foreign,
}

/// Time stamps wrap here.
pub const SENT_WRAP: Nanos = 1 << 40;

/// Writes `tag` into `frame`, whose headers and filler are complete.
///
/// Frames too short for a tag are left alone.
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
        let sent = if after == 0 { 0xffff } else { after }; // 0 would be none, RFC 768
        frame[at - 2..at].copy_from_slice(&sent.to_be_bytes());
    }
}

/// What `frame` is, when `cover` is what the device must not change.
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

/// How long ago `sent` was at `now`.
#[must_use]
pub const fn age(sent: Nanos, now: Nanos) -> Nanos {
    now.wrapping_sub(sent) % SENT_WRAP
}

/// The CRC-32 of what is covered, without the check itself.
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

/// Whether type, version and IPv4 header checksum are right.
fn header_is_whole(frame: &[u8]) -> bool {
    let Some(header) = frame.get(14..34) else { return false };
    frame[12..15] == [8, 0, 0x45] && verify_ipv4_header(header)
}

/// Whether the UDP checksum of an IPv6 frame is right.
fn datagram_is_whole(frame: &[u8]) -> bool {
    let Some(&[high, low]) = frame.get(58..60).and_then(|bytes| bytes.first_chunk()) else {
        return false;
    };
    let len = u16::from_be_bytes([high, low]);
    let Some(datagram) = frame.get(54..54 + usize::from(len)) else { return false };
    let pseudo = Sum::ZERO.bytes(&frame[22..54]).word(len.into()).word(proto::UDP.into());
    pseudo.bytes(datagram).finish() == 0
}

/// Whether a frame without a right check was a test frame once: two of five marks still stand. Up
/// to three wrong bits leave two, and no ordinary traffic has more than one, unless it is of the
/// benchmarking network itself.
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

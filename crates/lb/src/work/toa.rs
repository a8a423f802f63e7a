//! TCP option address (TOA): reports the client's address to a FullNAT backend in a TCP option.
//!
//! ```text
//!  client's first ACK   [IP | TCP seq s, options         | data ]
//!  to the backend       [IP | TCP seq s, [254 | length | port | address ], options | data ]   8 bytes more, or 20
//! ```
//!
//! The option is that of the kernel modules `toa` and of DPVS: kind 254, length 8 with an IPv4 address and 20 with an IPv6 address. A server's
//! kernel reads it from the segment that completes the handshake. This is the client's first ACK, or, if that is lost, the next segment, so
//! the option is put into each segment with an ACK that begins with the client's first byte. Sequence numbers stay as they are. The option comes first:
//! behind an end of the option list it would not be read.
//!
//! A segment in which the option has no room passes without it, and is counted. The MSS that the backend offers is reduced by the length of the option,
//! so that the client's first data has room.
//!
//! Invariants: checksums that were correct stay correct; no segment is dropped; everything but the option, the lengths and the checksums stays.
//! Thread-safety: the state of a connection is protected by the lock of its table.

use std::net::IpAddr;

use crate::{ConnKey, Proxied, Stage, State};
use flowyard_frame::{FlowKey, Frag, Frame};
use flowyard_pool::Pool;
use flowyard_wire::Segment;
use flowyard_wire::checksum::Sum;

use super::balance::Balance;
use super::rewrite::Packet;

/// The kind of the option: experimental (RFC 4727).
const KIND: u8 = 254;
/// The longest option, in bytes.
const LONGEST: usize = 20;
/// The length of a TCP header without options, and the longest one, in bytes.
const HEADER: usize = 20;
const LONGEST_HEADER: usize = 60;

/// Length in bytes of the option for connections of a family.
pub(super) const fn len(v6: bool) -> usize {
    if v6 { LONGEST } else { 8 }
}

/// The option for the connection of `key`. Its length is that of [`len`].
fn option(key: &FlowKey) -> Option<[u8; LONGEST]> {
    let mut bytes = [0; LONGEST];
    bytes[0] = KIND;
    bytes[2..4].copy_from_slice(&key.sport.to_be_bytes());
    match key.src_ip()? {
        IpAddr::V4(src) => {
            bytes[1] = len(false) as u8;
            bytes[4..8].copy_from_slice(&src.octets());
        }
        IpAddr::V6(src) => {
            bytes[1] = len(true) as u8;
            bytes[4..20].copy_from_slice(&src.octets());
        }
    }
    Some(bytes)
}

impl Balance {
    /// Puts the option into a segment from the client, if it belongs there. `mtu` is the longest IP packet towards the backend.
    pub(super) fn tell_address(
        &self,
        frame: &mut Frame,
        pool: &Pool,
        key: &FlowKey,
        (core, slot): (u16, u32),
        mtu: Option<usize>,
    ) {
        let flags = key.tcp_flags & (FlowKey::SYN | FlowKey::ACK | FlowKey::RST);
        if !matches!(flags, FlowKey::SYN | FlowKey::ACK) || key.fragment() == Frag::Later {
            return;
        }
        let Some(packet) = Packet::new(pool.bytes_mut(frame), key) else { return };
        let seq = packet.long(packet.l4 + 4);
        let first = {
            let Some(mut conns) = self.table(core.into()) else { return };
            if !conns.has(slot, &ConnKey::of(key)) {
                return; // evicted since another core has found it
            }
            let known = conns.proxied(slot);
            if flags == FlowKey::SYN {
                let opening =
                    conns.get(slot, self.now).is_some_and(|c| c.state() == State::Opening);
                if opening || known == Proxied::default() {
                    let first = seq.wrapping_add(1);
                    conns.set_proxied(slot, Proxied { first, stage: Stage::None });
                }
                return;
            }
            known.first
        };
        if seq == first && !insert(frame, pool, key, mtu) {
            self.toa_omitted();
        }
    }

    /// Reduces the MSS of a SYN of a backend whose service tells addresses by the option.
    #[cold]
    pub(super) fn leave_room(&self, packet: &mut Packet<'_>) {
        let target = self.whose.get().and_then(|id| self.plan.target(id));
        let table = target.and_then(|target| self.plan.services().get(usize::from(target.service)));
        if table.is_some_and(|table| table.service.toa) {
            packet.lower_mss(len(packet.v6) as u16);
        }
    }
}

/// Inserts the option. Returns false if it has no room; nothing is changed then.
fn insert(frame: &mut Frame, pool: &Pool, key: &FlowKey, mtu: Option<usize>) -> bool {
    let offload = pool.meta(frame).offload;
    let Some(packet) = Packet::new(pool.bytes_mut(frame), key) else { return false };
    let (Some(payload), Some(option)) = (packet.tcp_payload(), option(key)) else { return false };
    let (n, whole) = (len(packet.v6), packet.ip_len());
    let most = mtu.unwrap_or(usize::MAX).min(u16::MAX.into());
    let has_room = payload - packet.l4 + n <= LONGEST_HEADER && whole + n <= most;
    // The segments of a long frame and the fragments of a packet would all have to change.
    if !has_room || key.fragment() != Frag::No || offload.segment != Segment::None {
        return false;
    }
    let (l3, at) = (packet.l3, packet.l4 + HEADER);
    pool.truncate(frame, l3 + whole); // removes Ethernet padding
    if !pool.insert(frame, l3 + at, n) {
        return false;
    }
    let offload = pool.meta(frame).offload;
    let option = &option[..n];
    // The headers still have the old lengths.
    let Some(packet) = Packet::new(pool.bytes_mut(frame), key) else { return false };
    let mut packet = packet.with_offload(offload);
    packet.lengthen(n, Sum::ZERO.bytes(option));
    let word = packet.word(packet.l4 + 12) + ((n as u16 / 4) << 12);
    packet.change(packet.l4 + 12, &word.to_be_bytes());
    pool.bytes_mut(frame)[l3 + at..][..n].copy_from_slice(option);
    true
}

#[cfg(test)]
mod tests;

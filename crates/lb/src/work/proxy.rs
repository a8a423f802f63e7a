//! PROXY protocol version 2: reports the client's address to a FullNAT backend.
//!
//! ```text
//!  client's first ACK   [IP | TCP seq s   |                         ]
//!  to the backend       [IP | TCP seq s   | signature, addresses    ]   28 or 52 bytes
//!  client's data        [IP | TCP seq s+n | data ]  ──>  seq s+n+28
//! ```
//!
//! The header (PROXY protocol of HAProxy, section 2.2) is sent with the ACK of the handshake, so that
//! servers that send first also get it at once; [`Proxied`] describes retransmission. Sequence numbers of the
//! client, acknowledgements to it and their SACK blocks (RFC 2018) are translated accordingly. The MSS that
//! the backend offers is reduced by the length of the header, so that the header fits into a segment.
//!
//! Data in a SYN (RFC 7413) is removed; the client sends it again. Fragments are dropped.
//!
//! Invariants: checksums that were correct stay correct; the backend receives the header followed by the
//! client's bytes, whatever segments are lost, duplicated or reordered.
//! Thread-safety: the state of a connection is protected by the lock of its table.

use std::net::IpAddr;

use crate::{ConnKey, Proxied, State, Step};
use flowyard_frame::{FlowKey, Frag, Frame};
use flowyard_wire::checksum::Sum;
use flowyard_wire::{Net, Segment, edit};

use super::balance::Balance;
use super::rewrite::Packet;
use flowyard_pool::Pool;
use flowyard_yard::DropReason;

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// The longest header, in bytes.
const LONGEST: usize = 52;
/// TCP flag URG (RFC 9293 section 3.1).
const URG: u8 = 0x20;

/// Length in bytes of the header for connections of a family.
pub(super) const fn len(v6: bool) -> usize {
    if v6 { LONGEST } else { 28 }
}

/// The header for the connection of `key`. Its length is that of [`len`].
fn header(key: &FlowKey) -> Option<[u8; LONGEST]> {
    let mut bytes = [0; LONGEST];
    bytes[..12].copy_from_slice(&SIGNATURE);
    let (n, family) = match (key.src_ip()?, key.dst_ip()?) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            bytes[16..20].copy_from_slice(&src.octets());
            bytes[20..24].copy_from_slice(&dst.octets());
            (12, 0x11)
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            bytes[16..32].copy_from_slice(&src.octets());
            bytes[32..48].copy_from_slice(&dst.octets());
            (36, 0x21)
        }
        _ => return None,
    };
    // Version 2, command PROXY; TCP over this family; length of the addresses.
    bytes[12..16].copy_from_slice(&[0x21, family, 0, n]);
    let at = 16 + usize::from(n) - 4;
    bytes[at..at + 2].copy_from_slice(&key.sport.to_be_bytes());
    bytes[at + 2..at + 4].copy_from_slice(&key.dport.to_be_bytes());
    Some(bytes)
}

impl Balance {
    /// Modifies a segment from the client to the backend.
    pub(super) fn to_proxied(
        &self,
        frame: &mut Frame,
        pool: &Pool,
        key: &FlowKey,
        (core, slot): (u16, u32),
    ) -> Result<(), DropReason> {
        if key.fragment() != Frag::No {
            return Err(DropReason::Fragment);
        }
        let offload = pool.meta(frame).offload;
        if offload.segment != Segment::None {
            return Err(DropReason::TooLong); // ports cut such frames when they receive them
        }
        let packet = Packet::new(pool.bytes_mut(frame), key).ok_or(DropReason::Malformed)?;
        let mut packet = packet.with_offload(offload);
        let payload = packet.tcp_payload().ok_or(DropReason::Malformed)?;
        let (l3, at, seq) = (packet.l3, packet.l4 + 4, packet.long(packet.l4 + 4));
        let n = len(packet.v6);
        let proxied = {
            let mut conns = self.table(core.into()).ok_or(DropReason::NoConnection)?;
            if !conns.has(slot, &ConnKey::of(key)) {
                return Err(DropReason::NoConnection); // evicted since another core has found it
            }
            let opening = conns.get(slot, self.now).is_some_and(|c| c.state() == State::Opening);
            if key.tcp_flags & (FlowKey::SYN | FlowKey::ACK) == FlowKey::SYN {
                if opening || conns.proxied(slot) == Proxied::default() {
                    conns.set_proxied(slot, Proxied::new(seq));
                }
                drop(conns);
                packet.cut(payload);
                pool.truncate(frame, l3 + payload);
                return Ok(());
            }
            conns.proxied(slot)
        };
        match proxied.step(seq, key.tcp_flags & FlowKey::RST != 0) {
            Step::Keep => Ok(()),
            Step::Shift => {
                packet.change(at, &seq.wrapping_add(n as u32).to_be_bytes());
                Ok(())
            }
            Step::Insert => {
                let header = header(key).ok_or(DropReason::Malformed)?;
                let header = &header[..n];
                let whole = packet.ip_len();
                if !packet.lengthen(n, Sum::ZERO.bytes(header)) {
                    return Err(DropReason::TooLong);
                }
                if key.tcp_flags & URG != 0 {
                    let urgent = packet.word(packet.l4 + 18).saturating_add(n as u16);
                    packet.change(packet.l4 + 18, &urgent.to_be_bytes());
                }
                pool.truncate(frame, l3 + whole); // removes Ethernet padding
                if !pool.insert(frame, l3 + payload, n) {
                    return Err(DropReason::TooLong);
                }
                pool.bytes_mut(frame)[l3 + payload..][..n].copy_from_slice(header);
                Ok(())
            }
        }
    }
}

/// Modifies a segment from the backend to the client. Returns the new state of the connection's header.
pub(super) fn from_proxied(packet: &mut Packet<'_>, key: &FlowKey, proxied: Proxied) -> Proxied {
    let Some(payload) = packet.tcp_payload() else { return proxied };
    let n = len(packet.v6) as u16;
    if key.tcp_flags & FlowKey::SYN != 0 {
        packet.lower_mss(n);
        // The header uses a part of the receive window, which is not scaled in a SYN (RFC 7323).
        let window = packet.word(packet.l4 + 14).saturating_sub(n);
        packet.change(packet.l4 + 14, &window.to_be_bytes());
    }
    if key.tcp_flags & FlowKey::ACK == 0 {
        return proxied;
    }
    let ack = packet.long(packet.l4 + 8);
    let after = proxied.after(ack, n.into());
    let back = |number: u32| after.back(number, n.into()).to_be_bytes();
    packet.change(packet.l4 + 8, &back(ack));
    let (mut at, end) = (packet.l4 + 20, payload);
    while at + 1 < end {
        match (packet.bytes[at], usize::from(packet.bytes[at + 1])) {
            (0, _) => break,
            (1, _) => at += 1,
            (5, len @ (10 | 18 | 26 | 34)) if at + len <= end => {
                sack(packet, at, len, &back);
                at += len;
            }
            (_, len @ 2..) => at += len,
            _ => break,
        }
    }
    after
}

/// Translates the SACK option of `len` bytes at `at`. Blocks that cover only the header, which the client
/// did not send, are removed.
fn sack(packet: &mut Packet<'_>, at: usize, len: usize, back: &dyn Fn(u32) -> [u8; 4]) {
    let mut option = [1; 34]; // no-operation
    let mut to = 2;
    for block in (at + 2..at + len).step_by(8) {
        let [left, right] = [block, block + 4].map(|at| back(packet.long(at)));
        if left != right {
            option[to..to + 4].copy_from_slice(&left);
            option[to + 4..to + 8].copy_from_slice(&right);
            to += 8;
        }
    }
    if to > 2 {
        (option[0], option[1]) = (5, to as u8);
    }
    packet.change(at, &option[..len]);
}

/// Translates the sequence number of a quoted segment to the one that the client sent.
pub(super) fn quoted(bytes: &mut [u8], packet: &edit::Packet, proxied: Proxied) {
    let at = packet.l4 + 4;
    let old = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    let Some(old) = old.map(|old| u32::from_be_bytes(*old)) else { return };
    let new = proxied.back(old, len(packet.net == Net::Ipv6) as u32);
    let _not_sctp = packet.change(bytes, at, &new.to_be_bytes());
}

#[cfg(test)]
mod tests;

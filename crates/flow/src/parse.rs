//! Parse: from the bytes of a frame to its key.
//!
//! There are two functions that give the same key. [`fast`] accepts the most common kind of frame,
//! checks its headers, and refuses every other frame. [`key`] uses the result of the general parser.
//!
//! Invariants: both are total (any bytes, any offsets); a field that a frame does not have is zero; if
//! `fast` accepts a frame, `key` gives the same key.

use flowyard_frame::FlowKey;
use flowyard_wire::{Headers, Net};

mod fast;

pub use fast::fast;

/// The key of one level of headers of the frame `bytes`, which port `in_port` received.
///
/// An address is zero if the frame ends before it.
#[must_use]
pub fn key(headers: &Headers, bytes: &[u8], in_port: u16) -> FlowKey {
    let l3 = headers.l3 as usize;
    let mut key = FlowKey {
        proto: headers.proto,
        tcp_flags: headers.tcp_flags,
        eth_type: headers.eth_type,
        in_port,
        tunnel_id: headers.tunnel_id,
        ..FlowKey::ZERO
    };
    if headers.tags.count > 0 {
        key.vlan_tci = headers.tags.tci[0];
    }
    if let Some(eth) = headers.eth {
        key.eth_dst = array(bytes, eth as usize);
        key.eth_src = array(bytes, (eth as usize).saturating_add(6));
    }
    match headers.net {
        Net::Ipv4 => {
            key.eth_type = 0x0800; // also after labels and PPPoE, and without Ethernet
            let [_, tos]: [u8; 2] = array(bytes, l3);
            key.tos = tos;
            key.src[..4].copy_from_slice(&array::<4>(bytes, l3.saturating_add(12)));
            key.dst[..4].copy_from_slice(&array::<4>(bytes, l3.saturating_add(16)));
        }
        Net::Ipv6 => {
            key.eth_type = 0x86dd;
            key.tos = (u16::from_be_bytes(array(bytes, l3)) >> 4) as u8;
            key.src = array(bytes, l3.saturating_add(8));
            key.dst = array(bytes, l3.saturating_add(24));
        }
        Net::Arp | Net::Other => return key,
    }
    key.frag = match (headers.fragment.offset, headers.fragment.more) {
        (0, false) => 0,
        (0, true) => 1,
        _ => 2,
    };
    if let (Some((sport, dport)), 0 | 1) = (headers.ports, key.frag) {
        (key.sport, key.dport) = (sport, dport);
    }
    key
}

/// The `N` bytes at `at`, or zeros if the frame ends before.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

//! The values of the maps as `front.c` of `crates/steer/bpf` lays them out.

use std::net::IpAddr;

use flowyard_frame::FlowKey;
use flowyard_yard::front::{Change, Entry};
use zerocopy::IntoBytes;

/// The most ports, and queues of a port, that the program counts.
pub(crate) const PORTS: usize = 32;
pub(crate) const QUEUES: usize = 64;
/// `struct config`: mask, number of ports, TCP flags, index and longest frame of each interface.
pub(crate) type Config = [u32; 18 + 2 * PORTS];
/// `struct flow`.
pub(crate) type Key = [u8; 64];
/// Words of `struct answer`, `struct counts` and `struct gate`.
pub(crate) const ANSWER: usize = 9;
pub(crate) const COUNTS: usize = 4;
pub(crate) const GATE: usize = 8;

pub(crate) fn config(
    mask: &FlowKey,
    changes: u8,
    index: &[u32; PORTS],
    longest: &[u32; PORTS],
) -> Config {
    let mut config = [0; 18 + 2 * PORTS];
    config.as_mut_bytes()[..64].copy_from_slice(mask.as_bytes());
    config[16] = PORTS as u32;
    config[17] = changes.into();
    config[18..18 + PORTS].copy_from_slice(index);
    config[18 + PORTS..].copy_from_slice(longest);
    config
}

pub(crate) fn key(key: &FlowKey, mask: &FlowKey) -> Key {
    let mut bytes = [0; 64];
    bytes.copy_from_slice(key.masked(mask).as_bytes());
    bytes
}

const HOP: u32 = 1;
const MACS: u32 = 2;
const SOURCE: u32 = 4;
const TARGET: u32 = 8;
const SET_PORT: u32 = 16;
const TUNNEL4: u32 = 32;
const TUNNEL6: u32 = 64;

/// An answer; its first word, the time from which on it counts, is 0.
pub(crate) fn answer(entry: &Entry) -> [u64; ANSWER] {
    let mut words = [0; ANSWER];
    let bytes = words.as_mut_bytes();
    let mut put = |at: usize, data: &[u8]| bytes[at..at + data.len()].copy_from_slice(data);
    let mut flags = if entry.hop { HOP } else { 0 };
    if let Some((dst, src)) = entry.macs {
        flags |= MACS;
        put(22, &dst);
        put(28, &src);
    }
    let mut address = |at: usize, address: IpAddr| match address {
        IpAddr::V4(v4) => put(at, &v4.octets()),
        IpAddr::V6(v6) => put(at, &v6.octets()),
    };
    let (mut port, mut label) = (None, 0);
    match entry.change {
        Change::None => {}
        Change::Source(new, to) => {
            flags |= SOURCE;
            address(36, new);
            port = to;
        }
        Change::Destination(new, to) => {
            flags |= TARGET;
            address(36, new);
            port = to;
        }
        Change::Tunnel(from, to, flow) => {
            flags |= if to.is_ipv6() { TUNNEL6 } else { TUNNEL4 };
            address(36, to);
            address(52, from);
            label = flow;
        }
    }
    if let Some(port) = port {
        flags |= SET_PORT;
        put(20, &port.to_be_bytes());
    }
    put(8, &flags.to_ne_bytes());
    put(12, &label.to_ne_bytes());
    put(16, &entry.port.to_ne_bytes());
    put(18, &entry.mtu.to_ne_bytes());
    words
}

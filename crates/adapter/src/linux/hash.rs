//! The flow hash that Linux computes itself when the adapter supplies none.
//!
//! SipHash-2-4 over the dissected fields under a random key. Before hashing, the kernel's flow
//! dissector makes the fields consistent for both directions: it orders the two addresses, and,
//! on its own, the two ports. So a flow and its reverse hash alike, and so do `a:1 > b:2` and
//! `a:2 > b:1`. Fragments are hashed without ports, first fragments too.
//!
//! The kernel lays the fields out in its own structure, so values differ from a live kernel's
//! (whose key is secret anyway); equalities between flows do not.

use std::hash::Hasher;

use flowyard_frame::FlowKey;
use siphasher::sip::SipHasher24;

/// The software flow hash under one key.
#[derive(Clone, Copy, Debug)]
pub struct SoftHash {
    key: [u8; 16],
}

impl SoftHash {
    /// The hash under `key`; Linux draws one at random at its first use.
    #[must_use]
    pub const fn new(key: [u8; 16]) -> Self {
        Self { key }
    }

    /// The hash of a flow, never zero (zero means "no hash").
    #[must_use]
    pub fn hash(&self, key: &FlowKey) -> u32 {
        let (low, high) = if key.dst < key.src { (key.dst, key.src) } else { (key.src, key.dst) };
        let ports = if key.frag == 0 { [key.sport, key.dport] } else { [0, 0] };
        let mut sip = SipHasher24::new_with_key(&self.key);
        sip.write_u16(key.eth_type);
        sip.write_u8(key.proto);
        sip.write_u16(key.vlan_tci & 0x0fff);
        sip.write_u32(key.tunnel_id);
        sip.write_u16(ports[0].min(ports[1]));
        sip.write_u16(ports[0].max(ports[1]));
        sip.write(&low);
        sip.write(&high);
        (sip.finish() as u32).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowyard_frame::proto;
    use std::net::Ipv4Addr;

    fn key(a: u8, sport: u16, b: u8, dport: u16) -> FlowKey {
        let ip = |x| Ipv4Addr::new(10, 0, 0, x).into();
        FlowKey::five_tuple(proto::TCP, ip(a), sport, ip(b), dport)
    }

    #[test]
    fn both_directions_hash_alike_and_so_do_crossed_ports() {
        let hash = SoftHash::new([7; 16]);
        let one = key(1, 40000, 2, 80);
        assert_eq!(hash.hash(&one), hash.hash(&one.reversed()));
        assert_eq!(hash.hash(&one), hash.hash(&key(1, 80, 2, 40000)));
        assert_ne!(hash.hash(&one), hash.hash(&key(1, 40001, 2, 80)));
        assert_ne!(hash.hash(&one), SoftHash::new([8; 16]).hash(&one));
    }

    #[test]
    fn fragments_hash_without_ports() {
        let hash = SoftHash::new([7; 16]);
        let first = |sport| FlowKey { frag: 1, ..key(1, sport, 2, 80) };
        assert_eq!(hash.hash(&first(1)), hash.hash(&first(2)));
        let later = FlowKey { frag: 2, ..key(1, 0, 2, 0) };
        assert_eq!(hash.hash(&first(1)), hash.hash(&later));
    }
}

//! The flow hash that Linux computes in software when the adapter supplies none of type L4.
//!
//! It is SipHash-2-4 over the dissected fields under a random key. Before hashing, the kernel's flow
//! dissector makes the fields equal for both directions: it orders the two addresses, and
//! independently the two ports. Therefore a flow and its reverse have the same hash, and so have
//! `a:1 > b:2` and `a:2 > b:1`. All fragments are hashed without ports, also the first one. A frame that is not IP is hashed
//! by what is left: its EtherType and VLAN (`___skb_get_hash` hashes also what the dissector does not know).
//!
//! The kernel's structure has another layout, so the values differ from those of a live kernel
//! (whose key is secret anyway). The flows that share a hash by construction are the same.

use std::hash::Hasher;

use flowyard_frame::FlowKey;
use siphasher::sip::SipHasher24;

/// The software flow hash with one key.
#[derive(Clone, Copy, Debug)]
pub struct SoftHash {
    key: [u8; 16],
}

impl SoftHash {
    /// The hash with `key`; Linux draws a random key at the first use.
    #[must_use]
    pub const fn new(key: [u8; 16]) -> Self {
        Self { key }
    }

    /// The hash of a flow. It is never zero, because zero means "no hash".
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
    fn both_directions_and_exchanged_ports_have_the_same_hash() {
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

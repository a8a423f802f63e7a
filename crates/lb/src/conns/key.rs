//! The key of a connection, and its hash.

use flowyard_flow::fold;
use flowyard_frame::FlowKey;

/// 5-tuple and IP version of the packets that the client sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C, align(8))]
pub struct ConnKey {
    pub(super) words: [u64; 5],
}

impl ConnKey {
    /// The key of a frame.
    #[must_use]
    #[inline]
    pub fn of(key: &FlowKey) -> Self {
        let w: [u64; 8] = zerocopy::transmute!(*key);
        // Ports and protocol are the first five bytes of word 4.
        let ports = w[4] & u64::from_ne_bytes([255, 255, 255, 255, 255, 0, 0, 0]);
        let version = u64::from_ne_bytes([0, 0, 0, 0, 0, u8::from(key.is_ipv6()), 0, 0]);
        Self { words: [w[0], w[1], w[2], w[3], ports | version] }
    }

    /// A 64-bit keyed hash. Machines that must choose the same backends need the same `seed`, which
    /// must be unknown to senders.
    #[must_use]
    #[inline]
    pub fn hash(&self, seed: u64) -> u64 {
        let w = &self.words;
        let (a, b) = (seed ^ 0x9e37_79b9_7f4a_7c15, seed.rotate_left(32) ^ 0xbf58_476d_1ce4_e5b9);
        let src = fold(w[0] ^ a, w[1] ^ b);
        let dst = fold(w[2] ^ a.rotate_left(17), w[3] ^ b.rotate_left(41));
        fold(src ^ dst.rotate_left(23) ^ w[4], a ^ b.rotate_left(7) | 1)
    }

    /// The hash of the source address alone.
    #[must_use]
    pub fn source_hash(&self, seed: u64) -> u64 {
        let source = Self { words: [self.words[0], self.words[1], 0, 0, 0] };
        source.hash(seed)
    }

    /// Whether the addresses are of IPv6.
    #[must_use]
    pub const fn is_ipv6(&self) -> bool {
        self.words[4].to_ne_bytes()[5] != 0
    }

    /// The source address with all but its leading bits set to zero; the number of bits depends on the IP version.
    #[must_use]
    pub fn network(&self, bits_v4: u8, bits_v6: u8) -> [u64; 2] {
        let rest = 128 - u32::from(if self.is_ipv6() { bits_v6 } else { bits_v4 }.min(128));
        let mask: [u64; 2] =
            zerocopy::transmute!(u128::MAX.checked_shl(rest).unwrap_or(0).to_be_bytes());
        [self.words[0] & mask[0], self.words[1] & mask[1]]
    }

    /// A key with this source address and nothing else.
    #[must_use]
    pub const fn of_network(network: [u64; 2]) -> Self {
        Self { words: [network[0], network[1], 0, 0, 0] }
    }

    /// The key as a [`FlowKey`] in which only the 5-tuple and the EtherType are set.
    #[must_use]
    pub fn flow(&self) -> FlowKey {
        let bytes = self.words[4].to_ne_bytes();
        let ports = u64::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], 0, 0, 0]);
        let w = &self.words;
        let key: FlowKey = zerocopy::transmute!([w[0], w[1], w[2], w[3], ports, 0, 0, 0]);
        FlowKey { eth_type: if bytes[5] == 0 { 0x0800 } else { 0x86dd }, ..key }
    }
}

#[cfg(test)]
mod tests {
    use flowyard_frame::proto;

    use super::*;

    /// Machines of a cluster may run different versions, so the hash under a seed never changes.
    #[test]
    fn a_seed_gives_the_hashes_that_it_always_gave() {
        let [src, dst] = ["10.0.0.1", "192.0.2.1"].map(|text| text.parse().unwrap());
        let conn = ConnKey::of(&FlowKey::five_tuple(proto::TCP, src, 1000, dst, 80));
        assert_eq!(conn.hash(1), 0xd05d_b482_51d6_a81f);
        assert_eq!(conn.hash(7), 0x60b5_b32d_cf16_7370);
    }
}

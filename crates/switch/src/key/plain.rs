//! Plain frames: frames whose fields are all in the yard's key, so that the switch's key can be made from it.
//!
//! A frame is plain if `flowyard_flow::parse::fast` accepts it: Ethernet without a tag, IPv4 without options and
//! unfragmented, TCP or UDP, with a correct header checksum and correct lengths. The protocol of a plain frame
//! determines which fields it has, and their values are in its [`FlowKey`].
//!
//! Invariants: if two plain frames agree under [`flat`] of a mask, their keys agree under that mask.
//! Thread-safety: plain functions.

use flowyard_frame::{FlowKey, proto};
use flowyard_openflow::Field;

use super::Key;

impl Key {
    /// Whether both have the same protocol, addresses and ports of IPv4.
    pub(crate) fn is_same_flow(&self, other: &Self) -> bool {
        let fields = [
            Field::IpProto,
            Field::Ipv4Src,
            Field::Ipv4Dst,
            Field::TcpSrc,
            Field::TcpDst,
            Field::UdpSrc,
            Field::UdpDst,
        ];
        fields.into_iter().all(|field| self.bits(field) == other.bits(field))
    }

    /// Adds the fields of a plain frame whose key in the yard is `key`.
    pub(crate) fn add_plain(&mut self, key: &FlowKey) {
        let address = |of: &[u8; 16]| u128::from(u32::from_be_bytes([of[0], of[1], of[2], of[3]]));
        let mac = |of: &[u8; 6]| of.iter().fold(0, |sum, byte| sum << 8 | u128::from(*byte));
        self.set(Field::EthDst, mac(&key.eth_dst));
        self.set(Field::EthSrc, mac(&key.eth_src));
        self.set(Field::EthType, key.eth_type.into());
        self.set(Field::IpDscp, (key.tos >> 2).into());
        self.set(Field::IpEcn, (key.tos & 3).into());
        self.set(Field::IpProto, key.proto.into());
        self.set(Field::Ipv4Src, address(&key.src));
        self.set(Field::Ipv4Dst, address(&key.dst));
        if key.proto == proto::TCP {
            self.set(Field::TcpSrc, key.sport.into());
            self.set(Field::TcpDst, key.dport.into());
            self.set(Field::TcpFlags, key.tcp_flags.into());
        } else {
            self.set(Field::UdpSrc, key.sport.into());
            self.set(Field::UdpDst, key.dport.into());
        }
    }
}

/// The bits of the yard's key that determine the fields of `mask` in plain frames. Fields that plain frames do not
/// have are equal in all of them.
pub(crate) fn flat(mask: &Key) -> FlowKey {
    let mac = |field| {
        let bytes = (mask.bits(field) as u64).to_be_bytes();
        [bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]]
    };
    let address = |field| match mask.bits(field) as u32 {
        // The bytes behind an IPv4 address are zero. Comparing whole words is faster.
        u32::MAX => [0xff; 16],
        part => {
            let mut of = [0; 16];
            of[..4].copy_from_slice(&part.to_be_bytes());
            of
        }
    };
    FlowKey {
        src: address(Field::Ipv4Src),
        dst: address(Field::Ipv4Dst),
        // Other fields share these positions. A bit that is not needed only makes more entries.
        sport: mask.bits(Field::TcpSrc) as u16,
        dport: mask.bits(Field::TcpDst) as u16,
        // The protocol determines which fields are present.
        proto: 0xff,
        tos: (mask.bits(Field::IpDscp) << 2 | mask.bits(Field::IpEcn)) as u8,
        tcp_flags: mask.bits(Field::TcpFlags) as u8,
        eth_dst: mac(Field::EthDst),
        eth_src: mac(Field::EthSrc),
        // The result depends on the port even if no rule compares it: frames are not sent back to their port, and a
        // port may be configured not to receive.
        in_port: 0xffff,
        ..FlowKey::ZERO
    }
}

#[cfg(test)]
mod tests {
    use flowyard_flow::parse;
    use flowyard_testkit::{Build, Rng};

    use super::*;
    use crate::parse::parse as switch_parse;

    /// Frames with a few random bytes; many of them are still plain.
    #[test]
    fn the_key_made_from_the_yards_key_equals_the_parsed_key() {
        let (mut rng, mut plain) = (Rng::new(1), 0);
        for _ in 0..20_000 {
            let kind = [proto::TCP, proto::UDP][rng.below(2) as usize];
            let address = |rng: &mut Rng| (rng.bits() as u32).to_be_bytes();
            let (src, dst) = (address(&mut rng), address(&mut rng));
            let (sport, dport) = (rng.bits() as u16, rng.bits() as u16);
            let tuple = FlowKey::five_tuple(kind, src.into(), sport, dst.into(), dport);
            let six = |rng: &mut Rng| (rng.bits() as u32).to_be_bytes();
            let [a, b, c, d] = six(&mut rng);
            let built = FlowKey {
                eth_dst: [a, b, c, d, 1, 2],
                eth_src: [d, c, b, a, 3, 4],
                tos: rng.bits() as u8,
                tcp_flags: if kind == proto::TCP { rng.bits() as u8 } else { 0 },
                ..tuple
            };
            let mut bytes = Build::new(&built).pad(60).bytes();
            for _ in 0..rng.below(3) {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes[at] = rng.bits() as u8;
            }
            let mut flow = FlowKey::ZERO;
            if !parse::fast(&bytes, 7, &mut flow) {
                continue;
            }
            plain += 1;
            let (mut own, mut made) = (Key::ZERO, Key::ZERO);
            switch_parse(&bytes, &mut own);
            made.add_plain(&flow);
            assert_eq!(own, made, "{flow:?}");
        }
        assert!(plain > 10_000, "{plain}");
    }

    /// Two plain frames that differ under a mask differ under its flat mask.
    #[test]
    fn the_flat_mask_distinguishes_all_that_the_mask_distinguishes() {
        let mut rng = Rng::new(2);
        for _ in 0..20_000 {
            let mut mask = Key::ZERO;
            for _ in 0..1 + rng.below(3) {
                let field = Field::ALL[rng.below(Field::ALL.len() as u64) as usize];
                let bits = u128::from(rng.bits()) << 64 | u128::from(rng.bits());
                mask.write(field, bits, if rng.below(2) == 0 { bits } else { u128::MAX });
                mask.0[0] |= 1 << field as u8;
            }
            let flow = |rng: &mut Rng| {
                let kind = [proto::TCP, proto::UDP][rng.below(2) as usize];
                let few = |rng: &mut Rng| [10, 0, 0, rng.below(2) as u8];
                let (src, dst) = (few(rng), few(rng));
                let mut key = FlowKey::five_tuple(kind, src.into(), 1, dst.into(), 2);
                key.sport = rng.below(2) as u16;
                key.tos = 4 * rng.below(2) as u8;
                key.eth_src[5] = rng.below(2) as u8;
                key.tcp_flags = if kind == proto::TCP { rng.below(2) as u8 } else { 0 };
                key
            };
            let two = [flow(&mut rng), flow(&mut rng)];
            let keys = two.map(|flow| {
                let mut key = Key::ZERO;
                key.add_plain(&flow);
                key
            });
            let differ = (0..16).any(|at| (keys[0].0[at] ^ keys[1].0[at]) & mask.0[at] != 0);
            let flat = flat(&mask);
            assert!(!differ || two[0].masked(&flat) != two[1].masked(&flat), "{two:?} {mask:?}");
        }
    }
}

//! Key: the match fields of a frame, each at a fixed position in 128 bytes; also used as a mask.
//!
//! ```text
//!   word 0   [ label 20 | one bit for each field that the frame has ]
//!   word 1.. in_port, metadata, tunnel | Ethernet | IPv4 or ARP | transport | IPv6 or ARP | ND | rest
//! ```
//!
//! Fields that no frame has together share a position: TCP and UDP ports, the addresses of IPv4 and
//! ARP. The bits of word 0 distinguish them, and distinguish a field that is zero from one that is absent.
//! Rules compare these bits, too. So a rule is one comparison under one mask, for all 43 fields.
//!
//! Only the VLAN id is present without a tag: it is 0 then (`OFPVID_NONE`).
//!
//! Invariants: fields that a frame does not have are zero.
//! Thread-safety: plain data.

use flowyard_openflow::{Field, Match};

mod plain;

pub(crate) use plain::flat;

/// Words of a key.
pub(crate) const WORDS: usize = 16;

/// The fields of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(C, align(64))]
pub struct Key(pub(crate) [u64; WORDS]);

/// The position of a field: its word, and the number of bits below it. Fields of 128 bits take this word
/// and the next one.
const fn place(field: Field) -> (usize, u32) {
    match field {
        Field::Ipv6Flabel | Field::MplsLabel => (0, 44),
        Field::InPort => (1, 32),
        Field::InPhyPort => (1, 0),
        Field::Metadata => (2, 0),
        Field::TunnelId => (3, 0),
        Field::EthDst => (4, 16),
        Field::EthType => (4, 0),
        Field::EthSrc => (5, 16),
        Field::VlanVid => (5, 0),
        Field::VlanPcp => (5, 13),
        Field::Ipv4Src | Field::ArpSpa => (6, 32),
        Field::Ipv4Dst | Field::ArpTpa | Field::PbbIsid => (6, 0),
        Field::TcpSrc | Field::UdpSrc | Field::SctpSrc | Field::Icmpv4Type | Field::Icmpv6Type => {
            (7, 48)
        }
        Field::TcpDst | Field::UdpDst | Field::SctpDst | Field::Icmpv4Code | Field::Icmpv6Code => {
            (7, 32)
        }
        Field::IpProto | Field::ArpOp => (7, 16),
        Field::IpDscp => (7, 8),
        Field::IpEcn => (7, 0),
        Field::Ipv6Src | Field::ArpSha => (8, 0),
        Field::Ipv6Dst | Field::ArpTha => (10, 0),
        Field::Ipv6NdTarget => (12, 0),
        Field::Ipv6NdSll | Field::Ipv6NdTll => (14, 0),
        Field::MplsTc => (14, 48),
        Field::MplsBos => (14, 51),
        Field::PbbUca => (14, 52),
        Field::Ipv6Exthdr => (15, 0),
        Field::TcpFlags => (15, 16),
        Field::ActsetOutput => (15, 32),
    }
}

impl Key {
    /// The key without fields.
    pub const ZERO: Self = Self([0; WORDS]);

    /// The value of a field, if the frame has it.
    #[must_use]
    pub fn get(&self, field: Field) -> Option<u128> {
        (self.has(field) || field == Field::VlanVid).then(|| self.bits(field))
    }

    /// Whether the frame has a field.
    #[must_use]
    #[inline]
    pub const fn has(&self, field: Field) -> bool {
        self.0[0] >> field as u8 & 1 != 0
    }

    /// Adds a field with this value.
    #[inline]
    pub fn set(&mut self, field: Field, value: u128) {
        self.0[0] |= 1 << field as u8;
        self.write(field, value, field.full());
    }

    #[inline]
    pub(crate) const fn bits(&self, field: Field) -> u128 {
        let (word, shift) = place(field);
        if field.bits() == 128 {
            return (self.0[word] as u128) << 64 | self.0[word + 1] as u128;
        }
        (self.0[word] >> shift) as u128 & field.full()
    }

    #[inline]
    pub(crate) fn write(&mut self, field: Field, value: u128, mask: u128) {
        let (word, shift) = place(field);
        let mask = mask & field.full();
        if field.bits() == 128 {
            let new = self.bits(field) & !mask | value & mask;
            (self.0[word], self.0[word + 1]) = ((new >> 64) as u64, new as u64);
        } else {
            let (value, mask) = ((value as u64) << shift, (mask as u64) << shift);
            self.0[word] = self.0[word] & !mask | value & mask;
        }
    }

    /// Writes the bits of `mask` in the metadata.
    pub(crate) fn write_metadata(&mut self, value: u64, mask: u64) {
        let old = self.bits(Field::Metadata) as u64;
        self.set(Field::Metadata, (old & !mask | value & mask).into());
    }

    /// Every field that the frame has, with its value.
    pub fn fields(&self) -> impl Iterator<Item = (Field, u128)> + '_ {
        Field::ALL.iter().filter(|field| self.has(**field)).map(|field| (*field, self.bits(*field)))
    }

    pub(crate) fn or(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(word, other)| *word |= other);
    }
}

/// The condition of a rule: `key & mask == value`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Pattern {
    /// Zero outside the mask.
    pub value: Key,
    /// The bits that are compared.
    pub mask: Key,
}

impl Pattern {
    /// Whether a frame with this key matches.
    #[must_use]
    #[inline]
    pub fn matches(&self, key: &Key) -> bool {
        let differ = |at: usize| (key.0[at] ^ self.value.0[at]) & self.mask.0[at];
        // Without a branch for each word: 16 words are four vector operations.
        (0..WORDS).fold(0, |sum, at| sum | differ(at)) == 0
    }

    /// Whether a frame could match both.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        (0..WORDS).all(|at| {
            let both = self.mask.0[at] & other.mask.0[at];
            (self.value.0[at] ^ other.value.0[at]) & both == 0
        })
    }
}

impl From<&Match> for Pattern {
    fn from(matching: &Match) -> Self {
        let mut pattern = Self::default();
        for oxm in &matching.0 {
            pattern.value.write(oxm.field, oxm.value, oxm.mask);
            pattern.mask.write(oxm.field, oxm.mask, oxm.mask);
            // The VLAN id is present without a tag, too.
            if oxm.field != Field::VlanVid {
                pattern.value.0[0] |= 1 << oxm.field as u8;
                pattern.mask.0[0] |= 1 << oxm.field as u8;
            }
        }
        pattern
    }
}

#[cfg(test)]
mod tests {
    use flowyard_testkit::Rng;

    use super::*;

    /// Whatever else is in the key: the bits of the mask are written, all others stay.
    #[test]
    fn a_write_changes_the_bits_of_its_mask_only() {
        let mut rng = Rng::new(1);
        for field in Field::ALL.iter().copied() {
            for _ in 0..50 {
                let mut key = Key(std::array::from_fn(|_| rng.bits()));
                let [value, mask] =
                    [(); 2].map(|()| u128::from(rng.bits()) << 64 | u128::from(rng.bits()));
                let (before, old) = (key, key.bits(field));
                key.write(field, value, mask);
                assert_eq!(key.bits(field), (old & !mask | value & mask) & field.full());
                key.write(field, old, u128::MAX);
                assert_eq!(key, before, "{field:?} changed other fields");
                key.set(field, value);
                assert_eq!(key.get(field), Some(value & field.full()), "{field:?}");
            }
            let mut key = Key::ZERO;
            assert!(!key.has(field));
            key.set(field, 1);
            assert!(key.fields().eq([(field, 1)]), "{field:?}");
        }
        let mut key = Key::ZERO;
        key.write_metadata(0x1234, u64::MAX);
        key.write_metadata(0xffff, 0x00ff);
        assert_eq!(key.get(Field::Metadata), Some(0x12ff));
    }

    /// Two patterns overlap if there is a key that matches both; here, among all keys of two bits in a word.
    #[test]
    fn patterns_overlap_if_a_key_matches_both() {
        let with = |at: usize, bits: u64| {
            let mut key = Key::ZERO;
            key.0[at] = bits << (at * 4);
            key
        };
        let all: Vec<(u64, u64)> = (0..4)
            .flat_map(|mask| (0..4).filter(move |value| value & !mask == 0).map(move |v| (v, mask)))
            .collect();
        for at in 0..WORDS {
            let pattern =
                |at: usize, (value, mask)| Pattern { value: with(at, value), mask: with(at, mask) };
            for one in all.iter().copied() {
                for other in all.iter().copied() {
                    let (a, b) = (pattern(at, one), pattern(at, other));
                    let mut keys = (0..4).map(|bits| with(at, bits));
                    let common = keys.any(|key| a.matches(&key) && b.matches(&key));
                    assert_eq!(a.overlaps(&b), common, "word {at}: {one:?} and {other:?}");
                    let elsewhere = pattern((at + 1) % WORDS, other);
                    assert!(a.overlaps(&elsewhere), "they compare different words");
                }
            }
        }
    }
}

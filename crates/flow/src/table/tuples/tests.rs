use std::hash::Hasher;

use super::identity::LowerHalf;
use super::*;

impl<const N: usize> TupleSpace<N> {
    /// Checks the invariants, whatever was done to the space.
    pub(in crate::table) fn check(&self) {
        assert!(self.in_use().all(|(_, tuple)| tuple.top == *tuple.ranks.last().unwrap()));
        assert!(self.in_use().is_sorted_by(|(_, a), (_, b)| a.top > b.top));
        let ranks = self.in_use().map(|(_, tuple)| tuple.ranks.len()).sum::<usize>();
        assert_eq!((ranks, self.rules.len() - self.free.len()), (self.len(), self.len()));
        let mut rules = 0;
        for (number, tuple) in self.in_use() {
            tuple.slots.check();
            for (hash, head) in tuple.slots.each() {
                assert_eq!(tuple.slots.get(hash), head, "it is found from its home");
                let chain: Vec<_> = self.chain(head).map(|rule| rule as usize).collect();
                assert!(chain.is_sorted_by(|a, b| self.rules[*a].rank > self.rules[*b].rank));
                for rule in &chain {
                    assert_eq!(self.rules[*rule].tuple, number);
                    assert!(tuple.is_mixed || tuple.mask == self.patterns[*rule].mask);
                    assert_eq!(self.slot_hash(tuple, &self.patterns[*rule].value), hash);
                    assert!(is_within(&tuple.mask, &self.patterns[*rule].mask));
                }
                rules += chain.len();
            }
        }
        assert_eq!(rules, self.len());
    }
}

/// Every hash with the same lower bits: slots wrap around the end, and removal moves them up.
#[test]
fn slots_with_one_home_are_found_after_removals() {
    let mut slots = Slots::default();
    for n in 0..40_u32 {
        slots.set(n << 20 | 7, n);
        slots.check();
    }
    for gone in (0..40_u32).step_by(3) {
        slots.clear(gone << 20 | 7);
        slots.clear(gone << 20 | 7);
        slots.check();
    }
    for n in 0..40_u32 {
        let wanted = if n % 3 == 0 { NONE } else { n };
        assert_eq!(slots.get(n << 20 | 7), wanted);
    }
}

#[test]
fn an_identity_is_its_own_hash() {
    for identity in [0, 1, u128::MAX, 0x0123_4567_89ab_cdef_1122_3344_5566_7788] {
        let mut hasher = LowerHalf::default();
        hasher.write_u128(identity);
        assert_eq!(hasher.finish(), identity as u64);
    }
    let mut hasher = LowerHalf::default();
    hasher.write(&[1, 2, 3]);
    assert_eq!(hasher.finish(), 0x01_0203);
}

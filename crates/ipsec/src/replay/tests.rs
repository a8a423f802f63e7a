//! The window beside a set of numbers.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// Every accepted number, kept for ever.
struct Naive {
    size: u64,
    seen: BTreeSet<u64>,
    top: u64,
}

impl Naive {
    fn accept(&mut self, number: u64) -> Result<(), Refused> {
        if number == 0 || number <= self.top && self.top - number >= self.size {
            return Err(Refused::Old);
        }
        if !self.seen.insert(number) {
            return Err(Refused::Twice);
        }
        self.top = self.top.max(number);
        Ok(())
    }
}

/// Steps around the highest number: most are small, some leave the window.
fn step() -> impl Strategy<Value = i64> {
    prop_oneof![6 => -80..80_i64, 2 => -6000..6000_i64, 1 => 0..1_000_000_i64]
}

proptest! {
    #[test]
    fn equals_a_set_of_numbers(
        size in prop_oneof![Just(1_u64), Just(32), Just(64), Just(65), Just(4096), 1..5000_u64],
        start in prop_oneof![Just(0_u64), Just(63), Just(64), Just((1_u64 << 32) - 3), 0..1_u64 << 40],
        steps in prop::collection::vec(step(), 1..400),
    ) {
        let window = Window::new(size, start);
        let seen = (start.saturating_sub(6000)..=start).collect();
        let mut naive = Naive { size, seen, top: start };
        for step in steps {
            let number = naive.top.saturating_add_signed(step);
            let early = window.check(number);
            let right = naive.accept(number);
            prop_assert_eq!(early, right, "before: {}", number);
            prop_assert_eq!(window.accept(number), right, "{}", number);
            prop_assert_eq!(window.top(), naive.top);
        }
    }

    /// The number that a sender used is inferred from its low half, for all that the window can accept.
    #[test]
    fn high_bits_are_inferred(
        size in 1..5000_u64,
        top in prop_oneof![0..1_u64 << 34, (1_u64 << 32) - 5000..(1_u64 << 32) + 5000, 0..u64::MAX / 2],
        ahead in 0..1_u64 << 31,
        behind in 0..5000_u64,
    ) {
        let later = top + ahead;
        prop_assert_eq!(infer(top, size, later as u32), later);
        let behind = behind % size;
        if let Some(earlier) = top.checked_sub(behind) {
            prop_assert_eq!(infer(top, size, earlier as u32), earlier);
        }
    }
}

#[test]
fn a_window_of_no_size_accepts_everything() {
    let window = Window::new(0, 0);
    assert_eq!((window.accept(7), window.accept(7), window.check(1)), (Ok(()), Ok(()), Ok(())));
    assert_eq!((window.top(), window.size()), (7, 0));
}

#[test]
fn numbers_of_32_bits_are_not_extended() {
    let window = Window::new(64, 5 << 32);
    assert_eq!((window.number(9, false), window.number(9, true)), (9, 5 << 32 | 9));
}

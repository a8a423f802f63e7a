//! Numbers of buffers, unique in the process.
//!
//! A frame names its buffer by a number. Two pools never share one, so a frame that is shown to a
//! pool it does not come from names nothing there.
//!
//! Thread-safety: taken and given back under a lock, when pools are made and dropped.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A range of numbers, from `first` on. 0 is in no range: it names no buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Numbers {
    pub(crate) first: u32,
    pub(crate) count: u32,
}

struct Ranges {
    /// The first number that no pool has had.
    next: u32,
    /// Ranges that were given back.
    free: Vec<Numbers>,
}

static RANGES: Mutex<Ranges> = Mutex::new(Ranges { next: 1, free: Vec::new() });

fn ranges() -> MutexGuard<'static, Ranges> {
    RANGES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Numbers {
    /// `count` numbers that no other range has.
    ///
    /// # Panics
    /// When all 2^32 are in use.
    pub(crate) fn take(count: u32) -> Self {
        let Ranges { next, free } = &mut *ranges();
        if let Some(at) = free.iter().position(|range| range.count >= count) {
            let range = &mut free[at];
            let taken = Self { first: range.first, count };
            (range.first, range.count) = (range.first + count, range.count - count);
            if range.count == 0 {
                free.swap_remove(at);
            }
            return taken;
        }
        let first = *next;
        *next = first.checked_add(count).expect("fewer than 2^32 buffers in the process");
        Self { first, count }
    }

    /// Gives the numbers back. No frame may have one of them any more.
    pub(crate) fn give_back(self) {
        let free = &mut ranges().free;
        // Beside a free range it becomes a part of that, so that the list stays short.
        match free.iter_mut().find(|range| range.first + range.count == self.first) {
            Some(before) => before.count += self.count,
            None => match free.iter_mut().find(|range| self.first + self.count == range.first) {
                Some(behind) => {
                    *behind = Self { first: self.first, count: self.count + behind.count };
                }
                None => free.push(self),
            },
        }
    }

    /// The place of `number` in the range; `None` if it is in another one.
    #[inline]
    pub(crate) const fn place(self, number: u32) -> Option<u32> {
        let place = number.wrapping_sub(self.first);
        if place < self.count { Some(place) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_do_not_overlap() {
        let [a, b, c] = [7, 1, 30].map(Numbers::take);
        for (one, other) in [(a, b), (b, c), (a, c)] {
            assert!((one.first..one.first + one.count).all(|n| other.place(n).is_none()));
        }
        assert_eq!((a.place(a.first), a.place(a.first + 6)), (Some(0), Some(6)));
        assert_eq!((a.place(0), a.place(a.first + 7)), (None, None));
        for range in [b, a, c] {
            range.give_back();
        }
        // Other tests of this process may take the numbers in between.
        let used_again = |_| {
            let before = Numbers::take(3);
            before.give_back();
            let after = Numbers::take(3);
            after.give_back();
            before.first == after.first
        };
        assert!((0..100_000).any(used_again), "numbers are used again");
    }
}

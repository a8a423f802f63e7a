//! What happens next: events in the order of their times, and of their making where times are equal.
//!
//! Invariants: time never goes back; equal times come out in the order they went in, so a run is
//! repeatable to the last event. Thread-safety: `&mut self`.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use flowyard_frame::Nanos;

#[derive(Clone, Debug)]
struct Entry<E> {
    at: Nanos,
    seq: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.seq) == (other.at, other.seq)
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The heap's largest is the earliest.
impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.seq).cmp(&(self.at, self.seq))
    }
}

/// Events to come, and the clock: the time of the one last taken.
#[derive(Clone, Debug)]
pub struct Events<E> {
    heap: BinaryHeap<Entry<E>>,
    seq: u64,
    now: Nanos,
}

impl<E> Default for Events<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), seq: 0, now: 0 }
    }
}

impl<E> Events<E> {
    /// The time of the event last taken, in nanoseconds; 0 before the first.
    #[must_use]
    pub const fn now(&self) -> Nanos {
        self.now
    }

    /// `event` happens at `at`, or now if that is over.
    #[inline]
    pub fn at(&mut self, at: Nanos, event: E) {
        self.seq += 1;
        self.heap.push(Entry { at: at.max(self.now), seq: self.seq, event });
    }

    /// `event` happens `ns` from now.
    #[inline]
    pub fn after(&mut self, ns: Nanos, event: E) {
        self.at(self.now.saturating_add(ns), event);
    }

    /// Takes the next event that happens before `end`; the clock moves to it.
    #[inline]
    pub fn next_before(&mut self, end: Nanos) -> Option<E> {
        if self.heap.peek()?.at >= end {
            return None;
        }
        let entry = self.heap.pop()?;
        self.now = entry.at;
        Some(entry.event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The slow twin: a list that is sorted, stably, by time.
        #[test]
        fn as_a_stable_sort(times in prop::collection::vec(0u64..20, 0..100), end in 0u64..25) {
            let mut events = Events::default();
            for (n, &at) in times.iter().enumerate() {
                events.at(at, n);
            }
            let mut slow: Vec<(Nanos, usize)> = times.into_iter().zip(0..).collect();
            slow.sort_by_key(|&(at, _)| at);
            slow.retain(|&(at, _)| at < end);
            let mut fast = Vec::new();
            while let Some(n) = events.next_before(end) {
                fast.push((events.now(), n));
            }
            prop_assert_eq!(fast, slow);
        }
    }

    #[test]
    fn the_past_is_now() {
        let mut events = Events::default();
        events.at(5, 'a');
        assert_eq!(events.next_before(10), Some('a'));
        events.at(1, 'b');
        events.after(0, 'c');
        assert_eq!((events.next_before(6), events.now()), (Some('b'), 5));
        assert_eq!(events.next_before(6), Some('c'));
        assert_eq!(events.next_before(6), None);
    }
}

//! The event queue of a discrete-event simulation, and its clock.
//!
//! Invariants: time never goes back; events of the same time are taken in the order in which they were
//! added, so a run is repeatable to the last event. Thread-safety: `&mut self`.

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

/// Reversed, because `BinaryHeap` returns its largest entry first and the earliest event is wanted.
impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.seq).cmp(&(self.at, self.seq))
    }
}

/// Future events, and the clock: the time of the event that was taken last.
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
    /// The time of the event that was taken last, in nanoseconds; 0 before the first.
    #[must_use]
    pub const fn now(&self) -> Nanos {
        self.now
    }

    /// Adds `event` at the time `at`, or at the current time if `at` is in the past.
    #[inline]
    pub fn at(&mut self, at: Nanos, event: E) {
        self.seq += 1;
        self.heap.push(Entry { at: at.max(self.now), seq: self.seq, event });
    }

    /// Adds `event` `ns` nanoseconds from now.
    #[inline]
    pub fn after(&mut self, ns: Nanos, event: E) {
        self.at(self.now.saturating_add(ns), event);
    }

    /// Takes the next event before `end` and advances the clock to it.
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
        /// Compares with the obvious model: a list that is sorted stably by time.
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
    fn an_event_in_the_past_happens_now() {
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

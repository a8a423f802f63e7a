//! Enqueue: lanes of the entry's batch enter the queues and tx queues chosen for them.
//!
//! Lanes for ports go first, and lanes for queues wait for them: a frame that is sent straight to a
//! port is never overtaken by a later one that passes through a queue.
//!
//! Thread-safety: a core's own; queues may be used by any core.

use flowyard_frame::{Lanes, Nanos, To};

use super::Core;
use super::parts::{Entry, clear};
use crate::counters::DropReason;
use crate::places::Full;
use crate::stages::Span;

impl Core {
    /// settle: the home of each lane. With a time, frames may be held back.
    #[inline]
    pub(super) fn settle(&mut self, now: Option<Nanos>) {
        let Self { entry, observers, places, .. } = self;
        let before = observers.before_settle(entry, places);
        entry.settle(places, now);
        observers.settled(entry, places, before);
    }

    /// Lets frames that were held go on, to their new home or after all to the old one, before any
    /// frame that came later.
    pub(super) fn unhold(&mut self, now: Nanos) -> u32 {
        let mut progress = 0;
        while self.entry.waiting.is_empty() && self.entry.next_held(&self.places, now) {
            progress += self.entry.batch.len() as u32;
            self.settle(None);
            self.enqueue();
        }
        progress
    }

    /// Enqueues the lanes that found their queue full before. Returns how many entered.
    #[inline]
    pub(super) fn enqueue_again(&mut self) -> u32 {
        if self.entry.batch.is_empty() {
            return 0;
        }
        self.observers.start();
        let entered = self.enqueue();
        self.observers.stage(Span::Enqueue, entered as usize);
        entered
    }

    /// Enqueues each waiting lane into the place chosen for it. Returns how many entered.
    pub(super) fn enqueue(&mut self) -> u32 {
        if self.entry.batch.is_empty() {
            return 0;
        }
        let (all, mut held) = (self.entry.waiting, 0);
        let homes = &self.entry.homes;
        let ports = all.filter(|&lane| matches!(homes[lane], To::Port(_))).fold(0, bit);
        for mut left in [Lanes(ports), all.without(Lanes(ports))] {
            if held != 0 {
                held |= left.0;
                continue;
            }
            while let Some(lane) = left.into_iter().next() {
                let homes = &self.entry.homes;
                let to = homes[lane];
                let same = Lanes(left.filter(|&lane| homes[lane] == to).fold(0, bit));
                left = left.without(same);
                held |= self.enqueue_at(to, same).0;
            }
        }
        let Self { entry: Entry { batch, waiting, settle, .. }, pool, places, .. } = self;
        *waiting = Lanes(held);
        if held == 0 {
            clear(batch, pool);
            if let Some(settle) = settle {
                settle.enqueued(&**places);
            }
        }
        all.0.count_ones() - held.count_ones()
    }

    /// Enqueues `lanes` at `to`. Returns those that have to wait; others that do not fit are dropped.
    #[inline]
    fn enqueue_at(&mut self, to: To, lanes: Lanes) -> Lanes {
        let Self { entry: Entry { batch, .. }, places, observers, counters, pool, .. } = self;
        let (refused, reason) = match (places.get(to), to) {
            (Some(place), _) => {
                let refused = place.enqueue(self.id, pool, batch, lanes);
                if place.full == Full::Hold {
                    return refused;
                }
                observers.queue_full(to, refused.count());
                (refused, DropReason::QueueFull)
            }
            (None, To::Drop(0)) => (lanes, DropReason::Table),
            (None, To::Drop(code)) => (lanes, DropReason::of(code)), // an action list gave a reason
            (None, _) => (lanes, DropReason::NoRoute),
        };
        counters.drops.add(reason.code(), refused.count().into());
        observers.dropped_for(batch, refused, reason, to);
        refused.for_each(|lane| pool.put(std::mem::take(&mut batch.frames[lane])));
        Lanes::NONE
    }
}

/// `bits` with that of `lane`.
#[inline]
const fn bit(bits: u32, lane: usize) -> u32 {
    bits | 1 << lane
}

//! Tracking of the frames of one source: received, duplicated, reordered, lost. Exact, at full
//! rate.
//!
//! ```text
//!   index:  ... 0 1 1 0 1 1 1 1 0 1 | next          one bit for each of the last `window` frames
//!               ^ leaves the window: counted lost   ^ the newest frame so far
//! ```
//!
//! Order is tracked per flow: each flow records when a new greatest index was received, from which
//! the reordering extent follows (RFC 4737 section 4.2.1: distance to the earliest frame that
//! overtook).
//!
//! Invariants: a bit below `next` and inside the window is set if the frame was received; every
//! frame that left the window is counted once, as good or as lost. No allocation after `new`.
//! Thread-safety: used by one thread at a time.

use flowyard_frame::Nanos;

/// The classification of an undamaged frame by the tracker of its source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// The first copy of the frame.
    New {
        /// Whether a later frame of the flow was received before it.
        reordered: bool,
    },
    /// A copy of a frame that was received before.
    Duplicate,
    /// Older than the window; it is not known whether it was received before.
    Stale,
}

/// Tracks the frames of one source.
#[derive(Clone, Debug)]
pub struct Tracker {
    bits: Vec<u64>,
    /// One more than the greatest index received.
    next: u64,
    /// All frames below are counted as good or lost.
    base: u64,
    in_gap: bool,
    flows: Vec<Flow>,
    records: usize,
    /// The counters so far.
    pub known: Known,
}

/// The counters of a tracker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Known {
    /// First copies received.
    pub good: u64,
    /// Further copies received.
    pub duplicates: u64,
    /// Frames older than the window.
    pub stale: u64,
    /// First copies received after a later frame of their flow.
    pub reordered: u64,
    /// The largest reordering extent.
    pub max_extent: u64,
    /// Reordered frames whose extent exceeds the recorded history.
    pub extent_beyond: u64,
    /// Frames never received; final after `finish`.
    pub lost: u64,
    /// Runs of lost frames.
    pub gaps: u64,
    /// Index of the first lost frame.
    pub first_lost: Option<u64>,
    /// Index of the last lost frame.
    pub last_lost: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct Flow {
    /// First copies received of this flow.
    came: u64,
    /// A ring of new greatest indexes, each with the value of `came` at its arrival; the latest is
    /// at `at - 1`.
    records: Vec<(u64, u64)>,
    at: usize,
    full: bool,
}

impl Tracker {
    /// A tracker for `flows` flows. A frame may be up to `window` frames late (rounded up to a
    /// power of two). The reordering extent is exact up to `records` frames of its flow.
    #[must_use]
    pub fn new(flows: usize, window: usize, records: usize) -> Self {
        let words = window.next_power_of_two().max(64) / 64;
        let records = records.max(1);
        let flow = Flow { records: vec![(0, 0); records], ..Flow::default() };
        Self {
            bits: vec![0; words],
            next: 0,
            base: 0,
            in_gap: false,
            flows: vec![flow; flows.max(1)],
            records,
            known: Known::default(),
        }
    }

    /// Extends a 32-bit index to 64 bits: the value nearest to the newest frame.
    #[must_use]
    pub const fn widen(&self, index: u32) -> u64 {
        let near = self.next & !0xffff_ffff | index as u64;
        if near > self.next + (1 << 31) {
            near.saturating_sub(1 << 32)
        } else if near + (1 << 31) < self.next {
            near + (1 << 32)
        } else {
            near
        }
    }

    /// All frames below the returned index are counted as good or lost.
    #[must_use]
    pub const fn decided(&self) -> u64 {
        self.base
    }

    /// Records the arrival of frame `index` of `flow`.
    pub fn see(&mut self, index: u64, flow: u16) -> Arrival {
        let window = self.bits.len() as u64 * 64;
        if index >= self.next {
            self.advance(index + 1);
        } else if index < self.base || index + window < self.next {
            self.known.stale += 1;
            return Arrival::Stale;
        }
        let (word, bit) = self.place(index);
        if self.bits[word] & bit != 0 {
            self.known.duplicates += 1;
            return Arrival::Duplicate;
        }
        self.bits[word] |= bit;
        self.known.good += 1;
        let at = usize::from(flow).min(self.flows.len() - 1);
        let reordered = match self.flows[at].see(index, self.records) {
            Order::Next => false,
            Order::Late(extent) => {
                self.known.max_extent = self.known.max_extent.max(extent);
                true
            }
            Order::Beyond(extent) => {
                self.known.max_extent = self.known.max_extent.max(extent);
                self.known.extent_beyond += 1;
                true
            }
        };
        self.known.reordered += u64::from(reordered);
        Arrival::New { reordered }
    }

    /// Ends the trial, in which `sent` frames were sent: every frame not received counts as lost.
    pub fn finish(&mut self, sent: u64) -> Known {
        let from = self.next.max(self.base);
        self.decide_below(self.next.min(sent));
        if sent > from {
            self.lose(from, sent - from);
            self.base = sent;
        }
        self.known
    }

    const fn place(&self, index: u64) -> (usize, u64) {
        ((index / 64) as usize & (self.bits.len() - 1), 1 << (index % 64))
    }

    /// Makes `next` - 1 the newest frame.
    fn advance(&mut self, next: u64) {
        let window = self.bits.len() as u64 * 64;
        if next > self.base + window {
            // Count the frames that leave the window and clear their bits for reuse.
            let base = next - window;
            self.decide_below(base.min(self.next));
            if base > self.next {
                self.lose(self.next.max(self.base), base - self.next.max(self.base));
                self.base = base;
            }
        }
        self.next = next;
    }

    /// Counts all frames below `end` (at most `next`) as good or lost, and clears their bits.
    fn decide_below(&mut self, end: u64) {
        while self.base < end {
            let (word, _) = self.place(self.base);
            let (from, to) = (self.base % 64, (end - self.base / 64 * 64).min(64));
            let mask = u64::MAX >> (64 - (to - from)) << from;
            if self.bits[word] & mask == mask {
                self.in_gap = false; // the usual case
            } else {
                for bit in from..to {
                    if self.bits[word] >> bit & 1 == 0 {
                        self.lose(self.base / 64 * 64 + bit, 1);
                    } else {
                        self.in_gap = false;
                    }
                }
            }
            self.bits[word] &= !mask;
            self.base += to - from;
        }
    }

    fn lose(&mut self, from: u64, count: u64) {
        if count == 0 {
            return;
        }
        self.known.gaps += u64::from(!self.in_gap);
        self.in_gap = true;
        self.known.lost += count;
        self.known.first_lost.get_or_insert(from);
        self.known.last_lost = Some(from + count - 1);
    }
}

/// The position of a frame in the order of its flow.
enum Order {
    Next,
    Late(u64),
    /// The extent is at least this large.
    Beyond(u64),
}

impl Flow {
    #[inline]
    fn see(&mut self, index: u64, room: usize) -> Order {
        let came = self.came;
        self.came += 1;
        let newest = (self.at > 0 || self.full).then(|| self.records[(self.at + room - 1) % room]);
        if newest.is_none_or(|(greatest, _)| index > greatest) {
            self.records[self.at] = (index, came);
            self.at += 1;
            if self.at == room {
                (self.at, self.full) = (0, true);
            }
            return Order::Next;
        }
        // Records ascend in both numbers: find the earliest one greater than `index` by bisection.
        let len = if self.full { room } else { self.at };
        let oldest = if self.full { self.at } else { 0 };
        let (mut low, mut high) = (0, len);
        while low < high {
            let middle = low.midpoint(high);
            if self.records[(oldest + middle) % room].0 > index {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        let extent = came - self.records[(oldest + low) % room].1;
        if low == 0 && self.full { Order::Beyond(extent) } else { Order::Late(extent) }
    }
}

/// A window size: the number of frames sent during `time` at `interval_ps`, from 2^12 to 2^26.
#[must_use]
pub const fn window_for(interval_ps: u64, time: Nanos) -> usize {
    let interval = if interval_ps == 0 { 1 } else { interval_ps };
    let frames = time as u128 * 1000 / interval as u128;
    if frames > 1 << 26 {
        1 << 26
    } else if frames < 1 << 12 {
        1 << 12
    } else {
        frames as usize
    }
}

#[cfg(test)]
mod tests;

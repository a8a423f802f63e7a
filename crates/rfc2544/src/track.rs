//! Track: which frames of one source came, came twice, came late, never came. Exact, at full rate.
//!
//! ```text
//!   index:  ... 0 1 1 0 1 1 1 1 0 1 | next          one bit for each of the last `window` frames
//!               ^ leaves the window: lost for good  ^ the newest frame so far
//! ```
//!
//! Order is per flow: each flow remembers when it last saw a new greatest index, for the extent of
//! reordering (RFC 4737 section 4.2.1: distance to the earliest frame that overtook).
//!
//! Invariants: bits below `next` and inside the window say whether the frame came; every frame
//! that left the window is counted as good or lost, once. No allocation after `new`.
//! Thread-safety: one thread's.

use flowyard_frame::Nanos;

/// What a whole frame is to its source's tracker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// The first copy; whether a later frame of its flow came before it.
    New {
        /// Came after a later one of its flow.
        reordered: bool,
    },
    /// Came before.
    Duplicate,
    /// Too old to tell.
    Stale,
}

/// Follows the frames of one source.
#[derive(Clone, Debug)]
pub struct Tracker {
    bits: Vec<u64>,
    /// One more than the greatest index that came.
    next: u64,
    /// All below are decided.
    base: u64,
    in_gap: bool,
    flows: Vec<Flow>,
    records: usize,
    /// What it knows so far.
    pub known: Known,
}

/// What a tracker knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Known {
    /// First copies.
    pub good: u64,
    /// Further copies.
    pub duplicates: u64,
    /// Too old to tell.
    pub stale: u64,
    /// First copies that came after a later frame of their flow.
    pub reordered: u64,
    /// The furthest.
    pub max_extent: u64,
    /// Reordered by more than was kept.
    pub extent_beyond: u64,
    /// Frames that never came: final after `finish`.
    pub lost: u64,
    /// Runs of them.
    pub gaps: u64,
    /// The first and the last of them.
    pub first_lost: Option<u64>,
    /// See `first_lost`.
    pub last_lost: Option<u64>,
}

/// Order in one flow.
#[derive(Clone, Debug, Default)]
struct Flow {
    /// Frames of the flow that came, first copies only.
    came: u64,
    /// New greatest indexes and when they came (in `came`), the latest at `at - 1`; a ring.
    records: Vec<(u64, u64)>,
    at: usize,
    full: bool,
}

impl Tracker {
    /// For frames of `flows` flows; a frame may be up to `window` frames late (rounded up to a
    /// power of two), and the extent of reordering is exact up to `records` frames of its flow.
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

    /// Makes a 32-bit index whole: the one nearest to the newest frame.
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

    /// All frames below are good or lost for good.
    #[must_use]
    pub const fn decided(&self) -> u64 {
        self.base
    }

    /// Frame `index` of `flow` came.
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

    /// Nothing comes any more, and `sent` frames were sent: what is missing is lost.
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

    /// The newest frame is now `next` - 1.
    fn advance(&mut self, next: u64) {
        let window = self.bits.len() as u64 * 64;
        if next > self.base + window {
            // Everything that leaves, and then the bits that it leaves to others.
            let base = next - window;
            self.decide_below(base.min(self.next));
            if base > self.next {
                self.lose(self.next.max(self.base), base - self.next.max(self.base));
                self.base = base;
            }
        }
        self.next = next;
    }

    /// Decides all frames below `end`, at most `next`, and clears their bits.
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

/// Where a frame lies in its flow.
enum Order {
    Next,
    Late(u64),
    /// At least this far.
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
        // Records grow in both numbers: the earliest greater than `index` by bisection.
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

/// How many frames of `interval_ps` may be on their way for `time`, for the size of a window.
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

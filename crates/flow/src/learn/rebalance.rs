//! Rebalance: moves entries of an indirection table from busy queues to less busy ones, while no packets come for them.
//!
//! ```text
//!  packets by entry ──> window ──> overloaded queue? ──> level: which entries move where
//!                                                             │ wanted
//!  an entry had no packet for the pause ────────────────────> move ──> table
//! ```
//!
//! This is the method of RSS++ (Barbette and others, "RSS++: load and state-aware receive side scaling", 2019), with the
//! difference that an entry waits until its flows pause. What the entry sent to the old queue is then done, if the queue
//! holds a packet for less than the pause, so that nothing can be overtaken.
//!
//! Moves do not swing back and forth: a queue is overloaded above one threshold and no longer below a lower one, for some
//! windows in succession; loads are averaged over windows; and an entry that has moved rests. An entry whose flows do not
//! pause is left alone for a time, and others move in its place.
//!
//! Invariants: an entry moves only between queues that the first table names; and, unless it is forced, only if it has had
//! no packet for [`Limits::pause`]. In any second, at most [`Limits::moves`] entries move.
//! Thread-safety: plain data and `&mut self`. Time is an argument.

use std::collections::VecDeque;

use flowyard_frame::Nanos;

mod level;
#[cfg(test)]
mod tests;

pub use level::{Load, level, ratio};

/// When entries move.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Limits {
    /// A queue is overloaded if its load is more than this many times the mean.
    pub even: f64,
    /// Time over which the load is measured.
    pub window: Nanos,
    /// An entry moves if no packet has come for it in this time.
    pub pause: Nanos,
    /// The most entries that move in a second.
    pub moves: u32,
    /// An entry that waits for a pause for this long moves without one; `None`: it does not.
    pub force_after: Option<Nanos>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { even: 1.25, window: 100_000_000, pause: 1_000_000, moves: 100, force_after: None }
    }
}

/// Windows in succession in which a queue is overloaded, until entries move.
const PATIENCE: u32 = 2;
/// Windows for which an entry waits for a pause, until others move in its place.
const WAIT: u64 = 2;
/// Windows for which an entry that has moved stays where it is.
const REST: u64 = 10;
/// Windows for which an entry that has not paused stays where it is.
const BUSY: u64 = 4;
/// Packets for each queue that a window must have. With fewer packets it is imbalanced by chance.
const LEAST: u64 = 10;
/// Averages are kept in parts of a packet.
const PARTS: u64 = 16;
/// The time in which [`Limits::moves`] are counted.
const SECOND: Nanos = 1_000_000_000;

/// A move of an entry to another queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    /// The entry.
    pub entry: usize,
    /// The queue that it had.
    pub from: u32,
    /// The queue that it has now.
    pub to: u32,
    /// Whether it moves although packets came for it within the pause.
    pub forced: bool,
    /// Since when it was to move.
    pub since: Nanos,
}

/// An entry that was to move, and has not paused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Busy {
    /// The entry.
    pub entry: usize,
    /// Its packets in the last window.
    pub packets: u64,
}

/// What a window showed.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Window {
    /// Its packets.
    pub packets: u64,
    /// The load of the busiest queue in relation to the mean; `None` with too few packets.
    pub imbalance: Option<f64>,
    /// The same with the first table.
    pub first: Option<f64>,
    /// Entries that are to move as soon as they pause.
    pub waiting: usize,
    /// Entries that have not paused, and stay for a time.
    pub busy: Vec<Busy>,
}

/// An entry that is to move.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    entry: usize,
    to: u32,
    since: Nanos,
}

/// The mechanism for one table.
#[derive(Clone, Debug)]
pub struct Rebalance {
    limits: Limits,
    first: Vec<u32>,
    table: Vec<u32>,
    /// The queues that the table may name.
    queues: Vec<u32>,
    /// Packets of each entry in this window, and of each queue those that no entry decides.
    loads: Vec<u64>,
    fixed: Vec<u64>,
    /// Averages over windows, in parts of a packet; empty before the first window.
    mean: Vec<u64>,
    mean_fixed: Vec<u64>,
    /// When each entry had its last packet, as far as is known.
    last: Vec<Nanos>,
    /// Until when each entry stays where it is.
    rests: Vec<Nanos>,
    wanted: Vec<Wanted>,
    /// No entry can move before this time.
    due: Nanos,
    /// When the window ends.
    end: Option<Nanos>,
    /// Windows in succession with an overloaded queue.
    overloaded: u32,
    /// When the last entries moved, at most [`Limits::moves`].
    recent: VecDeque<Nanos>,
}

impl Rebalance {
    /// The mechanism for `table`, the queue of each entry.
    #[must_use]
    pub fn new(table: Vec<u32>, limits: Limits) -> Self {
        let mut queues = table.clone();
        queues.sort_unstable();
        queues.dedup();
        let entries = table.len();
        Self {
            limits,
            first: table.clone(),
            fixed: vec![0; queues.len()],
            queues,
            loads: vec![0; entries],
            mean: Vec::new(),
            mean_fixed: Vec::new(),
            last: vec![0; entries],
            rests: vec![0; entries],
            wanted: Vec::new(),
            due: 0,
            end: None,
            overloaded: 0,
            recent: VecDeque::new(),
            table,
        }
    }

    /// The table with all moves so far.
    #[must_use]
    pub fn table(&self) -> &[u32] {
        &self.table
    }

    /// The queues that the table may name.
    #[must_use]
    pub fn queues(&self) -> &[u32] {
        &self.queues
    }

    /// Counts packets that `entry` sent to its queue at `now`.
    #[inline]
    pub fn count(&mut self, entry: usize, packets: u64, now: Nanos) {
        self.begin(now);
        if let (Some(load), Some(last)) = (self.loads.get_mut(entry), self.last.get_mut(entry)) {
            *load += packets;
            *last = now.max(*last);
        }
    }

    /// Counts packets of `queue` that no entry decides, such as those without a hash.
    #[inline]
    pub fn count_fixed(&mut self, queue: u32, packets: u64, now: Nanos) {
        self.begin(now);
        if let Ok(at) = self.queues.binary_search(&queue) {
            self.fixed[at] += packets;
        }
    }

    /// Starts the first window, at whose start nothing is known of pauses.
    #[inline]
    fn begin(&mut self, now: Nanos) {
        if self.end.is_none() {
            self.end = Some(now.saturating_add(self.limits.window));
            self.last.fill(now);
        }
    }

    /// Packets were missed: until now, every entry may have had some.
    pub fn missed(&mut self, now: Nanos) {
        self.last.iter_mut().for_each(|last| *last = now.max(*last));
    }

    /// Ends the window, if its time has passed, and decides which entries are to move.
    pub fn decide(&mut self, now: Nanos) -> Option<Window> {
        self.begin(now);
        if self.end.is_none_or(|end| now < end) {
            return None;
        }
        self.end = Some(now.saturating_add(self.limits.window));
        let packets = self.loads.iter().chain(&self.fixed).sum();
        let mut window = Window { packets, ..Window::default() };
        if packets >= LEAST * self.queues.len() as u64 {
            window.imbalance = self.ratio(&self.table, &self.loads, &self.fixed);
            window.first = self.ratio(&self.first, &self.loads, &self.fixed);
            self.average();
            self.judge(window.imbalance);
            window.busy = self.give_up(now);
        } else {
            self.overloaded = 0;
        }
        if self.overloaded >= PATIENCE {
            self.want(now);
        } else {
            self.wanted.clear();
        }
        window.waiting = self.wanted.len();
        self.due = 0;
        self.loads.fill(0);
        self.fixed.fill(0);
        Some(window)
    }

    fn ratio(&self, table: &[u32], loads: &[u64], fixed: &[u64]) -> Option<f64> {
        let fixed: Vec<_> = self.queues.iter().copied().zip(fixed.iter().copied()).collect();
        ratio(table, Load { entries: loads, fixed: &fixed })
    }

    /// Adds the window to the averages.
    fn average(&mut self) {
        if self.mean.is_empty() {
            self.mean = self.loads.iter().map(|load| load * PARTS).collect();
            self.mean_fixed = self.fixed.iter().map(|load| load * PARTS).collect();
        }
        let average = |mean: &mut u64, load: &u64| *mean = u64::midpoint(*mean, load * PARTS);
        self.mean.iter_mut().zip(&self.loads).for_each(|(mean, load)| average(mean, load));
        self.mean_fixed.iter_mut().zip(&self.fixed).for_each(|(mean, load)| average(mean, load));
    }

    /// A queue that is overloaded, in this window and on average, stays so until its load is nearer to the mean than the
    /// threshold.
    fn judge(&mut self, window: Option<f64>) {
        let mean = self.ratio(&self.table, &self.mean, &self.mean_fixed);
        let now = window.unwrap_or(1.0).min(mean.unwrap_or(1.0));
        let is_active = self.overloaded >= PATIENCE;
        let threshold = if is_active { self.calm() } else { self.limits.even };
        self.overloaded = if now > threshold { self.overloaded.saturating_add(1) } else { 0 };
    }

    /// The load in relation to the mean at which the busiest queue is even enough: halfway to the mean.
    fn calm(&self) -> f64 {
        f64::midpoint(1.0, self.limits.even)
    }

    /// Entries that waited too long stay where they are for a time, unless they will be forced.
    fn give_up(&mut self, now: Nanos) -> Vec<Busy> {
        let most = self.limits.window.saturating_mul(WAIT);
        let until = now.saturating_add(self.limits.window.saturating_mul(BUSY));
        let mut busy = Vec::new();
        let (loads, rests) = (&self.loads, &mut self.rests);
        let is_forced = self.limits.force_after.is_some();
        let paused = |entry: usize| now.saturating_sub(self.last[entry]) >= self.limits.pause;
        self.wanted.retain(|one| {
            let waits = now.saturating_sub(one.since) < most;
            if is_forced || waits || paused(one.entry) {
                return true;
            }
            rests[one.entry] = until;
            busy.push(Busy { entry: one.entry, packets: loads[one.entry] });
            false
        });
        busy
    }

    /// Chooses the entries that are to move. Those that were chosen before keep the time since which they wait.
    fn want(&mut self, now: Nanos) {
        let fixed: Vec<_> =
            self.queues.iter().copied().zip(self.mean_fixed.iter().copied()).collect();
        let load = Load { entries: &self.mean, fixed: &fixed };
        let enough = load.mean(&self.table) * self.calm();
        let mut table = self.table.clone();
        level(&mut table, load, enough as u64, |entry| self.rests[entry] <= now);
        let before = std::mem::take(&mut self.wanted);
        let changed = (0..table.len()).filter(|&entry| table[entry] != self.table[entry]);
        self.wanted = changed
            .map(|entry| {
                let waits = before.iter().find(|one| one.entry == entry);
                let since = waits.map_or(now, |one| one.since);
                Wanted { entry, to: table[entry], since }
            })
            .collect();
    }

    /// Whether entries wait for a pause.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// The next entry that may move at `now`. The table has it in its new queue from then on.
    #[inline]
    pub fn next(&mut self, now: Nanos) -> Option<Move> {
        if self.wanted.is_empty() || now < self.due {
            return None;
        }
        self.pick(now)
    }

    fn pick(&mut self, now: Nanos) -> Option<Move> {
        while self.recent.front().is_some_and(|at| now.saturating_sub(*at) >= SECOND) {
            self.recent.pop_front();
        }
        if self.recent.len() >= self.limits.moves as usize {
            self.due = self.recent.front().map_or(now, |at| at.saturating_add(SECOND));
            return None;
        }
        let Limits { pause, force_after, window, .. } = self.limits;
        let paused = |one: &Wanted| self.last[one.entry].saturating_add(pause);
        let forced =
            |one: &Wanted| force_after.map_or(Nanos::MAX, |time| one.since.saturating_add(time));
        let at = |one: &Wanted| paused(one).min(forced(one));
        let Some(found) = self.wanted.iter().position(|one| at(one) <= now) else {
            // Packets only make pauses later.
            self.due = self.wanted.iter().map(at).min().unwrap_or(0);
            return None;
        };
        let forced = paused(&self.wanted[found]) > now;
        let Wanted { entry, to, since } = self.wanted.swap_remove(found);
        self.rests[entry] = now.saturating_add(window.saturating_mul(REST));
        self.recent.push_back(now);
        let from = std::mem::replace(&mut self.table[entry], to);
        Some(Move { entry, from, to, forced, since })
    }

    /// A move that [`Self::next`] returned last was not made: the entry still waits for a pause.
    pub fn put_back(&mut self, one: &Move) {
        let Move { entry, from, to, since, .. } = *one;
        self.table[entry] = from;
        self.rests[entry] = 0;
        self.recent.pop_back();
        self.wanted.push(Wanted { entry, to, since });
        self.due = 0;
    }

    /// When the last packet came for an entry, as far as is known.
    #[must_use]
    pub fn last(&self, entry: usize) -> Nanos {
        self.last[entry]
    }

    /// From now on, entries only return to the queues of the first table, each as soon as it pauses.
    pub fn return_all(&mut self, now: Nanos) {
        let changed = (0..self.table.len()).filter(|&entry| self.table[entry] != self.first[entry]);
        self.wanted =
            changed.map(|entry| Wanted { entry, to: self.first[entry], since: now }).collect();
        (self.end, self.due, self.limits.moves) = (Some(Nanos::MAX), 0, u32::MAX);
    }
}

//! Rebalance: while a core is overloaded, other cores work on a part of the frames that it receives.
//!
//! ```text
//!  indirection table of core 0
//!  [q0 q0 q0 q0 q0 q0 q0 q0]    core 0 works on what it receives
//!  [q0 q0 q2 q0 q0 q0 q0 q2]    core 0 is overloaded: some entries point to a queue of core 2, which is not
//!  [q0 q0 q0 q0 q0 q0 q0 q0]    core 0 is no longer overloaded, or core 2 is: the entries point to q0 again
//! ```
//!
//! A frame that passes to another core costs cache misses on both cores. For light work they cost more than the second
//! core gains. So where every core receives frames, a core works on its own, and points entries of its indirection table
//! to queues of other cores only while its ports have more frames than it can take. With N cores, each other core gets at
//! most one N-th of the entries.
//!
//! A changed entry is treated like any other change of a table: the settle stage moves a flow when its earlier frames are
//! done.
//!
//! Invariant: `given` lists the entries that are not the core's own, and where they point.
//! Thread-safety: a core's own. The flags in [`Places`] that say which cores are overloaded are shared.

use flowyard_flow::table::Spread;
use flowyard_frame::{Nanos, To};

use super::Core;
use crate::places::Places;

/// The time over which the load is measured.
const INTERVAL: Nanos = 1_000_000;
/// The least number of ticks in which the load is measured.
const TICKS: u32 = 8;
/// Intervals of overload before entries are given away, and before the next ones are.
const PATIENCE: u32 = 4;
/// Intervals without overload before entries are taken back.
const CALM: u32 = 64;
/// Entries that move at a time: one of this many.
const STEP: usize = 16;
/// The entries that move are this far apart: odd, as the number of entries is a power of two.
const STRIDE: usize = 5;

/// The state of a core's rebalancing.
#[derive(Debug)]
pub(crate) struct Rebalance {
    /// Whether frames stay with the core that received them. If not, nothing is measured or moved.
    is_active: bool,
    /// The queues that only this core works on.
    own: Vec<To>,
    /// Queues of other cores, by core.
    others: Vec<(u16, u16)>,
    /// Entries that were given away: their index, and the core and queue that got them.
    given: Vec<(usize, u16, u16)>,
    /// The most entries that one other core gets.
    most: usize,
    /// When the interval began.
    since: Nanos,
    /// Ticks in the interval, and those in which there was more to receive than the core could take.
    ticks: u32,
    pressed: u32,
    /// Intervals in succession with overload, and without.
    overloaded: u32,
    calm: u32,
}

impl Rebalance {
    /// A core that works on the queues `own`; others work on `others`, by core. `entries` and `cores` are the sizes of the table
    /// and of the engine.
    pub(crate) fn new(
        own: Vec<To>,
        others: Vec<(u16, u16)>,
        (entries, cores): (usize, usize),
        is_active: bool,
    ) -> Self {
        Self {
            is_active,
            own,
            others,
            given: Vec::with_capacity(entries),
            most: entries / cores.max(1),
            since: 0,
            ticks: 0,
            pressed: 0,
            overloaded: 0,
            calm: 0,
        }
    }

    /// Begins anew: nothing was given away, and nothing measured.
    fn restart(&mut self, is_active: bool) {
        self.is_active = is_active;
        self.given.clear();
        self.since = 0;
        (self.ticks, self.pressed) = (0, 0);
        (self.overloaded, self.calm) = (0, 0);
    }

    /// A tick has received; `pressed` if a port filled a batch, or frames wait for room in a queue.
    #[inline]
    pub(super) fn count(&mut self, pressed: bool) {
        if self.is_active {
            self.ticks += 1;
            self.pressed += u32::from(pressed);
        }
    }

    /// Whether the interval has passed at `now`. Where work takes long, it is as long as some ticks.
    #[inline]
    pub(super) const fn is_due(&self, now: Nanos) -> bool {
        // The ticks of one that is not active stay 0.
        now.saturating_sub(self.since) >= INTERVAL && self.ticks >= TICKS
    }

    /// Ends an interval of core `id`: moves entries, if it is time to.
    pub(super) fn decide(&mut self, id: u16, spread: &mut Spread, places: &Places, now: Nanos) {
        let is_overloaded = self.pressed >= self.ticks - self.ticks / 8;
        (self.since, self.ticks, self.pressed) = (now, 0, 0);
        (self.overloaded, self.calm) =
            if is_overloaded { (self.overloaded + 1, 0) } else { (0, self.calm + 1) };
        places.set_overloaded(id, is_overloaded);
        let burdened = |&(_, core, _): &(usize, u16, u16)| places.is_overloaded(core);
        let step = (spread.entries().len() / STEP).max(1);
        if self.given.iter().any(burdened) {
            self.take_back(step, spread, |entry| burdened(entry));
        } else if self.calm >= CALM {
            self.take_back(step, spread, |_| true);
            self.calm = 0;
        } else if self.overloaded >= PATIENCE {
            self.give(step, spread, places);
            self.overloaded = 0;
        }
    }

    /// Gives entries to the core with the fewest frames in its queue of those that are not overloaded.
    fn give(&mut self, step: usize, spread: &mut Spread, places: &Places) {
        let has = |core: u16| self.given.iter().filter(|entry| entry.1 == core).count();
        let may = |&&(core, _): &&(u16, u16)| !places.is_overloaded(core) && has(core) < self.most;
        let load = |&&(core, queue): &&(u16, u16)| {
            (places.queues[usize::from(queue)].queue.len(), has(core))
        };
        let Some(&(core, queue)) = self.others.iter().filter(may).min_by_key(load) else { return };
        let mut free = step.min(self.most - has(core));
        let len = spread.entries().len();
        for at in 0..len {
            let index = at * STRIDE % len; // not a range of hashes
            if free > 0 && self.own.contains(&spread.entries()[index]) {
                let _in_range = spread.set(index, To::Queue(queue));
                self.given.push((index, core, queue));
                free -= 1;
            }
        }
    }

    /// Takes back up to `step` entries of those that `which` holds for, the last given first.
    fn take_back(
        &mut self,
        step: usize,
        spread: &mut Spread,
        which: impl Fn(&(usize, u16, u16)) -> bool,
    ) {
        for _ in 0..step {
            let Some(at) = self.given.iter().rposition(&which) else { return };
            let (index, _, queue) = self.given.swap_remove(at);
            if spread.entries()[index] == To::Queue(queue) {
                let _in_range = spread.set(index, self.own[index % self.own.len()]);
            }
        }
    }
}

impl Core {
    /// Replaces the indirection table: by `entries`, or by the core's own queues if frames are to stay with it.
    pub(super) fn respread(&mut self, entries: &[To], keep_local: bool) {
        let Self { id, entry, places, .. } = self;
        if let Some(rebalance) = &mut entry.rebalance {
            rebalance.restart(keep_local);
            places.set_overloaded(*id, false);
        }
        let active = entry.rebalance.as_ref().filter(|rebalance| rebalance.is_active);
        let entries = active.map_or(entries, |rebalance| &rebalance.own[..]);
        let spread = &mut entry.steer.spread;
        for (index, to) in (0..spread.entries().len()).zip(entries.iter().cycle()) {
            let _in_range = spread.set(index, *to);
        }
    }

    /// Lets other cores work on a part of the frames that this core receives, while it is overloaded.
    #[inline]
    pub(super) fn rebalance(&mut self, now: Nanos) {
        let Self { id, entry, places, .. } = self;
        if let Some(rebalance) = &mut entry.rebalance
            && rebalance.is_due(now)
        {
            rebalance.decide(*id, &mut entry.steer.spread, places, now);
        }
    }
}

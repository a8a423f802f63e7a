//! Scheduling of health checks: when each backend is checked, and when its results change its state.
//!
//! ```text
//!  due(now) ──> check backend 7 ──(the caller runs it)──> record(7, ok, now) ──> rise, fall ──> up or down
//! ```
//!
//! This module does no I/O and reads no clock: time and results are arguments. Checks of many backends
//! are spread: the first check of each backend begins at a random time within the first interval,
//! each interval varies at random by up to a tenth, and at most `per_second` checks begin in a second.
//!
//! Invariants: a backend has at most one check in progress; its state changes after `rise` passed or
//! `fall` failed checks in a row, and not before; a check without a result in time has failed.

use std::collections::BTreeMap;

use flowyard_frame::{Nanos, Rng};

/// Interval, timeout and thresholds of health checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// Mean time from the start of one check to the start of the next.
    pub interval: Nanos,
    /// The longest time a check may take.
    pub timeout: Nanos,
    /// The number of passed checks in a row that bring a backend up.
    pub rise: u32,
    /// The number of failed checks in a row that take a backend down.
    pub fall: u32,
}

impl Default for Rules {
    fn default() -> Self {
        let second = 1_000_000_000;
        Self { interval: 2 * second, timeout: second, rise: 2, fall: 3 }
    }
}

/// The schedule and state of all backends, by ID.
#[derive(Clone, Debug)]
pub struct Health {
    /// The most checks that begin in a second, over all backends; 0 is no limit.
    per_second: u32,
    random: Rng,
    all: BTreeMap<u32, Checked>,
    /// No check begins before this time; it limits the rate.
    next: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Checked {
    rules: Rules,
    due: Nanos,
    /// When the check in progress began.
    asked: Option<Nanos>,
    is_up: bool,
    /// The number of results in a row that contradict `is_up`.
    against: u32,
}

/// A backend came up or went down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// The backend's ID.
    pub backend: u32,
    /// The new state.
    pub is_up: bool,
}

impl Health {
    /// A schedule without backends. `seed` determines the random times within the intervals.
    #[must_use]
    pub const fn new(per_second: u32, seed: u64) -> Self {
        Self { per_second, random: Rng::new(seed), all: BTreeMap::new(), next: 0 }
    }

    /// Changes how many checks begin in a second at most; 0 is no limit.
    pub const fn limit(&mut self, per_second: u32) {
        self.per_second = per_second;
    }

    /// Schedules checks of a backend from `now` on. If the backend is already scheduled, only its
    /// rules and state are replaced.
    pub fn add(&mut self, backend: u32, rules: Rules, is_up: bool, now: Nanos) {
        if let Some(checked) = self.all.get_mut(&backend) {
            // The next check may be due late because the old interval was longer.
            checked.due = checked.due.min(now.saturating_add(rules.interval));
            (checked.rules, checked.is_up) = (rules, is_up);
            return;
        }
        let due = now.saturating_add(self.draw(rules.interval.max(1)));
        self.all.insert(backend, Checked { rules, due, asked: None, is_up, against: 0 });
    }

    /// Removes the backends for which `stays` is false.
    pub fn retain(&mut self, mut stays: impl FnMut(u32) -> bool) {
        self.all.retain(|backend, _| stays(*backend));
    }

    /// The state of a backend; false if it is not scheduled.
    #[must_use]
    pub fn is_up(&self, backend: u32) -> bool {
        self.all.get(&backend).is_some_and(|checked| checked.is_up)
    }

    /// A backend whose check must begin now, if any. Call it until it returns `None`.
    pub fn due(&mut self, now: Nanos) -> Option<u32> {
        if now < self.next {
            return None;
        }
        let waits = self.all.iter_mut().filter(|(_, checked)| checked.asked.is_none());
        let (&backend, checked) = waits.min_by_key(|(_, checked)| checked.due)?;
        if now < checked.due {
            return None;
        }
        checked.asked = Some(now);
        if self.per_second > 0 {
            // Counted from now, not from the last check: unused time does not allow a later burst.
            self.next = now + 1_000_000_000 / Nanos::from(self.per_second);
        }
        Some(backend)
    }

    /// The delay of the check that has been due for the longest time.
    #[must_use]
    pub fn behind(&self, now: Nanos) -> Nanos {
        let waits = self.all.values().filter(|checked| checked.asked.is_none());
        waits.map(|checked| now.saturating_sub(checked.due)).max().unwrap_or(0)
    }

    /// Records the result of a check, and returns the change of state if there is one. A result of a
    /// backend that has no check in progress, for example because it came too late, is ignored.
    pub fn record(&mut self, backend: u32, ok: bool, now: Nanos) -> Option<Change> {
        let interval = self.all.get(&backend)?.rules.interval;
        let tenth = interval / 10;
        let wait = interval - tenth + self.draw(2 * tenth + 1);
        let checked = self.all.get_mut(&backend)?;
        let Rules { rise, fall, .. } = checked.rules;
        let asked = checked.asked.take()?;
        checked.due = asked.saturating_add(wait).max(now);
        if ok == checked.is_up {
            checked.against = 0;
            return None;
        }
        checked.against += 1;
        if checked.against < if ok { rise } else { fall } {
            return None;
        }
        (checked.is_up, checked.against) = (ok, 0);
        Some(Change { backend, is_up: ok })
    }

    /// Records as failed a check that has been in progress for `grace` longer than its timeout.
    /// Returns its backend, and the change of state if there is one. Call it until it returns `None`.
    pub fn late(&mut self, grace: Nanos, now: Nanos) -> Option<(u32, Option<Change>)> {
        let is_late = |c: &Checked| {
            let most = c.rules.timeout.saturating_add(grace);
            c.asked.is_some_and(|asked| now.saturating_sub(asked) >= most)
        };
        let backend = *self.all.iter().find(|(_, checked)| is_late(checked))?.0;
        Some((backend, self.record(backend, false, now)))
    }

    /// A random number below `below`: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
    fn draw(&mut self, below: u64) -> u64 {
        self.random.below(below)
    }
}

#[cfg(test)]
mod tests;

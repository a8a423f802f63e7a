//! Health: when each backend is asked how it is, and what its answers come to.
//!
//! ```text
//!  due(now) ──> ask backend 7 ──(somebody does)──> told(7, ok, now) ──> rise, fall ──> up or down
//! ```
//!
//! No I/O and no clock here: time is an argument, answers are told. Checks of many backends do not come
//! at once: each begins at a time of its own in the first interval, waits up to a tenth more
//! or less each time, and no more than `per_second` are begun in a second.
//!
//! Invariants: a backend is asked once at a time; it changes after `rise` right or `fall` wrong answers
//! in a row, and not before; a question that is not answered in time is answered wrong.

use std::collections::BTreeMap;

use flowyard_frame::{Nanos, Rng};

/// How often, and how sure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// From one check to the next.
    pub interval: Nanos,
    /// How long an answer may take.
    pub timeout: Nanos,
    /// Right answers in a row that bring a backend up.
    pub rise: u32,
    /// Wrong ones that take it down.
    pub fall: u32,
}

impl Default for Rules {
    fn default() -> Self {
        let second = 1_000_000_000;
        Self { interval: 2 * second, timeout: second, rise: 2, fall: 3 }
    }
}

/// How the backends are, by number.
#[derive(Clone, Debug)]
pub struct Health {
    /// Checks that begin in a second at most, over all backends; 0 is no limit.
    per_second: u32,
    random: Rng,
    all: BTreeMap<u32, Checked>,
    /// Before this time no check begins: the rate.
    next: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Checked {
    rules: Rules,
    due: Nanos,
    /// When it was asked, if it has not answered.
    asked: Option<Nanos>,
    is_up: bool,
    /// Answers in a row against what it is.
    against: u32,
}

/// A backend is up, or down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// Its number.
    pub backend: u32,
    /// Whether it is up.
    pub is_up: bool,
}

impl Health {
    /// Nobody is asked yet. `seed` decides when within an interval each will be.
    #[must_use]
    pub const fn new(per_second: u32, seed: u64) -> Self {
        Self { per_second, random: Rng::new(seed), all: BTreeMap::new(), next: 0 }
    }

    /// Has a backend asked from `now` on. One that is asked already goes on as it is, by these rules.
    pub fn add(&mut self, backend: u32, rules: Rules, is_up: bool, now: Nanos) {
        if let Some(checked) = self.all.get_mut(&backend) {
            // What is due far off by longer intervals is not waited for.
            checked.due = checked.due.min(now.saturating_add(rules.interval));
            (checked.rules, checked.is_up) = (rules, is_up);
            return;
        }
        let due = now.saturating_add(self.draw(rules.interval.max(1)));
        self.all.insert(backend, Checked { rules, due, asked: None, is_up, against: 0 });
    }

    /// Asks only those backends any more of which `stays` is true.
    pub fn retain(&mut self, mut stays: impl FnMut(u32) -> bool) {
        self.all.retain(|backend, _| stays(*backend));
    }

    /// Whether a backend is up.
    #[must_use]
    pub fn is_up(&self, backend: u32) -> bool {
        self.all.get(&backend).is_some_and(|checked| checked.is_up)
    }

    /// The backend that is to be asked now, if one is. To be called until it is `None`.
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
            // Not from the last one on, but from now: time that was not used is not saved up.
            self.next = now + 1_000_000_000 / Nanos::from(self.per_second);
        }
        Some(backend)
    }

    /// How long the check that is due for the longest has waited for its turn.
    #[must_use]
    pub fn behind(&self, now: Nanos) -> Nanos {
        let waits = self.all.values().filter(|checked| checked.asked.is_none());
        waits.map(|checked| now.saturating_sub(checked.due)).max().unwrap_or(0)
    }

    /// The answer of a backend that was asked; nothing of one that was not, or too late.
    pub fn told(&mut self, backend: u32, ok: bool, now: Nanos) -> Option<Change> {
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

    /// Takes silence for an answer: a backend that was asked too long ago, by `grace` more than its
    /// timeout. To be called until it is `None`.
    pub fn late(&mut self, grace: Nanos, now: Nanos) -> Option<(u32, Option<Change>)> {
        let is_late = |c: &Checked| {
            let most = c.rules.timeout.saturating_add(grace);
            c.asked.is_some_and(|asked| now.saturating_sub(asked) >= most)
        };
        let backend = *self.all.iter().find(|(_, checked)| is_late(checked))?.0;
        Some((backend, self.told(backend, false, now)))
    }

    /// A number below `below` (Steele, Lea and Flood, OOPSLA 2014).
    fn draw(&mut self, below: u64) -> u64 {
        self.random.below(below)
    }
}

#[cfg(test)]
mod tests;

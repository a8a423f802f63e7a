//! Health: when each backend is asked how it is, and what its answers come to.
//!
//! ```text
//!  due(now) ──> ask backend 7 ──(probe.rs does)──> told(7, ok, now) ──> rise, fall ──> up or down
//! ```
//!
//! No I/O and no clock here: time is an argument, answers are told. Checks of many backends do not come
//! at once: each begins at a time of its own in the first interval, waits up to a tenth more
//! or less each time, and no more than `per_second` are begun in a second.
//!
//! Invariants: a backend is asked once at a time; it changes after `rise` right or `fall` wrong answers
//! in a row, and not before; a question that is not answered in time is answered wrong.

use flowyard_frame::Nanos;

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
    /// Checks that begin in a second at most, over all backends; 0 is no limit.
    pub per_second: u32,
}

impl Default for Rules {
    fn default() -> Self {
        let second = 1_000_000_000;
        Self { interval: 2 * second, timeout: second, rise: 2, fall: 3, per_second: 1000 }
    }
}

/// How the backends are. They are numbered from 0, and up at first.
#[derive(Clone, Debug)]
pub struct Health {
    rules: Rules,
    seed: u64,
    all: Vec<Checked>,
    /// Before this time no check begins: the rate.
    next: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Checked {
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
    pub backend: usize,
    /// Whether it is up.
    pub is_up: bool,
}

impl Health {
    /// Health of `backends` backends from time `now` on. `seed` decides when within an interval each is
    /// asked.
    #[must_use]
    pub fn new(backends: usize, rules: Rules, seed: u64, now: Nanos) -> Self {
        let mut health = Self { rules, seed, all: Vec::new(), next: now };
        for _ in 0..backends {
            let wait = health.draw(rules.interval.max(1));
            health.all.push(Checked { due: now + wait, asked: None, is_up: true, against: 0 });
        }
        health
    }

    /// Whether a backend is up.
    #[must_use]
    pub fn is_up(&self, backend: usize) -> bool {
        self.all.get(backend).is_some_and(|checked| checked.is_up)
    }

    /// The backend that is to be asked now, if one is. To be called until it is `None`.
    pub fn due(&mut self, now: Nanos) -> Option<usize> {
        if now < self.next {
            return None;
        }
        let waits = |(_, checked): &(usize, &Checked)| checked.asked.is_none();
        let first = self.all.iter().enumerate().filter(waits).min_by_key(|(_, c)| c.due);
        let (backend, due) = first.map(|(at, checked)| (at, checked.due))?;
        if now < due {
            return None;
        }
        self.all[backend].asked = Some(now);
        if self.rules.per_second > 0 {
            // Not from the last one on, but from now: time that was not used is not saved up.
            self.next = now + 1_000_000_000 / Nanos::from(self.rules.per_second);
        }
        Some(backend)
    }

    /// The answer of a backend that was asked; nothing of one that was not, or too late.
    pub fn told(&mut self, backend: usize, ok: bool, now: Nanos) -> Option<Change> {
        let tenth = self.rules.interval / 10;
        let wait = self.rules.interval - tenth + self.draw(2 * tenth + 1);
        let Rules { rise, fall, .. } = self.rules;
        let checked = self.all.get_mut(backend)?;
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

    /// Takes silence for an answer: a backend that was asked too long ago. To be called until it is `None`.
    pub fn late(&mut self, now: Nanos) -> Option<(usize, Option<Change>)> {
        let timeout = self.rules.timeout;
        let is_late =
            |c: &Checked| c.asked.is_some_and(|asked| now.saturating_sub(asked) >= timeout);
        let backend = self.all.iter().position(is_late)?;
        Some((backend, self.told(backend, false, now)))
    }

    /// A number below `below` (Steele, Lea and Flood, OOPSLA 2014).
    fn draw(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.seed;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(z ^ z >> 31) * u128::from(below)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests;

//! Elephants: a flow that overloads its CPU gets a CPU of its own, and returns when it is calm.
//!
//! ```text
//!  XDP     frames ──1 of 64──> sketch ──each window──> Seen ─┐
//!  kernel  busy, waiting, dropped ───────────────────> Load ─┼─> Elephants::window ──> decisions
//! ```
//!
//! The words are those of the yard's `[elephants]`, and so is the order of events: no decision is made before a CPU is
//! *measured* to be overloaded for some windows in a row: it is busy, and frames wait or are dropped. A flow that has at
//! least the share `promote` of that CPU's frames is then moved to the least loaded CPU, or the least loaded one of a list,
//! and everything else leaves that CPU. The kernel's cost of a frame hardly depends on its length, so shares are those of
//! frames. Unlike the yard, the kernel cannot split a flow over CPUs without reordering it.
//!
//! Hysteresis prevents oscillation: a flow is promoted at one threshold and demoted at a lower one, each of which must
//! hold for some windows in a row; a promotion and a demotion each last for the dwell time at least; a window promotes
//! one flow at most. Every move is one that the XDP program settles.
//!
//! Invariants: a CPU belongs to at most one flow; at least one CPU remains for the others; a flow is promoted or demoted
//! at most once in a dwell time.
//! Thread-safety: plain data. No clock: time is an argument.

use std::collections::BTreeMap;
use std::fmt;
use std::mem::{Discriminant, discriminant};

use flowyard_frame::{FlowKey, Nanos};

/// When to act. Shares are from 0 to 1.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// The time between two decisions, in nanoseconds.
    pub window: Nanos,
    /// One of N frames is sampled.
    pub sample_every: u32,
    /// With fewer samples of a CPU no decision is made.
    pub samples_min: u64,
    /// A CPU that is at least this busy and does not keep up is overloaded.
    pub busy_high: f64,
    /// A CPU does not keep up if this many frames wait at the end of a window, or any was dropped.
    pub waiting_frames: u64,
    /// A promoted flow is demoted when the CPU that it came from would then be at most this busy.
    pub busy_low: f64,
    /// A flow with at least this share of its overloaded CPU is an elephant.
    pub promote: f64,
    /// A promoted flow is demoted when it would take less than this share of a CPU.
    pub demote: f64,
    /// Number of windows in a row in which a condition must hold.
    pub patience: u32,
    /// How long a decision lasts at least, in nanoseconds.
    pub dwell: Nanos,
    /// The largest number of flows that are promoted at a time.
    pub promoted_max: usize,
    /// The CPUs that elephants may get; if there are none, all that receive.
    pub cpus: Vec<u32>,
}

/// The largest number of flows that can have a CPU of their own.
pub const PROMOTED_MOST: usize = 64;

impl Default for Settings {
    /// As in the yard.
    fn default() -> Self {
        Self {
            window: 100_000_000,
            sample_every: 64,
            samples_min: 64,
            busy_high: 0.95,
            waiting_frames: 256,
            busy_low: 0.6,
            promote: 0.3,
            demote: 0.15,
            patience: 3,
            dwell: 2_000_000_000,
            promoted_max: 8,
            cpus: Vec::new(),
        }
    }
}

impl Settings {
    /// What is wrong with these settings, and how to fix it.
    pub(crate) fn wrong(&self) -> Option<String> {
        let share = |name: &str, value: f64| {
            let is_share = (0.0..=1.0).contains(&value);
            (!is_share).then(|| format!("{name} is {value}; write a number from 0 to 1"))
        };
        let below = |low: (&str, f64), high: (&str, f64)| {
            (low.1 >= high.1).then(|| {
                let ((low, _), (high, value)) = (low, high);
                format!("{low} is not below {high}, so flows would move back and forth; write a {low} below {value}")
            })
        };
        let zero = |name: &str, is_zero: bool, fix: &str| {
            is_zero.then(|| format!("{name} is 0; write {fix}"))
        };
        share("busy_high", self.busy_high)
            .or_else(|| share("busy_low", self.busy_low))
            .or_else(|| share("promote", self.promote))
            .or_else(|| share("demote", self.demote))
            .or_else(|| below(("demote", self.demote), ("promote", self.promote)))
            .or_else(|| below(("busy_low", self.busy_low), ("busy_high", self.busy_high)))
            .or_else(|| {
                zero("window_us", self.window == 0, "the length in microseconds; 100000 is usual")
            })
            .or_else(|| {
                zero("sample_every", self.sample_every == 0, "1 to sample every frame, or 64")
            })
            .or_else(|| zero("promoted_max", self.promoted_max == 0, "at least 1"))
            .or_else(|| {
                (self.sample_every > 1 << 20)
                    .then(|| "sample_every is too large; write at most 1048576".to_owned())
            })
            .or_else(|| {
                (self.promoted_max > PROMOTED_MOST)
                    .then(|| format!("promoted_max is too large; write at most {PROMOTED_MOST}"))
            })
    }
}

/// The load of a CPU in one window.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Load {
    /// The CPU.
    pub cpu: u32,
    /// The share of the window in which it was not idle, 0 to 1.
    pub busy: f64,
    /// Frames that wait in its ring at the window's end.
    pub waiting: u64,
    /// Frames that its ring dropped in this window.
    pub drops: u64,
    /// Frames that were sent to it in this window.
    pub frames: u64,
}

/// A flow that was sampled in one window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The flow.
    pub key: FlowKey,
    /// The CPU to which its frames were sent.
    pub cpu: u32,
    /// The least number of samples that are of this flow.
    pub samples: u64,
}

/// A decision, and the load that led to it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Decision {
    /// The time of the decision.
    pub at: Nanos,
    /// The load of the flow's CPU in the window that ended.
    pub load: Load,
    /// The decision.
    pub what: What,
}

/// What was decided.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum What {
    /// The flow gets the CPU `to`, and all other flows leave that one.
    Promote {
        /// The flow.
        key: FlowKey,
        /// Its CPU from now on.
        to: u32,
        /// At least this share of the CPU's frames is the flow's, 0 to 1.
        share: f64,
    },
    /// The flow is calm: it goes where it would go without this learner.
    Demote {
        /// The flow.
        key: FlowKey,
        /// The share of a CPU that it takes.
        share: f64,
        /// How long it had a CPU of its own, in nanoseconds.
        after: Nanos,
    },
    /// An overloaded CPU is left as it is.
    Refuse(Refused),
}

/// Why nothing is done about an overloaded CPU.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Refused {
    /// No flow is large enough.
    NoElephant {
        /// The share of the largest one, 0 to 1.
        share: f64,
        /// The share that an elephant has at least.
        wanted: f64,
    },
    /// The flow was demoted a short time ago.
    Resting,
    /// As many flows as permitted have a CPU of their own.
    Full,
    /// No CPU is free for it, or none would remain for the others.
    NoCpu,
    /// The flows that would have to leave the least loaded CPU are more than the elephant takes along.
    NotWorthIt,
}

impl fmt::Display for Refused {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoElephant { share, wanted } => write!(
                to,
                "the largest flow has {:.0} % of its frames, which is less than an elephant's {:.0} %",
                share * 100.0,
                wanted * 100.0
            ),
            Self::Resting => to.write_str("its largest flow was returned a short time ago"),
            Self::Full => {
                to.write_str("as many flows as promoted_max permits have a CPU of their own")
            }
            Self::NoCpu => {
                to.write_str("no other CPU is free for its largest flow; name more CPUs")
            }
            Self::NotWorthIt => to.write_str(
                "its largest flow is smaller than what would have to leave the least loaded CPU",
            ),
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Load { cpu, busy, waiting, drops, .. } = self.load;
        let busy = busy * 100.0;
        match self.what {
            What::Promote { key, to: own, share } => write!(
                to,
                "CPU {cpu} is {busy:.0} % busy, {waiting} frames wait, {drops} were dropped: {key}, {:.0} % of its frames, gets CPU {own} for itself",
                share * 100.0
            ),
            What::Demote { key, share, after } => write!(
                to,
                "{key} takes {:.0} % of a CPU: after {:.1} s on CPU {cpu} it returns",
                share * 100.0,
                after as f64 / 1e9
            ),
            What::Refuse(reason) => write!(to, "CPU {cpu} is overloaded: {reason}"),
        }
    }
}

/// A flow that has a CPU.
#[derive(Clone, Copy, Debug)]
struct Own {
    key: FlowKey,
    cpu: u32,
    /// The CPU that it overloaded.
    from: u32,
    since: Nanos,
    /// Windows in a row in which it was calm.
    calm: u32,
    /// The share of a CPU that one frame per nanosecond takes.
    cost: f64,
}

/// Decides which flows have a CPU of their own.
#[derive(Clone, Debug)]
pub struct Elephants {
    settings: Settings,
    /// The CPUs over which the other flows are spread.
    spread: Vec<u32>,
    last: Nanos,
    /// By CPU: windows in a row in which it was overloaded.
    over: BTreeMap<u32, u32>,
    own: Vec<Own>,
    /// Flows that are not promoted before a time.
    resting: Vec<(FlowKey, Nanos)>,
    /// By CPU: the refusal reported last, and when it may be reported again.
    reported: BTreeMap<u32, (Discriminant<Refused>, Nanos)>,
}

impl Elephants {
    /// No flow has a CPU yet; `spread` are the CPUs that receive. The first window starts at `now`.
    #[must_use]
    pub fn new(settings: Settings, mut spread: Vec<u32>, now: Nanos) -> Self {
        spread.sort_unstable();
        spread.dedup();
        Self {
            settings,
            spread,
            last: now,
            over: BTreeMap::new(),
            own: Vec::new(),
            resting: Vec::new(),
            reported: BTreeMap::new(),
        }
    }

    /// The flows that have a CPU of their own, with the CPU.
    pub fn own(&self) -> impl Iterator<Item = (&FlowKey, u32)> {
        self.own.iter().map(|own| (&own.key, own.cpu))
    }

    /// Whether a CPU belongs to a flow.
    #[must_use]
    pub fn is_taken(&self, cpu: u32) -> bool {
        self.own.iter().any(|own| own.cpu == cpu)
    }

    /// A window ends at `now`. The caller carries the decisions out before the next one ends.
    pub fn window(&mut self, now: Nanos, loads: &[Load], seen: &[Seen]) -> Vec<Decision> {
        let span = now.saturating_sub(self.last).max(1) as f64;
        self.last = now;
        self.resting.retain(|&(_, until)| until > now);
        let mut decisions = self.review(now, span, loads, seen);
        let mut is_promoted = false;
        for load in loads {
            let Settings { busy_high, waiting_frames, patience, samples_min, .. } = self.settings;
            let is_behind = load.drops > 0 || load.waiting >= waiting_frames;
            let is_over = load.busy >= busy_high && is_behind && !self.is_taken(load.cpu);
            let over = self.over.entry(load.cpu).or_default();
            *over = if is_over { over.saturating_add(1) } else { 0 };
            let samples = load.frames / u64::from(self.settings.sample_every.max(1));
            if *over < patience.max(1) || samples < samples_min || is_promoted {
                continue;
            }
            match self.promote(now, span, load, loads, seen) {
                Ok(what) => {
                    is_promoted = true;
                    self.over.clear(); // the effect is measured before the next decision
                    self.reported.clear();
                    decisions.push(Decision { at: now, load: *load, what });
                }
                Err(reason) => {
                    let kind = discriminant(&reason);
                    let told = self.reported.get(&load.cpu);
                    if told.is_some_and(|&(last, until)| last == kind && until > now) {
                        continue;
                    }
                    let until = now.saturating_add(self.settings.dwell);
                    self.reported.insert(load.cpu, (kind, until));
                    decisions.push(Decision { at: now, load: *load, what: What::Refuse(reason) });
                }
            }
        }
        decisions
    }

    /// Returns flows that are calm.
    fn review(&mut self, now: Nanos, span: f64, loads: &[Load], seen: &[Seen]) -> Vec<Decision> {
        let mut decisions = Vec::new();
        let taken: Vec<u32> = self.own.iter().map(|own| own.cpu).collect();
        let Self { settings, own, resting, .. } = self;
        let load_of = |cpu: u32| loads.iter().find(|load| load.cpu == cpu).copied();
        own.retain_mut(|own| {
            let samples: u64 =
                seen.iter().filter(|seen| seen.key == own.key).map(|seen| seen.samples).sum();
            let share = (samples * u64::from(settings.sample_every)) as f64 / span * own.cost;
            // If the CPU that it came from belongs to a flow now, or to this one, there is no room there.
            let there = load_of(own.from).filter(|load| !taken.contains(&load.cpu));
            let others = there.map_or(1.0, |load| load.busy);
            let is_calm = share < settings.demote || others + share <= settings.busy_low;
            own.calm = if is_calm { own.calm.saturating_add(1) } else { 0 };
            let after = now.saturating_sub(own.since);
            if after < settings.dwell || own.calm < settings.patience.max(1) {
                return true;
            }
            resting.push((own.key, now.saturating_add(settings.dwell)));
            let load = load_of(own.cpu).unwrap_or(Load { cpu: own.cpu, ..Load::default() });
            decisions.push(Decision {
                at: now,
                load,
                what: What::Demote { key: own.key, share, after },
            });
            false
        });
        decisions
    }

    /// Gives the largest flow of the CPU with this load a CPU, or says why not.
    fn promote(
        &mut self,
        now: Nanos,
        span: f64,
        load: &Load,
        loads: &[Load],
        seen: &[Seen],
    ) -> Result<What, Refused> {
        let settings = &self.settings;
        let every = u64::from(settings.sample_every);
        let here = seen.iter().filter(|seen| seen.cpu == load.cpu);
        let largest = here.max_by_key(|seen| seen.samples);
        let frames = largest.map_or(0, |seen| seen.samples * every);
        let share = (frames as f64 / load.frames.max(1) as f64).min(1.0);
        let wanted = settings.promote;
        let key = match largest {
            Some(seen) if share >= wanted => seen.key,
            _ => return Err(Refused::NoElephant { share, wanted }),
        };
        if self.resting.iter().any(|(resting, _)| *resting == key) {
            return Err(Refused::Resting);
        }
        if self.own.len() >= settings.promoted_max {
            return Err(Refused::Full);
        }
        let target = self.target(load, loads)?;
        let left = self.spread.iter().filter(|&&cpu| cpu != target.cpu && !self.is_taken(cpu));
        let left = left.count();
        if left == 0 {
            return Err(Refused::NoCpu);
        }
        let leave = if self.spread.contains(&target.cpu) { target.frames } else { 0 };
        if target.cpu != load.cpu && leave / left as u64 >= frames {
            return Err(Refused::NotWorthIt);
        }
        // Dropped frames cost nothing.
        let served = load.frames.saturating_sub(load.drops).max(1);
        let cost = load.busy.min(1.0) * span / served as f64;
        let (cpu, from) = (target.cpu, load.cpu);
        self.own.push(Own { key, cpu, from, since: now, calm: 0, cost });
        Ok(What::Promote { key, to: cpu, share })
    }

    /// The least loaded CPU that an elephant of the CPU with this load may get.
    fn target(&self, load: &Load, loads: &[Load]) -> Result<Load, Refused> {
        let may = |cpu: u32| match &self.settings.cpus[..] {
            [] => cpu != load.cpu && self.spread.contains(&cpu),
            list => list.contains(&cpu),
        };
        let free = loads.iter().filter(|one| may(one.cpu) && !self.is_taken(one.cpu));
        let least = free.min_by(|a, b| a.busy.total_cmp(&b.busy).then(a.frames.cmp(&b.frames)));
        least.copied().ok_or(Refused::NoCpu)
    }
}

#[cfg(test)]
mod tests;

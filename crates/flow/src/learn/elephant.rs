//! Elephants: finds a flow that overloads its core, and splits it over cores if that pays.
//!
//! ```text
//!  each core   frames ──1 of 64──> Sampler ──each window──> Seen ─┐
//!  each core   busy, waiting, dropped ────────────────────> Load ─┤
//!                                                                 v
//!                                    Elephants::window ──> decisions: rebalance, promote, demote,
//!                                                          refuse; each with its figures
//! ```
//!
//! Each core samples the frames that it works on. All workers of a promoted flow therefore see a part
//! of it, and the parts are added.
//!
//! A large flow does no harm while its core keeps up. No decision is made before a core is *measured*
//! to be overloaded for some windows in a row: it is busy, and frames wait or are dropped. The
//! cheaper remedy comes first: entries of the indirection table that do not hold the elephant move to
//! the least loaded cores (RSS++, Barbette et al., `CoNEXT` 2019). Where that cannot be enough, the
//! elephant goes to an ordered queue, if the [`Costs`] show that it pays (see [`Estimate`]).
//! Otherwise the split is refused, with the figures. Frames are sampled because accounting for each
//! frame can cost more than it gains (FAJITA, `CoNEXT` 2024).
//!
//! Hysteresis prevents oscillation: a flow is promoted at one threshold and demoted at a lower one,
//! each of which must hold for some windows in a row; a promotion, a demotion and a move of an entry
//! each last for at least the dwell time; at most one flow is promoted in a window. Settle keeps the
//! frames in order in all these moves.
//!
//! An estimate may be wrong, for example if other programs use the workers' processors. The flow's
//! rate is therefore measured when the dwell time is over. If it fell although a core of the flow has
//! no time left, the split is undone, and the flow is not split again for a longer time. If all these
//! cores have time left, the sender sends less.
//!
//! Invariants: at most `promoted_max` flows are promoted; an elephant's entry never moves; a flow is
//! promoted or demoted at most once in a dwell time.
//! Thread-safety: plain data. Each core owns its sampler; one core owns `Elephants` and gets each
//! [`Seen`] by message. No clock: time is an argument.

use std::cmp::Ordering;
use std::mem::{Discriminant, discriminant};

use flowyard_frame::{FlowKey, Nanos, To};

use crate::table::Spread;

mod costs;
mod decision;
mod sampler;

pub use costs::{Costs, Estimate, Room};
pub use decision::{Decision, Load, Refused, What};
pub use sampler::{Flow, Sampler, Seen};

/// When to act. Shares are from 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settings {
    /// A core that is at least this busy and does not keep up is overloaded.
    pub busy_high: f64,
    /// A core does not keep up if this many frames wait at the end of a window, or any was dropped.
    pub queue_high: u64,
    /// Rebalancing fills a core up to this load.
    pub busy_target: f64,
    /// A promoted flow is demoted when its home core would then be at most this busy.
    pub busy_low: f64,
    /// A flow with at least this share of its overloaded core is an elephant.
    pub promote: f64,
    /// A promoted flow is demoted when it would take less than this share of a core.
    pub demote: f64,
    /// Number of windows in a row in which a condition must hold.
    pub patience: u32,
    /// How long a decision lasts at least, in nanoseconds.
    pub dwell: Nanos,
    /// How long a flow is not split again after its split reduced its rate, in nanoseconds.
    pub undone: Nanos,
    /// The largest number of flows that are promoted at a time.
    pub promoted_max: usize,
    /// The largest number of cores that work on one flow.
    pub workers: u16,
    /// The least gain over one core, as a factor, for which a flow is split.
    pub gain: f64,
    /// With fewer samples of a core no decision is made.
    pub samples_min: u64,
}

impl Default for Settings {
    /// For windows of about 100 ms. Cisco's firewalls also require both overload and loss; 30 % is
    /// the low end of published definitions of an elephant.
    fn default() -> Self {
        Self {
            busy_high: 0.95,
            queue_high: 256,
            busy_target: 0.8,
            busy_low: 0.6,
            promote: 0.3,
            demote: 0.15,
            patience: 3,
            dwell: 2_000_000_000,
            undone: 30_000_000_000,
            promoted_max: 8,
            workers: 8,
            gain: 1.1,
            samples_min: 64,
        }
    }
}

/// What is known at the end of a window. Core `i` works on queue `i`.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    /// The load of each core.
    pub loads: &'a [Load],
    /// What each core sampled.
    pub seen: &'a [Seen],
    /// The current indirection table.
    pub spread: &'a Spread,
    /// What a frame costs.
    pub costs: Costs,
}

/// The least share of its home core that an elephant is assumed to get, even if the other flows
/// alone overload the core.
const LEAST_HOME: f64 = 0.1;

/// A flow that is split.
#[derive(Clone, Copy, Debug)]
struct Promoted {
    key: FlowKey,
    hash: u32,
    core: u16,
    since: Nanos,
    /// Windows in a row in which the conditions of a demotion held.
    calm: u32,
    /// Sampled bytes per nanosecond when the flow was promoted.
    rate: f64,
    /// The number of cores that one sampled byte per nanosecond needs.
    cores_per_rate: f64,
    /// The gain that was estimated.
    expected: f64,
    /// Whether the outcome was reported.
    reported: bool,
}

/// Decides about rebalancing and splitting.
#[derive(Clone, Debug)]
pub struct Elephants {
    settings: Settings,
    last: Nanos,
    /// The time that the halved counts represent, in nanoseconds.
    span: f64,
    /// For each core, the number of windows in a row in which it was overloaded.
    over: Vec<u32>,
    promoted: Vec<Promoted>,
    /// Flows that may not be promoted before a time.
    flows_resting: Vec<(FlowKey, Nanos)>,
    /// Flows whose split reduced their rate, with the measured gain; not split before a time.
    undone: Vec<(FlowKey, f64, Nanos)>,
    /// Entries that may not move before a time.
    entries_resting: Vec<(u32, Nanos)>,
    /// For each core, the refusal reported last, and the time before which it is not reported again.
    reported: Vec<Option<(Discriminant<Refused>, Nanos)>>,
}

impl Elephants {
    /// No flow is promoted yet; the first window starts at `now`.
    #[must_use]
    pub const fn new(settings: Settings, now: Nanos) -> Self {
        Self {
            settings,
            last: now,
            span: 0.0,
            over: Vec::new(),
            promoted: Vec::new(),
            flows_resting: Vec::new(),
            undone: Vec::new(),
            entries_resting: Vec::new(),
            reported: Vec::new(),
        }
    }

    /// The flows that are promoted.
    pub fn promoted(&self) -> impl Iterator<Item = &FlowKey> {
        self.promoted.iter().map(|flow| &flow.key)
    }

    /// The promotion of `key` could not be carried out, for example because a table refused it. The
    /// flow is treated as demoted at `now`.
    pub fn failed(&mut self, key: &FlowKey, now: Nanos) {
        let before = self.promoted.len();
        self.promoted.retain(|flow| flow.key != *key);
        if self.promoted.len() < before {
            self.flows_resting.push((*key, now.saturating_add(self.settings.dwell)));
        }
    }

    /// A window ends at `now`. The caller carries the decisions out before the next window ends.
    pub fn window(&mut self, now: Nanos, window: &Window<'_>) -> Vec<Decision> {
        let cores = window.loads.len().min(window.seen.len()).min(1 << 16);
        let window =
            &Window { loads: &window.loads[..cores], seen: &window.seen[..cores], ..*window };
        self.span = self.span / 2.0 + now.saturating_sub(self.last).max(1) as f64;
        self.last = now;
        self.over.resize(cores, 0);
        self.reported.resize(cores, None);
        self.flows_resting.retain(|&(_, until)| until > now);
        self.undone.retain(|&(_, _, until)| until > now);
        self.entries_resting.retain(|&(_, until)| until > now);
        let mut demands: Vec<_> =
            window.loads.iter().zip(window.seen).map(|(load, seen)| demand(load, seen)).collect();
        let mut decisions = Vec::new();
        self.review(now, window, &demands, &mut decisions);
        let mut split = false;
        for core in 0..cores {
            let load = &window.loads[core];
            let over = load.busy >= self.settings.busy_high && behind(&self.settings, load);
            self.over[core] = if over { self.over[core].saturating_add(1) } else { 0 };
            let seen = &window.seen[core];
            if self.over[core] < self.settings.patience.max(1)
                || seen.bytes == 0
                || seen.samples < self.settings.samples_min
            {
                continue;
            }
            let whole = demands[core];
            let mut moves = self.rebalance(now, core, window, &mut demands);
            let relieved = !moves.is_empty() && demands[core] < self.settings.busy_high;
            if !relieved && !split {
                moves.extend(self.split(now, core, window, whole, &demands));
                split = moves.iter().any(|what| matches!(what, What::Promote { .. }));
            }
            if moves.iter().any(|what| !matches!(what, What::Refuse { .. })) {
                self.over[core] = 0; // the effect is measured before the next decision
            }
            let decide = |what| Decision { at: now, core: core as u16, load: *load, what };
            decisions.extend(moves.into_iter().map(decide));
        }
        decisions
    }

    /// Reports outcomes, and demotes flows whose split reduced their rate, or that are no longer
    /// elephants.
    fn review(
        &mut self,
        now: Nanos,
        window: &Window<'_>,
        demands: &[f64],
        decisions: &mut Vec<Decision>,
    ) {
        let Self { settings, span, flows_resting, undone, promoted, .. } = self;
        promoted.retain_mut(|flow| {
            if let To::Queue(home) = window.spread.to(flow.hash) {
                flow.core = home;
            }
            let home = usize::from(flow.core);
            let rate_at = |seen: &Seen| {
                let bytes = seen.flows.iter().find(|seen| seen.key == flow.key);
                bytes.map_or(0.0, |seen| f64::from(seen.bytes) / *span)
            };
            let rate: f64 = window.seen.iter().map(rate_at).sum();
            let share = rate * flow.cores_per_rate;
            // The home core may be one of the workers: its load already includes that part.
            let there = window.seen.get(home).map_or(0.0, rate_at) * flow.cores_per_rate;
            let others = (demands.get(home).copied().unwrap_or(0.0) - there).max(0.0);
            let back = share < settings.demote || others + share <= settings.busy_low;
            flow.calm = if back { flow.calm.saturating_add(1) } else { 0 };
            let after = now.saturating_sub(flow.since);
            if after < settings.dwell {
                return true;
            }
            let load = window.loads.get(home).copied().unwrap_or_default();
            let decide = |what| Decision { at: now, core: flow.core, load, what };
            if !flow.reported {
                flow.reported = true;
                let gain = if flow.rate > 0.0 { rate / flow.rate } else { 0.0 };
                let expected = flow.expected;
                decisions.push(decide(What::Outcome { key: flow.key, expected, gain }));
                let is_held_back = |(at, (load, seen)): (usize, (&Load, &Seen))| {
                    let works = at == home || rate_at(seen) > 0.0;
                    works && (load.busy >= settings.busy_high || behind(settings, load))
                };
                let cores = window.loads.iter().zip(window.seen);
                if gain < 1.0 && cores.enumerate().any(is_held_back) {
                    flows_resting.push((flow.key, now.saturating_add(settings.dwell)));
                    undone.push((flow.key, gain, now.saturating_add(settings.undone)));
                    decisions.push(decide(What::Undo { key: flow.key, gain, after }));
                    return false;
                }
            }
            let keep = flow.calm < settings.patience.max(1);
            if !keep {
                flows_resting.push((flow.key, now.saturating_add(settings.dwell)));
                decisions.push(decide(What::Demote { key: flow.key, share, after }));
            }
            keep
        });
    }

    /// Moves entries of `core` to less loaded cores, the largest that fits first, and updates
    /// `demands`.
    fn rebalance(
        &mut self,
        now: Nanos,
        core: usize,
        window: &Window<'_>,
        demands: &mut [f64],
    ) -> Vec<What> {
        let seen = &window.seen[core];
        let total = seen.bytes as f64;
        let mask = window.spread.mask();
        let big = seen.flows.iter().filter(|f| f64::from(f.bytes) / total >= self.settings.promote);
        let elephants: Vec<_> = big
            .map(|flow| flow.hash & mask)
            .chain(self.promoted.iter().map(|flow| flow.hash & mask))
            .collect();
        let home = To::Queue(core as u16);
        let entries = seen.entries.iter().zip(window.spread.entries());
        let mut mice: Vec<_> = (0..)
            .zip(entries)
            .filter(|&(entry, (&bytes, &to))| {
                let rests = self.entries_resting.iter().any(|&(resting, _)| resting == entry);
                bytes > 0 && to == home && !rests && !elephants.contains(&entry)
            })
            .map(|(entry, (&bytes, _))| (entry, f64::from(bytes) / total))
            .collect();
        mice.sort_by(|a, b| b.1.total_cmp(&a.1));
        let whole = demands[core];
        let until = now.saturating_add(self.settings.dwell);
        let mut moves = Vec::new();
        for (entry, share) in mice {
            if demands[core] <= self.settings.busy_target {
                break;
            }
            let others = (0..demands.len()).filter(|&other| other != core);
            let least = others.min_by(|&a, &b| demands[a].total_cmp(&demands[b]));
            let Some(to) = least else { break };
            if demands[to] + share * whole > self.settings.busy_target {
                continue; // a smaller one may fit
            }
            demands[to] += share * whole;
            demands[core] -= share * whole;
            self.entries_resting.push((entry, until));
            moves.push(What::Rebalance { entry, to: to as u16, share });
        }
        moves
    }

    /// Promotes the largest flow of `core`, or refuses with the reason, unless the same refusal was
    /// reported within the dwell time. `whole` is the core's demand before entries were moved.
    fn split(
        &mut self,
        now: Nanos,
        core: usize,
        window: &Window<'_>,
        whole: f64,
        demands: &[f64],
    ) -> Option<What> {
        let (settings, seen) = (self.settings, &window.seen[core]);
        let total = seen.bytes as f64;
        let share = |flow: &Flow| f64::from(flow.at_least) / total;
        let here = seen.flows.iter().filter(|flow| self.promoted().all(|key| *key != flow.key));
        let largest =
            here.max_by(|a, b| share(a).partial_cmp(&share(b)).unwrap_or(Ordering::Equal)).copied();
        let key = largest.map(|flow| flow.key);
        let part = largest.as_ref().map_or(0.0, share);
        let Some(flow) = largest.filter(|_| part >= settings.promote) else {
            let reason = Refused::NoElephant { share: part, wanted: settings.promote };
            return self.refuse(now, core, key, reason);
        };
        let undone = self.undone.iter().find(|(key, ..)| *key == flow.key);
        if let Some(&(_, gain, until)) = undone {
            return self.refuse(now, core, key, Refused::Undone { gain, left: until - now });
        }
        if let Some(&(_, until)) = self.flows_resting.iter().find(|(key, _)| *key == flow.key) {
            return self.refuse(now, core, key, Refused::Resting { left: until - now });
        }
        if self.promoted.len() >= settings.promoted_max {
            let promoted = self.promoted.len();
            return self.refuse(now, core, key, Refused::Full { promoted });
        }
        let spare = |demand: f64| (1.0 - demand).clamp(0.0, 1.0);
        let home = spare(demands[core] - whole * part).max(LEAST_HOME);
        let others = demands.iter().enumerate().filter(|&(at, _)| at != core);
        let cores = home + others.map(|(_, &demand)| spare(demand)).sum::<f64>();
        let room = Room { home, workers: cores.min(settings.workers.into()), cores };
        let estimate = window.costs.estimate(room, settings.gain);
        let pays = estimate.gain() >= settings.gain.max(1.0);
        if !pays {
            let work_ns = window.costs.work_ns;
            return self.refuse(now, core, key, Refused::NotWorthIt { work_ns, estimate });
        }
        self.promoted.push(Promoted {
            key: flow.key,
            hash: flow.hash,
            core: core as u16,
            since: now,
            calm: 0,
            rate: f64::from(flow.bytes) / self.span,
            cores_per_rate: window.loads[core].busy.min(1.0) / (total / self.span),
            expected: estimate.gain(),
            reported: false,
        });
        self.reported[core] = None;
        Some(What::Promote { key: flow.key, share: part, estimate })
    }

    fn refuse(
        &mut self,
        now: Nanos,
        core: usize,
        key: Option<FlowKey>,
        reason: Refused,
    ) -> Option<What> {
        let kind = discriminant(&reason);
        if self.reported[core].is_some_and(|(last, until)| last == kind && until > now) {
            return None;
        }
        self.reported[core] = Some((kind, now.saturating_add(self.settings.dwell)));
        Some(What::Refuse { key, reason })
    }
}

/// Whether a core does not keep up with its frames.
const fn behind(settings: &Settings, load: &Load) -> bool {
    load.drops > 0 || load.queue_len >= settings.queue_high
}

/// The cores that would be needed for all frames sent to a core: those it served and those dropped.
fn demand(load: &Load, seen: &Seen) -> f64 {
    let busy = if load.busy.is_finite() { load.busy.clamp(0.0, 1.0) } else { 0.0 };
    busy * (1.0 + load.drops as f64 / seen.frames.max(1) as f64)
}

#[cfg(test)]
mod tests;

//! Decider: collects the reports of the cores, asks [`Elephants`], and carries out its decisions.
//!
//! ```text
//!  reports of window w: all there, or half a window late ──> loads, costs ──> decisions of w
//!                                                                  promote, demote: Edit to all
//!                                                                  rebalance: Entry to all
//! ```
//!
//! `Elephants` numbers cores and queues alike: worker `i` works on queue `i`. Here a worker is a consumer
//! of the ordered queue, and its own queue is the one that it serves alone.
//!
//! Invariants: each window is decided once, in order; edits are sent in the order of their decisions.
//! Thread-safety: belongs to one core.

use std::collections::VecDeque;
use std::sync::Arc;

use flowyard_flow::learn::elephant::{
    Costs, Decision, Elephants, Load, Refused, Seen, What, Window,
};
use flowyard_flow::table::Spread;
use flowyard_frame::{Edit, FlowKey, Nanos, To};

use super::marks::Marks;
use super::report::{Decisions, Report, window_of};
use crate::blueprint::{Blueprint, ElephantPlan, FixedCosts};
use crate::counters::Counters;
use crate::front::Front;
use crate::mail::Message;
use crate::stages::{Span, Stages};

/// The elephant detector of an engine.
pub(crate) struct Decider {
    elephants: Elephants,
    length: Nanos,
    /// Latest costs of a frame.
    costs: Costs,
    /// Costs that the user set and that replace measured ones.
    fixed: FixedCosts,
    /// The ordered queue.
    split: To,
    /// Core and queue of each worker.
    workers: Vec<(u16, u16)>,
    /// The indirection table, with worker numbers as destinations.
    spread: Spread,
    /// The latest report, by core.
    reports: Vec<Option<Box<Report>>>,
    /// The next window to decide.
    due: u64,
    /// Messages that did not fit into a mailbox yet, with the core that they are for.
    pub(crate) unsent: VecDeque<(u16, Message)>,
    /// Cores that receive.
    teaches: Vec<u16>,
    log: Decisions,
    /// The promoted flows, if adapters mark frames.
    marks: Option<Marks>,
}

impl Decider {
    pub(crate) fn new(
        plan: &Blueprint,
        elephants: &ElephantPlan,
        entries: &[To],
        log: Decisions,
    ) -> Self {
        let spread = Spread::new(entries.len(), 1).or_else(|_| Spread::new(1, 1));
        let mut new = Self {
            elephants: Elephants::new(elephants.settings, 0),
            length: elephants.window_ns,
            costs: elephants.costs,
            fixed: elephants.fixed,
            split: To::Queue(elephants.queue),
            workers: plan.elephant_workers(elephants),
            spread: spread.unwrap_or_else(|_| unreachable!("one entry is a power of two")),
            reports: vec![None; plan.cores.into()],
            due: 0,
            unsent: VecDeque::new(),
            teaches: plan.receivers(),
            log,
            marks: None,
        };
        new.learn_spread(entries);
        new
    }

    /// Lets adapters mark the frames of promoted flows.
    pub(crate) fn set_marks(&mut self, front: Arc<dyn Front>, ports: u16) {
        self.marks = Some(Marks::new(front, ports));
    }

    /// Notes that the user's entries have changed.
    pub(crate) fn reloaded(&mut self, now: Nanos) {
        let messages = self.marks.as_mut().map(|marks| marks.reloaded(now));
        messages.into_iter().flatten().for_each(|message| self.send(&message));
    }

    /// Leaves a message for all cores that receive.
    fn send(&mut self, message: &Message) {
        self.unsent.extend(self.teaches.iter().map(|&core| (core, message.clone())));
    }

    /// Takes over a changed indirection table.
    pub(crate) fn learn_spread(&mut self, entries: &[To]) {
        for (index, to) in entries.iter().enumerate() {
            let worker = self.workers.iter().position(|&(_, queue)| *to == To::Queue(queue));
            let to = worker.map_or(To::DROP, |worker| To::Queue(worker as u16));
            let _in_range = self.spread.set(index, to);
        }
    }

    /// Takes the report of a core.
    pub(crate) fn take(&mut self, report: Box<Report>) {
        if report.window >= self.due
            && let Some(slot) = self.reports.get_mut(usize::from(report.core))
        {
            *slot = Some(report);
        }
    }

    /// Whether the next window can be decided: all cores have reported, or some reports are too late.
    #[inline]
    pub(crate) fn is_ready(&self, now: Nanos) -> bool {
        let window = window_of(now, self.length);
        if window <= self.due {
            return false;
        }
        let late = window > self.due + 1 || now % self.length >= self.length / 2;
        late || self.reports.iter().all(Option::is_some)
    }

    /// Decides the window; messages to tables are left in `unsent`. A flow that the user's own tables answer
    /// is not split, because these tables come first.
    pub(crate) fn decide(
        &mut self,
        now: Nanos,
        counters: &mut Counters,
        users: &mut dyn FnMut(&FlowKey) -> bool,
    ) {
        self.due = window_of(now, self.length);
        self.learn_costs();
        let reports = || self.reports.iter().flatten();
        let unknown = Seen::default();
        let (mut loads, mut seen) = (Vec::new(), Vec::new());
        for &(core, queue) in &self.workers {
            let drops =
                reports().filter_map(|report| report.drops.get(usize::from(queue))).sum::<u64>();
            let report = self.reports.get(usize::from(core)).and_then(Option::as_deref);
            let (busy, queue_len) = report.map_or((1.0, 0), |r| (r.busy, r.queue_len));
            loads.push(Load { busy, queue_len, drops });
            seen.push(report.map_or_else(|| unknown.clone(), |report| report.seen.clone()));
        }
        let window = Window { loads: &loads, seen: &seen, spread: &self.spread, costs: self.costs };
        for mut decision in self.elephants.window(now, &window) {
            if let What::Promote { key, .. } = decision.what
                && users(&key)
            {
                self.elephants.failed(&key, now);
                decision.what = What::Refuse { key: Some(key), reason: Refused::User };
            }
            self.carry_out(decision, now, counters);
        }
        if let Some(marks) = &mut self.marks {
            marks.free(now);
        }
        self.reports.fill(None);
    }

    #[cfg(test)]
    pub(super) const fn log(&self) -> &Decisions {
        &self.log
    }

    fn carry_out(&mut self, mut decision: Decision, now: Nanos, counters: &mut Counters) {
        let message = match &mut decision.what {
            What::Rebalance { entry, to, .. } => {
                let worker = *to;
                let _in_range = self.spread.set(*entry as usize, To::Queue(worker));
                let Some(&(_, queue)) = self.workers.get(usize::from(worker)) else { return };
                *to = queue;
                counters.rebalanced += 1;
                Some(Message::Entry { index: *entry, to: To::Queue(queue) })
            }
            What::Promote { .. } => {
                counters.promoted += 1;
                decision.edit(self.split).map(Message::Promote)
            }
            What::Demote { .. } | What::Undo { .. } => {
                counters.demoted += 1;
                decision.edit(self.split).map(Message::Promote)
            }
            What::Refuse { .. } => {
                counters.refused += 1;
                None
            }
            What::Outcome { .. } => None,
        };
        decision.core = self.workers.get(usize::from(decision.core)).map_or(0, |worker| worker.0);
        tracing::info!(target: "flowyard::elephants", core = decision.core, "{decision}");
        self.log.add(decision);
        let Some(message) = message else { return };
        self.send(&message);
        let named = match (&mut self.marks, message) {
            (Some(marks), Message::Promote(Edit::Put(key, action))) => {
                marks.promoted(key, action, now)
            }
            (Some(marks), Message::Promote(Edit::Del(key))) => {
                marks.demoted(&key, now);
                return;
            }
            _ => return,
        };
        named.iter().for_each(|message| self.send(message));
    }

    /// Updates the costs of frames; a stage without timed frames keeps its last cost.
    fn learn_costs(&mut self) {
        let reports = self.reports.iter().flatten();
        let all = reports.fold(Stages::default(), |sum, report| sum.plus(&report.stages));
        let sum = |spans: &[Span]| {
            let costs = spans.iter().map(|&span| all.ns_per_frame(span));
            costs.fold(None, |sum: Option<f64>, cost| match (sum, cost) {
                (Some(sum), Some(cost)) => Some(sum + cost),
                (one, other) => one.or(other),
            })
        };
        let keep = |old: &mut f64, new: Option<f64>| *old = new.unwrap_or(*old);
        let FixedCosts { rx_ns: rx, handoff_ns: handoff, commit_ns: commit } = self.fixed;
        let Costs { rx_ns, work_ns, handoff_ns, commit_ns } = &mut self.costs;
        keep(rx_ns, rx.or_else(|| sum(&[Span::Rx, Span::Parse, Span::Steer, Span::Settle])));
        keep(work_ns, sum(&[Span::Work, Span::Tx]));
        let both = sum(&[Span::Enqueue, Span::Dequeue]).map(|both| both / 2.0);
        keep(handoff_ns, handoff.or(both));
        keep(commit_ns, commit.or_else(|| sum(&[Span::Complete])));
    }
}

//! One flow table of the agent: flow entries by priority and match, in the order in which they
//! answer.
//!
//! Finding, adding and removing an entry takes O(log n). Timers are ordered by the earliest time at
//! which an entry can time out. When a timer expires and the entry was used in the meantime, it
//! gets a later timer.
//!
//! Invariants: no two entries have equal priority and match. Every entry with a timeout is in
//! `timers` once. While eviction is on, `ranks` has every entry once.
//! Thread-safety: plain data. The agent reads counts while the data plane writes them.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::flows::SECOND;
use super::{memory, sum};
use crate::Match;
use crate::act::Action;
use crate::act::Instruction;
use crate::change::{Entry, Lookups};
use crate::flow::{RemovedReason, flags};
use crate::group;
use crate::multipart::{FlowFilter, FlowStats, NOT_COUNTED};
use crate::port::reserved;
use crate::table::TableFeatures;

/// The key of a flow entry: its priority and its match in [`Match::normal`] form.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Rule(Reverse<u16>, Match);

impl Rule {
    pub(super) fn new(priority: u16, matching: &Match) -> Self {
        Self(Reverse(priority), matching.clone())
    }

    pub(super) fn of(entry: &Entry) -> Self {
        Self::new(entry.priority, &entry.matching)
    }
}

/// A flow entry with the data that only the agent needs.
#[derive(Clone, Debug)]
pub(super) struct Installed {
    pub(super) entry: Arc<Entry>,
    /// The match as the controller wrote it, if that differs from the normal form.
    pub(super) asked: Option<Box<Match>>,
    pub(super) importance: u16,
    pub(super) idle_timeout: u16,
    pub(super) hard_timeout: u16,
    pub(super) since: u64,
    /// The time of its last frame before its counters were reset.
    pub(super) used_before: u64,
}

impl Installed {
    /// The match as the controller wrote it.
    pub(super) fn said(&self) -> &Match {
        self.asked.as_deref().unwrap_or(&self.entry.matching)
    }

    /// Packets and bytes; `None` where the controller wanted no counter.
    pub(super) fn counted(&self) -> (Option<u64>, Option<u64>) {
        counted(&self.entry)
    }

    /// Packets and bytes, as reported to controllers.
    pub(super) fn reported(&self) -> (u64, u64) {
        reported(&self.entry)
    }

    pub(super) const fn age(&self, now: u64) -> (u32, u32) {
        super::flows::age(self.since, now)
    }

    /// The time of the last frame, or the time at which the entry was added.
    pub(super) fn used(&self) -> u64 {
        sum(&self.entry.counts).2.max(self.used_before).max(self.since)
    }

    /// The earliest time at which the entry can time out if no frame comes, and the reason.
    fn ends(&self) -> Option<(u64, RemovedReason)> {
        let end = |from: u64, timeout: u16, reason| {
            (timeout != 0).then(|| (from.saturating_add(u64::from(timeout) * SECOND), reason))
        };
        let hard = end(self.since, self.hard_timeout, RemovedReason::HardTimeout);
        let idle = end(self.used(), self.idle_timeout, RemovedReason::IdleTimeout);
        match (hard, idle) {
            (Some(hard), Some(idle)) => Some(if idle.0 < hard.0 { idle } else { hard }),
            (hard, idle) => hard.or(idle),
        }
    }

    /// The actions of all its instructions.
    pub(super) fn actions(&self) -> impl Iterator<Item = &Action> {
        actions(&self.entry.instructions)
    }

    /// Whether a request selects this entry (1.3.5, section 7.3.5.2); the request's match must be
    /// normal.
    pub(super) fn is_in(&self, filter: &FlowFilter) -> bool {
        (self.entry.cookie ^ filter.cookie) & filter.cookie_mask == 0
            && self.leads_to(filter.out_port, filter.out_group)
            && self.entry.matching.is_within(&filter.matching)
    }

    pub(super) fn leads_to(&self, port: u32, group: u32) -> bool {
        let to = |action: &Action| match action {
            Action::Output { port: found, .. } | Action::Enqueue { port: found, .. } => {
                *found == port
            }
            _ => false,
        };
        (port == reserved::ANY || self.actions().any(to))
            && (group == group::ANY || self.actions().any(|found| *found == Action::Group(group)))
    }

    /// The entry in the form of a multipart reply.
    pub(super) fn stats(&self, now: u64) -> FlowStats {
        let (duration_sec, duration_nsec) = self.age(now);
        let (packets, bytes) = self.reported();
        FlowStats {
            table: self.entry.table,
            duration_sec,
            duration_nsec,
            priority: self.entry.priority,
            idle_timeout: self.idle_timeout,
            hard_timeout: self.hard_timeout,
            flags: self.entry.flags,
            importance: self.importance,
            cookie: self.entry.cookie,
            packets,
            bytes,
            matching: self.said().clone(),
            instructions: self.entry.instructions.clone(),
        }
    }
}

/// The actions of these instructions.
pub(super) fn actions(instructions: &[Instruction]) -> impl Iterator<Item = &Action> {
    instructions.iter().flat_map(|instruction| match instruction {
        Instruction::WriteActions(list) | Instruction::ApplyActions(list) => list.as_slice(),
        _ => &[],
    })
}

/// A flow entry and the time to which its timer is set.
#[derive(Clone, Debug)]
struct Place {
    flow: Installed,
    timer: Option<u64>,
}

/// The settings for eviction and vacancy events (1.4).
#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    /// `OFPTC_*`.
    pub(super) config: u32,
    /// `OFPTMPEF_*`.
    pub(super) eviction: u32,
    /// Percentages of free space below and above which the agent sends a vacancy event.
    pub(super) vacancy: (u8, u8),
    /// Whether the agent has reported that little space is left.
    pub(super) low: bool,
    /// The features to which a controller has reduced the table.
    pub(super) features: Option<Box<TableFeatures>>,
}

/// A flow table.
#[derive(Debug)]
pub(super) struct Table {
    flows: BTreeMap<Rule, Place>,
    /// Ordered by time, then entry.
    timers: BTreeMap<(u64, u64), Rule>,
    /// Ordered by importance, then entry; used while eviction is on.
    ranks: Option<BTreeMap<(u16, u64), Rule>>,
    /// The weight of the flow entries: see [`memory`].
    bytes: usize,
    pub(super) lookups: Lookups,
    pub(super) settings: Settings,
}

impl Table {
    pub(super) fn new(lookups: Lookups) -> Self {
        Self {
            flows: BTreeMap::new(),
            timers: BTreeMap::new(),
            ranks: None,
            bytes: 0,
            lookups,
            settings: Settings::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.flows.len()
    }

    /// What the table takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.settings.features.as_deref().map_or(0, memory::of_features)
    }

    /// All flow entries by falling priority.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Installed> {
        self.flows.values().map(|place| &place.flow)
    }

    /// The flow entries behind this one, or all of them.
    pub(super) fn after<'a>(
        &'a self,
        rule: Option<&Rule>,
    ) -> impl Iterator<Item = &'a Installed> + use<'a> {
        let from = rule.map_or(Bound::Unbounded, Bound::Excluded);
        self.flows.range::<Rule, _>((from, Bound::Unbounded)).map(|(_, place)| &place.flow)
    }

    /// All flow entries of a priority.
    pub(super) fn of_priority(&self, priority: u16) -> impl Iterator<Item = &Installed> {
        // The empty match is the smallest of all matches.
        let from = Rule::new(priority, &Match::default());
        let flows = self.flows.range(from..).take_while(move |(rule, _)| rule.0.0 == priority);
        flows.map(|(_, place)| &place.flow)
    }

    pub(super) fn get(&self, rule: &Rule) -> Option<&Installed> {
        self.flows.get(rule).map(|place| &place.flow)
    }

    pub(super) fn put(&mut self, rule: Rule, flow: Installed) -> Option<Installed> {
        let old = self.take(&rule);
        let timer = flow.ends().map(|(at, _)| at);
        if let Some(at) = timer {
            self.timers.insert((at, flow.entry.id), rule.clone());
        }
        if let Some(ranks) = &mut self.ranks {
            ranks.insert((flow.importance, flow.entry.id), rule.clone());
        }
        self.bytes += memory::of_installed(&flow);
        self.flows.insert(rule, Place { flow, timer });
        old
    }

    pub(super) fn take(&mut self, rule: &Rule) -> Option<Installed> {
        let Place { flow, timer } = self.flows.remove(rule)?;
        self.bytes -= memory::of_installed(&flow);
        if let Some(at) = timer {
            self.timers.remove(&(at, flow.entry.id));
        }
        if let Some(ranks) = &mut self.ranks {
            ranks.remove(&(flow.importance, flow.entry.id));
        }
        Some(flow)
    }

    /// At most `most` flow entries that have timed out, with the reason, by falling priority.
    pub(super) fn over(&mut self, now: u64, most: usize) -> Vec<(Rule, RemovedReason)> {
        let mut over = Vec::new();
        while over.len() < most
            && let Some(entry) = self.timers.first_entry().filter(|first| first.key().0 <= now)
        {
            let ((_, id), rule) = entry.remove_entry();
            let Some(place) = self.flows.get_mut(&rule) else { continue };
            let ends = place.flow.ends();
            place.timer = ends.map(|(at, _)| at);
            match ends {
                Some((at, reason)) if at <= now => {
                    place.timer = None;
                    over.push((rule, reason));
                }
                Some((at, _)) => {
                    self.timers.insert((at, id), rule);
                }
                None => {}
            }
        }
        over.sort_by(|a, b| a.0.cmp(&b.0));
        over
    }

    /// Turns eviction on or off.
    pub(super) fn evicts(&mut self, on: bool) {
        let ranks = || {
            let rank = |(rule, place): (&Rule, &Place)| {
                ((place.flow.importance, place.flow.entry.id), rule.clone())
            };
            self.flows.iter().map(rank).collect()
        };
        self.ranks = on.then(ranks);
    }

    /// The flow entry to evict for a new one of `importance`: the oldest of those with the lowest
    /// importance. `None` if all are more important.
    pub(super) fn victim(&self, importance: u16) -> Option<Rule> {
        let (&(least, _), rule) = self.ranks.as_ref()?.first_key_value()?;
        (least <= importance).then(|| rule.clone())
    }
}

/// Packets and bytes of an entry; `None` where the controller wanted no counter.
fn counted(entry: &Entry) -> (Option<u64>, Option<u64>) {
    let (packets, bytes, _) = sum(&entry.counts);
    let wanted = |flag: u16, count: u64| (entry.flags & flag == 0).then_some(count);
    (wanted(flags::NO_PKT_COUNTS, packets), wanted(flags::NO_BYT_COUNTS, bytes))
}

/// Packets and bytes of an entry, as reported to controllers.
pub(super) fn reported(entry: &Entry) -> (u64, u64) {
    let (packets, bytes) = counted(entry);
    (packets.unwrap_or(NOT_COUNTED), bytes.unwrap_or(NOT_COUNTED))
}

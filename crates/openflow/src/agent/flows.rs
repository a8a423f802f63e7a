//! One flow table as a list: flow-mods (1.3.5, section 6.4) and lookups.
//!
//! The list is ordered by falling priority and searched linearly. It is the model that the agent's
//! tables and a fast lookup are compared with. The agent does not use it.
//!
//! Invariants: no two flows have equal priority and match; priorities fall along the list.
//! Thread-safety: plain data. Time is an argument, in nanoseconds.

use std::collections::BTreeMap;

use crate::act::{Action, Instruction};
use crate::flow::{FlowCommand, FlowMod, FlowRemoved, RemovedReason, flags};
use crate::multipart::{FlowFilter, FlowStats, NOT_COUNTED};
use crate::oxm::Field;
use crate::port::reserved;
use crate::problem::{self, Problem};
use crate::{Match, group};

/// A second, in nanoseconds.
pub(super) const SECOND: u64 = 1_000_000_000;

/// The match fields of a frame, with their values.
pub type Fields = BTreeMap<Field, u128>;

/// Whether a frame with these fields matches.
pub(super) fn matches(matching: &Match, fields: &Fields) -> bool {
    matching.0.iter().all(|oxm| match fields.get(&oxm.field) {
        Some(value) => value & oxm.mask == oxm.value,
        // An untagged frame has the VLAN ID 0 (OFPVID_NONE).
        None => oxm.field == Field::VlanVid && oxm.value == 0,
    })
}

/// The time since `since`, in seconds and nanoseconds.
pub(super) const fn age(since: u64, now: u64) -> (u32, u32) {
    let age = now.saturating_sub(since);
    ((age / SECOND) as u32, (age % SECOND) as u32)
}

/// A flow entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Flow {
    /// The fields that a frame must have, in [`Match::normal`] form.
    pub matching: Match,
    /// Of the entries that match, the one with the highest priority answers.
    pub priority: u16,
    /// The cookie that the controller chose.
    pub cookie: u64,
    /// `OFPFF_*`.
    pub flags: u16,
    /// Entries of lower importance are evicted first.
    pub importance: u16,
    /// Seconds without a frame after which the entry is removed; 0 is never.
    pub idle_timeout: u16,
    /// Seconds after which the entry is removed; 0 is never.
    pub hard_timeout: u16,
    /// The instructions for frames that match.
    pub instructions: Vec<Instruction>,
    /// The number of frames that matched.
    pub packets: u64,
    /// The bytes of these frames.
    pub bytes: u64,
    /// The time at which it was added.
    pub since: u64,
    /// The time of the last frame, or the time at which it was added.
    pub used: u64,
}

impl Flow {
    /// Whether a frame with these fields matches.
    #[must_use]
    pub fn matches(&self, fields: &Fields) -> bool {
        matches(&self.matching, fields)
    }

    /// The actions of all its instructions.
    pub fn actions(&self) -> impl Iterator<Item = &Action> {
        self.instructions.iter().flat_map(|instruction| match instruction {
            Instruction::WriteActions(list) | Instruction::ApplyActions(list) => list.as_slice(),
            _ => &[],
        })
    }

    fn leads_to(&self, port: u32, group: u32) -> bool {
        let to = |action: &Action| match action {
            Action::Output { port: found, .. } | Action::Enqueue { port: found, .. } => {
                *found == port
            }
            _ => false,
        };
        (port == reserved::ANY || self.actions().any(to))
            && (group == group::ANY || self.actions().any(|found| *found == Action::Group(group)))
    }

    /// Whether a request selects this entry (1.3.5, section 7.3.5.2).
    #[must_use]
    pub fn is_in(&self, filter: &FlowFilter) -> bool {
        (self.cookie ^ filter.cookie) & filter.cookie_mask == 0
            && self.leads_to(filter.out_port, filter.out_group)
            && self.matching.is_within(&filter.matching.normal())
    }

    const fn age(&self, now: u64) -> (u32, u32) {
        age(self.since, now)
    }

    /// Packets and bytes, as reported to controllers.
    fn reported(&self) -> (u64, u64) {
        let no = |flag: u16| self.flags & flag != 0;
        (
            if no(flags::NO_PKT_COUNTS) { NOT_COUNTED } else { self.packets },
            if no(flags::NO_BYT_COUNTS) { NOT_COUNTED } else { self.bytes },
        )
    }

    /// The flow-removed message for this entry.
    pub fn removed(&self, table: u8, reason: RemovedReason, now: u64) -> FlowRemoved {
        let (duration_sec, duration_nsec) = self.age(now);
        let (packets, bytes) = self.reported();
        FlowRemoved {
            cookie: self.cookie,
            priority: self.priority,
            reason,
            table,
            duration_sec,
            duration_nsec,
            idle_timeout: self.idle_timeout,
            hard_timeout: self.hard_timeout,
            packets,
            bytes,
            matching: self.matching.clone(),
        }
    }

    /// The entry in the form of a multipart reply.
    pub fn stats(&self, table: u8, now: u64) -> FlowStats {
        let (duration_sec, duration_nsec) = self.age(now);
        let (packets, bytes) = self.reported();
        FlowStats {
            table,
            duration_sec,
            duration_nsec,
            priority: self.priority,
            idle_timeout: self.idle_timeout,
            hard_timeout: self.hard_timeout,
            flags: self.flags,
            importance: self.importance,
            cookie: self.cookie,
            packets,
            bytes,
            matching: self.matching.clone(),
            instructions: self.instructions.clone(),
        }
    }
}

/// A flow table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Flows {
    /// By falling priority.
    pub list: Vec<Flow>,
    /// The number of lookups.
    pub looked_up: u64,
    /// The number of lookups with a match.
    pub matched: u64,
}

impl Flows {
    /// Finds the entry that answers a frame, and counts the frame.
    pub fn lookup(&mut self, fields: &Fields, bytes: u64, now: u64) -> Option<&Flow> {
        self.looked_up += 1;
        let flow = self.list.iter_mut().find(|flow| flow.matches(fields))?;
        self.matched += 1;
        flow.used = now;
        if flow.flags & flags::NO_PKT_COUNTS == 0 {
            flow.packets += 1;
        }
        if flow.flags & flags::NO_BYT_COUNTS == 0 {
            flow.bytes += bytes;
        }
        Some(flow)
    }

    /// Carries out a flow-mod and returns the entries that it removed. With `old` it follows 1.0:
    /// an add resets the counters, and a modify that selects nothing adds the entry.
    ///
    /// # Errors
    /// When the entry overlaps another one, or the table is full.
    pub fn change(
        &mut self,
        m: &FlowMod,
        capacity: usize,
        old: bool,
        now: u64,
    ) -> Result<Vec<Flow>, Problem> {
        let matching = m.matching.normal();
        let strict = |flow: &Flow| flow.priority == m.priority && flow.matching == matching;
        let filter = FlowFilter {
            table: m.table,
            out_port: reserved::ANY,
            out_group: group::ANY,
            cookie: m.cookie,
            cookie_mask: m.cookie_mask,
            matching: matching.clone(),
        };
        match m.command {
            FlowCommand::Add => self.add(m, &matching, capacity, old, now).map(|()| Vec::new()),
            FlowCommand::Modify | FlowCommand::ModifyStrict => {
                let exact = m.command == FlowCommand::ModifyStrict;
                let mut found = false;
                for flow in &mut self.list {
                    if flow.is_in(&filter) && (!exact || strict(flow)) {
                        found = true;
                        flow.instructions.clone_from(&m.instructions);
                        if m.flags & flags::RESET_COUNTS != 0 {
                            (flow.packets, flow.bytes) = (0, 0);
                        }
                    }
                }
                if old && !found {
                    self.add(m, &matching, capacity, old, now)?;
                }
                Ok(Vec::new())
            }
            FlowCommand::Delete | FlowCommand::DeleteStrict => {
                let exact = m.command == FlowCommand::DeleteStrict;
                let out = FlowFilter { out_port: m.out_port, out_group: m.out_group, ..filter };
                Ok(self.take(|flow| flow.is_in(&out) && (!exact || strict(flow))))
            }
        }
    }

    fn add(
        &mut self,
        m: &FlowMod,
        matching: &Match,
        capacity: usize,
        old: bool,
        now: u64,
    ) -> Result<(), Problem> {
        let equal = |flow: &&mut Flow| flow.priority == m.priority && flow.matching == *matching;
        if m.flags & flags::CHECK_OVERLAP != 0 {
            let overlaps =
                |flow: &Flow| flow.priority == m.priority && flow.matching.overlaps(matching);
            if self.list.iter().any(overlaps) {
                return Err(problem::FLOW_OVERLAP);
            }
        }
        let mut flow = Flow {
            matching: matching.clone(),
            priority: m.priority,
            cookie: m.cookie,
            flags: m.flags,
            importance: m.importance,
            idle_timeout: m.idle_timeout,
            hard_timeout: m.hard_timeout,
            instructions: m.instructions.clone(),
            packets: 0,
            bytes: 0,
            since: now,
            used: now,
        };
        if let Some(there) = self.list.iter_mut().find(equal) {
            if !old && m.flags & flags::RESET_COUNTS == 0 {
                (flow.packets, flow.bytes) = (there.packets, there.bytes);
            }
            *there = flow;
            return Ok(());
        }
        if self.list.len() >= capacity {
            return Err(problem::FLOW_TABLE_FULL);
        }
        let at = self.list.partition_point(|other| other.priority >= flow.priority);
        self.list.insert(at, flow);
        Ok(())
    }

    /// Removes the entries that `gone` selects.
    pub fn take(&mut self, gone: impl Fn(&Flow) -> bool) -> Vec<Flow> {
        let (taken, left) = std::mem::take(&mut self.list).into_iter().partition(gone);
        self.list = left;
        taken
    }

    /// Removes the entries that have timed out, and returns them with the reason.
    pub fn expire(&mut self, now: u64) -> Vec<(Flow, RemovedReason)> {
        let over = |from: u64, timeout: u16| {
            timeout != 0 && now.saturating_sub(from) >= u64::from(timeout) * SECOND
        };
        let hard = |flow: &Flow| over(flow.since, flow.hard_timeout);
        let gone = self.take(|flow| hard(flow) || over(flow.used, flow.idle_timeout));
        let reason = |flow: Flow| {
            let hard = hard(&flow);
            (flow, if hard { RemovedReason::HardTimeout } else { RemovedReason::IdleTimeout })
        };
        gone.into_iter().map(reason).collect()
    }
}

//! Flow-mod messages (1.3.5, section 6.4; 1.0.0, section 4.6).

use std::sync::Arc;

use super::check::Named;
use super::monitor::Event;
use super::table::{Installed, Rule};
use super::{Agent, Ask, Out, counts, memory};
use crate::act::{Action, Instruction};
use crate::change::{Change, Entry};
use crate::flow::{FlowCommand, FlowMod, PacketOut, RemovedReason, flags};
use crate::multipart::FlowFilter;
use crate::port::reserved;
use crate::problem::{self, Problem};
use crate::table;
use crate::{Match, Version, group};

/// `OFP_NO_BUFFER`.
pub(super) const NO_BUFFER: u32 = u32::MAX;

/// `OFPFF_EMERG` of 1.0.
const EMERGENCY: u16 = 4;

impl Agent {
    pub(super) fn flow_mod(
        &mut self,
        ask: Ask,
        m: &FlowMod,
        out: &mut Vec<Out>,
    ) -> Result<(), Problem> {
        self.check_head(m, ask.version)?;
        let deletes = m.command.deletes();
        if ask.version == Version::V10 && m.flags & EMERGENCY != 0 {
            // Only 1.0 has emergency flows (1.0.0, sections 4.3 and 4.6). This switch has no table for
            // them, so there are none to delete.
            let timed = m.idle_timeout != 0 || m.hard_timeout != 0;
            return match (deletes, timed) {
                (true, _) => Ok(()),
                (false, true) => Err(problem::FLOW_BAD_TIMEOUT),
                (false, false) => Err(problem::FLOW_TABLE_FULL),
            };
        }
        let matching = m.matching.normal();
        if deletes {
            self.delete(ask, m, matching, out);
            return Ok(());
        }
        self.check_flow(m, ask.version, Named::MustExist)?;
        let strict = m.command == FlowCommand::ModifyStrict;
        let adds = m.command == FlowCommand::Add
            || !self.modify(ask, m, &matching, strict, out)? && ask.version == Version::V10;
        if adds {
            self.add(ask, m, matching, out)?;
        }
        if m.buffer == NO_BUFFER {
            return Ok(());
        }
        // The buffered frame is sent to the tables as by a packet-out (1.3.5, section 7.3.4.2).
        let (in_port, frame) = self.punts.release(m.buffer, ask.now)?;
        let actions = vec![Action::Output { port: reserved::TABLE, max_len: 0 }];
        let send = PacketOut { buffer: NO_BUFFER, in_port, actions, data: frame };
        self.emit(Change::Send(Arc::new(send)));
        Ok(())
    }

    fn add(
        &mut self,
        ask: Ask,
        m: &FlowMod,
        matching: Match,
        out: &mut Vec<Out>,
    ) -> Result<(), Problem> {
        let table = &self.tables[usize::from(m.table)];
        if m.flags & flags::CHECK_OVERLAP != 0 {
            let mut equal = table.of_priority(m.priority);
            if equal.any(|flow| flow.entry.matching.overlaps(&matching)) {
                return Err(problem::FLOW_OVERLAP);
            }
        }
        let rule = Rule::new(m.priority, &matching);
        let old = table.get(&rule);
        let resets = ask.version == Version::V10 || m.flags & flags::RESET_COUNTS != 0;
        let kept = old.filter(|_| !resets).map(|old| Arc::clone(&old.entry.counts));
        let same = m.matching == matching;
        let asked = Some(&m.matching).filter(|_| !same);
        let new = memory::of_flow(&matching, asked, &m.instructions, self.cores);
        if !self.fits(new.saturating_sub(old.map_or(0, memory::of_installed))) {
            return Err(problem::FLOW_OUT_OF_MEMORY);
        }
        let full = old.is_none() && table.len() >= self.limits.flows;
        if full {
            let victim = table.victim(m.importance).ok_or(problem::FLOW_TABLE_FULL)?;
            self.remove(m.table, &victim, RemovedReason::Eviction, None, ask.now, out);
        }
        let flow = Installed {
            entry: self.entry(m, matching, kept),
            asked: (!same).then(|| Box::new(m.matching.clone())),
            importance: m.importance,
            idle_timeout: m.idle_timeout,
            hard_timeout: m.hard_timeout,
            since: ask.now,
            used_before: 0,
        };
        self.install(flow.clone());
        self.monitor_event(Event::Added, &flow, Some((ask.main, ask.xid)), out);
        self.vacancy(m.table, out);
        Ok(())
    }

    fn entry(
        &mut self,
        m: &FlowMod,
        matching: Match,
        kept: Option<Arc<[crate::change::Counts]>>,
    ) -> Arc<Entry> {
        self.next_entry += 1;
        Arc::new(Entry {
            id: self.next_entry,
            table: m.table,
            priority: m.priority,
            cookie: m.cookie,
            flags: m.flags,
            matching,
            instructions: Instruction::mark_tags(m.instructions.clone()),
            counts: kept.unwrap_or_else(|| counts(self.cores)),
        })
    }

    /// Gives flow entries new instructions; returns whether any entry was selected.
    ///
    /// # Errors
    /// When the new instructions take more memory than there is. Then nothing is changed.
    fn modify(
        &mut self,
        ask: Ask,
        m: &FlowMod,
        matching: &Match,
        strict: bool,
        out: &mut Vec<Out>,
    ) -> Result<bool, Problem> {
        let filter = FlowFilter {
            table: m.table,
            out_port: reserved::ANY,
            out_group: group::ANY,
            cookie: m.cookie,
            cookie_mask: m.cookie_mask,
            matching: matching.clone(),
        };
        let table = &self.tables[usize::from(m.table)];
        let chosen: Vec<Installed> = if strict {
            let flow = table.get(&Rule::new(m.priority, matching));
            flow.filter(|flow| flow.is_in(&filter)).cloned().into_iter().collect()
        } else {
            table.iter().filter(|flow| flow.is_in(&filter)).cloned().collect()
        };
        let found = !chosen.is_empty();
        let new = memory::of_instructions(&m.instructions);
        let grows = |flow: &Installed| {
            new.saturating_sub(memory::of_instructions(&flow.entry.instructions))
        };
        if !self.fits(chosen.iter().map(grows).sum()) {
            return Err(problem::FLOW_OUT_OF_MEMORY);
        }
        for mut flow in chosen {
            // Resetting the counters must not change the time of the last frame, from which idle
            // timeouts are counted.
            flow.used_before = flow.used();
            let old = flow.entry;
            self.next_entry += 1;
            let resets = m.flags & flags::RESET_COUNTS != 0;
            flow.entry = Arc::new(Entry {
                id: self.next_entry,
                table: old.table,
                priority: old.priority,
                cookie: old.cookie,
                flags: old.flags,
                matching: old.matching.clone(),
                instructions: Instruction::mark_tags(m.instructions.clone()),
                counts: if resets { counts(self.cores) } else { Arc::clone(&old.counts) },
            });
            self.install(flow.clone());
            self.monitor_event(Event::Modified, &flow, Some((ask.main, ask.xid)), out);
        }
        Ok(found)
    }

    fn delete(&mut self, ask: Ask, m: &FlowMod, matching: Match, out: &mut Vec<Out>) {
        let strict = m.command == FlowCommand::DeleteStrict;
        let rule = Rule::new(m.priority, &matching);
        let filter = FlowFilter {
            table: m.table,
            out_port: m.out_port,
            out_group: m.out_group,
            cookie: m.cookie,
            cookie_mask: m.cookie_mask,
            matching,
        };
        for number in 0..self.tables.len() {
            if m.table != table::ALL && number != usize::from(m.table) {
                continue;
            }
            let table = &self.tables[number];
            let gone: Vec<Rule> = if strict {
                let flow = table.get(&rule).filter(|flow| flow.is_in(&filter));
                flow.map(|_| rule.clone()).into_iter().collect()
            } else {
                table
                    .iter()
                    .filter(|flow| flow.is_in(&filter))
                    .map(|flow| Rule::of(&flow.entry))
                    .collect()
            };
            self.remove_all(number as u8, &gone, RemovedReason::Delete, ask, out);
        }
    }

    fn remove_all(
        &mut self,
        table: u8,
        gone: &[Rule],
        reason: RemovedReason,
        ask: Ask,
        out: &mut Vec<Out>,
    ) {
        for rule in gone {
            self.remove(table, rule, reason, Some((ask.main, ask.xid)), ask.now, out);
        }
    }

    /// Removes the flow entries of all tables that `wanted` selects.
    pub(super) fn drop_flows(
        &mut self,
        wanted: impl Fn(&Installed) -> bool,
        reason: RemovedReason,
        ask: Ask,
        out: &mut Vec<Out>,
    ) {
        for number in 0..self.tables.len() {
            let flows = self.tables[number].iter().filter(|flow| wanted(flow));
            let gone: Vec<Rule> = flows.map(|flow| Rule::of(&flow.entry)).collect();
            self.remove_all(number as u8, &gone, reason, ask, out);
        }
    }
}

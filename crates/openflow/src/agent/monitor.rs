//! Flow monitors (1.4.0, section 7.3.5.17): a controller is notified when flow entries are added,
//! modified and removed.

use super::table::Installed;
use super::{Agent, Ask, Out};
use crate::flow::RemovedReason;
use crate::multipart::{FlowFilter, Monitor, MonitorCommand, Reply, Update};
use crate::problem::{self, Problem};
use crate::table;
use crate::{Message, Version, translate};

/// The largest number of monitors of a controller.
const MOST: usize = 64;

/// `OFPFMF_*`.
mod wants {
    pub(super) const INITIAL: u16 = 1;
    pub(super) const ADD: u16 = 2;
    pub(super) const REMOVED: u16 = 4;
    pub(super) const MODIFY: u16 = 8;
    pub(super) const INSTRUCTIONS: u16 = 16;
    pub(super) const NO_ABBREV: u16 = 32;
    pub(super) const ONLY_OWN: u16 = 64;
}

/// What happened to a flow entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    Initial,
    Added,
    Removed(RemovedReason),
    Modified,
}

impl Event {
    const fn flag(self) -> u16 {
        match self {
            Self::Initial => wants::INITIAL,
            Self::Added => wants::ADD,
            Self::Removed(_) => wants::REMOVED,
            Self::Modified => wants::MODIFY,
        }
    }

    /// `OFPFME_*`.
    const fn number(self) -> u16 {
        match self {
            Self::Initial => 0,
            Self::Added => 1,
            Self::Removed(_) => 2,
            Self::Modified => 3,
        }
    }
}

fn watches(monitor: &Monitor, flow: &Installed) -> bool {
    let filter = FlowFilter {
        table: monitor.table,
        out_port: monitor.out_port,
        out_group: monitor.out_group,
        cookie: 0,
        cookie_mask: 0,
        matching: monitor.matching.clone(),
    };
    (monitor.table == table::ALL || monitor.table == flow.entry.table) && flow.is_in(&filter)
}

fn full(event: Event, flow: &Installed, instructions: bool) -> Update {
    let reason = match event {
        Event::Removed(reason) => reason as u8,
        _ => 0,
    };
    Update::Full {
        event: event.number(),
        table: flow.entry.table,
        reason,
        idle_timeout: flow.idle_timeout,
        hard_timeout: flow.hard_timeout,
        priority: flow.entry.priority,
        cookie: flow.entry.cookie,
        matching: flow.said().clone(),
        instructions: if instructions { flow.entry.instructions.clone() } else { Vec::new() },
    }
}

impl Agent {
    /// Adds, changes and removes monitors: all of a request, or none. Returns those that were added
    /// or changed; the reply lists the flow entries that exist.
    pub(super) fn watch(&mut self, ask: Ask, list: &[Monitor]) -> Result<Vec<Monitor>, Problem> {
        let peer = self.peers.get(&ask.main).ok_or(problem::REQUEST_EPERM)?;
        if ask.version != Version::V14 {
            return Err(problem::REQUEST_BAD_MULTIPART);
        }
        let mut monitors = peer.monitors.clone();
        for monitor in list {
            let there = monitors.contains_key(&monitor.id);
            match monitor.command {
                MonitorCommand::Add if there => return Err(problem::MONITOR_EXISTS),
                MonitorCommand::Modify | MonitorCommand::Delete if !there => {
                    return Err(problem::MONITOR_UNKNOWN);
                }
                MonitorCommand::Delete => {
                    monitors.remove(&monitor.id);
                    continue;
                }
                _ => {}
            }
            if monitor.flags >> 7 != 0 {
                return Err(problem::MONITOR_BAD_FLAGS);
            }
            if monitor.table != table::ALL && usize::from(monitor.table) >= self.tables.len() {
                return Err(problem::MONITOR_BAD_TABLE);
            }
            monitor.matching.check()?;
            let normal = Monitor { matching: monitor.matching.normal(), ..monitor.clone() };
            monitors.insert(monitor.id, normal);
            if monitors.len() > MOST {
                return Err(problem::MONITOR_INVALID);
            }
        }
        let asked = list.iter().filter(|one| one.command != MonitorCommand::Delete);
        let asked: Vec<&Monitor> = asked.filter_map(|one| monitors.get(&one.id)).collect();
        let asked: Vec<Monitor> = asked.into_iter().cloned().collect();
        if let Some(peer) = self.peers.get_mut(&ask.main) {
            peer.monitors = monitors;
        }
        Ok(asked)
    }

    /// The first event of a flow entry that exists when monitors are added.
    pub(super) fn initial(asked: &[Monitor], flow: &Installed, version: Version) -> Option<Update> {
        let mut watching =
            asked.iter().filter(|one| one.flags & wants::INITIAL != 0 && watches(one, flow));
        let first = watching.next()?;
        let more = watching.any(|one| one.flags & wants::INSTRUCTIONS != 0);
        let instructions = more || first.flags & wants::INSTRUCTIONS != 0;
        let is_expressible =
            !instructions || translate::fits(flow.said(), &flow.entry.instructions, version);
        is_expressible.then(|| full(Event::Initial, flow, instructions))
    }

    /// Notifies the monitors of a change to a flow entry. `by` is the controller that asked for it,
    /// with the xid.
    pub(super) fn monitor_event(
        &self,
        event: Event,
        flow: &Installed,
        by: Option<(u32, u32)>,
        out: &mut Vec<Out>,
    ) {
        for (&to, peer) in self.peers.iter().filter(|(_, peer)| !peer.monitors.is_empty()) {
            let own = by.filter(|(main, _)| *main == to);
            let watching = peer.monitors.values().filter(|monitor| {
                monitor.flags & event.flag() != 0
                    && (own.is_some() || monitor.flags & wants::ONLY_OWN == 0)
                    && watches(monitor, flow)
            });
            let flags = watching
                .fold(None, |flags: Option<u16>, monitor| Some(flags.unwrap_or(0) | monitor.flags));
            let Some(flags) = flags else { continue };
            let is_short = own.is_some() && flags & wants::NO_ABBREV == 0;
            let has_list = flags & wants::INSTRUCTIONS != 0 && !is_short;
            if !is_short && !self.may_tell(peer, flow, has_list) {
                continue;
            }
            let update = match own {
                Some((_, xid)) if flags & wants::NO_ABBREV == 0 => Update::Abbrev(xid),
                _ => full(event, flow, flags & wants::INSTRUCTIONS != 0),
            };
            // A monitor may get one abbreviated event instead of an event for each entry that its
            // own request changed.
            let again = out.last().is_some_and(|last: &Out| {
                last.to == to
                    && matches!(&update, Update::Abbrev(_))
                    && matches!(&last.message, Message::MultipartReply {
                        body: Reply::FlowMonitor(list), ..
                    } if list.as_slice() == std::slice::from_ref(&update))
            });
            if !again {
                let body = Reply::FlowMonitor(vec![update]);
                let message = Message::MultipartReply { more: false, body };
                out.push(Out { to, xid: 0, message, after: self.changes, counts: None });
            }
        }
    }
}

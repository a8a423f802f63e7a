//! The control side of the switch as plain calls: tables, groups, meters, ports, controllers. No
//! I/O, no clock.
//!
//! ```text
//!   handle(from, xid, message, now) ──> replies, each with the change that must be in force first
//!   punt(frame, now)                ──> packet-in for each controller that wants the frame
//!   port_add, port_change, ..       ──> port-status
//!   expire(now)                     ──> flow-removed for each flow entry that has timed out
//!   drain()                         ──> changes for the data plane, in order
//! ```
//!
//! Each change that affects frames increases [`Agent::changes`] and is returned by
//! [`Agent::drain`]. A reply carries the number of the last change before it. The caller that runs
//! the data plane sends the reply when that change is in force. A barrier reply is therefore sent
//! only after the changes before it are in force.
//!
//! Invariants: there is at most one master. A message that is refused changes nothing, with two
//! exceptions: a flow-mod with an unknown buffer adds the flow entry, and a set-config with
//! unsupported flags sets `miss_send_len`; the error is sent as well.
//! All changes of one call are in one [`Agent::drain`].
//! Thread-safety: plain data with one owner. The data plane writes the counts in entries.

mod bundles;
mod chains;
mod check;
mod flowmod;
mod flows;
mod groups;
mod memory;
mod meter;
mod monitor;
mod own;
mod peers;
mod pieces;
pub mod ports;
mod punts;
mod report;
mod settings;
mod table;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use flows::{Fields, Flow, Flows};
pub use memory::{Memory, weight};
pub use meter::Meter;
pub use own::Standalone;
pub use punts::Rate;

use crate::change::{Change, Counts, Entry, Lookups};
use crate::flow::{FlowRemoved, RemovedReason, flags};
use crate::message::Features;
use crate::multipart::Desc;
use crate::problem::{self, Problem};
use crate::{Message, Version, encode};
use groups::{GroupState, MeterState};
use peers::Peer;
use ports::Ports;
use punts::Punts;
use table::{Installed, Rule, Table};

/// The capacity of the switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The number of tables, at most 255.
    pub tables: u8,
    /// Flow entries in each table.
    pub flows: usize,
    /// Groups.
    pub groups: usize,
    /// Meters.
    pub meters: usize,
}

/// The flow entries that one call of [`Agent::expire`] removes.
pub const OVER: usize = 8192;

/// A message to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Out {
    /// The connection that gets it.
    pub to: u32,
    /// The xid of the request, or 0.
    pub xid: u32,
    /// The message.
    pub message: Message,
    /// The change that must be in force before the message is sent.
    pub after: u64,
    /// The counters of the removed flow entry, if the message reports them: see [`Out::refresh`].
    pub counts: Option<Late>,
}

/// The counters of a removed flow entry, which are complete when its removal is in force.
#[derive(Clone, Debug)]
pub struct Late(Arc<Entry>);

impl PartialEq for Late {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Late {}

impl Out {
    /// Brings the counters of a flow-removed message up to date. Called when its change is in force: until then, frames
    /// have matched the entry. Returns whether the message has changed.
    pub fn refresh(&mut self) -> bool {
        let (Some(Late(entry)), Message::FlowRemoved(message)) = (&self.counts, &mut self.message)
        else {
            return false;
        };
        let (packets, bytes) = table::reported(entry);
        let is_new = (message.packets, message.bytes) != (packets, bytes);
        (message.packets, message.bytes) = (packets, bytes);
        is_new
    }
}

/// The controller that sent a request, and the time of the request.
#[derive(Clone, Copy, Debug)]
struct Ask {
    /// The connection that sent the request. It gets the reply.
    from: u32,
    /// The controller's main connection.
    main: u32,
    xid: u32,
    version: Version,
    now: u64,
}

/// The state to restore when a bundle fails.
#[derive(Debug)]
enum Undo {
    Flow(u8, Rule, Option<Box<Installed>>),
    Group(u32, Option<GroupState>),
    Meter(u32, Option<MeterState>),
    Port(u32, Arc<crate::port::Port>),
}

/// The control side of the switch.
#[derive(Debug)]
pub struct Agent {
    datapath: u64,
    limits: Limits,
    memory: Memory,
    cores: usize,
    desc: Desc,
    /// Connections, by the number that the owner chose.
    peers: BTreeMap<u32, Peer>,
    generation: Option<u64>,
    changes: u64,
    pending: Vec<(u64, Change)>,
    next_entry: u64,
    /// By number.
    tables: Vec<Table>,
    groups: chains::Groups,
    chains: chains::Chains,
    meters: BTreeMap<u32, MeterState>,
    /// The weight of all meters: see [`memory`].
    meter_bytes: usize,
    ports: Ports,
    punts: Punts,
    /// The switch's own flow entries.
    own: own::Own,
    /// The latest time that the owner has stated.
    now: u64,
    /// The state to restore if the bundle fails; present while a bundle is committed.
    undo: Option<Vec<Undo>>,
}

/// The counts of an entry, one for each core.
fn counts(of: usize) -> Arc<[Counts]> {
    (0..of).map(|_| Counts::default()).collect()
}

/// The sum of the counts of several cores: packets, bytes, and the time of the last frame.
fn sum(counts: &[Counts]) -> (u64, u64, u64) {
    counts.iter().map(Counts::read).fold((0, 0, 0), |(packets, bytes, used), more| {
        (packets.wrapping_add(more.0), bytes.wrapping_add(more.1), used.max(more.2))
    })
}

impl Agent {
    /// A switch with empty tables, whose data plane runs on `cores` cores.
    #[must_use]
    pub fn new(datapath: u64, limits: Limits, cores: usize) -> Self {
        let cores = cores.max(1);
        let text = |text: &str| crate::port::Text::from(text);
        let desc = Desc {
            manufacturer: text("flowyard"),
            hardware: crate::port::Text::from("flowyard"),
            software: crate::port::Text::from(env!("CARGO_PKG_VERSION")),
            serial: crate::port::Text::from(format!("{datapath:016x}").as_str()),
            datapath: crate::port::Text::from(format!("{datapath:016x}").as_str()),
        };
        Self {
            datapath,
            limits,
            memory: Memory::default(),
            cores,
            desc,
            peers: BTreeMap::new(),
            generation: None,
            changes: 0,
            pending: Vec::new(),
            next_entry: 0,
            tables: (0..limits.tables).map(|_| Table::new(counts(cores))).collect(),
            groups: chains::Groups::new(),
            chains: chains::Chains::default(),
            meters: BTreeMap::new(),
            meter_bytes: 0,
            ports: Ports::default(),
            punts: Punts::default(),
            own: own::Own::default(),
            now: 0,
            undo: None,
        }
    }

    /// Sets the description that the switch reports to controllers.
    pub fn describe(&mut self, desc: Desc) {
        self.desc = desc;
    }

    /// Sets how many bytes controllers can make the switch store.
    pub const fn limit_memory(&mut self, memory: Memory) {
        self.memory = memory;
    }

    /// What the tables take, in bytes.
    #[must_use]
    pub fn stored(&self) -> usize {
        let tables: usize = self.tables.iter().map(Table::bytes).sum();
        tables + self.chains.bytes() + self.meter_bytes
    }

    /// Whether the tables may take this many bytes more.
    fn fits(&self, more: usize) -> bool {
        more == 0 || self.stored() + more <= self.memory.tables
    }

    /// The number of the last change that affects frames.
    #[must_use]
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// The changes since the last call, in order, each with its number. All changes of one call of
    /// [`Self::handle`] are returned together: a data plane that applies them between two frames
    /// never shows a part of a bundle.
    pub fn drain(&mut self) -> Vec<(u64, Change)> {
        self.peers.values_mut().for_each(Peer::notices_taken);
        std::mem::take(&mut self.pending)
    }

    /// The counters, by table, in which the data plane counts lookups.
    #[must_use]
    pub fn lookups(&self) -> Vec<Lookups> {
        self.tables.iter().map(|table| table.lookups.clone()).collect()
    }

    /// The flow entry of a table that answers a frame with these fields, found by a linear search.
    /// For tests.
    #[must_use]
    pub fn lookup(&self, table: u8, fields: &Fields) -> Option<&Arc<Entry>> {
        let mut flows = self.tables.get(usize::from(table))?.iter();
        flows.find(|flow| flows::matches(&flow.entry.matching, fields)).map(|flow| &flow.entry)
    }

    /// The number of flow entries.
    #[must_use]
    pub fn flows(&self) -> usize {
        self.tables.iter().map(Table::len).sum()
    }

    /// Removes flow entries that have timed out, at most [`OVER`] at a time; the others are removed
    /// by the next calls. Also discards multipart requests that were not completed in time.
    pub fn expire(&mut self, now: u64, out: &mut Vec<Out>) {
        self.now = now;
        let mut most = OVER;
        for number in 0..self.tables.len() {
            for (rule, reason) in self.tables[number].over(now, most) {
                most -= 1;
                self.remove(number as u8, &rule, reason, None, now, out);
            }
        }
        self.forget_parts(now, out);
    }

    /// Handles a message of a controller.
    pub fn handle(&mut self, from: u32, xid: u32, message: &Message, now: u64, out: &mut Vec<Out>) {
        let Some(peer) = self.peers.get(&from) else { return };
        let (main, version) = (peer.main.unwrap_or(from), peer.version);
        self.now = now;
        let ask = Ask { from, main, xid, version, now };
        let reply = match self.answer(ask, message, out) {
            Ok(None) => return,
            Ok(Some(reply)) => reply,
            Err(problem) => Message::error(problem, version, &wire(message, version, xid)),
        };
        out.push(Out { to: from, xid, message: reply, after: self.changes, counts: None });
    }

    /// Carries out a request of the owner of the switch: a flow-mod, a group-mod, or another
    /// message that changes the switch. Controllers are notified of the results as usual.
    ///
    /// # Errors
    /// When the message is refused. Then nothing is changed.
    pub fn preset(
        &mut self,
        message: &Message,
        now: u64,
        out: &mut Vec<Out>,
    ) -> Result<(), Problem> {
        let nobody = u32::MAX;
        let ask = Ask { from: nobody, main: nobody, xid: 0, version: Version::V14, now };
        self.write(ask, message, out)
    }

    fn answer(
        &mut self,
        ask: Ask,
        message: &Message,
        out: &mut Vec<Out>,
    ) -> Result<Option<Message>, Problem> {
        let reply = match message {
            Message::Hello(_) | Message::Error(_) | Message::EchoReply(_) => return Ok(None),
            Message::EchoRequest(data) => Message::EchoReply(data.clone()),
            Message::FeaturesRequest => Message::FeaturesReply(self.features(ask)),
            Message::GetConfigRequest => Message::GetConfigReply(self.config(ask.main)),
            Message::SetConfig(config) => return self.set_config(ask.main, *config).map(|()| None),
            Message::BarrierRequest => Message::BarrierReply,
            Message::RoleRequest(request) => self.role(ask, request, out)?,
            Message::GetAsyncRequest => self.get_async(ask)?,
            Message::SetAsync(masks) => return self.set_async(ask, masks).map(|()| None),
            Message::QueueConfigRequest { port } => self.queues(ask, *port)?,
            Message::MultipartRequest { more, body } => {
                return self.multipart(ask, *more, body, out);
            }
            Message::Bundle(bundle) => self.bundle(ask, bundle, out)?,
            Message::BundleAdd(add) => return self.bundle_add(ask, add, out).map(|()| None),
            Message::Experimenter { .. } => return Err(problem::REQUEST_BAD_EXPERIMENTER),
            _ => {
                self.writes(ask)?;
                self.write(ask, message, out)?;
                self.forward(ask, message, out);
                return Ok(None);
            }
        };
        Ok(Some(reply))
    }

    /// Carries out a message that changes the switch. These are the messages that a bundle may
    /// contain.
    fn write(&mut self, ask: Ask, message: &Message, out: &mut Vec<Out>) -> Result<(), Problem> {
        match message {
            Message::FlowMod(m) => self.flow_mod(ask, m, out),
            Message::GroupMod(m) => self.group_mod(ask, m, out),
            Message::MeterMod(m) => self.meter_mod(ask, m, out),
            Message::PortMod(m) => self.port_mod(ask, m, out),
            Message::PacketOut(m) => self.packet_out(ask, m),
            Message::TableMod(m) => self.table_mod(ask, m, out),
            _ => Err(problem::REQUEST_BAD_TYPE),
        }
    }

    fn features(&self, ask: Ask) -> Features {
        let old = ask.version == Version::V10;
        Features {
            datapath: self.datapath,
            buffers: punts::BUFFERS as u32,
            tables: self.tables.len() as u8,
            auxiliary: self.peers.get(&ask.from).map_or(0, |peer| peer.auxiliary),
            // Flow, table, port and group statistics. 1.0 has no groups; there the bit means that
            // ARP addresses can be matched.
            capabilities: if old { 0x87 } else { 0xf },
            actions: if old { 0xfff } else { 0 },
            ports: if old { self.ports.list(Version::V10) } else { Vec::new() },
        }
    }

    /// Appends a change.
    fn emit(&mut self, change: Change) {
        self.changes += 1;
        self.pending.push((self.changes, change));
    }

    /// Adds a flow entry, or replaces the one with the same priority and match.
    fn install(&mut self, flow: Installed) -> Option<Installed> {
        let entry = Arc::clone(&flow.entry);
        let rule = Rule::of(&entry);
        let old = self.tables[usize::from(entry.table)].put(rule.clone(), flow);
        if let Some(undo) = &mut self.undo {
            undo.push(Undo::Flow(entry.table, rule, old.clone().map(Box::new)));
        }
        self.emit(Change::Flow(entry));
        old
    }

    /// Removes a flow entry and notifies controllers. `by` is the controller that asked for it,
    /// with the xid.
    fn remove(
        &mut self,
        table: u8,
        rule: &Rule,
        reason: RemovedReason,
        by: Option<(u32, u32)>,
        now: u64,
        out: &mut Vec<Out>,
    ) {
        let Some(flow) = self.tables[usize::from(table)].take(rule) else { return };
        if let Some(undo) = &mut self.undo {
            undo.push(Undo::Flow(table, rule.clone(), Some(Box::new(flow.clone()))));
        }
        self.emit(Change::FlowGone(Arc::clone(&flow.entry)));
        self.tell_removed(&flow, reason, now, out);
        self.monitor_event(monitor::Event::Removed(reason), &flow, by, out);
        self.vacancy(table, out);
    }

    /// Removes a flow entry without a flow-removed message.
    fn discard(&mut self, table: u8, rule: &Rule, by: Option<(u32, u32)>, out: &mut Vec<Out>) {
        let Some(flow) = self.tables[usize::from(table)].take(rule) else { return };
        self.emit(Change::FlowGone(Arc::clone(&flow.entry)));
        self.monitor_event(monitor::Event::Removed(RemovedReason::Delete), &flow, by, out);
    }

    fn tell_removed(&self, flow: &Installed, reason: RemovedReason, now: u64, out: &mut Vec<Out>) {
        if flow.entry.flags & flags::SEND_FLOW_REM == 0 {
            return;
        }
        let (duration_sec, duration_nsec) = flow.age(now);
        let (packets, bytes) = flow.reported();
        let message = FlowRemoved {
            cookie: flow.entry.cookie,
            priority: flow.entry.priority,
            reason,
            table: flow.entry.table,
            duration_sec,
            duration_nsec,
            idle_timeout: flow.idle_timeout,
            hard_timeout: flow.hard_timeout,
            packets,
            bytes,
            matching: flow.said().clone(),
        };
        for (&to, peer) in &self.peers {
            let reason = match (peer.version, reason) {
                (Version::V10, RemovedReason::GroupDelete)
                | (Version::V10 | Version::V13, RemovedReason::MeterDelete)
                | (Version::V10 | Version::V13, RemovedReason::Eviction) => RemovedReason::Delete,
                (_, reason) => reason,
            };
            if peer.wants(peers::FLOW_REMOVED, reason as u32) && self.may_tell(peer, flow, false) {
                let message = Message::FlowRemoved(FlowRemoved { reason, ..message.clone() });
                out.push(Out {
                    to,
                    xid: 0,
                    message,
                    after: self.changes,
                    counts: Some(Late(Arc::clone(&flow.entry))),
                });
            }
        }
    }
}

/// The bytes of a message. They are encoded again from the decoded message; if that fails, the
/// error message has no data.
fn wire(message: &Message, version: Version, xid: u32) -> Vec<u8> {
    let mut request = Vec::new();
    let _ = encode(message, version, xid, &mut request);
    request
}

#[cfg(test)]
mod tests;

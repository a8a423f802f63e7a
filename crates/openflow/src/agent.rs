//! The switch as plain calls: tables, groups, meters and roles; no I/O, no clock.
//!
//! ```text
//!   handle(from, xid, message, now) ──> replies, each with the change that must be live before it
//!   expire(now)                     ──> flow-removed of flows whose time is over
//!   lookup(table, fields, ..)       ──> the flow that answers
//! ```
//!
//! Each change to what frames meet raises [`Agent::changes`]. A reply carries the number of the last
//! change before it: who runs the data plane sends the reply when that change is in force. So a
//! barrier is true, and it is data.
//!
//! Invariants: at most one master; a message that is refused changes nothing.
//! Thread-safety: plain data, one owner.

mod flows;
mod meter;

use std::collections::BTreeMap;

pub use flows::{Fields, Flow, Flows};
pub use meter::Meter;

use crate::act::{Action, Instruction};
use crate::flow::{FlowCommand, FlowMod, RemovedReason, flags};
use crate::group::{self, GroupCommand, GroupMod, GroupType, MeterCommand, MeterMod, meter_flags};
use crate::message::{Config, Features, Role, RoleMessage};
use crate::multipart::{FlowFilter, GroupDesc, MeterConfig, Reply, Request};
use crate::problem::{self, Problem};
use crate::table::{self, TableStats};
use crate::{Message, Version, encode};

/// How much there may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Tables, up to 255.
    pub tables: u8,
    /// Flows in each.
    pub flows: usize,
    /// Groups.
    pub groups: usize,
    /// Meters.
    pub meters: usize,
}

/// A message to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Out {
    /// To which controller.
    pub to: u32,
    /// The request's, or 0.
    pub xid: u32,
    /// What.
    pub message: Message,
    /// The change that must be in force first.
    pub after: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Controller {
    version: Version,
    role: Role,
}

/// The switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Agent {
    datapath: u64,
    limits: Limits,
    config: Config,
    controllers: BTreeMap<u32, Controller>,
    generation: Option<u64>,
    changes: u64,
    /// By number.
    tables: Vec<Flows>,
    groups: BTreeMap<u32, GroupDesc>,
    meters: BTreeMap<u32, Meter>,
}

impl Agent {
    /// A switch with empty tables.
    #[must_use]
    pub fn new(datapath: u64, limits: Limits) -> Self {
        let tables = vec![Flows::default(); limits.tables.min(254).into()];
        Self {
            datapath,
            limits,
            config: Config { flags: 0, miss_send_len: 128 },
            controllers: BTreeMap::new(),
            generation: None,
            changes: 0,
            tables,
            groups: BTreeMap::new(),
            meters: BTreeMap::new(),
        }
    }

    /// How often what frames meet has changed.
    #[must_use]
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// A controller has agreed on a version.
    pub fn connect(&mut self, controller: u32, version: Version) {
        self.controllers.insert(controller, Controller { version, role: Role::Equal });
    }

    /// A controller is gone.
    pub fn disconnect(&mut self, controller: u32) {
        self.controllers.remove(&controller);
    }

    /// The flow of a table that answers a frame with these fields; it is counted.
    pub fn lookup(&mut self, table: u8, fields: &Fields, bytes: u64, now: u64) -> Option<&Flow> {
        self.tables.get_mut(usize::from(table))?.lookup(fields, bytes, now)
    }

    /// A meter, to apply it.
    pub fn meter(&mut self, number: u32) -> Option<&mut Meter> {
        self.meters.get_mut(&number)
    }

    /// Removes the flows whose time is over.
    pub fn expire(&mut self, now: u64, out: &mut Vec<Out>) {
        for table in 0..self.tables.len() {
            for (flow, reason) in self.tables[table].expire(now) {
                self.changes += 1;
                self.gone(&flow, table as u8, reason, now, out);
            }
        }
    }

    /// Does what a message asks.
    pub fn handle(&mut self, from: u32, xid: u32, message: &Message, now: u64, out: &mut Vec<Out>) {
        let Some(controller) = self.controllers.get(&from).copied() else { return };
        let done = self.answer(from, controller, message, now, out);
        let reply = match done {
            Ok(None) => return,
            Ok(Some(reply)) => reply,
            Err(problem) => {
                let mut request = Vec::new();
                // What was read can be written; else the error goes without it.
                let _ = encode(message, controller.version, xid, &mut request);
                Message::error(problem, controller.version, &request)
            }
        };
        out.push(Out { to: from, xid, message: reply, after: self.changes });
    }

    fn answer(
        &mut self,
        from: u32,
        controller: Controller,
        message: &Message,
        now: u64,
        out: &mut Vec<Out>,
    ) -> Result<Option<Message>, Problem> {
        // What a slave may not do (1.3.5, section 6.3.4).
        let writes = matches!(
            message,
            Message::PacketOut(_)
                | Message::FlowMod(_)
                | Message::GroupMod(_)
                | Message::PortMod(_)
                | Message::TableMod(_)
                | Message::MeterMod(_)
        );
        if writes && controller.role == Role::Slave {
            return Err(problem::REQUEST_IS_SLAVE);
        }
        Ok(Some(match message {
            Message::Hello(_) | Message::Error(_) | Message::EchoReply(_) => return Ok(None),
            Message::EchoRequest(data) => Message::EchoReply(data.clone()),
            Message::FeaturesRequest => Message::FeaturesReply(Features {
                datapath: self.datapath,
                tables: self.tables.len() as u8,
                // Flow, table and group statistics.
                capabilities: if controller.version == Version::V10 { 3 } else { 0xb },
                actions: 0xfff,
                ..Features::default()
            }),
            Message::GetConfigRequest => Message::GetConfigReply(self.config),
            Message::SetConfig(config) => {
                self.config = *config;
                return Ok(None);
            }
            Message::BarrierRequest => Message::BarrierReply,
            Message::RoleRequest(request) => self.role(from, request)?,
            Message::FlowMod(m) => {
                self.flow_mod(m, controller.version, now, out)?;
                return Ok(None);
            }
            Message::GroupMod(m) => {
                self.group_mod(m, now, out)?;
                return Ok(None);
            }
            Message::MeterMod(m) => {
                self.meter_mod(m, now, out)?;
                return Ok(None);
            }
            Message::MultipartRequest { body, .. } => {
                Message::MultipartReply { more: false, body: self.report(body, now)? }
            }
            Message::Experimenter { .. } => return Err(problem::REQUEST_BAD_EXPERIMENTER),
            _ => return Err(problem::REQUEST_BAD_TYPE),
        }))
    }

    /// 1.3.5, section 6.3.5: a generation id that is older than the last is stale.
    fn role(&mut self, from: u32, request: &RoleMessage) -> Result<Message, Problem> {
        if matches!(request.role, Role::Master | Role::Slave) {
            let stale = |last: u64| (request.generation.wrapping_sub(last) as i64) < 0;
            if self.generation.is_some_and(stale) {
                return Err(problem::ROLE_STALE);
            }
            self.generation = Some(request.generation);
        }
        if request.role == Role::Master {
            for other in self.controllers.values_mut().filter(|one| one.role == Role::Master) {
                other.role = Role::Slave;
            }
        }
        let own = self.controllers.get_mut(&from).ok_or(problem::REQUEST_EPERM)?;
        if request.role != Role::NoChange {
            own.role = request.role;
        }
        let generation = self.generation.unwrap_or(u64::MAX);
        Ok(Message::RoleReply(RoleMessage { role: own.role, generation, ..Default::default() }))
    }

    fn flow_mod(
        &mut self,
        m: &FlowMod,
        version: Version,
        now: u64,
        out: &mut Vec<Out>,
    ) -> Result<(), Problem> {
        m.matching.check()?;
        let deletes = matches!(m.command, FlowCommand::Delete | FlowCommand::DeleteStrict);
        if !deletes {
            self.check(m)?;
        }
        let all = m.table == table::ALL && deletes;
        if !all && usize::from(m.table) >= self.tables.len() {
            return Err(problem::FLOW_BAD_TABLE);
        }
        for number in 0..self.tables.len() {
            if !all && number != usize::from(m.table) {
                continue;
            }
            let table = &mut self.tables[number];
            let gone = table.change(m, self.limits.flows, version == Version::V10, now)?;
            self.changes += 1;
            for flow in gone {
                self.gone(&flow, number as u8, RemovedReason::Delete, now, out);
            }
        }
        Ok(())
    }

    /// Whether a flow's instructions can be carried out.
    fn check(&self, m: &FlowMod) -> Result<(), Problem> {
        for (at, instruction) in m.instructions.iter().enumerate() {
            let number = instruction.number();
            if m.instructions[..at].iter().any(|other| other.number() == number) {
                return Err(problem::INSTRUCTION_DUPLICATE);
            }
            match instruction {
                Instruction::GotoTable(to)
                    if *to <= m.table || usize::from(*to) >= self.tables.len() =>
                {
                    return Err(problem::INSTRUCTION_BAD_TABLE);
                }
                Instruction::Meter(meter) if !self.meters.contains_key(meter) => {
                    return Err(problem::METER_UNKNOWN);
                }
                Instruction::ApplyActions(list) | Instruction::WriteActions(list) => {
                    list.iter().try_for_each(|action| self.check_action(action))?;
                }
                Instruction::Experimenter { .. } => {
                    return Err(problem::INSTRUCTION_BAD_EXPERIMENTER);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn check_action(&self, action: &Action) -> Result<(), Problem> {
        match action {
            Action::Output { port: 0, .. } => Err(problem::ACTION_BAD_OUT_PORT),
            Action::Group(group) if !self.groups.contains_key(group) => {
                Err(problem::ACTION_BAD_OUT_GROUP)
            }
            Action::PushVlan(to) if !matches!(to, 0x8100 | 0x88a8) => {
                Err(problem::ACTION_BAD_ARGUMENT)
            }
            Action::PushMpls(to) if !matches!(to, 0x8847 | 0x8848) => {
                Err(problem::ACTION_BAD_ARGUMENT)
            }
            Action::PushPbb(to) if *to != 0x88e7 => Err(problem::ACTION_BAD_ARGUMENT),
            Action::Experimenter { .. } => Err(problem::ACTION_BAD_EXPERIMENTER),
            _ => Ok(()),
        }
    }

    fn gone(&self, flow: &Flow, table: u8, reason: RemovedReason, now: u64, out: &mut Vec<Out>) {
        if flow.flags & flags::SEND_FLOW_REM == 0 {
            return;
        }
        let message = Message::FlowRemoved(flow.removed(table, reason, now));
        let wants = self.controllers.iter().filter(|(_, one)| one.role != Role::Slave);
        for (to, _) in wants {
            out.push(Out { to: *to, xid: 0, message: message.clone(), after: self.changes });
        }
    }

    /// Removes the flows that `wanted` says, and tells.
    fn drop_flows(
        &mut self,
        wanted: impl Fn(&Flow) -> bool,
        reason: RemovedReason,
        now: u64,
        out: &mut Vec<Out>,
    ) {
        for table in 0..self.tables.len() {
            for flow in self.tables[table].take(&wanted) {
                self.gone(&flow, table as u8, reason, now, out);
            }
        }
    }

    /// 1.3.5, section 6.5.
    fn group_mod(&mut self, m: &GroupMod, now: u64, out: &mut Vec<Out>) -> Result<(), Problem> {
        let there = self.groups.contains_key(&m.group);
        if m.command == GroupCommand::Delete {
            let all = m.group == group::ALL;
            let chain = Action::Group(m.group);
            let mut others = self.groups.values().filter(|desc| desc.group != m.group);
            let chained = others
                .any(|desc| desc.buckets.iter().any(|bucket| bucket.actions.contains(&chain)));
            if there && chained {
                return Err(problem::GROUP_CHAINED);
            }
            self.groups.retain(|number, _| !all && *number != m.group);
            let leads = |action: &Action| match action {
                Action::Group(number) => all || *number == m.group,
                _ => false,
            };
            self.drop_flows(|flow| flow.actions().any(leads), RemovedReason::GroupDelete, now, out);
            self.changes += 1;
            return Ok(());
        }
        if m.group > group::MAX || m.kind == GroupType::Indirect && m.buckets.len() != 1 {
            return Err(problem::GROUP_INVALID);
        }
        for bucket in &m.buckets {
            for action in &bucket.actions {
                match action {
                    Action::Group(to) if *to == m.group => return Err(problem::GROUP_LOOP),
                    Action::Group(to) if self.reaches(*to, m.group, 0) => {
                        return Err(problem::GROUP_LOOP);
                    }
                    _ => self.check_action(action)?,
                }
            }
        }
        match m.command {
            GroupCommand::Add if there => return Err(problem::GROUP_EXISTS),
            GroupCommand::Modify if !there => return Err(problem::GROUP_UNKNOWN),
            GroupCommand::Add if self.groups.len() >= self.limits.groups => {
                return Err(problem::GROUP_OUT_OF_GROUPS);
            }
            _ => {}
        }
        let desc = GroupDesc { kind: m.kind, group: m.group, buckets: m.buckets.clone() };
        self.groups.insert(m.group, desc);
        self.changes += 1;
        Ok(())
    }

    /// Whether one group leads to another; chains are at most 32 long.
    fn reaches(&self, from: u32, to: u32, depth: u8) -> bool {
        let Some(desc) = self.groups.get(&from).filter(|_| depth < 32) else {
            return depth >= 32;
        };
        let actions = desc.buckets.iter().flat_map(|bucket| &bucket.actions);
        actions.into_iter().any(|action| match action {
            Action::Group(next) => *next == to || self.reaches(*next, to, depth + 1),
            _ => false,
        })
    }

    /// 1.3.5, section 6.6.
    fn meter_mod(&mut self, m: &MeterMod, now: u64, out: &mut Vec<Out>) -> Result<(), Problem> {
        let there = self.meters.contains_key(&m.meter);
        if m.command == MeterCommand::Delete {
            let all = m.meter == group::METER_ALL;
            self.meters.retain(|number, _| !all && *number != m.meter);
            let metered = |flow: &Flow| {
                flow.instructions.iter().any(|one| match one {
                    Instruction::Meter(number) => all || *number == m.meter,
                    _ => false,
                })
            };
            self.drop_flows(metered, RemovedReason::MeterDelete, now, out);
            self.changes += 1;
            return Ok(());
        }
        let reserved = m.meter > group::METER_MAX && m.meter != group::METER_CONTROLLER;
        if m.meter == 0 || reserved {
            return Err(problem::METER_INVALID);
        }
        let both = meter_flags::KBPS | meter_flags::PKTPS;
        if m.flags & both == both {
            return Err(problem::METER_BAD_FLAGS);
        }
        if m.bands.iter().any(|band| matches!(band, group::Band::Experimenter { .. })) {
            return Err(problem::METER_BAD_BAND);
        }
        match m.command {
            MeterCommand::Add if there => return Err(problem::METER_EXISTS),
            MeterCommand::Modify if !there => return Err(problem::METER_UNKNOWN),
            MeterCommand::Add if self.meters.len() >= self.limits.meters => {
                return Err(problem::METER_OUT_OF_METERS);
            }
            _ => {}
        }
        let config = MeterConfig { flags: m.flags, meter: m.meter, bands: m.bands.clone() };
        self.meters.insert(m.meter, Meter::new(config, now));
        self.changes += 1;
        Ok(())
    }

    /// The flows that a request is about, with their tables.
    fn chosen(&self, filter: &FlowFilter) -> Result<Vec<(u8, &Flow)>, Problem> {
        filter.matching.check()?;
        if filter.table != table::ALL && usize::from(filter.table) >= self.tables.len() {
            return Err(problem::REQUEST_BAD_TABLE);
        }
        let tables = (0..).zip(&self.tables);
        let tables = tables.filter(|(at, _)| filter.table == table::ALL || filter.table == *at);
        let flows = tables.flat_map(|(at, table)| table.list.iter().map(move |flow| (at, flow)));
        Ok(flows.filter(|(_, flow)| flow.is_in(filter)).collect())
    }

    fn report(&self, request: &Request, now: u64) -> Result<Reply, Problem> {
        Ok(match request {
            Request::Flow(filter) => {
                let flows = self.chosen(filter)?;
                Reply::Flow(flows.into_iter().map(|(at, flow)| flow.stats(at, now)).collect())
            }
            Request::Aggregate(filter) => {
                let flows = self.chosen(filter)?;
                let sum = |of: fn(&Flow) -> u64| {
                    flows.iter().fold(0_u64, |sum, (_, flow)| sum.wrapping_add(of(flow)))
                };
                Reply::Aggregate {
                    packets: sum(|flow| flow.packets),
                    bytes: sum(|flow| flow.bytes),
                    flows: flows.len() as u32,
                }
            }
            Request::Table => {
                let stats = |(table, flows): (u8, &Flows)| TableStats {
                    table,
                    max_entries: self.limits.flows as u32,
                    active: flows.list.len() as u32,
                    looked_up: flows.looked_up,
                    matched: flows.matched,
                    ..TableStats::default()
                };
                Reply::Table((0..).zip(&self.tables).map(stats).collect())
            }
            Request::GroupDesc => Reply::GroupDesc(self.groups.values().cloned().collect()),
            Request::MeterConfig(number) => {
                let wanted = self.meters.values().map(|meter| &meter.config);
                let all = *number == group::METER_ALL;
                if !all && !self.meters.contains_key(number) {
                    return Err(problem::METER_UNKNOWN);
                }
                let wanted = wanted.filter(|config| all || config.meter == *number);
                Reply::MeterConfig(wanted.cloned().collect())
            }
            _ => return Err(problem::REQUEST_BAD_MULTIPART),
        })
    }
}

#[cfg(test)]
mod tests;

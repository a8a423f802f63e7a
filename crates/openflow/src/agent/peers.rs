//! Controllers: versions, roles, and which messages they receive (1.3.5, sections 6.3.4 to 6.3.6
//! and 7.3.10).
//!
//! A controller has one main connection and any number of auxiliary ones. Replies are sent on the
//! connection of the request. Role, configuration and monitors belong to the main connection. Each
//! connection has bundles of its own.

use std::cell::Cell;
use std::collections::BTreeMap;

use super::bundles::Held;
use super::pieces::Pieces;
use super::table::Installed;
use super::{Agent, Ask, Out, memory, wire};
use crate::act::{Action, Instruction};
use crate::message::{Async, Config, Role, RoleMessage};
use crate::multipart::{Monitor, Request};
use crate::problem::{self, Problem};
use crate::{Message, Version};

/// Properties of the asynchronous configuration, with the numbers for slaves; those for master and
/// equal are one higher.
pub(super) const PACKET_IN: usize = 0;
pub(super) const PORT_STATUS: usize = 2;
pub(super) const FLOW_REMOVED: usize = 4;
pub(super) const ROLE_STATUS: usize = 6;
pub(super) const TABLE_STATUS: usize = 8;
const FORWARD: usize = 10;

/// The mask of all reasons, by property.
const REASONS: [u32; 12] = [0x3f, 0x3f, 7, 7, 0x3f, 0x3f, 7, 7, 0x18, 0x18, 3, 3];

/// The default configuration. A master or equal controller receives everything but invalid TTLs and
/// the requests of other controllers; a slave receives only port status and role status.
const DEFAULT: [u32; 12] = [0, 0x3b, 7, 7, 0, 0x3f, 7, 7, 0, 0x18, 0, 0];

/// A multipart request of which more messages are to come.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) xid: u32,
    /// The time of its last message.
    pub(super) since: u64,
    pub(super) body: Request,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) version: Version,
    /// For an auxiliary connection, the main one.
    pub(super) main: Option<u32>,
    /// The auxiliary ID of OpenFlow; 0 is the main connection.
    pub(super) auxiliary: u8,
    pub(super) role: Role,
    pub(super) config: Config,
    pub(super) masks: [u32; 12],
    pub(super) monitors: BTreeMap<u32, Monitor>,
    pub(super) bundles: BTreeMap<u32, Held>,
    /// Multipart requests of which more messages are to come.
    pub(super) parts: Vec<Part>,
    /// A reply of which more pieces are to come.
    pub(super) pieces: Option<Pieces>,
    /// The weight of the notices since the owner last took messages.
    notices: Cell<usize>,
    /// Whether notices were lost.
    has_lost: Cell<bool>,
}

impl Peer {
    fn new(version: Version, main: Option<u32>, auxiliary: u8) -> Self {
        Self {
            version,
            main,
            auxiliary,
            role: Role::Equal,
            config: Config { flags: 0, miss_send_len: 128 },
            masks: DEFAULT,
            monitors: BTreeMap::new(),
            bundles: BTreeMap::new(),
            parts: Vec::new(),
            pieces: None,
            notices: Cell::new(0),
            has_lost: Cell::new(false),
        }
    }

    /// The owner has taken the messages.
    pub(super) fn notices_taken(&mut self) {
        self.notices.set(0);
    }

    /// The weight of the notices, and whether some were lost.
    pub(super) fn notices(&self) -> (usize, bool) {
        (self.notices.get(), self.has_lost.get())
    }

    /// Goes back to what [`Peer::notices`] returned: the notices since then are not sent.
    pub(super) fn restore_notices(&self, (notices, has_lost): (usize, bool)) {
        self.notices.set(notices);
        self.has_lost.set(has_lost);
    }

    /// Whether the controller wants a message of this kind for this reason.
    pub(super) fn wants(&self, kind: usize, reason: u32) -> bool {
        let mask = self.masks[kind + usize::from(self.role != Role::Slave)];
        self.main.is_none() && reason < 32 && mask & 1 << reason != 0
    }
}

impl Agent {
    /// A controller has agreed on a version. The owner chooses the numbers of connections.
    pub fn connect(&mut self, connection: u32, version: Version) {
        self.peers.insert(connection, Peer::new(version, None, 0));
        self.refresh_miss();
    }

    /// Adds an auxiliary connection with the ID `auxiliary` (not 0) of the controller whose main
    /// connection is `main`. If `main` is not connected, the connection becomes a controller of its
    /// own.
    pub fn connect_auxiliary(
        &mut self,
        connection: u32,
        main: u32,
        auxiliary: u8,
        version: Version,
    ) {
        let there = self.peers.get(&main).is_some_and(|peer| peer.main.is_none());
        let main = Some(main).filter(|_| there && auxiliary > 0);
        let auxiliary = if main.is_some() { auxiliary } else { 0 };
        self.peers.insert(connection, Peer::new(version, main, auxiliary));
        self.refresh_miss();
    }

    /// A connection was closed. Together with a main connection its auxiliary ones are removed; the
    /// owner closes them.
    pub fn disconnect(&mut self, connection: u32) {
        self.peers.remove(&connection);
        self.peers.retain(|_, peer| peer.main != Some(connection));
        self.refresh_miss();
    }

    /// Whether there is room for a notice of a flow entry to a controller. If not, its connection
    /// is to be ended, because it does not know the state of the tables any more.
    pub(super) fn may_tell(&self, peer: &Peer, flow: &Installed, has_instructions: bool) -> bool {
        let more = memory::of_notice(flow, has_instructions);
        let all: usize = self.peers.values().map(|peer| peer.notices.get()).sum();
        let has_room = peer.notices.get() + more <= self.memory.notices
            && all + more <= self.memory.all_notices;
        if has_room {
            peer.notices.set(peer.notices.get() + more);
        } else {
            peer.has_lost.set(true);
        }
        has_room
    }

    /// The connections whose controllers have missed notices of flow entries, because too many would
    /// have waited. The owner closes them; the controllers then read the tables again.
    pub fn lost_notices(&mut self) -> Vec<u32> {
        let lost = self.peers.iter().filter(|(_, peer)| peer.has_lost.replace(false));
        lost.map(|(connection, _)| *connection).collect()
    }

    /// The version that a connection has agreed on.
    #[must_use]
    pub fn version(&self, connection: u32) -> Option<Version> {
        self.peers.get(&connection).map(|peer| peer.version)
    }

    pub(super) fn config(&self, main: u32) -> Config {
        self.peers.get(&main).map_or_else(Config::default, |peer| peer.config)
    }

    /// Fragments are handled like other frames; other settings are refused. The length of packet-ins
    /// is set in any case: a controller cannot know that the two depend on each other.
    pub(super) fn set_config(&mut self, main: u32, config: Config) -> Result<(), Problem> {
        if let Some(peer) = self.peers.get_mut(&main) {
            peer.config.miss_send_len = config.miss_send_len;
        }
        if config.flags == 0 { Ok(()) } else { Err(problem::CONFIG_BAD_FLAGS) }
    }

    /// Whether the message is one that a slave may not send (1.3.5, section 6.3.4).
    pub(super) fn writes(&self, ask: Ask) -> Result<(), Problem> {
        let slave = self.peers.get(&ask.main).is_some_and(|peer| peer.role == Role::Slave);
        if slave { Err(problem::REQUEST_IS_SLAVE) } else { Ok(()) }
    }

    /// Carries out a role request (1.3.5, section 6.3.5). A generation ID older than the last one
    /// is stale.
    pub(super) fn role(
        &mut self,
        ask: Ask,
        request: &RoleMessage,
        out: &mut Vec<Out>,
    ) -> Result<Message, Problem> {
        if matches!(request.role, Role::Master | Role::Slave) {
            let stale = |last: u64| (request.generation.wrapping_sub(last) as i64) < 0;
            if self.generation.is_some_and(stale) {
                return Err(problem::ROLE_STALE);
            }
            self.generation = Some(request.generation);
        }
        let generation = self.generation.unwrap_or(u64::MAX);
        if request.role == Role::Master {
            let others = self.peers.iter_mut().filter(|(one, _)| **one != ask.main);
            for (&to, other) in others.filter(|(_, one)| one.role == Role::Master) {
                other.role = Role::Slave;
                // The reason is `OFPCRR_MASTER_REQUEST`, which is 0.
                if other.version == Version::V14 && other.wants(ROLE_STATUS, 0) {
                    let word = RoleMessage { role: Role::Slave, generation, ..Default::default() };
                    let message = Message::RoleStatus(word);
                    out.push(Out { to, xid: 0, message, after: self.changes, counts: None });
                }
            }
        }
        let own = self.peers.get_mut(&ask.main).ok_or(problem::REQUEST_EPERM)?;
        if request.role != Role::NoChange {
            own.role = request.role;
        }
        let reply = RoleMessage { role: own.role, generation, ..RoleMessage::default() };
        Ok(Message::RoleReply(reply))
    }

    pub(super) fn get_async(&self, ask: Ask) -> Result<Message, Problem> {
        let peer = self.peers.get(&ask.main).ok_or(problem::REQUEST_EPERM)?;
        let masks = (0..).zip(peer.masks);
        Ok(Message::GetAsyncReply(Async(masks.collect())))
    }

    /// Properties that are not named keep their masks.
    pub(super) fn set_async(&mut self, ask: Ask, masks: &Async) -> Result<(), Problem> {
        let wrong = |(kind, mask): &(u16, u32)| match REASONS.get(usize::from(*kind)) {
            // 1.3 has no error for unknown reasons, so their bits are removed.
            Some(known) => ask.version == Version::V14 && mask & !known != 0,
            None => true,
        };
        if masks.0.iter().any(wrong) {
            return Err(problem::ASYNC_INVALID);
        }
        let peer = self.peers.get_mut(&ask.main).ok_or(problem::REQUEST_EPERM)?;
        for (kind, mask) in &masks.0 {
            let kind = usize::from(*kind);
            peer.masks[kind] = mask & REASONS[kind];
        }
        Ok(())
    }

    /// Notifies other controllers of a group or meter request that was carried out (1.4).
    pub(super) fn forward(&self, ask: Ask, message: &Message, out: &mut Vec<Out>) {
        let reason = match message {
            Message::GroupMod(_) => 0,
            Message::MeterMod(_) => 1,
            _ => return,
        };
        let others = self.peers.iter().filter(|(to, _)| **to != ask.main);
        for (&to, peer) in others {
            if peer.version == Version::V14 && peer.wants(FORWARD, reason) {
                let message = Message::RequestForward(wire(message, Version::V14, ask.xid));
                out.push(Out { to, xid: 0, message, after: self.changes, counts: None });
            }
        }
    }

    /// The switch has no queues: the list of each port is empty.
    pub(super) fn queues(&self, ask: Ask, port: u32) -> Result<Message, Problem> {
        let any = port == crate::port::reserved::ANY && ask.version != Version::V10;
        if !any && !self.ports.has(port) {
            return Err(problem::QUEUE_BAD_PORT);
        }
        Ok(Message::QueueConfigReply { port, queues: Vec::new() })
    }

    /// The number of flow entries and buckets that refer to each group, and of flow entries that
    /// refer to each meter.
    pub(super) fn references(&self) -> (BTreeMap<u32, u32>, BTreeMap<u32, u32>) {
        let (mut groups, mut meters) = (BTreeMap::new(), BTreeMap::new());
        let mut count = |action: &Action| {
            if let Action::Group(group) = action {
                *groups.entry(*group).or_insert(0_u32) += 1;
            }
        };
        for flow in self.tables.iter().flat_map(super::table::Table::iter) {
            flow.actions().for_each(&mut count);
            for instruction in &flow.entry.instructions {
                if let Instruction::Meter(meter) = instruction {
                    *meters.entry(*meter).or_insert(0_u32) += 1;
                }
            }
        }
        for state in self.groups.values() {
            state.group.desc.buckets.iter().flat_map(|b| &b.actions).for_each(&mut count);
        }
        (groups, meters)
    }
}

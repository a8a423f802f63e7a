//! Bundles (1.4.0, section 7.3.9; extension 230 of 1.3): changes that are carried out together, in
//! order, or not at all.
//!
//! ```text
//!   open ── add ── add ── [close] ── commit ──> all, or none and the first that failed
//!                              └──── discard
//! ```
//!
//! A message is checked when it is added, as far as that does not depend on the state of the switch
//! when the bundle is committed. While a bundle is committed, the agent records the state that each
//! message replaces. If a message fails, it restores that state in reverse order, and discards the
//! changes and messages that were not yet handed out.
//!
//! Messages are stored as the bytes in which they came, which are fewer than those of the decoded
//! messages, and are decoded again when the bundle is committed.
//!
//! Invariants: a connection has at most [`BUNDLES`] bundles, with at most [`MESSAGES`] messages
//! each, and together with the bytes that [`super::Memory`] allows. A bundle of which a message was
//! refused for want of memory is never committed. Each connection has bundles of its own, also an
//! auxiliary one (section 6.8.5).

use std::collections::BTreeMap;

use super::check::Named;
use super::groups::check_meter;
use super::peers::Peer;
use super::{Agent, Ask, Out, Undo, memory};
use crate::act::Action;
use crate::bundle::{Bundle, BundleAdd};
use crate::port::{Property, reserved};
use crate::problem::{self, Problem};
use crate::{Header, Message, Version, decode};

/// The largest number of bundles of a connection.
const BUNDLES: usize = 16;
/// The largest number of messages in a bundle.
const MESSAGES: usize = 100_000;

/// The largest number of changes to flow entries, groups, meters and ports by one bundle.
const CHANGES: usize = 1 << 18;

/// An open bundle.
#[derive(Debug, Default)]
pub(super) struct Held {
    flags: u16,
    closed: bool,
    messages: Vec<Vec<u8>>,
    /// What the messages take, in bytes.
    bytes: usize,
    /// Whether a message was refused for want of memory.
    is_spoilt: bool,
}

impl Held {
    fn new(flags: u16) -> Self {
        Self { flags, ..Self::default() }
    }

    /// What the bundle takes, in bytes.
    const fn bytes(&self) -> usize {
        memory::BLOCK + self.bytes
    }
}

/// What bundles take, in bytes.
pub(super) fn weight<'a>(bundles: impl IntoIterator<Item = &'a Held>) -> usize {
    bundles.into_iter().map(Held::bytes).sum()
}

fn no_experimenter(properties: &[Property]) -> Result<(), Problem> {
    match properties.first() {
        Some(Property { kind: 0xffff, .. }) => Err(problem::PROPERTY_BAD_EXPERIMENTER),
        Some(_) => Err(problem::PROPERTY_BAD_TYPE),
        None => Ok(()),
    }
}

/// Adds an empty bundle.
fn open(bundles: &mut BTreeMap<u32, Held>, id: u32, flags: u16) -> Result<(), Problem> {
    // The flags atomic and ordered: bits 0 and 1. Every bundle is both.
    if flags & !3 != 0 {
        return Err(problem::BUNDLE_BAD_FLAGS);
    }
    if bundles.len() >= BUNDLES {
        return Err(problem::BUNDLE_OUT_OF_BUNDLES);
    }
    bundles.insert(id, Held::new(flags));
    Ok(())
}

/// Whether a bundle may contain the message.
const fn may_be_in(message: &Message) -> bool {
    matches!(
        message,
        Message::FlowMod(_)
            | Message::GroupMod(_)
            | Message::MeterMod(_)
            | Message::PortMod(_)
            | Message::PacketOut(_)
    )
}

impl Agent {
    fn held(&mut self, ask: Ask) -> Result<&mut BTreeMap<u32, Held>, Problem> {
        if ask.version == Version::V10 {
            return Err(problem::REQUEST_BAD_TYPE);
        }
        let peer = self.peers.get_mut(&ask.from).ok_or(problem::REQUEST_EPERM)?;
        Ok(&mut peer.bundles)
    }

    /// Opens, closes, commits or discards a bundle. A request that contradicts the state of its
    /// bundle also discards the bundle.
    pub(super) fn bundle(
        &mut self,
        ask: Ask,
        m: &Bundle,
        out: &mut Vec<Out>,
    ) -> Result<Message, Problem> {
        no_experimenter(&m.properties)?;
        self.writes(ask)?;
        let bundles = self.held(ask)?;
        match m.control {
            0 => {
                if bundles.remove(&m.id).is_some() {
                    return Err(problem::BUNDLE_EXISTS);
                }
                open(bundles, m.id, m.flags)?;
            }
            2 | 4 => {
                let mut held = bundles.remove(&m.id).ok_or(problem::BUNDLE_BAD_ID)?;
                if held.flags != m.flags {
                    return Err(problem::BUNDLE_BAD_FLAGS);
                }
                if m.control == 2 && held.closed {
                    return Err(problem::BUNDLE_CLOSED);
                }
                if held.is_spoilt {
                    // A part of a bundle must not be committed.
                    return Err(problem::BUNDLE_OUT_OF_MEMORY);
                }
                if m.control == 4 {
                    self.commit(ask, held, out)?;
                } else {
                    held.closed = true;
                    bundles.insert(m.id, held);
                }
            }
            6 => {
                bundles.remove(&m.id).ok_or(problem::BUNDLE_BAD_ID)?;
            }
            _ => return Err(problem::BUNDLE_BAD_TYPE),
        }
        let reply = Bundle { control: m.control + 1, properties: Vec::new(), ..m.clone() };
        Ok(Message::Bundle(reply))
    }

    /// Adds a message to a bundle, which the first message opens. If the message itself is at
    /// fault, the error names it and not the request that adds it.
    pub(super) fn bundle_add(
        &mut self,
        ask: Ask,
        m: &BundleAdd,
        out: &mut Vec<Out>,
    ) -> Result<(), Problem> {
        no_experimenter(&m.properties)?;
        self.writes(ask)?;
        let bundles = self.held(ask)?;
        let header = Header::read(&m.message).ok_or(problem::BUNDLE_BAD_LEN)?;
        if header.version != ask.version as u8 {
            return Err(problem::REQUEST_BAD_VERSION);
        }
        if header.xid != ask.xid {
            return Err(problem::BUNDLE_BAD_XID);
        }
        let wrong = match bundles.get(&m.id) {
            Some(held) if held.closed => Some(problem::BUNDLE_CLOSED),
            Some(held) if held.flags != m.flags => Some(problem::BUNDLE_BAD_FLAGS),
            _ => None,
        };
        if let Some(wrong) = wrong {
            bundles.remove(&m.id);
            return Err(wrong);
        }
        let checked = match decode(&m.message) {
            Ok((_, message)) if !may_be_in(&message) => return Err(problem::BUNDLE_UNSUPPORTED),
            Ok((_, message)) => self.check_early(ask.version, &message),
            Err(rejected) => Err(rejected.problem),
        };
        if let Err(problem) = checked {
            let message = Message::error(problem, ask.version, &m.message);
            out.push(Out {
                to: ask.from,
                xid: ask.xid,
                message,
                after: self.changes,
                counts: None,
            });
            return Ok(());
        }
        self.hold(ask, m)
    }

    /// Stores a message of a bundle.
    ///
    /// # Errors
    /// When there is no room for it.
    fn hold(&mut self, ask: Ask, m: &BundleAdd) -> Result<(), Problem> {
        let more = m.message.len() + memory::BLOCK;
        let each = |peer: &Peer| weight(peer.bundles.values());
        let own = self.peers.get(&ask.from).map_or(0, each);
        let all: usize = self.peers.values().map(each).sum();
        let is_full = own + more > self.memory.bundles || all + more > self.memory.all_bundles;
        let bundles = self.held(ask)?;
        if !bundles.contains_key(&m.id) {
            open(bundles, m.id, m.flags)?;
        }
        let held = bundles.get_mut(&m.id).ok_or(problem::BUNDLE_BAD_ID)?;
        if held.messages.len() >= MESSAGES {
            return Err(problem::BUNDLE_TOO_MANY);
        }
        if is_full || held.is_spoilt {
            // The memory is free again at once; what the bundle had cannot be committed.
            *held = Held { is_spoilt: true, ..Held::new(held.flags) };
            return Err(problem::BUNDLE_OUT_OF_MEMORY);
        }
        held.messages.push(m.message.clone());
        held.bytes += more;
        Ok(())
    }

    /// The checks that do not depend on flows, groups and meters, which earlier messages of the
    /// bundle may change.
    fn check_early(&self, version: Version, message: &Message) -> Result<(), Problem> {
        match message {
            Message::FlowMod(m) => {
                self.check_head(m, version)?;
                if m.command.deletes() {
                    return Ok(());
                }
                self.check_flow(m, version, Named::MayFollow)
            }
            Message::GroupMod(m) => self.check_group(m, Named::MayFollow),
            Message::MeterMod(m) => check_meter(m),
            Message::PortMod(m) => self.check_port_mod(m, version),
            Message::PacketOut(m) => {
                let table =
                    |one: &Action| matches!(one, Action::Output { port: reserved::TABLE, .. });
                let mut others = m.actions.iter().filter(|one| !table(one));
                others.try_for_each(|one| {
                    self.check_list(std::slice::from_ref(one), Named::MayFollow)
                })
            }
            _ => Ok(()),
        }
    }

    /// Carries out all messages of a bundle, or none.
    fn commit(&mut self, ask: Ask, held: Held, out: &mut Vec<Out>) -> Result<(), Problem> {
        let (seen, said) = (self.pending.len(), out.len());
        let changes = self.changes;
        let low: Vec<bool> = self.tables.iter().map(|table| table.settings.low).collect();
        let notices: Vec<_> = self.peers.values().map(Peer::notices).collect();
        self.undo = Some(Vec::new());
        for bytes in held.messages {
            // It was decoded when it was added.
            let Ok((Header { xid, .. }, message)) = decode(&bytes) else { continue };
            let ask = Ask { xid, ..ask };
            let done = self.write(ask, &message, out).and_then(|()| {
                let few = self.pending.len() - seen <= CHANGES;
                if few { Ok(()) } else { Err(problem::BUNDLE_TOO_MANY_CHANGES) }
            });
            if let Err(problem) = done {
                let undo = self.undo.take().unwrap_or_default();
                undo.into_iter().rev().for_each(|one| self.put_back(one));
                // No vacancy event was sent.
                for (table, low) in self.tables.iter_mut().zip(low) {
                    table.settings.low = low;
                }
                self.pending.truncate(seen);
                self.changes = changes;
                out.truncate(said);
                for (peer, notices) in self.peers.values().zip(notices) {
                    peer.restore_notices(notices);
                }
                let message = Message::error(problem, ask.version, &bytes);
                out.push(Out { to: ask.from, xid, message, after: self.changes, counts: None });
                return Err(problem::BUNDLE_FAILED);
            }
            self.forward(ask, &message, out);
        }
        self.undo = None;
        Ok(())
    }

    fn put_back(&mut self, undo: Undo) {
        match undo {
            Undo::Flow(table, rule, old) => {
                let table = &mut self.tables[usize::from(table)];
                match old {
                    Some(flow) => drop(table.put(rule, *flow)),
                    None => drop(table.take(&rule)),
                }
            }
            Undo::Group(number, old) => self.restore_group(number, old),
            Undo::Meter(number, old) => drop(self.put_meter(number, old)),
            Undo::Port(number, old) => self.ports.restore(number, old),
        }
    }
}

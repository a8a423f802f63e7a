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
//! Invariants: a connection has at most [`BUNDLES`] bundles, with at most [`MESSAGES`] messages
//! each. Each connection has bundles of its own, also an auxiliary one (section 6.8.5).

use std::collections::BTreeMap;

use super::check::Named;
use super::groups::check_meter;
use super::{Agent, Ask, Out, Undo, wire};
use crate::act::Action;
use crate::bundle::{Bundle, BundleAdd};
use crate::port::{Property, reserved};
use crate::problem::{self, Problem};
use crate::{Header, Message, Version, decode};

/// The largest number of bundles of a connection.
const BUNDLES: usize = 16;
/// The largest number of messages in a bundle.
const MESSAGES: usize = 100_000;

/// An open bundle.
#[derive(Debug)]
pub(super) struct Held {
    flags: u16,
    closed: bool,
    messages: Vec<(u32, Message)>,
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
    bundles.insert(id, Held { flags, closed: false, messages: Vec::new() });
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
                if m.control == 4 {
                    self.commit(ask, held, out)?;
                } else if held.closed {
                    return Err(problem::BUNDLE_CLOSED);
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
        let message = match decode(&m.message) {
            Ok((_, message)) if !may_be_in(&message) => return Err(problem::BUNDLE_UNSUPPORTED),
            Ok((_, message)) => self.check_early(ask.version, &message).map(|()| message),
            Err(rejected) => Err(rejected.problem),
        };
        let message = match message {
            Ok(message) => message,
            Err(problem) => {
                let message = Message::error(problem, ask.version, &m.message);
                out.push(Out { to: ask.from, xid: ask.xid, message, after: self.changes });
                return Ok(());
            }
        };
        let bundles = self.held(ask)?;
        if !bundles.contains_key(&m.id) {
            open(bundles, m.id, m.flags)?;
        }
        let held = bundles.get_mut(&m.id).ok_or(problem::BUNDLE_BAD_ID)?;
        if held.messages.len() >= MESSAGES {
            return Err(problem::BUNDLE_TOO_MANY);
        }
        held.messages.push((header.xid, message));
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
        self.undo = Some(Vec::new());
        for (xid, message) in held.messages {
            let ask = Ask { xid, ..ask };
            if let Err(problem) = self.write(ask, &message, out) {
                let undo = self.undo.take().unwrap_or_default();
                undo.into_iter().rev().for_each(|one| self.put_back(one));
                // No vacancy event was sent.
                for (table, low) in self.tables.iter_mut().zip(low) {
                    table.settings.low = low;
                }
                self.pending.truncate(seen);
                self.changes = changes;
                out.truncate(said);
                let request = wire(&message, ask.version, xid);
                let message = Message::error(problem, ask.version, &request);
                out.push(Out { to: ask.from, xid, message, after: self.changes });
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
            Undo::Group(number, Some(old)) => drop(self.groups.insert(number, old)),
            Undo::Group(number, None) => drop(self.groups.remove(&number)),
            Undo::Meter(number, Some(old)) => drop(self.meters.insert(number, old)),
            Undo::Meter(number, None) => drop(self.meters.remove(&number)),
            Undo::Port(number, old) => self.ports.restore(number, old),
        }
    }
}

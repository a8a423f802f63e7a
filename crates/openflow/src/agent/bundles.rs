//! Bundles (1.4.0, section 7.3.9; extension 230 of 1.3): changes that are carried out together, in
//! order, or not at all.
//!
//! ```text
//!   open ── add ── add ── [close] ── commit ──> all, or none and the first that failed
//!                              └──── discard
//! ```
//!
//! While a bundle is committed, the agent records the state that each message replaces. If a
//! message fails, it restores that state in reverse order, and discards the changes and messages
//! that were not yet handed out.
//!
//! Messages are stored as the bytes in which they came, which are fewer than those of the decoded
//! messages, and are decoded again when the bundle is committed.
//!
//! Invariants: a controller has at most [`BUNDLES`] bundles, with at most [`MESSAGES`] messages
//! each, and together with the bytes that [`super::Memory`] allows. A bundle of which a message was
//! refused for want of room is never committed.

use super::peers::Peer;
use super::{Agent, Ask, Out, Undo, memory, wire};
use crate::bundle::{Bundle, BundleAdd};
use crate::port::Property;
use crate::problem::{self, Problem};
use crate::{Header, Message, Version, decode};

/// The largest number of bundles of a controller.
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
    /// Whether a message was refused for want of room.
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
    fn held(&mut self, ask: Ask) -> Result<&mut std::collections::BTreeMap<u32, Held>, Problem> {
        if ask.version == Version::V10 {
            return Err(problem::REQUEST_BAD_TYPE);
        }
        let peer = self.peers.get_mut(&ask.main).ok_or(problem::REQUEST_EPERM)?;
        Ok(&mut peer.bundles)
    }

    pub(super) fn bundle(
        &mut self,
        ask: Ask,
        m: &Bundle,
        out: &mut Vec<Out>,
    ) -> Result<Message, Problem> {
        no_experimenter(&m.properties)?;
        self.writes(ask)?;
        let bundles = self.held(ask)?;
        // The flags atomic and ordered: bits 0 and 1. Every bundle is both.
        if m.flags & !3 != 0 {
            return Err(problem::BUNDLE_BAD_FLAGS);
        }
        match m.control {
            0 => {
                if bundles.contains_key(&m.id) {
                    return Err(problem::BUNDLE_EXISTS);
                }
                if bundles.len() >= BUNDLES {
                    return Err(problem::BUNDLE_OUT_OF_BUNDLES);
                }
                bundles.insert(m.id, Held::new(m.flags));
            }
            2 | 4 => {
                let held = bundles.get_mut(&m.id).ok_or(problem::BUNDLE_BAD_ID)?;
                let wrong = if held.flags != m.flags {
                    Some(problem::BUNDLE_BAD_FLAGS)
                } else if m.control == 2 && held.closed {
                    Some(problem::BUNDLE_CLOSED)
                } else if held.is_spoilt {
                    // A part of a bundle must not be committed.
                    Some(problem::BUNDLE_OUT_OF_MEMORY)
                } else {
                    None
                };
                if m.control == 2 && wrong.is_none() {
                    held.closed = true;
                } else if let Some(held) = bundles.remove(&m.id) {
                    // An error of the request that ends a bundle also discards the bundle.
                    wrong.map_or_else(|| self.commit(ask, held, out), Err)?;
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

    pub(super) fn bundle_add(&mut self, ask: Ask, m: &BundleAdd) -> Result<(), Problem> {
        no_experimenter(&m.properties)?;
        self.writes(ask)?;
        let header = Header::read(&m.message).ok_or(problem::BUNDLE_BAD_LEN)?;
        let read = decode(&m.message).map_err(|rejected| rejected.problem);
        if header.version != ask.version as u8 {
            return Err(problem::REQUEST_BAD_VERSION);
        }
        self.held(ask)?;
        if header.xid != ask.xid {
            return Err(problem::BUNDLE_BAD_XID);
        }
        let (_, message) = read?;
        if !may_be_in(&message) {
            return Err(problem::BUNDLE_UNSUPPORTED);
        }
        let more = m.message.len() + memory::BLOCK;
        let each = |peer: &Peer| weight(peer.bundles.values());
        let own = self.peers.get(&ask.main).map_or(0, each);
        let all: usize = self.peers.values().map(each).sum();
        let is_full = own + more > self.memory.bundles || all + more > self.memory.all_bundles;
        let bundles = self.held(ask)?;
        let room = bundles.len() < BUNDLES;
        // The first message for an unknown bundle opens it.
        let held = match bundles.entry(m.id) {
            std::collections::btree_map::Entry::Occupied(held) => held.into_mut(),
            std::collections::btree_map::Entry::Vacant(_) if !room => {
                return Err(problem::BUNDLE_OUT_OF_BUNDLES);
            }
            std::collections::btree_map::Entry::Vacant(place) => place.insert(Held::new(m.flags)),
        };
        let wrong = if held.closed {
            problem::BUNDLE_CLOSED
        } else if held.flags != m.flags {
            problem::BUNDLE_BAD_FLAGS
        } else if held.messages.len() >= MESSAGES {
            problem::BUNDLE_TOO_MANY
        } else if is_full || held.is_spoilt {
            // The memory is free again at once; what the bundle had cannot be committed.
            *held = Held { closed: held.closed, is_spoilt: true, ..Held::new(held.flags) };
            problem::BUNDLE_OUT_OF_MEMORY
        } else {
            held.messages.push(m.message.clone());
            held.bytes += more;
            return Ok(());
        };
        Err(wrong)
    }

    /// Carries out all messages of a bundle, or none.
    fn commit(&mut self, ask: Ask, held: Held, out: &mut Vec<Out>) -> Result<(), Problem> {
        let (seen, said) = (self.pending.len(), out.len());
        let changes = self.changes;
        self.undo = Some(Vec::new());
        for bytes in held.messages {
            // It was decoded when it was added.
            let Ok((Header { xid, .. }, message)) = decode(&bytes) else { continue };
            drop(bytes);
            let ask = Ask { xid, ..ask };
            let done = self.write(ask, &message, out).and_then(|()| {
                let few = self.pending.len() - seen <= CHANGES;
                if few { Ok(()) } else { Err(problem::BUNDLE_TOO_MANY_CHANGES) }
            });
            if let Err(problem) = done {
                let undo = self.undo.take().unwrap_or_default();
                undo.into_iter().rev().for_each(|one| self.put_back(one));
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
            Undo::Group(number, old) => self.restore_group(number, old),
            Undo::Meter(number, old) => drop(self.put_meter(number, old)),
            Undo::Port(number, old) => self.ports.restore(number, old),
        }
    }
}

//! Messages between nodes that synchronize connections.
//!
//! ```text
//!  hello     1 | check of the seed, 8 bytes | port on which the sender accepts sessions, 2
//!  has       2 | ( backend, 8 | lifetime in seconds, 4 | count, 4 | hash, 8 x count ) ...
//!  gone      3 | ( hash, 8 ) ...
//!  complete  4
//!  health    5 | ( backend, 8 | 1 if it is up, else 0 ) ...
//!  ended     6 | ( hash, 8 | sequence number behind the client's FIN or RST, 4 | milliseconds since then, 4 ) ...
//! ```
//!
//! Numbers are in little-endian order. A connection is the keyed hash of its 5-tuple, and a backend is its identity, so no address
//! is sent. `ended` is sent only to nodes that show by their nonce that they read it (see `session.rs`). After `complete`, the receiver knows all connections that the sender had reported when the session began.
//!
//! Invariants: a message that is not well-formed is refused as a whole.

use std::collections::HashMap;
use std::sync::Arc;

/// The longest message, in bytes.
pub(super) const LONGEST: usize = 16 << 10;
/// The most connections in a group of a message.
const GROUP: usize = 1024;
/// The most ends of connections in a message.
const ENDS: usize = 512;
/// The most backends in a message.
const VERDICTS: usize = 1024;
/// Backend, lifetime and count of a group.
const HEAD: usize = 16;

const HELLO: u8 = 1;
const HAS: u8 = 2;
const GONE: u8 = 3;
const COMPLETE: u8 = 4;
const HEALTH: u8 = 5;
const ENDED: u8 = 6;

/// A part of a message that was received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The first message of a session.
    Hello {
        /// A number by which nodes find out whether they have the same seed.
        check: u64,
        /// The port on which the sender accepts sessions.
        port: u16,
    },
    /// A connection of the sender.
    Has {
        /// Its hash.
        hash: u64,
        /// The identity of its backend.
        backend: u64,
        /// The seconds that it lasts.
        lifetime: u32,
    },
    /// The sender does not report this connection any more.
    Gone {
        /// Its hash.
        hash: u64,
    },
    /// The client of a connection, of which the receiver may have an entry, has ended its part.
    Ended {
        /// The hash of the connection.
        hash: u64,
        /// The sequence number behind the client's FIN or RST.
        end: u32,
        /// The milliseconds since the sender has seen it.
        age_ms: u32,
    },
    /// What the sender's health checks say of a backend. Those in front of [`Part::Complete`] are all that it has.
    Verdict {
        /// The identity of the backend.
        backend: u64,
        /// Whether it is up.
        is_up: bool,
    },
    /// All connections were reported.
    Complete,
}

/// The bytes are not a message of this version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the message has an unknown form; do all nodes run the same version of flowyard?")]
pub struct BadMessage;

/// Reads a message.
///
/// # Errors
/// It is not well-formed.
pub fn read(message: &[u8]) -> Result<Vec<Part>, BadMessage> {
    let (&kind, mut rest) = message.split_first().ok_or(BadMessage)?;
    let mut all = Vec::new();
    match kind {
        HELLO => {
            let (check, port) = (number(&mut rest)?, u16::from_le_bytes(take(&mut rest)?));
            all.push(Part::Hello { check, port });
        }
        HAS => {
            while !rest.is_empty() {
                let backend = number(&mut rest)?;
                let lifetime = u32::from_le_bytes(take(&mut rest)?);
                for _ in 0..u32::from_le_bytes(take(&mut rest)?) {
                    all.push(Part::Has { hash: number(&mut rest)?, backend, lifetime });
                }
            }
        }
        GONE => {
            while !rest.is_empty() {
                all.push(Part::Gone { hash: number(&mut rest)? });
            }
        }
        ENDED => {
            while !rest.is_empty() {
                let (hash, end) = (number(&mut rest)?, u32::from_le_bytes(take(&mut rest)?));
                let age_ms = u32::from_le_bytes(take(&mut rest)?);
                all.push(Part::Ended { hash, end, age_ms });
            }
        }
        HEALTH => {
            while !rest.is_empty() {
                let backend = number(&mut rest)?;
                let [is_up @ 0..=1] = take(&mut rest)? else { return Err(BadMessage) };
                all.push(Part::Verdict { backend, is_up: is_up == 1 });
            }
        }
        COMPLETE => all.push(Part::Complete),
        _ => return Err(BadMessage),
    }
    if rest.is_empty() { Ok(all) } else { Err(BadMessage) }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], BadMessage> {
    let (first, others) = rest.split_first_chunk().ok_or(BadMessage)?;
    *rest = others;
    Ok(*first)
}

fn number(rest: &mut &[u8]) -> Result<u64, BadMessage> {
    take(rest).map(u64::from_le_bytes)
}

/// The first message of a session.
pub(super) fn hello(check: u64, port: u16) -> Vec<u8> {
    [&[HELLO][..], &check.to_le_bytes(), &port.to_le_bytes()].concat()
}

/// A message, and the number of connections in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packed {
    /// The bytes.
    pub bytes: Arc<[u8]>,
    /// The connections that it reports.
    pub connections: u64,
    /// The ends of connections in it.
    pub ends: u64,
}

impl Packed {
    /// The message after the last connection.
    #[must_use]
    pub fn complete() -> Self {
        Self { bytes: [COMPLETE].into(), connections: 0, ends: 0 }
    }
}

/// The messages with the verdicts of health checks, by the identity of the backend.
pub(super) fn health(verdicts: &[(u64, bool)]) -> impl Iterator<Item = Packed> {
    verdicts.chunks(VERDICTS).map(|some| {
        let mut message = Message::new(HEALTH);
        for (backend, is_up) in some {
            message.bytes.extend(backend.to_le_bytes());
            message.bytes.push(u8::from(*is_up));
        }
        message.finish()
    })
}

/// Packs reports into messages: connections with the same backend and lifetime share a head.
#[derive(Debug, Default)]
pub struct Packer {
    groups: HashMap<(u64, u32), Vec<u64>>,
    gone: Vec<u64>,
    ended: Vec<(u64, u32, u32)>,
    full: Vec<Packed>,
}

impl Packer {
    /// Adds a connection.
    pub fn has(&mut self, hash: u64, backend: u64, lifetime: u32) {
        let group = self.groups.entry((backend, lifetime)).or_default();
        group.push(hash);
        if group.len() == GROUP {
            let mut message = Message::new(HAS);
            message.group((backend, lifetime), group);
            group.clear();
            self.full.push(message.finish());
        }
    }

    /// Adds a connection that is not reported any more.
    pub fn gone(&mut self, hash: u64) {
        self.gone.push(hash);
    }

    /// Adds the end of a connection.
    pub fn ended(&mut self, hash: u64, end: u32, age_ms: u32) {
        self.ended.push((hash, end, age_ms));
    }

    /// The messages. Those of connections that have ended or are gone come first.
    #[must_use]
    pub fn finish(self) -> Vec<Packed> {
        let gone = self.gone.chunks(GROUP).map(|hashes| {
            let mut message = Message::new(GONE);
            hashes.iter().for_each(|hash| message.bytes.extend(hash.to_le_bytes()));
            message.finish()
        });
        let ended = self.ended.chunks(ENDS).map(|ends| {
            let mut message = Message::new(ENDED);
            for (hash, end, age_ms) in ends {
                message.bytes.extend(hash.to_le_bytes());
                message.bytes.extend(end.to_le_bytes());
                message.bytes.extend(age_ms.to_le_bytes());
            }
            Packed { ends: ends.len() as u64, ..message.finish() }
        });
        let mut all: Vec<_> = ended.chain(gone).chain(self.full).collect();
        let mut message = Message::new(HAS);
        for (head, hashes) in &self.groups {
            if message.bytes.len() + HEAD + hashes.len() * 8 > LONGEST {
                all.push(std::mem::replace(&mut message, Message::new(HAS)).finish());
            }
            if !hashes.is_empty() {
                message.group(*head, hashes);
            }
        }
        if message.connections > 0 {
            all.push(message.finish());
        }
        all
    }
}

/// A message that is being written.
struct Message {
    bytes: Vec<u8>,
    connections: u64,
}

impl Message {
    fn new(kind: u8) -> Self {
        Self { bytes: vec![kind], connections: 0 }
    }

    fn group(&mut self, (backend, lifetime): (u64, u32), hashes: &[u64]) {
        self.bytes.extend(backend.to_le_bytes());
        self.bytes.extend(lifetime.to_le_bytes());
        self.bytes.extend((hashes.len() as u32).to_le_bytes());
        hashes.iter().for_each(|hash| self.bytes.extend(hash.to_le_bytes()));
        self.connections += hashes.len() as u64;
    }

    fn finish(self) -> Packed {
        Packed { bytes: self.bytes.into(), connections: self.connections, ends: 0 }
    }
}

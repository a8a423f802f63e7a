//! A session between two nodes: both prove that they know the key, and every message is authenticated.
//!
//! ```text
//!  connects                                   accepts
//!  "flowyard-sync 1\n", nonce, 32 bytes  ──>
//!                                        <──  "flowyard-sync 1\n", nonce, HMAC(key, "accepts" | both nonces)
//!  length, 4 | message | HMAC(session key, number | message), 32 bytes  ──> ...
//! ```
//!
//! The session key is HMAC-SHA-256(key, "session" | both nonces), so messages of one session are not valid in another one. Messages
//! are numbered, so none can be repeated, left out or exchanged. They are not encrypted: they contain hashes under a secret seed.
//!
//! The last 8 bytes of the nonce of the node that accepts are the begin of HMAC(key, "reads ended" | nonce of the node that connects |
//! the rest of the own one), if it reads messages of kind `ended`; in older versions they are random, as the others. Older
//! versions end a session at a message that they do not know, and get none of them.
//!
//! Invariants: no part of a message is used before its authentication; nothing longer than the longest message is stored.

use std::io::{self, ErrorKind, Read, Write};

use ring::hmac::{self, HMAC_SHA256, Key};
use rustix::rand::{GetRandomFlags, getrandom};

use super::wire::LONGEST;

const MAGIC: &[u8; 16] = b"flowyard-sync 1\n";
const NONCE: usize = 32;
/// The bytes of a nonce in front of those that say what the node reads.
const RANDOM: usize = 24;
/// The bytes of an authentication.
const MAC: usize = 32;

/// Authenticates the messages of one session.
pub(super) struct Session {
    key: Key,
    /// The number of the next message.
    number: u64,
    /// Whether the node that accepts reads ends of connections.
    reads_ends: bool,
}

impl Session {
    /// Begins a session as the node that connects.
    pub(super) fn connect(stream: &mut (impl Read + Write), key: &Key) -> io::Result<Self> {
        let own = nonce()?;
        stream.write_all(&[&MAGIC[..], &own].concat())?;
        let (mut magic, mut other, mut proof) = ([0; MAGIC.len()], [0; NONCE], [0; MAC]);
        stream.read_exact(&mut magic)?;
        check_magic(&magic)?;
        stream.read_exact(&mut other)?;
        stream.read_exact(&mut proof)?;
        let both = [&b"accepts"[..], &own, &other].concat();
        hmac::verify(key, &both, &proof).map_err(|_| wrong(OTHER_KEY))?;
        let mut session = Self::new(key, &own, &other);
        session.reads_ends = reads_ended(key, &own, &other) == other[RANDOM..];
        Ok(session)
    }

    /// Whether messages with ends of connections may be written.
    pub(super) const fn reads_ends(&self) -> bool {
        self.reads_ends
    }

    /// Begins a session as the node that accepts. Whether the other node knows the key is seen by its first message.
    pub(super) fn accept(stream: &mut (impl Read + Write), key: &Key) -> io::Result<Self> {
        let (mut magic, mut other) = ([0; MAGIC.len()], [0; NONCE]);
        stream.read_exact(&mut magic)?;
        check_magic(&magic)?;
        stream.read_exact(&mut other)?;
        let mut own = nonce()?;
        let reads = reads_ended(key, &other, &own);
        own[RANDOM..].copy_from_slice(&reads);
        let proof = hmac::sign(key, &[&b"accepts"[..], &other, &own].concat());
        stream.write_all(&[&MAGIC[..], &own, proof.as_ref()].concat())?;
        Ok(Self::new(key, &other, &own))
    }

    fn new(key: &Key, connects: &[u8], accepts: &[u8]) -> Self {
        let tag = hmac::sign(key, &[&b"session"[..], connects, accepts].concat());
        Self { key: Key::new(HMAC_SHA256, tag.as_ref()), number: 0, reads_ends: false }
    }

    /// Writes a message. Returns the number of bytes.
    pub(super) fn write(&mut self, stream: &mut impl Write, message: &[u8]) -> io::Result<u64> {
        let mac = hmac::sign(&self.key, &self.numbered(message));
        let length = (message.len() as u32).to_le_bytes();
        let all = [&length[..], message, mac.as_ref()].concat();
        stream.write_all(&all)?;
        self.number += 1;
        Ok(all.len() as u64)
    }

    /// Reads a message. Returns the number of bytes that it took.
    pub(super) fn read(
        &mut self,
        stream: &mut impl Read,
        message: &mut Vec<u8>,
    ) -> io::Result<u64> {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > LONGEST {
            return Err(wrong(TOO_LONG));
        }
        message.resize(length + MAC, 0);
        stream.read_exact(message)?;
        let mac = message.split_off(length);
        hmac::verify(&self.key, &self.numbered(message), &mac).map_err(|_| wrong(OTHER_KEY))?;
        self.number += 1;
        Ok((4 + length + MAC) as u64)
    }

    /// The message with its number, which is authenticated.
    fn numbered(&self, message: &[u8]) -> Vec<u8> {
        [&self.number.to_le_bytes()[..], message].concat()
    }
}

const OTHER_KEY: &str =
    "the authentication of a message is wrong; is the file of 'key_file' the same on all nodes?";
const OTHER_PROGRAM: &str =
    "another program or another version of flowyard uses the address; compare 'peers' and 'listen'";
const TOO_LONG: &str = "the message is too long; do all nodes run the same version of flowyard?";

fn check_magic(magic: &[u8]) -> io::Result<()> {
    if magic == MAGIC { Ok(()) } else { Err(wrong(OTHER_PROGRAM)) }
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

/// The last bytes of the nonce of a node that accepts, and reads ends of connections.
fn reads_ended(key: &Key, connects: &[u8; NONCE], accepts: &[u8; NONCE]) -> [u8; NONCE - RANDOM] {
    let tag = hmac::sign(key, &[&b"reads ended"[..], connects, &accepts[..RANDOM]].concat());
    tag.as_ref().first_chunk().copied().unwrap_or_default()
}

fn nonce() -> io::Result<[u8; NONCE]> {
    let mut bytes = [0; NONCE];
    let count = getrandom(&mut bytes, GetRandomFlags::empty())?;
    if count == NONCE { Ok(bytes) } else { Err(io::Error::other("no random bytes")) }
}

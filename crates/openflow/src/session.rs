//! One connection as plain calls: messages out of bytes, the version, and signs of life.
//!
//! ```text
//!   bytes ── feed ──> hello? agree on a version ──> Heard::Up
//!                └──> messages of that version ──> Heard::Message
//!                └──> what cannot be read, and echo requests ──> answered at once
//!   tick ──> silent for a while? ask for an echo; for twice as long? End::Silent
//! ```
//!
//! Both ends are the same: a switch and its controller greet each other alike (1.3.5, section 6.3.1).
//!
//! Invariants: after an [`End`] nothing is read any more; no more than a message and what was fed
//! is kept; every message that cannot be read is answered with one error.
//! Thread-safety: plain data; time is an argument, in nanoseconds.

use crate::message::Hello;
use crate::problem::{self, Problem};
use crate::{Header, Message, Version, decode, encode};

/// What a session has heard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Heard {
    /// The other side has said hello; this is the version from here on.
    Up(Version),
    /// A message.
    Message {
        /// Its transaction.
        xid: u32,
        /// What it says.
        message: Message,
    },
}

/// Why a session is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum End {
    /// There is no version in common.
    #[error("no OpenFlow version in common: the other side speaks {0}; allow it on one side")]
    Version(u8),
    /// The first message was another one.
    #[error("the first message is of type {0}, not a hello; is this an OpenFlow port?")]
    NoHello(u8),
    /// There is no telling where the next message starts.
    #[error("a message says that it is {0} bytes long, and its header alone has 8")]
    Length(u16),
    /// Nothing was heard.
    #[error("nothing heard for {0} s, not even an echo")]
    Silent(u64),
    /// The other side refused the versions.
    #[error("the other side refused: error type {0}, code {1}")]
    Refused(u16, u16),
}

/// A connection's state.
#[derive(Debug)]
pub struct Session {
    versions: Vec<Version>,
    agreed: Option<Version>,
    buffer: Vec<u8>,
    last: u64,
    /// Whether an echo was asked for since then.
    asked: bool,
    probe: u64,
    over: Option<End>,
}

impl Session {
    /// A session that speaks `versions`. After `probe` nanoseconds of silence it asks for a sign of
    /// life, after twice that it is over; 0 is never.
    #[must_use]
    pub fn new(versions: &[Version], probe: u64, now: u64) -> Self {
        Self {
            versions: versions.to_vec(),
            agreed: None,
            buffer: Vec::new(),
            last: now,
            asked: false,
            probe,
            over: None,
        }
    }

    /// The version that was agreed on.
    #[must_use]
    pub const fn version(&self) -> Option<Version> {
        self.agreed
    }

    /// The hello to begin with.
    #[must_use]
    pub fn hello(&self) -> Vec<u8> {
        let best = self.versions.iter().copied().max().unwrap_or_default();
        let map = self.versions.iter().fold(0, |map, version| map | 1 << *version as u8);
        let hello = Message::Hello(Hello { versions: Some(map) });
        let mut bytes = Vec::new();
        // A hello can be said in every version.
        let _ = encode(&hello, best, 0, &mut bytes);
        bytes
    }

    /// Takes bytes as they come. `heard` gets what they say, `reply` what is to be sent at once.
    ///
    /// # Errors
    /// The session is over; `reply` may have a last word.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        now: u64,
        heard: &mut Vec<Heard>,
        reply: &mut Vec<u8>,
    ) -> Result<(), End> {
        if let Some(end) = self.over {
            return Err(end);
        }
        self.last = now;
        self.asked = false;
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.extend_from_slice(bytes);
        let mut at = 0;
        while let Some(header) = Header::read(&buffer[at..]) {
            let length = usize::from(header.length);
            if length < 8 {
                let head = &buffer[at..at + 8];
                self.refuse(problem::REQUEST_BAD_LEN, header.xid, head, reply);
                return self.end(End::Length(header.length));
            }
            let Some(wire) = buffer.get(at..at + length) else { break };
            at += length;
            self.one(header, wire, heard, reply)?;
        }
        buffer.drain(..at);
        self.buffer = buffer;
        Ok(())
    }

    fn end(&mut self, end: End) -> Result<(), End> {
        self.over = Some(end);
        Err(end)
    }

    fn refuse(&self, problem: Problem, xid: u32, request: &[u8], reply: &mut Vec<u8>) {
        let version = self.agreed.or(self.versions.iter().copied().max()).unwrap_or_default();
        let error = Message::error(problem, version, request);
        // An error of at most 64 bytes of data can always be said.
        let _ = encode(&error, version, xid, reply);
    }

    fn one(
        &mut self,
        header: Header,
        wire: &[u8],
        heard: &mut Vec<Heard>,
        reply: &mut Vec<u8>,
    ) -> Result<(), End> {
        let read = decode(wire).map(|(_, message)| message);
        let Some(version) = self.agreed else {
            return self.greet(header, wire, read.ok(), heard, reply);
        };
        let problem = match read {
            Ok(Message::Hello(_)) => return Ok(()),
            _ if header.version != version as u8 => problem::REQUEST_BAD_VERSION,
            Ok(Message::EchoRequest(data)) => {
                let _ = encode(&Message::EchoReply(data), version, header.xid, reply);
                return Ok(());
            }
            Ok(Message::EchoReply(_)) => return Ok(()),
            Ok(message) => {
                heard.push(Heard::Message { xid: header.xid, message });
                return Ok(());
            }
            // An error is never answered with an error.
            Err(_) if header.kind == 1 => return Ok(()),
            Err(rejected) => rejected.problem,
        };
        self.refuse(problem, header.xid, wire, reply);
        Ok(())
    }

    fn greet(
        &mut self,
        header: Header,
        wire: &[u8],
        read: Option<Message>,
        heard: &mut Vec<Heard>,
        reply: &mut Vec<u8>,
    ) -> Result<(), End> {
        match read {
            Some(Message::Hello(hello)) => {
                let agreed = Version::agree(&self.versions, header.version, &hello);
                let Some(version) = agreed else {
                    self.refuse(problem::HELLO_INCOMPATIBLE, header.xid, wire, reply);
                    return self.end(End::Version(header.version));
                };
                self.agreed = Some(version);
                heard.push(Heard::Up(version));
                Ok(())
            }
            Some(Message::Error(error)) => self.end(End::Refused(error.kind, error.code)),
            _ => {
                self.refuse(problem::HELLO_INCOMPATIBLE, header.xid, wire, reply);
                self.end(End::NoHello(header.kind))
            }
        }
    }

    /// Asks for a sign of life when it is time; `reply` gets the question.
    ///
    /// # Errors
    /// None came.
    pub fn tick(&mut self, now: u64, reply: &mut Vec<u8>) -> Result<(), End> {
        if let Some(end) = self.over {
            return Err(end);
        }
        let silent = now.saturating_sub(self.last);
        if self.probe == 0 || silent < self.probe {
            return Ok(());
        }
        if silent >= self.probe.saturating_mul(2) {
            return self.end(End::Silent(silent / 1_000_000_000));
        }
        if let Some(version) = self.agreed.filter(|_| !self.asked) {
            self.asked = true;
            let _ = encode(&Message::EchoRequest(Vec::new()), version, 0, reply);
        }
        Ok(())
    }

    /// When [`Self::tick`] has something to do next.
    #[must_use]
    pub const fn due(&self) -> Option<u64> {
        let spans = if self.asked || self.agreed.is_none() { 2 } else { 1 };
        if self.probe == 0 {
            None
        } else {
            Some(self.last.saturating_add(self.probe.saturating_mul(spans)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        Session::new(&Version::ALL, 5, 0)
    }

    fn bytes(message: &Message, version: Version) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(message, version, 7, &mut bytes).expect("can be said");
        bytes
    }

    #[test]
    fn the_highest_common_version_is_spoken() {
        let hello = Message::Hello(Hello { versions: Some(1 << 1 | 1 << 4) });
        let (mut heard, mut reply) = (Vec::new(), Vec::new());
        let mut one = session();
        assert_eq!(one.feed(&bytes(&hello, Version::V13), 1, &mut heard, &mut reply), Ok(()));
        assert_eq!((heard.as_slice(), reply.len()), (&[Heard::Up(Version::V13)][..], 0));
        let mut two = Session::new(&[Version::V14], 0, 0);
        let end = two.feed(&bytes(&hello, Version::V13), 1, &mut Vec::new(), &mut reply);
        assert_eq!(end, Err(End::Version(4)));
        assert!(matches!(decode(&reply), Ok((_, Message::Error(error))) if error.kind == 0));
    }

    #[test]
    fn bytes_in_any_pieces_are_the_same_messages() {
        let mut all = session().hello();
        all.extend(bytes(&Message::BarrierRequest, Version::V14));
        all.extend(bytes(&Message::EchoRequest(vec![1, 2]), Version::V14));
        all.extend(bytes(&Message::FeaturesRequest, Version::V14));
        let run = |size: usize| {
            let (mut heard, mut reply, mut one) = (Vec::new(), Vec::new(), session());
            for piece in all.chunks(size) {
                assert_eq!(one.feed(piece, 0, &mut heard, &mut reply), Ok(()));
            }
            (heard, reply)
        };
        let whole = run(all.len());
        assert_eq!((whole.0.len(), whole.1.len()), (3, 10));
        assert!((1..all.len()).all(|size| run(size) == whole));
    }

    #[test]
    fn silence_is_asked_about_and_then_the_end() {
        let (mut heard, mut reply, mut one) = (Vec::new(), Vec::new(), session());
        one.feed(&session().hello(), 10, &mut heard, &mut reply).expect("a hello");
        assert_eq!((one.tick(14, &mut reply), reply.len(), one.due()), (Ok(()), 0, Some(15)));
        assert_eq!((one.tick(15, &mut reply), reply.len()), (Ok(()), 8));
        assert_eq!((one.tick(19, &mut reply), reply.len(), one.due()), (Ok(()), 8, Some(20)));
        assert_eq!(one.tick(20, &mut reply), Err(End::Silent(0)));
    }

    #[test]
    fn what_is_no_hello_ends_it_and_a_length_of_seven_too() {
        let (mut heard, mut reply) = (Vec::new(), Vec::new());
        let barrier = bytes(&Message::BarrierRequest, Version::V13);
        assert_eq!(session().feed(&barrier, 0, &mut heard, &mut reply), Err(End::NoHello(20)));
        let mut one = session();
        one.feed(&session().hello(), 0, &mut heard, &mut reply).expect("a hello");
        reply.clear();
        let end = one.feed(&[5, 2, 0, 7, 0, 0, 0, 9], 0, &mut heard, &mut reply);
        assert_eq!(end, Err(End::Length(7)));
        assert!(matches!(decode(&reply), Ok((header, Message::Error(error)))
            if header.xid == 9 && (error.kind, error.code) == (1, 6)));
    }
}

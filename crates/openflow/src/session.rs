//! One connection as plain calls: it splits bytes into messages, agrees on the version, and checks
//! that the peer is alive.
//!
//! ```text
//!   bytes ── feed ──> hello? agree on a version ──> Heard::Up
//!                └──> messages of that version ──> Heard::Message
//!                └──> malformed messages, and echo requests ──> answered at once
//!   tick ──> no bytes for a while? send an echo request; for twice as long? End::Silent
//! ```
//!
//! Both ends behave in the same way: a switch and its controller exchange the same greetings
//! (1.3.5, section 6.3.1).
//!
//! Invariants: after an [`End`] nothing is read any more. At most one incomplete message and the
//! bytes of one call are stored. Every malformed message is answered with one error.
//! Thread-safety: plain data. Time is an argument, in nanoseconds.

use crate::message::Hello;
use crate::problem::{self, Problem};
use crate::{Header, Message, Version, decode, encode};

/// An event of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Heard {
    /// Both sides have sent a hello; this is the version that they agreed on.
    Up(Version),
    /// A message.
    Message {
        /// The xid.
        xid: u32,
        /// The message.
        message: Message,
    },
}

/// The reason why a session ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum End {
    /// The sides have no version in common.
    #[error(
        "no OpenFlow version in common: the other side supports {0}; allow the same version on both sides"
    )]
    Version(u8),
    /// The first message was another one.
    #[error("the first message is of type {0}, not a hello; is this an OpenFlow port?")]
    NoHello(u8),
    /// The start of the next message is unknown.
    #[error("the length field of a message is {0}, but the header alone has 8 bytes")]
    Length(u16),
    /// The other side sent nothing.
    #[error("the other side sent nothing for {0} s and did not answer an echo request")]
    Silent(u64),
    /// The other side refused the versions.
    #[error("the other side refused the version: error type {0}, code {1}")]
    Refused(u16, u16),
}

/// A connection's state.
#[derive(Debug)]
pub struct Session {
    versions: Vec<Version>,
    agreed: Option<Version>,
    buffer: Vec<u8>,
    last: u64,
    /// Whether an echo request was sent since then.
    asked: bool,
    probe: u64,
    over: Option<End>,
}

impl Session {
    /// A session that supports `versions`. After `probe` nanoseconds without bytes it sends an echo
    /// request, and after twice that time the session ends; with 0 it never does.
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

    /// The hello with which the session begins.
    #[must_use]
    pub fn hello(&self) -> Vec<u8> {
        let best = self.versions.iter().copied().max().unwrap_or_default();
        let map = self.versions.iter().fold(0, |map, version| map | 1 << *version as u8);
        let hello = Message::Hello(Hello { versions: Some(map) });
        let mut bytes = Vec::new();
        // Every version can express a hello.
        let _ = encode(&hello, best, 0, &mut bytes);
        bytes
    }

    /// Takes received bytes. Events are added to `heard`, and bytes to send at once to `reply`.
    ///
    /// # Errors
    /// When the session has ended; `reply` may contain a last message.
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
        // Every version can express an error with at most 64 bytes of data.
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
            // The reply to the request of `tick`; others were requested by the owner of the session.
            Ok(Message::EchoReply(_)) if header.xid == 0 => return Ok(()),
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
                let agreed = Version::agree(&self.versions, header.version, hello.versions);
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

    /// Sends an echo request if it is time for one; its bytes are added to `reply`.
    ///
    /// # Errors
    /// When the other side did not answer the last one.
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

    /// The time at which [`Self::tick`] must be called next.
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
        encode(message, version, 7, &mut bytes).expect("the version has the message");
        bytes
    }

    #[test]
    fn a_session_uses_the_highest_common_version() {
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
    fn messages_do_not_depend_on_how_bytes_are_split() {
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
    fn a_silent_peer_gets_an_echo_request_and_then_the_session_ends() {
        let (mut heard, mut reply, mut one) = (Vec::new(), Vec::new(), session());
        one.feed(&session().hello(), 10, &mut heard, &mut reply).expect("a hello");
        assert_eq!((one.tick(14, &mut reply), reply.len(), one.due()), (Ok(()), 0, Some(15)));
        assert_eq!((one.tick(15, &mut reply), reply.len()), (Ok(()), 8));
        assert_eq!((one.tick(19, &mut reply), reply.len(), one.due()), (Ok(()), 8, Some(20)));
        assert_eq!(one.tick(20, &mut reply), Err(End::Silent(0)));
    }

    #[test]
    fn a_first_message_that_is_not_a_hello_or_a_length_below_8_ends_the_session() {
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

//! OpenFlow client for the command line: queries, changes and monitors a switch as a controller does.
//!
//! Thread-safety: used by one thread.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use flowyard_openflow::bundle::{Bundle, BundleAdd};
use flowyard_openflow::message::ErrorMessage;
use flowyard_openflow::problem::{self, Problem};
use flowyard_openflow::session::{End, Heard, Session};
use flowyard_openflow::{Message, Version, encode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::endpoint::Endpoint;
use super::link::{Dialed, dial};
use super::sync::clock;
use super::tls::Loaded;

/// A request to a switch failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection could not be opened.
    #[error("{0}: {1}; is the switch running, and does it listen on this address (ptcp:, punix:)?")]
    Connect(String, io::Error),
    /// The connection failed.
    #[error("the connection to the switch failed: {0}")]
    Io(#[from] io::Error),
    /// The protocol session ended.
    #[error(transparent)]
    End(#[from] End),
    /// No response arrived in time.
    #[error("the switch did not respond within {0} s")]
    Silent(u64),
    /// The switch answered with an error message.
    #[error("the switch refused the request: {0}")]
    Refused(String),
    /// The message cannot be encoded in the negotiated version.
    #[error(
        "the request cannot be written in OpenFlow {0}: {1}; or choose another version with -O"
    )]
    Unsayable(&'static str, Problem),
}

/// The number of a version, as `1.3`.
#[must_use]
pub const fn name(version: Version) -> &'static str {
    match version {
        Version::V10 => "1.0",
        Version::V13 => "1.3",
        Version::V14 => "1.4",
    }
}

/// The meaning of an error message, with its type and code.
#[must_use]
pub fn words(error: &ErrorMessage, version: Version) -> String {
    let same = |problem: &&Problem| {
        let wire = problem.on_wire(version);
        (wire.kind, wire.code) == (error.kind, error.code)
    };
    let (kind, code) = (error.kind, error.code);
    match problem::ALL.iter().find(same) {
        Some(problem) => format!("{} (error type {kind}, code {code})", problem.why),
        None => format!("error type {kind}, code {code}"),
    }
}

/// A change that the switch refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// The index of the change.
    pub index: usize,
    /// The meaning of the error message.
    pub why: String,
}

/// The result of a bundle.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Bundled {
    /// All changes are in force.
    Done,
    /// No change is in force, because this one was refused.
    Refused(Refused),
    /// No change was sent: the switch has no bundles, with the reason.
    Unsupported(String),
}

/// The number of a bundle. A client has one at a time.
const BUNDLE: u32 = 1;
/// `OFPBF_ATOMIC` and `OFPBF_ORDERED`.
const ATOMIC: u16 = 3;

/// A connection to a switch.
#[derive(Debug)]
pub struct Client {
    link: Dialed,
    session: Session,
    version: Version,
    heard: VecDeque<(u32, Message)>,
    next: u32,
    patience: Duration,
    from: Instant,
}

impl Client {
    /// Connects and negotiates one of `versions`. Every later request fails if it has no response within
    /// `patience`.
    ///
    /// # Errors
    /// The connection could not be opened, or there is no common version.
    pub fn connect(
        endpoint: &Endpoint,
        versions: &[Version],
        tls: Option<&Loaded>,
        patience: Duration,
    ) -> Result<Self, ClientError> {
        let refused = |error| ClientError::Connect(endpoint.to_string(), error);
        let link = dial(endpoint, tls).map_err(refused)?;
        let session = Session::new(versions, 0, 0);
        let mut client = Self {
            link,
            version: Version::default(),
            heard: VecDeque::new(),
            next: 1,
            patience,
            from: clock(),
            session,
        };
        let hello = client.session.hello();
        client.send(hello)?;
        let from = clock();
        while client.session.version().is_none() {
            client.pump(from)?;
        }
        client.version = client.session.version().unwrap_or_default();
        Ok(client)
    }

    /// The negotiated version.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    fn send(&mut self, mut bytes: Vec<u8>) -> Result<(), ClientError> {
        let from = clock();
        while !bytes.is_empty() || self.link.wants_write() {
            self.link.send(&mut bytes)?;
            if !bytes.is_empty() {
                self.wait(PollFlags::OUT | PollFlags::IN, Duration::from_millis(100))?;
                self.take()?;
                self.silence(from)?;
            }
        }
        Ok(())
    }

    fn silence(&self, from: Instant) -> Result<(), ClientError> {
        let over = from.elapsed() > self.patience;
        if over { Err(ClientError::Silent(self.patience.as_secs())) } else { Ok(()) }
    }

    fn wait(&self, mut wants: PollFlags, span: Duration) -> io::Result<()> {
        if self.link.wants_write() {
            wants |= PollFlags::OUT;
        }
        let time = Timespec { tv_sec: span.as_secs() as _, tv_nsec: span.subsec_nanos().into() };
        match poll(&mut [PollFd::from_borrowed_fd(self.link.fd(), wants)], Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the messages that have arrived, and answers echo requests.
    fn take(&mut self) -> Result<(), ClientError> {
        let mut bytes = Vec::new();
        let ended = self.link.receive(&mut bytes);
        let (mut heard, mut reply) = (Vec::new(), Vec::new());
        let now = self.from.elapsed().as_nanos() as u64;
        self.session.feed(&bytes, now, &mut heard, &mut reply)?;
        for one in heard {
            if let Heard::Message { xid, message } = one {
                self.heard.push_back((xid, message));
            }
        }
        ended?;
        if !reply.is_empty() {
            self.link.send(&mut reply)?;
        }
        Ok(())
    }

    fn pump(&mut self, from: Instant) -> Result<(), ClientError> {
        self.silence(from)?;
        self.wait(PollFlags::IN, Duration::from_millis(100))?;
        self.link.send(&mut Vec::new())?;
        self.take()
    }

    /// Sends a message and returns its transaction ID.
    ///
    /// # Errors
    /// The version cannot express the message, or the connection failed.
    pub fn tell(&mut self, message: &Message) -> Result<u32, ClientError> {
        let xid = self.next;
        self.next = self.next.wrapping_add(1).max(1);
        let mut bytes = Vec::new();
        encode(message, self.version, xid, &mut bytes)
            .map_err(|problem| ClientError::Unsayable(name(self.version), problem))?;
        self.send(bytes)?;
        Ok(xid)
    }

    /// Sends a request and returns the replies; a multipart request may have several.
    ///
    /// # Errors
    /// The switch refused the request or did not respond, or the connection failed.
    pub fn ask(&mut self, message: &Message) -> Result<Vec<Message>, ClientError> {
        let xid = self.tell(message)?;
        let mut answers = Vec::new();
        let mut from = clock();
        loop {
            let Some((found, message)) = self.heard.pop_front() else {
                self.pump(from)?;
                continue;
            };
            if found != xid {
                continue;
            }
            // The timeout begins again with each part of a long reply.
            from = clock();
            let more = match &message {
                Message::Error(error) => {
                    return Err(ClientError::Refused(words(error, self.version)));
                }
                Message::MultipartReply { more, .. } => *more,
                _ => false,
            };
            answers.push(message);
            if !more {
                return Ok(answers);
            }
        }
    }

    /// Sends changes one by one and waits until they are in force. Returns the changes that were
    /// refused; the others are in force.
    ///
    /// # Errors
    /// The switch did not respond, or the connection failed.
    pub fn change(&mut self, messages: &[Message]) -> Result<Vec<Refused>, ClientError> {
        let first = self.next;
        for message in messages {
            self.tell(message)?;
        }
        let barrier = self.tell(&Message::BarrierRequest)?;
        let (errors, _) = self.until(barrier)?;
        let most = messages.len().saturating_sub(1);
        Ok(errors.iter().map(|error| self.refused(error, first, most)).collect())
    }

    /// Sends changes as one bundle, and waits until they are in force. If one is refused, no change is
    /// made.
    ///
    /// # Errors
    /// The switch did not respond, or the connection failed.
    pub fn bundle(&mut self, messages: &[Message]) -> Result<Bundled, ClientError> {
        let control = |control| {
            Message::Bundle(Bundle { id: BUNDLE, control, flags: ATOMIC, properties: Vec::new() })
        };
        if self.version == Version::V10 {
            return Ok(Bundled::Unsupported("OpenFlow 1.0 has no bundles".into()));
        }
        match self.ask(&control(0)) {
            Err(ClientError::Refused(why)) => return Ok(Bundled::Unsupported(why)),
            opened => drop(opened?),
        }
        let first = self.next;
        for message in messages {
            // The message has the transaction ID of the request that adds it.
            let mut bytes = Vec::new();
            encode(message, self.version, self.next, &mut bytes)
                .map_err(|problem| ClientError::Unsayable(name(self.version), problem))?;
            let add =
                BundleAdd { id: BUNDLE, flags: ATOMIC, message: bytes, properties: Vec::new() };
            self.tell(&Message::BundleAdd(add))?;
        }
        let most = messages.len().saturating_sub(1);
        // Errors about the messages arrive before the reply.
        let closed = self.tell(&control(2))?;
        let (errors, _) = self.until(closed)?;
        if let Some(error) = errors.first() {
            let _discarded = self.ask(&control(6));
            return Ok(Bundled::Refused(self.refused(error, first, most)));
        }
        let committed = self.tell(&control(4))?;
        let (errors, reply) = self.until(committed)?;
        match (errors.first(), &reply) {
            (Some(error), _) | (None, Message::Error(error)) => {
                Ok(Bundled::Refused(self.refused(error, first, most)))
            }
            _ => Ok(Bundled::Done),
        }
    }

    /// The errors that arrive before the reply to request `last`, and that reply.
    fn until(&mut self, last: u32) -> Result<(Vec<ErrorMessage>, Message), ClientError> {
        let (mut errors, mut from) = (Vec::new(), clock());
        loop {
            match self.heard.pop_front() {
                Some((xid, message)) if xid == last => return Ok((errors, message)),
                Some((_, Message::Error(error))) => {
                    errors.push(error);
                    from = clock();
                }
                Some(_) => {}
                None => self.pump(from)?,
            }
        }
    }

    /// The change that an error is about. `first` is the transaction ID of the change at index 0.
    fn refused(&self, error: &ErrorMessage, first: u32, most: usize) -> Refused {
        // The error contains the header of the request, with its transaction ID.
        let xid = flowyard_openflow::Header::read(&error.data).map_or(first, |header| header.xid);
        let index = (xid.wrapping_sub(first) as usize).min(most);
        Refused { index, why: words(error, self.version) }
    }

    /// The next asynchronous message; `None` if none arrived within `span`.
    ///
    /// # Errors
    /// The connection failed.
    pub fn news(&mut self, span: Duration) -> Result<Option<(u32, Message)>, ClientError> {
        if self.heard.is_empty() {
            self.wait(PollFlags::IN, span)?;
            self.take()?;
        }
        Ok(self.heard.pop_front())
    }
}

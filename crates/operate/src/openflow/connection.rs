//! One connection: reads and writes messages, and sends echo requests when it is idle.
//!
//! Thread-safety: one thread, which shares an [`Outbox`] with the agent's thread.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use flowyard_openflow::Version;
use flowyard_openflow::agent::weight;
use flowyard_openflow::session::{Heard, Session};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::link::Dialed;
use super::outbox::{Outbox, PLENTY};
use super::shared::{ENDS, Event, Part, Shared, Status};
use super::sync::{clock, lock};

/// The reason for the end of a connection, as text.
type Why = String;

/// Runs a connection to its end. `up` is called when a version has been negotiated.
pub(super) fn run(
    link: Dialed,
    part: Part,
    shared: &Shared,
    status: &Arc<Mutex<Status>>,
    outbox: &Arc<Outbox>,
    up: &mut dyn FnMut(Version),
) -> Why {
    let probe = shared.config.probe.as_nanos() as u64;
    let session = Session::new(&shared.config.versions, probe, 0);
    let from = clock();
    let hello_timeout = (!part.dialed).then_some(shared.config.hello_timeout.as_nanos() as u64);
    let mut running = Running {
        link,
        part,
        session,
        from,
        hello_timeout,
        out: Vec::new(),
        last: Vec::new(),
        is_up: false,
        heard: VecDeque::new(),
        ends: None,
    };
    let why = running.all(shared, status, outbox, up);
    // The final error message is sent if the connection still accepts it.
    let mut last = std::mem::take(&mut running.last);
    let _ = running.link.send(&mut last);
    if running.is_up {
        let _ = shared.tell(Event::Down(part.number), || false);
    }
    let mut status = lock(status);
    status.version = None;
    status.error.clone_from(&why);
    why
}

struct Running {
    link: Dialed,
    part: Part,
    session: Session,
    from: Instant,
    /// Until then, a connection that a controller has opened must be up, whatever arrives. Otherwise peers that need no
    /// certificate, or never end the handshake of TLS, would keep all connections of a listener.
    hello_timeout: Option<u64>,
    /// Bytes that are being sent.
    out: Vec<u8>,
    /// The error message with which the session ended.
    last: Vec<u8>,
    /// Whether the agent was notified that the connection is up.
    is_up: bool,
    /// Messages for which the agent has no room yet.
    heard: VecDeque<Heard>,
    /// Why the connection ends when they are handed on.
    ends: Option<Why>,
}

/// The longest time until messages that wait for room are tried again.
const BEHIND: Duration = Duration::from_millis(5);

impl Running {
    fn now(&self) -> u64 {
        self.from.elapsed().as_nanos() as u64
    }

    fn all(
        &mut self,
        shared: &Shared,
        status: &Arc<Mutex<Status>>,
        outbox: &Arc<Outbox>,
        up: &mut dyn FnMut(Version),
    ) -> Why {
        self.out = self.session.hello();
        let mut bytes = Vec::new();
        loop {
            if let Err(why) = outbox.take(&mut self.out) {
                return why.into();
            }
            if let Err(error) = self.link.send(&mut self.out) {
                return self.ends.take().unwrap_or_else(|| error.to_string());
            }
            if self.out.is_empty() && outbox.has_more() {
                continue;
            }
            let (sent, dropped) = outbox.counts();
            {
                let mut status = lock(status);
                (status.sent, status.dropped) = (sent, dropped);
            }
            if let Err(why) = self.hand_on(shared, status, outbox, up) {
                return why;
            }
            let is_behind = !self.heard.is_empty();
            match self.ends.take() {
                Some(why) if !is_behind => {
                    self.last = std::mem::take(&mut self.out);
                    return why;
                }
                Some(why) => {
                    self.ends = Some(why);
                    std::thread::sleep(BEHIND);
                    continue;
                }
                None if self.until_hello() == Some(0) => {
                    return "there was no complete hello in time".into();
                }
                None => {}
            }
            let paused = is_behind || self.out.len().max(outbox.waiting()) > PLENTY;
            match self.wait(outbox, paused) {
                Ok(true) if !paused => self.hear(&mut bytes, status),
                Ok(_) => {
                    let now = self.now();
                    // While reading is paused the session is idle. If the controller never reads, the
                    // send queue fills and the connection ends.
                    let mut reply = Vec::new();
                    if let Err(end) = self.session.tick(now, &mut reply) {
                        return end.to_string();
                    }
                    self.out.append(&mut reply);
                }
                Err(error) => return error.to_string(),
            }
        }
    }

    /// The time that is left for the connection to come up, if that is limited.
    fn until_hello(&self) -> Option<u64> {
        self.hello_timeout.filter(|_| !self.is_up).map(|end| end.saturating_sub(self.now()))
    }

    /// Reads what has arrived.
    fn hear(&mut self, bytes: &mut Vec<u8>, status: &Arc<Mutex<Status>>) {
        bytes.clear();
        let ended = self.link.receive(bytes);
        let now = self.now();
        let mut heard = Vec::new();
        let fed = self.session.feed(bytes, now, &mut heard, &mut self.out);
        lock(status).received += heard.len() as u64;
        self.heard.extend(heard);
        self.ends = match (fed, ended) {
            (Err(end), _) => Some(end.to_string()),
            (Ok(()), Err(error)) => Some(error.to_string()),
            (Ok(()), Ok(())) => None,
        };
    }

    /// Gives the agent what was heard, as far as there is room for it.
    fn hand_on(
        &mut self,
        shared: &Shared,
        status: &Arc<Mutex<Status>>,
        outbox: &Arc<Outbox>,
        up: &mut dyn FnMut(Version),
    ) -> Result<(), Why> {
        while let Some(one) = self.heard.pop_front() {
            let event = match one {
                Heard::Up(version) => {
                    up(version);
                    {
                        let mut status = lock(status);
                        (status.version, status.failed) = (Some(version), 0);
                        status.ups += 1;
                    }
                    self.is_up = true;
                    let who = lock(status).who();
                    Event::Up { part: self.part, version, outbox: Arc::clone(outbox), who }
                }
                Heard::Message { xid, message } => {
                    let Some(ticket) = shared.gate.enter(outbox, weight(&message)) else {
                        self.heard.push_front(Heard::Message { xid, message });
                        return Ok(());
                    };
                    Event::Message { from: self.part.number, xid, message, ticket }
                }
            };
            if !shared.tell(event, || outbox.is_closed()) {
                return Err(outbox.closed().unwrap_or(ENDS).into());
            }
        }
        Ok(())
    }

    /// Waits until there is something to read, to write or to send, or a timer is due. Returns whether
    /// there is something to read.
    fn wait(&self, outbox: &Outbox, paused: bool) -> io::Result<bool> {
        let mut wants = PollFlags::empty();
        if !paused {
            wants |= PollFlags::IN;
        }
        if !self.out.is_empty() || self.link.wants_write() {
            wants |= PollFlags::OUT;
        }
        let due = self.session.due().unwrap_or(u64::MAX).saturating_sub(self.now());
        let due = due.min(self.until_hello().unwrap_or(u64::MAX)).min(1_000_000_000);
        let mut span = Duration::from_nanos(due) + Duration::from_millis(1);
        if !self.heard.is_empty() {
            // Room may also be given back by other connections.
            span = BEHIND;
        }
        let time = Timespec { tv_sec: span.as_secs() as _, tv_nsec: span.subsec_nanos().into() };
        let mut fds = [
            PollFd::from_borrowed_fd(self.link.fd(), wants),
            PollFd::from_borrowed_fd(outbox.event().as_fd(), PollFlags::IN),
        ];
        match poll(&mut fds, Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let found = fds[0].revents();
        if paused && found.contains(PollFlags::HUP) && !self.heard.is_empty() {
            // The agent still gets what the controller has sent.
            std::thread::sleep(BEHIND);
            return Ok(false);
        }
        if paused && found.contains(PollFlags::HUP) {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the controller closed the connection",
            ));
        }
        Ok(found.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR))
    }
}

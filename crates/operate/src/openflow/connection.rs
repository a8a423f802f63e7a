//! One connection: reads and writes messages, and sends echo requests when it is idle.
//!
//! Thread-safety: one thread, which shares an [`Outbox`] with the agent's thread.

use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use flowyard_openflow::Version;
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
    let mut running =
        Running { link, part, session, from, out: Vec::new(), last: Vec::new(), is_up: false };
    let why = running.all(shared, status, outbox, up);
    // The final error message is sent if the connection still accepts it.
    let mut last = std::mem::take(&mut running.last);
    let _ = running.link.send(&mut last);
    if running.is_up {
        let _ = shared.events.send(Event::Down(part.number));
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
    /// Bytes that are being sent.
    out: Vec<u8>,
    /// The error message with which the session ended.
    last: Vec<u8>,
    /// Whether the agent was notified that the connection is up.
    is_up: bool,
}

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
        let mut heard = Vec::new();
        loop {
            if let Err(why) = outbox.take(&mut self.out) {
                return why.into();
            }
            if let Err(error) = self.link.send(&mut self.out) {
                return error.to_string();
            }
            let (sent, dropped) = outbox.counts();
            {
                let mut status = lock(status);
                (status.sent, status.dropped) = (sent, dropped);
            }
            let paused = self.out.len() + outbox.waiting() > PLENTY;
            match self.wait(outbox, paused) {
                Ok(true) if !paused => {}
                Ok(_) => {
                    let now = self.now();
                    // While reading is paused the session is idle. If the controller never reads, the
                    // send queue fills and the connection ends.
                    let mut reply = Vec::new();
                    if let Err(end) = self.session.tick(now, &mut reply) {
                        return end.to_string();
                    }
                    self.out.append(&mut reply);
                    continue;
                }
                Err(error) => return error.to_string(),
            }
            bytes.clear();
            let ended = self.link.receive(&mut bytes);
            let mut reply = Vec::new();
            let now = self.now();
            let fed = self.session.feed(&bytes, now, &mut heard, &mut reply);
            lock(status).received += heard.len() as u64;
            for one in heard.drain(..) {
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
                        let outbox = Arc::clone(outbox);
                        Event::Up { part: self.part, version, outbox, who }
                    }
                    Heard::Message { xid, message } => {
                        Event::Message { from: self.part.number, xid, message }
                    }
                };
                if shared.events.send(event).is_err() {
                    return ENDS.into();
                }
            }
            self.out.append(&mut reply);
            if let Err(end) = fed {
                self.last = std::mem::take(&mut self.out);
                return end.to_string();
            }
            if let Err(error) = ended {
                return error.to_string();
            }
        }
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
        let span = Duration::from_nanos(due.min(1_000_000_000)) + Duration::from_millis(1);
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
        if paused && found.contains(PollFlags::HUP) {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the controller closed the connection",
            ));
        }
        Ok(found.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR))
    }
}

//! The thread of an interface: accepts or connects, hands rings to the cores, and takes them back.
//!
//! ```text
//!  control thread ── Link ──> Shared ──(generation)──> Queue of core 0: its receivers, its sender
//!         ^                     │                  └─> Queue of core 1: ...
//!         └── broken, wake-ups ─┴──────────────────────── Queue
//! ```
//!
//! Cores make no system call, except one that wakes this thread when the peer sleeps until it is woken. This thread
//! wakes the peer, so a peer whose descriptor blocks stops its own interface only.
//! Thread-safety: `Shared` is locked when a connection begins or ends. A ring that several cores transmit into,
//! because the peer has fewer rings than there are cores, has a lock.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, connect};
use rustix::thread::{sched_getaffinity, sched_setaffinity};

use crate::channel::{OpenError, address, listener, receive, send, seqpacket};
use crate::handshake::{Attach, Client, Reply, Server, Step};
use crate::link::{Link, Memory};
use crate::message::Message;
use crate::receive::Receiver;
use crate::shared::{Port, Queue, Shared, Thread, lock};
use crate::{Role, Settings};

/// What is reported: connections, their ends, and the reasons.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// How long the other side may take for the handshake.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time between two attempts to reach the server.
const RETRY: Duration = Duration::from_millis(200);
/// A round of the thread without events.
const ROUND: Duration = Duration::from_millis(200);

/// Opens an interface for `cores` cores. No thread starts before the first [`RxQueue::attend`](crate::RxQueue::attend), so that a process can
/// give up privileges in between: threads that run already would keep them.
///
/// # Errors
/// When the socket cannot be created, or another program listens on it.
pub fn open(settings: &Settings, cores: usize, log: Log) -> Result<Port, OpenError> {
    let failed = |what: &str, error: &dyn std::fmt::Display, fix: &str| OpenError {
        what: format!("memif '{}': {what}: {error}", settings.socket.display()),
        fix: fix.to_owned(),
    };
    let shared = Shared::new(cores).map_err(|error| {
        failed("creating an eventfd", &error, "raise the limit of open files (ulimit -n)")
    })?;
    let shared = Arc::new(shared);
    let listener = match settings.role {
        Role::Server => {
            let socket = listener(&settings.socket)?;
            Some(Listening { socket, path: settings.socket.clone() })
        }
        Role::Client => {
            address(&settings.socket)?;
            None
        }
    };
    let mut control = Control {
        settings: settings.clone(),
        shared: Arc::clone(&shared),
        log: Arc::clone(&log),
        wakers: Vec::new(),
        session: None,
        skips_listener: false,
        refused: None,
    };
    // The core that starts the thread may be pinned to a CPU; the thread must not share that CPU with it.
    let cpus = sched_getaffinity(None);
    let run = move || {
        if let Ok(cpus) = cpus {
            let _inherited = sched_setaffinity(None, &cpus);
        }
        match listener {
            Some(listening) => control.serve(&listening.socket),
            None => control.call(),
        }
    };
    let thread = Arc::new(Thread::new(Arc::clone(&shared), settings.id, log, Box::new(run)));
    let queues = (0..cores).map(|at| Queue::new(&shared, &thread, at)).collect();
    Ok(Port { queues })
}

/// A listening socket, whose file is removed when it is closed.
struct Listening {
    socket: OwnedFd,
    path: PathBuf,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _gone = fs::remove_file(&self.path);
    }
}

/// A connection of the control channel.
struct Session {
    socket: OwnedFd,
    side: Side,
    is_connected: bool,
    since: Instant,
}

enum Side {
    Server(Server<OwnedFd>),
    Client { client: Client, memory: Option<Memory>, fds: Vec<OwnedFd> },
}

/// What the thread owns.
struct Control {
    settings: Settings,
    shared: Arc<Shared>,
    log: Log,
    /// By sender: what wakes the peer.
    wakers: Vec<OwnedFd>,
    session: Option<Session>,
    /// A connection could not be accepted in the last round.
    skips_listener: bool,
    /// Why a connection could not be accepted, as it was logged.
    refused: Option<Errno>,
}

#[allow(
    clippy::disallowed_methods,
    reason = "limits the time that a client takes; no frame sees this clock"
)]
fn clock() -> Instant {
    Instant::now()
}

impl Control {
    /// The server: one client at a time.
    fn serve(&mut self, listener: &OwnedFd) {
        while !self.shared.stops.load(Ordering::Acquire) {
            // A listener whose connection could not be accepted stays readable.
            let listens = !std::mem::take(&mut self.skips_listener);
            let [_, calls, talks] = self.wait(listens.then(|| listener.as_fd()));
            self.common();
            // First what the client has said: it may have gone, and the next one may call already.
            if talks {
                self.listen();
            }
            if calls {
                self.answer(listener);
            }
            self.end_late();
        }
        self.end("the interface is closed");
    }

    /// Accepts a connection. If that fails, leaves the listener alone in the next round, because the connection waits there.
    fn answer(&mut self, listener: &OwnedFd) {
        match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => {
                self.refused = None;
                self.accept(socket);
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
            Err(error) => {
                self.skips_listener = true;
                if self.refused.replace(error) != Some(error) {
                    (self.log)(&format!("a client cannot be accepted: {error}"));
                }
            }
        }
    }

    /// The client: calls the server until it answers.
    fn call(&mut self) {
        while !self.shared.stops.load(Ordering::Acquire) {
            if self.session.is_none() {
                self.dial();
            }
            let [_, _, talks] = self.wait(None);
            self.common();
            if talks {
                self.listen();
            }
            self.end_late();
        }
        self.end("the interface is closed");
    }

    /// Ends a session whose peer has not completed the handshake for too long.
    fn end_late(&mut self) {
        let is_late = |session: &Session| {
            !session.is_connected && clock().duration_since(session.since) > PATIENCE
        };
        if self.session.as_ref().is_some_and(is_late) {
            self.end("the other side did not answer within 2 s");
        }
    }

    /// Waits for events: wake-ups, calls, messages.
    fn wait(&self, listener: Option<BorrowedFd<'_>>) -> [bool; 3] {
        let session = self.session.as_ref().map(|session| session.socket.as_fd());
        let named = [Some(self.shared.wake.as_fd()), listener, session];
        let mut fds: Vec<_> =
            named.iter().flatten().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        let time = if session.is_none() { RETRY } else { ROUND };
        let time = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
        if poll(&mut fds, Some(&time)).is_err() {
            return [false; 3];
        }
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        named.map(|fd| fd.is_some() && ready.next().unwrap_or(false))
    }

    /// What cores have asked for.
    fn common(&mut self) {
        let mut count = [0; 8];
        let _nothing = rustix::io::read(&self.shared.wake, &mut count);
        let sleepers = self.shared.sleepers.swap(0, Ordering::Acquire);
        for (at, waker) in self.wakers.iter().enumerate() {
            if sleepers >> (at % 64) & 1 != 0 {
                let _full = rustix::io::write(waker, &1_u64.to_ne_bytes());
            }
        }
        let broken = lock(&self.shared.broken).take();
        if let Some(why) = broken {
            self.end(&why);
        }
    }

    fn accept(&mut self, socket: OwnedFd) {
        if self.session.is_some() {
            let reason = "another client is connected".to_owned();
            let _left = send(&socket, &Message::Disconnect { code: 1, reason }, None);
            return;
        }
        let server = Server::new(self.settings.clone());
        if send(&socket, &server.hello(), None).is_ok() {
            let side = Side::Server(server);
            self.session = Some(Session { socket, side, is_connected: false, since: clock() });
        }
    }

    fn dial(&mut self) {
        let Ok(at) = address(&self.settings.socket) else { return };
        let Ok(socket) = seqpacket() else { return };
        if connect(&socket, &at).is_ok() {
            let client = Client::new(self.settings.clone());
            let side = Side::Client { client, memory: None, fds: Vec::new() };
            self.session = Some(Session { socket, side, is_connected: false, since: clock() });
        }
    }

    /// Ends the session, and tells the peer why.
    fn end(&mut self, why: &str) {
        let Some(session) = self.session.take() else { return };
        let message = Message::Disconnect { code: 0, reason: why.to_owned() };
        let _left = send(&session.socket, &message, None);
        if session.is_connected {
            self.shared.publish(None);
            self.wakers.clear();
            (self.log)(&format!("disconnected: {why}"));
        } else {
            (self.log)(&format!("not connected: {why}"));
        }
    }

    /// Takes the messages that have come.
    fn listen(&mut self) {
        while let Some(session) = &mut self.session {
            let (message, fd) = match receive(&session.socket) {
                Ok(Some(got)) => got,
                Ok(None) => return,
                Err(why) => return self.end(&why),
            };
            let step = match &mut session.side {
                Side::Server(server) => server.receive(message, fd).map(After::from),
                Side::Client { client, .. } => client.receive(&message).map(After::from),
            };
            if let Err(why) = step.and_then(|after| self.act(after)) {
                return self.end(&why);
            }
        }
    }

    fn act(&mut self, after: After) -> Result<(), String> {
        let session = self.session.as_mut().ok_or("the connection has ended")?;
        match after {
            After::Send(message, attach) => {
                let fd = session.side.fd(attach, &self.settings)?;
                send(&session.socket, &message, fd)
            }
            After::Ended(why) => Err(format!("by the other side: {why}")),
            After::Adopt(parts, message) => {
                let name = parts.name.clone();
                let link = Link::adopt(*parts)?;
                send(&session.socket, &message, None)?;
                self.connected(&name, link);
                Ok(())
            }
            After::Connected(name) => {
                let Side::Client { memory, .. } = &mut session.side else { return Ok(()) };
                let memory = memory.take().ok_or("CONNECTED came twice")?;
                let link = memory.link();
                link.receivers.iter().for_each(Receiver::give_again);
                self.connected(&name, link);
                Ok(())
            }
        }
    }

    fn connected(&mut self, name: &str, link: Link) {
        let Link { receivers, senders, wakers } = link;
        let (to, from) = (senders.len(), receivers.len());
        if let Some(session) = &mut self.session {
            session.is_connected = true;
        }
        self.wakers = wakers;
        self.shared.publish(Some((receivers, senders)));
        (self.log)(&format!("connected with '{name}': {from} rings to receive, {to} to transmit"));
    }
}

/// What follows a message.
enum After {
    Send(Message, Attach),
    Adopt(Box<crate::handshake::Parts<OwnedFd>>, Message),
    Connected(String),
    Ended(String),
}

impl From<Reply<OwnedFd>> for After {
    fn from(reply: Reply<OwnedFd>) -> Self {
        match reply {
            Reply::Send(message) => Self::Send(message, Attach::Nothing),
            Reply::Connect(parts, message) => Self::Adopt(Box::new(parts), message),
            Reply::Ended(why) => Self::Ended(why),
        }
    }
}

impl From<Step> for After {
    fn from(step: Step) -> Self {
        match step {
            Step::Send(message, attach) => Self::Send(message, attach),
            Step::Connected(name) => Self::Connected(name),
            Step::Ended(why) => Self::Ended(why),
        }
    }
}

impl Side {
    /// The descriptor for a message of the client. The memory is created with the first one.
    fn fd(&mut self, attach: Attach, _: &Settings) -> Result<Option<BorrowedFd<'_>>, String> {
        let Self::Client { client, memory, fds } = self else { return Ok(None) };
        let new = || {
            let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            eventfd(0, flags).map_err(|error| format!("creating an eventfd: {error}"))
        };
        match attach {
            Attach::Nothing => Ok(None),
            Attach::Memory => {
                let layout = client.layout().ok_or("the server's limits are unknown")?;
                let wakers: Result<Vec<_>, _> = (0..layout.rings.0).map(|_| new()).collect();
                let wakers = wakers?;
                let copy = |fd: &OwnedFd| fd.try_clone().map_err(|error| error.to_string());
                *fds = wakers.iter().map(copy).collect::<Result<_, _>>()?;
                for _ in 0..layout.rings.1 {
                    fds.push(new()?); // the server wakes by it; nobody sleeps here
                }
                fds.reverse(); // in the order of the rings, from the end
                let created = memory.insert(Memory::create(layout, wakers)?);
                Ok(Some(created.fd.as_fd()))
            }
            Attach::Ring => {
                // Kept until the next one is sent.
                let fd = fds.pop().ok_or("there are more rings than descriptors")?;
                fds.insert(0, fd);
                Ok(fds.first().map(AsFd::as_fd))
            }
        }
    }
}

//! The thread of a port: accepts or connects, handles messages, and calls guests for the cores.
//!
//! ```text
//!  front end <──socket──> control thread ── Device ──(handover)──> Queue of core 0: its receivers, its sender
//!                                ^                             └─> Queue of core 1: ...
//!                                └── broken rings, calls ──────────── Queue
//! ```
//!
//! Cores make no system call, except one that wakes this thread when a guest wants to be called. The
//! descriptor of a call belongs to the front end, which could make it block; it then stops this thread, and
//! its own port only.
//! Thread-safety: everything here belongs to the thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use vhost::vhost_user::{BackendReqHandler, Error};

use crate::channel::{OpenError, check, listener};
use crate::device::{Device, Seats};
use crate::early;
use crate::handover::seat;
use crate::shared::{Port, Queue, RxQueue, Shared, Thread, TxQueue, lock};
use crate::{Log, Role, Settings};

/// Time between two attempts to reach the front end.
const RETRY: Duration = Duration::from_millis(200);
/// A round of the thread without events.
const ROUND: Duration = Duration::from_millis(500);

/// Opens a port for `cores` cores. It starts no thread: see [`RxQueue::attend`].
///
/// # Errors
/// When the socket cannot be created, or another program listens on it.
pub fn open(settings: &Settings, cores: usize, log: Log) -> Result<Port, OpenError> {
    let failed = |what: &str, error: &dyn std::fmt::Display, fix: &str| OpenError {
        what: format!("vhost-user '{}': {what}: {error}", settings.socket.display()),
        fix: fix.to_owned(),
    };
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let wake = eventfd(0, flags).map_err(|error| {
        failed("creating an eventfd", &error, "raise the limit of open files (ulimit -n)")
    })?;
    let listener = match settings.role {
        Role::Server => Some(listener(&settings.socket)?),
        Role::Client => {
            check(&settings.socket)?;
            None
        }
    };
    let shared = Arc::new(Shared {
        broken: Mutex::default(),
        calls: AtomicU64::new(0),
        stops: AtomicBool::new(false),
        wake,
        stream: Mutex::default(),
    });
    let pair = |_| {
        let ((rx, rx_holder), (tx, tx_holder)) = (seat(), seat());
        (Seats { rx, tx }, (rx_holder, tx_holder))
    };
    let (seats, holders): (Vec<_>, Vec<_>) = (0..cores.max(1)).map(pair).unzip();
    let device = Arc::new(Mutex::new(Device::new(seats, Arc::clone(&log))));
    let (path, to_log) = (settings.socket.clone(), Arc::clone(&log));
    let mut control = Control {
        path,
        shared: Arc::clone(&shared),
        log,
        device,
        session: None,
        why: None,
        skips_listener: false,
    };
    let work = Box::new(move || control.run(listener.as_ref()));
    let thread = Arc::new(Thread {
        shared: Arc::clone(&shared),
        log: to_log,
        work: Mutex::new(Some(work)),
        handle: Mutex::default(),
        processors: rustix::thread::sched_getaffinity(None).ok(),
    });
    let queue = |(rx, tx)| {
        let both = || (Arc::clone(&shared), Arc::clone(&thread));
        let ((shared, thread), (of_tx, _thread)) = (both(), both());
        Queue {
            rx: RxQueue { holder: rx, has_started: false, shared, thread },
            tx: TxQueue { holder: tx, shared: of_tx, _thread },
        }
    };
    Ok(Port { queues: holders.into_iter().map(queue).collect() })
}

/// What the thread owns.
struct Control {
    path: PathBuf,
    shared: Arc<Shared>,
    log: Log,
    device: Arc<Mutex<Device>>,
    session: Option<Session>,
    /// Why the last attempt to connect failed, as it was logged.
    why: Option<String>,
    /// A connection could not be accepted in the last round.
    skips_listener: bool,
}

/// A connection.
struct Session {
    handler: BackendReqHandler<Mutex<Device>>,
    stream: UnixStream,
}

impl Control {
    fn run(&mut self, listener: Option<&UnixListener>) {
        while !self.shared.stops.load(Ordering::Acquire) {
            if listener.is_none() && self.session.is_none() {
                self.dial();
            }
            // A listener whose connection could not be accepted stays readable.
            let listens = !std::mem::take(&mut self.skips_listener);
            let heard = listener.filter(|_| listens);
            let [_, is_called, talks] = self.wait(heard.map(AsFd::as_fd), ROUND);
            self.common();
            // First the end of a connection, so that the next one finds its place free.
            if talks {
                self.listen();
            }
            if is_called && let Some(listener) = listener {
                self.accept(listener);
            }
        }
        self.end("the port is closed");
        if listener.is_some() {
            let _gone = std::fs::remove_file(&self.path);
        }
    }

    /// Waits for events: wake-ups, calls, messages.
    fn wait(&self, listener: Option<BorrowedFd<'_>>, time: Duration) -> [bool; 3] {
        let session = self.session.as_ref().map(|session| session.stream.as_fd());
        let named = [Some(self.shared.wake.as_fd()), listener, session];
        let mut fds: Vec<_> =
            named.iter().flatten().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        let time = if session.is_none() && listener.is_none() { RETRY.min(time) } else { time };
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
        let calls = self.shared.calls.swap(0, Ordering::AcqRel);
        let broken = std::mem::take(&mut *lock(&self.shared.broken));
        if calls != 0 || !broken.is_empty() {
            let mut device = lock(&self.device);
            device.call(calls);
            for (ring, violation) in broken {
                device.break_ring(ring, violation);
            }
            device.resume();
        }
    }

    fn accept(&mut self, listener: &UnixListener) {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) => return self.not_accepted(&error),
        };
        if self.session.is_some() {
            (self.log)("a second front end was refused, because one is connected");
            return;
        }
        self.begin(stream);
    }

    /// Leaves the listener alone in the next round, because the connection still waits there.
    #[cold]
    fn not_accepted(&mut self, error: &io::Error) {
        use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
        if matches!(error.kind(), WouldBlock | Interrupted | ConnectionAborted) {
            return;
        }
        self.skips_listener = true;
        self.report(format!("a front end cannot be accepted: {error}"));
    }

    /// Logs why there is no connection, unless that was the last reason.
    fn report(&mut self, why: String) {
        if self.why.as_ref() != Some(&why) {
            (self.log)(&why);
        }
        self.why = Some(why);
    }

    fn dial(&mut self) {
        match UnixStream::connect(&self.path) {
            Ok(stream) => self.begin(stream),
            Err(error) => {
                self.report(format!("not connected to '{}': {error}", self.path.display()));
            }
        }
    }

    fn begin(&mut self, stream: UnixStream) {
        // The library reads whole messages, and waits for the rest of one.
        let _blocks = stream.set_nonblocking(false);
        let (Ok(own), Ok(other)) = (stream.try_clone(), stream.try_clone()) else {
            return (self.log)("refused a front end: no file descriptor is left (ulimit -n)");
        };
        *lock(&self.shared.stream) = Some(other);
        let handler = BackendReqHandler::from_stream(stream, Arc::clone(&self.device));
        self.session = Some(Session { handler, stream: own });
        self.why = None;
        (self.log)("a front end is connected");
    }

    /// Ends the connection.
    fn end(&mut self, why: &str) {
        *lock(&self.shared.stream) = None;
        if self.session.take().is_some() {
            lock(&self.device).reset();
            (self.log)(&format!("disconnected: {why}"));
        }
    }

    /// Handles the messages that have come; then the rings run again.
    fn listen(&mut self) {
        loop {
            let Some(session) = &mut self.session else { return };
            let early = early::handle(&session.stream, &mut lock(&self.device));
            if let Err(why) = early {
                return self.end(&why);
            }
            if early != Ok(true)
                && let Err(error) = session.handler.handle_request()
            {
                let refused = lock(&self.device).refused.take();
                let why = match (refused, error) {
                    (Some(why), _) => format!("a message was refused: {why}"),
                    (None, Error::Disconnected | Error::SocketBroken(_)) => {
                        "the front end is gone".to_owned()
                    }
                    (None, other) => format!("the front end broke the protocol: {other}"),
                };
                return self.end(&why);
            }
            let [_, _, talks] = self.wait(None, Duration::ZERO);
            if !talks {
                lock(&self.device).resume();
                return;
            }
            self.common();
        }
    }
}

//! Control socket: a Unix stream socket that answers [`Request`]s, one per line, from a yard or from what else runs.
//!
//! ```text
//!  bind  mode 0600 (0660 with a group); a socket on which no process listens is replaced
//! ```
//!
//! Invariants: at most one process listens on a path; a request has at most 64 KiB and arrives as a whole within
//! 10 seconds of the answer before it; at most 16 connections are open; at most one trace, one count of flows and one listing of connections run, and each ends
//! when its client closes the connection.
//! Thread-safety: one thread accepts connections, and each connection has a thread. Dropping the server
//! removes the socket.

use std::fs::DirBuilder;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use flowyard_yard::Handle;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{Shutdown, shutdown};
use serde::Serialize;

use crate::handover::{self, Leaving};
use crate::protocol::{Request, Response};
use crate::socket::{self, SocketFile};
use crate::{accounts, answers, flows, ipsec, lb, offload, reload, switch, trace};

pub use crate::socket::SocketError;

/// The longest request, in bytes.
const LONGEST: u64 = 64 << 10;
/// The longest wait for a request, and for the client to read the response.
const WAIT: Duration = Duration::from_secs(10);
/// The most connections at a time.
const MOST: usize = 16;

/// The control socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Another process listens on this path.
    #[error(
        "{0}: another running instance uses this control socket; stop it, or choose another --control PATH"
    )]
    Taken(PathBuf),
    /// The path exists and is not a socket.
    #[error(
        "{0}: the file exists and is not a socket; remove it, or choose another --control PATH"
    )]
    NoSocket(PathBuf),
    /// Another process is starting with this path, or keeps others from it.
    #[error("{path}: {source}")]
    Locked {
        /// The path of the socket.
        path: PathBuf,
        /// Whose lock it is, and how to go on.
        source: SocketError,
    },
    /// The group does not exist.
    #[error(
        "--control-group: there is no group '{0}'; name an existing group, or write its number"
    )]
    Group(String),
    /// The group database could not be read.
    #[error("--control-group: looking up '{name}' failed: {source}; check /etc/nsswitch.conf")]
    Lookup {
        /// The name in the request.
        name: String,
        /// The error of the lookup.
        source: io::Error,
    },
    /// A system call failed.
    #[error(
        "{path}: {source}; choose a --control PATH in a folder that you may write to, or write --control none"
    )]
    Io {
        /// The path of the socket.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
}

/// What answers requests in the place of a yard.
pub trait Answers: Send + Sync + 'static {
    /// The answer as JSON, or why there is none and how to go on. `gone` tells whether the client has closed the
    /// connection, for requests that take time.
    ///
    /// # Errors
    /// The request cannot be answered.
    fn answer(
        &self,
        request: &Request,
        gone: &dyn Fn() -> bool,
    ) -> Result<serde_json::Value, String>;
}

/// Who answers requests.
#[derive(Clone)]
enum Source {
    /// With what another process needs to take over, if that is possible.
    Yard(Handle, Option<Arc<Leaving>>),
    Other(Arc<dyn Answers>),
}

impl Source {
    /// Whether another process has taken over, which answers now.
    fn has_left(&self) -> bool {
        matches!(self, Self::Yard(_, Some(leaving)) if leaving.taken_by().is_some())
    }
}

/// A control socket that is bound but does not answer yet.
#[derive(Debug)]
pub struct Bound {
    file: SocketFile,
    listener: UnixListener,
}

/// A control socket that answers requests.
#[derive(Debug)]
pub struct Control {
    file: SocketFile,
    listener: Arc<UnixListener>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The default path of the control socket for this configuration file: in `/run/flowyard` for root and
/// `$XDG_RUNTIME_DIR/flowyard` for other users, with the name of the file and the suffix `.sock`. `None`
/// if `XDG_RUNTIME_DIR` is not set.
#[must_use]
pub fn default_path(config: &Path) -> Option<PathBuf> {
    let folder = if rustix::process::geteuid().is_root() {
        PathBuf::from("/run")
    } else {
        std::env::var_os("XDG_RUNTIME_DIR")
            .filter(|folder| !folder.is_empty())
            .map(PathBuf::from)?
    };
    let mut name = config.file_stem()?.to_owned();
    name.push(".sock");
    Some(folder.join("flowyard").join(name))
}

impl Bound {
    /// Binds `path` with access for its owner only, or also for `group` (a name or a number).
    ///
    /// # Errors
    /// Another process listens on `path`, it is not a socket, the group does not exist, or a system
    /// call fails.
    pub fn bind(path: &Path, group: Option<&str>) -> Result<Self, ControlError> {
        let gid = group.map(gid).transpose()?;
        let wrong = |source| ControlError::Io { path: path.into(), source };
        let folder = socket::folder(path);
        DirBuilder::new().recursive(true).mode(0o755).create(folder).map_err(wrong)?;
        let mode = if gid.is_some() { 0o660 } else { 0o600 };
        let (listener, file) = socket::bind(path, mode, gid).map_err(|error| match error {
            SocketError::Taken => ControlError::Taken(path.into()),
            SocketError::NoSocket => ControlError::NoSocket(path.into()),
            SocketError::Io(source) => wrong(source),
            source => ControlError::Locked { path: path.into(), source },
        })?;
        if socket::is_in_a_common_folder(path) {
            tracing::warn!(
                "every user may create files in {} and so keep an instance with a control socket in it from \
                 starting; choose a folder that only you may write to, such as /run/flowyard",
                folder.display()
            );
        }
        Ok(Self { file, listener })
    }

    /// Starts the thread that answers requests.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn serve(self, yard: Handle) -> io::Result<Control> {
        self.serve_from(Source::Yard(yard, None))
    }

    /// As [`Self::serve`]; another process may take over.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn serve_until(self, yard: Handle, leaving: Arc<Leaving>) -> io::Result<Control> {
        self.serve_from(Source::Yard(yard, Some(leaving)))
    }

    /// Continues with the listening socket of the process at `path` that is taken over.
    #[must_use]
    pub fn adopt(listener: OwnedFd, path: &Path) -> Self {
        Self { file: SocketFile::of(path), listener: UnixListener::from(listener) }
    }

    /// A duplicate of the listening socket.
    ///
    /// # Errors
    /// The process has too many descriptors.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        self.listener.try_clone().map(OwnedFd::from)
    }

    /// As [`Self::serve`], for an instance that is not a yard.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn serve_answers(self, answers: Arc<dyn Answers>) -> io::Result<Control> {
        self.serve_from(Source::Other(answers))
    }

    fn serve_from(self, source: Source) -> io::Result<Control> {
        let Self { file, listener } = self;
        let listener = Arc::new(listener);
        let stop = Arc::<AtomicBool>::default();
        let (stopped, busy) = (Arc::clone(&stop), Arc::<Busy>::default());
        let accepts = Arc::clone(&listener);
        listener.set_nonblocking(true)?;
        let accept = move || {
            loop {
                // Two processes have this socket while one takes over from the other: both wake, and one accepts.
                let _interrupted = poll(&mut [PollFd::new(&*accepts, PollFlags::IN)], None);
                if stopped.load(Ordering::Acquire) || source.has_left() {
                    return;
                }
                match accepts.accept() {
                    Ok((stream, _)) => spawn(stream, &source, &busy),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => {
                        tracing::warn!(%error, "the control socket could not accept a connection");
                        thread::sleep(Duration::from_millis(100));
                    }
                }
            }
        };
        let thread = thread::Builder::new().name("control".into()).spawn(accept)?;
        Ok(Control { file, listener, stop, thread: Some(thread) })
    }
}

impl Control {
    /// The path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.file.path()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // The thread that waits for a connection returns at once.
        let woken = shutdown(&*self.listener, Shutdown::Both).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ended = thread.join();
        }
    }
}

/// Checks that there is a group with this name or number.
///
/// # Errors
/// There is none, or the group database cannot be read.
pub fn check_group(group: &str) -> Result<(), ControlError> {
    gid(group).map(drop)
}

/// The ID of the group with this name or number.
fn gid(group: &str) -> Result<u32, ControlError> {
    if let Ok(number) = group.parse() {
        return Ok(number);
    }
    let wrong = |source| ControlError::Lookup { name: group.into(), source };
    accounts::group(group).map_err(wrong)?.ok_or_else(|| ControlError::Group(group.into()))
}

/// Limits that are shared by all connections.
#[derive(Default)]
struct Busy {
    connections: AtomicUsize,
    trace: Mutex<()>,
    flows: Mutex<()>,
    listing: Mutex<()>,
    handover: Mutex<()>,
}

fn spawn(stream: UnixStream, source: &Source, busy: &Arc<Busy>) {
    if busy.connections.fetch_add(1, Ordering::AcqRel) >= MOST {
        busy.connections.fetch_sub(1, Ordering::AcqRel);
        let text = format!(
            "the control socket has too many connections ({MOST}); close one: end a 'flowyard top' or 'flowyard trace' \
             that is not needed"
        );
        let _gone = Response::<()>::Error(text).send(&stream);
        return;
    }
    let (source, connection) = (source.clone(), Arc::clone(busy));
    let serve = move || {
        let _closed = converse(&stream, &source, &connection, WAIT);
        connection.connections.fetch_sub(1, Ordering::AcqRel);
    };
    if thread::Builder::new().name("control".into()).spawn(serve).is_err() {
        busy.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

#[allow(clippy::disallowed_methods, reason = "the time of a live connection is measured")]
fn clock() -> Instant {
    Instant::now()
}

/// The bytes of a request, which arrives as a whole until `end`: a timeout of each read would let a client that sends a
/// byte now and then keep its connection.
struct DeadlineReader<'a> {
    stream: &'a UnixStream,
    end: Instant,
}

impl Read for DeadlineReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.end.saturating_duration_since(clock());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(into)
    }
}

/// Answers line by line until the client closes the connection, or sends no request for the time `wait`.
fn converse(stream: &UnixStream, source: &Source, busy: &Busy, wait: Duration) -> io::Result<()> {
    stream.set_write_timeout(Some(wait))?;
    let mut reader = BufReader::new(DeadlineReader { stream, end: clock() });
    loop {
        reader.get_mut().end = clock() + wait;
        let mut line = Vec::new();
        if reader.by_ref().take(LONGEST).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        stream.set_read_timeout(Some(wait))?;
        if line.last() != Some(&b'\n') && line.len() as u64 == LONGEST {
            let text = format!(
                "the request is too long; write one line of JSON of at most {LONGEST} bytes"
            );
            return Response::<()>::Error(text).send(stream);
        }
        match serde_json::from_slice(&line) {
            Ok(request) => match source {
                Source::Yard(yard, leaving) if request == Request::HandOver => {
                    return hand_over(stream, yard, leaving.as_deref(), busy);
                }
                Source::Yard(yard, _) => answer(stream, yard, busy, &request)?,
                Source::Other(other) => answer_other(stream, &**other, busy, &request)?,
            },
            Err(error) => {
                let text = format!("{error}; a request is one line such as {{\"ask\":\"queues\"}}");
                Response::<()>::Error(text).send(stream)?;
            }
        }
    }
}

fn hand_over(
    stream: &UnixStream,
    yard: &Handle,
    leaving: Option<&Leaving>,
    busy: &Busy,
) -> io::Result<()> {
    let Some(leaving) = leaving else {
        let what = "this instance cannot be handed over (see docs/fleet.md)";
        return either::<()>(stream, Err(what.into()));
    };
    match busy.handover.try_lock() {
        Ok(_one) => handover::serve(stream, yard, leaving),
        Err(_) => taken(stream, "hand-over"),
    }
}

fn answer_other(
    stream: &UnixStream,
    other: &dyn Answers,
    busy: &Busy,
    request: &Request,
) -> io::Result<()> {
    let _one = match (request, busy.trace.try_lock()) {
        (Request::Trace(_), Ok(one)) => Some(one),
        (Request::Trace(_), Err(_)) => return taken(stream, "trace"),
        _ => None,
    };
    either(stream, other.answer(request, &|| is_closed(stream)))
}

fn answer(stream: &UnixStream, yard: &Handle, busy: &Busy, request: &Request) -> io::Result<()> {
    match request {
        Request::Cores => good(stream, answers::cores(yard)),
        Request::Queues => good(stream, answers::queues(yard)),
        Request::Tables { entries } => good(stream, answers::tables(yard, *entries)),
        Request::Elephants => good(stream, answers::elephants(yard)),
        Request::Drops => good(stream, answers::drops(yard)),
        Request::Flows { seconds } => match busy.flows.try_lock() {
            Ok(_one) => good(stream, flows::flows(yard, *seconds, &|| is_closed(stream))),
            Err(_) => taken(stream, "count of flows"),
        },
        Request::Trace(request) => match busy.trace.try_lock() {
            Ok(_one) => either(stream, trace::trace(yard, request, &|| is_closed(stream))),
            Err(_) => taken(stream, "trace"),
        },
        Request::Lb => either(stream, lb::services(yard)),
        Request::LbTrace { flow } => either(stream, lb::explain::trace(yard, flow)),
        Request::LbConnections(request) => match busy.listing.try_lock() {
            Ok(_one) => either(stream, lb::connections::list(yard, request, &|| is_closed(stream))),
            Err(_) => taken(stream, "listing of connections"),
        },
        Request::SwitchWhy { flow } => either(stream, switch::why(yard, flow)),
        Request::SwitchSnoop { from } => either(stream, switch::snoop(yard, *from)),
        Request::Sas => either(stream, ipsec::sas(yard)),
        Request::Controllers => either(stream, switch::controllers(yard)),
        Request::Offload => either(stream, offload::offload(yard)),
        Request::Reload => either(stream, reload::plan(yard)),
        Request::HandOver => Ok(()), // its connection is used for nothing else, see `converse`
        Request::Steer | Request::SteerWhere { .. } => {
            either::<()>(stream, Err("this instance is a yard, not 'flowyard steer'".into()))
        }
        Request::LbDrain { service, backend, undo } => {
            either(stream, lb::drain(yard, service, backend, !undo))
        }
        Request::LbWeight { service, backend, weight } => {
            either(stream, lb::set_weight(yard, service, backend, *weight))
        }
        Request::LbWithdraw { undo } => either(stream, lb::withdraw(yard, !undo)),
    }
}

/// Whether the client closed the connection, so that no answer can reach it. A client that only sends nothing
/// more (a shutdown of one direction) still waits for the answer.
fn is_closed(stream: &UnixStream) -> bool {
    let mut polled = [PollFd::new(stream, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).is_ok_and(|count| count > 0)
        && polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

/// Sends the answer, or the reason why there is none.
fn either<T: Serialize>(stream: &UnixStream, answer: Result<T, String>) -> io::Result<()> {
    match answer {
        Ok(answer) => good(stream, answer),
        Err(text) => Response::<()>::Error(text).send(stream),
    }
}

fn taken(stream: &UnixStream, what: &str) -> io::Result<()> {
    let text = format!("another {what} is in progress; wait until it has ended");
    Response::<()>::Error(text).send(stream)
}

fn good<T: Serialize>(stream: &UnixStream, answer: T) -> io::Result<()> {
    Response::Answer(answer).send(stream)
}

#[cfg(test)]
mod tests;

//! Control socket: a unix stream socket that answers [`Request`]s, one a line.
//!
//! ```text
//!  bind  private folder ──> socket, mode 0600 (0660 with a group) ──rename──> PATH
//!        so it is never there with another mode; a socket that nobody answers is replaced
//! ```
//!
//! Invariants: a path has one yard; a request is at most 64 KiB, and comes within 10 seconds; at
//! most 16 connections at a time; one trace and one count of flows at a time.
//! Thread-safety: a thread accepts, one for each connection answers. Dropping the server removes
//! the socket.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use flowyard_yard::Handle;
use serde::Serialize;

use crate::protocol::{Request, Response};
use crate::{answers, flows, lb, switch, trace};

/// The longest request, in bytes.
const LONGEST: u64 = 64 << 10;
/// The longest wait for a request, and for the asker to take the answer.
const WAIT: Duration = Duration::from_secs(10);
/// Connections at a time.
const MOST: usize = 16;

/// Why there is no control socket.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Another process answers there.
    #[error("{0}: a yard answers there already; stop it, or choose another --control PATH")]
    Taken(PathBuf),
    /// What is there is no socket.
    #[error("{0}: exists, and is no socket; remove it, or choose another --control PATH")]
    NoSocket(PathBuf),
    /// There is no such group.
    #[error("no group '{0}' in /etc/group; name one that exists, or write its number")]
    Group(String),
    /// The system said no.
    #[error("{path}: {source}; choose a --control PATH in a folder that you may write to, or none")]
    Io {
        /// Where.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

/// A control socket that is bound and does not answer yet.
#[derive(Debug)]
pub struct Bound {
    path: PathBuf,
    listener: UnixListener,
}

/// A control socket at work.
#[derive(Debug)]
pub struct Control {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Where the control socket of the yard with this configuration is: `/run/flowyard` for root,
/// `$XDG_RUNTIME_DIR/flowyard` for others, with the configuration's stem as name. `None` where
/// there is no such folder.
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
    /// Binds `path` for its owner alone, or for `group` too (a name or a number).
    ///
    /// # Errors
    /// When somebody answers there, or the system says no.
    pub fn bind(path: &Path, group: Option<&str>) -> Result<Self, ControlError> {
        let gid = group.map(gid).transpose()?;
        let wrong = |source| ControlError::Io { path: path.into(), source };
        let folder = path.parent().filter(|f| !f.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(wrong)?;
        // Two that start at once must not replace each other's socket.
        let lock = File::open(folder).map_err(wrong)?;
        lock.lock().map_err(wrong)?;
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(wrong(error)),
            Ok(found) if !found.file_type().is_socket() => {
                return Err(ControlError::NoSocket(path.into()));
            }
            Ok(_) if UnixStream::connect(path).is_ok() => {
                return Err(ControlError::Taken(path.into()));
            }
            Ok(_) => tracing::info!(path = %path.display(), "stale control socket replaced"),
        }
        let private = folder.join(format!(".flowyard-{}", std::process::id()));
        let bound = in_private(&private, path, gid).map_err(wrong);
        let _gone = fs::remove_dir_all(&private);
        Ok(Self { path: path.into(), listener: bound? })
    }

    /// Answers from here on.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub fn serve(self, yard: Handle) -> io::Result<Control> {
        let Self { path, listener } = self;
        let stop = Arc::<AtomicBool>::default();
        let (stopped, busy) = (Arc::clone(&stop), Arc::<Busy>::default());
        let accept = move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::Acquire) {
                    return;
                }
                match stream {
                    Ok(stream) => spawn(stream, &yard, &busy),
                    Err(error) => {
                        tracing::warn!(%error, "control socket: a connection was not accepted");
                        thread::sleep(Duration::from_millis(100));
                    }
                }
            }
        };
        let thread = thread::Builder::new().name("control".into()).spawn(accept)?;
        Ok(Control { path, stop, thread: Some(thread) })
    }
}

impl Control {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let woken = UnixStream::connect(&self.path).is_ok();
        let _gone = fs::remove_file(&self.path);
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ended = thread.join();
        }
    }
}

/// Binds in a folder that only we may enter, and moves the socket to `path` when its mode is right.
fn in_private(private: &Path, path: &Path, gid: Option<u32>) -> io::Result<UnixListener> {
    let _stale = fs::remove_dir_all(private);
    fs::create_dir(private)?;
    fs::set_permissions(private, fs::Permissions::from_mode(0o700))?;
    let socket = private.join("s");
    let listener = UnixListener::bind(&socket)?;
    let mode = if gid.is_some() { 0o660 } else { 0o600 };
    fs::set_permissions(&socket, fs::Permissions::from_mode(mode))?;
    if let Some(gid) = gid {
        chown(&socket, None, Some(gid))?;
    }
    fs::rename(&socket, path)?;
    Ok(listener)
}

/// The number of this group.
fn gid(group: &str) -> Result<u32, ControlError> {
    if let Ok(number) = group.parse() {
        return Ok(number);
    }
    let groups = fs::read_to_string("/etc/group").unwrap_or_default();
    let mut lines = groups.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let found = lines.find(|line| line.first() == Some(&group));
    let number = found.and_then(|line| line.get(2)?.parse().ok());
    number.ok_or_else(|| ControlError::Group(group.into()))
}

/// What is shared by connections.
#[derive(Default)]
struct Busy {
    connections: AtomicUsize,
    trace: Mutex<()>,
    flows: Mutex<()>,
}

fn spawn(stream: UnixStream, yard: &Handle, busy: &Arc<Busy>) {
    if busy.connections.fetch_add(1, Ordering::AcqRel) >= MOST {
        busy.connections.fetch_sub(1, Ordering::AcqRel);
        let text = "too many connections to the control socket; try again";
        let _gone = reply::<()>(&stream, &Response::Error(text.into()));
        return;
    }
    let (yard, connection) = (yard.clone(), Arc::clone(busy));
    let serve = move || {
        let _closed = converse(&stream, &yard, &connection);
        connection.connections.fetch_sub(1, Ordering::AcqRel);
    };
    if thread::Builder::new().name("control".into()).spawn(serve).is_err() {
        busy.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Answers line by line, until the asker goes.
fn converse(stream: &UnixStream, yard: &Handle, busy: &Busy) -> io::Result<()> {
    stream.set_read_timeout(Some(WAIT))?;
    stream.set_write_timeout(Some(WAIT))?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        if reader.by_ref().take(LONGEST).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if line.last() != Some(&b'\n') && line.len() as u64 == LONGEST {
            let text = format!("a request is one line of JSON, of at most {LONGEST} bytes");
            return reply::<()>(stream, &Response::Error(text));
        }
        match serde_json::from_slice(&line) {
            Ok(request) => answer(stream, yard, busy, &request)?,
            Err(error) => {
                let text = format!("{error}; a request is one line such as {{\"ask\":\"queues\"}}");
                reply::<()>(stream, &Response::Error(text))?;
            }
        }
    }
}

fn answer(stream: &UnixStream, yard: &Handle, busy: &Busy, request: &Request) -> io::Result<()> {
    match request {
        Request::Cores => good(stream, answers::cores(yard)),
        Request::Queues => good(stream, answers::queues(yard)),
        Request::Tables { entries } => good(stream, answers::tables(yard, *entries)),
        Request::Elephants => good(stream, answers::elephants(yard)),
        Request::Drops => good(stream, answers::drops(yard)),
        Request::Flows { seconds } => match busy.flows.try_lock() {
            Ok(_one) => good(stream, flows::flows(yard, *seconds)),
            Err(_) => taken(stream, "count of flows"),
        },
        Request::Trace(request) => match busy.trace.try_lock() {
            Ok(_one) => either(stream, trace::trace(yard, request)),
            Err(_) => taken(stream, "trace"),
        },
        Request::Lb => either(stream, lb::services(yard)),
        Request::LbTrace { flow } => either(stream, lb::explain::trace(yard, flow)),
        Request::SwitchWhy { flow } => either(stream, switch::why(yard, flow)),
        Request::LbDrain { service, backend, undo } => {
            either(stream, lb::drain(yard, service, backend, !undo))
        }
        Request::LbWeight { service, backend, weight } => {
            either(stream, lb::set_weight(yard, service, backend, *weight))
        }
    }
}

/// What was asked for, or why it is not to be had.
fn either<T: Serialize>(stream: &UnixStream, answer: Result<T, String>) -> io::Result<()> {
    match answer {
        Ok(answer) => good(stream, answer),
        Err(text) => reply::<()>(stream, &Response::Error(text)),
    }
}

fn taken(stream: &UnixStream, what: &str) -> io::Result<()> {
    let text = format!("another {what} is under way; wait until it is over");
    reply::<()>(stream, &Response::Error(text))
}

fn good<T: Serialize>(stream: &UnixStream, answer: T) -> io::Result<()> {
    reply(stream, &Response::Answer(answer))
}

fn reply<T: Serialize>(mut stream: &UnixStream, response: &Response<T>) -> io::Result<()> {
    let mut line = serde_json::to_vec(response)?;
    line.push(b'\n');
    stream.write_all(&line)
}

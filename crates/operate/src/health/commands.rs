//! Commands of health checks, which have no capability, no descriptor and no environment of this process.
//!
//! ```text
//!  flowyard run, started by root                        flowyard health-commands: user nobody, no capability
//!   probers ──Order, a line of JSON──> socket pair ───> a thread for each command ──> sh, curl, ...
//!   reader <──Done, a line of JSON──── socket pair <─── the exit status; killed at the timeout
//! ```
//!
//! A command that is run by root is root, whatever capabilities this process has given up. After that it cannot
//! change to another user. Therefore it starts a process before, which changes to a user of its own and runs the
//! commands. If flowyard is not started by root, the commands run as its user.
//!
//! Invariants: no command is run by a process whose user is root; a command that runs at its timeout, or when this
//! process has ended, is killed with all processes of its group.
//! Thread-safety: [`Commands`] may be used by any thread.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use flowyard_frame::Nanos;
use rustix::process::{Pid, Signal, geteuid, kill_process_group};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::deadline::{Deadline, Fault};
use super::probe::Asked;
use crate::privilege::User;
use crate::sys;

/// The user that commands run as if flowyard is started by root and the configuration names no other.
const NOBODY: &str = "nobody";
/// How long the process that runs commands may take to start, and to take an order.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much later than at its timeout the end of a command may be reported.
const GRACE: Duration = Duration::from_millis(500);
/// The longest order, in bytes.
const LONGEST: u64 = 1 << 20;
/// Variables of the environment that commands get, besides those about the backend.
const KEPT: [&str; 4] = ["PATH", "LANG", "LC_ALL", "TZ"];

/// Commands cannot be run as configured.
#[derive(Debug, thiserror::Error)]
pub enum CommandsError {
    /// The user is not in the database of users.
    #[error("there is no user '{0}'; set 'command_user' in [balance] to an existing user")]
    User(String),
    /// The user database could not be read.
    #[error("looking up the user '{name}' failed: {source}; check /etc/nsswitch.conf")]
    Lookup {
        /// The name.
        name: String,
        /// The error of the lookup.
        source: io::Error,
    },
    /// The user is root.
    #[error(
        "commands of health checks do not run as root; set 'command_user' in [balance] to another user"
    )]
    Root,
    /// Only root can change the user.
    #[error(
        "only root can run commands as '{0}'; start flowyard as root (with --user to change to another user), or leave \
         'command_user' out, so that they run as the user of flowyard"
    )]
    NotRoot(String),
    /// The process that runs commands did not start.
    #[error(
        "the process that runs the commands of health checks as '{name}' did not start: {why}; set 'command_user' in \
         [balance] to a user that root can change to here, start flowyard as another user than root, or use checks of \
         another kind"
    )]
    Start {
        /// The user.
        name: String,
        /// The reason.
        why: String,
    },
}

/// How the commands of a configuration will be run.
#[derive(Debug)]
pub struct Planned {
    user: Option<(String, User)>,
    /// Whether there are commands, or this process is not root.
    can_run: bool,
}

impl Planned {
    /// Commands run as the user `wanted`. `has_commands` tells whether there are any.
    ///
    /// # Errors
    /// There is no such user, it is root, or only root can change to it.
    pub fn new(has_commands: bool, wanted: Option<&str>) -> Result<Self, CommandsError> {
        let is_root = geteuid().is_root();
        if !has_commands {
            return Ok(Self { user: None, can_run: !is_root });
        }
        if wanted.is_none() && !is_root {
            return Ok(Self { user: None, can_run: true });
        }
        let name = wanted.unwrap_or(NOBODY).to_owned();
        let user = User::look_up(&name);
        let lookup = |source| CommandsError::Lookup { name: name.clone(), source };
        let user = user.map_err(lookup)?.ok_or_else(|| CommandsError::User(name.clone()))?;
        match (user.uid(), is_root) {
            (0, _) => Err(CommandsError::Root),
            (_, true) => Ok(Self { user: Some((name, user)), can_run: true }),
            (uid, false) if uid == geteuid().as_raw() => Ok(Self { user: None, can_run: true }),
            (_, false) => Err(CommandsError::NotRoot(name)),
        }
    }

    /// Starts the process that runs the commands, if one is needed: `program`, which calls [`serve`]. To be called
    /// before privileges are given up.
    ///
    /// # Errors
    /// The process does not start, or cannot change to the user.
    pub fn start(self, program: Command) -> Result<Commands, CommandsError> {
        sys::inherit_nothing();
        let how = match self.user {
            None if self.can_run => How::Here,
            None => How::Refused,
            Some((name, user)) => {
                let helper = Helper::start(user, program);
                let helper = helper.map_err(|why| CommandsError::Start { name, why })?;
                How::Elsewhere(Arc::new(helper))
            }
        };
        Ok(Commands(how))
    }
}

/// What runs commands.
#[derive(Clone, Debug)]
pub struct Commands(How);

#[derive(Clone, Debug)]
enum How {
    /// This process, which is not root.
    Here,
    /// A process of another user.
    Elsewhere(Arc<Helper>),
    /// Nothing: this process is root and had no commands when it started.
    Refused,
}

impl Commands {
    /// Whether commands can run.
    #[must_use]
    pub const fn can_run(&self) -> bool {
        !matches!(self.0, How::Refused)
    }

    /// Commands of this process, for tests of the commands themselves.
    #[cfg(test)]
    pub(super) const fn here() -> Self {
        Self(How::Here)
    }

    /// Starts the thread that takes the results of another process.
    pub(super) fn listen(&self) -> io::Result<()> {
        let How::Elsewhere(helper) = &self.0 else { return Ok(()) };
        let Some(mut reader) = lock(&helper.reader).take() else { return Ok(()) };
        let helper = Arc::clone(helper);
        let take = move || {
            while let Some(Done { number, fault, cannot }) = next(&mut reader) {
                let outcome = match fault {
                    None => Ok(()),
                    Some(why) if cannot => Err(Fault::Cannot(why)),
                    Some(why) => Err(Fault::Wrong(why)),
                };
                if let Some(waits) = lock(&helper.waiting).remove(&number) {
                    let _gone = waits.send(outcome);
                }
            }
            if !helper.is_over.swap(true, Ordering::AcqRel) {
                tracing::error!(
                    "the process that runs the commands of health checks has ended: such checks fail until flowyard is \
                     restarted"
                );
            }
            lock(&helper.waiting).clear();
        };
        thread::Builder::new().name("commands".into()).spawn(take).map(drop)
    }

    /// Ends the process that runs commands.
    pub(super) fn end(&self) {
        if let How::Elsewhere(helper) = &self.0 {
            helper.end();
        }
    }

    /// Runs a command and waits for its end.
    pub(super) fn run(
        &self,
        words: &[String],
        asked: &Asked,
        deadline: Deadline<'_>,
    ) -> Result<(), Fault> {
        match &self.0 {
            How::Here => run(words, asked, deadline, &AtomicBool::new(false)),
            How::Elsewhere(helper) => helper.run(words, asked, deadline),
            How::Refused => Err(Fault::Cannot(
                "flowyard was started by root without commands; restart it to run this one".into(),
            )),
        }
    }
}

/// The process that runs the commands.
#[derive(Debug)]
struct Helper {
    child: Mutex<Child>,
    orders: Mutex<UnixStream>,
    /// Taken by the thread that reads it.
    reader: Mutex<Option<BufReader<UnixStream>>>,
    /// By number, what waits for the end of a command.
    waiting: Mutex<HashMap<u64, Sender<Result<(), Fault>>>>,
    numbers: AtomicU64,
    is_over: AtomicBool,
}

/// The first line to the process: the user to change to.
#[derive(Serialize, Deserialize)]
struct Change {
    uid: u32,
    gid: u32,
}

/// The answer to it.
#[derive(Serialize, Deserialize)]
struct Changed {
    failed: Option<String>,
}

/// A command to run.
#[derive(Serialize, Deserialize)]
struct Order {
    number: u64,
    words: Vec<String>,
    service: String,
    backend: String,
    address: IpAddr,
    port: u16,
    timeout_ns: Nanos,
}

/// The end of a command.
#[derive(Serialize, Deserialize)]
struct Done {
    number: u64,
    /// Why the check failed.
    fault: Option<String>,
    /// Whether the command could not run.
    cannot: bool,
}

impl Helper {
    fn start(user: User, mut program: Command) -> Result<Self, String> {
        let said = |error: io::Error| error.to_string();
        let (ours, theirs) = UnixStream::pair().map_err(said)?;
        ours.set_read_timeout(Some(PATIENCE)).map_err(said)?;
        ours.set_write_timeout(Some(PATIENCE)).map_err(said)?;
        let reader = BufReader::new(ours.try_clone().map_err(said)?);
        program.env_clear().envs(environment()).process_group(0);
        program.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
        let child = program.spawn().map_err(said)?;
        drop(program); // with its end of the socket pair
        let helper = Self {
            child: Mutex::new(child),
            orders: Mutex::new(ours),
            reader: Mutex::new(Some(reader)),
            waiting: Mutex::default(),
            numbers: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        };
        let change = Change { uid: user.uid(), gid: user.gid() };
        let failed = send(&helper.orders, &change).map_err(said).and_then(|()| {
            let mut reader = lock(&helper.reader);
            match reader.as_mut().and_then(next::<Changed>) {
                Some(Changed { failed: None }) => Ok(()),
                Some(Changed { failed: Some(why) }) => Err(why),
                None => Err("it ended at once".into()),
            }
        });
        // From now on, the reader waits for as long as nothing ends.
        let forever = lock(&helper.orders).set_read_timeout(None).map_err(said);
        failed.and(forever).inspect_err(|_| helper.end())?;
        Ok(helper)
    }

    fn run(&self, words: &[String], asked: &Asked, deadline: Deadline<'_>) -> Result<(), Fault> {
        let over = || Fault::Cannot("the process that runs the commands has ended".into());
        let left = deadline.left().map_err(|error| deadline.fault(&error))?;
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let (done, ended) = channel();
        lock(&self.waiting).insert(number, done);
        let order = Order {
            number,
            words: words.to_vec(),
            service: asked.service.clone(),
            backend: asked.backend.clone(),
            address: asked.addr.ip(),
            port: asked.addr.port(),
            timeout_ns: left.as_nanos() as Nanos,
        };
        let sent = match self.is_over.load(Ordering::Acquire) {
            true => Err(io::ErrorKind::BrokenPipe.into()),
            false => send(&self.orders, &order),
        };
        let outcome = match sent.map(|()| ended.recv_timeout(left + GRACE)) {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(RecvTimeoutError::Timeout)) => {
                Err(deadline.fault(&io::ErrorKind::TimedOut.into()))
            }
            Ok(Err(RecvTimeoutError::Disconnected)) | Err(_) => Err(over()),
        };
        lock(&self.waiting).remove(&number);
        outcome
    }

    /// Ends the process, and waits for that for a short time.
    fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        let _closed = lock(&self.orders).shutdown(std::net::Shutdown::Both);
        for _ in 0..100 {
            match lock(&self.child).try_wait() {
                Ok(None) => thread::sleep(Duration::from_millis(5)),
                _ => return,
            }
        }
    }
}

/// Runs the commands of another process, which is at the other end of standard input, until that ends. Changes to
/// another user first.
///
/// # Errors
/// The other process is not there, or the user cannot be changed.
pub fn serve(now: &(dyn Fn() -> Nanos + Sync)) -> Result<(), String> {
    let said = |error: io::Error| error.to_string();
    let stream = std::os::fd::AsFd::as_fd(&io::stdin()).try_clone_to_owned().map_err(said)?;
    let stream = UnixStream::from(stream);
    let mut orders = BufReader::new(stream.try_clone().map_err(said)?);
    let answers = Mutex::new(stream);
    let Some(Change { uid, gid }) = next(&mut orders) else {
        return Err(
            "standard input is not that of 'flowyard run', which starts this command".into()
        );
    };
    let failed = User::new(uid, gid).become_only().err();
    send(&answers, &Changed { failed: failed.clone() }).map_err(said)?;
    if let Some(why) = failed {
        return Err(why);
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (is_over, answers) = (&is_over, &answers);
        while let Some(order) = next::<Order>(&mut orders) {
            let number = order.number;
            let work = move || tell(answers, number, obey(&order, now, is_over));
            if let Err(error) = thread::Builder::new().spawn_scoped(scope, work) {
                tell(answers, number, Err(Fault::Cannot(error.to_string())));
            }
        }
        is_over.store(true, Ordering::Release);
    });
    Ok(())
}

fn obey(order: &Order, now: &dyn Fn() -> Nanos, is_over: &AtomicBool) -> Result<(), Fault> {
    let asked = Asked {
        service: order.service.clone(),
        backend: order.backend.clone(),
        addr: SocketAddr::new(order.address, order.port),
    };
    run(&order.words, &asked, Deadline::new(now, order.timeout_ns), is_over)
}

fn tell(answers: &Mutex<UnixStream>, number: u64, outcome: Result<(), Fault>) {
    let cannot = matches!(outcome, Err(Fault::Cannot(_)));
    let fault = outcome.err().map(|fault| match fault {
        Fault::Wrong(why) | Fault::Cannot(why) => why,
    });
    let _gone = send(answers, &Done { number, fault, cannot });
}

/// Runs a command. It is killed at the deadline, and when `is_over` is set.
fn run(
    words: &[String],
    asked: &Asked,
    deadline: Deadline<'_>,
    is_over: &AtomicBool,
) -> Result<(), Fault> {
    let cannot = |what: String| Fault::Cannot(what);
    let (program, rest) = words.split_first().ok_or_else(|| cannot("'command' is empty".into()))?;
    let mut child = Command::new(program)
        .args(rest)
        .env_clear()
        .envs(environment())
        .env("FLOWYARD_ADDRESS", asked.addr.ip().to_string())
        .env("FLOWYARD_PORT", asked.addr.port().to_string())
        .env("FLOWYARD_SERVICE", &asked.service)
        .env("FLOWYARD_BACKEND", &asked.backend)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|error| cannot(format!("'{program}': {error}")))?;
    loop {
        if is_over.load(Ordering::Acquire) {
            kill(&mut child);
            return Err(cannot("flowyard has ended".into()));
        }
        match (child.try_wait(), deadline.left()) {
            (Ok(Some(status)), _) if status.success() => return Ok(()),
            (Ok(Some(status)), _) => return Err(Fault::wrong(format!("'{program}': {status}"))),
            (Ok(None), Ok(left)) => thread::sleep(Duration::from_millis(2).min(left)),
            (Ok(None), Err(error)) => {
                kill(&mut child);
                return Err(deadline.fault(&error));
            }
            (Err(error), _) => {
                kill(&mut child);
                return Err(cannot(error.to_string()));
            }
        }
    }
}

/// Kills a command and all processes of its group.
fn kill(child: &mut Child) {
    let _gone = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _reaped = child.wait();
}

/// What commands get of the environment of this process.
fn environment() -> impl Iterator<Item = (&'static str, std::ffi::OsString)> {
    KEPT.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends a line.
fn send<T: Serialize>(to: &Mutex<UnixStream>, line: &T) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    let sent = lock(to).write_all(&bytes);
    if sent.is_err() {
        // A part of a line may have been sent.
        let _closed = lock(to).shutdown(std::net::Shutdown::Both);
    }
    sent
}

/// The next line; `None` at the end, or if it cannot be understood.
fn next<T: DeserializeOwned>(from: &mut BufReader<UnixStream>) -> Option<T> {
    let mut line = Vec::new();
    from.by_ref().take(LONGEST).read_until(b'\n', &mut line).ok()?;
    serde_json::from_slice(&line).ok()
}

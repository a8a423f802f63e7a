//! Hand-over of a running engine to another process, over the control socket.
//!
//! ```text
//!  new                              old
//!  {"ask":"hand_over"}        ──>
//!                             <──   {"answer":{offer}}                                        old runs
//!  "descriptors\n"            ──>
//!                             <──   its descriptors (SCM_RIGHTS)
//!   builds its engine on them
//!  "freeze\n"                 ──>   pauses its ports, drains
//!                             <──   {"answer":{sizes}}, then the state                       both wait
//!   reads the state
//!  "commit\n"                 ──>
//!                             <──   {"answer":"gone"}                                        old ends, new starts
//! ```
//!
//! The old process goes on by itself if the connection ends before it has read "commit", or if that does not come in time.
//! The new process starts only if it has read that the old one is gone, so never both receive.
//!
//! The side of the new process is in [`crate::take_over`].
//!
//! Thread-safety: each side is used by one thread; [`Leaving`] is shared with the thread that runs the engine.

use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use flowyard_config::OpenedPort;
use flowyard_pool::PoolMemory;
use flowyard_yard::Handle;
use flowyard_yard::handover::{CoreState, YardState};
use flowyard_yard::port::Descriptors;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use crate::protocol::Response;

/// The version of this protocol. Processes of different versions cannot take over from each other.
pub(crate) const VERSION: u32 = 1;

/// How long frames may take to leave the old engine.
pub(crate) const DRAINS: Duration = Duration::from_secs(1);
/// How long the old process waits, paused, for the new one to commit.
pub(crate) const COMMITS: Duration = Duration::from_secs(5);
/// How long the old process waits, running, for the new one to be ready.
const PREPARES: Duration = Duration::from_secs(60);
/// The most descriptors of one message (the limit of the kernel is 253).
pub(crate) const AT_ONCE: usize = 64;

/// What a running process offers to the one that takes over.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Offer {
    pub(crate) version: u32,
    /// The random bytes that the keys of its tables are derived from.
    pub(crate) secret: [u8; 16],
    /// The names of its listening sockets, and of the interface of routes to VIPs; their descriptors come first.
    pub(crate) named: Vec<String>,
    /// The number of buffers of its pool, and the bytes of each, if it has lent some to the kernel. The descriptor of the
    /// memory comes behind the named ones.
    pub(crate) pool: Option<(u64, u64)>,
    /// The ports of each core.
    pub(crate) cores: Vec<Vec<OfferedPort>>,
    /// The names of the ports, by number.
    pub(crate) ports: Vec<String>,
    /// How its ports were opened; empty from versions that do not say so.
    #[serde(default)]
    pub(crate) opened: Vec<OpenedPort>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct OfferedPort {
    /// The number of the port.
    pub(crate) port: u16,
    /// How many descriptors it has.
    pub(crate) fds: usize,
    pub(crate) numbers: Vec<u64>,
}

/// Where the ports of a core have stopped, with their numbers.
type Positions = Vec<(u16, Vec<u64>)>;

/// The sizes of the parts of a state.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Sizes {
    /// By core, the positions of its ports, and the bytes of its work's state.
    pub(crate) cores: Vec<(Positions, u64)>,
    /// By control plane, its kind and the bytes of its state.
    pub(crate) control: Vec<(String, u64)>,
}

/// What a running process needs to let another one take over.
#[derive(Debug)]
pub struct Leaving {
    secret: [u8; 16],
    named: Mutex<Vec<(String, OwnedFd)>>,
    pool: Option<PoolMemory>,
    opened: Vec<OpenedPort>,
    /// Whether the engine is paused and its state was taken.
    is_frozen: AtomicBool,
    /// The process that has taken over; 0 if none has.
    taken_by: AtomicU32,
}

impl Leaving {
    /// `secret`: the random bytes that the keys of its tables are derived from. `named`: its listening
    /// sockets, and the interface of routes to VIPs, by name. `pool`: the memory of its pool, if that can be shared.
    /// `opened`: how its ports were opened.
    #[must_use]
    pub const fn new(
        secret: [u8; 16],
        named: Vec<(String, OwnedFd)>,
        pool: Option<PoolMemory>,
        opened: Vec<OpenedPort>,
    ) -> Self {
        let (is_frozen, taken_by) = (AtomicBool::new(false), AtomicU32::new(0));
        Self { secret, named: Mutex::new(named), pool, opened, is_frozen, taken_by }
    }

    /// Replaces the socket with the name `old` by another one.
    pub fn replace(&self, old: Option<&str>, new: Option<(String, OwnedFd)>) {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        named.retain(|(name, _)| Some(name.as_str()) != old);
        named.extend(new);
    }

    /// Duplicates of its sockets, with their names.
    fn named(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        let named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        named.iter().map(|(name, fd)| Ok((name.clone(), fd.try_clone()?))).collect()
    }

    /// Whether another process is about to take over: the engine must not be changed or stopped now. This lasts for no more
    /// than some seconds.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.is_frozen.load(Ordering::Acquire) && self.taken_by().is_none()
    }

    /// The ID of the process that has taken over, if one has. The engine is paused then, and must end by
    /// [`Handle::leave`].
    #[must_use]
    pub fn taken_by(&self) -> Option<u32> {
        Some(self.taken_by.load(Ordering::Acquire)).filter(|id| *id != 0)
    }
}

/// Hands `yard` over to the client of this connection, which has asked for that.
pub(crate) fn serve(stream: &UnixStream, yard: &Handle, leaving: &Leaving) -> io::Result<()> {
    let peer = socket_peercred(stream)?;
    let refuse = |what: String| Response::<()>::Error(what).send(stream);
    // Members of the control group may use the engine; its sockets and secrets are for its user and root alone.
    if !peer.uid.is_root() && peer.uid != geteuid() {
        return refuse("only root and the user of this instance may take over".into());
    }
    let descriptors = match yard.descriptors() {
        Ok(descriptors) => descriptors,
        Err(error) => return refuse(error.to_string()),
    };
    let one = |(port, one): &(u16, Descriptors)| OfferedPort {
        port: *port,
        fds: one.fds.len(),
        numbers: one.numbers.clone(),
    };
    let named = leaving.named()?;
    let offer = Offer {
        version: VERSION,
        secret: leaving.secret,
        named: named.iter().map(|(name, _)| name.clone()).collect(),
        pool: leaving.pool.as_ref().map(|pool| (pool.frames, pool.bytes)),
        cores: descriptors.iter().map(|core| core.iter().map(one).collect()).collect(),
        ports: yard.places().ports.iter().map(|port| port.name.clone()).collect(),
        opened: leaving.opened.clone(),
    };
    Response::Answer(offer).send(stream)?;
    stream.set_read_timeout(Some(PREPARES))?;
    // The kernel discards descriptors that arrive together with the end of what a plain read returns.
    if !is_next(stream, "descriptors\n") {
        return Ok(());
    }
    let ports = descriptors.iter().flat_map(|core| core.iter()).flat_map(|(_, one)| &one.fds);
    let pool = leaving.pool.iter().map(|pool| &pool.file);
    let own = named.iter().map(|(_, fd)| fd).chain(pool);
    let all: Vec<_> = own.chain(ports).map(AsFd::as_fd).collect();
    send_fds(stream, &all)?;
    drop((descriptors, named));
    if !is_next(stream, "freeze\n") {
        return Ok(()); // the new process could not be built, and prints the reason
    }
    leaving.is_frozen.store(true, Ordering::Release);
    let state = match yard.freeze(DRAINS) {
        Ok(state) => state,
        Err(error) => {
            leaving.is_frozen.store(false, Ordering::Release);
            return refuse(error.to_string());
        }
    };
    let went = send_state(stream, &state).and_then(|()| {
        stream.set_read_timeout(Some(COMMITS))?;
        if !is_next(stream, "commit\n") {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Response::Answer("gone").send(stream)
    });
    match &went {
        Ok(()) => {
            let id = peer.pid.as_raw_nonzero().get().unsigned_abs();
            leaving.taken_by.store(id, Ordering::Release);
        }
        Err(error) => {
            yard.resume();
            leaving.is_frozen.store(false, Ordering::Release);
            tracing::warn!(%error, "the process that was to take over has failed; this one goes on");
        }
    }
    went
}

/// Reads a word byte by byte: what comes after it stays in the socket.
fn is_next(mut stream: &UnixStream, word: &str) -> bool {
    let mut got = vec![0; word.len()];
    stream.read_exact(&mut got).is_ok() && got == word.as_bytes()
}

/// Sends descriptors, with a byte for each message.
fn send_fds(stream: &UnixStream, all: &[BorrowedFd<'_>]) -> io::Result<()> {
    for some in all.chunks(AT_ONCE) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(some)) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        sendmsg(stream, &[IoSlice::new(b"d")], &mut control, SendFlags::NOSIGNAL)?;
    }
    Ok(())
}

fn send_state(mut stream: &UnixStream, state: &YardState) -> io::Result<()> {
    let core = |core: &Arc<CoreState>| (core.ports.clone(), core.work.len() as u64);
    let control = |(kind, state): &(String, Vec<u8>)| (kind.clone(), state.len() as u64);
    let sizes = Sizes {
        cores: state.cores.iter().map(core).collect(),
        control: state.control.iter().map(control).collect(),
    };
    Response::Answer(sizes).send(stream)?;
    state.cores.iter().try_for_each(|core| stream.write_all(&core.work))?;
    state.control.iter().try_for_each(|(_, state)| stream.write_all(state))
}

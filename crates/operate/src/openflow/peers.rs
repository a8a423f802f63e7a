//! Opening of connections: one thread for each outgoing connection, with a pause that grows while the
//! controller is unreachable, and one thread for each address that the switch listens on.

use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crossbeam_channel::RecvTimeoutError;
use flowyard_openflow::Version;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::connection;
use super::endpoint::{Endpoint, Transport};
use super::link::{Dialed, dial};
use super::outbox::Outbox;
use super::shared::{Part, Shared, Status, Threads};
use super::sync::lock;
use crate::socket::{self, SocketError, SocketFile};

/// The most connections at a time on one listening address.
const MOST: usize = 64;
/// In place of a connection's number: no main connection is up.
const NONE: u32 = 0;

/// The number of a new connection, from 1.
fn number(shared: &Shared) -> u32 {
    shared.numbers.fetch_add(1, Ordering::Relaxed) + 1
}

fn status(shared: &Shared, status: Status) -> Arc<Mutex<Status>> {
    let status = Arc::new(Mutex::new(status));
    lock(&shared.board).push(Arc::clone(&status));
    status
}

/// Starts the threads of the main connection and the auxiliary connections to a controller.
pub(super) fn dial_all(
    endpoint: &Endpoint,
    shared: &Shared,
    threads: &mut Threads,
) -> io::Result<()> {
    let main = Arc::new(AtomicU32::new(NONE));
    for auxiliary in 0..=shared.config.auxiliary {
        let (endpoint, shared, main) = (endpoint.clone(), shared.clone(), Arc::clone(&main));
        let name = endpoint.to_string();
        let state = Status { endpoint: name, auxiliary, dialed: true, ..Status::default() };
        let status = status(&shared, state);
        threads.spawn("of-dial", move || {
            Dialer { endpoint, shared, main, auxiliary, status }.run();
        })?;
    }
    Ok(())
}

struct Dialer {
    endpoint: Endpoint,
    shared: Shared,
    /// The main connection's number while it is up.
    main: Arc<AtomicU32>,
    auxiliary: u8,
    status: Arc<Mutex<Status>>,
}

impl Dialer {
    fn run(&self) {
        let (first, longest) = self.shared.config.backoff;
        let mut pause = first;
        loop {
            let came_up = self.once();
            pause = if came_up { first } else { (pause * 2).min(longest) };
            match self.shared.stop.recv_timeout(pause) {
                Err(RecvTimeoutError::Timeout) => {}
                _ => return,
            }
        }
    }

    /// Opens one connection and runs it to its end. Returns whether it came up.
    fn once(&self) -> bool {
        let main = self.main.load(Ordering::Acquire);
        if self.auxiliary > 0 && main == NONE {
            return true;
        }
        if self.shared.heartbeat.is_stuck() {
            self.log_failure("the OpenFlow agent does not respond");
            return false;
        }
        let link = dial(&self.endpoint, self.shared.tls.as_deref());
        let outbox = self.shared.outbox();
        let (link, outbox) = match (link, outbox) {
            (Ok(link), Ok(outbox)) => (link, outbox),
            (Err(error), _) | (_, Err(error)) => {
                self.log_failure(&error.to_string());
                return false;
            }
        };
        let number = number(&self.shared);
        let aux = self.auxiliary > 0;
        let main = Some(main).filter(|_| aux);
        let part = Part { number, main, auxiliary: self.auxiliary, dialed: true };
        let mut came_up = false;
        let mut up = |version: Version| {
            came_up = true;
            tracing::info!(controller = %self.endpoint, ?version, "connected");
            if !aux && version != Version::V10 {
                self.main.store(number, Ordering::Release);
            }
        };
        let why = connection::run(link, part, &self.shared, &self.status, &outbox, &mut up);
        if !aux {
            self.main.store(NONE, Ordering::Release);
        }
        if came_up {
            tracing::info!(controller = %self.endpoint, why, "disconnected");
        } else {
            self.log_failure(&why);
        }
        came_up
    }

    /// Records that an attempt to connect failed. It is logged at once, and then again when the reason
    /// changes, or after ever more attempts.
    fn log_failure(&self, error: &str) {
        let failed = {
            let mut status = lock(&self.status);
            let is_news = status.failed == 0 || status.error != error;
            error.clone_into(&mut status.error);
            status.failed += 1;
            (is_news || status.failed.is_power_of_two()).then_some(status.failed)
        };
        if let Some(attempts) = failed {
            tracing::warn!(
                controller = %self.endpoint,
                error,
                attempts,
                "the controller cannot be reached; the switch keeps trying"
            );
        }
    }
}

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener, bool),
    /// The socket is removed with the listener.
    Unix {
        listener: UnixListener,
        _file: SocketFile,
    },
}

/// A bound listening address.
#[derive(Debug)]
pub(super) struct Bound {
    listener: Listener,
    /// With the port that the system chose.
    pub(super) endpoint: Endpoint,
}

/// Binds a listening address.
pub(super) fn bind(endpoint: &Endpoint) -> io::Result<Bound> {
    let is_tls = endpoint.is_tls();
    let mut endpoint = endpoint.clone();
    let listener = match &mut endpoint.transport {
        Transport::Tcp(host, port) | Transport::Tls(host, port) => {
            let listener = TcpListener::bind((host.as_str(), *port))?;
            *port = listener.local_addr()?.port();
            listener.set_nonblocking(true)?;
            Listener::Tcp(listener, is_tls)
        }
        Transport::Unix(path) => {
            // Who can write to the socket can control the switch.
            let (listener, file) = socket::bind(path, 0o600, None).map_err(failed)?;
            listener.set_nonblocking(true)?;
            Listener::Unix { listener, _file: file }
        }
    };
    Ok(Bound { listener, endpoint })
}

/// The error for a Unix socket that cannot be bound.
fn failed(error: SocketError) -> io::Error {
    match error {
        SocketError::Io(error) => error,
        SocketError::Taken => io::Error::new(io::ErrorKind::AddrInUse, error.to_string()),
        error => io::Error::other(error.to_string()),
    }
}

/// Warns if hosts can connect that need no certificate.
pub(super) fn warn(bound: &Bound) {
    let Transport::Tcp(..) = bound.endpoint.transport else { return };
    let Listener::Tcp(listener, _) = &bound.listener else { return };
    if listener.local_addr().is_ok_and(|address| !address.ip().to_canonical().is_loopback()) {
        tracing::warn!(
            "OpenFlow: every host that can reach {} may control the switch without authentication; listen with \
             ptls:, or on the loopback address",
            bound.endpoint
        );
    }
}

/// Starts the thread that accepts connections.
pub(super) fn listen(bound: Arc<Bound>, shared: &Shared, threads: &mut Threads) -> io::Result<()> {
    let shared = shared.clone();
    threads.spawn("of-listen", move || accept_all(&bound.listener, &bound.endpoint, &shared))
}

/// A connection that a controller has opened.
struct Peer {
    status: Arc<Mutex<Status>>,
    outbox: Arc<Outbox>,
}

/// The open connections of a listener, the oldest first.
type Open = Mutex<Vec<Arc<Peer>>>;

/// Makes room for another connection: if there are too many, the oldest one that is not up is closed. Returns whether
/// there is room.
fn make_room(open: &Open) -> bool {
    let mut open = lock(open);
    if open.len() < MOST {
        return true;
    }
    let waits = |peer: &Arc<Peer>| lock(&peer.status).version.is_none();
    let oldest = open.iter().position(waits).map(|at| open.remove(at));
    oldest.is_some_and(|peer| {
        peer.outbox.close("there are too many connections, and this one was not up");
        true
    })
}

fn accept_all(listener: &Listener, endpoint: &Endpoint, shared: &Shared) {
    let open = Open::default();
    let mut failing = false;
    thread::scope(|scope| {
        while !shared.stops() {
            let fd = match listener {
                Listener::Tcp(listener, _) => listener.as_fd(),
                Listener::Unix { listener, .. } => listener.as_fd(),
            };
            let time = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
            let _ = poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&time));
            let (link, name) = match accept(listener, shared) {
                Ok(Some(accepted)) => {
                    failing = false;
                    accepted
                }
                Ok(None) => continue,
                Err(error) => {
                    if let Some(pause) = pause_after(&error, &mut failing, endpoint) {
                        thread::sleep(pause);
                    }
                    continue;
                }
            };
            if shared.heartbeat.is_stuck() {
                tracing::debug!(%endpoint, peer = name, "connection refused: the OpenFlow agent does not respond");
                continue;
            }
            if !make_room(&open) {
                tracing::warn!(%endpoint, peer = name, "connection refused: too many connections");
                continue;
            }
            let Ok(outbox) = shared.outbox() else { continue };
            let state = Status { endpoint: endpoint.to_string(), peer: name, ..Status::default() };
            let peer = Arc::new(Peer { status: status(shared, state), outbox });
            lock(&open).push(Arc::clone(&peer));
            let (served, open) = (Arc::clone(&peer), &open);
            let work = move || {
                serve(link, endpoint, &served, shared);
                forget(&served, open, shared);
            };
            // Without memory for a thread there is no connection, but there is a listener.
            if let Err(error) =
                thread::Builder::new().name("of-peer".into()).spawn_scoped(scope, work)
            {
                forget(&peer, open, shared);
                tracing::warn!(%endpoint, %error, "connection refused: it would need a thread");
            }
        }
    });
}

/// The connection has ended.
fn forget(peer: &Arc<Peer>, open: &Open, shared: &Shared) {
    lock(open).retain(|other| !Arc::ptr_eq(other, peer));
    lock(&shared.board).retain(|other| !Arc::ptr_eq(other, &peer.status));
}

/// The pause after accept(2) has failed, for example because no descriptor is free. The connection still waits then, so
/// that the thread would try without end. It is logged once, until a connection is accepted.
fn pause_after(error: &io::Error, failing: &mut bool, endpoint: &Endpoint) -> Option<Duration> {
    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) {
        return None;
    }
    if !std::mem::replace(failing, true) {
        tracing::warn!(%endpoint, %error, "connections cannot be accepted; the switch keeps trying");
    }
    Some(Duration::from_millis(100))
}

/// Accepts a connection. `None`: it cannot be used. An error is that of accept(2).
fn accept(listener: &Listener, shared: &Shared) -> io::Result<Option<(Dialed, String)>> {
    let taken = match listener {
        Listener::Tcp(listener, secure) => {
            let (stream, peer) = listener.accept()?;
            let tls = shared.tls.as_ref().filter(|_| *secure).map(|tls| tls.server());
            let tls = tls.transpose();
            tls.and_then(|tls| Dialed::tcp(stream, tls)).map(|link| (link, peer.to_string()))
        }
        Listener::Unix { listener, .. } => {
            let (stream, _) = listener.accept()?;
            Dialed::unix(stream).map(|link| (link, "unix".into()))
        }
    };
    let failed = |error| tracing::warn!(%error, "a connection could not be accepted");
    Ok(taken.map_err(failed).ok())
}

fn serve(link: Dialed, endpoint: &Endpoint, peer: &Peer, shared: &Shared) {
    let Peer { status, outbox } = peer;
    let part = Part { number: number(shared), main: None, auxiliary: 0, dialed: false };
    let why = connection::run(link, part, shared, status, outbox, &mut |_| {});
    tracing::debug!(%endpoint, why, "disconnected");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_without_descriptors_pauses() {
        let endpoint = "ptcp:0".parse().unwrap();
        let mut failing = false;
        let error = io::Error::from_raw_os_error;
        let (again, full) = (rustix::io::Errno::AGAIN, rustix::io::Errno::MFILE);
        assert_eq!(pause_after(&error(again.raw_os_error()), &mut failing, &endpoint), None);
        assert!(!failing);
        let pause = pause_after(&error(full.raw_os_error()), &mut failing, &endpoint);
        assert!(failing && pause.is_some_and(|pause| pause >= Duration::from_millis(50)));
    }
}

//! Sessions to peers, and from them.
//!
//! Thread-safety: one thread for each session.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::thread;
use std::time::Duration;

use crossbeam_channel::RecvTimeoutError;
use flowyard_lb::{End, Hub};
use flowyard_yard::Clock;
use ring::hmac::Key;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{Timeout, set_socket_timeout, set_tcp_user_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};

use super::session::Session;
use super::wire::{self, Part};
use super::{Peer, Queue, Synchronization, lock};

/// The time between two attempts to connect, and the longest time until a thread sees that it must end.
const RETRY: Duration = Duration::from_secs(1);
/// The longest time for a connection, and for one read or write at its begin.
const BEGIN: Duration = Duration::from_secs(2);
/// A session ends if nothing could be sent, or nothing was received, for this time. Each scan sends something; the longest
/// interval between two scans is a minute.
pub(super) const SILENT: Duration = Duration::from_secs(10);
/// The most sessions from peers at a time; each peer needs one.
const SESSIONS: usize = 256;

/// Sends reports to a peer until the threads must end.
pub(super) fn send(shared: &Synchronization, at: usize, key: &Key, check: u64, queue: &Queue) {
    let (peer, address) = (&shared.peers[at], shared.settings.peers[at]);
    loop {
        let ended = session(shared, (peer, address), key, check, queue);
        let was_up = peer.sends.swap(false, Relaxed);
        if shared.has_stopped() {
            return;
        }
        let why = ended.map_or_else(|error| describe(&error), |()| "it is too slow".to_owned());
        let last = lock(&peer.wrong).replace(why.clone());
        if was_up || last.as_ref() != Some(&why) {
            tracing::warn!(peer = %address, "connections are not synchronized to this node: {why}");
        }
        if shared.pause(RETRY) {
            return;
        }
    }
}

/// A session to a peer. Returns without an error if the threads must end, or the peer is too slow.
fn session(
    shared: &Synchronization,
    (peer, address): (&Peer, SocketAddr),
    key: &Key,
    check: u64,
    queue: &Queue,
) -> io::Result<()> {
    let mut stream = open(shared.settings.listen.ip(), address)?;
    let mut session = Session::connect(&mut stream, key)?;
    stream.set_write_timeout(Some(SILENT))?;
    set_tcp_user_timeout(&stream, SILENT.as_millis() as u32)?;
    session.write(&mut stream, &wire::hello(check, shared.settings.listen.port()))?;
    while queue.try_recv().is_ok() {} // messages of the last session
    peer.is_slow.store(false, Relaxed);
    peer.sends.store(true, Relaxed);
    let number = peer.session.fetch_add(1, Release) + 1;
    *lock(&peer.wrong) = None;
    let reads_ends = session.reads_ends();
    tracing::info!(peer = %address, reads_ends, "connections are synchronized to this node");
    loop {
        match queue.recv_timeout(RETRY) {
            Ok((of, message)) if of == number && (reads_ends || message.ends == 0) => {
                let bytes = session.write(&mut stream, &message.bytes)?;
                peer.sent.fetch_add(message.connections, Relaxed);
                peer.sent_bytes.fetch_add(bytes, Relaxed);
                peer.sent_ends.fetch_add(message.ends, Relaxed);
            }
            Ok(_) => {} // of a session that has ended, or for a later version
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        if shared.has_stopped() || peer.is_slow.load(Relaxed) {
            return Ok(());
        }
        // The peer sends nothing after the beginning; that the stream is readable means that it was closed.
        let mut polled = [PollFd::new(&stream, PollFlags::IN)];
        if poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? > 0 {
            return Err(io::Error::other("the other node has closed the session"));
        }
    }
}

/// Connects to `to` from the address `from`.
fn open(from: IpAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    if !from.is_unspecified() && from.is_ipv4() == to.is_ipv4() {
        bind(&socket, &SocketAddr::new(from, 0))?;
    }
    set_socket_timeout(&socket, Timeout::Send, Some(BEGIN))?; // limits connect(2), too
    set_socket_timeout(&socket, Timeout::Recv, Some(BEGIN))?;
    connect(&socket, &to)?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// What a session from a peer needs.
#[derive(Clone)]
pub(super) struct Local {
    pub(super) key: Key,
    pub(super) check: u64,
    pub(super) hub: Arc<Hub>,
    pub(super) clock: Clock,
}

/// Accepts sessions until the threads must end.
pub(super) fn accept(shared: &Arc<Synchronization>, listener: &TcpListener, local: &Local) {
    let (mut sessions, mut refused) = (Vec::new(), None);
    while !shared.has_stopped() {
        let wait = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
        let _interrupted = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&wait));
        sessions.retain(|session: &thread::JoinHandle<()>| !session.is_finished());
        let (stream, from) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(_) => {
                shared.pause(RETRY); // no descriptor is free
                continue;
            }
        };
        let ip = from.ip().to_canonical();
        if !shared.settings.peers.iter().any(|peer| peer.ip() == ip) {
            if refused.replace(ip) != Some(ip) {
                tracing::warn!(%from, "refused a session: no entry of 'peers' in [balance.sync] has this address");
            }
            continue;
        }
        if sessions.len() >= SESSIONS {
            continue;
        }
        let (of_shared, local) = (Arc::clone(shared), local.clone());
        let run = move || {
            if let Err(error) = receive(&of_shared, ip, stream, &local)
                && !of_shared.has_stopped()
            {
                tracing::warn!(%from, "a session from another node has ended: {}", describe(&error));
            }
        };
        if let Ok(session) = thread::Builder::new().name("sync-from".into()).spawn(run) {
            sessions.push(session);
        }
    }
    for session in sessions {
        let _ended = session.join();
    }
}

/// A session from the peer with this address.
fn receive(
    shared: &Synchronization,
    ip: IpAddr,
    mut stream: TcpStream,
    local: &Local,
) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(BEGIN))?;
    stream.set_read_timeout(Some(BEGIN))?;
    let mut session = Session::accept(&mut stream, &local.key)?;
    let mut message = Vec::new();
    session.read(&mut stream, &mut message)?;
    let [Part::Hello { check, port }] = read(&message)?[..] else {
        return Err(io::Error::other(wire::BadMessage));
    };
    if check != local.check {
        let what = "it has another 'seed' in [balance], so its connections cannot be used";
        return Err(io::Error::other(what));
    }
    let from = SocketAddr::new(ip, port);
    let peer = shared.peers().find(|(address, _)| *address == from);
    let (_, peer) = peer.ok_or_else(|| {
        io::Error::other(format!(
            "no entry of 'peers' in [balance.sync] is {from}, where it listens"
        ))
    })?;
    peer.receives.fetch_add(1, Relaxed);
    let ended = hear(shared, peer, (&mut stream, &mut session), local);
    if peer.receives.fetch_sub(1, Relaxed) == 1 {
        lock(&peer.verdicts).clear(); // it has no vote any more
    }
    ended
}

fn hear(
    shared: &Synchronization,
    peer: &Peer,
    (stream, session): (&mut TcpStream, &mut Session),
    local: &Local,
) -> io::Result<()> {
    let replica = local.hub.replicated();
    let replica =
        replica.ok_or_else(|| io::Error::other("the balancer has no room for connections"))?;
    stream.set_read_timeout(Some(SILENT))?;
    let (mut message, mut verdicts) = (Vec::new(), BTreeMap::new());
    loop {
        wait(shared, stream)?;
        if shared.has_stopped() {
            return Ok(());
        }
        let bytes = session.read(stream, &mut message)?;
        peer.received_bytes.fetch_add(bytes, Relaxed);
        let (now, mut count) = ((local.clock)(), 0);
        let (mut gone, mut ends) = (Vec::new(), Vec::new());
        for part in read(&message)? {
            match part {
                Part::Has { hash, backend, lifetime } => {
                    replica.put(hash, backend, now, lifetime);
                    count += 1;
                }
                Part::Gone { hash } => {
                    replica.remove(hash);
                    gone.push(hash);
                }
                Part::Ended { hash, end, age_ms } => {
                    let at = now.saturating_sub(u64::from(age_ms) * 1_000_000);
                    ends.push(End { hash, end, at });
                }
                Part::Verdict { backend, is_up } => _ = verdicts.insert(backend, is_up),
                Part::Complete => {
                    *lock(&peer.verdicts) = std::mem::take(&mut verdicts);
                    peer.is_complete.store(true, Relaxed);
                }
                Part::Hello { .. } => return Err(io::Error::other(wire::BadMessage)),
            }
        }
        peer.received.fetch_add(count, Relaxed);
        peer.received_ends.fetch_add(ends.len() as u64, Relaxed);
        let changed = local.hub.apply_ends(&ends, now);
        let others = ends.iter().zip(changed).filter(|(_, changed)| !changed);
        gone.extend(others.map(|(end, _)| end.hash));
        lock(&shared.gone).extend(gone);
    }
}

/// Waits for the next message, for no longer than a session may be silent.
fn wait(shared: &Synchronization, stream: &TcpStream) -> io::Result<()> {
    let longest = SILENT.max(3 * shared.settings.interval);
    let mut waited = Duration::ZERO;
    while waited < longest && !shared.has_stopped() {
        let tick = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
        if poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&tick))? > 0 {
            return Ok(());
        }
        waited += Duration::from_millis(200);
    }
    if shared.has_stopped() {
        return Ok(());
    }
    Err(io::Error::other("nothing was received for too long"))
}

fn read(message: &[u8]) -> io::Result<Vec<Part>> {
    wire::read(message).map_err(io::Error::other)
}

/// The error for a person.
fn describe(error: &io::Error) -> String {
    use io::ErrorKind::{TimedOut, UnexpectedEof, WouldBlock};
    match error.kind() {
        WouldBlock | TimedOut => "it does not answer".into(),
        UnexpectedEof => "the other node has closed the session".into(),
        _ => error.to_string(),
    }
}

//! memcached with clients on the same two CPUs: requests per second, and the share of requests received on
//! the CPU of the thread that serves them.
//!
//! The share comes from the kernel: after a request, the server's socket reports the CPU that received its
//! last packet (SO_INCOMING_CPU). The thread that has the socket in its epoll set is pinned, so its CPU is
//! known.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::time::Duration;
use std::{env, thread};

use anyhow::Context;
use flowyard_hostsim::closed::Steering;
use flowyard_yard::Clock;
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags};

use super::hosts::{FlowTable, Hosts, SERVER};
use super::priority::{hurry, hurry_thread};
use super::quiet::Others;
use super::sockets::{ANSWER, ASK};
use crate::load::protocol::{Asked, Protocol, Records};
use crate::stats::median;

const PORT: u16 = 11_211;
/// Client threads on each CPU that has clients.
pub(crate) const CLIENTS: usize = 8;
/// Connections of each client thread.
pub(crate) const CONNECTIONS: usize = 8;
/// Nanoseconds to warm up, to count requests, and to read the receiving CPU after each request.
const TIMES: [u64; 3] = [40_000_000, 160_000_000, 60_000_000];

/// No threads but those of connections: the LRU maintainer runs for up to a millisecond at a time, on the CPUs of the other
/// threads. memcached 1.4.15, which the Flow Director paper measured, has no such thread. And a hash table that does not grow.
const OPTIONS: &str = "no_lru_maintainer,no_lru_crawler,hashpower=20";

/// A memcached process, killed when this is dropped.
pub(crate) struct Server {
    pub(crate) child: Child,
    /// Its worker threads: thread number, and file descriptor of the epoll set that each waits for.
    pub(crate) threads: Vec<(Pid, u32)>,
}

impl Server {
    pub(crate) fn start(arguments: &[&str], threads: usize) -> anyhow::Result<Self> {
        let child = Command::new("memcached")
            .args(arguments)
            .args(["-t", &threads.to_string(), "-o", OPTIONS])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("memcached")?;
        let mut server = Self { child, threads: Vec::new() };
        for _ in 0..200 {
            thread::sleep(Duration::from_millis(10));
            server.threads = server.workers().unwrap_or_default();
            if server.threads.len() == threads {
                return Ok(server);
            }
        }
        anyhow::bail!(
            "no {threads} worker threads of memcached were found within 2 s: run `memcached -u nobody -t {threads}` \
             to see whether it starts, and `ps -L` to see whether it names its threads mc-worker"
        )
    }

    /// The worker threads that wait for an epoll set. The set is the first argument of their system call.
    fn workers(&self) -> anyhow::Result<Vec<(Pid, u32)>> {
        let mut all = Vec::new();
        for task in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let task = task?;
            if !fs::read_to_string(task.path().join("comm"))?.starts_with("mc-worker") {
                continue;
            }
            let call = fs::read_to_string(task.path().join("syscall"))?;
            let set =
                call.split_whitespace().nth(1).context("the thread is not in a system call")?;
            let set = u32::from_str_radix(set.trim_start_matches("0x"), 16)?;
            let number = task.file_name().to_string_lossy().parse()?;
            all.push((Pid::from_raw(number).context("a thread's number is 0")?, set));
        }
        all.sort_by_key(|(thread, _)| thread.as_raw_nonzero());
        Ok(all)
    }

    /// The server's socket for each client's address, and the index of the thread that serves it.
    pub(crate) fn sockets(&self) -> anyhow::Result<BTreeMap<SocketAddr, (OwnedFd, usize)>> {
        let process = Pid::from_raw(self.child.id() as i32).context("a process's number is 0")?;
        let process = rustix::process::pidfd_open(process, PidfdFlags::empty())?;
        let mut all = BTreeMap::new();
        for (at, (_, set)) in self.threads.iter().enumerate() {
            let path = format!("/proc/{}/fdinfo/{set}", self.child.id());
            for line in fs::read_to_string(path)?.lines() {
                let mut words = line.split_whitespace();
                if words.next() != Some("tfd:") {
                    continue;
                }
                let number = words.next().context("tfd: without a number in fdinfo")?.parse()?;
                let none = PidfdGetfdFlags::empty();
                let socket = rustix::process::pidfd_getfd(&process, number, none)?;
                let peer = rustix::net::getpeername(&socket).ok().flatten();
                if let Some(peer) = peer.and_then(|peer| SocketAddr::try_from(peer).ok()) {
                    all.insert(peer, (socket, at));
                }
            }
        }
        Ok(all)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = (self.child.kill(), self.child.wait());
    }
}

fn put(mut stream: impl Read + Write) -> anyhow::Result<()> {
    stream.write_all(format!("set key 0 0 100\r\n{}\r\n", "v".repeat(100)).as_bytes())?;
    let mut answer = [0; 8];
    stream.read_exact(&mut answer)?;
    anyhow::ensure!(&answer == b"STORED\r\n", "memcached did not answer STORED to a set request");
    Ok(())
}

fn get(mut stream: &TcpStream) -> anyhow::Result<()> {
    stream.write_all(ASK)?;
    let mut answer = [0; ANSWER];
    stream.read_exact(&mut answer)?;
    anyhow::ensure!(
        answer.starts_with(b"VALUE key 0 100\r\n"),
        "memcached did not answer a get request with the value"
    );
    Ok(())
}

/// The results of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// Requests per second.
    pub(crate) rate: f64,
    /// Share of requests whose packet was received on the CPU of the thread that serves it.
    pub(crate) local_share: f64,
    /// Share of all CPU time that other programs used.
    pub(crate) others: f64,
}

/// A connection: the client's end, the server's, and the CPU of the thread that serves it.
type End = (TcpStream, OwnedFd, usize);

/// Sends requests over random connections for the three [`TIMES`]. Returns the requests counted, those
/// received on the serving thread's CPU, and the requests for which that was checked.
fn client(ends: &[End], seed: u64, clock: &Clock) -> anyhow::Result<[u64; 3]> {
    let mut random = flowyard_testkit::Rng::new(seed);
    let mut pick = || &ends[random.below(ends.len() as u64) as usize];
    let mut end = clock() + TIMES[0];
    let mut counts = [0; 3];
    while clock() < end {
        get(&pick().0)?;
    }
    end += TIMES[1];
    while clock() < end {
        get(&pick().0)?;
        counts[0] += 1;
    }
    end += TIMES[2];
    while clock() < end {
        let (stream, socket, cpu) = pick();
        get(stream)?;
        let came = rustix::net::sockopt::socket_incoming_cpu(socket)?;
        counts[1] += u64::from(came as usize == *cpu);
        counts[2] += 1;
    }
    Ok(counts)
}

/// One run with two server threads and clients on both CPUs, or with one server thread on the second CPU
/// and clients on the first.
pub(crate) fn measure(
    steering: Steering,
    servers: usize,
    seed: u64,
    clock: &Clock,
) -> anyhow::Result<Measured> {
    let hosts = Hosts::new()?;
    let _table = if steering == Steering::Rfs { Some(FlowTable::set(32_768)?) } else { None };
    let (cpus, flows) = match steering {
        Steering::None => (0, 0),
        Steering::Rps => (3, 0),
        Steering::Rfs => (3, 4096),
    };
    hosts.server.steer("vb", cpus, flows)?;
    let (address, port) = (SERVER.to_string(), PORT.to_string());
    let arguments = ["-u", "nobody", "-l", &address, "-U", "0", "-p", &port];
    let server = hosts.server.within(|| Server::start(&arguments, servers))?;
    let cpu_of = |at: usize| (at + 2 - servers) % 2;
    for (at, (thread, _)) in server.threads.iter().enumerate() {
        hurry_thread(*thread, cpu_of(at))?;
    }
    // One at a time, because memcached assigns connections to its threads in turn.
    let streams = hosts.connect(PORT, servers * CLIENTS * CONNECTIONS)?;
    streams.iter().try_for_each(put)?;
    let mut sockets = server.sockets()?;
    let mut ends: Vec<Vec<End>> = (0..servers * CLIENTS).map(|_| Vec::new()).collect();
    for (n, stream) in streams.into_iter().enumerate() {
        let (socket, at) = sockets
            .remove(&stream.local_addr()?)
            .context("memcached has no socket for a connection")?;
        ends[n / CONNECTIONS].push((stream, socket, cpu_of(at)));
    }
    let barrier = Barrier::new(ends.len());
    let run = |(n, ends): (usize, &Vec<End>)| {
        let ready = hurry(n % servers);
        barrier.wait();
        ready?;
        let others = (n == 0).then(|| Others::from(Some(server.child.id())));
        let counts = client(ends, seed + n as u64, clock)?;
        Ok((counts, others.map_or(0.0, |others| others.share())))
    };
    let run = &run;
    let counts = thread::scope(|scope| {
        let all: Vec<_> =
            ends.iter().enumerate().map(|one| scope.spawn(move || run(one))).collect();
        all.into_iter()
            .map(|one| one.join().map_err(|_| anyhow::anyhow!("a measuring thread panicked"))?)
            .collect::<anyhow::Result<Vec<([u64; 3], f64)>>>()
    })?;
    let sum = |at: usize| counts.iter().map(|(counts, _)| counts[at]).sum::<u64>() as f64;
    let rate = sum(0) * 1e9 / TIMES[1] as f64;
    let others = counts.iter().map(|(_, others)| *others).sum();
    Ok(Measured { rate, local_share: sum(1) / sum(2).max(1.0), others })
}

/// Random requests for stored records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix {
    pub(crate) records: Records,
    /// Share of requests that store a value.
    pub(crate) sets: f64,
}

impl Mix {
    /// Sends a request; returns the length of its answer.
    fn ask(
        self,
        mut to: impl Write,
        rng: &mut flowyard_testkit::Rng,
        bytes: &mut Vec<u8>,
    ) -> std::io::Result<usize> {
        bytes.clear();
        let protocol = Protocol::Memcached { records: self.records, sets: self.sets };
        let asked = protocol.ask(rng, bytes);
        to.write_all(bytes)?;
        bytes.clear();
        match asked {
            Asked::Get(key) => self.records.got(key, bytes),
            Asked::Set | Asked::Page => bytes.extend_from_slice(b"STORED\r\n"),
        }
        Ok(bytes.len())
    }
}

/// Connections in a batch: the number of events that one `epoll_wait` of memcached returns.
const BATCH: usize = 32;
const BATCHES: usize = 100;

/// Nanoseconds that memcached itself needs for a request, without its system calls: for the same short key each time, or
/// for the requests of `mix`. Requests are sent in batches over Unix sockets, to exclude the network, from a thread on
/// memcached's own CPU.
pub(crate) fn request(
    clock: &Clock,
    clock_ns: f64,
    switch_ns: f64,
    epoll: [f64; 2],
    mix: Option<Mix>,
) -> anyhow::Result<f64> {
    let path = Socket(env::temp_dir().join(format!("flowyard-{}.sock", std::process::id())));
    let megabytes = mix.map_or(64, |mix| mix.records.megabytes()).to_string();
    let arguments = ["-u", "root", "-m", &megabytes, "-s", &path.0.to_string_lossy()];
    let server = Server::start(&arguments, 1)?;
    for _ in 0..200 {
        if path.0.exists() {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    thread::sleep(Duration::from_millis(10)); // it binds, then listens
    hurry_thread(server.threads[0].0, 1)?;
    let connect = |_| {
        let mut stream = UnixStream::connect(&path.0)?;
        put(&mut stream)?;
        Ok(stream)
    };
    let mut streams = (0..BATCH).map(connect).collect::<anyhow::Result<Vec<_>>>()?;
    if let Some(Mix { records, .. }) = mix {
        records.store(&mut streams[0], 0..records.keys)?;
    }
    let run = || -> anyhow::Result<f64> {
        hurry(1)?;
        let mut rng = flowyard_testkit::Rng::new(1);
        let (mut times, mut asks) = (Vec::new(), Vec::new());
        let (mut answer, mut request) = (vec![0; ANSWER], Vec::new());
        for _ in 0..BATCHES {
            asks.clear();
            for stream in &mut streams {
                let length = match mix {
                    None => stream.write_all(ASK).map(|()| ANSWER)?,
                    Some(mix) => mix.ask(stream, &mut rng, &mut request)?,
                };
                asks.push(length);
            }
            // memcached runs next on this CPU, until it has nothing more to do.
            let began = clock();
            rustix::thread::sched_yield();
            times.push((clock() - began) as f64);
            for (stream, length) in streams.iter_mut().zip(&asks) {
                answer.resize(*length, 0);
                stream.read_exact(&mut answer)?;
            }
        }
        let batch = median(&mut times) - clock_ns - 2.0 * switch_ns - 2.0 * epoll[0];
        let calls = calls(clock, clock_ns)?;
        Ok((batch / BATCH as f64 - epoll[1] - calls).max(0.0))
    };
    thread::scope(|scope| {
        scope.spawn(run).join().map_err(|_| anyhow::anyhow!("a measuring thread panicked"))?
    })
}

/// Nanoseconds of memcached's system calls for a request on a Unix socket: a read, a send, and a read that
/// finds nothing.
fn calls(clock: &Clock, clock_ns: f64) -> anyhow::Result<f64> {
    let mut pairs = Vec::new();
    for _ in 0..BATCH {
        let pair = UnixStream::pair()?;
        pair.0.set_nonblocking(true)?;
        pairs.push(pair);
    }
    let (mut times, mut buffer) = (Vec::new(), [0; 2048]);
    for _ in 0..BATCHES {
        for (server, client) in &mut pairs {
            client.write_all(ASK)?;
            let began = clock();
            let read = server.read(&mut buffer)?;
            server.write_all(&[b'v'; ANSWER])?;
            let nothing = server.read(&mut buffer).is_err();
            times.push((clock() - began) as f64);
            anyhow::ensure!(read == ASK.len() && nothing, "a Unix socket lost or invented bytes");
            client.read_exact(&mut buffer[..ANSWER])?;
        }
    }
    Ok((median(&mut times) - clock_ns).max(0.0))
}

/// The path of a Unix socket, removed when this is dropped.
struct Socket(PathBuf);

impl Drop for Socket {
    fn drop(&mut self) {
        let _gone = fs::remove_file(&self.0);
    }
}

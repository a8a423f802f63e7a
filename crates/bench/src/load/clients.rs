//! A memcached with two threads on two CPUs, and the two threads of the generator on the same CPUs.
//!
//! Connections belong to threads: memcached assigns them in turn. Each of the two client threads has half of the
//! connections of each server thread, so that without steering half of the requests arrive where they are served.
//!
//! Thread-safety: a client thread has its connections for the time of a run.

use std::sync::Barrier;
use std::time::Duration;

use anyhow::{Context, ensure};
use flowyard_frame::Nanos;
use flowyard_yard::Clock;
use rustix::process::Pid;
use rustix::thread::CpuSet;

use super::protocol::{Protocol, Records};
use super::{Conn, Pace, Plan, Tally, drive};
use crate::live::hosts::{Hosts, SERVER};
use crate::live::memcached::Server;

/// Threads of the server, and of the clients.
pub(crate) const THREADS: usize = 2;
/// Warming up, as a share of a measurement.
const WARM: f64 = 0.25;
/// The port of memcached.
pub(crate) const PORT: u16 = 11_211;

/// The first two CPUs that this process may use.
pub(crate) fn cpus() -> anyhow::Result<[usize; THREADS]> {
    let set = rustix::thread::sched_getaffinity(None)?;
    // The mask of RPS is written as one word.
    let mut all = (0..32).filter(|cpu| set.is_set(*cpu));
    match (all.next(), all.next()) {
        (Some(first), Some(second)) => Ok([first, second]),
        _ => anyhow::bail!("two of the CPUs 0 to 31 are needed; see taskset"),
    }
}

/// Pins a thread to `cpu`.
pub(crate) fn pin(thread: Option<Pid>, cpu: usize) -> rustix::io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(thread, &set)
}

/// Starts memcached on the server, with memory for `megabytes` of records and a thread on each of `cpus`.
pub(crate) fn server(
    hosts: &Hosts,
    cpus: [usize; THREADS],
    connections: usize,
    megabytes: u64,
) -> anyhow::Result<Server> {
    let (address, port) = (SERVER.to_string(), PORT.to_string());
    let (most, memory) = ((connections + 64).to_string(), megabytes.to_string());
    let place = ["-u", "nobody", "-l", &address, "-U", "0", "-p", &port];
    let arguments = [&place[..], &["-c", &most, "-m", &memory]].concat();
    let server = hosts.server.within(|| Server::start(&arguments, THREADS))?;
    for ((thread, _), cpu) in server.threads.iter().zip(cpus) {
        pin(Some(*thread), cpu).with_context(|| format!("pinning a thread to CPU {cpu}"))?;
    }
    Ok(server)
}

/// The connections of each client thread.
pub(crate) struct Clients {
    conns: [Vec<Conn>; THREADS],
    cpus: [usize; THREADS],
}

impl Clients {
    /// Opens `connections`.
    pub(crate) fn connect(
        hosts: &Hosts,
        server: &Server,
        cpus: [usize; THREADS],
        connections: usize,
        records: Records,
    ) -> anyhow::Result<Self> {
        let streams = hosts.connect(PORT, connections)?;
        // Each connection has been given to a thread when it has been answered.
        for (key, stream) in (0..).zip(&streams) {
            let key = key % records.keys;
            records.store(stream, key..key + 1)?;
        }
        let mut sockets = server.sockets()?;
        let mut conns = [Vec::new(), Vec::new()];
        let mut of_thread = [0; THREADS];
        for stream in streams {
            let (socket, thread) = sockets
                .remove(&stream.local_addr()?)
                .context("memcached has no socket for a connection")?;
            let client = of_thread[thread] % THREADS;
            of_thread[thread] += 1;
            conns[client].push(Conn::new(stream, Some((socket, cpus[thread])))?);
        }
        Ok(Self { conns, cpus })
    }

    /// One load, by a client thread on each CPU, which warms up and then lasts `time`. Answers are waited for
    /// `patience` after the last request.
    ///
    /// # Errors
    /// When a request has no answer, or a wrong one.
    pub(crate) fn run(
        &mut self,
        protocol: Protocol,
        pace: Pace,
        time: Duration,
        patience: Nanos,
        seed: u64,
        clock: &Clock,
    ) -> anyhow::Result<Tally> {
        let time = time.as_nanos() as Nanos;
        let pace = match pace {
            Pace::Closed => Pace::Closed,
            Pace::Open(rate) => Pace::Open(rate / THREADS as f64),
        };
        let barrier = Barrier::new(THREADS);
        let cpus = self.cpus;
        let client = |at: usize, conns: &mut Vec<Conn>| {
            let ready = pin(None, cpus[at]);
            // The default would let each sleep take 50 us longer.
            let slack = rustix::thread::set_current_timer_slack(std::num::NonZero::new(1));
            barrier.wait();
            ready.and(slack).context("preparing a client thread")?;
            let from = clock() + (time as f64 * WARM) as Nanos;
            let seed = seed * THREADS as u64 + at as u64;
            let plan = Plan { protocol, pace, from, until: from + time, patience, seed };
            drive(conns, &plan, clock)
        };
        let client = &client;
        let mut all = Tally::default();
        std::thread::scope(|scope| {
            let conns = (0..).zip(&mut self.conns);
            let threads: Vec<_> =
                conns.map(|(at, conns)| scope.spawn(move || client(at, conns))).collect();
            for thread in threads {
                let one = thread.join();
                all.add(&one.map_err(|_| anyhow::anyhow!("a client thread panicked"))??);
            }
            Ok::<_, anyhow::Error>(())
        })?;
        ensure!(
            all.unanswered == 0 && all.broken.is_empty() && all.answered == all.requests,
            "{} of {} requests were not answered {}",
            all.requests - all.answered,
            all.requests,
            all.broken.first().map_or("in time", String::as_str)
        );
        Ok(all)
    }
}

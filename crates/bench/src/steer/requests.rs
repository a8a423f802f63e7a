//! memcached with two threads on two CPUs: the share of requests that are received on the CPU of their thread, requests
//! per second, and latency, in closed and in open loop.
//!
//! Connections belong to threads: memcached assigns them in turn. Each of the two client threads has half of the
//! connections of each server thread, so that without steering half of the requests arrive where they are served.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::path::Path;
use std::sync::Barrier;
use std::time::Duration;

use anyhow::{Context, ensure};
use flowyard_frame::Nanos;
use flowyard_rfc2544::document::Machine;
use flowyard_yard::Clock;
use schemars::JsonSchema;
use serde::Serialize;

use super::load::{Conn, Pace, Plan, Tally, drive};
use super::protocol::{KEYS, Protocol, set};
use super::rig::{Rig, pin};
use super::{Frames, Spread, Way};
use crate::live::hosts::SERVER;
use crate::live::memcached::Server;
use crate::live::quiet::Others;
use crate::machine::Before;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// The program flowyard.
    pub program: &'a Path,
    /// The ways of steering.
    pub ways: Vec<Way>,
    /// Number of times that each is measured.
    pub rounds: usize,
    /// Duration of each measurement, of which there are two for each way and round.
    pub time: Duration,
    /// Load in open loop, as a share of the rate in closed loop without steering.
    pub load: f64,
    /// Number of connections.
    pub connections: usize,
    /// Share of requests that store a value.
    pub sets: f64,
    /// The date now.
    pub date: &'a str,
    /// Version and commit of this program.
    pub build: &'a str,
}

/// The results.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Results {
    /// When the measurement began.
    pub date: String,
    /// Version and commit of the program.
    pub build: String,
    /// The machine.
    pub machine: Machine,
    /// Number of rounds; each measures all ways, beginning with another one.
    pub rounds: usize,
    /// Duration of each measurement, in nanoseconds.
    pub time_ns: Nanos,
    /// Number of connections.
    pub connections: usize,
    /// Share of requests that store a value; the others read one.
    pub sets_share: f64,
    /// Requests per second that are due in open loop.
    pub offered_rps: f64,
    /// The largest share of the CPU time that other programs used while `none`, `rps` or `rfs` was measured. The kernel's
    /// threads, which `flowyard steer` uses, cannot be distinguished from other programs.
    pub others_share: f64,
    /// By way of steering.
    pub ways: Vec<Measured>,
}

/// One way of steering.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Measured {
    /// The way.
    pub way: Way,
    /// Closed loop: each connection sends its next request after the answer.
    pub closed: Load,
    /// Open loop: requests are due at random times that do not depend on answers.
    pub open: Load,
    /// Rate in closed loop divided by that of the kernel's RFS in the same round, if that was measured.
    pub to_rfs: Option<Spread>,
    /// Frames that `flowyard steer` counted in all rounds, by the stage that decided.
    pub frames: Frames,
}

/// One kind of load; each value is a median of the rounds, with extremes.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Load {
    /// Share of requests whose last segment was received on the CPU of the thread that serves them.
    pub local_share: Spread,
    /// Answers per second.
    pub rps: Spread,
    /// Median latency, from the time at which a request was due.
    pub p50_ns: Spread,
    /// 99th percentile of the latency.
    pub p99_ns: Spread,
    /// 99.9th percentile of the latency.
    pub p999_ns: Spread,
    /// 99th percentile of the time from when a request was due until the generator sent it; part of the latency.
    pub sent_late_p99_ns: Spread,
}

/// Both loads of one way in one round.
struct Round {
    closed: Tally,
    open: Option<Tally>,
    frames: Frames,
    others: f64,
}

const PORT: u16 = 11_211;
/// Threads of the server, and of the clients.
const THREADS: usize = 2;
/// Warming up, as a share of a measurement.
const WARM: f64 = 0.25;
/// How long answers are waited for after the last request.
const PATIENCE: Nanos = 5_000_000_000;

/// Measures all ways of `job`. `progress` is called after each with the number of those done and of all.
///
/// # Errors
/// When the hosts cannot be made, a program fails, or a request is not answered.
pub fn measure(
    job: &Job<'_>,
    clock: &Clock,
    progress: &dyn Fn(usize, usize),
) -> anyhow::Result<Results> {
    let before = Before::read();
    let steps = 1 + job.rounds * job.ways.len();
    let rate = |tally: &Tally| tally.answers as f64 / job.time.as_secs_f64();
    let offered = job.load * rate(&run(job, Way::None, None, 0, clock)?.closed);
    progress(1, steps);
    let mut rounds: Vec<Vec<Round>> = job.ways.iter().map(|_| Vec::new()).collect();
    let mut others = 0.0_f64;
    for round in 0..job.rounds {
        for step in 0..job.ways.len() {
            let at = (round + step) % job.ways.len();
            let way = job.ways[at];
            let done = run(job, way, Some(offered), round as u64, clock).context(way.name())?;
            if way.arguments().is_none() {
                others = others.max(done.others);
            }
            rounds[at].push(done);
            progress(2 + round * job.ways.len() + step, steps);
        }
    }
    let rfs = job.ways.iter().position(|way| *way == Way::Rfs).map(|at| &rounds[at]);
    let measured = job.ways.iter().zip(&rounds).map(|(&way, rounds)| {
        let ratio = |(mine, rfs): (&Round, &Round)| rate(&mine.closed) / rate(&rfs.closed).max(1.0);
        let to_rfs = rfs.map(|rfs| Spread::of(rounds.iter().zip(rfs).map(ratio).collect()));
        let mut frames = Frames::new();
        for (reason, count) in rounds.iter().flat_map(|round| &round.frames) {
            *frames.entry(reason.clone()).or_default() += count;
        }
        let closed: Vec<_> = rounds.iter().map(|round| &round.closed).collect();
        let open: Vec<_> = rounds.iter().filter_map(|round| round.open.as_ref()).collect();
        let (closed, open) = (load(&closed, job.time), load(&open, job.time));
        Measured { way, closed, open, to_rfs, frames }
    });
    Ok(Results {
        ways: measured.collect(),
        date: job.date.into(),
        build: job.build.into(),
        machine: before.machine(),
        rounds: job.rounds,
        time_ns: job.time.as_nanos() as Nanos,
        connections: job.connections,
        sets_share: job.sets,
        offered_rps: offered,
        others_share: others,
    })
}

fn load(tallies: &[&Tally], time: Duration) -> Load {
    let spread =
        |of: &dyn Fn(&Tally) -> f64| Spread::of(tallies.iter().map(|tally| of(tally)).collect());
    let finished: Vec<_> = tallies.iter().map(|tally| tally.latency.finish()).collect();
    let ns = |of: fn(&flowyard_rfc2544::latency::Latency) -> Nanos| {
        Spread::of(finished.iter().map(|one| of(one) as f64).collect())
    };
    Load {
        local_share: spread(&|tally| tally.local as f64 / tally.checked.max(1) as f64),
        rps: spread(&|tally| tally.answers as f64 / time.as_secs_f64()),
        p50_ns: ns(|one| one.p50_ns),
        p99_ns: ns(|one| one.p99_ns),
        p999_ns: ns(|one| one.p999_ns),
        sent_late_p99_ns: spread(&|tally| tally.lateness.finish().p99_ns as f64),
    }
}

/// Measures one way: in closed loop, and then at `offered` requests per second.
fn run(
    job: &Job<'_>,
    way: Way,
    offered: Option<f64>,
    seed: u64,
    clock: &Clock,
) -> anyhow::Result<Round> {
    let rig = Rig::new(job.program)?;
    let steering = rig.steer(way)?;
    let (address, port, most) = (SERVER.to_string(), PORT.to_string(), job.connections + 64);
    let most = most.to_string();
    let arguments = ["-u", "nobody", "-l", &address, "-U", "0", "-p", &port, "-c", &most];
    let server = rig.hosts.server.within(|| Server::start(&arguments, THREADS))?;
    for ((thread, _), cpu) in server.threads.iter().zip(rig.cpus) {
        pin(Some(*thread), cpu).with_context(|| format!("pinning a thread to CPU {cpu}"))?;
    }
    let mut conns = connect(job, &rig, &server)?;
    let others = Others::from(Some(server.child.id()));
    let mut both =
        [Some(Pace::Closed), offered.map(Pace::Open)].into_iter().flatten().map(|pace| {
            let tally = pass(job, pace, &mut conns, rig.cpus, seed, clock)?;
            ensure!(
                tally.unanswered == 0 && tally.broken.is_empty(),
                "{} of {} requests were not answered {}",
                tally.unanswered,
                tally.requests,
                tally.broken.first().map_or("in time", String::as_str)
            );
            Ok(tally)
        });
    let closed = both.next().context("no load")??;
    let open = both.next().transpose()?;
    drop(both);
    let others = others.share();
    Ok(Round { closed, open, frames: steering.end()?, others })
}

/// Stores keys.
fn store(mut stream: &TcpStream, keys: Range<u64>) -> anyhow::Result<()> {
    let mut stored = vec![0; (keys.end - keys.start) as usize * b"STORED\r\n".len()];
    let mut all = Vec::new();
    keys.for_each(|key| set(key, &mut all));
    stream.write_all(&all).context("storing keys in memcached")?;
    stream.read_exact(&mut stored).context("storing keys in memcached")
}

/// The connections of each client thread. memcached assigns connections to its threads in turn.
fn connect(job: &Job<'_>, rig: &Rig, server: &Server) -> anyhow::Result<[Vec<Conn>; THREADS]> {
    let streams = rig.hosts.connect(PORT, job.connections)?;
    // Each connection has been given to a thread when it has been answered.
    for (key, stream) in (0..).zip(&streams) {
        store(stream, key % KEYS..key % KEYS + 1)?;
    }
    streams.first().map_or(Ok(()), |stream| store(stream, 0..KEYS))?;
    let mut sockets = server.sockets()?;
    let mut conns = [Vec::new(), Vec::new()];
    let mut of_thread = [0; THREADS];
    for stream in streams {
        let (socket, thread) = sockets
            .remove(&stream.local_addr()?)
            .context("memcached has no socket for a connection")?;
        let client = of_thread[thread] % THREADS;
        of_thread[thread] += 1;
        conns[client].push(Conn::new(stream, Some((socket, rig.cpus[thread])))?);
    }
    Ok(conns)
}

/// One load, by a client thread on each CPU.
fn pass(
    job: &Job<'_>,
    pace: Pace,
    conns: &mut [Vec<Conn>; THREADS],
    cpus: [usize; 2],
    seed: u64,
    clock: &Clock,
) -> anyhow::Result<Tally> {
    let time = job.time.as_nanos() as Nanos;
    let pace = match pace {
        Pace::Closed => Pace::Closed,
        Pace::Open(rate) => Pace::Open(rate / THREADS as f64),
    };
    let barrier = Barrier::new(THREADS);
    let client = |at: usize, conns: &mut Vec<Conn>| {
        let ready = pin(None, cpus[at]);
        // The default would let each sleep take 50 us longer.
        let slack = rustix::thread::set_current_timer_slack(std::num::NonZero::new(1));
        barrier.wait();
        ready.and(slack).context("preparing a client thread")?;
        let from = clock() + (time as f64 * WARM) as Nanos;
        let plan = Plan {
            protocol: Protocol::Memcached { sets: job.sets },
            pace,
            from,
            until: from + time,
            patience: PATIENCE,
            seed: seed * THREADS as u64 + at as u64,
        };
        drive(conns, &plan, clock)
    };
    let client = &client;
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..).zip(conns).map(|(at, conns)| scope.spawn(move || client(at, conns))).collect();
        let mut all = Tally::default();
        for thread in threads {
            let one = thread.join().map_err(|_| anyhow::anyhow!("a client thread panicked"))??;
            all.add(&one);
        }
        Ok(all)
    })
}

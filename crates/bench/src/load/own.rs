//! The generator's own work, without its system calls: a cost of the model of an open loop.
//!
//! The functions that are timed are those of a run, with sockets that nothing is sent on.

use anyhow::ensure;
use flowyard_yard::Clock;

use super::protocol::{Protocol, Records};
use super::{Asked, Conn, Nanos, Plan, Rng, Run, Schedule, Tally, VecDeque, epoll};
use crate::live::hosts::Hosts;
use crate::stats::median;

/// Nanoseconds of the generator's own work.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Own {
    /// Choosing a connection and a key, writing the request into a buffer, drawing when the next one is due.
    pub(crate) ask: f64,
    /// Comparing an answer with the value of its key, and recording its latency.
    pub(crate) take: f64,
    /// A turn of the loop in which nothing is due, without its system calls: the connections are looked through.
    pub(crate) turn: f64,
}

/// Number of requests, and of turns, that are timed at once.
const BATCH: usize = 64;
const BATCHES: usize = 200;

/// Measures the generator's work for requests to `records`, with `connections` of one thread.
pub(crate) fn measure(
    records: Records,
    sets: f64,
    connections: usize,
    clock: &Clock,
) -> anyhow::Result<Own> {
    let hosts = Hosts::new()?;
    let pairs = hosts.pairs(connections)?;
    let mut conns = Vec::new();
    for [client, _server] in &pairs {
        conns.push(Conn::new(client.try_clone()?, None)?);
    }
    let protocol = Protocol::Memcached { records, sets };
    let (from, until) = (0, Nanos::MAX);
    let plan = Plan { protocol, pace: super::Pace::Open(1e5), from, until, patience: 0, seed: 1 };
    let mut run = Run {
        conns: &mut conns,
        plan: &plan,
        clock,
        rng: Rng::new(1),
        tally: Tally::default(),
        epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
        started: 0,
        schedule: Some(Schedule::new(1e5, 1)),
        due: Nanos::MAX,
        scratch: Vec::with_capacity(1 << 12),
    };
    let [mut asks, mut takes, mut turns] = [(); 3].map(|()| Vec::new());
    let mut asked: VecDeque<(usize, Nanos, Asked)> = VecDeque::new();
    for _ in 0..BATCHES {
        let began = clock();
        for _ in 0..BATCH {
            let at = run.rng.below(run.conns.len() as u64) as usize;
            let due = run.schedule.as_mut().map_or(0, Schedule::next);
            let kind = run.build(at, due);
            run.record_sent(due);
            asked.push_back((at, due, kind));
        }
        asks.push((clock() - began) as f64 / BATCH as f64);
        for (at, _, kind) in asked.drain(..) {
            let conn = &mut run.conns[at];
            conn.output.clear();
            match kind {
                Asked::Get(key) => records.got(key, &mut conn.input),
                Asked::Set | Asked::Page => conn.input.extend_from_slice(b"STORED\r\n"),
            }
        }
        let before = run.tally.answered;
        let began = clock();
        for at in 0..run.conns.len() {
            if !run.conns[at].input.is_empty() {
                run.accept(at)?;
            }
        }
        takes.push((clock() - began) as f64 / BATCH as f64);
        ensure!(run.tally.answered == before + BATCH as u64, "an answer was not recognized");
        let began = clock();
        for _ in 0..BATCH {
            run.ask_due(std::hint::black_box(0));
            std::hint::black_box(clock());
        }
        turns.push((clock() - began) as f64 / BATCH as f64);
    }
    Ok(Own { ask: median(&mut asks), take: median(&mut takes), turn: median(&mut turns) })
}

//! The cost of one operation on a TCP socket, by the path of its frame. No thread sleeps or is woken.
//!
//! ```text
//!  near  one thread has both ends                         ask read answer take      cpu 0 (and cpu 1, likewise)
//!  far   two threads in turn, the stack with the client   ask ........ take          cpu 0
//!                                                             read answer            cpu 1
//!  hop   as far, but RPS processes the server's frames on cpu 1, whose thread counts the time it misses
//!  away  one thread on cpu 0, RPS to cpu 1, whose thread only counts the time it misses
//! ```

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;

use anyhow::Context;
use flowyard_hostsim::closed::{Ops, Way};
use flowyard_yard::Clock;
use rustix::event::{Timespec, epoll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::{RecvFlags, SendFlags};

use super::hosts::Hosts;
use super::priority::hurry;
use crate::stats::median;

/// Connections of a thread.
const PAIRS: usize = 64;
/// Rounds over all connections.
const ROUNDS: usize = 24;
/// Events returned by one call, where the cost per event is measured.
const BURST: usize = 8;
/// Gaps between two clock readings longer than this (ns) are counted as preemption. Reading the clock
/// takes less.
const GAP: u64 = 400;
/// Nanoseconds after which a frame counts as lost or as received elsewhere; the sample is not used.
const PATIENCE: u64 = 200_000;

/// A request to memcached.
pub(crate) const ASK: &[u8] = b"get key\r\n";
/// Length of memcached's answer with a value of 100 bytes.
pub(crate) const ANSWER: usize = b"VALUE key 0 100\r\n".len() + 100 + b"\r\nEND\r\n".len();

/// Samples of each operation, in nanoseconds: first those of [`Ops::NAMES`] in that order, then reads that
/// find nothing, then the time from the start of a send until the other CPU is interrupted.
#[derive(Default)]
struct Times([Vec<f64>; 7]);

const ASKS: usize = 0;
const HOPS: usize = 1;
const READS: usize = 2;
const ANSWERS: usize = 3;
const TAKES: usize = 4;
const NOTHINGS: usize = 5;
const FLIGHTS: usize = 6;

impl Times {
    fn join(&mut self, other: Self) {
        for (own, other) in self.0.iter_mut().zip(other.0) {
            own.extend(other);
        }
    }
}

/// What each of [`Ops::NAMES`] times.
const STEPS: [&str; 5] = [
    "send of the request",
    "time that the other CPU misses to receive the request",
    "read of the request",
    "send of the answer",
    "read of the answer",
];

const NO_DATA: &str = "a socket did not receive what was sent to it";

fn send(stream: &TcpStream, bytes: &[u8]) -> anyhow::Result<()> {
    let sent = rustix::net::send(stream, bytes, SendFlags::DONTWAIT)?;
    anyhow::ensure!(sent == bytes.len(), "a socket sent {sent} of {} bytes", bytes.len());
    Ok(())
}

/// Reads once without waiting; returns whether there was data.
fn receive(stream: &TcpStream) -> anyhow::Result<bool> {
    let mut buffer = [0; 2048];
    match rustix::net::recv(stream, &mut buffer, RecvFlags::DONTWAIT) {
        Ok((got, _)) => Ok(got > 0),
        Err(rustix::io::Errno::AGAIN) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Reads until there is data that another CPU has sent.
fn receive_soon(stream: &TcpStream, clock: &Clock) -> anyhow::Result<()> {
    let began = clock();
    while !receive(stream)? {
        anyhow::ensure!(clock() - began < 1_000_000_000, "a frame on a veth was lost");
    }
    Ok(())
}

/// Runs `what` and adds its duration to `to`.
fn timed<T>(
    clock: &Clock,
    to: &mut Vec<f64>,
    what: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let began = clock();
    let made = what()?;
    to.push(clock().saturating_sub(began) as f64);
    Ok(made)
}

/// The server's ends in an epoll set, as in memcached, so that a received frame runs epoll's callback.
fn watched(pairs: &[[TcpStream; 2]]) -> anyhow::Result<OwnedFd> {
    let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (number, [_, server]) in pairs.iter().enumerate() {
        epoll::add(&set, server, epoll::EventData::new_u64(number as u64), epoll::EventFlags::IN)?;
    }
    Ok(set)
}

fn poll(set: &OwnedFd, events: &mut Vec<epoll::Event>) -> anyhow::Result<usize> {
    events.clear();
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    Ok(epoll::wait(set.as_fd(), rustix::buffer::spare_capacity(events), Some(&now))?)
}

/// One thread with both ends. Also returns the median time of an epoll call without events, and of the two
/// calls for a burst.
fn near(cpu: usize, pairs: &[[TcpStream; 2]], clock: &Clock) -> anyhow::Result<(Times, [f64; 2])> {
    hurry(cpu)?;
    let set = watched(pairs)?;
    let mut events = Vec::with_capacity(2 * BURST);
    let (mut times, answer) = (Times::default(), [b'v'; ANSWER]);
    for n in 0..ROUNDS * PAIRS {
        let [client, server] = &pairs[n * 7 % PAIRS];
        timed(clock, &mut times.0[ASKS], || send(client, ASK))?;
        anyhow::ensure!(timed(clock, &mut times.0[READS], || receive(server))?, NO_DATA);
        timed(clock, &mut times.0[ANSWERS], || send(server, &answer))?;
        anyhow::ensure!(
            !timed(clock, &mut times.0[NOTHINGS], || receive(server))?,
            "a socket received more than was sent"
        );
        anyhow::ensure!(timed(clock, &mut times.0[TAKES], || receive(client))?, NO_DATA);
        poll(&set, &mut events)?; // removes the sockets from the ready list
    }
    // A call without events; and a burst: the call that returns its events, and the next one, which finds
    // the sockets read.
    let (mut calls, mut bursts) = (Vec::new(), Vec::new());
    for n in 0..ROUNDS * PAIRS / BURST {
        timed(clock, &mut calls, || poll(&set, &mut events))?;
        let some = || (0..BURST).map(|k| &pairs[(n * 3 + k * 4) % PAIRS]);
        some().try_for_each(|[client, _]| send(client, ASK))?;
        let mut named = Vec::new();
        let count = timed(clock, &mut named, || poll(&set, &mut events))?;
        anyhow::ensure!(count == BURST, "epoll returned {count} events instead of {BURST}");
        for [client, server] in some() {
            anyhow::ensure!(receive(server)?, NO_DATA);
            send(server, &answer)?;
            anyhow::ensure!(receive(client)?, NO_DATA);
        }
        timed(clock, &mut named, || poll(&set, &mut events))?;
        bursts.push(named.iter().sum());
    }
    Ok((times, [median(&mut calls), median(&mut bursts)]))
}

/// State that two threads share.
#[derive(Default)]
struct Turns {
    /// Even: the client's turn; odd: the server's.
    turn: AtomicU32,
    /// Number of gaps of more than [`GAP`] that the second thread has seen.
    gaps: AtomicU32,
    /// Set when one of the threads has failed.
    over: AtomicBool,
    /// When the client last started to send.
    asked: AtomicU64,
    /// When the second thread was last interrupted.
    interrupted: AtomicU64,
}

impl Turns {
    /// Waits for `turn` and, if `gaps` is given, for a new gap. Adds the length of each gap to `missed`.
    fn wait(
        &self,
        turn: u32,
        gaps: Option<u32>,
        clock: &Clock,
        missed: &mut Vec<f64>,
    ) -> anyhow::Result<()> {
        let began = clock();
        let mut last = began;
        loop {
            let now = clock();
            if now - last > GAP {
                missed.push((now - last) as f64);
                self.interrupted.store(last, Ordering::Release);
                self.gaps.fetch_add(1, Ordering::AcqRel);
            }
            last = now;
            let is_turn = self.turn.load(Ordering::Acquire) == turn;
            let has_gap = gaps.is_none_or(|gaps| self.gaps.load(Ordering::Acquire) != gaps);
            if is_turn && (has_gap || now - began > PATIENCE) {
                return Ok(());
            }
            anyhow::ensure!(!self.over.load(Ordering::Acquire), "the other thread has failed");
            anyhow::ensure!(
                now - began < 1_000_000_000,
                "the other thread did not take its turn within a second"
            );
            std::hint::spin_loop();
        }
    }
}

/// Two threads in turn (`far`); with `hop`, RPS processes the server's frames on the server's CPU.
fn apart(pairs: &[[TcpStream; 2]], clock: &Clock, hop: bool) -> anyhow::Result<Times> {
    let turns = Turns::default();
    let _set = watched(pairs)?;
    let asker = || -> anyhow::Result<Times> {
        hurry(0)?;
        let (mut times, mut none) = (Times::default(), Vec::new());
        for n in 0..ROUNDS * PAIRS {
            let [client, _] = &pairs[n * 7 % PAIRS];
            turns.asked.store(clock(), Ordering::Release);
            timed(clock, &mut times.0[ASKS], || send(client, ASK))?;
            turns.turn.store(2 * n as u32 + 1, Ordering::Release);
            turns.wait(2 * n as u32 + 2, None, clock, &mut none)?;
            anyhow::ensure!(timed(clock, &mut times.0[TAKES], || receive(client))?, NO_DATA);
        }
        Ok(times)
    };
    let server = || -> anyhow::Result<Times> {
        hurry(1)?;
        let (mut times, answer) = (Times::default(), [b'v'; ANSWER]);
        let mut missed = Vec::new();
        for n in 0..ROUNDS * PAIRS {
            let [_, server] = &pairs[n * 7 % PAIRS];
            let gaps = hop.then(|| turns.gaps.load(Ordering::Acquire));
            let before = missed.len();
            turns.wait(2 * n as u32 + 1, gaps, clock, &mut missed)?;
            if hop && missed.len() == before + 1 {
                times.0[HOPS].push(missed[before]);
                let [asked, came] =
                    [&turns.asked, &turns.interrupted].map(|at| at.load(Ordering::Acquire));
                times.0[FLIGHTS].push(came.saturating_sub(asked) as f64);
            }
            if timed(clock, &mut times.0[READS], || receive(server))? {
                timed(clock, &mut times.0[ANSWERS], || send(server, &answer))?;
            } else {
                times.0[READS].pop();
                receive_soon(server, clock)?;
                send(server, &answer)?;
            }
            turns.turn.store(2 * n as u32 + 2, Ordering::Release);
        }
        Ok(times)
    };
    let (asked, served) = both(&turns, asker, server)?;
    let mut times = asked;
    times.join(served);
    Ok(times)
}

/// Both ends on CPU 0, the server's network stack on CPU 1, which does nothing else (`away`).
fn away(pairs: &[[TcpStream; 2]], clock: &Clock) -> anyhow::Result<Times> {
    let turns = Turns::default();
    let _set = watched(pairs)?;
    let own = || -> anyhow::Result<Times> {
        hurry(0)?;
        let (mut times, answer) = (Times::default(), [b'v'; ANSWER]);
        for n in 0..ROUNDS * PAIRS {
            let [client, server] = &pairs[n * 7 % PAIRS];
            let gaps = turns.gaps.load(Ordering::Acquire);
            timed(clock, &mut times.0[ASKS], || send(client, ASK))?;
            let began = clock();
            while turns.gaps.load(Ordering::Acquire) == gaps && clock() - began < PATIENCE {
                std::hint::spin_loop();
            }
            if !timed(clock, &mut times.0[READS], || receive(server))? {
                times.0[READS].pop();
                receive_soon(server, clock)?;
            }
            timed(clock, &mut times.0[ANSWERS], || send(server, &answer))?;
            anyhow::ensure!(timed(clock, &mut times.0[TAKES], || receive(client))?, NO_DATA);
        }
        turns.turn.store(1, Ordering::Release);
        Ok(times)
    };
    let counter = || -> anyhow::Result<Times> {
        hurry(1)?;
        let mut times = Times::default();
        turns.wait(1, None, clock, &mut times.0[HOPS])?;
        Ok(times)
    };
    let (own, counted) = both(&turns, own, counter)?;
    let mut times = own;
    times.join(counted);
    Ok(times)
}

/// Bursts of requests that RPS passes to the other CPU. Returns medians: nanoseconds of a burst on the
/// client's CPU, on the other CPU, and the number of interrupts of the other CPU.
fn bursts(pairs: &[[TcpStream; 2]], clock: &Clock) -> anyhow::Result<[f64; 3]> {
    let turns = Turns::default();
    let _set = watched(pairs)?;
    let own = || -> anyhow::Result<Vec<f64>> {
        hurry(0)?;
        let (mut times, answer) = (Vec::new(), [b'v'; ANSWER]);
        for n in 0..ROUNDS * PAIRS / BURST {
            let some = || (0..BURST).map(|k| &pairs[(n * 3 + k * 4) % PAIRS]);
            timed(clock, &mut times, || some().try_for_each(|[client, _]| send(client, ASK)))?;
            for [client, server] in some() {
                receive_soon(server, clock)?;
                send(server, &answer)?;
                anyhow::ensure!(receive(client)?, NO_DATA);
            }
            // The other thread starts a new count for each burst.
            turns.turn.store(2 * n as u32 + 1, Ordering::Release);
            turns.wait(2 * n as u32 + 2, None, clock, &mut Vec::new())?;
        }
        Ok(times)
    };
    let counter = || -> anyhow::Result<Vec<f64>> {
        hurry(1)?;
        let mut bursts = Vec::new();
        for n in 0..ROUNDS * PAIRS / BURST {
            let mut missed = Vec::new();
            turns.wait(2 * n as u32 + 1, None, clock, &mut missed)?;
            turns.turn.store(2 * n as u32 + 2, Ordering::Release);
            bursts.extend([missed.iter().sum(), missed.len() as f64]);
        }
        Ok(bursts)
    };
    let (mut asks, missed) = both(&turns, own, counter)?;
    let of =
        |at: usize| median(&mut missed.iter().skip(at).step_by(2).copied().collect::<Vec<_>>());
    Ok([median(&mut asks), of(0), of(1)])
}

/// Runs two threads; when one fails, the other stops too.
fn both<T: Send>(
    turns: &Turns,
    one: impl FnOnce() -> anyhow::Result<T> + Send,
    other: impl FnOnce() -> anyhow::Result<T> + Send,
) -> anyhow::Result<(T, T)> {
    let note = |made: anyhow::Result<T>| {
        turns.over.store(made.is_err(), Ordering::Release);
        made
    };
    thread::scope(|scope| {
        let threads = (scope.spawn(|| note(one())), scope.spawn(|| note(other())));
        let panicked = |_| anyhow::anyhow!("a measuring thread panicked");
        let (one, other) = (threads.0.join(), threads.1.join());
        Ok((one.map_err(panicked)??, other.map_err(panicked)??))
    })
}

/// All constants: name, value, and a description of the operation.
pub(crate) fn measure(clock: &Clock, clock_ns: f64) -> anyhow::Result<Vec<(String, f64, String)>> {
    let hosts = Hosts::new()?;
    let [ours, theirs] = [hosts.pairs(PAIRS)?, hosts.pairs(PAIRS)?];
    let turns = Turns::default();
    let (one, other) = both(&turns, || near(0, &ours, clock), || near(1, &theirs, clock))?;
    let mut on_one = one.0;
    on_one.join(other.0);
    let apart_far = apart(&ours, clock, false).context("two CPUs in turn")?;
    hosts.server.steer("vb", 2, 0)?;
    let apart_hop = apart(&ours, clock, true).context("two CPUs in turn, with RPS")?;
    let on_other = away(&ours, clock).context("RPS to the other CPU")?;
    let [asks, hops, irqs] = bursts(&ours, clock).context("bursts with RPS")?;

    let net = |ns: f64| (ns - clock_ns).max(0.0);
    let mut all = Vec::new();
    let mut apart_hop = apart_hop;
    let flight = net(median(&mut apart_hop.0[FLIGHTS]));
    let what = "TCP over veth, from the start of a send until RPS has interrupted the other CPU";
    all.push(("rps_ipi_flight_ns".into(), flight, what.into()));
    // A single request causes one interrupt, a burst of `BURST` causes `irqs`. The cost of an interrupt is
    // the cost of a single request minus that of a request in a burst without its share of interrupts.
    let mut on_other = on_other;
    let part = |burst: f64, alone: f64| {
        let burst_of = BURST as f64;
        let rest = (burst - irqs * alone) / (burst_of - irqs).max(1.0);
        (alone - rest).clamp(0.0, alone)
    };
    let send = part(net(asks), net(median(&mut on_other.0[ASKS])));
    let take = part(hops, median(&mut on_other.0[HOPS]));
    let what =
        "TCP over veth, the stack on the other CPU by RPS: a single request minus one of a burst";
    let sent = "interrupting the other CPU, on the CPU that sends";
    all.push(("rps_ipi_send_ns".into(), send, format!("{sent}: {what}")));
    let taken = "taking the interrupt, on the CPU that is interrupted";
    all.push(("rps_ipi_take_ns".into(), take, format!("{taken}: {what}")));
    all.push((
        "rps_burst_irqs".into(),
        irqs,
        format!("number of interrupts for a burst of {BURST} requests"),
    ));
    let mut nothing = median(&mut on_one.0[NOTHINGS]);
    nothing = net(nothing);
    for (way, mut times, what) in [
        (Way::Near, on_one, "both ends on one CPU, both CPUs busy with this"),
        (Way::Far, apart_far, "ends on two CPUs, the stack on the client's CPU"),
        (Way::Hop, apart_hop, "ends on two CPUs, the stack on the server's CPU by RPS"),
        (Way::Away, on_other, "both ends on one CPU, the stack on the other by RPS"),
    ] {
        for ((op, step), times) in Ops::NAMES.iter().zip(STEPS).zip(&mut times.0) {
            let name = format!("tcp_{}_{op}_ns", way.name());
            all.push((name, net(median(times)), format!("{step}: TCP over veth, {what}")));
        }
    }
    all.push(("tcp_nothing_ns".into(), nothing, "read of a TCP socket that has no data".into()));
    let [call, burst] = [0, 1].map(|n| (one.1[n] + other.1[n]) / 2.0);
    let call = net(call);
    let event = ((burst - 2.0 * clock_ns - 2.0 * call) / BURST as f64).max(0.0);
    all.push(("epoll_ns".into(), call, "epoll_wait without events".into()));
    let what =
        "additional time per TCP socket in the epoll_wait that returns it and in the next one";
    all.push(("epoll_event_ns".into(), event, what.into()));
    Ok(all)
}

//! A load generator: connections of one thread, whose requests follow each answer (closed loop), or are due at times that
//! do not depend on the answers (open loop).
//!
//! In open loop, a request that is sent late keeps the time at which it was due, so that a pause of the server, or of this
//! thread, is in the latency of each request that was due meanwhile (no coordinated omission).
//!
//! Nothing is allocated for a request: the queue and the buffers of a connection grow to its longest backlog, and stay.
//!
//! Thread-safety: a connection belongs to one thread.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use anyhow::Context;
use flowyard_frame::Nanos;
use flowyard_rfc2544::latency::Recorder;
use flowyard_testkit::Rng;
use flowyard_yard::Clock;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::fd::OwnedFd;

use crate::latency::schedule::Schedule;

pub(crate) mod clients;
pub(crate) mod own;
pub(crate) mod protocol;

use protocol::{Asked, Protocol};

/// After one of CHECKED answers, the CPU that received the last segment is asked for.
const CHECKED: u64 = 16;

/// A connection: the client's end.
pub(crate) struct Conn {
    stream: TcpStream,
    /// The server's socket, and the CPU of the thread that serves it.
    server: Option<(OwnedFd, usize)>,
    /// Requests that have no answer yet: when they were due.
    asked: VecDeque<(Nanos, Asked)>,
    output: Vec<u8>,
    input: Vec<u8>,
    is_broken: bool,
}

impl Conn {
    pub(crate) fn new(stream: TcpStream, server: Option<(OwnedFd, usize)>) -> anyhow::Result<Self> {
        stream.set_nonblocking(true)?;
        let asked = VecDeque::with_capacity(256);
        let (output, input) = (Vec::with_capacity(1 << 14), Vec::with_capacity(1 << 16));
        Ok(Self { stream, server, asked, output, input, is_broken: false })
    }

    /// Writes what waits, as far as the socket takes it.
    fn flush(&mut self) -> anyhow::Result<()> {
        match self.stream.write(&self.output) {
            Ok(0) if !self.output.is_empty() => anyhow::bail!("the connection takes no bytes"),
            Ok(count) => drop(self.output.drain(..count)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error).context("writing a request"),
        }
        Ok(())
    }

    /// Whether the last segment to the server was received on the CPU of the thread that serves it.
    fn is_local(&self) -> Option<bool> {
        let (socket, cpu) = self.server.as_ref()?;
        Some(rustix::net::sockopt::socket_incoming_cpu(socket).ok()? as usize == *cpu)
    }
}

/// When requests are sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// One on each connection; the next after the answer.
    Closed,
    /// Requests per second, at random times, each on a random connection.
    Open(f64),
}

/// The times of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) protocol: Protocol,
    pub(crate) pace: Pace,
    /// Requests before this time warm up.
    pub(crate) from: Nanos,
    /// The last request is sent then.
    pub(crate) until: Nanos,
    /// So long after it, requests without an answer are given up.
    pub(crate) patience: Nanos,
    pub(crate) seed: u64,
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Answers between `from` and `until`.
    pub(crate) answers: u64,
    /// All requests; those that got their answer, which is verified; those that got none.
    pub(crate) requests: u64,
    pub(crate) answered: u64,
    pub(crate) unanswered: u64,
    /// Of the requests, those that store a value.
    pub(crate) sets: u64,
    /// Requests that were due between `from` and `until`.
    pub(crate) due: u64,
    /// Of `checked` answers, those whose request was received on the CPU of its thread.
    pub(crate) local: u64,
    pub(crate) checked: u64,
    /// From the time at which a request was due to its answer.
    pub(crate) latency: Recorder,
    /// From the time at which a request was due until it was sent: by this generator alone.
    pub(crate) lateness: Recorder,
    /// Why connections ended.
    pub(crate) broken: Vec<String>,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        self.answers += other.answers;
        self.requests += other.requests;
        self.answered += other.answered;
        self.sets += other.sets;
        self.due += other.due;
        self.unanswered += other.unanswered;
        self.local += other.local;
        self.checked += other.checked;
        self.latency.add(&other.latency, 1);
        self.lateness.add(&other.lateness, 1);
        self.broken.extend_from_slice(&other.broken);
    }
}

/// Runs `plan` over `conns`, which have no unanswered requests.
///
/// # Errors
/// When the system refuses epoll. A connection that ends is in the tally.
pub(crate) fn drive(conns: &mut [Conn], plan: &Plan, clock: &Clock) -> anyhow::Result<Tally> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("epoll")?;
    for (at, conn) in (0..).zip(&*conns) {
        let data = epoll::EventData::new_u64(at);
        epoll::add(&epoll, &conn.stream, data, epoll::EventFlags::IN).context("epoll")?;
    }
    let started = clock();
    let schedule = match plan.pace {
        Pace::Closed => None,
        Pace::Open(rate) => Some(Schedule::new(rate, plan.seed)),
    };
    let rng = Rng::new(plan.seed);
    let (tally, scratch) = (Tally::default(), Vec::with_capacity(1 << 12));
    let mut run = Run { conns, plan, clock, rng, tally, epoll, started, schedule, due: 0, scratch };
    run.all()?;
    for conn in &mut *run.conns {
        run.tally.unanswered += conn.asked.len() as u64;
        if conn.asked.is_empty() && !conn.input.is_empty() {
            let more = conn.input.len();
            run.tally.broken.push(format!("{more} bytes came that nothing was asked for"));
        }
    }
    Ok(run.tally)
}

struct Run<'a> {
    conns: &'a mut [Conn],
    plan: &'a Plan,
    clock: &'a Clock,
    rng: Rng,
    tally: Tally,
    epoll: OwnedFd,
    started: Nanos,
    schedule: Option<Schedule>,
    /// When the next request is due, in open loop.
    due: Nanos,
    /// For the answers that are expected.
    scratch: Vec<u8>,
}

impl Run<'_> {
    fn all(&mut self) -> anyhow::Result<()> {
        if let Some(schedule) = &mut self.schedule {
            self.due = self.started + schedule.next();
        } else {
            (0..self.conns.len()).for_each(|at| self.ask(at, self.started));
        }
        let mut events = Vec::with_capacity(64);
        let mut bytes = vec![0; 1 << 16];
        loop {
            let now = (self.clock)();
            self.ask_due(now);
            if now >= self.plan.until && self.is_over(now) {
                return Ok(());
            }
            self.wait(now, &mut events)?;
            for event in events.drain(..) {
                let at = event.data.u64() as usize;
                if let Err(why) = self.receive(at, &mut bytes) {
                    self.end(at, &why);
                }
            }
        }
    }

    /// Sends what is due, and what sockets did not take before.
    fn ask_due(&mut self, now: Nanos) {
        while self.schedule.is_some() && self.due <= now.min(self.plan.until) {
            let at = self.rng.below(self.conns.len() as u64) as usize;
            self.ask(at, self.due);
            let next = self.schedule.as_mut().map_or(Nanos::MAX, Schedule::next);
            self.due = self.started.saturating_add(next);
        }
        for at in 0..self.conns.len() {
            let conn = &mut self.conns[at];
            if !conn.output.is_empty()
                && !conn.is_broken
                && let Err(why) = conn.flush()
            {
                self.end(at, &why);
            }
        }
    }

    fn is_over(&self, now: Nanos) -> bool {
        let waits = |conn: &Conn| !conn.is_broken && !conn.asked.is_empty();
        now >= self.plan.until + self.plan.patience || !self.conns.iter().any(waits)
    }

    /// Waits for answers, and until a request is due.
    fn wait(&self, now: Nanos, events: &mut Vec<epoll::Event>) -> anyhow::Result<()> {
        const TICK: Nanos = 5_000_000; // for sockets that take no bytes, and for the end
        let mut time = Timespec { tv_sec: 0, tv_nsec: TICK as i64 };
        if self.schedule.is_some() {
            // epoll_wait counts in milliseconds; poll does not.
            if self.due > now && now < self.plan.until {
                time.tv_nsec = (self.due - now).min(TICK) as i64;
            }
            poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], Some(&time)).context("poll")?;
            time.tv_nsec = 0;
        }
        let buffer = rustix::buffer::spare_capacity(events);
        epoll::wait(&self.epoll, buffer, Some(&time)).context("epoll")?;
        Ok(())
    }

    fn ask(&mut self, at: usize, due: Nanos) {
        if self.conns[at].is_broken {
            self.tally.requests += 1;
            self.tally.due += u64::from(self.is_measured(due));
            self.tally.unanswered += 1;
            return;
        }
        self.build(at, due);
        let flushed = self.conns[at].flush();
        self.record_sent(due);
        if let Err(why) = flushed {
            self.end(at, &why);
        }
    }

    fn is_measured(&self, time: Nanos) -> bool {
        (self.plan.from..self.plan.until).contains(&time)
    }

    /// Puts a request into the buffer of a connection.
    fn build(&mut self, at: usize, due: Nanos) -> Asked {
        self.tally.requests += 1;
        self.tally.due += u64::from(self.is_measured(due));
        let conn = &mut self.conns[at];
        let asked = self.plan.protocol.ask(&mut self.rng, &mut conn.output);
        self.tally.sets += u64::from(asked == Asked::Set);
        conn.asked.push_back((due, asked));
        asked
    }

    fn record_sent(&mut self, due: Nanos) {
        if due >= self.plan.from {
            self.tally.lateness.record((self.clock)().saturating_sub(due), 1);
        }
    }

    /// Reads answers.
    fn receive(&mut self, at: usize, bytes: &mut [u8]) -> anyhow::Result<()> {
        let conn = &mut self.conns[at];
        match conn.stream.read(bytes) {
            Ok(0) => anyhow::bail!("the server closed the connection"),
            Ok(count) => conn.input.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error).context("reading an answer"),
        }
        let now = self.accept(at)?;
        let is_next = self.schedule.is_none() && self.conns[at].asked.is_empty();
        if is_next && now < self.plan.until {
            self.ask(at, now);
        }
        Ok(())
    }

    /// Takes the answers that are complete in the buffer of a connection; returns the time.
    fn accept(&mut self, at: usize) -> anyhow::Result<Nanos> {
        let now = (self.clock)();
        let conn = &mut self.conns[at];
        let mut used = 0;
        while let Some((due, asked)) = conn.asked.front().copied() {
            let plan = self.plan;
            let rest = &conn.input[used..];
            let length = plan.protocol.answered(asked, rest, &mut self.scratch)?;
            let Some(length) = length else { break };
            used += length;
            conn.asked.pop_front();
            self.tally.answered += 1;
            self.tally.answers += u64::from((plan.from..plan.until).contains(&now));
            if due < plan.from {
                continue;
            }
            self.tally.latency.record(now.saturating_sub(due), 1);
            if self.tally.answers.is_multiple_of(CHECKED)
                && let Some(is_local) = conn.is_local()
            {
                self.tally.checked += 1;
                self.tally.local += u64::from(is_local);
            }
        }
        conn.input.drain(..used);
        Ok(now)
    }

    fn end(&mut self, at: usize, why: &anyhow::Error) {
        let conn = &mut self.conns[at];
        if std::mem::replace(&mut conn.is_broken, true) {
            return;
        }
        let _may_be_gone = epoll::delete(&self.epoll, &conn.stream);
        self.tally.broken.push(format!("{why:#}"));
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::time::Duration;

    use rustix::time::{ClockId, clock_gettime};

    use super::protocol::Records;
    use super::*;

    const RECORDS: Records = Records { keys: 1000, key_bytes: 9, value_bytes: 100 };

    fn clock() -> Clock {
        Arc::new(|| {
            let now = clock_gettime(ClockId::Monotonic);
            now.tv_sec as Nanos * 1_000_000_000 + now.tv_nsec as Nanos
        })
    }

    /// Answers sets until `count` came, and then waits, answers no more for `pause`, and goes on.
    fn server(count: usize, pause: Duration) -> (TcpStream, std::thread::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        stream.set_nodelay(true).unwrap();
        let server = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let (mut bytes, mut got, mut sent) = (vec![0; 1 << 16], 0, 0);
            let mut request = Vec::new();
            RECORDS.set(0, &mut request);
            let mut pauses = Some(pause);
            loop {
                match socket.read(&mut bytes) {
                    Ok(0) | Err(_) => return,
                    Ok(length) => got += length,
                }
                while sent < got / request.len() {
                    socket.write_all(b"STORED\r\n").unwrap();
                    sent += 1;
                }
                if sent >= count
                    && let Some(pause) = pauses.take()
                {
                    std::thread::sleep(pause);
                }
            }
        });
        (stream, server)
    }

    fn plan(pace: Pace, clock: &Clock) -> Plan {
        let from = clock();
        let (until, patience) = (from + 400_000_000, 20_000_000_000);
        let protocol = Protocol::Memcached { records: RECORDS, sets: 1.0 };
        Plan { protocol, pace, from, until, patience, seed: 1 }
    }

    /// The pause is in the latency of each request that was due meanwhile, which is at least a quarter of all; had the
    /// generator waited, it would be in one.
    #[test]
    fn a_pause_of_the_server_is_not_omitted() {
        let clock = clock();
        let (stream, server) = server(50, Duration::from_millis(200));
        let mut conns = [Conn::new(stream, None).unwrap()];
        let tally = drive(&mut conns, &plan(Pace::Open(1000.0), &clock), &clock).unwrap();
        drop(conns);
        server.join().unwrap();
        let latency = tally.latency.finish();
        assert_eq!((tally.unanswered, tally.broken.len()), (0, 0));
        assert!((300..500).contains(&tally.requests), "{tally:?}");
        assert_eq!((latency.count, tally.answered), (tally.requests, tally.requests));
        let late = latency.curve.iter().find(|(share, _)| *share == 0.75).unwrap().1;
        assert!(late > 50_000_000, "a quarter of the requests waited longer than {late} ns");
    }

    #[test]
    fn a_closed_loop_asks_after_the_answer() {
        let clock = clock();
        let (stream, server) = server(usize::MAX, Duration::ZERO);
        let mut conns = [Conn::new(stream, None).unwrap()];
        let tally = drive(&mut conns, &plan(Pace::Closed, &clock), &clock).unwrap();
        drop(conns);
        server.join().unwrap();
        assert_eq!((tally.unanswered, tally.broken.len()), (0, 0));
        assert!(tally.requests > 10 && tally.answers >= tally.requests - 1, "{tally:?}");
    }

    #[test]
    fn a_connection_that_ends_is_reported_with_what_it_owes() {
        let clock = clock();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        drop(listener.accept().unwrap());
        let mut conns = [Conn::new(stream, None).unwrap()];
        let tally = drive(&mut conns, &plan(Pace::Open(1000.0), &clock), &clock).unwrap();
        assert_eq!(tally.broken.len(), 1, "{tally:?}");
        assert_eq!((tally.answers, tally.unanswered), (0, tally.requests));
    }

    #[test]
    fn an_answer_that_nothing_was_asked_for_is_reported() {
        let clock = clock();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            RECORDS.set(0, &mut request);
            socket.read_exact(&mut request).unwrap();
            socket.write_all(b"STORED\r\nSTORED\r\n").unwrap(); // one segment
            socket
        });
        let mut conns = [Conn::new(stream, None).unwrap()];
        // The first request is the last.
        let plan = Plan { until: clock(), ..plan(Pace::Closed, &clock) };
        let tally = drive(&mut conns, &plan, &clock).unwrap();
        drop(server.join().unwrap());
        assert_eq!((tally.requests, tally.answered), (1, 1));
        assert_eq!(tally.broken, ["8 bytes came that nothing was asked for"]);
    }
}

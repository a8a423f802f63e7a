//! The state of a run, the loop over its events, and the processors' choice of what to do next.

use std::collections::VecDeque;

use flowyard_frame::{Nanos, Rng};
use hdrhistogram::Histogram;

use super::apps::Thread;
use super::clients::Conn;
use super::softirq::Ring;
use super::steer::{Backlogs, Steer};
use super::{Load, Outcome, Setup, SetupError};
use crate::events::Events;

/// Softirq gives way to threads after so long (`MAX_SOFTIRQ_TIME`).
const SOFTIRQ_MAX: Nanos = 2_000_000;

/// What happens.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// The next request is due (open load).
    Due,
    /// A client asks on this connection (closed load).
    Ask(u32),
    /// A frame reaches the adapter.
    Arrive(Packet),
    /// The adapter may interrupt for this queue; stale unless the number is the ring's.
    Irq(u16, u32),
    /// An inter-processor interrupt reaches a processor.
    Ipi(u16),
    /// A processor has finished its chunk.
    Done(u16),
    /// An answer reaches the client.
    Answer(u32),
    /// A thread is told to move.
    Move,
}

/// A request on its way to the socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub(super) conn: u32,
    /// Its number on the connection, from 1.
    pub(super) seq: u32,
    pub(super) queue: u16,
    /// Sent again after a loss: it may be late.
    pub(super) again: bool,
}

/// Where softirq finds frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    Ring(u16),
    Backlog,
}

/// What a processor is at.
#[derive(Clone, Copy, Debug)]
pub(super) enum Chunk {
    Idle,
    Irq(u16),
    Ipi,
    /// A frame of this ring: the driver's part, and the stack's unless it goes to a backlog.
    Frame(Packet, Option<u16>),
    /// A frame of the backlog.
    Stack(Packet),
    /// The source is empty.
    Exit(Source),
    /// Transmitted buffers are freed.
    Clean,
    /// A request of this thread and connection.
    Serve(u16, u32),
    /// The thread found nothing more to do.
    Sleep(u16),
}

/// One processor.
#[derive(Debug)]
pub(super) struct Cpu {
    pub(super) chunk: Chunk,
    pub(super) irqs: VecDeque<u16>,
    pub(super) ipi: bool,
    pub(super) polls: VecDeque<Source>,
    /// Frames of the first source since it was its turn.
    pub(super) polled: u32,
    pub(super) backlog: VecDeque<Packet>,
    pub(super) backlog_on: bool,
    /// Processors to interrupt when the round of softirq ends.
    pub(super) to_kick: Vec<u16>,
    pub(super) runs: VecDeque<u16>,
    /// Softirq's time since the processor was last free of it, and the threads' time meanwhile.
    softirq_ns: Nanos,
    thread_ns: Nanos,
    busy: Nanos,
    began: Nanos,
}

/// A run.
pub(super) struct Host<'a> {
    pub(super) setup: &'a Setup,
    pub(super) events: Events<Event>,
    pub(super) cpus: Vec<Cpu>,
    pub(super) rings: Vec<Ring>,
    pub(super) threads: Vec<Thread>,
    pub(super) conns: Vec<Conn>,
    pub(super) steer: Steer,
    pub(super) rng: Rng,
    /// Frames that entered and left each queue and each backlog.
    pub(super) queue_tails: Vec<u64>,
    pub(super) queue_heads: Vec<u64>,
    pub(super) backlog_tails: Vec<u32>,
    pub(super) backlog_heads: Vec<u32>,
    pub(super) tx_free: Nanos,
    /// The share of a socket's lines that come from memory.
    pub(super) missing: f64,
    /// The measured time.
    pub(super) from: Nanos,
    pub(super) to: Nanos,
    pub(super) latency: Histogram<u64>,
    pub(super) latency_sum: u128,
    pub(super) books: Outcome,
    pub(super) due: u64,
    pub(super) local: u64,
    /// Requests between a client and a socket, and in sockets.
    pub(super) flying: u64,
    pub(super) sent: u64,
    pub(super) answered: u64,
    pub(super) answers: u64,
}

impl<'a> Host<'a> {
    pub(super) fn new(setup: &'a Setup) -> Result<Self, SetupError> {
        let Setup { machine, queues, threads, connections, .. } = *setup;
        if queues == 0 || threads == 0 || connections == 0 || setup.window == 0 || setup.ring == 0 {
            return Err(SetupError::Number(
                "queues, threads, connections, window and ring are at least 1",
            ));
        }
        if let Load::Open { rate } = setup.load
            && !(rate.is_finite() && rate > 0.0)
        {
            return Err(SetupError::Number("the offered load is a positive number"));
        }
        let cpus = usize::from(machine.cpus());
        let mut rng = Rng::new(setup.seed);
        let (steer, start) = Steer::new(setup, rng.bits())?;
        let cpu = |_| Cpu {
            chunk: Chunk::Idle,
            irqs: VecDeque::new(),
            ipi: false,
            polls: VecDeque::new(),
            polled: 0,
            backlog: VecDeque::new(),
            backlog_on: false,
            to_kick: Vec::new(),
            runs: VecDeque::new(),
            softirq_ns: 0,
            thread_ns: 0,
            busy: 0,
            began: 0,
        };
        let from = start + setup.warmup;
        let mut host = Self {
            setup,
            events: Events::default(),
            cpus: (0..cpus).map(cpu).collect(),
            rings: (0..queues).map(|_| Ring::new(setup)).collect(),
            threads: (0..threads).map(|n| Thread::new(n % machine.cpus())).collect(),
            conns: (0..connections).map(|n| Conn::new((n % u32::from(threads)) as u16)).collect(),
            steer,
            rng,
            queue_tails: vec![0; usize::from(queues)],
            queue_heads: vec![0; usize::from(queues)],
            backlog_tails: vec![0; cpus],
            backlog_heads: vec![0; cpus],
            tx_free: 0,
            missing: setup.costs.missing(connections),
            from,
            to: from + setup.measure,
            latency: Histogram::new_with_bounds(1, 60_000_000_000, 3)
                .map_err(|_| SetupError::Number("no histogram"))?,
            latency_sum: 0,
            books: Outcome::default(),
            due: 0,
            local: 0,
            flying: 0,
            sent: 0,
            answered: 0,
            answers: 0,
        };
        host.start(start);
        Ok(host)
    }

    pub(super) fn now(&self) -> Nanos {
        self.events.now()
    }

    pub(super) fn measuring(&self) -> bool {
        self.now() >= self.from
    }

    pub(super) fn run(mut self) -> Outcome {
        while let Some(event) = self.events.next_before(self.to) {
            match event {
                Event::Due => self.due(),
                Event::Ask(conn) => self.ask(conn),
                Event::Arrive(packet) => self.arrive(packet),
                Event::Irq(queue, number) => self.interrupt(queue, number),
                Event::Ipi(cpu) => {
                    self.cpus[usize::from(cpu)].ipi = true;
                    self.books.ipis += u64::from(self.measuring());
                    self.poke(cpu);
                }
                Event::Done(cpu) => self.done(cpu),
                Event::Answer(conn) => self.answer(conn),
                Event::Move => self.tell_to_move(),
            }
        }
        self.finish()
    }

    fn finish(mut self) -> Outcome {
        for cpu in &mut self.cpus {
            if !matches!(cpu.chunk, Chunk::Idle) {
                cpu.busy += self.to.saturating_sub(cpu.began.max(self.from));
            }
        }
        let seconds = self.setup.measure as f64 / 1e9;
        let us = |ns: u64| ns as f64 / 1e3;
        let in_sockets: u64 = self.conns.iter().map(|conn| u64::from(conn.queued)).sum();
        let mut books = self.books;
        books.offered_rps = self.due as f64 / seconds;
        books.answered_rps = self.answers as f64 / seconds;
        books.latency_us_mean = self.latency_sum as f64 / (self.answers as f64).max(1.0) / 1e3;
        books.latency_us_p50 = us(self.latency.value_at_quantile(0.5));
        books.latency_us_p99 = us(self.latency.value_at_quantile(0.99));
        books.local_share = self.local as f64 / (books.segments as f64).max(1.0);
        let measure = self.setup.measure.max(1) as f64;
        books.busy = self.cpus.iter().map(|cpu| cpu.busy as f64 / measure).collect();
        books.filters = self.steer.filters();
        books.books = [self.sent, self.answered, self.flying + in_sockets];
        books
    }

    /// Something waits for `cpu`.
    pub(super) fn poke(&mut self, cpu: u16) {
        if matches!(self.cpus[usize::from(cpu)].chunk, Chunk::Idle) {
            self.next(cpu, self.setup.costs.idle_exit);
        }
    }

    /// Has `cpu` begin its next chunk; `extra` comes before it.
    pub(super) fn next(&mut self, cpu: u16, extra: Nanos) {
        let (chunk, mut work, fetch) = self.choose(cpu);
        let own = &mut self.cpus[usize::from(cpu)];
        own.chunk = chunk;
        if matches!(chunk, Chunk::Idle) {
            (own.softirq_ns, own.thread_ns) = (0, 0);
            return;
        }
        let sibling = self.setup.machine.sibling(cpu);
        if sibling.is_some_and(|s| !matches!(self.cpus[usize::from(s)].chunk, Chunk::Idle)) {
            work = (work as f64 * self.setup.costs.sibling_share) as Nanos;
        }
        let (now, ns) = (self.now(), extra + work + fetch);
        let own = &mut self.cpus[usize::from(cpu)];
        match chunk {
            Chunk::Serve(..) | Chunk::Sleep(_) => own.thread_ns += ns,
            _ => own.softirq_ns += ns,
        }
        own.began = now;
        self.events.after(ns, Event::Done(cpu));
    }

    /// What `cpu` does next, its work and what it fetches, in nanoseconds.
    fn choose(&mut self, cpu: u16) -> (Chunk, Nanos, Nanos) {
        let own = &mut self.cpus[usize::from(cpu)];
        if let Some(queue) = own.irqs.pop_front() {
            return (Chunk::Irq(queue), self.setup.costs.irq, 0);
        }
        if std::mem::take(&mut own.ipi) {
            if own.backlog_on && !own.polls.contains(&Source::Backlog) {
                own.polls.push_back(Source::Backlog);
            }
            return (Chunk::Ipi, self.setup.costs.ipi_take, 0);
        }
        let (soft, app) = (!own.polls.is_empty(), !own.runs.is_empty());
        if !soft {
            (own.softirq_ns, own.thread_ns) = (0, 0);
        }
        let starved = own.softirq_ns > SOFTIRQ_MAX && own.thread_ns + SOFTIRQ_MAX < own.softirq_ns;
        if soft && !(app && starved) {
            self.choose_softirq(cpu)
        } else if app {
            self.choose_thread(cpu)
        } else {
            (Chunk::Idle, 0, 0)
        }
    }

    /// The chunk's effect, and the next chunk.
    fn done(&mut self, cpu: u16) {
        let (now, from) = (self.now(), self.from);
        let own = &mut self.cpus[usize::from(cpu)];
        own.busy += now.saturating_sub(own.began.max(from));
        match own.chunk {
            Chunk::Irq(queue) => own.polls.push_back(Source::Ring(queue)),
            Chunk::Frame(packet, target) => match target {
                None => self.deliver(cpu, packet),
                Some(target) => self.enqueue_on(cpu, target, packet),
            },
            Chunk::Stack(packet) => {
                self.backlog_heads[usize::from(cpu)] =
                    self.backlog_heads[usize::from(cpu)].wrapping_add(1);
                self.deliver(cpu, packet);
            }
            Chunk::Exit(source) => self.exit(cpu, source),
            Chunk::Serve(thread, conn) => self.served(cpu, thread, conn),
            Chunk::Sleep(thread) => self.sleep(cpu, thread),
            Chunk::Idle | Chunk::Ipi | Chunk::Clean => {}
        }
        self.next(cpu, 0);
    }

    /// The processor of RPS or RFS for a frame that came by `queue`; `None` stays.
    pub(super) fn dispatch(&mut self, packet: Packet) -> Option<u16> {
        let hash = self.steer.hash(packet.conn);
        let mut backlogs = Backlogs { tails: &self.backlog_tails, heads: &self.backlog_heads };
        if let Some(rfs) = &mut self.steer.rfs {
            return rfs.receive(hash, packet.queue, &mut backlogs);
        }
        self.steer.rps.as_ref().and_then(|rps| rps.cpu(hash, &backlogs))
    }
}

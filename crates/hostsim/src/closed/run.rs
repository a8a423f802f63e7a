//! The state of a run - processors, threads, connections - and the effect of each event, with clients in a closed loop or
//! with generators in an open one (`generator`); what the network stack does is in `softirq`.
//!
//! Softirq runs above the threads: the time it takes is added to the thread's chunk of work that it interrupts.

use std::collections::VecDeque;

use flowyard_adapter::linux::{Rfs, RfsConfig, Rps, SlotIndex};
use flowyard_frame::{Nanos, Rng};

use super::{CPUS, Costs, Ops, Steering, Way};
use crate::events::Events;

mod generator;
mod softirq;

pub(crate) use generator::{Generator, Load, Tally};

/// The largest number of events that one `epoll_wait` returns (the initial array of libevent).
const EPOLL_MAX: usize = 32;
/// The largest number of requests of a connection that memcached answers at once (its option -R).
const SERVE_MAX: usize = 20;

/// What runs: two processors, each with clients and a server thread.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) costs: Costs,
    pub(crate) steering: Steering,
    /// Server threads, as [`super::Setup::servers`].
    pub(crate) servers: u16,
    /// Client threads on each processor that has clients.
    pub(crate) clients: usize,
    /// Connections of each client thread.
    pub(crate) connections: usize,
    pub(crate) seed: u64,
    /// How long a thread runs while another waits for its processor.
    pub(crate) slice: Nanos,
    pub(crate) load: Load,
}

/// A piece of work of a thread, done without interruption by other threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Chunk {
    /// A client sends a request on this connection.
    Ask(usize),
    /// The client interrupts the processor that has the frame in its backlog.
    Interrupt(usize),
    /// A client reads the answers on this connection.
    Take(usize),
    /// A generator begins a turn of its loop.
    Turn(usize),
    /// A generator waits until a request is due or an answer has arrived.
    Wait(usize),
    /// A generator asks which connections have answers.
    List(usize),
    /// The server calls `epoll_wait`, which finds nothing.
    Poll,
    /// The server calls `epoll_wait`, which returns events.
    Woken,
    /// The server serves this connection.
    Serve(usize),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A processor has finished its chunk.
    Done(u16, Chunk),
    /// A processor has a thread to run.
    Poke(u16),
    /// A processor is interrupted for its backlog.
    Arrive(u16),
    /// A processor begins to process its backlog.
    Soft(u16),
    /// A processor has run the stack for a frame of its backlog.
    Stack(u16),
    /// The timer of a generator's wait, which may be over, expires.
    Timer(usize, u64),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Cpu {
    busy: bool,
    /// The backlog: connections of requests that the stack is to process here, and whether each caused an
    /// interrupt.
    soft: VecDeque<(usize, bool)>,
    /// Whether it was interrupted for its backlog and has not found it empty since.
    polls: bool,
    /// Whether it is processing its backlog.
    in_softirq: bool,
    /// The time by which softirq delays the current chunk.
    stolen: Nanos,
    /// The runnable threads; the first one runs.
    runs: VecDeque<usize>,
    began: Nanos,
    pub(crate) worked: Nanos,
    /// The thread that ran last, to count switches, and since when.
    last: usize,
    since: Nanos,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Conn {
    client: usize,
    server: usize,
    hash: u32,
    /// The processor on which the stack processes the last request.
    stack: u16,
    /// In an open loop: when its requests without an answer were due.
    due: VecDeque<Nanos>,
    /// Requests in the server's socket; requests that are being served; answers in the client's socket; answers that
    /// are being read.
    received: usize,
    serving: usize,
    answers: usize,
    taking: usize,
    /// Whether it is ready or named at its server, and at its client.
    listed: [bool; 2],
}

/// Places of [`Conn::listed`].
const AT_SERVER: usize = 0;
const AT_CLIENT: usize = 1;

/// A client or a server thread.
#[derive(Clone, Debug)]
pub(crate) struct Thread {
    cpu: u16,
    asleep: bool,
    /// Of a client: its first connection.
    first: usize,
    /// Of a client: the connection of its outstanding request, and whether the answer has arrived.
    pub(crate) asked: Option<usize>,
    answered: bool,
    /// Of a server or a generator: connections with a request or an answer that `epoll_wait` has not returned yet.
    ready: VecDeque<usize>,
    /// Of the same: connections that the last `epoll_wait` returned and that are not served yet.
    named: VecDeque<usize>,
    /// Of a generator.
    paced: generator::Paced,
}

pub(crate) struct Run<'a> {
    of: &'a Host,
    pub(crate) events: Events<Event>,
    pub(crate) cpus: [Cpu; CPUS as usize],
    pub(crate) threads: Vec<Thread>,
    conns: Vec<Conn>,
    rng: Rng,
    rps: Rps,
    rfs: Option<Rfs>,
    heads: [u32; CPUS as usize],
    tails: [u32; CPUS as usize],
    pub(crate) asked: u64,
    pub(crate) read: u64,
    /// In the measured time: requests processed by the stack, and those of them on the server's processor.
    pub(crate) stacks: u64,
    pub(crate) local: u64,
    /// Of an open loop.
    pub(crate) tally: Tally,
}

impl<'a> Run<'a> {
    pub(crate) fn new(of: &'a Host) -> Self {
        let mut rng = Rng::new(of.seed);
        let cpus = usize::from(CPUS);
        let servers = usize::from(of.servers.min(CPUS));
        let thread = |cpu: usize, first: usize| Thread {
            cpu: cpu as u16,
            asleep: false,
            first,
            asked: None,
            answered: false,
            ready: VecDeque::new(),
            named: VecDeque::new(),
            paced: generator::Paced::default(),
        };
        // A single server is on the second processor. The clients follow, distributed round-robin.
        let mut threads: Vec<Thread> =
            (0..servers).map(|n| thread((n + cpus - servers) % cpus, 0)).collect();
        let mut conns = Vec::new();
        let with_clients = servers.min(cpus);
        let clients = if of.connections == 0 { 0 } else { of.clients * with_clients };
        for n in 0..clients {
            let mut client = thread(n % with_clients, conns.len());
            client.paced = of.load.begin(of.seed, n);
            threads.push(client);
            for _ in 0..of.connections {
                let (client, server) = (threads.len() - 1, conns.len() % servers);
                let hash = rng.bits() as u32;
                conns.push(Conn { client, server, hash, ..Conn::default() });
            }
        }
        let rps = Rps { cpus: (0..CPUS).collect() };
        let rfs = (of.steering == Steering::Rfs).then(|| {
            Rfs::new(RfsConfig {
                sock_flow_entries: 32_768,
                flow_cnt: 4096,
                queues: 1,
                cpus: CPUS,
                slot: SlotIndex::Hash32,
                rps: rps.clone(),
            })
        });
        let mut events = Events::default();
        let mut all: [Cpu; CPUS as usize] = Default::default();
        for (number, thread) in threads.iter().enumerate() {
            all[usize::from(thread.cpu)].runs.push_back(number);
        }
        (0..CPUS).for_each(|cpu| events.at(0, Event::Poke(cpu)));
        let (heads, tails) = ([0; CPUS as usize], [0; CPUS as usize]);
        let (asked, read, stacks, local) = (0, 0, 0, 0);
        let cpus = all;
        Self {
            of,
            events,
            cpus,
            threads,
            conns,
            rng,
            rps,
            rfs,
            heads,
            tails,
            asked,
            read,
            stacks,
            local,
            tally: Tally::default(),
        }
    }

    /// Applies an event.
    pub(crate) fn apply(&mut self, event: Event) {
        match event {
            Event::Done(cpu, chunk) => self.done(cpu, chunk),
            Event::Poke(cpu) => {
                let own = &self.cpus[usize::from(cpu)];
                if !own.busy && !own.in_softirq {
                    self.next(cpu);
                }
            }
            Event::Arrive(cpu) => {
                let own = &self.cpus[usize::from(cpu)];
                let idle = if own.busy { 0 } else { self.idle_delay() };
                self.events.after(idle, Event::Soft(cpu));
            }
            Event::Soft(cpu) => self.begin_stack(cpu),
            Event::Stack(cpu) => self.end_stack(cpu),
            Event::Timer(thread, wait) => self.expire(thread, wait),
        }
    }

    /// The time that each processor has worked.
    pub(crate) fn worked(&self) -> [Nanos; CPUS as usize] {
        std::array::from_fn(|cpu| self.cpus[cpu].worked)
    }

    /// Requests that the server has not answered, or whose answers are not read, counted where they are.
    pub(crate) fn held(&self) -> u64 {
        let backlogs: usize = self.cpus.iter().map(|cpu| cpu.soft.len()).sum();
        let of = |conn: &Conn| conn.received + conn.serving + conn.answers + conn.taking;
        (backlogs + self.conns.iter().map(of).sum::<usize>()) as u64
    }

    fn is_server(&self, thread: usize) -> bool {
        thread < usize::from(self.of.servers.min(CPUS))
    }

    fn ops(&self, conn: usize) -> Ops {
        let Conn { client, server, stack, .. } = self.conns[conn];
        let way = Way::of(self.threads[client].cpu, stack, self.threads[server].cpu);
        self.of.costs.ways[way as usize]
    }

    /// The cost of waking `thread`, paid by the thread that runs on `cpu`.
    fn wake_cost(&self, thread: usize, cpu: u16) -> Nanos {
        let (costs, other) = (&self.of.costs, &self.threads[thread]);
        match (other.asleep, other.cpu == cpu) {
            (false, _) => 0,
            (true, true) => costs.wake_near,
            (true, false) if self.is_idle(other.cpu) => costs.wake_near + costs.idle_wake,
            (true, false) => costs.wake_far,
        }
    }

    /// Whether the processor has nothing to do, and nobody has woken it yet.
    fn is_idle(&self, cpu: u16) -> bool {
        let own = &self.cpus[usize::from(cpu)];
        !own.busy && !own.in_softirq && !own.polls && own.runs.is_empty()
    }

    /// From the end of a wake-up, or from an interrupt, until an idle processor begins to work.
    fn idle_delay(&self) -> Nanos {
        self.of.costs.idle_exit.saturating_sub(self.of.costs.idle_wake)
    }

    fn wake(&mut self, thread: usize) {
        self.wake_after(self.idle_delay(), thread);
    }

    /// Makes a thread runnable. An idle processor begins to work after `delay`.
    fn wake_after(&mut self, delay: Nanos, thread: usize) {
        let own = &mut self.threads[thread];
        if std::mem::take(&mut own.asleep) {
            let cpu = own.cpu;
            self.cpus[usize::from(cpu)].runs.push_back(thread);
            if !self.cpus[usize::from(cpu)].busy {
                self.events.after(delay, Event::Poke(cpu));
            }
        }
    }

    /// Begins the next chunk of `cpu`, that of its first runnable thread.
    fn next(&mut self, cpu: u16) {
        let (Host { costs, slice, load, .. }, now) = (self.of, self.events.now());
        let own = &mut self.cpus[usize::from(cpu)];
        own.busy = true;
        if own.runs.front() == Some(&own.last) && now - own.since >= *slice {
            own.runs.rotate_left(1);
            own.since = now;
        }
        let (chunk, ns) = if let Some(&thread) = own.runs.front() {
            let is_same = std::mem::replace(&mut own.last, thread) == thread;
            let switch = if is_same { 0 } else { costs.switch };
            own.since = if is_same { own.since } else { now };
            let (chunk, ns) = match (self.is_server(thread), load) {
                (true, _) => self.serve(thread),
                (false, Load::Closed) => self.client(thread, cpu),
                (false, Load::Open(load)) => self.generate(load, thread, cpu),
            };
            (chunk, switch + ns)
        } else {
            own.busy = false;
            return;
        };
        self.cpus[usize::from(cpu)].began = now;
        self.events.after(ns.max(1), Event::Done(cpu, chunk));
    }

    /// The next chunk of a client: it reads the answer that it waited for, or sends a request.
    fn client(&mut self, number: usize, cpu: u16) -> (Chunk, Nanos) {
        if let Some(conn) = self.threads[number].asked {
            return (Chunk::Take(conn), self.ops(conn).take);
        }
        self.ask(number, cpu)
    }

    /// A client sends a request on one of its connections.
    fn ask(&mut self, number: usize, cpu: u16) -> (Chunk, Nanos) {
        let conn = self.threads[number].first + self.rng.below(self.of.connections as u64) as usize;
        let stack = self.steer(conn, cpu);
        self.conns[conn].stack = stack;
        let ask = self.ops(conn).ask;
        let ns = if stack == cpu {
            ask + self.wake_cost(self.conns[conn].server, cpu)
        } else {
            ask.saturating_sub(self.of.costs.ipi_send)
        };
        (Chunk::Ask(conn), ns)
    }

    /// The next chunk of a server thread.
    fn serve(&mut self, number: usize) -> (Chunk, Nanos) {
        let costs = self.of.costs;
        let own = &self.threads[number];
        match own.named.front() {
            Some(&conn) => {
                let ops = self.ops(conn);
                let wake = self.wake_cost(self.conns[conn].client, own.cpu);
                let state = &mut self.conns[conn];
                state.serving = state.received.min(SERVE_MAX);
                state.received -= state.serving;
                // memcached sends each answer on its own. A read that finds nothing is in the cost of a request, because
                // the calibration subtracts one.
                let requests =
                    state.serving as Nanos * (costs.request + ops.answer + costs.nothing);
                let ns = ops.read + requests + wake;
                (Chunk::Serve(conn), ns)
            }
            None if own.ready.is_empty() => (Chunk::Poll, costs.epoll),
            None => {
                let events = own.ready.len().min(EPOLL_MAX) as Nanos;
                (Chunk::Woken, costs.epoll + events * costs.event)
            }
        }
    }

    /// Applies the effect of a finished chunk and begins the next one.
    fn done(&mut self, cpu: u16, chunk: Chunk) {
        let now = self.events.now();
        let own = &mut self.cpus[usize::from(cpu)];
        let stolen = std::mem::take(&mut own.stolen);
        if stolen > 0 {
            self.events.after(stolen, Event::Done(cpu, chunk));
            return;
        }
        own.worked += now - own.began;
        match chunk {
            Chunk::Ask(conn) => {
                self.asked += 1;
                let Conn { client, stack, .. } = self.conns[conn];
                self.threads[client].asked = Some(conn);
                if stack == cpu {
                    self.deliver(conn, cpu);
                } else if self.hand_over(conn, stack) {
                    self.events.after(
                        self.of.costs.ipi_send.max(1),
                        Event::Done(cpu, Chunk::Interrupt(conn)),
                    );
                    self.cpus[usize::from(cpu)].began = now;
                    return;
                }
                self.wait(client, cpu);
            }
            Chunk::Interrupt(conn) => self.wait(self.conns[conn].client, cpu),
            Chunk::Take(conn) => self.took(conn),
            Chunk::Turn(thread) => self.turned(thread),
            Chunk::Wait(thread) => self.waited(thread, cpu),
            Chunk::List(thread) => self.listed(thread),
            Chunk::Poll | Chunk::Woken => {
                let Some(&number) = self.cpus[usize::from(cpu)].runs.front() else { return };
                let own = &mut self.threads[number];
                let events = own.ready.len().min(EPOLL_MAX);
                let named: Vec<usize> = own.ready.drain(..events).collect();
                own.named.extend(named);
                if own.named.is_empty() {
                    self.sleep(number, cpu);
                }
            }
            Chunk::Serve(conn) => self.served(conn, cpu),
        }
        self.next(cpu);
    }

    /// The server has answered what it read of a connection.
    fn served(&mut self, conn: usize, cpu: u16) {
        let state = &mut self.conns[conn];
        let (client, server, hash) = (state.client, state.server, state.hash);
        state.answers += std::mem::take(&mut state.serving);
        state.listed[AT_SERVER] = state.received > 0;
        let is_named = std::mem::replace(&mut state.listed[AT_CLIENT], true);
        let has_more = state.received > 0;
        if let Some(rfs) = &mut self.rfs {
            rfs.consume(hash, cpu);
        }
        let own = &mut self.threads[server];
        own.named.pop_front();
        if has_more {
            own.ready.push_back(conn);
        }
        let other = &mut self.threads[client];
        other.answered = true;
        if !is_named {
            other.ready.push_back(conn);
        }
        self.wake(client);
    }

    /// A client has read the answers of a connection.
    fn took(&mut self, conn: usize) {
        let state = &mut self.conns[conn];
        let client = &mut self.threads[state.client];
        match self.of.load {
            Load::Closed => {
                self.read += 1;
                state.answers = 0;
                state.listed[AT_CLIENT] = false;
                client.ready.clear();
                (client.asked, client.answered) = (None, false);
            }
            Load::Open(_) => {
                client.named.pop_front();
                state.listed[AT_CLIENT] = state.answers > 0;
                if state.answers > 0 {
                    client.ready.push_back(conn);
                }
                self.record(conn);
            }
        }
    }

    /// Lets a client in a closed loop sleep until its answer arrives, unless it has arrived already.
    fn wait(&mut self, client: usize, cpu: u16) {
        if matches!(self.of.load, Load::Closed) && !self.threads[client].answered {
            self.sleep(client, cpu);
        }
    }

    fn sleep(&mut self, thread: usize, cpu: u16) {
        self.threads[thread].asleep = true;
        self.cpus[usize::from(cpu)].runs.retain(|&other| other != thread);
    }
}

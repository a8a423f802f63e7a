//! The state of a run - processors, threads, connections - and the effect of each event.
//!
//! Softirq runs above the threads: the time it takes is added to the thread's chunk of work that it interrupts.

use std::collections::VecDeque;

use flowyard_adapter::linux::{CpuQueues, Rfs, RfsConfig, Rps, SlotIndex};
use flowyard_frame::{Nanos, Rng};

use super::{CPUS, Ops, Setup, Steering, Way};
use crate::events::Events;

/// The largest number of events that one `epoll_wait` returns (the initial array of libevent).
const EPOLL_MAX: usize = 32;

/// A piece of work of a thread, done without interruption by other threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Chunk {
    /// A client sends a request on this connection.
    Ask(usize),
    /// The client interrupts the processor that has the frame in its backlog.
    Interrupt(usize),
    /// A client reads the answer on this connection.
    Take(usize),
    /// The server calls `epoll_wait`, which finds nothing.
    Poll,
    /// The server calls `epoll_wait`, which returns events.
    Woken,
    /// The server serves this connection.
    Serve(usize),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
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
}

#[derive(Clone, Debug, Default)]
pub(super) struct Cpu {
    pub(super) busy: bool,
    /// The backlog: connections of requests that the stack is to process here, and whether each caused an
    /// interrupt.
    soft: VecDeque<(usize, bool)>,
    /// Whether it was interrupted for its backlog and has not found it empty since.
    polls: bool,
    /// Whether it is processing its backlog.
    pub(super) in_softirq: bool,
    /// The time by which softirq delays the current chunk.
    stolen: Nanos,
    /// The runnable threads; the first one runs.
    runs: VecDeque<usize>,
    began: Nanos,
    pub(super) worked: Nanos,
    /// The thread that ran last, to count switches.
    last: usize,
}

#[derive(Clone, Debug)]
pub(super) struct Conn {
    client: usize,
    server: usize,
    hash: u32,
    /// The processor on which the stack processes the outstanding request.
    stack: u16,
}

/// A client or a server thread.
#[derive(Clone, Debug)]
pub(super) struct Thread {
    cpu: u16,
    asleep: bool,
    /// Of a client: its first connection.
    first: usize,
    /// Of a client: the connection of its outstanding request, and whether the answer has arrived.
    pub(super) asked: Option<usize>,
    answered: bool,
    /// Of a server: connections with a request that `epoll_wait` has not returned yet.
    ready: VecDeque<usize>,
    /// Of a server: connections that the last `epoll_wait` returned and that are not served yet.
    named: VecDeque<usize>,
}

pub(super) struct Run<'a> {
    of: &'a Setup,
    pub(super) events: Events<Event>,
    pub(super) cpus: [Cpu; CPUS as usize],
    pub(super) threads: Vec<Thread>,
    conns: Vec<Conn>,
    rng: Rng,
    rps: Rps,
    rfs: Option<Rfs>,
    heads: [u32; CPUS as usize],
    tails: [u32; CPUS as usize],
    pub(super) asked: u64,
    pub(super) read: u64,
    /// In the measured time: requests processed by the stack, and those of them on the server's processor.
    pub(super) stacks: u64,
    pub(super) local: u64,
}

struct Backlogs([u32; CPUS as usize], [u32; CPUS as usize]);

impl CpuQueues for Backlogs {
    fn head(&self, cpu: u16) -> u32 {
        self.0[usize::from(cpu)]
    }

    fn tail(&self, cpu: u16) -> u32 {
        self.1[usize::from(cpu)]
    }

    fn online(&self, cpu: u16) -> bool {
        cpu < CPUS
    }
}

impl<'a> Run<'a> {
    pub(super) fn new(of: &'a Setup) -> Self {
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
        };
        // A single server is on the second processor. The clients follow, distributed round-robin.
        let mut threads: Vec<Thread> =
            (0..servers).map(|n| thread((n + cpus - servers) % cpus, 0)).collect();
        let mut conns = Vec::new();
        let with_clients = servers.min(cpus);
        let clients = if of.connections == 0 { 0 } else { of.clients * with_clients };
        for n in 0..clients {
            threads.push(thread(n % with_clients, conns.len()));
            for _ in 0..of.connections {
                let (client, server) = (threads.len() - 1, conns.len() % servers);
                let hash = rng.bits() as u32;
                conns.push(Conn { client, server, hash, stack: 0 });
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
        }
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
        let other = &self.threads[thread];
        match (other.asleep, other.cpu == cpu) {
            (false, _) => 0,
            (true, true) => self.of.costs.wake_near,
            (true, false) => self.of.costs.wake_far,
        }
    }

    fn wake(&mut self, thread: usize) {
        let own = &mut self.threads[thread];
        if std::mem::take(&mut own.asleep) {
            let cpu = own.cpu;
            self.cpus[usize::from(cpu)].runs.push_back(thread);
            self.poke(cpu);
        }
    }

    fn poke(&mut self, cpu: u16) {
        if !self.cpus[usize::from(cpu)].busy {
            self.events.after(self.of.costs.idle_exit, Event::Poke(cpu));
        }
    }

    /// The processor that the kernel chooses for a request of `conn` that was sent on `cpu`.
    fn steer(&mut self, conn: usize, cpu: u16) -> u16 {
        let hash = self.conns[conn].hash;
        let mut backlogs = Backlogs(self.heads, self.tails);
        let target = match (&mut self.rfs, self.of.steering) {
            (Some(rfs), _) => rfs.receive(hash, 0, &mut backlogs),
            (None, Steering::Rps) => self.rps.cpu(hash, &backlogs),
            (None, _) => None,
        };
        target.unwrap_or(cpu)
    }

    /// Begins the stack's work for the next frame of the backlog, which delays the current chunk.
    pub(super) fn begin_stack(&mut self, cpu: u16) {
        let costs = self.of.costs;
        let Some(&(conn, interrupted)) = self.cpus[usize::from(cpu)].soft.front() else { return };
        let saved = if interrupted { 0 } else { costs.ipi_take };
        let hop = self.ops(conn).hop.saturating_sub(saved);
        let ns = (hop + self.wake_cost(self.conns[conn].server, cpu)).max(1);
        let own = &mut self.cpus[usize::from(cpu)];
        own.in_softirq = true;
        if own.busy {
            own.stolen += ns;
        } else {
            own.worked += ns;
        }
        self.events.after(ns, Event::Stack(cpu));
    }

    /// The stack has processed the first frame of the backlog.
    pub(super) fn end_stack(&mut self, cpu: u16) {
        let own = &mut self.cpus[usize::from(cpu)];
        let frame = own.soft.pop_front();
        (own.in_softirq, own.polls) = (!own.soft.is_empty(), !own.soft.is_empty());
        let (more, busy) = (own.in_softirq, own.busy);
        if let Some((conn, _)) = frame {
            self.heads[usize::from(cpu)] = self.heads[usize::from(cpu)].wrapping_add(1);
            self.deliver(conn, cpu);
        }
        if more {
            self.begin_stack(cpu);
        } else if !busy {
            self.next(cpu);
        }
    }

    /// Begins the next chunk of `cpu`, that of its first runnable thread.
    pub(super) fn next(&mut self, cpu: u16) {
        let costs = self.of.costs;
        let own = &mut self.cpus[usize::from(cpu)];
        own.busy = true;
        let (chunk, ns) = if let Some(&thread) = own.runs.front() {
            let switch =
                if std::mem::replace(&mut own.last, thread) == thread { 0 } else { costs.switch };
            let (chunk, ns) =
                if self.is_server(thread) { self.serve(thread) } else { self.client(thread, cpu) };
            (chunk, switch + ns)
        } else {
            own.busy = false;
            return;
        };
        let now = self.events.now();
        self.cpus[usize::from(cpu)].began = now;
        self.events.after(ns.max(1), Event::Done(cpu, chunk));
    }

    /// The next chunk of a client: it reads the answer that it waited for, or sends a request.
    fn client(&mut self, number: usize, cpu: u16) -> (Chunk, Nanos) {
        if let Some(conn) = self.threads[number].asked {
            return (Chunk::Take(conn), self.ops(conn).take);
        }
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
                let ns = ops.read + costs.request + ops.answer + costs.nothing + wake;
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
    pub(super) fn done(&mut self, cpu: u16, chunk: Chunk) {
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
                let (client, stack) = (self.conns[conn].client, self.conns[conn].stack);
                self.threads[client].asked = Some(conn);
                if stack == cpu {
                    self.deliver(conn, cpu);
                } else {
                    self.tails[usize::from(stack)] = self.tails[usize::from(stack)].wrapping_add(1);
                    let costs = self.of.costs;
                    let other = &mut self.cpus[usize::from(stack)];
                    let interrupts = !std::mem::replace(&mut other.polls, true);
                    other.soft.push_back((conn, interrupts));
                    if interrupts {
                        let before = self.ops(conn).ask.saturating_sub(costs.ipi_send);
                        let flight = costs.ipi_flight.saturating_sub(before);
                        self.events.after(flight, Event::Arrive(stack));
                        self.events
                            .after(costs.ipi_send.max(1), Event::Done(cpu, Chunk::Interrupt(conn)));
                        self.cpus[usize::from(cpu)].began = now;
                        return;
                    }
                }
                self.wait(client, cpu);
            }
            Chunk::Interrupt(conn) => self.wait(self.conns[conn].client, cpu),
            Chunk::Take(conn) => {
                self.read += 1;
                let client = &mut self.threads[self.conns[conn].client];
                (client.asked, client.answered) = (None, false);
            }
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
            Chunk::Serve(conn) => {
                let Conn { client, server, hash, .. } = self.conns[conn];
                if let Some(rfs) = &mut self.rfs {
                    rfs.consume(hash, cpu);
                }
                self.threads[server].named.pop_front();
                self.threads[client].answered = true;
                self.wake(client);
            }
        }
        self.next(cpu);
    }

    /// Lets a client sleep until its answer arrives, unless it has arrived already.
    fn wait(&mut self, client: usize, cpu: u16) {
        if !self.threads[client].answered {
            self.sleep(client, cpu);
        }
    }

    fn sleep(&mut self, thread: usize, cpu: u16) {
        self.threads[thread].asleep = true;
        self.cpus[usize::from(cpu)].runs.retain(|&other| other != thread);
    }

    /// Puts a request into the server's socket.
    fn deliver(&mut self, conn: usize, cpu: u16) {
        let server = self.conns[conn].server;
        self.stacks += 1;
        self.local += u64::from(self.threads[server].cpu == cpu);
        self.threads[server].ready.push_back(conn);
        self.wake(server);
    }
}

//! Clients and memcached on the same two processors, joined by a veth: closed loop, no idle time.
//!
//! ```text
//!  cpu 0: clients ─ask─> stack here, or ─RPS, RFS: IPI─> stack on cpu 1 ─> socket ─wake─> server thread
//!  cpu 1: clients           (softirq goes before threads)                                       │
//!            ^─────────── wake <── socket <── stack on the server's cpu <────────answer─────────┘
//! ```
//!
//! A client asks on one of its connections, waits, reads, asks again: requests are spaced by its system
//! calls, which are on the processors that the server wants. Threads are pinned and of one real-time
//! priority, so a processor runs them first come, first served, each until it sleeps (SCHED_FIFO). What
//! an operation costs depends on the way of its frame ([`Way`]): whose lines it finds where.
//!
//! Invariants: a client has at most one request under way; every request asked is answered or on its
//! way ([`Outcome::is_balanced`]). Thread-safety: a run is one value on one thread.

use std::collections::VecDeque;

use flowyard_adapter::linux::{CpuQueues, Rfs, RfsConfig, Rps, SlotIndex};
use flowyard_frame::Nanos;
use flowyard_testkit::Rng;

use crate::events::Events;
use crate::profile::{Profile, ProfileError};

#[cfg(test)]
mod tests;

/// Processors of the model.
pub const CPUS: u16 = 2;
/// Events that one `epoll_wait` returns at most (libevent's first array).
const EPOLL_MAX: usize = 32;

/// The way of a request: whether client and server share a processor, and whether the frame leaves
/// the client's for its receive processing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// All on one processor.
    Near,
    /// The server is on the other; the stack runs where the client is.
    Far,
    /// The server is on the other, and so is the stack.
    Hop,
    /// Client and server share a processor; the stack runs on the other.
    Away,
}

impl Way {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Near, Self::Far, Self::Hop, Self::Away];

    /// The word in the names of constants.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::Far => "far",
            Self::Hop => "hop",
            Self::Away => "away",
        }
    }

    const fn of(client: u16, stack: u16, server: u16) -> Self {
        match (client == server, client == stack) {
            (true, true) => Self::Near,
            (false, true) => Self::Far,
            (false, false) => Self::Hop,
            (true, false) => Self::Away,
        }
    }
}

/// What the operations of one way cost, in nanoseconds, nobody asleep.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ops {
    /// The client sends; with the stack's work if that is on its processor.
    pub ask: Nanos,
    /// The other processor's time for the interrupt and the stack.
    pub hop: Nanos,
    /// The server reads.
    pub read: Nanos,
    /// The server sends, with the stack's work for the client's socket.
    pub answer: Nanos,
    /// The client reads.
    pub take: Nanos,
}

impl Ops {
    /// The names of the operations in a profile: `tcp_<way>_<operation>_ns`.
    pub const NAMES: [&'static str; 5] = ["ask", "hop", "read", "answer", "take"];
}

/// What things cost, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Costs {
    /// By way, in the order of [`Way::ALL`].
    pub ways: [Ops; 4],
    /// A read that finds nothing.
    pub nothing: Nanos,
    /// A call of `epoll_wait`, and what each event adds.
    pub epoll: Nanos,
    /// An event of it.
    pub event: Nanos,
    /// Waking a thread of the same processor, with its going to sleep before.
    pub wake_near: Nanos,
    /// The same of a thread on the other processor.
    pub wake_far: Nanos,
    /// From one thread to the next.
    pub switch: Nanos,
    /// Until a processor that idles begins to work.
    pub idle_exit: Nanos,
    /// The interrupt's part of `ask` and of `hop`: saved where the other processor is at its backlog
    /// already, and looks into it again.
    pub ipi_send: Nanos,
    /// The part of `hop`.
    pub ipi_take: Nanos,
    /// From the begin of `ask` until the other processor is interrupted.
    pub ipi_flight: Nanos,
    /// The server's own work for a request, without system calls.
    pub request: Nanos,
}

impl Costs {
    /// Those of `profile`.
    ///
    /// # Errors
    /// When it lacks one: without root or memcached, `flowyard calibrate` cannot measure them.
    pub fn of(profile: &Profile) -> Result<Self, ProfileError> {
        let mut ways = [Ops::default(); 4];
        for (ops, way) in ways.iter_mut().zip(Way::ALL) {
            let get = |op: &str| profile.ns(&format!("tcp_{}_{op}_ns", way.name()));
            let [ask, hop, read, answer, take] = Ops::NAMES.map(get);
            *ops = Ops { ask: ask?, hop: hop?, read: read?, answer: answer?, take: take? };
        }
        Ok(Self {
            ways,
            nothing: profile.ns("tcp_nothing_ns")?,
            epoll: profile.ns("epoll_ns")?,
            event: profile.ns("epoll_event_ns")?,
            wake_near: profile.ns("fifo_wake_near_ns")?,
            wake_far: profile.ns("fifo_wake_far_ns")?,
            switch: profile.ns("fifo_switch_ns")?,
            idle_exit: profile.ns("idle_exit_ns")?,
            ipi_send: profile.ns("rps_ipi_send_ns")?,
            ipi_take: profile.ns("rps_ipi_take_ns")?,
            ipi_flight: profile.ns("rps_ipi_flight_ns")?,
            request: profile.ns("memcached_request_ns")?,
        })
    }
}

/// Where the kernel processes what the server receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steering {
    /// On the processor that sent it: a veth has no queue of its own.
    None,
    /// By hash.
    Rps,
    /// Where the server last read the flow.
    Rfs,
}

/// A run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What things cost.
    pub costs: Costs,
    /// Who decides.
    pub steering: Steering,
    /// Server threads: two, one on each processor, with clients on both; or one on the second, with
    /// clients on the first.
    pub servers: u16,
    /// Client threads of each processor that has some.
    pub clients: usize,
    /// Connections of each client.
    pub connections: usize,
    /// Of hashes and of the clients' choices.
    pub seed: u64,
    /// Time before measuring and time measured, in nanoseconds.
    pub time: [Nanos; 2],
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Answers read a second.
    pub rate: f64,
    /// Requests whose stack ran on the processor of the serving thread, as a share.
    pub local_share: f64,
    /// Busy share of each processor.
    pub busy: [f64; CPUS as usize],
    /// Whole run: asked, read by the client, under way.
    pub books: [u64; 3],
}

impl Outcome {
    /// Whether every request is accounted for.
    #[must_use]
    pub const fn is_balanced(&self) -> bool {
        self.books[0] == self.books[1] + self.books[2]
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Chunk {
    /// A client sends on this connection.
    Ask(usize),
    /// It interrupts the processor that has the frame.
    Interrupt(usize),
    /// A client reads.
    Take(usize),
    /// The server looks for events.
    Poll,
    /// It has been woken, and takes them.
    Woken,
    /// It serves this connection.
    Serve(usize),
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Done(u16, Chunk),
    /// A processor has something to do.
    Poke(u16),
    /// It is interrupted for its backlog.
    Arrive(u16),
    /// It begins with its backlog, and has done a frame's stack.
    Soft(u16),
    Stack(u16),
}

#[derive(Clone, Debug, Default)]
struct Cpu {
    busy: bool,
    /// Requests whose stack is to run here, and whether it was interrupted for each.
    soft: VecDeque<(usize, bool)>,
    /// It is being interrupted for its backlog, and has not found it empty since.
    polls: bool,
    /// It is at its backlog; what the chunk under way lost by that.
    in_softirq: bool,
    stolen: Nanos,
    /// Threads that can run; the first one does.
    runs: VecDeque<usize>,
    began: Nanos,
    worked: Nanos,
    /// The thread that ran last.
    last: usize,
}

#[derive(Clone, Debug)]
struct Conn {
    client: usize,
    server: usize,
    hash: u32,
    /// Where the request under way has its stack.
    stack: u16,
}

/// A client, or a server thread.
#[derive(Clone, Debug)]
struct Thread {
    cpu: u16,
    asleep: bool,
    /// Client: its first connection. Asked on, and answered.
    first: usize,
    asked: Option<usize>,
    answered: bool,
    /// Server: connections with a request, and those that the last `epoll_wait` named.
    ready: VecDeque<usize>,
    named: VecDeque<usize>,
}

struct Run<'a> {
    of: &'a Setup,
    events: Events<Event>,
    cpus: [Cpu; CPUS as usize],
    threads: Vec<Thread>,
    conns: Vec<Conn>,
    rng: Rng,
    rps: Rps,
    rfs: Option<Rfs>,
    heads: [u32; CPUS as usize],
    tails: [u32; CPUS as usize],
    asked: u64,
    read: u64,
    /// While measuring: stacks run, and those on the server's processor.
    stacks: u64,
    local: u64,
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

impl Setup {
    /// Runs it. Without servers, clients or connections nothing is answered.
    #[must_use]
    pub fn run(&self) -> Outcome {
        let mut run = Run::new(self);
        let [warmup, measure] = self.time;
        let end = warmup.saturating_add(measure);
        let mut before = None;
        while let Some(event) = run.events.next_before(end) {
            if before.is_none() && run.events.now() >= warmup {
                before = Some(run.read);
                (run.stacks, run.local) = (0, 0);
                run.cpus.iter_mut().for_each(|cpu| cpu.worked = 0);
            }
            match event {
                Event::Done(cpu, chunk) => run.done(cpu, chunk),
                Event::Poke(cpu) => {
                    let own = &run.cpus[usize::from(cpu)];
                    if !own.busy && !own.in_softirq {
                        run.next(cpu);
                    }
                }
                Event::Arrive(cpu) => {
                    let own = &run.cpus[usize::from(cpu)];
                    let idle = if own.busy { 0 } else { self.costs.idle_exit };
                    run.events.after(idle, Event::Soft(cpu));
                }
                Event::Soft(cpu) => run.begin_stack(cpu),
                Event::Stack(cpu) => run.end_stack(cpu),
            }
        }
        let answered = run.read - before.unwrap_or(run.read);
        let measure = measure.max(1) as f64;
        let under_way = run.threads.iter().filter(|thread| thread.asked.is_some()).count() as u64;
        Outcome {
            rate: answered as f64 * 1e9 / measure,
            local_share: run.local as f64 / (run.stacks as f64).max(1.0),
            busy: run.cpus.map(|cpu| (cpu.worked as f64 / measure).min(1.0)),
            books: [run.asked, run.read, under_way],
        }
    }
}

impl<'a> Run<'a> {
    fn new(of: &'a Setup) -> Self {
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
        // The only server is on the second processor. Clients follow, dealt out in turn.
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

    /// What waking `thread` from `cpu` costs the one that does it.
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

    /// Where the kernel says that a request of `conn`, sent on `cpu`, is to be processed.
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

    /// Begins the stack's work for the next frame of the backlog; the thread's chunk takes longer by it.
    fn begin_stack(&mut self, cpu: u16) {
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

    /// A frame's stack is done.
    fn end_stack(&mut self, cpu: u16) {
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

    /// Begins the next chunk of `cpu`: the first thread's.
    fn next(&mut self, cpu: u16) {
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

    /// What a client does next: read the answer that it waited for, or ask.
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

    /// What a server thread does next.
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

    /// The chunk's effect, and the next one.
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

    /// A client that asked waits, unless the answer is there already.
    fn wait(&mut self, client: usize, cpu: u16) {
        if !self.threads[client].answered {
            self.sleep(client, cpu);
        }
    }

    fn sleep(&mut self, thread: usize, cpu: u16) {
        self.threads[thread].asleep = true;
        self.cpus[usize::from(cpu)].runs.retain(|&other| other != thread);
    }

    /// A request is in the server's socket.
    fn deliver(&mut self, conn: usize, cpu: u16) {
        let server = self.conns[conn].server;
        self.stacks += 1;
        self.local += u64::from(self.threads[server].cpu == cpu);
        self.threads[server].ready.push_back(conn);
        self.wake(server);
    }
}

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

use flowyard_frame::Nanos;

use crate::profile::{Profile, ProfileError};

mod run;
#[cfg(test)]
mod tests;

use run::{Event, Run};

/// Processors of the model.
pub const CPUS: u16 = 2;

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

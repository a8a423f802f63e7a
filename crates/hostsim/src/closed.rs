//! Clients and memcached on the same two processors, connected by a veth: a closed loop without idle time.
//!
//! ```text
//!  cpu 0: clients ─ask─> stack here, or ─RPS, RFS: IPI─> stack on cpu 1 ─> socket ─wake─> server thread
//!  cpu 1: clients           (softirq goes before threads)                                       │
//!            ^─────────── wake <── socket <── stack on the server's cpu <────────answer─────────┘
//! ```
//!
//! A client sends a request on one of its connections, waits, reads the answer, and starts again. Its system
//! calls space the requests, and run on the processors that the server needs. Threads are pinned and have
//! one real-time priority (SCHED_FIFO), so a processor runs them in the order in which they were woken, each
//! until it sleeps. The cost of an operation depends on the path of its frame ([`Way`]), because that
//! decides which cache lines are on which processor.
//!
//! Invariants: a client has at most one request outstanding; every request is answered or outstanding
//! ([`Outcome::is_balanced`]). Thread-safety: a run is one value on one thread.

use flowyard_frame::Nanos;

use crate::accounting::Accounting;
use crate::profile::{Profile, ProfileError};

pub(crate) mod run;
#[cfg(test)]
pub(crate) mod tests;

use run::{Host, Load, Run};

/// The number of processors of the model.
pub const CPUS: u16 = 2;

/// The path of a request: whether client and server share a processor, and whether the stack processes
/// the received frame on the client's processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Client, stack and server share one processor.
    Near,
    /// The server is on the other processor; the stack runs on the client's.
    Far,
    /// The server and the stack are on the other processor.
    Hop,
    /// Client and server share a processor; the stack runs on the other processor.
    Away,
}

impl Way {
    /// All paths, in the order of [`Costs::ways`].
    pub const ALL: [Self; 4] = [Self::Near, Self::Far, Self::Hop, Self::Away];

    /// The word in the names of a profile's constants.
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

/// The costs of the operations of one path in nanoseconds, without waking a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ops {
    /// The client sends, including the stack's work if the stack runs on its processor.
    pub ask: Nanos,
    /// The other processor handles the interrupt and runs the stack.
    pub hop: Nanos,
    /// The server reads the request.
    pub read: Nanos,
    /// The server sends the answer, including the stack's work for the client's socket.
    pub answer: Nanos,
    /// The client reads the answer.
    pub take: Nanos,
}

impl Ops {
    /// The names of the operations in a profile: `tcp_<way>_<operation>_ns`.
    pub const NAMES: [&'static str; 5] = ["ask", "hop", "read", "answer", "take"];
}

/// The costs of operations in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Costs {
    /// The costs that depend on the path, in the order of [`Way::ALL`].
    pub ways: [Ops; 4],
    /// A read that finds no data.
    pub nothing: Nanos,
    /// A call of `epoll_wait`, without its events.
    pub epoll: Nanos,
    /// Each event that `epoll_wait` returns.
    pub event: Nanos,
    /// Waking a thread of the same processor, including its going to sleep before.
    pub wake_near: Nanos,
    /// Waking a thread of the other processor, including its going to sleep before.
    pub wake_far: Nanos,
    /// Switching from one thread to another.
    pub switch: Nanos,
    /// From the beginning of a wake-up until an idle processor begins to work.
    pub idle_exit: Nanos,
    /// What the processor that wakes a thread of an idle processor pays for its interrupt.
    pub idle_wake: Nanos,
    /// The part of [`Ops::ask`] that sends the interrupt. It is saved when the other processor is already
    /// processing its backlog, because it checks the backlog again before it stops.
    pub ipi_send: Nanos,
    /// The part of [`Ops::hop`] that takes the interrupt; saved in the same case.
    pub ipi_take: Nanos,
    /// From the beginning of [`Ops::ask`] until the other processor is interrupted.
    pub ipi_flight: Nanos,
    /// The server's own work for a request, without its system calls.
    pub request: Nanos,
}

impl Costs {
    /// The costs in `profile`.
    ///
    /// # Errors
    /// When it lacks a constant: without root or memcached, `flowyard calibrate` cannot measure them.
    pub fn of(profile: &Profile) -> Result<Self, ProfileError> {
        Self::with(profile, "fifo", "memcached_request_ns")
    }

    /// The costs in `profile` with threads of the kind `threads`, and the server's own work `request`.
    pub(crate) fn with(
        profile: &Profile,
        threads: &str,
        request: &str,
    ) -> Result<Self, ProfileError> {
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
            wake_near: profile.ns(&format!("{threads}_wake_near_ns"))?,
            wake_far: profile.ns(&format!("{threads}_wake_far_ns"))?,
            switch: profile.ns(&format!("{threads}_switch_ns"))?,
            idle_exit: profile.ns("idle_exit_ns")?,
            idle_wake: profile.ns("idle_wake_ns")?,
            ipi_send: profile.ns("rps_ipi_send_ns")?,
            ipi_take: profile.ns("rps_ipi_take_ns")?,
            ipi_flight: profile.ns("rps_ipi_flight_ns")?,
            request: profile.ns(request)?,
        })
    }
}

/// The processor on which the kernel processes the frames that the server receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steering {
    /// The processor that sent the frame: a veth has no receive queues of its own.
    None,
    /// The processor chosen by the flow's hash.
    Rps,
    /// The processor on which the server last read the flow.
    Rfs,
}

/// The configuration of a run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The costs of operations.
    pub costs: Costs,
    /// How the kernel chooses the processor.
    pub steering: Steering,
    /// Server threads: two, one on each processor, with clients on both processors; or one, on the second
    /// processor, with clients on the first.
    pub servers: u16,
    /// Client threads on each processor that has clients.
    pub clients: usize,
    /// Connections of each client.
    pub connections: usize,
    /// The seed of the flows' hashes and of the clients' choices.
    pub seed: u64,
    /// Time before the measurement and measured time, in nanoseconds.
    pub time: [Nanos; 2],
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Answers read a second.
    pub rate: f64,
    /// The share of requests that the stack processed on the processor of their server thread.
    pub local_share: f64,
    /// The busy share of each processor.
    pub busy: [f64; CPUS as usize],
    /// Requests sent, answers read by the clients, and requests outstanding, in the whole run.
    pub accounting: Accounting,
}

impl Outcome {
    /// Whether every request was answered or is outstanding.
    #[must_use]
    pub const fn is_balanced(&self) -> bool {
        self.accounting.is_balanced()
    }
}

impl Setup {
    /// Simulates the run. Without servers, clients or connections no request is answered.
    #[must_use]
    pub fn run(&self) -> Outcome {
        let host = Host {
            costs: self.costs,
            steering: self.steering,
            servers: self.servers,
            clients: self.clients,
            connections: self.connections,
            seed: self.seed,
            slice: Nanos::MAX,
            load: Load::Closed,
        };
        let mut run = Run::new(&host);
        let [warmup, measure] = self.time;
        let end = warmup.saturating_add(measure);
        let mut before = None;
        while let Some(event) = run.events.next_before(end) {
            if before.is_none() && run.events.now() >= warmup {
                before = Some(run.read);
                (run.stacks, run.local) = (0, 0);
                run.cpus.iter_mut().for_each(|cpu| cpu.worked = 0);
            }
            run.apply(event);
        }
        let answered = run.read - before.unwrap_or(run.read);
        let measure = measure.max(1) as f64;
        let held = run.threads.iter().filter(|thread| thread.asked.is_some()).count() as u64;
        Outcome {
            rate: answered as f64 * 1e9 / measure,
            local_share: run.local as f64 / (run.stacks as f64).max(1.0),
            busy: run.cpus.map(|cpu| (cpu.worked as f64 / measure).min(1.0)),
            accounting: Accounting { entered: run.asked, left: run.read, dropped: 0, held },
        }
    }
}

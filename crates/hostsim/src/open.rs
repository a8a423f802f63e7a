//! Generators and memcached on the same two processors, connected by a veth: an open loop, up to the wall.
//!
//! ```text
//!  cpu 0: generator ─ask─> stack here, or ─RPS, RFS: IPI─> stack on cpu 1 ─> socket ─wake─> server thread
//!  cpu 1: generator          (softirq goes before threads)                                       │
//!            ^──────── wake <── socket <── stack on the server's cpu <──────────answer───────────┘
//! ```
//!
//! Each processor has a thread of memcached and a thread of the generator. Requests are due at the times of a Poisson
//! process, which do not depend on answers, and their latency counts from then. Processors, sockets, RPS and RFS, and
//! the server are those of [`crate::closed`]. What differs:
//!
//! - A generator sends all that is due, waits in `ppoll` for answers and for the next time, and reads what has come.
//! - Requests wait in sockets. The server reads all requests of a connection at once, and the generator all answers, so a
//!   request costs less the more of them wait.
//! - Threads are ordinary ones (SCHED_OTHER). A thread runs until it sleeps, or until it has run for a time slice while
//!   another waits. A thread that is woken does not interrupt one that runs.
//!
//! The model has no other programs, no interrupts but those of RPS and of timers, no ksoftirqd, no loss and no
//! acknowledgements without data.
//!
//! Invariants: every request is answered or in a queue ([`Outcome::is_balanced`]); equal seeds give equal runs.
//! Thread-safety: a run is one value on one thread.

use flowyard_frame::Nanos;

use crate::accounting::Accounting;
use crate::closed::run::{Generator, Host, Load, Run};
use crate::closed::{CPUS, Steering};
use crate::profile::{Profile, ProfileError};

#[cfg(test)]
mod tests;

/// Warming up, as a share of a measurement.
pub const WARM: f64 = 0.25;
/// Of the requests that are due, the share that must be answered in time.
pub const ANSWERED: f64 = 0.95;
/// After the last request, answers are waited for this long.
const PATIENCE: Nanos = 20_000_000_000;

/// Whether a load holds: at least 95 % of the requests that were `due` are `answered` in the time of the measurement,
/// with a mean latency of at most `limit`.
#[must_use]
pub fn holds(answered: u64, due: u64, mean_ns: f64, limit: Nanos) -> bool {
    answered as f64 >= ANSWERED * due as f64 && mean_ns <= limit as f64
}

/// The wall: of `rates`, ascending, the highest that `held`, up to two in a row that did not. Also returns the number of
/// rates up to there.
#[must_use]
pub fn wall(rates: &[f64], held: &[bool]) -> (Option<f64>, usize) {
    let over = held.windows(2).position(|pair| pair == [false, false]);
    let count = over.map_or(held.len(), |at| at + 2);
    let last = held[..count].iter().rposition(|held| *held);
    (last.map(|last| rates[last]), count)
}

/// The costs of operations in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Those that the closed loop has, too: with ordinary threads, and memcached with many keys.
    pub host: crate::closed::Costs,
    /// The generator builds a request, without the system call.
    pub ask: Nanos,
    /// The generator checks an answer, without the system call.
    pub take: Nanos,
    /// A turn of the generator's loop without requests and system calls.
    pub turn: Nanos,
    /// A `ppoll` that does not wait.
    pub poll: Nanos,
    /// A `ppoll` that an answer ends before its timer expires, besides sleep and wake-up.
    pub armed: Nanos,
    /// A `ppoll` that a timer ends while the processor runs another thread.
    pub timer: Nanos,
    /// A `ppoll` that a timer ends while the processor is idle.
    pub idle_poll: Nanos,
    /// From the time of that timer until that `ppoll` returns.
    pub idle_timer: Nanos,
    /// How long a thread runs while another waits.
    pub slice: Nanos,
}

impl Costs {
    /// The costs in `profile`.
    ///
    /// # Errors
    /// When it lacks a constant: without root or memcached, `flowyard calibrate` cannot measure them, and profiles that
    /// were measured before there was this model lack some.
    pub fn of(profile: &Profile) -> Result<Self, ProfileError> {
        let host = crate::closed::Costs::with(profile, "fair", "memcached_keys_ns")?;
        Ok(Self {
            // A processor that was idle for longer takes longer to begin.
            host: crate::closed::Costs { idle_exit: profile.ns("idle_wake_latency_ns")?, ..host },
            ask: profile.ns("generator_ask_ns")?,
            take: profile.ns("generator_take_ns")?,
            turn: profile.ns("generator_turn_ns")?,
            poll: profile.ns("ppoll_ns")?,
            armed: profile.ns("ppoll_armed_ns")?,
            timer: profile.ns("ppoll_timer_ns")?,
            idle_poll: profile.ns("idle_poll_ns")?,
            idle_timer: profile.ns("idle_timer_latency_ns")?,
            slice: profile.ns("fair_slice_ns")?,
        })
    }

    /// The names of the constants of a profile that the model reads.
    pub fn names(profile: &Profile) -> impl Iterator<Item = &str> {
        const GROUPS: [&str; 8] = [
            "tcp_",
            "epoll_",
            "rps_ipi_",
            "idle_",
            "fair_",
            "ppoll_",
            "generator_",
            "memcached_keys_",
        ];
        let names = profile.constants.keys().map(String::as_str);
        names.filter(|name| GROUPS.iter().any(|group| name.starts_with(group)))
    }
}

/// The configuration of a run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The costs of operations.
    pub costs: Costs,
    /// How the kernel chooses the processor of a request.
    pub steering: Steering,
    /// Number of connections, half of them of each generator.
    pub connections: usize,
    /// Requests per second of both generators.
    pub rate: f64,
    /// The seed of the flows' hashes, of the times, and of the connections.
    pub seed: u64,
    /// Measured time, after a quarter of it to warm up.
    pub time: Nanos,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Requests that were due in the measured time.
    pub due: u64,
    /// Answers in the measured time.
    pub answers: u64,
    /// Answers per second.
    pub answered_rps: f64,
    /// Mean latency of the requests that were due in the measured time.
    pub mean_ns: f64,
    /// Median latency.
    pub p50_ns: Nanos,
    /// 99th percentile of the latency.
    pub p99_ns: Nanos,
    /// The share of requests that the stack processed on the processor of their server thread.
    pub local_share: f64,
    /// The busy share of each processor in the measured time.
    pub busy: [f64; CPUS as usize],
    /// Requests sent, answers read, and requests in a queue, in the whole run.
    pub accounting: Accounting,
}

impl Outcome {
    /// Whether every request was answered or is in a queue.
    #[must_use]
    pub const fn is_balanced(&self) -> bool {
        self.accounting.is_balanced()
    }

    /// Whether the load holds.
    #[must_use]
    pub fn holds(&self, limit: Nanos) -> bool {
        holds(self.answers, self.due, self.mean_ns, limit)
    }
}

impl Setup {
    /// Simulates the run, until the last request is answered.
    #[must_use]
    pub fn run(&self) -> Outcome {
        let from = (self.time as f64 * WARM) as Nanos;
        let until = from + self.time;
        let Costs { host, ask, take, turn, poll, armed, timer, idle_poll, idle_timer, slice } =
            self.costs;
        let threads = f64::from(CPUS);
        let time = [from, until];
        let rate = self.rate / threads;
        let load =
            Generator { ask, take, turn, poll, armed, timer, idle_poll, idle_timer, rate, time };
        let host = Host {
            costs: host,
            steering: self.steering,
            servers: CPUS,
            clients: 1,
            connections: self.connections / usize::from(CPUS),
            seed: self.seed,
            slice,
            load: Load::Open(load),
        };
        let mut run = Run::new(&host);
        let (mut is_warm, mut busy) = (false, None);
        while let Some(event) = run.events.next_before(until + PATIENCE) {
            let now = run.events.now();
            if !is_warm && now >= from {
                is_warm = true;
                (run.stacks, run.local) = (0, 0);
                run.cpus.iter_mut().for_each(|cpu| cpu.worked = 0);
            }
            if busy.is_none() && now >= until {
                busy = Some(run.worked());
            }
            run.apply(event);
        }
        let busy = busy.unwrap_or_else(|| run.worked());
        let measured = (self.time as f64).max(1.0);
        let tally = &run.tally;
        let count = (tally.latency.len() as f64).max(1.0);
        Outcome {
            due: tally.due,
            answers: tally.answers,
            answered_rps: tally.answers as f64 * 1e9 / measured,
            mean_ns: tally.latency_sum as f64 / count,
            p50_ns: tally.latency.value_at_quantile(0.5),
            p99_ns: tally.latency.value_at_quantile(0.99),
            local_share: run.local as f64 / (run.stacks as f64).max(1.0),
            busy: busy.map(|ns| (ns as f64 / measured).min(1.0)),
            accounting: Accounting {
                entered: run.asked,
                left: run.read,
                dropped: 0,
                held: run.held(),
            },
        }
    }
}

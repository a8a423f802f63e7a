//! A memcached server: what offered load does to throughput and latency under each way of steering.
//!
//! ```text
//!  cpu:  hard interrupts > inter-processor interrupts > softirq (rings, backlog) > threads
//!        one chunk of work at a time: a frame, a request, an interrupt; its effect comes at its end
//!
//!  ring ──poll──> driver ─┬─ no RPS ──────────────────────> stack ─> socket ─> wake the thread
//!                         └─ RPS, RFS ─> backlog of a cpu ─IPI─> stack ...
//! ```
//!
//! Softirq goes before threads until it has run for 2 ms; then they share by time, as ksoftirqd does.
//! A chunk costs its work, longer while the sibling hardware thread is busy, and the cache lines that
//! it must fetch from where they were written last. Left out: GRO, delayed and pure acknowledgements,
//! loss recovery but for a timeout, preemption within a chunk.
//!
//! Invariants: every request is with the client, in a ring, in a backlog, in a socket or answered;
//! [`Outcome::is_balanced`] says so. Thread-safety: a run is one value on one thread.

mod apps;
mod clients;
mod costs;
mod curve;
#[cfg(test)]
mod directions;
mod host;
mod outcome;
mod softirq;
mod steer;
#[cfg(test)]
mod tests;

use flowyard_adapter::Profile as Adapter;
use flowyard_frame::Nanos;
use serde::Serialize;

pub use costs::Costs;
pub use curve::{Curve, WALL_US};
pub use outcome::Outcome;

use crate::machine::Machine;
use crate::profile::{Profile, ProfileError};

/// Who decides where a packet is processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Steering {
    /// The adapter's hash alone.
    Rss,
    /// The hash again, in software, over all processors.
    Rps,
    /// The processor that last read the flow, in software.
    Rfs,
    /// Flow Director, taught by what is transmitted.
    Atr,
    /// The same, with flowyard's settle stage between the filters' word and the queue.
    Settled,
    /// Flow Director, with perfect filters that someone programmed when the connections were made.
    Ep,
}

/// When an adapter interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Moderation {
    /// At once.
    Off,
    /// Not sooner than so long after the last one (EITR), in nanoseconds.
    Gap(Nanos),
    /// EITR by what the last interrupts brought: ixgbe's three classes, bounds at 10 and 20 bytes a
    /// microsecond.
    Adaptive {
        /// Gap of the class of least latency, in nanoseconds.
        lowest: Nanos,
        /// Of the class between.
        low: Nanos,
        /// Of the bulk class.
        bulk: Nanos,
    },
    /// So long after the first frame, or when so many wait.
    Count {
        /// Nanoseconds.
        ns: Nanos,
        /// Frames.
        frames: u16,
    },
}

/// Where threads run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Placement {
    /// Thread i on processor i, always.
    Pinned,
    /// Started there; a thread that is woken while its processor is busy goes to an idle one of the
    /// same socket, if there is one.
    Wandering,
    /// Started there; every so many nanoseconds two threads, drawn at random, change places when they
    /// are next woken, if they are of one socket: a scheduler that balances load.
    Moved(Nanos),
}

/// What the clients do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum Load {
    /// So many requests a second in all, whatever comes back. A connection has at most
    /// [`Setup::window`] requests under way; what would be more waits at the client, and its latency
    /// counts from when it was due.
    Open {
        /// Requests a second.
        rate: f64,
    },
    /// One request of each connection at a time, the next so long after the answer.
    Closed {
        /// Nanoseconds.
        think: Nanos,
    },
}

/// A run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What things cost.
    pub costs: Costs,
    /// The processors.
    pub machine: Machine,
    /// The adapter.
    pub adapter: &'static Adapter,
    /// Receive queues; queue i interrupts processor i.
    pub queues: u16,
    /// The indirection table; `None`: the driver's default.
    pub reta: Option<Vec<u16>>,
    /// Descriptors of a ring.
    pub ring: usize,
    /// When it interrupts.
    pub moderation: Moderation,
    /// Interrupt at once for every small frame, whatever the moderation says (LLI).
    pub low_latency: bool,
    /// Whether answers leave by the ring of the processor that sends them, as ATR needs, or by the
    /// ring that the flow is received on.
    pub tx_by_cpu: bool,
    /// Who decides.
    pub steering: Steering,
    /// ATR's sample rate.
    pub sample_rate: u32,
    /// How many filters ATR may have before the table is flushed.
    pub filters: u16,
    /// Server threads; connection c belongs to thread c mod threads, as memcached deals them out.
    pub threads: u16,
    /// Where they run.
    pub placement: Placement,
    /// Connections, over ten client machines.
    pub connections: u32,
    /// What they ask.
    pub load: Load,
    /// Requests under way on one connection.
    pub window: u32,
    /// Bytes of a request and of an answer on the wire, with preamble and gap.
    pub wire_bytes: [u32; 2],
    /// The seed of everything that is random.
    pub seed: u64,
    /// Time before measuring, in nanoseconds.
    pub warmup: Nanos,
    /// Time measured.
    pub measure: Nanos,
}

/// Why there is no such run.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The profile.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The adapter's RSS.
    #[error(transparent)]
    Rss(#[from] flowyard_adapter::rss::Error),
    /// ATR.
    #[error(transparent)]
    Atr(#[from] flowyard_adapter::atr::Error),
    /// The filter table.
    #[error(transparent)]
    Filters(#[from] flowyard_adapter::fdir::Error),
    /// A number that makes no run.
    #[error("{0}")]
    Number(&'static str),
}

impl Setup {
    /// The Flow Director paper's server on an X520 with ATR: 32 threads, 120 connections, 64-byte
    /// records, at `rate` requests a second.
    ///
    /// # Errors
    /// When the profile lacks a constant.
    pub fn x520(profile: &Profile, rate: f64) -> Result<Self, SetupError> {
        let machine = profile.machine;
        let adapter = Adapter::find("x520").ok_or(SetupError::Number("no adapter x520"))?;
        Ok(Self {
            costs: Costs::of(profile)?,
            machine,
            adapter,
            queues: machine.cpus().min(63),
            reta: None,
            ring: 512,
            // ixgbe's dynamic throttle: 100,000, 20,000 and 8,000 interrupts a second.
            moderation: Moderation::Adaptive { lowest: 10_000, low: 50_000, bulk: 125_000 },
            low_latency: false,
            tx_by_cpu: true,
            steering: Steering::Atr,
            sample_rate: 20,
            filters: 8191,
            threads: 32,
            placement: Placement::Pinned,
            connections: 120,
            load: Load::Open { rate },
            window: 20,
            // get of a 30-byte key; VALUE line, 64 bytes, END: with TCP, IP, Ethernet, FCS, preamble, gap
            wire_bytes: [36 + 90, 36 + 64 + 20 + 90],
            seed: 1,
            warmup: 4_000_000,
            measure: 20_000_000,
        })
    }

    /// The same server on a ConnectX-3: `steering` is RSS, or RPS or RFS on top of it.
    ///
    /// # Errors
    /// When the profile lacks a constant.
    pub fn cx3(profile: &Profile, steering: Steering, rate: f64) -> Result<Self, SetupError> {
        Ok(Self {
            // Linux 3.6 lets a driver have 8 RSS queues by default (netif_get_num_default_rss_queues).
            queues: profile.machine.cpus().min(8),
            // mlx4_en: 16 us or 44 frames; its adaptive moderation leaves small frames alone.
            moderation: Moderation::Count { ns: 16_000, frames: 44 },
            tx_by_cpu: false,
            steering,
            ..Self::x520(profile, rate)?
        })
    }

    /// Runs it.
    ///
    /// # Errors
    /// When the setup makes no run.
    pub fn run(&self) -> Result<Outcome, SetupError> {
        Ok(host::Host::new(self)?.run())
    }
}

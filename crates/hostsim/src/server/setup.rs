//! The configuration of a run: the server, its adapter, how frames are steered, and the load.

use flowyard_adapter::Profile as Adapter;
use flowyard_frame::Nanos;
use serde::Serialize;

use super::costs::Costs;
use crate::machine::Machine;
use crate::profile::{Profile, ProfileError};

/// How the processor that handles a received frame is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Steering {
    /// By the adapter's hash alone.
    Rss,
    /// By the hash again, in software, over all processors.
    Rps,
    /// In software: the processor that last read the flow.
    Rfs,
    /// By Flow Director, which learns from transmitted frames.
    Atr,
    /// By Flow Director as in `Atr`, with flowyard's settle stage between the filters and the queues.
    Settled,
    /// By Flow Director, with perfect filters that were programmed when the connections were made.
    Ep,
}

/// When the adapter interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Moderation {
    /// At once.
    Off,
    /// At least this many nanoseconds after the last interrupt (EITR).
    Gap(Nanos),
    /// EITR that depends on the rate since the last interrupt: the three classes of ixgbe, with limits at
    /// 10 and 20 bytes a microsecond.
    Adaptive {
        /// The gap of the class of lowest latency, in nanoseconds.
        lowest: Nanos,
        /// The gap of the class of low latency, in nanoseconds.
        low: Nanos,
        /// The gap of the bulk class, in nanoseconds.
        bulk: Nanos,
    },
    /// After a time since the first frame, or when a number of frames wait.
    Count {
        /// The time in nanoseconds.
        ns: Nanos,
        /// The number of frames.
        frames: u16,
    },
}

/// Where server threads run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Placement {
    /// Thread i on processor i, always.
    Pinned,
    /// Thread i starts on processor i. A thread that is woken while its processor is busy moves to an idle
    /// processor of the same socket, if there is one.
    Wandering,
    /// Thread i starts on processor i. Whenever this many nanoseconds have passed, two threads are chosen at
    /// random; if both are of one socket, they exchange their processors when they are next woken, as under
    /// a scheduler that balances load.
    Moved(Nanos),
}

/// The requests of the clients.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum Load {
    /// A rate of all clients together, independent of the answers. A connection has at most
    /// [`Setup::window`] requests outstanding; further requests wait at the client, and their latency counts
    /// from the time when they were due.
    Open {
        /// Requests a second.
        rate: f64,
    },
    /// One request of each connection at a time, and the next one some time after the answer.
    Closed {
        /// The time between an answer and the next request, in nanoseconds.
        think: Nanos,
    },
}

/// A run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The costs of operations.
    pub costs: Costs,
    /// The processors.
    pub machine: Machine,
    /// The adapter.
    pub adapter: &'static Adapter,
    /// Receive queues; queue i interrupts processor i.
    pub queues: u16,
    /// The indirection table; `None` is the driver's default.
    pub reta: Option<Vec<u16>>,
    /// Descriptors of a ring.
    pub ring: usize,
    /// When the adapter interrupts.
    pub moderation: Moderation,
    /// Interrupt at once for every small frame, regardless of the moderation (LLI).
    pub low_latency: bool,
    /// Whether answers leave by the ring of the processor that sends them, as ATR needs, or by the ring on
    /// which the flow is received.
    pub tx_by_cpu: bool,
    /// How the processor of a frame is chosen.
    pub steering: Steering,
    /// ATR samples one of this many transmitted packets.
    pub sample_rate: u32,
    /// The number of ATR filters at which the table is flushed.
    pub filters: u16,
    /// Server threads; connection c belongs to thread c mod threads, as memcached distributes them.
    pub threads: u16,
    /// Where the threads run.
    pub placement: Placement,
    /// Connections, distributed over ten client machines.
    pub connections: u32,
    /// The requests.
    pub load: Load,
    /// The largest number of requests outstanding on one connection.
    pub window: u32,
    /// Bytes of a request and of an answer on the wire, with preamble and inter-frame gap.
    pub wire_bytes: [u32; 2],
    /// The seed of all random choices.
    pub seed: u64,
    /// Time before the measurement, in nanoseconds.
    pub warmup: Nanos,
    /// Measured time, in nanoseconds.
    pub measure: Nanos,
}

/// Why a setup cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The profile lacks a constant.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The adapter refused the RSS configuration.
    #[error(transparent)]
    Rss(#[from] flowyard_adapter::rss::Error),
    /// The adapter refused the ATR configuration.
    #[error(transparent)]
    Atr(#[from] flowyard_adapter::atr::Error),
    /// The adapter refused the filter table.
    #[error(transparent)]
    Filters(#[from] flowyard_adapter::fdir::Error),
    /// A number is out of range.
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

    /// The same server on a ConnectX-3: `steering` is RSS, or RPS or RFS in addition to RSS.
    ///
    /// # Errors
    /// When the profile lacks a constant.
    pub fn cx3(profile: &Profile, steering: Steering, rate: f64) -> Result<Self, SetupError> {
        Ok(Self {
            // Linux 3.6 gives a driver 8 RSS queues by default (netif_get_num_default_rss_queues).
            queues: profile.machine.cpus().min(8),
            // mlx4_en: 16 us or 44 frames; its adaptive moderation does not apply to small frames.
            moderation: Moderation::Count { ns: 16_000, frames: 44 },
            tx_by_cpu: false,
            steering,
            ..Self::x520(profile, rate)?
        })
    }
}

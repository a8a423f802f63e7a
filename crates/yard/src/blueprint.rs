//! Blueprint: a resolved description of an engine. Numbers in place of names, no text to parse.
//!
//! ```text
//!  TOML ──> flowyard-config ──┐
//!  Rust callers, tests ───────┴──> Blueprint ──> Yard::build ──> cores, places, pool
//! ```
//!
//! A blueprint says everything about the engine itself: cores, queues, ports as places, tables,
//! learners. The bodies of ports ([`crate::Rx`], [`crate::Tx`]) and the work of each core
//! ([`crate::Work`]) are passed beside it in [`crate::Parts`], because the engine does not know
//! their kinds. Names are kept for reports only; nothing looks them up again.
//!
//! Invariant: what [`Blueprint::check`] accepts can be built, unless memory or a port is missing.
//! Thread-safety: plain values.

use flowyard_flow::Secret;
use flowyard_flow::learn::elephant::{Costs, Settings};
use flowyard_flow::learn::{atr, cache, rfs};
use flowyard_flow::table::Rule;
use flowyard_flow::table::marked::Answers;
use flowyard_frame::{Action, FlowKey, Nanos, To};
use flowyard_pool::LONGEST;
use flowyard_queue::{Order, Wanted};

use crate::apply::Lists;
use crate::places::Full;

/// A resolved description of an engine.
#[derive(Clone, Debug)]
pub struct Blueprint {
    /// Number of cores: threads with a loop each. They may outnumber the processors.
    pub cores: u16,
    /// The processor that each core is pinned to; empty pins none.
    pub pin: Vec<usize>,
    /// What an idle core does.
    pub idle: Idle,
    /// The secret from which the keys of table hashes and the seeds of samplers are derived.
    pub secret: Secret,
    /// Buffers of the pool; 0 derives the number from the queues and cores.
    pub frames: usize,
    /// Bytes of a buffer, rounded up to whole cache lines of 64 bytes.
    pub buffer_bytes: usize,
    /// Buffers of the second size, of 64 KiB, for longer frames; 0 for none.
    pub large_frames: usize,
    /// Buffers that a core's work keeps for itself, for example for copies.
    pub work_frames: usize,
    /// Ports, by number.
    pub ports: Vec<PortPlan>,
    /// Queues, by number.
    pub queues: Vec<QueuePlan>,
    /// Of this number of batches that a core takes from its queues, one is from a queue that is not the most urgent one
    /// with frames, if there is any; these queues take turns. 0: a queue is served only if all more urgent ones are empty.
    pub less_urgent_every: u32,
    /// Port lists, by the number in [`To::Ports`]: the ports that get a copy each.
    pub port_lists: Vec<Vec<u16>>,
    /// Which frame goes to which queue.
    pub steer: SteerPlan,
    /// Slots of the settle stage. `None` disables it: moved flows are then reordered, as they are
    /// by adapters.
    pub settle_slots: Option<usize>,
    /// The limits of the hold stage.
    pub hold: HoldLimits,
    /// The learner that writes tables at run time.
    pub learn: Option<LearnPlan>,
    /// How elephant flows are detected and split over cores.
    pub elephants: Option<ElephantPlan>,
}

/// A port as the engine sees it: a place with a tx queue for each of its cores.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortPlan {
    /// The name in reports.
    pub name: String,
    /// The cores that own it; each has a receive and a transmit queue of its own.
    pub cores: Vec<u16>,
    /// Frames that a tx queue holds.
    pub window_frames: u32,
    /// What producers do when a tx queue is full.
    pub full: Full,
    /// With several cores: choose the tx queue by flow, not by the core that transmits.
    pub fan_by_flow: bool,
    /// Pool buffers that the interface may hold at a time; a port that holds some needs a pool
    /// whose memory can be lent to the kernel.
    pub lent_frames: usize,
}

impl Default for PortPlan {
    /// A port of core 0 without a name.
    fn default() -> Self {
        Self {
            name: String::new(),
            cores: vec![0],
            window_frames: WINDOW,
            full: Full::Hold,
            fan_by_flow: false,
            lent_frames: 0,
        }
    }
}

/// A queue between cores.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueuePlan {
    /// The name in reports.
    pub name: String,
    /// Which order it keeps.
    pub order: Order,
    /// The cores that dequeue from it.
    pub consumers: Vec<u16>,
    /// Frames that it holds, including those that consumers have not completed.
    pub window_frames: u32,
    /// A core serves the queue with the lowest number first; see [`Blueprint::less_urgent_every`].
    pub priority: u8,
    /// What producers do when it is full.
    pub full: Full,
}

impl Default for QueuePlan {
    /// A direct queue of core 0 without a name.
    fn default() -> Self {
        Self {
            name: String::new(),
            order: Order::Direct,
            consumers: vec![0],
            window_frames: WINDOW,
            priority: 0,
            full: Full::Hold,
        }
    }
}

/// The tables, in the order they are asked, and the hash of the last one.
#[derive(Clone, Debug)]
pub struct SteerPlan {
    /// The Toeplitz key, of 40 to 256 bytes; see [`flowyard_flow::toeplitz::Toeplitz::new`].
    pub hash_key: Vec<u8>,
    /// The indirection table before it is repeated to `spread_entries`; empty is every queue.
    pub spread: Vec<To>,
    /// Entries of the indirection table, a power of two.
    pub spread_entries: usize,
    /// Frames for which no table before the indirection table has an entry stay with the core that received them,
    /// while it is not overloaded. Applies where every core that works also receives; `spread` is then not used.
    pub keep_local: bool,
    /// Flows with an answer of their own.
    pub exact: Vec<(FlowKey, Action)>,
    /// The capacity of the table of those flows.
    pub exact_entries: usize,
    /// Rules; of equal priorities the first one answers.
    pub rules: Vec<Rule>,
    /// Action lists, by the number in [`To::List`].
    pub lists: Lists,
    /// Names of the counters that tables use, by number from 1.
    pub counters: Vec<String>,
    /// The entries that adapters name by marks on frames; `None` if no adapter does.
    pub marks: Option<std::sync::Arc<Answers>>,
}

impl Default for SteerPlan {
    fn default() -> Self {
        Self {
            hash_key: flowyard_flow::toeplitz::MICROSOFT_KEY.to_vec(),
            spread: Vec::new(),
            spread_entries: 128,
            keep_local: false,
            exact: Vec::new(),
            exact_entries: 8192,
            rules: Vec::new(),
            lists: Lists::default(),
            counters: Vec::new(),
            marks: None,
        }
    }
}

/// The learner of an engine.
#[derive(Clone, Copy, Debug)]
pub enum LearnPlan {
    /// The core that transmits a flow receives it from then on (ATR).
    Atr(atr::Settings),
    /// The core that works on a flow goes on doing so (RFS).
    Rfs(rfs::Settings),
    /// Answers of the rules are copied into an exact table in front of them.
    Cache(cache::Settings),
}

/// How elephant flows are detected and split over cores.
#[derive(Clone, Debug)]
pub struct ElephantPlan {
    /// The ordered queue that promoted flows are sent to.
    pub queue: u16,
    /// The core that decides.
    pub core: u16,
    /// The length of a decision window.
    pub window_ns: Nanos,
    /// One of N frames that a core works on is sampled.
    pub sample_every: u32,
    /// The thresholds of the decisions.
    pub settings: Settings,
    /// Costs that are assumed until they are measured.
    pub costs: Costs,
    /// Costs that replace measured ones.
    pub fixed: FixedCosts,
}

/// Costs of a frame in nanoseconds that are set and not measured.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct FixedCosts {
    /// Receiving, parsing and steering.
    pub rx_ns: Option<f64>,
    /// One side of a hand-off.
    pub handoff_ns: Option<f64>,
    /// Committing in order.
    pub commit_ns: Option<f64>,
}

/// The limits of the hold stage: how much is held back, and for how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HoldLimits {
    /// Frames that are held for one slot of the settle stage; 0 disables the stage.
    pub frames: usize,
    /// Deferred frames after which a slot is held.
    pub after: u32,
    /// The longest hold during which the old home completes nothing.
    pub longest: Nanos,
}

impl HoldLimits {
    /// No frame is held back; a flow that never pauses may never move.
    pub const OFF: Self = Self { frames: 0, after: 1024, longest: 1_000_000 };
}

impl Default for HoldLimits {
    fn default() -> Self {
        Self { frames: 2048, ..Self::OFF }
    }
}

/// What a core does when it has nothing to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Idle {
    /// Sleeps, for longer the longer it is idle: saves power, costs latency.
    #[default]
    Sleep,
    /// Polls again at once.
    Busy,
}

/// Frames that a queue holds where nothing else is said.
const WINDOW: u32 = 1024;

/// Why a blueprint cannot be built.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BlueprintError {
    /// There is no core.
    #[error("the blueprint has no core")]
    NoCore,
    /// There is no queue.
    #[error("the blueprint has no queue")]
    NoQueue,
    /// A queue or a port has no core.
    #[error("{0} has no core")]
    NoConsumer(String),
    /// A number names a core that does not exist.
    #[error("{what} names core {core}, but there are {cores} cores")]
    Core {
        /// What names the core.
        what: String,
        /// The number.
        core: u16,
        /// How many cores there are.
        cores: u16,
    },
    /// The queues cannot be made.
    #[error("the queues: {what}; {fix}")]
    Queues {
        /// Why.
        what: String,
        /// How to fix it.
        fix: String,
    },
    /// A table cannot be built.
    #[error("the {table}: {reason}")]
    Table {
        /// Which table.
        table: &'static str,
        /// The table's own reason.
        reason: String,
    },
}

impl Default for Blueprint {
    /// One core, no port, no queue.
    fn default() -> Self {
        Self {
            cores: 1,
            pin: Vec::new(),
            idle: Idle::default(),
            secret: Secret::FIXED,
            frames: 0,
            buffer_bytes: 2048,
            large_frames: 0,
            work_frames: 0,
            ports: Vec::new(),
            queues: Vec::new(),
            less_urgent_every: 16,
            port_lists: Vec::new(),
            steer: SteerPlan::default(),
            settle_slots: Some(65_536),
            hold: HoldLimits::default(),
            learn: None,
            elephants: None,
        }
    }
}

impl Blueprint {
    /// Checks that every number names something.
    ///
    /// # Errors
    /// The first number that does not.
    pub fn check(&self) -> Result<(), BlueprintError> {
        if self.cores == 0 {
            return Err(BlueprintError::NoCore);
        }
        if self.queues.is_empty() {
            return Err(BlueprintError::NoQueue);
        }
        let queues = self.queues.iter().map(|queue| ("queue", &queue.name, &queue.consumers));
        let ports = self.ports.iter().map(|port| ("port", &port.name, &port.cores));
        for (kind, name, cores) in queues.chain(ports) {
            let what = || format!("{kind} '{name}'");
            if cores.is_empty() {
                return Err(BlueprintError::NoConsumer(what()));
            }
            if let Some(&core) = cores.iter().find(|&&core| core >= self.cores) {
                return Err(BlueprintError::Core { what: what(), core, cores: self.cores });
            }
        }
        Ok(())
    }

    /// The queues that the engine needs: every queue, then a tx queue for every core of every port.
    #[must_use]
    pub fn wanted(&self) -> Vec<Wanted> {
        let queues = self.queues.iter().map(|queue| Wanted {
            order: queue.order,
            consumers: queue.consumers.clone(),
            window: queue.window_frames as usize,
            priority: queue.priority,
            is_tx: false,
        });
        let ports = self.ports.iter().flat_map(|port| {
            port.cores.iter().map(|core| Wanted {
                order: Order::Direct,
                consumers: vec![*core],
                window: port.window_frames as usize,
                priority: 0,
                is_tx: true,
            })
        });
        queues.chain(ports).collect()
    }

    /// The queues that the frames of core `core` are spread over where [`SteerPlan::keep_local`] is set; empty if they
    /// are spread over the queues of all cores even so.
    pub(crate) fn own_queues(&self, core: u16) -> Vec<To> {
        let receives = |core: &u16| self.ports.iter().any(|port| port.cores.contains(core));
        let mut consumers = self.queues.iter().flat_map(|queue| &queue.consumers);
        let own = (0..).zip(&self.queues).filter(|(_, queue)| queue.consumers.contains(&core));
        let own: Vec<To> = own.map(|(number, _)| To::Queue(number)).collect();
        if own.len() < self.queues.len() && consumers.all(receives) { own } else { Vec::new() }
    }

    /// The least number of buffers with which the engine cannot stall: those that cores and ports
    /// have in hand, and those that their free lists keep.
    #[must_use]
    pub fn least_frames(&self) -> usize {
        // One hold: while others wait for buffers, it ends and gives its own back.
        let entries: usize = self.ports.iter().map(|port| port.cores.len()).sum();
        let lent: usize = self.ports.iter().map(|port| port.lent_frames).sum();
        usize::from(self.cores) * (128 + self.work_frames)
            + entries * (64 + self.hold.frames)
            + lent
    }

    /// Bytes of the pool, without those that round buffers up.
    #[must_use]
    pub fn pool_bytes(&self) -> u64 {
        let bytes = |frames: usize, bytes: usize| frames as u64 * (bytes as u64 + 128); // metadata and key
        bytes(self.pool_frames(), self.buffer_bytes) + bytes(self.large_frames, LONGEST)
    }

    /// Buffers of the pool.
    #[must_use]
    pub fn pool_frames(&self) -> usize {
        let queues = self.queues.iter().map(|queue| queue.window_frames);
        let ports = self.ports.iter().flat_map(|port| {
            port.cores.iter().map(|_| port.window_frames) // a tx queue for each
        });
        match self.frames {
            0 => self.least_frames() + queues.chain(ports).map(|n| n as usize).sum::<usize>(),
            frames => frames,
        }
    }

    /// The first queue that `core` is the only consumer of: the home of its flows.
    #[must_use]
    pub fn home(&self, core: u16) -> Option<u16> {
        self.queues.iter().position(|queue| queue.consumers == [core]).map(|at| at as u16)
    }

    /// The cores that own ports.
    pub(crate) fn receivers(&self) -> Vec<u16> {
        let mut cores: Vec<u16> =
            self.ports.iter().flat_map(|port| port.cores.iter().copied()).collect();
        cores.sort_unstable();
        cores.dedup();
        cores
    }

    /// The cores that elephants are split over, each with the queue of its own, in the order of the
    /// ordered queue's consumers.
    #[must_use]
    pub fn elephant_workers(&self, plan: &ElephantPlan) -> Vec<(u16, u16)> {
        let Some(queue) = self.queues.get(usize::from(plan.queue)) else { return Vec::new() };
        queue.consumers.iter().filter_map(|&core| Some((core, self.home(core)?))).collect()
    }
}

//! The configuration language: TOML.
//!
//! ```toml
//! [yard]
//! cores = 2
//!
//! [[port]]
//! name = "west"
//! kind = "pcap"
//! in = "captured.pcap"
//! out = "forwarded.pcap"
//!
//! [[queue]]
//! name = "workers"
//! order = "atomic"
//! consumers = [0, 1]
//!
//! [work]
//! kind = "forward"
//! ```
//!
//! All other keys have defaults. A configuration is read in two steps: [`Config::parse`] checks
//! keys and types, and `check` checks names and numbers. Errors of both name the line, the column
//! and the fix.

use std::path::Path;

use serde::{Deserialize, Serialize};
use toml::Spanned;

use flowyard_flow::Secret;
use flowyard_ports::live::Carries;
use flowyard_ports::pcap::Ender;
use flowyard_ports::port::{BadPace, Pace};
use send_words::{ExpectConfig, ReloadConfig, SendConfig, SimConfig};

mod assemble;
mod balance;
mod captures;
mod carry;
mod change;
mod check;
mod cluster;
mod compose;
mod dpdk;
mod elephants;
mod error;
mod eventdev;
mod exit;
pub mod file;
mod flows;
mod health;
pub mod import;
mod ipsec;
mod list;
mod live;
mod memory;
pub mod names;
mod offload;
mod port;
mod reload;
mod resolve;
mod rule;
mod secret;
pub mod send;
pub mod send_words;
mod switch;
mod tenant;
mod words;
mod work;

pub use assemble::BuildError;
pub use balance::{AnnounceConfig, BackendConfig, BalanceConfig, ServiceConfig, SyncConfig};
pub use balance::{Capacity, LocalPorts, ServiceCapacity};
pub use change::{Change, Changes, How, Needs, OpenedPort};
pub use cluster::{ClusterConfig, Endpoint, Lookup, ProviderKind, Url};
pub use compose::{Fragment, SERVICES};
pub use dpdk::DpdkConfig;
pub use elephants::ElephantsConfig;
pub use error::ConfigError;
pub(crate) use error::Source;
pub use health::{CheckConfig, CheckKind};
pub use ipsec::{IpsecConfig, Unmatched};
pub use list::{ListConfig, OpConfig, TagConfig};
pub use offload::OffloadConfig;
pub use port::PortConfig;
pub use reload::ReloadPlan;
pub use resolve::{CapturePort, PortBody, Setup, WorkPlan};
pub use rule::{MatchConfig, RuleConfig, counter};
pub use switch::{FailWord, LookupWord, SwitchConfig, VersionWord};
pub use tenant::TenantConfig;
pub use words::PortOffload;
pub use words::hex;
pub use words::{
    BadChecksumsWord, EngineWord, FanoutWord, FullWord, HashKey, HostQueueWord, IdleWord,
    MemoryWord, ModeWord, Order, PortKind, QueueLimits, RoleWord,
};
pub use work::{RouteConfig, WorkConfig, WorkKind};

/// A configuration as its user wrote it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// General settings.
    #[serde(default)]
    pub yard: YardConfig,
    /// Ports, in the order of their numbers.
    #[serde(default)]
    pub port: Vec<Spanned<PortConfig>>,
    /// Queues, in the order of their numbers.
    #[serde(default)]
    pub queue: Vec<Spanned<QueueConfig>>,
    /// Action lists, which change a frame and send it on.
    #[serde(default)]
    pub list: Vec<Spanned<ListConfig>>,
    /// How frames are steered to queues.
    #[serde(default)]
    pub steer: SteerConfig,
    /// The learner, which writes tables while flowyard runs.
    pub learn: Option<LearnConfig>,
    /// When flows are split over several cores.
    pub elephants: Option<ElephantsConfig>,
    /// The work on frames.
    pub work: Spanned<WorkConfig>,
    /// Settings of the balancer.
    pub balance: Option<Spanned<BalanceConfig>>,
    /// Settings of the OpenFlow switch.
    pub switch: Option<Spanned<SwitchConfig>>,
    /// The services of the balancer.
    #[serde(default)]
    pub service: Vec<Spanned<ServiceConfig>>,
    /// Frames that are received from memory.
    #[serde(default, skip_serializing)]
    pub send: Vec<Spanned<SendConfig>>,
    /// Changes of the tables during the simulation of a scenario.
    #[serde(default, skip_serializing)]
    pub reload: Vec<Spanned<ReloadConfig>>,
    /// How a scenario is simulated.
    #[serde(default, skip_serializing)]
    pub sim: SimConfig,
    /// The expected results of a scenario.
    #[serde(skip_serializing)]
    pub expect: Option<Spanned<ExpectConfig>>,
    /// How DPDK is started.
    pub dpdk: Option<Spanned<DpdkConfig>>,
    /// What answers in front of the ports.
    pub offload: Option<Spanned<OffloadConfig>>,
    /// Where the services are that all balancers of a cluster have.
    pub cluster: Option<Spanned<ClusterConfig>>,
    /// Settings of IPsec.
    pub ipsec: Option<Spanned<IpsecConfig>>,
    /// What ends captures early.
    #[serde(skip)]
    ender: Option<Ender>,
    /// The secret that is used if no seed is written; by default the fixed one.
    #[serde(skip)]
    secret: Secret,
    /// Of a configuration that is reloaded: what the work permitted when the ports were opened.
    #[serde(skip)]
    permitted_at_start: Option<Carries>,
    /// The text from which this was read, for messages.
    #[serde(skip)]
    source: Source,
}

/// `[yard]`
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct YardConfig {
    /// The number of cores. Each is a thread with a loop; there may be more than processors.
    pub cores: Spanned<u16>,
    /// The processor to which each core is pinned; if empty, none is pinned.
    pub pin: Spanned<Vec<usize>>,
    /// How a core waits when it has nothing to do.
    pub idle: IdleWord,
    /// Buffers of the pool; 0 is the number that the queues can hold and the cores need.
    pub frames: Spanned<usize>,
    /// The size of a buffer in bytes, rounded up to cache lines of 64. Longer frames are dropped
    /// and counted.
    pub buffer_bytes: Spanned<usize>,
    /// The number of buffers of 64 KiB for frames that are longer, of ports that pass on unsegmented ones.
    pub large_frames: Option<Spanned<usize>>,
    /// Whether a flow moves only when none of its frames is in flight. If not, frames of a flow may
    /// be reordered, as in adapters.
    pub settle: bool,
    /// Slots of the settle stage; there should be more than busy flows.
    pub settle_slots: usize,
    /// The largest number of frames that are buffered to complete the move of a flow that never
    /// pauses; 0 buffers none, and such a flow may never move.
    pub hold_frames: Spanned<usize>,
    /// Number of deferred frames after which a flow is buffered to complete its move.
    pub hold_after_frames: u32,
    /// The longest time for which a flow is buffered while its queue makes no progress, in
    /// microseconds.
    pub hold_us: u64,
    /// Of this number of batches, a core takes one from a queue that is not its most urgent one, if such a queue has
    /// frames; 0: strict priority.
    pub less_urgent_every: Spanned<u32>,
    /// What the queues are made of.
    pub engine: Spanned<EngineWord>,
    /// The event device of `engine = "eventdev"` and its arguments, as `event_sw0`.
    pub event_device: Option<Spanned<String>>,
    /// Limits of the queues beyond their windows, for simulations; by default there are none.
    pub queue_limits: Option<QueueLimits>,
    /// The seed of all random choices: table hashes and the random hash key. If it is not written,
    /// they follow the secret of [`Config::set_secret`].
    pub seed: Option<u64>,
    /// The address at which metrics are served, as `127.0.0.1:9464`; empty serves none.
    pub metrics: Option<Spanned<String>>,
}

impl Default for YardConfig {
    fn default() -> Self {
        Self {
            cores: free(1),
            pin: free(Vec::new()),
            idle: IdleWord::default(),
            frames: free(0),
            buffer_bytes: free(2048),
            large_frames: None,
            settle: true,
            settle_slots: 65_536,
            hold_frames: free(2048),
            hold_after_frames: 1024,
            hold_us: 1000,
            less_urgent_every: free(16),
            engine: free(EngineWord::Own),
            event_device: None,
            queue_limits: None,
            seed: None,
            metrics: None,
        }
    }
}

/// `[[queue]]`
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct QueueConfig {
    /// Its name.
    pub name: Spanned<String>,
    /// The order that it guarantees.
    pub order: Order,
    /// The cores that work on its frames.
    pub consumers: Spanned<Vec<Spanned<u16>>>,
    /// Its capacity in frames, including those being worked on.
    #[serde(default = "window")]
    pub window_frames: Spanned<u32>,
    /// A core serves its queue with the lowest number first, and equal ones in the order of the
    /// file.
    #[serde(default)]
    pub priority: u8,
    /// How new frames are treated when it is full.
    #[serde(default)]
    pub full: FullWord,
}

/// `[steer]`
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct SteerConfig {
    /// The queues over which the hash spreads frames; by default all, but see `keep_local`.
    pub spread: Vec<Spanned<String>>,
    /// Other frames stay with the core that received them, while it is not overloaded. Applies if every core that works
    /// on frames also receives, and neither `spread` nor `[elephants]` is given.
    pub keep_local: bool,
    /// Entries of the indirection table.
    pub entries: Spanned<usize>,
    /// The Toeplitz key.
    pub hash_key: Spanned<HashKey>,
    /// Flows with an entry in the exact table.
    pub exact: Vec<ExactConfig>,
    /// The capacity of the exact table.
    pub exact_entries: usize,
    /// Rules. Of those with equal priority, an earlier one precedes a later one.
    pub rule: Vec<RuleConfig>,
    /// Tenants: rules by MAC address and VLAN, behind `rule`.
    pub tenant: Vec<TenantConfig>,
    /// Names of counters, which `exact`, `rule` and `tenant` may use.
    pub counters: Vec<Spanned<String>>,
}

impl Default for SteerConfig {
    fn default() -> Self {
        Self {
            spread: Vec::new(),
            keep_local: true,
            entries: free(128),
            hash_key: free(HashKey::Random),
            exact: Vec::new(),
            exact_entries: 8192,
            rule: Vec::new(),
            tenant: Vec::new(),
            counters: Vec::new(),
        }
    }
}

/// One of `[[steer.exact]]`: a flow, and one of `queue`, `port`, `list` or `drop = true`.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ExactConfig {
    /// As `tcp 10.0.0.1:40000 > 10.0.0.2:11211`.
    pub flow: Spanned<String>,
    /// The queue to which its frames go.
    pub queue: Option<Spanned<String>>,
    /// The port by which its frames leave, without work.
    pub port: Option<Spanned<String>>,
    /// The action list that handles its frames.
    pub list: Option<Spanned<String>>,
    /// Whether its frames are dropped.
    #[serde(default)]
    pub drop: bool,
    /// The mark that its frames carry.
    #[serde(default)]
    pub mark: u32,
    /// The counter for its frames: one of `counters`.
    pub counter: Option<Spanned<String>>,
}

/// `[learn]`
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "lowercase")]
pub enum LearnConfig {
    /// A flow is received by the core that transmits it.
    Atr {
        /// The largest number of flows that are steered at a time.
        #[serde(default = "atr_entries")]
        entries: usize,
        /// One of N transmitted frames is sampled, in addition to every SYN.
        #[serde(default = "atr_sample")]
        sample_every: u32,
        /// The time after which a flow without samples is forgotten, in milliseconds.
        #[serde(default = "atr_idle")]
        idle_ms: u64,
        /// Whether UDP flows are learnt, too.
        #[serde(default)]
        udp: bool,
    },
    /// A flow stays with the core that works on it.
    Rfs {
        /// The largest number of flows that a core steers to itself at a time.
        #[serde(default = "atr_entries")]
        entries: usize,
        /// One of N frames that a core works on is sampled.
        #[serde(default = "atr_sample")]
        sample_every: u32,
        /// The time after which a flow without samples is forgotten, in milliseconds.
        #[serde(default = "atr_idle")]
        idle_ms: u64,
    },
    /// The answers of rules are cached by flow.
    Cache {
        /// The largest number of cached flows.
        #[serde(default = "atr_entries")]
        entries: usize,
        /// When the cache is full, one of N misses replaces the oldest entry; 0 replaces none.
        #[serde(default = "cache_replace")]
        replace_every: u32,
    },
}

impl Config {
    /// Reads and checks the configuration in the file `path`.
    ///
    /// # Errors
    /// As [`Config::parse`], and when the file cannot be read: [`file::text`].
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        Self::read_with(path, "", &[])
    }

    /// As [`Config::read`], with the services of `fragments`, see [`Config::compose`].
    ///
    /// # Errors
    /// As [`Config::compose`], and when the file cannot be read.
    pub fn read_with(
        path: &Path,
        prefix: &str,
        fragments: &[Fragment],
    ) -> Result<Self, ConfigError> {
        let name = path.display().to_string();
        let text = file::text(path).map_err(|error| ConfigError::unread(&name, &error))?;
        Self::compose(&name, &text, prefix, fragments)
    }

    /// Reads and checks a configuration; `name` is for messages. File names in it are not changed.
    ///
    /// # Errors
    /// The first mistake, with its place and the fix.
    pub fn parse(name: &str, text: &str) -> Result<Self, ConfigError> {
        Self::compose(name, text, "", &[])
    }

    /// Makes every port receive at `pace`, instead of the configured one.
    ///
    /// # Errors
    /// When `pace` cannot be parsed.
    pub fn set_pace(&mut self, pace: &str) -> Result<(), BadPace> {
        pace.parse::<Pace>()?;
        let ports = std::mem::take(&mut self.port).into_iter().map(|port| {
            let span = port.span();
            Spanned::new(
                span.clone(),
                PortConfig { pace: Some(Spanned::new(span, pace.into())), ..port.into_inner() },
            )
        });
        self.port = ports.collect();
        Ok(())
    }

    /// Makes `ender` end the captures that are received, also while they wait for a pipe.
    pub fn end_captures_with(&mut self, ender: Ender) {
        self.ender = Some(ender);
    }

    /// An error at a position of the text.
    #[must_use]
    pub fn error(
        &self,
        span: std::ops::Range<usize>,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) -> ConfigError {
        self.source.error(span, what, fix)
    }

    /// Ports, in the order of their numbers.
    pub fn ports(&self) -> impl Iterator<Item = &PortConfig> {
        self.port.iter().map(Spanned::get_ref)
    }

    /// Queues, in the order of their numbers.
    pub fn queues(&self) -> impl Iterator<Item = &QueueConfig> {
        self.queue.iter().map(Spanned::get_ref)
    }

    /// The address at which metrics are served, as the user wrote it.
    #[must_use]
    pub fn metrics(&self) -> Option<&str> {
        self.yard
            .metrics
            .as_ref()
            .map(|text| text.get_ref().as_str())
            .filter(|text| !text.is_empty())
    }

    /// The number of the port with this name.
    #[must_use]
    pub fn port_number(&self, name: &str) -> Option<u16> {
        let at = self.ports().position(|port| port.name.get_ref() == name);
        at.map(|at| at as u16)
    }

    /// The number of the queue with this name.
    #[must_use]
    pub fn queue_number(&self, name: &str) -> Option<u16> {
        let at = self.queues().position(|queue| queue.name.get_ref() == name);
        at.map(|at| at as u16)
    }
}

/// A value without a position in the text.
fn free<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}

fn core_0() -> Spanned<u16> {
    free(0)
}

fn window() -> Spanned<u32> {
    free(1024)
}

const fn atr_entries() -> usize {
    8192
}

const fn atr_sample() -> u32 {
    20
}

const fn atr_idle() -> u64 {
    30_000
}

const fn cache_replace() -> u32 {
    100
}

#[cfg(test)]
mod tests;

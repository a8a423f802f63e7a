//! Configuration: TOML whose words are the code's nouns.
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
//! All else has defaults. Reading has two steps: [`Config::parse`] checks words and types,
//! `check` that names name something and numbers are possible. Both point at line and column
//! and say the fix.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;

use flowyard_ports::port::{BadPace, Pace};
use send_words::{ExpectConfig, ReloadConfig, SendConfig, SimConfig};

mod assemble;
mod balance;
mod check;
mod elephants;
mod error;
mod flows;
mod health;
mod list;
mod live;
pub mod names;
mod resolve;
mod rule;
pub mod send;
pub mod send_words;
mod switch;
mod words;
mod work;

pub use assemble::BuildError;
pub use balance::{BackendConfig, BalanceConfig, ServiceConfig};
pub use elephants::ElephantsConfig;
pub use error::ConfigError;
pub use health::{CheckConfig, CheckKind};
pub use list::{ListConfig, OpConfig, TagConfig};
pub use resolve::{CapturePort, PortBody, ReloadPlan, Setup, WorkPlan};
pub use rule::{MatchConfig, RuleConfig, counter};
pub use switch::{FailWord, LookupWord, SwitchConfig, VersionWord};
pub use words::hex;
pub use words::{
    FanoutWord, FullWord, HashKey, HostQueueWord, IdleWord, ModeWord, Order, PortKind,
};
pub use work::{RouteConfig, WorkConfig, WorkKind};

/// A yard as its user describes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The whole.
    #[serde(default)]
    pub yard: YardConfig,
    /// Ports, in the order of their numbers.
    #[serde(default)]
    pub port: Vec<Spanned<PortConfig>>,
    /// Queues, in the order of their numbers.
    #[serde(default)]
    pub queue: Vec<Spanned<QueueConfig>>,
    /// What a table's answer may have done to a frame.
    #[serde(default)]
    pub list: Vec<Spanned<ListConfig>>,
    /// Which frame goes to which queue.
    #[serde(default)]
    pub steer: SteerConfig,
    /// What writes tables while the yard runs.
    pub learn: Option<LearnConfig>,
    /// Which flows are split over cores.
    pub elephants: Option<ElephantsConfig>,
    /// What is done with frames.
    pub work: Spanned<WorkConfig>,
    /// How the balancer does it.
    pub balance: Option<Spanned<BalanceConfig>>,
    /// What kind of switch the work is, and who controls it.
    pub switch: Option<Spanned<SwitchConfig>>,
    /// Virtual addresses, and who answers for them.
    #[serde(default)]
    pub service: Vec<Spanned<ServiceConfig>>,
    /// Frames that are received from memory.
    #[serde(default)]
    pub send: Vec<Spanned<SendConfig>>,
    /// New tables while the simulation of a scenario runs.
    #[serde(default)]
    pub reload: Vec<Spanned<ReloadConfig>>,
    /// How a scenario is simulated.
    #[serde(default)]
    pub sim: SimConfig,
    /// What a scenario is to come to.
    pub expect: Option<Spanned<ExpectConfig>>,
    /// The text this was read from, for messages.
    #[serde(skip)]
    source: Source,
}

/// The text that a configuration was read from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Source {
    name: String,
    text: String,
}

/// `[yard]`
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct YardConfig {
    /// How many cores: threads with a loop each. They may outnumber the processors.
    pub cores: Spanned<u16>,
    /// The processor that each core is pinned to; empty pins none.
    pub pin: Spanned<Vec<usize>>,
    /// What a core does that has nothing to do.
    pub idle: IdleWord,
    /// Buffers of the pool; 0 is as many as the queues can hold and the cores need.
    pub frames: Spanned<usize>,
    /// Bytes of a buffer, rounded up to whole cache lines of 64: longer frames are dropped and
    /// counted.
    pub buffer_bytes: Spanned<usize>,
    /// Whether moves wait for what is on its way. Without, frames overtake each other, as they do
    /// in adapters.
    pub settle: bool,
    /// Slots of the settle stage; have more than there are busy flows.
    pub settle_slots: usize,
    /// Frames of a flow that are held back, at most, so that it can move although it is always in
    /// flight; 0 holds none, and it may never move.
    pub hold_frames: Spanned<usize>,
    /// How many frames against the tables' word make a flow one to be held.
    pub hold_after_frames: u32,
    /// How long a flow is held, at most, while its home gets nothing done, in microseconds.
    pub hold_us: u64,
    /// The seed of everything random: table hashes and the random hash key.
    pub seed: u64,
    /// Where metrics are shown, as `127.0.0.1:9464`; none shows none.
    pub metrics: Option<String>,
}

impl Default for YardConfig {
    fn default() -> Self {
        Self {
            cores: free(1),
            pin: free(Vec::new()),
            idle: IdleWord::default(),
            frames: free(0),
            buffer_bytes: free(2048),
            settle: true,
            settle_slots: 65_536,
            hold_frames: free(2048),
            hold_after_frames: 1024,
            hold_us: 1000,
            seed: 1,
            metrics: None,
        }
    }
}

/// `[[port]]`
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortConfig {
    /// Its name.
    pub name: Spanned<String>,
    /// What it is.
    pub kind: PortKind,
    /// The core that owns it.
    #[serde(default = "core_0")]
    pub core: Spanned<u16>,
    /// In place of `core`, for ports on interfaces: the cores that own it, each with a receive and
    /// a transmit queue of its own.
    pub cores: Option<Spanned<Vec<Spanned<u16>>>>,
    /// The interface; kinds `af_packet`, `af_xdp` and `tap`.
    pub interface: Option<Spanned<String>>,
    /// The interface's queue for each core; `af_xdp`. Left out, 0 and on.
    pub queues: Option<Spanned<Vec<u32>>>,
    /// The frames that are taken from the kernel, see [`flowyard_ports::af_xdp::Rule`]; `af_xdp`.
    #[serde(rename = "match")]
    pub rules: Option<Spanned<Vec<Spanned<String>>>>,
    /// Who copies frames; `af_xdp`.
    pub mode: Option<Spanned<ModeWord>>,
    /// Computes the checksums of TCP and UDP anew, for what comes from senders on the same machine;
    /// `af_xdp`.
    pub complete_checksums: Option<Spanned<bool>>,
    /// How cores share what comes; `af_packet`.
    pub fanout: Option<Spanned<FanoutWord>>,
    /// Frames that the kernel's rings hold; `af_packet` and `af_xdp`.
    pub ring_frames: Option<Spanned<u32>>,
    /// The MTU that the interface gets; `tap`.
    pub mtu: Option<Spanned<u32>>,
    /// The hardware address that the interface gets, as `02:00:00:00:00:01`; `tap`.
    pub interface_mac: Option<Spanned<String>>,
    /// By which queue the host sends; `tap`.
    pub host_queue: Option<Spanned<HostQueueWord>>,
    /// The capture it receives; none receives nothing.
    #[serde(rename = "in")]
    pub input: Option<PathBuf>,
    /// The capture it transmits to; none counts and forgets what it transmits.
    #[serde(rename = "out")]
    pub output: Option<Spanned<PathBuf>>,
    /// How fast `in` is received: `fast`, `capture`, or frames a second.
    pub pace: Option<Spanned<String>>,
    /// How often `in` is received in all; kind `mem` only.
    pub repeat: Option<Spanned<u32>>,
    /// Frames that its tx queue holds.
    #[serde(default = "window")]
    pub window_frames: Spanned<u32>,
    /// What happens when its tx queue is full, to frames that a table sends straight to it.
    #[serde(default)]
    pub full: FullWord,
    /// Its MAC address, which routed frames leave with: as `02:00:00:00:00:01`. Left out, it is
    /// 02:00:00:00 and the port's number.
    pub mac: Option<Spanned<String>>,
}

/// `[[queue]]`
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueConfig {
    /// Its name.
    pub name: Spanned<String>,
    /// What it promises.
    pub order: Order,
    /// The cores that work on its frames.
    pub consumers: Spanned<Vec<Spanned<u16>>>,
    /// Frames it holds, open ones included.
    #[serde(default = "window")]
    pub window_frames: Spanned<u32>,
    /// A core serves the queue with the lowest number first; equal ones in the file's order.
    #[serde(default)]
    pub priority: u8,
    /// What happens when it is full.
    #[serde(default)]
    pub full: FullWord,
}

/// `[steer]`
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SteerConfig {
    /// Queues that the hash spreads frames over; empty is all.
    pub spread: Vec<Spanned<String>>,
    /// Entries of the indirection table.
    pub entries: Spanned<usize>,
    /// The Toeplitz key.
    pub hash_key: Spanned<HashKey>,
    /// Flows with an answer of their own.
    pub exact: Vec<ExactConfig>,
    /// How many flows the exact table takes.
    pub exact_entries: usize,
    /// Rules, in the order that decides between those of equal priority.
    pub rule: Vec<RuleConfig>,
    /// Names of counters, which `exact` and `rule` may use.
    pub counters: Vec<Spanned<String>>,
}

impl Default for SteerConfig {
    fn default() -> Self {
        Self {
            spread: Vec::new(),
            entries: free(128),
            hash_key: free(HashKey::Random),
            exact: Vec::new(),
            exact_entries: 8192,
            rule: Vec::new(),
            counters: Vec::new(),
        }
    }
}

/// One of `[[steer.exact]]`: a flow, and one of `queue`, `port`, `list` or `drop = true`.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExactConfig {
    /// As `tcp 10.0.0.1:40000 > 10.0.0.2:11211`.
    pub flow: Spanned<String>,
    /// To this queue.
    pub queue: Option<Spanned<String>>,
    /// Out of this port, without work.
    pub port: Option<Spanned<String>>,
    /// Through this action list, and where that ends.
    pub list: Option<Spanned<String>>,
    /// Nowhere.
    #[serde(default)]
    pub drop: bool,
    /// The mark that its frames carry.
    #[serde(default)]
    pub mark: u32,
    /// Counts them here: one of `counters`.
    pub counter: Option<Spanned<String>>,
}

/// `[learn]`
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "lowercase")]
pub enum LearnConfig {
    /// The core that transmits a flow shall receive it.
    Atr {
        /// The most flows steered at a time.
        #[serde(default = "atr_entries")]
        entries: usize,
        /// One of N transmitted frames is sampled, besides every SYN.
        #[serde(default = "atr_sample")]
        sample_every: u32,
        /// A flow not sampled for so long is forgotten, in milliseconds.
        #[serde(default = "atr_idle")]
        idle_ms: u64,
        /// Learn from UDP too.
        #[serde(default)]
        udp: bool,
    },
    /// The core that works on a flow shall go on doing so.
    Rfs {
        /// The most flows that a core steers to itself at a time.
        #[serde(default = "atr_entries")]
        entries: usize,
        /// One of N frames worked on is sampled.
        #[serde(default = "atr_sample")]
        sample_every: u32,
        /// A flow not sampled for so long is forgotten, in milliseconds.
        #[serde(default = "atr_idle")]
        idle_ms: u64,
    },
    /// What the rules answer is copied in front of them.
    Cache {
        /// The most flows copied at a time.
        #[serde(default = "atr_entries")]
        entries: usize,
        /// When all are taken, one of N misses replaces the oldest; 0 replaces none.
        #[serde(default = "cache_replace")]
        replace_every: u32,
    },
}

impl Config {
    /// Reads and checks the configuration in the file `path`.
    ///
    /// # Errors
    /// As [`Config::parse`], and when the file cannot be read.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let name = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&name, &text),
            Err(error) => Err(ConfigError::unread(&name, &error)),
        }
    }

    /// Reads and checks a configuration; `name` is for messages. File names in it are taken as
    /// they are.
    ///
    /// # Errors
    /// What is wrong first, with its place and the fix.
    pub fn parse(name: &str, text: &str) -> Result<Self, ConfigError> {
        let source = Source { name: name.into(), text: text.into() };
        let config = toml::from_str::<Self>(text);
        let mut config = config.map_err(|error| source.untold(&error))?;
        config.source = source;
        check::check(&config)?;
        Ok(config)
    }

    /// Has every port receive at `pace`, whatever it was configured to.
    ///
    /// # Errors
    /// When the text is no pace.
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

    /// An error at a place of the text.
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

    /// An error of a whole section, pointing at its first heading.
    pub(crate) fn error_in(&self, section: &str, what: String, fix: &str) -> ConfigError {
        let at = self.source.text.find(section).unwrap_or(0);
        self.error(at..at, what, fix)
    }

    /// Where metrics are to be shown, as the user wrote it.
    #[must_use]
    pub fn metrics(&self) -> Option<&str> {
        self.yard.metrics.as_deref()
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

/// A value that stands nowhere in the text.
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

//! The setup of an analysis: the adapter, the host and the policies to compare.

use std::fmt;

use flowyard_adapter::fdir::Pballoc;
use flowyard_adapter::profile::{FdirKind, Tunnels};
use flowyard_adapter::rules::Rule;
use flowyard_adapter::tenants::Tenants;
use flowyard_adapter::{Profile, Rss, RssConfig};
use flowyard_flow::Quic;
use flowyard_flow::learn::rebalance::Limits;
use flowyard_frame::Nanos;

use crate::delay::Delays;
use crate::host::{Consumers, Local};
use crate::interrupts::Interrupting;
use crate::summary::{SetupSummary, Traffic};

/// The parameters of an analysis. Equal setups and equal captures give equal results.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The modelled adapter.
    pub adapter: &'static Profile,
    /// Number of receive queues that the host has opened.
    pub queues: u16,
    /// Number of cores; queue q interrupts core q modulo this number, which also transmits by it.
    pub cores: u16,
    /// The core that each queue interrupts, by its number, instead; empty if none is known.
    pub queue_cores: Vec<u16>,
    /// Hash key, hash fields and hash function.
    pub rss: RssConfig,
    /// Where the hash key comes from.
    pub key_source: KeySource,
    /// The packets that are hashed by their QUIC connection ID.
    pub quic: Option<Quic>,
    /// The side of each connection on which the host is.
    pub local: Local,
    /// The thread that consumes a connection.
    pub consumers: Consumers,
    /// Time in nanoseconds after which one thread moves to another core; 0 means never.
    pub migrate_every: Nanos,
    /// Seed of all random choices.
    pub seed: u64,
    /// The queue-delay model.
    pub delays: Delays,
    /// A flow above this fraction of the received bytes is an elephant.
    pub elephant_share: f64,
    /// Largest number of elephants that are listed.
    pub elephants_most: usize,
    /// Length in nanoseconds of a window in which imbalance is measured.
    pub window: Nanos,
    /// ATR: one of every `sample_rate` packets of a transmit ring is sampled.
    pub sample_rate: u32,
    /// Flow Director on the 82599: the part of the packet buffer that holds filters.
    pub pballoc: Pballoc,
    /// RFS: number of entries in the global socket flow table.
    pub sock_flow_entries: u32,
    /// RFS: number of entries in the flow table of each queue.
    pub flow_cnt: u32,
    /// When entries of the indirection table move under the policy `rebalance`.
    pub rebalance: Limits,
    /// Who has which pool or virtual function of the adapter, if it has tenants.
    pub tenants: Option<Tenants>,
    /// How the adapter interrupts, if that is wanted.
    pub interrupts: Option<Interrupting>,
    /// The policies to compare, in the order of the report.
    pub policies: Vec<Spec>,
}

/// Where the hash key of RSS comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeySource {
    /// Microsoft's verification suite, with which results are reproducible.
    Microsoft,
    /// The key of repeated 6d5a.
    Symmetric,
    /// Random numbers of this seed.
    Seed(u64),
    /// The user.
    Given,
    /// The output of ethtool in this file.
    File(String),
}

impl KeySource {
    /// Whether a real port may well have this key.
    pub(crate) fn is_real(&self) -> bool {
        matches!(self, Self::Symmetric | Self::Given | Self::File(_))
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Microsoft => f.write_str("Microsoft's published test key"),
            Self::Symmetric => f.write_str("the symmetric key, 6d5a repeated"),
            Self::Seed(seed) => write!(f, "drawn with the seed {seed}"),
            Self::Given => f.write_str("given by --rss-key"),
            Self::File(name) => write!(f, "read from {name}"),
        }
    }
}

/// A steering policy.
#[derive(Clone, Debug)]
pub enum Spec {
    /// Only hash and indirection table.
    Rss,
    /// Flow Director with rules from a file (EP mode), then RSS.
    Fdir(RuleFile),
    /// Flow Director with filters that the driver learns from transmitted packets (ATR), then RSS.
    Atr,
    /// RSS, then receive packet steering in software.
    Rps,
    /// RSS, then receive flow steering in software.
    Rfs,
    /// Receive flow steering that programs the filters of the adapter.
    Arfs,
    /// flowyard's own policy: learns as ATR does, but does not reorder.
    Yard,
    /// RSS whose indirection table is rebalanced while flows pause.
    Rebalance,
}

/// The contents of a rule file.
#[derive(Clone, Debug)]
pub struct RuleFile {
    /// The name of the file as given.
    pub name: String,
    /// The rules of the file.
    pub rules: Vec<Rule>,
}

impl Spec {
    /// The values of `--policy`.
    pub const NAMES: [&'static str; 8] =
        ["rss", "fdir=FILE", "atr", "rps", "rfs", "arfs", "yard", "rebalance"];

    /// The name of the policy.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Rss => "rss",
            Self::Fdir(_) => "fdir",
            Self::Atr => "atr",
            Self::Rps => "rps",
            Self::Rfs => "rfs",
            Self::Arfs => "arfs",
            Self::Yard => "yard",
            Self::Rebalance => "rebalance",
        }
    }

    /// Every policy that `adapter` and its driver support, except rules and `rebalance`, which the user sets up.
    #[must_use]
    pub fn all_of(adapter: &Profile) -> Vec<Self> {
        let mut all = Vec::new();
        if adapter.rss.is_some() {
            all.push(Self::Rss);
        }
        if adapter.atr.is_some() {
            all.push(Self::Atr);
        }
        all.extend([Self::Rps, Self::Rfs]);
        if has_arfs(adapter) {
            all.push(Self::Arfs);
        }
        all.push(Self::Yard);
        all
    }

    /// A one-line description of the policy.
    #[must_use]
    pub fn title(&self) -> &'static str {
        match self {
            Self::Rss => "receive-side scaling: hash, indirection table, queue",
            Self::Fdir(_) => "Flow Director with your rules, then RSS",
            Self::Atr => {
                "Flow Director with filters learned from transmitted packets (ATR), then RSS"
            }
            Self::Rps => "RSS, then receive packet steering to all cores",
            Self::Rfs => "RSS, then receive flow steering to the core of the consumer",
            Self::Arfs => "receive flow steering that programs the filters of the adapter",
            Self::Yard => {
                "flowyard: learns as ATR does, but moves a flow only when its old queue is drained"
            }
            Self::Rebalance => {
                "RSS; entries of the indirection table move from overloaded queues while their flows pause"
            }
        }
    }
}

/// Whether the Linux driver of the adapter implements `ndo_rx_flow_steer`.
pub(crate) const fn has_arfs(adapter: &Profile) -> bool {
    matches!(adapter.fdir, FdirKind::Ice { .. })
}

/// The reason for which a setup is refused; the message includes the fix.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadSetup {
    /// RSS cannot be set up as requested.
    #[error(transparent)]
    Rss(#[from] flowyard_adapter::rss::Error),
    /// ATR cannot be set up as requested.
    #[error(transparent)]
    Atr(#[from] flowyard_adapter::atr::Error),
    /// The filter table refuses a rule that the driver accepts.
    #[error("--policy fdir: {0}")]
    Filter(#[from] flowyard_adapter::fdir::Error),
    /// The policy needs a hash, but the adapter computes none.
    #[error("--policy rss: {0} computes no hash; remove rss (rps and rfs hash in software)")]
    NoRss(&'static str),
    /// The policy needs an indirection table, which the adapter does not have.
    #[error(
        "--policy rebalance: {0} has no indirection table whose entries could move; remove rebalance, or name an adapter with RSS"
    )]
    NoTable(&'static str),
    /// The policy needs Flow Director, which the adapter does not have, or whose rules are not modelled.
    #[error(
        "--policy fdir: no Flow Director of {0} is modelled; use x520, x540, x550, x710, xl710, x722 or e810"
    )]
    NoFdir(&'static str),
    /// The policy needs ATR, which the driver does not have.
    #[error(
        "--policy atr: the driver of {0} has no ATR; use x520, x540, x550, x710, xl710 or x722"
    )]
    NoAtr(&'static str),
    /// The policy needs aRFS, which the driver does not have.
    #[error("--policy arfs: the driver of {0} has no accelerated RFS; use e810")]
    NoArfs(&'static str),
    /// The adapter has no pools that are modelled.
    #[error("--tenants: the pools of {0} are not modelled; use x520, x540 or x550")]
    NoPools(&'static str),
    /// The tables of the adapter are too small for the tenants.
    #[error("{0}")]
    Tenants(String),
    /// A policy is given twice.
    #[error("--policy: {0} is given twice; give each policy once")]
    Twice(&'static str),
}

impl Setup {
    /// The default setup for `adapter` with these policies: 16 cores, and 16 queues if the adapter has
    /// a hash, else 1.
    #[must_use]
    pub fn new(adapter: &'static Profile, policies: Vec<Spec>) -> Self {
        let hashes = adapter.rss.is_some();
        Self {
            adapter,
            queues: if hashes { 16 } else { 1 },
            cores: 16,
            queue_cores: Vec::new(),
            rss: RssConfig::default(),
            key_source: KeySource::Microsoft,
            quic: None,
            local: Local::default(),
            consumers: Consumers::default(),
            migrate_every: 0,
            seed: 1,
            delays: Delays::default(),
            elephant_share: 0.05,
            elephants_most: 10,
            window: 100_000_000,
            sample_rate: 20,
            pballoc: Pballoc::default(),
            sock_flow_entries: 32_768,
            flow_cnt: 2048,
            rebalance: Limits::default(),
            tenants: None,
            interrupts: None,
            policies,
        }
    }

    /// The core that `queue` interrupts.
    pub(crate) fn core_of(&self, queue: u16) -> u16 {
        let known = self.queue_cores.get(usize::from(queue)).copied();
        known.filter(|core| *core < self.cores).unwrap_or(queue % self.cores)
    }

    /// Checks that the adapter supports the policies.
    pub(crate) fn check(&self) -> Result<(), BadSetup> {
        let adapter = self.adapter;
        for (at, spec) in self.policies.iter().enumerate() {
            if self.policies[..at].iter().any(|before| before.name() == spec.name()) {
                return Err(BadSetup::Twice(spec.name()));
            }
            match spec {
                Spec::Rss if adapter.rss.is_none() => return Err(BadSetup::NoRss(adapter.name)),
                Spec::Rebalance if adapter.rss.is_none() => {
                    return Err(BadSetup::NoTable(adapter.name));
                }
                Spec::Fdir(_) if !adapter.fdir.is_modelled() => {
                    return Err(BadSetup::NoFdir(adapter.name));
                }
                Spec::Atr if adapter.atr.is_none() => return Err(BadSetup::NoAtr(adapter.name)),
                Spec::Arfs if !has_arfs(adapter) => return Err(BadSetup::NoArfs(adapter.name)),
                _ => {}
            }
        }
        Ok(())
    }

    /// The hash key in hexadecimal.
    pub(crate) fn key_text(&self) -> String {
        self.rss.key.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// A warning if the hash key is not that of a real port.
    pub(crate) fn key_note(&self) -> Option<String> {
        if self.adapter.rss.is_none() || self.key_source.is_real() {
            return None;
        }
        Some(format!(
            "The RSS key is {}. The driver of a real port draws a random key, and with another key flows get other queues. To predict the queues of a port, save its settings (ethtool -x IFACE > FILE) and give --rss-from FILE.",
            self.key_source
        ))
    }

    /// What is spread by connection ID, and by whom.
    pub(crate) fn quic_note(&self) -> Option<String> {
        let quic = self.quic.as_ref()?;
        let ports: Vec<_> = quic.ports().iter().map(ToString::to_string).collect();
        let what = match quic.server_bytes() {
            Some(bytes) => format!("the server ID of {bytes} bytes in their connection ID"),
            None => format!("their connection ID, {} bytes of it at most", quic.id_bytes()),
        };
        Some(format!(
            "QUIC packets to port {} are spread by {what}. No adapter is known to do this; 'flowyard steer --quic' does.",
            ports.join(", ")
        ))
    }

    /// Remarks for the user on the traffic and the policies.
    pub(crate) fn notes(&self, traffic: &Traffic) -> Vec<String> {
        let mut notes: Vec<_> = self.key_note().into_iter().chain(self.quic_note()).collect();
        let name = self.adapter.name;
        if traffic.foreign > 0 {
            notes.push(format!("{} of {} packets are neither from nor to {} (--local). They count as received, as an adapter in promiscuous mode receives them.", traffic.foreign, traffic.packets, self.local));
        }
        if traffic.transmitted == 0 && traffic.received > 0 {
            notes.push("The host transmits nothing in this capture (see --local), so policies that learn from transmitted packets learn nothing.".to_owned());
        }
        if traffic.deep_ip_header > 0 {
            notes.push(format!("The IP header of {} packets follows MPLS labels, PPPoE or more than two VLAN tags. The analysis assumes that the {name} finds it; otherwise these packets have no hash and go to queue 0.", traffic.deep_ip_header));
        }
        if let Some(most) = self.adapter.atr.and_then(|atr| atr.queues)
            && self.queues > most
        {
            notes.push(format!("The driver of the {name} uses at most {most} queues for ATR, but {} are configured.", self.queues));
        }
        let has = |name| self.policies.iter().any(|spec| spec.name() == name);
        if has("fdir") && (has("atr") || has("arfs")) {
            notes.push("On a real port rules can turn ATR or aRFS off; here each policy is analyzed independently of the others.".to_owned());
        }
        notes
    }

    pub(crate) fn summary(&self, rss: Option<&Rss>, migrations: u64) -> SetupSummary {
        SetupSummary {
            adapter: self.adapter.name.to_owned(),
            queues: self.queues,
            rss_queues: rss.map_or(1, Rss::queues),
            indirection_entries: rss.map_or(0, |rss| rss.reta().len() as u32),
            rss_key: self.key_text(),
            rss_key_source: self.key_source.to_string(),
            cores: self.cores,
            local: self.local.to_string(),
            consumers: self.consumers.to_string(),
            migrate_every_ns: self.migrate_every,
            migrations,
            service_ns: self.delays.service,
            dispatch_ns: self.delays.dispatch,
            core_delay_ns: self.delays.extra.clone(),
            elephant_share: self.elephant_share,
            window_ns: self.window,
            tunnels: match self.adapter.tunnels {
                Tunnels::Outer => "outer".to_owned(),
                Tunnels::Inner => "inner".to_owned(),
                Tunnels::Unknown => "not known, taken for outer".to_owned(),
            },
        }
    }
}

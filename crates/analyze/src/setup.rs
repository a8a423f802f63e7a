//! What is modelled: the adapter, the host behind it, and the policies to compare.

use flowyard_adapter::fdir::Pballoc;
use flowyard_adapter::profile::{FdirKind, Tunnels};
use flowyard_adapter::rules::Rule;
use flowyard_adapter::{Profile, Rss, RssConfig};
use flowyard_frame::Nanos;

use crate::delay::Delays;
use crate::host::{Consumers, Local};
use crate::summary::{SetupSummary, Traffic};

/// Everything that an analysis depends on besides the capture. Two runs with equal setups over
/// equal captures give equal results.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The adapter whose limits and tables are modelled.
    pub adapter: &'static Profile,
    /// Receive queues that the host opened.
    pub queues: u16,
    /// Cores; queue q interrupts core q modulo this, and transmits come from that queue too.
    pub cores: u16,
    /// Hash key, fields and function.
    pub rss: RssConfig,
    /// Which side of each connection the host is.
    pub local: Local,
    /// Which thread consumes a connection.
    pub consumers: Consumers,
    /// One thread moves to another core this often; 0 is never.
    pub migrate_every: Nanos,
    /// Seed of everything random.
    pub seed: u64,
    /// The queue-delay model.
    pub delays: Delays,
    /// A flow above this fraction of the received bytes is an elephant.
    pub elephant_share: f64,
    /// How many elephants are listed at most.
    pub elephants_most: usize,
    /// Width of an imbalance window.
    pub window: Nanos,
    /// ATR: every how many packets a transmit ring is sampled.
    pub sample_rate: u32,
    /// Flow Director on the 82599: the packet buffer given to filters.
    pub pballoc: Pballoc,
    /// RFS: entries of the global socket flow table.
    pub sock_flow_entries: u32,
    /// RFS: entries of each queue's flow table.
    pub flow_cnt: u32,
    /// The policies, in the order of the report.
    pub policies: Vec<Spec>,
}

/// A policy to model.
#[derive(Clone, Debug)]
pub enum Spec {
    /// The hash and the indirection table alone.
    Rss,
    /// Flow Director with rules from a file (EP mode), RSS behind it.
    Fdir(RuleFile),
    /// Flow Director filled by the driver's sampling of transmits, RSS behind it.
    Atr,
    /// RSS, then receive packet steering in software.
    Rps,
    /// RSS, then receive flow steering in software.
    Rfs,
    /// Receive flow steering that programs the adapter's filters.
    Arfs,
    /// flowyard's own ATR: learns as ATR does, and never reorders.
    Yard,
}

/// A rule file that was read.
#[derive(Clone, Debug)]
pub struct RuleFile {
    /// Its name as given.
    pub name: String,
    /// Its rules.
    pub rules: Vec<Rule>,
}

impl Spec {
    /// The names that `--policy` takes.
    pub const NAMES: [&'static str; 7] = ["rss", "fdir=FILE", "atr", "rps", "rfs", "arfs", "yard"];

    /// The policy's name.
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
        }
    }

    /// Every policy that `adapter` and its driver have, without rules.
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

    /// What the policy is, in a line.
    #[must_use]
    pub fn title(&self) -> &'static str {
        match self {
            Self::Rss => "receive-side scaling: hash, indirection table, queue",
            Self::Fdir(_) => "Flow Director with your rules, RSS behind them",
            Self::Atr => "Flow Director filled by sampling transmits (ATR), RSS behind it",
            Self::Rps => "RSS, then receive packet steering to all cores",
            Self::Rfs => "RSS, then receive flow steering to the consumer's core",
            Self::Arfs => "receive flow steering that programs the adapter's filters",
            Self::Yard => "flowyard: learns as ATR does, moves a flow only when it is drained",
        }
    }
}

/// Whether the adapter's Linux driver implements `ndo_rx_flow_steer`.
pub(crate) const fn has_arfs(adapter: &Profile) -> bool {
    matches!(adapter.fdir, FdirKind::Ice { .. })
}

/// What is wrong with a setup, and the mend.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadSetup {
    /// RSS cannot be set up as asked.
    #[error(transparent)]
    Rss(#[from] flowyard_adapter::rss::Error),
    /// ATR cannot be set up as asked.
    #[error(transparent)]
    Atr(#[from] flowyard_adapter::atr::Error),
    /// A rule that the driver takes does not fit the filter table.
    #[error("--policy fdir: {0}")]
    Filter(#[from] flowyard_adapter::fdir::Error),
    /// The policy needs a hash that this adapter does not compute.
    #[error("--policy rss: {0} computes no hash; leave rss out (rps and rfs hash in software)")]
    NoRss(&'static str),
    /// The policy needs Flow Director.
    #[error(
        "--policy fdir: {0} has no Flow Director; the adapters that have it are x520, x540, x550, x710, xl710, x722 and e810"
    )]
    NoFdir(&'static str),
    /// The policy needs ATR.
    #[error(
        "--policy atr: {0} has no ATR; the adapters that have it are x520, x540, x550, x710, xl710 and x722"
    )]
    NoAtr(&'static str),
    /// The policy needs aRFS.
    #[error(
        "--policy arfs: the driver of {0} has no accelerated RFS; of the adapters modelled only e810 has it"
    )]
    NoArfs(&'static str),
    /// A policy is named twice.
    #[error("--policy: {0} is named twice; name each policy once")]
    Twice(&'static str),
}

impl Setup {
    /// The defaults for `adapter`: as many queues and cores as its hash makes sense for, and the
    /// policies asked for.
    #[must_use]
    pub fn new(adapter: &'static Profile, policies: Vec<Spec>) -> Self {
        let hashes = adapter.rss.is_some();
        Self {
            adapter,
            queues: if hashes { 16 } else { 1 },
            cores: 16,
            rss: RssConfig::default(),
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
            policies,
        }
    }

    /// Finds what is wrong with the policies before anything is read.
    pub(crate) fn check(&self) -> Result<(), BadSetup> {
        let adapter = self.adapter;
        for (at, spec) in self.policies.iter().enumerate() {
            if self.policies[..at].iter().any(|before| before.name() == spec.name()) {
                return Err(BadSetup::Twice(spec.name()));
            }
            match spec {
                Spec::Rss if adapter.rss.is_none() => return Err(BadSetup::NoRss(adapter.name)),
                Spec::Fdir(_) if adapter.fdir == FdirKind::None => {
                    return Err(BadSetup::NoFdir(adapter.name));
                }
                Spec::Atr if adapter.atr.is_none() => return Err(BadSetup::NoAtr(adapter.name)),
                Spec::Arfs if !has_arfs(adapter) => return Err(BadSetup::NoArfs(adapter.name)),
                _ => {}
            }
        }
        Ok(())
    }

    /// What the user should know besides the figures.
    pub(crate) fn notes(&self, traffic: &Traffic) -> Vec<String> {
        let mut notes = Vec::new();
        let name = self.adapter.name;
        if traffic.transmitted == 0 && traffic.received > 0 {
            notes.push("The host transmits nothing in this capture (see --local), so nothing that samples transmits can learn.".to_owned());
        }
        if traffic.buried > 0 {
            notes.push(format!("{} packets have their IP header behind MPLS labels, PPPoE or more than two VLAN tags. The {name} is assumed to find it; if it does not, they have no hash and go to queue 0.", traffic.buried));
        }
        if let Some(most) = self.adapter.atr.and_then(|atr| atr.queues)
            && self.queues > most
        {
            notes.push(format!("The driver of the {name} opens at most {most} queues for ATR, fewer than the {} asked for.", self.queues));
        }
        let has = |name| self.policies.iter().any(|spec| spec.name() == name);
        if has("fdir") && (has("atr") || has("arfs")) {
            notes.push("Rules can switch ATR or aRFS off on a real port; here each policy is a world of its own.".to_owned());
        }
        notes
    }

    pub(crate) fn summary(&self, rss: Option<&Rss>, migrations: u64) -> SetupSummary {
        SetupSummary {
            adapter: self.adapter.name.to_owned(),
            queues: self.queues,
            rss_queues: rss.map_or(1, Rss::queues),
            indirection_entries: rss.map_or(0, |rss| rss.reta().len() as u32),
            rss_key: self.rss.key.iter().map(|byte| format!("{byte:02x}")).collect(),
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
            },
        }
    }
}

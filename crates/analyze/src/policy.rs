//! The policies: where a received frame lands, and what a policy learns from a transmitted one.
//!
//! ```text
//!  received frame ──> decide ──> queue ──> core ──> done at ──> tally
//!  transmitted frame ──> learn      (ATR samples it; RFS sees the thread's core)
//! ```
//!
//! The set of policies is closed, so it is an enum with one `match` per frame and policy. The models
//! of the adapter and of Linux make the decisions; this file only calls them.

use std::collections::BTreeMap;

use flowyard_adapter::linux::{
    Arfs, ArfsConfig, ArfsFix, CpuQueues, Rfs, RfsConfig, Rps, SlotIndex, SoftHash,
};
use flowyard_adapter::{FilterStats, Rss};
use flowyard_frame::Nanos;

use crate::delay::Cores;
use crate::flows::FlowId;
use crate::interrupts::Interrupts;
use crate::landing::{Landing, Stage, Steered};
use crate::packet::Packet;
use crate::setup::{BadSetup, Setup, Spec};
use crate::summary::{ElephantCore, Filters, Imbalance, PolicySummary, Reorder, RuleSummary};
use crate::tally::{Series, Tally};
use crate::trails::Trails;

mod explain;
mod filters;
mod rebalance;
mod rules;
mod yard;

pub(crate) use filters::Atr;
use rebalance::Rebalancing;
pub(crate) use rules::Fdir;
pub use rules::rule_engine;
use yard::Yard;

/// A running policy with its own cores and counters.
pub(crate) struct Running {
    /// The index of the policy in the setup.
    number: usize,
    name: &'static str,
    title: &'static str,
    pub(crate) policy: Policy,
    pub(crate) cores: Cores,
    tally: Tally,
    occupancy: Series,
}

/// The state of a policy.
pub(crate) enum Policy {
    Rss,
    Fdir(Box<Fdir>),
    Atr(Box<Atr>),
    Rps(Linux<Rps>),
    Rfs(Linux<Rfs>),
    Arfs(Linux<Box<Arfs>>),
    Yard(Box<Yard>),
    Rebalance(Box<Rebalancing>),
}

/// A policy of Linux, and the hash that the kernel computes if the driver hands over none that covers the ports. It is
/// computed over the headers that the adapter hashes; Linux would look into GRE and IP in IP.
#[derive(Debug)]
pub(crate) struct Linux<T> {
    pub(crate) steering: T,
    pub(crate) soft: SoftHash,
}

impl<T> Linux<T> {
    fn new(steering: T, setup: &Setup) -> Self {
        let seed = [crate::mix(setup.seed), crate::mix(!setup.seed)].map(u64::to_le_bytes);
        let key = std::array::from_fn(|i| seed[i / 8][i % 8]);
        Self { steering, soft: SoftHash::new(key) }
    }

    /// The hash that the kernel uses for steering.
    #[inline]
    pub(crate) fn hash(&self, packet: &Packet) -> u32 {
        match packet.hash {
            Some(hash) if packet.l4_hash => hash,
            _ => self.soft.hash(&packet.key),
        }
    }
}

impl Running {
    pub(crate) fn new(number: usize, setup: &Setup, rss: Option<&Rss>) -> Result<Self, BadSetup> {
        let spec = &setup.policies[number];
        let all_cores = Rps { cpus: (0..setup.cores).collect() };
        let rfs = RfsConfig {
            sock_flow_entries: setup.sock_flow_entries,
            flow_cnt: setup.flow_cnt,
            queues: setup.queues,
            cpus: setup.cores,
            slot: SlotIndex::default(),
            rps: all_cores.clone(),
        };
        let policy = match spec {
            Spec::Rss => Policy::Rss,
            Spec::Fdir(file) => Policy::Fdir(Box::new(Fdir::new(file, setup)?)),
            Spec::Atr => Policy::Atr(Box::new(Atr::new(setup)?)),
            Spec::Rps => Policy::Rps(Linux::new(all_cores, setup)),
            Spec::Rfs => Policy::Rfs(Linux::new(Rfs::new(rfs), setup)),
            Spec::Arfs => {
                let mut config = ArfsConfig::e810(rfs, ArfsFix::After);
                config.queue_of_cpu = (0..setup.cores).map(|core| core % setup.queues).collect();
                Policy::Arfs(Linux::new(Box::new(Arfs::new(config)), setup))
            }
            Spec::Yard => Policy::Yard(Box::new(Yard::new(setup, rss))),
            Spec::Rebalance => {
                let rss = rss.ok_or(BadSetup::NoTable(setup.adapter.name))?;
                Policy::Rebalance(Box::new(Rebalancing::new(setup.rebalance, rss)))
            }
        };
        let mut tally = Tally::new(number, setup.queues, setup.cores, setup.window);
        tally.interrupts = setup.interrupts.map(|how| Interrupts::new(how, setup.queues));
        Ok(Self {
            number,
            name: spec.name(),
            title: spec.title(),
            policy,
            cores: Cores::new(setup.cores, &setup.delays)
                .with_queues((0..setup.queues).map(|queue| setup.core_of(queue)).collect()),
            tally,
            occupancy: Series::default(),
        })
    }

    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }

    /// Steers the frames of a burst in order.
    pub(crate) fn burst(&mut self, packets: &[Packet], trails: &mut Trails) {
        if let Policy::Yard(yard) = &mut self.policy {
            yard.burst(packets, &mut self.cores, &mut self.tally, trails);
        } else {
            for packet in packets {
                self.one(packet, trails);
            }
        }
        if let Some(last) = packets.last()
            && let Some(occupancy) = self.policy.occupancy()
        {
            self.occupancy.add(last.now, occupancy);
        }
    }

    #[inline]
    fn one(&mut self, packet: &Packet, trails: &mut Trails) {
        if packet.received {
            let (landing, done) = self.policy.receive(packet, &mut self.cores);
            self.tally.is_urgent = matches!(&self.policy, Policy::Fdir(fdir) if fdir.is_urgent());
            self.tally.land(packet, landing, done, trails);
        } else {
            self.policy.transmit(packet);
        }
    }

    /// The effect of an elephant on its core.
    pub(crate) fn elephant(&self, id: FlowId, trails: &Trails) -> Option<ElephantCore> {
        let trail = trails.get(id, self.number)?;
        let core = trail.core()?;
        let whole = self.tally.cores[core as usize].bytes;
        let share_of_core = trail.bytes_here as f64 / whole.max(1) as f64;
        Some(ElephantCore { final_core: core, moves: u32::from(trail.moves), share_of_core })
    }

    /// The result after the last frame; `started` is the time of the first frame.
    pub(crate) fn summary(&mut self, started: Nanos) -> PolicySummary {
        let tally = &mut self.tally;
        let (window_p99, windows) = tally.windows();
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        let in_flows = tally.in_flows;
        PolicySummary {
            name: self.name.to_owned(),
            title: self.title.to_owned(),
            queues: tally.queues.clone(),
            queues_over_time: tally.over_time.summary(),
            cores: tally.cores.clone(),
            imbalance: Imbalance {
                queues: Tally::imbalance(&tally.queues),
                cores: Tally::imbalance(&tally.cores),
                window_p99,
                windows,
            },
            locality: (in_flows > 0).then(|| share(tally.local, in_flows)),
            stages: Stage::ALL
                .into_iter()
                .map(|stage| (stage.name().to_owned(), tally.stages[stage as usize]))
                .filter(|(_, packets)| *packets > 0)
                .collect(),
            reorder: Reorder {
                packets: tally.overtakes,
                share: share(tally.overtakes, tally.received),
                moves: tally.moves,
            },
            filters: self.policy.filters().map(|stats| {
                let points = self.occupancy.points().iter();
                let seconds = |at: Nanos| (at - started) as f64 / 1e9;
                let occupancy_over_time = points.map(|&(at, n)| (seconds(at), n)).collect();
                Filters { stats, occupancy_over_time }
            }),
            rules: self.policy.rules(),
            rebalance: match &self.policy {
                Policy::Rebalance(rebalance) => Some(rebalance.summary(started)),
                _ => None,
            },
            interrupts: tally.interrupts.as_mut().map(Interrupts::summary),
            counters: match &self.policy {
                Policy::Fdir(fdir) => fdir.counters(),
                _ => BTreeMap::new(),
            },
        }
    }
}

impl Policy {
    /// Where a received frame lands, and the time at which its core is done with it.
    #[inline]
    fn receive(&mut self, packet: &Packet, cores: &mut Cores) -> (Landing, Nanos) {
        let mut at = Steered::by_rss(packet.hash, packet.rss_queue);
        match self {
            Self::Rss => {}
            Self::Fdir(fdir) => at = fdir.receive(packet, at),
            Self::Atr(atr) => at = atr.receive(packet, at),
            Self::Yard(_) => unreachable!("`burst` gives this policy whole bursts"),
            Self::Rebalance(rebalance) => return rebalance.receive(packet, cores),
            Self::Rps(rps) => {
                return pass_on(packet, at, cores, |_, backlog| {
                    Some((rps.steering.cpu(rps.hash(packet), backlog)?, Stage::Rps))
                });
            }
            Self::Rfs(rfs) => {
                let hash = rfs.hash(packet);
                let landed = pass_on(packet, at, cores, |queue, backlog| {
                    Some((rfs.steering.receive(hash, queue, backlog)?, Stage::Rfs))
                });
                if let Some((_, consumer)) = packet.flow {
                    rfs.steering.consume(hash, consumer);
                }
                return landed;
            }
            Self::Arfs(arfs) => {
                let hash = arfs.hash(packet);
                let Linux { steering, .. } = arfs;
                steering.tick(packet.now, &Backlog { cores, now: packet.now });
                if let Some(queue) = steering.queue(&packet.key) {
                    at = Steered { queue, stage: Stage::Filter };
                }
                // If a filter selected the queue, it counts as the deciding stage, also if RFS then
                // selects the same core.
                let stage = if at.stage == Stage::Filter { Stage::Filter } else { Stage::Rfs };
                let landed = pass_on(packet, at, cores, |queue, backlog| {
                    let core = steering.receive(&packet.key, hash, queue, packet.now, backlog)?;
                    Some((core, stage))
                });
                if let Some((_, consumer)) = packet.flow {
                    steering.consume(hash, consumer);
                }
                return landed;
            }
        }
        let core = cores.of_queue(at.queue);
        let done =
            if at.stage == Stage::Dropped { packet.now } else { cores.take(core, packet.now) };
        (Landing { queue: at.queue, core, stage: at.stage }, done)
    }

    /// Learns from a transmitted frame.
    #[inline]
    fn transmit(&mut self, packet: &Packet) {
        let Some((_, core)) = packet.flow else { return };
        match self {
            Self::Rss | Self::Fdir(_) | Self::Rps(_) | Self::Yard(_) | Self::Rebalance(_) => {}
            Self::Atr(atr) => atr.transmit(packet, core),
            Self::Rfs(rfs) => rfs.steering.consume(rfs.hash(packet), core),
            Self::Arfs(arfs) => arfs.steering.consume(arfs.hash(packet), core),
        }
    }

    /// The offset of the flexible word that the rules of the policy match, if any does.
    pub(crate) fn flex_offset(&self) -> Option<u16> {
        match self {
            Self::Fdir(fdir) => fdir.flex_offset(),
            _ => None,
        }
    }

    fn filters(&self) -> Option<FilterStats> {
        match self {
            Self::Rss | Self::Rps(_) | Self::Rfs(_) | Self::Rebalance(_) => None,
            Self::Fdir(fdir) => Some(fdir.stats()),
            Self::Atr(atr) => Some(atr.stats()),
            Self::Arfs(arfs) => Some(arfs.steering.stats().filters),
            Self::Yard(yard) => Some(yard.stats()),
        }
    }

    #[inline]
    fn occupancy(&self) -> Option<u32> {
        self.filters().map(|stats| stats.occupancy)
    }

    /// Remarks for the user.
    pub(crate) fn notes(&self) -> Vec<String> {
        match self {
            Self::Fdir(fdir) => fdir.notes(),
            Self::Atr(atr) => atr
                .off()
                .map(|why| format!("The driver turns ATR off: {why}."))
                .into_iter()
                .collect(),
            Self::Rebalance(rebalance) => rebalance.notes(),
            _ => Vec::new(),
        }
    }

    fn rules(&self) -> Vec<RuleSummary> {
        match self {
            Self::Fdir(fdir) => fdir.rules(),
            _ => Vec::new(),
        }
    }
}

/// The interrupted core passes the frame to the core that `pick` returns, or processes it itself if
/// `pick` returns `None`.
#[inline]
fn pass_on(
    packet: &Packet,
    at: Steered,
    cores: &mut Cores,
    pick: impl FnOnce(u16, &mut Backlog<'_>) -> Option<(u16, Stage)>,
) -> (Landing, Nanos) {
    let interrupted = cores.of_queue(at.queue);
    let now = cores.dispatch(interrupted, packet.now);
    let picked = pick(at.queue, &mut Backlog { cores, now });
    let (core, stage) = picked.unwrap_or((interrupted, at.stage));
    (Landing { queue: at.queue, core, stage }, cores.take(core, now))
}

/// The modelled cores at one moment, as the per-CPU backlogs of Linux.
pub(crate) struct Backlog<'a> {
    pub(crate) cores: &'a Cores,
    pub(crate) now: Nanos,
}

impl CpuQueues for Backlog<'_> {
    fn head(&self, cpu: u16) -> u32 {
        self.cores.head(cpu, self.now) as u32
    }

    fn tail(&self, cpu: u16) -> u32 {
        self.cores.tail(cpu) as u32
    }

    fn online(&self, cpu: u16) -> bool {
        self.cores.has(cpu)
    }
}

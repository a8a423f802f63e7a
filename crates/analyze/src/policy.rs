//! The policies: where a received frame lands, and what a transmitted one teaches.
//!
//! ```text
//!  received frame ──> decide ──> queue ──> core ──> done at ──> tally
//!  transmitted frame ──> learn      (ATR samples it; RFS sees the thread's core)
//! ```
//!
//! The set is closed, so it is an enum; one `match` per frame and policy. A policy decides with
//! the adapter's and Linux's own models; nothing is decided here.

use flowyard_adapter::linux::{
    Arfs, ArfsConfig, ArfsFix, CpuQueues, Rfs, RfsConfig, Rps, SlotIndex, SoftHash,
};
use flowyard_adapter::{FilterStats, Rss};
use flowyard_frame::Nanos;

use crate::delay::Cores;
use crate::flows::FlowId;
use crate::landing::{Landing, Stage};
use crate::packet::Packet;
use crate::setup::{BadSetup, Setup, Spec};
use crate::summary::{
    ElephantCore, Filters, Imbalance, LoadSummary, PolicySummary, Reorder, RuleSummary,
};
use crate::tally::{Load, Series, Tally};
use crate::trails::Trails;

mod explain;
mod filters;
mod rules;
mod yard;

pub(crate) use filters::Atr;
pub(crate) use rules::Fdir;
use yard::Yard;

/// One policy at work, with its own cores and tally.
pub(crate) struct Running {
    /// Its place among the policies.
    number: usize,
    name: &'static str,
    title: &'static str,
    pub(crate) policy: Policy,
    pub(crate) cores: Cores,
    tally: Tally,
    occupancy: Series,
}

/// What decides.
pub(crate) enum Policy {
    Rss,
    Fdir(Box<Fdir>),
    Atr(Box<Atr>),
    Rps(Linux<Rps>),
    Rfs(Linux<Rfs>),
    Arfs(Linux<Box<Arfs>>),
    Yard(Box<Yard>),
}

/// A policy of Linux, and the hash that the kernel computes where the adapter gives none.
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

    /// The hash that the kernel steers by; `None` outside IP.
    #[inline]
    pub(crate) fn hash(&self, packet: &Packet) -> Option<u32> {
        let key = packet.key;
        packet.hash.or_else(|| key.is_ip().then(|| self.soft.hash(&key)))
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
        };
        Ok(Self {
            number,
            name: spec.name(),
            title: spec.title(),
            policy,
            cores: Cores::new(setup.cores, &setup.delays),
            tally: Tally::new(number, setup.queues, setup.cores, setup.window),
            occupancy: Series::default(),
        })
    }

    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }

    /// Takes a burst, frame by frame in order.
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
            self.tally.land(packet, landing, done, trails);
        } else {
            self.policy.transmit(packet);
        }
    }

    /// What an elephant does to its core.
    pub(crate) fn elephant(&self, id: FlowId, trails: &Trails) -> Option<ElephantCore> {
        let trail = trails.get(id, self.number)?;
        let core = trail.core()?;
        let whole = self.tally.cores[core as usize].bytes;
        let share_of_core = trail.bytes_here as f64 / whole.max(1) as f64;
        Some(ElephantCore { core, moves: u32::from(trail.moves), share_of_core })
    }

    /// What the policy did, after the last frame; `started` is the first frame's time.
    pub(crate) fn summary(&mut self, started: Nanos) -> PolicySummary {
        let tally = &mut self.tally;
        let (window_p99, windows) = tally.windows();
        let load = |load: &Load| LoadSummary { packets: load.packets, bytes: load.bytes };
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        let in_flows = tally.in_flows;
        PolicySummary {
            name: self.name.to_owned(),
            title: self.title.to_owned(),
            queues: tally.queues.iter().map(load).collect(),
            cores: tally.cores.iter().map(load).collect(),
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
            filters: self.policy.filters().map(|stats| filters(&stats, &self.occupancy, started)),
            rules: self.policy.rules(),
        }
    }
}

impl Policy {
    /// Where a received frame lands, and when its core is done with it.
    #[inline]
    fn receive(&mut self, packet: &Packet, cores: &mut Cores) -> (Landing, Nanos) {
        let hashed = if packet.hash.is_some() { Stage::Rss } else { Stage::NoHash };
        let mut at = Landing { queue: packet.rss_queue, core: 0, stage: hashed };
        match self {
            Self::Rss => {}
            Self::Fdir(fdir) => (at.queue, at.stage) = fdir.receive(packet, at.queue, at.stage),
            Self::Atr(atr) => (at.queue, at.stage) = atr.receive(packet, at.queue, at.stage),
            Self::Yard(_) => unreachable!("the yard takes whole bursts"),
            Self::Rps(rps) => {
                return pass_on(packet, at, cores, |_, backlog| {
                    Some((rps.steering.cpu(rps.hash(packet)?, backlog)?, Stage::Rps))
                });
            }
            Self::Rfs(rfs) => {
                let hash = rfs.hash(packet);
                let landed = pass_on(packet, at, cores, |queue, backlog| {
                    Some((rfs.steering.receive(hash?, queue, backlog)?, Stage::Rfs))
                });
                if let (Some(hash), Some((_, consumer))) = (hash, packet.flow) {
                    rfs.steering.consume(hash, consumer);
                }
                return landed;
            }
            Self::Arfs(arfs) => {
                let hash = arfs.hash(packet);
                let Linux { steering, .. } = arfs;
                steering.tick(packet.now, &Backlog { cores, now: packet.now });
                if let Some(queue) = steering.queue(&packet.key) {
                    (at.queue, at.stage) = (queue, Stage::Filter);
                }
                // A filter that named the queue decided, also where RFS then agrees on the core.
                let stage = if at.stage == Stage::Filter { Stage::Filter } else { Stage::Rfs };
                let landed = pass_on(packet, at, cores, |queue, backlog| {
                    let core = steering.receive(&packet.key, hash?, queue, packet.now, backlog)?;
                    Some((core, stage))
                });
                if let (Some(hash), Some((_, consumer))) = (hash, packet.flow) {
                    steering.consume(hash, consumer);
                }
                return landed;
            }
        }
        at.core = cores.of_queue(at.queue);
        let done =
            if at.stage == Stage::Dropped { packet.now } else { cores.take(at.core, packet.now) };
        (at, done)
    }

    /// What a transmitted frame teaches.
    #[inline]
    fn transmit(&mut self, packet: &Packet) {
        let Some((_, core)) = packet.flow else { return };
        match self {
            Self::Rss | Self::Fdir(_) | Self::Rps(_) | Self::Yard(_) => {}
            Self::Atr(atr) => atr.transmit(packet, core),
            Self::Rfs(rfs) => {
                if let Some(hash) = rfs.hash(packet) {
                    rfs.steering.consume(hash, core);
                }
            }
            Self::Arfs(arfs) => {
                if let Some(hash) = arfs.hash(packet) {
                    arfs.steering.consume(hash, core);
                }
            }
        }
    }

    /// The offset of the flexible word that the policy's rules match on, if they do.
    pub(crate) fn flex_offset(&self) -> Option<u16> {
        match self {
            Self::Fdir(fdir) => fdir.flex_offset(),
            _ => None,
        }
    }

    fn filters(&self) -> Option<FilterStats> {
        match self {
            Self::Rss | Self::Rps(_) | Self::Rfs(_) => None,
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

    /// What the user should know besides the figures.
    pub(crate) fn notes(&self) -> Vec<String> {
        match self {
            Self::Fdir(fdir) => fdir.notes(),
            Self::Atr(atr) => atr
                .off()
                .map(|why| format!("The driver keeps ATR off: {why}."))
                .into_iter()
                .collect(),
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

/// The interrupted core looks at the frame and passes it to the core that `pick` names, or keeps it.
#[inline]
fn pass_on(
    packet: &Packet,
    mut at: Landing,
    cores: &mut Cores,
    pick: impl FnOnce(u16, &mut Backlog<'_>) -> Option<(u16, Stage)>,
) -> (Landing, Nanos) {
    at.core = cores.of_queue(at.queue);
    let now = cores.dispatch(at.core, packet.now);
    if let Some((core, stage)) = pick(at.queue, &mut Backlog { cores, now }) {
        (at.core, at.stage) = (core, stage);
    }
    (at, cores.take(at.core, now))
}

/// The modelled cores as Linux's per-CPU backlogs at one moment.
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

fn filters(stats: &FilterStats, occupancy: &Series, started: Nanos) -> Filters {
    let seconds = |at: Nanos| (at - started) as f64 / 1e9;
    Filters {
        occupancy: stats.occupancy,
        capacity: stats.capacity,
        adds: stats.adds,
        updates: stats.updates,
        failed_adds: stats.failed_adds,
        removes: stats.removes,
        evictions: stats.evictions,
        aliases: stats.aliases,
        flushes: stats.flushes,
        hits: stats.hits,
        misses: stats.misses,
        occupancy_over_time: occupancy.points().iter().map(|&(at, n)| (seconds(at), n)).collect(),
    }
}

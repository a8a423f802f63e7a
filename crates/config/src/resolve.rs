//! Resolution: names become numbers, once. Code after this step looks up no names.
//!
//! ```text
//!  Config (text with positions) ──resolve──> Setup: Blueprint, ports, work ──build──> Yard
//! ```
//!
//! Thread-safety: plain functions on plain values.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use flowyard_flow::learn::{atr, cache, rfs};
use flowyard_flow::toeplitz::{MICROSOFT_KEY, SYMMETRIC_KEY, random_key};
use flowyard_frame::{Nanos, To};
use flowyard_lb::{BalanceSettings, Service};
use flowyard_ports::live::Carries;
use flowyard_ports::pcap::Ender;
use flowyard_ports::port::Pace;
use flowyard_ports::port::dpdk::DpdkPort;
use flowyard_ports::port::live::{LiveKind, LivePort, XdpPort};
use flowyard_ports::port::memif::MemifPort;
use flowyard_ports::port::vhost_user::VhostPort;
use flowyard_switch::SwitchSettings;
use flowyard_works::Hop;
use flowyard_yard::Blueprint;
use flowyard_yard::blueprint::{
    ElephantPlan, FixedCosts, HoldLimits, LearnPlan, PortPlan, QueuePlan, SteerPlan,
};
use ipnet::IpNet;

use super::{Config, ConfigError, HashKey, LearnConfig, PortConfig, PortKind};
use super::{WorkKind, hex, list, rule};

/// A resolved configuration: the engine's blueprint, and the parts that the engine does not know.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The blueprint of the engine.
    pub blueprint: Blueprint,
    /// The body of each port, by number.
    pub ports: Vec<PortBody>,
    /// The work of the cores.
    pub work: WorkPlan,
    /// The additional time for which a core is kept busy with each frame; 0 is none.
    pub cost_ns: Nanos,
    /// What XDP answers in front of the ports.
    pub offload: Option<flowyard_front::Settings>,
    /// The unfinished frames that any port may receive.
    pub delivered: Carries,
    /// The ports that verify checksums, and whether they drop frames with wrong ones.
    pub verify: BTreeMap<u16, bool>,
    /// The ports that coalesce received frames.
    pub coalesce: BTreeSet<u16>,
    /// The most flows of works that adapters mark; `None` if these get no rules.
    pub adapter_flows: Option<u32>,
}

/// The source and destination of a port's frames.
#[derive(Clone, Debug)]
pub enum PortBody {
    /// Capture files, or nothing.
    Capture(CapturePort),
    /// An interface.
    Live(LivePort),
    /// Memory that is shared with another process.
    Memif(MemifPort),
    /// The network adapter of a virtual machine.
    Vhost(VhostPort),
    /// A device of DPDK.
    Dpdk(DpdkPort),
}

/// A port on capture files.
#[derive(Clone, Debug)]
pub struct CapturePort {
    /// The capture that it receives, if any.
    pub input: Option<PathBuf>,
    /// How often the capture is received, from memory; `None` streams it from the file.
    pub repeat: Option<u32>,
    /// The rate at which it is received.
    pub pace: Pace,
    /// What ends the capture before its end, also while it waits for a pipe.
    pub ender: Option<Ender>,
    /// The capture that it writes; without one, transmitted frames are counted and discarded.
    pub output: Option<PathBuf>,
}

/// The work of the cores.
#[derive(Clone, Debug)]
pub enum WorkPlan {
    /// Frames leave by the port that is configured for the port at which they came in.
    Forward(Vec<u16>),
    /// A learning bridge.
    Bridge {
        /// The number of stations that each core knows.
        stations: usize,
        /// The time after which a silent station is forgotten.
        age: Nanos,
    },
    /// Routes by prefix.
    Route(Vec<(IpNet, Hop)>),
    /// A load balancer.
    Balance {
        /// Its services.
        services: Vec<Service>,
        /// Entries of each service's Maglev table.
        entries: u32,
        /// The seed of its tables.
        seed: u64,
        /// Its other settings.
        settings: BalanceSettings,
    },
    /// An OpenFlow switch.
    Switch(SwitchSettings),
    /// A gateway of IPsec.
    Ipsec {
        /// Its SAs and policies.
        settings: flowyard_ipsec::Settings,
        /// Its routes.
        routes: Vec<(IpNet, Hop)>,
    },
}

impl Config {
    /// Resolves every name.
    ///
    /// # Errors
    /// The first setting that is wrong.
    pub fn resolve(&self) -> Result<Setup, ConfigError> {
        Ok(Setup {
            blueprint: self.blueprint()?,
            ports: (0..).zip(self.ports()).map(|(number, port)| self.body(number, port)).collect(),
            work: self.work_plan()?,
            cost_ns: self.work.get_ref().cost_ns(),
            offload: self.offload(),
            delivered: self.delivered(),
            verify: self.verify(),
            coalesce: self.coalesce(),
            adapter_flows: self.adapter_flows(),
        })
    }

    /// The engine.
    pub(crate) fn blueprint(&self) -> Result<Blueprint, ConfigError> {
        let yard = &self.yard;
        Ok(Blueprint {
            cores: *yard.cores.get_ref(),
            pin: yard.pin.get_ref().clone(),
            idle: yard.idle.into(),
            secret: self.secret(),
            frames: *yard.frames.get_ref(),
            buffer_bytes: *yard.buffer_bytes.get_ref(),
            large_frames: self.large_frames(),
            work_frames: self.work_frames(),
            ports: self.ports().map(|port| self.port_plan(port)).collect(),
            queues: self.queues().map(super::QueueConfig::plan).collect(),
            less_urgent_every: *yard.less_urgent_every.get_ref(),
            port_lists: match self.work.get_ref().kind.get_ref() {
                WorkKind::Bridge => flowyard_works::floods(self.port.len() as u16),
                _ => Vec::new(),
            },
            steer: self.steer_plan()?,
            settle_slots: yard.settle.then_some(yard.settle_slots),
            hold: HoldLimits {
                frames: *yard.hold_frames.get_ref(),
                after: yard.hold_after_frames,
                longest: yard.hold_us.saturating_mul(1000),
            },
            learn: self.learn.as_ref().map(LearnConfig::plan),
            elephants: self.elephant_plan(),
        })
    }

    /// Buffers that the work of a core keeps for its copies.
    fn work_frames(&self) -> usize {
        match self.work.get_ref().kind.get_ref() {
            WorkKind::Bridge => 32,
            // The work has a free list of its own, in addition to the one for copies made at
            // completion.
            WorkKind::Switch => 96,
            WorkKind::Ipsec if self.large_frames() > 0 => 96, // likewise, for segments
            _ => 0,
        }
    }

    fn port_plan(&self, port: &PortConfig) -> PortPlan {
        // If several cores complete the frames of a flow, the completing core is not a useful hint.
        let shared = self.queues().any(|queue| queue.consumers.get_ref().len() > 1);
        PortPlan {
            name: port.name.get_ref().clone(),
            cores: port.owners().map(|core| *core.get_ref()).collect(),
            window_frames: *port.window_frames.get_ref(),
            full: port.full.into(),
            fan_by_flow: port.kind == PortKind::Tap && shared && self.learn.is_none(),
            lent_frames: port.lent_frames(),
        }
    }

    /// The key of the receive hash.
    pub(crate) fn receive_key(&self) -> Vec<u8> {
        match self.steer.hash_key.get_ref() {
            HashKey::Random => random_key(self.secret().key("receive hash")).to_vec(),
            HashKey::Symmetric => SYMMETRIC_KEY.to_vec(),
            HashKey::Microsoft => MICROSOFT_KEY.to_vec(),
            HashKey::Written(text) => hex(text).unwrap_or_default(), // checked before
        }
    }

    fn steer_plan(&self) -> Result<SteerPlan, ConfigError> {
        let steer = &self.steer;
        Ok(SteerPlan {
            hash_key: self.receive_key(),
            spread: self.spread(),
            spread_entries: *steer.entries.get_ref(),
            keep_local: self.keeps_local(),
            exact: rule::exact(self)?,
            exact_entries: steer.exact_entries,
            rules: rule::rules(self)?,
            lists: list::lists(self)?,
            counters: steer.counters.iter().map(|name| name.get_ref().clone()).collect(),
            marks: None,
        })
    }

    /// The indirection table, before it is repeated to its size.
    pub(crate) fn spread(&self) -> Vec<To> {
        let named = self.steer.spread.iter();
        let named: Vec<_> = named.filter_map(|name| self.queue_number(name.get_ref())).collect();
        let all = (0..self.queue.len() as u16).collect();
        let queues = if named.is_empty() { all } else { named };
        queues.into_iter().map(To::Queue).collect()
    }

    /// Whether frames stay with the core that received them, where its queues permit it.
    pub(crate) fn keeps_local(&self) -> bool {
        self.steer.keep_local && self.steer.spread.is_empty() && self.elephants.is_none()
    }

    fn elephant_plan(&self) -> Option<ElephantPlan> {
        let elephants = self.elephants.as_ref()?;
        Some(ElephantPlan {
            queue: self.queue_number(elephants.queue.get_ref())?,
            core: *elephants.core.get_ref(),
            window_ns: elephants.window(),
            sample_every: *elephants.sample_every.get_ref(),
            settings: self.elephant_settings(elephants),
            costs: elephants.costs(),
            fixed: FixedCosts {
                rx_ns: elephants.rx_ns,
                handoff_ns: elephants.handoff_ns,
                commit_ns: elephants.commit_ns,
            },
        })
    }

    fn body(&self, number: u16, port: &PortConfig) -> PortBody {
        let pin = self.yard.pin.get_ref();
        let kind = match port.kind {
            PortKind::Mem | PortKind::Pcap => {
                let pace = port.pace.as_ref().and_then(|pace| pace.get_ref().parse().ok());
                let times = port.repeat.as_ref().map_or(1, |repeat| *repeat.get_ref());
                return PortBody::Capture(CapturePort {
                    input: port.input.as_ref().map(|path| path.get_ref().clone()),
                    repeat: (port.kind == PortKind::Mem).then_some(times),
                    pace: pace.unwrap_or(Pace::Fast),
                    ender: self.ender.clone(),
                    output: port.output.as_ref().map(|path| path.get_ref().clone()),
                });
            }
            PortKind::AfPacket => LiveKind::AfPacket {
                settings: port.packet_settings(),
                // A core that is not pinned may move to another processor, and its frames to
                // another queue of the driver in the middle of a flow. Then the kernel chooses
                // queues by flow. The kernel drops a frame that bypasses queueing if its driver cannot cut it
                // (`dev_direct_xmit`), so a port that passes on long frames does not bypass it.
                bypass: !pin.is_empty() && !self.carries(port).segments(),
            },
            PortKind::AfXdp => LiveKind::AfXdp(XdpPort {
                settings: port.xdp_settings(),
                rules: port.xdp_rules(),
                queues: (0..port.owners().count()).map(|at| port.queue_of(at)).collect(),
                completes_checksums: port.completes_checksums(),
                ahead: None,
            }),
            PortKind::Tap => {
                LiveKind::Tap { settings: port.tap_settings(), host_queue: port.host_queue(pin) }
            }
            PortKind::Dpdk => return PortBody::Dpdk(self.dpdk_port(number, port)),
            PortKind::Memif => {
                return PortBody::Memif(MemifPort {
                    number,
                    name: port.name.get_ref().clone(),
                    cores: port.owners().count(),
                    settings: port.memif_settings(*self.yard.buffer_bytes.get_ref()),
                });
            }
            PortKind::VhostUser => {
                return PortBody::Vhost(VhostPort {
                    number,
                    name: port.name.get_ref().clone(),
                    cores: port.owners().count(),
                    settings: port.vhost_settings(),
                });
            }
        };
        PortBody::Live(LivePort {
            number,
            name: port.name.get_ref().clone(),
            interface: port.interface.as_ref().map(|n| n.get_ref().clone()).unwrap_or_default(),
            cores: port.owners().count(),
            kind,
            carries: self.carries(port),
            delivered: self.delivered(),
            coalesces: self.ipsec.as_ref().is_some_and(|ipsec| ipsec.get_ref().coalesce),
        })
    }

    fn work_plan(&self) -> Result<WorkPlan, ConfigError> {
        let work = self.work.get_ref();
        Ok(match work.kind.get_ref() {
            WorkKind::Forward | WorkKind::Burn => WorkPlan::Forward(self.port_map()),
            WorkKind::Bridge => WorkPlan::Bridge { stations: work.stations(), age: work.age() },
            WorkKind::Route => WorkPlan::Route(self.hops()?),
            WorkKind::Balance => {
                let balance = self.balance();
                WorkPlan::Balance {
                    services: self.services()?,
                    entries: *balance.entries.get_ref(),
                    seed: self.balancer_seed(),
                    settings: self.balance_settings()?,
                }
            }
            WorkKind::Switch => WorkPlan::Switch(self.switch_plan()?),
            WorkKind::Ipsec => {
                WorkPlan::Ipsec { settings: self.ipsec_settings()?, routes: self.hops()? }
            }
        })
    }

    /// The next hop of each route.
    pub(crate) fn hops(&self) -> Result<Vec<(IpNet, Hop)>, ConfigError> {
        let macs = self.port_macs()?;
        let hop = |route: super::work::Route| {
            let src = macs.get(usize::from(route.port)).copied().unwrap_or_default();
            (route.prefix, Hop { port: route.port, src, dst: route.next_hop })
        };
        Ok(self.routes()?.into_iter().map(hop).collect())
    }
}

impl super::QueueConfig {
    fn plan(&self) -> QueuePlan {
        QueuePlan {
            name: self.name.get_ref().clone(),
            order: self.order.into(),
            consumers: self.consumers.get_ref().iter().map(|core| *core.get_ref()).collect(),
            window_frames: *self.window_frames.get_ref(),
            priority: self.priority,
            full: self.full.into(),
        }
    }
}

impl LearnConfig {
    fn plan(&self) -> LearnPlan {
        let ms = |ms: u64| ms.saturating_mul(1_000_000);
        match *self {
            Self::Atr { entries, sample_every, idle_ms, udp } => {
                LearnPlan::Atr(atr::Settings { entries, sample_every, idle: ms(idle_ms), udp })
            }
            Self::Rfs { entries, sample_every, idle_ms } => {
                LearnPlan::Rfs(rfs::Settings { entries, sample_every, idle: ms(idle_ms) })
            }
            Self::Cache { entries, replace_every } => {
                LearnPlan::Cache(cache::Settings { entries, replace_every })
            }
        }
    }
}

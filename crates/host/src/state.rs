//! The settings of an interface that decide where its frames go, as they are now.

use std::collections::BTreeMap;

use flowyard_adapter::Profile;
use flowyard_adapter::profile::SctpHash;
use flowyard_adapter::rss::{Fields, FlowType};
use schemars::JsonSchema;
use serde::Serialize;

use crate::known::Known;
use crate::machine::{Channels, Coalesce, Driver, Feature};

pub(crate) mod counters;
mod interrupts;
mod read;

pub use read::OTHER_NAMESPACE_FIX;
#[cfg(test)]
mod tests;

/// The state of an interface.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct State {
    /// The name of the interface.
    pub interface: String,
    /// The kernel's index of the interface.
    pub index: u32,
    /// Whether `/sys` shows the network namespace of the command; if not, the files of the interface are unknown.
    pub sysfs: Known<bool>,
    /// The driver.
    pub driver: Known<Driver>,
    /// The NUMA node of the adapter's slot; -1 on a machine with one node.
    pub numa_node: Known<i32>,
    /// The link's speed in Mbit/s.
    pub speed: Known<u32>,
    /// The channels.
    pub channels: Known<Channels>,
    /// Receive-side scaling of the default context.
    pub rss: Known<RssState>,
    /// The other RSS contexts. The call has no list of contexts: the numbers 1 to 31 are tried.
    pub contexts: Known<Vec<Context>>,
    /// The hashed fields of each flow type, in ethtool's letters: `s` source address, `d` destination
    /// address, `f` source port, `n` destination port; `nothing` if the type is not hashed.
    pub fields: BTreeMap<String, Known<String>>,
    /// The features of the interface.
    pub features: Known<Vec<Feature>>,
    /// The rules (ntuple).
    pub rules: Known<RulesState>,
    /// When the adapter interrupts.
    pub coalesce: Known<Coalesce>,
    /// The receive queues of the kernel.
    pub rx_queues: Known<Vec<RxQueue>>,
    /// The transmit queues of the kernel.
    pub tx_queues: Known<Vec<TxQueue>>,
    /// The interrupts of the interface.
    pub interrupts: Known<Vec<Interrupt>>,
    /// Entries of the socket flow table of RFS (`net.core.rps_sock_flow_entries`); 0: RFS is off.
    pub sock_flow_entries: Known<u32>,
    /// The CPUs that are online, with their NUMA nodes.
    pub cpus: Known<Vec<Cpu>>,
    /// Other programs that change these settings while they run.
    pub writers: Vec<Writer>,
    /// The driver's counters, in the driver's order.
    pub counters: Known<Vec<Counter>>,
}

/// Receive-side scaling.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct RssState {
    /// The queue of each entry of the indirection table.
    pub table: Vec<u32>,
    /// The hash key, as `6d:5a:...`.
    pub key: Known<String>,
    /// The hash function: `toeplitz`, `xor` or `crc32`.
    pub function: Known<String>,
    /// The transformation of the hash input: `none`, `symmetric-xor` or `symmetric-or-xor`.
    pub transformation: String,
}

/// An RSS context other than the default one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Context {
    /// Its number.
    pub number: u32,
    /// Its settings.
    #[serde(flatten)]
    pub rss: RssState,
}

/// The rules of an interface.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct RulesState {
    /// Number of rules that are installed.
    pub installed: u32,
    /// Whether the driver chooses locations itself (`RX_CLS_LOC_ANY`).
    pub chooses_locations: bool,
    /// Number of locations; `null` if the driver does not tell.
    pub locations: Option<u32>,
    /// The rules, by location.
    pub list: Vec<RuleState>,
}

/// A rule.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct RuleState {
    /// Its location.
    pub location: u32,
    /// The rule in ethtool's words, without its location; or `raw` and the bytes of the driver, if `ethtool -N` has no
    /// words for it.
    pub rule: String,
}

/// A receive queue of the kernel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct RxQueue {
    /// Its number.
    pub queue: u32,
    /// The CPUs to which RPS spreads the queue's frames; none: RPS is off.
    pub rps_cpus: Known<Vec<u32>>,
    /// Entries of the queue's flow table of RFS; 0: RFS is off for the queue.
    pub rps_flow_cnt: Known<u32>,
    /// Frames that the queue received, by the driver's counters.
    pub packets: Known<u64>,
}

/// A transmit queue of the kernel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct TxQueue {
    /// Its number.
    pub queue: u32,
    /// The CPUs that transmit by this queue (XPS).
    pub xps_cpus: Known<Vec<u32>>,
    /// The receive queues whose connections transmit by this queue (XPS).
    pub xps_rxqs: Known<Vec<u32>>,
}

/// An interrupt.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Interrupt {
    /// Its number.
    pub irq: u32,
    /// The driver's name of it.
    pub name: String,
    /// The receive queue that it serves, as far as its name tells.
    pub rx_queue: Known<u32>,
    /// The CPUs that it may interrupt.
    pub affinity: Known<Vec<u32>>,
    /// The CPU that it interrupts.
    pub effective: Known<Vec<u32>>,
    /// How many times it interrupted.
    pub count: u64,
}

/// A CPU that is online.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Cpu {
    /// Its number.
    pub cpu: u32,
    /// Its NUMA node.
    pub node: u32,
}

/// A program that changes settings while it runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Writer {
    /// Its name, such as `irqbalance`.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// Its command line.
    pub command: String,
    /// What it changes.
    pub changes: String,
}

/// A counter of the driver.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Counter {
    /// The driver's name of it.
    pub name: String,
    /// Its value.
    pub value: u64,
}

impl State {
    /// What is not known, with the reasons: the name of the setting, and why.
    #[must_use]
    pub fn unseen(&self) -> Vec<(String, String)> {
        let mut all = Vec::new();
        let mut add = |name: &str, why: Option<&str>| {
            all.extend(why.map(|why| (name.to_owned(), why.to_owned())));
        };
        add("files of the interface", self.sysfs.why());
        add("driver", self.driver.why());
        add("NUMA node", self.numa_node.why());
        add("speed", self.speed.why());
        add("channels", self.channels.why());
        add("RSS", self.rss.why());
        if let Known::Value(rss) = &self.rss {
            add("RSS key", rss.key.why());
            add("RSS function", rss.function.why());
        }
        add("RSS contexts", self.contexts.why());
        for (name, fields) in &self.fields {
            add(&format!("hash fields of {name}"), fields.why());
        }
        add("features", self.features.why());
        add("rules", self.rules.why());
        add("interrupt moderation", self.coalesce.why());
        add("receive queues", self.rx_queues.why());
        for queue in self.rx_queues.value().into_iter().flatten() {
            add(&format!("RPS of rx-{}", queue.queue), queue.rps_cpus.why());
            add(&format!("RFS of rx-{}", queue.queue), queue.rps_flow_cnt.why());
            add(&format!("frames of rx-{}", queue.queue), queue.packets.why());
        }
        add("transmit queues", self.tx_queues.why());
        for queue in self.tx_queues.value().into_iter().flatten() {
            add(&format!("XPS CPUs of tx-{}", queue.queue), queue.xps_cpus.why());
            add(&format!("XPS queues of tx-{}", queue.queue), queue.xps_rxqs.why());
        }
        add("interrupts", self.interrupts.why());
        for irq in self.interrupts.value().into_iter().flatten() {
            add(&format!("affinity of interrupt {}", irq.irq), irq.affinity.why());
        }
        add("socket flow table of RFS", self.sock_flow_entries.why());
        add("CPUs", self.cpus.why());
        add("counters of the driver", self.counters.why());
        all
    }

    /// The model of the adapter: of those with this driver, the one whose table has as many entries.
    #[must_use]
    pub fn profile(&self) -> Option<&'static Profile> {
        let driver = self.driver.value()?.name.as_str();
        let entries = self.rss.value().map_or(0, |rss| rss.table.len());
        let has = |profile: &&Profile| {
            let is = |reta: u16| usize::from(reta) == entries;
            profile.rss.is_some_and(|rss| is(rss.reta) || rss.reta_vf.is_some_and(is))
        };
        let all = || Profile::ALL.iter().filter(|profile| profile.driver == driver);
        all().find(has).or_else(|| all().next())
    }

    /// Number of receive queues that frames can arrive on: the channels that receive, or the kernel's queues.
    #[must_use]
    pub fn queues(&self) -> Option<u32> {
        let channels = self.channels.value().map(|all| all.now.rx + all.now.combined);
        let kernels = || self.rx_queues.value().map(|all| all.len() as u32);
        channels.filter(|queues| *queues > 0).or_else(kernels)
    }

    /// The CPU that the interrupt of a receive queue runs on, if it is one CPU.
    #[must_use]
    pub fn cpu_of(&self, queue: u32) -> Option<u32> {
        let interrupts = self.interrupts.value()?;
        let one = interrupts.iter().find(|one| one.rx_queue.value() == Some(&queue))?;
        let single = |cpus: &Known<Vec<u32>>| match cpus.value().map(Vec::as_slice) {
            Some([cpu]) => Some(*cpu),
            _ => None,
        };
        single(&one.effective).or_else(|| single(&one.affinity))
    }

    /// The flow type whose fields frames of a flow type are hashed by. An adapter without a hash for SCTP hashes it as any
    /// other IP, whatever its driver says: virtio_net says that it hashes nothing of it.
    #[must_use]
    pub fn hashed_as(&self, flow: FlowType) -> FlowType {
        let rss = self.profile().and_then(|profile| profile.rss);
        match flow {
            _ if rss.is_none_or(|rss| rss.sctp != SctpHash::AsIp) => flow,
            FlowType::Sctp4 => FlowType::Ipv4,
            FlowType::Sctp6 => FlowType::Ipv6,
            _ => flow,
        }
    }

    /// The hashed fields of a flow type, by ethtool's name, if they are known and are addresses and ports.
    #[must_use]
    pub fn fields_of(&self, flow: &str) -> Option<Fields> {
        fields_in(self.fields.get(flow)?.value()?)
    }
}

/// Hashed fields in ethtool's letters; `None` if they are not only addresses and ports.
pub(crate) fn fields_in(text: &str) -> Option<Fields> {
    if text == "nothing" {
        return Some(Fields::NONE);
    }
    text.chars().try_fold(Fields::NONE, |all, letter| {
        Some(all.or(match letter {
            's' => Fields::SRC_IP,
            'd' => Fields::DST_IP,
            'f' => Fields::SRC_PORT,
            'n' => Fields::DST_PORT,
            _ => return None,
        }))
    })
}

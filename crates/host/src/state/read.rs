//! Reads the state of an interface.

use std::collections::BTreeMap;
use std::io;

use super::counters::queue_of;
use super::{
    Context, Counter, Cpu, RssState, RuleState, RulesState, RxQueue, State, TxQueue, Writer,
    interrupts,
};
use crate::cpus;
use crate::files::{self, SOCK_FLOW_ENTRIES, hex, number, parsed};
use crate::flow_types::{FLOW_TYPES, letters};
use crate::known::{Known, reason};
use crate::machine::{Machine, Rss};
use crate::ntuple::{Listed, Table};
use crate::rules::words;
use crate::setting::context::CONTEXTS;

/// What to do if `/sys` shows another network namespace than that of the command.
pub const OTHER_NAMESPACE_FIX: &str = "run the command by `ip netns exec`, or mount sysfs in the namespace (mount -t sysfs none /sys)";

impl State {
    /// Reads the state of an interface. Nothing is changed, and no privilege is needed: what cannot be read is
    /// unknown, with the reason.
    ///
    /// # Errors
    /// When there is no such interface.
    pub fn read(machine: &dyn Machine, interface: &str) -> io::Result<Self> {
        let index = machine.index(interface)?;
        let folder = files::folder(interface);
        let sysfs = sysfs(machine, &folder, index);
        let counters = Known::of("ETHTOOL_GSTATS", machine.counters(interface));
        // Files of an interface of another network namespace are not of this interface.
        let from_files = |why: &Known<bool>| why.why().map(str::to_owned);
        let hidden = from_files(&sysfs);
        let file = |name: &str| format!("{folder}/{name}");
        Ok(Self {
            driver: Known::of("ETHTOOL_GDRVINFO", machine.driver(interface)),
            numa_node: unless(&hidden, || number(machine, &file("device/numa_node"))),
            speed: unless(&hidden, || {
                // A link that is down has no speed: the kernel refuses the file, or says -1.
                parsed(machine, &file("speed"), |text| text.parse().ok().filter(|speed| *speed > 0))
            }),
            channels: Known::of("ETHTOOL_GCHANNELS", machine.channels(interface)),
            rss: Known::of("ETHTOOL_GRSSH", machine.rss(interface, 0)).map(RssState::from),
            contexts: contexts(machine, interface),
            fields: fields(machine, interface),
            features: Known::of("ETHTOOL_GFEATURES", machine.features(interface)),
            rules: Known::of("ETHTOOL_GRXCLSRLCNT", machine.rules(interface)).map(RulesState::from),
            coalesce: Known::of("ETHTOOL_GCOALESCE", machine.coalesce(interface)),
            rx_queues: unless(&hidden, || rx_queues(machine, &folder, &counters)),
            tx_queues: unless(&hidden, || tx_queues(machine, &folder)),
            interrupts: unless(&hidden, || interrupts::interrupts(machine, interface)),
            sock_flow_entries: number(machine, SOCK_FLOW_ENTRIES),
            cpus: cpus(machine),
            writers: writers(machine),
            counters: counters
                .map(|all| all.into_iter().map(|(name, value)| Counter { name, value }).collect()),
            interface: interface.to_owned(),
            index,
            sysfs,
        })
    }
}

fn unless<T>(hidden: &Option<String>, read: impl FnOnce() -> Known<T>) -> Known<T> {
    hidden.as_ref().map_or_else(read, Known::unknown)
}

/// Whether the files in `folder` are those of the interface with this index.
fn sysfs(machine: &dyn Machine, folder: &str, index: u32) -> Known<bool> {
    match number::<u32>(machine, &format!("{folder}/ifindex")) {
        Known::Value(found) if found == index => Known::Value(true),
        _ => Known::unknown(format!("/sys shows another network namespace; {OTHER_NAMESPACE_FIX}")),
    }
}

impl From<Rss> for RssState {
    fn from(rss: Rss) -> Self {
        let function = match rss.function {
            1 => Known::Value("toeplitz".to_owned()),
            2 => Known::Value("xor".to_owned()),
            4 => Known::Value("crc32".to_owned()),
            0 => Known::unknown("the driver names no hash function"),
            other => Known::unknown(format!("the driver names the hash functions {other:#x}")),
        };
        let transformation = match rss.transformation {
            0 => "none".to_owned(),
            1 => "symmetric-xor".to_owned(),
            2 => "symmetric-or-xor".to_owned(),
            other => format!("{other:#x}"),
        };
        let key = match rss.key.is_empty() {
            true => Known::unknown("the driver gives no key"),
            false => Known::Value(hex(&rss.key)),
        };
        Self { table: rss.table, key, function, transformation }
    }
}

impl From<Table> for RulesState {
    fn from(table: Table) -> Self {
        let state =
            |listed: &Listed| RuleState { location: listed.loc, rule: words::listed(listed) };
        Self {
            installed: table.rules.len() as u32,
            chooses_locations: table.chooses,
            locations: table.size,
            list: table.rules.iter().map(state).collect(),
        }
    }
}

fn contexts(machine: &dyn Machine, interface: &str) -> Known<Vec<Context>> {
    let default = machine.rss(interface, 0);
    if let Err(error) = default {
        return Known::unknown(reason("ETHTOOL_GRSSH", &error));
    }
    let found = |number| {
        let rss = machine.rss(interface, number).ok()?;
        Some(Context { number, rss: rss.into() })
    };
    Known::Value(CONTEXTS.filter_map(found).collect())
}

fn fields(machine: &dyn Machine, interface: &str) -> BTreeMap<String, Known<String>> {
    let read = |(name, number): (&str, u32)| {
        let bits = Known::of("ETHTOOL_GRXFH", machine.fields(interface, number));
        (name.to_owned(), bits.map(letters))
    };
    FLOW_TYPES.into_iter().map(read).collect()
}

/// The numbers of the queues in `FOLDER/queues` whose names begin with `front`.
fn numbers(machine: &dyn Machine, folder: &str, front: &str) -> Known<Vec<u32>> {
    let path = format!("{folder}/queues");
    Known::of(&path, machine.names(&path)).map(|names| {
        let number = |name: &String| name.strip_prefix(front)?.parse().ok();
        let mut numbers: Vec<u32> = names.iter().filter_map(number).collect();
        numbers.sort_unstable();
        numbers
    })
}

fn rx_queues(
    machine: &dyn Machine,
    folder: &str,
    counters: &Known<Vec<(String, u64)>>,
) -> Known<Vec<RxQueue>> {
    let packets = |queue| {
        let all = match counters {
            Known::Value(all) => all,
            Known::Unknown { unknown } => return Known::unknown(unknown),
        };
        let mine = all.iter().find(|(name, _)| queue_of(name) == Some(queue));
        mine.map_or_else(
            || Known::unknown("no counter of the driver counts the frames of a receive queue"),
            |(_, packets)| Known::Value(*packets),
        )
    };
    let read = |queue| {
        let file = |name: &str| format!("{folder}/queues/rx-{queue}/{name}");
        RxQueue {
            queue,
            rps_cpus: parsed(machine, &file("rps_cpus"), cpus::from_mask),
            rps_flow_cnt: number(machine, &file("rps_flow_cnt")),
            packets: packets(queue),
        }
    };
    numbers(machine, folder, "rx-").map(|all| all.into_iter().map(read).collect())
}

fn tx_queues(machine: &dyn Machine, folder: &str) -> Known<Vec<TxQueue>> {
    let read = |queue| {
        let file = |name: &str| format!("{folder}/queues/tx-{queue}/{name}");
        TxQueue {
            queue,
            xps_cpus: parsed(machine, &file("xps_cpus"), cpus::from_mask),
            xps_rxqs: parsed(machine, &file("xps_rxqs"), cpus::from_mask),
        }
    };
    numbers(machine, folder, "tx-").map(|all| all.into_iter().map(read).collect())
}

/// The CPUs that are online, with their NUMA nodes.
fn cpus(machine: &dyn Machine) -> Known<Vec<Cpu>> {
    let online = parsed(machine, "/sys/devices/system/cpu/online", cpus::from_list);
    let nodes = parsed(machine, "/sys/devices/system/node/online", cpus::from_list);
    let of_node = |node: &u32| {
        let path = format!("/sys/devices/system/node/node{node}/cpulist");
        (*node, parsed(machine, &path, cpus::from_list))
    };
    let nodes: Vec<_> = nodes.value().into_iter().flatten().map(of_node).collect();
    // A kernel without NUMA has no nodes: then all CPUs are on one.
    let node = |cpu| {
        let has = |(_, cpus): &&(u32, Known<Vec<u32>>)| {
            cpus.value().is_some_and(|cpus| cpus.contains(&cpu))
        };
        nodes.iter().find(has).map_or(0, |(node, _)| *node)
    };
    online.map(|all| all.into_iter().map(|cpu| Cpu { cpu, node: node(cpu) }).collect())
}

/// Programs that change interrupts or queues: their names, and what they change.
const WRITERS: [(&str, &str); 3] = [
    ("irqbalance", "moves interrupts between CPUs, except those that --banirq names"),
    ("tuned", "sets features, channels and interrupt moderation by its profile"),
    ("numad", "moves processes between NUMA nodes"),
];

fn writers(machine: &dyn Machine) -> Vec<Writer> {
    let processes = machine.names("/proc").unwrap_or_default();
    let read = |pid: u32| {
        let name = machine.read(&format!("/proc/{pid}/comm")).ok()?;
        let (name, changes) = WRITERS.iter().find(|(name_of, _)| *name_of == name.trim())?;
        let command = machine.read(&format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let command = command.replace('\0', " ").trim().to_owned();
        Some(Writer { name: (*name).to_owned(), pid, command, changes: (*changes).to_owned() })
    };
    processes.iter().filter_map(|name| name.parse().ok()).filter_map(read).collect()
}

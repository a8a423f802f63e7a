//! What a switch answers, as JSON documents. `flowyard schema` prints their schemas.
//!
//! Thread-safety: plain data.

mod features;
mod groups;

use std::collections::BTreeMap;

use flowyard_openflow::multipart::{Desc, FlowStats, NOT_COUNTED};
use flowyard_openflow::ofctl::{self, Ports};
use flowyard_openflow::port::{self, PortStats, QueueStats};
use flowyard_openflow::table::{TableDesc, TableStats};
use schemars::JsonSchema;
use serde::Serialize;

use super::words;

pub(crate) use features::{Features, TableFeature};
pub(crate) use groups::{Group, GroupCounters, Groups, MeterCounters, Meters};

/// Name and version of each document.
pub(crate) const SHOW: &str = "flowyard.switch.show/1";
pub(crate) const DESCRIPTION: &str = "flowyard.switch.description/1";
pub(crate) const FLOWS: &str = "flowyard.switch.flows/1";
pub(crate) const AGGREGATE: &str = "flowyard.switch.aggregate/1";
pub(crate) const GROUPS: &str = "flowyard.switch.groups/1";
pub(crate) const GROUP_STATS: &str = "flowyard.switch.group-stats/1";
pub(crate) const METERS: &str = "flowyard.switch.meters/1";
pub(crate) const METER_STATS: &str = "flowyard.switch.meter-stats/1";
pub(crate) const PORTS: &str = "flowyard.switch.ports/1";
pub(crate) const PORT_STATS: &str = "flowyard.switch.port-stats/1";
pub(crate) const TABLES: &str = "flowyard.switch.tables/1";
pub(crate) const TABLE_SETTINGS: &str = "flowyard.switch.table-settings/1";
pub(crate) const TABLE_FEATURES: &str = "flowyard.switch.table-features/1";
pub(crate) const QUEUES: &str = "flowyard.switch.queues/1";
pub(crate) const DIFFERENCES: &str = "flowyard.switch.differences/1";
pub(crate) const PING: &str = "flowyard.switch.ping/1";
pub(crate) const MONITOR: &str = "flowyard.switch.monitor/1";
pub(crate) const SNOOP: &str = "flowyard.switch.snoop/1";
pub(crate) const WHY: &str = "flowyard.switch.why/2";

/// A switch and its ports.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Show {
    /// The version of OpenFlow that was negotiated, as 1.3.
    pub(super) version: String,
    /// The datapath ID: 16 hexadecimal digits.
    pub(super) datapath: String,
    /// The number of tables.
    pub(super) tables: u8,
    /// Frames that the switch can keep for controllers.
    pub(super) buffers: u32,
    /// The bits `OFPC_*` of the version.
    pub(super) capabilities: u32,
    /// The description of the switch.
    pub(super) description: Option<Description>,
    /// The ports.
    pub(super) ports: Vec<Port>,
}

/// The description of a switch.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Description {
    /// The manufacturer.
    pub(super) manufacturer: String,
    /// The hardware.
    pub(super) hardware: String,
    /// The software and its version.
    pub(super) software: String,
    /// The serial number.
    pub(super) serial: String,
    /// The name of the datapath.
    pub(super) datapath: String,
}

impl From<&Desc> for Description {
    fn from(desc: &Desc) -> Self {
        Self {
            manufacturer: words::text(&desc.manufacturer),
            hardware: words::text(&desc.hardware),
            software: words::text(&desc.software),
            serial: words::text(&desc.serial),
            datapath: words::text(&desc.datapath),
        }
    }
}

/// The ports of a switch.
#[derive(Serialize, JsonSchema)]
pub(crate) struct PortList {
    /// By number.
    pub(super) ports: Vec<Port>,
}

/// A port of a switch.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Port {
    /// The number.
    pub(super) number: u32,
    /// The name.
    pub(super) name: String,
    /// The MAC address.
    pub(super) mac: String,
    /// What a controller has set: `PORT_DOWN`, `NO_RECV`, `NO_FLOOD`, `NO_FWD`, `NO_PACKET_IN`.
    pub(super) config: Vec<&'static str>,
    /// The state: `LINK_DOWN`, `BLOCKED`, `LIVE`.
    pub(super) state: Vec<&'static str>,
    /// The current speed in Mbit/s; 0 if it is not known.
    pub(super) speed_mbps: u32,
}

impl From<&port::Port> for Port {
    fn from(port: &port::Port) -> Self {
        Self {
            number: port.number,
            name: words::text(&port.name),
            mac: words::mac(&port.hw),
            config: words::bits(port.config, words::CONFIG),
            state: words::bits(port.state, words::STATE),
            speed_mbps: words::speed(port),
        }
    }
}

/// Flow entries.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Flows {
    /// By table and priority, as the switch sent them.
    pub(super) flows: Vec<Flow>,
}

/// A flow entry.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Flow {
    /// The table.
    pub(super) table: u8,
    /// The priority.
    pub(super) priority: u16,
    /// The cookie: 0x and hexadecimal digits.
    pub(super) cookie: String,
    /// The age in seconds; null with `--no-stats`.
    pub(super) duration_s: Option<f64>,
    /// Frames that matched; null with `--no-stats`, and if the flow has no counter.
    pub(super) packets: Option<u64>,
    /// Bytes of these frames; null with `--no-stats`, and if the flow has no counter.
    pub(super) bytes: Option<u64>,
    /// Seconds without a frame after which the flow ends; 0 is never.
    pub(super) idle_timeout_s: u16,
    /// Seconds after which the flow ends; 0 is never.
    pub(super) hard_timeout_s: u16,
    /// Flows of lower importance are evicted first.
    pub(super) importance: u16,
    /// Flags, as `send_flow_rem`.
    pub(super) flags: Vec<&'static str>,
    /// Whether it is an entry of the switch itself, which only `--hidden` prints.
    pub(super) hidden: bool,
    /// The kind of frames, as `tcp`; null if the match names none.
    pub(super) kind: Option<&'static str>,
    /// The other fields of the match, each with its value and mask as text.
    pub(super) fields: BTreeMap<&'static str, String>,
    /// The instructions and actions, in order; empty if matching frames are dropped.
    pub(super) actions: Vec<String>,
    /// The whole flow in the syntax of `ovs-ofctl`.
    pub(super) text: String,
}

impl Flow {
    pub(super) fn of(flow: &FlowStats, with_counters: bool, names: Ports<'_>) -> Self {
        let (mut kind, mut fields) = (None, BTreeMap::new());
        for (name, value) in ofctl::field_texts(&flow.matching, names) {
            if value.is_empty() {
                kind = Some(name);
            } else {
                fields.insert(name, value);
            }
        }
        let text = ofctl::flow_text_with(flow, false, names).trim().to_owned();
        Self {
            table: flow.table,
            priority: flow.priority,
            cookie: format!("{:#x}", flow.cookie),
            duration_s: with_counters.then(|| seconds(flow.duration_sec, flow.duration_nsec)),
            packets: known(flow.packets).filter(|_| with_counters),
            bytes: known(flow.bytes).filter(|_| with_counters),
            idle_timeout_s: flow.idle_timeout,
            hard_timeout_s: flow.hard_timeout,
            importance: flow.importance,
            flags: ofctl::flag_names(flow.flags),
            hidden: false,
            kind,
            fields,
            actions: ofctl::instruction_texts(&flow.instructions, names),
            text,
        }
    }
}

/// A counter; `None` if the switch does not have it.
fn known(count: u64) -> Option<u64> {
    (count != NOT_COUNTED).then_some(count)
}

/// A duration in seconds.
fn seconds(whole: u32, nanos: u32) -> f64 {
    f64::from(whole) + f64::from(nanos) / 1e9
}

/// The totals of several flow entries.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Aggregate {
    /// Frames that matched.
    pub(super) packets: u64,
    /// Bytes of these frames.
    pub(super) bytes: u64,
    /// The number of flow entries.
    pub(super) flows: u32,
}

/// Counters of ports.
#[derive(Serialize, JsonSchema)]
pub(crate) struct PortCounters {
    /// By number.
    pub(super) ports: Vec<PortCounter>,
}

/// Counters of a port; null where the switch has no such counter.
#[derive(Serialize, JsonSchema)]
pub(crate) struct PortCounter {
    /// The number of the port.
    pub(super) port: u32,
    /// Its name, if the switch has told it.
    pub(super) name: Option<String>,
    /// Frames received.
    pub(super) rx_packets: Option<u64>,
    /// Frames sent.
    pub(super) tx_packets: Option<u64>,
    /// Bytes received.
    pub(super) rx_bytes: Option<u64>,
    /// Bytes sent.
    pub(super) tx_bytes: Option<u64>,
    /// Received frames that were dropped.
    pub(super) rx_dropped: Option<u64>,
    /// Frames that were dropped before they were sent.
    pub(super) tx_dropped: Option<u64>,
    /// Frames received with errors.
    pub(super) rx_errors: Option<u64>,
    /// Frames that could not be sent.
    pub(super) tx_errors: Option<u64>,
    /// Seconds since the port was added.
    pub(super) duration_s: f64,
}

impl PortCounter {
    pub(super) fn of(stats: &PortStats, names: Ports<'_>) -> Self {
        let [
            rx_packets,
            tx_packets,
            rx_bytes,
            tx_bytes,
            rx_dropped,
            tx_dropped,
            rx_errors,
            tx_errors,
        ] = stats.basic.map(known);
        let name = names.iter().find(|(_, number)| *number == stats.number);
        Self {
            port: stats.number,
            name: name.map(|(name, _)| (*name).into()),
            rx_packets,
            tx_packets,
            rx_bytes,
            tx_bytes,
            rx_dropped,
            tx_dropped,
            rx_errors,
            tx_errors,
            duration_s: seconds(stats.duration_sec, stats.duration_nsec),
        }
    }
}

/// Counters of tables.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Tables {
    /// All tables, by number.
    pub(super) tables: Vec<Table>,
}

/// Counters of a table.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Table {
    /// The number.
    pub(super) table: u8,
    /// Its flow entries.
    pub(super) active: u32,
    /// Frames that were looked up.
    pub(super) lookups: u64,
    /// Frames that matched a flow entry.
    pub(super) matches: u64,
}

impl From<&TableStats> for Table {
    fn from(stats: &TableStats) -> Self {
        let TableStats { table, active, looked_up, matched, .. } = *stats;
        Self { table, active, lookups: looked_up, matches: matched }
    }
}

/// Settings of tables.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TableSettings {
    /// All tables, by number.
    pub(super) tables: Vec<TableSetting>,
}

/// The settings of a table, which `mod-table` changes.
#[derive(Clone, PartialEq, Serialize, JsonSchema)]
pub(crate) struct TableSetting {
    /// The number.
    pub(super) table: u8,
    /// Whether flows of low importance make room when the table is full.
    pub(super) eviction: bool,
    /// The limits of vacancy events; null if there are no events.
    pub(super) vacancy: Option<Vacancy>,
}

/// Limits of vacancy events, in percent of the table.
#[derive(Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Vacancy {
    /// An event is sent when less is free than this.
    pub(super) down: u8,
    /// An event is sent when more is free than this.
    pub(super) up: u8,
    /// What is free now.
    pub(super) free: u8,
}

impl From<&TableDesc> for TableSetting {
    fn from(desc: &TableDesc) -> Self {
        let vacancy = desc.properties.iter().find(|property| property.kind == 3);
        let vacancy = vacancy.and_then(|property| property.data.first_chunk::<3>());
        Self {
            table: desc.table,
            eviction: desc.config & 4 != 0,
            vacancy: vacancy.map(|[down, up, free]| Vacancy { down: *down, up: *up, free: *free }),
        }
    }
}

/// Queues of ports.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Queues {
    /// By port and number. The switch of flowyard has none.
    pub(super) queues: Vec<Queue>,
}

/// Counters of a queue.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Queue {
    /// The number of its port.
    pub(super) port: u32,
    /// Its number.
    pub(super) queue: u32,
    /// Bytes sent.
    pub(super) tx_bytes: u64,
    /// Frames sent.
    pub(super) tx_packets: u64,
    /// Frames that were dropped.
    pub(super) tx_errors: u64,
}

impl From<&QueueStats> for Queue {
    fn from(stats: &QueueStats) -> Self {
        let QueueStats { port, queue, bytes, packets, errors, .. } = *stats;
        Self { port, queue, tx_bytes: bytes, tx_packets: packets, tx_errors: errors }
    }
}

//! Groups and meters as JSON documents.

use flowyard_openflow::group::{ANY, Band, METER_CONTROLLER, meter_flags};
use flowyard_openflow::multipart::{GroupDesc, GroupStats, MeterConfig, MeterStats};
use flowyard_openflow::ofctl::{self, Ports};
use flowyard_openflow::port::reserved;
use schemars::JsonSchema;
use serde::Serialize;

use super::seconds;

/// Groups.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Groups {
    /// By number.
    pub(in crate::switch) groups: Vec<Group>,
}

/// A group.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Group {
    /// The number.
    pub(in crate::switch) group: u32,
    /// `all`, `select`, `indirect` or `fast_failover`.
    #[serde(rename = "type")]
    pub(in crate::switch) kind: &'static str,
    /// The buckets, in order.
    pub(in crate::switch) buckets: Vec<Bucket>,
}

/// A bucket of a group.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Bucket {
    /// Its share, in a group of type select.
    pub(in crate::switch) weight: u16,
    /// The number or name of the port on whose link it depends.
    pub(in crate::switch) watch_port: Option<String>,
    /// The group on which it depends.
    pub(in crate::switch) watch_group: Option<u32>,
    /// The actions, in order.
    pub(in crate::switch) actions: String,
}

impl Group {
    pub(in crate::switch) fn of(desc: &GroupDesc, names: Ports<'_>) -> Self {
        let bucket = |bucket: &flowyard_openflow::group::Bucket| Bucket {
            weight: bucket.weight,
            watch_port: (bucket.watch_port != reserved::ANY)
                .then(|| ofctl::port_text(bucket.watch_port, names)),
            watch_group: Some(bucket.watch_group).filter(|group| *group != ANY),
            actions: ofctl::actions_text(&bucket.actions, names),
        };
        Self {
            group: desc.group,
            kind: ofctl::group_type(desc.kind),
            buckets: desc.buckets.iter().map(bucket).collect(),
        }
    }
}

/// Frames and bytes of a part.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Counts {
    /// Frames.
    pub(in crate::switch) packets: u64,
    /// Bytes of these frames.
    pub(in crate::switch) bytes: u64,
}

fn counts(list: &[(u64, u64)]) -> Vec<Counts> {
    list.iter().map(|(packets, bytes)| Counts { packets: *packets, bytes: *bytes }).collect()
}

/// Counters of groups.
#[derive(Serialize, JsonSchema)]
pub(crate) struct GroupCounters {
    /// By number.
    pub(in crate::switch) groups: Vec<GroupCounter>,
}

/// Counters of a group.
#[derive(Serialize, JsonSchema)]
pub(crate) struct GroupCounter {
    /// The number of the group.
    pub(in crate::switch) group: u32,
    /// Flow entries and groups that use it.
    pub(in crate::switch) references: u32,
    /// Frames.
    pub(in crate::switch) packets: u64,
    /// Bytes of these frames.
    pub(in crate::switch) bytes: u64,
    /// The age in seconds.
    pub(in crate::switch) duration_s: f64,
    /// The counters of each bucket.
    pub(in crate::switch) buckets: Vec<Counts>,
}

impl From<&GroupStats> for GroupCounter {
    fn from(stats: &GroupStats) -> Self {
        Self {
            group: stats.group,
            references: stats.references,
            packets: stats.packets,
            bytes: stats.bytes,
            duration_s: seconds(stats.duration_sec, stats.duration_nsec),
            buckets: counts(&stats.buckets),
        }
    }
}

/// Meters.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Meters {
    /// By number.
    pub(in crate::switch) meters: Vec<Meter>,
}

/// A meter.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Meter {
    /// The number, or `controller`.
    pub(in crate::switch) meter: String,
    /// What rates and bursts count: `kbps` or `pktps`.
    pub(in crate::switch) unit: &'static str,
    /// The bands.
    pub(in crate::switch) bands: Vec<MeterBand>,
}

/// A band of a meter.
#[derive(Serialize, JsonSchema)]
pub(crate) struct MeterBand {
    /// `drop`, `dscp_remark` or `experimenter`.
    #[serde(rename = "type")]
    pub(in crate::switch) kind: &'static str,
    /// The rate above which it applies.
    pub(in crate::switch) rate: u32,
    /// The size of a burst; 0 is the default.
    pub(in crate::switch) burst_size: u32,
    /// By how much the drop precedence is raised, in a band of type `dscp_remark`.
    pub(in crate::switch) prec_level: Option<u8>,
}

fn meter_number(number: u32) -> String {
    if number == METER_CONTROLLER { "controller".into() } else { number.to_string() }
}

impl From<&MeterConfig> for Meter {
    fn from(config: &MeterConfig) -> Self {
        let band = |band: &Band| MeterBand {
            kind: match band {
                Band::Drop { .. } => "drop",
                Band::DscpRemark { .. } => "dscp_remark",
                Band::Experimenter { .. } => "experimenter",
            },
            rate: band.rate(),
            burst_size: band.burst(),
            prec_level: match band {
                Band::DscpRemark { levels, .. } => Some(*levels),
                _ => None,
            },
        };
        Self {
            meter: meter_number(config.meter),
            unit: if config.flags & meter_flags::PKTPS == 0 { "kbps" } else { "pktps" },
            bands: config.bands.iter().map(band).collect(),
        }
    }
}

/// Counters of meters.
#[derive(Serialize, JsonSchema)]
pub(crate) struct MeterCounters {
    /// By number.
    pub(in crate::switch) meters: Vec<MeterCounter>,
}

/// Counters of a meter.
#[derive(Serialize, JsonSchema)]
pub(crate) struct MeterCounter {
    /// The number of the meter, or `controller`.
    pub(in crate::switch) meter: String,
    /// Flow entries that use it.
    pub(in crate::switch) flows: u32,
    /// Frames.
    pub(in crate::switch) packets: u64,
    /// Bytes of these frames.
    pub(in crate::switch) bytes: u64,
    /// The age in seconds.
    pub(in crate::switch) duration_s: f64,
    /// Frames and bytes to which each band applied.
    pub(in crate::switch) bands: Vec<Counts>,
}

impl From<&MeterStats> for MeterCounter {
    fn from(stats: &MeterStats) -> Self {
        Self {
            meter: meter_number(stats.meter),
            flows: stats.flows,
            packets: stats.packets,
            bytes: stats.bytes,
            duration_s: seconds(stats.duration_sec, stats.duration_nsec),
            bands: counts(&stats.bands),
        }
    }
}

//! Replies: descriptions, counters, and the events of flow monitors.
#![allow(missing_docs, reason = "the fields are the specification's own")]

use super::{experimenter, head};
use crate::Version;
use crate::act::{self, Instruction};
use crate::flow::importance;
use crate::group::{self, Band, Bucket, GroupType};
use crate::io::{Io, Res};
use crate::matching::{Match, matching};
use crate::port::{self, Port, PortStats, Queue, QueueStats, Text};
use crate::problem;
use crate::table::{self, TableDesc, TableFeatures, TableStats};

/// The manufacturer and the description of the switch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Desc {
    pub manufacturer: Text<256>,
    pub hardware: Text<256>,
    pub software: Text<256>,
    pub serial: Text<32>,
    pub datapath: Text<256>,
}

/// A flow entry with its counters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FlowStats {
    pub table: u8,
    pub duration_sec: u32,
    pub duration_nsec: u32,
    pub priority: u16,
    pub idle_timeout: u16,
    pub hard_timeout: u16,
    pub flags: u16,
    pub importance: u16,
    pub cookie: u64,
    pub packets: u64,
    pub bytes: u64,
    pub matching: Match,
    pub instructions: Vec<Instruction>,
}

/// Counters of a group; `buckets` are the packets and bytes of each bucket.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupStats {
    pub group: u32,
    pub references: u32,
    pub packets: u64,
    pub bytes: u64,
    pub duration_sec: u32,
    pub duration_nsec: u32,
    pub buckets: Vec<(u64, u64)>,
}

/// The definition of a group.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupDesc {
    pub kind: GroupType,
    pub group: u32,
    pub buckets: Vec<Bucket>,
}

/// Counters of a meter; `bands` are the packets and bytes of each band.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MeterStats {
    pub meter: u32,
    pub flows: u32,
    pub packets: u64,
    pub bytes: u64,
    pub duration_sec: u32,
    pub duration_nsec: u32,
    pub bands: Vec<(u64, u64)>,
}

/// The definition of a meter.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MeterConfig {
    pub flags: u16,
    pub meter: u32,
    pub bands: Vec<Band>,
}

/// An event of a flow monitor.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Update {
    /// `event` is 0 existed at first, 1 added, 2 removed, 3 modified.
    Full {
        event: u16,
        table: u8,
        reason: u8,
        idle_timeout: u16,
        hard_timeout: u16,
        priority: u16,
        cookie: u64,
        matching: Match,
        instructions: Vec<Instruction>,
    },
    /// A change by the controller itself, with its xid.
    Abbrev(u32),
    #[default]
    Paused,
    Resumed,
}

/// The body of a reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    Desc(Box<Desc>),
    Flow(Vec<FlowStats>),
    Aggregate { packets: u64, bytes: u64, flows: u32 },
    Table(Vec<TableStats>),
    PortStats(Vec<PortStats>),
    QueueStats(Vec<QueueStats>),
    Group(Vec<GroupStats>),
    GroupDesc(Vec<GroupDesc>),
    GroupFeatures { types: u32, capabilities: u32, max: [u32; 4], actions: [u32; 4] },
    Meter(Vec<MeterStats>),
    MeterConfig(Vec<MeterConfig>),
    MeterFeatures { max: u32, bands: u32, capabilities: u32, max_bands: u8, max_color: u8 },
    TableFeatures(Vec<TableFeatures>),
    PortDesc(Vec<Port>),
    TableDesc(Vec<TableDesc>),
    QueueDesc(Vec<Queue>),
    FlowMonitor(Vec<Update>),
    Experimenter { id: u32, kind: u32, data: Vec<u8> },
}

impl Default for Reply {
    fn default() -> Self {
        Self::Flow(Vec::new())
    }
}

impl Reply {
    /// `OFPMP_*`.
    #[must_use]
    pub const fn number(&self) -> u16 {
        match self {
            Self::Desc(_) => 0,
            Self::Flow(_) => 1,
            Self::Aggregate { .. } => 2,
            Self::Table(_) => 3,
            Self::PortStats(_) => 4,
            Self::QueueStats(_) => 5,
            Self::Group(_) => 6,
            Self::GroupDesc(_) => 7,
            Self::GroupFeatures { .. } => 8,
            Self::Meter(_) => 9,
            Self::MeterConfig(_) => 10,
            Self::MeterFeatures { .. } => 11,
            Self::TableFeatures(_) => 12,
            Self::PortDesc(_) => 13,
            Self::TableDesc(_) => 14,
            Self::QueueDesc(_) => 15,
            Self::FlowMonitor(_) => 16,
            Self::Experimenter { .. } => 0xffff,
        }
    }

    fn blank(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Desc(Box::default()),
            1 => Self::Flow(Vec::new()),
            2 => Self::Aggregate { packets: 0, bytes: 0, flows: 0 },
            3 => Self::Table(Vec::new()),
            4 => Self::PortStats(Vec::new()),
            5 => Self::QueueStats(Vec::new()),
            6 => Self::Group(Vec::new()),
            7 => Self::GroupDesc(Vec::new()),
            8 => Self::GroupFeatures { types: 0, capabilities: 0, max: [0; 4], actions: [0; 4] },
            9 => Self::Meter(Vec::new()),
            10 => Self::MeterConfig(Vec::new()),
            11 => Self::MeterFeatures {
                max: 0,
                bands: 0,
                capabilities: 0,
                max_bands: 0,
                max_color: 0,
            },
            12 => Self::TableFeatures(Vec::new()),
            13 => Self::PortDesc(Vec::new()),
            14 => Self::TableDesc(Vec::new()),
            15 => Self::QueueDesc(Vec::new()),
            16 => Self::FlowMonitor(Vec::new()),
            0xffff => Self::Experimenter { id: 0, kind: 0, data: Vec::new() },
            _ => return None,
        })
    }
}

pub(crate) fn reply<C: Io>(c: &mut C, m: &mut Reply, more: &mut bool) -> Res {
    let number = head(c, m.number(), more)?;
    if C::READS {
        *m = Reply::blank(number).ok_or(problem::REQUEST_BAD_MULTIPART)?;
    }
    match m {
        Reply::Desc(desc) => {
            c.bytes(&mut desc.manufacturer.0)?;
            c.bytes(&mut desc.hardware.0)?;
            c.bytes(&mut desc.software.0)?;
            c.bytes(&mut desc.serial.0)?;
            c.bytes(&mut desc.datapath.0)
        }
        Reply::Flow(list) => c.items(list, flow_stats),
        Reply::Aggregate { packets, bytes, flows } => {
            c.u64(packets)?;
            c.u64(bytes)?;
            c.u32(flows)?;
            c.pad(4)
        }
        Reply::Table(list) => c.items(list, table::table_stats),
        Reply::PortStats(list) => c.items(list, port::port_stats),
        Reply::QueueStats(list) => c.items(list, port::queue_stats),
        Reply::Group(list) => c.items(list, group_stats),
        Reply::GroupDesc(list) => c.items(list, |c, m| {
            let mut mark = c.open();
            c.len(&mut mark)?;
            c.choice(&mut m.kind, 1, problem::GROUP_BAD_TYPE)?;
            c.pad(1)?;
            c.u32(&mut m.group)?;
            c.list(&mut m.buckets, group::bucket)?;
            c.close(&mark)
        }),
        Reply::GroupFeatures { types, capabilities, max, actions } => {
            c.u32(types)?;
            c.u32(capabilities)?;
            max.iter_mut().chain(actions).try_for_each(|word| c.u32(word))
        }
        Reply::Meter(list) => c.items(list, meter_stats),
        Reply::MeterConfig(list) => c.items(list, |c, m| {
            let mut mark = c.open();
            c.len(&mut mark)?;
            c.u16(&mut m.flags)?;
            c.u32(&mut m.meter)?;
            c.list(&mut m.bands, group::band)?;
            c.close(&mark)
        }),
        Reply::MeterFeatures { max, bands, capabilities, max_bands, max_color } => {
            c.u32(max)?;
            c.u32(bands)?;
            c.u32(capabilities)?;
            c.u8(max_bands)?;
            c.u8(max_color)?;
            c.pad(2)
        }
        Reply::TableFeatures(list) => c.items(list, table::table_features),
        Reply::PortDesc(list) => c.items(list, port::port),
        Reply::TableDesc(list) => c.items(list, table::table_desc),
        Reply::QueueDesc(list) => c.items(list, port::queue),
        Reply::FlowMonitor(list) => c.items(list, update),
        Reply::Experimenter { id, kind, data } => experimenter(c, id, kind, data),
    }
}

fn flow_stats<C: Io>(c: &mut C, m: &mut FlowStats) -> Res {
    let old = c.version() == Version::V10;
    let mut mark = c.open();
    c.len(&mut mark)?;
    c.u8(&mut m.table)?;
    c.pad(1)?;
    if old {
        matching(c, &mut m.matching)?;
    }
    c.u32(&mut m.duration_sec)?;
    c.u32(&mut m.duration_nsec)?;
    c.u16(&mut m.priority)?;
    c.u16(&mut m.idle_timeout)?;
    c.u16(&mut m.hard_timeout)?;
    if old {
        c.pad(6)?;
    } else {
        c.u16(&mut m.flags)?;
        importance(c, &mut m.importance)?;
        c.pad(2)?;
    }
    c.u64(&mut m.cookie)?;
    c.u64(&mut m.packets)?;
    c.u64(&mut m.bytes)?;
    if !old {
        matching(c, &mut m.matching)?;
    }
    act::instructions(c, &m.matching, &mut m.instructions)?;
    c.close(&mark)
}

fn pairs<C: Io>(c: &mut C, list: &mut Vec<(u64, u64)>) -> Res {
    c.list(list, |c, (packets, bytes)| {
        c.u64(packets)?;
        c.u64(bytes)
    })
}

fn group_stats<C: Io>(c: &mut C, m: &mut GroupStats) -> Res {
    let mut mark = c.open();
    c.len(&mut mark)?;
    c.pad(2)?;
    c.u32(&mut m.group)?;
    c.u32(&mut m.references)?;
    c.pad(4)?;
    c.u64(&mut m.packets)?;
    c.u64(&mut m.bytes)?;
    c.u32(&mut m.duration_sec)?;
    c.u32(&mut m.duration_nsec)?;
    pairs(c, &mut m.buckets)?;
    c.close(&mark)
}

fn meter_stats<C: Io>(c: &mut C, m: &mut MeterStats) -> Res {
    let mut mark = c.open();
    c.u32(&mut m.meter)?;
    c.len(&mut mark)?;
    c.pad(6)?;
    c.u32(&mut m.flows)?;
    c.u64(&mut m.packets)?;
    c.u64(&mut m.bytes)?;
    c.u32(&mut m.duration_sec)?;
    c.u32(&mut m.duration_nsec)?;
    pairs(c, &mut m.bands)?;
    c.close(&mark)
}

fn update<C: Io>(c: &mut C, m: &mut Update) -> Res {
    let mut mark = c.open();
    c.len(&mut mark)?;
    let mut number = match m {
        Update::Full { event, .. } => (*event).into(),
        Update::Abbrev(_) => 4,
        Update::Paused => 5,
        Update::Resumed => 6,
    };
    c.draw(&mut number, 2, &[0, 1, 2, 3, 4, 5, 6])?;
    if C::READS {
        *m = match number {
            0..=3 => Update::Full {
                event: number as u16,
                table: 0,
                reason: 0,
                idle_timeout: 0,
                hard_timeout: 0,
                priority: 0,
                cookie: 0,
                matching: Match::default(),
                instructions: Vec::new(),
            },
            4 => Update::Abbrev(0),
            5 => Update::Paused,
            6 => Update::Resumed,
            _ => return Err(problem::REQUEST_BAD_TYPE),
        };
    }
    match m {
        Update::Full {
            table,
            reason,
            idle_timeout,
            hard_timeout,
            priority,
            cookie,
            matching: wanted,
            instructions,
            ..
        } => {
            c.u8(table)?;
            c.u8(reason)?;
            c.u16(idle_timeout)?;
            c.u16(hard_timeout)?;
            c.u16(priority)?;
            c.pad(4)?;
            c.u64(cookie)?;
            matching(c, wanted)?;
            act::instructions(c, wanted, instructions)?;
        }
        Update::Abbrev(xid) => c.u32(xid)?,
        Update::Paused | Update::Resumed => c.pad(4)?,
    }
    c.close(&mark)
}

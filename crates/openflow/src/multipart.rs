//! Multipart messages, which 1.0 calls statistics: requests and replies.
//!
//! [`crate::encode`] splits a reply that does not fit 65,535 bytes between elements, and sets the
//! flag "more" on all messages but the last.
#![allow(missing_docs, reason = "the fields are the specification's own")]

mod reply;

pub use crate::port::NOT_COUNTED;
pub use reply::{Desc, FlowStats, GroupDesc, GroupStats, MeterConfig, MeterStats, Reply, Update};

use crate::io::{Io, Res, choice};
use crate::matching::{Match, matching};
use crate::table::TableFeatures;
use crate::{Version, group, problem, table};

pub(crate) use reply::reply;

/// The flow entries that a flow, aggregate or monitor request selects.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FlowFilter {
    pub table: u8,
    pub out_port: u32,
    pub out_group: u32,
    pub cookie: u64,
    pub cookie_mask: u64,
    pub matching: Match,
}

/// The body of a request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Request {
    #[default]
    Desc,
    Flow(FlowFilter),
    Aggregate(FlowFilter),
    Table,
    PortStats(u32),
    QueueStats {
        port: u32,
        queue: u32,
    },
    Group(u32),
    GroupDesc,
    GroupFeatures,
    Meter(u32),
    MeterConfig(u32),
    MeterFeatures,
    /// Empty to read the features; otherwise the features that the tables are to have.
    TableFeatures(Vec<TableFeatures>),
    PortDesc,
    TableDesc,
    QueueDesc {
        port: u32,
        queue: u32,
    },
    FlowMonitor(Vec<Monitor>),
    Experimenter {
        id: u32,
        kind: u32,
        data: Vec<u8>,
    },
}

const V10: &[u32] = &[0, 1, 2, 3, 4, 5, 0xffff];
const V13: &[u32] = &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 0xffff];
const V14: &[u32] = &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 0xffff];

const fn kinds(version: Version) -> &'static [u32] {
    match version {
        Version::V10 => V10,
        Version::V13 => V13,
        Version::V14 => V14,
    }
}

impl Request {
    /// `OFPMP_*`.
    #[must_use]
    pub const fn number(&self) -> u16 {
        match self {
            Self::Desc => 0,
            Self::Flow(_) => 1,
            Self::Aggregate(_) => 2,
            Self::Table => 3,
            Self::PortStats(_) => 4,
            Self::QueueStats { .. } => 5,
            Self::Group(_) => 6,
            Self::GroupDesc => 7,
            Self::GroupFeatures => 8,
            Self::Meter(_) => 9,
            Self::MeterConfig(_) => 10,
            Self::MeterFeatures => 11,
            Self::TableFeatures(_) => 12,
            Self::PortDesc => 13,
            Self::TableDesc => 14,
            Self::QueueDesc { .. } => 15,
            Self::FlowMonitor(_) => 16,
            Self::Experimenter { .. } => 0xffff,
        }
    }

    /// Whether a request of this type has no body.
    pub(crate) const fn is_empty(&self) -> bool {
        matches!(
            self,
            Self::Desc
                | Self::Table
                | Self::GroupDesc
                | Self::GroupFeatures
                | Self::MeterFeatures
                | Self::PortDesc
                | Self::TableDesc
        )
    }

    fn blank(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Desc,
            1 => Self::Flow(FlowFilter::default()),
            2 => Self::Aggregate(FlowFilter::default()),
            3 => Self::Table,
            4 => Self::PortStats(0),
            5 => Self::QueueStats { port: 0, queue: 0 },
            6 => Self::Group(0),
            7 => Self::GroupDesc,
            8 => Self::GroupFeatures,
            9 => Self::Meter(0),
            10 => Self::MeterConfig(0),
            11 => Self::MeterFeatures,
            12 => Self::TableFeatures(Vec::new()),
            13 => Self::PortDesc,
            14 => Self::TableDesc,
            15 => Self::QueueDesc { port: 0, queue: 0 },
            16 => Self::FlowMonitor(Vec::new()),
            0xffff => Self::Experimenter { id: 0, kind: 0, data: Vec::new() },
            _ => return None,
        })
    }
}

/// Type, flags, and before the body four bytes of padding, which 1.0 does not have.
fn head<C: Io>(c: &mut C, number: u16, more: &mut bool) -> Result<u32, problem::Problem> {
    let mut number = number.into();
    c.draw(&mut number, 2, kinds(c.version()))?;
    if !kinds(c.version()).contains(&number) {
        return Err(problem::REQUEST_BAD_MULTIPART);
    }
    let mut flags = u32::from(*more);
    c.draw(&mut flags, 2, &[0, 1])?;
    *more = flags & 1 != 0;
    c.pad(if c.version() == Version::V10 { 0 } else { 4 })?;
    Ok(number)
}

pub(crate) fn request<C: Io>(c: &mut C, m: &mut Request, more: &mut bool) -> Res {
    let number = head(c, m.number(), more)?;
    if C::READS {
        *m = Request::blank(number).ok_or(problem::REQUEST_BAD_MULTIPART)?;
    }
    let old = c.version() == Version::V10;
    match m {
        Request::Flow(filter) | Request::Aggregate(filter) => flow_filter(c, filter),
        Request::PortStats(port) => {
            c.port(port)?;
            c.pad(if old { 6 } else { 4 })
        }
        Request::QueueStats { port, queue } | Request::QueueDesc { port, queue } => {
            c.port(port)?;
            c.pad(if old { 2 } else { 0 })?;
            c.u32(queue)
        }
        Request::Group(number) | Request::Meter(number) | Request::MeterConfig(number) => {
            c.u32(number)?;
            c.pad(4)
        }
        Request::TableFeatures(list) => c.items(list, table::table_features),
        Request::FlowMonitor(list) => c.items(list, monitor),
        Request::Experimenter { id, kind, data } => experimenter(c, id, kind, data),
        Request::Desc
        | Request::Table
        | Request::GroupDesc
        | Request::GroupFeatures
        | Request::MeterFeatures
        | Request::PortDesc
        | Request::TableDesc => Ok(()),
    }
}

fn experimenter<C: Io>(c: &mut C, id: &mut u32, kind: &mut u32, data: &mut Vec<u8>) -> Res {
    c.u32(id)?;
    if c.version() != Version::V10 {
        c.u32(kind)?;
    }
    c.rest(data)
}

fn flow_filter<C: Io>(c: &mut C, m: &mut FlowFilter) -> Res {
    if c.version() == Version::V10 {
        matching(c, &mut m.matching)?;
        c.u8(&mut m.table)?;
        c.pad(1)?;
        c.port(&mut m.out_port)?;
        if C::READS {
            m.out_group = group::ANY;
        }
        return Ok(());
    }
    c.u8(&mut m.table)?;
    c.pad(3)?;
    c.u32(&mut m.out_port)?;
    c.u32(&mut m.out_group)?;
    c.pad(4)?;
    c.u64(&mut m.cookie)?;
    c.u64(&mut m.cookie_mask)?;
    matching(c, &mut m.matching)
}

choice! {
    /// `OFPFMC_*`.
    MonitorCommand { Add = 0, Modify = 1, Delete = 2, }
}

/// A flow monitor (1.4).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Monitor {
    pub id: u32,
    pub out_port: u32,
    pub out_group: u32,
    pub flags: u16,
    pub table: u8,
    pub command: MonitorCommand,
    pub matching: Match,
}

fn monitor<C: Io>(c: &mut C, m: &mut Monitor) -> Res {
    c.u32(&mut m.id)?;
    c.u32(&mut m.out_port)?;
    c.u32(&mut m.out_group)?;
    c.u16(&mut m.flags)?;
    c.u8(&mut m.table)?;
    c.choice(&mut m.command, 1, problem::MONITOR_BAD_COMMAND)?;
    matching(c, &mut m.matching)
}

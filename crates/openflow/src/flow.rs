//! Flow-mod, flow-removed, packet-in and packet-out.
#![allow(missing_docs, reason = "the fields are the specification's own")]

use crate::act::{self, Action, Instruction};
use crate::io::{Io, Res, choice};
use crate::matching::{Match, matching};
use crate::oxm::{Field, Oxm};
use crate::problem::{self, Problem};
use crate::{Version, v10};

choice! {
    /// `OFPFC_*`.
    FlowCommand { Add = 0, Modify = 1, ModifyStrict = 2, Delete = 3, DeleteStrict = 4, }
}

impl FlowCommand {
    pub(crate) const fn deletes(self) -> bool {
        matches!(self, Self::Delete | Self::DeleteStrict)
    }
}

/// `OFPFF_*`.
pub mod flags {
    #![allow(missing_docs, reason = "the names are the specification's own")]
    pub const SEND_FLOW_REM: u16 = 1;
    pub const CHECK_OVERLAP: u16 = 2;
    /// In 1.0 the same bit means an emergency flow.
    pub const RESET_COUNTS: u16 = 4;
    pub const NO_PKT_COUNTS: u16 = 8;
    pub const NO_BYT_COUNTS: u16 = 16;
}

/// Changes flow entries. The actions of a 1.0 message become one apply-actions instruction, and its
/// table is 0.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FlowMod {
    pub cookie: u64,
    pub cookie_mask: u64,
    pub table: u8,
    pub command: FlowCommand,
    /// In seconds.
    pub idle_timeout: u16,
    /// In seconds.
    pub hard_timeout: u16,
    pub priority: u16,
    pub buffer: u32,
    pub out_port: u32,
    pub out_group: u32,
    pub flags: u16,
    /// 1.4 only: entries of lower importance are evicted first.
    pub importance: u16,
    pub matching: Match,
    pub instructions: Vec<Instruction>,
}

pub(crate) fn flow_mod<C: Io>(c: &mut C, m: &mut FlowMod) -> Res {
    if c.version() == Version::V10 {
        if !C::READS && !matches!(m.table, 0 | crate::table::ALL) {
            return Err(Problem { why: "1.0 has only table 0", ..problem::FLOW_BAD_TABLE });
        }
        let is_exact = v10::matching(c, &mut m.matching)?;
        c.u64(&mut m.cookie)?;
        c.choice(&mut m.command, 2, problem::FLOW_BAD_COMMAND)?;
        c.u16(&mut m.idle_timeout)?;
        c.u16(&mut m.hard_timeout)?;
        c.u16(&mut m.priority)?;
        c.u32(&mut m.buffer)?;
        c.port(&mut m.out_port)?;
        c.u16(&mut m.flags)?;
        if C::READS {
            m.out_group = crate::group::ANY;
            // The priority of an entry without wildcards is ignored: it is the highest.
            m.priority = if is_exact { u16::MAX } else { m.priority };
        }
        return act::instructions(c, &m.matching, &mut m.instructions);
    }
    c.u64(&mut m.cookie)?;
    c.u64(&mut m.cookie_mask)?;
    c.u8(&mut m.table)?;
    c.choice(&mut m.command, 1, problem::FLOW_BAD_COMMAND)?;
    c.u16(&mut m.idle_timeout)?;
    c.u16(&mut m.hard_timeout)?;
    c.u16(&mut m.priority)?;
    c.u32(&mut m.buffer)?;
    c.u32(&mut m.out_port)?;
    c.u32(&mut m.out_group)?;
    c.u16(&mut m.flags)?;
    importance(c, &mut m.importance)?;
    matching(c, &mut m.matching)?;
    act::instructions(c, &m.matching, &mut m.instructions)
}

/// Two bytes of padding before 1.4.
pub(crate) fn importance<C: Io>(c: &mut C, importance: &mut u16) -> Res {
    if c.version() == Version::V14 { c.u16(importance) } else { c.pad(2) }
}

choice! {
    /// `OFPRR_*`.
    RemovedReason {
        IdleTimeout = 0, HardTimeout = 1, Delete = 2, GroupDelete = 3, MeterDelete = 4,
        Eviction = 5,
    }
}

/// Reports that a flow entry was removed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FlowRemoved {
    pub cookie: u64,
    pub priority: u16,
    pub reason: RemovedReason,
    pub table: u8,
    pub duration_sec: u32,
    pub duration_nsec: u32,
    pub idle_timeout: u16,
    pub hard_timeout: u16,
    pub packets: u64,
    pub bytes: u64,
    pub matching: Match,
}

pub(crate) fn flow_removed<C: Io>(c: &mut C, m: &mut FlowRemoved) -> Res {
    let old = c.version() == Version::V10;
    if old {
        matching(c, &mut m.matching)?;
    }
    c.u64(&mut m.cookie)?;
    c.u16(&mut m.priority)?;
    c.choice(&mut m.reason, 1, problem::REQUEST_BAD_TYPE)?;
    if old {
        c.pad(1)?;
    } else {
        c.u8(&mut m.table)?;
    }
    c.u32(&mut m.duration_sec)?;
    c.u32(&mut m.duration_nsec)?;
    c.u16(&mut m.idle_timeout)?;
    if old {
        c.pad(2)?;
    } else {
        c.u16(&mut m.hard_timeout)?;
    }
    c.u64(&mut m.packets)?;
    c.u64(&mut m.bytes)?;
    if old { Ok(()) } else { matching(c, &mut m.matching) }
}

choice! {
    /// `OFPR_*`.
    InReason {
        NoMatch = 0, Action = 1, InvalidTtl = 2, ActionSet = 3, Group = 4, PacketOut = 5,
    }
}

/// A frame that is sent to the controller.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PacketIn {
    pub buffer: u32,
    /// The length of the frame before it was cut.
    pub total: u16,
    pub reason: InReason,
    pub table: u8,
    pub cookie: u64,
    pub matching: Match,
    pub data: Vec<u8>,
}

pub(crate) fn packet_in<C: Io>(c: &mut C, m: &mut PacketIn) -> Res {
    c.u32(&mut m.buffer)?;
    c.u16(&mut m.total)?;
    if c.version() == Version::V10 {
        let mut port = m.matching.exact(Field::InPort).unwrap_or(0) as u32;
        c.port(&mut port)?;
        if C::READS {
            m.matching = Match(vec![Oxm::exact(Field::InPort, port.into())]);
        }
        c.choice(&mut m.reason, 1, problem::REQUEST_BAD_TYPE)?;
        c.pad(1)?;
        return c.rest(&mut m.data);
    }
    c.choice(&mut m.reason, 1, problem::REQUEST_BAD_TYPE)?;
    c.u8(&mut m.table)?;
    c.u64(&mut m.cookie)?;
    matching(c, &mut m.matching)?;
    c.pad(2)?;
    c.rest(&mut m.data)
}

/// A frame that the controller sends.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PacketOut {
    pub buffer: u32,
    pub in_port: u32,
    pub actions: Vec<Action>,
    pub data: Vec<u8>,
}

pub(crate) fn packet_out<C: Io>(c: &mut C, m: &mut PacketOut) -> Res {
    c.u32(&mut m.buffer)?;
    c.port(&mut m.in_port)?;
    // The length is that of the actions alone, which follow the padding.
    let mut mark = c.open();
    let was = c.blame(problem::ACTION_BAD_LEN);
    c.len_behind(&mut mark, if c.version() == Version::V10 { 0 } else { 6 })?;
    act::actions(c, &mut m.actions)?;
    c.close(&mark)?;
    c.blame(was);
    c.rest(&mut m.data)
}

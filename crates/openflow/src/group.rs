//! Groups and meters (1.3.5, sections 5.6, 5.7, 7.3.4.3 and 7.3.4.4).
#![allow(missing_docs, reason = "the fields are the specification's own")]

use crate::act::{self, Action};
use crate::io::{Io, Res, choice};
use crate::problem;

/// `OFPG_ANY`: the request does not depend on a group.
pub const ANY: u32 = 0xffff_ffff;
/// `OFPG_ALL`: every group, in a request to delete.
pub const ALL: u32 = 0xffff_fffc;
/// `OFPG_MAX`: the highest number of a group.
pub const MAX: u32 = 0xffff_ff00;
/// `OFPM_MAX`: the highest number of a meter.
pub const METER_MAX: u32 = 0xffff_0000;
/// `OFPM_ALL`: every meter.
pub const METER_ALL: u32 = 0xffff_ffff;
/// `OFPM_CONTROLLER`: the meter for packets that are sent to controllers.
pub const METER_CONTROLLER: u32 = 0xffff_fffe;

choice! {
    /// `OFPGC_*`.
    GroupCommand { Add = 0, Modify = 1, Delete = 2, }
}

choice! {
    /// `OFPGT_*`.
    GroupType { All = 0, Select = 1, Indirect = 2, FastFailover = 3, }
}

/// A bucket: one of the lists of actions among which a group chooses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Bucket {
    pub weight: u16,
    pub watch_port: u32,
    pub watch_group: u32,
    pub actions: Vec<Action>,
}

pub(crate) fn bucket<C: Io>(c: &mut C, m: &mut Bucket) -> Res {
    let was = c.blame(problem::GROUP_BAD_BUCKET);
    let mut mark = c.open();
    c.len(&mut mark)?;
    c.u16(&mut m.weight)?;
    c.u32(&mut m.watch_port)?;
    c.u32(&mut m.watch_group)?;
    c.pad(4)?;
    act::actions(c, &mut m.actions)?;
    c.close(&mark)?;
    c.blame(was);
    Ok(())
}

/// Adds, modifies or deletes a group.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupMod {
    pub command: GroupCommand,
    pub kind: GroupType,
    pub group: u32,
    pub buckets: Vec<Bucket>,
}

pub(crate) fn group_mod<C: Io>(c: &mut C, m: &mut GroupMod) -> Res {
    c.choice(&mut m.command, 2, problem::GROUP_BAD_COMMAND)?;
    c.choice(&mut m.kind, 1, problem::GROUP_BAD_TYPE)?;
    c.pad(1)?;
    c.u32(&mut m.group)?;
    c.list(&mut m.buckets, bucket)
}

choice! {
    /// `OFPMC_*`.
    MeterCommand { Add = 0, Modify = 1, Delete = 2, }
}

/// `OFPMF_*`.
pub mod meter_flags {
    #![allow(missing_docs, reason = "the names are the specification's own")]
    pub const KBPS: u16 = 1;
    pub const PKTPS: u16 = 2;
    pub const BURST: u16 = 4;
    pub const STATS: u16 = 8;
}

/// A meter band: what happens to packets above a rate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Band {
    Drop {
        rate: u32,
        burst: u32,
    },
    /// Increases the drop precedence in the DSCP.
    DscpRemark {
        rate: u32,
        burst: u32,
        levels: u8,
    },
    Experimenter {
        rate: u32,
        burst: u32,
        id: u32,
        data: Vec<u8>,
    },
}

impl Default for Band {
    fn default() -> Self {
        Self::Drop { rate: 0, burst: 0 }
    }
}

impl Band {
    /// In kilobits or packets per second.
    #[must_use]
    pub const fn rate(&self) -> u32 {
        match self {
            Self::Drop { rate, .. }
            | Self::DscpRemark { rate, .. }
            | Self::Experimenter { rate, .. } => *rate,
        }
    }

    /// In kilobits or packets.
    #[must_use]
    pub const fn burst(&self) -> u32 {
        match self {
            Self::Drop { burst, .. }
            | Self::DscpRemark { burst, .. }
            | Self::Experimenter { burst, .. } => *burst,
        }
    }
}

pub(crate) fn band<C: Io>(c: &mut C, m: &mut Band) -> Res {
    let was = c.blame(problem::METER_BAD_BAND);
    let mut mark = c.open();
    let mut number = match m {
        Band::Drop { .. } => 1,
        Band::DscpRemark { .. } => 2,
        Band::Experimenter { .. } => 0xffff,
    };
    c.draw(&mut number, 2, &[1, 2, 0xffff])?;
    c.len(&mut mark)?;
    if C::READS {
        *m = match number {
            1 => Band::Drop { rate: 0, burst: 0 },
            2 => Band::DscpRemark { rate: 0, burst: 0, levels: 0 },
            0xffff => Band::Experimenter { rate: 0, burst: 0, id: 0, data: Vec::new() },
            _ => return Err(problem::METER_BAD_BAND),
        };
    }
    let (Band::Drop { rate, burst }
    | Band::DscpRemark { rate, burst, .. }
    | Band::Experimenter { rate, burst, .. }) = m;
    c.u32(rate)?;
    c.u32(burst)?;
    match m {
        Band::Drop { .. } => c.pad(4)?,
        Band::DscpRemark { levels, .. } => {
            c.u8(levels)?;
            c.pad(3)?;
        }
        Band::Experimenter { id, data, .. } => {
            c.u32(id)?;
            c.rest(data)?;
        }
    }
    c.close(&mark)?;
    c.blame(was);
    Ok(())
}

/// Adds, modifies or deletes a meter.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MeterMod {
    pub command: MeterCommand,
    pub flags: u16,
    pub meter: u32,
    pub bands: Vec<Band>,
}

pub(crate) fn meter_mod<C: Io>(c: &mut C, m: &mut MeterMod) -> Res {
    c.choice(&mut m.command, 2, problem::METER_BAD_COMMAND)?;
    c.u16(&mut m.flags)?;
    c.u32(&mut m.meter)?;
    c.list(&mut m.bands, band)
}

//! Actions and instructions (1.3.5, sections 7.2.4 and 7.2.5).
//!
//! An action of 1.0 that is equivalent to a set-field is represented as one. The others have
//! variants of their own: a 1.0 VLAN action adds a tag if the frame has none, and a 1.0 port action
//! applies to any transport protocol.
#![allow(missing_docs, reason = "the fields are the specification's own")]

use crate::io::{Io, Res};
use crate::oxm::{self, Field, IN_SET, Oxm, VID_PRESENT};
use crate::problem::{self, Problem};
use crate::{Match, Version, translate};

/// An action on a frame.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Sends the frame through a port; a controller gets `max_len` bytes of it.
    Output {
        port: u32,
        max_len: u16,
    },
    CopyTtlOut,
    CopyTtlIn,
    SetMplsTtl(u8),
    DecMplsTtl,
    PushVlan(u16),
    PopVlan,
    PushMpls(u16),
    PopMpls(u16),
    SetQueue(u32),
    Group(u32),
    SetNwTtl(u8),
    DecNwTtl,
    SetField(Oxm),
    PushPbb(u16),
    PopPbb,
    /// 1.0: sets the VLAN ID; adds a tag if the frame has none.
    SetVlanVid(u16),
    /// 1.0: sets the VLAN priority; adds a tag if the frame has none.
    SetVlanPcp(u8),
    /// 1.0: removes the tag, if the frame has one.
    StripVlan,
    /// 1.0: sets the source port of TCP or UDP, or the ICMP type.
    SetTpSrc(u16),
    /// 1.0: sets the destination port of TCP or UDP, or the ICMP code.
    SetTpDst(u16),
    /// 1.0: sends the frame through a queue of a port.
    Enqueue {
        port: u32,
        queue: u32,
    },
    Experimenter {
        id: u32,
        data: Vec<u8>,
    },
}

impl Action {
    /// A set-field of the VLAN ID has the bit `OFPVID_PRESENT`, because the tag is there; here it is
    /// added if a controller left it out.
    pub(crate) fn mark_tag(&mut self) {
        if let Self::SetField(Oxm { field: Field::VlanVid, value, .. }) = self {
            *value |= VID_PRESENT;
        }
    }
}

impl Default for Action {
    fn default() -> Self {
        Self::Output { port: 0, max_len: 0 }
    }
}

const NEW: &[u32] = &[0, 11, 12, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 0xffff];
const OLD: &[u32] = &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0xffff];

impl Action {
    /// The action's number, `OFPAT_*`, if `version` has the action.
    #[must_use]
    pub const fn number(&self, version: Version) -> Option<u16> {
        let old = matches!(version, Version::V10);
        Some(match self {
            Self::Output { .. } => 0,
            Self::Experimenter { .. } => 0xffff,
            Self::SetVlanVid(_) if old => 1,
            Self::SetVlanPcp(_) if old => 2,
            Self::StripVlan if old => 3,
            Self::SetField(oxm) if old => match oxm.field {
                Field::EthSrc => 4,
                Field::EthDst => 5,
                Field::Ipv4Src => 6,
                Field::Ipv4Dst => 7,
                Field::IpDscp => 8,
                _ => return None,
            },
            Self::SetTpSrc(_) if old => 9,
            Self::SetTpDst(_) if old => 10,
            Self::Enqueue { .. } if old => 11,
            _ if old => return None,
            Self::CopyTtlOut => 11,
            Self::CopyTtlIn => 12,
            Self::SetMplsTtl(_) => 15,
            Self::DecMplsTtl => 16,
            Self::PushVlan(_) => 17,
            Self::PopVlan => 18,
            Self::PushMpls(_) => 19,
            Self::PopMpls(_) => 20,
            Self::SetQueue(_) => 21,
            Self::Group(_) => 22,
            Self::SetNwTtl(_) => 23,
            Self::DecNwTtl => 24,
            Self::SetField(_) => 25,
            Self::PushPbb(_) => 26,
            Self::PopPbb => 27,
            _ => return None,
        })
    }

    fn blank(number: u32, version: Version) -> Option<Self> {
        let set = |field| Self::SetField(Oxm::exact(field, 0));
        Some(match (number, version == Version::V10) {
            (0, _) => Self::default(),
            (0xffff, _) => Self::Experimenter { id: 0, data: Vec::new() },
            (1, true) => Self::SetVlanVid(0),
            (2, true) => Self::SetVlanPcp(0),
            (3, true) => Self::StripVlan,
            (4, true) => set(Field::EthSrc),
            (5, true) => set(Field::EthDst),
            (6, true) => set(Field::Ipv4Src),
            (7, true) => set(Field::Ipv4Dst),
            (8, true) => set(Field::IpDscp),
            (9, true) => Self::SetTpSrc(0),
            (10, true) => Self::SetTpDst(0),
            (11, true) => Self::Enqueue { port: 0, queue: 0 },
            (_, true) => return None,
            (11, _) => Self::CopyTtlOut,
            (12, _) => Self::CopyTtlIn,
            (15, _) => Self::SetMplsTtl(0),
            (16, _) => Self::DecMplsTtl,
            (17, _) => Self::PushVlan(0),
            (18, _) => Self::PopVlan,
            (19, _) => Self::PushMpls(0),
            (20, _) => Self::PopMpls(0),
            (21, _) => Self::SetQueue(0),
            (22, _) => Self::Group(0),
            (23, _) => Self::SetNwTtl(0),
            (24, _) => Self::DecNwTtl,
            (25, _) => set(Field::EthDst),
            (26, _) => Self::PushPbb(0),
            (27, _) => Self::PopPbb,
            _ => return None,
        })
    }
}

/// Reads or writes the actions up to the end of the record.
pub(crate) fn actions<C: Io>(c: &mut C, list: &mut Vec<Action>) -> Res {
    c.list(list, action)
}

fn action<C: Io>(c: &mut C, action: &mut Action) -> Res {
    let old = c.version() == Version::V10;
    let unknown = Problem { why: "the version has no such action", ..problem::ACTION_BAD_TYPE };
    let was = c.blame(problem::ACTION_BAD_LEN);
    let mut mark = c.open();
    let mut number = action.number(c.version()).ok_or(unknown)?.into();
    c.draw(&mut number, 2, if old { OLD } else { NEW })?;
    c.len(&mut mark)?;
    if C::READS {
        *action = Action::blank(number, c.version()).ok_or(problem::ACTION_BAD_TYPE)?;
    }
    match action {
        Action::Output { port, max_len } => {
            c.port(port)?;
            c.u16(max_len)?;
            c.pad(if old { 0 } else { 6 })?;
        }
        Action::SetMplsTtl(byte) | Action::SetNwTtl(byte) | Action::SetVlanPcp(byte) => {
            c.u8(byte)?;
            c.pad(3)?;
        }
        Action::PushVlan(to) => push(c, to, &[0x8100, 0x88a8])?,
        Action::PushMpls(to) => push(c, to, &[0x8847, 0x8848])?,
        Action::PushPbb(to) => push(c, to, &[0x88e7])?,
        Action::PopMpls(to)
        | Action::SetVlanVid(to)
        | Action::SetTpSrc(to)
        | Action::SetTpDst(to) => {
            c.u16(to)?;
            c.pad(2)?;
        }
        Action::SetQueue(number) | Action::Group(number) => c.u32(number)?,
        Action::SetField(oxm) if old => set_v10(c, oxm)?,
        Action::SetField(field) => {
            oxm::oxm(c, field, &IN_SET)?;
            c.align(&mark)?;
        }
        Action::Enqueue { port, queue } => {
            c.port(port)?;
            c.pad(6)?;
            c.u32(queue)?;
        }
        Action::Experimenter { id, data } => {
            c.u32(id)?;
            c.rest(data)?;
            if C::MAKES {
                data.truncate(data.len() / 8 * 8);
            }
            if !data.len().is_multiple_of(8) {
                return Err(problem::ACTION_BAD_LEN);
            }
        }
        Action::CopyTtlOut
        | Action::CopyTtlIn
        | Action::DecMplsTtl
        | Action::PopVlan
        | Action::DecNwTtl
        | Action::PopPbb
        | Action::StripVlan => c.pad(4)?,
    }
    c.close(&mark)?;
    c.blame(was);
    Ok(())
}

fn push<C: Io>(c: &mut C, to: &mut u16, known: &[u32]) -> Res {
    let mut number = (*to).into();
    c.draw(&mut number, 2, known)?;
    *to = number as u16;
    c.pad(2)
}

/// Ethernet addresses take 6 bytes, IPv4 addresses 4. In the TOS byte, the DSCP is above the two
/// lowest bits.
fn set_v10<C: Io>(c: &mut C, oxm: &mut Oxm) -> Res {
    let shift = if oxm.field == Field::IpDscp { 2 } else { 0 };
    let mut bytes = (oxm.value << shift).to_be_bytes();
    let size = oxm.field.bytes();
    c.bytes(&mut bytes[16 - size..])?;
    *oxm = Oxm::exact(oxm.field, u128::from_be_bytes(bytes) >> shift);
    c.pad(match size {
        6 => 6,
        1 => 3,
        _ => 0,
    })
}

/// An instruction of a flow entry.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Instruction {
    GotoTable(u8),
    WriteMetadata {
        value: u64,
        mask: u64,
    },
    WriteActions(Vec<Action>),
    ApplyActions(Vec<Action>),
    #[default]
    ClearActions,
    Meter(u32),
    Experimenter {
        id: u32,
        data: Vec<u8>,
    },
}

impl Instruction {
    /// `OFPIT_*`.
    #[must_use]
    pub const fn number(&self) -> u16 {
        match self {
            Self::GotoTable(_) => 1,
            Self::WriteMetadata { .. } => 2,
            Self::WriteActions(_) => 3,
            Self::ApplyActions(_) => 4,
            Self::ClearActions => 5,
            Self::Meter(_) => 6,
            Self::Experimenter { .. } => 0xffff,
        }
    }

    /// As [`Action::mark_tag`], for all actions.
    pub(crate) fn mark_tags(mut list: Vec<Self>) -> Vec<Self> {
        for instruction in &mut list {
            if let Self::ApplyActions(list) | Self::WriteActions(list) = instruction {
                list.iter_mut().for_each(Action::mark_tag);
            }
        }
        list
    }

    fn blank(number: u32) -> Option<Self> {
        Some(match number {
            1 => Self::GotoTable(0),
            2 => Self::WriteMetadata { value: 0, mask: 0 },
            3 => Self::WriteActions(Vec::new()),
            4 => Self::ApplyActions(Vec::new()),
            5 => Self::ClearActions,
            6 => Self::Meter(0),
            0xffff => Self::Experimenter { id: 0, data: Vec::new() },
            _ => return None,
        })
    }
}

/// Reads or writes the instructions of a flow entry with this match, up to the end of the record. 1.0
/// has actions in their place. Actions of other versions are translated when they are written.
pub(crate) fn instructions<C: Io>(c: &mut C, matching: &Match, list: &mut Vec<Instruction>) -> Res {
    if !C::READS {
        translate::instructions(matching, list, c.version())?;
    }
    if c.version() != Version::V10 {
        return c.list(list, instruction);
    }
    let mut found = match list.as_slice() {
        [] => Vec::new(),
        [Instruction::ApplyActions(found)] => found.clone(),
        _ => return Err(problem::INSTRUCTION_UNSUPPORTED),
    };
    actions(c, &mut found)?;
    if C::READS && !found.is_empty() {
        list.push(Instruction::ApplyActions(found));
    }
    Ok(())
}

fn instruction<C: Io>(c: &mut C, instruction: &mut Instruction) -> Res {
    let was = c.blame(problem::INSTRUCTION_BAD_LEN);
    let mut mark = c.open();
    let mut number = instruction.number().into();
    c.draw(&mut number, 2, &[1, 2, 3, 4, 5, 6, 0xffff])?;
    c.len(&mut mark)?;
    if C::READS {
        *instruction = Instruction::blank(number).ok_or(problem::INSTRUCTION_UNKNOWN)?;
    }
    match instruction {
        Instruction::GotoTable(table) => {
            c.u8(table)?;
            c.pad(3)?;
        }
        Instruction::WriteMetadata { value, mask } => {
            c.pad(4)?;
            c.u64(value)?;
            c.u64(mask)?;
        }
        Instruction::WriteActions(list) | Instruction::ApplyActions(list) => {
            c.pad(4)?;
            actions(c, list)?;
        }
        Instruction::ClearActions => c.pad(4)?,
        Instruction::Meter(meter) => c.u32(meter)?,
        Instruction::Experimenter { id, data } => {
            c.u32(id)?;
            c.rest(data)?;
        }
    }
    c.close(&mark)?;
    c.blame(was);
    Ok(())
}

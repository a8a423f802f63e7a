//! The actions of a flow entry in the words of another version.
//!
//! 1.0 has actions that depend on the frame: set-VLAN adds a tag if there is none, and set-transport
//! applies to any protocol. In newer versions they are a set-field, perhaps with a push, and the
//! match decides which. The reverse is the same table read backwards.
//!
//! Invariants: a list that is translated does the same with every frame that matches; a list that
//! has no such translation is refused. Lists of the version itself stay as they are.
//! Thread-safety: plain functions.

use crate::act::{Action, Instruction};
use crate::oxm::{Field, Oxm, VID_PRESENT};
use crate::port::reserved;
use crate::problem::{self, Problem};
use crate::{Match, Version};

const TAG: u16 = 0x8100;

const fn no(why: &'static str) -> Problem {
    Problem { why, ..problem::ACTION_BAD_TYPE }
}

/// What is known of a frame on its way through a list of actions.
struct Known<'a> {
    matching: &'a Match,
    /// Whether the frame has a tag.
    tagged: Option<bool>,
    /// The queue of later outputs.
    queue: u32,
    /// The translation.
    list: Vec<Action>,
}

/// Whether frames with this match have a tag.
fn is_tagged(matching: &Match) -> Option<bool> {
    let vid = matching.get(Field::VlanVid).filter(|vid| vid.mask & VID_PRESENT != 0)?;
    Some(vid.value & VID_PRESENT != 0)
}

/// The fields to which the transport actions of 1.0 apply, source first.
const TRANSPORT: [[Field; 2]; 3] = [
    [Field::TcpSrc, Field::TcpDst],
    [Field::UdpSrc, Field::UdpDst],
    [Field::Icmpv4Type, Field::Icmpv4Code],
];

impl Known<'_> {
    fn set(&mut self, field: Field, value: u128) {
        self.list.push(Action::SetField(Oxm::exact(field, value)));
    }

    /// Sets a field of the tag, which is added first if the frame has none.
    fn set_tag(&mut self, field: Field, value: u128) -> Result<(), Problem> {
        match self.tagged {
            Some(true) => {}
            Some(false) => self.list.push(Action::PushVlan(TAG)),
            None => {
                return Err(no(
                    "the version has no action that adds a tag only to frames without one; add dl_vlan \
                     or vlan_vid to the match, so that it says which frames have a tag, or write \
                     push_vlan first",
                ));
            }
        }
        self.tagged = Some(true);
        self.set(field, value);
        Ok(())
    }

    /// Sets the port of TCP or UDP, or the type or code of ICMP. Other frames have no such field.
    fn set_transport(&mut self, dst: bool, value: u16) -> Result<(), Problem> {
        let field = TRANSPORT.iter().map(|pair| pair[usize::from(dst)]);
        if let Some(field) = field.into_iter().find(|field| self.matching.allows(*field)) {
            if u128::from(value) <= field.full() {
                self.set(field, value.into());
            }
            return Ok(());
        }
        let eth = self.matching.exact(Field::EthType);
        let proto = self.matching.exact(Field::IpProto);
        let is_other = eth.is_some_and(|eth| !matches!(eth, 0x0800 | 0x86dd)) || proto.is_some();
        let why = "the version has no action on the port of any protocol; add tcp, udp or icmp to the \
                   match";
        if is_other { Ok(()) } else { Err(no(why)) }
    }

    /// An action for 1.3 and later versions.
    fn newer(&mut self, action: &Action) -> Result<(), Problem> {
        match action {
            Action::SetVlanVid(vid) => {
                return self.set_tag(Field::VlanVid, VID_PRESENT | u128::from(*vid & 0xfff));
            }
            Action::SetVlanPcp(pcp) => return self.set_tag(Field::VlanPcp, u128::from(*pcp & 7)),
            Action::StripVlan => {
                // Without a tag there is nothing to remove; below the tag there may be another one.
                if self.tagged != Some(false) {
                    self.list.push(Action::PopVlan);
                    self.tagged = None;
                }
            }
            Action::PushVlan(_) => {
                self.tagged = Some(true);
                self.list.push(action.clone());
            }
            // Below the tag there may be another one.
            Action::PopVlan => {
                self.tagged = None;
                self.list.push(action.clone());
            }
            Action::SetTpSrc(value) => return self.set_transport(false, *value),
            Action::SetTpDst(value) => return self.set_transport(true, *value),
            Action::Enqueue { port, queue } => {
                self.list.push(Action::SetQueue(*queue));
                self.list.push(Action::Output { port: *port, max_len: 0 });
                self.queue = *queue;
            }
            // The queue of an enqueue action does not apply to later outputs.
            Action::Output { .. } | Action::Group(_) if self.queue != 0 => {
                self.queue = 0;
                self.list.push(Action::SetQueue(0));
                self.list.push(action.clone());
            }
            _ => self.list.push(action.clone()),
        }
        Ok(())
    }

    /// An action for 1.0. `next` is the action behind it.
    fn older(&mut self, action: &Action, next: Option<&Action>) -> Result<(), Problem> {
        const UNTAGGED: &str = "the version has no action on the tag of frames that may have none; add \
                                dl_vlan or vlan_vid to the match, or write mod_vlan_vid, which adds a tag";
        let sets = |field: Field, action: &Action| matches!(action, Action::SetField(oxm) if oxm.field == field);
        match action {
            Action::SetField(Oxm { field: Field::VlanVid | Field::VlanPcp, .. })
                if self.tagged != Some(true) =>
            {
                return Err(no(UNTAGGED));
            }
            Action::SetField(oxm) if oxm.field == Field::VlanVid => {
                self.list.push(Action::SetVlanVid(oxm.value as u16 & 0xfff));
            }
            Action::SetField(oxm) if oxm.field == Field::VlanPcp => {
                self.list.push(Action::SetVlanPcp(oxm.value as u8 & 7));
            }
            Action::SetField(oxm) => {
                let at = |dst| TRANSPORT.iter().any(|pair| pair[dst] == oxm.field);
                match (self.matching.allows(oxm.field), at(0), at(1)) {
                    (true, true, _) => self.list.push(Action::SetTpSrc(oxm.value as u16)),
                    (true, _, true) => self.list.push(Action::SetTpDst(oxm.value as u16)),
                    _ => self.list.push(action.clone()),
                }
            }
            Action::PushVlan(TAG) if self.tagged == Some(false) => {
                // The next action of 1.0 that sets the tag also adds it.
                let adds = |next| sets(Field::VlanVid, next) || sets(Field::VlanPcp, next);
                if !next.is_some_and(adds) {
                    self.list.push(Action::SetVlanVid(0));
                }
                self.tagged = Some(true);
            }
            Action::PopVlan => {
                self.list.push(Action::StripVlan);
                self.tagged = None;
            }
            Action::SetVlanVid(_) | Action::SetVlanPcp(_) => {
                self.tagged = Some(true);
                self.list.push(action.clone());
            }
            Action::StripVlan => {
                self.tagged = None;
                self.list.push(action.clone());
            }
            Action::SetQueue(queue) => self.queue = *queue,
            Action::Output { port, .. } if self.queue != 0 && *port != reserved::CONTROLLER => {
                if !(1..=reserved::IN_PORT).contains(port) {
                    return Err(no(
                        "the version has no queue of an output to several ports; write enqueue with one port",
                    ));
                }
                self.list.push(Action::Enqueue { port: *port, queue: self.queue });
            }
            _ => self.list.push(action.clone()),
        }
        Ok(())
    }
}

/// The actions of a flow entry with this match in the words of a version.
///
/// # Errors
/// When the version has no actions that do the same.
fn actions(matching: &Match, list: &[Action], version: Version) -> Result<Vec<Action>, Problem> {
    let tagged = is_tagged(matching);
    let mut known = Known { matching, tagged, queue: 0, list: Vec::with_capacity(list.len()) };
    for (at, action) in list.iter().enumerate() {
        match version {
            Version::V10 => known.older(action, list.get(at + 1))?,
            Version::V13 | Version::V14 => known.newer(action)?,
        }
    }
    let lacks = known.list.iter().any(|action| action.number(version).is_none());
    if lacks { Err(no("the version has no such action")) } else { Ok(known.list) }
}

/// Translates the instructions of a flow entry with this match.
///
/// # Errors
/// When the version has no actions that do the same.
pub(crate) fn instructions(
    matching: &Match,
    list: &mut [Instruction],
    version: Version,
) -> Result<(), Problem> {
    for instruction in list {
        if let Instruction::ApplyActions(list) = instruction {
            *list = actions(matching, list, version)?;
        }
    }
    Ok(())
}

/// Whether a version can express the actions of a flow entry with this match.
pub(crate) fn fits(matching: &Match, list: &[Instruction], version: Version) -> bool {
    list.iter().all(|instruction| match instruction {
        Instruction::ApplyActions(list) => actions(matching, list, version).is_ok(),
        Instruction::WriteActions(list) => list.iter().all(|one| one.number(version).is_some()),
        _ => true,
    })
}

#[cfg(test)]
mod tests;

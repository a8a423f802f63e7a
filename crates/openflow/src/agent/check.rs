//! Checks whether instructions and actions can be carried out (1.3.5, sections 7.2.4 and 7.2.5).
//!
//! A set-field needs the header that it writes. The match determines which headers a frame has, and
//! each earlier action may change them. After an action that exposes unknown headers (pop-PBB),
//! every action is allowed.

use super::Agent;
use crate::act::{Action, Instruction};
use crate::flow::FlowMod;
use crate::group::{MAX, METER_MAX};
use crate::oxm::{Field, Oxm, VID_PRESENT};
use crate::port::reserved;
use crate::problem::{self, Problem};
use crate::{Match, Version, table};

/// The largest number of actions in one list.
const MOST: usize = 1024;

/// Whether the groups and meters that a message names must exist. Those that a message in a bundle
/// names may be added by an earlier message of the bundle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Named {
    MustExist,
    MayFollow,
}

/// The known headers of a frame on its way through a list of actions.
#[derive(Clone)]
struct Known {
    matching: Match,
    /// The headers are unknown from here on.
    open: bool,
}

impl Known {
    fn put(&mut self, field: Field, value: u128) {
        self.matching.0.retain(|oxm| oxm.field != field);
        self.matching.0.push(Oxm::exact(field, value));
    }

    /// Another header follows the tags now.
    fn eth_type(&mut self, to: u16) {
        if self.matching.exact(Field::EthType) != Some(to.into()) {
            self.matching
                .0
                .retain(|oxm| matches!(oxm.field, Field::InPort | Field::VlanVid | Field::VlanPcp));
        }
        self.put(Field::EthType, to.into());
    }

    fn is(&self, types: &[u128]) -> bool {
        self.matching.exact(Field::EthType).is_some_and(|found| types.contains(&found))
    }

    fn tagged(&self) -> bool {
        self.matching.get(Field::VlanVid).is_some_and(|vid| vid.value & VID_PRESENT != 0)
    }

    /// Whether the frame has the header that an action needs; also updates the known headers.
    fn step(&mut self, action: &Action) -> bool {
        const MPLS: &[u128] = &[0x8847, 0x8848];
        if self.open {
            return true;
        }
        match action {
            Action::SetField(oxm) => {
                let fits = match oxm.field {
                    Field::VlanVid | Field::VlanPcp => self.tagged(),
                    field => self.matching.allows(field),
                };
                match oxm.field {
                    Field::EthType => self.eth_type(oxm.value as u16),
                    field => self.put(field, oxm.value),
                }
                fits
            }
            Action::SetNwTtl(_) | Action::DecNwTtl => self.is(&[0x0800, 0x86dd]),
            Action::SetMplsTtl(_) | Action::DecMplsTtl => self.is(MPLS),
            Action::PopMpls(to) => {
                let fits = self.is(MPLS);
                self.eth_type(*to);
                fits
            }
            Action::PushMpls(to) | Action::PushPbb(to) => {
                self.eth_type(*to);
                true
            }
            Action::PushVlan(_) => {
                self.put(Field::VlanVid, VID_PRESENT);
                true
            }
            Action::PopVlan => {
                let fits = self.tagged();
                // There may be another tag below this one.
                self.open = true;
                fits
            }
            Action::PopPbb => {
                let fits = self.is(&[0x88e7]);
                self.open = true;
                fits
            }
            _ => true,
        }
    }
}

/// Whether an action of 1.0 sets an ICMP type or code, which have 8 bits, to a larger number.
fn sets_wide_icmp(matching: &Match, list: &[Action]) -> bool {
    let is_wide = |action: &Action| match action {
        Action::SetTpSrc(value) | Action::SetTpDst(value) => *value > 0xff,
        _ => false,
    };
    matching.allows(Field::Icmpv4Type) && list.iter().any(is_wide)
}

impl Agent {
    /// Checks the match, the table and the flags of a flow-mod.
    pub(super) fn check_head(&self, m: &FlowMod, version: Version) -> Result<(), Problem> {
        m.matching.check()?;
        let all = m.table == table::ALL && m.command.deletes();
        if !all && usize::from(m.table) >= self.tables.len() {
            return Err(problem::FLOW_BAD_TABLE);
        }
        if version != Version::V10 && m.flags >> 5 != 0 {
            return Err(problem::FLOW_BAD_FLAGS);
        }
        Ok(())
    }

    /// Whether the instructions of a flow entry can be carried out.
    pub(super) fn check_flow(
        &self,
        m: &FlowMod,
        version: Version,
        named: Named,
    ) -> Result<(), Problem> {
        self.check_features(m)?;
        // 1.0 has no prerequisites: an action that sets a field of an absent header does nothing.
        let known = Known { matching: m.matching.clone(), open: version == Version::V10 };
        for (at, instruction) in m.instructions.iter().enumerate() {
            let number = instruction.number();
            if m.instructions[..at].iter().any(|other| other.number() == number) {
                return Err(problem::INSTRUCTION_DUPLICATE);
            }
            match instruction {
                Instruction::ApplyActions(list) if sets_wide_icmp(&m.matching, list) => {
                    return Err(problem::ACTION_BAD_ARGUMENT);
                }
                Instruction::GotoTable(to)
                    if *to <= m.table || usize::from(*to) >= self.tables.len() =>
                {
                    return Err(problem::INSTRUCTION_BAD_TABLE);
                }
                Instruction::Meter(meter)
                    if !(1..=METER_MAX).contains(meter)
                        || named == Named::MustExist && !self.meters.contains_key(meter) =>
                {
                    return Err(problem::METER_UNKNOWN);
                }
                Instruction::ApplyActions(list) => {
                    self.check_actions(list, Some(known.clone()), false, named)?;
                }
                Instruction::WriteActions(list) => {
                    // An action set runs in a fixed order: pop and push actions come before
                    // set-field actions.
                    let mut known = known.clone();
                    let sets = |action: &&Action| matches!(action, Action::SetField(_));
                    for action in list.iter().filter(|action| !sets(action)) {
                        known.step(action);
                    }
                    self.check_actions(list, Some(known), true, named)?;
                }
                Instruction::Experimenter { .. } => {
                    return Err(problem::INSTRUCTION_BAD_EXPERIMENTER);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Checks a list of actions against the known headers of the frame; of an action set, only the
    /// set-fields.
    fn check_actions(
        &self,
        list: &[Action],
        mut known: Option<Known>,
        set: bool,
        named: Named,
    ) -> Result<(), Problem> {
        if list.len() > MOST {
            return Err(problem::ACTION_TOO_MANY);
        }
        for action in list {
            self.check_action(action, named)?;
            if set && !matches!(action, Action::SetField(_)) {
                continue;
            }
            if known.as_mut().is_some_and(|known| !known.step(action)) {
                return Err(problem::ACTION_INCONSISTENT);
            }
        }
        Ok(())
    }

    /// Checks the actions of a bucket or a packet-out, for which the headers of the frame are
    /// unknown.
    pub(super) fn check_list(&self, list: &[Action], named: Named) -> Result<(), Problem> {
        self.check_actions(list, None, false, named)
    }

    fn check_action(&self, action: &Action, named: Named) -> Result<(), Problem> {
        let wrong = match action {
            Action::Output { port, .. } | Action::Enqueue { port, .. } => {
                let real = (1..=reserved::MAX).contains(port);
                let named = (reserved::IN_PORT..=reserved::LOCAL).contains(port);
                if real || named && *port != reserved::TABLE {
                    return Ok(());
                }
                problem::ACTION_BAD_OUT_PORT
            }
            Action::Group(group)
                if *group > MAX
                    || named == Named::MustExist && !self.groups.contains_key(group) =>
            {
                problem::ACTION_BAD_OUT_GROUP
            }
            Action::PushVlan(to) if !matches!(to, 0x8100 | 0x88a8) => problem::ACTION_BAD_ARGUMENT,
            Action::PushMpls(to) if !matches!(to, 0x8847 | 0x8848) => problem::ACTION_BAD_ARGUMENT,
            Action::PushPbb(to) if *to != 0x88e7 => problem::ACTION_BAD_ARGUMENT,
            Action::SetVlanVid(vid) if *vid > 0xfff => problem::ACTION_BAD_ARGUMENT,
            Action::SetVlanPcp(pcp) if *pcp > 7 => problem::ACTION_BAD_ARGUMENT,
            Action::SetField(oxm) if !oxm.field.settable() => problem::ACTION_BAD_SET_TYPE,
            Action::Experimenter { .. } => problem::ACTION_BAD_EXPERIMENTER,
            _ => return Ok(()),
        };
        Err(wrong)
    }
}

//! Action set: the actions that are applied after the last table (OpenFlow 1.3.5, section 5.10).
//!
//! ```text
//!   copy TTL in, pop, push MPLS, push PBB, push VLAN, copy TTL out, dec TTL, set, queue, group, output
//! ```
//!
//! Invariants: the actions are in the order in which they are applied; there is at most one action of a kind,
//! and one set-field action for a field.
//! Thread-safety: plain data.

use flowyard_openflow::Field;
use flowyard_openflow::act::Action;

/// Actions, in the order in which they are applied.
#[derive(Clone, Debug, Default)]
pub(crate) struct ActionSet(Vec<(u16, Action)>);

/// The position of an action in the order. Actions of the same rank are of the same kind.
const fn rank(action: &Action) -> u16 {
    match action {
        Action::CopyTtlIn => 0,
        Action::PopVlan | Action::StripVlan => 0x100,
        Action::PopPbb => 0x101,
        Action::PopMpls(_) => 0x102,
        Action::PushMpls(_) => 0x200,
        Action::PushPbb(_) => 0x300,
        Action::PushVlan(_) => 0x400,
        Action::CopyTtlOut => 0x500,
        Action::DecMplsTtl => 0x600,
        Action::DecNwTtl => 0x601,
        Action::SetField(oxm) => 0x700 + oxm.field as u16,
        Action::SetMplsTtl(_) => 0x800,
        Action::SetNwTtl(_) => 0x801,
        Action::SetVlanVid(_) => 0x802,
        Action::SetVlanPcp(_) => 0x803,
        Action::SetTpSrc(_) => 0x804,
        Action::SetTpDst(_) => 0x805,
        Action::SetQueue(_) => 0x900,
        Action::Experimenter { .. } => 0x901,
        Action::Group(_) => 0xa00,
        Action::Output { .. } | Action::Enqueue { .. } => 0xb00,
    }
}

impl ActionSet {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds an action, which replaces the one of its kind.
    pub(crate) fn write(&mut self, action: &Action) {
        let rank = rank(action);
        let at = self.0.partition_point(|(other, _)| *other < rank);
        match self.0.get_mut(at) {
            Some(there) if there.0 == rank => there.1.clone_from(action),
            _ => self.0.insert(at, (rank, action.clone())),
        }
    }

    /// The actions to apply: if there is a group, the output is not applied.
    pub(crate) fn actions(&self) -> impl Iterator<Item = &Action> {
        let group = self.0.iter().any(|(_, action)| matches!(action, Action::Group(_)));
        self.0.iter().filter(move |(rank, _)| !group || *rank < 0xb00).map(|(_, action)| action)
    }

    /// The port of its output action.
    pub(crate) fn output(&self) -> Option<u32> {
        match self.0.last() {
            Some((_, Action::Output { port, .. } | Action::Enqueue { port, .. })) => Some(*port),
            _ => None,
        }
    }
}

/// Whether a later table may, after this action, match fields that were not in the key before.
pub(crate) const fn reveals(action: &Action) -> bool {
    match action {
        Action::PopVlan
        | Action::StripVlan
        | Action::PopMpls(_)
        | Action::PopPbb
        | Action::Experimenter { .. } => true,
        Action::SetField(oxm) => {
            matches!(oxm.field, Field::EthType | Field::IpProto | Field::Icmpv6Type)
        }
        _ => false,
    }
}

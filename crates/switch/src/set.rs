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

#[cfg(test)]
mod tests {
    use flowyard_openflow::Oxm;

    use super::*;

    fn set(list: &[Action]) -> ActionSet {
        let mut set = ActionSet::default();
        list.iter().for_each(|action| set.write(action));
        set
    }

    fn output(port: u32) -> Action {
        Action::Output { port, max_len: 0 }
    }

    fn field(field: Field, value: u128) -> Action {
        Action::SetField(Oxm::exact(field, value))
    }

    /// OpenFlow 1.3.5, section 5.10, in the order in which the actions are applied.
    fn all() -> Vec<Action> {
        vec![
            Action::CopyTtlIn,
            Action::PopVlan,
            Action::PopPbb,
            Action::PopMpls(0x800),
            Action::PushMpls(0x8847),
            Action::PushPbb(0x88e7),
            Action::PushVlan(0x8100),
            Action::CopyTtlOut,
            Action::DecMplsTtl,
            Action::DecNwTtl,
            field(Field::EthDst, 1),
            field(Field::VlanPcp, 2),
            Action::SetMplsTtl(3),
            Action::SetNwTtl(4),
            Action::SetQueue(5),
        ]
    }

    #[test]
    fn actions_are_applied_in_the_order_of_the_standard_however_they_are_written() {
        let mut wanted = all();
        wanted.push(output(1));
        let backwards: Vec<Action> = wanted.iter().rev().cloned().collect();
        let mixed: Vec<Action> =
            (0..wanted.len()).map(|at| wanted[at * 7 % wanted.len()].clone()).collect();
        for list in [&wanted, &backwards, &mixed] {
            assert_eq!(set(list).actions().cloned().collect::<Vec<_>>(), wanted);
        }
    }

    #[test]
    fn a_later_action_replaces_the_one_of_its_kind_and_fields_are_kinds_of_their_own() {
        let pairs = [
            (Action::PushVlan(0x8100), Action::PushVlan(0x88a8)),
            (Action::PopMpls(0x800), Action::PopMpls(0x86dd)),
            (Action::SetNwTtl(1), Action::SetNwTtl(2)),
            (Action::SetQueue(1), Action::SetQueue(2)),
            (Action::PopVlan, Action::StripVlan),
            (field(Field::EthDst, 1), field(Field::EthDst, 2)),
            (Action::Group(1), Action::Group(2)),
            (output(1), output(2)),
            (output(1), Action::Enqueue { port: 2, queue: 3 }),
        ];
        for (first, second) in pairs {
            // In an empty set, and among others.
            for others in [Vec::new(), all()] {
                let mut one = set(&others);
                let before = one.actions().count();
                let had = one.actions().any(|action| rank(action) == rank(&first));
                one.write(&first);
                one.write(&second);
                let found: Vec<_> = one.actions().cloned().collect();
                assert_eq!(found.len(), before + usize::from(!had), "{second:?}");
                assert!(found.contains(&second) && !found.contains(&first), "{second:?}");
            }
        }
        let two = set(&[field(Field::EthDst, 1), field(Field::EthSrc, 2)]);
        assert_eq!(two.actions().count(), 2);
    }

    #[test]
    fn a_group_is_applied_in_place_of_the_output() {
        let mut one = set(&[output(7), Action::DecNwTtl]);
        assert_eq!(one.output(), Some(7));
        one.write(&Action::Group(3));
        let found: Vec<_> = one.actions().cloned().collect();
        assert_eq!(found, [Action::DecNwTtl, Action::Group(3)]);
        // The output is still known to later tables.
        assert_eq!(one.output(), Some(7));
        one.write(&Action::Enqueue { port: 8, queue: 1 });
        assert_eq!(one.output(), Some(8));
        one.clear();
        assert_eq!((one.actions().count(), one.output()), (0, None));
        assert_eq!(set(&[Action::Group(3)]).output(), None);
    }
}

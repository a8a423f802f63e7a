//! Unfinished frames: what the switch can do with a frame of which a checksum or the segmentation is left to a port.
//!
//! ```text
//!  VLAN tags, fields, times to live, outputs, groups      the frame stays unfinished; the offload follows the bytes
//!  other headers added, removed, or changed in kind       the checksum is completed before; a long frame is cut in
//!                                                         front of the tables
//!  rules that compare FIN, PSH or CWR                     a long frame with such a flag is cut in front of the tables
//! ```
//!
//! Invariant: finishing a frame after the switch gives the bytes that come of finishing it before.

use flowyard_openflow::Field;
use flowyard_openflow::act::{Action, Instruction};
use flowyard_wire::edit::tags;
use flowyard_wire::{Offload, Segment, is_tag};

use crate::parse::{ICMP, ICMP6, Layout, Net, SCTP, TCP, UDP};

/// The TCP flags that differ between the segments of a long frame: FIN, PSH and CWR.
pub(crate) const SPLIT_FLAGS: u16 = 0x89;

/// Whether a port is to cut such a frame.
#[inline]
pub(crate) const fn is_long(left: Offload) -> bool {
    !matches!(left.segment, Segment::None)
}

/// Whether an offload says anything.
#[inline]
pub(crate) const fn is_any(left: Offload) -> bool {
    left.flags != 0 || is_long(left)
}

/// Whether an action needs a finished frame: it adds, removes or replaces headers whose bytes an offload does not follow.
pub(crate) const fn needs_finished(action: &Action) -> bool {
    match action {
        Action::PushMpls(_) | Action::PopMpls(_) | Action::PushPbb(_) | Action::PopPbb => true,
        Action::PushVlan(kind) => !is_tag(*kind),
        Action::SetField(oxm) => matches!(oxm.field, Field::EthType | Field::IpProto),
        _ => false,
    }
}

/// What a list of actions has that long frames may have to be cut for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Traits {
    /// An action that [`needs_finished`] names.
    pub(crate) needs_finished: bool,
    /// A group, which may have such an action.
    pub(crate) has_group: bool,
}

impl Traits {
    pub(crate) fn of_actions<'a>(actions: impl IntoIterator<Item = &'a Action>) -> Self {
        actions.into_iter().fold(Self::default(), |all, action| Self {
            needs_finished: all.needs_finished || needs_finished(action),
            has_group: all.has_group || matches!(action, Action::Group(_)),
        })
    }

    pub(crate) fn of(instructions: &[Instruction]) -> Self {
        Self::of_actions(instructions.iter().flat_map(|instruction| match instruction {
            Instruction::ApplyActions(list) | Instruction::WriteActions(list) => &list[..],
            _ => &[],
        }))
    }
}

/// Whether the switch can follow the offload of a frame with this layout: the bytes that actions change are in front of
/// those that the partial checksum covers, or the checksum is that of the transport header which they change.
pub(crate) const fn follows(layout: &Layout, left: Offload) -> bool {
    let (start, offset) = (left.checksum_start as usize, left.checksum_offset);
    // The checksum of a source-routed packet covers another destination than that of its header.
    let has_extensions = matches!(layout.net, Net::Ipv6) && layout.next_at != layout.l3 + 6;
    if has_extensions && !(start == layout.l4 && left.has(Offload::PARTIAL)) {
        return false;
    }
    if layout.l4 != 0 && start == layout.l4 {
        let is_field = match (layout.proto, layout.net) {
            (TCP, _) => offset == 16,
            (UDP, _) => offset == 6,
            (SCTP, _) => offset == 8,
            (ICMP, Net::Ipv4) | (ICMP6, Net::Ipv6) => offset == 2,
            _ => false,
        };
        return is_field && layout.whole;
    }
    // Behind the header of a tunnel: one without ports, or UDP, whose ports tell a port that cuts what is behind them.
    let is_tunnel = layout.l4 == 0 || layout.proto == UDP && !is_long(left);
    is_tunnel && start >= layout.l3 + 40 && start >= layout.l4 + 8 && layout.l3 > tags::AT
}

#[cfg(test)]
mod tests {
    use flowyard_openflow::Oxm;

    use super::*;

    #[test]
    fn headers_that_change_in_kind_are_hard() {
        let set = |field| Action::SetField(Oxm::exact(field, 1));
        let hard = [
            Action::PushMpls(0x8847),
            Action::PopMpls(0x800),
            Action::PushPbb(0x88e7),
            Action::PopPbb,
            Action::PushVlan(0x800),
            set(Field::EthType),
            set(Field::IpProto),
        ];
        assert!(hard.iter().all(needs_finished));
        let easy = [
            Action::PushVlan(0x8100),
            Action::PushVlan(0x88a8),
            Action::PopVlan,
            Action::DecNwTtl,
            Action::Group(1),
            set(Field::Ipv4Src),
            set(Field::TcpDst),
            set(Field::VlanVid),
        ];
        assert!(!easy.iter().any(needs_finished));
        let lists = [
            (vec![Action::Group(1)], Traits { needs_finished: false, has_group: true }),
            (vec![Action::PopPbb], Traits { needs_finished: true, has_group: false }),
            (easy.to_vec(), Traits { needs_finished: false, has_group: true }),
        ];
        for (list, want) in lists {
            assert_eq!(Traits::of(&[Instruction::ApplyActions(list.clone())]), want);
            assert_eq!(Traits::of(&[Instruction::Meter(1), Instruction::WriteActions(list)]), want);
        }
        assert_eq!(Traits::of(&[Instruction::GotoTable(1)]), Traits::default());
    }
}

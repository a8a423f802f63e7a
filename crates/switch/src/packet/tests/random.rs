//! Random actions on random frames: key and layout are those of the bytes, and nothing panics.

use proptest::prelude::*;

use super::*;

fn action() -> impl Strategy<Value = Action> {
    let settable: Vec<Field> =
        Field::ALL.iter().copied().filter(|field| field.settable()).collect();
    let field = (prop::sample::select(settable), any::<u128>());
    let kind =
        || prop::sample::select(vec![0x0800, 0x86dd, 0x0806, 0x8847, 0x88e7, 0x88cc, 0x8100]);
    prop_oneof![
        6 => field.prop_map(|(field, value)| {
            let value = value & field.full();
            let value = if field == Field::VlanVid { value | VID_PRESENT } else { value };
            Action::SetField(Oxm::exact(field, value))
        }),
        1 => kind().prop_map(|kind| Action::SetField(Oxm::exact(Field::EthType, kind.into()))),
        2 => prop::sample::select(vec![0x8100, 0x88a8]).prop_map(Action::PushVlan),
        2 => Just(Action::PopVlan),
        2 => prop::sample::select(vec![0x8847, 0x8848]).prop_map(Action::PushMpls),
        2 => kind().prop_map(Action::PopMpls),
        1 => Just(Action::PushPbb(0x88e7)),
        1 => Just(Action::PopPbb),
        1 => any::<u8>().prop_map(Action::SetNwTtl),
        1 => any::<u8>().prop_map(Action::SetMplsTtl),
        1 => Just(Action::DecNwTtl),
        1 => Just(Action::DecMplsTtl),
        1 => Just(Action::CopyTtlIn),
        1 => Just(Action::CopyTtlOut),
        1 => (0..0x1000_u16).prop_map(Action::SetVlanVid),
        1 => (0..8_u8).prop_map(Action::SetVlanPcp),
        1 => any::<u16>().prop_map(Action::SetTpSrc),
        1 => any::<u16>().prop_map(Action::SetTpDst),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn key_and_layout_are_those_of_the_bytes_after_any_actions(
        which in any::<prop::sample::Index>(),
        cut in prop::option::weighted(0.3, 0..200_usize),
        damage in prop::option::weighted(0.3, (0..200_usize, any::<u8>())),
        actions in prop::collection::vec(action(), 1..12),
    ) {
        let all = frames();
        let mut frame = all[which.index(all.len())].1.clone();
        if let Some((at, byte)) = damage && at < frame.len() {
            frame[at] = byte;
        }
        frame.truncate(cut.unwrap_or(frame.len()));
        let before = frame.clone();
        let mut packet = packet(&frame);
        for action in &actions {
            if packet.change(action).is_err() {
                break;
            }
            let [found, fresh] = fields_and_fresh(&packet);
            prop_assert_eq!(found, fresh, "{:?}", action);
        }
        prop_assert_eq!(frame, before);
    }
}

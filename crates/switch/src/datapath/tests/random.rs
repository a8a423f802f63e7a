//! Random switches, and any bytes.

use proptest::prelude::*;

use super::*;
use crate::datapath::AHEAD;

/// A step of a random run on several switches that must give the same results.
#[derive(Clone, Debug)]
enum Step {
    Flow { table: u8, priority: u16, fields: Vec<Oxm>, then: Vec<Instruction> },
    Gone(prop::sample::Index),
    Port(u32, u32),
    Frame { src: u8, dst: u8, ttl: u8, tags: Vec<u8>, bytes: Vec<(prop::sample::Index, u8)> },
}

fn fields() -> impl Strategy<Value = Vec<Oxm>> {
    let some = |field: Field, values: Vec<u128>, masks: Vec<u128>| {
        let one = (prop::sample::select(values), prop::sample::select(masks));
        prop::option::weighted(0.3, one.prop_map(move |(v, m)| Oxm::masked(field, v, m)))
    };
    let full = u128::MAX;
    (
        some(Field::InPort, vec![1, 2], vec![full]),
        some(Field::EthType, vec![0x800, 0x8847], vec![full]),
        some(Field::VlanVid, vec![0, 0x1000, 0x1001, 0x1002], vec![full, 0x1000, 0xfff]),
        some(Field::Ipv4Dst, vec![0x0a00_0001, 0x0a00_0002], vec![full, 0xff00_0000, 3]),
        some(Field::UdpDst, vec![2, 3], vec![full]),
        some(Field::Metadata, vec![0, 1, 2], vec![1, 3]),
        some(Field::IpDscp, vec![0, 10], vec![full]),
    )
        .prop_map(|(a, b, c, d, e, f, g)| [a, b, c, d, e, f, g].into_iter().flatten().collect())
}

fn action() -> impl Strategy<Value = Action> {
    let set = |field, value| Action::SetField(Oxm::exact(field, value));
    prop_oneof![
        (1_u32..5).prop_map(output),
        Just(output(reserved::IN_PORT)),
        Just(output(reserved::FLOOD)),
        Just(output(reserved::NORMAL)),
        Just(output(reserved::CONTROLLER)),
        Just(Action::PushVlan(0x8100)),
        Just(Action::PopVlan),
        Just(Action::PushMpls(0x8847)),
        Just(Action::PopMpls(0x800)),
        Just(Action::PushPbb(0x88e7)),
        Just(Action::PopPbb),
        Just(Action::DecNwTtl),
        Just(Action::SetVlanVid(1)),
        Just(set(Field::VlanVid, 0x1002)),
        Just(set(Field::Ipv4Dst, 0x0a00_0001)),
        Just(set(Field::UdpDst, 3)),
        Just(set(Field::IpDscp, 10)),
        Just(set(Field::EthType, 0x800)),
    ]
}

fn step_strategy() -> impl Strategy<Value = Step> {
    let list = || prop::collection::vec(action(), 0..4);
    let then = (list(), list(), any::<bool>(), 0_u8..4, 0_u64..3);
    let flow = (0_u8..3, 0_u16..4, fields(), then);
    prop_oneof![
        4 => flow.prop_map(|(table, priority, fields, (apply, write, clear, goto, value))| {
            let mut then = vec![Instruction::ApplyActions(apply), Instruction::WriteActions(write)];
            if clear {
                then.push(Instruction::ClearActions);
            }
            then.push(Instruction::WriteMetadata { value, mask: 3 });
            if goto > table {
                then.push(Instruction::GotoTable(goto));
            }
            Step::Flow { table, priority, fields, then }
        }),
        1 => any::<prop::sample::Index>().prop_map(Step::Gone),
        1 => (1_u32..5, prop::sample::select(vec![0, 0, 1, 0x10, 0x20, 4])).prop_map(|(a, b)| Step::Port(a, b)),
        8 => (1_u8..3, 1_u8..3, 1_u8..4, prop::collection::vec(0_u8..3, 0..3),
              prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..2))
            .prop_map(|(src, dst, ttl, tags, bytes)| Step::Frame { src, dst, ttl, tags, bytes }),
    ]
}

/// A frame that is made from the fields of another one takes the same path, up to an action that uncovers
/// unknown headers.
fn explained(datapath: &Datapath, port: u32, frame: &[u8]) -> Result<(), TestCaseError> {
    let mut key = Arrival::by(port).key();
    crate::parse::parse(frame, &mut key);
    let (mut sample, rest) = crate::sample::frame(&key);
    // The TTL is not among the fields.
    let ttl_at = frame.windows(2).position(|bytes| bytes == [8, 0]).expect("IPv4") + 10;
    sample[ttl_at] = frame[ttl_at];
    let packet = crate::packet::Packet::new(&sample, rest, Vec::new());
    prop_assert_eq!(packet.key, key);
    let (path, open) = datapath.follow(packet);
    let real = &datapath.path;
    let (found, wanted) = (&path.flows[..], &real.flows[..]);
    if open.is_some() {
        prop_assert!(wanted.starts_with(found));
    } else {
        prop_assert_eq!((found, path.miss), (wanted, real.miss));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn the_cache_and_the_kind_of_lookup_do_not_change_results(
        steps in prop::collection::vec(step_strategy(), 0..120),
    ) {
        let mut slow = Bed::new(&settings(Lookup::Linear, 0));
        let mut fast = Bed::new(&settings(Lookup::Merged, 64));
        let mut small = Bed::new(&settings(Lookup::Hash, 4));
        // This one looks up the frames between two changes together.
        let mut batches = Bed::new(&settings(Lookup::Merged, 16));
        let (mut batch, mut all) = (Vec::new(), Vec::new());
        let mut flows = Vec::new();
        for (id, step) in (1..).zip(steps) {
            if !matches!(step, Step::Frame { .. }) || batch.len() >= AHEAD - 1 {
                prop_assert_eq!(batches.batch(&std::mem::take(&mut batch)), std::mem::take(&mut all));
            }
            match step {
                Step::Flow { table, priority, fields, then } => {
                    let flow = entry(id, table, priority, &fields, then);
                    flows.push(Arc::clone(&flow));
                    for bed in [&mut slow, &mut fast, &mut small, &mut batches] {
                        bed.apply(&Change::Flow(Arc::clone(&flow)));
                    }
                }
                Step::Gone(at) if !flows.is_empty() => {
                    let flow = flows.swap_remove(at.index(flows.len()));
                    for bed in [&mut slow, &mut fast, &mut small, &mut batches] {
                        bed.apply(&Change::FlowGone(Arc::clone(&flow)));
                    }
                }
                Step::Gone(_) => {}
                Step::Port(number, config) => {
                    for bed in [&mut slow, &mut fast, &mut small, &mut batches] {
                        bed.port(number, config, 0);
                    }
                }
                Step::Frame { src, dst, ttl, tags, bytes } => {
                    let mut frame = udp(src, dst, ttl);
                    for tag in tags {
                        frame.splice(12..12, [0x81, 0, 0, tag]);
                    }
                    let is_plain = frame.get(16..18) != Some(&[0x81, 0]) && bytes.is_empty();
                    for (at, byte) in bytes {
                        let at = at.index(frame.len());
                        frame[at] = byte;
                    }
                    for _ in 0..2 {
                        let wanted = slow.frame(src.into(), &frame);
                        prop_assert_eq!(&fast.frame(src.into(), &frame), &wanted);
                        prop_assert_eq!(&small.frame(src.into(), &frame), &wanted);
                        prop_assert_eq!(fast.out.reason, slow.out.reason);
                        if is_plain && slow.out.reason != Some(Reason::NotReceived) {
                            explained(&slow.datapath, src.into(), &frame)?;
                        }
                        batch.push((src.into(), frame.clone()));
                        all.push(wanted);
                    }
                }
            }
        }
        prop_assert_eq!(batches.batch(&batch), all);
    }

    /// No bytes and no actions cause a panic.
    #[test]
    fn any_bytes_can_be_processed(
        frame in prop::collection::vec(any::<u8>(), 0..120),
        kind in prop::sample::select(vec![0x800_u16, 0x86dd, 0x806, 0x8847, 0x88e7, 0x8100, 0x88a8, 5]),
        first in prop::sample::select(vec![0x45_u8, 0x4f, 0x60, 0x6f, 0]),
        next in prop::sample::select(vec![0_u8, 1, 6, 17, 43, 44, 50, 51, 58, 59, 60, 132]),
        actions in prop::collection::vec(any_action(), 0..12),
    ) {
        let mut frame = frame;
        if frame.len() > 24 {
            frame[12..14].copy_from_slice(&kind.to_be_bytes());
            (frame[14], frame[20], frame[23]) = (first, next, next);
        }
        let mut bed = Bed::new(&settings(Lookup::Merged, 4));
        let set = vec![Instruction::WriteActions(actions.clone())];
        bed.flow(1, 0, 0, &[], vec![Instruction::ApplyActions(actions), Instruction::GotoTable(1)]);
        bed.flow(2, 1, 0, &[], set);
        for _ in 0..2 {
            bed.frame(1, &frame);
        }
    }
}

fn any_action() -> impl Strategy<Value = Action> {
    let settable: Vec<Field> = Field::ALL.iter().copied().filter(|f| f.settable()).collect();
    prop_oneof![
        action(),
        (prop::sample::select(settable), any::<u128>())
            .prop_map(|(field, value)| Action::SetField(Oxm::exact(field, value))),
        any::<u16>().prop_map(Action::PushVlan),
        any::<u16>().prop_map(Action::PopMpls),
        any::<u16>().prop_map(Action::SetTpDst),
        any::<u8>().prop_map(Action::SetNwTtl),
        Just(Action::CopyTtlIn),
        Just(Action::CopyTtlOut),
        Just(Action::DecMplsTtl),
    ]
}

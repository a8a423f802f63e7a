//! Random rules of a switch with two tables, two groups and two meters.

use flowyard_openflow::act::{Action, Instruction};
use flowyard_openflow::change::{Entry, Group, Meter};
use flowyard_openflow::group::{ANY, Band, Bucket, GroupType, meter_flags};
use flowyard_openflow::multipart::{GroupDesc, MeterConfig};
use flowyard_openflow::{Match, Oxm};
use proptest::prelude::*;

use super::*;

/// The flows and the groups.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    pub(super) flows: Vec<(u8, u16, Vec<Oxm>, Vec<Instruction>)>,
    pub(super) groups: Vec<(GroupType, Vec<Vec<Action>>)>,
}

fn output() -> impl Strategy<Value = Action> {
    let ports = vec![7, 7, 8, 3, reserved::FLOOD, reserved::NORMAL, reserved::CONTROLLER];
    prop::sample::select(ports).prop_map(|port| Action::Output { port, max_len: 0xffff })
}

fn set(field: Field, values: Vec<u128>) -> impl Strategy<Value = Action> {
    prop::sample::select(values).prop_map(move |value| Action::SetField(Oxm::exact(field, value)))
}

fn easy() -> impl Strategy<Value = Action> {
    let v6 = 0xfd00_0000_0000_0000_0000_0000_0000_0077;
    let ports = || vec![53, 80, 2152, 4789, 6081, 65_535];
    let addresses = prop_oneof![
        set(Field::Ipv4Src, vec![0x0a00_0001, 0xc0a8_0101, 0xffff_ffff]),
        set(Field::Ipv4Dst, vec![0x0a00_0002, 0]),
        set(Field::Ipv6Src, vec![v6]),
        set(Field::Ipv6Dst, vec![v6, 0]),
        set(Field::TcpSrc, ports()),
        set(Field::TcpDst, ports()),
        set(Field::UdpSrc, ports()),
        set(Field::UdpDst, ports()),
        set(Field::SctpDst, ports()),
        set(Field::EthDst, vec![0x0200_0000_0077]),
    ];
    let others = prop_oneof![
        set(Field::IpDscp, vec![0, 10, 46]),
        set(Field::IpEcn, vec![0, 3]),
        set(Field::Ipv6Flabel, vec![0xf_ffff]),
        set(Field::MplsLabel, vec![77]),
        Just(Action::SetTpDst(99)),
        Just(Action::DecNwTtl),
        Just(Action::SetNwTtl(9)),
        Just(Action::DecMplsTtl),
        Just(Action::CopyTtlIn),
        Just(Action::CopyTtlOut),
    ];
    let tags = prop_oneof![
        set(Field::VlanVid, vec![0x1001, 0x1fff]),
        set(Field::VlanPcp, vec![5]),
        (0..4096_u16).prop_map(Action::SetVlanVid),
        Just(Action::PushVlan(0x8100)),
        Just(Action::PushVlan(0x88a8)),
        Just(Action::PopVlan),
    ];
    prop_oneof![2 => addresses, 1 => others, 2 => tags]
}

fn hard() -> impl Strategy<Value = Action> {
    prop_oneof![
        Just(Action::PushMpls(0x8847)),
        Just(Action::PopMpls(0x800)),
        Just(Action::PopMpls(0x86dd)),
        Just(Action::PushPbb(0x88e7)),
        Just(Action::PopPbb),
        set(Field::EthType, vec![0x800, 0x88cc]),
        set(Field::IpProto, vec![6, 17]),
    ]
}

/// Actions of which the last sends the frame.
fn actions() -> impl Strategy<Value = Vec<Action>> {
    let end = prop_oneof![4 => output(), 1 => (1..3_u32).prop_map(Action::Group)];
    let one = prop_oneof![16 => easy(), 1 => hard(), 2 => output()];
    (prop::collection::vec(one, 0..5), end).prop_map(|(mut list, end)| {
        list.push(end);
        list
    })
}

fn matching() -> impl Strategy<Value = Vec<Oxm>> {
    let flags = (prop::sample::select(vec![0x01, 0x08, 0x10, 0x80, 0x89]), any::<bool>());
    let flags = flags.prop_map(|(mask, is_set)| Oxm {
        field: Field::TcpFlags,
        value: if is_set { mask } else { 0 },
        mask,
    });
    let exact = |field, value| Just(Oxm::exact(field, value));
    let one = prop_oneof![
        flags,
        exact(Field::EthType, 0x800),
        exact(Field::IpProto, 6),
        exact(Field::TcpDst, 80),
        exact(Field::UdpDst, 4789),
        exact(Field::VlanVid, 0),
    ];
    prop_oneof![3 => Just(Vec::new()), 1 => one.prop_map(|one| vec![one])]
}

pub(super) fn rules() -> impl Strategy<Value = Rules> {
    let flow = (matching(), actions(), prop::option::of(actions()), any::<bool>(), 0..3_u32);
    let flow = (0..2_u8, 0..4_u16, flow).prop_map(
        |(table, priority, (matching, apply, write, goto, meter))| {
            let mut then = vec![Instruction::ApplyActions(apply)];
            if meter > 0 {
                then.insert(0, Instruction::Meter(meter));
            }
            then.extend(write.map(Instruction::WriteActions));
            if goto && table == 0 {
                then.push(Instruction::GotoTable(1));
            }
            (table, priority, matching, then)
        },
    );
    let kind = prop::sample::select(vec![GroupType::All, GroupType::Select, GroupType::Indirect]);
    let group = (kind, prop::collection::vec(actions(), 1..3));
    let group = group.prop_map(|(kind, mut buckets)| {
        let nested = buckets.iter_mut().flatten();
        for action in nested.filter(|action| matches!(action, Action::Group(_))) {
            *action = Action::Output { port: 8, max_len: 0 };
        }
        (kind, buckets)
    });
    (prop::collection::vec(flow, 1..5), prop::collection::vec(group, 2))
        .prop_map(|(flows, groups)| Rules { flows, groups })
}

pub(super) fn counts(n: usize) -> Arc<[Counts]> {
    (0..n).map(|_| Counts::default()).collect()
}

/// A meter with one band.
pub(super) fn meter(number: u32, flags: u16, band: Band) -> Arc<Meter> {
    let config = MeterConfig { flags, meter: number, bands: vec![band] };
    Arc::new(Meter { config, counts: counts(CORES), bands: counts(CORES) })
}

impl Rules {
    /// The flows, of which all cores have the same counters.
    pub(super) fn entries(&self) -> Vec<Arc<Entry>> {
        let entry = |(id, (table, priority, matching, then)): (u64, &(u8, u16, Vec<Oxm>, _))| {
            Arc::new(Entry {
                id,
                table: *table,
                priority: *priority,
                cookie: id,
                flags: 0,
                matching: Match(matching.clone()).normal(),
                instructions: Vec::clone(then),
                counts: counts(CORES),
            })
        };
        (1..).zip(&self.flows).map(entry).collect()
    }

    /// One meter that passes everything, one that changes the DSCP of everything, the groups, and the flows.
    pub(super) fn changes(&self) -> Changes {
        let flags = meter_flags::KBPS | meter_flags::BURST;
        let mut all = vec![
            Change::Meter(meter(1, flags, Band::Drop { rate: u32::MAX, burst: u32::MAX })),
            Change::Meter(meter(2, flags, Band::DscpRemark { rate: 0, burst: 0, levels: 1 })),
        ];
        for (number, (kind, buckets)) in (1..).zip(&self.groups) {
            let bucket = |actions: &Vec<Action>| Bucket {
                weight: 1,
                watch_port: reserved::ANY,
                watch_group: ANY,
                actions: actions.clone(),
            };
            let (kind, buckets) = (*kind, buckets.iter().map(bucket).collect::<Vec<_>>());
            let (one, each) = (counts(CORES), counts(CORES * buckets.len()));
            let desc = GroupDesc { kind, group: number, buckets };
            all.push(Change::Group(Arc::new(Group { desc, counts: one, buckets: each })));
        }
        all.extend(self.entries().into_iter().map(Change::Flow));
        (1..).zip(all).collect()
    }
}

//! A switch whose flows use many actions that do not move a frame's label, and changes of its flows
//! while frames are in flight.

use std::sync::Arc;

use flowyard_flow::Secret;
use flowyard_openflow::act::{Action, Instruction};
use flowyard_openflow::change::{Change, Counts, Entry, Group};
use flowyard_openflow::flow::PacketOut;
use flowyard_openflow::group::{Bucket, GroupType};
use flowyard_openflow::multipart::GroupDesc;
use flowyard_openflow::port::reserved;
use flowyard_openflow::{Field, Match, Oxm};
use flowyard_switch::Settings;
use flowyard_switch::{Changes, SwitchHub, SwitchSettings, change_message};
use flowyard_testkit::Rng;
use flowyard_yard::{Message, Work};

/// The largest number of cores.
const CORES: usize = 8;

fn counts(n: usize) -> Arc<[Counts]> {
    (0..n).map(|_| Counts::default()).collect()
}

/// The switches of all cores, with some flows.
pub(crate) fn works(rng: &mut Rng, cores: u64, ports: u16) -> Vec<Box<dyn Work>> {
    let settings = SwitchSettings {
        cores: cores as usize,
        datapath: Settings {
            tables: 3,
            cache_entries: [0, 8, 1024][rng.below(3) as usize],
            stations: 64,
            station_age: [100_000, 1_000_000_000][rng.below(2) as usize],
            secret: Secret::written(rng.bits()),
            ..Settings::default()
        },
        ports: (0..ports).map(|at| (u32::from(at) + 1, [0; 6], format!("p{at}"))).collect(),
        punts: 4,
    };
    let hub = Arc::new(SwitchHub::new(settings));
    let first: Vec<Changes> = (0..4).map(|_| changes(rng, ports)).collect();
    let mut all = hub.group();
    for switch in &mut all {
        for changes in &first {
            let Message::Control(message) = change_message(Arc::clone(changes)) else {
                unreachable!("a message to a control plane");
            };
            switch.control(&message, 0, &mut |_, _| {});
        }
    }
    all.into_iter().map(|switch| Box::new(switch) as _).collect()
}

fn action(rng: &mut Rng, ports: u16) -> Action {
    let output = |port| Action::Output { port, max_len: 64 };
    let set = |field, value| Action::SetField(Oxm::exact(field, value));
    match rng.below(14) {
        0..4 => output(1 + rng.below(ports.into()) as u32),
        4 => output(reserved::FLOOD),
        5 => output(reserved::ALL),
        6 => output(reserved::NORMAL),
        7 => output(reserved::IN_PORT),
        8 => output(reserved::CONTROLLER),
        9 => Action::DecNwTtl,
        10 => set(Field::EthDst, rng.bits().into()),
        11 => set(Field::Ipv4Src, rng.bits().into()),
        12 => set(Field::UdpDst, rng.bits().into()),
        _ => Action::Group(1 + rng.below(3) as u32),
    }
}

fn actions(rng: &mut Rng, ports: u16, most: u64) -> Vec<Action> {
    (0..rng.below(most)).map(|_| action(rng, ports)).collect()
}

/// Some changes that come into force together.
pub(crate) fn changes(rng: &mut Rng, ports: u16) -> Changes {
    let one = |number| (number, change(rng, ports));
    (0..1 + number(ports)).map(one).collect()
}

/// The number of changes.
const fn number(ports: u16) -> u64 {
    ports as u64
}

fn change(rng: &mut Rng, ports: u16) -> Change {
    if rng.below(4) == 0 {
        let kind = [GroupType::All, GroupType::Select, GroupType::Indirect][rng.below(3) as usize];
        let bucket = |_| {
            let actions = vec![
                Action::SetField(Oxm::exact(Field::EthSrc, rng.bits().into())),
                Action::Output { port: 1 + rng.below(ports.into()) as u32, max_len: 0 },
            ];
            let any = reserved::ANY;
            Bucket { weight: 1, watch_port: any, watch_group: any, actions }
        };
        let buckets: Vec<Bucket> = (0..3).map(bucket).collect();
        let group = 1 + rng.below(3) as u32;
        let (counts, of) = (counts(CORES), counts(CORES * buckets.len()));
        let desc = GroupDesc { kind, group, buckets };
        return Change::Group(Arc::new(Group { desc, counts, buckets: of }));
    }
    if rng.below(16) == 0 {
        // Copies at the end of the frame's path only; they are dropped when the buffers run out.
        return Change::Send(Arc::new(PacketOut::default()));
    }
    let mut fields = Vec::new();
    if rng.below(2) == 0 {
        fields.push(Oxm::exact(Field::InPort, (1 + rng.below(ports.into())).into()));
    }
    if rng.below(3) == 0 {
        fields.push(Oxm::exact(Field::EthType, 0x800));
        fields.push(Oxm::masked(Field::Ipv4Src, rng.below(4).into(), 3));
    }
    let table = rng.below(3) as u8;
    let mut instructions = vec![
        Instruction::ApplyActions(actions(rng, ports, 4)),
        Instruction::WriteActions(actions(rng, ports, 3)),
    ];
    if rng.below(3) == 0 {
        // Flows that the port mapping can contain.
        let port = 1 + rng.below(ports.into()) as u32;
        instructions = vec![Instruction::ApplyActions(vec![Action::Output { port, max_len: 0 }])];
    }
    if table < 2 && rng.below(3) == 0 {
        instructions.push(Instruction::GotoTable(table + 1));
    }
    let entry = Arc::new(Entry {
        id: rng.bits(),
        table,
        priority: rng.below(4) as u16,
        cookie: 0,
        flags: 0,
        matching: Match(fields).normal(),
        instructions,
        counts: counts(CORES),
    });
    Change::Flow(entry)
}

//! What messages and entries weigh: every element of a list adds its own size, and nothing else does.

use std::mem::size_of;

use super::super::memory;
use super::*;
use crate::bundle::BundleAdd;
use crate::flow::PacketOut;
use crate::multipart::Monitor;
use crate::port::Property;
use crate::table::{Feature, TableFeatures};

/// What one element adds, and what remains without elements. Panics if the elements differ.
fn each(weight: impl Fn(usize) -> usize) -> (usize, usize) {
    let (none, one) = (weight(0), weight(1));
    for count in [2, 3, 10, 100] {
        assert_eq!(weight(count), none + count * (one - none), "{count} elements");
    }
    (one - none, none)
}

fn output() -> Action {
    Action::Output { port: 1, max_len: 0 }
}

fn foreign(len: usize) -> Action {
    Action::Experimenter { id: 1, data: vec![0; len] }
}

/// Makes a message with a number of elements.
type Make = fn(usize) -> Message;
/// Makes a list of table features with a number of elements.
type MakeList = fn(usize) -> Feature;

/// The elements of a flow-mod, with what one of them weighs.
fn of_flow_mods() -> [(&'static str, Make, usize); 5] {
    let (instruction, action) = (size_of::<Instruction>(), size_of::<Action>());
    [
        ("fields", |n| Message::FlowMod(add(1, &vec![port(1); n])), size_of::<Oxm>()),
        (
            "instructions",
            |n| {
                let instructions = vec![Instruction::GotoTable(1); n];
                Message::FlowMod(FlowMod { instructions, ..add(1, &[]) })
            },
            instruction,
        ),
        (
            "applied actions",
            |n| {
                let instructions = vec![Instruction::ApplyActions(vec![output(); n])];
                Message::FlowMod(FlowMod { instructions, ..add(1, &[]) })
            },
            action,
        ),
        (
            "written actions",
            |n| {
                let instructions = vec![Instruction::WriteActions(vec![output(); n])];
                Message::FlowMod(FlowMod { instructions, ..add(1, &[]) })
            },
            action,
        ),
        (
            "an experimenter's bytes in an instruction",
            |n| {
                let instructions = vec![Instruction::Experimenter { id: 1, data: vec![0; n] }];
                Message::FlowMod(FlowMod { instructions, ..add(1, &[]) })
            },
            1,
        ),
    ]
}

/// Those of other messages.
fn of_other_messages() -> [(&'static str, Make, usize); 7] {
    let (block, action) = (memory::BLOCK, size_of::<Action>());
    [
        (
            "bytes of a frame",
            |n| Message::PacketOut(PacketOut { data: vec![0; n], ..PacketOut::default() }),
            1,
        ),
        (
            "an experimenter's bytes in an action",
            |n| Message::PacketOut(PacketOut { actions: vec![foreign(n)], ..PacketOut::default() }),
            1,
        ),
        (
            "buckets",
            |n| {
                let bucket = Bucket { actions: vec![output(); 3], ..Bucket::default() };
                Message::GroupMod(GroupMod { buckets: vec![bucket; n], ..GroupMod::default() })
            },
            size_of::<Bucket>() + block + 3 * action,
        ),
        (
            "bands",
            |n| {
                let bands = vec![Band::Drop { rate: 1, burst: 1 }; n];
                Message::MeterMod(MeterMod { bands, ..MeterMod::default() })
            },
            size_of::<Band>() + block,
        ),
        (
            "bytes of a message in a bundle",
            |n| Message::BundleAdd(BundleAdd { message: vec![0; n], ..BundleAdd::default() }),
            1,
        ),
        (
            "properties of a message in a bundle",
            |n| {
                let properties = vec![Property::default(); n];
                Message::BundleAdd(BundleAdd { properties, ..BundleAdd::default() })
            },
            block,
        ),
        ("bytes of an echo", |n| Message::EchoRequest(vec![0; n]), 1),
    ]
}

#[test]
fn every_element_of_a_message_adds_its_size() {
    for (name, make, size) in of_flow_mods().into_iter().chain(of_other_messages()) {
        let (found, none) = each(|count| memory::weight(&make(count)));
        assert_eq!(found, size, "{name}");
        // Without the elements there is the message, and at most one list around them.
        let around = size_of::<Instruction>().max(size_of::<Action>());
        let own = size_of::<Message>();
        assert!((own..=own + around).contains(&none), "{name}: {none}");
    }
}

#[test]
fn every_element_of_a_request_adds_its_size() {
    let request = |body| {
        memory::weight(&Message::MultipartRequest { more: true, body }) - size_of::<Message>()
    };
    let monitor =
        |fields: usize| Monitor { matching: Match(vec![port(1); fields]), ..Monitor::default() };
    let (found, none) = each(|n| request(Request::FlowMonitor(vec![monitor(2); n])));
    assert_eq!((found, none), (size_of::<Monitor>() + 2 * size_of::<Oxm>(), 0));
    let filter = |fields: usize| FlowFilter {
        matching: Match(vec![port(1); fields]),
        ..FlowFilter::default()
    };
    let kinds: [fn(FlowFilter) -> Request; 2] = [Request::Flow, Request::Aggregate];
    for kind in kinds {
        assert_eq!(each(|n| request(kind(filter(n)))), (size_of::<Oxm>(), memory::BLOCK));
    }
    let foreign = |n| Request::Experimenter { id: 1, kind: 1, data: vec![0; n] };
    assert_eq!(each(|n| request(foreign(n))), (1, memory::BLOCK));
    assert_eq!(request(Request::Desc), memory::BLOCK);
    // Table features: each table, each list, and each element of a list.
    let table = |properties| TableFeatures { properties, ..TableFeatures::default() };
    let tables = |list: Vec<TableFeatures>| request(Request::TableFeatures(list));
    let empty = size_of::<TableFeatures>() + memory::BLOCK;
    assert_eq!(each(|n| tables(vec![table(Vec::new()); n])), (empty, 0));
    let list = |n| Feature::Tables { kind: 2, list: vec![1; n] };
    assert_eq!(each(|n| tables(vec![table(vec![list(0); n])])), (size_of::<Feature>(), empty));
    let pair = size_of::<(u32, u32)>();
    let lists: [(MakeList, usize); 5] = [
        (|n| Feature::Tables { kind: 2, list: vec![1; n] }, 1),
        (|n| Feature::Instructions { kind: 0, list: vec![(1, 0); n] }, size_of::<(u16, u32)>()),
        (|n| Feature::Actions { kind: 4, list: vec![(1, 0); n] }, size_of::<(u16, u32)>()),
        (|n| Feature::Fields { kind: 8, list: vec![(1, 0); n] }, pair),
        (|n| Feature::Other(Property { kind: 0xffff, data: vec![0; n] }), 1),
    ];
    for (make, size) in lists {
        let (found, none) = each(|n| tables(vec![table(vec![make(n)])]));
        assert_eq!((found, none), (size, empty + size_of::<Feature>()));
    }
}

#[test]
fn what_the_tables_store_grows_with_the_elements_and_with_the_cores() {
    use crate::change::Counts;
    let list = |n: usize| vec![Instruction::ApplyActions(vec![output(); n])];
    let fields = |n: usize| Match(vec![port(1); n]);
    for cores in [1, 4] {
        let flow = |m: &Match, asked: Option<&Match>, n| memory::of_flow(m, asked, &list(n), cores);
        let none = fields(0);
        assert_eq!(each(|n| flow(&none, None, n)).0, size_of::<Action>());
        // The match is in the entry and in the agent's trees; what the controller wrote is there once.
        assert_eq!(each(|n| flow(&fields(n), None, 0)).0, 4 * size_of::<Oxm>());
        assert_eq!(each(|n| flow(&none, Some(&fields(n)), 0)).0, size_of::<Oxm>());
        let band = Band::Drop { rate: 1, burst: 1 };
        let (each_band, _) = each(|n| memory::of_meter(&vec![band.clone(); n], cores));
        assert_eq!(each_band, size_of::<Band>() + 2 * size_of::<Counts>() * cores);
        let buckets = |n: usize, actions: usize| {
            vec![Bucket { actions: vec![output(); actions], ..Bucket::default() }; n]
        };
        let (each_bucket, _) = each(|n| memory::of_group(&buckets(n, 2), cores));
        let one = memory::BLOCK + size_of::<Bucket>() + 3 * size_of::<Action>();
        assert_eq!(each_bucket, one + (one + size_of::<Counts>()) * cores);
    }
    let on_core = each(|cores| memory::of_flow(&fields(0), None, &[], cores)).0;
    assert!(on_core > size_of::<Counts>(), "{on_core}");
}

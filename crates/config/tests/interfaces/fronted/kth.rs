//! KTH's method live: 64-byte frames of one flow, whose entry is the last of N, answered by XDP, and by the switch's hash
//! table in software.
//! `FLOWYARD_LIVE=1 cargo test --release -p flowyard-config --test interfaces kth -- --ignored --nocapture`

use std::sync::Arc;

use flowyard_frame::{FlowKey, proto};
use flowyard_openflow::act::{Action, Instruction};
use flowyard_openflow::change::{Change, Counts, Entry};
use flowyard_openflow::{Field, Match, Oxm};
use flowyard_switch::SwitchHub;
use flowyard_testkit::Build;

use super::{Lab, Run, Way, rounds_of, tasks};
use flowyard_livekit::net::alone;

flowyard_testkit::tests! {
    kth on_demand "a measurement",
}

/// The number of entries of KTH's slides.
const MANY: u32 = 8100;
/// Frames of each flow that are sent first. XDP answers a flow as soon as the port mapping does, which is from the third
/// frame on.
const FIRST: usize = 8;
/// How often all flows are sent again until XDP has the entries of all.
const MOST: usize = 10;

/// The frame of flow `n`, which has a source address of its own.
fn frame(n: u32) -> Vec<u8> {
    let [src, dst] = [[10, 1, (n >> 8) as u8, n as u8], [10, 2, 0, 1]];
    let mut key = FlowKey::five_tuple(proto::UDP, src.into(), 1024, dst.into(), 53);
    (key.eth_dst, key.eth_src) = ([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]);
    let mut frame = Build::new(&key).payload(&[0; 18]).bytes(); // and the FCS: 64
    frame[40..42].fill(0); // no UDP checksum
    frame
}

/// The entry of flow `n`, in the form of a change.
fn entry(n: u32) -> (u64, Change) {
    let ip = |bytes: [u8; 4]| u128::from(u32::from_be_bytes(bytes));
    let fields = vec![
        Oxm::exact(Field::InPort, 1),
        Oxm::exact(Field::EthType, 0x800),
        Oxm::exact(Field::IpProto, 17),
        Oxm::exact(Field::Ipv4Src, ip([10, 1, (n >> 8) as u8, n as u8])),
        Oxm::exact(Field::Ipv4Dst, ip([10, 2, 0, 1])),
        Oxm::exact(Field::UdpSrc, 1024),
        Oxm::exact(Field::UdpDst, 53),
    ];
    let output = Action::Output { port: 2, max_len: 0 };
    let entry = Entry {
        id: n.into(),
        table: 0,
        priority: 1,
        cookie: 0,
        flags: 0,
        matching: Match(fields).normal(),
        instructions: vec![Instruction::ApplyActions(vec![output])],
        counts: [Counts::default()].into(),
    };
    (n.into(), Change::Flow(Arc::new(entry)))
}

/// A switch.
fn config(offload: bool) -> String {
    let port = |name: &str, interface: &str| {
        format!(
            "[[port]]\nname = \"{name}\"\nkind = \"af_xdp\"\ninterface = \"{interface}\"\ncores = [0]\n\
             match = [\"all\"]\nring_frames = 4096\n"
        )
    };
    format!(
        "[yard]\ncores = 1\npin = [1]\n{}{}[[queue]]\nname = \"q\"\norder = \"direct\"\nconsumers = [0]\n\
         [work]\nkind = \"switch\"\n{}[switch]\nlookup = \"hash\"\ncache_entries = {}\n",
        port("west", "vb"),
        port("east", "vc"),
        if offload { "[offload]\nxdp = true\n" } else { "" },
        if offload { 16_384 } else { 0 },
    )
}

/// One way: the number of entries, and whether XDP answers.
fn one(entries: u32, offload: bool) -> Run {
    let lab = Lab::new();
    let own = tasks();
    let net = lab.line.yard();
    let (yard, log) = crate::yard::build(net, &config(offload)).unwrap();
    let hub = yard.control_plane::<SwitchHub>().unwrap();
    let live = crate::yard::Live::of(net, yard, log);
    hub.apply(&(1..=entries).map(entry).collect::<Vec<_>>());
    crate::yard::wait_until("the flows are in force", || hub.in_force() == u64::from(entries));
    let softirq = lab.threads();
    let yard: Vec<_> = tasks().into_iter().filter(|task| !own.contains(task)).collect();
    let pass = |times: usize| {
        let frames = (1..=entries).flat_map(|n| std::iter::repeat_n(frame(n), times));
        Lab::send(&lab.line.a, "va", frames.collect());
        std::thread::sleep(std::time::Duration::from_millis(100));
        live.running.counters().iter().map(|core| core.rx_frames).sum::<u64>()
    };
    let mut seen = pass(if offload { FIRST } else { 1 });
    for _ in 0..MOST {
        // Once more all flows: what the yard sees of these frames XDP does not answer yet.
        if !offload || pass(1) == seen {
            break;
        }
        seen = pass(FIRST);
    }
    let run = lab.measure(frame(entries), 0, &softirq, &yard);
    let after = live.stop().total().rx_frames;
    assert!(!offload || after <= seen + 1000, "the yard has seen {} frames", after - seen);
    run
}

fn kth() {
    let _alone = alone();
    let ways: [Way<'_>; 4] = [
        ("XDP, 8100 entries", &|| one(MANY, true)),
        ("XDP, 1 entry", &|| one(1, true)),
        ("hash table, 8100 entries", &|| one(MANY, false)),
        ("hash table, 1 entry", &|| one(1, false)),
    ];
    let pairs = [
        ("XDP: 8100 entries to 1", 0, 1),
        ("8100 entries: XDP to the hash table", 0, 2),
        ("1 entry: XDP to the hash table", 1, 3),
    ];
    rounds_of("KTH: 64-byte frames of one flow", &ways, &pairs);
}

//! Packets that are hashed by more than their key: QUIC by connection ID, and the addresses of mobile IPv6.

use flowyard_adapter::Profile;
use flowyard_analyze::{Analyzer, Explanation, Question, Setup, Spec, Target};
use flowyard_flow::Quic;
use flowyard_frame::{FlowKey, proto};
use flowyard_ports::mem::Frames;
use flowyard_testkit::Build;
use flowyard_wire::LinkType;

use crate::common;

flowyard_testkit::tests! {
    packets_of_a_connection_stay_when_its_client_moves,
    the_connection_id_is_explained,
    home_addresses_are_hashed_by_adapters_that_do_so,
}

fn setup(adapter: &str, quic: Option<Quic>) -> Setup {
    Setup { quic, ..Setup::new(Profile::find(adapter).unwrap(), vec![Spec::Rss]) }
}

fn quic() -> Option<Quic> {
    Some(Quic::new(&[443], 8, None).unwrap())
}

/// A packet of connection `id` from a client's `port`.
fn packet(id: u64, port: u16) -> Vec<u8> {
    let [near, far] = [[192, 0, 2, 1], [192, 0, 2, 10]].map(std::net::IpAddr::from);
    let key = FlowKey::five_tuple(proto::UDP, near, port, far, 443);
    let payload = [&[0x41][..], &id.to_be_bytes(), b"encrypted"].concat();
    Build::new(&key).payload(&payload).bytes()
}

fn frames(all: &[Vec<u8>]) -> Frames {
    let mut frames = Frames::new();
    for (time, bytes) in (0..).zip(all) {
        frames.push(time * 1000, LinkType::Ethernet, bytes);
    }
    frames
}

/// The explanation of the first packet.
fn explain(setup: Setup, bytes: &[u8], question: &Question) -> Explanation {
    let mut analyzer = Analyzer::new(setup).unwrap();
    let target = analyzer.read_to("test", &mut frames(&[bytes.to_vec()]), 1).unwrap();
    analyzer.explain(&target, question)
}

fn packets_of_a_connection_stay_when_its_client_moves() {
    // 300 packets of one connection, of a client that changes its port with each.
    let all: Vec<_> = (0..300).map(|n| packet(7, 5_000 + n)).collect();
    let used = |quic| {
        let analysis = common::analyze(setup("e810", quic), &mut frames(&all));
        common::assert_conserved(&analysis, "one connection");
        let queues = &common::policy(&analysis, "rss").queues;
        (queues.iter().filter(|queue| queue.packets > 0).count(), analysis.notes)
    };
    let (by_ports, notes) = used(None);
    assert!(by_ports > 10 && !notes.iter().any(|note| note.contains("QUIC")), "{notes:?}");
    let (by_id, notes) = used(quic());
    assert_eq!(by_id, 1);
    assert!(notes.iter().any(|note| note.starts_with("QUIC packets to port 443")), "{notes:?}");
    let others: Vec<_> = (0..300).map(|n| packet(n, 5_000)).collect();
    let analysis = common::analyze(setup("e810", quic()), &mut frames(&others));
    let queues = &common::policy(&analysis, "rss").queues;
    assert!(queues.iter().filter(|queue| queue.packets > 0).count() > 10);
}

fn the_connection_id_is_explained() {
    let question = Question { expect_queue: Some(3), choose_port: Some(3) };
    let explained = explain(setup("e810", quic()), &packet(0x0102_0304, 5_000), &question);
    let rss = explained.policies.rss.unwrap();
    assert_eq!(rss.hash_type.as_deref(), Some("QUIC"));
    let input: Vec<_> = rss.input.iter().map(|one| (one.field.as_str(), &*one.bytes)).collect();
    assert_eq!(input, [("id", "0000000001020304")]);
    assert!(rss.verdict.why.starts_with("QUIC: 8 bytes of the connection ID"), "{rss:?}");
    let chosen = explained.choose_port.unwrap();
    assert_eq!((chosen.port, chosen.ports_that_fit), (None, 0));
    // The opposite direction has another ID, which is not known.
    assert_eq!(explained.reverse.policies.rss.unwrap().hash_type.as_deref(), Some("UDP_IPV4"));
    // The entry that the fix names is that of the ID's hash.
    let entry = format!("set entry {} of the indirection table", rss.index.unwrap());
    let fix = &explained.expect.unwrap().policies["rss"].fix;
    assert!(rss.verdict.queue == Some(3) || fix[0].starts_with(&entry), "{fix:?}");
    // A flow has no ID.
    let flow = "udp 192.0.2.1:5000 > 192.0.2.10:443".parse().unwrap();
    let mut analyzer = Analyzer::new(setup("e810", quic())).unwrap();
    let by_flow = analyzer.explain(&Target::flow(flow), &Question::default());
    assert_eq!(by_flow.policies.rss.unwrap().hash_type.as_deref(), Some("UDP_IPV4"));
    assert!(by_flow.notes.iter().any(|note| note.contains("as FILE:N")), "{:?}", by_flow.notes);
}

fn home_addresses_are_hashed_by_adapters_that_do_so() {
    let [near, far] = ["2001:db8::1", "2001:db8::2"].map(|text| text.parse().unwrap());
    let key = FlowKey::five_tuple(proto::TCP, near, 5_000, far, 80);
    let plain = Build::new(&key).bytes();
    // A destination options header with the home address 2001:db8::99 between IPv6 and TCP.
    let mut home = [0; 16];
    home[..4].copy_from_slice(&[0x20, 1, 0x0d, 0xb8]);
    home[15] = 0x99;
    let option = [&[proto::TCP, 2, 1, 2, 0, 0, 0xc9, 16][..], &home].concat();
    let mut mobile = [&plain[..54], &option, &plain[54..]].concat();
    let length = u16::from_be_bytes([mobile[18], mobile[19]]) + option.len() as u16;
    mobile[18..20].copy_from_slice(&length.to_be_bytes());
    mobile[20] = 60;
    let source = |adapter| {
        let explained = explain(setup(adapter, None), &mobile, &Question::default());
        let rss = explained.policies.rss.unwrap();
        assert_eq!(rss.hash_type.as_deref(), Some("TCP_IPV6"));
        rss.input[0].bytes.clone()
    };
    assert_eq!(source("virtio"), "20010db8000000000000000000000099");
    assert_eq!(source("e810"), "20010db8000000000000000000000001");
}

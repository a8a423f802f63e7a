//! The findings of a report, and the commands that follow from them.

use flowyard_analyze::{Finding, Setup, Spec};
use flowyard_flow::Quic;
use flowyard_frame::{FlowKey, proto};
use flowyard_ports::mem::Frames;
use flowyard_testkit::Build;
use flowyard_wire::LinkType;

use crate::common::{analyze, setup};

flowyard_testkit::tests! {
    a_rule_for_a_flow_is_named_where_the_driver_takes_rules,
    packets_are_counted_by_the_hash_that_they_have,
    later_fragments_have_no_rule,
}

fn key(protocol: u8, port: u16) -> FlowKey {
    let [near, far] = [[192, 0, 2, 1], [192, 0, 2, 10]].map(std::net::IpAddr::from);
    FlowKey::five_tuple(protocol, near, port, far, 443)
}

/// The first finding on these frames.
fn first(setup: Setup, frames: &[Vec<u8>]) -> Finding {
    let mut all = Frames::new();
    for (time, bytes) in (0..).zip(frames) {
        all.push(time * 1000, LinkType::Ethernet, bytes);
    }
    analyze(setup, &mut all).verdict.remove(0)
}

fn a_rule_for_a_flow_is_named_where_the_driver_takes_rules() {
    let frames = vec![Build::new(&key(proto::TCP, 5_000)).bytes(); 100];
    for (adapter, text, commands) in [
        ("x520", "One flow is 100 %", 3),
        ("mlx5", "Which rules the device accepts is not modelled.", 3),
        ("bnxt", "Which rules the device accepts is not modelled.", 3),
        ("gve", "is not known.", 0),
        ("igc", "This adapter has no rules that could name the flow.", 0),
        ("virtio", "This adapter has no rules that could name the flow.", 0),
    ] {
        let found = first(setup(adapter, vec![Spec::Rss]), &frames);
        assert!(found.text.contains(text), "{adapter}: {found:?}");
        assert_eq!(found.commands.len(), commands, "{adapter}: {found:?}");
        if let Some(rule) = found.commands.last() {
            assert!(rule.starts_with("ethtool -N IFACE flow-type tcp4 src-ip 192.0.2.1"), "{rule}");
        }
    }
}

/// All packets have one connection ID, so they are in one entry, although their ports differ.
fn packets_are_counted_by_the_hash_that_they_have() {
    let payload = [&[0x41][..], &7_u64.to_be_bytes(), b"encrypted"].concat();
    let packet = |n: u16| Build::new(&key(proto::UDP, 5_000 + n)).payload(&payload).bytes();
    let frames: Vec<_> = (0..300).map(packet).collect();
    let setup = |quic| Setup { quic, ..setup("e810", vec![Spec::Rss]) };
    let found = first(setup(None), &frames);
    assert!(found.text.starts_with("RSS spreads the received packets evenly"), "{found:?}");
    let found = first(setup(Some(Quic::new(&[443], 8, None).unwrap())), &frames);
    let wanted = "RSS gives the busiest of 16 queues 16.00 times the mean load";
    assert!(found.text.starts_with(wanted), "{found:?}");
}

fn later_fragments_have_no_rule() {
    let later = Build::new(&key(proto::UDP, 5_000)).payload(&[0; 64]).fragment(8, false).bytes();
    let found = first(setup("x710", vec![Spec::Rss]), &vec![later; 100]);
    assert!(found.text.contains("consists of later fragments"), "{found:?}");
    assert!(found.commands.is_empty(), "{found:?}");
}

//! The findings of a report, and the commands that follow from them.

use flowyard_analyze::{Finding, Setup, Spec};
use flowyard_frame::{FlowKey, proto};
use flowyard_ports::mem::Frames;
use flowyard_testkit::Build;
use flowyard_wire::LinkType;

use crate::common::{analyze, setup};

flowyard_testkit::tests! {
    a_rule_for_a_flow_is_named_where_the_driver_takes_rules,
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

//! What is reported about a balancer whose port has an adapter: where the answer for a flow comes from, and why it does
//! not come from the adapter.

#![allow(clippy::disallowed_methods, reason = "a running engine has a clock")]

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use flowyard_config::Config;
use flowyard_dpdk::rules::{Limits, SharedStandIn, StandIn};
use flowyard_frame::{FlowKey, proto};
use flowyard_front::Adapters;
use flowyard_operate::{lb, offload};
use flowyard_ports::mem::Frames;
use flowyard_ports::port::{Collect, Pace, SourceRx};
use flowyard_testkit::Build;
use flowyard_wire::LinkType;
use flowyard_yard::{ControlPlane, Parts};

flowyard_testkit::tests! {
    a_trace_says_what_the_adapter_does_for_a_connection,
}

const CONFIG: &str = r#"
[[port]]
name = "west"
kind = "mem"
in = "given"
[[port]]
name = "east"
kind = "mem"
[[queue]]
name = "q"
order = "direct"
consumers = [0]
[offload]
rules = true
[work]
kind = "balance"
[balance]
entries = 251
[[service]]
name = "web"
vip = "192.0.2.1"
port = 80
proto = "tcp"
mode = "dsr"
[[service.backend]]
name = "b"
addr = "10.0.0.1"
exit = { port = "east", next_hop = "02:00:00:00:00:01" }
"#;

fn client(number: u16) -> FlowKey {
    FlowKey::five_tuple(proto::TCP, [10, 2, 0, 1].into(), number, [192, 0, 2, 1].into(), 80)
}

fn a_trace_says_what_the_adapter_does_for_a_connection() {
    // The adapter has room for one rule.
    let (vlans, ipv6, prefixes, marks, counts) = (true, true, true, true, true);
    let limits = Limits { rules: 1, queues: 1, vlans, ipv6, prefixes, marks, counts, switch: None };
    let adapters = Arc::new(Adapters::new(16));
    adapters.add(0, "west", Box::new(SharedStandIn::new(StandIn::new(limits))), &[0]);
    let (mut frames, mut parts) = (Frames::new(), Parts::default());
    // A connection is offered when it is found in a later batch than the one that opened it.
    for (number, packets) in [(1, 40), (2, 40), (3, 1)] {
        for packet in 0..packets {
            let flags = if packet == 0 { FlowKey::SYN } else { FlowKey::ACK };
            let data = Build::new(&client(number)).flags(flags).bytes();
            frames.push(0, LinkType::Ethernet, &data);
        }
    }
    parts.rx.insert(0, Box::new(SourceRx::new(0, Box::new(frames), Pace::Fast)));
    parts.tx.insert(1, Box::new(Collect::default()));
    parts.control.push(Arc::clone(&adapters) as Arc<dyn ControlPlane>);
    let yard = Config::parse("yard.toml", CONFIG).unwrap().build(parts).unwrap();
    let from = Instant::now();
    let running = yard.start(Arc::new(move || from.elapsed().as_nanos() as u64)).unwrap();
    while !running.is_done() {
        assert!(from.elapsed() < Duration::from_secs(60), "it does not end");
        sleep(Duration::from_millis(1));
    }
    let yard = running.handle();
    let trace = |number| {
        let trace = lb::explain::trace(&yard, &client(number).to_string()).unwrap();
        trace.steps.iter().find_map(|step| step.strip_prefix("adapter: ")).map(ToOwned::to_owned)
    };
    assert_eq!(trace(1).as_deref(), Some("it waits to be offered to the adapter"));
    assert_eq!(offload::offload(&yard).unwrap().waiting_flows, 2);
    running.tick();
    assert_eq!(
        trace(1).as_deref(),
        Some("the adapter marks its frames, so that they are found without a lookup")
    );
    let full = "the stand-in is full: it has 1 rules";
    assert_eq!(trace(2), Some(format!("it is not in the adapter: {full}")));
    assert_eq!(
        trace(3).as_deref(),
        Some("it is not in the adapter: the connection is not established")
    );
    assert_eq!(trace(4), None, "it is in no table");
    let all = offload::offload(&yard).unwrap();
    assert_eq!((all.ports[0].marked_flows, all.waiting_flows), (1, 0));
    let refused: Vec<_> =
        all.refused_flows.iter().map(|one| (one.reason.as_str(), one.flows)).collect();
    assert_eq!(refused, [(full, 1)]);
    let shown = lb::services(&yard).unwrap();
    assert_eq!((shown.cores[0].marked, shown.cores[0].marked_packets), (2, 0));
    assert!(running.join().is_balanced());
}

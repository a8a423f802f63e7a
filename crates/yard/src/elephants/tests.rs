mod marks;

use flowyard_flow::learn::elephant::{Costs, Decision, Flow, Seen, Settings, What};
use flowyard_frame::{Edit, FlowKey, Nanos, To, proto};

use flowyard_queue::Order;

use super::*;
use crate::Blueprint;
use crate::blueprint::{ElephantPlan, FixedCosts, PortPlan, QueuePlan, SteerPlan};
use crate::counters::Counters;
use crate::mail::Message;
use crate::stages::Stages;

/// Two workers; windows of 100 us.
fn config() -> Blueprint {
    let queue = |order, consumers: &[u16]| QueuePlan {
        order,
        consumers: consumers.to_vec(),
        ..QueuePlan::default()
    };
    Blueprint {
        cores: 2,
        ports: vec![PortPlan::default()],
        queues: vec![
            queue(Order::Direct, &[0]),
            queue(Order::Direct, &[1]),
            queue(Order::Ordered, &[0, 1]),
        ],
        steer: SteerPlan { spread: vec![To::Queue(0), To::Queue(1)], ..SteerPlan::default() },
        elephants: Some(ElephantPlan {
            queue: 2,
            core: 0,
            window_ns: WINDOW,
            sample_every: 64,
            settings: Settings {
                busy_high: 0.95,
                queue_high: 256,
                busy_target: 0.8,
                busy_low: 0.6,
                promote: 0.3,
                demote: 0.15,
                patience: 1,
                dwell: 1_000_000,
                undone: 10_000_000,
                promoted_max: 8,
                workers: u16::MAX,
                gain: 1.1,
                samples_min: 1,
            },
            costs: Costs { rx_ns: 10.0, work_ns: 0.0, handoff_ns: 10.0, commit_ns: 10.0 },
            fixed: FixedCosts { rx_ns: Some(10.0), handoff_ns: Some(10.0), commit_ns: Some(10.0) },
        }),
        ..Blueprint::default()
    }
}

const WINDOW: Nanos = 100_000;

fn decider(config: &Blueprint) -> Decider {
    let elephants = config.elephants.as_ref().unwrap();
    let entries: Vec<_> = (0..128).map(|i| To::Queue(i % 2)).collect();
    Decider::new(config, elephants, &entries, Decisions::default())
}

fn flow() -> Flow {
    let [a, b] = [1, 2].map(|n| std::net::IpAddr::from([10, 0, 0, n]));
    let key = FlowKey::five_tuple(proto::UDP, a, 1, b, 2).flow();
    Flow { key, hash: 0, bytes: 1000, at_least: 1000 }
}

/// Core `core` is overloaded by one flow, or idle.
fn report(core: u16, window: u64, overloaded: bool) -> Box<Report> {
    let mut seen = Seen { frames: 100, entries: vec![0; 128], ..Seen::default() };
    let mut stages = Stages::default();
    let (mut busy, mut queue_len) = (0.0, 0);
    if overloaded {
        (busy, queue_len) = (1.0, 1000);
        (seen.samples, seen.bytes, seen.flows) = (100, 1000, vec![flow()]);
        stages.add(crate::Span::Work, 100, 200_000);
    }
    Box::new(Report { core, window, busy, queue_len, drops: vec![0; 3], seen, stages })
}

#[test]
fn a_window_is_decided_when_all_have_reported_or_half_a_window_is_over() {
    let config = config();
    let mut decider = decider(&config);
    assert!(!decider.is_ready(WINDOW - 1), "it is not over");
    assert!(!decider.is_ready(WINDOW), "nobody has reported");
    decider.take(report(0, 0, false));
    assert!(!decider.is_ready(WINDOW + 1));
    assert!(decider.is_ready(WINDOW + WINDOW / 2), "core 1 is late");
    decider.take(report(1, 0, false));
    assert!(decider.is_ready(WINDOW + 1));
    decider.decide(WINDOW + 1, &mut Counters::default(), &mut |_| false);
    assert!(!decider.is_ready(WINDOW + WINDOW / 2), "once");
    decider.take(report(1, 0, false)); // of a window that is decided
    decider.take(report(0, 1, false));
    assert!(!decider.is_ready(2 * WINDOW));
    decider.take(report(7, 1, false)); // no such core
    decider.take(report(1, 1, false));
    assert!(decider.is_ready(2 * WINDOW));
}

#[test]
fn a_flow_is_split_where_another_core_has_time_and_not_where_nothing_is_known_of_it() {
    let config = config();
    for (known, promoted) in [(true, 1), (false, 0)] {
        let (mut decider, mut counters) = (decider(&config), Counters::default());
        decider.take(report(0, 0, true));
        if known {
            decider.take(report(1, 0, false));
        }
        decider.decide(WINDOW + WINDOW / 2, &mut counters, &mut |_| false);
        assert_eq!((counters.promoted, counters.refused), (promoted, 1 - promoted));
        let sent: Vec<_> = decider.unsent.iter().collect();
        match &sent[..] {
            [(0, Message::Promote(Edit::Put(key, action)))] if known => {
                assert_eq!((*key, action.to), (flow().key, To::Queue(2)));
            }
            other => assert!(!known && other.is_empty(), "{other:?}"),
        }
    }
}

#[test]
fn what_cores_dropped_counts_for_the_queue_it_was_dropped_at() {
    let config = config();
    let (mut decider, mut counters) = (decider(&config), Counters::default());
    // Core 1 does not keep up: core 0, which receives, found its queue full.
    let mut full = report(0, 0, false);
    full.drops[1] = 50;
    let mut busy = report(1, 0, true);
    busy.queue_len = 0;
    decider.take(full);
    decider.take(busy);
    decider.decide(WINDOW, &mut counters, &mut |_| false);
    let log = decider.log().last();
    assert!(matches!(log[..], [Decision { core: 1, what: What::Promote { .. }, .. }]), "{log:?}");
    assert_eq!(log[0].load.drops, 50);
}

#[test]
fn what_the_user_placed_is_not_split() {
    let config = config();
    let (mut decider, mut counters) = (decider(&config), Counters::default());
    decider.take(report(0, 0, true));
    decider.take(report(1, 0, false));
    decider.decide(WINDOW, &mut counters, &mut |key| *key == flow().key);
    assert_eq!((counters.promoted, counters.refused, decider.unsent.len()), (0, 1, 0));
    let told = decider.log().last()[0].to_string();
    assert!(told.contains("a rule of the configuration decides where the flow goes"), "{told}");
}

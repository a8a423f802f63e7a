//! The end of a run: by itself, when stopped, or when a core dies; and order while tables change.

use std::net::Ipv4Addr;

use flowyard_config::Config;
use flowyard_frame::{Batch, FlowKey, Nanos, To, proto};
use flowyard_pool::Pool;
use flowyard_ports::mem::Frames;
use flowyard_ports::port::Pace;
use flowyard_ports::port::{Collect, Repeat, SourceRx};
use flowyard_testkit::{Build, Checker, Rng};
use flowyard_wire::LinkType;
use flowyard_works::Forward;
use flowyard_yard::Discard;
use flowyard_yard::{Parts, Reload, Work, Yard};

use crate::threads::clock;

flowyard_testkit::tests! {
    order_holds_while_tables_change,
    a_stop_drains_every_frame,
    a_dead_core_without_a_substitute_ends_the_run,
    a_core_that_dies_is_reported_and_the_others_continue,
}

const YARD: &str = r#"
    [yard]
    cores = 3
    [[port]]
    name = "p"
    kind = "mem"
    in = "given"
    [[queue]]
    name = "a"
    order = "atomic"
    consumers = [1, 2]
    window_frames = 128
    [[queue]]
    name = "o"
    order = "ordered"
    consumers = [0, 1, 2]
    window_frames = 128
    [[queue]]
    name = "d"
    order = "direct"
    consumers = [2]
    window_frames = 128
    [work]
    kind = "forward"
"#;

/// `count` frames of `flows` flows, each with its flow and number.
fn traffic(flows: u64, count: u64, checker: &mut Checker) -> Frames {
    let (mut frames, mut bytes, mut rng) = (Frames::new(), Vec::new(), Rng::new(5));
    for time in 0..count {
        let flow = rng.below(flows);
        let [a, b] = [[10, 0, 0, flow as u8], [10, 0, 1, 1]].map(Ipv4Addr::from);
        let payload = [flow.to_be_bytes(), checker.enter(flow).to_be_bytes()].concat();
        let key = FlowKey::five_tuple(proto::UDP, a.into(), 7, b.into(), 53);
        Build::new(&key).payload(&payload).write(&mut bytes);
        frames.push(time, LinkType::Ethernet, &bytes);
    }
    frames
}

fn label(data: &[u8]) -> (u64, u64) {
    let word = |at: usize| u64::from_be_bytes(data[at..at + 8].try_into().unwrap());
    (word(42), word(50))
}

/// Tables change all the time, as fast as possible; every flow stays in order.
pub(crate) fn order_holds_while_tables_change() {
    let mut checker = Checker::new();
    let frames = traffic(50, 60_000, &mut checker);
    let collect = Collect::default();
    let mut parts = Parts::default();
    let rx = SourceRx::new(0, Box::new(frames), Pace::Rate(400_000.0));
    parts.rx.insert(0, Box::new(rx));
    parts.tx.insert(0, Box::new(collect.clone()));
    let running = Config::parse("y", &crate::engine(YARD))
        .unwrap()
        .build(parts)
        .unwrap()
        .start(clock())
        .unwrap();
    let mut rng = Rng::new(1);
    while !running.is_done() {
        let spread = (0..16).map(|_| To::Queue(rng.below(3) as u16)).collect();
        running.reload(Reload { spread, ..Reload::default() });
        std::thread::sleep(std::time::Duration::from_micros(300));
    }
    let outcome = running.join();
    for (_, data) in collect.take().iter() {
        let (flow, seq) = label(data);
        checker.leave(flow, seq);
    }
    checker.finish(0).unwrap();
    let total = outcome.total();
    assert!(outcome.is_balanced() && outcome.held == 0, "{outcome:#?}");
    assert!(total.settle_moved > 100, "{total:#?}");
}

/// An endless sequence of frames, until stopped.
fn endless(parts: &mut Parts) -> Yard {
    let frames = traffic(50, 5_000, &mut Checker::new());
    let source = Repeat::new(frames, u32::MAX);
    parts.rx.insert(0, Box::new(SourceRx::new(0, Box::new(source), Pace::Fast)));
    parts.tx.insert(0, Box::new(Discard));
    let parts = std::mem::take(parts);
    Config::parse("y", &crate::engine(YARD)).unwrap().build(parts).unwrap()
}

pub(crate) fn a_stop_drains_every_frame() {
    let running = endless(&mut Parts::default()).start(clock()).unwrap();
    while running.counters().iter().map(|core| core.tx_frames).sum::<u64>() < 1000 {
        std::thread::yield_now();
    }
    assert!(!running.is_done());
    running.stop();
    let outcome = running.join();
    assert!(outcome.is_balanced() && outcome.held == 0, "{outcome:#?}");
    assert!(outcome.total().drops.total() == 0 && outcome.remarks.is_empty(), "{outcome:#?}");
}

/// Panics with its batch number `after`.
struct Mortal {
    after: u32,
    then: Forward,
}

impl Work for Mortal {
    fn work(&mut self, batch: &mut Batch, pool: &Pool, now: Nanos) -> Nanos {
        self.after -= 1;
        assert!(self.after > 0, "this core was to die");
        self.then.work(batch, pool, now)
    }
}

/// The queue of the dead core stays full, and its producer keeps frames for it.
pub(crate) fn a_dead_core_without_a_substitute_ends_the_run() {
    let (head, tail) = YARD.split_once("[[queue]]").unwrap();
    let text = format!(
        "{head}[[queue]]\nname = \"only\"\norder = \"direct\"\nconsumers = [1]\n\
         window_frames = 128\n[[queue]]{tail}[steer]\nspread = [\"only\"]\n"
    );
    let mut parts = Parts::default();
    let frames = traffic(50, 5_000, &mut Checker::new());
    parts.rx.insert(0, Box::new(SourceRx::new(0, Box::new(frames), Pace::Fast)));
    parts.tx.insert(0, Box::new(Discard));
    parts.work.insert(1, Box::new(Mortal { after: 1, then: Forward::new(&[0]) }));
    let running = Config::parse("y", &crate::engine(&text))
        .unwrap()
        .build(parts)
        .unwrap()
        .start(clock())
        .unwrap();
    let wait = std::time::Duration::from_millis(10);
    for _ in 0..1000 {
        if !running.is_done() {
            std::thread::sleep(wait);
        }
    }
    assert!(running.is_done(), "the run does not end: {:?}", running.counters());
    let outcome = running.join();
    assert_eq!(outcome.cores[1].died.as_deref(), Some("this core was to die"));
    assert!(outcome.is_balanced() && outcome.held > 0, "{outcome:#?}");
}

pub(crate) fn a_core_that_dies_is_reported_and_the_others_continue() {
    let mut parts = Parts::default();
    let work = Mortal { after: 20, then: Forward::new(&[0]) };
    parts.work.insert(1, Box::new(work));
    let running = endless(&mut parts).start(clock()).unwrap();
    let count = || running.counters().iter().map(|core| core.tx_frames).sum::<u64>();
    while running.counters()[1].drops.total() == 0 {
        std::thread::yield_now();
    }
    let then = count();
    while count() < then + 10_000 {
        std::thread::yield_now(); // the other cores continue
    }
    running.stop();
    let outcome = running.join();
    assert_eq!(outcome.cores[1].died.as_deref(), Some("this core was to die"));
    assert!(outcome.is_balanced() && outcome.held == 0, "{outcome:#?}");
    let drops: Vec<_> = outcome.total().drops.iter().collect();
    assert!(matches!(drops[..], [(flowyard_yard::DropReason::CoreDied, 1..=32)]), "{drops:?}");
}

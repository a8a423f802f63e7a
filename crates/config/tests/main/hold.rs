//! A flow that always has frames in its queue moves only if frames are held back.

use flowyard_config::Config;
use flowyard_frame::{FlowKey, To, proto};
use flowyard_ports::mem::Frames;
use flowyard_ports::port::Pace;
use flowyard_ports::port::{Collect, SourceRx};
use flowyard_testkit::{Build, Checker};
use flowyard_wire::LinkType;
use flowyard_yard::sim::{Faults, Sim};
use flowyard_yard::{Counters, Message, Parts, Reload};

flowyard_testkit::tests! {
    an_elephant_moves_if_frames_are_held,
    an_elephant_stays_if_no_frames_are_held,
}

const FRAMES: u64 = 20_000;

/// Sends one flow faster than one core can work on it, and changes the table from queue "alone" to
/// queue "many" on the way. Returns the counters and the number of frames that went through "many".
fn elephant(hold_frames: usize) -> (Counters, u64) {
    let text = format!(
        r#"
        [yard]
        cores = 4
        hold_frames = {hold_frames}
        hold_after_frames = 64
        hold_us = 100000
        [[port]]
        name = "p"
        kind = "mem"
        in = "given"
        [[queue]]
        name = "alone"
        order = "atomic"
        consumers = [1]
        window_frames = 64
        [[queue]]
        name = "many"
        order = "ordered"
        consumers = [2, 3]
        window_frames = 128
        [steer]
        spread = ["alone"]
        [work]
        kind = "burn"
        cost_ns = 2000
        "#
    );
    let [a, b] = [1, 2].map(|n| std::net::IpAddr::from([10, 0, 0, n]));
    let key = FlowKey::five_tuple(proto::UDP, a, 1, b, 2);
    let (mut frames, mut checker) = (Frames::new(), Checker::new());
    for time in 0..FRAMES {
        let seq = checker.enter(0);
        let data = Build::new(&key).payload(&seq.to_be_bytes()).bytes();
        frames.push(time * 1000, LinkType::Ethernet, &data);
    }
    let collect = Collect::default();
    let mut parts = Parts::default();
    parts.rx.insert(0, Box::new(SourceRx::new(0, Box::new(frames), Pace::Capture)));
    parts.tx.insert(0, Box::new(collect.clone()));
    let yard = Config::parse("y", &text).unwrap().build(parts).unwrap();
    let mut sim = Sim::new(yard, 1, Faults::default());
    while sim.total().tx_frames < 1000 {
        sim.step();
    }
    let reload = Reload { spread: vec![To::Queue(1)], ..Reload::default() };
    assert!(sim.yard.mail.offer(0, Message::Reload(reload.into())));
    let total = sim.run().unwrap();
    for (_, data) in collect.take().iter() {
        checker.leave(0, u64::from_be_bytes(data[42..50].try_into().unwrap()));
    }
    checker.finish(0).unwrap();
    (total, sim.yard.places.queues[1].queue.tail())
}

fn an_elephant_moves_if_frames_are_held() {
    let (total, through_many) = elephant(256);
    assert!(total.hold_moved == 1 && total.settle_moved == 1, "{total:#?}");
    assert!(total.hold_frames <= 256, "{total:#?}");
    assert!(through_many > FRAMES / 2, "{through_many}");
    assert_eq!((total.tx_frames, total.drops.total()), (FRAMES, 0));
}

fn an_elephant_stays_if_no_frames_are_held() {
    let (total, through_many) = elephant(0);
    assert_eq!((total.settle_moved, total.hold_frames), (0, 0));
    assert_eq!(through_many, 0, "always in flight, it never drains");
    assert_eq!(total.tx_frames, FRAMES);
}

//! Floods on threads: no core ends before the last copy has left.

use flowyard_config::Config;
use flowyard_frame::{FlowKey, proto};
use flowyard_ports::mem::Frames;
use flowyard_ports::port::Pace;
use flowyard_ports::port::{Collect, SourceRx};
use flowyard_testkit::{Build, Checker, Rng};
use flowyard_wire::LinkType;
use flowyard_yard::Parts;

use crate::threads::clock;

flowyard_testkit::tests! {
    no_core_ends_before_the_last_copy_has_left,
}

const PORTS: u64 = 4;
const FLOWS: u64 = 8;

/// Four ports on three cores with small tx queues; all cores work.
fn config(order: &str) -> Config {
    let mut text = String::from("[yard]\ncores = 3\n");
    for port in 0..PORTS {
        text += &format!(
            "[[port]]\nname = \"p{port}\"\nkind = \"mem\"\ncore = {}\nwindow_frames = 32\n",
            port % 3
        );
        text += if port == 0 { "in = \"given\"\n" } else { "" };
    }
    text += &format!(
        "[[queue]]\nname = \"q\"\norder = \"{order}\"\nconsumers = [0, 1, 2]\nwindow_frames = 64\n\
         [work]\nkind = \"bridge\"\n"
    );
    Config::parse("y", &text).unwrap()
}

/// Runs `count` broadcasts; order and conservation, per port.
fn run(config: &Config, count: u64, seed: u64) {
    let (mut frames, mut checker, mut rng) = (Frames::new(), Checker::new(), Rng::new(seed));
    for time in 0..count {
        let flow = rng.below(FLOWS);
        let [a, b] = [[10, 0, 0, flow as u8], [10, 0, 1, 1]].map(std::net::IpAddr::from);
        let key = FlowKey::five_tuple(proto::UDP, a, 7, b, 53);
        let key = FlowKey { eth_src: [2, 0, 0, 0, 0, flow as u8], eth_dst: [0xff; 6], ..key };
        let payload = [flow.to_be_bytes(), checker.enter(flow).to_be_bytes()].concat();
        frames.push(time, LinkType::Ethernet, &Build::new(&key).payload(&payload).bytes());
    }
    let mut parts = Parts::default();
    parts.rx.insert(0, Box::new(SourceRx::new(0, Box::new(frames), Pace::Fast)));
    let ports: Vec<_> = (0..PORTS).map(|_| Collect::default()).collect();
    for (number, port) in (0..).zip(&ports) {
        parts.tx.insert(number, Box::new(port.clone()));
    }
    let outcome = config.build(parts).unwrap().start(clock()).unwrap().join();
    let total = outcome.total();
    assert!(outcome.is_balanced() && outcome.held == 0, "seed {seed}: {outcome:#?}");
    assert_eq!(total.copies, count * (PORTS - 2), "seed {seed}: {outcome:#?}");
    assert_eq!(total.tx_frames, count * (PORTS - 1), "seed {seed}: {outcome:#?}");
    checker.copy(total.copies);
    for (exit, port) in (0..).zip(&ports) {
        for (_, data) in port.take().iter() {
            let word = |at: usize| u64::from_be_bytes(data[at..at + 8].try_into().unwrap());
            checker.leave_by(exit, word(42), word(50));
        }
    }
    checker.finish(0).unwrap();
}

fn no_core_ends_before_the_last_copy_has_left() {
    for order in ["ordered", "atomic"] {
        let config = config(order);
        for seed in 0..100 {
            run(&config, 1 + seed, seed); // over soon: the cores look whether it is all the time
        }
        run(&config, 20_000, 1000);
    }
}

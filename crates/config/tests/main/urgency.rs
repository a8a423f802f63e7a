//! A queue that always has frames does not starve less urgent queues of its core.
//!
//! ```text
//!  core 0: port "a" ──> queue 0, priority 0 ──┐
//!  core 1: port "b" ──> queue 1, priority 1 ──┼──> core 3, which is slower than each of them
//!  core 2: port "c" ──> queue 2, priority 9 ──┘
//! ```

use flowyard_config::Config;
use flowyard_frame::{FlowKey, proto};
use flowyard_ports::mem::Frames;
use flowyard_ports::port::{Collect, Pace, SourceRx};
use flowyard_testkit::{Build, Checker, Rng};
use flowyard_wire::LinkType;
use flowyard_yard::Parts;
use flowyard_yard::sim::{Faults, Sim};

flowyard_testkit::tests! {
    each_queue_gets_its_share_under_any_seed,
    with_strict_priority_less_urgent_queues_starve,
    a_number_that_reverses_the_priorities_is_refused,
}

const FRAMES: u64 = 6000;

fn text(every: u32, orders: [&str; 3]) -> String {
    let mut text = format!("[yard]\ncores = 4\nless_urgent_every = {every}\n");
    for (core, port) in ["a", "b", "c"].into_iter().enumerate() {
        text += &format!(
            "[[port]]\nname = \"{port}\"\nkind = \"mem\"\nin = \"given\"\ncore = {core}\n"
        );
    }
    for (at, (order, priority)) in orders.into_iter().zip([0, 1, 9]).enumerate() {
        text += &format!(
            "[[queue]]\nname = \"q{at}\"\norder = \"{order}\"\nconsumers = [3]\npriority = {priority}\n\
             window_frames = 256\n"
        );
    }
    for (at, port) in ["a", "b", "c"].into_iter().enumerate() {
        text += &format!("[[steer.rule]]\nmatch = {{ in_port = \"{port}\" }}\nqueue = \"q{at}\"\n");
    }
    text + "[work]\nkind = \"burn\"\ncost_ns = 500\n"
}

/// Runs the engine under a seed. Returns the frames of each queue that were done when the most urgent one had done half
/// of its frames, after the order of each flow and the number of frames were checked.
fn shares(seed: u64, every: u32, orders: [&str; 3], faults: Faults) -> [u64; 3] {
    let (mut parts, mut checker) = (Parts::default(), Checker::new());
    let ports: [Collect; 3] = Default::default();
    for port in 0..3_u16 {
        let mut frames = Frames::new();
        for at in 0..FRAMES {
            let flow = u64::from(port) * 8 + at % 8;
            let [a, b] = [1, 2].map(|n| std::net::IpAddr::from([10, 0, flow as u8, n]));
            let key = FlowKey::five_tuple(proto::UDP, a, 1, b, 2);
            let seq = checker.enter(flow);
            let data = Build::new(&key).payload(&seq.to_be_bytes()).bytes();
            frames.push(at, LinkType::Ethernet, &data);
        }
        parts.rx.insert(port, Box::new(SourceRx::new(port, Box::new(frames), Pace::Fast)));
        parts.tx.insert(port, Box::new(ports[usize::from(port)].clone()));
    }
    let yard = Config::parse("y", &text(every, orders)).unwrap().build(parts).unwrap();
    let mut sim = Sim::new(yard, seed, faults);
    let done = |sim: &Sim| [0, 1, 2].map(|at: usize| sim.yard.places.queues[at].queue.head());
    while done(&sim)[0] < FRAMES / 2 {
        sim.step();
    }
    let shares = done(&sim);
    let total = sim.run().unwrap();
    assert_eq!((total.tx_frames, total.drops.total()), (3 * FRAMES, 0), "seed {seed}");
    for port in &ports {
        for (_, data) in port.take().iter() {
            let seq = u64::from_be_bytes(data[42..50].try_into().unwrap());
            checker.leave(u64::from(data[28]), seq);
        }
    }
    checker.finish(0).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    shares
}

/// Numbers, orders and stalls by seed. The last batches of each queue are not done when it is looked at.
fn each_queue_gets_its_share_under_any_seed() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let every = 2 + rng.below(15) as u32;
        let orders = [0; 3].map(|_| ["direct", "ordered", "atomic"][rng.below(3) as usize]);
        let faults = Faults { stall_every: 50, stall_ns: 20_000, ..Faults::default() };
        let [most, rest @ ..] = shares(seed, every, orders, faults);
        // Of `every` batches, one is for the two others, so each has one of 2 (every - 1) batches of the most urgent
        // one, whose batches are not larger than theirs, which always have frames.
        let least = most / (2 * (u64::from(every) - 1));
        let about = format!("seed {seed}: of {every}, {orders:?}: {most} and {rest:?}");
        assert!(rest.iter().all(|&frames| frames + 64 >= least), "{about}");
        assert!(rest.iter().sum::<u64>() <= most + 256 || every < 4, "{about}");
    }
}

fn with_strict_priority_less_urgent_queues_starve() {
    let [most, rest @ ..] = shares(1, 0, ["direct"; 3], Faults::default());
    assert!(rest.iter().sum::<u64>() < most / 20, "{most} and {rest:?}");
}

fn a_number_that_reverses_the_priorities_is_refused() {
    let error = Config::parse("y", &text(1, ["direct"; 3])).unwrap_err().to_string();
    assert!(error.contains("strict priority"), "{error}");
}

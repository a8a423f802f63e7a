//! Two cores that each receive: frames stay with the core that received them, unless it is overloaded.

use flowyard_config::Config;
use flowyard_frame::{FlowKey, proto};
use flowyard_ports::mem::Frames;
use flowyard_ports::port::{Collect, Pace, SourceRx};
use flowyard_testkit::{Build, Checker, Rng};
use flowyard_wire::LinkType;
use flowyard_yard::Parts;
use flowyard_yard::sim::{Faults, Sim};

flowyard_testkit::tests! {
    an_idle_core_relieves_an_overloaded_one,
    frames_stay_where_they_were_received,
    two_overloaded_cores_keep_their_frames,
}

/// What a core can do: a frame in 3 us.
const COST_NS: u32 = 3000;

fn text(steer: &str) -> String {
    let one = |core: usize, port: &str| {
        format!(
            "[[port]]\nname = \"{port}\"\nkind = \"mem\"\nin = \"given\"\ncore = {core}\nwindow_frames = 64\n\
             [[queue]]\nname = \"q{core}\"\norder = \"direct\"\nconsumers = [{core}]\nwindow_frames = 64\n"
        )
    };
    let (west, east) = (one(0, "west"), one(1, "east"));
    format!(
        "[yard]\ncores = 2\n[steer]\n{steer}\n{west}{east}[work]\nkind = \"burn\"\ncost_ns = {COST_NS}\n"
    )
}

/// Frames that each port receives, and at which rate: millions a second.
type Load = [(u64, f64); 2];

/// Frames that each core worked on.
fn worked(steer: &str, load: Load, seed: u64) -> [u64; 2] {
    let (mut checker, mut rng) = (Checker::new(), Rng::new(seed));
    let (mut parts, mut all) = (Parts::default(), Vec::new());
    for (port, (count, rate)) in (0..).zip(load) {
        let (mut frames, mut bytes) = (Frames::new(), Vec::new());
        for time in 0..count {
            let flow = rng.below(64) << 8 | u64::from(port);
            let source = [10, port as u8, 0, (flow >> 8) as u8];
            let [a, b] = [source, [10, 0, 1, 1]].map(std::net::IpAddr::from);
            let key = FlowKey::five_tuple(proto::UDP, a, 7, b, 53);
            let payload = [flow.to_be_bytes(), checker.enter(flow).to_be_bytes()].concat();
            Build::new(&key).payload(&payload).write(&mut bytes);
            frames.push(time, LinkType::Ethernet, &bytes);
        }
        let rx = SourceRx::new(port, Box::new(frames), Pace::Rate(rate * 1e6));
        parts.rx.insert(port, Box::new(rx));
        let out = Collect::default();
        parts.tx.insert(port, Box::new(out.clone()));
        all.push(out);
    }
    let yard = Config::parse("y", &text(steer)).unwrap().build(parts).unwrap();
    let mut sim = Sim::new(yard, seed, Faults::default());
    let total = sim.run().unwrap();
    let count: u64 = load.iter().map(|(count, _)| count).sum();
    assert_eq!((total.tx_frames, total.drops.total()), (count, 0), "seed {seed}");
    for out in all {
        for (_, data) in out.take().iter() {
            let word = |at: usize| u64::from_be_bytes(data[at..at + 8].try_into().unwrap());
            checker.leave(word(42), word(50));
        }
    }
    checker.finish(0).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    let pool = sim.yard.pool.share();
    let worked = [0, 1].map(|core: usize| sim.yard.cores[core].counters().work_frames);
    drop(sim);
    assert_eq!(pool.held(), 0);
    worked
}

fn an_idle_core_relieves_an_overloaded_one() {
    for seed in 0..10 {
        let [own, other] = worked("", [(30_000, 0.6), (100, 0.01)], seed);
        assert!(other > 6_000, "seed {seed}: core 0 worked on {own}, core 1 on {other} frames");
        assert!(own > other, "seed {seed}: core 0 keeps its share: {own} of {}", own + other);
    }
}

fn frames_stay_where_they_were_received() {
    for seed in 0..10 {
        assert_eq!(worked("", [(3_000, 0.1), (500, 0.02)], seed), [3_000, 500], "seed {seed}");
        let [west, east] = worked("keep_local = false", [(3_000, 0.1), (500, 0.02)], seed);
        assert!(east > 1_000, "by the hash: {west}, {east}");
        let [_, east] = worked("spread = [\"q1\"]", [(3_000, 0.1), (500, 0.02)], seed);
        assert_eq!(east, 3_500, "as the configuration says");
    }
}

fn two_overloaded_cores_keep_their_frames() {
    for seed in 0..5 {
        let [west, east] = worked("", [(20_000, 0.6), (20_000, 0.6)], seed);
        let moved = west.abs_diff(20_000).max(east.abs_diff(20_000));
        assert!(moved < 2_000, "seed {seed}: {west} and {east} of 20,000 frames each");
    }
}

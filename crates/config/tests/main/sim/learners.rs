//! Rules together with learners, under seeds: with reloads of the rules, stalls and full queues,
//! order and conservation hold, and a cache does not change the results.

use std::fmt::Write;
use std::sync::Arc;

use flowyard_config::Config;
use flowyard_ports::port::Pace;
use flowyard_ports::port::{Collect, SourceRx};
use flowyard_testkit::{Checker, Rng};
use flowyard_works::Forward;
use flowyard_yard::sim::{Faults, Sim};
use flowyard_yard::{Message, Parts};

use crate::sim::chaos::{Moods, moody};
use crate::sim::yards::{self, Case, traffic};
use crate::sim::{Ran, drive, number};

flowyard_testkit::tests! {
    a_cache_does_not_change_the_results_of_any_seed,
    every_seed_with_rfs_keeps_order_and_loses_nothing,
}

/// The kind of learner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Nothing,
    Cache,
    Rfs,
}

const COUNTERS: u64 = 3;

/// Some rules: on fields that the traffic has, with every kind of action.
fn rules(rng: &mut Rng, queues: u64) -> String {
    let mut text = String::new();
    for _ in 0..rng.below(9) {
        let mut fields = Vec::new();
        let address = |rng: &mut Rng| {
            // A client, a range of them, or the server.
            match rng.below(4) {
                0 => format!("10.0.0.{}", rng.below(40)),
                1 => format!("10.0.0.{}/28", rng.below(3) * 16),
                2 => "10.0.0.0/8".into(),
                _ => "10.0.1.1".into(),
            }
        };
        for name in ["src", "dst"] {
            if rng.below(3) == 0 {
                fields.push(format!("{name} = \"{}\"", address(rng)));
            }
        }
        if rng.below(4) == 0 {
            fields.push("proto = \"udp\"".into());
        }
        if rng.below(4) == 0 {
            fields.push(format!("dst_port = {}", [53, 4000][rng.below(2) as usize]));
        }
        let from = rng.below(2);
        let by_port = rng.below(3) == 0;
        if by_port {
            fields.push(format!("in_port = \"p{from}\""));
        }
        let to = match rng.below(8) {
            0 => "drop = true".into(),
            // The port to which the work would send the frame, so that a flow leaves by one port.
            1 | 2 if by_port => format!("port = \"p{}\"", 1 - from),
            _ => format!("queue = \"q{}\"", rng.below(queues)),
        };
        let (fields, priority) = (fields.join(", "), rng.below(3));
        writeln!(text, "[[steer.rule]]\nmatch = {{ {fields} }}\npriority = {priority}\n{to}")
            .unwrap();
        if rng.below(2) == 0 {
            writeln!(text, "counter = \"c{}\"", rng.below(COUNTERS)).unwrap();
        }
    }
    text
}

/// The same configuration with other rules. If two rules have equal match and priority, other rules
/// are drawn.
fn with_rules(rng: &mut Rng, text: &str, queues: u64) -> Config {
    loop {
        let rules = rules(rng, queues);
        if let Ok(config) = Config::parse("seed.toml", &format!("{text}{rules}")) {
            return config;
        }
    }
}

fn describe(rng: &mut Rng, kind: Kind, seed: u64) -> (String, u64, u64) {
    let cores = 2 + rng.below(3);
    let mut text = format!("[yard]\ncores = {cores}\nseed = {seed}\nbuffer_bytes = 128\n");
    writeln!(text, "settle_slots = {}", [4, 64, 4096][rng.below(3) as usize]).unwrap();
    writeln!(text, "hold_after_frames = {}\nhold_us = 100", [1, 8, 100][rng.below(3) as usize])
        .unwrap();
    let full = |rng: &mut Rng| ["hold", "hold", "drop"][rng.below(3) as usize];
    for port in 0..2 {
        let (core, full) = (port * (cores - 1), full(rng));
        writeln!(text, "[[port]]\nname = \"p{port}\"\nkind = \"mem\"\nin = \"none\"").unwrap();
        writeln!(text, "core = {core}\nfull = \"{full}\"").unwrap();
    }
    // A queue of its own for each core, and some shared queues.
    let homes = (0..cores).map(|core| ("direct", vec![core]));
    let mut queues: Vec<_> = homes.collect();
    for order in ["ordered", "atomic"] {
        queues.push((order, (0..cores).collect()));
    }
    for (number, (order, consumers)) in queues.iter().enumerate() {
        let (window, full) = (32 + rng.below(100), full(rng));
        writeln!(text, "[[queue]]\nname = \"q{number}\"\norder = \"{order}\"").unwrap();
        writeln!(text, "consumers = {consumers:?}\nwindow_frames = {window}\nfull = \"{full}\"")
            .unwrap();
    }
    match kind {
        Kind::Nothing => {}
        Kind::Cache => {
            let (entries, every) = (1 + rng.below(60), rng.below(4));
            writeln!(text, "[learn]\nkind = \"cache\"\nentries = {entries}").unwrap();
            writeln!(text, "replace_every = {every}").unwrap();
        }
        Kind::Rfs => {
            let (entries, idle) = (1 + rng.below(60), rng.below(2) * 30_000);
            writeln!(text, "[learn]\nkind = \"rfs\"\nentries = {entries}").unwrap();
            writeln!(text, "sample_every = {}\nidle_ms = {idle}", 1 + rng.below(6)).unwrap();
        }
    }
    writeln!(text, "[work]\nkind = \"forward\"\n[steer]\nspread = [\"q{cores}\"]").unwrap();
    writeln!(text, "counters = [\"c0\", \"c1\", \"c2\"]").unwrap();
    (text, cores, queues.len() as u64)
}

/// Also records the values of the named counters.
fn run(kind: Kind, seed: u64) -> Ran {
    // The settings of the learner must not change the other random choices.
    let mut rng = Rng::new(seed);
    let (text, cores, queues) = describe(&mut Rng::new(rng.bits()), kind, seed);
    let mut config = with_rules(&mut rng, &text, queues);
    let mut checker = Checker::new();
    let (sources, offered) = traffic(&mut rng, 2, yards::Kind::Forward, &mut checker);
    let ports: Vec<_> = (0..2).map(|_| Collect::default()).collect();
    let mut parts = Parts::default();
    for (number, frames) in (0..).zip(sources) {
        let pace = if rng.below(3) == 0 { Pace::Fast } else { Pace::Capture };
        parts.rx.insert(number, Box::new(SourceRx::new(number, Box::new(frames), pace)));
    }
    for (number, port) in (0..).zip(&ports) {
        parts.tx.insert(number, Box::new(port.clone()));
    }
    let (longest, drop_every) = ([0, 500, 5_000][rng.below(3) as usize], rng.below(3) * 20);
    for core in 0..cores as u16 {
        let then = Forward::new(&[1, 0]);
        let moods = Moods { rng: Rng::new(rng.bits()), longest, drop_every };
        parts.work.insert(core, moody(Box::new(then), moods));
    }
    let yard = config.build(parts).unwrap();
    let faults = Faults {
        stall_every: [0, 20, 300][rng.below(3) as usize],
        stall_ns: 1 + rng.below(100_000),
        ..Faults::default()
    };
    let mut sim = Sim::new(yard, rng.bits(), faults);
    for _ in 0..rng.below(10) {
        for _ in 0..rng.below(400) {
            sim.step();
        }
        let new = with_rules(&mut rng, &text, queues);
        let reload = Arc::new(config.reload(&new).unwrap().tables);
        for core in 0..cores as u16 {
            assert!(sim.yard.mail.offer(core, Message::Reload(reload.clone())));
        }
        config = new;
    }
    let about = format!("{faults:?}\n{text}");
    drive(Case { sim, ports, checker, offered, about, doubles: false })
}

fn seeds() -> std::ops::Range<u64> {
    match number("FLOWYARD_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("FLOWYARD_SEEDS").unwrap_or(100),
    }
}

fn sound(kind: Kind, seed: u64) -> Ran {
    let ran = run(kind, seed);
    if let Err(error) = &ran.verdict {
        panic!(
            "{kind:?}, seed {seed}: {error}\nreplay: FLOWYARD_SEED={seed} {}",
            crate::sim::REPLAY
        );
    }
    ran
}

fn a_cache_does_not_change_the_results_of_any_seed() {
    let (mut cached, mut ruled, mut spread, mut counted) = (0, 0, 0, 0);
    for seed in seeds() {
        let (with, without) = (sound(Kind::Cache, seed), sound(Kind::Nothing, seed));
        // The trace has each tick, the time of each frame, each drop and each counter.
        assert_eq!(with.trace, without.trace, "seed {seed}: the cache changed something");
        assert_eq!(with.counts, without.counts, "seed {seed}");
        assert_eq!(without.total.exact_hit, 0);
        assert_eq!(with.total.exact_hit + with.total.rule_hit, without.total.rule_hit);
        cached += with.total.exact_hit;
        ruled += with.total.rule_hit;
        spread += with.total.rx_frames - without.total.rule_hit;
        counted += with.counts.iter().map(|count| count.frames).sum::<u64>();
    }
    flowyard_testkit::note!(
        "{cached} from the cache, {ruled} by rules, {spread} by neither; {counted} counted"
    );
    if seeds().end - seeds().start >= 100 {
        assert!(cached > 10_000 && ruled > 10_000 && spread > 10_000 && counted > 10_000);
    }
}

fn every_seed_with_rfs_keeps_order_and_loses_nothing() {
    let (mut moved, mut learnt, mut ruled) = (0, 0, 0);
    for seed in seeds() {
        let ran = sound(Kind::Rfs, seed);
        moved += ran.moved;
        learnt += ran.total.exact_hit;
        ruled += ran.total.rule_hit;
    }
    flowyard_testkit::note!("{moved} moves, {learnt} frames by learnt entries, {ruled} by rules");
    if seeds().end - seeds().start >= 100 {
        assert!(moved > 1_000 && learnt > 10_000 && ruled > 10_000);
    }
}

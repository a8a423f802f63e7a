//! The whole engine under seeds: random configurations, random traffic, random faults. Order and
//! conservation hold each time.
//!
//! `FLOWYARD_SEEDS=10000` runs more seeds than the fixed 500, `FLOWYARD_FIRST_SEED=7000` others,
//! `FLOWYARD_SEED=17` runs one.

mod attend;
mod chaos;
pub(crate) mod fan;
mod injected;
mod interfaces;
mod ipsec;
mod learners;
mod lives;
mod rebalance;
mod switches;
mod yards;

use std::collections::HashMap;
use std::env;

use flowyard_testkit::Violation;
use flowyard_yard::{Count, Counters, DropReason};
use yards::Case;
pub(crate) use yards::{Kind, Options};

flowyard_testkit::tests! {
    mod attend,
    mod fan,
    mod injected,
    mod ipsec,
    mod learners,
    mod lives,
    mod rebalance,
    every_seed_keeps_order_and_loses_nothing,
    bridges_keep_the_order_of_copies_and_lose_nothing,
    routers_keep_order_and_lose_nothing,
    switches_keep_the_order_of_copies_and_lose_nothing,
    flows_are_reordered_without_settle,
    different_seeds_give_different_results,
}

const REPLAY: &str = "cargo test -p flowyard-config --test main sim::every_seed -- --nocapture";

pub(crate) fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

/// The results of one seed.
pub(crate) struct Ran {
    pub(crate) trace: u64,
    pub(crate) verdict: Result<(), String>,
    pub(crate) moved: u64,
    pub(crate) held: u64,
    pub(crate) deaths: usize,
    pub(crate) drops: u64,
    lost: u64,
    pub(crate) reordered: bool,
    pub(crate) total: Counters,
    counts: Vec<Count>,
    /// The number of frames that a switch answered in front of its queues.
    front: u64,
}

/// Runs one case to its end and checks it.
pub(crate) fn run(options: Options) -> Ran {
    drive(Case::new(options))
}

fn drive(case: Case) -> Ran {
    let Case { mut sim, ports, mut checker, offered, about, doubles } = case;
    let mut again = HashMap::new();
    let mut verdict = sim.run().map(drop).map_err(|error| format!("{error}; {about}"));
    let total = sim.total();
    for (exit, port) in (0..).zip(&ports) {
        for (sent, data) in port.take().iter() {
            let (flow, seq) = yards::label(data);
            // A switch may send a frame by a port twice; its second copies are in order, too.
            let turn: &mut u64 = again.entry((exit, flow, seq)).or_default();
            checker.leave_by(exit + 1000 * *turn, flow, seq);
            *turn += u64::from(doubles);
            [sent.at, flow, seq].into_iter().for_each(|word| sim.record(word));
        }
    }
    checker.copy(total.copies);
    for (reason, frames) in total.drops.iter() {
        (0..frames).for_each(|_| checker.drop(reason.name()));
        sim.record(frames);
    }
    let cores = sim.yard.cores.iter().map(flowyard_yard::Core::counts);
    let add = |sum: Vec<Count>, core: Vec<Count>| {
        sum.iter().zip(core).map(|(sum, more)| sum.plus(more)).collect()
    };
    let counts = cores.reduce(add).unwrap_or_default();
    let front = crate::front_totals(&sim.yard.cores);
    let (trace, deaths) = (sim.trace(), sim.deaths());
    // Frames that were not received remain in the source; buffers that the pool lacks are held in
    // the engine.
    let pool = sim.yard.pool.share();
    drop(sim);
    let held = offered - total.rx_frames + pool.held() as u64;
    let finished = checker.finish(held);
    let reordered = matches!(finished, Err(Violation::Order { .. }));
    if verdict.is_ok() && pool.held() != 0 {
        verdict = Err(format!("{} frames leaked; {about}", pool.held()));
    }
    if let (Ok(()), Err(violation)) = (&verdict, finished) {
        verdict = Err(format!("{violation}; {about}"));
    }
    let (moved, held, lost) = (total.settle_moved, total.hold_moved, total.edits_lost);
    let drops = total.drops.total();
    Ran { trace, verdict, moved, held, deaths, drops, lost, reordered, total, counts, front }
}

fn every_seed_keeps_order_and_loses_nothing() {
    let one = number("FLOWYARD_SEED");
    let first = number("FLOWYARD_FIRST_SEED").unwrap_or(0);
    let last = first + number("FLOWYARD_SEEDS").unwrap_or(500);
    let seeds = one.map_or(first..last, |seed| seed..seed + 1);
    let count = seeds.end - seeds.start;
    let (mut moved, mut held, mut deaths, mut drops, mut lost) = (0, 0, 0, 0, 0);
    let (mut promoted, mut demoted, mut rebalanced) = (0, 0, 0);
    for seed in seeds {
        let ran = run(Options::new(seed));
        if let Err(error) = &ran.verdict {
            panic!("seed {seed}: {error}\nreplay: FLOWYARD_SEED={seed} {REPLAY}");
        }
        if seed % 16 == 0 || one.is_some() {
            let again = run(Options::new(seed));
            assert_eq!(ran.trace, again.trace, "seed {seed} does not do the same again");
        }
        moved += ran.moved;
        held += ran.held;
        deaths += ran.deaths;
        drops += ran.drops;
        lost += ran.lost;
        promoted += ran.total.promoted;
        demoted += ran.total.demoted;
        rebalanced += ran.total.rebalanced;
    }
    flowyard_testkit::note!(
        "{count} seeds: {moved} moves, {held} by a hold, {deaths} deaths, {drops} drops"
    );
    flowyard_testkit::note!("{lost} edits lost");
    flowyard_testkit::note!(
        "{promoted} promotions, {demoted} demotions, {rebalanced} entries moved"
    );
    if count >= 500 {
        // Without these events, the test would not show anything.
        assert!(moved > 5_000 && held > 500 && deaths > 50 && drops > 10_000 && lost > 2_000);
        assert!(promoted > 100 && demoted > 80 && rebalanced > 20);
    }
}

/// The same for `kind`: the sum of the results of all seeds, and the number of seeds.
fn every_seed(kind: Kind, name: &str) -> (Counters, u64, u64) {
    let one = number("FLOWYARD_SEED");
    let seeds = one.map_or(0..number("FLOWYARD_SEEDS").unwrap_or(100), |seed| seed..seed + 1);
    let count = seeds.end - seeds.start;
    let mut front = 0;
    let total = seeds.fold(Counters::default(), |total, seed| {
        let options = Options { kind, ..Options::new(seed) };
        let ran = run(options);
        if let Err(error) = &ran.verdict {
            let replay = REPLAY.replace("every_seed", name);
            panic!("seed {seed}: {error}\nreplay: FLOWYARD_SEED={seed} {replay}");
        }
        if seed % 16 == 0 || one.is_some() {
            assert_eq!(ran.trace, run(options).trace, "seed {seed} does not do the same again");
        }
        front += ran.front;
        total.plus(&ran.total)
    });
    (total, count, front)
}

fn bridges_keep_the_order_of_copies_and_lose_nothing() {
    let (total, seeds, _) = every_seed(Kind::Bridge, "bridges");
    flowyard_testkit::note!("{seeds} seeds: {total:?}");
    if seeds >= 100 {
        let drops = |reason| total.drops.get(reason);
        assert!(total.copies > 10_000 && total.settle_moved > 1_000, "{total:?}");
        assert!(drops(DropReason::Filtered) > 100 && drops(DropReason::NoBuffer) > 100);
    }
}

fn routers_keep_order_and_lose_nothing() {
    let (total, seeds, _) = every_seed(Kind::Route, "routers");
    flowyard_testkit::note!("{seeds} seeds: {total:?}");
    if seeds >= 100 {
        let drops = |reason| total.drops.get(reason);
        assert!(total.tx_frames > 10_000 && total.settle_moved > 1_000, "{total:?}");
        assert!(drops(DropReason::TtlExpired) > 100 && drops(DropReason::NoRoute) > 100);
        assert!(drops(DropReason::NotIp) > 100);
    }
}

fn switches_keep_the_order_of_copies_and_lose_nothing() {
    let (total, seeds, front) = every_seed(Kind::Switch, "switches");
    flowyard_testkit::note!("{seeds} seeds, {front} frames by port mappings: {total:?}");
    if seeds >= 100 {
        assert!(front > 1_000, "{front}");
        let drops = |reason| total.drops.get(reason);
        assert!(total.copies > 10_000 && total.settle_moved > 1_000, "{total:?}");
        assert!(drops(DropReason::Filtered) > 100 && drops(DropReason::NoBuffer) > 100);
        assert!(drops(DropReason::TtlExpired) > 100 && drops(DropReason::NoFlow) > 100);
        assert!(drops(DropReason::Punted) > 100);
    }
}

/// The checker detects reordering: the same cases without settle reorder frames.
fn flows_are_reordered_without_settle() {
    let off = |seed| run(Options { settle: false, ..Options::new(seed) });
    let reordered = (0..60).filter(|&seed| off(seed).reordered).count();
    assert!(reordered >= 30, "{reordered} of 60 seeds reorder without settle");
    let bridge = |seed| run(Options { kind: Kind::Bridge, settle: false, ..Options::new(seed) });
    let reordered = (0..60).filter(|&seed| bridge(seed).reordered).count();
    assert!(reordered >= 30, "{reordered} of 60 bridges reorder without settle");
    let switch = |seed| run(Options { kind: Kind::Switch, settle: false, ..Options::new(seed) });
    let reordered = (0..60).filter(|&seed| switch(seed).reordered).count();
    assert!(reordered >= 30, "{reordered} of 60 switches reorder without settle");
}

fn different_seeds_give_different_results() {
    let mut traces: Vec<_> = (0..20).map(|seed| run(Options::new(seed)).trace).collect();
    traces.sort_unstable();
    traces.dedup();
    assert_eq!(traces.len(), 20);
}

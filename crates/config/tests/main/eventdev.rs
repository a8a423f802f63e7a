//! The tests of flowyard's own queues over an event device, event_sw: random yards under seeds with stalls, full queues,
//! moves of flows and dead cores; the ends of runs on threads; a capture with several numbers of cores; the scenarios.

use flowyard_scenario::Scenario;

use crate::event_engine::{DPDK, engine, over};
use crate::sim::{Kind, Options, number, run};
use crate::threads;

flowyard_testkit::tests! {
    every_seed_keeps_order_and_loses_nothing needs [DPDK],
    routers_keep_order_and_lose_nothing needs [DPDK],
    flows_are_reordered_without_settle needs [DPDK],
    flows_leave_a_port_of_several_cores_in_order needs [DPDK],
    scenarios_have_the_results_of_our_own_queues needs [DPDK],
    order_holds_while_tables_change needs [DPDK],
    a_stop_drains_every_frame needs [DPDK],
    a_dead_core_without_a_substitute_ends_the_run needs [DPDK],
    a_core_that_dies_is_reported_and_the_others_continue needs [DPDK],
    every_flow_leaves_unchanged_with_any_number_of_cores needs [DPDK],
}

fn every_seed_keeps_order_and_loses_nothing() {
    over(seeds);
}

fn routers_keep_order_and_lose_nothing() {
    over(routers);
}

fn flows_are_reordered_without_settle() {
    over(without_settle);
}

fn scenarios_have_the_results_of_our_own_queues() {
    over(scenarios);
}

/// As the test of flowyard's own queues, with fewer seeds.
fn seeds() {
    let one = number("FLOWYARD_SEED");
    let seeds = one.map_or(0..number("FLOWYARD_SEEDS").unwrap_or(200), |seed| seed..seed + 1);
    let count = seeds.end - seeds.start;
    let (mut moved, mut held, mut deaths, mut drops, mut promoted) = (0, 0, 0, 0, 0);
    for seed in seeds {
        let ran = run(Options::new(seed));
        if let Err(error) = &ran.verdict {
            panic!("seed {seed}: {error}");
        }
        if seed % 16 == 0 || one.is_some() {
            let again = run(Options::new(seed));
            assert_eq!(ran.trace, again.trace, "seed {seed} does not do the same again");
        }
        (moved, held, drops) = (moved + ran.moved, held + ran.held, drops + ran.drops);
        (deaths, promoted) = (deaths + ran.deaths, promoted + ran.total.promoted);
    }
    flowyard_testkit::note!(
        "{count} seeds: {moved} moves, {held} by a hold, {deaths} deaths, {drops} drops, {promoted} promotions"
    );
    if count >= 200 {
        assert!(moved > 1000 && held > 100 && deaths > 20 && drops > 1000 && promoted > 10);
    }
}

fn routers() {
    for seed in 0..50 {
        let ran = run(Options { kind: Kind::Route, ..Options::new(seed) });
        if let Err(error) = &ran.verdict {
            panic!("seed {seed}: {error}");
        }
    }
}

/// The checker detects reordering: the same cases without settle reorder frames.
fn without_settle() {
    let off = |seed| run(Options { settle: false, ..Options::new(seed) });
    let reordered = (0..40).filter(|&seed| off(seed).reordered).count();
    assert!(reordered >= 20, "{reordered} of 40 seeds reorder without settle");
}

fn flows_leave_a_port_of_several_cores_in_order() {
    over(crate::sim::fan::flows_leave_a_port_of_several_cores_in_order);
}

/// Runs a scenario over the device with few seeds; `None` if its work is refused because it copies frames.
fn scenario(name: &str, text: &str) -> Option<Result<(), String>> {
    match Scenario::parse(name, &engine(text)) {
        Ok(scenario) => Some(scenario.with_seeds(4).run()),
        Err(error) => {
            assert!(error.what.contains("which is not implemented yet"), "{error}");
            None
        }
    }
}

/// The scenario whose core is less busy over the device.
const LESS_BUSY: &str = "elephant-refused.toml";

/// The scenarios of our own queues.
fn scenarios() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let (mut same, mut refused, mut differ, mut less_busy) = (0, 0, Vec::new(), 0);
    for file in files.filter(|file| file.extension().is_some_and(|end| end == "toml")) {
        let name = file.file_name().unwrap().to_str().unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        if name == LESS_BUSY {
            an_overloaded_core_waits_for_the_scheduler(&text);
            less_busy += 1;
            continue;
        }
        match scenario(name, &text) {
            None => refused += 1,
            Some(Ok(())) => same += 1,
            Some(Err(what)) => differ.push(what),
        }
    }
    flowyard_testkit::note!("{same} scenarios have the same results, {refused} are refused");
    assert!(differ.is_empty() && same >= 100, "{same} are the same; {}", differ.join("\n"));
    assert_eq!(less_busy, 1, "{LESS_BUSY} is there");
}

/// A core gets its next batch when another core has run the scheduler of event_sw, so an overloaded core waits between two
/// batches: in this scenario it is busy for 54 to 100 % of a window. The threshold of 95 % is not reached in two windows in
/// a row, so nothing is split and nothing is refused. All other results are the same, and with a threshold
/// that the core reaches, the split is refused for its costs as over our own queues.
fn an_overloaded_core_waits_for_the_scheduler(text: &str) {
    let usual = scenario(LESS_BUSY, text).unwrap().unwrap_err();
    assert_eq!(usual.lines().count(), 1, "{usual}");
    assert!(usual.contains("refused: expected at least 1, got 0"), "{usual}");
    let with = "patience = 2\nbusy_high = 0.5\nbusy_low = 0.4";
    assert!(text.contains("patience = 2"));
    assert_eq!(scenario(LESS_BUSY, &text.replacen("patience = 2", with, 1)).unwrap(), Ok(()));
}

fn order_holds_while_tables_change() {
    over(threads::ends::order_holds_while_tables_change);
}

fn a_stop_drains_every_frame() {
    over(threads::ends::a_stop_drains_every_frame);
}

fn a_dead_core_without_a_substitute_ends_the_run() {
    over(threads::ends::a_dead_core_without_a_substitute_ends_the_run);
}

fn a_core_that_dies_is_reported_and_the_others_continue() {
    over(threads::ends::a_core_that_dies_is_reported_and_the_others_continue);
}

fn every_flow_leaves_unchanged_with_any_number_of_cores() {
    over(threads::captures::every_flow_leaves_unchanged_with_any_number_of_cores);
}

//! A yard over an event device: numbered frames through every kind of queue, random yards under seeds with stalls, full
//! queues, moves of flows and dead cores, and the ends of runs. The last two are the tests of flowyard's own queues.

use std::sync::atomic::{AtomicU32, Ordering};

use flowyard_config::Config;
use flowyard_ports::mem::Frames;
use flowyard_ports::port::{Pace, SourceRx};
use flowyard_yard::Parts;

use super::OPTIONS;
use super::sim::{Kind, Options, number, run};
use super::traffic::{frames_or, pass};
use crate::threads;

flowyard_testkit::tests! {
    numbered_frames_pass_every_kind_of_queue,
    every_seed_keeps_order_and_loses_nothing,
    routers_keep_order_and_lose_nothing,
    flows_are_reordered_without_settle,
    order_holds_while_tables_change,
    a_stop_drains_every_frame,
    a_dead_core_without_a_substitute_ends_the_run,
    a_core_that_dies_is_reported_and_the_others_continue,
    every_flow_leaves_unchanged_with_any_number_of_cores,
    mistakes_in_the_configuration_are_named,
    what_a_device_cannot_do_is_an_error_at_the_start,
}

/// `text` with the engine "eventdev". Each thread that runs tests has a device of its own.
pub(crate) fn engine(text: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local!(static DEVICE: u32 = NEXT.fetch_add(1, Ordering::Relaxed) % 14);
    let device = DEVICE.with(|device| *device);
    let words = OPTIONS.map(|option| format!("{option:?}")).join(", ");
    let lines = format!("[yard]\nengine = \"eventdev\"\nevent_device = \"event_sw{device}\"");
    let text = text.replacen("[yard]", &lines, 1);
    if text.contains("[dpdk]") { text } else { format!("{text}\n[dpdk]\noptions = [{words}]\n") }
}

/// A yard whose port `gen` is on core 0 and whose port `sink` is on core `sink`.
fn yard(cores: u16, sink: u16, queues: &str, more: &str) -> String {
    engine(&format!(
        "[yard]\ncores = {cores}\n{more}\n[[port]]\nname = \"gen\"\nkind = \"mem\"\nin = \"none\"\n[[port]]\nname = \"sink\"\n\
         kind = \"mem\"\ncore = {sink}\n{queues}\n[work]\nkind = \"forward\"\nports = {{ gen = \"sink\" }}\n"
    ))
}

fn queue(name: &str, order: &str, consumers: &[u16], window: u32, priority: u8) -> String {
    format!(
        "[[queue]]\nname = {name:?}\norder = {order:?}\nconsumers = {consumers:?}\nwindow_frames = {window}\n\
         priority = {priority}\n"
    )
}

fn numbered_frames_pass_every_kind_of_queue() {
    let frames = frames_or(60_000);
    for (order, consumers) in [
        ("direct", &[0][..]),
        ("direct", &[1]),
        ("unordered", &[1]),
        ("ordered", &[1]),
        ("ordered", &[0, 1, 2]),
        ("atomic", &[1, 2]),
        ("atomic", &[0, 1, 2]),
    ] {
        for window in [1024, 32] {
            let text = yard(3, 2, &queue("q", order, consumers, window, 0), "");
            pass(&text, frames);
        }
    }
    // Several queues with priorities, and a core that has nothing to do but to run the scheduler.
    let queues = [
        queue("a", "atomic", &[0, 1], 256, 3),
        queue("o", "ordered", &[1, 2], 256, 0),
        queue("d", "direct", &[2], 64, 1),
    ];
    pass(&yard(3, 1, &queues.concat(), ""), frames);
    pass(&yard(4, 1, &queues.concat(), ""), frames);
}

/// As the test of flowyard's own queues, with fewer seeds.
fn every_seed_keeps_order_and_loses_nothing() {
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

fn routers_keep_order_and_lose_nothing() {
    for seed in 0..50 {
        let ran = run(Options { kind: Kind::Route, ..Options::new(seed) });
        if let Err(error) = &ran.verdict {
            panic!("seed {seed}: {error}");
        }
    }
}

/// The checker detects reordering: the same cases without settle reorder frames.
fn flows_are_reordered_without_settle() {
    let off = |seed| run(Options { settle: false, ..Options::new(seed) });
    let reordered = (0..40).filter(|&seed| off(seed).reordered).count();
    assert!(reordered >= 20, "{reordered} of 40 seeds reorder without settle");
}

fn order_holds_while_tables_change() {
    threads::ends::order_holds_while_tables_change();
}

fn a_stop_drains_every_frame() {
    threads::ends::a_stop_drains_every_frame();
}

fn a_dead_core_without_a_substitute_ends_the_run() {
    threads::ends::a_dead_core_without_a_substitute_ends_the_run();
}

fn a_core_that_dies_is_reported_and_the_others_continue() {
    threads::ends::a_core_that_dies_is_reported_and_the_others_continue();
}

fn every_flow_leaves_unchanged_with_any_number_of_cores() {
    threads::captures::every_flow_leaves_unchanged_with_any_number_of_cores();
}

fn error(text: &str) -> String {
    Config::parse("y", text).map(drop).unwrap_err().to_string()
}

fn mistakes_in_the_configuration_are_named() {
    let text = yard(2, 0, &queue("q", "ordered", &[0, 1], 64, 0), "");
    let (from, device) = text.split_once("event_sw").unwrap();
    let name = format!("event_sw{}", device.split('"').next().unwrap());
    assert!(from.contains("engine"));
    for (from, to, wanted) in [
        (name.as_str(), "event_opdl0", "gives events on that were released"),
        (&name, "event_dsw0", "a yard over event_dsw0 is not implemented yet"),
        (&name, "net_null0", "'net_null0' is not an event device of DPDK"),
        ("engine = \"eventdev\"", "", "[dpdk], or add such a port or engine"),
        (
            "engine = \"eventdev\"",
            "engine = \"none\"",
            "'none' is not a valid choice; choose one of own, eventdev",
        ),
        (&format!("event_device = {name:?}"), "", "has no event device"),
        ("cores = 2", "cores = 2\nqueue_limits = \"dlb2\"", "'queue_limits' is for flowyard's own"),
        ("cores = 2", "cores = 300", "ports of an event device, which has at most 255"),
        ("kind = \"forward\"\nports = { gen = \"sink\" }", "kind = \"bridge\"", "copies frames"),
    ] {
        assert!(text.contains(from), "{from}");
        let told = error(&text.replacen(from, to, 1));
        assert!(told.contains(wanted), "{told}");
    }
    let alone = text.replacen("engine = \"eventdev\"", "", 1);
    let told = error(alone.split_once("[dpdk]").unwrap().0);
    assert!(told.contains("the event device is not used"), "{told}");
    let many: String = (0..63).map(|at| queue(&format!("q{at}"), "atomic", &[0], 32, 0)).collect();
    assert!(error(&yard(1, 0, &many, "")).contains("needs 65 queues"), "two ports, too");
}

fn what_a_device_cannot_do_is_an_error_at_the_start() {
    let build = |text: &str| {
        let mut parts = Parts::default();
        parts.rx.insert(0, Box::new(SourceRx::new(0, Box::new(Frames::new()), Pace::Fast)));
        Config::parse("y", text).unwrap().build(parts)
    };
    let consumers: Vec<u16> = (0..60).collect();
    let queues = queue("a", "atomic", &consumers, 32, 0) + &queue("b", "direct", &[0], 32, 0);
    let text = yard(64, 0, &queues, "");
    let told = build(&text).map(drop).unwrap_err().to_string();
    assert!(told.contains("ports of 'event_sw") && told.contains("y:3:"), "{told}");
    // A device is one yard's, until that is gone.
    let text = yard(2, 0, &queue("q", "atomic", &[0, 1], 64, 0), "");
    let first = build(&text);
    let told = build(&text).map(drop).unwrap_err().to_string();
    assert!(told.contains("another yard of this process uses the event device"), "{told}");
    drop(first);
    assert!(build(&text).is_ok());
}

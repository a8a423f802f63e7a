//! The whole walk on one core, ports in memory: rx, parse, hash, tables, settle, a queue, forward,
//! tx queue, tx. 64-byte frames of 8,192 flows; nanoseconds a frame are the inverse of items/s.

use std::net::Ipv4Addr;
use std::sync::Arc;

use divan::Bencher;
use divan::counter::ItemsCount;
use flowyard_config::Config;
use flowyard_frame::{Action, Edit, FlowKey, proto};
use flowyard_ports::mem::Frames;
use flowyard_ports::port::Pace;
use flowyard_ports::port::{Repeat, SourceRx};
use flowyard_testkit::{Build, Rng};
use flowyard_wire::LinkType;
use flowyard_yard::{Clock, Message, Parts, Reload, Tick, Yard};

fn main() {
    divan::main();
}

const FLOWS: u64 = 8192;
const TICKS: u64 = 100;

fn key(flow: u64) -> FlowKey {
    let [a, b] = [[10, 0, (flow >> 8) as u8, flow as u8], [10, 1, 0, 1]].map(Ipv4Addr::from);
    FlowKey::five_tuple(proto::UDP, a.into(), 4000, b.into(), 53)
}

const FORWARD: &str = "kind = \"forward\"";

fn yard(order: &str, settle: bool, exact: bool, work: &str) -> Yard {
    let text = format!(
        r#"
        [yard]
        cores = 1
        settle = {settle}
        [[port]]
        name = "p"
        kind = "mem"
        in = "given"
        window_frames = 256
        [[queue]]
        name = "q"
        order = "{order}"
        consumers = [0]
        window_frames = 256
        [work]
        {work}
        "#
    );
    let (mut frames, mut rng, mut bytes) = (Frames::new(), Rng::new(1), Vec::new());
    for _ in 0..65_536 {
        let key = FlowKey { eth_src: [2; 6], eth_dst: [4; 6], ..key(rng.below(FLOWS)) };
        Build::new(&key).pad(60).write(&mut bytes);
        frames.push(0, LinkType::Ethernet, &bytes);
    }
    let mut parts = Parts::default();
    let source = Box::new(Repeat::new(frames, u32::MAX));
    parts.rx.insert(0, Box::new(SourceRx::new(0, source, Pace::Fast)));
    let yard = Config::parse("bench", &text).unwrap().build(parts).unwrap();
    if exact {
        let puts = (0..FLOWS).map(|flow| Edit::Put(key(flow), Action::queue(0)));
        let reload = Reload { exact: puts.collect(), ..Reload::default() };
        yard.mail.offer(0, Message::Reload(reload.into()));
    }
    yard
}

fn walk(bencher: Bencher<'_, '_>, mut yard: Yard) {
    let mut now = 0;
    let mut run = || {
        for _ in 0..TICKS {
            now += 1000;
            yard.cores[0].tick(now);
        }
    };
    run();
    bencher.counter(ItemsCount::new(TICKS * 32)).bench_local(run);
}

#[divan::bench(args = ["direct", "atomic", "ordered"])]
fn rss(bencher: Bencher<'_, '_>, order: &str) {
    walk(bencher, yard(order, true, false, FORWARD));
}

#[divan::bench]
fn rss_without_settle(bencher: Bencher<'_, '_>) {
    walk(bencher, yard("direct", false, false, FORWARD));
}

#[divan::bench]
fn exact_hit(bencher: Bencher<'_, '_>) {
    walk(bencher, yard("direct", true, true, FORWARD));
}

/// As `rss`, with a work that finds the longest of eight prefixes, decrements the TTL and rewrites
/// the MAC addresses.
#[divan::bench]
fn route(bencher: Bencher<'_, '_>) {
    let mut work = String::from("kind = \"route\"\n");
    for len in 9..17 {
        let (prefix, hop) = (format!("10.0.0.0/{len}"), format!("02:00:00:00:01:{len:02x}"));
        let prefix = if len == 16 { "10.1.0.0/16" } else { &prefix };
        work +=
            &format!("[[work.route]]\nprefix = \"{prefix}\"\nport = \"p\"\nnext_hop = \"{hop}\"\n");
    }
    walk(bencher, yard("direct", true, false, &work));
}

/// One flow of heavy frames, 1,000 ns each, through the ordered queue on threads: core 0 receives,
/// transmits, and works on frames as the other cores do.
#[divan::bench(args = [1, 2], sample_count = 20)]
fn one_flow(bencher: Bencher<'_, '_>, cores: u16) {
    #[expect(clippy::disallowed_methods, reason = "threads run by a real clock")]
    let start = std::time::Instant::now();
    let clock: Clock = Arc::new(move || start.elapsed().as_nanos() as u64);
    let all: Vec<u16> = (0..cores).collect();
    let text = format!(
        r#"
        [yard]
        cores = {cores}
        idle = "busy"
        [[port]]
        name = "p"
        kind = "mem"
        in = "given"
        [[queue]]
        name = "q"
        order = "ordered"
        consumers = {all:?}
        window_frames = 512
        [work]
        kind = "burn"
        cost_ns = 1000
        "#
    );
    let mut frames = Frames::new();
    let bytes = Build::new(&key(1)).pad(60).bytes();
    (0..20_000).for_each(|_| frames.push(0, LinkType::Ethernet, &bytes));
    let config = Config::parse("bench", &text).unwrap();
    bencher
        .counter(ItemsCount::new(frames.len()))
        .with_inputs(|| {
            let mut parts = Parts { clock: Some(clock.clone()), ..Parts::default() };
            let source = SourceRx::new(0, Box::new(frames.clone()), Pace::Fast);
            parts.rx.insert(0, Box::new(source));
            config.build(parts).unwrap()
        })
        .bench_local_values(|yard| {
            let outcome = yard.start(clock.clone()).unwrap().join();
            assert_eq!(outcome.total().tx_frames, 20_000);
        });
}

/// Two ports that receive 64-byte frames of 8,192 flows, on threads. With two cores, each owns a port. Frames leave by
/// the other port; with "own ports" by the one that they came in by.
#[divan::bench(args = ["one core", "two cores", "own ports", "by hash"], sample_count = 10)]
fn two_ports(bencher: Bencher<'_, '_>, mode: &str) {
    #[expect(clippy::disallowed_methods, reason = "threads run by a real clock")]
    let start = std::time::Instant::now();
    let clock: Clock = Arc::new(move || start.elapsed().as_nanos() as u64);
    let cores = if mode == "one core" { 1 } else { 2 };
    let mut text = format!("[yard]\ncores = {cores}\nidle = \"busy\"\n");
    if mode == "by hash" {
        text += "[steer]\nspread = [\"q0\", \"q1\"]\n";
    }
    for (port, name) in ["west", "east"].into_iter().enumerate() {
        let core = port.min(cores - 1);
        text += &format!("[[port]]\nname = \"{name}\"\nkind = \"mem\"\nin = \"given\"\n");
        text += &format!("core = {core}\nwindow_frames = 256\n");
    }
    for core in 0..cores {
        text += &format!("[[queue]]\nname = \"q{core}\"\norder = \"direct\"\n");
        text += &format!("consumers = [{core}]\nwindow_frames = 512\n");
    }
    let [west, east] = if mode == "own ports" { ["west", "east"] } else { ["east", "west"] };
    text += "[work]\nkind = \"forward\"\n";
    text += &format!("ports = {{ west = \"{west}\", east = \"{east}\" }}\n");
    let config = Config::parse("bench", &text).unwrap();
    let (mut frames, mut rng, mut bytes) = (Frames::new(), Rng::new(1), Vec::new());
    for _ in 0..65_536 {
        let key = FlowKey { eth_src: [2; 6], eth_dst: [4; 6], ..key(rng.below(FLOWS)) };
        Build::new(&key).pad(60).write(&mut bytes);
        frames.push(0, LinkType::Ethernet, &bytes);
    }
    const TIMES: u32 = 64;
    bencher
        .counter(ItemsCount::new(2 * TIMES as usize * frames.len()))
        .with_inputs(|| {
            let mut parts = Parts { clock: Some(clock.clone()), ..Parts::default() };
            for port in 0..2 {
                let source = Box::new(Repeat::new(frames.clone(), TIMES));
                parts.rx.insert(port, Box::new(SourceRx::new(port, source, Pace::Fast)));
            }
            config.build(parts).unwrap()
        })
        .bench_local_values(|yard| {
            let outcome = yard.start(clock.clone()).unwrap().join();
            assert_eq!(outcome.total().tx_frames, 2 * u64::from(TIMES) * 65_536);
        });
}

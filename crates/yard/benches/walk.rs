//! The whole walk on one core, ports in memory: rx, parse, hash, tables, settle, a queue, forward,
//! tx queue, tx. 64-byte frames of 8,192 flows; nanoseconds a frame are the inverse of items/s.

use std::net::Ipv4Addr;

use divan::Bencher;
use divan::counter::ItemsCount;
use flowyard_frame::{Action, Edit, FlowKey, proto};
use flowyard_ports::mem::Frames;
use flowyard_testkit::{Build, Rng};
use flowyard_wire::LinkType;
use flowyard_yard::port::{Repeat, SourceRx};
use flowyard_yard::{Config, Message, Pace, Parts, Reload, Tick, Yard};

fn main() {
    divan::main();
}

const FLOWS: u64 = 8192;
const TICKS: u64 = 100;

fn key(flow: u64) -> FlowKey {
    let [a, b] = [[10, 0, (flow >> 8) as u8, flow as u8], [10, 1, 0, 1]].map(Ipv4Addr::from);
    FlowKey::five_tuple(proto::UDP, a.into(), 4000, b.into(), 53)
}

fn yard(order: &str, settle: bool, exact: bool) -> Yard {
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
        kind = "forward"
        "#
    );
    let (mut frames, mut rng, mut bytes) = (Frames::new(), Rng::new(1), Vec::new());
    for _ in 0..65_536 {
        Build::new(&key(rng.below(FLOWS))).pad(60).write(&mut bytes);
        frames.push(0, LinkType::Ethernet, &bytes);
    }
    let mut parts = Parts::default();
    let source = Box::new(Repeat::new(frames, u32::MAX));
    parts.rx.insert(0, Box::new(SourceRx::new(0, source, Pace::Fast)));
    let yard = Yard::build(&Config::parse("bench", &text).unwrap(), parts).unwrap();
    if exact {
        let puts = (0..FLOWS).map(|flow| Edit::Put(key(flow), Action::queue(0)));
        let reload = Reload { exact: puts.collect(), spread: Vec::new() };
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
    walk(bencher, yard(order, true, false));
}

#[divan::bench]
fn rss_without_settle(bencher: Bencher<'_, '_>) {
    walk(bencher, yard("direct", false, false));
}

#[divan::bench]
fn exact_hit(bencher: Bencher<'_, '_>) {
    walk(bencher, yard("direct", true, true));
}

//! The control socket of a running instance, while the interfaces of its ports come and go: every request is
//! answered within a bound. The engine runs on threads, its ports on a simulated kernel whose calls fail.

#![allow(clippy::disallowed_methods, reason = "a test of live connections measures time")]

use std::fmt::Write;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use flowyard_config::{Config, PortBody};
use flowyard_frame::{FlowKey, proto};
use flowyard_operate::client::Client;
use flowyard_operate::control::Bound;
use flowyard_operate::protocol::{Request, TraceRequest};
use flowyard_ports::port::Log;
use flowyard_ports::port::live::sim::{Offloads, World};
use flowyard_testkit::{Build, Rng};
use flowyard_yard::Parts;
use flowyard_yard::run::Running;
use serde_json::Value;

flowyard_testkit::tests! {
    control_requests_are_answered_while_ports_come_and_go,
}

const NAMES: [&str; 2] = ["w0", "e0"];

/// A request is answered within this time, besides the time for which it asks. A core answers in a few
/// microseconds; the rest is for a machine with much other load.
const BOUND: Duration = Duration::from_secs(2);

/// How long interfaces come and go, for each pair of kinds.
const LIFE: Duration = Duration::from_millis(1500);

fn text(kinds: [&str; 2]) -> String {
    let mut text = "[yard]\ncores = 2\nseed = 1\n".to_owned();
    for ((name, interface), kind) in ["west", "east"].into_iter().zip(NAMES).zip(kinds) {
        writeln!(text, "[[port]]\nname = \"{name}\"\nkind = \"{kind}\"").unwrap();
        writeln!(text, "interface = \"{interface}\"\ncores = [0, 1]").unwrap();
        if kind == "af_xdp" {
            writeln!(text, "match = [\"all\"]").unwrap();
        }
    }
    text + "[[queue]]\nname = \"q\"\norder = \"ordered\"\nconsumers = [0, 1]\n\
            [work]\nkind = \"forward\"\nports = { west = \"east\", east = \"west\" }\n"
}

fn start(world: &World, kinds: [&str; 2]) -> Running {
    let log: Log = Arc::new(|_, _| ());
    let setup = Config::parse("yard.toml", &text(kinds)).unwrap().resolve().unwrap();
    let pool = setup.blueprint.pool();
    let mut parts = Parts::default();
    for (number, body) in (0..).zip(&setup.ports) {
        let PortBody::Live(port) = body else { unreachable!("both ports are live") };
        for (core, halves) in (0..).zip(world.open(port, &pool, &log).unwrap()) {
            parts.ports.insert((number, core), halves);
        }
    }
    parts.pool = Some(pool);
    let from = Instant::now();
    let clock = Arc::new(move || from.elapsed().as_nanos() as u64);
    setup.build(parts, &log).unwrap().start(clock).unwrap()
}

/// Something happens to an interface.
fn upset(world: &World, rng: &mut Rng, kinds: [&str; 2]) {
    let at = rng.below(2) as usize;
    let (name, is_tap) = (NAMES[at], kinds[at] == "tap");
    let index = world.index(name);
    match rng.below(8) {
        0 => world.set_up(name, false),
        1 => {
            world.delete(name);
            world.create(name, is_tap, 2, index);
        }
        2 => world.move_away(name),
        3 => {
            let _was_away = world.move_back(name, rng.below(2) == 0);
        }
        4 => world.set_mtu(name, [100, 1500][rng.below(2) as usize]),
        5 => {
            let on = rng.below(2) == 0;
            let offloads = Offloads { strips_tags: on, leaves_checksums: on, coalesces: !on };
            world.set_offloads(name, offloads);
        }
        6 => world.stall(name),
        _ if index.is_none() => world.create(name, is_tap, 2, None),
        _ => {}
    }
    if rng.below(3) > 0 {
        world.set_up(name, true);
    }
}

/// Asks until `is_over`. Returns the number of answers, and the longest time until one.
fn ask(socket: &Path, is_over: &AtomicBool) -> (u64, Duration) {
    let seconds = 0.02;
    let flow = Some("udp 10.0.0.1:4000 > 10.0.1.1:53".into());
    let trace = TraceRequest { flow, count: 3, seconds, ..TraceRequest::default() };
    let requests = [
        Request::Cores,
        Request::Queues,
        Request::Tables { entries: 10 },
        Request::Elephants,
        Request::Drops,
        Request::Flows { seconds },
        Request::Trace(trace),
    ];
    let (mut answers, mut longest) = (0, Duration::ZERO);
    while !is_over.load(Ordering::Relaxed) {
        let mut client = Client::connect(Some(socket)).unwrap();
        for request in &requests {
            let asked = Instant::now();
            let answer: Value = client.ask(request).unwrap_or_else(|e| panic!("{request:?}: {e}"));
            let took = asked.elapsed();
            assert!(took < BOUND, "{request:?} was answered after {took:?}: {answer}");
            (answers, longest) = (answers + 1, longest.max(took));
        }
    }
    (answers, longest)
}

fn control_requests_are_answered_while_ports_come_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("sock");
    for (seed, kinds) in
        (0..).zip([["af_packet", "af_xdp"], ["af_xdp", "tap"], ["tap", "af_packet"]])
    {
        let (world, mut rng) = (World::new(seed), Rng::new(seed));
        for (name, kind) in NAMES.into_iter().zip(kinds) {
            world.create(name, kind == "tap", 2, None);
            world.set_up(name, true);
        }
        let running = start(&world, kinds);
        let control = Bound::bind(&socket, None).unwrap().serve(running.handle()).unwrap();
        let is_over = AtomicBool::new(false);
        let [client, server] = [[10, 0, 0, 1], [10, 0, 1, 1]].map(|ip| Ipv4Addr::from(ip).into());
        let key = FlowKey::five_tuple(proto::UDP, client, 4000, server, 53);
        let frame = Build::new(&key).pad(100).bytes();
        let (answers, longest) = scope(|scope| {
            let asks = scope.spawn(|| ask(&socket, &is_over));
            let began = Instant::now();
            while began.elapsed() < LIFE && !asks.is_finished() {
                world.fail([0, 3, 20, 200][rng.below(4) as usize]);
                upset(&world, &mut rng, kinds);
                for _ in 0..20 {
                    for _ in 0..8 {
                        let _offered = world.offer(NAMES[0], &frame);
                    }
                    sleep(Duration::from_micros(500));
                }
                drop(world.sent());
            }
            is_over.store(true, Ordering::Relaxed);
            asks.join().unwrap()
        });
        drop(control);
        running.stop();
        let outcome = running.join();
        let total = outcome.total();
        flowyard_testkit::note!(
            "{kinds:?}: {answers} answers, the slowest after {longest:?}; {} of {} calls failed, \
             {} ports opened again, {} frames received",
            world.failed(),
            world.calls(),
            total.port_reopens,
            total.rx_frames
        );
        assert!(outcome.is_balanced() && outcome.held == 0, "{outcome:#?}");
        assert!(outcome.cores.iter().all(|core| core.died.is_none()), "{outcome:#?}");
        assert!(
            answers > 50 && total.port_reopens > 3 && total.rx_frames > 100,
            "{answers} {total:?}"
        );
    }
}

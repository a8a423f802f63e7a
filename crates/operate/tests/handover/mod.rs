//! An engine is handed over and over again, by the protocol of processes, while frames arrive.
//!
//! ```text
//!  numbered frames ──> [ring] ──rx of the engine that is not paused──> forward ──> [numbers that were transmitted]
//! ```
//!
//! The ring stands for that of a kernel: all engines have it, and only one may read.

#![allow(clippy::disallowed_methods, reason = "a running engine has a clock")]

use std::collections::VecDeque;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use flowyard_config::Config;
use flowyard_frame::{Batch, FlowKey, LANES, Lanes, Nanos};
use flowyard_operate::control::{Bound, Control};
use flowyard_operate::handover::Leaving;
use flowyard_operate::take_over::Running as Other;
use flowyard_pool::{Meta, Pool};
use flowyard_yard::port::{Descriptors, Received, Rx, Tx};
use flowyard_yard::run::Running;
use flowyard_yard::{Clock, Parts};

flowyard_testkit::tests! {
    engines_take_over_from_each_other_while_frames_arrive,
    an_engine_goes_on_if_the_other_side_ends,
}

const CONFIG: &str = r#"
[[port]]
name = "west"
kind = "mem"
in = "given"
[[port]]
name = "east"
kind = "mem"
[[queue]]
name = "q"
order = "direct"
consumers = [0]
[work]
kind = "forward"
ports = { west = "east" }
"#;

const SECRET: [u8; 16] = [7; 16];

/// What the kernel has, and what has left.
#[derive(Default)]
struct World {
    ring: Mutex<VecDeque<u64>>,
    sent: Mutex<Vec<u64>>,
    /// Frames that were read from the ring.
    read: AtomicU64,
}

struct RingRx(Arc<World>, bool);

impl Rx for RingRx {
    fn rx(&mut self, into: &mut Batch, pool: &mut Pool, _now: Nanos) -> Received {
        let mut ring = self.0.ring.lock().unwrap();
        while !self.1 && into.len() < LANES && pool.has(1) {
            let Some(number) = ring.pop_front() else { break };
            let mut data = [0; 60];
            data[..8].copy_from_slice(&number.to_be_bytes());
            let frame = pool.copy(&data, Meta { wire_len: 60, ..Meta::default() }).unwrap();
            into.push(frame, FlowKey::ZERO).unwrap();
            self.0.read.fetch_add(1, Ordering::Relaxed);
        }
        Received::default()
    }

    fn descriptors(&mut self) -> Option<Descriptors> {
        let fd = File::open("/dev/null").unwrap().into();
        Some(Descriptors { fds: vec![fd], numbers: vec![60, 4096] })
    }

    fn pause(&mut self, paused: bool) {
        self.1 = paused;
    }

    fn position(&mut self) -> Option<Vec<u64>> {
        Some(vec![self.0.read.load(Ordering::Relaxed)])
    }

    fn go_on(&mut self, position: &[u64], _pool: &mut Pool) -> bool {
        // Nobody has read since the other engine stopped.
        position == [self.0.read.load(Ordering::Relaxed)]
    }
}

struct SharedTx(Arc<World>);

impl Tx for SharedTx {
    fn tx(&mut self, from: &mut Batch, lanes: Lanes, pool: &Pool, _now: Nanos) -> Lanes {
        let mut sent = self.0.sent.lock().unwrap();
        for lane in lanes {
            let bytes = pool.bytes(&from.frames[lane]);
            sent.push(u64::from_be_bytes(bytes[..8].try_into().unwrap()));
        }
        Lanes::NONE
    }
}

fn clock() -> Clock {
    let from = Instant::now();
    Arc::new(move || from.elapsed().as_nanos() as u64)
}

fn parts(world: &Arc<World>) -> Parts {
    let mut parts = Parts::default();
    parts.rx.insert(0, Box::new(RingRx(Arc::clone(world), false)));
    parts.tx.insert(1, Box::new(SharedTx(Arc::clone(world))));
    parts
}

/// A running engine with its control socket. It is forgotten when another one has taken over, as a process that ends does.
struct Engine {
    running: Running,
    control: Control,
    leaving: Arc<Leaving>,
}

impl Engine {
    fn serve(running: Running, bound: Bound) -> Self {
        let named = vec![("control".to_owned(), bound.duplicate().unwrap())];
        let leaving = Arc::new(Leaving::new(SECRET, named, running.pool().memory(), Vec::new()));
        let control = bound.serve_until(running.handle(), Arc::clone(&leaving)).unwrap();
        Self { running, control, leaving }
    }

    fn first(world: &Arc<World>, path: &Path) -> Self {
        let yard = Config::parse("yard.toml", CONFIG).unwrap().build(parts(world)).unwrap();
        Self::serve(yard.start(clock()).unwrap(), Bound::bind(path, None).unwrap())
    }

    /// Takes over from the engine at `path`.
    fn next(world: &Arc<World>, path: &Path) -> Self {
        let mut other = Other::ask(path).unwrap();
        assert_eq!((other.secret(), other.names()), (SECRET, &["west".into(), "east".into()][..]));
        let bound = Bound::adopt(other.descriptor("control").unwrap(), path);
        let offered = other.ports();
        let [(name, 0, Descriptors { fds, numbers })] = &offered[..] else { panic!("{offered:?}") };
        assert_eq!((&**name, fds.len(), &numbers[..]), ("west", 1, &[60, 4096][..]));
        let config = Config::parse("yard.toml", CONFIG).unwrap();
        let mut yard = config.build(parts(world)).unwrap();
        let clock = clock();
        let number =
            |name: &str| ["west", "east"].iter().position(|one| *one == name).map(|at| at as u16);
        let (frozen, state) = other.freeze(number).unwrap();
        yard.go_on(&state, clock()).unwrap();
        frozen.commit().unwrap();
        Self::serve(yard.start(clock).unwrap(), bound)
    }

    /// Ends after another engine has taken over; returns the frames that it received.
    fn left(self) -> u64 {
        let Self { running, control, leaving } = self;
        until("the hand-over", || leaving.taken_by() == Some(std::process::id()));
        running.handle().leave();
        std::mem::forget(control); // it would end the listening socket, which the next one has
        let outcome = running.join();
        assert!(outcome.is_balanced(), "{outcome:#?}");
        outcome.total().rx_frames
    }
}

#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let from = Instant::now();
    while !is_so() {
        assert!(from.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
        sleep(Duration::from_micros(200));
    }
}

/// Puts numbered frames into the ring until `stop`; returns their number.
fn traffic(world: &Arc<World>, stop: &Arc<AtomicU64>) -> std::thread::JoinHandle<u64> {
    let (world, stop) = (Arc::clone(world), Arc::clone(stop));
    std::thread::spawn(move || {
        let mut number = 0;
        while stop.load(Ordering::Relaxed) == 0 {
            let mut ring = world.ring.lock().unwrap();
            if ring.len() < 4096 {
                ring.extend(number..number + 16);
                number += 16;
            }
            drop(ring);
            sleep(Duration::from_micros(50));
        }
        number
    })
}

fn engines_take_over_from_each_other_while_frames_arrive() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sock");
    let (world, stop) = (Arc::<World>::default(), Arc::<AtomicU64>::default());
    let sender = traffic(&world, &stop);
    let mut engine = Engine::first(&world, &path);
    let mut received = 0;
    for _ in 0..20 {
        let before = world.sent.lock().unwrap().len();
        until("frames", || world.sent.lock().unwrap().len() > before + 200);
        let next = Engine::next(&world, &path);
        received += engine.left();
        engine = next;
    }
    stop.store(1, Ordering::Relaxed);
    let all = sender.join().unwrap();
    until("the last frame", || world.sent.lock().unwrap().len() as u64 == all);
    engine.running.stop();
    let outcome = engine.running.join();
    assert!(outcome.is_balanced() && outcome.held == 0, "{outcome:#?}");
    received += outcome.total().rx_frames;
    assert_eq!(received, all, "each frame was received by one engine");
    assert!(world.sent.lock().unwrap().iter().copied().eq(0..all), "in order");
}

fn an_engine_goes_on_if_the_other_side_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sock");
    let (world, stop) = (Arc::<World>::default(), Arc::<AtomicU64>::default());
    let sender = traffic(&world, &stop);
    let engine = Engine::first(&world, &path);
    for step in 0..3 {
        // The engine may not have noticed yet that the other side of the attempt before has gone.
        let mut asked = None;
        until("an answer", || {
            asked = match Other::ask(&path) {
                Err(error) if error.to_string().contains("in progress") => None,
                asked => Some(asked.unwrap()),
            };
            asked.is_some()
        });
        let other = asked.unwrap();
        if step > 0 {
            let frozen = other.freeze(|_| Some(0)).unwrap();
            until("the pause", || engine.leaving.is_frozen());
            let before = world.sent.lock().unwrap().len();
            sleep(Duration::from_millis(5));
            assert_eq!(world.sent.lock().unwrap().len(), before, "it is paused");
            drop(frozen);
        }
        let before = world.sent.lock().unwrap().len();
        until("frames", || world.sent.lock().unwrap().len() > before + 200);
        assert_eq!((engine.leaving.is_frozen(), engine.leaving.taken_by()), (false, None));
    }
    stop.store(1, Ordering::Relaxed);
    let all = sender.join().unwrap();
    until("the last frame", || world.sent.lock().unwrap().len() as u64 == all);
    engine.running.stop();
    drop(engine.control);
    assert!(engine.running.join().is_balanced());
    assert!(world.sent.lock().unwrap().iter().copied().eq(0..all), "in order");
}

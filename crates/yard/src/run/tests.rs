use flowyard_flow::Learn;
use flowyard_frame::{Batch, Edit, FlowKey, Lanes, To, proto};
use flowyard_pool::Meta;
use flowyard_queue::Order;
use flowyard_testkit::Build;

use super::*;
use crate::blueprint::{Blueprint, PortPlan, QueuePlan};
use crate::core::Stage;
use crate::counters::DropReason;
use crate::port::{Received, Rx, Tx, refuse};
use crate::{Parts, Work};

/// The sleep depends on the time since the last frame, not on the number of ticks.
#[test]
fn an_idle_core_sleeps_for_longer_the_longer_it_is_idle() {
    assert_eq!([0, 100_000, 800_000].map(nap), [20_000, 20_000, 100_000]);
    assert_eq!([8_000_000, u64::MAX].map(nap), [1_000_000, 1_000_000]);
    // Wake-ups in a second without frames: below a third of those with naps of 250 us.
    let (mut time, mut wakes) = (0, 0);
    while time < 1_000_000_000 {
        (time, wakes) = (time + nap(time), wakes + 1);
    }
    assert!(wakes < 1100, "{wakes}");
}

/// Nanoseconds since the test began.
#[expect(clippy::disallowed_methods, reason = "threads run by a real clock")]
fn clock() -> Clock {
    let start = std::time::Instant::now();
    Arc::new(move || start.elapsed().as_nanos() as u64)
}

/// Waits until `is_so`, for ten seconds at most; returns whether it is.
fn wait(is_so: impl Fn() -> bool) -> bool {
    let naps = (0..10_000).take_while(|_| !is_so());
    naps.for_each(|_| thread::sleep(Duration::from_millis(1)));
    is_so()
}

/// Runs an engine to its end.
fn run(plan: &Blueprint, parts: Parts) -> Outcome {
    let running = Yard::build(plan, parts).unwrap().start(clock()).unwrap();
    assert!(wait(|| running.is_done()), "the run does not end: {:?}", running.counters());
    running.join()
}

/// One port of core 0, which goes on as long as nothing says that it ends, and a direct queue.
fn plan(cores: u16) -> Blueprint {
    let (ports, queues) = (vec![PortPlan::default()], vec![QueuePlan::default()]);
    Blueprint { cores, ports, queues, ..Blueprint::default() }
}

/// Flags of the two cores of an engine.
#[derive(Clone, Default)]
struct Signals(Arc<[AtomicBool; 2]>);

impl Signals {
    /// Core 1 makes a frame.
    fn makes(&self) -> &AtomicBool {
        &self.0[0]
    }

    /// Core 0 has closed its port.
    fn closed(&self) -> &AtomicBool {
        &self.0[1]
    }
}

impl Rx for Signals {
    fn rx(&mut self, _: &mut Batch, _: &mut Pool, _: Nanos) -> Received {
        Received { ended: self.makes().load(Ordering::SeqCst), ..Received::default() }
    }
}

impl Tx for Signals {
    fn tx(&mut self, _: &mut Batch, _: Lanes, _: &Pool, _: Nanos) -> Lanes {
        Lanes::NONE
    }

    fn close(&mut self) -> Result<(), String> {
        self.closed().store(true, Ordering::SeqCst);
        Ok(())
    }
}

/// Makes a frame when core 0 has left.
struct Late(Signals, u32);

impl Work for Late {
    fn work(&mut self, _: &mut Batch, _: &Pool, now: Nanos) -> Nanos {
        now
    }

    fn speak(&mut self, _: Nanos, send: &mut dyn FnMut(u16, &[u8]) -> bool) -> u32 {
        self.1 += 1;
        if self.1 == 1 {
            return 0; // after a tick without progress, the core says that its ports have ended
        }
        self.0.makes().store(true, Ordering::SeqCst);
        assert!(wait(|| self.0.closed().load(Ordering::SeqCst)), "core 0 does not leave");
        u32::from(send(0, &[0; 60]))
    }
}

/// Core 1 is about to make a frame for the port of core 0 while core 0 finds the engine drained, and leaves.
#[test]
fn no_work_makes_frames_for_a_core_that_has_left() {
    let signals = Signals::default();
    let mut parts = Parts::default();
    parts.rx.insert(0, Box::new(signals.clone()));
    parts.tx.insert(0, Box::new(signals.clone()));
    parts.work.insert(1, Box::new(Late(signals, 0)));
    let outcome = run(&plan(2), parts);
    assert!(outcome.is_balanced() && outcome.held == 0, "{outcome:#?}");
    assert_eq!(outcome.cores.iter().filter_map(|core| core.died.as_deref()).next(), None);
    assert_eq!(outcome.total().copies, 0, "{outcome:#?}");
}

/// Where a core dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Rx,
    Front,
    Learn(Stage),
    Work,
    Tx,
}

/// How frames leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// The work answers in front of the queues.
    Front,
    /// By a queue of this order.
    Queue(Order),
}

/// A port, a work and a learner that let frames pass, but for one place, which panics with its second batch.
#[derive(Clone, Copy)]
struct Trap {
    dies: Place,
    way: Way,
    stage: Stage,
    batches: u32,
}

impl Trap {
    fn pass(&mut self, place: Place, frames: usize) {
        self.batches += u32::from(place == self.dies && frames > 0);
        assert!(self.batches < 2, "this core was to die");
    }
}

impl Rx for Trap {
    fn rx(&mut self, into: &mut Batch, pool: &mut Pool, now: Nanos) -> Received {
        let [a, b] = [[10, 0, 0, 1], [10, 0, 1, 1]].map(std::net::IpAddr::from);
        let bytes = Build::new(&FlowKey::five_tuple(proto::UDP, a, 7, b, 53)).bytes();
        for _ in 0..8 {
            let frame = pool.copy(&bytes, Meta { time: now, ..Meta::default() }).unwrap();
            into.push(frame, FlowKey::ZERO).unwrap();
        }
        self.pass(Place::Rx, 8);
        Received::default()
    }
}

impl Tx for Trap {
    /// Drops the first frame.
    fn tx(&mut self, from: &mut Batch, lanes: Lanes, _: &Pool, _: Nanos) -> Lanes {
        { lanes }.take(1).for_each(|lane| refuse(from, lane, DropReason::PortDown));
        self.pass(Place::Tx, lanes.count() as usize);
        Lanes::NONE
    }
}

impl Work for Trap {
    fn work(&mut self, batch: &mut Batch, _: &Pool, now: Nanos) -> Nanos {
        batch.lanes().for_each(|lane| batch.actions[lane].to = To::Port(0));
        self.pass(Place::Work, batch.len());
        now
    }

    fn front(&mut self, batch: &mut Batch, lanes: Lanes, _: Nanos) -> Lanes {
        self.pass(Place::Front, batch.len());
        if self.way != Way::Front {
            return Lanes::NONE;
        }
        { lanes }.for_each(|lane| batch.actions[lane].to = To::Port(0));
        lanes
    }
}

impl Learn for Trap {
    fn observe(&mut self, _: u16, batch: &Batch, _: Lanes, _: Nanos, _: &mut Vec<Edit>) {
        self.pass(Place::Learn(self.stage), batch.len());
    }
}

#[test]
fn every_frame_is_accounted_for_wherever_a_core_dies() {
    let stages = [Stage::Rx, Stage::Work, Stage::Tx];
    let places = [Place::Rx, Place::Front, Place::Work, Place::Tx].into_iter();
    for dies in places.chain(stages.map(Place::Learn)) {
        for way in [Way::Front, Way::Queue(Order::Direct), Way::Queue(Order::Atomic)] {
            if way == Way::Front && [Place::Work, Place::Learn(Stage::Work)].contains(&dies) {
                continue; // nothing to work on
            }
            let trap = |stage| Box::new(Trap { dies, way, stage, batches: 0 });
            let mut plan = plan(1);
            if let Way::Queue(order) = way {
                plan.queues[0].order = order;
            }
            let mut parts = Parts::default();
            parts.rx.insert(0, trap(Stage::Rx));
            parts.tx.insert(0, trap(Stage::Rx));
            parts.work.insert(0, trap(Stage::Rx));
            parts.learn.extend(stages.map(|stage| (0, stage, 0, trap(stage) as _)));
            let outcome = run(&plan, parts);
            let total = outcome.total();
            assert_eq!(outcome.cores[0].died.as_deref(), Some("this core was to die"));
            assert!(outcome.is_balanced(), "{dies:?}, {way:?}: {outcome:#?}");
            // Those that were in queues, which no other core serves.
            let queued: u64 = outcome.queues.iter().map(|one| one.enqueued - one.completed).sum();
            assert_eq!(outcome.held as u64, queued, "{dies:?}, {way:?}: {outcome:#?}");
            // Otherwise the frames in hand were not received yet, or sent already.
            let has_frames = ![Place::Rx, Place::Learn(Stage::Tx)].contains(&dies);
            let died = total.drops.get(DropReason::CoreDied);
            assert!(died > 0 || !has_frames, "{dies:?}, {way:?}: {total:#?}");
        }
    }
}

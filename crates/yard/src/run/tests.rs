use flowyard_frame::{Batch, Lanes};

use super::*;
use crate::blueprint::{Blueprint, PortPlan, QueuePlan};
use crate::port::{Received, Rx, Tx};
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

//! Tests of latency measurements under a clock that is an argument.

use std::sync::atomic::{AtomicU64, Ordering};

use flowyard_frame::{Batch, Lanes};
use flowyard_pool::Pool;
use flowyard_yard::{Rx, Tick, Tx};

use super::*;

/// A time, and a clock that reads it.
fn time() -> (Arc<AtomicU64>, Clock) {
    let time = Arc::new(AtomicU64::new(0));
    let read = Arc::clone(&time);
    (time, Arc::new(move || read.load(Ordering::Relaxed)))
}

/// The rate is exact over all gaps, and the gaps are drawn from the seed.
#[test]
fn a_schedule_has_its_rate_and_its_seed() {
    let times = |seed| {
        let mut schedule = Schedule::new(2e6, seed);
        (0..65_536).map(|_| schedule.next()).collect::<Vec<_>>()
    };
    let one = times(1);
    assert!(one.is_sorted() && one == times(1) && one != times(2));
    assert!(one.last().unwrap().abs_diff(65_536 * 500) < 100, "{:?}", one.last());
    // Of a Poisson process, 1 - 1/e of all gaps are shorter than the mean.
    let short = one.windows(2).filter(|pair| pair[1] - pair[0] < 500).count();
    assert!((41_000..41_900).contains(&short), "{short}");
}

/// Ticks every core of an engine once each microsecond until the schedule has ended, but not from 400 to 900 us.
fn with_a_pause(case: &Case) -> (Log, u64) {
    let (now, clock) = time();
    let whole = Duration::from_micros(1600);
    let Loaded { mut yard, offered, log } = load(case, Some(1e6), 7, whole, &clock).unwrap();
    for us in (1..400).chain(900..4000) {
        now.store(us * 1000, Ordering::Relaxed);
        for core in &mut yard.cores {
            core.tick(us * 1000);
        }
    }
    yard.cores.iter_mut().for_each(|core| _ = core.close_ports());
    (log.recv().unwrap(), offered.load(Ordering::Relaxed))
}

/// A pause of 500 us counts in the latency of all frames that were due meanwhile: of 1,600 measured frames, about 500
/// have waited, half of them for more than 250 us. A load that waited for the device would have sent one.
#[test]
fn a_pause_is_in_the_latency_of_every_frame_that_was_due() {
    for case in &CASES {
        let case = case_of(case);
        let (log, offered) = with_a_pause(&case);
        log.check(offered).unwrap();
        assert!((1850..2150).contains(&offered), "{offered}");
        let latency = log.recorder.finish();
        assert!(latency.p50_ns < 20_000, "{latency:?}");
        assert!((200_000..400_000).contains(&latency.p90_ns), "{latency:?}");
        assert!((450_000..510_000).contains(&latency.max_ns), "{latency:?}");
    }
}

/// Frames that come out of the receiving port, into the transmitting one as `change` leaves them.
fn passed(change: fn(&mut Batch) -> Lanes) -> anyhow::Result<()> {
    let (now, clock) = time();
    let case = case_of(&CASES[0]);
    let count = Arc::new(AtomicU64::new(0));
    let (sender, log) = channel();
    let times = Times::of(Duration::from_millis(1));
    let mut rx = Arrivals::new(&case.frames(), None, times, Arc::clone(&count));
    let mut tx = Departures::new(case.flows, clock, sender);
    let (mut pool, mut batch) = (Pool::new(64, 128), Batch::default());
    rx.rx(&mut batch, &mut pool, now.load(Ordering::Relaxed));
    let lanes = change(&mut batch);
    tx.tx(&mut batch, lanes, &pool, 0);
    tx.close().unwrap();
    batch.drain().for_each(|frame| pool.put(frame));
    log.recv().unwrap().check(count.load(Ordering::Relaxed))
}

#[test]
fn order_and_conservation_are_checked() {
    passed(|batch| batch.lanes()).unwrap();
    let lost = passed(|batch| batch.lanes().without(Lanes(1))).unwrap_err().to_string();
    assert_eq!(lost, "32 frames were received, but 31 left");
    // The same frame again: later frames of its flow have left.
    let (now, clock) = time();
    let (sender, log) = channel();
    let times = Times::of(Duration::from_millis(1));
    let case = Case { flows: 1, ..case_of(&CASES[0]) };
    let mut rx = Arrivals::new(&case.frames(), None, times, Arc::default());
    let mut tx = Departures::new(1, clock, sender);
    let (mut pool, mut batch) = (Pool::new(64, 128), Batch::default());
    rx.rx(&mut batch, &mut pool, now.load(Ordering::Relaxed));
    batch.frames.swap(0, 1);
    let lanes = batch.lanes();
    tx.tx(&mut batch, lanes, &pool, 0);
    tx.close().unwrap();
    batch.drain().for_each(|frame| pool.put(frame));
    let disordered = log.recv().unwrap().check(32).unwrap_err().to_string();
    assert!(disordered.starts_with("1 frames left behind a later frame"), "{disordered}");
}

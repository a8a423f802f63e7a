//! Stages: the cost of each part of the walk, measured in some of the ticks.
//!
//! ```text
//!  tick 0   timed:  other |rx |parse |steer |settle |enqueue |dequeue |work |complete |tx |other |
//!  tick 1 ... 16    not timed: one branch per stage and batch
//! ```
//!
//! Each nanosecond between the beginning of a timed tick and the beginning of the next tick belongs to one stage, so
//! that the stages add up to the time that a frame takes. What no stage claims is `other`. The time of reading the
//! clock is measured once and subtracted. A tick without progress counts for nothing: polling is not work.
//!
//! Thread-safety: plain data; each core has its own.

use flowyard_frame::Nanos;

use crate::Clock;

/// One part of the walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Span {
    /// Receive a batch from a port.
    Rx,
    /// Parse bytes to keys.
    Parse,
    /// Hash, and look up the tables.
    Steer,
    /// Decide whether flows may move; learners observe.
    Settle,
    /// Enter a queue.
    Enqueue,
    /// Leave a queue.
    Dequeue,
    /// The work of the engine.
    Work,
    /// Enter the tx queues, in order.
    Complete,
    /// Transmit by a port, and return the buffers to the pool.
    Tx,
    /// The rest of a tick: mail, learners, counters, polling of empty queues, the loop itself. Its frames are
    /// those that the core received.
    Other,
}

impl Span {
    /// All stages, in the order of the walk.
    pub const ALL: [Self; 10] = [
        Self::Rx,
        Self::Parse,
        Self::Steer,
        Self::Settle,
        Self::Enqueue,
        Self::Dequeue,
        Self::Work,
        Self::Complete,
        Self::Tx,
        Self::Other,
    ];

    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rx => "rx",
            Self::Parse => "parse",
            Self::Steer => "steer",
            Self::Settle => "settle",
            Self::Enqueue => "enqueue",
            Self::Dequeue => "dequeue",
            Self::Work => "work",
            Self::Complete => "complete",
            Self::Tx => "tx",
            Self::Other => "other",
        }
    }
}

/// Time and frames by stage, of timed ticks only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stages {
    ns: [Nanos; Span::ALL.len()],
    frames: [u64; Span::ALL.len()],
}

impl Stages {
    /// Adds a batch of `frames` that took `ns` nanoseconds.
    pub const fn add(&mut self, span: Span, frames: u64, ns: Nanos) {
        self.ns[span as usize] += ns;
        self.frames[span as usize] += frames;
    }

    /// Cost of a frame in this stage, in nanoseconds; `None` if none was timed.
    #[must_use]
    pub fn ns_per_frame(&self, span: Span) -> Option<f64> {
        let frames = self.frames[span as usize];
        (frames > 0).then(|| self.ns[span as usize] as f64 / frames as f64)
    }

    /// Number of frames that were timed in this stage.
    #[must_use]
    pub const fn frames(&self, span: Span) -> u64 {
        self.frames[span as usize]
    }

    /// The difference to `before`.
    #[must_use]
    pub fn minus(mut self, before: &Self) -> Self {
        self.ns.iter_mut().zip(before.ns).for_each(|(now, ns)| *now -= ns);
        self.frames.iter_mut().zip(before.frames).for_each(|(now, n)| *now -= n);
        self
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        self.ns.iter_mut().zip(other.ns).for_each(|(sum, ns)| *sum += ns);
        self.frames.iter_mut().zip(other.frames).for_each(|(sum, n)| *sum += n);
        self
    }
}

/// One of N ticks is timed. The number is prime, so that no work that a core does every N ticks is always, or
/// never, in a timed tick.
const EVERY: u32 = 17;

/// Times the stages of some ticks of a core.
pub(crate) struct Stopwatch {
    /// Without a clock, only time that the work charges to the virtual clock is counted.
    clock: Option<Clock>,
    /// The time of reading the clock, in nanoseconds.
    reading: Nanos,
    /// Ticks until the next timed tick.
    skip: u32,
    /// Whether this tick is timed.
    on: bool,
    /// Whether this tick made progress.
    progress: bool,
    last: Nanos,
    /// The timed tick so far.
    tick: Stages,
    pub(crate) stages: Stages,
}

impl Stopwatch {
    pub(crate) fn new(clock: Option<Clock>) -> Self {
        let reading = clock.as_ref().map_or(0, |clock| {
            let mut times: [Nanos; 65] = std::array::from_fn(|_| clock());
            for at in 0..64 {
                times[at] = times[at + 1].saturating_sub(times[at]);
            }
            times[..64].sort_unstable();
            times[32]
        });
        let (tick, stages) = (Stages::default(), Stages::default());
        Self { clock, reading, skip: 0, on: false, progress: false, last: 0, tick, stages }
    }

    /// A tick begins. A timed tick ends here, so that what the loop does between two ticks is part of it.
    #[inline]
    pub(crate) fn tick(&mut self) {
        if self.clock.is_some() {
            if self.on || self.skip == 0 {
                self.turn();
            } else {
                self.skip -= 1;
            }
        }
    }

    /// Whether the tick made progress.
    #[inline]
    pub(crate) const fn ticked(&mut self, progress: bool) {
        self.progress = progress;
    }

    /// The next stage begins; the time since the last one belongs to no stage of its own.
    #[inline]
    pub(crate) fn start(&mut self) {
        if self.on {
            self.record(Span::Other, 0);
        }
    }

    /// `span` ends, with `frames` frames; the next stage begins.
    #[inline]
    pub(crate) fn lap(&mut self, span: Span, frames: usize) {
        if self.on {
            self.record(span, frames);
        }
    }

    /// `span` took `ns` of the virtual clock.
    #[inline]
    pub(crate) const fn charge(&mut self, span: Span, frames: usize, ns: Nanos) {
        if ns > 0 {
            self.stages.add(span, frames as u64, ns);
        }
    }

    /// Ends a timed tick, and begins one if it is due.
    #[cold]
    fn turn(&mut self) {
        if self.on {
            self.record(Span::Other, 0);
            if self.progress {
                self.tick.frames[Span::Other as usize] = self.tick.frames[Span::Rx as usize];
                self.stages = self.stages.plus(&self.tick);
            }
        }
        self.on = self.skip == 0;
        if self.on {
            (self.skip, self.progress, self.tick) = (EVERY, false, Stages::default());
            self.last = self.clock.as_ref().map_or(0, |clock| clock());
        }
        self.skip = self.skip.saturating_sub(1);
    }

    #[cold]
    fn record(&mut self, span: Span, frames: usize) {
        let now = self.clock.as_ref().map_or(0, |clock| clock());
        let before = std::mem::replace(&mut self.last, now);
        // Frames that find their queue full are tried again: that is the price of their enqueue. Any other stage
        // without frames has polled.
        let is_polling = frames == 0 && span != Span::Enqueue;
        let span = if is_polling { Span::Other } else { span };
        let ns = now.saturating_sub(before).saturating_sub(self.reading);
        self.tick.add(span, frames as u64, ns);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A clock that each reading moves on by 5 ns, and its time.
    fn clock() -> (Clock, Arc<AtomicU64>) {
        let time = Arc::new(AtomicU64::new(0));
        let read = Arc::clone(&time);
        (Arc::new(move || read.fetch_add(5, Ordering::Relaxed)), time)
    }

    #[test]
    fn one_tick_of_seventeen_is_timed_without_the_clock_itself() {
        let (clock, time) = clock();
        let mut watch = Stopwatch::new(Some(clock));
        let pass = |ns| _ = time.fetch_add(ns, Ordering::Relaxed);
        for _ in 0..35 {
            watch.tick();
            pass(10); // before the first stage
            watch.start();
            pass(320);
            watch.lap(Span::Rx, 32);
            pass(100);
            watch.lap(Span::Parse, 0); // no frame
            pass(64);
            watch.lap(Span::Work, 2);
            watch.ticked(true);
            pass(50); // between two ticks
        }
        let all = Span::ALL.map(|span| watch.stages.ns_per_frame(span));
        let mut expected = [None; 10];
        (expected[Span::Rx as usize], expected[Span::Work as usize]) = (Some(10.0), Some(32.0));
        expected[Span::Other as usize] = Some(5.0); // 10 + 100 + 50 of 32 frames
        assert_eq!(all, expected);
        assert_eq!(watch.stages.frames[0], 64, "two ticks");
        assert_eq!(watch.stages.ns.iter().sum::<u64>(), 2 * (10 + 320 + 100 + 64 + 50));
    }

    #[test]
    fn a_tick_without_progress_counts_for_nothing() {
        let (clock, time) = clock();
        let mut watch = Stopwatch::new(Some(clock));
        for tick in 0..40 {
            watch.tick();
            time.fetch_add(700, Ordering::Relaxed);
            watch.lap(Span::Enqueue, 0);
            watch.ticked(tick == 17);
        }
        assert_eq!(watch.stages.ns[Span::Enqueue as usize], 700, "a queue that was full");
        assert_eq!(watch.stages.ns.iter().sum::<u64>(), 700);
    }

    #[test]
    fn without_a_clock_only_charges_count() {
        let mut watch = Stopwatch::new(None);
        watch.tick();
        watch.lap(Span::Rx, 1);
        watch.charge(Span::Work, 4, 400);
        assert_eq!(watch.stages.ns_per_frame(Span::Rx), None);
        assert_eq!(watch.stages.ns_per_frame(Span::Work), Some(100.0));
        let twice = watch.stages.plus(&watch.stages);
        assert_eq!((twice.frames[6], twice.ns[6]), (8, 800));
    }
}

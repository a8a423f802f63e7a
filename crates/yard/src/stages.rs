//! Stages: the cost of each part of the walk, measured in some of the ticks.
//!
//! ```text
//!  tick 0   timed:  rx |parse |steer |settle |enqueue |dequeue |work |complete |tx |
//!  tick 1 ... 15    not timed: a branch a stage and batch
//!  tick 1 ... 15    not timed: one branch per stage and batch
//!
//! The time of reading the clock is measured once and subtracted. A stage without frames counts for
//! nothing: polling is not work.
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
}

impl Span {
    /// All stages, in the order of the walk.
    pub const ALL: [Self; 9] = [
        Self::Rx,
        Self::Parse,
        Self::Steer,
        Self::Settle,
        Self::Enqueue,
        Self::Dequeue,
        Self::Work,
        Self::Complete,
        Self::Tx,
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

/// One of N ticks is timed.
const EVERY: u32 = 16;

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
    last: Nanos,
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
        Self { clock, reading, skip: 0, on: false, last: 0, stages: Stages::default() }
    }

    /// A tick begins.
    #[inline]
    pub(crate) fn tick(&mut self) {
        if self.clock.is_some() {
            self.on = self.skip == 0;
            self.skip = if self.on { EVERY - 1 } else { self.skip - 1 };
        }
    }

    /// The next stage begins; earlier time is counted or belongs to no stage.
    #[inline]
    pub(crate) fn start(&mut self) {
        if self.on {
            self.restart();
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

    #[cold]
    fn restart(&mut self) {
        self.last = self.clock.as_ref().map_or(0, |clock| clock());
    }

    #[cold]
    fn record(&mut self, span: Span, frames: usize) {
        let before = self.last;
        self.restart();
        if frames > 0 {
            let ns = self.last.saturating_sub(before).saturating_sub(self.reading);
            self.stages.add(span, frames as u64, ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn one_tick_of_sixteen_is_timed_less_the_clock_itself() {
        let time = Arc::new(AtomicU64::new(0));
        let read = Arc::clone(&time);
        // Each reading takes 5 ns.
        let clock: Clock = Arc::new(move || read.fetch_add(5, Ordering::Relaxed));
        let mut watch = Stopwatch::new(Some(clock));
        let pass = |ns| _ = time.fetch_add(ns, Ordering::Relaxed);
        for _ in 0..32 {
            watch.tick();
            watch.start();
            pass(320);
            watch.lap(Span::Rx, 32);
            pass(1000);
            watch.lap(Span::Parse, 0); // no frame
            pass(64);
            watch.lap(Span::Work, 2);
        }
        let all = Span::ALL.map(|span| watch.stages.ns_per_frame(span));
        let mut expected = [None; 9];
        (expected[Span::Rx as usize], expected[Span::Work as usize]) = (Some(10.0), Some(32.0));
        assert_eq!(all, expected);
        assert_eq!(watch.stages.frames[0], 64, "two ticks");
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

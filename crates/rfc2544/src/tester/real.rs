//! The tester in real time: one loop that sends due frames and analyses received frames.
//!
//! ```text
//!  loop { now; due frames of each port ─ tag ─> Wire::send;  Wire::receive ─> Analyser }
//! ```
//!
//! The caller supplies the clock. A frame is due at its scheduled time. A frame that a port does
//! not accept is offered again later. A trial that ends before all frames are sent has a fault of
//! the tester, which is never counted as loss of the device. The result contains the delays of
//! departure.
//!
//! Thread-safety: used by one thread.

use flowyard_frame::Nanos;
use hdrhistogram::Histogram;

use super::stream::{BURST, Stream};
use super::wire::{Resetter, Wire};
use crate::analyse::{Analyser, Memory, counts};
use crate::measure::{Measure, MeasureError};
use crate::setup::{Setup, Waits};
use crate::traffic::Plan;
use crate::trial::{Counts, Losses, Shape, Timing, Trial, TrialResult};

/// A frame that leaves later than this after its scheduled time is late.
const LATE: Nanos = 100_000;

/// The longest time in which a port must accept a learning frame.
const LEARNING_TIMEOUT: Nanos = 1_000_000_000;

/// The tester in real time.
pub struct RealTester<'a, W> {
    wires: &'a mut [W],
    clock: &'a dyn Fn() -> Nanos,
    setup: Setup,
    plans: Vec<Plan>,
    routes: Vec<Vec<u8>>,
    streams: Vec<Stream>,
    reset: Option<&'a mut dyn Resetter>,
}

impl<'a, W: Wire> RealTester<'a, W> {
    /// A tester with one port for each of `wires`.
    ///
    /// # Errors
    /// When the traffic specification is invalid, or there are too few wires.
    pub fn new(
        wires: &'a mut [W],
        clock: &'a dyn Fn() -> Nanos,
        setup: Setup,
    ) -> Result<Self, MeasureError> {
        let (has, wants) = (wires.len() as u8, setup.topology.ports());
        if has < wants {
            return Err(MeasureError::Ports { has, wants });
        }
        let routes = setup.topology.routes();
        let plans = (0..routes.len() as u8).map(|port| setup.traffic.plan(port));
        let plans = plans.collect::<Result<Vec<_>, _>>()?;
        Ok(Self { wires, clock, setup, plans, routes, streams: Vec::new(), reset: None })
    }

    /// Adds a way to reset the device, so that trials with a reset can be run.
    #[must_use]
    pub fn with_reset(self, reset: Option<&'a mut dyn Resetter>) -> Self {
        Self { reset, ..self }
    }

    /// Receives until `until`. Without an analyser, frames are discarded. Returns whether any frame
    /// was received.
    fn wait(&mut self, until: Nanos, mut analyser: Option<&mut Analyser>) -> bool {
        let mut any = false;
        while (self.clock)() < until {
            let mut seen = false;
            for (port, wire) in self.wires.iter_mut().enumerate() {
                let clock = self.clock;
                wire.receive(&mut |frame| {
                    seen = true;
                    if let Some(analyser) = analyser.as_deref_mut() {
                        analyser.see(clock(), port as u8, frame);
                    }
                });
            }
            // The device may share a CPU with the tester: yield while there is nothing to do.
            any |= seen;
            if !seen {
                std::thread::yield_now();
            }
        }
        any
    }

    fn learn(&mut self) -> Result<(), MeasureError> {
        for from in 0..self.routes.len() {
            for flow in 0..self.setup.traffic.flows.max(1) {
                let to = self.routes[from][usize::from(flow) % self.routes[from].len()];
                let frame = self.setup.traffic.hosts().learning(from as u8, to, flow);
                self.send_learning(to, &frame)?;
            }
        }
        let until = (self.clock)() + self.setup.settle;
        self.wait(until, None);
        Ok(())
    }

    /// Sends a learning frame, again until the port accepts it: without it, the device floods the frames of its flow, or
    /// drops them.
    fn send_learning(&mut self, port: u8, frame: &[u8]) -> Result<(), MeasureError> {
        let end = (self.clock)() + LEARNING_TIMEOUT;
        while self.wires[usize::from(port)].send(&[frame]).map_err(MeasureError::Other)? == 0 {
            let now = (self.clock)();
            if now >= end {
                let what =
                    format!("port {port} of the tester accepted no learning frame within 1 s");
                return Err(MeasureError::Other(what));
            }
            self.wait(now + LEARNING_TIMEOUT / 100_000, None);
        }
        Ok(())
    }

    /// Sends the frames that are due at one port.
    fn send(
        &mut self,
        at: usize,
        trial: &Trial,
        (start, rows): (Nanos, u64),
        errors: &mut Histogram<u64>,
    ) -> Result<(), MeasureError> {
        let (stream, plan) = (&mut self.streams[at], &self.plans[at]);
        let (first, now) = (stream.row(), (self.clock)());
        let (mut times, mut ready) = ([0; BURST], 0);
        for (time, row) in times.iter_mut().zip(first..rows) {
            *time = start + plan.due_ns(trial, row);
            if *time > now {
                break;
            }
            ready += 1;
        }
        if ready == 0 {
            return Ok(());
        }
        let taken = stream.send(&mut self.wires[at], ready, now).map_err(MeasureError::Other)?;
        for time in &times[..taken] {
            errors.saturating_record(now - time);
        }
        Ok(())
    }
}

impl<W: Wire> Measure for RealTester<'_, W> {
    fn measure(&mut self, trial: &Trial) -> Result<TrialResult, MeasureError> {
        let mut reset_at = match trial.shape {
            Shape::Reset { .. } if self.reset.is_none() => {
                return Err(MeasureError::NoReset("a device without a reset command".into()));
            }
            Shape::Reset { at } => Some(at),
            _ => None,
        };
        if self.setup.learning {
            self.learn()?;
        }
        let ports = 0..self.plans.len() as u8;
        self.streams =
            ports.map(|port| Stream::new(&self.setup, port)).collect::<Result<_, _>>()?;
        let window = self.plans[0].window(trial.load, self.setup.residue);
        let memory = Memory { flows: self.setup.traffic.flows, window };
        let clock = self.clock;
        let mut analyser = Analyser::new(&self.routes, self.setup.cover, memory, 0);
        let mut rows = self.plans[0].rows(trial);
        let mut errors = Histogram::<u64>::new_with_bounds(1, 1 << 40, 3)
            .map_err(|error| MeasureError::Other(error.to_string()))?;
        for (plan, source) in self.plans.iter().zip(analyser.sources()) {
            let tags = trial.tagged_frames().take_while(|row| *row < rows);
            source.wanted = tags.map(|row| (plan.tags_before(row), None)).collect();
            source.wanted.dedup_by_key(|(index, _)| *index);
        }
        // Discard frames and drop counts from before the trial.
        for wire in self.wires.iter_mut() {
            wire.receive(&mut |_| {});
            wire.drops();
        }
        let start = clock() + 100_000;
        analyser.begin(start);
        // The last frames may be late because of scheduling by the operating system. A load that is
        // never reached is detected nevertheless.
        let mut end = start + trial.duration + trial.duration / 1000 + 1_000_000;
        let mut stopped_at = None;
        while clock() < end && self.streams.iter().any(|stream| stream.row() < rows) {
            if reset_at.is_some_and(|at| clock() >= start + at) {
                reset_at = None;
                self.reset.as_mut().map_or(Ok(()), |it| it.begin()).map_err(MeasureError::Other)?;
            }
            for at in 0..self.streams.len() {
                self.send(at, trial, (start, rows), &mut errors)?;
            }
            for (port, wire) in self.wires.iter_mut().enumerate() {
                wire.receive(&mut |frame| analyser.see(clock(), port as u8, frame));
            }
            if trial.stop_at_loss && stopped_at.is_none() && analyser.has_lost() {
                let now = clock().saturating_sub(start);
                // The intended load is what was due so far; it may be as late as in a full trial.
                end = start + now + now / 1000 + 1_000_000;
                let sent = self.streams.iter().map(Stream::row).max().unwrap_or(0);
                rows = (sent..rows)
                    .find(|row| self.plans[0].due_ns(trial, *row) > now)
                    .unwrap_or(rows);
                stopped_at = Some(now);
            }
        }
        // A queue may take longer to drain than the configured wait: keep waiting while frames
        // arrive, but no longer than the standard's wait.
        let (from, residue) = (clock(), self.setup.residue);
        loop {
            let more = self.wait(clock() + residue.div_ceil(4), Some(&mut analyser));
            let waited = clock() - from;
            if waited >= residue && (!more || waited >= Waits::STANDARD.residue) {
                break;
            }
        }
        if matches!(trial.shape, Shape::Reset { .. }) {
            self.reset.as_mut().map_or(Ok(()), |it| it.end()).map_err(MeasureError::Other)?;
        }
        let drops: u64 = self.wires.iter_mut().map(Wire::drops).sum();
        let result =
            TrialResult { stopped_at, ..self.finish(trial, rows, analyser, &errors, drops) };
        self.wait(clock() + self.setup.rest, None);
        result.check().map_err(MeasureError::Unbalanced)?;
        Ok(result)
    }
}

impl<W: Wire> RealTester<'_, W> {
    fn finish(
        &self,
        trial: &Trial,
        rows: u64,
        mut analyser: Analyser,
        errors: &Histogram<u64>,
        drops: u64,
    ) -> TrialResult {
        let (mut total, mut losses) = (Counts::default(), Losses::default());
        let (mut ports, mut tagged) = (Vec::new(), Vec::new());
        for (at, (plan, stream)) in self.plans.iter().zip(&self.streams).enumerate() {
            let source = &mut analyser.sources()[at];
            let known = source.tracker.finish(stream.index());
            let latency = |row| source.latency_of(plan.tags_before(row));
            tagged.extend(trial.tagged_frames().take_while(|row| *row < rows).map(latency));
            let time = |index| plan.due_ns(trial, plan.row_of(index));
            let first = known.first_lost.map(time);
            losses.first =
                losses.first.map_or(first, |was| Some(first.map_or(was, |t| was.min(t))));
            losses.last = losses.last.max(known.last_lost.map(time));
            let own = counts(&known, plan.tags_before(rows), stream.index());
            total = total.plus(&own);
            ports.push(own);
        }
        analyser.totals().store(&mut total);
        (total.tester_rx_drops, losses.silence) = (drops, analyser.silence());
        if ports.len() == 1 {
            ports.clear();
        }
        let late = errors.iter_recorded().filter(|step| step.value_iterated_to() > LATE);
        TrialResult {
            trial: *trial,
            counts: total,
            ports,
            latency: analyser.latency.finish(),
            tagged,
            losses,
            timing: Timing {
                late_frames: late.map(|step| step.count_since_last_iteration()).sum(),
                late_ns: LATE,
                p50_ns: errors.value_at_quantile(0.5),
                p99_ns: errors.value_at_quantile(0.99),
                max_ns: errors.max(),
                burst: BURST as u32,
                last_ns: 0,
            },
            repeated_frames: 0,
            stopped_at: None,
            drops: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::VecDeque;
    use std::rc::Rc;

    use super::*;
    use crate::analyse::Totals;
    use crate::line::{Line, Load};
    use crate::setup::Topology;
    use crate::tag::{self, Tag};
    use crate::traffic::Spec;
    use crate::trial::SECOND;

    type Queue = Rc<RefCell<VecDeque<Vec<u8>>>>;

    /// One end of a cable that loses every `lose_every`-th frame and accepts `most` frames per
    /// call.
    struct Cable {
        to: Queue,
        from: Queue,
        lose_every: u64,
        count: u64,
        most: usize,
        /// Calls that accept nothing.
        busy: usize,
        drops: u64,
    }

    impl Wire for Cable {
        fn send(&mut self, frames: &[&[u8]]) -> Result<usize, String> {
            if self.busy > 0 {
                self.busy -= 1;
                return Ok(0);
            }
            for frame in frames.iter().take(self.most) {
                self.count += 1;
                if self.lose_every == 0 || !self.count.is_multiple_of(self.lose_every) {
                    self.to.borrow_mut().push_back(frame.to_vec());
                }
            }
            Ok(frames.len().min(self.most))
        }

        fn receive(&mut self, each: &mut dyn FnMut(&[u8])) {
            while let Some(frame) = self.from.borrow_mut().pop_front() {
                each(&frame);
            }
        }

        fn drops(&mut self) -> u64 {
            std::mem::take(&mut self.drops)
        }
    }

    fn measure(lose_every: u64, most: usize, pps: f64, step: Nanos) -> TrialResult {
        tried(lose_every, most, step, Trial::new(Load::from_pps(pps), SECOND / 10))
    }

    fn tried(lose_every: u64, most: usize, step: Nanos, trial: Trial) -> TrialResult {
        let (a, b) = (Queue::default(), Queue::default());
        let cable = |to: &Queue, from: &Queue| Cable {
            to: Rc::clone(to),
            from: Rc::clone(from),
            lose_every,
            count: 0,
            most,
            busy: 0,
            drops: 0,
        };
        let mut wires = [cable(&a, &b), cable(&b, &a)];
        // A clock that advances by `step` on each reading.
        let time = Cell::new(0);
        let clock = || {
            time.set(time.get() + step);
            time.get()
        };
        let setup = Setup {
            learning: false,
            rest: 0,
            residue: 5_000_000,
            ..Setup::new(Line::GBIT_1, Topology::Pairs(2), Spec::fixed(64))
        };
        RealTester::new(&mut wires, &clock, setup).unwrap().measure(&trial).unwrap()
    }

    #[test]
    fn learning_frames_are_sent_until_the_port_accepts_them() {
        let learnt = |busy| {
            let (sent, none) = (Queue::default(), Queue::default());
            let cable = || Cable {
                to: Rc::clone(&sent),
                from: Rc::clone(&none),
                lose_every: 0,
                count: 0,
                most: 1,
                busy,
                drops: 0,
            };
            let mut wires = [cable(), cable()];
            let time = Cell::new(0);
            let clock = || {
                time.set(time.get() + 100_000);
                time.get()
            };
            let traffic = Spec { flows: 3, ..Spec::fixed(64) };
            let setup =
                Setup { settle: 0, ..Setup::new(Line::GBIT_1, Topology::Pairs(2), traffic) };
            let done = RealTester::new(&mut wires, &clock, setup).unwrap().learn();
            (done.map_err(|error| error.to_string()), sent.borrow().len())
        };
        assert_eq!(learnt(0), (Ok(()), 6));
        assert_eq!(learnt(5), (Ok(()), 6));
        let (refused, _) = learnt(usize::MAX);
        assert!(refused.unwrap_err().contains("accepted no learning frame"));
    }

    #[test]
    fn sent_frames_are_received_and_lost_frames_are_counted() {
        let clean = measure(0, 32, 10_000.0, 500);
        assert_eq!(
            (clean.counts.intended, clean.counts.sent, clean.counts.lost()),
            (2000, 2000, 0)
        );
        assert!(clean.fault().is_none() && clean.timing.max_ns < 10_000, "{:?}", clean.timing);
        let lossy = measure(7, 32, 10_000.0, 500);
        assert_eq!((lossy.counts.sent, lossy.counts.lost()), (2000, 2 * 142));
        assert_eq!((lossy.counts.gaps, lossy.counts.duplicates), (2 * 142, 0));
    }

    /// A trial with `stop_at_loss` ends early; the counters balance, and frames not yet due are not
    /// counted as missing.
    #[test]
    fn a_trial_can_end_with_the_first_loss() {
        let trial = Trial::new(Load::from_pps(200_000.0), SECOND / 10);
        let (whole, cut) =
            (tried(1000, 32, 500, trial), tried(1000, 32, 500, trial.stop_at_loss()));
        assert_eq!((whole.counts.sent, whole.counts.lost(), whole.stopped_at), (40_000, 40, None));
        let at = cut.stopped_at.unwrap();
        // The first loss is known when the frame leaves the window of 4,096 frames.
        assert!((25_000_000..30_000_000).contains(&at), "{at}");
        let due = 2 * trial.load.frames_in(at);
        assert!(cut.counts.sent.abs_diff(due) <= 128, "{} sent, {due} due", cut.counts.sent);
        assert!(cut.counts.lost() >= 8 && cut.fault().is_none(), "{:?}", cut.counts);
        let clean = tried(0, 32, 500, trial.stop_at_loss());
        assert_eq!((clean.counts.sent, clean.counts.lost(), clean.stopped_at), (40_000, 0, None));
        // A loop that takes longer than the frame interval catches up.
        let behind = tried(1000, 32, 2000, trial.stop_at_loss());
        assert!(behind.stopped_at.is_some() && behind.fault().is_none(), "{:?}", behind.counts);
        // A rate that the tester does not reach is its fault, also in a trial that ended early.
        let fast = Trial::new(Load::from_pps(300_000.0), SECOND / 10).stop_at_loss();
        let slow = tried(1000, 1, 3000, fast);
        assert!(slow.stopped_at.is_some() && slow.fault().is_some(), "{:?}", slow.counts);
    }

    /// A frame of an earlier trial that was delayed in a queue counts as foreign in this one.
    #[test]
    fn frames_of_an_earlier_trial_count_as_foreign() {
        let setup = Setup::new(Line::GBIT_1, Topology::Uni, Spec::fixed(64));
        let memory = Memory { flows: 1, window: 64 };
        let mut analyser = Analyser::new(&[vec![1]], setup.cover, memory, 0);
        analyser.begin(5000);
        let mut frame = setup.traffic.hosts().frame(0, 0, 64);
        for (sent, index) in [(4999, 0), (5000, 1)] {
            tag::write(&mut frame, &Tag { source: 0, flow: 0, index, sent }, setup.cover);
            analyser.see(9000, 1, &frame);
        }
        let known = analyser.known()[0];
        let want = Totals { received: 2, foreign: 1, ..Totals::default() };
        assert_eq!((analyser.totals(), known.good), (want, 1));
    }

    #[test]
    fn a_rate_that_is_not_reached_is_the_testers_fault() {
        // One frame a call, and calls that take longer than frames.
        let slow = measure(0, 1, 1_000_000.0, 3000);
        assert!(slow.counts.sent < slow.counts.intended);
        assert_eq!(slow.counts.lost(), 0, "frames that were not sent are not lost");
        assert!(slow.fault().unwrap().contains("the tester sent"), "{:?}", slow.fault());
        assert!(slow.timing.late_frames > 0);
    }
}

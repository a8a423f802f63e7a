//! The tester in real time: one loop that sends what is due and looks at all that came.
//!
//! ```text
//!  loop { now; due frames of each port ─ tag ─> Wire::send;  Wire::receive ─> Analyser }
//! ```
//!
//! The clock is the caller's. A frame is due at its time of the schedule; what a port does not take
//! is offered again, later, and a trial that ends before all is sent is short: that is the tester's
//! fault, never the device's loss. How late frames left is in the result.
//!
//! Thread-safety: one thread's.

use flowyard_frame::Nanos;
use hdrhistogram::Histogram;

use super::stream::{BURST, Stream};
use super::{Measure, MeasureError};
use crate::analyse::{Analyser, Memory, counts};
use crate::setup::{Setup, Waits};
use crate::track::window_for;
use crate::traffic::Plan;
use crate::trial::{Counts, Losses, Shape, Timing, Trial, TrialResult};

/// One port of the tester.
pub trait Wire {
    /// Sends `frames`, the first one first; returns how many were taken.
    ///
    /// # Errors
    /// What stands in the way for good, for people.
    fn send(&mut self, frames: &[&[u8]]) -> Result<usize, String>;

    /// Hands over what has come.
    fn receive(&mut self, each: &mut dyn FnMut(&[u8]));

    /// Frames that came and that the port itself dropped, since this was last asked.
    fn drops(&mut self) -> u64;
}

/// What resets the device between the ports.
pub trait Resetter {
    /// Begins, and waits for nothing: frames go on.
    ///
    /// # Errors
    /// Why it could not, for people.
    fn begin(&mut self) -> Result<(), String>;

    /// The trial is over: whether it went well.
    ///
    /// # Errors
    /// What went wrong, for people.
    fn end(&mut self) -> Result<(), String>;
}

/// A frame that leaves so much after its time is late.
const LATE: Nanos = 100_000;

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
    /// A tester with a port at each of `wires`.
    ///
    /// # Errors
    /// Traffic that cannot be, or too few wires.
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

    /// With what resets the device: trials that want it can be made.
    #[must_use]
    pub fn with_reset(self, reset: Option<&'a mut dyn Resetter>) -> Self {
        Self { reset, ..self }
    }

    /// Looks at what comes until `until`; what nobody waits for is thrown away.
    /// Whether anything came.
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
            // The device may share the processor with the tester: whoever waits makes room.
            any |= seen;
            if !seen {
                std::thread::yield_now();
            }
        }
        any
    }

    fn learn(&mut self) -> Result<(), MeasureError> {
        for (from, to) in self.routes.iter().enumerate() {
            for flow in 0..self.setup.traffic.flows.max(1) {
                let to = to[usize::from(flow) % to.len()];
                let frame = self.setup.traffic.hosts().learning(from as u8, to, flow);
                self.wires[usize::from(to)].send(&[&frame]).map_err(MeasureError::Other)?;
            }
        }
        let until = (self.clock)() + self.setup.settle;
        self.wait(until, None);
        Ok(())
    }

    /// Sends what is due at one port.
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
                return Err(MeasureError::NoReset("a device without a command for it".into()));
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
        let window = window_for(trial.load.interval_ps, self.setup.residue);
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
        // What came before is nobody's, and what it took to get ready is over.
        for wire in self.wires.iter_mut() {
            wire.receive(&mut |_| {});
            wire.drops();
        }
        let start = clock() + 100_000;
        analyser.begin(start);
        // The last frames may be as late as frames are when the system has other things to do; a
        // load that is never reached is found out all the same.
        let mut end = start + trial.duration + trial.duration / 1000 + 1_000_000;
        let mut cut_at = None;
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
            if trial.until_lost && cut_at.is_none() && analyser.has_lost() {
                let now = clock().saturating_sub(start);
                // What was due until then is what was asked for, and may be as late as in a whole trial.
                end = start + now + now / 1000 + 1_000_000;
                let sent = self.streams.iter().map(Stream::row).max().unwrap_or(0);
                rows = (sent..rows)
                    .find(|row| self.plans[0].due_ns(trial, *row) > now)
                    .unwrap_or(rows);
                cut_at = Some(now);
            }
        }
        // A queue may be longer than the wait is: as long as frames come, more may, but no longer than
        // the standard waits.
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
        let result = TrialResult { cut_at, ..self.finish(trial, rows, analyser, &errors, drops) };
        self.wait(clock() + self.setup.rest, None);
        result.check().map_err(MeasureError::Books)?;
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
        [total.received, total.corrupt, total.foreign, total.misrouted] = analyser.strays();
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
            },
            repeated_frames: 0,
            cut_at: None,
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
    use crate::line::{Line, Load};
    use crate::setup::Topology;
    use crate::tag::{self, Tag};
    use crate::traffic::Spec;
    use crate::trial::SECOND;

    type Queue = Rc<RefCell<VecDeque<Vec<u8>>>>;

    /// One end of a cable; it loses every so many frames, and takes so many at once.
    struct Cable {
        to: Queue,
        from: Queue,
        lose_every: u64,
        count: u64,
        most: usize,
        drops: u64,
    }

    impl Wire for Cable {
        fn send(&mut self, frames: &[&[u8]]) -> Result<usize, String> {
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
            drops: 0,
        };
        let mut wires = [cable(&a, &b), cable(&b, &a)];
        // A clock that goes on by itself each time it is asked.
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
    fn all_that_is_sent_comes_back_and_what_is_lost_is_counted() {
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

    /// Whoever only asks whether a frame is lost does not wait for the end; the books balance, and
    /// what was not due yet is not missed.
    #[test]
    fn a_trial_can_end_with_the_first_loss() {
        let trial = Trial::new(Load::from_pps(200_000.0), SECOND / 10);
        let (whole, cut) = (tried(1000, 32, 500, trial), tried(1000, 32, 500, trial.until_lost()));
        assert_eq!((whole.counts.sent, whole.counts.lost(), whole.cut_at), (40_000, 40, None));
        let at = cut.cut_at.unwrap();
        // The first is known to be lost when it is out of the window of 4,096 frames.
        assert!((25_000_000..30_000_000).contains(&at), "{at}");
        let due = 2 * trial.load.frames_in(at);
        assert!(cut.counts.sent.abs_diff(due) <= 128, "{} sent, {due} due", cut.counts.sent);
        assert!(cut.counts.lost() >= 8 && cut.fault().is_none(), "{:?}", cut.counts);
        let clean = tried(0, 32, 500, trial.until_lost());
        assert_eq!((clean.counts.sent, clean.counts.lost(), clean.cut_at), (40_000, 0, None));
        // A loop that takes longer than the distance of frames catches up.
        let behind = tried(1000, 32, 2000, trial.until_lost());
        assert!(behind.cut_at.is_some() && behind.fault().is_none(), "{:?}", behind.counts);
        // A rate that the tester does not reach is its fault, also up to the first loss.
        let fast = Trial::new(Load::from_pps(300_000.0), SECOND / 10).until_lost();
        let slow = tried(1000, 1, 3000, fast);
        assert!(slow.cut_at.is_some() && slow.fault().is_some(), "{:?}", slow.counts);
    }

    /// A frame of an earlier trial, which some queue held back, is nobody's in this one.
    #[test]
    fn frames_of_the_trial_before_are_not_this_ones() {
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
        let [received, corrupt, foreign, misrouted] = analyser.strays();
        assert_eq!((received, corrupt, foreign, misrouted, known.good), (2, 0, 1, 0, 1));
    }

    #[test]
    fn a_rate_that_is_not_reached_is_the_testers_fault() {
        // One frame a call, and calls that take longer than frames.
        let slow = measure(0, 1, 1_000_000.0, 3000);
        assert!(slow.counts.sent < slow.counts.intended);
        assert_eq!(slow.counts.lost(), 0, "what was not sent is not lost");
        assert!(slow.fault().unwrap().contains("the tester sent"), "{:?}", slow.fault());
        assert!(slow.timing.late_frames > 0);
    }
}

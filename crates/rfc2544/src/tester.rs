//! The tester under virtual time: sends the frames of a trial through a [`Dut`], and counts.
//!
//! ```text
//!  row i of all ports ── Plan, Trial ──> time, bytes ──> Dut ──> Analyser
//!          └── device state seen before? ── skip whole cycles, multiply the result of one
//! ```
//!
//! Skipping is exact: device state, traffic and schedule phase are equal at both ends of a cycle,
//! so the next cycle gives the same frames at the same intervals. After the steady state fills the
//! tracker's window, one cycle is counted by itself and its counters are multiplied.
//! `repeated_frames` in the result is the number of frames counted in this way.
//!
//! Invariants: the same seed, setup, device and trials give the same results, to the frame.
//! Thread-safety: used by one thread.

use flowyard_frame::Nanos;

use crate::analyse::{Analyser, Memory, counts};
use crate::dut::{Dut, State};
use crate::line::{Line, OVERHEAD_BYTES};
pub use crate::measure::{Measure, MeasureError};
use crate::setup::Setup;
use crate::tag::{self, Tag};
use crate::traffic::Plan;
use crate::trial::{Counts, Losses, SECOND, Shape, Timing, Trial, TrialResult};

mod cycle;
mod real;
mod stream;
mod templates;
mod wire;

use cycle::{Cycle, Skip};
pub use real::RealTester;
pub use stream::{BURST, Stream};
use templates::Templates;
pub use wire::{Resetter, Wire};

/// The tester under virtual time.
pub struct VirtualTester<D> {
    /// The device under test.
    pub dut: D,
    setup: Setup,
    plans: Vec<Plan>,
    routes: Vec<Vec<u8>>,
    templates: Templates,
    /// The device's current time.
    now: Nanos,
    /// Whether repeating cycles may be skipped.
    pub skips: bool,
}

/// A frame of a replay that leaves later than this after its time in the capture is late.
const LATE: Nanos = 1_000_000;

/// The tracker's maximum window under virtual time, in frames; later arrivals count as `stale`.
const WINDOW: usize = 1 << 15;

impl<D: Dut> VirtualTester<D> {
    /// A tester connected to `dut`.
    ///
    /// # Errors
    /// When the traffic specification is invalid, or the device has too few ports.
    pub fn new(dut: D, setup: Setup) -> Result<Self, MeasureError> {
        let (has, wants) = (dut.ports(), setup.topology.ports());
        if has < wants {
            return Err(MeasureError::Ports { has, wants });
        }
        let routes = setup.topology.routes();
        let plans = (0..routes.len() as u8).map(|port| setup.traffic.plan(port));
        let plans = plans.collect::<Result<Vec<_>, _>>()?;
        let templates = Templates::new(setup.traffic.hosts());
        Ok(Self { dut, setup, plans, routes, templates, now: 0, skips: true })
    }

    /// The setup.
    #[must_use]
    pub const fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Sends learning frames (RFC 2544 section 23 b): one for each flow, from its destination,
    /// spread over one second; then waits for them to take effect.
    fn learn(&mut self) {
        let start = self.now;
        let mut sent = 0;
        let total: u64 = self.routes.len() as u64 * u64::from(self.setup.traffic.flows.max(1));
        for (from, to) in self.routes.clone().iter().enumerate() {
            for flow in 0..self.setup.traffic.flows.max(1) {
                let to = to[usize::from(flow) % to.len()];
                let frame = self.setup.traffic.hosts().learning(from as u8, to, flow);
                let at = start + sent * SECOND / total;
                self.dut.collect(at, &mut |_, _, _| {});
                self.dut.offer(at, to, &frame);
                sent += 1;
            }
        }
        self.now = start + SECOND + self.setup.settle;
        self.dut.collect(self.now, &mut |_, _, _| {});
    }
}

/// The state of a sending port.
struct Sender {
    /// Number of the next frame, tagged or not.
    row: u64,
    /// Index of the next tag.
    index: u64,
    /// The time at which the line is free again, in picoseconds after the start.
    line_ps: u128,
    /// The time of the next frame's last bit, in nanoseconds after the start.
    last: Nanos,
    /// The time of the last bit of the last frame that left, skipped frames included.
    left: Nanos,
    /// How much later than due the next frame leaves, because the line is busy.
    late: Nanos,
}

impl Sender {
    /// Computes the time of the next frame: when it is due, or later when the line becomes free.
    fn aim(&mut self, trial: &Trial, plan: &Plan, line: Line) {
        let due = plan.due_ns(trial, self.row);
        let size = u64::from(plan.step(self.row).size);
        let first = (u128::from(due) * 1000).max(self.line_ps);
        self.late = (first / 1000) as Nanos - due;
        self.line_ps = first + u128::from(line.ps(size + OVERHEAD_BYTES));
        self.last = ((first + u128::from(line.ps(size))) / 1000) as Nanos;
    }
}

/// A trial in progress.
struct Run {
    trial: Trial,
    rows: u64,
    start: Nanos,
    senders: Vec<Sender>,
    analyser: Analyser,
    cycle: Cycle,
    skip: Option<Skip>,
    /// Skipped time; the device's clock is behind the schedule by this amount.
    skipped_ns: Nanos,
    reset: Option<Nanos>,
    /// Frames of a replay that left late, and the longest delay.
    timing: Timing,
    /// When the trial ended early because a frame was lost, relative to the start.
    stopped_at: Option<Nanos>,
}

impl Run {
    /// Ends the trial at `now` if a frame is known to be lost and the search needs to know no more.
    /// All ports send equally many frames.
    fn stop_at_loss(&mut self, now: Nanos) {
        let may = self.trial.stop_at_loss && self.stopped_at.is_none() && self.skip.is_none();
        if may && self.analyser.has_lost() {
            self.rows = self.senders.iter().map(|sender| sender.row).max().unwrap_or(self.rows);
            self.stopped_at = Some(now - self.start);
            self.cycle.close();
        }
    }
}

impl Run {
    /// When the last bit of the last frame left so far, relative to the start.
    fn last_departure(&self) -> Nanos {
        self.senders.iter().map(|sender| sender.left).max().unwrap_or(0)
    }
}

impl<D: Dut> Measure for VirtualTester<D> {
    fn measure(&mut self, trial: &Trial) -> Result<TrialResult, MeasureError> {
        if self.setup.learning {
            self.learn();
        }
        let mut run = self.begin(trial);
        self.send(&mut run)?;
        // Frames that wait for the line leave after the time at which they were due.
        let sent_for = run.stopped_at.unwrap_or(trial.duration.max(run.last_departure()));
        let end = run.start + sent_for.saturating_sub(run.skipped_ns) + self.setup.residue;
        self.dut.collect(end, &mut |at, port, frame| run.analyser.see(at, port, frame));
        self.now = end + self.setup.rest;
        self.dut.collect(self.now, &mut |_, _, _| {}); // later frames are discarded
        let result = self.finish(run);
        result.check().map_err(MeasureError::Unbalanced)?;
        Ok(result)
    }

    fn drops(&self) -> Vec<(String, u64)> {
        self.dut.drops()
    }
}

impl<D: Dut> VirtualTester<D> {
    fn begin(&self, trial: &Trial) -> Run {
        let rows = self.plans[0].rows(trial);
        let window = self.plans[0].window(trial.load, self.setup.residue).min(WINDOW);
        let window = window.next_power_of_two(); // as in the tracker
        let memory = Memory { flows: self.setup.traffic.flows, window };
        let mut analyser = Analyser::new(&self.routes, self.setup.cover, memory, self.now);
        let senders = self.plans.iter().zip(analyser.sources()).map(|(plan, source)| {
            let tags = trial.tagged_frames().take_while(|row| *row < rows);
            let tags = tags.map(|row| (plan.tags_before(row), None));
            source.wanted = tags.collect();
            source.wanted.dedup_by_key(|(index, _)| *index);
            let mut sender = Sender { row: 0, index: 0, line_ps: 0, last: 0, left: 0, late: 0 };
            sender.aim(trial, plan, self.setup.line);
            sender
        });
        let senders = senders.collect();
        let may = self.skips && !self.plans.iter().any(Plan::is_timed);
        Run {
            trial: *trial,
            rows,
            start: self.now,
            senders,
            analyser,
            cycle: Cycle::new(may, trial, window),
            skip: None,
            skipped_ns: 0,
            stopped_at: None,
            timing: Timing { burst: 1, late_ns: LATE, ..Timing::default() },
            reset: match trial.shape {
                Shape::Reset { at } => Some(at),
                _ => None,
            },
        }
    }

    /// Sends all frames and analyses the frames received meanwhile.
    fn send(&mut self, run: &mut Run) -> Result<(), MeasureError> {
        loop {
            let senders =
                run.senders.iter().enumerate().filter(|(_, sender)| sender.row < run.rows);
            let Some((at, last)) =
                senders.map(|(at, s)| (at, s.last)).min_by_key(|&(at, last)| (last, at))
            else {
                return Ok(());
            };
            let now = run.start + last - run.skipped_ns;
            // Frames that leave the device before this frame arrives are analysed first.
            let analyser = &mut run.analyser;
            self.dut.collect(now, &mut |at, port, frame| analyser.see(at, port, frame));
            run.stop_at_loss(now);
            if run.senders[at].row >= run.rows {
                continue; // the trial has just ended
            }
            if at == 0 && run.cycle.is_open() && self.look(run, now) {
                continue;
            }
            if let Some(when) = run.reset.filter(|when| *when <= last) {
                run.reset = None;
                if !self.dut.reset(run.start + when) {
                    return Err(MeasureError::NoReset(self.dut.describe()));
                }
            }
            let (plan, sender) = (&self.plans[at], &mut run.senders[at]);
            let step = plan.step(sender.row);
            let to = self.routes[at][usize::from(step.flow) % self.routes[at].len()];
            let frame = self.templates.get(at as u8, to, step);
            if !step.broadcast {
                let (source, index) = (at as u8, sender.index as u32);
                let tag = Tag { source, flow: step.flow, index, sent: now % tag::SENT_WRAP };
                tag::write(frame, &tag, self.setup.cover);
                sender.index += 1;
            }
            self.dut.offer(now, at as u8, frame);
            if plan.is_timed() {
                run.timing.late_frames += u64::from(sender.late > LATE);
                run.timing.max_ns = run.timing.max_ns.max(sender.late);
            }
            sender.left = sender.last;
            sender.row += 1;
            if sender.row < run.rows {
                sender.aim(&run.trial, plan, self.setup.line);
            }
        }
    }

    /// Looks for a cycle when all ports are at the same row. Returns true if it skipped ahead.
    fn look(&self, run: &mut Run, now: Nanos) -> bool {
        let Run { trial, rows, senders, analyser, cycle, .. } = run;
        let row = senders[0].row;
        let together = senders.iter().all(|sender| sender.row == row);
        if !together
            || !cycle.wants(row)
            || self.plans.iter().any(|plan| !row.is_multiple_of(plan.period()))
        {
            return false;
        }
        let mut key = trial.phase(row).to_vec();
        let due = u128::from(trial.start_ns(row)) * 1000;
        key.extend(senders.iter().map(|sender| sender.line_ps.saturating_sub(due) as u64));
        match self.dut.state(now, &mut key) {
            State::Complete => {}
            State::TooLarge => return false,
            State::Unavailable => {
                cycle.close();
                return false;
            }
        }
        let indexes: Vec<u64> = senders.iter().map(|sender| sender.index).collect();
        let Some(skip) = cycle.look(key, row, *rows, &indexes, analyser) else { return false };
        let skipped = skip.rows * skip.times;
        // The phases are equal, so this is a whole number of nanoseconds.
        let ps = u128::from(skipped) * u128::from(trial.load.interval_ps);
        for (sender, plan) in senders.iter_mut().zip(&self.plans) {
            sender.row += skipped;
            sender.left += (ps / 1000) as Nanos;
            let occupied = u64::from(plan.step(sender.row).size) + OVERHEAD_BYTES;
            // `aim` already occupied the line for the waiting frame; undo that and aim again.
            sender.line_ps = sender.line_ps + ps - u128::from(self.setup.line.ps(occupied));
            if sender.row < *rows {
                sender.aim(trial, plan, self.setup.line);
            }
        }
        run.skipped_ns = (ps / 1000) as Nanos;
        run.skip = Some(skip);
        true
    }

    fn finish(&self, run: Run) -> TrialResult {
        let last_ns = run.last_departure();
        let Run { trial, rows, senders, mut analyser, skip, stopped_at, timing, .. } = run;
        let (mut total, mut losses) = (Counts::default(), Losses::default());
        let (mut ports, mut tagged, mut repeated_frames) = (Vec::new(), Vec::new(), 0);
        for (at, (plan, sender)) in self.plans.iter().zip(&senders).enumerate() {
            let source = &mut analyser.sources()[at];
            let mut known = source.tracker.finish(sender.index);
            let mut sent = sender.index;
            if let Some(skip) = &skip {
                known = skip.multiply(at, &known);
                sent += skip.tags(at);
                repeated_frames += skip.tags(at);
            }
            let latency = |row| {
                let index = plan.tags_before(row);
                match &skip {
                    Some(skip) => skip.latency(at, index, source),
                    None => source.latency_of(index),
                }
            };
            tagged.extend(trial.tagged_frames().take_while(|row| *row < rows).map(latency));
            let time = |index| plan.due_ns(&trial, plan.row_of(index));
            let first = known.first_lost.map(time);
            losses.first =
                losses.first.map_or(first, |was| Some(first.map_or(was, |t| was.min(t))));
            losses.last = losses.last.max(known.last_lost.map(time));
            let own = counts(&known, plan.tags_before(rows), sent);
            total = total.plus(&own);
            ports.push(own);
        }
        let mut totals = analyser.totals();
        if let Some(skip) = &skip {
            totals.add(&skip.totals, skip.times);
            analyser.latency.add(&skip.latency, skip.times);
        }
        totals.store(&mut total);
        losses.silence = analyser.silence();
        if ports.len() == 1 {
            ports.clear();
        }
        TrialResult {
            trial,
            counts: total,
            ports,
            latency: analyser.latency.finish(),
            tagged,
            losses,
            timing: Timing { last_ns, ..timing },
            repeated_frames,
            stopped_at,
            drops: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;

//! The tester under virtual time: sends what a trial says through a [`Dut`], and counts.
//!
//! ```text
//!  row i of all ports ── Plan, Trial ──> time, bytes ──> Dut ──> Analyser
//!          └── state of the device as before? ── skip whole cycles, multiply what one gave
//! ```
//!
//! Skipping is exact: state, traffic and phase of the schedule are equal at both ends of a cycle, so
//! the next cycle gives the same frames at the same distances. One cycle is counted by itself, after
//! everything that the window of the tracker holds is of the steady state, too, and multiplied.
//! `repeated_frames` of the result says how many frames were counted like this.
//!
//! Invariants: the same seed, setup, device and trials give the same results, to the frame.
//! Thread-safety: one thread's.

use flowyard_frame::Nanos;

use crate::analyse::{Analyser, Memory, counts};
use crate::dut::{Dut, State};
use crate::line::{Line, OVERHEAD_BYTES};
use crate::setup::Setup;
use crate::tag::{self, Tag};
use crate::track::window_for;
use crate::traffic::{BadTraffic, Plan};
use crate::trial::{Counts, Losses, SECOND, Shape, Timing, Trial, TrialResult};

mod cycle;
mod real;
mod stream;
mod templates;

use cycle::{Cycle, Skip};
pub use real::{RealTester, Resetter, Wire};
pub use stream::{BURST, Stream};
use templates::Templates;

/// Whatever can make a trial: the tester under virtual time, in real time, or a model.
pub trait Measure {
    /// Makes it.
    ///
    /// # Errors
    /// When it cannot be made, with the mend.
    fn measure(&mut self, trial: &Trial) -> Result<TrialResult, MeasureError>;

    /// Frames that the device dropped so far, by its own words; of a device that says nothing, none.
    fn drops(&self) -> Vec<(String, u64)> {
        Vec::new()
    }
}

/// A trial that could not be made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MeasureError {
    /// The traffic cannot be.
    #[error(transparent)]
    Traffic(#[from] BadTraffic),
    /// The device has too few ports.
    #[error("the device has {has} ports, but {wants} are to be tested; choose another topology")]
    Ports {
        /// What it has.
        has: u8,
        /// What the topology wants.
        wants: u8,
    },
    /// A reset was asked for.
    #[error("{0} cannot be reset")]
    NoReset(String),
    /// The books do not balance: a fault of the tester.
    #[error("the tester's own books do not balance: {0}; please report this")]
    Books(String),
    /// Something else.
    #[error("{0}")]
    Other(String),
}

/// The tester under virtual time.
pub struct VirtualTester<D> {
    /// The device.
    pub dut: D,
    setup: Setup,
    plans: Vec<Plan>,
    routes: Vec<Vec<u8>>,
    templates: Templates,
    /// Where the device's time stands.
    now: Nanos,
    /// Whether cycles may be skipped.
    pub skips: bool,
}

/// Frames that the tester remembers at most under virtual time; see `stale` for those beyond.
const WINDOW: usize = 1 << 15;

impl<D: Dut> VirtualTester<D> {
    /// A tester around `dut`.
    ///
    /// # Errors
    /// Traffic that cannot be, or a device with too few ports.
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

    /// Learning frames (section 23 b): one of each flow, from where it will go to; at a low rate,
    /// spread over a second, and 2 s for them to take effect.
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

/// A port while it sends.
struct Sender {
    /// The next row.
    row: u64,
    /// The next tag.
    index: u64,
    /// When the line is free again, in picoseconds after the start.
    line_ps: u128,
    /// The next frame's last bit, in nanoseconds after the start.
    last: Nanos,
}

impl Sender {
    /// Finds the time of the next frame: when it is due, or when the line is free after that.
    fn aim(&mut self, trial: &Trial, plan: &Plan, line: Line) {
        let due = plan.due_ns(trial, self.row);
        let size = u64::from(plan.step(self.row).size);
        let first = (u128::from(due) * 1000).max(self.line_ps);
        self.line_ps = first + u128::from(line.ps(size + OVERHEAD_BYTES));
        self.last = ((first + u128::from(line.ps(size))) / 1000) as Nanos;
    }
}

/// A trial on its way.
struct Run {
    trial: Trial,
    rows: u64,
    start: Nanos,
    senders: Vec<Sender>,
    analyser: Analyser,
    cycle: Cycle,
    skip: Option<Skip>,
    /// Time that was skipped, for the device.
    skipped_ns: Nanos,
    reset: Option<Nanos>,
}

impl<D: Dut> Measure for VirtualTester<D> {
    fn measure(&mut self, trial: &Trial) -> Result<TrialResult, MeasureError> {
        if self.setup.learning {
            self.learn();
        }
        let mut run = self.begin(trial);
        self.send(&mut run)?;
        let end = run.start + trial.duration.saturating_sub(run.skipped_ns) + self.setup.residue;
        self.dut.collect(end, &mut |at, port, frame| run.analyser.see(at, port, frame));
        self.now = end + self.setup.rest;
        self.dut.collect(self.now, &mut |_, _, _| {}); // what comes even later is nobody's
        let result = self.finish(run);
        result.check().map_err(MeasureError::Books)?;
        Ok(result)
    }

    fn drops(&self) -> Vec<(String, u64)> {
        self.dut.drops()
    }
}

impl<D: Dut> VirtualTester<D> {
    fn begin(&self, trial: &Trial) -> Run {
        let rows = self.plans[0].rows(trial);
        let window = window_for(trial.load.interval_ps, self.setup.residue).min(WINDOW);
        let window = window.next_power_of_two(); // as the tracker has it
        let memory = Memory { flows: self.setup.traffic.flows, window };
        let mut analyser = Analyser::new(&self.routes, self.setup.cover, memory, self.now);
        let senders = self.plans.iter().zip(analyser.sources()).map(|(plan, source)| {
            let tags = trial.tagged_frames().take_while(|row| *row < rows);
            let tags = tags.map(|row| (plan.tags_before(row), None));
            source.wanted = tags.collect();
            source.wanted.dedup_by_key(|(index, _)| *index);
            let mut sender = Sender { row: 0, index: 0, line_ps: 0, last: 0 };
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
            reset: match trial.shape {
                Shape::Reset { at } => Some(at),
                _ => None,
            },
        }
    }

    /// Sends all rows, and looks at what comes back meanwhile.
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
            // What leaves before this frame comes belongs to the rows before it.
            let analyser = &mut run.analyser;
            self.dut.collect(now, &mut |at, port, frame| analyser.see(at, port, frame));
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
            sender.row += 1;
            if sender.row < run.rows {
                sender.aim(&run.trial, plan, self.setup.line);
            }
        }
    }

    /// Looks for a cycle where all ports are at the same row; true if it skipped ahead.
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
            State::Told => {}
            State::Later => return false,
            State::Never => {
                cycle.close();
                return false;
            }
        }
        let indexes: Vec<u64> = senders.iter().map(|sender| sender.index).collect();
        let Some(skip) = cycle.look(key, row, *rows, &indexes, analyser) else { return false };
        let skipped = skip.rows * skip.times;
        // Equal phases: whole nanoseconds.
        let ps = u128::from(skipped) * u128::from(trial.load.interval_ps);
        for (sender, plan) in senders.iter_mut().zip(&self.plans) {
            sender.row += skipped;
            let occupied = u64::from(plan.step(sender.row).size) + OVERHEAD_BYTES;
            // The line was taken for the frame that waits: it is aimed anew.
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
        let Run { trial, rows, senders, mut analyser, skip, .. } = run;
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
        let mut strays = analyser.strays();
        if let Some(skip) = &skip {
            skip.add_strays(&mut strays);
            analyser.latency.add(&skip.latency, skip.times);
        }
        [total.received, total.corrupt, total.foreign, total.misrouted] = strays;
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
            timing: Timing { burst: 1, ..Timing::default() },
            repeated_frames,
            cut_at: None,
            drops: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;

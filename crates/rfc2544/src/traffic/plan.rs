//! Plans: the periodic sequence of frames that a port sends, and their times.

use flowyard_frame::Nanos;

use crate::line::{Line, Load};
use crate::track::window_for;
use crate::trial::{Shape, Trial};

/// One frame of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Step {
    /// The flow's number.
    pub flow: u16,
    /// Frame size in bytes with FCS.
    pub size: u16,
    /// Whether the frame is a broadcast, which has no tag.
    pub broadcast: bool,
}

/// The periodic sequence of frames of one port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    steps: Vec<Step>,
    /// Total size of all steps, with FCS.
    bytes: u64,
    /// Number of tagged frames (all but broadcasts) before each step, and before the end.
    tags: Vec<u32>,
    /// In a replay, the time of each step and the duration of all.
    times: Option<(Vec<Nanos>, Nanos)>,
    /// The start of each step within a period, in fractions (1 / [`PARTS`]) of the trial's
    /// interval, if the steps are not at equal intervals.
    starts: Option<Vec<u64>>,
}

/// Fractions of an interval.
const PARTS: u128 = 1 << 16;

impl Plan {
    /// The plan with every frame at least `size` bytes long.
    pub(super) fn at_least(mut self, size: u16) -> Self {
        for step in self.steps.iter_mut().filter(|step| step.size < size) {
            self.bytes += u64::from(size - step.size);
            step.size = size;
        }
        self
    }

    /// A plan that repeats `steps`; without steps, frames of 64 bytes.
    #[must_use]
    pub fn new(mut steps: Vec<Step>) -> Self {
        if steps.is_empty() {
            steps.push(Step { flow: 0, size: 64, broadcast: false });
        }
        let bytes = steps.iter().map(|step| u64::from(step.size)).sum();
        let mut sum = 0;
        let tags = std::iter::once(0).chain(steps.iter().map(|step| {
            sum += u32::from(!step.broadcast);
            sum
        }));
        let tags = tags.collect();
        Self { steps, bytes, tags, times: None, starts: None }
    }

    /// A plan with its own times: `times` of the steps, ascending from 0, and the duration
    /// `length`.
    #[must_use]
    pub fn timed(steps: Vec<Step>, times: Vec<Nanos>, length: Nanos) -> Self {
        let length = length.max(times.last().copied().unwrap_or_default() + 1);
        Self { times: Some((times, length)), ..Self::new(steps) }
    }

    /// The plan with intervals proportional to `gaps`; the period takes as long as with equal
    /// intervals.
    #[must_use]
    pub(super) fn apart(self, gaps: &[Nanos]) -> Self {
        let all: u128 = gaps.iter().map(|&gap| u128::from(gap)).sum();
        let period = u128::from(self.period()) * PARTS;
        let mut before = 0;
        let starts = gaps.iter().map(|&gap| {
            let start = before * period / all.max(1);
            before += u128::from(gap);
            start as u64
        });
        Self { starts: Some(starts.collect()), ..self }
    }

    /// Number of frames per period.
    #[must_use]
    pub fn period(&self) -> u64 {
        self.steps.len() as u64
    }

    /// The steps of one period.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The step of frame `index`.
    #[must_use]
    pub fn step(&self, index: u64) -> Step {
        self.steps[(index % self.period()) as usize]
    }

    /// Total size of a period in bytes, with FCS.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The number of tagged frames before frame `row`.
    #[must_use]
    pub fn tags_before(&self, row: u64) -> u64 {
        let (round, at) = (row / self.period(), (row % self.period()) as usize);
        round * u64::from(self.tags[self.steps.len()]) + u64::from(self.tags[at])
    }

    /// The frame (row) that carries tag number `index`.
    #[must_use]
    pub fn row_of(&self, index: u64) -> u64 {
        let tags = u64::from(self.tags[self.steps.len()]).max(1);
        let (round, at) = (index / tags, index % tags);
        let step = self.tags.partition_point(|&before| u64::from(before) <= at);
        round * self.period() + step.saturating_sub(1) as u64
    }

    /// Whether the plan has its own times, as a replay has.
    #[must_use]
    pub const fn is_timed(&self) -> bool {
        self.times.is_some()
    }

    /// The duration of one pass of a replay at its own speed.
    #[must_use]
    pub fn length_ns(&self) -> Option<Nanos> {
        self.times.as_ref().map(|(_, length)| *length)
    }

    /// The number of frames sent in `trial`.
    #[must_use]
    pub fn rows(&self, trial: &Trial) -> u64 {
        let even = || trial.frames();
        self.replay_rows(trial).or_else(|| self.uneven_rows(trial)).unwrap_or_else(even)
    }

    /// The time at which frame `index` is due in `trial`, relative to its start.
    #[must_use]
    pub fn due_ns(&self, trial: &Trial, index: u64) -> Nanos {
        let replayed = self.replay_ns(index, trial.speed());
        let even = || trial.start_ns(index);
        replayed.or_else(|| self.uneven_ns(trial, index)).unwrap_or_else(even)
    }

    /// The plan's own start times, if they apply to this trial.
    fn uneven(&self, trial: &Trial) -> Option<&[u64]> {
        let is_even = matches!(trial.shape, Shape::Even | Shape::Reset { .. });
        self.starts.as_deref().filter(|_| is_even)
    }

    fn uneven_ns(&self, trial: &Trial, index: u64) -> Option<Nanos> {
        let starts = self.uneven(trial)?;
        let (round, at) = (index / self.period(), (index % self.period()) as usize);
        let parts = u128::from(round) * u128::from(self.period()) * PARTS + u128::from(starts[at]);
        Some((parts * u128::from(trial.load.interval_ps) / PARTS / 1000) as Nanos)
    }

    fn uneven_rows(&self, trial: &Trial) -> Option<u64> {
        let starts = self.uneven(trial)?;
        let interval = u128::from(trial.load.interval_ps.max(1));
        let until = u128::from(trial.duration) * 1000 * PARTS;
        let round = u128::from(self.period()) * PARTS * interval;
        let more = starts.partition_point(|&start| u128::from(start) * interval < until % round);
        Some((until / round) as u64 * self.period() + more as u64)
    }

    /// The largest number of frames that are sent within `time` in a trial with this load: the size
    /// of the tracker's window. A replay may send all frames of a pass at once.
    #[must_use]
    pub fn window(&self, load: Load, time: Nanos) -> usize {
        let burst = if self.is_timed() { self.steps.len() } else { 0 };
        window_for(load.interval_ps, time) + burst
    }

    /// The number of frames that a replay sends in `trial`.
    fn replay_rows(&self, trial: &Trial) -> Option<u64> {
        let (times, length) = self.times.as_ref()?;
        let until = u128::from(trial.duration) * u128::from(trial.speed()) / 100;
        let (rounds, rest) = (until / u128::from(*length), until % u128::from(*length));
        let more = times.partition_point(|&time| u128::from(time) < rest) as u64;
        Some(rounds as u64 * self.period() + more)
    }

    /// The maximum load of this plan on `line`.
    #[must_use]
    pub fn max_load(&self, line: Line) -> Load {
        line.max_load_of(self.bytes(), self.period())
    }

    /// The time of frame `index` in a replay at `speed` hundredths of the capture's; `None` without
    /// times.
    pub(super) fn replay_ns(&self, index: u64, speed: u64) -> Option<Nanos> {
        let (times, length) = self.times.as_ref()?;
        let (round, at) = (index / self.period(), (index % self.period()) as usize);
        let ns = u128::from(round) * u128::from(*length) + u128::from(times[at]);
        Some((ns * 100 / u128::from(speed.max(1))) as Nanos)
    }
}

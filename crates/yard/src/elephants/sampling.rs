//! Sampling: samples of the frames that a core works on, and its report at the end of each window.
//!
//! Thread-safety: belongs to one core.

use flowyard_flow::learn::elephant::{Sampler, Seen};
use flowyard_frame::{Batch, Nanos};

use super::report::{Report, window_of};
use crate::blueprint::ElephantPlan;
use crate::places::Places;
use crate::stages::Stages;

/// The sampler of one core.
pub(crate) struct Sampling {
    sampler: Sampler,
    /// The core that decides.
    pub(crate) reports_to: u16,
    /// The queue that only this core serves, if there is one.
    home: Option<u16>,
    length: Nanos,
    /// Frames that did not fit, by queue.
    drops: Vec<u64>,
    /// Time, busy time and stage costs at the last report.
    last: (Nanos, Nanos, Stages),
}

impl Sampling {
    pub(crate) fn new(
        plan: &ElephantPlan,
        (entries, queues): (usize, usize),
        home: Option<u16>,
        seed: u64,
    ) -> Self {
        Self {
            sampler: Sampler::new(plan.sample_every, entries, seed),
            reports_to: plan.core,
            home,
            length: plan.window_ns,
            drops: vec![0; queues],
            last: (0, 0, Stages::default()),
        }
    }

    /// Samples a batch that the core works on.
    #[inline]
    pub(crate) fn work(&mut self, batch: &Batch) {
        self.sampler.sample(batch, batch.lanes());
    }

    /// Counts frames that did not fit into `queue`.
    #[cold]
    pub(crate) fn dropped(&mut self, queue: u16, frames: u32) {
        if let Some(drops) = self.drops.get_mut(usize::from(queue)) {
            *drops += u64::from(frames);
        }
    }

    /// Whether a window has ended without a report.
    #[inline]
    pub(crate) const fn is_due(&self, now: Nanos) -> bool {
        window_of(now, self.length) > window_of(self.last.0, self.length)
    }

    /// The report of core `core` since the last one; `busy` is its total busy time.
    pub(crate) fn report(
        &mut self,
        core: u16,
        now: Nanos,
        busy: Nanos,
        stages: &Stages,
        places: &Places,
    ) -> Box<Report> {
        let mut seen = Seen::default();
        self.sampler.window(&mut seen);
        let (began, busy_before, stages_before) =
            std::mem::replace(&mut self.last, (now, busy, *stages));
        let share =
            busy.saturating_sub(busy_before) as f64 / now.saturating_sub(began).max(1) as f64;
        let queue = self.home.and_then(|home| places.queues.get(usize::from(home)));
        let fresh = vec![0; self.drops.len()];
        Box::new(Report {
            core,
            window: window_of(now, self.length) - 1,
            busy: share.min(1.0),
            queue_len: queue.map_or(0, |place| place.queue.len() as u64),
            drops: std::mem::replace(&mut self.drops, fresh),
            seen,
            stages: stages.minus(&stages_before),
        })
    }
}

//! Sampling: what a core notes of the frames it works on, and its report at each window's end.
//!
//! Thread-safety: one core's.

use flowyard_flow::learn::elephant::{Sampler, Seen};
use flowyard_frame::{Batch, Nanos};

use super::{Report, window_of};
use crate::blueprint::ElephantPlan;
use crate::places::Places;
use crate::stages::Stages;

/// One core's eyes.
pub(crate) struct Sampling {
    sampler: Sampler,
    /// The core that decides.
    pub(crate) reports_to: u16,
    /// The queue that is this core's own, if it has one.
    home: Option<u16>,
    length: Nanos,
    /// Frames that did not fit, by queue.
    drops: Vec<u64>,
    /// When the last report was made, and what was counted by then.
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

    /// The core works on this batch.
    #[inline]
    pub(crate) fn work(&mut self, batch: &Batch) {
        self.sampler.sample(batch, batch.lanes());
    }

    /// So many frames did not fit into `queue`.
    #[cold]
    pub(crate) fn dropped(&mut self, queue: u16, frames: u32) {
        if let Some(drops) = self.drops.get_mut(usize::from(queue)) {
            *drops += u64::from(frames);
        }
    }

    /// Whether a window has ended that is not reported yet.
    #[inline]
    pub(crate) const fn is_due(&self, now: Nanos) -> bool {
        window_of(now, self.length) > window_of(self.last.0, self.length)
    }

    /// What core `core` saw since the last report; it was busy for so long in all.
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

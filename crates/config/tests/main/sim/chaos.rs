//! A learner and a work that take random decisions within the permitted limits.

use flowyard_flow::Learn;
use flowyard_frame::{Action, Batch, Edit, Lanes, Nanos, To};
use flowyard_testkit::Rng;
use flowyard_yard::DropReason;
use flowyard_yard::work::{Around, Work};

/// Adds and deletes entries for flows that it sees: to any queue, directly to the flow's port, or
/// to a drop.
pub(crate) struct Restless {
    pub(crate) rng: Rng,
    pub(crate) queues: u64,
    /// The port by which frames leave, by the port at which they came in.
    pub(crate) out: Vec<u16>,
    /// One of N frames causes an edit.
    pub(crate) every: u64,
}

impl Learn for Restless {
    fn observe(&mut self, _: u16, batch: &Batch, _: Lanes, _: Nanos, edits: &mut Vec<Edit>) {
        for lane in batch.lanes() {
            if self.rng.below(self.every) != 0 {
                continue;
            }
            let key = &batch.keys[lane];
            let to = match self.rng.below(16) {
                0 => To::Port(self.out[usize::from(key.in_port)]),
                1 => To::DROP,
                2 => To::Queue(77), // there is no such queue
                _ => To::Queue(self.rng.below(self.queues) as u16),
            };
            edits.push(match self.rng.below(4) {
                0 => Edit::Del(key.flow()),
                _ => Edit::Put(key.flow(), Action { to, counter: 0, mark: 0 }),
            });
        }
    }
}

/// A work that takes a random time and drops random frames.
pub(crate) struct Moods {
    pub(crate) rng: Rng,
    pub(crate) longest: Nanos,
    /// One of N frames is dropped; 0 drops none.
    pub(crate) drop_every: u64,
}

/// `work`, with moods.
pub(crate) fn moody(work: Box<dyn Work>, moods: Moods) -> Box<dyn Work> {
    let Moods { mut rng, longest, drop_every } = moods;
    Box::new(Around::new(work, move |work, batch, pool, now| {
        work.work(batch, pool, now);
        let goes = |&lane: &usize| !batch.actions[lane].to.is_drop();
        for lane in batch.lanes().filter(goes).collect::<Vec<_>>() {
            if drop_every > 0 && rng.below(drop_every) == 0 {
                // With a reason or without: in both cases the work drops it.
                let reason = [DropReason::Work.code(), 0][lane % 2];
                batch.actions[lane].to = To::Drop(reason);
            }
        }
        now + rng.below(longest + 1)
    }))
}

//! Learners and work that do all that they may, at random.

use flowyard_flow::Learn;
use flowyard_frame::{Action, Batch, Edit, Lanes, Nanos, To};
use flowyard_switch::Datapath;
use flowyard_testkit::Rng;
use flowyard_yard::{Changes, DropReason, Pool, Work};

/// Puts and deletes entries for flows it sees: to any queue, straight to the flow's port, to
/// nowhere.
pub(crate) struct Restless {
    pub(crate) rng: Rng,
    pub(crate) queues: u64,
    /// By port a frame came in by: the port it leaves by.
    pub(crate) out: Vec<u16>,
    /// One of so many frames causes an edit.
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
                1 => To::Drop,
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

/// Takes its time, and drops some frames.
pub(crate) struct Moody {
    pub(crate) rng: Rng,
    pub(crate) then: Box<dyn Work>,
    pub(crate) longest: Nanos,
    /// One of so many frames is dropped; 0 is none.
    pub(crate) drop_every: u64,
}

impl Work for Moody {
    fn work(&mut self, batch: &mut Batch, pool: &Pool, now: Nanos) -> Nanos {
        self.then.work(batch, pool, now);
        let goes = |&lane: &usize| batch.actions[lane].to != To::Drop;
        for lane in batch.lanes().filter(goes).collect::<Vec<_>>() {
            if self.drop_every > 0 && self.rng.below(self.drop_every) == 0 {
                // With a reason, or without: it is the work's anyway.
                let counter = [DropReason::Work.code(), 0][lane % 2];
                batch.actions[lane] = Action { to: To::Drop, counter, mark: 0 };
            }
        }
        now + self.rng.below(self.longest + 1)
    }

    fn front(&mut self, batch: &mut Batch, lanes: Lanes, now: Nanos) -> Lanes {
        self.then.front(batch, lanes, now)
    }

    fn switch(&self) -> Option<&Datapath> {
        self.then.switch()
    }

    fn change(&mut self, changes: &Changes, now: Nanos, send: &mut dyn FnMut(u16, &[u8])) {
        self.then.change(changes, now, send);
    }

    fn speak(&mut self, now: Nanos, send: &mut dyn FnMut(u16, &[u8]) -> bool) -> u32 {
        self.then.speak(now, send)
    }
}

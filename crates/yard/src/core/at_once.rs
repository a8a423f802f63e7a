//! Run to completion: a received batch that nothing is ahead of is worked on at once, without passing through its
//! queue.
//!
//! ```text
//!  settle ──> all lanes go to a direct queue of this core, and it is empty ──yes──> work on this very batch
//!                └─no──> queue ──> dequeue ──> work
//! ```
//!
//! Invariant: the batch has tickets of its queue while it is open, so settle and other cores know of its frames.
//!
//! Thread-safety: a core's own; queues may be used by any core.

use super::Core;
use flowyard_frame::{Lanes, Nanos, To};

impl Core {
    /// Opens the received batch in the queue that all of its lanes go to, if this core alone serves the queue, no
    /// frame waits in it or in a more urgent queue of this core, and no other batch is open. Returns the number of
    /// frames, 0 if they have to be enqueued.
    #[inline]
    pub(super) fn open_at_once(&mut self, now: Nanos) -> u32 {
        let Self { entry, server, places, id, .. } = self;
        let frames = entry.batch.len();
        let Some(To::Queue(queue)) = entry.common else { return 0 };
        if frames == 0 || entry.waiting != entry.batch.lanes() || server.open.is_some() {
            return 0;
        }
        let is_empty = |queue: u16| places.queues[usize::from(queue)].queue.is_empty();
        let Some(at) = server.queues.iter().position(|&one| one == queue) else { return 0 };
        let place = &places.queues[usize::from(queue)];
        if place.consumers != [*id]
            || !server.queues[..at].iter().all(|&urgent| is_empty(urgent))
            || !place.queue.open_at_once(*id, frames)
        {
            return 0;
        }
        std::mem::swap(&mut entry.batch, &mut server.batch); // which is empty, as no batch was open
        entry.waiting = Lanes::NONE;
        server.open = Some((queue, now));
        if let Some(settle) = &mut entry.settle {
            settle.enqueued(&**places);
        }
        frames as u32
    }
}

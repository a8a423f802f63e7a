//! Exit: how frames leave by a port of this core, from its tx queue, or straight from the batch that is completed, or
//! that was received and answered in front of the queues.
//!
//! ```text
//!  complete, settle ──> all lanes go to a port of this core, and its tx queue is empty ──yes──> tx of this very batch
//!                          └─no──> tx queue ──> tx
//! ```
//!
//! Invariants: a batch is transmitted straight only if it is the oldest of its queue, or was in none, and nothing waits
//! for the port, so that no frame overtakes another.
//!
//! Thread-safety: a core's own; queues may be used by any core.

use flowyard_frame::schedule::rounds;
use flowyard_frame::{Batch, Lanes, Nanos, To};
use flowyard_pool::Pool;
use flowyard_queue::{Order, Sink};

use super::Core;
use super::observe::Observers;
use super::parts::{Bin, Exit, Learner, Sent, Stage, clear, learn};
use crate::places::Place;
use crate::stages::Span;

impl Core {
    /// dequeue, tx, complete: as many batches for each port as [`Core::receive`] takes.
    pub(super) fn transmit(&mut self, now: Nanos) -> u32 {
        let mut progress = 0;
        for at in 0..self.exits.len() {
            for _ in 0..rounds(now.saturating_sub(self.last.0)) {
                self.observers.start();
                let taken = self.tx(at, now);
                self.observers.stage(Span::Tx, taken as usize);
                progress += taken;
                if taken == 0 || !self.exits[at].left.is_empty() {
                    break;
                }
            }
            self.exits[at].tx.attend();
        }
        progress
    }

    /// dequeue, tx, complete: one batch for exit `at`. Returns how many lanes the port took.
    pub(super) fn tx(&mut self, at: usize, now: Nanos) -> u32 {
        let Self { exits, places, pool, counters, observers, learners, to_ports, .. } = self;
        let Exit { port, tx, batch, left } = &mut exits[at];
        let Place { queue, fan, .. } = &places.ports[usize::from(*port)];
        if left.is_empty() {
            queue.dequeue(self.id, batch);
            *left = batch.lanes();
        }
        if left.is_empty() {
            return 0;
        }
        load_keys(batch, observers, learners, pool);
        let later = tx.tx(batch, *left, pool, now);
        let taken = left.without(later);
        *left = later;
        let sent = Sent::of(batch, taken);
        sent.count(counters);
        let sent = sent.lanes;
        sent.for_each(|lane| batch.actions[lane].to = To::SENT);
        observers.sent(*port, batch, taken, sent);
        learn(learners, Stage::Tx, batch, sent, now);
        if later.is_empty() {
            if sent == batch.lanes() && fan.is_none() {
                pool.put_batch(batch);
            }
            let mut bin = Bin { pool, drops: &mut counters.drops };
            queue.complete(self.id, batch, to_ports, &mut bin);
            clear(batch, pool);
        }
        taken.count()
    }

    /// Transmits the batch that is to be completed, without the lanes `gone`, if all go to a port of this core for
    /// which no frame waits, and no frame of `queue` has to leave before. `common` is the destination of all lanes,
    /// if it is known that they have the same. Lanes that the port does not take stay.
    #[inline]
    pub(super) fn send_at_once(
        &mut self,
        queue: u16,
        (gone, common): (Lanes, Option<To>),
        now: Nanos,
    ) {
        let Self { server, exits, places, id, pool, counters, observers, learners, .. } = self;
        let batch = &mut server.batch;
        let lanes = batch.lanes().without(gone);
        let Some(first) = { lanes }.next() else { return };
        let to = batch.actions[first].to;
        let To::Port(number) = to else { return };
        let Some(exit) = exits.iter_mut().find(|exit| exit.port == number) else { return };
        let (Exit { tx, left, .. }, place) = (exit, &places.ports[usize::from(number)]);
        let from = &places.queues[usize::from(queue)].queue;
        let keeps_order = matches!(from.order(), Order::Direct | Order::Ordered);
        let is_free = left.is_empty() && place.fan.is_none() && place.queue.is_empty();
        let is_common = || common.is_some() || { lanes }.all(|lane| batch.actions[lane].to == to);
        if !is_free || !keeps_order || !from.is_oldest(*id) || !is_common() {
            return;
        }
        load_keys(batch, observers, learners, pool);
        let taken = lanes.without(tx.tx(batch, lanes, pool, now));
        let sent = Sent::of(batch, taken);
        observers.sent(number, batch, taken, sent.lanes);
        learn(learners, Stage::Tx, batch, sent.lanes, now);
        sent.count(counters);
        let sent = sent.lanes;
        if sent == batch.lanes() {
            pool.put_batch(batch);
        } else {
            sent.for_each(|lane| pool.put(std::mem::take(&mut batch.frames[lane])));
        }
    }
}

impl Core {
    /// Transmits the received batch, or enqueues what cannot be transmitted at once. Returns how many lanes moved.
    #[inline]
    pub(super) fn pass_on(&mut self, now: Nanos) -> u32 {
        self.send_received(now) + self.enqueue()
    }

    /// Transmits the received batch, if all of its frames go to a port of this core for which no frame waits. Returns how
    /// many lanes the port took; the others go on waiting for its tx queue.
    #[inline]
    fn send_received(&mut self, now: Nanos) -> u32 {
        let Self { entry, exits, places, pool, counters, observers, learners, .. } = self;
        let Some(To::Port(number)) = entry.common else { return 0 };
        let (lanes, batch) = (entry.waiting, &mut *entry.batch);
        if lanes.is_empty() || lanes != batch.lanes() {
            return 0;
        }
        let Some(exit) = exits.iter_mut().find(|exit| exit.port == number) else { return 0 };
        let place = &places.ports[usize::from(number)];
        if !exit.left.is_empty() || place.fan.is_some() || !place.queue.is_empty() {
            return 0;
        }
        let taken = lanes.without(exit.tx.tx(batch, lanes, pool, now));
        let sent = Sent::of(batch, taken);
        observers.sent(number, batch, taken, sent.lanes);
        learn(learners, Stage::Tx, batch, sent.lanes, now);
        sent.count(counters);
        let sent = sent.lanes;
        entry.waiting = lanes.without(taken);
        if sent == batch.lanes() {
            pool.put_batch(batch);
        } else {
            sent.for_each(|lane| pool.put(std::mem::take(&mut batch.frames[lane])));
            let mut bin = Bin { pool, drops: &mut counters.drops };
            for lane in taken.without(sent) {
                bin.drop(std::mem::take(&mut batch.frames[lane]), batch.actions[lane].to);
            }
        }
        if let (true, Some(settle)) = (entry.waiting.is_empty(), &mut entry.settle) {
            settle.enqueued(&**places);
        }
        observers.stage(Span::Tx, taken.count() as usize);
        taken.count()
    }
}

/// Loads the keys of a batch that is about to be transmitted, if something reads them afterwards. A port may replace
/// frames by others, whose buffers have other keys.
#[inline]
fn load_keys(batch: &mut Batch, observers: &Observers, learners: &[Learner], pool: &Pool) {
    if observers.tracer.on || learners.iter().any(|learner| learner.stage == Stage::Tx) {
        pool.load_keys(batch);
        batch.keys_in_pool = false;
    }
}

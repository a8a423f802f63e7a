//! To ports: splits a completed batch by port, into the tx queues.
//!
//! ```text
//!  complete ──> lanes  [west east west list] ──> tx queue of west: 0 2 3'
//!                                           └──> tx queue of east: 1 3     3 leaves by both
//! ```
//!
//! A frame whose action is a list of ports becomes one frame for each port here, and not earlier: the queue that
//! it came through has put it in its place by now, so its copies have this place in every tx queue
//! (`docs/decisions/0006-copies.md`). The last port gets the frame itself. If a tx queue is full on the
//! way, the metadata of the buffer say how many ports have their copy, and the frame waits like any other
//! that is refused.
//!
//! Invariants: per port, frames enter its tx queue in lane order, and after a refusal no frame of the call
//! enters; every action of the lanes is an existing port or a list of existing ports (the core checks this
//! before completion, so that a frame that cannot leave never blocks others). A copy is published on the
//! core's board before it can leave. A frame that a work makes is published there before this looks whether the
//! engine is over: either it does not enter, or the core that ended the engine finds it on the board.
//! Thread-safety: each core has its own; the lock inside is never contended.

use std::sync::atomic::{Ordering::SeqCst, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flowyard_frame::{Action, Batch, FlowKey, Frame, Lanes, Nanos, To};
use flowyard_queue::{Open, Order, Queue, Sink};

use crate::counters::{Board, DropReason, Drops};
use crate::places::{Place, Places};
use flowyard_pool::{Meta, Pool};

/// The tx queues of all ports as one queue, for completion.
pub struct ToPorts {
    places: Arc<Places>,
    /// The core that completes. It prefers its own tx queue of a port, where order allows.
    core: u16,
    /// For the keys of frames; copies have a handle of their own.
    pool: Pool,
    copier: Mutex<Copier>,
}

/// The port number of frames that the engine makes itself: they came by no port.
pub const MADE: u16 = u16::MAX;

/// State of the copies that this core makes.
struct Copier {
    core: u16,
    pool: Pool,
    board: Arc<Board>,
    /// Holds one copy on its way.
    batch: Batch,
    copies: u64,
    /// Copies that could not be made, by reason: usually there was no buffer.
    failed: Drops,
}

impl ToPorts {
    /// For core `core`, into the ports of `places`. Copies take their buffers from `pool` and are published on
    /// `board`.
    #[must_use]
    pub fn new(places: Arc<Places>, core: u16, pool: Pool, board: Arc<Board>) -> Self {
        let keys = pool.share();
        let copier = Copier {
            core,
            pool,
            board,
            batch: Batch::default(),
            copies: 0,
            failed: Drops::default(),
        };
        Self { places, core, pool: keys, copier: Mutex::new(copier) }
    }

    /// Copies requested so far, and those of them that could not be made.
    pub(crate) fn copies(&self) -> (u64, Drops) {
        let copier = self.copier();
        (copier.copies, copier.failed)
    }

    /// Sends a new frame with these bytes to `port`, counted as a copy. Returns whether there was a buffer and
    /// capacity, and the engine is not over.
    pub(crate) fn send(&self, port: u16, bytes: &[u8], now: Nanos) -> bool {
        let mut copier = self.copier();
        let Some(place) = self.places.ports.get(usize::from(port)) else { return false };
        let meta =
            Meta { time: now, wire_len: bytes.len() as u32, in_port: MADE, ..Meta::default() };
        let Ok(frame) = copier.pool.copy(bytes, meta) else { return false };
        copier.count(1);
        fence(SeqCst); // between the count and the look at the flag, as between the flag and the look at the boards
        if self.places.is_over() {
            copier.take_back(frame);
            return false;
        }
        copier.enter(place, port, frame, FlowKey::ZERO, Action::queue(0))
    }

    /// As [`Self::send`], but a frame that cannot leave counts as a dropped copy.
    pub(crate) fn inject(&self, port: u16, bytes: &[u8], now: Nanos) {
        if !self.send(port, bytes, now) {
            let mut copier = self.copier();
            copier.count(1);
            copier.fail(DropReason::NoBuffer);
        }
    }

    fn copier(&self) -> MutexGuard<'_, Copier> {
        self.copier.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Copier {
    /// Sends the frame of `lane` to each of `ports`. Returns whether all of them have it.
    fn spread(&mut self, places: &Places, from: &mut Batch, lane: usize, ports: &[u16]) -> bool {
        let Some((&last, others)) = ports.split_last() else { return false };
        let mut meta = self.pool.meta(&from.frames[lane]);
        let before = meta.copied;
        while let Some(&port) = others.get(usize::from(meta.copied)) {
            if !self.copy(places, from, lane, port) {
                self.pool.set_meta(&mut from.frames[lane], meta);
                return false;
            }
            meta.copied += 1;
        }
        let action = from.actions[lane];
        if before != 0 {
            let fresh = Meta { copied: 0, ..meta };
            self.pool.set_meta(&mut from.frames[lane], fresh);
        }
        from.actions[lane].to = To::Port(last);
        let place = places.ports.get(usize::from(last));
        let lanes = Lanes(1 << lane);
        let enqueue = |place: &Place| place.enqueue(self.core, &self.pool, from, lanes).is_empty();
        let gone = place.is_some_and(enqueue);
        if !gone {
            from.actions[lane] = action;
            self.pool.set_meta(&mut from.frames[lane], meta);
        }
        gone
    }

    /// Counts a copy that could not be made.
    fn fail(&mut self, reason: DropReason) {
        self.failed.add(reason.code(), 1);
    }

    fn count(&mut self, copies: u64) {
        self.copies += copies;
        self.board.show_copies(self.copies);
    }

    /// A copy that was counted cannot leave, at least not now.
    fn take_back(&mut self, frame: Frame) {
        self.pool.put(frame);
        self.copies -= 1;
        self.board.show_copies(self.copies);
    }

    /// Puts a frame into the tx queue of `place`; returns the frame if it does not fit.
    fn enqueue(
        &mut self,
        place: &Place,
        port: u16,
        frame: Frame,
        key: FlowKey,
        action: Action,
    ) -> Option<Frame> {
        self.batch.set_len(0);
        if let Ok(at) = self.batch.push(frame, key) {
            self.batch.actions[at] = Action { to: To::Port(port), ..action };
        }
        let all = self.batch.lanes();
        let refused = place.enqueue(self.core, &self.pool, &mut self.batch, all);
        self.batch.drain().next().filter(|_| !refused.is_empty())
    }

    /// Sends the frames that are tied to that of `lane`, each to its port, and then the frame itself. Returns
    /// whether all have left.
    fn part(&mut self, places: &Places, from: &mut Batch, lane: usize) -> bool {
        let (key, action) = (self.pool.key(from, lane), from.actions[lane]);
        while let Some((other, port)) = self.pool.untie(&mut from.frames[lane]) {
            let Some(place) = places.ports.get(usize::from(port)) else {
                self.pool.put(other);
                self.count(1);
                self.fail(DropReason::NoBuffer);
                continue;
            };
            self.count(1);
            if let Some(other) = self.enqueue(place, port, other, key, action) {
                self.copies -= 1; // it will be tried again
                self.board.show_copies(self.copies);
                self.pool.tie(&mut from.frames[lane], other, port);
                return false;
            }
        }
        let (port, (missing, why)) = self.pool.last(&mut from.frames[lane]);
        self.count(missing.into());
        self.failed.add(why, missing.into());
        from.actions[lane].to = To::Port(port);
        let place = places.ports.get(usize::from(port));
        let lanes = Lanes(1 << lane);
        let enqueue = |place: &Place| place.enqueue(self.core, &self.pool, from, lanes).is_empty();
        let gone = place.is_some_and(enqueue);
        if !gone {
            from.actions[lane] = action;
        }
        gone
    }

    /// Sends a copy to `port` if there is a buffer for it. Returns whether the port is served.
    fn copy(&mut self, places: &Places, from: &Batch, lane: usize, port: u16) -> bool {
        let Some(place) = places.ports.get(usize::from(port)) else { return false };
        self.copies += 1;
        self.board.show_copies(self.copies);
        let Ok(copy) = self.pool.copy_of(&from.frames[lane]) else {
            self.fail(DropReason::NoBuffer);
            return true;
        };
        let key = self.pool.key(from, lane);
        self.enter(place, port, copy, key, from.actions[lane])
    }

    /// Sends a separate frame, which the caller has counted as a copy, to a port. Returns whether it fits; otherwise it is
    /// not counted any more.
    fn enter(
        &mut self,
        place: &Place,
        port: u16,
        frame: Frame,
        key: FlowKey,
        action: Action,
    ) -> bool {
        let Some(frame) = self.enqueue(place, port, frame, key, action) else { return true };
        self.take_back(frame); // it is made again later, because it has no place to wait in
        false
    }
}

impl Queue for ToPorts {
    fn enqueue(&self, from: &mut Batch, lanes: Lanes) -> Lanes {
        let mut left = lanes;
        while let Some(lane) = left.into_iter().next() {
            // Consecutive lanes for the same port: usually all of them.
            let to = from.actions[lane].to;
            let run = Lanes(left.take_while(|&lane| from.actions[lane].to == to).fold(0, bit));
            let refused = match (to, self.places.get(to)) {
                (_, Some(place)) => place.enqueue(self.core, &self.pool, from, run),
                (To::Chain(_), None) => {
                    let mut copier = self.copier();
                    let stays = |&lane: &usize| !copier.part(&self.places, from, lane);
                    let first = { run }.find(stays);
                    first.map_or(Lanes::NONE, |first| run.without(Lanes::first(first)))
                }
                (To::Ports(list), None) => {
                    let (ports, mut copier) = (self.places.list(list), self.copier());
                    let stays = |&lane: &usize| !copier.spread(&self.places, from, lane, ports);
                    let first = { run }.find(stays);
                    first.map_or(Lanes::NONE, |first| run.without(Lanes::first(first)))
                }
                _ => run,
            };
            left = left.without(run);
            if !refused.is_empty() {
                let waiting = Lanes(refused.0 | left.0); // and every later lane: see the contract of `Queue::enqueue`
                self.pool.store_keys(from, waiting); // they wait in the queue that completes
                return waiting;
            }
        }
        Lanes::NONE
    }

    fn device_queue(&self, core: u16, from: &Batch, lane: usize) -> Option<u8> {
        let To::Port(_) = from.actions[lane].to else { return None };
        self.places.get(from.actions[lane].to)?.queue.device_queue(core, from, lane)
    }

    /// No core dequeues here: the owners of the ports dequeue from their tx queues.
    fn dequeue(&self, _core: u16, _into: &mut Batch) {}

    fn complete(&self, _: u16, _: &mut Batch, _: &dyn Queue, _: &mut dyn Sink) {}

    fn flush(&self, _next: &dyn Queue) -> usize {
        0
    }

    fn open(&self, _core: u16) -> Option<Open> {
        None
    }

    fn release(&self, _core: u16) -> usize {
        0
    }

    fn tail(&self) -> u64 {
        self.places.ports.iter().map(|place| place.queue.tail()).sum()
    }

    fn head(&self) -> u64 {
        self.places.ports.iter().map(|place| place.queue.head()).sum()
    }

    fn order(&self) -> Order {
        Order::Direct
    }

    fn consumers(&self) -> u16 {
        0
    }
}

const fn bit(bits: u32, lane: usize) -> u32 {
    bits | 1 << lane
}

#[cfg(test)]
mod tests;

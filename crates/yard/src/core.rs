//! Core: one loop that owns its ports, its tables and its work. Reading this file is reading the
//! life of a packet.
//!
//! ```text
//!  receive   rx, parse, steer, settle, enqueue ──> queues of any core
//!  serve     dequeue, work, complete           ──> tx queues of any core
//!  transmit  dequeue, tx, complete             ──> out of the port
//!            edits flow backwards, by mail, between batches
//! ```
//!
//! A core without ports only serves. What is measured, traced and sampled on the way is behind one call to [`Observers`] a stage.
//!
//! Invariants: a frame is in the pool, in one of this core's batches, in a queue or in a port;
//! every drop is counted under a reason; nothing is allocated after start.
//! Thread-safety: a core is one thread's. It shares queues, mailboxes and the pool's stack.

use std::sync::Arc;

use flowyard_flow::Refusal;
use flowyard_frame::schedule::rounds;
use flowyard_frame::{Nanos, To};
use flowyard_pool::Pool;

use crate::counters::{Board, Counters};
use crate::elephants::Decider;
use crate::mail::{Mail, Mailbox};
use crate::places::Places;
use crate::stages::Span;
use crate::to_ports::ToPorts;

mod answer;
mod at_once;
mod enqueue;
mod exit;
mod hold;
mod life;
mod observe;
mod parts;
mod rebalance;
mod settle;

pub use parts::Stage;

pub(crate) use hold::Hold;
pub(crate) use observe::Observers;
use parts::{Bin, clear, learn};
pub(crate) use parts::{Entry, Exit, Handover, Learner, Server, Turns, order_behind};
pub(crate) use rebalance::Rebalance;

/// Everything that acts.
pub trait Tick {
    /// Does what there is to do at `now`; returns how much that was, 0 for nothing.
    fn tick(&mut self, now: Nanos) -> u32;
}

/// One loop, with all that it owns.
pub struct Core {
    pub(crate) id: u16,
    pub(crate) places: Arc<Places>,
    pub(crate) to_ports: ToPorts,
    pub(crate) pool: Pool,
    pub(crate) entry: Entry,
    pub(crate) server: Server,
    pub(crate) exits: Vec<Exit>,
    pub(crate) learners: Vec<Learner>,
    /// Memory for edits that tables refuse.
    pub(crate) refused: Vec<Refusal>,
    pub(crate) mailbox: Mailbox,
    pub(crate) mail: Mail,
    pub(crate) counters: Counters,
    pub(crate) observers: Observers,
    /// Elephant detector; present only on the core named by `[elephants] core`.
    pub(crate) decider: Option<Box<Decider>>,
    pub(crate) board: Arc<Board>,
    /// When the last tick began, and whether it made progress.
    pub(crate) last: (Nanos, bool),
}

impl Tick for Core {
    fn tick(&mut self, now: Nanos) -> u32 {
        let moved = self.server.run_service(self.id);
        if matches!(self.server.open, Some((_, done)) if now < done) {
            return moved; // at work, under a virtual clock
        }
        self.observers.tick(now);
        let served = self.read_mail(now) + self.receive(now) + self.serve(now);
        let progress = served + self.speak(now) + self.transmit(now);
        self.teach();
        self.rebalance(now);
        self.account(now, progress > 0);
        self.watch_elephants(now);
        progress + moved
    }
}

impl Core {
    /// rx, parse, steer, settle, enqueue: one batch from each port, and more if the core was away for
    /// long: where work is expensive, other cores wait for frames.
    fn receive(&mut self, now: Nanos) -> u32 {
        let mut progress = self.enqueue_again(); // what had to wait goes first
        let (mut at, mut fresh, mut rounds) = (0, 0, rounds(now.saturating_sub(self.last.0)));
        loop {
            progress += self.unhold(now);
            if at == self.entry.ports.len() && rounds > 1 && fresh > 0 {
                (at, fresh, rounds) = (0, 0, rounds - 1); // a round without frames is the last
            }
            if at == self.entry.ports.len() || !self.entry.can_receive() {
                self.entry.ports[at..].iter_mut().for_each(|(_, rx)| rx.attend());
                return progress;
            }
            let (came, ended) = self.rx(at, now);
            (progress, fresh) = (progress + came + u32::from(ended), fresh + came);
            self.steer(now);
            self.settle(Some(now));
            self.observers.stage(Span::Settle, self.entry.batch.len());
            let opened = self.open_at_once(now);
            let entered = if opened > 0 { opened } else { self.pass_on(now) };
            self.observers.enqueued(&self.entry, entered);
            if let (1.., Some((queue, _))) = (opened, self.server.open) {
                self.work_on(queue, now);
                progress += self.finish(now);
            }
            if ended {
                self.entry.ended.push(self.entry.ports.remove(at));
            } else {
                at += 1;
            }
        }
    }

    /// rx, parse: a batch of port `at`, with keys. Returns how many frames came, and whether the
    /// port has ended.
    fn rx(&mut self, at: usize, now: Nanos) -> (u32, bool) {
        let Self { entry, pool, counters, observers, .. } = self;
        observers.start();
        let (port, rx) = &mut entry.ports[at];
        let got = rx.rx(&mut entry.batch, pool, now);
        let came = counters.receive(&got, entry.batch.len());
        entry.waiting = entry.batch.lanes(); // counted in: if the core dies, they are counted as dropped
        observers.received(*port, &got, entry.batch.len());
        counters.rx_bytes += entry.identify(pool, at);
        observers.stage(Span::Parse, entry.batch.len());
        (came, got.ended)
    }

    /// steer: the tables say where each lane goes. Frames that no table in front of the indirection
    /// table matched may be answered by the work itself; these skip the queue.
    fn steer(&mut self, now: Nanos) {
        let Self { entry, server, counters, observers, learners, pool, .. } = self;
        let (answers, front) = entry.ask_tables(&mut *server.work, now);
        counters.exact_hit += u64::from(answers.exact().count());
        counters.rule_hit += u64::from(answers.ruled.count());
        observers.steered(entry, front);
        learn(learners, Stage::Rx, &entry.batch, answers.all, now);
        if !answers.sure.is_empty() {
            learn(learners, Stage::Rules, &entry.batch, answers.sure, now);
        }
        entry.tally_and_apply(pool);
    }

    /// dequeue, work, complete: one batch, of the first queue in the order of [`parts::Turns`] that has one.
    fn serve(&mut self, now: Nanos) -> u32 {
        let mut progress = 0;
        for &queue in &self.server.queues {
            // What found the tx queues full at its completion.
            progress += self.places.queues[usize::from(queue)].queue.flush(&self.to_ports) as u32;
        }
        let pressed = std::mem::take(&mut self.entry.pressed);
        if let Some(rebalance) = &mut self.entry.rebalance {
            rebalance.count(pressed || !self.entry.waiting.is_empty());
        }
        if self.server.open.is_none() && !(pressed && self.server.others_lack_work(&self.places)) {
            progress += self.begin(now);
        }
        progress + self.finish(now)
    }

    /// dequeue, work: one batch.
    fn begin(&mut self, now: Nanos) -> u32 {
        let Self { server: Server { queues, turns, batch, open, .. }, .. } = self;
        let Self { places, observers, pool, .. } = self;
        observers.start();
        let dequeues = |&at: &usize| {
            places.queues[usize::from(queues[at])].queue.dequeue(self.id, batch);
            !batch.is_empty()
        };
        let mut order = (0..queues.len()).map(|before| turns.queue(before, queues.len()));
        let Some(at) = order.find(dequeues) else { return 0 };
        turns.taken(at, queues.len());
        pool.load_keys(batch);
        let (queue, frames) = (queues[at], batch.len());
        observers.stage(Span::Dequeue, frames);
        *open = Some((queue, now)); // from here on it must be completed, even if the work panics
        self.work_on(queue, now);
        frames as u32
    }

    /// work: on the batch that is open in `queue`.
    fn work_on(&mut self, queue: u16, now: Nanos) {
        let Self { server: Server { work, batch, open, .. }, counters, observers, .. } = self;
        let done = work.work(batch, &self.pool, now);
        *open = Some((queue, done));
        observers.worked(queue, batch, done.saturating_sub(now));
        counters.work_batches += 1;
        counters.work_frames += batch.len() as u64;
        learn(&mut self.learners, Stage::Work, batch, batch.lanes(), now);
    }

    /// complete: the open batch, if its work is done. Returns 1 if it was.
    fn finish(&mut self, now: Nanos) -> u32 {
        let Some((queue, done)) = self.server.open else { return 0 };
        if done > now {
            return 0;
        }
        self.complete(queue, now);
        self.server.open = None;
        1
    }

    /// complete: dropped lanes into the pool, all others to the ports, in the queue's order.
    fn complete(&mut self, queue: u16, now: Nanos) {
        let frames = self.server.batch.len();
        self.observers.start();
        let (gone, common) = self.server.refuse_exitless(&self.places);
        self.observers.dropped(&self.server.batch, gone, To::Queue(queue));
        self.send_at_once(queue, (gone, common), now);
        let Self {
            server: Server { batch, .. }, places, pool, counters, observers, to_ports, ..
        } = self;
        let mut bin = Bin { pool, drops: &mut counters.drops };
        places.queues[usize::from(queue)].queue.complete(self.id, batch, to_ports, &mut bin);
        clear(batch, pool);
        observers.stage(Span::Complete, frames);
    }
}

//! Core: one loop that owns its ports, its tables and its work. Reading it is reading the life of
//! a packet.
//!
//! ```text
//!  receive   rx, parse, steer, [apply,] settle, enqueue ──> queues of any core
//!  serve     dequeue, work, complete           ──> tx queues of any core
//!  transmit  dequeue, tx, complete             ──> gone
//!            edits flow backwards, by mail, between batches
//! ```
//!
//! A core does each of the three for what it owns: a core without ports only serves.
//!
//! Invariants: a frame is in the pool, in one of this core's batches, in a queue or in a port;
//! every drop is counted under a reason; nothing is allocated after start.
//! Thread-safety: a core is one thread's. It shares queues, mailboxes and the pool's stack.

use std::sync::Arc;

use flowyard_flow::{
    Learn, Refusal, Settle, Steer, parse, toeplitz::HashTypes, toeplitz::Toeplitz,
};
use flowyard_frame::{Action, Batch, Edit, FlowKey, LANES, Lanes, Nanos, To};
use flowyard_queue::Sink;
use flowyard_wire::{Headers, LinkType};

use crate::apply::Lists;
use crate::counters::{Board, Counters, DropReason, Drops};
use crate::elephants::{Decider, Sampling};
use crate::mail::{Mail, Mailbox};
use crate::places::{Full, Place, Places};
use crate::port::{Rx, Tx, refuse};
use crate::stages::{Span, Stopwatch};
use crate::tally::Tally;
use crate::to_ports::ToPorts;
use crate::watch::Watch;
use crate::work::Work;
use flowyard_pool::Pool;

mod hold;
mod life;
mod settle;
mod watched;

pub(crate) use hold::Hold;
pub(crate) use life::{LEARNT, PROMOTED, RULES, USER, order};

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
    /// Room for what tables refuse.
    pub(crate) refused: Vec<Refusal>,
    pub(crate) mailbox: Mailbox,
    pub(crate) mail: Mail,
    pub(crate) counters: Counters,
    pub(crate) stopwatch: Stopwatch,
    /// Notes what it works on, where flows may be split.
    pub(crate) sampling: Option<Box<Sampling>>,
    /// On the core that decides which are.
    pub(crate) decider: Option<Box<Decider>>,
    /// What it notes for who asks.
    pub(crate) watch: Watch,
    pub(crate) board: Arc<Board>,
    /// When the last tick began, and whether it got something done.
    pub(crate) last: (Nanos, bool),
}

/// Where frames enter: ports, and the tables that say where they go.
pub(crate) struct Entry {
    /// Port numbers, and where they receive; those that ended are gone.
    pub(crate) ports: Vec<(u16, Box<dyn Rx>)>,
    /// Ports that ended: for their remarks.
    pub(crate) ended: Vec<(u16, Box<dyn Rx>)>,
    pub(crate) hash: Toeplitz,
    pub(crate) types: HashTypes,
    pub(crate) steer: Steer,
    /// What the learnt table matches on, if it is the cache of the rules.
    pub(crate) cache: Option<FlowKey>,
    /// Whether flows may be split over cores.
    pub(crate) splits: bool,
    /// What the tables' answers count.
    pub(crate) tally: Tally,
    /// What a table's answer may have done to a frame.
    pub(crate) lists: Arc<Lists>,
    /// Lanes of `batch` that a list dropped: their action's counter is the reason.
    pub(crate) spent: Lanes,
    /// Without it, tables have their way at once, and frames overtake each other.
    pub(crate) settle: Option<Settle>,
    /// Frames of flows that could not move otherwise.
    pub(crate) hold: Hold,
    pub(crate) batch: Batch,
    /// Where each lane is to enter. Its action may be a port all the same: what a table says of a
    /// frame travels with it, through the queue that it has to wait in.
    pub(crate) homes: [To; LANES],
    /// Lanes of `batch` that have not entered their homes.
    pub(crate) waiting: Lanes,
    /// Whether a port gave a full batch in this tick: there may be more.
    pub(crate) pressed: bool,
}

/// Where frames are worked on.
pub(crate) struct Server {
    /// Queues to dequeue from, the most urgent first.
    pub(crate) queues: Vec<u16>,
    pub(crate) work: Box<dyn Work>,
    pub(crate) batch: Batch,
    /// The queue that `batch` is open in, and when the work is done.
    pub(crate) open: Option<(u16, Nanos)>,
}

/// Where frames leave: a port, and its tx queue.
pub(crate) struct Exit {
    pub(crate) port: u16,
    pub(crate) tx: Box<dyn Tx>,
    pub(crate) batch: Batch,
    /// Lanes of `batch` that the port has not taken yet.
    pub(crate) left: Lanes,
}

/// A learner, and what it learns from.
pub(crate) struct Learner {
    pub(crate) stage: Stage,
    pub(crate) learn: Box<dyn Learn + Send>,
    /// What this core is called in its edits.
    pub(crate) home: u16,
    /// Cores whose tables it writes.
    pub(crate) teaches: Vec<u16>,
    pub(crate) edits: Vec<Edit>,
}

/// Which frames a learner sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Those a core received, steered and settled; the lanes are those that a table in front of
    /// the last one answered.
    Rx,
    /// Of those, the lanes that a rule answered, if the learnt table may answer them in its place.
    Rules,
    /// Those a core has worked on.
    Work,
    /// Those a core has transmitted.
    Tx,
}

impl Tick for Core {
    fn tick(&mut self, now: Nanos) -> u32 {
        if matches!(self.server.open, Some((_, done)) if now < done) {
            return 0; // at work, under a virtual clock
        }
        self.stopwatch.tick();
        self.watch.tick(now);
        let progress = self.read_mail(now) + self.receive(now) + self.serve(now);
        let progress = progress + self.speak(now) + self.transmit(now);
        self.teach();
        self.account(now, progress > 0);
        self.watch_elephants(now);
        progress
    }
}

impl Core {
    /// rx, parse, steer, apply, settle, enqueue: one batch from each port, and more from a core that was
    /// away for long: where work is dear, others wait for frames. What the tables leave to the indirection
    /// table the work may answer, if it knows it: then no queue is on its way.
    fn receive(&mut self, now: Nanos) -> u32 {
        let mut progress = self.enter(); // what had to wait goes first
        let (mut at, mut rounds) = (0, self.rounds(now));
        loop {
            progress += self.unhold(now);
            let Entry { ports, waiting, hold, .. } = &self.entry;
            if at == ports.len() && rounds > 1 {
                (at, rounds) = (0, rounds - 1);
            }
            if at == ports.len() || !waiting.is_empty() || hold.is_full() {
                return progress;
            }
            let Entry { ports, batch, hash, types, steer, settle, pressed, .. } = &mut self.entry;
            let (port, rx) = &mut ports[at];
            let watch = &mut self.stopwatch;
            watch.start();
            let got = rx.rx(batch, &mut self.pool, now);
            watch.lap(Span::Rx, batch.len());

            let dropped = got.dropped().into_iter().filter(|(_, frames)| *frames > 0);
            let came = dropped.fold(batch.len() as u32, |came, (reason, frames)| {
                self.counters.drops.add(reason.code(), frames.into());
                self.watch.dropped_at_port(*port, reason, frames);
                came + frames
            });
            self.counters.rx_frames += u64::from(came);
            *pressed |= batch.len() == LANES;
            progress += came + u32::from(got.ended);

            let (bytes, plain) = identify(batch, &self.pool, *port);
            self.counters.rx_bytes += bytes;
            watch.lap(Span::Parse, batch.len());
            hash.hash_batch(types, batch);
            let mut answered = steer.walk(batch);
            let mut front = Lanes::NONE;
            if settle.is_some() {
                // Without settle, what is in a queue already would be overtaken.
                front = self.server.work.front(batch, plain.without(answered), now);
                steer.overrule(front.count());
            }
            watch.lap(Span::Steer, batch.len());
            let (ruled, sure) = steer.answered(RULES);
            self.counters.exact_hit += u64::from(answered.without(ruled).count() + front.count());
            self.counters.rule_hit += u64::from(ruled.count());
            answered = Lanes(answered.0 | front.0);
            learn(&mut self.learners, Stage::Rx, batch, answered, now);
            if !sure.is_empty() {
                learn(&mut self.learners, Stage::Rules, batch, sure, now);
            }
            if self.watch.on {
                self.tell_received(front);
            }
            let Entry { tally, lists, batch, spent, .. } = &mut self.entry;
            tally.count(batch);
            if !lists.is_empty() {
                *spent = lists.apply(batch, &self.pool);
            }
            if self.watch.on {
                self.settle_told(Some(now));
            } else {
                self.entry.settle(&self.places, Some(now));
            }
            self.stopwatch.lap(Span::Settle, self.entry.batch.len());
            let entered = self.enter();
            if self.watch.on {
                self.tell_waiting();
            }
            self.stopwatch.lap(Span::Enqueue, entered as usize);
            if got.ended {
                self.entry.ended.push(self.entry.ports.remove(at));
            } else {
                at += 1;
            }
        }
    }

    /// How many batches may move at a port in a tick that begins at `now`.
    fn rounds(&self, now: Nanos) -> Nanos {
        (now.saturating_sub(self.last.0) / AWAY).clamp(1, ROUNDS)
    }

    /// What was held, and may go: to its new home, or after all to the old one. Before anything
    /// that comes behind it.
    fn unhold(&mut self, now: Nanos) -> u32 {
        let mut progress = 0;
        while self.entry.waiting.is_empty() && self.entry.next_held(&self.places, now) {
            progress += self.entry.batch.len() as u32;
            match self.watch.on {
                true => self.settle_told(None),
                false => self.entry.settle(&self.places, None),
            }
            self.enter();
        }
        progress
    }

    /// enqueue: the waiting lanes of the entry's batch, each into its home. Those for ports go
    /// first, and queues wait for them: what is sent straight to a port is never overtaken by what
    /// comes behind it through a queue.
    fn enter(&mut self) -> u32 {
        let Entry { batch, homes, waiting, settle, spent, .. } = &mut self.entry;
        if batch.is_empty() {
            return 0;
        }
        let (all, mut held) = (*waiting, 0);
        let ports = Lanes(all.filter(|&lane| matches!(homes[lane], To::Port(_))).fold(0, bit));
        for mut left in [ports, all.without(ports)] {
            if held != 0 {
                held |= left.0;
                continue;
            }
            while let Some(lane) = left.into_iter().next() {
                let to = homes[lane];
                let same = Lanes(left.filter(|&lane| homes[lane] == to).fold(0, bit));
                left = left.without(same);
                let (refused, reason) = match self.places.get(to) {
                    Some(place) => match (place.enqueue(self.id, batch, same), place.full) {
                        (refused, Full::Drop) => {
                            if let (To::Queue(queue), Some(sampling)) = (to, &mut self.sampling) {
                                sampling.dropped(queue, refused.count());
                            }
                            (refused, DropReason::QueueFull)
                        }
                        (refused, Full::Hold) => {
                            held |= refused.0;
                            continue;
                        }
                    },
                    None if to == To::Drop => (same, DropReason::Table),
                    None => (same, DropReason::NoRoute),
                };
                let listed = Lanes(refused.0 & spent.0);
                listed.for_each(|lane| self.counters.drops.add(batch.actions[lane].counter, 1));
                let others = refused.without(listed);
                self.counters.drops.add(reason.code(), others.count().into());
                self.watch.dropped(batch, others, reason, to);
                refused.for_each(|lane| self.pool.put(std::mem::take(&mut batch.frames[lane])));
            }
        }
        *waiting = Lanes(held);
        if held == 0 {
            *spent = Lanes::NONE;
            clear(batch, &mut self.pool);
            if let Some(settle) = settle {
                settle.enqueued(&*self.places);
            }
        }
        all.0.count_ones() - held.count_ones()
    }

    /// dequeue, work, complete: one batch, of the most urgent queue that has one.
    fn serve(&mut self, now: Nanos) -> u32 {
        let mut progress = 0;
        for &queue in &self.server.queues {
            // What found the tx queues full at its completion.
            progress += self.places.queues[usize::from(queue)].queue.flush(&self.to_ports) as u32;
        }
        let pressed = std::mem::take(&mut self.entry.pressed);
        if self.server.open.is_none() && !(pressed && self.others_lack_work()) {
            progress += self.begin(now);
        }
        match self.server.open {
            Some((queue, done)) if done <= now => {
                self.server.open = None;
                self.close(queue);
                progress + 1
            }
            _ => progress,
        }
    }

    /// Whether other consumers have less than two batches each, one in hand and one to come, in every
    /// queue that this core serves. While its ports have more it receives, which nobody does in its place,
    /// and leaves the work to them.
    fn others_lack_work(&self) -> bool {
        self.server.queues.iter().all(|&queue| {
            let Place { queue, consumers, .. } = &self.places.queues[usize::from(queue)];
            queue.len() <= 2 * LANES * consumers.len().saturating_sub(1)
        })
    }

    /// What the work has to say of itself.
    fn speak(&mut self, now: Nanos) -> u32 {
        let Self { server, to_ports, .. } = self;
        server.work.speak(now, &mut |port, bytes| to_ports.send(port, bytes, now))
    }

    /// dequeue, work.
    fn begin(&mut self, now: Nanos) -> u32 {
        let Server { queues, work, batch, open } = &mut self.server;
        let watch = &mut self.stopwatch;
        watch.start();
        for &queue in &*queues {
            self.places.queues[usize::from(queue)].queue.dequeue(self.id, batch);
            if !batch.is_empty() {
                watch.lap(Span::Dequeue, batch.len());
                *open = Some((queue, now)); // from here on it must be completed, come what may
                let frames = batch.len() as u32;
                let done = work.work(batch, &self.pool, now);
                *open = Some((queue, done));
                watch.lap(Span::Work, batch.len());
                watch.charge(Span::Work, batch.len(), done.saturating_sub(now));
                if let Some(sampling) = &mut self.sampling {
                    sampling.work(batch);
                }
                self.counters.work_batches += 1;
                self.counters.work_frames += u64::from(frames);
                learn(&mut self.learners, Stage::Work, batch, batch.lanes(), now);
                if self.watch.on {
                    self.tell_worked(queue);
                }
                return frames;
            }
        }
        0
    }

    /// complete: dropped lanes into the pool, all others to the ports, in the queue's order.
    fn close(&mut self, queue: u16) {
        let batch = &mut self.server.batch;
        let frames = batch.len();
        self.stopwatch.start();
        let mut gone = Lanes::NONE;
        for lane in batch.lanes() {
            match batch.actions[lane] {
                Action { to: To::Drop, counter: SENT, .. } => {
                    refuse(batch, lane, DropReason::Work); // it did not say why
                }
                Action { to, .. } if self.places.is_exit(to) => continue,
                Action { to: To::Drop, .. } => {}
                _ => refuse(batch, lane, DropReason::NoRoute),
            }
            gone = gone.with(lane);
        }
        self.watch.dropped_as_said(batch, gone, To::Queue(queue));
        let mut bin = Bin { pool: &mut self.pool, drops: &mut self.counters.drops };
        let queue = &self.places.queues[usize::from(queue)].queue;
        queue.complete(self.id, batch, &self.to_ports, &mut bin);
        clear(batch, &mut self.pool);
        self.stopwatch.lap(Span::Complete, frames);
    }

    /// dequeue, tx, complete: as many batches for each port as [`Core::receive`] takes.
    fn transmit(&mut self, now: Nanos) -> u32 {
        let mut progress = 0;
        for at in 0..self.exits.len() {
            for _ in 0..self.rounds(now) {
                self.stopwatch.start();
                let taken = self.send(at, now);
                self.stopwatch.lap(Span::Tx, taken as usize);
                progress += taken;
                if taken == 0 || !self.exits[at].left.is_empty() {
                    break;
                }
            }
        }
        progress
    }

    /// dequeue, tx: one batch for exit `at`. Returns how many lanes the port took.
    fn send(&mut self, at: usize, now: Nanos) -> u32 {
        let Exit { port, tx, batch, left } = &mut self.exits[at];
        let queue = &self.places.ports[usize::from(*port)].queue;
        if left.is_empty() {
            queue.dequeue(self.id, batch);
            *left = batch.lanes();
        }
        if left.is_empty() {
            return 0;
        }
        let later = tx.tx(batch, *left, &self.pool, now);
        let taken = left.without(later);
        let sent = Lanes(taken.filter(|&l| batch.actions[l].to != To::Drop).fold(0, bit));
        for lane in taken.without(sent) {
            if batch.actions[lane].counter == SENT {
                refuse(batch, lane, DropReason::PortFailed); // it did not say why
            }
        }
        self.watch.dropped_as_said(batch, taken.without(sent), To::Port(*port));
        if self.watch.on {
            self.tell_sent(at, sent);
        }
        let Exit { batch, left, .. } = &mut self.exits[at];
        *left = later;
        self.counters.tx_frames += u64::from(sent.count());
        for lane in sent {
            self.counters.tx_bytes += batch.frames[lane].len() as u64;
            // For its queue a transmitted frame is one to be forgotten, like a dropped one.
            batch.actions[lane] = Action { to: To::Drop, counter: SENT, mark: 0 };
        }
        learn(&mut self.learners, Stage::Tx, batch, sent, now);
        if later.is_empty() {
            self.leave(at);
        }
        taken.count()
    }

    /// complete: what was transmitted goes back into the pool.
    fn leave(&mut self, at: usize) {
        let Exit { port, batch, .. } = &mut self.exits[at];
        let mut bin = Bin { pool: &mut self.pool, drops: &mut self.counters.drops };
        let queue = &self.places.ports[usize::from(*port)].queue;
        queue.complete(self.id, batch, &self.to_ports, &mut bin);
        clear(batch, &mut self.pool);
    }
}

/// Makes room in a batch whose frames are all gone: each left its lane when it was handed on.
#[inline]
fn clear(batch: &mut Batch, pool: &mut Pool) {
    // One look at all, without a branch a lane; if it were not so, none would be lost.
    if batch.frames.iter().fold(0, |left, frame| left | frame.buf()) == 0 {
        batch.set_len(0);
    } else {
        batch.drain().for_each(|frame| pool.put(frame));
    }
}

/// learn: edits that the learners of `stage` make of these lanes wait for the end of the tick.
#[inline]
fn learn(learners: &mut [Learner], stage: Stage, batch: &Batch, lanes: Lanes, now: Nanos) {
    for learner in learners.iter_mut().filter(|learner| learner.stage == stage) {
        learner.learn.observe(learner.home, batch, lanes, now, &mut learner.edits);
    }
}

/// parse: bytes to keys, by the short way where it answers. Returns how many bytes there are, and the
/// lanes that the short way answered.
#[inline]
fn identify(batch: &mut Batch, pool: &Pool, in_port: u16) -> (u64, Lanes) {
    let (mut sum, mut plain) = (0, batch.lanes());
    for lane in batch.lanes() {
        let (frame, key) = (&batch.frames[lane], &mut batch.keys[lane]);
        let (bytes, link) = (pool.bytes(frame), pool.meta(frame).link);
        sum += bytes.len() as u64;
        if link != LinkType::Ethernet || !parse::fast(bytes, in_port, key) {
            *key = parse::key(&Headers::parse(link, bytes), bytes, in_port);
            plain = plain.without(Lanes(1 << lane));
        }
    }
    (sum, plain)
}

/// The most batches that a core receives from a port, or transmits to it, in a tick.
const ROUNDS: Nanos = 8;
/// How long a core must have been away for one batch more, in nanoseconds.
const AWAY: Nanos = 4000;

/// In place of a [`DropReason`]'s code: not dropped, but transmitted.
const SENT: u16 = 0;

/// Where queues leave the frames that go no further: into the pool, counted by reason.
struct Bin<'a> {
    pool: &'a mut Pool,
    drops: &'a mut Drops,
}

impl Sink for Bin<'_> {
    fn drop(&mut self, frame: flowyard_frame::Frame, reason: u16) {
        if reason == SENT {
            return self.pool.put(frame);
        }
        self.drops.add(reason, 1);
        self.pool.put_all(frame);
    }
}

/// `bits` with that of `lane`.
#[inline]
const fn bit(bits: u32, lane: usize) -> u32 {
    bits | 1 << lane
}

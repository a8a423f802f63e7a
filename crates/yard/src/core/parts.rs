//! What a core owns: where frames enter, are worked on, and leave.
//!
//! Thread-safety: each is one core's.

use std::sync::Arc;

use flowyard_flow::table::marked::{self, Named};
use flowyard_flow::toeplitz::{HashTypes, Toeplitz};
use flowyard_flow::{Learn, Settle, Steer, parse};
use flowyard_frame::{Batch, Edit, FlowKey, Frame, LANES, Lanes, Nanos, To, schedule};
use flowyard_pool::Pool;
use flowyard_queue::{Service, Sink};
use flowyard_wire::{Headers, LinkType};

use super::hold::Hold;
use super::rebalance::Rebalance;
use crate::apply::Lists;
use crate::counters::{Counters, DropReason, Drops};
use crate::places::{Place, Places};
use crate::port::{Rx, Tx, refuse};
use crate::tally::Tally;
use crate::work::Work;

/// The user's exact entries come first, so that no learner overrules them.
pub(crate) const USER: usize = 0;
/// Entries of learners.
pub(crate) const LEARNT: usize = 1;
/// The user's rules.
pub(crate) const RULES: usize = 2;
/// Flows that are split over cores.
pub(crate) const PROMOTED: usize = 3;
/// The user's entries and rules that an adapter has named on the frame.
pub(crate) const MARKED: usize = 4;

/// The order in which tables are asked. The user's tables come first; the learnt table comes before the
/// rules only where it repeats their answers. Unused tables are not asked.
pub(crate) const fn order(is_cache: bool, has_rules: bool, splits: bool) -> &'static [usize] {
    match (is_cache, has_rules, splits) {
        (_, false, false) => &[USER, LEARNT],
        (_, false, true) => &[USER, PROMOTED, LEARNT],
        (true, true, false) => &[USER, LEARNT, RULES],
        (true, true, true) => &[USER, LEARNT, RULES, PROMOTED],
        (false, true, false) => &[USER, RULES, LEARNT],
        (false, true, true) => &[USER, RULES, PROMOTED, LEARNT],
    }
}

/// As [`order`], behind the table of marked entries if there is one.
pub(crate) fn order_behind(
    has_marks: bool,
    (is_cache, has_rules, splits): (bool, bool, bool),
) -> Vec<usize> {
    let mut all = Vec::with_capacity(5);
    all.extend(has_marks.then_some(MARKED));
    all.extend(order(is_cache, has_rules, splits));
    all
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
    /// The user's entries with which adapters mark frames, if they do.
    pub(crate) marks: Option<Arc<marked::Answers>>,
    /// Promoted flows with which adapters mark frames.
    pub(crate) named: Vec<Named>,
    /// The user's counters that table entries name.
    pub(crate) tally: Tally,
    /// Action lists that table entries name.
    pub(crate) lists: Arc<Lists>,
    /// Without it a move takes effect at once, and frames of a flow overtake each other.
    pub(crate) settle: Option<Settle>,
    /// Frames of flows that could not move otherwise.
    pub(crate) hold: Hold,
    pub(crate) batch: Box<Batch>,
    /// Lanes of `batch` that can be answered in front of the queues: plain Ethernet and IPv4.
    pub(crate) plain: Lanes,
    /// The place that each lane is to enter. The lane's action may be a port all the same: the
    /// answer of a table travels with its frame through the queue that the frame waits in.
    pub(crate) homes: [To; LANES],
    /// The home of all lanes of `batch`, if they have the same.
    pub(crate) common: Option<To>,
    /// Lanes of `batch` that have not entered their homes.
    pub(crate) waiting: Lanes,
    /// Whether a port filled a batch in this tick: there may be more.
    pub(crate) pressed: bool,
    /// What a core does when it is overloaded, where frames stay with the core that received them, or can after a reload.
    pub(crate) rebalance: Option<Rebalance>,
    /// Whether another process takes over.
    pub(crate) handover: Handover,
}

/// The steps of a hand-over to another process: see [`crate::handover`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Handover {
    /// There is none.
    #[default]
    Runs,
    /// The ports are paused.
    Paused,
    /// The other process has taken over.
    Left,
}

/// Where frames are worked on.
pub(crate) struct Server {
    /// Queues to dequeue from, the most urgent first.
    pub(crate) queues: Vec<u16>,
    pub(crate) turns: Turns,
    pub(crate) work: Box<dyn Work>,
    pub(crate) batch: Box<Batch>,
    /// The queue that `batch` is open in, and when the work is done.
    pub(crate) open: Option<(u16, Nanos)>,
    /// What cores run between two ticks for the queues, if they are those of an event device.
    pub(crate) service: Option<Arc<dyn Service>>,
}

/// In which order a core looks for frames in its queues, named by their position: the most urgent first, but for one of
/// [`Turns::every`] batches last. The less urgent queues are then looked at in turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turns {
    /// 0: always the most urgent first.
    every: u32,
    /// Batches until it is last, 1 for the next one.
    left: u32,
    /// The less urgent queue that is looked at first then.
    next: usize,
}

impl Turns {
    pub(crate) const fn new(every: u32) -> Self {
        Self { every, left: every, next: 1 }
    }

    /// The queue, of `queues`, to look at after `before` others.
    #[inline]
    pub(super) const fn queue(&self, before: usize, queues: usize) -> usize {
        match self.left {
            1 if before + 1 == queues => 0,
            1 => 1 + (self.next - 1 + before) % (queues - 1),
            _ => before,
        }
    }

    /// A batch of `queue` was taken.
    #[inline]
    pub(super) const fn taken(&mut self, queue: usize, queues: usize) {
        if self.left != 1 {
            self.left = self.left.saturating_sub(1);
            return;
        }
        self.left = self.every;
        if queue > 0 {
            self.next = if queue + 1 < queues { queue + 1 } else { 1 };
        }
    }
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

/// Which frames a learner observes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Those that a core received, steered and settled; the lanes are those that a table in front
    /// of the last one answered.
    Rx,
    /// Of those, the lanes that a rule answered, if the learnt table may answer them in its place.
    Rules,
    /// Those that a core has worked on.
    Work,
    /// Those that a core has transmitted.
    Tx,
}

/// Which lanes of a batch the tables answered.
#[derive(Clone, Copy)]
pub(super) struct Answers {
    /// Lanes that a table in front of the indirection table answered, or the work in front of the
    /// queues.
    pub(super) all: Lanes,
    /// Lanes that a rule answered.
    pub(super) ruled: Lanes,
    /// Of these, lanes whose answer depends on no more than the cache matches on.
    pub(super) sure: Lanes,
}

impl Answers {
    /// Lanes that an exact or a learnt entry answered, or the work in front of the queues.
    pub(super) const fn exact(&self) -> Lanes {
        self.all.without(self.ruled)
    }
}

impl Entry {
    /// Whether another batch may be received: no frame waits for a queue, and there is capacity for
    /// frames to be held.
    #[inline]
    pub(super) fn can_receive(&self) -> bool {
        self.waiting.is_empty() && !self.hold.is_full()
    }

    /// parse: bytes to keys, by the fast parser where it answers. Returns how many bytes there are.
    #[inline]
    pub(super) fn identify(&mut self, pool: &Pool, at: usize) -> u64 {
        let Self { batch, ports, plain, pressed, .. } = self;
        let in_port = ports[at].0;
        *pressed |= batch.len() == LANES;
        *plain = batch.lanes();
        let mut sum = 0;
        let len = batch.len();
        let Batch { frames, keys, .. } = &mut **batch;
        for lane in 0..len.min(LANES) {
            let (frame, key) = (&frames[lane], &mut keys[lane]);
            let (bytes, link) = (pool.bytes(frame), pool.meta(frame).link);
            sum += bytes.len() as u64;
            if link != LinkType::Ethernet || !parse::fast(bytes, in_port, key) {
                *key = parse::key(&Headers::parse(link, bytes), bytes, in_port);
                *plain = plain.without(Lanes(1 << lane));
            }
        }
        sum
    }

    /// steer: writes an action into every lane. Returns which lanes were answered in front of the
    /// indirection table, and which of these the work answered.
    #[inline]
    pub(super) fn ask_tables(&mut self, work: &mut dyn Work, now: Nanos) -> (Answers, Lanes) {
        let Self { batch, hash, types, steer, settle, plain, .. } = self;
        hash.hash_batch(types, batch);
        let answered = steer.walk(batch);
        let mut front = Lanes::NONE;
        if settle.is_some() {
            // Without settle, frames would overtake those that are in a queue already.
            front = work.front(batch, plain.without(answered), now);
            steer.overrule(front.count());
        }
        let (ruled, sure) = steer.answered(RULES);
        (Answers { all: Lanes(answered.0 | front.0), ruled, sure }, front)
    }

    /// Counts what the matched entries name, and applies the action lists that they name.
    #[inline]
    pub(super) fn tally_and_apply(&mut self, pool: &Pool) {
        let Self { tally, lists, batch, .. } = self;
        tally.count(batch);
        if !lists.is_empty() {
            lists.apply(batch, pool);
        }
    }
}

impl Server {
    /// Lets the scheduler of an event device run, if core `core` is the one that does so. Returns 1 if frames moved. This
    /// keeps the core awake but does not make it busy: cores are busy by the work on these frames.
    #[inline]
    pub(super) fn run_service(&self, core: u16) -> u32 {
        self.service.as_ref().map_or(0, |service| service.run(core))
    }

    /// Whether the other consumers have fewer than two batches each, one in hand and one to come,
    /// in every queue that this core serves. While its ports have more it receives, which no other
    /// core can do, and leaves the work to them.
    pub(super) fn others_lack_work(&self, places: &Places) -> bool {
        self.queues.iter().all(|&queue| {
            let Place { queue, consumers, .. } = &places.queues[usize::from(queue)];
            schedule::others_lack_work(queue.len(), consumers.len())
        })
    }

    /// Marks the lanes whose action is no way out as dropped, with a reason. Returns all lanes that
    /// are dropped, and the destination of all lanes, if they have the same and it is a way out.
    #[inline]
    pub(super) fn refuse_exitless(&mut self, places: &Places) -> (Lanes, Option<To>) {
        let batch = &mut self.batch;
        let first = batch.actions[0].to;
        let others = batch.actions.iter().take(batch.len());
        if others.fold(true, |same, action| same & (action.to == first)) && places.is_exit(first) {
            return (Lanes::NONE, Some(first)); // most batches
        }
        let mut gone = Lanes::NONE;
        for lane in batch.lanes() {
            match batch.actions[lane].to {
                To::Drop(0) => refuse(batch, lane, DropReason::Work), // the work gave no reason
                to if places.is_exit(to) => continue,
                To::Drop(_) => {}
                _ => refuse(batch, lane, DropReason::NoRoute),
            }
            gone = gone.with(lane);
        }
        (gone, None)
    }
}

/// Where queues leave the frames that go no further: into the pool, counted by reason.
pub(super) struct Bin<'a> {
    pub(super) pool: &'a mut Pool,
    pub(super) drops: &'a mut Drops,
}

impl Sink for Bin<'_> {
    fn drop(&mut self, frame: Frame, to: To) {
        match to {
            To::Sent(_) => return self.pool.put(frame),
            To::Drop(reason) => self.drops.add(reason, 1),
            _ => self.drops.add(DropReason::Work.code(), 1),
        }
        self.pool.put_all(frame);
    }
}

/// Empties a batch whose frames have all been handed on.
#[inline]
pub(super) fn clear(batch: &mut Batch, pool: &mut Pool) {
    // One look at all, without a branch a lane; if a frame were left, in whatever lane, it would not be lost.
    if batch.frames.iter().fold(0, |left, frame| left | frame.buf()) != 0 {
        batch.frames.iter_mut().for_each(|frame| pool.put(std::mem::take(frame)));
    }
    batch.set_len(0);
}

/// learn: edits that the learners of `stage` make of these lanes wait for the end of the tick.
#[inline]
pub(super) fn learn(
    learners: &mut [Learner],
    stage: Stage,
    batch: &Batch,
    lanes: Lanes,
    now: Nanos,
) {
    for learner in learners.iter_mut().filter(|learner| learner.stage == stage) {
        learner.learn.observe(learner.home, batch, lanes, now, &mut learner.edits);
    }
}

/// Frames that a port transmitted.
#[derive(Clone, Copy)]
pub(super) struct Sent {
    pub(super) lanes: Lanes,
    bytes: usize,
}

impl Sent {
    /// The lanes of `taken` that a port transmitted. The others keep the reason that the port gave.
    #[inline]
    pub(super) fn of(batch: &mut Batch, taken: Lanes) -> Self {
        let (mut lanes, mut bytes) = (Lanes::NONE, 0);
        taken.each(|lane| {
            if !batch.actions[lane].to.is_drop() {
                lanes = lanes.with(lane);
                bytes += batch.frames[lane].len();
            }
        });
        for lane in taken.without(lanes) {
            if batch.actions[lane].to == To::DROP {
                refuse(batch, lane, DropReason::PortFailed); // the port gave no reason
            }
        }
        Self { lanes, bytes }
    }

    /// Counts them. If the core dies, they are counted as dropped for as long as their batch has them and nothing says
    /// that they were sent.
    #[inline]
    pub(super) fn count(self, counters: &mut Counters) {
        counters.tx_frames += u64::from(self.lanes.count());
        counters.tx_bytes += self.bytes as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::Turns;

    /// The queues of `batches` batches, where those of `full` always have frames.
    fn served(every: u32, full: &[bool], batches: usize) -> Vec<usize> {
        let mut turns = Turns::new(every);
        let mut batch = || {
            let order = (0..full.len()).map(|before| turns.queue(before, full.len()));
            let order: Vec<_> = order.collect();
            let mut each = order.clone();
            each.sort_unstable();
            assert!(each.into_iter().eq(0..full.len()), "each queue is looked at once: {order:?}");
            let queue = order.into_iter().find(|&queue| full[queue]).unwrap();
            turns.taken(queue, full.len());
            queue
        };
        (0..batches).map(|_| batch()).collect()
    }

    #[test]
    fn one_of_n_batches_is_from_the_less_urgent_queues_in_turn() {
        assert_eq!(served(3, &[true; 3], 9), [0, 0, 1, 0, 0, 2, 0, 0, 1]);
        assert_eq!(served(3, &[true, false, true], 6), [0, 0, 2, 0, 0, 2]);
        assert_eq!(served(3, &[true, false, false], 6), [0; 6], "no other has frames");
        assert_eq!(served(3, &[true], 6), [0; 6]);
        assert_eq!(served(0, &[true; 3], 40), [0; 40], "strict priority");
        assert_eq!(served(2, &[false, true, true], 6), [1, 1, 1, 2, 1, 1]);
    }
}

//! Priorities: a few queues in one, the more urgent served first.
//!
//! ```text
//!             class of the frame           strict, but each level has its turn
//!  enqueue ── 7 6 5 4 3 2 1 0 ── map ──> level 0 [queue] ─┐
//!                                        level 1 [queue] ─┼── dequeue: a batch of one level
//!                                        level 2 [queue] ─┘
//! ```
//!
//! Each level keeps its order; between levels there is none. A dequeued batch is of one level, and
//! is completed there. One dequeue of 16 looks at the least urgent level first, so that it cannot
//! starve behind a flood of more urgent frames.
//!
//! The head: frames are counted as they enter, but levels overtake, so no sum of the levels' heads
//! says that the first n frames are done. Instead a marker is put: the count, then every level's
//! tail. Once every head has reached its tail, all that was counted is done, and the next marker
//! is put. The head is late by up to one passage through the slowest level, never early.
//!
//! Invariants: head <= marked count <= entered.
//! Thread-safety: as the queues inside; the marker is moved by whoever finds nobody at it.

use std::sync::{Mutex, TryLockError};

use flowyard_frame::{Action, Batch, FlowKey, Lanes};

use crate::sync::{Acquire, AtomicU64, Padded, Relaxed, Release};
use crate::{Open, Order, Queue, Sink};

/// The most levels.
pub const LEVELS: usize = 8;

/// What a frame's class, 0 to 7, is read from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// IP precedence, the upper three bits of TOS or traffic class (RFC 791; the class selector of
    /// RFC 2474).
    Precedence,
    /// The priority code point of the outermost VLAN tag (IEEE 802.1Q).
    Pcp,
    /// The lower three bits of the action's mark: a table decides.
    Mark,
}

impl Class {
    fn of(self, key: &FlowKey, action: &Action) -> usize {
        let class = match self {
            Self::Precedence => u32::from(key.tos >> 5),
            Self::Pcp => u32::from(key.vlan_tci >> 13),
            Self::Mark => action.mark & 7,
        };
        class as usize
    }
}

/// Queues by urgency, the first the most urgent.
pub struct Priority {
    class: Class,
    /// The level of each class.
    map: [u8; 8],
    levels: Vec<Box<dyn Queue>>,
    entered: Padded<AtomicU64>,
    done: Padded<AtomicU64>,
    marker: Mutex<Marker>,
    /// By core: dequeues so far << 8 | the level it has open.
    turns: Box<[Padded<AtomicU64>]>,
}

#[derive(Default)]
struct Marker {
    entered: u64,
    tails: [u64; LEVELS],
}

impl Priority {
    /// Queues that serve classes by `map`: the level, an index into `levels`, of each class. Levels
    /// beyond [`LEVELS`] are not used, a class that maps beyond the levels goes to the last; none
    /// if there is no level.
    #[must_use]
    pub fn new(class: Class, map: [u8; 8], mut levels: Vec<Box<dyn Queue>>) -> Option<Self> {
        levels.truncate(LEVELS);
        let last = u8::try_from(levels.len().checked_sub(1)?).ok()?;
        let consumers = levels.iter().map(|level| level.consumers()).max()?;
        Some(Self {
            class,
            map: map.map(|level| level.min(last)),
            levels,
            entered: Padded::new(AtomicU64::new(0)),
            done: Padded::new(AtomicU64::new(0)),
            marker: Mutex::default(),
            turns: (0..consumers).map(|_| Padded::new(AtomicU64::new(0))).collect(),
        })
    }

    /// Moves the head up to the marker, if all before it is done, and puts the next one.
    fn mark(&self) {
        let mut marker = match self.marker.try_lock() {
            Ok(marker) => marker,
            Err(TryLockError::Poisoned(marker)) => marker.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        // Twice: the marker of an idle queue is behind.
        for _ in 0..2 {
            let mut levels = self.levels.iter().zip(&marker.tails);
            if !levels.all(|(level, tail)| level.head() >= *tail) {
                return;
            }
            self.done.store(marker.entered, Release);
            // The count first: what it includes has entered its level, so is below the tail.
            marker.entered = self.entered.load(Acquire);
            for (level, tail) in self.levels.iter().zip(&mut marker.tails) {
                *tail = level.tail();
            }
        }
    }

    /// The level that `core` has open.
    fn level(&self, core: u16) -> Option<&dyn Queue> {
        let level = self.turns.get(usize::from(core))?.load(Relaxed) & 0xff;
        self.levels.get(level as usize).map(|level| &**level)
    }
}

impl Queue for Priority {
    /// As [`Queue::enqueue`], for each level: a lane may be refused while a later one of another
    /// level is taken.
    fn enqueue(&self, from: &mut Batch, lanes: Lanes) -> Lanes {
        let lanes = Lanes(lanes.0 & from.lanes().0);
        let mut by_level = [Lanes::NONE; LEVELS];
        for lane in lanes {
            let class = self.class.of(&from.keys[lane], &from.actions[lane]);
            let level = &mut by_level[usize::from(self.map[class])];
            *level = level.with(lane);
        }
        let mut left = Lanes::NONE;
        for (level, want) in self.levels.iter().zip(by_level) {
            if !want.is_empty() {
                left.0 |= level.enqueue(from, want).0;
            }
        }
        // After they have entered: see `mark`.
        self.entered.fetch_add(u64::from(lanes.without(left).count()), Release);
        left
    }

    fn dequeue(&self, core: u16, into: &mut Batch) {
        let Some(turn) = self.turns.get(usize::from(core)) else { return };
        if !into.is_empty() || self.open(core).is_some() {
            return;
        }
        let count = turn.load(Relaxed) >> 8;
        let levels = self.levels.len();
        for at in 0..levels {
            // The least urgent first, then as always.
            let at = if count % 16 == 15 { (at + levels - 1) % levels } else { at };
            self.levels[at].dequeue(core, into);
            if !into.is_empty() {
                turn.store((count + 1) << 8 | at as u64, Relaxed);
                return;
            }
        }
        // Whoever was at the marker last may have looked before the last frame was done.
        if self.head() != self.tail() {
            self.mark();
        }
    }

    fn complete(&self, core: u16, from: &mut Batch, next: &dyn Queue, dropped: &mut dyn Sink) {
        match self.level(core) {
            Some(level) => level.complete(core, from, next, dropped),
            None => from.drain().for_each(drop),
        }
        self.mark();
    }

    fn flush(&self, next: &dyn Queue) -> usize {
        let went = self.levels.iter().map(|level| level.flush(next)).sum();
        self.mark();
        went
    }

    /// As [`Queue::open`]; the ticket is one of the level's.
    fn open(&self, core: u16) -> Option<Open> {
        self.level(core)?.open(core)
    }

    fn release(&self, core: u16, dropped: &mut dyn Sink) -> usize {
        // Every level: an atomic one may have dealt frames to the core that it never took up.
        let released = self.levels.iter().map(|level| level.release(core, dropped)).sum();
        self.mark();
        released
    }

    fn tail(&self) -> u64 {
        self.entered.load(Acquire)
    }

    fn head(&self) -> u64 {
        self.done.load(Acquire)
    }

    fn len(&self) -> usize {
        self.levels.iter().map(|level| level.len()).sum()
    }

    /// The weakest promise of the levels.
    fn order(&self) -> Order {
        let all = |order| self.levels.iter().all(|level| level.order() == order);
        [Order::Direct, Order::Ordered, Order::Atomic]
            .into_iter()
            .find(|order| all(*order))
            .unwrap_or_else(|| {
                let any = self.levels.iter().any(|level| level.order() == Order::Unordered);
                if any { Order::Unordered } else { Order::Atomic }
            })
    }

    fn consumers(&self) -> u16 {
        self.turns.len() as u16
    }

    fn holder(&self) -> Option<u16> {
        self.levels.iter().find_map(|level| level.holder())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use flowyard_frame::{Frame, To};

    use super::*;

    struct Gone;

    impl Sink for Gone {
        fn drop(&mut self, _: Frame, _: u16) {}
    }

    fn three(class: Class, window: usize) -> Priority {
        let level = |_| crate::new(Order::Ordered, 2, window);
        Priority::new(class, [2, 2, 1, 1, 1, 0, 0, 0], (0..3).map(level).collect()).unwrap()
    }

    /// Enqueues frames by class, numbered from `first` on; gives the lanes that were refused.
    fn enqueue(queue: &dyn Queue, first: u32, classes: &[u8]) -> Lanes {
        let mut batch = Batch::default();
        for (number, class) in (first..).zip(classes) {
            let key = FlowKey { tos: class << 5, ..FlowKey::ZERO };
            let lane = batch.push(Frame::new(number, 0, 60), key).unwrap();
            batch.actions[lane].to = To::Queue(0);
        }
        let lanes = batch.lanes();
        queue.enqueue(&mut batch, lanes)
    }

    fn take(queue: &dyn Queue, core: u16) -> (Batch, Vec<u32>) {
        let mut batch = Batch::default();
        queue.dequeue(core, &mut batch);
        let numbers = batch.frames[..batch.len()].iter().map(Frame::buf).collect();
        (batch, numbers)
    }

    #[test]
    fn the_urgent_go_first_and_each_level_in_order() {
        let (queue, next) = (three(Class::Precedence, 64), crate::new(Order::Direct, 1, 64));
        assert!(enqueue(&queue, 0, &[0, 7, 2, 1, 5, 3]).is_empty());
        for expected in [vec![1, 4], vec![2, 5], vec![0, 3], vec![]] {
            let (mut batch, numbers) = take(&queue, 0);
            assert_eq!(numbers, expected);
            assert_eq!(queue.open(0).map_or(0, |open| open.frames), expected.len());
            queue.complete(0, &mut batch, &*next, &mut Gone);
        }
        assert_eq!((queue.len(), queue.head(), queue.tail(), next.len()), (0, 6, 6, 6));
    }

    /// Not one frame counts as done while an earlier one, in another level, is not.
    #[test]
    fn the_head_waits_for_the_slowest_level() {
        let (queue, next) = (three(Class::Precedence, 64), crate::new(Order::Direct, 1, 256));
        enqueue(&queue, 0, &[0]);
        let (mut slow, numbers) = take(&queue, 1);
        assert_eq!(numbers, [0]);
        for at in 1..20 {
            enqueue(&queue, at, &[7]);
            let (mut batch, numbers) = take(&queue, 0);
            assert_eq!(numbers, [at]);
            queue.complete(0, &mut batch, &*next, &mut Gone);
            assert_eq!((queue.head(), queue.len(), queue.holder()), (0, 1, Some(1)));
        }
        queue.complete(1, &mut slow, &*next, &mut Gone);
        assert_eq!((queue.head(), queue.tail(), queue.holder()), (20, 20, None));
    }

    #[test]
    fn the_least_urgent_does_not_starve() {
        let (queue, next) = (three(Class::Precedence, 1024), crate::new(Order::Direct, 1, 4096));
        enqueue(&queue, 0, &[0]);
        let served = (1..).position(|at| {
            enqueue(&queue, at, &[7; 32]);
            let (mut batch, numbers) = take(&queue, 0);
            queue.complete(0, &mut batch, &*next, &mut Gone);
            numbers == [0]
        });
        assert_eq!(served, Some(15));
    }

    #[test]
    fn a_full_level_refuses_its_own() {
        let queue = three(Class::Precedence, 2);
        assert_eq!(enqueue(&queue, 0, &[7, 7, 7, 0, 7, 0, 0]), Lanes(0b101_0100));
        assert_eq!((queue.tail(), queue.len()), (4, 4));
        assert!(Priority::new(Class::Pcp, [0; 8], vec![]).is_none());
    }

    #[test]
    fn classes_are_where_the_field_has_them() {
        let key = FlowKey { tos: 0b1011_1000, vlan_tci: 0x6001, ..FlowKey::ZERO };
        let action = Action { mark: 0xfe, ..Action::default() };
        let classes = [Class::Precedence, Class::Pcp, Class::Mark];
        assert_eq!(classes.map(|class| class.of(&key, &action)), [5, 3, 6]);
    }
}

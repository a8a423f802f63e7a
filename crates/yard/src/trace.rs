//! Tracer: what a core notes for people who ask, beside its counters.
//!
//! ```text
//!  asker ──Filter by mail──> Probe of each core ──Event, bounded──> asker
//!                            one branch a batch while nobody asks
//!  every drop ──> Notebook of each core: the last 64, at most 4 of a tick
//! ```
//!
//! A frame that is followed is named by its pool buffer. The buffer is free again after the last
//! event of a frame, and every event is sent before the frame goes on: so in the one channel of
//! all cores the events of a buffer stand in the order in which they happened.
//!
//! Invariants: a watched core never waits for who watches: what does not fit into the channel is
//! lost, and counted. Nothing is allocated while frames move.
//! Thread-safety: a core's own; the asker has the other end of the channel.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use flowyard_flow::learn::elephant::Sampler;
use flowyard_frame::{Action, Batch, FlowKey, Frame, Lanes, Nanos, To};

use crate::counters::DropReason;

/// One step of a frame that is followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// When the core's tick began.
    pub at: Nanos,
    /// The core that did it.
    pub core: u16,
    /// The number of the frame's pool buffer: its name while it is inside.
    pub frame: u32,
    /// What was done.
    pub step: Step,
}

/// What can happen to a frame, in the order of the walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A port received it; this is its key and its hash.
    Received {
        /// Header fields, the port included.
        key: FlowKey,
        /// The receive hash.
        hash: u32,
        /// Its length.
        bytes: u32,
    },
    /// A table answered.
    Answered {
        /// The table's number, the indirection table comes last; [`Step::FRONT`] is the work's.
        table: u16,
        /// The entry, where that is the indirection table.
        entry: Option<u32>,
        /// What it said.
        action: Action,
    },
    /// The settle stage let it go, overruled the table, or held it back.
    Settled {
        /// What the table said.
        said: To,
        /// Where it enters.
        home: To,
        /// Why there.
        why: Why,
    },
    /// Its home is full, and makes its producers wait.
    Waits {
        /// The full one.
        home: To,
    },
    /// A core dequeued it and worked on it.
    Worked {
        /// The queue it came out of.
        queue: u16,
        /// What the work, or before it the table, said.
        to: To,
    },
    /// A port transmitted it: the last of it.
    Sent {
        /// The port.
        port: u16,
    },
    /// It was dropped: the last of it.
    Dropped {
        /// Why.
        reason: DropReason,
        /// Where it was, or was to go.
        at: To,
    },
}

impl Step {
    /// In place of a table's number: what the work knew in front of its queue ([`crate::Work::front`]).
    pub const FRONT: u16 = u16::MAX;
}

/// Why the settle stage sent a frame where it did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// There is no settle stage: tables have their way.
    Off,
    /// The table's word is a place that does not exist, or a drop: nothing to settle.
    Nowhere,
    /// The flow's first frame that is known.
    First,
    /// The table's word is where the flow is.
    Home,
    /// The flow moves: its old home is done with all it sent there.
    Moves {
        /// The old home.
        from: To,
    },
    /// The flow may not move yet: some of it is in flight at its home.
    InFlight {
        /// How many frames its home is done with.
        head: u64,
        /// The number there of the flow's last frame; `None` while that is being enqueued.
        last: Option<u64>,
    },
    /// Held back at the entry until its home is done with what is in front of it.
    HeldBack {
        /// How many frames its home is done with.
        head: u64,
        /// The number there of the flow's last frame.
        last: Option<u64>,
    },
}

/// Which frames are followed, and where their events go.
#[derive(Clone, Debug)]
pub struct Filter {
    flows: [FlowKey; 2],
    to: SyncSender<Event>,
    lost: Arc<AtomicU64>,
}

/// The asker's end of a [`Filter`].
#[derive(Debug)]
pub struct Events {
    from: Receiver<Event>,
    lost: Arc<AtomicU64>,
}

impl Filter {
    /// Follows the flow with this key, and with `both` its other direction too. So many events
    /// wait for the asker, at most.
    #[must_use]
    pub fn new(flow: &FlowKey, both: bool, room: usize) -> (Self, Events) {
        let (to, from) = sync_channel(room);
        let lost = Arc::<AtomicU64>::default();
        let flow = flow.flow();
        let flows = [flow, if both { flow.reversed() } else { flow }];
        (Self { flows, to, lost: Arc::clone(&lost) }, Events { from, lost })
    }
}

impl Events {
    /// The next event that has come.
    #[must_use]
    pub fn next(&self) -> Option<Event> {
        self.from.try_recv().ok()
    }

    /// Events that did not fit.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// A frame, or some, that a core dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dropped {
    /// When.
    pub at: Nanos,
    /// By which core.
    pub core: u16,
    /// Why.
    pub reason: DropReason,
    /// Whose; `None` where the port dropped it before it had a key.
    pub key: Option<FlowKey>,
    /// Where it was, or was to go.
    pub place: To,
    /// How many: more than one only where they have no key.
    pub frames: u32,
}

/// Drops that a core remembers.
pub const REMEMBERED: usize = 64;

/// Drops that a core writes down in a tick: who is flooded has other things to do.
const A_TICK: u8 = 4;

/// What a core notes for who asks.
pub(crate) struct Tracer {
    core: u16,
    now: Nanos,
    /// Drops that may still be written down in this tick.
    left: u8,
    drops: Vec<Dropped>,
    /// The oldest of `drops`, once it is full.
    oldest: usize,
    probe: Option<Box<Probe>>,
    /// Counts flows while someone wants to know the largest.
    pub(crate) sampler: Option<Box<Sampler>>,
    /// Whether there is a probe or a sampler: the one branch a batch.
    pub(crate) on: bool,
}

/// A filter at work.
struct Probe {
    filter: Filter,
    /// One lane to ask tables with.
    one: Batch,
}

impl Tracer {
    pub(crate) fn new(core: u16) -> Self {
        let drops = Vec::with_capacity(REMEMBERED);
        Self { core, now: 0, left: 0, drops, oldest: 0, probe: None, sampler: None, on: false }
    }

    /// A tick begins.
    #[inline]
    pub(crate) const fn tick(&mut self, now: Nanos) {
        (self.now, self.left) = (now, A_TICK);
    }

    /// Follows what `filter` says from here on.
    pub(crate) fn follow(&mut self, filter: Option<Filter>) {
        self.probe = filter.map(|filter| Box::new(Probe { filter, one: Batch::default() }));
        self.turn();
    }

    /// Counts flows with `sampler` from here on, or no more. Returns the one before.
    pub(crate) fn sample(&mut self, sampler: Option<Box<Sampler>>) -> Option<Box<Sampler>> {
        let before = std::mem::replace(&mut self.sampler, sampler);
        self.turn();
        before
    }

    const fn turn(&mut self) {
        self.on = self.probe.is_some() || self.sampler.is_some();
    }

    /// The drops that it remembers, the oldest first.
    pub(crate) fn drops(&self) -> Vec<Dropped> {
        let (new, old) = self.drops.split_at(self.oldest.min(self.drops.len()));
        [old, new].concat()
    }

    /// `lanes` of `batch` are dropped for `reason`; they were at `place`, or to go there.
    #[inline]
    pub(crate) fn dropped(&mut self, batch: &Batch, lanes: Lanes, reason: DropReason, place: To) {
        if !lanes.is_empty() {
            self.note_all(batch, lanes, Some(reason), place);
        }
    }

    /// `lanes` of `batch` are dropped for the reason in their actions.
    #[inline]
    pub(crate) fn dropped_as_said(&mut self, batch: &Batch, lanes: Lanes, place: To) {
        if !lanes.is_empty() {
            self.note_all(batch, lanes, None, place);
        }
    }

    /// Out of the way of those who drop nothing. Without a reason it is that in the actions.
    #[cold]
    #[inline(never)]
    fn note_all(&mut self, batch: &Batch, lanes: Lanes, reason: Option<DropReason>, place: To) {
        for lane in lanes {
            let said = || match batch.actions[lane].to {
                To::Drop(code) => DropReason::of(code),
                _ => DropReason::Work,
            };
            self.note(batch, lane, reason.unwrap_or_else(said), place);
        }
    }

    /// A port dropped `frames` before they had a key.
    #[cold]
    pub(crate) fn dropped_at_port(&mut self, port: u16, reason: DropReason, frames: u32) {
        let (at, core, place) = (self.now, self.core, To::Port(port));
        self.write_down(Dropped { at, core, reason, key: None, place, frames });
    }

    fn note(&mut self, batch: &Batch, lane: usize, reason: DropReason, place: To) {
        let key = Some(batch.keys[lane]);
        self.write_down(Dropped { at: self.now, core: self.core, reason, key, place, frames: 1 });
        self.tell(batch, Lanes::NONE.with(lane), |_| Step::Dropped { reason, at: place });
    }

    fn write_down(&mut self, dropped: Dropped) {
        let Some(left) = self.left.checked_sub(1) else { return };
        self.left = left;
        if self.drops.len() < REMEMBERED {
            self.drops.push(dropped);
        } else {
            self.drops[self.oldest] = dropped;
            self.oldest = (self.oldest + 1) % REMEMBERED;
        }
    }

    /// Those of `lanes` that are followed.
    #[cold]
    pub(crate) fn followed(&self, batch: &Batch, lanes: Lanes) -> Lanes {
        let Some(probe) = &self.probe else { return Lanes::NONE };
        let flows = &probe.filter.flows;
        lanes
            .filter(|&lane| flows.contains(&batch.keys[lane].flow()))
            .fold(Lanes::NONE, Lanes::with)
    }

    /// Tells the asker of a step of each of `lanes` that is followed.
    #[cold]
    pub(crate) fn tell(&mut self, batch: &Batch, lanes: Lanes, step: impl Fn(usize) -> Step) {
        for lane in self.followed(batch, lanes) {
            self.send(batch.frames[lane].buf(), step(lane));
        }
    }

    /// Tells the asker of a step of the frame in pool buffer `frame`. If there is no asker any
    /// more, follows nothing.
    pub(crate) fn send(&mut self, frame: u32, step: Step) {
        let Some(probe) = &self.probe else { return };
        let event = Event { at: self.now, core: self.core, frame, step };
        match probe.filter.to.try_send(event) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                probe.filter.lost.fetch_add(1, Ordering::Relaxed);
            }
            Err(TrySendError::Disconnected(_)) => self.follow(None),
        }
    }

    /// A batch with one lane, of this key and hash, to ask tables with.
    pub(crate) fn one(&mut self, key: &FlowKey, hash: u32) -> Option<&mut Batch> {
        let one = &mut self.probe.as_mut()?.one;
        one.drain().for_each(drop); // made-up handles: no buffer is behind them
        let mut frame = Frame::default();
        frame.hash = hash;
        let _room = one.push(frame, *key);
        Some(one)
    }
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use super::*;

    /// Frames of these flows, in buffers 1, 2, ...
    fn batch(flows: &[&str]) -> Batch {
        let (mut batch, mut pool) = (Batch::default(), flowyard_pool::Pool::new(8, 64));
        for flow in flows {
            let frame = pool.take(60, flowyard_pool::Meta::default()).unwrap();
            batch.push(frame, FlowKey::from_str(flow).unwrap()).unwrap();
        }
        batch
    }

    const A: &str = "tcp 10.0.0.1:1 > 10.0.0.2:2";
    const B: &str = "tcp 10.0.0.2:2 > 10.0.0.1:1";

    #[test]
    fn the_last_drops_are_remembered_oldest_first() {
        let (mut tracer, batch) = (Tracer::new(3), batch(&[A, B]));
        for now in 0..100 {
            tracer.tick(now);
            tracer.dropped(&batch, Lanes(0b01), DropReason::QueueFull, To::Queue(now as u16));
        }
        let drops = tracer.drops();
        assert_eq!(drops.len(), REMEMBERED);
        assert_eq!(
            drops.iter().map(|drop| drop.at).collect::<Vec<_>>(),
            (36..100).collect::<Vec<_>>()
        );
        assert_eq!((drops[0].core, drops[0].key), (3, Some(batch.keys[0])));
        tracer.tick(100);
        tracer.dropped(&batch, Lanes(0b11), DropReason::Table, To::DROP);
        tracer.dropped_at_port(1, DropReason::TooLong, 7);
        tracer.dropped(&batch, Lanes(0b11), DropReason::Table, To::DROP);
        let drops = tracer.drops();
        assert_eq!(drops.iter().filter(|drop| drop.at == 100).count(), 4, "a tick has its limit");
        assert_eq!((drops[62].frames, drops[62].key), (7, None));
    }

    #[test]
    fn a_flow_is_followed_and_the_asker_may_leave() {
        let (mut tracer, batch) = (Tracer::new(0), batch(&[A, B]));
        let key = FlowKey::from_str(A).unwrap();
        let sent =
            |tracer: &mut Tracer| tracer.tell(&batch, batch.lanes(), |_| Step::Sent { port: 1 });
        let (filter, events) = Filter::new(&key, false, 2);
        tracer.follow(Some(filter));
        (0..3).for_each(|_| sent(&mut tracer));
        let got: Vec<_> = std::iter::from_fn(|| events.next()).map(|event| event.frame).collect();
        let first = batch.frames[0].buf();
        assert_eq!((got, events.lost()), (vec![first, first], 1));
        let (filter, events) = Filter::new(&key, true, 8);
        tracer.follow(Some(filter));
        sent(&mut tracer);
        let got: Vec<_> = std::iter::from_fn(|| events.next()).map(|event| event.frame).collect();
        assert_eq!(got, [first, batch.frames[1].buf()]);
        drop(events);
        assert!(tracer.on);
        sent(&mut tracer);
        assert!(!tracer.on, "nobody listens any more");
    }
}

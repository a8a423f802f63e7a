//! Tracer: records for `flowyard trace` and the drop log.
//!
//! ```text
//!  caller ──Filter by mail──> Probe of each core ──Event, bounded──> caller
//!                             one branch a batch while there is no probe
//!  every drop ──> log of each core: the last 64, at most 4 of a tick
//! ```
//!
//! A traced frame is identified by the number of its pool buffer. The buffer becomes free only after the last
//! event of the frame, and every event is sent before the frame goes on, so the events of a buffer are in
//! the channel in the order in which they happened.
//!
//! Invariants: a traced core never waits for the reader: events that do not fit into the channel are lost
//! and counted. Nothing is allocated while frames move.
//! Thread-safety: belongs to a core; the reader has the other end of the channel.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use flowyard_flow::learn::elephant::Sampler;
use flowyard_frame::{Action, Batch, FlowKey, Frame, Lanes, Nanos, To};
use flowyard_pool::Pool;

use crate::counters::DropReason;

/// One step of a traced frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// Time of the tick.
    pub at: Nanos,
    /// The core.
    pub core: u16,
    /// The number of the frame's pool buffer, which identifies the frame while it is inside.
    pub frame: u32,
    /// The step.
    pub step: Step,
}

/// The steps of a frame, in the order of the walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A port received the frame.
    Received {
        /// Header fields, with the port.
        key: FlowKey,
        /// The receive hash.
        hash: u32,
        /// The length in bytes.
        bytes: u32,
    },
    /// A table answered.
    Answered {
        /// The table's number; the indirection table has the last one, [`Step::FRONT`] is the work.
        table: u16,
        /// The index of the entry, for the indirection table.
        entry: Option<u32>,
        /// The action of the entry.
        action: Action,
    },
    /// The settle stage let the frame go, overruled the table, or held the frame back.
    Settled {
        /// The destination that the table gave.
        said: To,
        /// The destination that the frame enters.
        home: To,
        /// The reason.
        why: Why,
    },
    /// The queue is full, and its producers wait.
    Waits {
        /// The full queue.
        home: To,
    },
    /// A core dequeued it and worked on it.
    Worked {
        /// The queue that the frame came from.
        queue: u16,
        /// The destination that the work, or before it a table, gave.
        to: To,
    },
    /// A port transmitted the frame. This is its last step.
    Sent {
        /// The port.
        port: u16,
    },
    /// The frame was dropped. This is its last step.
    Dropped {
        /// The reason.
        reason: DropReason,
        /// The place where the frame was, or was to go.
        at: To,
    },
}

impl Step {
    /// The number of the work that answers in front of the queues ([`crate::Work::front`]).
    pub const FRONT: u16 = u16::MAX;
}

/// Why the settle stage chose a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// There is no settle stage: moves take effect at once.
    Off,
    /// The table gave a drop, or a place that does not exist.
    Nowhere,
    /// No earlier frame of the flow is known.
    First,
    /// The table gave the current home of the flow.
    Home,
    /// The flow moves: its old home has completed all its frames.
    Moves {
        /// The old home.
        from: To,
    },
    /// The flow may not move yet: frames of it are in flight at its home.
    InFlight {
        /// Frames that the home has completed.
        head: u64,
        /// The number there of the flow's last frame; `None` while it is being enqueued.
        last: Option<u64>,
    },
    /// Held back until the home has completed the earlier frames.
    HeldBack {
        /// Frames that the home has completed.
        head: u64,
        /// The number there of the flow's last frame.
        last: Option<u64>,
    },
}

/// Which frames are traced, and the channel for their events.
#[derive(Clone, Debug)]
pub struct Filter {
    flows: [FlowKey; 2],
    to: SyncSender<Event>,
    lost: Arc<AtomicU64>,
}

/// The reader's end of a [`Filter`].
#[derive(Debug)]
pub struct Events {
    from: Receiver<Event>,
    lost: Arc<AtomicU64>,
}

impl Filter {
    /// Traces the flow with this key, and with `both` also the other direction. The channel holds `room`
    /// events.
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
    /// The next event, if there is one.
    #[must_use]
    pub fn next(&self) -> Option<Event> {
        self.from.try_recv().ok()
    }

    /// Events that did not fit into the channel.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// A dropped frame, or several.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dropped {
    /// Time of the drop.
    pub at: Nanos,
    /// The core.
    pub core: u16,
    /// The reason.
    pub reason: DropReason,
    /// The key; `None` if the port dropped the frame before it had one.
    pub key: Option<FlowKey>,
    /// The place where the frame was, or was to go.
    pub place: To,
    /// Number of frames: more than one only without a key.
    pub frames: u32,
}

/// Drops that a core remembers.
pub const REMEMBERED: usize = 64;

/// Drops that a core logs in one tick, so that a flood costs little.
const A_TICK: u8 = 4;

/// The tracer and drop log of a core.
pub(crate) struct Tracer {
    core: u16,
    /// For the keys of frames.
    pool: Pool,
    now: Nanos,
    /// Drops that may still be logged in this tick.
    left: u8,
    drops: Vec<Dropped>,
    /// The index of the oldest of `drops`, once it is full.
    oldest: usize,
    probe: Option<Box<Probe>>,
    /// Counts flows while a user wants to see the largest.
    pub(crate) sampler: Option<Box<Sampler>>,
    /// Whether there is a probe or a sampler.
    pub(crate) on: bool,
}

/// An active filter.
struct Probe {
    filter: Filter,
    /// A batch with one lane, to ask tables with.
    one: Batch,
}

impl Tracer {
    pub(crate) fn new(core: u16, pool: Pool) -> Self {
        let drops = Vec::with_capacity(REMEMBERED);
        Self {
            core,
            pool,
            now: 0,
            left: 0,
            drops,
            oldest: 0,
            probe: None,
            sampler: None,
            on: false,
        }
    }

    /// A tick begins.
    #[inline]
    pub(crate) const fn tick(&mut self, now: Nanos) {
        (self.now, self.left) = (now, A_TICK);
    }

    /// Traces what `filter` selects from now on; `None` stops.
    pub(crate) fn follow(&mut self, filter: Option<Filter>) {
        self.probe = filter.map(|filter| Box::new(Probe { filter, one: Batch::default() }));
        self.turn();
    }

    /// Counts flows with `sampler` from now on; `None` stops. Returns the previous sampler.
    pub(crate) fn sample(&mut self, sampler: Option<Box<Sampler>>) -> Option<Box<Sampler>> {
        let before = std::mem::replace(&mut self.sampler, sampler);
        self.turn();
        before
    }

    const fn turn(&mut self) {
        self.on = self.probe.is_some() || self.sampler.is_some();
    }

    /// The logged drops, oldest first.
    pub(crate) fn drops(&self) -> Vec<Dropped> {
        let (new, old) = self.drops.split_at(self.oldest.min(self.drops.len()));
        [old, new].concat()
    }

    /// `lanes` of `batch` are dropped for `reason`, at `place` or on their way there.
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

    /// Not inlined, so that batches without drops pay one branch. Without a reason, that of the action counts.
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
        let key = Some(self.pool.key(batch, lane));
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

    /// Those of `lanes` that are traced.
    #[cold]
    pub(crate) fn followed(&self, batch: &Batch, lanes: Lanes) -> Lanes {
        let Some(probe) = &self.probe else { return Lanes::NONE };
        let flows = &probe.filter.flows;
        lanes
            .filter(|&lane| flows.contains(&self.pool.key(batch, lane).flow()))
            .fold(Lanes::NONE, Lanes::with)
    }

    /// Sends a step of each of `lanes` that is traced.
    #[cold]
    pub(crate) fn tell(&mut self, batch: &Batch, lanes: Lanes, step: impl Fn(usize) -> Step) {
        for lane in self.followed(batch, lanes) {
            self.send(batch.frames[lane].buf(), step(lane));
        }
    }

    /// Sends a step of the frame in pool buffer `frame`. If the reader has gone, stops tracing.
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
        one.drain().for_each(drop); // the frames are unbacked
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

    /// Frames of these flows.
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
        let (mut tracer, batch) = (Tracer::new(3, Pool::new(1, 64)), batch(&[A, B]));
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
        let (mut tracer, batch) = (Tracer::new(0, Pool::new(1, 64)), batch(&[A, B]));
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

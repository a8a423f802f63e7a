//! Observers of the walk: times by stage, traces of followed flows, the log of drops, samples for the
//! elephant detector. The walk makes one call a stage.
//!
//! ```text
//!  stage ──> Observers ──┬─ Stopwatch   ns and frames by stage, in one of 17 ticks
//!                        ├─ Tracer      the steps of followed frames, the last drops
//!                        └─ Sampling    frames and drops of this core, for the elephant detector
//! ```
//!
//! Cost when off: one branch each for a batch; nothing for a frame.
//!
//! Thread-safety: a core's own.

use flowyard_flow::Look;
use flowyard_frame::{Batch, LANES, Lanes, Nanos, To};

use super::parts::Entry;
use crate::counters::DropReason;
use crate::elephants::Sampling;
use crate::front::Gate;
use crate::places::Places;
use crate::port::Received;
use crate::stages::{Span, Stopwatch};
use crate::trace::{Step, Tracer, Why};

/// All that observes the walk of one core.
pub(crate) struct Observers {
    pub(crate) stopwatch: Stopwatch,
    /// Records for `flowyard trace` and the drop log.
    pub(crate) tracer: Tracer,
    /// Samples of this core, where flows may be split.
    pub(crate) sampling: Option<Box<Sampling>>,
    /// By it, what answers in front of the ports learns when no frame is in the core.
    pub(crate) gate: Option<Box<Gate>>,
}

/// What is known of the lanes of followed flows before they settle.
pub(super) struct BeforeSettle {
    lanes: Lanes,
    looks: [Option<Look>; LANES],
    asked: [To; LANES],
    bufs: [u32; LANES],
}

impl Observers {
    /// A tick begins.
    #[inline]
    pub(super) fn tick(&mut self, now: Nanos) {
        self.stopwatch.tick();
        self.tracer.tick(now);
    }

    /// A tick ends, with or without progress.
    #[inline]
    pub(super) const fn ticked(&mut self, progress: bool) {
        self.stopwatch.ticked(progress);
    }

    /// The first stage of a part of the walk begins.
    #[inline]
    pub(super) fn start(&mut self) {
        self.stopwatch.start();
    }

    /// A stage ends, with `frames` frames.
    #[inline]
    pub(super) fn stage(&mut self, span: Span, frames: usize) {
        self.stopwatch.lap(span, frames);
    }

    /// rx is done.
    #[inline]
    pub(super) fn received(&mut self, port: u16, got: &Received, frames: usize) {
        self.stopwatch.lap(Span::Rx, frames);
        if let Some(gate) = &mut self.gate {
            gate.took(port, got, frames);
        }
        if got.drops_some() {
            for (reason, frames) in got.dropped() {
                if frames > 0 {
                    self.tracer.dropped_at_port(port, reason, frames);
                }
            }
        }
    }

    /// steer is done; the work answered the lanes `front`.
    #[inline]
    pub(super) fn steered(&mut self, entry: &mut Entry, front: Lanes) {
        self.stopwatch.lap(Span::Steer, entry.batch.len());
        if self.tracer.on {
            self.trace_steered(entry, front);
        }
    }

    #[cold]
    fn trace_steered(&mut self, entry: &mut Entry, front: Lanes) {
        let (tracer, batch) = (&mut self.tracer, &entry.batch);
        for lane in tracer.followed(batch, batch.lanes()) {
            let (frame, key) = (&batch.frames[lane], batch.keys[lane]);
            let (buf, hash, bytes) = (frame.buf(), frame.hash, frame.len() as u32);
            tracer.send(buf, Step::Received { key, hash, bytes });
            if front.has(lane) {
                let action = batch.actions[lane];
                tracer.send(buf, Step::Answered { table: Step::FRONT, entry: None, action });
                continue;
            }
            // Asked once more, alone: the walk of a batch does not say which table answered.
            let mark = frame.mark;
            let Some(one) = tracer.one(&key, hash) else { return };
            one.frames[0].mark = mark;
            let table = entry.steer.ask(one);
            let action = one.actions[0];
            let entry = entry.steer.is_last(table).then(|| hash & entry.steer.spread.mask());
            tracer.send(buf, Step::Answered { table: table as u16, entry, action });
        }
    }

    /// settle begins.
    #[inline]
    pub(super) fn before_settle(
        &mut self,
        entry: &Entry,
        places: &Places,
    ) -> Option<Box<BeforeSettle>> {
        if self.tracer.on { self.look_before_settle(entry, places) } else { None }
    }

    #[cold]
    fn look_before_settle(&self, entry: &Entry, places: &Places) -> Option<Box<BeforeSettle>> {
        let lanes = self.tracer.followed(&entry.batch, entry.batch.lanes());
        let (looks, asked, bufs) = ([None; LANES], [To::DROP; LANES], [0; LANES]);
        let mut before = Box::new(BeforeSettle { lanes, looks, asked, bufs });
        for lane in lanes {
            let (frame, key) = (&entry.batch.frames[lane], &entry.batch.keys[lane]);
            let settle = entry.settle.as_ref();
            before.looks[lane] = settle.and_then(|settle| settle.look(frame, key, places));
            before.asked[lane] = entry.batch.actions[lane].to;
            before.bufs[lane] = frame.buf();
        }
        Some(before)
    }

    /// settle is done.
    #[inline]
    pub(super) fn settled(
        &mut self,
        entry: &Entry,
        places: &Places,
        before: Option<Box<BeforeSettle>>,
    ) {
        if let Some(before) = before {
            self.trace_settled(entry, places, &before);
        }
    }

    #[cold]
    fn trace_settled(&mut self, entry: &Entry, places: &Places, before: &BeforeSettle) {
        for lane in before.lanes {
            let (asked, home) = (before.asked[lane], entry.homes[lane]);
            let held = !entry.waiting.has(lane);
            let why = match before.looks[lane] {
                _ if entry.settle.is_none() => Why::Off,
                _ if places.get(asked).is_none() => Why::Nowhere,
                None => Why::First,
                Some(look) if held => Why::HeldBack { head: look.head, last: look.last },
                Some(look) if look.home == asked => Why::Home,
                Some(look) if home == asked => Why::Moves { from: look.home },
                Some(look) => Why::InFlight { head: look.head, last: look.last },
            };
            self.tracer.send(before.bufs[lane], Step::Settled { said: asked, home, why });
        }
    }

    /// enqueue is done, for `frames` frames.
    #[inline]
    pub(super) fn enqueued(&mut self, entry: &Entry, frames: u32) {
        if self.tracer.on {
            let waits = |lane| Step::Waits { home: entry.homes[lane] };
            self.tracer.tell(&entry.batch, entry.waiting, waits);
        }
        self.stopwatch.lap(Span::Enqueue, frames as usize);
    }

    /// Counts frames that did not fit into a queue that drops.
    #[inline]
    pub(super) fn queue_full(&mut self, to: To, frames: u32) {
        if let (To::Queue(queue), Some(sampling)) = (to, &mut self.sampling) {
            sampling.dropped(queue, frames);
        }
    }

    /// work is done, on a batch that is open in `queue`; it took `took` of a virtual clock.
    #[inline]
    pub(super) fn worked(&mut self, queue: u16, batch: &Batch, took: Nanos) {
        self.stopwatch.lap(Span::Work, batch.len());
        self.stopwatch.charge(Span::Work, batch.len(), took);
        if let Some(sampling) = &mut self.sampling {
            sampling.work(batch);
        }
        if self.tracer.on {
            self.trace_worked(queue, batch);
        }
    }

    #[cold]
    fn trace_worked(&mut self, queue: u16, batch: &Batch) {
        if let Some(sampler) = &mut self.tracer.sampler {
            sampler.sample(batch, batch.lanes());
        }
        let step = |lane: usize| Step::Worked { queue, to: batch.actions[lane].to };
        self.tracer.tell(batch, batch.lanes(), step);
    }

    /// Of the lanes that a port took, `sent` were transmitted and the others dropped.
    #[inline]
    pub(super) fn sent(&mut self, port: u16, batch: &Batch, taken: Lanes, sent: Lanes) {
        self.dropped(batch, taken.without(sent), To::Port(port));
        if self.tracer.on {
            self.tracer.tell(batch, sent, |_| Step::Sent { port });
        }
    }

    /// `lanes` are dropped at `place`, for the reason in their actions.
    #[inline]
    pub(super) fn dropped(&mut self, batch: &Batch, lanes: Lanes, place: To) {
        self.tracer.dropped_as_said(batch, lanes, place);
    }

    /// `lanes` are dropped for `reason`, at `place` or on their way there.
    #[inline]
    pub(super) fn dropped_for(
        &mut self,
        batch: &Batch,
        lanes: Lanes,
        reason: DropReason,
        place: To,
    ) {
        self.tracer.dropped(batch, lanes, reason, place);
    }
}

//! The walk of frames that someone follows: the same stages, each telling what it did and why.
//!
//! Only called while a probe or a sampler is there, see [`crate::watch`].

use flowyard_frame::{Lanes, Nanos, To};

use super::Core;
use crate::watch::{Step, Why};

impl Core {
    /// rx, parse, steer are done: their part, told.
    #[cold]
    pub(super) fn tell_received(&mut self, front: Lanes) {
        let (watch, entry) = (&mut self.watch, &mut self.entry);
        let batch = &entry.batch;
        for lane in watch.followed(batch, batch.lanes()) {
            let (frame, key) = (&batch.frames[lane], batch.keys[lane]);
            let (buf, hash, bytes) = (frame.buf(), frame.hash, frame.len() as u32);
            watch.send(buf, Step::Received { key, hash, bytes });
            if front.has(lane) {
                let action = batch.actions[lane];
                watch.send(buf, Step::Answered { table: Step::FRONT, entry: None, action });
                continue;
            }
            // Asked once more, alone: the walk of a batch does not say which table it was.
            let Some(one) = watch.one(&key, hash) else { return };
            let table = entry.steer.ask(one);
            let action = one.actions[0];
            let entry = entry.steer.is_last(table).then(|| hash & entry.steer.spread.mask());
            watch.send(buf, Step::Answered { table: table as u16, entry, action });
        }
    }

    /// The settle stage, told. With a time flows may be held back, as without.
    #[cold]
    pub(super) fn settle_told(&mut self, now: Option<Nanos>) {
        let (watch, entry) = (&mut self.watch, &mut self.entry);
        let lanes = watch.followed(&entry.batch, entry.batch.lanes());
        let mut before = [None; flowyard_frame::LANES];
        let mut said = [To::Drop; flowyard_frame::LANES];
        let mut bufs = [0; flowyard_frame::LANES];
        for lane in lanes {
            let look = |settle: &flowyard_flow::Settle| {
                settle.look(&entry.batch.frames[lane], &entry.batch.keys[lane], &*self.places)
            };
            before[lane] = entry.settle.as_ref().and_then(look);
            said[lane] = entry.batch.actions[lane].to;
            bufs[lane] = entry.batch.frames[lane].buf();
        }
        entry.settle(&self.places, now);
        for lane in lanes {
            let (said, home) = (said[lane], entry.homes[lane]);
            let held = !entry.waiting.has(lane);
            let why = match before[lane] {
                _ if entry.settle.is_none() => Why::Off,
                _ if self.places.get(said).is_none() => Why::Nowhere,
                None => Why::First,
                Some(look) if held => Why::HeldBack { head: look.head, last: look.last },
                Some(look) if look.home == said => Why::Home,
                Some(look) if home == said => Why::Moves { from: look.home },
                Some(look) => Why::InFlight { head: look.head, last: look.last },
            };
            watch.send(bufs[lane], Step::Settled { said, home, why });
        }
    }

    /// Lanes that have to wait for room, told.
    #[cold]
    pub(super) fn tell_waiting(&mut self) {
        let entry = &self.entry;
        self.watch
            .tell(&entry.batch, entry.waiting, |lane| Step::Waits { home: entry.homes[lane] });
    }

    /// The work on the batch that is open in `queue`, told and sampled.
    #[cold]
    pub(super) fn tell_worked(&mut self, queue: u16) {
        let batch = &self.server.batch;
        if let Some(sampler) = &mut self.watch.sampler {
            sampler.sample(batch, batch.lanes());
        }
        self.watch
            .tell(batch, batch.lanes(), |lane| Step::Worked { queue, to: batch.actions[lane].to });
    }

    /// Lanes of exit `at` that were transmitted, told.
    #[cold]
    pub(super) fn tell_sent(&mut self, at: usize, sent: Lanes) {
        let exit = &self.exits[at];
        self.watch.tell(&exit.batch, sent, |_| Step::Sent { port: exit.port });
    }
}

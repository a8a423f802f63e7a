//! Coalesces TCP segments in front of a port that passes on long frames: the packets that an IPsec gateway has opened arrive one by
//! one, and the next kernel receives them as one frame.
//!
//! ```text
//!  batch  [a1] [b1] [a2] [arp] [a3] [b2]
//!  port   [arp] [a1 a2 a3, to be cut again] [b1 b2, to be cut again]       a frame of the batch, or a long copy
//!                 └─ taken, refused or left: so are the lanes of a1, a2 and a3
//! ```
//!
//! The rules are those of `flowyard_wire::coalesce`. Nothing waits for a later batch, and there is no state between two calls: the
//! frames of the batch stay where they are until the port has taken the long frame.
//!
//! Invariants: frames of a flow keep their order. Each frame of the batch counts as one transmitted frame, or as one drop with the
//! reason of its long frame. Frames that the port cannot take yet are offered again, and coalesced again.
//! Thread-safety: used by one core.

use std::ops::Range;

use flowyard_frame::{Batch, FlowKey, Frame, LANES, Lanes, Nanos};
use flowyard_pool::{Meta, Pool};
use flowyard_wire::Offload;
use flowyard_wire::coalesce::{Rules, Step, Table, Then};
use flowyard_yard::port::{Finished, Tx};

use super::coalesce::may_be_coalesced;

/// The transmitting half of a port, with long frames in place of segments.
pub struct CoalesceTx {
    inner: Box<dyn Tx>,
    pool: Pool,
    table: Table,
    /// The groups that are open, by slot of the table.
    open: [Group; Table::FLOWS],
    /// The groups of the batch, in the order in which they leave.
    groups: [Group; LANES],
    count: usize,
    /// What the port is offered: a frame for each group.
    out: Batch,
    coalesced: u64,
}

/// Frames that leave together.
#[derive(Debug, Default)]
struct Group {
    /// Their lanes.
    lanes: Lanes,
    /// The long frame that has their bytes; empty if the group has one frame.
    long: Frame,
}

impl CoalesceTx {
    /// In front of `inner`, which passes on long frames. These take their buffers from `pool`.
    #[must_use]
    pub fn new(inner: Box<dyn Tx>, pool: Pool) -> Self {
        let rules = Rules { udp: false, tunnels: false, longest: pool.longest_large() };
        Self {
            inner,
            table: Table::new(rules),
            open: Default::default(),
            groups: Default::default(),
            count: 0,
            out: Batch::default(),
            coalesced: 0,
            pool,
        }
    }

    /// Puts the frames of `lanes` into groups.
    fn group(&mut self, from: &Batch, lanes: Lanes) {
        for lane in lanes {
            let Step { flush, then } = self.offer(&from.frames[lane]);
            self.close(flush);
            let alone = Group { lanes: Lanes::NONE.with(lane), long: Frame::default() };
            match then {
                Then::Open(slot) => self.open[slot] = alone,
                Then::Append { slot, payload, close } => {
                    if !self.append(slot, from, lane, payload) {
                        // No buffer is free: the first frame is still alone, and both leave as they are.
                        self.close(1 << slot);
                        self.add(alone);
                    } else if close {
                        self.close(1 << slot);
                    }
                }
                Then::Pass => self.add(alone),
            }
        }
        self.close(self.table.slots());
    }

    /// What to do with a frame.
    fn offer(&mut self, frame: &Frame) -> Step {
        let (meta, bytes) = (self.pool.meta(frame), self.pool.bytes(frame));
        if !may_be_coalesced(meta, bytes) {
            return Step { flush: self.table.slots(), then: Then::Pass };
        }
        self.table.offer(bytes, meta.offload.has(Offload::VALID))
    }

    /// Adds a part of the frame of `lane` to the group of `slot`. Returns whether there was a buffer for it; there is always one for
    /// further parts.
    fn append(&mut self, slot: usize, from: &Batch, lane: usize, part: Range<usize>) -> bool {
        let Self { open, pool, .. } = self;
        let Group { lanes, long } = &mut open[slot];
        if let Some(only) = alone(*lanes) {
            let first = &from.frames[only];
            let Ok(copy) = pool.take_large(first.len(), pool.meta(first)) else { return false };
            *long = copy;
            pool.bytes_mut(long).copy_from_slice(pool.bytes(first));
            (long.hash, long.mark) = (first.hash, first.mark);
        }
        let old = long.len();
        let part = &pool.bytes(&from.frames[lane])[part];
        pool.set_len(long, old + part.len());
        pool.bytes_mut(long)[old..].copy_from_slice(part);
        *lanes = lanes.with(lane);
        true
    }

    /// Ends the groups of `slots`, in the order in which they were opened.
    fn close(&mut self, slots: u32) {
        while let Some(slot) = self.table.oldest(slots) {
            let mut group = std::mem::take(&mut self.open[slot]);
            let offload = self.table.close(slot, self.pool.bytes_mut(&mut group.long));
            if let Some(offload) = offload.filter(|_| group.lanes.count() > 1) {
                let long = &mut group.long;
                let meta = Meta { wire_len: long.len() as u32, offload, ..self.pool.meta(long) };
                self.pool.set_meta(long, meta);
            }
            self.add(group);
        }
    }

    /// Puts a group behind the others. There are no more of them than lanes.
    fn add(&mut self, group: Group) {
        self.groups[self.count] = group;
        self.count += 1;
    }

    /// Offers a frame for each group to the port. Returns the lanes that it cannot take yet.
    fn send(&mut self, from: &mut Batch, pool: &Pool, now: Nanos) -> Lanes {
        let Self { inner, out, groups, count, coalesced, pool: own, .. } = self;
        let groups = &mut groups[..std::mem::take(count)];
        for group in &mut *groups {
            let frame = match alone(group.lanes) {
                Some(lane) => &mut from.frames[lane],
                None => &mut group.long,
            };
            let to = { group.lanes }.next().map(|first| from.actions[first]).unwrap_or_default();
            if let Ok(at) = out.push(std::mem::take(frame), FlowKey::ZERO) {
                out.actions[at] = to;
            }
        }
        let later = inner.tx(out, out.lanes(), pool, now);
        let mut left = Lanes::NONE;
        for (at, &Group { lanes, .. }) in groups.iter().enumerate() {
            let (frame, to) = (std::mem::take(&mut out.frames[at]), out.actions[at].to);
            if later.has(at) {
                left.0 |= lanes.0;
            } else if to.is_drop() {
                lanes.each(|lane| from.actions[lane].to = to);
            } else {
                *coalesced += u64::from(lanes.count()) - 1;
            }
            match alone(lanes) {
                Some(lane) => from.frames[lane] = frame,
                None => own.put(frame),
            }
        }
        out.set_len(0);
        left
    }
}

/// The lane, if it is the only one.
fn alone(mut lanes: Lanes) -> Option<usize> {
    lanes.next().filter(|_| lanes.is_empty())
}

impl Tx for CoalesceTx {
    fn tx(&mut self, from: &mut Batch, lanes: Lanes, pool: &Pool, now: Nanos) -> Lanes {
        if lanes.count() < 2 {
            return self.inner.tx(from, lanes, pool, now);
        }
        self.group(from, lanes);
        if self.count == lanes.count() as usize {
            // Each frame is alone.
            self.count = 0;
            return self.inner.tx(from, lanes, pool, now);
        }
        self.send(from, pool, now)
    }

    fn attend(&mut self) {
        self.inner.attend();
    }

    fn is_clear(&mut self) -> bool {
        self.inner.is_clear()
    }

    fn has_failed(&self) -> bool {
        self.inner.has_failed()
    }

    fn finished(&self) -> Finished {
        Finished { coalesced: self.coalesced, ..self.inner.finished() }
    }

    fn close(&mut self) -> Result<(), String> {
        self.inner.close()
    }
}

#[cfg(test)]
mod tests;

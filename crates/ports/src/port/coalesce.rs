//! Coalesces received TCP frames (generic receive offload): frames of a flow that came in one batch become one long frame.
//!
//! ```text
//!  port ──rx──> [a1] [b1] [a2] [arp] [a3] [b2] ──> [arp] [a1 a2 a3, to be cut again] [b1 b2, to be cut again]
//! ```
//!
//! The work then handles one frame in place of many. A port that passes on long frames transmits it whole; every other port cuts it
//! into the frames that came, byte for byte (see `Finish`). The rules are those of `flowyard_wire::coalesce`. Nothing waits for a
//! later batch.
//!
//! Invariants: the frames of a flow keep their order; all frames are in the batch, joined or as they came. A frame that the table
//! may not see (unfinished, not whole, not Ethernet, or with another mark than an open frame) is behind every frame that
//! came before it.
//! Thread-safety: used by one core.

use std::ops::Range;

use flowyard_frame::{Batch, Frame, LANES};
use flowyard_pool::{Meta, Pool};
use flowyard_wire::coalesce::{Rules, Step, Table, Then};
use flowyard_wire::{LinkType, Offload, Segment};
use flowyard_yard::port::Received;

use super::behind;

/// Coalesces the frames of each batch.
pub struct Coalesce {
    table: Table,
    /// The open frames, by slot of the table.
    open: [Frame; Table::FLOWS],
    /// The slots, by bit, whose frames are in buffers for long frames.
    long: u32,
}

impl Coalesce {
    /// Coalesces frames into frames of at most `longest` bytes: `Pool::longest_large`.
    #[must_use]
    pub fn new(longest: usize) -> Self {
        // The yard orders frames in tunnels by the outer addresses, so flows in one tunnel must not overtake each other.
        let rules = Rules { udp: false, tunnels: false, longest };
        Self { table: Table::new(rules), open: Default::default(), long: 0 }
    }

    /// Coalesces the frames of `batch`. Returns how many of them became parts of others.
    fn coalesce(&mut self, batch: &mut Batch, pool: &mut Pool) -> u32 {
        let came = batch.len().min(LANES);
        let mut kept = 0;
        for lane in 0..came {
            let frame = std::mem::take(&mut batch.frames[lane]);
            let Step { flush, then } = self.offer(&frame, pool);
            self.close(flush, batch, &mut kept, pool);
            match then {
                Then::Open(slot) => self.open[slot] = frame,
                Then::Append { slot, payload, close } => {
                    if self.append(slot, &frame, payload, pool) {
                        pool.put(frame);
                        self.close(if close { 1 << slot } else { 0 }, batch, &mut kept, pool);
                    } else {
                        // No buffer is free: the first frame is still alone, and both stay as they came.
                        self.close(1 << slot, batch, &mut kept, pool);
                        keep(batch, &mut kept, frame);
                    }
                }
                Then::Pass => keep(batch, &mut kept, frame),
            }
        }
        self.close(self.table.slots(), batch, &mut kept, pool);
        batch.set_len(kept);
        (came - kept) as u32
    }

    /// What to do with a frame.
    fn offer(&mut self, frame: &Frame, pool: &Pool) -> Step {
        let (meta, bytes) = (pool.meta(frame), pool.bytes(frame));
        let slots = self.table.slots();
        let is_marked_alike =
            (0..Table::FLOWS).all(|at| slots >> at & 1 == 0 || self.open[at].mark == frame.mark);
        if !(may_be_coalesced(meta, bytes) && is_marked_alike) {
            return Step { flush: slots, then: Then::Pass };
        }
        self.table.offer(bytes, meta.offload.has(Offload::VALID))
    }

    /// Adds a part of `frame` to the frame of `slot`. Returns whether there was a buffer for it; there is always one for further parts.
    fn append(&mut self, slot: usize, frame: &Frame, part: Range<usize>, pool: &mut Pool) -> bool {
        let first = &mut self.open[slot];
        let old = first.len();
        if self.long >> slot & 1 == 0 {
            let Ok(mut long) = pool.take_large(old, pool.meta(first)) else { return false };
            pool.bytes_mut(&mut long).copy_from_slice(pool.bytes(first));
            (long.hash, long.mark) = (first.hash, first.mark);
            pool.put(std::mem::replace(first, long));
            self.long |= 1 << slot;
        }
        let part = &pool.bytes(frame)[part];
        pool.set_len(first, old + part.len());
        pool.bytes_mut(first)[old..].copy_from_slice(part);
        true
    }

    /// Puts the frames of `slots` into the batch, in the order in which they were opened.
    fn close(&mut self, slots: u32, batch: &mut Batch, kept: &mut usize, pool: &Pool) {
        while let Some(slot) = self.table.oldest(slots) {
            let mut frame = std::mem::take(&mut self.open[slot]);
            self.long &= !(1 << slot);
            let offload = self.table.close(slot, pool.bytes_mut(&mut frame));
            if let Some(offload) = offload.filter(|offload| !offload.is_none()) {
                let meta = Meta { wire_len: frame.len() as u32, offload, ..pool.meta(&frame) };
                pool.set_meta(&mut frame, meta);
            }
            keep(batch, kept, frame);
        }
    }
}

/// Whether a frame may be shown to the table: a finished Ethernet frame of which nothing is missing.
pub(super) fn may_be_coalesced(meta: Meta, bytes: &[u8]) -> bool {
    let is_finished = meta.offload.segment == Segment::None && !meta.offload.has(Offload::PARTIAL);
    is_finished && meta.link == LinkType::Ethernet && meta.wire_len as usize == bytes.len()
}

/// Puts a frame into the next lane of those that stay. No more frames stay than were taken out of the batch, so the lane is free.
fn keep(batch: &mut Batch, kept: &mut usize, frame: Frame) {
    batch.frames[*kept] = frame;
    *kept += 1;
}

impl behind::Step for Coalesce {
    fn step(&mut self, batch: &mut Batch, pool: &mut Pool, got: &mut Received) {
        if batch.len() > 1 {
            got.coalesced += self.coalesce(batch, pool);
        }
    }
}

#[cfg(test)]
pub(super) mod tests;

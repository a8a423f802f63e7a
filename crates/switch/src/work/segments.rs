//! Unfinished frames that the tables cannot process as they are: see `crate::unfinished`.
//!
//! ```text
//!  look all ─> act .. act | a frame is completed, or cut: look the rest again ─> act .. act
//! ```

use flowyard_frame::{Batch, Lanes, Nanos};
use flowyard_pool::{Meta, Pool};
use flowyard_wire::segment::Cut;
use flowyard_wire::{Offload, offload};
use flowyard_yard::DropReason;
use flowyard_yard::port::refuse;

use super::leave::{Copies, MOST};
use super::{Switch, arrival};
use crate::{Preparation, Reason};

impl Switch {
    /// Processes the frames in `lanes`, which were looked up. Returns those that are to be looked up again.
    pub(super) fn act<'a>(
        &mut self,
        batch: &mut Batch,
        (lanes, unfinished): (&'a [usize], Lanes),
        pool: &Pool,
        now: Nanos,
    ) -> &'a [usize] {
        for (place, &lane) in lanes.iter().enumerate() {
            let mut left = Offload::NONE;
            if unfinished.has(lane) {
                left = pool.meta(&batch.frames[lane]).offload;
                match self.datapath.preparation(place, left) {
                    Preparation::Nothing => {}
                    Preparation::Complete => {
                        let is_here = complete(batch, lane, pool);
                        return &lanes[place + usize::from(!is_here)..];
                    }
                    Preparation::Cut => {
                        self.cut(batch, lane, pool, now);
                        return &lanes[place + 1..];
                    }
                }
            }
            let frame = (pool.bytes(&batch.frames[lane]), left);
            self.datapath.act_on(place, frame, now, &mut self.out);
            self.leave(batch, lane, pool, now);
        }
        &[]
    }

    /// Cuts the frame in `lane`, and processes each segment as a frame.
    #[cold]
    fn cut(&mut self, batch: &mut Batch, lane: usize, pool: &Pool, now: Nanos) {
        let (meta, from) = {
            let frame = &batch.frames[lane];
            (pool.meta(frame), arrival(&self.hub.settings.ports, batch.keys[lane].in_port))
        };
        let Ok(cut) = Cut::new(pool.bytes(&batch.frames[lane]), meta.offload) else {
            return refuse(batch, lane, DropReason::Malformed);
        };
        if cut.count() > MOST {
            return refuse(batch, lane, DropReason::TooManyCopies);
        }
        let frame = &batch.frames[lane];
        let (mut missing, mut reason) = (0, None);
        for n in 0..cut.count() {
            self.segment.resize(cut.len(n), 0);
            cut.write(pool.bytes(frame), n, &mut self.segment);
            self.datapath.process(&self.segment, from, now, &mut self.out);
            reason = reason.or(self.out.reason);
            let own = self.pool.get_or_insert_with(|| pool.share());
            let (list, tags) = (&mut self.leaving, (frame.hash, frame.mark));
            let mut copies = Copies { own, list, meta, tags, missing };
            for sent in &self.out.sent {
                let at = self.numbers.binary_search_by_key(&sent.port, |(number, _)| *number);
                match at {
                    Ok(at) => {
                        let bytes = self.out.bytes(sent, &self.segment);
                        copies.add(bytes, Offload::NONE, self.numbers[at].1);
                    }
                    Err(_) => copies.missing += 1,
                }
            }
            missing = copies.missing;
        }
        if self.leaving.is_empty() && missing == 0 {
            return refuse(batch, lane, Reason::counted(reason));
        }
        self.tie(batch, lane, missing, pool, now);
    }
}

/// Completes the checksum of the frame in `lane`. Refuses the frame if that is not possible, and returns false.
#[cold]
fn complete(batch: &mut Batch, lane: usize, pool: &Pool) -> bool {
    let frame = &mut batch.frames[lane];
    let meta = pool.meta(frame);
    if !offload::complete(pool.bytes_mut(frame), meta.offload) {
        refuse(batch, lane, DropReason::Malformed);
        return false;
    }
    pool.set_meta(frame, Meta { offload: Offload::NONE, ..meta });
    true
}

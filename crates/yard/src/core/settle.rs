//! The settle stage of a core: which place each lane enters.
//!
//! ```text
//!  table        port 3           queue 2          queue 9 (unknown)
//!  home         queue 1 (busy)   queue 2          none: dropped, `no_route`
//!  carried      port 3           queue 2
//! ```
//!
//! A port is an answer, not a place to wait: the action keeps it while the frame waits in a queue.

use flowyard_frame::{Action, LANES, Lanes, Nanos, To};

use super::parts::Entry;
use crate::places::{Full, Place, Places};

impl Entry {
    /// settle: the home of each lane. The mark of the matched entry is carried with the frame. With a time,
    /// lanes of held flows are held back and get no home.
    #[inline]
    pub(super) fn settle(&mut self, places: &Places, now: Option<Nanos>) {
        let Self { batch, homes, settle, hold, waiting, .. } = self;
        let mut said = [To::DROP; LANES];
        let mut known = Lanes::NONE;
        let mut last = (To::DROP, false); // most frames of a batch go to few places
        for lane in batch.lanes() {
            let Action { to, mark, .. } = batch.actions[lane];
            batch.frames[lane].mark = mark;
            (said[lane], homes[lane]) = (to, to);
            if to != last.0 {
                last = (to, places.get(to).is_some()); // places that do not exist have no flows
            }
            known.0 |= u32::from(last.1) << lane;
        }
        *waiting = batch.lanes();
        if let Some(settle) = settle {
            if now.is_some() {
                let held = hold.take(settle, batch, known);
                (known, *waiting) = (known.without(held), waiting.without(held));
            }
            if !settle.settle(batch, known, places) {
                return; // in most batches: each frame goes where its flow is
            }
            for lane in known {
                homes[lane] = batch.actions[lane].to;
                if homes[lane] != said[lane] {
                    let waits = |place: &Place| place.full == Full::Hold;
                    let may_wait = places.get(homes[lane]).is_some_and(waits);
                    let frame = (&batch.frames[lane], &batch.keys[lane]);
                    hold.consider(settle, frame, may_wait, now);
                }
                if matches!(said[lane], To::Port(_)) {
                    batch.actions[lane].to = said[lane];
                }
            }
        }
    }
}

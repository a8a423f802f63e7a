//! The settle stage of a core: which place each lane enters.
//!
//! ```text
//!  table        port 3           queue 2          queue 9 (unknown)
//!  home         queue 1 (busy)   queue 2          none: dropped, `no_route`
//!  carried      port 3           queue 2
//! ```
//!
//! A port is an answer, not a place to wait: the action keeps it while the frame waits in a queue.

use flowyard_frame::{LANES, Lanes, Nanos, To};

use super::parts::Entry;
use crate::places::{Full, Place, Places};

impl Entry {
    /// settle: the home of each lane. With a time, lanes of held flows are held back and get no home.
    #[inline]
    pub(super) fn settle(&mut self, places: &Places, now: Option<Nanos>) {
        let len = self.batch.len();
        let Self { batch, homes, common, settle, hold, waiting, .. } = self;
        let actions = &batch.actions;
        let first = actions[0].to;
        let mut same = true;
        for lane in 0..len.min(LANES) {
            homes[lane] = actions[lane].to;
            same &= homes[lane] == first;
        }
        *waiting = batch.lanes();
        *common = same.then_some(first);
        let mut known = exist(places, homes, *waiting, *common);
        if let Some(settle) = settle {
            if now.is_some() {
                let held = hold.take(settle, batch, known);
                (known, *waiting) = (known.without(held), waiting.without(held));
            }
            if !settle.settle(batch, known, places) {
                return; // in most batches: each frame goes where its flow is
            }
            let said = *homes;
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
            let same = homes[..len].iter().all(|&home| home == homes[0]);
            *common = same.then_some(homes[0]);
        }
    }
}

/// The lanes of `lanes` whose place exists; a place that does not exist has no flows. `common` is the place of all
/// lanes, if there is one.
#[inline]
fn exist(places: &Places, homes: &[To; LANES], lanes: Lanes, common: Option<To>) -> Lanes {
    let exists = |to| places.get(to).is_some();
    if let Some(to) = common {
        return if exists(to) { lanes } else { Lanes::NONE };
    }
    let mut last = (To::DROP, false); // most frames of a batch go to few places
    let known = |&lane: &usize| {
        if homes[lane] != last.0 {
            last = (homes[lane], exists(homes[lane]));
        }
        last.1
    };
    lanes.filter(known).fold(Lanes::NONE, Lanes::with)
}

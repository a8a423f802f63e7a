//! Noted: frames that the port mapping has answered, until they are counted in their flows and tables.
//!
//! ```text
//!  front ──note──> entry of the mapping        one cache line for each frame
//!                     └──count_noted──> path, counters of the flow, lookups of the table      two more, now and then
//! ```
//!
//! Noted frames are counted when none was noted for [`PAUSE`], or for [`QUIET`] calls of [`Datapath::count_if_due`], so whatever
//! a core has answered is counted when it becomes idle, and not between two batches; under load, [`LAG`] after the first was
//! noted; and in any case before the paths or the entries change that they are noted for.
//!
//! Thread-safety: owned by one core.

use super::Datapath;
use crate::mapping::Noted;

/// How long a core that is never idle keeps frames noted, in nanoseconds.
const LAG: u64 = 50_000_000;
/// How long no frame is noted if a core is idle, in nanoseconds. A core that is faster than its port
/// has tens of such calls after every batch, and would count each frame alone.
const PAUSE: u64 = 20_000;
/// The number of calls of [`Datapath::count_if_due`] that say the same, for clocks that stand still.
pub(super) const QUIET: u32 = 1024;
/// Entries whose frames are counted together, so that their memory is fetched at the same time.
const TOGETHER: usize = 32;

impl Datapath {
    /// Counts noted frames when it is time to. Called once a tick. Returns whether some are still noted, so that a run does not
    /// end, and a core does not sleep, before they are counted.
    #[inline]
    pub fn count_if_due(&mut self, now: u64) -> bool {
        let pause = now.saturating_sub(self.noted_at);
        let is_idle = self.quiet >= QUIET || self.quiet > 0 && pause >= PAUSE;
        if is_idle || now.saturating_sub(self.counted) >= LAG {
            (self.counted, self.quiet) = (now, 0);
            self.count_noted();
        }
        self.quiet += 1;
        self.mapping.has_noted()
    }

    /// Counts all noted frames in their flows and tables.
    #[inline]
    pub(super) fn count_noted(&mut self) {
        if self.mapping.has_noted() {
            self.count_all_noted();
        }
    }

    fn count_all_noted(&mut self) {
        let mut noted = [Noted::default(); TOGETHER];
        loop {
            let count = self.mapping.take_noted(&mut noted);
            if count == 0 {
                return;
            }
            for Noted { path, .. } in &noted[..count] {
                self.cache.fetch(*path, self.core);
            }
            for Noted { path, frames, bytes, last } in &noted[..count] {
                self.count_path(*path, (*frames).into(), (*bytes).into(), *last);
            }
        }
    }

    /// Frames and bytes of a flow that are noted.
    pub(super) fn noted(&self, flow: u32) -> (u64, u64) {
        let of_flow =
            self.mapping.noted().filter(|noted| self.cache.path(noted.path).flows.contains(&flow));
        of_flow.fold((0, 0), |(frames, bytes), noted| {
            (frames + u64::from(noted.frames), bytes + u64::from(noted.bytes))
        })
    }
}

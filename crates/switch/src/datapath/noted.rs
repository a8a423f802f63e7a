//! Noted: frames that the port mapping has answered, until they are counted in their flows and tables.
//!
//! ```text
//!  front ──note──> entry of the mapping        one cache line for each frame
//!                     └──count_noted──> path, counters of the flow, lookups of the table      two more, now and then
//! ```
//!
//! Noted frames are counted when [`QUIET`] calls of [`Datapath::count_if_due`] have passed without a new one, so whatever a core
//! has answered is counted when it becomes idle, and not between two batches; under load, [`LAG`] after the first was noted; and
//! in any case before the paths or the entries change that they are noted for.
//!
//! Thread-safety: owned by one core.

use super::Datapath;
use crate::mapping::Noted;

/// How long a core that is never idle keeps frames noted, in nanoseconds.
const LAG: u64 = 50_000_000;
/// The calls of [`Datapath::count_if_due`] without a noted frame after which a core is idle. A core that is faster than its port
/// has tens of such calls after every batch, and would count each frame alone.
pub(super) const QUIET: u32 = 1024;
/// Entries whose frames are counted together, so that their memory is fetched at the same time.
const TOGETHER: usize = 32;

impl Datapath {
    /// Counts noted frames when it is time to. Called once a tick.
    #[inline]
    pub fn count_if_due(&mut self, now: u64) {
        if self.quiet >= QUIET || now.saturating_sub(self.counted) >= LAG {
            (self.counted, self.quiet) = (now, 0);
            self.count_noted();
        }
        self.quiet += 1;
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

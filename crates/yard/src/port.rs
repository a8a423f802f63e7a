//! Ports: where batches enter and leave.
//!
//! ```text
//!  Source (memory, capture) ──pace──> Rx ──> batch ... batch ──> Tx ──> memory, capture, nowhere
//!  interface ───────────────────────> Rx ──> batch ... batch ──> Tx ──> interface
//! ```
//!
//! Thread-safety: a port belongs to one core.

use flowyard_frame::{Batch, Lanes, Nanos, To};

use crate::counters::DropReason;
use flowyard_pool::Pool;

/// What one call of [`Rx::rx`] came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Received {
    /// Frames that came but are not in the batch: longer than a pool buffer.
    pub too_long: u32,
    /// Frames that came but are not in the batch: the pool was empty, and the port cannot wait.
    pub no_buffer: u32,
    /// Frames that came but are not in the batch: they have no bytes.
    pub empty: u32,
    /// Frames that came but are not in the batch: the interface's ring was full.
    pub overrun: u32,
    /// Nothing will ever come again.
    pub ended: bool,
}

impl Received {
    /// Whether some frames came but are not in the batch.
    #[must_use]
    #[inline]
    pub const fn drops_some(&self) -> bool {
        self.too_long | self.no_buffer | self.empty | self.overrun != 0
    }

    /// Frames that came but are not in the batch, by reason.
    #[must_use]
    pub const fn dropped(&self) -> [(DropReason, u32); 4] {
        [
            (DropReason::TooLong, self.too_long),
            (DropReason::NoBuffer, self.no_buffer),
            (DropReason::Empty, self.empty),
            (DropReason::Overrun, self.overrun),
        ]
    }
}

/// Where batches enter.
pub trait Rx: Send {
    /// Adds what has come by `now` to `into`, which is empty: frames with bytes and meta, keys
    /// still zero. Never waits.
    fn rx(&mut self, into: &mut Batch, pool: &mut Pool, now: Nanos) -> Received;

    /// Gives back the frames it holds that have not been received yet.
    fn close(&mut self, _pool: &mut Pool) {}

    /// What the user should know when all is over: damage, frames skipped.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Where batches leave.
pub trait Tx: Send {
    /// Transmits the frames of `lanes`, lowest first, and leaves their handles where they are, or
    /// in the place of each another frame of the pool that looks like it but for its bytes.
    /// Returns the lanes that it cannot take yet, a tail of `lanes`: they come again. A lane that
    /// it never can gets an action that drops, see [`refuse`].
    fn tx(&mut self, from: &mut Batch, lanes: Lanes, pool: &Pool, now: Nanos) -> Lanes;

    /// Finishes what was transmitted: nothing comes after.
    ///
    /// # Errors
    /// What went wrong, here or before, with the mend.
    fn close(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// Both halves of a port.
pub type Halves = (Box<dyn Rx>, Box<dyn Tx>);

/// Marks `lane` as dropped for `reason`.
#[inline]
pub fn refuse(batch: &mut Batch, lane: usize, reason: DropReason) {
    batch.actions[lane].to = To::Drop(reason.code());
}

/// Where frames vanish, counted as transmitted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Discard;

impl Tx for Discard {
    fn tx(&mut self, _from: &mut Batch, _lanes: Lanes, _pool: &Pool, _now: Nanos) -> Lanes {
        Lanes::NONE
    }
}

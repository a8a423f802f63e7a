//! Ports: traits of the places where batches enter and leave.
//!
//! ```text
//!  Source (memory, capture) ──pace──> Rx ──> batch ... batch ──> Tx ──> memory, capture, nowhere
//!  interface ───────────────────────> Rx ──> batch ... batch ──> Tx ──> interface
//! ```
//!
//! Thread-safety: a port belongs to one core.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use flowyard_frame::{Batch, Lanes, Nanos, To};

use crate::counters::DropReason;
use flowyard_pool::Pool;

/// The result of one call of [`Rx::rx`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Received {
    /// Frames not in the batch because they are longer than a pool buffer.
    pub too_long: u32,
    /// Frames not in the batch because the pool was empty and the port cannot wait.
    pub no_buffer: u32,
    /// Frames not in the batch because they have no bytes.
    pub empty: u32,
    /// Frames not in the batch because the interface's ring was full.
    pub overrun: u32,
    /// Frames not in the batch because a checksum of theirs is wrong.
    pub bad_checksum: u32,
    /// Frames by the verdict on their checksums, in the order of `flowyard_wire::Verdict::ALL`, of a port that verifies
    /// them.
    pub verdicts: [u32; 4],
    /// Frames that became parts of others in the batch, because the port coalesces frames.
    pub coalesced: u32,
    /// How often the port was opened again since the last call, because its interface was replaced or
    /// the port was stalled.
    pub reopens: u32,
    /// How often the port was found stalled since the last call: it received none of the frames that its
    /// interface counted.
    pub stalls: u32,
    /// How often the port was taken down since the last call, because the guest on its other side broke the rules.
    pub violations: u32,
    /// No frame will ever come again.
    pub ended: bool,
}

impl Received {
    /// Whether some frames are not in the batch.
    #[must_use]
    #[inline]
    pub const fn drops_some(&self) -> bool {
        self.too_long | self.no_buffer | self.empty | self.overrun | self.bad_checksum != 0
    }

    /// Frames that are not in the batch, by reason.
    #[must_use]
    pub const fn dropped(&self) -> [(DropReason, u32); 5] {
        [
            (DropReason::TooLong, self.too_long),
            (DropReason::NoBuffer, self.no_buffer),
            (DropReason::Empty, self.empty),
            (DropReason::Overrun, self.overrun),
            (DropReason::BadChecksum, self.bad_checksum),
        ]
    }
}

/// The receiving half of a port.
pub trait Rx: Send {
    /// Adds the frames that have arrived by `now` to `into`, which is empty: frames with bytes and metadata.
    /// The walk writes their keys and actions. Never waits.
    fn rx(&mut self, into: &mut Batch, pool: &mut Pool, now: Nanos) -> Received;

    /// Called in place of [`Rx::rx`] in a turn in which the core does not receive from the port, because frames that the core received
    /// earlier wait for a full queue or port.
    fn attend(&mut self) {}

    /// Returns the buffers of frames that were not received yet.
    fn close(&mut self, _pool: &mut Pool) {}

    /// Remarks for the user at the end, such as on skipped frames.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }

    /// Why not everything could be received, such as a damaged capture, and how to fix it.
    fn failure(&self) -> Option<String> {
        None
    }

    /// Duplicates of the descriptors of both halves of the port, for a process that is to take over from this one; `None` if the
    /// port cannot be handed over.
    fn descriptors(&mut self) -> Option<Descriptors> {
        None
    }

    /// From now on, [`Rx::rx`] only completes the frame that it has begun, until `paused` is false again. Frames that
    /// arrive wait in the kernel.
    fn pause(&mut self, _paused: bool) {}

    /// Where a paused port has stopped, for [`Rx::go_on`] of the process that takes over; `None` if it is in the middle of
    /// a frame.
    fn position(&mut self) -> Option<Vec<u64>> {
        None
    }

    /// Continues where the port of another process has stopped. Returns whether the position can be one of this port.
    fn go_on(&mut self, _position: &[u64], _pool: &mut Pool) -> bool {
        false
    }
}

/// What a process needs to take over both halves of a port on a core.
#[derive(Debug)]
pub struct Descriptors {
    /// Duplicates of its descriptors, in an order that its kind defines.
    pub fds: Vec<OwnedFd>,
    /// Numbers that its kind defines, such as the sizes of rings.
    pub numbers: Vec<u64>,
}

/// The transmitting half of a port.
pub trait Tx: Send {
    /// Transmits the frames of `lanes`, lowest first. It leaves their handles in the batch, or replaces a handle by
    /// another frame of the pool with the same length and metadata, but other bytes and another key in the pool. Returns
    /// the lanes that it cannot take yet, which are offered again before any other frames: with a frame all later ones of its
    /// flow. A lane that it can never take gets an action that drops, see [`refuse`].
    fn tx(&mut self, from: &mut Batch, lanes: Lanes, pool: &Pool, now: Nanos) -> Lanes;

    /// Called once in each turn of the core, behind all calls of [`Tx::tx`] of this turn, also if there was none.
    fn attend(&mut self) {}

    /// Whether nothing that it has taken waits to be transmitted.
    fn is_clear(&mut self) -> bool {
        true
    }

    /// Whether nothing will be transmitted any more, because of a failure that [`Tx::close`] reports.
    fn has_failed(&self) -> bool {
        false
    }

    /// What it has finished of the frames so far.
    fn finished(&self) -> Finished {
        Finished::default()
    }

    /// Finishes the transmission; nothing is transmitted afterwards.
    ///
    /// # Errors
    /// What failed, here or earlier, and how to fix it.
    fn close(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// What a port has finished of frames that came unfinished to it: see `flowyard_wire::Offload`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Finished {
    /// Frames that were cut.
    pub frames: u64,
    /// Segments that left in place of these.
    pub segments: u64,
    /// Checksums that were completed in frames that were not cut.
    pub checksums: u64,
    /// Frames that left as parts of longer ones.
    pub coalesced: u64,
}

/// What the ports of a core report when they are closed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Closed {
    /// Remarks for the user, such as on skipped frames.
    pub remarks: Vec<String>,
    /// Why ports could not receive or transmit everything.
    pub failed: Vec<String>,
}

/// The descriptors of the ports of a core, with the numbers of the ports.
pub type CorePorts = Arc<Vec<(u16, Descriptors)>>;

/// Both halves of a port.
pub type Halves = (Box<dyn Rx>, Box<dyn Tx>);

/// Marks `lane` as dropped for `reason`.
#[inline]
pub fn refuse(batch: &mut Batch, lane: usize, reason: DropReason) {
    batch.actions[lane].to = To::Drop(reason.code());
}

/// A port that drops every frame and counts it as transmitted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Discard;

impl Tx for Discard {
    fn tx(&mut self, _from: &mut Batch, _lanes: Lanes, _pool: &Pool, _now: Nanos) -> Lanes {
        Lanes::NONE
    }
}

//! Effects: the results of processing a frame. The data plane fills them; the caller reads and clears them.
//!
//! A frame has a budget: the buckets of groups that it meets, the frames that come of it, and their bytes. A frame
//! that exceeds it is not sent at all.
//!
//! Invariants: once the buffers have grown, only punts allocate memory. At most [`Effects::punts_max`]
//! punts wait at a time; others are counted and lost. At most [`COPIES_MAX`] frames come of one frame.
//! Thread-safety: plain data, one owner.

use flowyard_openflow::change::Punt;
use flowyard_wire::Offload;
use flowyard_yard::DropReason;

use crate::packet::Packet;

/// The buckets of groups that one frame may meet. Open vSwitch has the same limit for the resubmit actions of a
/// packet.
pub const BUCKETS_MAX: u32 = 4096;
/// The frames that may come of one frame.
pub const COPIES_MAX: usize = 4096;
/// The bytes of changed frames that may come of one frame.
const BYTES_MAX: usize = 16 << 20;

/// The bytes that are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bytes {
    /// The bytes of the received frame.
    Same,
    /// Other bytes: see [`Effects::bytes`].
    Changed {
        /// Their offset.
        at: u32,
        /// Their number.
        len: u32,
    },
}

/// A frame that is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    /// The port; of the reserved ports only `LOCAL`.
    pub port: u32,
    /// The queue of the port; 0 if none was set.
    pub queue: u32,
    /// The bytes.
    pub bytes: Bytes,
    /// What is left to do before they are on a wire.
    pub left: Offload,
}

/// A station that an output to `NORMAL` saw at a port. Other cores learn it, too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Its address.
    pub mac: [u8; 6],
    /// The VLAN id; 0 without a tag.
    pub vlan: u16,
    /// The port.
    pub port: u32,
    /// The time.
    pub at: u64,
}

/// Why a frame was not sent to any port. The first reason counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The port where it was received is unknown, down, or `OFPPC_NO_RECV`.
    NotReceived,
    /// No flow of a table matched.
    Miss,
    /// The flows that matched have no output.
    NoOutput,
    /// A meter dropped it.
    Meter,
    /// Its time to live expired.
    Ttl,
    /// The SCTP checksum could not be updated after a change.
    Incomplete,
    /// It would have become longer than a frame may be.
    TooLong,
    /// It was sent only to the port where it was received, or to ports that are down or do not forward.
    Filtered,
    /// It was sent only to a controller.
    Controller,
    /// It met more buckets of groups, or became more frames, than one frame may.
    TooManyCopies,
}

impl Reason {
    /// The reason under which such a frame is counted.
    pub(crate) const fn counted(reason: Option<Self>) -> DropReason {
        match reason {
            Some(Self::Miss) => DropReason::NoFlow,
            Some(Self::Meter) => DropReason::Metered,
            Some(Self::Ttl) => DropReason::TtlExpired,
            Some(Self::Incomplete) => DropReason::Incomplete,
            Some(Self::TooLong) => DropReason::TooLong,
            Some(Self::Filtered | Self::NotReceived) => DropReason::Filtered,
            Some(Self::Controller) => DropReason::Punted,
            Some(Self::TooManyCopies) => DropReason::TooManyCopies,
            Some(Self::NoOutput) | None => DropReason::Work,
        }
    }
}

/// The results of processing a frame, and frames for the controllers.
#[derive(Debug, Default)]
pub struct Effects {
    /// The frames to send, in this order.
    pub sent: Vec<Sent>,
    /// Why there is none.
    pub reason: Option<Reason>,
    /// Frames for the controllers; `clear` keeps them.
    pub punts: Vec<Punt>,
    /// The greatest number of punts that wait.
    pub punts_max: usize,
    /// Punts lost because too many were waiting.
    pub punts_lost: u64,
    /// Stations seen; `clear` keeps them.
    pub seen: Vec<Seen>,
    /// The bytes of changed frames.
    changed: Vec<u8>,
    /// The buckets that the frame has met.
    buckets: u32,
    /// Whether the frame has exceeded its budget.
    is_over: bool,
}

impl Effects {
    /// Empty effects that take up to `punts_max` frames for controllers.
    #[must_use]
    pub fn new(punts_max: usize) -> Self {
        Self { punts_max, ..Self::default() }
    }

    /// A frame begins to be processed, with its whole budget.
    pub(crate) const fn begin(&mut self) {
        (self.buckets, self.is_over) = (0, false);
    }

    /// The frame meets a bucket of a group. Returns whether its budget covers it.
    pub(crate) const fn meet(&mut self) -> bool {
        self.buckets += 1;
        self.is_over |= self.buckets > BUCKETS_MAX;
        !self.is_over
    }

    /// Whether the frame has exceeded its budget, so that nothing more is to be done with it.
    pub(crate) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// The frame is processed. Returns whether it exceeded its budget; then it is not sent.
    pub(crate) fn end(&mut self) -> bool {
        if self.is_over {
            self.sent.clear();
            self.changed.clear();
            self.reason = Some(Reason::TooManyCopies);
        }
        self.is_over
    }

    /// Removes the results of the last frame.
    pub fn clear(&mut self) {
        self.sent.clear();
        self.changed.clear();
        self.reason = None;
    }

    /// The bytes of a frame to send; `frame` is the received frame.
    #[must_use]
    pub fn bytes<'a>(&'a self, sent: &Sent, frame: &'a [u8]) -> &'a [u8] {
        match sent.bytes {
            Bytes::Same => frame,
            Bytes::Changed { at, len } => {
                self.changed.get(at as usize..(at + len) as usize).unwrap_or(&[])
            }
        }
    }

    pub(crate) fn send(&mut self, port: u32, queue: u32, packet: &mut Packet<'_>, owned: bool) {
        let bytes = if packet.is_same() && !owned {
            Bytes::Same
        } else {
            let (at, len) = packet.kept.unwrap_or_else(|| {
                let at = self.changed.len();
                self.changed.extend_from_slice(packet.bytes());
                (at as u32, (self.changed.len() - at) as u32)
            });
            packet.kept = Some((at, len));
            Bytes::Changed { at, len }
        };
        if self.sent.len() >= COPIES_MAX || self.changed.len() > BYTES_MAX {
            self.is_over = true;
            return;
        }
        self.sent.push(Sent { port, queue, bytes, left: packet.left });
    }

    pub(crate) fn because(&mut self, reason: Reason) {
        self.reason.get_or_insert(reason);
    }

    pub(crate) fn punt(&mut self, punt: impl FnOnce() -> Punt) {
        if self.punts.len() < self.punts_max {
            self.punts.push(punt());
        } else {
            self.punts_lost += 1;
        }
    }
}

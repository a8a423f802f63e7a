//! The changes that the agent sends to the data plane, in order, each with a number.
//!
//! ```text
//!   Agent ── Change 1, 2, 3 .. ──> every core's data plane ── "up to 3 is in force" ──> Agent's owner
//! ```
//!
//! A data plane that has applied changes 1 to n, in order, behaves as the agent's tables did after
//! change n. A reply with `after: n` is held back until every core has reported n.
//!
//! Thread-safety: plain data, shared by `Arc`. Each count is written by one core and read by any
//! thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Match;
use crate::act::Instruction;
use crate::flow::{InReason, PacketOut};
use crate::multipart::{GroupDesc, MeterConfig};
use crate::port::Port;

/// A change that affects frames.
#[derive(Clone, Debug)]
pub enum Change {
    /// A flow entry was added, or replaced the one with the same table, priority and match.
    Flow(Arc<Entry>),
    /// A flow entry was removed.
    FlowGone(Arc<Entry>),
    /// The switch's own entry at this place of table 0 is now this one, or there is none.
    Own(Place, Option<Arc<Entry>>),
    /// A group was added or modified.
    Group(Arc<Group>),
    /// A group was removed.
    GroupGone(u32),
    /// A meter was added or modified.
    Meter(Arc<Meter>),
    /// A meter was removed.
    MeterGone(u32),
    /// A port was added, or its configuration or state changed.
    Port(Arc<Port>),
    /// A port was removed.
    PortGone(u32),
    /// A frame of a controller is to be sent, by one core, and in its place among the changes: a
    /// frame for `OFPP_TABLE` meets the tables as the earlier changes left them.
    Send(Arc<PacketOut>),
}

/// The places of the switch's own entries in table 0. No priority of a controller reaches them, so
/// these entries never compete with those of controllers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Below all flow entries: it answers the frames that match none of them.
    Below,
    /// Above all flow entries: it answers every frame.
    Above,
}

/// A group in the form that the data plane uses.
#[derive(Debug)]
pub struct Group {
    /// Type and buckets.
    pub desc: GroupDesc,
    /// Its counts, by core.
    pub counts: Arc<[Counts]>,
    /// The counts of its buckets: bucket `b`, core `c` of `n` is at `b * n + c`.
    pub buckets: Arc<[Counts]>,
}

/// A meter in the form that the data plane uses. Its rate is that of all cores together.
#[derive(Debug)]
pub struct Meter {
    /// Its bands and flags.
    pub config: MeterConfig,
    /// The frames that reached it, by core.
    pub counts: Arc<[Counts]>,
    /// The frames above each band's rate: band `b`, core `c` of `n` is at `b * n + c`.
    pub bands: Arc<[Counts]>,
}

/// Lookups of a table, counted by the data plane, one entry for each core as in [`Entry::counts`].
/// `packets` are the frames looked up, `bytes` the frames that matched.
pub type Lookups = Arc<[Counts]>;

/// A frame for the controllers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Punt {
    /// The reason, `OFPR_*`.
    pub reason: InReason,
    /// The table whose flow entry (or table miss) sent the frame.
    pub table: u8,
    /// The cookie of the flow entry; all ones if none sent the frame.
    pub cookie: u64,
    /// The port by which the frame came in.
    pub in_port: u32,
    /// `OXM_OF_METADATA`.
    pub metadata: u64,
    /// The number of bytes that the action asks for; `0xffff` is the whole frame, unbuffered.
    pub max_len: u16,
    /// The whole frame.
    pub frame: Vec<u8>,
}

/// A flow entry in the form that the data plane uses. A modified flow gets a new entry, which may
/// share the counts of the old one.
#[derive(Debug)]
pub struct Entry {
    /// The number of the entry, which is never used again.
    pub id: u64,
    /// The number of its table.
    pub table: u8,
    /// Of the entries that match, the one with the highest priority answers.
    pub priority: u16,
    /// The cookie that the controller chose; packet-in messages contain it.
    pub cookie: u64,
    /// `OFPFF_*`.
    pub flags: u16,
    /// The fields that a frame must have, in [`Match::normal`] form.
    pub matching: Match,
    /// The instructions for frames that match.
    pub instructions: Vec<Instruction>,
    /// Counts of the frames that matched, by core.
    pub counts: Arc<[Counts]>,
}

/// The counts of one core for a flow entry. They have a cache line of their own, so that cores do
/// not write to the same line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Counts {
    packets: AtomicU64,
    bytes: AtomicU64,
    used: AtomicU64,
}

impl Counts {
    /// Counts frames, the last of which came at `now`; frames that came before others may be counted later. Only one core
    /// may call this, because the addition is not atomic.
    #[inline]
    pub fn add(&self, packets: u64, bytes: u64, now: u64) {
        let more = |count: &AtomicU64, by| {
            count.store(count.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
        };
        more(&self.packets, packets);
        more(&self.bytes, bytes);
        self.used.store(now.max(self.used.load(Ordering::Relaxed)), Ordering::Relaxed);
    }

    /// Frames, bytes, and the time of the last frame in nanoseconds; 0 if there was none.
    #[must_use]
    pub fn read(&self) -> (u64, u64, u64) {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (get(&self.packets), get(&self.bytes), get(&self.used))
    }
}

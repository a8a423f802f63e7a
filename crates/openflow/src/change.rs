//! What the agent tells the data plane: changes, in order, each with a number.
//!
//! ```text
//!   Agent ── Change 1, 2, 3 .. ──> every core's data plane ── "up to 3 is in force" ──> Agent's owner
//! ```
//!
//! A data plane that has applied changes 1 to n, in order, does what the agent's tables said after
//! change n. A reply that says `after: n` is held back until every core has said so.
//!
//! Thread-safety: plain data, shared by `Arc`; counts are written by one core each, read by anyone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Match;
use crate::act::Instruction;
use crate::flow::{InReason, PacketOut};
use crate::multipart::{GroupDesc, MeterConfig};
use crate::port::Port;

/// One change of what frames meet.
#[derive(Clone, Debug)]
pub enum Change {
    /// A flow is there: new, or in place of one with the same table, priority and match.
    Flow(Arc<Entry>),
    /// A flow is gone.
    FlowGone(Arc<Entry>),
    /// A group is there: new, or as it is now.
    Group(Arc<Group>),
    /// A group is gone.
    GroupGone(u32),
    /// A meter is there: new, or as it is now.
    Meter(Arc<Meter>),
    /// A meter is gone.
    MeterGone(u32),
    /// A port is there: new, or as it is now (configuration and state).
    Port(Arc<Port>),
    /// A port is gone.
    PortGone(u32),
    /// A controller's frame is to be sent: by one core, in its place among the changes, so that it
    /// meets (`OFPP_TABLE`) what was changed before it.
    Send(Arc<PacketOut>),
}

/// A group, as the data plane has it.
#[derive(Debug)]
pub struct Group {
    /// What it is.
    pub desc: GroupDesc,
    /// What it has been used for, by core.
    pub counts: Arc<[Counts]>,
    /// The same of its buckets: bucket `b`, core `c` of `n` is at `b * n + c`.
    pub buckets: Arc<[Counts]>,
}

/// A meter, as the data plane has it. Its rate is of all cores together.
#[derive(Debug)]
pub struct Meter {
    /// What it is.
    pub config: MeterConfig,
    /// Frames that came to it, by core.
    pub counts: Arc<[Counts]>,
    /// Frames that were above each band's rate: band `b`, core `c` of `n` is at `b * n + c`.
    pub bands: Arc<[Counts]>,
}

/// Lookups of a table, counted by the data plane: entries are of one core each, as [`Entry::counts`];
/// `packets` are the frames looked up, `bytes` the frames that matched.
pub type Lookups = Arc<[Counts]>;

/// A frame for the controllers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Punt {
    /// Why.
    pub reason: InReason,
    /// The table whose flow (or miss) sent it.
    pub table: u8,
    /// The flow's; all ones if none sent it.
    pub cookie: u64,
    /// By which port it came.
    pub in_port: u32,
    /// `OXM_OF_METADATA`.
    pub metadata: u64,
    /// How much of the frame the action asks for; `0xffff` is all, unbuffered.
    pub max_len: u16,
    /// The frame, whole.
    pub frame: Vec<u8>,
}

/// A flow, as the data plane has it. A flow that changes is another entry; the counts may go along.
#[derive(Debug)]
pub struct Entry {
    /// Its own, never used again.
    pub id: u64,
    /// The table.
    pub table: u8,
    /// The highest answers.
    pub priority: u16,
    /// The controller's own word: packet-in says it.
    pub cookie: u64,
    /// `OFPFF_*`.
    pub flags: u16,
    /// What a frame must have, in [`Match::normal`] form.
    pub matching: Match,
    /// What is done.
    pub instructions: Vec<Instruction>,
    /// What it has answered, by core.
    pub counts: Arc<[Counts]>,
}

/// What one core has counted for a flow. A cache line of its own: no core writes to another's.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Counts {
    packets: AtomicU64,
    bytes: AtomicU64,
    used: AtomicU64,
}

impl Counts {
    /// Counts frames. Only one core may call this: it is not a read-modify-write for others.
    #[inline]
    pub fn add(&self, packets: u64, bytes: u64, now: u64) {
        let more = |count: &AtomicU64, by| {
            count.store(count.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
        };
        more(&self.packets, packets);
        more(&self.bytes, bytes);
        self.used.store(now, Ordering::Relaxed);
    }

    /// Frames, bytes, and when the last came, in nanoseconds; 0 if none came.
    #[must_use]
    pub fn read(&self) -> (u64, u64, u64) {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (get(&self.packets), get(&self.bytes), get(&self.used))
    }
}

//! Answers in front of the ports: the kernel, or an adapter, sends frames of known flows on without the yard.
//!
//! ```text
//!  work ──put──> front ──answers──> frames of the flow leave by their port
//!                  └── everything else ──> the port ──> the yard, as without a front
//! ```
//!
//! A flow that was put is answered as soon as no frame of it can be in the yard any more. The front has the time at which
//! it passed the last frame of each flow to the yard, and the yard says up to which time everything has left it
//! ([`Front::drained`]): a frame is answered if its flow's time is before that. Nobody waits, and a frame that the front
//! cannot answer makes those behind it go the same way until it has left.
//!
//! When everything has left is found out by idle ticks ([`Drains`]): a core is idle if it has no frames, and its ports
//! have delivered every frame that the front had passed to them when the tick before began. A frame visits at most three
//! cores (one receives it, one works on it, one transmits it), so three rounds in which every core was idle at least once
//! follow each other; what had arrived when the first one began has left then.
//!
//! Thread-safety: a front is shared by all cores.

use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use flowyard_frame::{FlowKey, Nanos};

use crate::port::Received;

/// What is done with the frames of one direction of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The flow; fields that the front's mask does not have are ignored.
    pub key: FlowKey,
    /// The port by which they leave.
    pub port: u16,
    /// The new MAC addresses: destination, source.
    pub macs: Option<([u8; 6], [u8; 6])>,
    /// Whether the TTL or hop limit is decremented. A frame that may not go on is left to the yard.
    pub hop: bool,
    /// The change of addresses.
    pub change: Change,
    /// The longest packet; longer ones are left to the yard. 0: any.
    pub mtu: u16,
}

/// A change of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// None.
    None,
    /// Another source address, and port.
    Source(IpAddr, Option<u16>),
    /// Another destination address, and port.
    Destination(IpAddr, Option<u16>),
    /// A tunnel header (IP in IP) with these addresses, and this flow label if it is of IPv6.
    Tunnel(IpAddr, IpAddr, u32),
}

/// What was answered of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    /// Frames.
    pub packets: u64,
    /// Their bytes, with Ethernet headers, as they came.
    pub bytes: u64,
    /// When the last of them came; 0 if none did.
    pub last: Nanos,
}

/// Where flows are answered. A flow has one entry or two: the second is that of its replies.
///
/// A front that only marks frames ([`Front::answers`]) has no frames of its own, so it needs none of the functions about
/// them: [`Front::seen`], [`Front::settle`], [`Front::passed`], [`Front::time`] and [`Front::drained`]. A front that answers
/// frames implements all of them.
pub trait Front: Send + Sync + Debug {
    /// Whether frames that arrive by `port` can be answered, and frames can leave there.
    fn reaches(&self, port: u16) -> bool;

    /// Adds a flow at time `now`. Returns its number; `None` if there is no room, or an entry has the key already.
    fn put(&self, entries: &[Entry], now: Nanos) -> Option<u32>;

    /// Removes a flow. Frames that are being answered still leave, and are counted soon after.
    fn remove(&self, flow: u32);

    /// What was answered of entry `entry` of a flow. Of a removed one it is final after [`AFTER`].
    fn seen(&self, _flow: u32, _entry: usize) -> Seen {
        Seen::default()
    }

    /// Waits until no frame of a flow that was removed before is being answered, some microseconds; gives up after a
    /// millisecond. What [`Front::seen`] returns of such a flow is final then.
    fn settle(&self) {}

    /// Frees the number of a flow that was removed [`AFTER`] ago or earlier.
    fn free(&self, flow: u32);

    /// The number of frames that have been passed to core `core`'s part of port `port`, or are being looked at; `None`
    /// if none are.
    fn passed(&self, _port: u16, _core: u16) -> Option<u64> {
        None
    }

    /// The time now, by the front's clock.
    fn time(&self) -> u64 {
        0
    }

    /// Says that of frames that arrived before `time` none is in the yard.
    fn drained(&self, _time: u64) {}

    /// Whether a flow of frames that arrive by `from` and leave by `to` can be put.
    fn takes(&self, from: u16, to: u16) -> bool {
        self.reaches(to) && self.reaches(from)
    }

    /// Whether frames are answered. Otherwise they are marked with the number of their flow, and pass through the yard,
    /// which looks nothing up for them.
    fn answers(&self) -> bool {
        true
    }

    /// What is done for a flow that was put, in words for the user.
    fn state(&self, _flow: u32) -> String {
        "XDP answers it, unless frames of it are in the yard".into()
    }

    /// The generation of the user's entries, if frames are marked and none of these entries can match a frame of the flow with
    /// this key: a mark then stands for the answer of all tables.
    fn uncontested(&self, _key: &FlowKey) -> Option<u8> {
        None
    }

    /// Whether a flow with this entry that was refused may be accepted later. Otherwise its kind is never accepted, and it
    /// is not worth while to offer it again.
    fn may_take_later(&self, _entry: &Entry) -> bool {
        true
    }

    /// Why a flow with this entry is refused, if that is known.
    fn why_not(&self, _entry: &Entry) -> Option<String> {
        None
    }
}

/// The time after which nothing is answered by an entry that was removed.
pub const AFTER: Nanos = 1_000_000_000;

/// When a port has passed nothing for this time and the core was idle, frames that it did not deliver are given up: they
/// were the kernel's.
const QUIET: u64 = 20_000_000;

/// The rounds of all cores.
#[derive(Debug)]
pub struct Drains {
    /// By core: since when it has been idle, at the time of its last idle tick.
    idle: Box<[AtomicU64]>,
    rounds: Mutex<Rounds>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Rounds {
    done: u32,
    /// When the first and the last of them began.
    first: u64,
    last: u64,
}

/// Rounds that a frame's way through the yard takes at most.
const ROUNDS: u32 = 3;

impl Drains {
    /// For `cores` cores.
    #[must_use]
    pub fn new(cores: u16) -> Self {
        Self { idle: (0..cores).map(|_| AtomicU64::new(0)).collect(), rounds: Mutex::default() }
    }

    /// Core `core` had nothing to do at `time`. Returns the time up to which everything has left, if that is new.
    fn idle(&self, core: u16, time: u64, now: u64) -> Option<u64> {
        self.idle.get(usize::from(core))?.store(time, SeqCst);
        let mut rounds = self.rounds.try_lock().ok()?; // another core looks
        let mut found = None;
        if rounds.last == 0 {
            (rounds.first, rounds.last) = (now, now);
        } else if self.idle.iter().all(|idle| idle.load(SeqCst) > rounds.last) {
            rounds.done += 1;
            rounds.last = now;
            if rounds.done == ROUNDS {
                found = Some(rounds.first);
                *rounds = Rounds { done: 0, first: now, last: now };
            }
        }
        found
    }
}

/// What one core knows of its own idleness.
#[derive(Debug)]
pub(crate) struct Gate {
    front: std::sync::Arc<dyn Front>,
    drains: std::sync::Arc<Drains>,
    core: u16,
    ports: Vec<Part>,
    /// The time of the last tick, if it was idle.
    since: Option<u64>,
}

/// A core's part of a port.
#[derive(Debug)]
struct Part {
    port: u16,
    /// Frames that it has delivered, or lost.
    taken: u64,
    /// Frames that the front passed and that were never delivered: the kernel's.
    strays: u64,
    /// Frames that had been passed at the last idle tick, and since when this has not changed.
    passed: u64,
    unchanged: u64,
}

impl Gate {
    pub(crate) fn new(
        front: std::sync::Arc<dyn Front>,
        drains: std::sync::Arc<Drains>,
        core: u16,
        ports: impl Iterator<Item = u16>,
    ) -> Self {
        let part = |port| Part { port, taken: 0, strays: 0, passed: 0, unchanged: 0 };
        Self { front, drains, core, ports: ports.map(part).collect(), since: None }
    }

    /// Port `port` gave `frames` frames, and lost those in `got`.
    #[inline]
    pub(crate) fn took(&mut self, port: u16, got: &Received, frames: usize) {
        if let Some(part) = self.ports.iter_mut().find(|part| part.port == port) {
            let lost = got.dropped().iter().map(|(_, lost)| u64::from(*lost)).sum::<u64>();
            part.taken += frames as u64 + lost;
        }
    }

    /// A tick has ended. `is_idle`: nothing was done in it, and no frame is in the core.
    #[inline]
    pub(crate) fn ticked(&mut self, is_idle: bool) {
        if is_idle { self.idle() } else { self.since = None }
    }

    fn idle(&mut self) {
        let now = self.front.time();
        let mut is_clear = true;
        for part in &mut self.ports {
            let Some(passed) = self.front.passed(part.port, self.core) else { continue };
            // Compared with what had been passed before this tick looked at the port.
            is_clear &= part.taken + part.strays >= part.passed;
            if passed != part.passed {
                (part.passed, part.unchanged) = (passed, now);
            } else if !is_clear && now.saturating_sub(part.unchanged) > QUIET {
                part.strays = part.passed.saturating_sub(part.taken);
            }
        }
        if let (Some(since), true) = (self.since, is_clear)
            && let Some(time) = self.drains.idle(self.core, since, now)
        {
            self.front.drained(time);
        }
        self.since = Some(now);
    }
}

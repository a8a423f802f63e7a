//! Frames to and from controllers: packet-in with its buffers and rates, packet-out.
//!
//! ```text
//!   punt ── rate of its reason ── for each controller: wanted? how much of it? ── packet-in
//!                                                           └─ cut: the whole waits in a buffer
//! ```
//!
//! Invariants: at most [`BUFFERS`] frames wait, each for at most five seconds; a buffer's number is
//! not used again for the next 2^23 buffers of its place; what is not sent is counted.

use std::sync::Arc;

use super::flowmod::NO_BUFFER;
use super::flows::SECOND;
use super::peers::{PACKET_IN, Peer};
use super::{Agent, Ask, Out, ports};
use crate::act::Action;
use crate::change::{Change, Punt};
use crate::flow::{InReason, PacketIn, PacketOut};
use crate::oxm::{Field, Oxm};
use crate::port::reserved;
use crate::problem::{self, Problem};
use crate::{Match, Message, Version};

/// How many frames wait for a controller's word.
pub(super) const BUFFERS: usize = 256;
/// How long a frame waits, in nanoseconds.
const PATIENCE: u64 = 5 * SECOND;
/// The reasons that there are.
const REASONS: usize = 6;

/// A rate, with what may come at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    /// Frames a second.
    pub per_second: u32,
    /// Frames at once.
    pub burst: u32,
}

/// What is let through when nothing else is said.
const USUAL: Rate = Rate { per_second: 10_000, burst: 10_000 };

/// A token bucket; its unit is a frame, times a second in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    rate: Option<Rate>,
    tokens: u64,
    filled: u64,
    dropped: u64,
}

impl Bucket {
    fn take(&mut self, now: u64) -> bool {
        let Some(rate) = self.rate else { return true };
        let most = u64::from(rate.burst.max(1)) * SECOND;
        let passed = now.saturating_sub(self.filled);
        self.filled = self.filled.max(now);
        let more = passed.saturating_mul(rate.per_second.into());
        self.tokens = self.tokens.saturating_add(more).min(most);
        let pass = self.tokens >= SECOND;
        if pass {
            self.tokens -= SECOND;
        } else {
            self.dropped += 1;
        }
        pass
    }
}

/// A place for a frame.
#[derive(Debug, Default)]
struct Slot {
    /// How often it was used.
    turn: u32,
    /// Port, frame, and since when it waits.
    held: Option<(u32, Vec<u8>, u64)>,
}

/// Buffers and rates.
#[derive(Debug)]
pub(super) struct Punts {
    slots: Vec<Slot>,
    next: usize,
    buckets: [Bucket; REASONS],
}

impl Default for Punts {
    fn default() -> Self {
        let bucket = Bucket { rate: Some(USUAL), tokens: u64::MAX, filled: 0, dropped: 0 };
        let slots = std::iter::repeat_with(Slot::default).take(BUFFERS).collect();
        Self { slots, next: 0, buckets: [bucket; REASONS] }
    }
}

impl Punts {
    /// Keeps a frame; none where all places are taken.
    fn keep(&mut self, in_port: u32, frame: &[u8], now: u64) -> Option<u32> {
        let at = self.next % BUFFERS;
        let slot = &mut self.slots[at];
        let waits = |(_, _, since): &(u32, Vec<u8>, u64)| now.saturating_sub(*since) < PATIENCE;
        if slot.held.as_ref().is_some_and(waits) {
            return None;
        }
        self.next += 1;
        slot.turn = (slot.turn + 1) & 0x7f_ffff;
        slot.held = Some((in_port, frame.to_vec(), now));
        Some(slot.turn << 8 | at as u32)
    }

    /// A frame that was kept, once.
    pub(super) fn release(&mut self, buffer: u32, now: u64) -> Result<(u32, Vec<u8>), Problem> {
        let slot = &mut self.slots[buffer as usize % BUFFERS];
        if slot.turn == 0 || slot.turn != buffer >> 8 {
            return Err(problem::REQUEST_BUFFER_UNKNOWN);
        }
        let (in_port, frame, since) = slot.held.take().ok_or(problem::REQUEST_BUFFER_EMPTY)?;
        if now.saturating_sub(since) >= PATIENCE {
            return Err(problem::REQUEST_BUFFER_UNKNOWN);
        }
        Ok((in_port, frame))
    }
}

/// A reason as a version says it: before 1.4, what an action sent is an action's. None if the
/// version does not send such frames.
const fn reason_of(reason: InReason, version: Version) -> Option<InReason> {
    match (version, reason) {
        (Version::V14, reason)
        | (_, reason @ (InReason::NoMatch | InReason::Action))
        | (Version::V13, reason @ InReason::InvalidTtl) => Some(reason),
        (_, InReason::InvalidTtl) => None,
        _ => Some(InReason::Action),
    }
}

impl Agent {
    /// Sets the rate of packet-ins for a reason; none is no limit.
    pub fn limit_punts(&mut self, reason: InReason, rate: Option<Rate>) {
        let bucket = &mut self.punts.buckets[reason as usize % REASONS];
        (bucket.rate, bucket.tokens) = (rate, u64::MAX);
    }

    /// How many frames were above the rate of a reason.
    #[must_use]
    pub fn punts_dropped(&self, reason: InReason) -> u64 {
        self.punts.buckets[reason as usize % REASONS].dropped
    }

    /// Sends a frame to the controllers that want it.
    pub fn punt(&mut self, punt: &Punt, now: u64, out: &mut Vec<Out>) {
        if self.ports.config(punt.in_port) & ports::config::NO_PACKET_IN != 0 {
            return;
        }
        // The switch's own flow for misses is of 1.0 alone.
        let own = punt.reason == InReason::NoMatch && punt.cookie == u64::MAX;
        let wanting = |(to, peer): (&u32, &Peer)| {
            let reason = reason_of(punt.reason, peer.version)?;
            let wants = peer.wants(PACKET_IN, reason as u32);
            let fits = (!own || peer.version == Version::V10)
                && (peer.version != Version::V10
                    || punt.in_port < 0xff00
                    || punt.in_port >= reserved::MAX);
            let asked = match punt.reason {
                InReason::NoMatch if peer.version == Version::V10 => peer.config.miss_send_len,
                InReason::InvalidTtl => peer.config.miss_send_len,
                _ => punt.max_len,
            };
            (wants && fits).then_some((*to, reason, asked))
        };
        let wanting: Vec<_> = self.peers.iter().filter_map(wanting).collect();
        if wanting.is_empty() || !self.punts.buckets[punt.reason as usize % REASONS].take(now) {
            return;
        }
        let mut buffer = None;
        for (main, reason, asked) in wanting {
            let cut = asked != u16::MAX && usize::from(asked) < punt.frame.len();
            if cut && buffer.is_none() {
                buffer = Some(self.punts.keep(punt.in_port, &punt.frame, now));
            }
            let kept = buffer.flatten().filter(|_| cut);
            // What waits nowhere is sent whole.
            let most = if kept.is_some() { usize::from(asked) } else { usize::from(u16::MAX) };
            let mut fields = vec![Oxm::exact(Field::InPort, punt.in_port.into())];
            if punt.metadata != 0 {
                fields.push(Oxm::exact(Field::Metadata, punt.metadata.into()));
            }
            let message = Message::PacketIn(PacketIn {
                buffer: kept.unwrap_or(NO_BUFFER),
                total: u16::try_from(punt.frame.len()).unwrap_or(u16::MAX),
                reason,
                table: punt.table,
                cookie: punt.cookie,
                matching: Match(fields),
                data: punt.frame[..punt.frame.len().min(most).min(65_000)].to_vec(),
            });
            // An auxiliary connection is there to keep frames out of the main one's way.
            let auxiliary = self.peers.iter().find(|(_, peer)| peer.main == Some(main));
            let to = auxiliary.map_or(main, |(to, _)| *to);
            out.push(Out { to, xid: 0, message, after: 0 });
        }
    }

    pub(super) fn packet_out(&mut self, ask: Ask, m: &PacketOut) -> Result<(), Problem> {
        let named = matches!(m.in_port, reserved::CONTROLLER | reserved::LOCAL | reserved::ANY);
        if !named && !self.ports.has(m.in_port) {
            return Err(problem::REQUEST_BAD_PORT);
        }
        let table =
            |action: &Action| matches!(action, Action::Output { port: reserved::TABLE, .. });
        let known = |port: u32| port > reserved::MAX || self.ports.has(port);
        for action in m.actions.iter().filter(|action| !table(action)) {
            self.check_list(std::slice::from_ref(action))?;
            if let Action::Output { port, .. } | Action::Enqueue { port, .. } = action
                && !known(*port)
            {
                return Err(problem::ACTION_BAD_OUT_PORT);
            }
        }
        let (in_port, data) = if m.buffer == NO_BUFFER {
            (m.in_port, m.data.clone())
        } else {
            self.punts.release(m.buffer, ask.now)?
        };
        if data.len() < 14 {
            return if data.is_empty() { Ok(()) } else { Err(problem::REQUEST_BAD_PACKET) };
        }
        // The buffer's own port, but where the controller names another.
        let in_port = if m.in_port == reserved::ANY { in_port } else { m.in_port };
        let send = PacketOut { buffer: NO_BUFFER, in_port, actions: m.actions.clone(), data };
        self.emit(Change::Send(Arc::new(send)));
        Ok(())
    }
}

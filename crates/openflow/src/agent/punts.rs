//! Frames to and from controllers: packet-in with its buffers and rate limits, and packet-out.
//!
//! ```text
//!   punt ── rate of its reason ── for each controller: wanted? how much of it? ── packet-in
//!                                                           └─ cut: the whole waits in a buffer
//! ```
//!
//! Invariants: at most [`BUFFERS`] frames are buffered, each for at most five seconds. A buffer ID
//! is not reused for the next 2^23 frames in the same slot. Frames that are not sent are counted.

use std::sync::Arc;

use super::check::Named;
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

/// The number of frames that can be buffered.
pub(super) const BUFFERS: usize = 256;
/// The time for which a frame is buffered, in nanoseconds.
const PATIENCE: u64 = 5 * SECOND;
/// The number of reasons.
const REASONS: usize = 6;

/// A rate limit with a burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    /// Frames per second.
    pub per_second: u32,
    /// The number of frames that may come at once.
    pub burst: u32,
}

/// The default limit.
const USUAL: Rate = Rate { per_second: 10_000, burst: 10_000 };

/// A token bucket. Its unit is a frame, multiplied by the nanoseconds in a second.
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

/// A slot for a frame.
#[derive(Debug, Default)]
struct Slot {
    /// The number of times that the slot was used.
    turn: u32,
    /// The port, the frame, and the time since which it is buffered.
    held: Option<(u32, Vec<u8>, u64)>,
}

/// Buffers and rate limits.
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
    /// Buffers a frame; `None` if all slots are in use.
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

    /// Removes a buffered frame and returns it.
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

/// A reason in the numbering of a version: before 1.4, all frames that actions sent have the reason
/// "action". `None` if the version does not send such frames.
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
    /// Sets the rate limit of packet-ins for a reason; `None` is no limit.
    pub fn limit_punts(&mut self, reason: InReason, rate: Option<Rate>) {
        let bucket = &mut self.punts.buckets[reason as usize % REASONS];
        (bucket.rate, bucket.tokens) = (rate, u64::MAX);
    }

    /// The number of frames above the rate limit of a reason.
    #[must_use]
    pub fn punts_dropped(&self, reason: InReason) -> u64 {
        self.punts.buckets[reason as usize % REASONS].dropped
    }

    /// Sends a frame to the controllers that want it.
    pub fn punt(&mut self, punt: &Punt, now: u64, out: &mut Vec<Out>) {
        if self.ports.config(punt.in_port) & ports::config::NO_PACKET_IN != 0 {
            return;
        }
        // The switch's own entry for misses exists for 1.0 controllers only.
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
            // A frame that is not buffered is sent whole.
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
            // Frames are sent on an auxiliary connection, if there is one, to keep the main
            // connection free.
            let auxiliary = self.peers.iter().find(|(_, peer)| peer.main == Some(main));
            let to = auxiliary.map_or(main, |(to, _)| *to);
            out.push(Out { to, xid: 0, message, after: 0, counts: None });
        }
    }

    pub(super) fn packet_out(&mut self, ask: Ask, m: &PacketOut) -> Result<(), Problem> {
        let named = matches!(m.in_port, reserved::CONTROLLER | reserved::LOCAL | reserved::ANY);
        // 1.0 sets no limits to the port by which the frame is said to have come in.
        let any = named || ask.version == Version::V10;
        if !any && !self.ports.has(m.in_port) {
            return Err(problem::REQUEST_BAD_PORT);
        }
        let table =
            |action: &Action| matches!(action, Action::Output { port: reserved::TABLE, .. });
        let known = |port: u32| port > reserved::MAX || self.ports.has(port);
        for action in m.actions.iter().filter(|action| !table(action)) {
            self.check_list(std::slice::from_ref(action), Named::MustExist)?;
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
        // The port of the buffered frame, unless the controller names another one.
        let in_port = if m.in_port == reserved::ANY { in_port } else { m.in_port };
        let send = PacketOut { buffer: NO_BUFFER, in_port, actions: m.actions.clone(), data };
        self.emit(Change::Send(Arc::new(send)));
        Ok(())
    }
}

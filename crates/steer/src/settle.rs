//! When a flow may move to another CPU: the protocol of the XDP program, in user space.
//!
//! ```text
//!  XDP on CPU p: seq(p,c) += 1, the frame carries p and seq ──> ring of c ──> kernel thread of c: done(p,c) = seq
//!                                                   full: dropped                     then the stack, in batches
//! ```
//!
//! Frames that p sends to c stay in the order of their numbers, so `done(p,c) >= s` says that frame s has left the ring
//! or was dropped in front of it. The thread hands frames to the stack in batches, after all of a batch have left the
//! ring, and may hold some for merging (GRO) until it finds the ring empty. So frame s counts as delivered when
//! [`AFTER`] later frames of p have left the ring (frames, not numbers: dropped ones have numbers, too), or when c itself has seen its ring empty between two batches
//! ([`Settle::quiet`]): a timer of c, which cannot run inside a batch. It is set only if a flow waits.
//!
//! A flow that overloads its CPU may have frames in the ring at all times. [`Settle::is_gap`] then says which of its frames
//! are dropped, so that the others leave the ring before the flow moves to a CPU of its own.
//!
//! Invariant: a flow's frames reach the stack in the order in which XDP saw them, however long a thread does not run, as
//! long as a flow's frames are received by one CPU at a time.
//! Thread-safety: plain data; the program keeps each number where only one CPU writes it.

use std::collections::{HashMap, HashSet};

use flowyard_frame::Nanos;

/// Frames that have to leave the ring after the last one of a flow: those that the kernel merges at most before it
/// delivers (64), and a batch (8).
pub const AFTER: u64 = 72;
/// A frame that was sent so long ago and has not left the ring was dropped in front of it.
pub const LOST: Nanos = 1_000_000_000;

/// How long an elephant waits for a pause in its frames.
pub const PATIENCE: Nanos = 100_000_000;
/// How long a pause lasts that XDP makes in an elephant's frames. One frame passes then: if the frames before it found
/// the ring full, nothing else would say that the ring is empty now.
pub const GAP: Nanos = 10_000_000;

/// The last frame that was sent, and when.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    seq: u64,
    at: Nanos,
}

/// The last frame that has left a ring, and the last one that is known to be delivered.
#[derive(Clone, Copy, Debug, Default)]
struct Left {
    seq: u64,
    delivered: u64,
    /// The last frame, `count` frames ago.
    before: u64,
    count: u64,
}

/// Where a flow is.
#[derive(Clone, Copy, Debug)]
struct Flow {
    home: usize,
    producer: usize,
    seq: u64,
    /// Since when it cannot move to its own CPU, if it waits for that.
    waits: Option<Nanos>,
    /// When its last frame passed while it waits.
    passed: Nanos,
}

/// The state of all flows and rings.
#[derive(Clone, Debug, Default)]
pub struct Settle {
    sent: HashMap<(usize, usize), Sent>,
    done: HashMap<(usize, usize), Left>,
    /// CPUs that a flow waits to leave.
    asked: HashSet<usize>,
    flows: HashMap<u32, Flow>,
    is_watched: bool,
}

impl Settle {
    /// Flows are remembered from their first frame on, because what RSS says may change ([`Policy::elephants`]).
    ///
    /// [`Policy::elephants`]: crate::Policy::elephants
    #[must_use]
    pub fn watching() -> Self {
        Self { is_watched: true, ..Self::default() }
    }

    /// Whether the next frame of `flow`, which gets CPU `own` for itself, is dropped. Otherwise it is sent to `own`.
    pub fn is_gap(&mut self, flow: u32, own: usize, now: Nanos) -> bool {
        let Some(mut at) = self.flows.get(&flow).copied() else { return false };
        let waits = at.home != own && !self.is_delivered(at);
        let since = if waits { at.waits.unwrap_or(now) } else { now };
        at.waits = waits.then_some(since);
        let is_dropped =
            now.saturating_sub(since) >= PATIENCE && now.saturating_sub(at.passed) < GAP;
        if !is_dropped {
            at.passed = now;
        }
        self.flows.insert(flow, at);
        is_dropped
    }

    /// The CPU to which CPU `producer` sends the next frame of `flow`, and the frame's number, which [`Settle::left`]
    /// reports. Flows go to `first`, by RSS, until somebody learns that they should go to `wanted`, and return when that is
    /// forgotten.
    pub fn send(
        &mut self,
        flow: u32,
        producer: usize,
        first: usize,
        wanted: Option<usize>,
        now: Nanos,
    ) -> (usize, u64) {
        let known = self.flows.get(&flow).copied();
        // The first frame of which something is remembered goes where those before it went: its number is later.
        let new = Flow { home: first, producer, seq: 0, waits: None, passed: 0 };
        let mut at = known.unwrap_or(new);
        let to = wanted.unwrap_or(first);
        if known.is_some() && at.home != to && self.is_delivered(at) {
            at.home = to;
        }
        let seq = self.sent(producer, at.home) + 1;
        self.sent.insert((producer, at.home), Sent { seq, at: now });
        if self.is_watched || wanted.is_some() || at.home != first {
            self.flows.insert(flow, Flow { producer, seq, ..at });
        } else {
            self.flows.remove(&flow);
        }
        (at.home, seq)
    }

    /// The frame with the number `seq` of `producer` has left the ring of `cpu`. Returns whether a flow waits to leave
    /// the CPU: then [`Settle::quiet`] is called soon.
    pub fn left(&mut self, producer: usize, cpu: usize, seq: u64) -> bool {
        let left = self.done.entry((producer, cpu)).or_default();
        left.seq = seq;
        left.count += 1;
        if left.count >= AFTER {
            left.delivered = left.delivered.max(left.before);
            (left.before, left.count) = (seq, 0);
        }
        self.asked.contains(&cpu)
    }

    /// The thread of `cpu` is not at work on a batch. If its ring is empty, it holds nothing: what has left the ring has
    /// been delivered.
    pub fn quiet(&mut self, cpu: usize, now: Nanos) {
        if !self.is_empty(cpu, now) {
            return;
        }
        let here = self.done.iter_mut().filter(|((_, to), _)| *to == cpu);
        here.for_each(|(_, left)| left.delivered = left.seq);
        self.asked.remove(&cpu);
    }

    fn sent(&self, producer: usize, cpu: usize) -> u64 {
        self.sent.get(&(producer, cpu)).map_or(0, |last| last.seq)
    }

    /// Whether all frames of a flow have been delivered. If that is not known, its CPU is asked.
    fn is_delivered(&mut self, flow: Flow) -> bool {
        let left = self.done.get(&(flow.producer, flow.home)).copied().unwrap_or_default();
        let is_delivered = left.delivered >= flow.seq;
        if !is_delivered {
            self.asked.insert(flow.home);
        }
        is_delivered
    }

    /// Whether everything that any CPU has sent to `cpu` has left its ring, or was dropped.
    fn is_empty(&self, cpu: usize, now: Nanos) -> bool {
        let mut to = self.sent.iter().filter(|((_, to), _)| *to == cpu);
        to.all(|(pair, sent)| {
            let done = self.done.get(pair).copied().unwrap_or_default();
            done.seq == sent.seq || now.saturating_sub(sent.at) >= LOST
        })
    }
}

#[cfg(test)]
mod tests;

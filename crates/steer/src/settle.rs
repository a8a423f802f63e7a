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
//! [`AFTER`] later frames of p have left the ring, or the ring has been empty for [`GRACE`].
//!
//! Invariant: a flow's frames reach the stack in the order in which XDP saw them, as long as no thread needs longer than
//! [`GRACE`] to deliver what it has taken when it finds its ring empty, and a flow's frames are received by one CPU at a time.
//! Thread-safety: plain data; the program keeps each number where only one CPU writes it.

use std::collections::HashMap;

use flowyard_frame::Nanos;

/// Frames that have to leave the ring after the last one of a flow: those that the kernel merges at most before it
/// delivers (64), and a batch (8).
pub const AFTER: u64 = 72;
/// The ring has been empty for so long: then what left it has been delivered.
pub const GRACE: Nanos = 5_000_000;
/// A frame that was sent so long ago and has not left the ring was dropped in front of it.
pub const LOST: Nanos = 1_000_000_000;

/// The last frame that was sent, or has left a ring, and when.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    seq: u64,
    at: Nanos,
}

/// Where a flow is.
#[derive(Clone, Copy, Debug)]
struct Flow {
    home: usize,
    producer: usize,
    seq: u64,
}

/// The state of all flows and rings.
#[derive(Clone, Debug, Default)]
pub struct Settle {
    sent: HashMap<(usize, usize), Last>,
    done: HashMap<(usize, usize), Last>,
    flows: HashMap<u32, Flow>,
}

impl Settle {
    /// The CPU to which CPU `producer` sends the next frame of `flow`, and the frame's number, which [`Settle::left`]
    /// reports. Flows go to `first`, by RSS, until somebody learns that they should go to `wanted`.
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
        let mut at = known.unwrap_or(Flow { home: first, producer, seq: 0 });
        if let (Some(_), Some(wanted)) = (known, wanted)
            && at.home != wanted
            && self.is_delivered(at, now)
        {
            at.home = wanted;
        }
        let seq = self.sent(producer, at.home) + 1;
        self.sent.insert((producer, at.home), Last { seq, at: now });
        if wanted.is_some() {
            self.flows.insert(flow, Flow { producer, seq, ..at });
        }
        (at.home, seq)
    }

    /// The frame with the number `seq` of `producer` has left the ring of `cpu`.
    pub fn left(&mut self, producer: usize, cpu: usize, seq: u64, now: Nanos) {
        self.done.insert((producer, cpu), Last { seq, at: now });
    }

    fn sent(&self, producer: usize, cpu: usize) -> u64 {
        self.sent.get(&(producer, cpu)).map_or(0, |last| last.seq)
    }

    /// Whether all frames of a flow have been delivered.
    fn is_delivered(&self, flow: Flow, now: Nanos) -> bool {
        let done = self.done.get(&(flow.producer, flow.home)).copied().unwrap_or_default();
        match done.seq.checked_sub(flow.seq) {
            None => false,
            Some(later) => later >= AFTER || self.is_idle(flow.home, now),
        }
    }

    /// Whether the ring of `cpu` has been empty for [`GRACE`].
    fn is_idle(&self, cpu: usize, now: Nanos) -> bool {
        let mut to = self.sent.iter().filter(|((_, to), _)| *to == cpu);
        to.all(|(pair, sent)| {
            let done = self.done.get(pair).copied().unwrap_or_default();
            let since = |at: Nanos| now.saturating_sub(at);
            since(done.at) >= GRACE && (done.seq == sent.seq || since(sent.at) >= LOST)
        })
    }
}

#[cfg(test)]
mod tests;

//! Ends of connections, on their way to the other nodes.
//!
//! They are sent when they are seen, and not with a scan: until a node knows the end of a connection, packets of the client's next
//! connection from the same port can follow its entry or its report. A session begins with those of some time before, because
//! routes often change while a node cannot be reached.
//!
//! Thread-safety: used by the thread that scans.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use crossbeam_channel::Sender;
use flowyard_frame::Nanos;
use flowyard_lb::{End, Hub};

use super::wire::{Packed, Packer};
use super::{Queued, Synchronization};

/// The most ends that a session begins with.
const KEPT: usize = 16_384;

/// The ends that were sent last.
#[derive(Debug, Default)]
pub(super) struct Ends(VecDeque<End>);

impl Ends {
    /// Messages with the ends that were seen since the last call.
    pub(super) fn take(&mut self, hub: &Hub, now: Nanos) -> Vec<Packed> {
        let ends = hub.take_ends();
        let more = (self.0.len() + ends.len()).saturating_sub(KEPT);
        self.0.drain(..more.min(self.0.len()));
        self.0.extend(&ends);
        pack(&ends, now)
    }

    /// Messages with the ends that a session begins with.
    pub(super) fn all(&self, now: Nanos) -> Vec<Packed> {
        pack(&self.0, now)
    }
}

fn pack<'e>(ends: impl IntoIterator<Item = &'e End>, now: Nanos) -> Vec<Packed> {
    let mut packer = Packer::default();
    for End { hash, end, at } in ends {
        let age = now.saturating_sub(*at) / 1_000_000;
        packer.ended(*hash, *end, age.try_into().unwrap_or(u32::MAX));
    }
    packer.finish()
}

/// Sends messages by the sessions with these numbers, as far as they are still the present ones.
pub(super) fn send(
    shared: &Synchronization,
    (queues, sessions): (&[Sender<Queued>], &[u64]),
    messages: &[Packed],
) {
    for ((peer, queue), &session) in shared.peers.iter().zip(queues).zip(sessions) {
        if peer.sends.load(Relaxed) && peer.session.load(Acquire) == session {
            let mut all = messages.iter().cloned();
            if all.any(|message| queue.try_send((session, message)).is_err()) {
                peer.is_slow.store(true, Relaxed);
            }
        }
    }
}

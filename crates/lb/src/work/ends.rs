//! Ends of connections of which another machine may have an entry.
//!
//! ```text
//!  client's FIN or RST on a core ──reported, or began elsewhere──> queue ──a thread──> other machines
//!  other machines ──Hub::apply_ends──> entries of this machine are closing, and their reports are forgotten
//! ```
//!
//! If routes change, the FIN of a client reaches another machine than the one that has an entry of its connection. That entry would
//! stay open, and be reported, until its idle timeout. A packet of the client's next connection from the same port could follow it to
//! the old backend. So a machine tells all others about the end of a connection if one of them has reported it, or if its first
//! packet here was not its first one. A message names the connection by its hash, and has the sequence number behind the end.
//!
//! Invariants: a packet waits for no other thread, and nothing is allocated for it; what finds no room in the queue is counted; an
//! entry that got a packet after the end is not changed; forged packets of unknown connections take half of the queue at most.
//! Thread-safety: any core adds to the queue, and any thread may use the rest.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crossbeam_channel::{Receiver, Sender, bounded};
use flowyard_frame::Nanos;

use super::hub::Hub;

/// The most ends that wait for the thread that sends them.
const QUEUE: usize = 4096;
/// The most ends that are looked up in a table while its lock is held.
const AT_A_TIME: usize = 32;
/// Reports are forgotten because of ends that are not older than this. An older one may be sent again to a machine that has since
/// got a report of a later connection.
const FRESH: Nanos = 5_000_000_000;

/// A FIN or RST of a client, which ends what the client sends in a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    /// The hash of the connection.
    pub hash: u64,
    /// The sequence number behind the client's FIN or RST.
    pub end: u32,
    /// When it was seen, by the clock of this machine.
    pub at: Nanos,
}

/// The ends that were seen here and not sent yet.
#[derive(Debug)]
pub(super) struct Ends {
    sender: Sender<End>,
    receiver: Receiver<End>,
    /// How many found no room.
    dropped: AtomicU64,
    /// Entries that other machines have ended.
    closed: AtomicU64,
}

impl Ends {
    pub(super) fn new() -> Self {
        let (sender, receiver) = bounded(QUEUE);
        Self { sender, receiver, dropped: AtomicU64::new(0), closed: AtomicU64::new(0) }
    }
}

impl Hub {
    /// Puts the end of a connection into the queue, if another machine may have an entry of the connection.
    #[cold]
    pub(super) fn client_ended(&self, end: End, began_elsewhere: bool) {
        let (Some(ends), Some(replica)) = (self.ends.get(), self.replica.get()) else { return };
        let is_reported = replica.get(end.hash, end.at).is_some();
        if !is_reported && !began_elsewhere {
            return;
        }
        let has_room = is_reported || ends.sender.len() < QUEUE / 2;
        if !has_room || ends.sender.try_send(end).is_err() {
            ends.dropped.fetch_add(1, Relaxed);
        }
    }

    /// The ends that other machines must learn. What others have reported of these connections is not used any more: this machine
    /// has their entries, and knows which packets belong to them.
    #[must_use]
    pub fn take_ends(&self) -> Vec<End> {
        let Some(ends) = self.ends.get() else { return Vec::new() };
        let all: Vec<_> = ends.receiver.try_iter().take(QUEUE).collect();
        if let Some(replica) = self.replica.get() {
            all.iter().for_each(|end| replica.remove(end.hash));
        }
        all
    }

    /// Applies ends that another machine has seen. Returns for each whether an entry was changed by it; if not, and this machine
    /// reports the connection, it must be reported anew ([`super::Scan::report_again`]), because others have forgotten its report.
    pub fn apply_ends(&self, all: &[End], now: Nanos) -> Vec<bool> {
        let mut changed = vec![false; all.len()];
        if all.is_empty() {
            return changed;
        }
        let (Some(ends), Some(tables)) = (self.ends.get(), self.conns()) else { return changed };
        let seed = self.plan().seed();
        for table in tables.iter() {
            for (some, changed) in all.chunks(AT_A_TIME).zip(changed.chunks_mut(AT_A_TIME)) {
                let mut conns = table.lock().unwrap_or_else(PoisonError::into_inner);
                for (end, changed) in some.iter().zip(changed) {
                    *changed |= conns.ended_elsewhere((end.hash, seed), end.end, (end.at, now));
                }
            }
        }
        ends.closed.fetch_add(changed.iter().filter(|changed| **changed).count() as u64, Relaxed);
        if let Some(replica) = self.replica.get() {
            let fresh = all.iter().filter(|end| now.saturating_sub(end.at) <= FRESH);
            fresh.for_each(|end| replica.remove(end.hash));
        }
        changed
    }

    /// How many ends other machines did not learn because the queue was full.
    #[must_use]
    pub fn dropped_ends(&self) -> u64 {
        self.ends.get().map_or(0, |ends| ends.dropped.load(Relaxed))
    }

    /// The connections of this machine whose end other machines have seen.
    #[must_use]
    pub fn closed_by_others(&self) -> u64 {
        self.ends.get().map_or(0, |ends| ends.closed.load(Relaxed))
    }
}

//! Local ports of FullNAT connections: which connection has a local address and port towards a backend.
//!
//! ```text
//!  reply: backend > local address and port ──hash──> index ──> slot with this hash and local port
//! ```
//!
//! The 5-tuple of a reply identifies its connection, so one local port serves any number of connections
//! as long as their backends (or the ports of their backends) differ. The table knows no backends: it
//! keeps 32 bits of the hash of the 5-tuple. Two connections with the same local port and the same 32
//! bits are treated as if they had the same 5-tuple, so that a reply never finds two connections.
//!
//! Invariants: no two entries have the same local port and hash; an entry is removed with its connection.

use flowyard_frame::Nanos;

use super::conn::LocalPort;
use super::index::Index;
use super::{Conn, Conns};

/// What the index keeps of the hash of a 5-tuple.
#[inline]
const fn short(hash: u64) -> u32 {
    (hash >> 20) as u32
}

/// The hash by which the index places an entry.
#[inline]
pub(super) const fn spread(short: u32) -> u64 {
    (short as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The index of local ports.
#[derive(Clone, Debug)]
pub(super) struct Ports {
    /// `None` if the balancer has no local addresses.
    pub(super) index: Option<Index>,
}

impl Ports {
    pub(super) fn new(capacity: usize, has_locals: bool) -> Self {
        Self { index: has_locals.then(|| Index::new(capacity)) }
    }

    /// As [`Index::rekey`].
    pub(super) fn rekey(&mut self, key: u64) {
        if let Some(index) = &mut self.index {
            index.rekey(key);
        }
    }
}

impl Conns {
    /// The slot of the connection whose replies have this hash and are sent to this local port.
    #[must_use]
    #[inline]
    pub fn bound(&self, hash: u64, local: LocalPort) -> Option<u32> {
        let kept = short(hash);
        self.ports.index.as_ref()?.find(spread(kept), |slot| self.is_bound(slot, kept, local))
    }

    /// As [`Conns::bound`], for the connection that a mark on a reply names; `None` if that is another one or is expired.
    pub fn bound_by_mark(
        &mut self,
        mark: u32,
        hash: u64,
        local: LocalPort,
        now: Nanos,
    ) -> Option<u32> {
        let slot = self.named_slot(mark)?;
        let is_right = self.is_bound(slot, short(hash), local) && self.get(slot, now).is_some();
        self.note_named(is_right.then_some(slot))
    }

    fn is_bound(&self, slot: u32, kept: u32, local: LocalPort) -> bool {
        let conn = self.slots.get(slot as usize);
        conn.is_some_and(|conn| conn.local() == local)
            && self.ends.get(slot as usize).is_some_and(|end| end.reply == kept)
    }

    /// Gives the connection in `slot` a local port; `hash` is that of its replies. Returns false, without a
    /// change, if another connection has it or the index has no place.
    pub fn bind(&mut self, slot: u32, hash: u64, local: LocalPort) -> bool {
        if local.port == 0 || self.bound(hash, local).is_some() {
            return false;
        }
        self.unbind(slot);
        let kept = short(hash);
        let (Some(index), Some(conn), Some(end)) = (
            self.ports.index.as_mut(),
            self.slots.get_mut(slot as usize),
            self.ends.get_mut(slot as usize),
        ) else {
            return false;
        };
        if !index.insert(spread(kept), slot) {
            return false;
        }
        (conn.port, conn.address, end.reply) = (local.port, local.address, kept);
        true
    }

    /// Takes the local port of the connection in `slot`, if it has one.
    pub(super) fn unbind(&mut self, slot: u32) {
        let (Some(index), Some(conn), Some(end)) = (
            self.ports.index.as_mut(),
            self.slots.get_mut(slot as usize),
            self.ends.get(slot as usize),
        ) else {
            return;
        };
        if conn.port != 0 {
            index.remove(spread(end.reply), slot);
            (conn.port, conn.address) = (0, 0);
        }
    }

    /// The local port of the connection in `slot`.
    #[must_use]
    #[inline]
    pub fn local(&self, slot: u32) -> LocalPort {
        self.slots.get(slot as usize).map(Conn::local).unwrap_or_default()
    }
}

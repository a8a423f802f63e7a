//! What a connection table has beside its entries: its secret, the directory that lists it, and MAC addresses.
//!
//! With several cores, each entry is listed in a directory that all tables share
//! ([`flowyard_flow::table::Directory`]), so that a core that does not know a connection learns which other
//! tables may have it without searching them.
//!
//! Invariants: an entry is listed once, from its insertion to its removal, also while it is expired; at most 64 are
//! listed that were removed.

use std::sync::Arc;

use flowyard_flow::Secret;
use flowyard_flow::table::Directory;

use super::conn::COPY;
use super::{Conns, Timeouts};

/// The most entries that are removed and still listed.
const GONE: usize = 64;

impl Conns {
    /// The same table, still empty, in which `secret` decides where entries are placed.
    #[must_use]
    pub fn with_secret(mut self, secret: Secret) -> Self {
        self.index.rekey(secret.key("connections"));
        self.ports.rekey(secret.key("local ports"));
        self
    }

    /// The same table, still empty, whose entries are listed in `directory` as those of `core`. Only who may change
    /// the table changes what is listed of it.
    #[must_use]
    pub fn with_directory(self, directory: &Arc<Directory>, core: u16) -> Self {
        let gone = Vec::with_capacity(GONE);
        Self { listed: Some((Arc::clone(directory), core)), gone, ..self }
    }

    /// The idle timeouts.
    #[must_use]
    pub const fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    /// Changes the idle timeouts. An entry gets its new one with its next packet.
    pub const fn set_timeouts(&mut self, timeouts: Timeouts) {
        self.timeouts = timeouts;
    }

    /// Lists a new entry.
    #[inline]
    pub(super) fn enlist(&self, hash: u64) {
        if let Some((directory, core)) = &self.listed {
            directory.add(hash, *core);
        }
    }

    /// Ends the listing of an entry, not before the next batch or a number of further entries.
    #[inline]
    pub(super) fn unlist(&mut self, hash: u64) {
        if self.listed.is_some() {
            if self.gone.len() == GONE {
                self.unlist_gone();
            }
            self.gone.push(hash); // never reallocates: the capacity is allocated
        }
    }

    /// Ends the listing of the entries that were removed, all at once, so that their cache misses overlap.
    pub(super) fn unlist_gone(&mut self) {
        if let Some((directory, core)) = &self.listed {
            let warm = self.gone.iter().fold(0, |warm, &hash| warm ^ directory.fetch(hash));
            std::hint::black_box(warm);
            self.gone.drain(..).for_each(|hash| directory.remove(hash, *core));
        }
    }

    /// The same table, which also stores the MAC address from which a client's packets come: 6 bytes for each
    /// connection of the capacity.
    #[must_use]
    pub fn with_macs(self) -> Self {
        Self { macs: vec![[0; 6]; self.capacity], ..self }
    }

    /// Sets whether the connection in `slot`, which has no local port, is counted by this entry. Returns whether it was.
    pub fn set_counted(&mut self, slot: u32, counted: bool) -> bool {
        let Some(conn) = self.slots.get_mut(slot as usize).filter(|conn| conn.port == 0) else {
            return true; // a connection with a local port has one entry
        };
        let was = conn.is_counted();
        conn.address = conn.address & !COPY | if counted { 0 } else { COPY };
        was
    }

    /// Stores the MAC address from which the packets of the connection in `slot` come.
    #[inline]
    pub fn set_mac(&mut self, slot: u32, mac: [u8; 6]) {
        if let Some(old) = self.macs.get_mut(slot as usize) {
            *old = mac;
        }
    }

    /// The stored MAC address of the connection in `slot`.
    #[must_use]
    pub fn mac(&self, slot: u32) -> Option<[u8; 6]> {
        self.macs.get(slot as usize).copied().filter(|mac| *mac != [0; 6])
    }
}

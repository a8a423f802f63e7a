//! Read-only queries of a plan, for `flowyard lb trace`.

use super::{Plan, Table, Target};
use crate::conns::ConnKey;

/// The entry of a service's Maglev table that a connection hashes to.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Index of the entry in the table.
    pub entry: usize,
    /// Size of the table; 0 if no backend accepts new connections.
    pub entries: usize,
    /// The checksum of the table.
    pub checksum: u64,
    /// The backend in this entry.
    pub target: Option<&'a Target>,
}

impl Plan {
    /// The entry that decides for a new connection if the service chooses by hash, and, whatever the
    /// choice, for packets of an established connection that no table has an entry for.
    #[must_use]
    pub fn entry(&self, service: u16, key: &ConnKey, hash: u64) -> Option<Entry<'_>> {
        let table = self.services.get(usize::from(service))?;
        let hash = self.hash_of(table, key, hash);
        let (entry, entries) = (table.maglev.entry(hash), table.maglev.entries().len());
        let target = table.maglev.get(hash).and_then(|index| self.member(table, index));
        Some(Entry { entry, entries, checksum: table.checksum(), target })
    }

    /// The backend for a new connection to a service whose choice compares backends.
    #[must_use]
    pub fn best(&self, service: u16) -> Option<&Target> {
        self.compared(self.services.get(usize::from(service))?, |_| true)
    }

    /// The backends of a service, in the order of the configuration.
    pub fn members<'a>(&'a self, table: &'a Table) -> impl Iterator<Item = &'a Target> {
        table.members.iter().filter_map(|&place| self.targets.get(place as usize)?.as_ref())
    }
}

//! What a plan says of a connection, for people who ask: nothing is changed by it.

use super::{Plan, Table, Target};
use crate::conns::ConnKey;
use crate::service::Choice;

/// The entry of a service's table that answers for a connection.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its number.
    pub entry: usize,
    /// How many there are; none if no backend takes connections.
    pub entries: usize,
    /// The checksum of the table.
    pub checksum: u64,
    /// The backend that stands there.
    pub target: Option<&'a Target>,
}

impl Plan {
    /// The entry that answers for a connection, if its service's choice is by hash, and for packets
    /// of which nothing is known, whatever the choice.
    #[must_use]
    pub fn entry(&self, service: u16, key: &ConnKey, hash: u64) -> Option<Entry<'_>> {
        let table = self.services.get(usize::from(service))?;
        let hash = match table.service.choice {
            Choice::SourceHash => key.source_hash(self.seed),
            _ => hash,
        };
        let (entry, entries) = (table.maglev.entry(hash), table.maglev.entries().len());
        let target = table.maglev.get(hash).and_then(|index| self.member(table, index));
        Some(Entry { entry, entries, checksum: table.checksum(), target })
    }

    /// The backend of a service that has the fewest connections for its weight.
    #[must_use]
    pub fn fewest(&self, service: u16) -> Option<&Target> {
        self.least(self.services.get(usize::from(service))?)
    }

    /// The backends of a service, in the order in which they are described.
    pub fn members<'a>(&'a self, table: &'a Table) -> impl Iterator<Item = &'a Target> {
        table.members.iter().filter_map(|&place| self.targets.get(place as usize)?.as_ref())
    }
}

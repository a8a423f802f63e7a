//! The other cores whose tables may have a connection that this core does not know.
//!
//! With a directory these are the cores that it names: none for a new connection, so that its cost does not
//! depend on the number of cores. Where it cannot exclude any, all are searched.
//!
//! Invariants: in the order of their numbers; a core that has entered the connection before this
//! core got its packet is among them.

use flowyard_flow::table::{Directory, Listed};

use super::balance::Balance;

/// Numbers of cores.
pub(super) struct Cores<'a> {
    directory: Option<&'a Directory>,
    hash: u64,
    own: usize,
    /// The number of cores.
    count: usize,
    /// Whether this core is the next one.
    begins: bool,
    /// What the directory says; it is read when the first of the other cores is needed.
    listed: Option<Listed>,
    next: usize,
}

impl Iterator for Cores<'_> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if std::mem::take(&mut self.begins) {
            return Some(self.own);
        }
        let (directory, hash) = (self.directory, self.hash);
        let listed = self.listed.get_or_insert_with(|| match directory {
            Some(directory) => directory.find(hash),
            None => Listed::Any,
        });
        loop {
            let core = match listed {
                Listed::Only(cores, len) => usize::from(*cores[..*len].get(self.next)?),
                Listed::None => return None,
                Listed::Any => (self.next < self.count).then_some(self.next)?,
            };
            self.next += 1;
            if core != self.own {
                return Some(core);
            }
        }
    }
}

impl Balance {
    /// The other cores whose tables may have the connection with this hash.
    #[inline]
    pub(super) fn others(&self, hash: u64) -> Cores<'_> {
        Cores { begins: false, ..self.own_and_others(hash) }
    }

    /// This core, and then those of [`Self::others`].
    #[inline]
    pub(super) fn own_and_others(&self, hash: u64) -> Cores<'_> {
        Cores {
            directory: self.directory.as_deref(),
            hash,
            own: self.core,
            count: self.conns.len(),
            begins: true,
            listed: None,
            next: 0,
        }
    }
}

//! Tables: key to action, a batch at a time.
//!
//! A table answers the lanes that match and returns those that missed, which the next table gets.
//! Entries are added and removed by edits, between batches. A table that cannot apply an edit returns
//! the reason.

use std::borrow::Cow;

use flowyard_frame::{Action, Batch, Edit, FlowKey, Lanes};

#[cfg(test)]
mod answers;
pub mod cuckoo;
pub mod directory;
pub mod exact;
pub mod l2;
pub mod linear;
pub mod lpm;
pub mod maglev;
pub mod marked;
mod rank;
pub mod replica;
pub mod rules;
pub mod spread;
pub mod tuples;
pub mod wildcard;

pub use directory::{Directory, Listed};
pub use exact::Exact;
pub use l2::L2;
pub use linear::Linear;
pub use lpm::Lpm;
pub use maglev::Maglev;
pub use marked::Marked;
pub use replica::Replica;
pub use rules::{Rule, Rules};
pub use spread::Spread;
pub use tuples::TupleSpace;
pub use wildcard::Wildcard;

/// Key to action, a batch at a time.
pub trait Table {
    /// Writes the action of each lane of `want` that matches; returns the lanes that missed,
    /// whose actions stay as they were.
    fn lookup(&mut self, batch: &mut Batch, want: Lanes) -> Lanes;

    /// The lanes of the last lookup whose answers a cache in front of the table may copy: the answer is
    /// the same for every key that has the same fields under the cache's mask. None by default.
    fn sure(&self) -> Lanes {
        Lanes::NONE
    }

    /// Applies `edits` in order. Edits that the table cannot take are added to `refused`, each with
    /// its reason, and change nothing.
    fn apply(&mut self, edits: &[Edit], refused: &mut Vec<Refusal>) {
        let reason = Reason::Unsupported("this table takes no edits".into());
        refused.extend(edits.iter().map(|&edit| Refusal { edit, reason: reason.clone() }));
    }

    /// Number of entries, and capacity; `None` if the table does not count them.
    fn occupancy(&self) -> Option<(usize, usize)> {
        None
    }

    /// Calls `show` with every entry, in no particular order, for diagnostics. Tables whose entries are
    /// not keys show none.
    fn each(&self, _show: &mut dyn FnMut(&FlowKey, &Action)) {}
}

/// An edit that was not applied, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The refused edit; it changed nothing.
    pub edit: Edit,
    /// Why it was refused.
    pub reason: Reason,
}

/// Why an edit was not applied.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// Every entry is taken.
    #[error("the table is full: all {capacity} entries are taken; delete some, or make it larger")]
    Full {
        /// Number of entries of the table.
        capacity: usize,
    },
    /// There are free entries, but none where this key may be placed.
    #[error("no free place for this key among {capacity} entries; make the table larger")]
    Crowded {
        /// Number of entries of the table.
        capacity: usize,
    },
    /// The limit of different masks is reached: each mask costs a lookup.
    #[error(
        "the rules have {limit} different masks already, which is the limit because each costs a lookup; use one of them"
    )]
    Masks {
        /// The largest number of masks.
        limit: usize,
    },
    /// The key has fields that the table does not match on.
    #[error(
        "the key has fields that this table does not match on; clear them, or extend the table's mask"
    )]
    OutsideMask,
    /// The table or adapter does not support the edit; the text says why.
    #[error("{0}")]
    Unsupported(Cow<'static, str>),
}

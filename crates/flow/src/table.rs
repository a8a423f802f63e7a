//! Tables: key to action, a batch at a time.
//!
//! A table answers the lanes it can and returns those it missed; the next table gets those. Rules
//! enter and leave by edits, between batches. A table that cannot take an edit says why.

use std::borrow::Cow;

use flowyard_frame::{Action, Batch, Edit, FlowKey, Lanes};

pub mod cuckoo;
pub mod exact;
pub mod l2;
pub mod linear;
pub mod lpm;
pub mod maglev;
pub mod rules;
pub mod spread;
pub mod wildcard;

pub use exact::Exact;
pub use l2::L2;
pub use linear::Linear;
pub use lpm::Lpm;
pub use maglev::Maglev;
pub use rules::{Rule, Rules};
pub use spread::Spread;
pub use wildcard::Wildcard;

/// Key to action, a batch at a time.
pub trait Table {
    /// Writes the action of each lane of `want` that matches; returns the lanes that missed,
    /// whose actions stay as they were.
    fn lookup(&mut self, batch: &mut Batch, want: Lanes) -> Lanes;

    /// The lanes of the last lookup whose answers a table in front may repeat: they are the same
    /// for every key that has the same fields under that table's mask. None, unless a table knows.
    fn sure(&self) -> Lanes {
        Lanes::NONE
    }

    /// Where this table takes edits, if it does.
    fn edits(&mut self) -> Option<&mut dyn Offload> {
        None
    }

    /// How many entries it has, and how many it takes; `None` if it does not count.
    fn occupancy(&self) -> Option<(usize, usize)> {
        None
    }

    /// Shows every entry, in no order: for people, not for the walk. A table whose entries are no
    /// keys shows none.
    fn each(&self, _show: &mut dyn FnMut(&FlowKey, &Action)) {}
}

/// Takes edits: a table, or an adapter that has one.
pub trait Offload {
    /// Applies `edits` in order; those it cannot take are added to `refused`, each with a reason,
    /// and change nothing.
    fn apply(&mut self, edits: &[Edit], refused: &mut Vec<Refusal>);
}

/// An edit that was not taken, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The edit.
    pub edit: Edit,
    /// Why it was not taken.
    pub reason: Reason,
}

/// Why an edit was not taken.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// Every entry is taken.
    #[error("the table is full: all {capacity} entries are taken; delete some, or make it larger")]
    Full {
        /// How many entries the table has.
        capacity: usize,
    },
    /// There are free entries, but none that this key could stand in.
    #[error("no free place for this key among {capacity} entries; make the table larger")]
    Crowded {
        /// How many entries the table has.
        capacity: usize,
    },
    /// Every mask is taken: each costs a lookup of its own.
    #[error(
        "the rules have {limit} different masks already, and each costs a lookup; use one of theirs"
    )]
    Masks {
        /// How many masks the table takes.
        limit: usize,
    },
    /// The key has fields that the table does not match on.
    #[error("the key has fields that this table does not match on; clear them, or widen its mask")]
    OutsideMask,
    /// What an adapter cannot do, in its own words.
    #[error("{0}")]
    Unsupported(Cow<'static, str>),
}

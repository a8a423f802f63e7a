//! Rules: from key, mask and priority to action; and a core's view of the shared rule table.
//!
//! ```text
//!  priority 20   10.0.0.0/8 tcp :80   ─┐ of the rules that match a key, the one with the highest
//!  priority 10   10.1.0.0/16          ─┤ priority answers; of equal ones, the one added first
//!  priority  0   anything             ─┘
//! ```
//!
//! Rules change rarely and as a whole. Cores therefore share one immutable [`Wildcard`]: a reload gives
//! each core a new one, and the last core that releases the old one frees it.
//!
//! This module also decides which answers a cache in front may copy. The cache's entries match only
//! the fields under its mask. An answer is the same for all keys with those fields if the rule outranks
//! every rule that matches on more fields: then neither the rule that answered nor any rule above it
//! depends on other fields.
//!
//! Thread-safety: a [`Rules`] is one core's; the table behind it is immutable.

use std::sync::Arc;

use flowyard_frame::{Action, Batch, FlowKey, Lanes};

use super::{Table, Wildcard};

/// A rule: what it matches, and its action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The values that a frame's fields must have; zero outside `mask`.
    pub key: FlowKey,
    /// The bits that are compared.
    pub mask: FlowKey,
    /// Of the rules that match, the one with the highest priority answers.
    pub priority: u16,
    /// The action for frames that match.
    pub action: Action,
}

impl Rule {
    /// Whether a frame with this key matches.
    #[must_use]
    pub fn matches(&self, key: &FlowKey) -> bool {
        key.masked(&self.mask) == self.key
    }
}

/// A core's view of the rules.
#[derive(Clone, Debug)]
pub struct Rules {
    table: Arc<Wildcard>,
    /// Answers of rules with a rank above this are sure.
    doubt: u64,
    sure: Lanes,
}

impl Rules {
    /// A view of `table`; [`Table::sure`] is for a cache that matches on the fields of `mask`.
    #[must_use]
    pub fn new(table: Arc<Wildcard>, mask: &FlowKey) -> Self {
        let doubt = table.doubt(mask);
        Self { table, doubt, sure: Lanes::NONE }
    }
}

impl Table for Rules {
    #[inline]
    fn lookup(&mut self, batch: &mut Batch, want: Lanes) -> Lanes {
        let (missed, sure) = self.table.search(batch, want, self.doubt);
        self.sure = sure;
        missed
    }

    fn sure(&self) -> Lanes {
        self.sure
    }
}

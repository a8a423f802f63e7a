//! Rules: key, mask and priority to action; and the rule table that all cores read.
//!
//! ```text
//!  priority 20   10.0.0.0/8 tcp :80   ─┐ of all rules that match a key, the one with the highest
//!  priority 10   10.1.0.0/16          ─┤ priority answers; of equals, the one put first
//!  priority  0   anything             ─┘
//! ```
//!
//! Rules change rarely and as a whole, so cores share one [`Wildcard`] that nobody writes: a reload
//! gives each core another one, and the last that leaves the old one frees it.
//!
//! What a cache in front may repeat is decided here. Its entries know the fields under its mask
//! alone. An answer is the same for all keys with those fields if it outranks every rule that looks
//! at more: the rule that answered looks at no more itself, and whatever could overrule it neither.
//!
//! Thread-safety: a [`Rules`] is one core's; the table behind it is immutable.

use std::sync::Arc;

use flowyard_frame::{Action, Batch, FlowKey, Lanes};

use super::{Table, Wildcard};

/// What matches, and the answer to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The fields that a frame must have; zero outside `mask`.
    pub key: FlowKey,
    /// The bits that count.
    pub mask: FlowKey,
    /// The highest answers.
    pub priority: u16,
    /// The answer.
    pub action: Action,
}

impl Rule {
    /// Whether a frame with this key matches.
    #[must_use]
    pub fn matches(&self, key: &FlowKey) -> bool {
        key.masked(&self.mask) == self.key
    }
}

/// The order of rules: by priority, and of equal ones the first put is the highest. Unique in a
/// table, never 0. `puts` counts the rules ever put (2^48 of them take years).
pub(super) fn rank(priority: u16, puts: u64) -> u64 {
    u64::from(priority) << 48 | ((1 << 48) - 1 - puts.min((1 << 48) - 2))
}

/// The priority in a rank.
pub(super) const fn priority(rank: u64) -> u16 {
    (rank >> 48) as u16
}

/// A core's view of the rules.
#[derive(Clone, Debug)]
pub struct Rules {
    table: Arc<Wildcard>,
    /// Answers of rules with a higher rank are sure.
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

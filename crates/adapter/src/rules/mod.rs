//! Rules as users write them (`ethtool -N`), and what each adapter's driver makes of them.
//!
//! ```text
//!  file --parse--> rules --compile(target)--> verdicts: accepted | merged | refused, why, the mend
//!                                  accepted --RuleTable--> lookup(key) -> action, line
//! ```
//!
//! A rule is a key and a mask over [`FlowKey`], ones where it matters. Note that ethtool's own `m`
//! is the other way round: its ones are bits to *ignore*; the parser turns it over.
//!
//! Thread-safety: plain data.

mod compile;
mod i40e;
mod ice;
mod input_set;
mod installed;
mod ixgbe;
mod overlap;
mod parse;
mod rule;
mod table;
mod target;
mod verdict;
mod words;

pub use compile::{accepted, compile};
pub use overlap::{Overlap, overlaps};
pub use parse::{ParseError, parse};
pub use rule::{Flex, FlowType, Masked, Rule, RuleAction};
pub use table::RuleTable;
pub use target::{Driver, Target};
pub use verdict::{Reason, Verdict};

//! Rules as users write them (`ethtool -N`), and how the driver of each adapter treats them.
//!
//! ```text
//!  file --parse--> rules --compile(target)--> verdicts: accepted | merged | refused, reason and fix
//!                                  accepted --RuleTable--> lookup(key) -> action, line
//! ```
//!
//! A rule is a key and a mask over [`flowyard_frame::FlowKey`]; a one in the mask is a bit to match.
//! ethtool's own `m` is inverted: its ones are bits to *ignore*. The parser converts it.
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
mod text;
mod verdict;
pub(crate) mod words;

pub use compile::{accepted, compile};
pub use overlap::{Overlap, overlaps};
pub use parse::{ParseError, parse};
pub use rule::{Extras, Flex, FlowType, Masked, Rule, RuleAction};
pub use table::RuleTable;
pub use target::{Driver, Target};
pub use verdict::{Reason, Verdict};

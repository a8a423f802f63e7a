//! Rules whose order is only apparent.
//!
//! ethtool's manual says that the rule with the lowest location wins. On ixgbe, i40e and ice a
//! location is only a name: the hardware compares exact filters, and where two could match the
//! outcome is its own.

use super::rule::Rule;
use super::target::Target;

/// Two rules that can match one packet and disagree.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Overlap {
    /// The earlier line.
    pub first: u32,
    /// The later line.
    pub second: u32,
    /// In words, with the mend.
    pub text: String,
}

/// The pairs of rules that overlap and differ in action. Takes time in the square of the rules.
#[must_use]
pub fn overlaps(rules: &[Rule], target: Target) -> Vec<Overlap> {
    let mut found = Vec::new();
    for (i, first) in rules.iter().enumerate() {
        for second in &rules[i + 1..] {
            if first.action == second.action || !meet(first, second, target) {
                continue;
            }
            let text = format!(
                "lines {} and {} can match the same packet; on {} a location is a name, not a \
                 priority, so neither is sure to win: make them disjoint",
                first.line,
                second.line,
                target.driver_name()
            );
            found.push(Overlap { first: first.line, second: second.line, text });
        }
    }
    found
}

/// Whether some packet matches both, as this hardware sees packets.
fn meet(first: &Rule, second: &Rule, target: Target) -> bool {
    let classes = matches!(target, Target::I40e { .. } | Target::Ice);
    if classes && first.flow_type != second.flow_type {
        return false; // each flow type is a class of packets of its own
    }
    let ((key, mask), (other, other_mask)) = (target.filter(first), target.filter(second));
    let flexes = first.flex().map(|f| f.offset) == second.flex().map(|f| f.offset);
    let mut common = mask.masked(&other_mask);
    if !flexes {
        common.flex = 0; // words at two offsets: both may match
    }
    key.masked(&common) == other.masked(&common)
}

//! Finds rules that overlap, whose order has no effect.
//!
//! According to the manual of ethtool the rule with the lowest location has priority. With ixgbe, i40e
//! and ice a location is only a name: the hardware compares exact filters, and if two of them match,
//! either may be applied.

use super::rule::Rule;
use super::target::Target;

/// Two rules with different actions that can match the same packet.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Overlap {
    /// The line of the first rule.
    pub first: u32,
    /// The line of the second rule.
    pub second: u32,
    /// The warning as text, with the fix.
    pub text: String,
}

/// The pairs of rules that overlap and differ in action. The time is quadratic in the number of
/// rules.
#[must_use]
pub fn overlaps(rules: &[Rule], target: Target) -> Vec<Overlap> {
    let mut found = Vec::new();
    for (i, first) in rules.iter().enumerate() {
        for second in &rules[i + 1..] {
            if first.action == second.action || !meet(first, second, target) {
                continue;
            }
            let text = format!(
                "lines {} and {} can match the same packet; for {} a location is a name, not a \
                 priority, so it is undefined which rule applies: make them disjoint",
                first.line,
                second.line,
                target.driver_name()
            );
            found.push(Overlap { first: first.line, second: second.line, text });
        }
    }
    found
}

/// Whether a packet can match both rules on this hardware.
fn meet(first: &Rule, second: &Rule, target: Target) -> bool {
    let classes = matches!(target, Target::I40e { .. } | Target::Ice);
    if classes && first.flow_type != second.flow_type {
        return false; // each flow type has its own class of packets
    }
    let ((key, mask), (other, other_mask)) = (target.filter(first), target.filter(second));
    let flexes = first.flex().map(|f| f.offset) == second.flex().map(|f| f.offset);
    let mut common = mask.masked(&other_mask);
    if !flexes {
        common.flex = 0; // the words are at different offsets, so both may match
    }
    key.masked(&common) == other.masked(&common)
}

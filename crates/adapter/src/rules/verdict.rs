//! The verdict on a rule: whether the driver accepts it, and why not.

use serde::Serialize;

/// The reason for which a rule is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Serialize)]
#[non_exhaustive]
pub enum Reason {
    /// The device accepts no rules.
    NoNtuple,
    /// The flow type is not supported.
    FlowType,
    /// IPv6 is not matched in this mode.
    Ipv6,
    /// The location does not exist.
    Location,
    /// The table is full.
    TableFull,
    /// The port has one mask set, and the rule needs another one.
    OneMask,
    /// The flow type has one input set, and the rule needs another one.
    InputSet,
    /// The field is matched as a whole or not at all.
    PartialMask,
    /// Ports are given although the protocol is not matched.
    PortsWithoutL4,
    /// The VLAN mask is not supported.
    VlanMask,
    /// The mask of the flexible word, or the rest of `user-def`, is not supported.
    FlexMask,
    /// The offset of the flexible word is not supported.
    FlexOffset,
    /// The field is not supported.
    Field,
    /// The driver accepts the field but does not match it: the rule would match too much.
    IgnoredField,
    /// The rule matches no field.
    EmptyRule,
    /// The action is not supported.
    Action,
    /// RSS contexts are not supported.
    RssContext,
    /// A rule cannot steer to the queue.
    Queue,
    /// The driver reports, rightly or wrongly, that the rule exists already.
    AlreadyExists,
}

/// The verdict on a rule.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum Verdict {
    /// The driver installs the rule.
    Accepted {
        /// The location of the rule.
        loc: u32,
        /// Further facts about the rule, one sentence each.
        notes: Vec<String>,
    },
    /// Another rule takes effect in its place.
    Merged {
        /// The line of the other rule.
        with: u32,
        /// The reason as text.
        why: String,
    },
    /// The driver refuses the rule.
    Refused {
        /// The kind of reason.
        reason: Reason,
        /// The reason as text, with the error that the driver returns.
        text: String,
        /// What to change so that the rule is accepted.
        fix: String,
    },
}

/// The fields of [`Verdict::Refused`], as the error of a check.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) reason: Reason,
    pub(super) text: String,
    pub(super) fix: String,
}

/// The result of a check: the notes of a rule, or its refusal.
pub(super) type Check = Result<Vec<String>, Refusal>;

pub(super) fn refuse<T>(
    reason: Reason,
    text: impl Into<String>,
    fix: impl Into<String>,
) -> Result<T, Refusal> {
    Err(Refusal { reason, text: text.into(), fix: fix.into() })
}

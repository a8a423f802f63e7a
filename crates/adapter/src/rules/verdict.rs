//! What becomes of a rule, and why.

use serde::Serialize;

/// Why a rule is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Serialize)]
#[non_exhaustive]
pub enum Reason {
    /// The device takes no rules at all.
    NoNtuple,
    /// The flow type is not supported.
    FlowType,
    /// IPv6 is not matched in this mode.
    Ipv6,
    /// The location does not exist.
    Location,
    /// No room.
    TableFull,
    /// The port has one mask and it is another one.
    OneMask,
    /// The flow type's input set is another one.
    InputSet,
    /// The field is matched whole or not at all.
    PartialMask,
    /// Ports are given where the protocol is not matched.
    PortsWithoutL4,
    /// The VLAN mask is none of the possible ones.
    VlanMask,
    /// The flex word's mask or the rest of `user-def` is not possible.
    FlexMask,
    /// The flex word's offset is not possible.
    FlexOffset,
    /// The field is not supported.
    Field,
    /// The driver takes the field and forgets it: the rule would match too much.
    IgnoredField,
    /// Nothing is matched.
    EmptyRule,
    /// The action is not supported.
    Action,
    /// RSS contexts are not supported.
    RssContext,
    /// The queue cannot be addressed.
    Queue,
    /// The driver says that the rule is there already, rightly or not.
    AlreadyExists,
}

/// What becomes of a rule.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum Verdict {
    /// It goes in.
    Accepted {
        /// Where.
        loc: u32,
        /// What to know about it.
        notes: Vec<String>,
    },
    /// It does not count beside another rule.
    Merged {
        /// The other rule's line.
        with: u32,
        /// In words.
        why: String,
    },
    /// It does not go in.
    Refused {
        /// The kind.
        reason: Reason,
        /// In words, with the driver's own behaviour.
        text: String,
        /// What to do.
        mend: String,
    },
}

/// A refusal on its way to a [`Verdict`].
#[derive(Debug)]
pub(super) struct Refusal(pub(super) Reason, pub(super) String, pub(super) String);

/// Notes, or a refusal.
pub(super) type Check = Result<Vec<String>, Refusal>;

/// A refusal in one line.
pub(super) fn refuse<T>(
    reason: Reason,
    text: impl Into<String>,
    mend: impl Into<String>,
) -> Result<T, Refusal> {
    Err(Refusal(reason, text.into(), mend.into()))
}

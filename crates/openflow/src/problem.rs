//! The reasons for which a message is refused, as OpenFlow reports them: an error type and a code.
//!
//! The crate uses the numbers of 1.4; [`Problem::on_wire`] translates them for each version. 1.0
//! has six types with other numbers, and bundles on 1.3 have the numbers of extension 230.
//!
//! Thread-safety: plain data.

use crate::Version;

/// The experimenter number of the Open Networking Foundation.
pub const ONF: u32 = 0x4f4e_4600;

/// A reason for which a message is refused: the error to report, and a description for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{why} (OpenFlow error type {}, code {code})", *kind as u16)]
pub struct Problem {
    /// The error type.
    pub kind: Kind,
    /// The code, in the numbering of 1.4.
    pub code: u16,
    /// The description.
    pub why: &'static str,
}

/// An error in the numbering of one version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OnWire {
    /// The error type; 0xffff means an experimenter's error.
    pub kind: u16,
    /// The code.
    pub code: u16,
    /// The experimenter, for type 0xffff.
    pub experimenter: u32,
}

macro_rules! problems {
    ($($kind:ident = $number:literal { $($name:ident = $code:literal: $why:literal,)* })*) => {
        /// The error types of 1.4, `OFPET_*`.
        #[allow(missing_docs, reason = "the names are the specification's own")]
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u16)]
        pub enum Kind { $($kind = $number,)* }

        $($(
            #[doc = concat!($why, ": type ", $number, ", code ", $code, ".")]
            pub const $name: Problem = Problem { kind: Kind::$kind, code: $code, why: $why };
        )*)*

        /// Every named problem.
        pub const ALL: &[Problem] = &[$($($name,)*)*];
    };
}

problems! {
    HelloFailed = 0 {
        HELLO_INCOMPATIBLE = 0: "no version in common",
    }
    BadRequest = 1 {
        REQUEST_BAD_VERSION = 0: "not the version that was agreed on",
        REQUEST_BAD_TYPE = 1: "no such message type",
        REQUEST_BAD_MULTIPART = 2: "no such multipart type",
        REQUEST_BAD_EXPERIMENTER = 3: "no such experimenter",
        REQUEST_BAD_EXP_TYPE = 4: "no such experimenter type",
        REQUEST_EPERM = 5: "not permitted",
        REQUEST_BAD_LEN = 6: "the length does not fit the message",
        REQUEST_BUFFER_EMPTY = 7: "the buffer has been used already",
        REQUEST_BUFFER_UNKNOWN = 8: "no such buffer",
        REQUEST_BAD_TABLE = 9: "no such table",
        REQUEST_IS_SLAVE = 10: "this controller is a slave",
        REQUEST_BAD_PORT = 11: "no such port",
        REQUEST_BAD_PACKET = 12: "the packet is too short",
        MULTIPART_OVERFLOW = 13: "the multipart request is too long",
        MULTIPART_TIMEOUT = 14: "the rest of the multipart request did not come in time",
    }
    BadAction = 2 {
        ACTION_BAD_TYPE = 0: "no such action",
        ACTION_BAD_LEN = 1: "an action has the wrong length",
        ACTION_BAD_EXPERIMENTER = 2: "an action of an unknown experimenter",
        ACTION_BAD_OUT_PORT = 4: "an output to a port that does not exist",
        ACTION_BAD_ARGUMENT = 5: "an action's argument is out of range",
        ACTION_TOO_MANY = 7: "too many actions",
        ACTION_BAD_QUEUE = 8: "no such queue",
        ACTION_BAD_OUT_GROUP = 9: "no such group",
        ACTION_INCONSISTENT = 10: "the match does not require the header that the action sets",
        ACTION_BAD_TAG = 12: "a tag of an EtherType that is not supported",
        ACTION_BAD_SET_TYPE = 13: "a set-field of a field that cannot be set",
        ACTION_BAD_SET_LEN = 14: "a set-field with the wrong length",
        ACTION_BAD_SET_ARGUMENT = 15: "a set-field with a value out of range",
    }
    BadInstruction = 3 {
        INSTRUCTION_UNKNOWN = 0: "no such instruction",
        INSTRUCTION_UNSUPPORTED = 1: "the table does not have this instruction",
        INSTRUCTION_BAD_TABLE = 2: "a goto-table to the same or an earlier table",
        INSTRUCTION_BAD_EXPERIMENTER = 5: "an instruction of an unknown experimenter",
        INSTRUCTION_BAD_LEN = 7: "an instruction has the wrong length",
        INSTRUCTION_DUPLICATE = 9: "the same instruction twice",
    }
    BadMatch = 4 {
        MATCH_BAD_TYPE = 0: "no such match type",
        MATCH_BAD_LEN = 1: "a match has the wrong length",
        MATCH_BAD_WILDCARDS = 5: "a match value has bits outside its mask",
        MATCH_BAD_FIELD = 6: "no such match field",
        MATCH_BAD_VALUE = 7: "a match value is out of range",
        MATCH_BAD_MASK = 8: "a mask on a field that cannot have one",
        MATCH_BAD_PREREQ = 9: "a match field without the field that it requires",
        MATCH_DUPLICATE = 10: "the same match field twice",
    }
    FlowModFailed = 5 {
        FLOW_UNKNOWN = 0: "the flow cannot be changed in this way",
        FLOW_TABLE_FULL = 1: "the table is full",
        FLOW_BAD_TABLE = 2: "no such table to put the flow in",
        FLOW_OVERLAP = 3: "the flow overlaps another one",
        FLOW_BAD_TIMEOUT = 5: "an emergency flow has no timeouts",
        FLOW_BAD_COMMAND = 6: "no such flow command",
        FLOW_BAD_FLAGS = 7: "no such flow flag",
    }
    GroupModFailed = 6 {
        GROUP_EXISTS = 0: "the group exists already",
        GROUP_INVALID = 1: "a group cannot have this number, or these buckets",
        GROUP_OUT_OF_GROUPS = 3: "the group table is full",
        GROUP_OUT_OF_BUCKETS = 4: "too many buckets",
        GROUP_BAD_WATCH_UNSUPPORTED = 6: "a group of this type cannot watch a port or group",
        GROUP_LOOP = 7: "the chain of groups would form a loop",
        GROUP_UNKNOWN = 8: "no such group to modify",
        GROUP_CHAINED = 9: "another group refers to this one",
        GROUP_BAD_TYPE = 10: "no such group type",
        GROUP_BAD_COMMAND = 11: "no such group command",
        GROUP_BAD_BUCKET = 12: "a bucket is malformed",
        GROUP_BAD_WATCH = 13: "a bucket watches a port or group that does not exist",
    }
    PortModFailed = 7 {
        PORT_BAD_PORT = 0: "no such port to modify",
        PORT_BAD_HW_ADDR = 1: "the port has another hardware address",
        PORT_BAD_CONFIG = 2: "a port setting that is not supported",
        PORT_BAD_ADVERTISE = 3: "the port cannot advertise these features",
    }
    TableModFailed = 8 {
        TABLE_BAD_TABLE = 0: "no such table to modify",
        TABLE_BAD_CONFIG = 1: "a table setting that is not supported",
    }
    QueueOpFailed = 9 {
        QUEUE_BAD_PORT = 0: "no such port with queues",
        QUEUE_BAD_QUEUE = 1: "no such queue",
    }
    SwitchConfigFailed = 10 {
        CONFIG_BAD_FLAGS = 0: "a switch setting that is not supported",
        CONFIG_BAD_LEN = 1: "miss_send_len is out of range",
    }
    RoleRequestFailed = 11 {
        ROLE_STALE = 0: "the generation ID is older than the last one",
        ROLE_UNSUPPORTED = 1: "this controller cannot change its role",
        ROLE_BAD_ROLE = 2: "no such role",
    }
    MeterModFailed = 12 {
        METER_EXISTS = 1: "the meter exists already",
        METER_INVALID = 2: "a meter cannot have this number",
        METER_UNKNOWN = 3: "no such meter",
        METER_BAD_COMMAND = 4: "no such meter command",
        METER_BAD_FLAGS = 5: "meter flags that cannot be combined",
        METER_BAD_RATE = 6: "a band's rate is out of range",
        METER_BAD_BURST = 7: "a band's burst is out of range",
        METER_BAD_BAND = 8: "no such meter band",
        METER_BAD_BAND_VALUE = 9: "a band's value is out of range",
        METER_OUT_OF_METERS = 10: "the meter table is full",
        METER_OUT_OF_BANDS = 11: "too many meter bands",
    }
    TableFeaturesFailed = 13 {
        FEATURES_BAD_TABLE = 0: "no such table with features",
        FEATURES_BAD_METADATA = 1: "metadata bits that the table does not support",
        FEATURES_EPERM = 5: "the features of the table cannot be changed in this way",
    }
    BadProperty = 14 {
        PROPERTY_BAD_TYPE = 0: "no such property",
        PROPERTY_BAD_LEN = 1: "a property has the wrong length",
        PROPERTY_BAD_VALUE = 2: "a property's value is out of range",
        PROPERTY_DUPLICATE = 4: "the same property twice",
        PROPERTY_BAD_EXPERIMENTER = 5: "a property of an unknown experimenter",
    }
    AsyncConfigFailed = 15 {
        ASYNC_INVALID = 0: "a mask has unknown reasons",
        ASYNC_UNSUPPORTED = 1: "an unknown asynchronous message",
    }
    FlowMonitorFailed = 16 {
        MONITOR_EXISTS = 1: "the monitor exists already",
        MONITOR_INVALID = 2: "the monitor's settings are not valid",
        MONITOR_UNKNOWN = 3: "no such monitor",
        MONITOR_BAD_COMMAND = 4: "no such monitor command",
        MONITOR_BAD_FLAGS = 5: "unknown monitor flags",
        MONITOR_BAD_TABLE = 6: "a monitor of a table that does not exist",
    }
    BundleFailed = 17 {
        BUNDLE_BAD_ID = 2: "no such bundle",
        BUNDLE_EXISTS = 3: "the bundle is open already",
        BUNDLE_CLOSED = 4: "the bundle is closed",
        BUNDLE_OUT_OF_BUNDLES = 5: "too many bundles",
        BUNDLE_BAD_TYPE = 6: "no such bundle control",
        BUNDLE_BAD_FLAGS = 7: "the flags differ from those with which the bundle was opened",
        BUNDLE_BAD_LEN = 8: "a bundled message has the wrong length",
        BUNDLE_BAD_XID = 9: "a bundled message has another xid",
        BUNDLE_UNSUPPORTED = 10: "this message cannot be bundled",
        BUNDLE_TOO_MANY = 12: "the bundle is full",
        BUNDLE_FAILED = 13: "a bundled message failed",
    }
}

/// A chain of groups is too long. OpenFlow has no code for this; the nearest is that of a loop.
pub const GROUP_CHAIN_TOO_LONG: Problem =
    Problem { why: "a chain of more than 32 groups", ..GROUP_LOOP };
/// A chain of groups costs a frame too much; the nearest code is that of too many buckets.
pub const GROUP_TOO_MUCH_WORK: Problem = Problem {
    why: "a frame could meet more than 4,096 buckets in this chain of groups",
    ..GROUP_OUT_OF_BUCKETS
};

/// Controllers have used up the memory that the switch has for its tables.
const NO_MEMORY: &str = "the tables take as much memory as they may (memory_mib of [switch])";
/// See [`GROUP_OUT_OF_BUCKETS`].
pub const GROUP_OUT_OF_MEMORY: Problem = Problem { why: NO_MEMORY, ..GROUP_OUT_OF_BUCKETS };
/// See [`METER_OUT_OF_METERS`].
pub const METER_OUT_OF_MEMORY: Problem = Problem { why: NO_MEMORY, ..METER_OUT_OF_METERS };
/// See [`FLOW_TABLE_FULL`].
pub const FLOW_OUT_OF_MEMORY: Problem = Problem { why: NO_MEMORY, ..FLOW_TABLE_FULL };
/// See [`FEATURES_EPERM`].
pub const FEATURES_OUT_OF_MEMORY: Problem = Problem { why: NO_MEMORY, ..FEATURES_EPERM };
/// See [`BUNDLE_TOO_MANY`].
pub const BUNDLE_OUT_OF_MEMORY: Problem =
    Problem { why: "the open bundles have as many bytes as they may", ..BUNDLE_TOO_MANY };
/// See [`BUNDLE_TOO_MANY`].
pub const BUNDLE_TOO_MANY_CHANGES: Problem =
    Problem { why: "the bundle changes too many flow entries", ..BUNDLE_TOO_MANY };

impl Problem {
    /// Type and code in the numbering of `version`. A problem that the version cannot express
    /// becomes the nearest one that it can.
    #[must_use]
    pub fn on_wire(self, version: Version) -> OnWire {
        let plain = |kind, code| OnWire { kind, code, experimenter: 0 };
        let own = plain(self.kind as u16, self.code);
        match (version, self.kind) {
            (Version::V10, _) => {
                let (kind, code) = self.in_v10();
                plain(kind, code)
            }
            (Version::V13, Kind::BundleFailed) => {
                OnWire { kind: 0xffff, code: 2300 + self.code, experimenter: ONF }
            }
            (Version::V13, Kind::BadInstruction) if self.code == INSTRUCTION_DUPLICATE.code => {
                OnWire { kind: 0xffff, code: 2600, experimenter: ONF }
            }
            (Version::V13, Kind::BadRequest) if self.code == MULTIPART_TIMEOUT.code => {
                plain(1, MULTIPART_OVERFLOW.code)
            }
            (Version::V13, Kind::BadProperty) if self.code == PROPERTY_BAD_LEN.code => {
                plain(1, REQUEST_BAD_LEN.code)
            }
            (
                Version::V13,
                Kind::BadProperty | Kind::FlowMonitorFailed | Kind::AsyncConfigFailed,
            ) => plain(1, REQUEST_EPERM.code),
            _ => own,
        }
    }

    /// OpenFlow 1.0.0, section 5.4.4.
    const fn in_v10(self) -> (u16, u16) {
        let code = self.code;
        match self.kind {
            Kind::HelloFailed => (0, code),
            Kind::BadRequest if code <= 8 => (1, code),
            // 1.0 has this code in errors of port-mod messages.
            Kind::BadRequest if code == REQUEST_BAD_PORT.code => (4, PORT_BAD_PORT.code),
            // 1.0 has no match errors: a match of the wrong length is reported as a message of the
            // wrong length.
            Kind::BadMatch | Kind::BadProperty => (1, REQUEST_BAD_LEN.code),
            Kind::BadRequest | Kind::SwitchConfigFailed => (1, REQUEST_EPERM.code),
            Kind::BadAction if code <= 8 => (2, code),
            Kind::BadAction => (2, ACTION_BAD_ARGUMENT.code),
            Kind::FlowModFailed => match code {
                1 => (3, 0),
                3 => (3, 1),
                4 => (3, 2),
                5 => (3, 3),
                6 => (3, 4),
                _ => (3, 5),
            },
            Kind::BadInstruction => (3, 5),
            Kind::PortModFailed => (4, if code <= 1 { code } else { 0 }),
            Kind::QueueOpFailed => (5, code),
            // 1.0 has no messages that could fail in this way.
            _ => (1, REQUEST_BAD_TYPE.code),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_has_its_own_numbers() {
        let wire = |problem: Problem, version| {
            let wire = problem.on_wire(version);
            (wire.kind, wire.code, wire.experimenter)
        };
        assert_eq!(wire(FLOW_OVERLAP, Version::V10), (3, 1, 0));
        assert_eq!(wire(FLOW_OVERLAP, Version::V13), (5, 3, 0));
        assert_eq!(wire(REQUEST_BAD_PORT, Version::V10), (4, 0, 0));
        assert_eq!(wire(BUNDLE_BAD_ID, Version::V13), (0xffff, 2302, ONF));
        assert_eq!(wire(BUNDLE_BAD_ID, Version::V14), (17, 2, 0));
        for problem in ALL {
            let ten = problem.on_wire(Version::V10);
            assert!(ten.kind <= 5 && ten.code <= 8, "{problem}: {ten:?}");
            let thirteen = problem.on_wire(Version::V13);
            assert!(thirteen.kind <= 13 || thirteen.experimenter == ONF, "{problem}");
        }
    }
}

//! The messages that set up a connection: hello, error, features, configuration, roles.
#![allow(missing_docs, reason = "the fields are the specification's own")]

use crate::io::choice;
use crate::port::{Port, Property};

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Hello {
    /// The first word of the version bitmap, if the hello has one.
    pub versions: Option<u32>,
}

/// An error message. Type and code are in the numbering of the version on the wire.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ErrorMessage {
    pub kind: u16,
    pub code: u16,
    /// The experimenter; only with type 0xffff of 1.3 and 1.4.
    pub experimenter: u32,
    /// The first bytes of the rejected message, at least 64 unless it is shorter.
    pub data: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Features {
    pub datapath: u64,
    pub buffers: u32,
    pub tables: u8,
    pub auxiliary: u8,
    pub capabilities: u32,
    /// 1.0 only: one bit for each supported action.
    pub actions: u32,
    /// 1.0 only: later versions report ports in a multipart reply.
    pub ports: Vec<Port>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Config {
    pub flags: u16,
    pub miss_send_len: u16,
}

choice! {
    /// `OFPCR_ROLE_*`.
    Role { NoChange = 0, Equal = 1, Master = 2, Slave = 3, }
}

/// A role request, its reply, or the role status message of 1.4 (which alone has a reason).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RoleMessage {
    pub role: Role,
    pub generation: u64,
    pub reason: u8,
    pub properties: Vec<Property>,
}

/// The asynchronous messages that a controller wants: a property of 1.4 and its mask of reasons.
/// Properties with even numbers are for slaves, the odd ones that follow are for master and equal:
/// 0 packet-in, 2 port status, 4 flow removed, 6 role, 8 table, 10 request forward.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Async(pub Vec<(u16, u32)>);

//! Decisions about packets, as plain data.

use std::net::IpAddr;

use flowyard_frame::LANES;
use flowyard_yard::DropReason;

use crate::{ConnKey, LocalPort, Proxied};

/// Where the packets of a connection go.
#[derive(Clone, Copy)]
pub(super) struct Way {
    /// The backend's ID.
    pub(super) backend: u32,
    /// The core and slot of the connection's entry; `None` if it has no entry.
    pub(super) home: Option<(u16, u32)>,
    /// The local port of a FullNAT connection, on the core of its entry.
    pub(super) local: LocalPort,
}

impl Way {
    /// The way of a packet whose connection has no entry.
    pub(super) fn without_entry(backend: u32) -> Self {
        Self { backend, home: None, local: LocalPort::default() }
    }
}

/// The lookups of the lanes of a batch.
pub(super) struct Seen {
    pub(super) keys: [ConnKey; LANES],
    pub(super) hashes: [u64; LANES],
    pub(super) slots: [u32; LANES],
    pub(super) ways: [Option<Way>; LANES],
    /// For lanes that missed: the service.
    pub(super) services: [Option<u16>; LANES],
}

impl Default for Seen {
    #[inline]
    fn default() -> Self {
        Self {
            keys: [ConnKey::default(); LANES],
            hashes: [0; LANES],
            slots: [0; LANES],
            ways: [None; LANES],
            services: [None; LANES],
        }
    }
}

/// The decision about a packet without an entry in this core's table.
pub(super) enum Missed {
    Way(Way),
    NoService,
    Drop(DropReason),
}

/// The translation of a reply of a backend.
#[derive(Clone, Copy)]
pub(super) struct Reply {
    /// The new source address.
    pub(super) vip: IpAddr,
    /// The new source port.
    pub(super) port: u16,
    /// The new destination, if it must be translated.
    pub(super) dst: Option<(IpAddr, u16)>,
    /// The core and slot of the connection's entry, if it is known.
    pub(super) home: Option<(u16, u32)>,
    pub(super) proxied: Proxied,
    /// The MAC address from which the client's packets came, if it is stored.
    pub(super) mac: Option<[u8; 6]>,
}

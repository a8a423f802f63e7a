//! Hand-over to another process: connections, and the states of backends.
//!
//! ```text
//!  old   Hub: services, backends with their IDs, health ──┐
//!        Balance of each core: its connections ───────────┤ by number of service, ID of backend
//!  new   Hub: finds services and backends by name  <──────┤
//!        Balance of each core  <──────────────────────────┘
//! ```
//!
//! A backend is the same if the name of its service and its own name, address and port are the same. Connections of other
//! backends are left out: the next packet of each is placed as one without an entry. Times are relative to the
//! clock of each process.
//!
//! Invariants: a connection is in the table of the core that had it; bytes of any kind are read without a panic.
//! Thread-safety: used by one thread before the cores run, and by each core between two batches.

use std::collections::HashMap;
use std::net::IpAddr;

use flowyard_frame::Nanos;
use flowyard_yard::handover::bytes::{BadState, Reader, Writer};

/// The name under which the state of the hub is handed over.
pub(crate) const KIND: &str = "balance";

/// The version of the formats.
pub(crate) const VERSION: u64 = 2;

/// Where connections of another process belong: by the ID of a backend there, its ID here and the number of its
/// service here.
pub(crate) type Places = HashMap<u32, (u32, u16)>;

/// A backend of another process, with its state there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HandedBackend {
    pub(crate) service: String,
    pub(crate) backend: String,
    pub(crate) addr: IpAddr,
    pub(crate) port: Option<u16>,
    pub(crate) id: u32,
    pub(crate) is_up: bool,
    /// The time since it last came up or went down.
    pub(crate) changed_ago: Nanos,
    /// The time since slow start began.
    pub(crate) since_ago: Option<Nanos>,
    pub(crate) weight: Option<u32>,
    pub(crate) drained: bool,
}

/// The tables of a service of another process, each in a format of its own.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct HandedTables {
    pub(crate) service: String,
    /// The backends of clients' networks; empty if the service has no such table.
    pub(crate) networks: Vec<u8>,
    /// Datagrams that may be answered; empty if the service has no such table.
    pub(crate) asked: Vec<u8>,
}

/// Writes the states of backends, and the tables of services.
pub(crate) fn write(all: &[HandedBackend], tables: &[HandedTables]) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.number(VERSION).number(all.len() as u64);
    for one in all {
        writer.text(&one.service).text(&one.backend).text(&one.addr.to_string());
        writer.optional(one.port.map(u64::from)).number(one.id.into());
        writer.number(one.is_up.into()).number(one.changed_ago);
        writer.optional(one.since_ago).optional(one.weight.map(u64::from));
        writer.number(one.drained.into());
    }
    writer.number(tables.len() as u64);
    for HandedTables { service, networks, asked } in tables {
        writer.text(service);
        for table in [networks, asked] {
            writer.number(table.len() as u64).bytes(table);
        }
    }
    writer.finish()
}

/// Reads what [`write`] has written.
pub(crate) fn read(state: &[u8]) -> Result<(Vec<HandedBackend>, Vec<HandedTables>), BadState> {
    let mut reader = Reader::new(state);
    if reader.number()? != VERSION {
        return Err(BadState);
    }
    let count = reader.number()?;
    let one = |_| {
        let (service, backend) = (reader.text()?.to_owned(), reader.text()?.to_owned());
        let addr: IpAddr = reader.text()?.parse().map_err(|_| BadState)?;
        let port = reader.optional()?.map(u16::try_from).transpose().map_err(|_| BadState)?;
        Ok(HandedBackend {
            service,
            backend,
            addr,
            port,
            id: reader.small()?,
            is_up: reader.number()? != 0,
            changed_ago: reader.number()?,
            since_ago: reader.optional()?,
            weight: reader.optional()?.map(u32::try_from).transpose().map_err(|_| BadState)?,
            drained: reader.number()? != 0,
        })
    };
    let backends = (0..count).map(one).collect::<Result<_, BadState>>()?;
    let count = reader.number()?;
    let table = |reader: &mut Reader<'_>| {
        let bytes = reader.small()?;
        reader.bytes(bytes).map(<[u8]>::to_vec)
    };
    let tables = |_| {
        Ok(HandedTables {
            service: reader.text()?.to_owned(),
            networks: table(&mut reader)?,
            asked: table(&mut reader)?,
        })
    };
    Ok((backends, (0..count).map(tables).collect::<Result<_, BadState>>()?))
}

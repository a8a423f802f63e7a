//! The walk over the fields of each message.

use super::{Async, ErrorMessage, Features, Hello, Message};
use crate::io::{Io, Res};
use crate::port::{self, Property};
use crate::problem::{self, ONF};
use crate::{Version, bundle, flow, group, multipart, table};

/// Reads or writes the body of a message.
pub(crate) fn body<C: Io>(c: &mut C, message: &mut Message) -> Res {
    let version = c.version();
    if version == Version::V13 && matches!(message, Message::Bundle(_) | Message::BundleAdd(_)) {
        let (mut id, mut kind) = (ONF, 2300 + u32::from(matches!(message, Message::BundleAdd(_))));
        c.u32(&mut id)?;
        c.u32(&mut kind)?;
    }
    match message {
        Message::Hello(m) => hello(c, m),
        Message::Error(m) => error(c, m),
        Message::EchoRequest(data) | Message::EchoReply(data) => c.rest(data),
        Message::Experimenter { id, kind, data } => {
            c.u32(id)?;
            if version != Version::V10 {
                c.u32(kind)?;
            }
            c.rest(data)
        }
        Message::FeaturesReply(m) => features(c, m),
        Message::GetConfigReply(m) | Message::SetConfig(m) => {
            c.u16(&mut m.flags)?;
            c.u16(&mut m.miss_send_len)
        }
        Message::PacketIn(m) => flow::packet_in(c, m),
        Message::FlowRemoved(m) => flow::flow_removed(c, m),
        Message::PortStatus(m) => port::port_status(c, m),
        Message::PacketOut(m) => flow::packet_out(c, m),
        Message::FlowMod(m) => flow::flow_mod(c, m),
        Message::GroupMod(m) => group::group_mod(c, m),
        Message::PortMod(m) => port::port_mod(c, m),
        Message::TableMod(m) => table::table_mod(c, m),
        Message::MultipartRequest { more, body } => multipart::request(c, body, more),
        Message::MultipartReply { more, body } => multipart::reply(c, body, more),
        Message::QueueConfigRequest { port } => {
            c.port(port)?;
            c.pad(if version == Version::V10 { 2 } else { 4 })
        }
        Message::QueueConfigReply { port, queues } => {
            c.port(port)?;
            c.pad(if version == Version::V10 { 6 } else { 4 })?;
            c.list(queues, port::queue)
        }
        Message::RoleRequest(m) | Message::RoleReply(m) => {
            c.choice(&mut m.role, 4, problem::ROLE_BAD_ROLE)?;
            c.pad(4)?;
            c.u64(&mut m.generation)
        }
        Message::RoleStatus(m) => {
            c.choice(&mut m.role, 4, problem::ROLE_BAD_ROLE)?;
            c.u8(&mut m.reason)?;
            c.pad(3)?;
            c.u64(&mut m.generation)?;
            port::properties(c, &mut m.properties)
        }
        Message::GetAsyncReply(m) | Message::SetAsync(m) => asynchronous(c, m),
        Message::MeterMod(m) => group::meter_mod(c, m),
        Message::TableStatus(m) => table::table_status(c, m),
        Message::RequestForward(inner) => c.message(inner),
        Message::Bundle(m) => bundle::bundle(c, m),
        Message::BundleAdd(m) => bundle::bundle_add(c, m),
        Message::FeaturesRequest
        | Message::GetConfigRequest
        | Message::BarrierRequest
        | Message::BarrierReply
        | Message::GetAsyncRequest => Ok(()),
    }
}

/// Unknown elements are skipped, as the specification requires. A hello of 1.0 has no elements, and
/// its body is ignored.
fn hello<C: Io>(c: &mut C, m: &mut Hello) -> Res {
    let mut elements = Vec::new();
    if c.version() == Version::V10 {
        return if C::READS { c.rest(&mut elements) } else { Ok(()) };
    }
    let mut list = Vec::new();
    if let Some(versions) = m.versions {
        list.push(Property { kind: 1, data: versions.to_be_bytes().to_vec() });
    }
    c.list(&mut list, |c, element| {
        let mut mark = c.open();
        c.u16(&mut element.kind)?;
        c.len(&mut mark)?;
        c.rest(&mut element.data)?;
        c.close(&mark)?;
        c.align(&mark)
    })?;
    if C::READS {
        let map = list.iter().find(|element| element.kind == 1);
        let word = map.and_then(|map| map.data.first_chunk::<4>());
        m.versions = word.map(|word| u32::from_be_bytes(*word));
    }
    Ok(())
}

fn error<C: Io>(c: &mut C, m: &mut ErrorMessage) -> Res {
    c.u16(&mut m.kind)?;
    c.u16(&mut m.code)?;
    if m.kind == 0xffff && c.version() != Version::V10 {
        c.u32(&mut m.experimenter)?;
    }
    c.rest(&mut m.data)
}

fn features<C: Io>(c: &mut C, m: &mut Features) -> Res {
    c.u64(&mut m.datapath)?;
    c.u32(&mut m.buffers)?;
    c.u8(&mut m.tables)?;
    if c.version() == Version::V10 {
        c.pad(3)?;
        c.u32(&mut m.capabilities)?;
        c.u32(&mut m.actions)?;
        return c.list(&mut m.ports, port::port);
    }
    c.u8(&mut m.auxiliary)?;
    c.pad(2)?;
    c.u32(&mut m.capabilities)?;
    c.pad(4)
}

fn asynchronous<C: Io>(c: &mut C, m: &mut Async) -> Res {
    if c.version() == Version::V13 {
        // The mask for masters comes before that for slaves: packet-in, port status, flow removed (section 7.3.10).
        for kind in [1, 0, 3, 2, 5, 4] {
            let found = m.0.iter().find(|(found, _)| *found == kind);
            let mut mask = found.map_or(0, |(_, mask)| *mask);
            c.u32(&mut mask)?;
            if C::READS {
                m.0.push((kind, mask));
            }
        }
        return Ok(());
    }
    let was = c.blame(problem::PROPERTY_BAD_LEN);
    c.list(&mut m.0, |c, (kind, mask)| {
        let mut mark = c.open();
        let mut number = (*kind).into();
        c.draw(&mut number, 2, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])?;
        *kind = number as u16;
        if *kind > 11 {
            return Err(problem::ASYNC_UNSUPPORTED);
        }
        c.len(&mut mark)?;
        c.u32(mask)?;
        c.close(&mark)
    })?;
    c.blame(was);
    Ok(())
}

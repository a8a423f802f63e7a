//! Messages: header, body, version.
//!
//! ```text
//!   version 8 | type 8 | length 16 | xid 32 | body
//! ```
//!
//! What a message of one version cannot say in another is an error of [`encode`], never a guess.
#![allow(missing_docs, reason = "the fields are the specification's own")]

use crate::bundle::{self, Bundle, BundleAdd};
use crate::flow::{self, FlowMod, FlowRemoved, PacketIn, PacketOut};
use crate::group::{self, GroupMod, MeterMod};
use crate::io::{Io, Reader, Res, Writer, choice};
use crate::multipart::{self, Reply, Request};
use crate::port::{self, Port, PortMod, PortStatus, Property, Queue};
use crate::problem::{self, ONF, Problem};
use crate::table::{self, TableMod, TableStatus};

/// A version that this crate speaks; its number is that on the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum Version {
    /// OpenFlow 1.0.
    V10 = 1,
    /// OpenFlow 1.3.
    #[default]
    V13 = 4,
    /// OpenFlow 1.4.
    V14 = 5,
}

impl Version {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::V10, Self::V13, Self::V14];

    /// The version of a number on the wire.
    #[must_use]
    pub fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|version| *version as u8 == number)
    }

    /// The highest version that both have (1.3.5, section 6.3.1): of the bitmaps, if the other
    /// sent one, else the lower of the two numbers.
    #[must_use]
    pub fn agree(own: &[Self], header: u8, hello: &Hello) -> Option<Self> {
        let best = own.iter().copied().max()?;
        let bit = |version: Self| hello.versions.is_some_and(|map| map & 1 << version as u8 != 0);
        if hello.versions.is_some() {
            return own.iter().copied().filter(|version| bit(*version)).max();
        }
        let lower = header.min(best as u8);
        own.iter().copied().find(|version| *version as u8 == lower)
    }
}

/// The first eight bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    pub version: u8,
    pub kind: u8,
    pub length: u16,
    pub xid: u32,
}

impl Header {
    /// The header of the message that `bytes` start with; none if they are too few for one. Its
    /// length may be less than 8: then there is no telling where the next message starts.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let [version, kind, l0, l1, xid @ ..] = *bytes.first_chunk::<8>()?;
        let length = u16::from_be_bytes([l0, l1]);
        Some(Self { version, kind, length, xid: u32::from_be_bytes(xid) })
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Hello {
    /// The first word of the version bitmap.
    pub versions: Option<u32>,
}

/// An error message, as on the wire.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ErrorMessage {
    pub kind: u16,
    pub code: u16,
    /// For type 0xffff of 1.3 and 1.4.
    pub experimenter: u32,
    /// At least 64 bytes of what it is about.
    pub data: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Features {
    pub datapath: u64,
    pub buffers: u32,
    pub tables: u8,
    pub auxiliary: u8,
    pub capabilities: u32,
    /// 1.0: one bit for each action.
    pub actions: u32,
    /// 1.0: later versions ask by multipart.
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

/// A request for a role, the reply, and of 1.4 the word that it changed (with a reason).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RoleMessage {
    pub role: Role,
    pub generation: u64,
    pub reason: u8,
    pub properties: Vec<Property>,
}

/// Which asynchronous messages a controller wants: masks by property of 1.4 (even: slave, odd:
/// master and equal; 0 packet-in, 2 port status, 4 flow removed, 6 role, 8 table, 10 forward).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Async(pub Vec<(u16, u32)>);

/// Every message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    Hello(Hello),
    Error(ErrorMessage),
    EchoRequest(Vec<u8>),
    EchoReply(Vec<u8>),
    Experimenter { id: u32, kind: u32, data: Vec<u8> },
    FeaturesRequest,
    FeaturesReply(Features),
    GetConfigRequest,
    GetConfigReply(Config),
    SetConfig(Config),
    PacketIn(PacketIn),
    FlowRemoved(FlowRemoved),
    PortStatus(PortStatus),
    PacketOut(PacketOut),
    FlowMod(FlowMod),
    GroupMod(GroupMod),
    PortMod(PortMod),
    TableMod(TableMod),
    MultipartRequest { more: bool, body: Request },
    MultipartReply { more: bool, body: Reply },
    BarrierRequest,
    BarrierReply,
    QueueConfigRequest { port: u32 },
    QueueConfigReply { port: u32, queues: Vec<Queue> },
    RoleRequest(RoleMessage),
    RoleReply(RoleMessage),
    GetAsyncRequest,
    GetAsyncReply(Async),
    SetAsync(Async),
    MeterMod(MeterMod),
    RoleStatus(RoleMessage),
    TableStatus(TableStatus),
    RequestForward(Vec<u8>),
    Bundle(Bundle),
    BundleAdd(BundleAdd),
}

/// A message that cannot be read, and what to answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("message type {} with xid {}: {problem}", header.kind, header.xid)]
pub struct Rejected {
    /// Whose message it is.
    pub header: Header,
    /// What is wrong with it.
    pub problem: Problem,
}

/// Numbers of messages; 1.0 has its own from 15 on. Bundles of 1.3 are experimenter messages.
pub(crate) const fn kinds(version: Version) -> &'static [u8] {
    const ALL: &[u8] = &[
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24,
        25, 26, 27, 28, 29, 30, 31, 32, 33, 34,
    ];
    const NEW: &[u8] = &[
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 24, 25, 26,
        27, 28, 29, 30, 31, 32, 33, 34,
    ];
    match version {
        Version::V10 => ALL.split_at(22).0,
        Version::V13 => ALL.split_at(30).0,
        Version::V14 => NEW,
    }
}

/// The number of 1.3 and 1.4 for a number of 1.0, which lacks groups and tables.
const OLD: [u8; 22] =
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 18, 19, 20, 21, 22, 23];

impl Message {
    /// The number of the message in 1.4 (and 22, 23 for 1.3's queues).
    const fn canonical(&self) -> u8 {
        match self {
            Self::Hello(_) => 0,
            Self::Error(_) => 1,
            Self::EchoRequest(_) => 2,
            Self::EchoReply(_) => 3,
            Self::Experimenter { .. } => 4,
            Self::FeaturesRequest => 5,
            Self::FeaturesReply(_) => 6,
            Self::GetConfigRequest => 7,
            Self::GetConfigReply(_) => 8,
            Self::SetConfig(_) => 9,
            Self::PacketIn(_) => 10,
            Self::FlowRemoved(_) => 11,
            Self::PortStatus(_) => 12,
            Self::PacketOut(_) => 13,
            Self::FlowMod(_) => 14,
            Self::GroupMod(_) => 15,
            Self::PortMod(_) => 16,
            Self::TableMod(_) => 17,
            Self::MultipartRequest { .. } => 18,
            Self::MultipartReply { .. } => 19,
            Self::BarrierRequest => 20,
            Self::BarrierReply => 21,
            Self::QueueConfigRequest { .. } => 22,
            Self::QueueConfigReply { .. } => 23,
            Self::RoleRequest(_) => 24,
            Self::RoleReply(_) => 25,
            Self::GetAsyncRequest => 26,
            Self::GetAsyncReply(_) => 27,
            Self::SetAsync(_) => 28,
            Self::MeterMod(_) => 29,
            Self::RoleStatus(_) => 30,
            Self::TableStatus(_) => 31,
            Self::RequestForward(_) => 32,
            Self::Bundle(_) => 33,
            Self::BundleAdd(_) => 34,
        }
    }

    /// The message's number on the wire, if `version` has it.
    #[must_use]
    pub fn number(&self, version: Version) -> Option<u8> {
        let number = match (self.canonical(), version) {
            (number, Version::V10) => OLD.iter().position(|old| *old == number)? as u8,
            (33 | 34, Version::V13) => 4,
            (number, _) => number,
        };
        kinds(version).contains(&number).then_some(number)
    }

    /// An empty message of a number on the wire.
    pub(crate) fn blank(number: u8, version: Version) -> Option<Self> {
        if !kinds(version).contains(&number) {
            return None;
        }
        let old = version == Version::V10;
        let number = if old { OLD[usize::from(number)] } else { number };
        Some(match number {
            0 => Self::Hello(Hello::default()),
            1 => Self::Error(ErrorMessage::default()),
            2 => Self::EchoRequest(Vec::new()),
            3 => Self::EchoReply(Vec::new()),
            4 => Self::Experimenter { id: 0, kind: 0, data: Vec::new() },
            5 => Self::FeaturesRequest,
            6 => Self::FeaturesReply(Features::default()),
            7 => Self::GetConfigRequest,
            8 => Self::GetConfigReply(Config::default()),
            9 => Self::SetConfig(Config::default()),
            10 => Self::PacketIn(PacketIn::default()),
            11 => Self::FlowRemoved(FlowRemoved::default()),
            12 => Self::PortStatus(PortStatus::default()),
            13 => Self::PacketOut(PacketOut::default()),
            14 => Self::FlowMod(FlowMod::default()),
            15 => Self::GroupMod(GroupMod::default()),
            16 => Self::PortMod(PortMod::default()),
            17 => Self::TableMod(TableMod::default()),
            18 => Self::MultipartRequest { more: false, body: Request::default() },
            19 => Self::MultipartReply { more: false, body: Reply::default() },
            20 => Self::BarrierRequest,
            21 => Self::BarrierReply,
            22 => Self::QueueConfigRequest { port: 0 },
            23 => Self::QueueConfigReply { port: 0, queues: Vec::new() },
            24 => Self::RoleRequest(RoleMessage::default()),
            25 => Self::RoleReply(RoleMessage::default()),
            26 => Self::GetAsyncRequest,
            27 => Self::GetAsyncReply(Async::default()),
            28 => Self::SetAsync(Async::default()),
            29 => Self::MeterMod(MeterMod::default()),
            30 => Self::RoleStatus(RoleMessage::default()),
            31 => Self::TableStatus(TableStatus::default()),
            32 => Self::RequestForward(Vec::new()),
            33 => Self::Bundle(Bundle::default()),
            34 => Self::BundleAdd(BundleAdd::default()),
            _ => return None,
        })
    }

    /// The error message for a problem with `request`: the first 64 bytes of it go along.
    #[must_use]
    pub fn error(problem: Problem, version: Version, request: &[u8]) -> Self {
        let wire = problem.on_wire(version);
        let data = request[..request.len().min(64)].to_vec();
        let (kind, code) = (wire.kind, wire.code);
        Self::Error(ErrorMessage { kind, code, experimenter: wire.experimenter, data })
    }
}

/// The message that is `bytes`, all of them.
///
/// # Errors
/// What to answer: [`Message::error`] makes the reply.
pub fn decode(bytes: &[u8]) -> Result<(Header, Message), Rejected> {
    let none = Header { version: 0, kind: 0, length: 0, xid: 0 };
    let header =
        Header::read(bytes).ok_or(Rejected { header: none, problem: problem::REQUEST_BAD_LEN })?;
    let reject = |problem| Rejected { header, problem };
    if usize::from(header.length) != bytes.len() {
        return Err(reject(problem::REQUEST_BAD_LEN));
    }
    // A hello of any version is one (1.3.5, section 6.3.1): that is how versions are agreed on.
    let version = match (Version::of(header.version), header.kind) {
        (Some(version), _) => version,
        (None, 0) => Version::V13,
        (None, _) => return Err(reject(problem::REQUEST_BAD_VERSION)),
    };
    let blank = Message::blank(header.kind, version);
    let mut message = blank.ok_or_else(|| reject(problem::REQUEST_BAD_TYPE))?;
    let onf = bytes.get(8..12) == Some(&ONF.to_be_bytes());
    if version == Version::V13 && header.kind == 4 && onf {
        match bytes.get(12..16) {
            Some([0, 0, 0x08, 0xfc]) => message = Message::Bundle(Bundle::default()),
            Some([0, 0, 0x08, 0xfd]) => message = Message::BundleAdd(BundleAdd::default()),
            _ => {}
        }
    }
    let mut reader = Reader::new(&bytes[8..], version);
    body(&mut reader, &mut message).map_err(reject)?;
    if reader.left() > 0 {
        return Err(reject(problem::REQUEST_BAD_LEN));
    }
    Ok((header, message))
}

/// Puts a message behind what is in `out`. A multipart message that is too long becomes several.
///
/// # Errors
/// When the version cannot say it, or a message is longer than 65,535 bytes; `out` is as it was.
pub fn encode(
    message: &Message,
    version: Version,
    xid: u32,
    out: &mut Vec<u8>,
) -> Result<(), Problem> {
    let start = out.len();
    let done = write(message, version, xid, out);
    if done.is_err() {
        out.truncate(start);
    }
    done
}

fn write(message: &Message, version: Version, xid: u32, out: &mut Vec<u8>) -> Res {
    let unknown = Problem { why: "the version has no such message", ..problem::REQUEST_BAD_TYPE };
    let number = message.number(version).ok_or(unknown)?;
    let start = out.len();
    out.extend([version as u8, number, 0, 0]);
    out.extend(xid.to_be_bytes());
    let mut writer = Writer::new(out, version);
    // The walk is one for reading and writing, so it may change what it walks over.
    body(&mut writer, &mut message.clone())?;
    let cuts = std::mem::take(&mut writer.cuts);
    if out.len() - start <= 0xffff {
        fix_length(out, start);
        return Ok(());
    }
    split(out, start, &cuts, version)
}

fn fix_length(out: &mut [u8], start: usize) {
    let len = (out.len() - start) as u16;
    out[start + 2..start + 4].copy_from_slice(&len.to_be_bytes());
}

/// Parts a multipart message that is too long between its elements.
fn split(out: &mut Vec<u8>, start: usize, cuts: &[usize], version: Version) -> Res {
    let long = Problem { why: "more than 65,535 bytes", ..problem::REQUEST_BAD_LEN };
    let head = if version == Version::V10 { 12 } else { 16 };
    let whole = out.split_off(start);
    let ends = cuts.iter().skip(1).map(|cut| cut - start).chain([whole.len()]);
    let (mut from, mut to) = (cuts.first().ok_or(long)? - start, 0);
    let mut part = |from: usize, to: usize, more: bool| -> Res {
        if head + to - from > 0xffff || to <= from {
            return Err(long);
        }
        let at = out.len();
        out.extend_from_slice(&whole[..head]);
        out[at + 11] |= u8::from(more);
        out.extend_from_slice(&whole[from..to]);
        fix_length(out, at);
        Ok(())
    };
    for end in ends {
        if head + end - from > 0xffff {
            part(from, to, true)?;
            from = to;
        }
        to = end;
    }
    part(from, to, false)
}

/// A message's body, either way.
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

/// Elements that are not known are skipped, as they must be; 1.0 has none, and ignores the body.
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
        // Master first, then slave: packet-in, port status, flow removed (section 7.3.10).
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

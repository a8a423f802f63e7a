//! Messages: the header, and how a message is decoded and encoded.
//!
//! ```text
//!   version 8 | type 8 | length 16 | xid 32 | body
//! ```
//!
//! [`encode`] returns an error for a message that the version cannot express.
#![allow(missing_docs, reason = "the fields are the specification's own")]

mod body;
mod control;
mod number;

use crate::Version;
use crate::bundle::{Bundle, BundleAdd};
use crate::flow::{FlowMod, FlowRemoved, PacketIn, PacketOut};
use crate::group::{GroupMod, MeterMod};
use crate::io::{Reader, Res, Writer};
use crate::multipart::{Reply, Request};
use crate::port::{PortMod, PortStatus, Queue};
use crate::problem::{self, ONF, Problem};
use crate::table::{TableMod, TableStatus};

pub(crate) use body::body;
pub use control::{Async, Config, ErrorMessage, Features, Hello, Role, RoleMessage};
#[cfg(feature = "make")]
pub(crate) use number::kinds;

/// The first eight bytes of every message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    pub version: u8,
    pub kind: u8,
    pub length: u16,
    pub xid: u32,
}

impl Header {
    /// Reads the header at the start of `bytes`; `None` if there are fewer than eight. The length in
    /// the header may be less than 8: then the start of the next message is unknown.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let [version, kind, l0, l1, xid @ ..] = *bytes.first_chunk::<8>()?;
        let length = u16::from_be_bytes([l0, l1]);
        Some(Self { version, kind, length, xid: u32::from_be_bytes(xid) })
    }
}

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

/// A message that cannot be decoded, and the problem to report to the sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("message type {} with xid {}: {problem}", header.kind, header.xid)]
pub struct Rejected {
    /// The header of the message.
    pub header: Header,
    /// The reason.
    pub problem: Problem,
}

impl Message {
    /// The error message for a problem with `request`. It contains the request's first 64 bytes.
    #[must_use]
    pub fn error(problem: Problem, version: Version, request: &[u8]) -> Self {
        let wire = problem.on_wire(version);
        let data = request[..request.len().min(64)].to_vec();
        let (kind, code) = (wire.kind, wire.code);
        Self::Error(ErrorMessage { kind, code, experimenter: wire.experimenter, data })
    }
}

/// Decodes one message, which must take all of `bytes`.
///
/// # Errors
/// When the message is malformed; [`Message::error`] makes the reply.
pub fn decode(bytes: &[u8]) -> Result<(Header, Message), Rejected> {
    let none = Header { version: 0, kind: 0, length: 0, xid: 0 };
    let header =
        Header::read(bytes).ok_or(Rejected { header: none, problem: problem::REQUEST_BAD_LEN })?;
    let reject = |problem| Rejected { header, problem };
    if usize::from(header.length) != bytes.len() {
        return Err(reject(problem::REQUEST_BAD_LEN));
    }
    // A hello of an unknown version is accepted, so that both sides can agree on a version
    // (1.3.5, section 6.3.1).
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

/// Appends the bytes of a message to `out`. A multipart message that is too long is split into several.
///
/// # Errors
/// When the version cannot express the message, or it is longer than 65,535 bytes. Then `out` is
/// unchanged.
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
    // The walk is shared with reading, so it takes a mutable message.
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

/// Splits a multipart message that is too long. Each part ends at the end of an element.
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

//! The number of each message on the wire.

use super::{Async, Config, ErrorMessage, Features, Hello, Message, RoleMessage};
use crate::Version;
use crate::bundle::{Bundle, BundleAdd};
use crate::flow::{FlowMod, FlowRemoved, PacketIn, PacketOut};
use crate::group::{GroupMod, MeterMod};
use crate::multipart::{Reply, Request};
use crate::port::{PortMod, PortStatus};
use crate::table::{TableMod, TableStatus};

/// The message numbers of a version. Those of 1.0 differ from 15 on. Bundles of 1.3 are experimenter
/// messages.
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

/// The number in 1.3 and 1.4 for each number of 1.0, which has no messages for groups and tables.
const OLD: [u8; 22] =
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 18, 19, 20, 21, 22, 23];

impl Message {
    /// The number of the message in 1.4. The queue messages, which 1.4 lacks, have their numbers of 1.3.
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

    /// The message's number on the wire; `None` if `version` has no such message.
    #[must_use]
    pub fn number(&self, version: Version) -> Option<u8> {
        let number = match (self.canonical(), version) {
            (number, Version::V10) => OLD.iter().position(|old| *old == number)? as u8,
            (33 | 34, Version::V13) => 4,
            (number, _) => number,
        };
        kinds(version).contains(&number).then_some(number)
    }

    /// An empty message with this number on the wire.
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
}

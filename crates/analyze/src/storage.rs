//! What the adapter would place directly of the Fibre Channel traffic in a capture (FCoE, DDP), and control frames of
//! management controllers (NC-SI).
//!
//! Contexts are set up as the driver of an initiator does when it sends a command that reads (FCP_CMND), and as that of a
//! target does when it asks for data (FCP_XFER_RDY), in buffers of 4 KiB that start at offset 0.

use std::collections::BTreeMap;

use flowyard_adapter::fcoe::{Ddp, Fcerr, NotPlaced, Placed, Sizes};
use flowyard_wire::fc::{FcFrame, FcHeader};
use flowyard_wire::ncsi::{Control, Kind};
use schemars::JsonSchema;
use serde::Serialize;

/// Fibre Channel over Ethernet in the captures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StorageSummary {
    /// FCoE frames.
    pub frames: u64,
    /// Frames that are too short for their headers.
    pub malformed: u64,
    /// Contexts of the adapter.
    pub contexts: u16,
    /// Exchanges for which a context was set up.
    pub exchanges: u64,
    /// Exchanges that got none, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Frames whose payload is placed directly.
    pub placed: u64,
    /// Bytes that are placed directly.
    pub placed_bytes: u64,
    /// Frames whose headers the host gets: status frames that end an exchange, ends of writes, optional headers.
    pub headers: u64,
    /// Frames that go to the receive queue as a whole, by reason.
    pub whole: BTreeMap<String, u64>,
    /// Frames with an error (`FCERR`), by its name in the driver.
    pub errors: BTreeMap<String, u64>,
}

/// The frames of the captures that are for storage and management.
pub(crate) struct Special {
    ddp: Ddp,
    storage: StorageSummary,
    /// NC-SI control frames by what they say.
    control: BTreeMap<String, u64>,
}

/// R_CTL of a command and of a request for data (FCP-4).
const COMMAND: u8 = 0x06;
const TRANSFER_READY: u8 = 0x05;
/// The buffers that the model assumes.
const BUFFER: u32 = 4096;

impl Special {
    pub(crate) fn new(sizes: Option<Sizes>) -> Self {
        let sizes = sizes.unwrap_or(Sizes { contexts: 0, buffers: 0, redirection: 0 });
        let storage = StorageSummary { contexts: sizes.contexts, ..StorageSummary::default() };
        Self { ddp: Ddp::new(sizes), storage, control: BTreeMap::new() }
    }

    /// Counts the FCoE frame in `bytes`, which follow the EtherType.
    pub(crate) fn storage(&mut self, bytes: &[u8]) {
        self.storage.frames += 1;
        let Some(frame) = FcFrame::parse(bytes) else {
            self.storage.malformed += 1;
            return;
        };
        self.set_up(&frame);
        let storage = &mut self.storage;
        match self.ddp.receive(&frame) {
            Placed::Payload { bytes, header, .. } => {
                storage.placed += 1;
                storage.placed_bytes += u64::from(bytes);
                storage.headers += u64::from(header);
            }
            Placed::Status { .. } => storage.headers += 1,
            Placed::Whole(why) => add(&mut storage.whole, whole(why)),
            Placed::Error(error) => add(&mut storage.errors, fcerr(error)),
        }
    }

    /// Sets a context up for the exchange that a frame begins.
    fn set_up(&mut self, frame: &FcFrame<'_>) {
        let FcHeader { r_ctl, kind, ox_id, rx_id, .. } = frame.header;
        if kind != 0x08 || !frame.is_intact() {
            return;
        }
        let word = |at: usize| {
            let bytes = frame.payload.get(at..).and_then(<[u8]>::first_chunk::<4>)?;
            Some(u32::from_be_bytes(*bytes))
        };
        let (exchange, is_write, len) = match r_ctl {
            // FCP_CMND: byte 11 has RDDATA in bit 1 and the length of more CDB bytes, in words, in bits 2 to 7. FCP_DL
            // follows the CDB.
            COMMAND => {
                let Some(flags) = frame.payload.get(11).filter(|flags| *flags & 2 != 0) else {
                    return;
                };
                (ox_id, false, word(28 + usize::from(flags >> 2) * 4))
            }
            // FCP_XFER_RDY: relative offset, burst length.
            TRANSFER_READY => (rx_id, true, word(4)),
            _ => return,
        };
        let Some(len) = len else { return };
        self.ddp.end(exchange);
        match self.ddp.set_up(exchange, is_write, len.into(), BUFFER, 0) {
            Ok(()) => self.storage.exchanges += 1,
            Err(error) => {
                use flowyard_adapter::fcoe::Refused;
                add(
                    &mut self.storage.refused,
                    match error {
                        Refused::Number(..) => "exchange number too large",
                        Refused::InUse(_) => "context in use",
                        Refused::Buffers(..) => "too many buffers",
                    },
                );
            }
        }
    }

    /// Counts the NC-SI control frame in `bytes`, which follow the EtherType.
    pub(crate) fn control(&mut self, bytes: &[u8]) {
        let what =
            Control::parse(bytes).map_or_else(|| "malformed".to_owned(), |frame| title(&frame));
        *self.control.entry(what).or_default() += 1;
    }

    pub(crate) fn finish(&mut self) -> (Option<StorageSummary>, BTreeMap<String, u64>) {
        let storage = std::mem::take(&mut self.storage);
        ((storage.frames > 0).then_some(storage), std::mem::take(&mut self.control))
    }
}

fn add(counts: &mut BTreeMap<String, u64>, what: &str) {
    *counts.entry(what.to_owned()).or_default() += 1;
}

const fn whole(why: NotPlaced) -> &'static str {
    match why {
        NotPlaced::NoContext => "no context",
        NotPlaced::NoData => "not data",
        NotPlaced::Esp => "encrypted",
        NotPlaced::UnexpectedEofSof => "unexpected EOF or SOF",
    }
}

const fn fcerr(error: Fcerr) -> &'static str {
    match error {
        Fcerr::BadCrc => "BADCRC",
        Fcerr::EofSof => "EOFSOF",
        Fcerr::NoFirst => "NOFIRST",
        Fcerr::OutOfOrder => "OOOSEQ",
        Fcerr::NoDma => "NODMA",
        Fcerr::PacketLost => "PKTLOST",
    }
}

/// What a control frame is: `Get Link Status, response`.
fn title(frame: &Control<'_>) -> String {
    let name = frame.name().map_or_else(
        || match frame.kind {
            Kind::Command(number) | Kind::Response(number) => format!("command 0x{number:02x}"),
            Kind::Notification => "notification".to_owned(),
        },
        ToOwned::to_owned,
    );
    match frame.kind {
        Kind::Command(_) => name,
        Kind::Response(_) => format!("{name}, response"),
        Kind::Notification => format!("{name} (notification)"),
    }
}

/// A frame for storage or management in sentences; none for other frames. `bytes` follow the EtherType.
pub(crate) fn describe(eth_type: u16, bytes: &[u8], sizes: Option<Sizes>) -> Vec<String> {
    match eth_type {
        flowyard_wire::ncsi::ETHER_TYPE => vec![match Control::parse(bytes) {
            None => "An NC-SI control frame that is cut short.".to_owned(),
            Some(frame) => control_text(&frame),
        }],
        flowyard_wire::fc::ETHER_TYPE => match FcFrame::parse(bytes) {
            None => vec!["An FCoE frame that is cut short.".to_owned()],
            Some(frame) => {
                let entry = sizes.map(|sizes| {
                    let entry = frame.header.ox_id % u16::from(sizes.redirection.max(1));
                    format!(
                        "The FCoE redirection table of the adapter gives it the queue of entry {entry} of {} (FCRETA, by the low bits of OX_ID), if the table is on.",
                        sizes.redirection
                    )
                });
                std::iter::once(storage_text(&frame)).chain(entry).collect()
            }
        },
        flowyard_wire::fc::FIP => {
            vec!["A frame of the FCoE initialization protocol (FIP).".to_owned()]
        }
        _ => Vec::new(),
    }
}

fn control_text(frame: &Control<'_>) -> String {
    let channel = match frame.channel {
        flowyard_wire::ncsi::PACKAGE => "all channels".to_owned(),
        channel => format!("channel {channel}"),
    };
    let codes = frame.codes().map_or_else(String::new, |(response, reason)| {
        let said = match response {
            0 => "completed",
            1 => "failed",
            2 => "unavailable",
            3 => "unsupported",
            _ => "unknown",
        };
        format!(", response code {response} ({said}), reason code 0x{reason:04x}")
    });
    let sum = match frame.checksum {
        Some(false) => ", wrong checksum",
        Some(true) => ", good checksum",
        None => ", no checksum",
    };
    format!(
        "An NC-SI control frame: {}; package {}, {channel}, instance {}{codes}{sum}. Control frames pass between a management controller and the adapter; the adapter blocks those that come from the network.",
        title(frame),
        frame.package,
        frame.instance
    )
}

fn storage_text(frame: &FcFrame<'_>) -> String {
    use flowyard_wire::fc::{Eof, Sof};
    let header = &frame.header;
    let sof = Sof::of(frame.sof).map_or_else(
        || format!("SOF 0x{:02x}", frame.sof),
        |sof| format!("SOF{sof:?}").to_lowercase().replacen("sof", "SOF", 1),
    );
    let eof = Eof::of(frame.eof).map_or_else(
        || format!("EOF 0x{:02x}", frame.eof),
        |eof| format!("EOF{eof:?}").to_lowercase().replacen("eof", "EOF", 1),
    );
    let what = match header.r_ctl {
        0x01 => "data",
        TRANSFER_READY => "request for data (XFER_RDY)",
        COMMAND => "command",
        0x07 => "status (RSP)",
        _ => "other",
    };
    format!(
        "An FCoE frame: {what}, from {:06x} to {:06x}, exchange OX_ID 0x{:04x} RX_ID 0x{:04x}, sequence {} frame {}, {} bytes, {sof}, {eof}, {} FC CRC.",
        header.s_id,
        header.d_id,
        header.ox_id,
        header.rx_id,
        header.seq_id,
        header.seq_cnt,
        frame.payload.len(),
        if frame.is_intact() { "good" } else { "wrong" }
    )
}

//! A port that transmits into a capture file, with the time stamps of reception.

use std::path::Path;

use crate::error::Error;
use crate::pcap::{Destination, Format, Writer};
use flowyard_frame::{Batch, Lanes, Nanos};
use flowyard_wire::LinkType;

use flowyard_pool::{Meta, Pool};
use flowyard_yard::DropReason;
use flowyard_yard::port::{Tx, refuse};

/// Writes a capture. The file has the link type of the first frame; frames with another link type
/// are dropped and counted. Without any frame the file is an empty Ethernet capture.
#[derive(Debug)]
pub struct PcapTx {
    to: To,
    format: Format,
}

#[derive(Debug)]
enum To {
    /// A file that waits for the first frame.
    Opened(Destination),
    /// A capture with frames of this link type.
    Writing(Writer, LinkType),
    /// Nothing more can be written, because of this.
    Failed(String),
    Closed,
}

impl PcapTx {
    /// A port that writes `path`; an existing file of that name is not changed before
    /// [`Tx::close`].
    ///
    /// # Errors
    /// When the file cannot be created; see [`Destination::open`].
    pub fn open(path: &Path, format: Format) -> Result<Self, Error> {
        Ok(Self { to: To::Opened(Destination::open(path)?), format })
    }

    /// Writes the header if that is not done yet.
    fn begin(&mut self, link: LinkType) {
        self.to = match std::mem::replace(&mut self.to, To::Closed) {
            To::Opened(file) => match Writer::new(file, self.format, link) {
                Ok(writer) => To::Writing(writer, link),
                Err(error) => To::Failed(error.to_string()),
            },
            other => other,
        };
    }

    /// Writes one frame.
    fn write(&mut self, meta: &Meta, data: &[u8]) -> Result<(), DropReason> {
        if let To::Opened(_) = self.to {
            self.begin(meta.link);
        }
        match &mut self.to {
            To::Writing(_, link) if *link != meta.link => Err(DropReason::LinkType),
            To::Writing(writer, _) => match writer.write(meta.time, meta.wire_len, data) {
                Ok(()) => Ok(()),
                Err(Error::TooLong { .. }) => Err(DropReason::TooLong),
                Err(error) => {
                    self.to = To::Failed(error.to_string());
                    Err(DropReason::PortFailed)
                }
            },
            _ => Err(DropReason::PortFailed),
        }
    }
}

impl Tx for PcapTx {
    fn tx(&mut self, from: &mut Batch, lanes: Lanes, pool: &Pool, _now: Nanos) -> Lanes {
        for lane in lanes {
            let frame = &from.frames[lane];
            if let Err(reason) = self.write(&pool.meta(frame), pool.bytes(frame)) {
                refuse(from, lane, reason);
            }
        }
        Lanes::NONE
    }

    fn has_failed(&self) -> bool {
        matches!(self.to, To::Failed(_))
    }

    fn close(&mut self) -> Result<(), String> {
        self.begin(LinkType::Ethernet);
        match std::mem::replace(&mut self.to, To::Closed) {
            To::Failed(why) => Err(why),
            To::Writing(writer, _) => writer.finish().map_err(|error| error.to_string()),
            To::Opened(_) | To::Closed => Ok(()), // already closed
        }
    }
}

//! A port that transmits into a capture file, with the time stamps of reception.

use std::path::PathBuf;

use crate::pcap::{Format, Writer};
use flowyard_frame::{Batch, Lanes, Nanos};
use flowyard_wire::LinkType;

use flowyard_pool::Pool;
use flowyard_yard::DropReason;
use flowyard_yard::port::{Tx, refuse};

/// Writes a capture. The file has the link type of the first frame; frames with another link type
/// are dropped and counted. Without any frame the file is an empty Ethernet capture.
#[derive(Debug)]
pub struct PcapTx {
    path: PathBuf,
    format: Format,
    open: Option<(Writer, LinkType)>,
    failed: Option<String>,
    closed: bool,
}

impl PcapTx {
    /// A port that writes `path`; an existing file of that name is not changed before
    /// [`Tx::close`].
    #[must_use]
    pub const fn new(path: PathBuf, format: Format) -> Self {
        Self { path, format, open: None, failed: None, closed: false }
    }

    fn open(&mut self, link: LinkType) -> Option<&mut (Writer, LinkType)> {
        if self.open.is_none() && self.failed.is_none() && !self.closed {
            match Writer::create(&self.path, self.format, link) {
                Ok(writer) => self.open = Some((writer, link)),
                Err(error) => self.failed = Some(error.to_string()),
            }
        }
        self.open.as_mut()
    }
}

impl Tx for PcapTx {
    fn tx(&mut self, from: &mut Batch, lanes: Lanes, pool: &Pool, _now: Nanos) -> Lanes {
        for lane in lanes {
            let meta = pool.meta(&from.frames[lane]);
            let failed = match self.open(meta.link) {
                None => Some(DropReason::PortFailed),
                Some((_, link)) if *link != meta.link => Some(DropReason::LinkType),
                Some((writer, _)) => {
                    let data = pool.bytes(&from.frames[lane]);
                    let written = writer.write(meta.time, meta.wire_len, data);
                    written.err().map(|error| {
                        (self.open, self.failed) = (None, Some(error.to_string()));
                        DropReason::PortFailed
                    })
                }
            };
            if let Some(reason) = failed {
                refuse(from, lane, reason);
            }
        }
        Lanes::NONE
    }

    fn close(&mut self) -> Result<(), String> {
        self.open(LinkType::Ethernet);
        self.closed = true;
        match (self.failed.take(), self.open.take()) {
            (Some(failed), _) => Err(failed),
            (None, Some((writer, _))) => writer.finish().map_err(|error| error.to_string()),
            (None, None) => Ok(()), // already closed
        }
    }
}

//! Capture files: reads pcap and pcapng, plain or gzip-compressed; writes pcap and pcapng.
//!
//! ```text
//!  file ─> [gunzip] ─> Input: one buffer of 1 MiB ─> Classic | Ng ─> 32 records ─> Burst
//!                        ^ refilled only when it contains no complete packet
//! ```
//!
//! The two decoders only examine the bytes in the buffer. They take complete packets and return
//! what they need next (`Stop`). So a slow pipe delivers packets promptly, a truncated file yields
//! everything before the end, and both decoders can be tested on plain slices.
//!
//! Limits, whatever the file contains: a packet has at most [`MAX_PACKET`] captured bytes; a pcapng
//! block that is decoded (section, interface, packet) has at most 1 MiB, other blocks are skipped
//! while streaming; a pcapng section describes at most 65,536 interfaces.

mod classic;
mod decode;
mod ender;
mod gunzip;
mod input;
mod ng;
mod sniff;
mod ticks;
mod writer;

use std::{
    fs::File,
    io::Read,
    os::{fd::AsFd, unix::fs::OpenOptionsExt},
    path::Path,
};

use self::{
    decode::Stop,
    ender::Endable,
    input::{Filled, Input},
    sniff::Kind,
};
use crate::burst::{Burst, Progress, Records, Skipped, Source};
use crate::error::{Damage, Error, Fault, Unread};

pub use crate::limits::MAX_PACKET;
pub use ender::Ender;
pub use writer::{Destination, Format, Writer};

/// Opens the capture at `path`, in any format that [`Reader`] reads; `-` is standard input.
///
/// # Errors
/// When the file cannot be opened, is not a capture, or is a pcap file with an unsupported link
/// type.
pub fn open(path: impl AsRef<Path>) -> Result<Reader, Error> {
    let path = path.as_ref();
    if path.as_os_str() == "-" {
        return Reader::new("standard input", Box::new(std::io::stdin()), None);
    }
    let name = path.display().to_string();
    let failed = |source| Error::Io { file: name.clone(), doing: "open", offset: None, source };
    let file = File::open(path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    let total = about.is_file().then_some(about.len());
    Reader::new(&name, Box::new(file), total)
}

/// As [`open`], but `ender` can end the capture early, also while it waits for a pipe. A FIFO is opened
/// without waiting for its writer, although the first bytes are then waited for.
///
/// # Errors
/// As [`open`].
pub fn open_until(path: impl AsRef<Path>, ender: &Ender) -> Result<Reader, Error> {
    let path = path.as_ref();
    let is_stdin = path.as_os_str() == "-";
    let name = if is_stdin { "standard input".to_owned() } else { path.display().to_string() };
    let failed = |source| Error::Io { file: name.clone(), doing: "open", offset: None, source };
    let input = if is_stdin {
        std::io::stdin().as_fd().try_clone_to_owned().map(File::from)
    } else {
        File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)
    };
    let input = input.map_err(failed)?;
    let about = input.metadata().map_err(failed)?;
    let total = about.is_file().then_some(about.len());
    let bytes = Box::new(Endable { input, ender: ender.clone() });
    let mut reader = Reader::new(&name, bytes, total)?;
    reader.ender = Some(ender.clone());
    Ok(reader)
}

/// Reads a capture in one pass; memory use does not depend on its length.
///
/// pcap: micro- and nanoseconds, either byte order, the old order of the length fields (before
/// version 2.4), and the modified records of Kuznetzov. pcapng: any number of sections in either
/// byte order, every time resolution, enhanced, simple and obsolete packet blocks. A simple packet
/// has no time stamp and gets that of the previous packet. Frame check sequences are kept in the
/// data.
#[derive(Debug)]
pub struct Reader {
    name: String,
    input: Input,
    total: Option<u64>,
    kind: Kind,
    records: Records,
    given: u64,
    damage: Option<Damage>,
    ended: bool,
    /// What can end the capture early; a cut is then no damage.
    ender: Option<Ender>,
}

impl Reader {
    /// A reader of the capture in `bytes`; `name` is used in messages, `total` is the number of
    /// bytes, if known.
    ///
    /// # Errors
    /// As [`open`].
    pub fn new(name: &str, bytes: Box<dyn Read + Send>, total: Option<u64>) -> Result<Self, Error> {
        let mut input = Input::new(name, bytes);
        let kind = sniff::sniff(name, &mut input)?;
        let (name, records) = (name.to_owned(), Records::new());
        let (given, damage, ended, ender) = (0, None, false, None);
        Ok(Self { name, input, total, kind, records, given, damage, ended, ender })
    }

    /// Whether the user ended the capture.
    fn was_ended(&self) -> bool {
        self.ender.as_ref().is_some_and(Ender::has_ended)
    }

    /// Number of packets so far, delivered or skipped.
    fn packets(&self) -> u64 {
        self.given + self.skips().map(|(_, packets)| packets).sum::<u64>()
    }

    /// Unsupported link types, with the number of skipped packets.
    fn skips(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        let ng = if let Kind::Ng(ng) = &self.kind { Some(ng) } else { None };
        ng.into_iter().flat_map(|ng| ng.skipped.iter().map(|(&link, &packets)| (link, packets)))
    }

    /// Ends the capture, because of `fault` if there is one. A capture in which all packets were
    /// skipped is an error.
    fn end(&mut self, offset: u64, fault: Option<Fault>) -> Result<(), Error> {
        self.ended = true;
        let (file, packets) = (self.name.clone(), self.packets());
        let done = self.input.unpacked().unwrap_or(offset);
        // The file may have grown since it was opened.
        let unread = self.total.map(|of| Unread { bytes: of.saturating_sub(done), of });
        let unread = unread.filter(|unread| unread.bytes > 0);
        self.damage =
            fault.map(|fault| Damage { file: file.clone(), offset, packets, fault, unread });
        match self.skips().next() {
            Some((number, _)) if self.given == 0 => {
                Err(Error::LinkType { file, number: number.into() })
            }
            _ => Ok(()),
        }
    }

    /// Decodes until the burst has frames or the capture has ended.
    fn advance(&mut self) -> Result<(), Error> {
        while !self.ended {
            let (shown, base) = (self.input.shown(), self.input.base());
            let step = match &mut self.kind {
                Kind::Classic(classic) => classic.decode(shown, base, &mut self.records),
                Kind::Ng(ng) => ng.decode(shown, base, &mut self.records),
            };
            self.input.take(step.used);
            if !self.records.as_slice().is_empty() {
                return Ok(()); // the cause of the stop is found again by the next call
            }
            let gone = if let Kind::Ng(ng) = &self.kind { ng.gone() } else { 0 };
            let offset = self.input.offset() - gone;
            match step.stop {
                Stop::Full => {}
                Stop::Bad(fault) => self.end(offset, Some(fault))?,
                Stop::More { inside, need, whole } => match self.input.fill(need) {
                    // Packets were delivered already: they are not lost by an error behind them.
                    Err(Error::Io { source, .. }) if self.packets() > 0 => {
                        self.end(offset, Some(Fault::Read(source.to_string())))?;
                    }
                    Err(error) => return Err(error),
                    Ok(Filled::Some) => {}
                    Ok(Filled::Damaged(fault)) => self.end(offset, Some(fault))?,
                    Ok(Filled::End) => {
                        let (have, need) = (gone + self.input.shown().len() as u64, whole.into());
                        let is_cut = have > 0 && !self.was_ended();
                        self.end(offset, is_cut.then_some(Fault::Cut { inside, have, need }))?;
                    }
                },
            }
        }
        Ok(())
    }
}

impl Source for Reader {
    fn read(&mut self) -> Result<Burst<'_>, Error> {
        self.records.clear();
        self.advance()?;
        self.given += self.records.as_slice().len() as u64;
        Ok(Burst::new(self.records.as_slice(), self.input.buffer()))
    }

    fn progress(&self) -> Progress {
        Progress { done: self.input.consumed(), total: self.total }
    }

    fn damage(&self) -> Option<&Damage> {
        self.damage.as_ref()
    }

    fn skipped(&self) -> Vec<Skipped> {
        let reason = |link: u16| {
            format!("link type {link} ({}) is not supported", crate::linktype::name(link.into()))
        };
        self.skips().map(|(link, packets)| Skipped { reason: reason(link), packets }).collect()
    }
}

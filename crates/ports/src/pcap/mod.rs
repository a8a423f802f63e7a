//! Capture files: pcap and pcapng in, either of them gzipped; pcap and pcapng out.
//!
//! ```text
//!  file ─> [gunzip] ─> Input: one buffer of 1 MiB ─> Classic | Ng ─> 32 records ─> Burst
//!                        ^ refilled only when no whole packet is left in it
//! ```
//!
//! The two decoders look at the bytes in the buffer and never read: they take what is whole and
//! say what they need next (`Stop`). So a slow pipe delivers promptly, a cut file gives
//! everything before the cut, and both decoders can be tested on plain slices.
//!
//! Bounds, whatever the file claims: a packet has at most [`MAX_PACKET`] captured bytes, a pcapng
//! block that is read (section, interface, packet) at most 1 MiB, other blocks are skipped as
//! they stream by; a pcapng section describes at most 65,536 interfaces.

mod classic;
mod gunzip;
mod input;
mod ng;
mod sniff;
mod ticks;
mod writer;

use std::{fs::File, io::Read, path::Path};

use self::{
    classic::Classic,
    input::{Filled, Input},
    ng::Ng,
};
use crate::{Burst, Damage, Error, Fault, Progress, Skipped, Source, burst::Records};

pub use writer::{Format, Writer};

/// The most captured bytes a packet has: 256 KiB, as in libpcap (`MAXIMUM_SNAPLEN`). Frames of
/// segmentation offload and of jumbograms fit; anything longer is a damaged length field.
pub const MAX_PACKET: usize = 262_144;

/// Opens the capture at `path`, of any kind that [`Reader`] reads; `-` is standard input.
///
/// # Errors
/// When the file cannot be opened, is no capture, or is a pcap file of a link type that flowyard
/// does not read.
pub fn open(path: impl AsRef<Path>) -> Result<Reader, Error> {
    let path = path.as_ref();
    if path.as_os_str() == "-" {
        return Reader::new("standard input", Box::new(std::io::stdin()), None);
    }
    let name = path.display().to_string();
    let failed = |source| Error::Io { file: name.clone(), doing: "open", offset: 0, source };
    let file = File::open(path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    let total = about.is_file().then_some(about.len());
    Reader::new(&name, Box::new(file), total)
}

/// Reads a capture in one pass, in memory that does not depend on its length.
///
/// pcap: micro- and nanoseconds, either byte order, the old length order (before version 2.4) and
/// the modified records of Kuznetzov. pcapng: any number of sections in either byte order, every
/// time resolution, enhanced, simple and obsolete packet blocks. A simple packet has no time of its
/// own and gets that of the packet before it. Frame check sequences stay where they are.
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
}

#[derive(Debug)]
enum Kind {
    Classic(Classic),
    Ng(Ng),
}

/// How far a decoder got in the bytes it was shown.
#[derive(Debug)]
struct Step {
    /// Bytes of whole packets and blocks, to be shown no more.
    used: usize,
    stop: Stop,
}

/// Why a decoder stopped.
#[derive(Debug)]
enum Stop {
    /// The burst is full.
    Full,
    /// What comes next is not whole: `need` bytes of it must be shown to get on. It is `inside`
    /// something of at least `whole` bytes.
    More { inside: &'static str, need: usize, whole: u32 },
    /// What comes next is damaged.
    Bad(Fault),
}

impl Reader {
    /// A reader of the capture that `bytes` gives; `name` is for messages, `total` the number of
    /// bytes if known.
    ///
    /// # Errors
    /// As [`open`].
    pub fn new(name: &str, bytes: Box<dyn Read + Send>, total: Option<u64>) -> Result<Self, Error> {
        let mut input = Input::new(name, bytes);
        let kind = sniff::sniff(name, &mut input)?;
        let (name, records) = (name.to_owned(), Records::new());
        Ok(Self { name, input, total, kind, records, given: 0, damage: None, ended: false })
    }

    /// Packets that came by so far: given, and skipped.
    fn packets(&self) -> u64 {
        self.given + self.skips().map(|(_, packets)| packets).sum::<u64>()
    }

    /// Link types that are not read, with the packets skipped for it.
    fn skips(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        let ng = if let Kind::Ng(ng) = &self.kind { Some(ng) } else { None };
        ng.into_iter().flat_map(|ng| ng.skipped.iter().map(|(&link, &packets)| (link, packets)))
    }

    /// Ends the capture, for `fault` if there is one. A capture with packets none of which can be
    /// used is an error.
    fn end(&mut self, offset: u64, fault: Option<Fault>) -> Result<(), Error> {
        self.ended = true;
        let (file, packets) = (self.name.clone(), self.packets());
        self.damage = fault.map(|fault| Damage { file: file.clone(), offset, packets, fault });
        match self.skips().next() {
            Some((number, _)) if self.given == 0 => {
                Err(Error::LinkType { file, number: number.into() })
            }
            _ => Ok(()),
        }
    }

    /// Decodes until a burst has frames, or the capture has ended.
    fn advance(&mut self) -> Result<(), Error> {
        while !self.ended {
            let (shown, base) = (self.input.shown(), self.input.base());
            let step = match &mut self.kind {
                Kind::Classic(classic) => classic.decode(shown, base, &mut self.records),
                Kind::Ng(ng) => ng.decode(shown, base, &mut self.records),
            };
            self.input.take(step.used);
            if !self.records.as_slice().is_empty() {
                return Ok(()); // whatever stopped the decoder will stop it again
            }
            let gone = if let Kind::Ng(ng) = &self.kind { ng.gone() } else { 0 };
            let offset = self.input.offset() - gone;
            match step.stop {
                Stop::Full => {}
                Stop::Bad(fault) => self.end(offset, Some(fault))?,
                Stop::More { inside, need, whole } => match self.input.fill(need)? {
                    Filled::Some => {}
                    Filled::Damaged(fault) => self.end(offset, Some(fault))?,
                    Filled::End => {
                        let (have, need) = (gone + self.input.shown().len() as u64, whole.into());
                        let cut = (have > 0).then_some(Fault::Cut { inside, have, need });
                        self.end(offset, cut)?;
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
            format!("link type {link} ({}) is not read", crate::linktype::name(link.into()))
        };
        self.skips().map(|(link, packets)| Skipped { reason: reason(link), packets }).collect()
    }
}

/// More of a header or packet is needed: `need` bytes in all.
const fn more(inside: &'static str, need: usize) -> Stop {
    Stop::More { inside, need, whole: need as u32 }
}

/// A 16-bit integer of a capture.
const fn u16_at(bytes: [u8; 2], big_endian: bool) -> u16 {
    if big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) }
}

/// A 32-bit integer of a capture.
const fn u32_at(bytes: [u8; 4], big_endian: bool) -> u32 {
    if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
}

/// The `N` bytes at `at`; the caller has checked that they are there.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..].first_chunk().copied().unwrap_or([0; N])
}

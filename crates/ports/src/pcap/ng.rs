//! The pcapng decoder. A file consists of sections of one byte order, and these of blocks that
//! contain their length at both ends.
//!
//! ```text
//!  block      type | total length | body, padded to 4 | total length
//!  section    0x0a0d0d0a: byte order, version; clears the list of interfaces
//!  interface  1: link type, snap length, options (time resolution, time offset)
//!  packet     6 enhanced | 3 simple | 2 obsolete; any other block is skipped while streaming
//! ```
//!
//! Source: draft-ietf-opsawg-pcapng. The section length is not used; a new section is recognised by
//! its header.
//!
//! Invariants: `used` ends at a block boundary, or inside the block that is being skipped (`skip`).

use std::collections::BTreeMap;

use flowyard_frame::Nanos;
use flowyard_wire::LinkType;

use super::decode::{Step, Stop, array, more, u16_at, u32_at};
use super::{input::CAPACITY, ticks::Ticks};
use crate::burst::{Record, Records};
use crate::{error::Fault, limits::MAX_PACKET, linktype};

/// Block type of a section header, the same in both byte orders.
pub(super) const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OBSOLETE: u32 = 2;
const SIMPLE: u32 = 3;
const ENHANCED: u32 = 6;

/// Maximum number of interfaces in one section.
const MAX_INTERFACES: usize = 65_536;

/// The decoder of one pcapng file.
#[derive(Debug, Default)]
pub(super) struct Ng {
    big_endian: bool,
    interfaces: Vec<Interface>,
    /// Number of interfaces in all previous sections.
    before: u32,
    /// The time of the previous packet, for simple packets, which have no time stamp.
    time: Nanos,
    skip: Option<Skip>,
    /// Skipped packets by unsupported link type.
    pub(super) skipped: BTreeMap<u16, u64>,
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    number: u16,
    link: Option<LinkType>,
    /// Snap length; 0 means no limit.
    snap: u32,
    ticks: Ticks,
    offset_seconds: i64,
}

/// A block that is being skipped: `left` more bytes, then the 4 bytes of its trailer.
#[derive(Debug)]
struct Skip {
    block: u32,
    total: u32,
    left: usize,
}

/// A packet from a block of any of the three types.
struct Packet<'a> {
    interface: u32,
    ticks: Option<u64>,
    len: u32,
    wire_len: u32,
    data: &'a [u8],
}

impl Ng {
    pub(super) fn decode(&mut self, shown: &[u8], base: usize, out: &mut Records) -> Step {
        let mut used = 0;
        let stop = loop {
            if out.is_full() {
                break Stop::Full;
            }
            let rest = &shown[used..];
            match self.block(rest, base + used, out) {
                Ok(n) => used += n,
                Err((n, stop)) => {
                    used += n;
                    break stop;
                }
            }
        };
        Step { used, stop }
    }

    /// Decodes the block at the start of `rest`, or a part of a block that is skipped. Returns the
    /// bytes used; the error also contains the reason for stopping.
    #[inline]
    fn block(
        &mut self,
        rest: &[u8],
        base: usize,
        out: &mut Records,
    ) -> Result<usize, (usize, Stop)> {
        if self.skip.is_some() {
            return self.skip_on(rest);
        }
        let Some((head, _)) = rest.split_first_chunk::<12>() else {
            return Err((0, more("a block header", 12)));
        };
        let block = u32_at(array(head, 0), self.big_endian);
        if block == SECTION {
            // The byte order must be known before the length can be read.
            if rest.len() < 16 {
                return Err((0, more("a section header", 16)));
            }
            self.section_head(rest).map_err(bad)?;
            let total = u32_at(array(rest, 4), self.big_endian);
            self.before = self.before.saturating_add(self.interfaces.len() as u32);
            self.interfaces.clear();
            return Ok(self.skip_from(block, total, 16));
        }
        let total = u32_at(array(head, 4), self.big_endian);
        let wrong = Fault::BlockLength { block, claimed: total };
        if total < 12 || !total.is_multiple_of(4) {
            return Err(bad(wrong));
        }
        if !matches!(block, INTERFACE | OBSOLETE | SIMPLE | ENHANCED) {
            return Ok(self.skip_from(block, total, 8));
        }
        let len = total as usize;
        if len > CAPACITY {
            return Err(bad(wrong));
        }
        if rest.len() < len {
            return Err((
                0,
                more(if block == INTERFACE { "an interface" } else { "a packet" }, len),
            ));
        }
        self.trailer(block, total, array(rest, len - 4)).map_err(bad)?;
        let body = &rest[8..len - 4];
        let packet = match block {
            INTERFACE => {
                self.interface(body).ok_or_else(|| bad(wrong))?.map_err(bad)?;
                return Ok(len);
            }
            ENHANCED => self.enhanced(body),
            SIMPLE => self.simple(body),
            _ => self.obsolete(body),
        };
        let packet = packet.ok_or_else(|| bad(wrong))?;
        self.packet(&packet, base + (len - 4 - packet.data.len()), out).map_err(bad)?;
        Ok(len)
    }

    /// The number of bytes used of the block that is being skipped.
    pub(super) fn gone(&self) -> u64 {
        self.skip.as_ref().map_or(0, |skip| u64::from(skip.total) - 4 - skip.left as u64)
    }

    /// Reads byte order and version from the section header in `block`, which has at least 16
    /// bytes.
    pub(super) fn section_head(&mut self, block: &[u8]) -> Result<(), Fault> {
        self.big_endian = match u32_at(array(block, 8), false) {
            0x1a2b_3c4d => false,
            0x4d3c_2b1a => true,
            magic => return Err(Fault::ByteOrder(magic)),
        };
        let total = u32_at(array(block, 4), self.big_endian);
        if total < 28 || !total.is_multiple_of(4) {
            return Err(Fault::BlockLength { block: SECTION, claimed: total });
        }
        match u16_at(array(block, 12), self.big_endian) {
            1 => Ok(()),
            major => Err(Fault::Version(major)),
        }
    }

    /// Reads link type, snap length and time resolution of an interface; `None` if the body is too
    /// short.
    fn interface(&mut self, body: &[u8]) -> Option<Result<(), Fault>> {
        let (head, mut options) = body.split_first_chunk::<8>()?;
        if self.interfaces.len() == MAX_INTERFACES {
            return Some(Err(Fault::Interfaces));
        }
        let big = self.big_endian;
        let number = u16_at(array(head, 0), big);
        let mut interface = Interface {
            number,
            link: linktype::read(number.into()),
            snap: u32_at(array(head, 4), big),
            ticks: Ticks::new(6),
            offset_seconds: 0,
        };
        // An option list may end with the body instead of an end-of-options. Truncated options are
        // ignored, like unknown ones.
        while let Some((head, tail)) = options.split_first_chunk::<4>() {
            let len = usize::from(u16_at(array(head, 2), big));
            let Some(value) = tail.get(..len) else { break };
            match (u16_at(array(head, 0), big), value) {
                (0, _) => break,
                (9, &[resolution]) => interface.ticks = Ticks::new(resolution),
                (14, &[a, b, c, d, e, f, g, h]) => {
                    let bytes = [a, b, c, d, e, f, g, h];
                    interface.offset_seconds =
                        if big { i64::from_be_bytes(bytes) } else { i64::from_le_bytes(bytes) };
                }
                _ => {}
            }
            options = tail.get(len.next_multiple_of(4)..).unwrap_or_default();
        }
        self.interfaces.push(interface);
        Some(Ok(()))
    }

    #[inline]
    fn enhanced<'a>(&self, body: &'a [u8]) -> Option<Packet<'a>> {
        let (head, data) = body.split_first_chunk::<20>()?;
        let word = |at| u32_at(array(head, at), self.big_endian);
        let ticks = Some(u64::from(word(4)) << 32 | u64::from(word(8)));
        Some(Packet { interface: word(0), ticks, len: word(12), wire_len: word(16), data })
    }

    fn simple<'a>(&self, body: &'a [u8]) -> Option<Packet<'a>> {
        let (head, data) = body.split_first_chunk::<4>()?;
        let wire_len = u32_at(*head, self.big_endian);
        // The captured length is not stored: it is the minimum of wire length, snap length and
        // block.
        let snap = self.interfaces.first().map_or(0, |interface| interface.snap);
        let snap = if snap == 0 { u32::MAX } else { snap };
        let len = wire_len.min(snap).min(data.len() as u32);
        Some(Packet { interface: 0, ticks: None, len, wire_len, data })
    }

    fn obsolete<'a>(&self, body: &'a [u8]) -> Option<Packet<'a>> {
        let (head, data) = body.split_first_chunk::<20>()?;
        let word = |at| u32_at(array(head, at), self.big_endian);
        let interface = u16_at(array(head, 0), self.big_endian).into(); // followed by a drop count
        let ticks = Some(u64::from(word(4)) << 32 | u64::from(word(8)));
        Some(Packet { interface, ticks, len: word(12), wire_len: word(16), data })
    }

    /// Delivers a packet, or counts it as skipped if its link type is not supported.
    #[inline]
    fn packet(&mut self, packet: &Packet<'_>, at: usize, out: &mut Records) -> Result<(), Fault> {
        let &Packet { interface: wanted, ticks, len, wire_len, data } = packet;
        let Some(interface) = self.interfaces.get(wanted as usize) else {
            return Err(Fault::Interface { wanted, known: self.interfaces.len() as u32 });
        };
        let most = data.len().min(MAX_PACKET);
        if len as usize > most {
            return Err(Fault::PacketLength { claimed: len.into(), most: most as u64 });
        }
        if let Some(ticks) = ticks {
            self.time = interface.ticks.nanos(ticks, interface.offset_seconds);
        }
        match interface.link {
            Some(link) => {
                let interface = self.before.saturating_add(wanted);
                out.push(Record { time: self.time, wire_len, interface, link, at, len });
            }
            None => *self.skipped.entry(interface.number).or_default() += 1,
        }
        Ok(())
    }

    /// Starts to skip a block of `total` bytes, of which `used` are already used.
    const fn skip_from(&mut self, block: u32, total: u32, used: usize) -> usize {
        self.skip = Some(Skip { block, total, left: total as usize - used - 4 });
        used
    }

    fn skip_on(&mut self, rest: &[u8]) -> Result<usize, (usize, Stop)> {
        let Some(Skip { block, total, left }) = &mut self.skip else { return Ok(0) };
        let (block, total) = (*block, *total);
        let used = rest.len().min(*left);
        *left -= used;
        let Some(trailer) = rest[used..].first_chunk::<4>() else {
            // Up to 4 GiB may be missing; request only the size of the trailer.
            return Err((used, Stop::More { inside: "a block", need: 4, whole: total }));
        };
        let whole = self.trailer(block, total, *trailer);
        whole.map_err(|fault| (used, Stop::Bad(fault)))?;
        self.skip = None;
        Ok(used + 4)
    }

    /// Checks that both length fields of a block are equal.
    fn trailer(&self, block: u32, head: u32, tail: [u8; 4]) -> Result<(), Fault> {
        let tail = u32_at(tail, self.big_endian);
        if tail == head { Ok(()) } else { Err(Fault::BlockTrailer { block, head, tail }) }
    }
}

const fn bad(fault: Fault) -> (usize, Stop) {
    (0, Stop::Bad(fault))
}

//! The pcap decoder. A file has a header of 24 bytes, followed by records.
//!
//! ```text
//!  file    magic | version 2.4 | zone | accuracy | snap length | link type
//!  record  seconds | micro- or nanoseconds | captured length | wire length | data
//!  modified (Kuznetzov): 8 more bytes before the data: interface index, protocol, packet type
//! ```
//!
//! Source: draft-ietf-opsawg-pcap, and libpcap's savefile format notes for older variants.

use flowyard_frame::Nanos;
use flowyard_wire::LinkType;

use super::decode::{Step, Stop, more, u32_at};
use crate::burst::{Record, Records};
use crate::{error::Fault, limits::MAX_PACKET};

/// Length of the file header.
pub(super) const FILE_HEADER: usize = 24;

/// The decoder of one pcap file.
#[derive(Debug)]
pub(super) struct Classic {
    pub(super) big_endian: bool,
    /// Whether records have the 8 additional bytes of the modified format.
    pub(super) modified: bool,
    /// Nanoseconds of one unit of the record's second field: 1000 or 1.
    pub(super) unit: Nanos,
    /// Before version 2.4 the two lengths could be in either order; the smaller is the captured
    /// one.
    pub(super) either_order: bool,
    pub(super) link: LinkType,
}

impl Classic {
    pub(super) fn decode(&self, shown: &[u8], base: usize, out: &mut Records) -> Step {
        // One instance per layout, so that the loop over packets has no branch on the format.
        match (self.big_endian, self.modified) {
            (false, false) => self.records::<false, 16>(shown, base, out),
            (true, false) => self.records::<true, 16>(shown, base, out),
            (false, true) => self.records::<false, 24>(shown, base, out),
            (true, true) => self.records::<true, 24>(shown, base, out),
        }
    }

    fn records<const BIG: bool, const HEADER: usize>(
        &self,
        shown: &[u8],
        base: usize,
        out: &mut Records,
    ) -> Step {
        let mut used = 0;
        let stop = loop {
            if out.is_full() {
                break Stop::Full;
            }
            let rest = &shown[used..];
            let Some((header, data)) = rest.split_first_chunk::<HEADER>() else {
                break more("a packet header", HEADER);
            };
            let word =
                |i: usize| u32_at([header[i], header[i + 1], header[i + 2], header[i + 3]], BIG);
            let (mut len, mut wire_len) = (word(8), word(12));
            if self.either_order {
                (len, wire_len) = (len.min(wire_len), len.max(wire_len));
            }
            if len as usize > MAX_PACKET {
                break Stop::Bad(Fault::PacketLength {
                    claimed: len.into(),
                    most: MAX_PACKET as u64,
                });
            }
            if data.len() < len as usize {
                break more("a packet", HEADER + len as usize);
            }
            // No overflow: 2^32 seconds are 4.3e18 ns, and the fraction adds at most 4.3e12.
            let time = u64::from(word(0)) * 1_000_000_000 + u64::from(word(4)) * self.unit;
            let at = base + used + HEADER;
            out.push(Record { time, wire_len, interface: 0, link: self.link, at, len });
            used += HEADER + len as usize;
        };
        Step { used, stop }
    }
}

//! Segmentation: one long frame becomes frames that a wire can carry.
//!
//! ```text
//!  [eth ip tcp | 40,000 bytes ...]     ->  [eth ip tcp | 1448] [eth ip tcp | 1448] ... [eth ip tcp | 904]
//!
//!  by segment     IPv4 length, identification + n, checksum; IPv6 length; PPPoE and GTP-U length
//!                 TCP sequence + n * size; FIN and PSH in the last only, CWR in the first only; checksum
//!                 UDP length, checksum
//!  by tunnel      as above for the headers around it; the checksums of UDP and GRE, if they have one
//! ```
//!
//! [`Cut`] is made once for a frame. It writes the headers of any segment, whose payload is a range of the
//! frame, into memory of the caller. All bytes of the frame behind the transport header are payload, as in the
//! kernel. Fields that no rule above names are copied into each segment: options, URG, the flow label.
//!
//! The checksum of a segment is computed from the pseudo header in the checksum field if that is partial, and
//! from the addresses otherwise. The sum of a tunnel's packet is not computed a second time for the checksum
//! around it: it follows from the inner checksum (local checksum offload).
//!
//! Invariants: `l3 < l4 < headers <= frame length` for each level; a segment has the headers and at least one
//! byte; nothing outside the memory of the caller is written; no input panics.
//! Thread-safety: plain data.

use std::fmt;
use std::ops::Range;

use crate::checksum::Sum;
use crate::{Offload, Segment};

pub(crate) mod levels;

use levels::{Levels, Upper};

/// Why a frame cannot be cut.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
#[repr(u8)]
pub enum Uncut {
    /// The offload does not ask for segments.
    NotAsked,
    /// The headers are not those that the offload names, or are damaged.
    Headers,
    /// A packet around the payload is an IP fragment.
    Fragment,
    /// A header on the way cannot be repeated in each segment: AH, numbers of GRE and GTP-U, PPTP, LLC, or a
    /// jumbo payload option.
    Unrepeatable,
    /// There are more tunnels than [`Cut::MAX_LEVELS`] allows.
    TooDeep,
    /// A segment would be longer than IP allows.
    TooLong,
}

impl Uncut {
    /// Every reason, in the order of their numbers.
    pub const ALL: [Self; 6] = [
        Self::NotAsked,
        Self::Headers,
        Self::Fragment,
        Self::Unrepeatable,
        Self::TooDeep,
        Self::TooLong,
    ];
}

impl fmt::Display for Uncut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAsked => "the frame is not to be cut",
            Self::Headers => "the frame's headers are not those that its offload names",
            Self::Fragment => "the packet is an IP fragment",
            Self::Unrepeatable => "a header of the frame cannot be repeated in each segment",
            Self::TooDeep => "the frame has too many tunnels",
            Self::TooLong => "a segment would be longer than IP allows",
        })
    }
}

impl std::error::Error for Uncut {}

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// The segmentation of one frame.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    levels: Levels,
    /// The sum of the innermost pseudo header without its length.
    pseudo: Sum,
    /// Where the payload begins, and the length of the frame.
    headers: usize,
    end: usize,
    size: usize,
    flags: u8,
}

impl Cut {
    /// The largest number of IP headers in a frame: three tunnels in each other, and what is in them.
    pub const MAX_LEVELS: usize = levels::MAX;

    /// Prepares to cut the Ethernet frame `frame` as `offload` says.
    ///
    /// # Errors
    /// When the frame is not to be cut, or cannot be: then it is to be dropped, as it fits no wire.
    pub fn new(frame: &[u8], offload: Offload) -> Result<Self, Uncut> {
        if offload.segment == Segment::None || offload.segment_bytes == 0 {
            return Err(Uncut::NotAsked);
        }
        let (headers, end) = (offload.headers_len(), frame.len());
        let (levels, pseudo) = Levels::find(frame, offload)?;
        if headers >= end {
            return Err(Uncut::Headers);
        }
        let size = usize::from(offload.segment_bytes);
        // The outermost IP packet is the longest; IPv6 counts without its header.
        let longest = headers + size.min(end - headers) - levels.outermost();
        if longest > usize::from(u16::MAX) {
            return Err(Uncut::TooLong);
        }
        Ok(Self { levels, pseudo, headers, end, size, flags: offload.flags })
    }

    /// The number of segments; at least one.
    #[must_use]
    #[inline]
    pub const fn count(&self) -> usize {
        (self.end - self.headers).div_ceil(self.size)
    }

    /// The length of the headers, which is that of the frame and of each segment.
    #[must_use]
    #[inline]
    pub const fn headers_len(&self) -> usize {
        self.headers
    }

    /// Which bytes of the frame are the payload of segment `n`; empty behind the last.
    #[must_use]
    #[inline]
    pub fn payload(&self, n: usize) -> Range<usize> {
        let from = self.headers.saturating_add(n.saturating_mul(self.size)).min(self.end);
        from..from.saturating_add(self.size).min(self.end)
    }

    /// The length of segment `n` with its headers.
    #[must_use]
    #[inline]
    pub fn len(&self, n: usize) -> usize {
        self.headers + self.payload(n).len()
    }

    /// Always false: there is at least one segment.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes segment `n` of `frame` to the beginning of `out` and returns its length. Writes nothing and
    /// returns 0 if there is no segment `n`, if it is longer than `out`, or if `frame` has another length than
    /// the frame that this was made for.
    pub fn write(&self, frame: &[u8], n: usize, out: &mut [u8]) -> usize {
        let len = self.len(n);
        let Some(out) = out.get_mut(..len) else { return 0 };
        let Some((headers, payload)) = out.split_at_mut_checked(self.headers) else { return 0 };
        if !self.write_headers(frame, n, headers) {
            return 0;
        }
        payload.copy_from_slice(&frame[self.payload(n)]);
        len
    }

    /// Writes the headers of segment `n` alone, to the first [`Cut::headers_len`] bytes of `out`; the payload
    /// is read from `frame` for its checksum. Writes nothing and returns false in the cases of
    /// [`Cut::write`].
    pub fn write_headers(&self, frame: &[u8], n: usize, out: &mut [u8]) -> bool {
        let (payload, Some(out)) = (self.payload(n), out.get_mut(..self.headers)) else {
            return false;
        };
        if frame.len() != self.end || payload.is_empty() {
            return false;
        }
        out.copy_from_slice(&frame[..self.headers]);
        let is_last = payload.end == self.end;
        self.number(out, n, is_last, payload.len());
        let sum = self.transport(out, &frame[payload.clone()]);
        let (len, last) = (self.headers + payload.len(), self.levels.count() - 1);
        self.levels.finish(out, len, sum, |at| {
            let fixed = if at == last { Offload::FIXED_ID } else { Offload::FIXED_OUTER_ID };
            if self.flags & fixed == 0 { n as u16 } else { 0 }
        });
        true
    }

    /// The numbers and flags of the transport header.
    fn number(&self, out: &mut [u8], n: usize, is_last: bool, payload: usize) {
        let l4 = self.levels.innermost().l4();
        if self.levels.innermost().upper == Upper::Tcp {
            let sequence = out[l4 + 4..].first_chunk_mut().map(|field| {
                let first = u32::from_be_bytes(*field);
                *field = first.wrapping_add((n * self.size) as u32).to_be_bytes();
            });
            debug_assert!(sequence.is_some(), "the header is complete");
            if !is_last {
                out[l4 + 13] &= !(FIN | PSH);
            }
            if n > 0 {
                out[l4 + 13] &= !CWR; // RFC 3168 section 6.1.2
            }
        } else {
            levels::put(out, l4 + 4, (self.headers - l4 + payload) as u16);
        }
    }

    /// The transport checksum. Returns the sum of the transport header with it and the payload.
    fn transport(&self, out: &mut [u8], payload: &[u8]) -> Sum {
        let innermost = self.levels.innermost();
        let l4 = innermost.l4();
        let is_tcp = innermost.upper == Upper::Tcp;
        let field = l4 + if is_tcp { 16 } else { 6 };
        levels::put(out, field, 0);
        // The transport header has an even length, so that the payload begins with a whole word.
        let sum = Sum::ZERO.bytes(&out[l4..]).bytes(payload);
        let len = (self.headers - l4 + payload.len()) as u64;
        let check = match self.pseudo.word(len).plus(sum).finish() {
            0 if !is_tcp => 0xffff, // RFC 768: zero means no checksum
            check => check,
        };
        levels::put(out, field, check);
        sum.word(check.into())
    }
}

#[cfg(test)]
pub(crate) mod tests;

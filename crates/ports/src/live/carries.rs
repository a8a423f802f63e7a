//! Which unfinished frames a port passes on, in both directions.
//!
//! ```text
//!             takes whole            else
//!  frame ──>  bytes and a header     checksum completed, or cut into segments: as on a wire
//! ```
//!
//! Invariant: a port that carries segments carries checksums: a frame that is cut gets its checksums then.
//! Thread-safety: plain data.

use flowyard_wire::{Offload, Segment};

/// Which unfinished frames a port passes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Carries {
    /// Frames whose TCP or UDP checksum covers the pseudo header only.
    csum: bool,
    /// Frames that are to be cut into TCP segments.
    tso: bool,
    /// Frames that are to be cut into UDP datagrams.
    uso: bool,
}

impl Carries {
    /// No unfinished frames.
    pub const NONE: Self = Self { csum: false, tso: false, uso: false };
    /// All unfinished frames but those of SCTP, which no port passes on, see [`Carries::takes`].
    pub const ALL: Self = Self { csum: true, tso: true, uso: true };

    /// A port that passes these; without `csum`, none.
    #[must_use]
    pub const fn new(csum: bool, tso: bool, uso: bool) -> Self {
        Self { csum, tso: csum && tso, uso: csum && uso }
    }

    /// As a number, for another process.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.csum as u64 | (self.tso as u64) << 1 | (self.uso as u64) << 2
    }

    /// Of the number that [`Carries::bits`] gives.
    #[must_use]
    pub const fn of_bits(bits: u64) -> Self {
        Self::new(bits & 1 != 0, bits & 2 != 0, bits & 4 != 0)
    }

    /// Whether frames with partial checksums are passed on.
    #[must_use]
    pub const fn csum(self) -> bool {
        self.csum
    }

    /// Whether frames that are to be cut into TCP segments are passed on.
    #[must_use]
    pub const fn tso(self) -> bool {
        self.tso
    }

    /// Whether frames that are to be cut into UDP datagrams are passed on.
    #[must_use]
    pub const fn uso(self) -> bool {
        self.uso
    }

    /// Whether frames that are to be cut are passed on.
    #[must_use]
    pub const fn segments(self) -> bool {
        self.tso || self.uso
    }

    /// Whether a frame with this offload is passed on as it is. The CRC of SCTP is completed where a frame is received, because
    /// the kernel of the receiver would complete it with the wrong kind of checksum.
    #[must_use]
    #[inline]
    pub const fn takes(self, offload: Offload) -> bool {
        let segment = match offload.segment {
            Segment::None => true,
            Segment::Tcp4 | Segment::Tcp6 => self.tso,
            Segment::Udp => self.uso,
        };
        segment && !offload.has_crc() && (self.csum || !offload.has(Offload::PARTIAL))
    }

    /// What either passes on.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self {
            csum: self.csum || other.csum,
            tso: self.tso || other.tso,
            uso: self.uso || other.uso,
        }
    }

    /// What both pass on.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self::new(self.csum && other.csum, self.tso && other.tso, self.uso && other.uso)
    }

    /// Whether everything that `other` passes on is passed on.
    #[must_use]
    pub fn covers(self, other: Self) -> bool {
        self.or(other) == self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_taken_if_each_of_its_offloads_is() {
        let partial = Offload { flags: Offload::PARTIAL, checksum_offset: 16, ..Offload::NONE };
        let tcp = Offload { segment: Segment::Tcp6, segment_bytes: 9, ..partial };
        let udp = Offload { segment: Segment::Udp, ..tcp };
        let valid = Offload { flags: Offload::VALID, ..Offload::NONE };
        let sctp = Offload { checksum_offset: 8, ..partial };
        assert!(!Carries::ALL.takes(sctp) && Carries::NONE.takes(Offload { flags: 0, ..sctp }));
        let taken = |carries: Carries| [valid, partial, tcp, udp].map(|one| carries.takes(one));
        assert_eq!(taken(Carries::NONE), [true, false, false, false]);
        assert_eq!(taken(Carries::new(true, false, false)), [true, true, false, false]);
        assert_eq!(taken(Carries::new(true, true, false)), [true, true, true, false]);
        assert_eq!(taken(Carries::new(true, false, true)), [true, true, false, true]);
        assert_eq!(taken(Carries::ALL), [true; 4]);
        assert_eq!(Carries::new(false, true, true), Carries::NONE);
        let (tso, uso) = (Carries::new(true, true, false), Carries::new(true, false, true));
        assert_eq!((tso.or(uso), tso.and(uso)), (Carries::ALL, Carries::new(true, false, false)));
        assert!(Carries::ALL.covers(tso) && !tso.covers(uso) && tso.covers(Carries::NONE));
    }
}

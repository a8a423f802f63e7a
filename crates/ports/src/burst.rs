//! What a source lends: up to 32 frames at a time.
//!
//! ```text
//!  records [time, wire_len, interface, link | at, len] [..] [..]   up to 32
//!                                             |   |
//!  bytes   ...................................[data]...........    the source's buffer
//! ```

use flowyard_frame::{LANES, Nanos};
use flowyard_wire::LinkType;

use crate::{Damage, Error};

/// What a source says about one frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// When the frame was seen, in nanoseconds since the Unix epoch.
    pub time: Nanos,
    /// The frame's length on the wire in bytes, as the source claims it: a crafted capture may
    /// claim less than it captured.
    pub wire_len: u32,
    /// The interface the frame was seen on, counted through the whole source from 0.
    pub interface: u32,
    /// What the frame's first byte is.
    pub link: LinkType,
    pub(crate) at: usize,
    pub(crate) len: u32,
}

impl Record {
    /// How many bytes of the frame were captured.
    #[must_use]
    pub const fn captured(&self) -> usize {
        self.len as usize
    }
}

/// Up to [`LANES`] frames, lent until the next read. An empty burst is the end of the source.
#[derive(Clone, Copy, Debug)]
pub struct Burst<'a> {
    records: &'a [Record],
    bytes: &'a [u8],
}

impl<'a> Burst<'a> {
    /// `records` whose data lies in `bytes`.
    pub(crate) const fn new(records: &'a [Record], bytes: &'a [u8]) -> Self {
        Self { records, bytes }
    }

    /// How many frames the burst has.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether the source has ended.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The records, in the order of the source.
    #[must_use]
    pub const fn records(&self) -> &'a [Record] {
        self.records
    }

    /// The captured bytes of frame `i`, from the first byte of its link header.
    ///
    /// # Panics
    /// When `i` is not below [`Burst::len`].
    #[must_use]
    #[inline]
    pub fn data(&self, i: usize) -> &'a [u8] {
        let record = &self.records[i];
        &self.bytes[record.at..][..record.len as usize]
    }

    /// Every frame with its record, in the order of the source.
    pub fn iter(&self) -> impl Iterator<Item = (&'a Record, &'a [u8])> + use<'a> {
        let bytes = self.bytes;
        self.records.iter().map(move |record| (record, &bytes[record.at..][..record.captured()]))
    }
}

/// How far a source has got, in bytes of the underlying file (compressed bytes of a gzip file).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Bytes taken from the file.
    pub done: u64,
    /// Bytes that the file had when it was opened; `None` where unknown (a pipe).
    pub total: Option<u64>,
}

/// Frames that a source holds and does not give, with the reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Skipped {
    /// Why, in words: `link type 105 (IEEE802_11)`.
    pub reason: String,
    /// How many frames.
    pub packets: u64,
}

/// Where frames come from.
pub trait Source {
    /// Lends the next frames; an empty burst is the end. Returns as soon as it has one whole frame
    /// and waits for more only when it has none.
    ///
    /// # Errors
    /// When the source cannot be read on, or when it has ended and nothing in it can be used.
    /// The frames before the fault were lent by earlier calls.
    fn read(&mut self) -> Result<Burst<'_>, Error>;

    /// How far the source has got.
    fn progress(&self) -> Progress;

    /// Why the source ended early, once [`Source::read`] has given an empty burst.
    fn damage(&self) -> Option<&Damage> {
        None
    }

    /// The frames not given so far, by reason.
    fn skipped(&self) -> Vec<Skipped> {
        Vec::new()
    }
}

/// Room for the records of one burst.
#[derive(Debug)]
pub(crate) struct Records {
    len: usize,
    slots: [Record; LANES],
}

impl Records {
    pub(crate) const fn new() -> Self {
        let none =
            Record { time: 0, wire_len: 0, interface: 0, link: LinkType::Ethernet, at: 0, len: 0 };
        Self { len: 0, slots: [none; LANES] }
    }

    pub(crate) const fn clear(&mut self) {
        self.len = 0;
    }

    #[inline]
    pub(crate) const fn is_full(&self) -> bool {
        self.len == LANES
    }

    /// Adds `record`; the caller has asked [`Records::is_full`].
    #[inline]
    pub(crate) const fn push(&mut self, record: Record) {
        self.slots[self.len] = record;
        self.len += 1;
    }

    pub(crate) fn as_slice(&self) -> &[Record] {
        &self.slots[..self.len]
    }
}

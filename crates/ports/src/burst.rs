//! A burst: up to 32 frames, lent by a source.
//!
//! ```text
//!  records [time, wire_len, interface, link | at, len] [..] [..]   up to 32
//!                                             |   |
//!  bytes   ...................................[data]...........    the source's buffer
//! ```

use flowyard_frame::{LANES, Nanos};
use flowyard_wire::LinkType;

use crate::error::{Damage, Error};

/// The description of one frame of a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// Time stamp in nanoseconds since the Unix epoch.
    pub time: Nanos,
    /// The frame's length on the wire in bytes, as stated by the source. In a crafted capture it
    /// may be less than the captured length.
    pub wire_len: u32,
    /// The interface at which the frame was captured, counted from 0 through the whole source.
    pub interface: u32,
    /// The type of the frame's link header.
    pub link: LinkType,
    pub(crate) at: usize,
    pub(crate) len: u32,
}

impl Record {
    /// Number of captured bytes.
    #[must_use]
    pub const fn captured(&self) -> usize {
        self.len as usize
    }
}

/// Up to [`LANES`] frames, lent until the next read. An empty burst marks the end of the source.
#[derive(Clone, Copy, Debug)]
pub struct Burst<'a> {
    records: &'a [Record],
    bytes: &'a [u8],
}

impl<'a> Burst<'a> {
    /// A burst of `records` whose data lies in `bytes`.
    pub(crate) const fn new(records: &'a [Record], bytes: &'a [u8]) -> Self {
        Self { records, bytes }
    }

    /// Number of frames.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether the burst has no frames, because the source has ended.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The records in the order of the source.
    #[must_use]
    pub const fn records(&self) -> &'a [Record] {
        self.records
    }

    /// The captured bytes of frame `i`, from the first byte of its link header.
    ///
    /// # Panics
    /// If `i` is not below [`Burst::len`].
    #[must_use]
    #[inline]
    pub fn data(&self, i: usize) -> &'a [u8] {
        let record = &self.records[i];
        &self.bytes[record.at..][..record.len as usize]
    }

    /// All frames with their records, in the order of the source.
    pub fn iter(&self) -> impl Iterator<Item = (&'a Record, &'a [u8])> + use<'a> {
        let bytes = self.bytes;
        self.records.iter().map(move |record| (record, &bytes[record.at..][..record.captured()]))
    }
}

/// The progress of a source in bytes of the underlying file (compressed bytes of a gzip file).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Bytes read from the file.
    pub done: u64,
    /// Size of the file when it was opened; `None` if unknown (a pipe).
    pub total: Option<u64>,
}

/// Frames that a source contains but does not deliver, with the reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Skipped {
    /// The reason in words: `link type 105 (IEEE802_11) is not supported`.
    pub reason: String,
    /// Number of frames.
    pub packets: u64,
}

/// A source of frames.
pub trait Source {
    /// Lends the next frames; an empty burst marks the end. Returns as soon as at least one
    /// complete frame is available, and waits for more data only when there is none.
    ///
    /// # Errors
    /// When the source cannot be read any further, or when it has ended and no frame of it could be
    /// used. The frames before the fault were lent by earlier calls.
    fn read(&mut self) -> Result<Burst<'_>, Error>;

    /// The progress so far.
    fn progress(&self) -> Progress;

    /// Why the source ended early; valid once [`Source::read`] has returned an empty burst.
    fn damage(&self) -> Option<&Damage> {
        None
    }

    /// The frames not delivered so far, by reason.
    fn skipped(&self) -> Vec<Skipped> {
        Vec::new()
    }
}

/// Storage for the records of one burst.
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

    /// Adds `record`; the caller has checked [`Records::is_full`].
    #[inline]
    pub(crate) const fn push(&mut self, record: Record) {
        self.slots[self.len] = record;
        self.len += 1;
    }

    pub(crate) fn as_slice(&self) -> &[Record] {
        &self.slots[..self.len]
    }
}

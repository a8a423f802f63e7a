//! A source of frames in memory: for tests, benchmarks, and captures that are read more than once.

use flowyard_frame::{LANES, Nanos};
use flowyard_wire::LinkType;

use crate::burst::{Burst, Progress, Record, Skipped, Source};
use crate::error::{Damage, Error};

/// Frames with their time stamps, in the order in which they were pushed.
#[derive(Clone, Debug, Default)]
pub struct Frames {
    records: Vec<Record>,
    bytes: Vec<u8>,
    next: usize,
    /// Of the source from which the frames were read.
    damage: Option<Damage>,
    skipped: Vec<Skipped>,
}

impl Frames {
    /// An empty source.
    #[must_use]
    pub const fn new() -> Self {
        Self { records: Vec::new(), bytes: Vec::new(), next: 0, damage: None, skipped: Vec::new() }
    }

    /// Reads all remaining frames of `source`. The result has its damage and its skipped frames, too.
    ///
    /// # Errors
    /// As [`Source::read`].
    pub fn read_all(source: &mut dyn Source) -> Result<Self, Error> {
        let mut all = Self::new();
        loop {
            let burst = source.read()?;
            if burst.is_empty() {
                (all.damage, all.skipped) = (source.damage().cloned(), source.skipped());
                return Ok(all);
            }
            for (record, data) in burst.iter() {
                all.push_record(*record, data);
            }
        }
    }

    /// Adds a complete frame, captured at `time` on interface 0.
    ///
    /// # Panics
    /// If the frame is longer than 4 GiB.
    pub fn push(&mut self, time: Nanos, link: LinkType, data: &[u8]) {
        let wire_len = u32::try_from(data.len()).expect("a frame is shorter than 4 GiB");
        self.push_record(Record { time, wire_len, interface: 0, link, at: 0, len: wire_len }, data);
    }

    /// Adds the first bytes of a frame that was `wire_len` bytes long, captured at `time` on interface 0.
    ///
    /// # Panics
    /// If there are more than 4 GiB of bytes.
    pub fn push_front(&mut self, time: Nanos, link: LinkType, data: &[u8], wire_len: u32) {
        let len = u32::try_from(data.len()).expect("a frame is shorter than 4 GiB");
        self.push_record(Record { time, wire_len, interface: 0, link, at: 0, len }, data);
    }

    fn push_record(&mut self, record: Record, data: &[u8]) {
        self.records.push(Record { at: self.bytes.len(), ..record });
        self.bytes.extend_from_slice(data);
    }

    /// Number of frames, read or not.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are no frames, read or not.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// All frames, read or not.
    pub fn iter(&self) -> impl Iterator<Item = (&Record, &[u8])> {
        Burst::new(&self.records, &self.bytes).iter()
    }

    /// Continues reading at the first frame.
    pub const fn rewind(&mut self) {
        self.next = 0;
    }
}

impl Source for Frames {
    fn read(&mut self) -> Result<Burst<'_>, Error> {
        let from = self.next;
        self.next = self.records.len().min(from + LANES);
        Ok(Burst::new(&self.records[from..self.next], &self.bytes))
    }

    /// The progress in captured bytes.
    fn progress(&self) -> Progress {
        let done = self.records.get(self.next).map_or(self.bytes.len(), |record| record.at);
        Progress { done: done as u64, total: Some(self.bytes.len() as u64) }
    }

    fn damage(&self) -> Option<&Damage> {
        self.damage.as_ref()
    }

    fn skipped(&self) -> Vec<Skipped> {
        self.skipped.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_in_order_and_in_bursts() {
        let mut frames = Frames::new();
        for i in 0..70_u8 {
            frames.push(u64::from(i), LinkType::Ethernet, &vec![i; usize::from(i)]);
        }
        let copy = Frames::read_all(&mut frames).unwrap();
        assert!(copy.iter().eq(frames.iter()));
        assert!(frames.read().unwrap().is_empty());
        frames.rewind();
        let mut sizes = Vec::new();
        let mut next = 0;
        loop {
            let burst = frames.read().unwrap();
            if burst.is_empty() {
                break;
            }
            sizes.push(burst.len());
            for i in 0..burst.len() {
                assert_eq!(burst.records()[i].time, next);
                assert_eq!(burst.data(i), vec![next as u8; next as usize]);
                next += 1;
            }
        }
        assert_eq!((sizes.as_slice(), next), ([32, 32, 6].as_slice(), 70));
        assert_eq!(frames.progress().done, frames.progress().total.unwrap());
    }
}

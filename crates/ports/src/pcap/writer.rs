//! The capture writer: little-endian pcap or pcapng, under a temporary name until finished.
//!
//! Records are written whole: if the disk is full, the file ends behind the last record that fits.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
};

use flowyard_frame::Nanos;
use flowyard_wire::LinkType;

use crate::{error::Error, limits::MAX_PACKET, linktype};

/// An output format.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Format {
    /// pcap with microseconds, which every tool reads.
    PcapMicros,
    /// pcap with nanoseconds.
    #[default]
    PcapNanos,
    /// pcapng with one interface and nanoseconds.
    Pcapng,
}

/// A file for a capture: opened, without a byte, and with a temporary name. It gets its final name only
/// when the capture in it is finished; before that, and when this is dropped, an existing file of that name
/// is not changed.
#[derive(Debug)]
pub struct Destination {
    path: PathBuf,
    part: PathBuf,
    file: File,
    /// Whether the file is not removed.
    is_kept: bool,
}

impl Destination {
    /// Opens a file that becomes `path`.
    ///
    /// # Errors
    /// When no file can be created in the same directory, or `path` is a device, a pipe or a
    /// directory, which the finished capture would replace.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref().to_owned();
        if fs::metadata(&path).is_ok_and(|there| !there.is_file()) {
            let source = std::io::Error::other("it exists and is not a regular file");
            return Err(failed(&path, "create", None, source));
        }
        let (part, file) =
            create_part(&path).map_err(|source| failed(&path, "create", None, source))?;
        Ok(Self { path, part, file, is_kept: false })
    }

    /// Gives the file its final name, replacing any file of that name. If that fails, the file stays under its
    /// temporary name.
    fn name(&mut self, records: u64) -> Result<(), Error> {
        self.is_kept = true;
        fs::rename(&self.part, &self.path).map_err(|source| Error::Unnamed {
            file: self.path.display().to_string(),
            part: self.part.display().to_string(),
            records,
            source,
        })
    }
}

impl Drop for Destination {
    fn drop(&mut self) {
        if !self.is_kept {
            // An error cannot be reported here; the name of a leftover file ends in ".part".
            drop(fs::remove_file(&self.part));
        }
    }
}

/// Bytes of whole records that are written at once.
const CHUNK: usize = 1 << 18;

/// Writes one capture. The file gets its name when [`Writer::finish`] succeeds, or when writing fails after
/// some frames.
#[derive(Debug)]
pub struct Writer {
    to: Destination,
    format: Format,
    /// Whole records that are not in the file yet.
    buffer: Vec<u8>,
    /// Bytes in the file: its header and whole records.
    offset: u64,
    /// Records in the file.
    records: u64,
}

impl Writer {
    /// Creates the capture `path` for frames with the link header `link`.
    ///
    /// # Errors
    /// As [`Destination::open`], or when the file cannot be written.
    pub fn create(path: impl AsRef<Path>, format: Format, link: LinkType) -> Result<Self, Error> {
        Self::new(Destination::open(path)?, format, link)
    }

    /// Writes a capture into `to` for frames with the link header `link`.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn new(to: Destination, format: Format, link: LinkType) -> Result<Self, Error> {
        let head = head(format, link);
        let put = (&to.file).write_all(&head);
        put.map_err(|source| failed(&to.path, "write", Some(0), source))?;
        let buffer = Vec::with_capacity(CHUNK);
        Ok(Self { to, format, buffer, offset: head.len() as u64, records: 0 })
    }

    /// Adds a frame of `wire_len` bytes, of which `data` was captured at `time`. pcap can represent
    /// seconds up to the year 2106; later times are written as its last second.
    ///
    /// # Errors
    /// When `data` is longer than [`MAX_PACKET`], which does no harm to the capture; or when the file cannot
    /// be written. The file then has its final name, with the frames up to that place, and nothing more can
    /// be written.
    pub fn write(&mut self, time: Nanos, wire_len: u32, data: &[u8]) -> Result<(), Error> {
        if data.len() > MAX_PACKET {
            let file = self.to.path.display().to_string();
            return Err(Error::TooLong { file, len: data.len() });
        }
        let len = data.len() as u32;
        let unit = if self.format == Format::PcapMicros { 1000 } else { 1 };
        let seconds = u32::try_from(time / 1_000_000_000).unwrap_or(u32::MAX);
        let fraction = (time % 1_000_000_000) as u32 / unit;
        if self.format != Format::Pcapng {
            return self.put(&[words([seconds, fraction, len, wire_len]).as_flattened(), data]);
        }
        let pad = data.len().next_multiple_of(4) - data.len();
        let total = 32 + len + pad as u32;
        let head = words([6, total, 0, (time >> 32) as u32, time as u32, len, wire_len]);
        self.put(&[head.as_flattened(), data, &[0; 3][..pad], &total.to_le_bytes()])
    }

    /// Writes buffered data and gives the file its final name, replacing any file of that name.
    ///
    /// # Errors
    /// When the file cannot be written or renamed.
    pub fn finish(mut self) -> Result<(), Error> {
        self.flush()?;
        if let Err(source) = self.to.file.sync_data() {
            return Err(self.keep(failed(&self.to.path, "write", Some(self.offset), source)));
        }
        self.to.name(self.records)
    }

    /// Gives the file its final name after `error`, with the records in it.
    fn keep(&mut self, error: Error) -> Error {
        if self.records == 0 {
            return error;
        }
        match self.to.name(self.records) {
            Ok(()) => Error::Kept { source: Box::new(error), records: self.records },
            Err(unnamed) => Error::Both(Box::new(error), Box::new(unnamed)),
        }
    }

    /// Adds a record.
    fn put(&mut self, parts: &[&[u8]]) -> Result<(), Error> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if !self.buffer.is_empty() && self.buffer.len() + len > CHUNK {
            self.flush()?;
        }
        parts.iter().for_each(|part| self.buffer.extend_from_slice(part));
        Ok(())
    }

    /// Writes the buffered records. If that fails, the file ends behind the last whole record in it.
    fn flush(&mut self) -> Result<(), Error> {
        let (done, fault) = write_until_fault(&mut &self.to.file, &self.buffer);
        let (whole, records) = whole_records(&self.buffer[..done], self.format);
        self.buffer.clear();
        self.offset += whole as u64;
        self.records += records;
        let Some(source) = fault else { return Ok(()) };
        let error =
            failed(&self.to.path, "write", Some(self.offset + (done - whole) as u64), source);
        // If this fails, too, the file ends inside a record, which readers report as cut.
        drop(self.to.file.set_len(self.offset));
        Err(self.keep(error))
    }
}

/// Writes `bytes`; returns how many were written, and the error if that are not all.
fn write_until_fault(to: &mut impl Write, bytes: &[u8]) -> (usize, Option<std::io::Error>) {
    let mut done = 0;
    while done < bytes.len() {
        match to.write(&bytes[done..]) {
            Ok(0) => return (done, Some(ErrorKind::WriteZero.into())),
            Ok(more) => done += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return (done, Some(error)),
        }
    }
    (done, None)
}

/// The bytes and the number of the whole records at the start of `bytes`.
fn whole_records(bytes: &[u8], format: Format) -> (usize, u64) {
    let (mut at, mut records) = (0, 0);
    loop {
        // The length of a pcap record is its third word, without its header; that of a block its second.
        let (word, more) = if format == Format::Pcapng { (4, 0) } else { (8, 16) };
        let len = bytes.get(at + word..at + word + 4).and_then(|len| len.try_into().ok());
        let Some(len) = len.map(u32::from_le_bytes) else { return (at, records) };
        let next = at + len as usize + more;
        if next > bytes.len() {
            return (at, records);
        }
        (at, records) = (next, records + 1);
    }
}

fn failed(path: &Path, doing: &'static str, offset: Option<u64>, source: std::io::Error) -> Error {
    Error::Io { file: path.display().to_string(), doing, offset, source }
}

/// Creates a temporary file in the directory of `path`, so that it can be renamed.
fn create_part(path: &Path) -> std::io::Result<(PathBuf, File)> {
    let mut tries = 0;
    loop {
        let mut name = OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(format!(".{}-{tries}.part", std::process::id()));
        let part = path.with_file_name(name);
        match OpenOptions::new().write(true).create_new(true).open(&part) {
            Ok(file) => return Ok((part, file)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists && tries < 99 => {
                tries += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

/// The header of a file, up to the first packet.
fn head(format: Format, link: LinkType) -> Vec<u8> {
    let link = linktype::number(link).into();
    let snap = MAX_PACKET as u32;
    match format {
        Format::PcapMicros => words([0xa1b2_c3d4, 0x0004_0002, 0, 0, snap, link]).concat(),
        Format::PcapNanos => words([0xa1b2_3c4d, 0x0004_0002, 0, 0, snap, link]).concat(),
        Format::Pcapng => {
            // Section header: little-endian, version 1.0, unspecified length (-1).
            let mut head =
                words([0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28]).concat();
            // Interface: option if_tsresol (9) with 1 byte, 10^-9; end of options.
            head.extend(words([1, 32, link, snap, 1 << 16 | 9, 9, 0, 32]).as_flattened());
            head
        }
    }
}

/// Little-endian words, to be flattened for writing.
fn words<const N: usize>(words: [u32; N]) -> [[u8; 4]; N] {
    words.map(u32::to_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowyard_testkit::Faulty;

    #[test]
    fn what_was_written_before_a_fault_is_known_to_the_byte() {
        let bytes: Vec<u8> = (0..100).collect();
        for most in [1, 7, 1000] {
            for room in 0..=bytes.len() + 1 {
                let mut file = Faulty::new(most, room);
                let (done, fault) = write_until_fault(&mut file, &bytes);
                assert_eq!((done, &file.taken[..]), (room.min(100), &bytes[..done]));
                let full = fault.map(|error| error.kind());
                assert_eq!(full, (room < 100).then_some(ErrorKind::StorageFull));
            }
        }
    }

    #[test]
    fn whole_records_are_found_in_every_beginning() {
        let folder = tempfile::tempdir().unwrap();
        for format in [Format::PcapMicros, Format::PcapNanos, Format::Pcapng] {
            let path = folder.path().join("out.pcap");
            let mut writer = Writer::create(path, format, LinkType::Ethernet).unwrap();
            let mut ends = vec![0];
            for len in [60, 0, 61, 1500] {
                writer.write(1, len, &vec![7; len as usize]).unwrap();
                ends.push(writer.buffer.len());
            }
            for cut in 0..=writer.buffer.len() {
                let records = ends.iter().filter(|&&end| end <= cut).count() - 1;
                let found = whole_records(&writer.buffer[..cut], format);
                assert_eq!(found, (ends[records], records as u64), "{format:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn a_capture_that_cannot_get_its_name_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.pcap");
        let mut writer = Writer::create(&path, Format::PcapNanos, LinkType::Ethernet).unwrap();
        writer.write(1, 60, &[7; 60]).unwrap();
        fs::create_dir(&path).unwrap();
        let part = writer.to.part.clone();
        let said = writer.finish().unwrap_err().to_string();
        let told = format!("its 1 frames are in {}, which you can rename", part.display());
        assert!(said.contains("cannot be renamed: ") && said.ends_with(&told), "{said}");
        assert_eq!(fs::metadata(part).unwrap().len(), 24 + 16 + 60);
    }
}

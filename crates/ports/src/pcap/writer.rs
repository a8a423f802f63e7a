//! Writing captures: little-endian pcap or pcapng, under a temporary name until finished.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use flowyard_frame::Nanos;
use flowyard_wire::LinkType;

use super::MAX_PACKET;
use crate::{Error, linktype};

/// A capture format to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Format {
    /// pcap with microseconds: every tool reads it.
    PcapMicros,
    /// pcap with nanoseconds.
    #[default]
    PcapNanos,
    /// pcapng with one interface and nanoseconds.
    Pcapng,
}

/// Writes one capture. The file appears under its own name only when [`Writer::finish`] has
/// succeeded; before that, and when the writer is dropped, nothing of that name is touched.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    part: PathBuf,
    out: BufWriter<File>,
    format: Format,
    offset: u64,
    finished: bool,
}

impl Writer {
    /// Starts the capture `path` of frames that begin as `link` says.
    ///
    /// # Errors
    /// When no file can be created beside `path`, or `path` is a device, a pipe or a directory: the
    /// finished capture would take its place.
    pub fn create(path: impl AsRef<Path>, format: Format, link: LinkType) -> Result<Self, Error> {
        let path = path.as_ref().to_owned();
        if fs::metadata(&path).is_ok_and(|there| !there.is_file()) {
            let source = std::io::Error::other("what is there is no file, and would be replaced");
            return Err(failed(&path, "create", 0, source));
        }
        let (part, file) =
            create_part(&path).map_err(|source| failed(&path, "create", 0, source))?;
        let out = BufWriter::with_capacity(1 << 18, file);
        let mut writer = Self { path, part, out, format, offset: 0, finished: false };
        writer.put(&[&head(format, link)])?;
        Ok(writer)
    }

    /// Adds a frame: `data` was captured of `wire_len` bytes, at `time`. pcap holds seconds up to
    /// the year 2106; later times are written as its last second.
    ///
    /// # Errors
    /// When `data` is longer than [`MAX_PACKET`], or the disk refuses.
    pub fn write(&mut self, time: Nanos, wire_len: u32, data: &[u8]) -> Result<(), Error> {
        if data.len() > MAX_PACKET {
            let file = self.path.display().to_string();
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

    /// Writes what is buffered and gives the file its name, in place of any file of that name.
    ///
    /// # Errors
    /// When the disk refuses; then no file of that name is touched.
    pub fn finish(mut self) -> Result<(), Error> {
        let done = self.out.flush().and_then(|()| self.out.get_ref().sync_data());
        done.map_err(|source| failed(&self.path, "write", self.offset, source))?;
        let named = fs::rename(&self.part, &self.path);
        named
            .map_err(|source| failed(&self.path, "name the finished file", self.offset, source))?;
        self.finished = true;
        Ok(())
    }

    fn put(&mut self, parts: &[&[u8]]) -> Result<(), Error> {
        for part in parts {
            let put = self.out.write_all(part);
            put.map_err(|source| failed(&self.path, "write", self.offset, source))?;
            self.offset += part.len() as u64;
        }
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.finished {
            // Nobody can be told here; a part file left behind is marked as one by its name.
            drop(fs::remove_file(&self.part));
        }
    }
}

fn failed(path: &Path, doing: &'static str, offset: u64, source: std::io::Error) -> Error {
    Error::Io { file: path.display().to_string(), doing, offset, source }
}

/// A new file beside `path`, so that renaming it stays within one file system.
fn create_part(path: &Path) -> std::io::Result<(PathBuf, File)> {
    let mut tries = 0;
    loop {
        let mut name = OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(format!(".{}-{tries}.part", std::process::id()));
        let part = path.with_file_name(name);
        match OpenOptions::new().write(true).create_new(true).open(&part) {
            Ok(file) => return Ok((part, file)),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && tries < 99 => {
                tries += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

/// What stands before the first packet.
fn head(format: Format, link: LinkType) -> Vec<u8> {
    let link = linktype::number(link).into();
    let snap = MAX_PACKET as u32;
    match format {
        Format::PcapMicros => words([0xa1b2_c3d4, 0x0004_0002, 0, 0, snap, link]).concat(),
        Format::PcapNanos => words([0xa1b2_3c4d, 0x0004_0002, 0, 0, snap, link]).concat(),
        Format::Pcapng => {
            // Section header: little-endian, version 1.0, length not said (-1).
            let mut head =
                words([0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28]).concat();
            // Interface: if_tsresol (9), 1 byte, 10^-9; end of options.
            head.extend(words([1, 32, link, snap, 1 << 16 | 9, 9, 0, 32]).as_flattened());
            head
        }
    }
}

/// Little-endian words; flatten them to write them.
fn words<const N: usize>(words: [u32; N]) -> [[u8; 4]; N] {
    words.map(u32::to_le_bytes)
}

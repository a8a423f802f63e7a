//! The capture writer: little-endian pcap or pcapng, under a temporary name until finished.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{BufWriter, Write},
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

/// Writes one capture. The file gets its name only when [`Writer::finish`] succeeds; before that,
/// and when the writer is dropped, an existing file of that name is not changed.
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
    /// Creates the capture `path` for frames with the link header `link`.
    ///
    /// # Errors
    /// When no file can be created in the same directory, or `path` is a device, a pipe or a
    /// directory, which the finished capture would replace.
    pub fn create(path: impl AsRef<Path>, format: Format, link: LinkType) -> Result<Self, Error> {
        let path = path.as_ref().to_owned();
        if fs::metadata(&path).is_ok_and(|there| !there.is_file()) {
            let source = std::io::Error::other("it exists and is not a regular file");
            return Err(failed(&path, "create", 0, source));
        }
        let (part, file) =
            create_part(&path).map_err(|source| failed(&path, "create", 0, source))?;
        let out = BufWriter::with_capacity(1 << 18, file);
        let mut writer = Self { path, part, out, format, offset: 0, finished: false };
        writer.put(&[&head(format, link)])?;
        Ok(writer)
    }

    /// Adds a frame of `wire_len` bytes, of which `data` was captured at `time`. pcap can represent
    /// seconds up to the year 2106; later times are written as its last second.
    ///
    /// # Errors
    /// When `data` is longer than [`MAX_PACKET`], or the file cannot be written.
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

    /// Writes buffered data and renames the file to its final name, replacing any file of that
    /// name.
    ///
    /// # Errors
    /// When the file cannot be written; an existing file of that name is then not changed.
    pub fn finish(mut self) -> Result<(), Error> {
        let done = self.out.flush().and_then(|()| self.out.get_ref().sync_data());
        done.map_err(|source| failed(&self.path, "write", self.offset, source))?;
        let named = fs::rename(&self.part, &self.path);
        named.map_err(|source| {
            failed(&self.path, "rename the finished file", self.offset, source)
        })?;
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
            // An error cannot be reported here; the name of a leftover file ends in ".part".
            drop(fs::remove_file(&self.part));
        }
    }
}

fn failed(path: &Path, doing: &'static str, offset: u64, source: std::io::Error) -> Error {
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
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && tries < 99 => {
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

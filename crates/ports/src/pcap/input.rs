//! The buffer of a reader, filled from plain or gzip-compressed bytes.
//!
//! ```text
//!  buf  [ used | shown to the decoder | free ... ]   1 MiB, never grows
//!        0      start                  end
//! ```
//!
//! Invariants: start <= end <= 1 MiB; bytes are moved to the front only before a read, at most one
//! partial packet or block at a time, so reading byte by byte takes linear time.

use std::{
    fmt,
    io::{self, ErrorKind, Read},
};

use super::gunzip::{Failed, Gunzip};
use crate::error::{Error, Fault};

/// The size of the buffer, and therefore of the longest block that can be decoded.
pub(super) const CAPACITY: usize = 1 << 20;

/// Maximum number of bytes per read; they stay in the second-level cache until they are decoded.
const CHUNK: usize = 1 << 18;

/// The result of [`Input::fill`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Filled {
    /// At least one byte was added.
    Some,
    /// The end of the file.
    End,
    /// The compressed data is damaged.
    Damaged(Fault),
}

pub(super) struct Input {
    name: String,
    from: From,
    buf: Vec<u8>,
    start: usize,
    end: usize,
    offset: u64,
}

enum From {
    Plain(Counted<Box<dyn Read + Send>>),
    Gzip(Box<Gunzip<Counted<Box<dyn Read + Send>>>>),
    Nothing,
}

/// A reader that counts its bytes.
struct Counted<R> {
    inner: R,
    count: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.count += n as u64;
        Ok(n)
    }
}

impl Input {
    pub(super) fn new(name: &str, bytes: Box<dyn Read + Send>) -> Self {
        let from = From::Plain(Counted { inner: bytes, count: 0 });
        Self { name: name.to_owned(), from, buf: vec![0; CAPACITY], start: 0, end: 0, offset: 0 }
    }

    /// The bytes that are not used yet.
    pub(super) fn shown(&self) -> &[u8] {
        &self.buf[self.start..self.end]
    }

    /// The position of the shown bytes in [`Input::buffer`].
    pub(super) const fn base(&self) -> usize {
        self.start
    }

    /// The position of the shown bytes in the decompressed capture.
    pub(super) const fn offset(&self) -> u64 {
        self.offset
    }

    /// The whole buffer. Bytes that were shown keep their position until the next fill.
    pub(super) fn buffer(&self) -> &[u8] {
        &self.buf
    }

    /// Marks `n` bytes as used.
    pub(super) const fn take(&mut self, n: usize) {
        self.start += n;
        self.offset += n as u64;
    }

    /// Number of bytes read from the underlying file.
    pub(super) fn consumed(&self) -> u64 {
        match &self.from {
            From::Plain(counted) => counted.count,
            From::Gzip(gzip) => gzip.get_ref().count,
            From::Nothing => 0,
        }
    }

    /// For a gzip file, how many of its bytes were decompressed.
    pub(super) fn unpacked(&self) -> Option<u64> {
        match &self.from {
            From::Gzip(gzip) => Some(gzip.get_ref().count - gzip.held()),
            From::Plain(_) | From::Nothing => None,
        }
    }

    /// Reads once to extend the shown bytes; makes space for at least `need` of them.
    pub(super) fn fill(&mut self, need: usize) -> Result<Filled, Error> {
        debug_assert!(self.end - self.start < need && need <= CAPACITY);
        if self.start > 0 {
            self.buf.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let until = CAPACITY.min(self.end + CHUNK);
        let room = &mut self.buf[self.end..until];
        let got = match &mut self.from {
            From::Plain(counted) => loop {
                match counted.read(room) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    got => break got.map_err(Failed::Io),
                }
            },
            From::Gzip(gzip) => gzip.read(room),
            From::Nothing => Ok(0),
        };
        match got {
            Ok(0) => Ok(Filled::End),
            Ok(n) => {
                self.end += n;
                Ok(Filled::Some)
            }
            Err(Failed::Damaged(fault)) => Ok(Filled::Damaged(fault)),
            Err(Failed::Io(source)) => {
                let (file, offset) = (self.name.clone(), Some(self.consumed()));
                Err(Error::Io { file, doing: "read", offset, source })
            }
        }
    }

    /// Reads until `want` bytes are shown or the file ends.
    pub(super) fn peek(&mut self, want: usize) -> Result<Filled, Error> {
        while self.end - self.start < want {
            match self.fill(want)? {
                Filled::Some => {}
                ended => return Ok(ended),
            }
        }
        Ok(Filled::Some)
    }

    /// Treats the shown bytes and all that follow as gzip members.
    pub(super) fn gunzip(&mut self) {
        let head = self.shown().to_vec();
        (self.start, self.end) = (0, 0);
        self.from = match std::mem::replace(&mut self.from, From::Nothing) {
            From::Plain(rest) => From::Gzip(Box::new(Gunzip::new(&head, rest))),
            other => other,
        };
    }
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, start, end, offset, .. } = self;
        write!(f, "Input({name}, {start}..{end}, offset {offset})")
    }
}

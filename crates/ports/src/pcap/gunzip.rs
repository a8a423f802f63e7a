//! gzip decompression (RFC 1952) of one member after another, with every byte before damage.
//!
//! The readers of `flate2` discard the bytes decompressed by a call if the same call finds corrupt
//! data, which can be a whole chunk of good packets. Here these bytes are returned before the
//! fault.

use std::io::{self, ErrorKind, Read};

use flate2::{Decompress, FlushDecompress, Status};

use crate::error::Fault;

/// Maximum number of compressed bytes per read.
const CHUNK: usize = 1 << 16;

/// Why reading failed.
#[derive(Debug)]
pub(super) enum Failed {
    Io(io::Error),
    Damaged(Fault),
}

/// Decompresses the bytes of `from`.
pub(super) struct Gunzip<R> {
    from: R,
    packed: Vec<u8>,
    start: usize,
    end: usize,
    /// The current member; `None` between members.
    member: Option<Decompress>,
    fault: Option<Fault>,
}

impl<R: Read> Gunzip<R> {
    /// Reads the gzip file that begins with `head` and continues in `from`.
    pub(super) fn new(head: &[u8], from: R) -> Self {
        let mut packed = vec![0; CHUNK.max(head.len())];
        packed[..head.len()].copy_from_slice(head);
        Self { from, packed, start: 0, end: head.len(), member: None, fault: None }
    }

    pub(super) const fn get_ref(&self) -> &R {
        &self.from
    }

    /// The number of bytes that were read and not decompressed.
    pub(super) const fn held(&self) -> u64 {
        (self.end - self.start) as u64
    }

    /// Decompresses at least one byte into `out`, which is not empty; 0 means the end.
    pub(super) fn read(&mut self, out: &mut [u8]) -> Result<usize, Failed> {
        loop {
            if let Some(fault) = &self.fault {
                return Err(Failed::Damaged(fault.clone()));
            }
            let (took, gave) = self.inflate(out);
            if gave > 0 {
                return Ok(gave);
            }
            if took == 0 && !self.next_member() && !self.refill().map_err(Failed::Io)? {
                if self.member.is_none() {
                    return Ok(0);
                }
                self.fault = Some(Fault::GzipCut);
            }
        }
    }

    /// Continues the current member; returns the numbers of bytes consumed and produced. A fault is
    /// stored until these bytes were returned.
    fn inflate(&mut self, out: &mut [u8]) -> (usize, usize) {
        let Some(member) = &mut self.member else { return (0, 0) };
        let before = (member.total_in(), member.total_out());
        let packed = &self.packed[self.start..self.end];
        let done = member.decompress(packed, out, FlushDecompress::None);
        let took = (member.total_in() - before.0) as usize;
        let gave = (member.total_out() - before.1) as usize;
        self.start += took;
        match done {
            Ok(Status::StreamEnd) => self.member = None,
            Ok(_) if took == 0 && gave == 0 && self.start < self.end => {
                self.fault = Some(Fault::Gzip("decompression makes no progress".to_owned()));
            }
            Ok(_) => {}
            Err(error) => {
                // Header and checksum faults keep the decoder's message. For corrupt data the
                // decoder's message depends on the chunk size, so a fixed one is used.
                let why = error.message().filter(|why| {
                    ["incorrect", "unknown", "header"].iter().any(|kind| why.starts_with(kind))
                });
                let why = why.unwrap_or("invalid compressed data");
                self.fault = Some(Fault::Gzip(why.to_owned()));
            }
        }
        (took, gave)
    }

    /// Starts the next member, if there is one. Zeros between members are padding.
    fn next_member(&mut self) -> bool {
        if self.member.is_some() || self.fault.is_some() {
            return self.fault.is_some(); // the caller reports it
        }
        let packed = &self.packed[self.start..self.end];
        self.start += packed.iter().take_while(|&&byte| byte == 0).count();
        if self.start == self.end {
            return false;
        }
        self.member = Some(Decompress::new_gzip(15));
        true
    }

    /// Reads more compressed bytes after all previous ones were consumed; returns whether there
    /// were any.
    fn refill(&mut self) -> io::Result<bool> {
        (self.start, self.end) = (0, 0);
        loop {
            match self.from.read(&mut self.packed) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                got => {
                    self.end = got?;
                    return Ok(self.end > 0);
                }
            }
        }
    }
}

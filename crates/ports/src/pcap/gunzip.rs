//! gzip (RFC 1952), one member after another, with every byte that comes before damage.
//!
//! `flate2`'s own readers drop what a call has decompressed when the same call meets corrupt data:
//! up to a whole chunk of good packets. Here they are given first, and the fault after them.

use std::io::{self, ErrorKind, Read};

use flate2::{Decompress, FlushDecompress, Status};

use crate::Fault;

/// The most compressed bytes asked for at once.
const CHUNK: usize = 1 << 16;

/// Why no more bytes come.
#[derive(Debug)]
pub(super) enum Failed {
    Io(io::Error),
    Damaged(Fault),
}

/// The decompressed bytes of `from`.
pub(super) struct Gunzip<R> {
    from: R,
    packed: Vec<u8>,
    start: usize,
    end: usize,
    /// The member under way; none between members.
    member: Option<Decompress>,
    fault: Option<Fault>,
}

impl<R: Read> Gunzip<R> {
    /// The bytes of the gzip file that begins with `head` and goes on in `from`.
    pub(super) fn new(head: &[u8], from: R) -> Self {
        let mut packed = vec![0; CHUNK.max(head.len())];
        packed[..head.len()].copy_from_slice(head);
        Self { from, packed, start: 0, end: head.len(), member: None, fault: None }
    }

    pub(super) const fn get_ref(&self) -> &R {
        &self.from
    }

    /// Decompresses into `out`, which is not empty, until there is something in it; 0 is the end.
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

    /// Goes on with the member under way; gives bytes taken and bytes given. Keeps a fault for
    /// after the bytes given.
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
                self.fault = Some(Fault::Gzip("it makes no progress".to_owned()));
            }
            Ok(_) => {}
            Err(error) => {
                // Header and checksum faults have their own words. For bad data the decoder's word
                // depends on how much it saw at once, so it gets one of ours.
                let why = error.message().filter(|why| {
                    ["incorrect", "unknown", "header"].iter().any(|kind| why.starts_with(kind))
                });
                let why = why.unwrap_or("invalid compressed data");
                self.fault = Some(Fault::Gzip(why.to_owned()));
            }
        }
        (took, gave)
    }

    /// Starts the next member, if there are bytes of one. Zeros between members are padding.
    fn next_member(&mut self) -> bool {
        if self.member.is_some() || self.fault.is_some() {
            return self.fault.is_some(); // for the caller to find
        }
        let packed = &self.packed[self.start..self.end];
        self.start += packed.iter().take_while(|&&byte| byte == 0).count();
        if self.start == self.end {
            return false;
        }
        self.member = Some(Decompress::new_gzip(15));
        true
    }

    /// Reads more compressed bytes; says whether there were any. All before have been taken.
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

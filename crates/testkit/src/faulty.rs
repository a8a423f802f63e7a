//! A writer with faults: it takes few bytes at a time, each second call is interrupted, and it is full at
//! some byte.
//!
//! ```text
//!  bytes ──write──> interrupted │ 3 bytes │ interrupted │ 3 bytes │ ... │ no space is left
//! ```
//!
//! Thread-safety: used by one thread.

use std::io::{self, ErrorKind, Write};

/// Takes bytes into memory, with faults.
#[derive(Debug)]
pub struct Faulty {
    /// What was written.
    pub taken: Vec<u8>,
    most: usize,
    room: usize,
    calls: u64,
}

impl Faulty {
    /// Takes at most `most` bytes in a call, and `room` bytes in all.
    #[must_use]
    pub const fn new(most: usize, room: usize) -> Self {
        Self { taken: Vec::new(), most, room, calls: 0 }
    }
}

impl Write for Faulty {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.calls += 1;
        if self.calls % 2 == 1 {
            return Err(ErrorKind::Interrupted.into());
        }
        let count = bytes.len().min(self.most).min(self.room - self.taken.len());
        if count == 0 && !bytes.is_empty() {
            return Err(ErrorKind::StorageFull.into());
        }
        self.taken.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_interrupted_short_and_full() {
        let mut faulty = Faulty::new(3, 4);
        assert_eq!(faulty.write(b"abcde").unwrap_err().kind(), ErrorKind::Interrupted);
        assert_eq!(faulty.write(b"abcde").unwrap(), 3);
        assert_eq!(faulty.write_all(b"de").unwrap_err().kind(), ErrorKind::StorageFull);
        assert_eq!(faulty.taken, b"abcd");
    }
}

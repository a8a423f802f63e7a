//! The statistics registers, which have few bits and are cleared when read.
//!
//! FDIRFSTAT, which counts failures, has 8 bits per counter: it must be read before 256 failures,
//! or some are lost. [`Accumulator`] sums the readings; Linux has no such reader.

use serde::Serialize;

/// One reading of the registers. Each counter covers the time since the last reading, and is
/// reduced to the width of the register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Registers {
    /// FDIRFREE.FREE, 16 bits: filters that are free now; not cleared by reading.
    pub free: u16,
    /// FDIRFREE.COLL, 15 bits: filters added although an equal one existed.
    pub coll: u16,
    /// FDIRLEN.MAXLEN, 6 bits, saturating: the longest bucket list since the last reading.
    pub max_len: u8,
    /// FDIRLEN.MAXHASH, 15 bits: the bucket of that list.
    pub max_hash: u16,
    /// FDIRUSTAT.ADD, 16 bits: filters added.
    pub add: u16,
    /// FDIRUSTAT.REMOVE, 16 bits: filters removed.
    pub remove: u16,
    /// FDIRFSTAT.FADD, 8 bits: adds that failed because the table was full.
    pub fadd: u8,
    /// FDIRFSTAT.FREMOVE, 8 bits: removals that failed because no such filter existed.
    pub fremove: u8,
    /// FDIRMATCH, 32 bits: frames that hit.
    pub matched: u32,
    /// FDIRMISS, 32 bits: frames that missed.
    pub missed: u32,
}

/// Counters of the model since the last reading, not yet reduced to the width of the registers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub coll: u64,
    pub max_len: u32,
    pub max_hash: u16,
    pub add: u64,
    pub remove: u64,
    pub fadd: u64,
    pub fremove: u64,
    pub matched: u64,
    pub missed: u64,
}

impl Counters {
    /// Returns the values of the registers, reduced to their widths, and clears the counters.
    pub(super) fn read(&mut self, free: u16) -> Registers {
        let counted = std::mem::take(self);
        Registers {
            free,
            coll: (counted.coll & 0x7fff) as u16,
            max_len: counted.max_len.min(0x3f) as u8,
            max_hash: counted.max_hash & 0x7fff,
            add: counted.add as u16,
            remove: counted.remove as u16,
            fadd: counted.fadd as u8,
            fremove: counted.fremove as u8,
            matched: counted.matched as u32,
            missed: counted.missed as u32,
        }
    }
}

/// Sums of readings. They are exact if every register is read before it wraps: in practice before
/// 256 failed adds, that is every millisecond at 100 000 failed adds per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Accumulator {
    /// Free filters at the last reading.
    pub free: u16,
    /// The longest bucket list in any reading.
    pub max_len: u8,
    /// The bucket of that list.
    pub max_hash: u16,
    /// Filters added although an equal one existed.
    pub coll: u64,
    /// Filters added.
    pub add: u64,
    /// Filters removed.
    pub remove: u64,
    /// Adds that failed because the table was full.
    pub fadd: u64,
    /// Removals that failed because no such filter existed.
    pub fremove: u64,
    /// Frames that hit.
    pub matched: u64,
    /// Frames that missed.
    pub missed: u64,
}

impl Accumulator {
    /// Adds one reading.
    pub fn add(&mut self, read: &Registers) {
        self.free = read.free;
        if read.max_len > self.max_len {
            (self.max_len, self.max_hash) = (read.max_len, read.max_hash);
        }
        self.coll += u64::from(read.coll);
        self.add += u64::from(read.add);
        self.remove += u64::from(read.remove);
        self.fadd += u64::from(read.fadd);
        self.fremove += u64::from(read.fremove);
        self.matched += u64::from(read.matched);
        self.missed += u64::from(read.missed);
    }
}

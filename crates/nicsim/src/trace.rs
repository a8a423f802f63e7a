//! Files of access traces: the requests that the banks performed, in order.
//!
//! ```text
//!   "FYNT0001"  firmware hash (u64)  records (u64)   record...
//!   record: cycles since the last (LEB128)  who (u8)  operation (u8)  address (u32)
//! ```
//!
//! Numbers are little-endian. `who` is the number of a core, or 16 plus that of an assist; the operation is
//! 0 for a load, 1 for a store, 2 for both. Values are not kept. The reader checks everything; its
//! errors name the offset.

use crate::engine::Access;
use crate::isa::Op;
use crate::memory::Request;

const MAGIC: &[u8; 8] = b"FYNT0001";

/// Why a trace file cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// The file is not a trace.
    #[error("not an access trace of flowyard: the file does not begin with FYNT0001")]
    Magic,
    /// The file ends too early.
    #[error("trace is cut short: record {record} of {records} at offset {at:#x} is not whole")]
    Short {
        /// The first record that is missing.
        record: u64,
        /// The number of records in the header.
        records: u64,
        /// The offset at which it should be.
        at: usize,
    },
    /// A record has an invalid value.
    #[error("trace record {record} at offset {at:#x}: {what}")]
    Record {
        /// The number of the record.
        record: u64,
        /// The offset of the record.
        at: usize,
        /// The reason.
        what: String,
    },
    /// The trace was made with another firmware.
    #[error("trace was made with another firmware (hash {found:#018x}, not {wanted:#018x})")]
    Firmware {
        /// The hash in the file.
        found: u64,
        /// The hash of the given firmware.
        wanted: u64,
    },
}

/// The FNV-1a hash of a firmware file, which detects a different file but gives no security.
pub fn hash(file: &[u8]) -> u64 {
    file.iter().fold(0xcbf2_9ce4_8422_2325, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The bytes of a trace file.
pub fn encode(accesses: &[Access], firmware: u64) -> Vec<u8> {
    let mut file = Vec::with_capacity(24 + 8 * accesses.len());
    file.extend_from_slice(MAGIC);
    file.extend_from_slice(&firmware.to_le_bytes());
    file.extend_from_slice(&(accesses.len() as u64).to_le_bytes());
    let mut last = 0;
    for access in accesses {
        let mut delta = access.cycle.saturating_sub(last);
        last = access.cycle;
        while delta >= 0x80 {
            file.push(delta as u8 | 0x80);
            delta >>= 7;
        }
        file.push(delta as u8);
        let kind = match access.request.op {
            Op::Lw | Op::Lb | Op::Lbu | Op::Lh | Op::Lhu | Op::Ll => 0,
            Op::Update | Op::Set | Op::Sc => 2,
            _ => 1,
        };
        file.extend_from_slice(&[access.who as u8, kind]);
        file.extend_from_slice(&access.request.addr.to_le_bytes());
    }
    file
}

/// The trace in `file`, which must have been made with the firmware of this hash.
///
/// # Errors
/// [`TraceError`] with the reason and the offset.
pub fn decode(file: &[u8], firmware: u64) -> Result<Vec<Access>, TraceError> {
    if file.get(..8) != Some(MAGIC) {
        return Err(TraceError::Magic);
    }
    let word = |at: usize| {
        let bytes = file.get(at..at + 8)?;
        Some(bytes.iter().rev().fold(0u64, |word, &byte| word << 8 | u64::from(byte)))
    };
    let short = |record, records, at| TraceError::Short { record, records, at };
    let found = word(8).ok_or(short(0, 0, 8))?;
    let records = word(16).ok_or(short(0, 0, 16))?;
    if found != firmware {
        return Err(TraceError::Firmware { found, wanted: firmware });
    }
    let mut accesses = Vec::new();
    let (mut at, mut cycle) = (24, 0u64);
    for record in 0..records {
        let begin = at;
        let mut delta = 0u64;
        let mut shift = 0;
        loop {
            let &byte = file.get(at).ok_or(short(record, records, begin))?;
            at += 1;
            delta |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
            if shift > 56 {
                let what = "the time has more than 63 bits".into();
                return Err(TraceError::Record { record, at: begin, what });
            }
        }
        cycle = cycle.saturating_add(delta);
        let Some(&[who, kind, a, b, c, d]) = file.get(at..at + 6) else {
            return Err(short(record, records, begin));
        };
        at += 6;
        let op = match kind {
            0 => Op::Lw,
            1 => Op::Sw,
            2 => Op::Set,
            _ => {
                let what = format!("operation {kind} is not 0, 1 or 2");
                return Err(TraceError::Record { record, at: begin, what });
            }
        };
        if who >= 20 {
            let what =
                format!("requester {who} is neither a core (0 to 15) nor an assist (16 to 19)");
            return Err(TraceError::Record { record, at: begin, what });
        }
        let addr = u32::from_le_bytes([a, b, c, d]);
        let request = Request { op, addr, value: 0 };
        accesses.push(Access { cycle, who: who.into(), request, result: 0 });
    }
    Ok(accesses)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace() -> Vec<Access> {
        (0..50u64)
            .map(|n| Access {
                cycle: n * n * 40,
                who: (n % 20) as usize,
                request: Request {
                    op: [Op::Lw, Op::Sw, Op::Set][n as usize % 3],
                    addr: 0x1000_0000 + 4 * n as u32,
                    value: 0,
                },
                result: 0,
            })
            .collect()
    }

    #[test]
    fn a_written_trace_is_read_back() {
        assert_eq!(decode(&encode(&trace(), 7), 7).unwrap(), trace());
    }

    #[test]
    fn every_cut_is_an_error_and_no_byte_panics() {
        let file = encode(&trace(), 7);
        for end in 0..file.len() {
            assert!(decode(&file[..end], 7).is_err(), "cut at {end}");
        }
        let cut = decode(&file[..file.len() - 1], 7).unwrap_err().to_string();
        assert!(cut.contains("record 49 of 50"), "{cut}");
        for at in 0..file.len() {
            let mut file = file.clone();
            file[at] ^= 0xff;
            let _ = decode(&file, 7);
        }
        assert!(decode(&file, 8).is_err());
    }
}

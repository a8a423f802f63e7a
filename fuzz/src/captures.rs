//! `captures`: any bytes as a capture file. The reader must not panic or loop, packets must be bounded,
//! and the result must not depend on the sizes of the pieces in which the bytes arrive.

use crate::{Limits, Line};
use std::io::{Cursor, Read};

use flowyard_ports::{
    Source,
    pcap::{MAX_PACKET, Reader},
};

/// The first bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The limits for these bytes.
///
/// - Each of the two readers has a buffer of 1 MiB and a table of records, and an error has a text. The rest
///   belongs to the capture itself, which is copied for each reader.
/// - A plain file that arrives byte by byte is looked at again for each byte of a header: about 210 blocks a byte.
/// - gzip packs at most 1032 bytes into one. With packets of 16 bytes (a header and no data), or with long
///   packets whose bytes this target sums, 4300 blocks a byte were seen.
#[must_use]
pub fn limits(bytes: &[u8]) -> Limits {
    let byte = if bytes.starts_with(&GZIP) { 10_000 } else { 400 };
    Limits { blocks: Line { input: 2_000, byte }, bytes: Line { input: 3_000_000, byte: 50 } }
}

/// Reads `bytes` as a capture, at once and in pieces. The last byte is the length of a piece,
/// so the bytes begin as a file does.
///
/// # Panics
/// When the reader panics, a packet is too long, or the two results differ.
pub fn captures(bytes: &[u8]) {
    let Some((&piece, bytes)) = bytes.split_last() else { return };
    // How much of a compressed file is decompressed before its damage is noticed depends on the pieces: a
    // reader that does not know the length does not report it.
    let len = (!bytes.starts_with(&GZIP)).then_some(bytes.len() as u64);
    let whole = read(Box::new(Cursor::new(bytes.to_vec())), len);
    let pieces = Pieces(Cursor::new(bytes.to_vec()), usize::from(piece).max(1));
    let pieces = read(Box::new(pieces), len);
    assert_eq!(whole, pieces);
}

/// The number of packets, their captured bytes, a checksum over all records, and how reading ended.
fn read(bytes: Box<dyn Read + Send>, len: Option<u64>) -> (u64, u64, u64, String) {
    let mut reader = match Reader::new("fuzz", bytes, len) {
        Ok(reader) => reader,
        Err(error) => return (0, 0, 0, error.to_string()),
    };
    let (mut packets, mut captured, mut sum) = (0, 0, 0_u64);
    loop {
        let burst = match reader.read() {
            Ok(burst) => burst,
            Err(error) => return (packets, captured, sum, error.to_string()),
        };
        if burst.is_empty() {
            break;
        }
        for (record, data) in burst.iter() {
            assert!(data.len() <= MAX_PACKET && data.len() == record.captured());
            packets += 1;
            captured += data.len() as u64;
            for part in [record.time, record.wire_len.into(), record.interface.into()] {
                sum = sum.rotate_left(7) ^ part;
            }
            sum = data.iter().fold(sum, |sum, &byte| sum.rotate_left(5) ^ u64::from(byte));
        }
    }
    let ended = reader.damage().map(ToString::to_string);
    if let Some(damage) = reader.damage() {
        let skipped: u64 = reader.skipped().iter().map(|skipped| skipped.packets).sum();
        assert_eq!(damage.packets, packets + skipped);
    }
    (packets, captured, sum, format!("{ended:?} {:?}", reader.skipped()))
}

/// A reader that returns a few bytes at a time.
struct Pieces(Cursor<Vec<u8>>, usize);

impl Read for Pieces {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let n = buf.len().min(self.1);
        self.0.read(&mut buf[..n])
    }
}

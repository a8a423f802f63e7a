//! `captures`: any bytes as a capture file. The reader must not panic or loop, packets must be bounded,
//! and the result must not depend on the sizes of the pieces in which the bytes arrive.

use std::io::{Cursor, Read};

use flowyard_ports::{
    Source,
    pcap::{MAX_PACKET, Reader},
};

/// Reads `bytes` as a capture, at once and in pieces. The first byte is the length of a piece.
///
/// # Panics
/// When the reader panics, a packet is too long, or the two results differ.
pub fn captures(bytes: &[u8]) {
    let Some((&piece, bytes)) = bytes.split_first() else { return };
    let whole = read(Box::new(Cursor::new(bytes.to_vec())), bytes.len());
    let pieces = Pieces(Cursor::new(bytes.to_vec()), usize::from(piece).max(1));
    let pieces = read(Box::new(pieces), bytes.len());
    assert_eq!(whole, pieces);
}

/// The number of packets, their captured bytes, a checksum over all records, and how reading ended.
fn read(bytes: Box<dyn Read + Send>, len: usize) -> (u64, u64, u64, String) {
    let mut reader = match Reader::new("fuzz", bytes, Some(len as u64)) {
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

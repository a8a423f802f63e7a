//! The shared captures, and a reader that is just good enough for them.
//!
//! It does not depend on the product's reader (`flowyard_ports::pcap`), so that tests of the parser do
//! not depend on it either. It returns the packets before the first damage of a file, and reads link
//! types that the product refuses.

use std::fs;
use std::io::Read;
use std::path::Path;

use flate2::read::MultiGzDecoder;

/// One captured packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet {
    /// The number of the link type in the LINKTYPE_* registry.
    pub link: u16,
    /// The length on the wire, in bytes.
    pub wire_len: u32,
    /// The captured bytes.
    pub bytes: Vec<u8>,
}

/// One row of `MANIFEST.tsv`, which lists the shared captures.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The file, relative to the folder of the manifest.
    pub file: String,
    /// Number of packets.
    pub packets: usize,
    /// Number of flows: bidirectional 5-tuples.
    pub flows: usize,
}

/// The manifest in the folder `captures`.
///
/// # Panics
/// When it cannot be read.
#[must_use]
pub fn manifest(captures: &Path) -> Vec<Entry> {
    let text = fs::read_to_string(captures.join("MANIFEST.tsv")).expect("the manifest is readable");
    let rows = text.lines().skip(1).map(|line| line.split('\t').collect::<Vec<_>>());
    rows.map(|row| Entry {
        file: row[0].to_owned(),
        packets: row[3].parse().unwrap_or(0),
        flows: row[5].parse().unwrap_or(0),
    })
    .collect()
}

/// The bytes of a file, decompressed if it is gzip.
///
/// # Panics
/// When the file cannot be read or decompressed.
#[must_use]
pub fn read_file(path: &Path) -> Vec<u8> {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return bytes;
    }
    let mut unpacked = Vec::new();
    let read = MultiGzDecoder::new(&bytes[..]).read_to_end(&mut unpacked);
    read.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    unpacked
}

/// The packets of a pcap or pcapng file; of a damaged file, those before the damage.
#[must_use]
pub fn packets(file: &[u8]) -> Vec<Packet> {
    let mut packets = Vec::new();
    match file.first_chunk() {
        Some(b"\x0a\x0d\x0d\x0a") => pcapng(file, &mut packets),
        _ => pcap(file, &mut packets),
    };
    packets
}

/// A 32-bit field in the byte order of the file.
fn word(bytes: &[u8], at: usize, big: bool) -> Option<u32> {
    let word = *bytes.get(at..)?.first_chunk()?;
    Some(if big { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) })
}

/// Returns `None` at the end of what can be read.
fn pcap(file: &[u8], packets: &mut Vec<Packet>) -> Option<()> {
    let big = match word(file, 0, true)? {
        0xa1b2_c3d4 | 0xa1b2_3c4d => true,
        0xd4c3_b2a1 | 0x4d3c_b2a1 => false,
        _ => return None,
    };
    let link = word(file, 20, big)? as u16;
    let mut at = 24;
    loop {
        let (len, wire_len) = (word(file, at + 8, big)?, word(file, at + 12, big)?);
        let bytes = file.get(at + 16..at + 16 + len as usize)?.to_vec();
        packets.push(Packet { link, wire_len, bytes });
        at += 16 + len as usize;
    }
}

/// Returns `None` at the end of what can be read.
fn pcapng(file: &[u8], packets: &mut Vec<Packet>) -> Option<()> {
    let (mut at, mut big) = (0, false);
    let mut interfaces: Vec<(u16, u32)> = Vec::new();
    loop {
        if file.get(at..at + 4)? == b"\x0a\x0d\x0d\x0a" {
            big = word(file, at + 8, true)? == 0x1a2b_3c4d;
            interfaces.clear();
        }
        let (kind, size) = (word(file, at, big)?, word(file, at + 4, big)? as usize);
        let block = file.get(at..at + size).filter(|b| b.len() >= 12)?;
        match kind {
            1 => {
                let link = word(block, 8, big)?;
                let link = if big { link >> 16 } else { link & 0xffff };
                interfaces.push((link as u16, word(block, 12, big)?));
            }
            2 | 6 => {
                let interface = word(block, 8, big)?;
                let old = if big { interface >> 16 } else { interface & 0xffff };
                let number = if kind == 2 { old } else { interface };
                let (link, _) = *interfaces.get(number as usize)?;
                let len = word(block, 20, big)? as usize;
                let bytes = block.get(28..28 + len)?.to_vec();
                packets.push(Packet { link, wire_len: word(block, 24, big)?, bytes });
            }
            3 => {
                let (link, snaplen) = *interfaces.first()?;
                let wire_len = word(block, 8, big)?;
                let cut = if snaplen == 0 { wire_len } else { wire_len.min(snaplen) };
                let bytes = block.get(12..12 + cut as usize)?.to_vec();
                packets.push(Packet { link, wire_len, bytes });
            }
            _ => {}
        }
        at += size;
    }
}

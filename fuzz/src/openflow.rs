//! `openflow`: any bytes as an OpenFlow message of each version.

use crate::{Limits, Line};
use flowyard_openflow::{Header, Version, decode, encode, view};

/// The message is decoded, encoded and decoded again, at most for four versions. Decoded actions and matches are five
/// to ten times as large as their bytes; short messages have a large first allocation.
pub const LIMITS: Limits =
    Limits { blocks: Line { input: 4000, byte: 150 }, bytes: Line { input: 5000, byte: 250 } };

/// Decodes, encodes and decodes again: first the bytes themselves, then with the version and the length
/// in the header corrected.
///
/// # Panics
/// When the codec panics, or when a decoded message is not encoded to bytes that decode to the same.
pub fn openflow(data: &[u8]) {
    one(data);
    let Ok(len) = u16::try_from(data.len()) else { return };
    if data.len() < 8 {
        return;
    }
    for version in Version::ALL {
        let mut wire = data.to_vec();
        wire[0] = version as u8;
        wire[2..4].copy_from_slice(&len.to_be_bytes());
        one(&wire);
    }
}

fn one(wire: &[u8]) {
    let _ = (view::FlowMod::new(wire), view::PacketIn::new(wire), view::PacketOut::new(wire));
    let Ok((header, message)) = decode(wire) else { return };
    assert_eq!(Header::read(wire), Some(header));
    let version = Version::of(header.version).unwrap_or(Version::V13);
    let mut again = Vec::new();
    let done = encode(&message, version, header.xid, &mut again);
    assert!(done.is_ok(), "{done:?}: {message:?}");
    assert_eq!(decode(&again).map(|(_, message)| message), Ok(message));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Generated messages: every byte changed, and cut after every byte.
    #[test]
    fn changed_seeds() {
        for (version, seed) in Version::ALL.into_iter().flat_map(|v| (0..60).map(move |s| (v, s))) {
            let Some(message) = flowyard_openflow::make(version, seed) else { continue };
            let mut wire = Vec::new();
            assert!(encode(&message, version, 1, &mut wire).is_ok());
            for at in 0..wire.len().min(200) {
                openflow(&wire[..at]);
                for value in [0, 1, 4, 8, 0x7f, 0x80, 0xff] {
                    let mut changed = wire.clone();
                    changed[at] = value;
                    openflow(&changed);
                }
            }
        }
    }
}

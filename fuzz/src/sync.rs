//! `sync`: any bytes as a message of another node that synchronizes connections.

use crate::{Limits, Line};
use flowyard_operate::sync::wire::{Packer, Part, read};

/// A message costs a part for each of its connections.
pub const LIMITS: Limits =
    Limits { blocks: Line { input: 4000, byte: 60 }, bytes: Line { input: 8000, byte: 40 } };

/// A message.
///
/// # Panics
/// When it has more parts than bytes, or its parts are not read back after they were packed again.
pub fn sync(data: &[u8]) {
    let Ok(parts) = read(data) else { return };
    assert!(parts.len() <= data.len());
    let mut packer = Packer::default();
    let mut reports = 0;
    for part in &parts {
        match *part {
            Part::Has { hash, backend, lifetime } => packer.has(hash, backend, lifetime),
            Part::Gone { hash } => packer.gone(hash),
            Part::Ended { hash, end, age_ms } => packer.ended(hash, end, age_ms),
            Part::Hello { .. } | Part::Verdict { .. } | Part::Complete => continue,
        }
        reports += 1;
    }
    let messages = packer.finish();
    let again: usize = messages.iter().map(|message| read(&message.bytes).unwrap().len()).sum();
    assert_eq!(again, reports);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read() {
        let mut packer = Packer::default();
        (0..50).for_each(|n| packer.has(n, n % 3 + 1, 7));
        packer.gone(9);
        (0..40).for_each(|n| packer.ended(n, 5, 6));
        for message in packer.finish() {
            sync(&message.bytes);
            for at in 0..message.bytes.len() {
                let mut bytes = message.bytes.to_vec();
                bytes[at] ^= 255;
                sync(&bytes);
                sync(&bytes[..at]);
            }
        }
    }
}

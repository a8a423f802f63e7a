//! `channel`: any bytes as what a controller sends to the agent of the switch, in pieces.

use crate::{Limits, Line};
use flowyard_openflow::agent::{self, Agent};
use flowyard_openflow::session::{Heard, Session};
use flowyard_openflow::{Header, Message, Version, encode};

const ROOM: agent::Limits = agent::Limits { tables: 3, flows: 50, groups: 8, meters: 8 };

/// A session and an agent with three tables take 35 kB, and a request of 16 bytes for the features of the tables is
/// answered with 10 kB, twice here: 1800 blocks and 3800 allocated bytes for each byte of such requests. All other
/// messages cost less.
pub const LIMITS: Limits = Limits {
    blocks: Line { input: 20_000, byte: 6000 },
    bytes: Line { input: 100_000, byte: 10_000 },
};

/// The first byte chooses the version and the size of pieces; the rest follows a hello message.
///
/// # Panics
/// When the pieces change the result, when an answer is not a valid message, or when a reply precedes
/// the change that it confirms.
pub fn channel(data: &[u8]) {
    let Some((first, data)) = data.split_first() else { return };
    let version = Version::ALL[usize::from(first % 3)];
    let mut bytes = Session::new(&[version], 0, 0).hello();
    bytes.extend_from_slice(data);
    let whole = run(&bytes, bytes.len());
    assert_eq!(whole, run(&bytes, usize::from(first / 3) + 1));
}

fn run(bytes: &[u8], size: usize) -> (Vec<u8>, bool) {
    let mut session = Session::new(&Version::ALL, 0, 0);
    let mut agent = Agent::new(1, ROOM, 2);
    let (mut heard, mut reply, mut out) = (Vec::new(), Vec::new(), Vec::new());
    let mut ended = false;
    for piece in bytes.chunks(size) {
        ended = session.feed(piece, 0, &mut heard, &mut reply).is_err();
        if ended {
            break;
        }
    }
    let mut last = 0;
    for one in heard {
        match one {
            Heard::Up(version) => agent.connect(1, version),
            Heard::Message { xid, message } => {
                agent.handle(1, xid, &message, u64::from(xid), &mut out);
            }
        }
        let changes = agent.drain();
        assert!(changes.iter().all(|(number, _)| {
            last += 1;
            *number == last
        }));
    }
    agent.expire(u64::MAX, &mut out);
    let version = session.version().unwrap_or_default();
    for one in &out {
        assert!(one.after <= agent.changes());
        let wire = &mut Vec::new();
        if encode(&one.message, version, one.xid, wire).is_ok() {
            assert!(matches!(Header::read(wire), Some(header) if header.version == version as u8));
        } else {
            // A version may have no encoding for a flow that another version has made; only that.
            assert!(!matches!(one.message, Message::Error(_) | Message::BarrierReply));
        }
    }
    (reply, ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sequences of generated messages, changed and cut.
    #[test]
    fn changed_seeds() {
        for (at, version) in (0..).zip(Version::ALL) {
            for seed in 0..300_u64 {
                let mut data = vec![at + 3 * (seed % 40) as u8];
                for seed in seed * 5..seed * 5 + 5 {
                    let Some(message) = flowyard_openflow::make(version, seed) else { continue };
                    assert!(encode(&message, version, seed as u32, &mut data).is_ok());
                }
                channel(&data);
                let middle = (seed as usize * 7) % data.len().max(1);
                channel(&data[..middle]);
                if middle > 0 {
                    data[middle] ^= 1 << (seed % 8);
                    channel(&data);
                }
            }
        }
    }
}

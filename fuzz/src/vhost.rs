//! `vhost`: a guest that writes anything into its memory while the rings in it are read and filled.

use crate::{Limits, Line};
use flowyard_vhost::guest::{Agreed, Device, Ram};
use flowyard_vhost::{Got, Receiver, Sender, Sent};

/// A step of the receiver reads at most 512 descriptors and those of one more frame, a step of the sender
/// those of 4 frames with 256 each. A step of 11 bytes may open the sender again, which allocates the places of 256
/// descriptors twice, about 9 KiB; otherwise nothing is allocated.
pub const LIMITS: Limits = Limits {
    blocks: Line { input: 60_000, byte: 12_000 },
    bytes: Line { input: 40_000, byte: 900 },
};

/// Bytes of a step: what happens, where, and a value.
const STEP: usize = 11;
/// The guest's memory: two regions of 32 KiB.
const RAM: usize = 65_536;

thread_local! {
    static GUEST: (Ram, Device) = {
        let ram = Ram::new(RAM, 2);
        let device = Device::new(&ram);
        (ram, device)
    };
}

/// The first byte chooses the features and the layout, the second one the length of the rings, and six more
/// where their parts are. Then steps follow.
///
/// # Panics
/// When more frames come out of a ring than it has entries, or are written into it.
pub fn vhost(data: &[u8]) {
    let Some((head, steps)) = data.split_first_chunk::<8>() else { return };
    GUEST.with(|(ram, device)| {
        ram.write(0, &[0; RAM]);
        let bit = |number: u8| head[0] >> number & 1 != 0;
        let agreed = Agreed {
            mergeable: bit(0),
            modern: bit(1),
            indirect: bit(2),
            event_index: bit(3),
            packed: bit(5),
        };
        // Also lengths that are not possible.
        let size = if bit(4) { u32::from(head[1]) } else { 1 << (head[1] % 10) };
        let place = |at: usize| {
            ram.user(16 * usize::from(u16::from_le_bytes([head[at], head[at + 1]]) % 4096))
        };
        let parts = [place(2), place(4), place(6)];
        let mut receiver = device.receiver(size, parts, agreed).ok();
        // The same ring in the other direction: both see what either writes.
        let mut sender = device.sender(size, parts, agreed).ok();
        for step in steps.chunks_exact(STEP) {
            let at = usize::from(u16::from_le_bytes([step[1], step[2]]));
            match step[0] % 8 {
                0 => receiver = receiver.and_then(|one| receive(one, at, size)),
                1 => sender = sender.and_then(|one| send(one, at, size)),
                // A guest that begins again.
                2 if step[3] == 0 => receiver = device.receiver(size, parts, agreed).ok(),
                3 if step[3] == 0 => sender = device.sender(size, parts, agreed).ok(),
                4 | 5 => {
                    let at = at.min(RAM - 2);
                    ram.write(at, &step[3..5]);
                }
                _ => {
                    let at = at.min(RAM - 8);
                    ram.write(at, &step[3..]);
                }
            }
        }
    });
}

fn receive(mut receiver: Receiver, room: usize, size: u32) -> Option<Receiver> {
    let mut to = [0; 2048];
    let room = &mut to[..room % 2048];
    let waiting = receiver.begin().ok()?;
    assert!(u32::from(waiting) <= size, "{waiting} entries of {size} have frames");
    let mut frames = 0;
    loop {
        match receiver.read(room) {
            Ok(None) => break,
            Ok(Some(got)) => {
                frames += 1;
                assert!(frames <= waiting, "more frames than entries");
                if let Got::Frame(len) = got {
                    assert!(len <= room.len(), "a frame of {len} bytes in {}", room.len());
                }
            }
            // The core uses the ring no more.
            Err(_) => return None,
        }
    }
    receiver.finish();
    Some(receiver)
}

fn send(mut sender: Sender, len: usize, size: u32) -> Option<Sender> {
    let frame = [0x5A; 9000];
    let frame = &frame[..1 + len % 9000];
    let room = sender.begin(u16::MAX).ok()?;
    assert!(u32::from(room) <= size, "{room} entries of {size} have buffers");
    for number in 0..4 {
        match sender.write(frame) {
            // A later frame may use entries that an earlier one has made: its bytes may be written over the ring.
            Ok(Sent::Done) => assert!(number > 0 || room > 0, "more frames than entries"),
            Ok(Sent::Full | Sent::TooLong) => break,
            Err(_) => return None,
        }
    }
    sender.finish();
    Some(sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPLIT: &[u8] = include_bytes!("../seeds/vhost/split");
    const PACKED: &[u8] = include_bytes!("../seeds/vhost/packed");

    /// Rings with frames in both directions, with each byte of the seeds changed.
    #[test]
    fn changed_seeds() {
        for seed in [SPLIT, PACKED] {
            vhost(seed);
            let mut all = seed.to_vec();
            for at in 0..all.len() {
                for change in [1, 128, 255] {
                    all[at] ^= change;
                    vhost(&all);
                    all[at] ^= change;
                }
            }
        }
    }

    /// Without this the target could reject everything at the first look.
    #[test]
    fn the_seeds_have_frames() {
        // What was received and whether a frame was transmitted, as in `vhost`.
        for (seed, agreed, wanted) in [
            (SPLIT, Agreed::ALL, vec![Got::Frame(88)]),
            (PACKED, Agreed::PACKED, vec![Got::Frame(88), Got::Frame(168)]),
        ] {
            GUEST.with(|(ram, device)| {
                ram.write(0, &[0; RAM]);
                let parts = [0, 4096, 8192].map(|at| ram.user(at));
                let mut receiver = device.receiver(8, parts, agreed).unwrap();
                let mut sender = device.sender(8, parts, agreed).unwrap();
                let (mut got, mut sent, mut to) = (Vec::new(), 0, [0; 2048]);
                for step in seed[8..].chunks_exact(STEP) {
                    match step[0] {
                        0 => {
                            receiver.begin().unwrap();
                            got.extend(receiver.read(&mut to).unwrap());
                            receiver.finish();
                        }
                        1 => {
                            sender.begin(u16::MAX).unwrap();
                            sent += u8::from(sender.write(&[0x5A; 61]).unwrap() == Sent::Done);
                            sender.finish();
                        }
                        2 => receiver = device.receiver(8, parts, agreed).unwrap(),
                        3 => sender = device.sender(8, parts, agreed).unwrap(),
                        _ => ram.write(u16::from_le_bytes([step[1], step[2]]).into(), &step[3..]),
                    }
                }
                assert_eq!((got, sent), (wanted, 1));
            });
        }
    }
}

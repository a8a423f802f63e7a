//! Packed rings: guests that break their rules, and where a ring continues.

use flowyard_vhost::guest::{Agreed, Buffer, Device, DriverRing, Ram};
use flowyard_vhost::{Got, Receiver, Sent, Violation};
use proptest::prelude::*;

use crate::hostile::{SIZE, ring};

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
/// Available in the first lap.
const AVAIL: u16 = 0x80;

fn descriptor(ram: &Ram, ring: &DriverRing, number: usize, at: u64, len: u32, flags: u16) {
    let place = ring.parts()[0] + 16 * number;
    ram.write(place, &at.to_le_bytes());
    ram.write(place + 8, &len.to_le_bytes());
    ram.write(place + 12, &77_u16.to_le_bytes());
    ram.write(place + 14, &flags.to_le_bytes());
}

/// Each rule that a guest can break, in both directions.
#[test]
fn each_broken_rule_is_named() {
    let at = Ram::new(8192, 1).guest(0) + 16_384;
    let plain = Agreed { indirect: false, ..Agreed::PACKED };
    // What all descriptors are, and the words that the reason has.
    type Case = (Agreed, (u64, u32, u16), &'static str);
    let cases: &[Case] = &[
        (plain, (at, 1, NEXT), "a chain has more than 8 descriptors"),
        (plain, (at, 0, NEXT), "a chain has more than 8 descriptors"),
        (plain, (0, 100, 0), "100 bytes at 0x0, which are not all"),
        (plain, (u64::MAX - 20, 100, 0), "100 bytes at 0xffffffffffffffeb"),
        (plain, (at, u32::MAX, 0), "4294967295 bytes at"),
        (plain, (at, 100, INDIRECT), "it was not negotiated"),
        (Agreed::PACKED, (at, 40, INDIRECT), "its length is not that of a table"),
        (Agreed::PACKED, (at, 0, INDIRECT), "its length is not that of a table"),
        (Agreed::PACKED, (at, 16, INDIRECT | NEXT), "another one follows it"),
        (Agreed::PACKED, (u64::MAX - 8, 32, INDIRECT), "32 bytes at"),
    ];
    for transmits in [true, false] {
        for (agreed, (at, len, flags), wanted) in cases {
            let (ram, ring, parts) = ring(*agreed);
            for number in 0..usize::from(SIZE) {
                let flags = AVAIL | flags | if transmits { 0 } else { WRITE };
                descriptor(&ram, &ring, number, *at, *len, flags);
            }
            let device = Device::new(&ram);
            let result = if transmits {
                let mut receiver = device.receiver(SIZE.into(), parts, *agreed).unwrap();
                let mut to = vec![0; 4096];
                receiver.begin().and_then(|_| receiver.read(&mut to)).map(|got| format!("{got:?}"))
            } else {
                let mut sender = device.sender(SIZE.into(), parts, *agreed).unwrap();
                let sent = sender.begin(u16::MAX).and_then(|_| sender.write(&[7; 3000]));
                sent.map(|sent| format!("{sent:?}"))
            };
            let said = match result {
                Err(error) => error.to_string(),
                // A frame for the guest may fit into the part of a buffer that exists.
                Ok(said) if !transmits && *len == u32::MAX && said == "Done" => continue,
                // The buffers are too short for the frame, so it is not written.
                Ok(said) if !transmits && *len == 100 && said != "Done" => continue,
                Ok(said) => said,
            };
            assert!(said.contains(wanted), "{transmits}: {said:?} lacks {wanted:?}");
        }
    }
}

/// A table in a table, and a frame whose buffers are of the wrong direction.
#[test]
fn a_table_is_checked() {
    for (flags, wanted) in [
        (INDIRECT, Violation::Indirect("it is in a table itself")),
        (WRITE, Violation::Direction { transmits: true }),
    ] {
        let (ram, ring, parts) = ring(Agreed::PACKED);
        descriptor(&ram, &ring, 0, ram.guest(16_384), 32, AVAIL | INDIRECT);
        ram.write(16_384, &ram.guest(20_000).to_le_bytes());
        ram.write(16_384 + 8, &64_u32.to_le_bytes());
        ram.write(16_384 + 14, &flags.to_le_bytes());
        let device = Device::new(&ram);
        let mut receiver = device.receiver(SIZE.into(), parts, Agreed::PACKED).unwrap();
        assert_eq!(receiver.begin(), Ok(1));
        assert_eq!(receiver.read(&mut [0; 2000]), Err(wanted));
    }
}

#[test]
fn rings_outside_of_memory_are_refused() {
    let (ram, _, [descriptors, driver, area]) = ring(Agreed::PACKED);
    let device = Device::new(&ram);
    let of = |size, parts| {
        device.receiver(size, parts, Agreed::PACKED).map(drop).unwrap_err().to_string()
    };
    let end = ram.user(4 * 8192);
    for (size, parts, wanted) in [
        (0, [descriptors, driver, area], "a ring of 0 entries"),
        (32_769, [descriptors, driver, area], "a ring of 32769 entries"),
        (7, [end - 16 * 7 + 8, driver, area], "the descriptor ring of a ring of 7 entries"),
        (8, [descriptors + 4, driver, area], "the descriptor ring"),
        (8, [descriptors, end - 2, area], "the driver area"),
        (8, [descriptors, driver + 2, area], "the driver area"),
        (8, [descriptors, driver, end], "the device area"),
        (8, [descriptors, driver, u64::MAX - 3], "the device area"),
        (8, [descriptors, driver, area + 1], "the device area"),
    ] {
        let said = of(size, parts);
        assert!(said.contains(wanted), "{said:?} lacks {wanted:?}");
    }
}

fn read_all(receiver: &mut Receiver) -> usize {
    let (mut to, mut frames) = ([0; 200], 0);
    receiver.begin().unwrap();
    while let Some(got) = receiver.read(&mut to).unwrap() {
        assert_eq!(got, Got::Frame(88));
        frames += 1;
    }
    frames
}

/// A process that was killed after it had shown a burst, and before it kept its position, continues behind that burst.
#[test]
fn a_burst_whose_position_was_not_kept_is_not_repeated() {
    for size in [5, 8] {
        for before in 0..12 {
            for burst in 1..=size {
                let mut ram = Ram::new(4 * 8192, 2);
                let mut ring = DriverRing::new(&mut ram, size, Agreed::PACKED);
                let (area, parts) = (ring.parts()[2], ring.parts().map(|part| ram.user(part)));
                let open = || {
                    let device = Device::new(&ram);
                    device.receiver(size.into(), parts, Agreed::PACKED).unwrap()
                };
                let mut receiver = open();
                let mut pass = |receiver: &mut Receiver, count: u16| {
                    for _ in 0..count {
                        let buffer = Buffer { at: 20_000, len: 100, is_for_writing: false };
                        ring.add(&ram, &[buffer], None).unwrap();
                    }
                    let frames = read_all(receiver);
                    receiver.finish();
                    while ring.used(&ram).is_some() {}
                    frames
                };
                for _ in 0..before {
                    assert_eq!(pass(&mut receiver, 1), 1);
                }
                let mut kept = [0; 4];
                ram.read(area, &mut kept);
                assert_eq!(pass(&mut receiver, burst), usize::from(burst));
                ram.write(area, &kept);
                let mut receiver = open();
                assert_eq!(read_all(&mut receiver), 0, "{size} {before} {burst}");
                for _ in 0..size {
                    assert_eq!(pass(&mut receiver, size), usize::from(size));
                }
            }
        }
    }
}

proptest! {
    /// Whatever a guest writes into its memory: an error or frames, within the ring, and never a panic.
    #[test]
    fn any_memory_is_harmless(
        words in prop::collection::vec((0_usize..200, any::<u64>()), 1..30),
        near in prop::collection::vec((0_usize..8, 0_u64..33_000, 0_u32..3000, 0_u16..8, any::<bool>()), 0..8),
        area in any::<u32>(), size in 1_u16..9, agreed in any::<[bool; 4]>(), rounds in 1_usize..4,
    ) {
        let [mergeable, modern, indirect, event_index] = agreed;
        let agreed = Agreed { mergeable, modern, indirect, event_index, packed: true };
        let (ram, ring, parts) = ring(agreed);
        for (at, word) in words {
            ram.write(at, &word.to_ne_bytes());
        }
        ram.write(ring.parts()[2], &area.to_le_bytes());
        for (number, at, len, flags, odd) in near {
            descriptor(&ram, &ring, number, ram.guest(0) + at, len, flags | if odd { 0x8000 } else { AVAIL });
        }
        let device = Device::new(&ram);
        let mut to = [0; 2048];
        let mut receiver = device.receiver(size.into(), parts, agreed).unwrap();
        let mut sender = device.sender(size.into(), parts, agreed).unwrap();
        for _ in 0..rounds {
            if let Ok(waiting) = receiver.begin() {
                prop_assert!(waiting <= size);
                let mut count = 0;
                while let Ok(Some(_)) = receiver.read(&mut to) {
                    count += 1;
                    prop_assert!(count <= waiting, "more frames than descriptors");
                }
                receiver.finish();
            }
            if let Ok(room) = sender.begin(u16::MAX) {
                let mut count = 0;
                while let Ok(Sent::Done) = sender.write(&[7; 300]) {
                    count += 1;
                    prop_assert!(count <= room, "more frames than descriptors");
                }
                sender.finish();
            }
        }
    }
}

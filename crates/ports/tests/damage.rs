//! Damaged captures: all complete packets are delivered, and the damage is reported.

use crate::common::{Chunks, Out, Packet, Variant, gzip, pcap, read, read_all, read_chunked};
use flowyard_ports::mem::Frames;
use flowyard_ports::pcap::Reader;
use flowyard_ports::{Error, Fault, Source, Unread};
use proptest::prelude::*;

flowyard_testkit::tests! {
    a_capture_cut_anywhere_gives_its_whole_packets,
    a_gzip_file_cut_anywhere_gives_its_whole_packets,
    impossible_lengths_are_named_with_their_place,
    interfaces_are_bounded,
    what_is_no_capture_is_named,
    an_error_of_the_system_behind_packets_loses_none_of_them,
    damage_has_the_number_of_bytes_that_are_not_read,
    frames_in_memory_keep_the_damage_of_their_source,
    any_bytes_end_in_order,
    a_changed_gzip_file_gives_the_same_in_any_chunks,
    a_changed_capture_reads_the_same_in_any_chunks,
}

const MICROS: Variant = Variant { big: false, nanos: false, modified: false };

fn packets() -> Vec<Packet> {
    let lens = [0, 60, 1, 61, 3];
    let packet = |(i, len): (usize, usize)| {
        let (time, data) = (i as u64 * 1000, vec![i as u8 + 1; len]);
        Packet { time, wire_len: len as u32, interface: 0, data }
    };
    lens.into_iter().enumerate().map(packet).collect()
}

/// One small capture of each format.
fn samples() -> Vec<Vec<u8>> {
    let mut samples = Vec::new();
    for (big, nanos, modified) in
        [(false, false, false), (true, true, false), (false, false, true), (true, false, true)]
    {
        samples.push(pcap(Variant { big, nanos, modified }, (2, 4), 1, &packets()));
    }
    for big in [false, true] {
        let mut out = Out::new(big);
        out.section(u64::MAX).interface(1, 0, None, 0);
        for Packet { time, wire_len, data, .. } in packets() {
            out.enhanced(0, time / 1000, wire_len, &data);
            out.block(0xbad, |out| out.u32(32473).raw(b"custom"));
        }
        samples.push(out.bytes);
    }
    samples
}

fn a_capture_cut_anywhere_gives_its_whole_packets() {
    for sample in samples() {
        let all = read(&sample).unwrap();
        assert_eq!((all.packets.as_slice(), &all.damage), (packets().as_slice(), &None));
        let mut counts = Vec::new();
        for cut in 0..sample.len() {
            let Ok(part) = read(&sample[..cut]) else {
                assert!(cut < 24, "the header is complete after {cut} bytes");
                continue;
            };
            assert_eq!(part.packets, all.packets[..part.packets.len()]);
            if let Some(damage) = &part.damage {
                let &Fault::Cut { have, need, .. } = &damage.fault else { panic!("{damage}") };
                assert!(have > 0 && have < need, "{damage}");
                assert_eq!(damage.offset + have, cut as u64, "{damage}");
                assert_eq!(damage.packets, part.packets.len() as u64);
            }
            counts.push(part.packets.len());
        }
        assert!(counts.is_sorted());
        assert_eq!(
            (counts.first(), counts.last()),
            (Some(&0), Some(&(5 - usize::from(sample[0] != 10))))
        );
    }
}

fn a_gzip_file_cut_anywhere_gives_its_whole_packets() {
    for sample in samples() {
        let all = read(&sample).unwrap();
        // Two members; the boundary is inside a packet.
        let (one, two) = sample.split_at(150);
        let packed = [gzip(one), gzip(two)].concat();
        let unpacked = read(&packed).unwrap();
        assert_eq!((&unpacked.packets, &unpacked.damage), (&all.packets, &None));
        for cut in 0..packed.len() {
            match read(&packed[..cut]) {
                Ok(part) => {
                    assert_eq!(part.packets, all.packets[..part.packets.len()]);
                    let whole = cut == gzip(one).len();
                    let damage = part.damage.expect("the file is incomplete");
                    assert_eq!(matches!(damage.fault, Fault::Cut { .. }), whole, "{damage}");
                }
                Err(error) => assert!(matches!(error, Error::Damaged(_) | Error::Format { .. })),
            }
        }
        let mut corrupt = packed.clone();
        let crc = corrupt.len() - 8;
        corrupt[crc] ^= 1;
        for chunk in [1, 7, usize::MAX] {
            // The checksum comes last: every packet is delivered before the damage is reported.
            let outcome = read_chunked(&corrupt, chunk).unwrap();
            let damage = outcome.damage.expect("the checksum is wrong");
            assert!(matches!(damage.fault, Fault::Gzip(_)), "{damage}");
            assert_eq!(outcome.packets, all.packets);
        }
        let padded = [packed.as_slice(), &[0; 700]].concat();
        assert_eq!(read(&padded).unwrap().damage, None);
        let garbage = [packed.as_slice(), &[7; 700]].concat();
        assert!(matches!(read(&garbage).unwrap().damage.unwrap().fault, Fault::Gzip(_)));
    }
}

fn impossible_lengths_are_named_with_their_place() {
    let mut file = pcap(MICROS, (2, 4), 1, &packets()[..2]);
    let end = file.len() as u64;
    file.extend([0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 4, 0, 60, 0, 0, 0]); // 262,145
    let damage = read(&file).unwrap().damage.unwrap();
    assert_eq!((damage.offset, damage.packets), (end, 2));
    assert_eq!(damage.fault, Fault::PacketLength { claimed: 262_145, most: 262_144 });
    let line = damage.to_string();
    assert!(
        line.contains("test: byte 116: a packet has a length of 262145") && !line.contains('\n'),
        "{line}"
    );

    let start = || {
        let mut out = Out::new(false);
        out.section(u64::MAX).interface(1, 0, None, 0).enhanced(0, 5, 60, &[1; 60]);
        out
    };
    let fault = |out: &Out| {
        let outcome = read(&out.bytes).unwrap();
        assert_eq!(outcome.packets.len(), 1);
        let damage = outcome.damage.unwrap();
        assert_eq!(damage.offset, start().bytes.len() as u64);
        damage.fault
    };
    for claimed in [0, 8, 11, 13, 1 << 20 | 4, u32::MAX - 3] {
        let mut out = start();
        out.u32(6).u32(claimed).raw(&[0; 100]);
        assert_eq!(fault(&out), Fault::BlockLength { block: 6, claimed });
    }
    let mut out = start(); // a block of nearly 4 GiB that is skipped
    out.u32(4).u32(u32::MAX - 3).raw(&[0; 100]);
    let need = u64::from(u32::MAX - 3);
    assert_eq!(fault(&out), Fault::Cut { inside: "a block", have: 108, need });
    let mut out = start();
    out.u32(6).u32(32).raw(&[0; 20]).u32(36);
    assert_eq!(fault(&out), Fault::BlockTrailer { block: 6, head: 32, tail: 36 });
    let mut out = start();
    out.u32(4).u32(16).raw(&[0; 4]).u32(20);
    assert_eq!(fault(&out), Fault::BlockTrailer { block: 4, head: 16, tail: 20 });
    let mut out = start();
    out.enhanced(1, 0, 4, &[0; 4]);
    assert_eq!(fault(&out), Fault::Interface { wanted: 1, known: 1 });
    let mut out = start();
    out.block(6, |out| out.u32(0).u64(0).u32(9).u32(9).raw(&[0; 8]));
    assert_eq!(fault(&out), Fault::PacketLength { claimed: 9, most: 8 });
    let mut out = start();
    out.block(0x0a0d_0d0a, |out| out.u32(0x1a2b_3c4e).u16(1).u16(0).u64(0));
    assert_eq!(fault(&out), Fault::ByteOrder(0x1a2b_3c4e));
    let mut out = start();
    out.block(0x0a0d_0d0a, |out| out.u32(0x1a2b_3c4d).u16(2).u16(0).u64(0));
    assert_eq!(fault(&out), Fault::Version(2));
}

fn interfaces_are_bounded() {
    let mut out = Out::new(false);
    out.section(u64::MAX);
    for _ in 0..=65_536 {
        out.block(1, |out| out.u16(1).u16(0).u32(0));
    }
    assert_eq!(read(&out.bytes).unwrap().damage.unwrap().fault, Fault::Interfaces);
}

fn what_is_no_capture_is_named() {
    let says = |bytes: &[u8]| {
        let line = read(bytes).unwrap_err().to_string();
        assert!(line.starts_with("test: ") && !line.contains('\n'), "{line}");
        line
    };
    assert!(says(b"").contains("byte 0: the file is empty; give a pcap"));
    assert!(says(b"\xa1").contains("byte 0: the file ends inside the file's magic number: 1 of 2"));
    assert!(says(b"\xd4\xc3\xb2\xa1\x02\0").contains("6 of 24 bytes"));
    assert!(says(b"hello world").contains("not a capture (it starts with 68 65 6c 6c)"));
    assert!(says(b"\x28\xb5\x2f\xfd....").contains("zstd -dc"));
    assert!(says(b"\xab\x01\x00\x1c....").contains("IXIA"));
    assert!(says(&gzip(b"snoop\0\0\0\0\0\0\x02")).contains("snoop"));
    assert!(says(&gzip(b"")).contains("empty"));
    assert!(says(&pcap(MICROS, (3, 0), 1, &[])).contains("pcap version 3.0"));
    let line = says(&pcap(MICROS, (2, 4), 105, &packets()));
    assert!(line.contains("link type 105 (IEEE802_11) is not supported"), "{line}");
    // The length of the frame check sequence, in the upper bits, is not part of the link type.
    assert_eq!(read(&pcap(MICROS, (2, 4), 0x2400_0001, &packets())).unwrap().packets.len(), 5);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    fn any_bytes_end_in_order(bytes in prop::collection::vec(any::<u8>(), 0..300), head in 0..7_usize) {
        let heads = samples();
        let head = heads.get(head).map_or(&[][..], |sample| &sample[..sample.len().min(60)]);
        drop(read(&[head, &bytes].concat()));
    }

    fn a_changed_gzip_file_gives_the_same_in_any_chunks(
        which in 0..6_usize, at in 0..1000_usize, byte: u8, chunk in 1..40_usize,
    ) {
        let mut packed = gzip(&samples().swap_remove(which));
        let at = at % packed.len();
        packed[at] = byte;
        match (read(&packed), read_chunked(&packed, chunk)) {
            (Ok(whole), Ok(parts)) => {
                prop_assert_eq!(whole.packets, parts.packets);
                prop_assert_eq!(whole.damage, parts.damage);
            }
            (whole, parts) => prop_assert_eq!(
                whole.unwrap_err().to_string(), parts.unwrap_err().to_string()
            ),
        }
    }

    fn a_changed_capture_reads_the_same_in_any_chunks(
        which in 0..6_usize, at in 0..1000_usize, byte: u8, chunk in 1..40_usize,
    ) {
        let mut sample = samples().swap_remove(which);
        let at = at % sample.len();
        sample[at] = byte;
        match (read(&sample), read_chunked(&sample, chunk)) {
            (Ok(whole), Ok(parts)) => {
                prop_assert_eq!(whole.packets, parts.packets);
                prop_assert_eq!(whole.damage, parts.damage);
            }
            (whole, parts) => prop_assert_eq!(
                whole.unwrap_err().to_string(), parts.unwrap_err().to_string()
            ),
        }
    }
}

/// The bytes, and then an error.
struct Failing(Chunks);

impl std::io::Read for Failing {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        match self.0.read(buf)? {
            0 => Err(std::io::Error::from_raw_os_error(5)), // EIO
            more => Ok(more),
        }
    }
}

fn an_error_of_the_system_behind_packets_loses_none_of_them() {
    for sample in samples() {
        let all = read(&sample).unwrap();
        for bytes in [sample.clone(), gzip(&sample)] {
            let failing =
                |bytes: &[u8]| Failing(Chunks { bytes: bytes.to_vec(), at: 0, chunk: usize::MAX });
            let mut reader = Reader::new("test", Box::new(failing(&bytes)), None).unwrap();
            let got = read_all(&mut reader).unwrap();
            assert_eq!(got.packets, all.packets);
            let damage = got.damage.unwrap().to_string();
            assert!(
                damage.contains("it cannot be read any further: Input/output error"),
                "{damage}"
            );
            assert!(damage.contains("; 5 complete packets precede it; check the disk"), "{damage}");
            let nothing = Reader::new("test", Box::new(failing(&bytes[..1])), None);
            assert!(matches!(nothing, Err(Error::Io { doing: "read", .. })));
        }
    }
}

fn damage_has_the_number_of_bytes_that_are_not_read() {
    let reader = |bytes: &[u8]| {
        let source = Chunks { bytes: bytes.to_vec(), at: 0, chunk: usize::MAX };
        Reader::new("test", Box::new(source), Some(bytes.len() as u64)).unwrap()
    };
    for sample in samples() {
        let size = sample.len() as u64;
        let (mut bytes, cut) = (sample.clone(), sample.len() as u64 - 2);
        bytes.truncate(sample.len() - 2);
        let damage = read_all(&mut reader(&bytes)).unwrap().damage.unwrap();
        let unread = Unread { bytes: cut - damage.offset, of: cut };
        assert_eq!(damage.unread, Some(unread), "{damage}");
        // Garbage behind the packets: all of it is not read.
        bytes.clone_from(&sample);
        bytes.extend([0xff; 1000]);
        let damage = read_all(&mut reader(&bytes)).unwrap().damage.unwrap();
        assert_eq!(damage.unread, Some(Unread { bytes: 1000, of: size + 1000 }), "{damage}");
        let said = format!("and 1000 of the {} bytes of the file are not read; ", size + 1000);
        assert!(damage.to_string().contains(&said), "{damage}");
        // Compressed: what follows the damaged member is not read.
        let packed = gzip(&sample);
        let mut bytes = packed.clone();
        let end = bytes.len();
        bytes[end - 8] ^= 1; // its checksum
        bytes.extend([0; 70_000]);
        bytes.extend(&packed);
        let damage = read_all(&mut reader(&bytes)).unwrap().damage.unwrap();
        let unread = damage.unread.unwrap();
        assert!(unread.of == bytes.len() as u64 && unread.bytes >= packed.len() as u64, "{damage}");
    }
}

fn frames_in_memory_keep_the_damage_of_their_source() {
    let sample = &samples()[0];
    let cut = &sample[..sample.len() - 1];
    let source = Chunks { bytes: cut.to_vec(), at: 0, chunk: usize::MAX };
    let mut reader = Reader::new("test", Box::new(source), None).unwrap();
    let frames = Frames::read_all(&mut reader).unwrap();
    assert_eq!(frames.len(), 4);
    assert_eq!(frames.damage(), reader.damage());
    assert!(frames.damage().is_some());
}

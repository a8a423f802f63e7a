//! Every variant of both formats is read as it was written.

use std::{io::Read, sync::mpsc};

use crate::common::{Out, Packet, Variant, gzip, pcap, read, read_all, read_chunked};
use flowyard_ports::{
    Error, Source,
    pcap::{Format, MAX_PACKET, Reader, Writer, open},
};
use flowyard_wire::LinkType;
use proptest::prelude::*;

flowyard_testkit::tests! {
    pcap_of_every_variant,
    pcapng_of_every_resolution,
    what_the_writer_writes,
    version_2_3_has_its_lengths_in_either_order,
    sections_have_their_own_byte_order_and_interfaces,
    a_capture_of_other_links_alone_is_an_error,
    simple_packets_are_cut_by_the_snap_length,
    the_longest_packets_pass,
    a_writer_that_is_dropped_leaves_nothing,
    a_slow_pipe_delivers_each_packet_as_it_is_whole,
    what_is_no_file_is_not_replaced,
}

/// Packets whose times are whole multiples of `unit` nanoseconds.
pub(crate) fn packets(unit: u64) -> impl Strategy<Value = Vec<Packet>> {
    let data = prop::collection::vec(any::<u8>(), 0..200);
    let packet = (0..u64::from(u32::MAX) * 1_000_000_000, any::<u16>(), data);
    let packet = packet.prop_map(move |(time, more, data)| {
        let (time, wire_len) = (time / unit * unit, data.len() as u32 + u32::from(more));
        Packet { time, wire_len, interface: 0, data }
    });
    prop::collection::vec(packet, 0..80)
}

fn variant() -> impl Strategy<Value = Variant> {
    (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(big, nanos, modified)| Variant {
        big,
        nanos: nanos && !modified,
        modified,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    fn pcap_of_every_variant(
        variant in variant(), packets in packets(1000), minor in 0..5_u16, chunk in 1..4000_usize,
    ) {
        prop_assume!(minor != 3); // lengths in either order: tested below
        let file = pcap(variant, (2, minor), 1, &packets);
        for outcome in [read(&file), read_chunked(&file, chunk), read(&gzip(&file))] {
            let outcome = outcome.unwrap();
            prop_assert_eq!(&outcome.packets, &packets);
            prop_assert_eq!(outcome.damage, None);
        }
    }

    fn pcapng_of_every_resolution(
        big: bool, packets in packets(1), resolution: u8, seconds in -1_000_000..1_000_000_i64,
        kinds in prop::collection::vec(0..4_u8, 80), chunk in 1..4000_usize,
    ) {
        let mut out = Out::new(big);
        out.section(u64::MAX).interface(113, 0, Some(resolution), seconds).interface(1, 96, None, 0);
        let mut want = Vec::new();
        let mut last = 0;
        for (packet, kind) in packets.iter().zip(kinds) {
            let ticks = packet.time;
            let exact = exact(ticks, resolution, seconds);
            let Packet { mut wire_len, ref data, .. } = *packet;
            let (mut time, mut interface, mut data) = (exact, 0, data.clone());
            match kind {
                0 => { out.enhanced(0, ticks, wire_len, &data); },
                1 => { out.obsolete(0, ticks, wire_len, &data); },
                2 => {
                    (time, interface) = (ticks / 1000 * 1000, 1);
                    out.enhanced(1, ticks / 1000, wire_len, &data);
                }
                _ => {
                    (time, wire_len) = (last, data.len() as u32);
                    data.resize(data.len().next_multiple_of(4), 0);
                    out.simple(wire_len, &data);
                    data.truncate(wire_len as usize);
                }
            }
            last = time;
            want.push(Packet { time, wire_len, interface, data });
        }
        for outcome in [read(&out.bytes), read_chunked(&out.bytes, chunk), read(&gzip(&out.bytes))] {
            let outcome = outcome.unwrap();
            prop_assert_eq!(&outcome.packets, &want);
            prop_assert_eq!(outcome.damage, None);
        }
    }

    fn what_the_writer_writes(packets in packets(1), format in 0..3_usize) {
        let format = [Format::PcapMicros, Format::PcapNanos, Format::Pcapng][format];
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.pcap");
        let mut writer = Writer::create(&path, format, LinkType::RawIp).unwrap();
        for Packet { time, wire_len, data, .. } in &packets {
            writer.write(*time, *wire_len, data).unwrap();
        }
        prop_assert!(!path.exists());
        writer.finish().unwrap();
        let mut reader = open(&path).unwrap();
        let outcome = read_all(&mut reader).unwrap();
        let unit = if format == Format::PcapMicros { 1000 } else { 1 };
        let cut = |packet: &Packet| Packet { time: packet.time / unit * unit, ..packet.clone() };
        prop_assert_eq!(outcome.packets, packets.iter().map(cut).collect::<Vec<_>>());
        prop_assert_eq!(Some(reader.progress().done), reader.progress().total);
        prop_assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}

/// Ticks to nanoseconds in 128-bit arithmetic.
fn exact(ticks: u64, resolution: u8, seconds: i64) -> u64 {
    let power = u32::from(resolution & 0x7f);
    let ticks = u128::from(ticks) * 1_000_000_000;
    let nanos = match resolution {
        0x80.. => ticks >> power,
        0..=38 => ticks / 10_u128.pow(power),
        _ => 0,
    };
    let nanos = nanos.min(u64::MAX.into()) as i128 + i128::from(seconds) * 1_000_000_000;
    nanos.clamp(0, u64::MAX.into()) as u64
}

fn version_2_3_has_its_lengths_in_either_order() {
    let packet = Packet { time: 0, wire_len: 100, interface: 0, data: vec![7; 60] };
    let micros = Variant { big: false, nanos: false, modified: false };
    let mut file = pcap(micros, (2, 3), 1, &[packet.clone(), packet.clone()]);
    file.splice(32..40, [100, 0, 0, 0, 60, 0, 0, 0]);
    assert_eq!(read(&file).unwrap().packets, [packet.clone(), packet]);
}

fn sections_have_their_own_byte_order_and_interfaces() {
    let mut bytes = Vec::new();
    for (big, link) in [(false, 1), (true, 105), (true, 0), (false, 127)] {
        let mut out = Out::new(big);
        out.section(if big { 4096 } else { u64::MAX });
        out.block(5, |out| out.u32(0).u64(1)); // interface statistics, which are skipped
        out.interface(link, 0, None, 0).enhanced(0, 1, 4, &[1, 2, 3, 4]);
        out.interface(1, 0, Some(9), 0).enhanced(1, 7, 2, &[9, 9]);
        bytes.extend(out.bytes);
    }
    let outcome = read(&bytes).unwrap();
    let got: Vec<_> = outcome.packets.iter().map(|p| (p.interface, p.time, p.data.len())).collect();
    assert_eq!(got, [(0, 1000, 4), (1, 7, 2), (3, 7, 2), (4, 1000, 4), (5, 7, 2), (7, 7, 2)]);
    let skipped: Vec<_> = outcome.skipped.iter().map(|s| (s.reason.as_str(), s.packets)).collect();
    assert_eq!(
        skipped,
        [
            ("link type 105 (IEEE802_11) is not supported", 1),
            ("link type 127 (IEEE802_11_RADIOTAP) is not supported", 1),
        ]
    );
}

fn a_capture_of_other_links_alone_is_an_error() {
    let mut out = Out::new(false);
    out.section(u64::MAX).interface(195, 0, None, 0).enhanced(0, 1, 4, &[1, 2, 3, 4]);
    let error = read(&out.bytes).unwrap_err();
    assert!(matches!(error, Error::LinkType { number: 195, .. }), "{error}");
}

fn simple_packets_are_cut_by_the_snap_length() {
    let mut out = Out::new(true);
    out.section(u64::MAX).interface(1, 6, None, 0).simple(60, &[5; 8]).simple(3, &[5, 5, 5, 0]);
    let lens: Vec<_> =
        read(&out.bytes).unwrap().packets.iter().map(|p| (p.wire_len, p.data.len())).collect();
    assert_eq!(lens, [(60, 6), (3, 3)]);
}

fn the_longest_packets_pass() {
    let long =
        |time| Packet { time, wire_len: 1 << 19, interface: 0, data: vec![time as u8; MAX_PACKET] };
    let packets: Vec<_> = (0..9).map(|time| long(time * 1000)).collect();
    let modified = Variant { big: true, nanos: false, modified: true };
    assert_eq!(read(&pcap(modified, (2, 4), 1, &packets)).unwrap().packets, packets);
    let mut out = Out::new(false);
    out.section(u64::MAX).interface(1, 0, None, 0);
    for packet in &packets {
        out.enhanced(0, packet.time / 1000, packet.wire_len, &packet.data);
    }
    out.block(0x1234, |out| out.raw(&vec![0; 3 << 20])).enhanced(0, 0, 1, &[1]);
    let outcome = read_chunked(&out.bytes, 70_000).unwrap();
    assert_eq!((outcome.packets.len(), &outcome.packets[..9]), (10, packets.as_slice()));
}

fn a_writer_that_is_dropped_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.pcap");
    std::fs::write(&path, "old").unwrap();
    let mut writer = Writer::create(&path, Format::Pcapng, LinkType::Ethernet).unwrap();
    writer.write(0, 4, &[1, 2, 3, 4]).unwrap();
    assert!(matches!(writer.write(0, 4, &vec![0; MAX_PACKET + 1]), Err(Error::TooLong { .. })));
    drop(writer);
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    let nowhere = dir.path().join("none/out.pcap");
    let error = Writer::create(nowhere, Format::PcapNanos, LinkType::Ethernet).unwrap_err();
    assert!(error.to_string().contains("cannot create"), "{error}");
    assert!(open(dir.path().join("absent")).unwrap_err().to_string().contains("check the path"));
}

/// A pipe that delivers a byte when one is sent, and waits for the next.
struct Pipe(mpsc::Receiver<u8>);

impl Read for Pipe {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let Ok(byte) = self.0.recv() else { return Ok(0) };
        buf[0] = byte;
        Ok(1)
    }
}

fn a_slow_pipe_delivers_each_packet_as_it_is_whole() {
    let packet = |time| Packet { time, wire_len: 60, interface: 0, data: vec![3; 60] };
    let packets = [packet(0), packet(1000), packet(2000)];
    let micros = Variant { big: false, nanos: false, modified: false };
    let mut ng = Out::new(true);
    ng.section(u64::MAX).interface(1, 0, None, 0);
    let ng_head = ng.bytes.len();
    packets.iter().for_each(|p| {
        ng.enhanced(0, p.time / 1000, 60, &p.data);
    });
    for (file, head) in [(pcap(micros, (2, 4), 1, &packets), 24), (ng.bytes, ng_head)] {
        let (send, pipe) = mpsc::channel();
        let each = (file.len() - head) / 3;
        file[..head].iter().for_each(|&byte| send.send(byte).unwrap());
        let mut reader = Reader::new("pipe", Box::new(Pipe(pipe)), None).unwrap();
        for i in 0..3 {
            // The pipe contains no byte beyond this packet, so reading ahead would block for ever.
            file[head + i * each..][..each].iter().for_each(|&byte| send.send(byte).unwrap());
            let burst = reader.read().unwrap();
            assert_eq!((burst.len(), burst.records()[0].time), (1, packets[i].time));
        }
        drop(send);
        assert!(reader.read().unwrap().is_empty());
        assert_eq!(reader.damage(), None);
    }
}

/// A finished capture replaces only a regular file, never a device such as `/dev/null`.
#[cfg(unix)]
fn what_is_no_file_is_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let error = Writer::create(&path, Format::PcapNanos, LinkType::Ethernet).unwrap_err();
    assert!(error.to_string().contains("it exists and is not a regular file"), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file remains");
}

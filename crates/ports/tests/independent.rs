//! An independent implementation, the crate `pcap-file`, reads the captures of our writer, and our
//! reader reads captures written by it.
//!
//! `pcap-file` 2.0.0 does not return on packets longer than the snap length (its issue 48), so all
//! packets here are shorter. It takes pcapng time stamps as nanoseconds, whatever the interface's
//! resolution, so all interfaces here use nanoseconds.

use std::fs::File;
use std::time::Duration;

use flowyard_ports::pcap::{Format, MAX_PACKET, Writer};
use flowyard_wire::LinkType;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter};
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::simple_packet::SimplePacketBlock;
use pcap_file::pcapng::{Block, PcapNgReader, PcapNgWriter};
use pcap_file::{DataLink, Endianness, TsResolution};
use proptest::prelude::*;

use crate::common::{Packet, read};
use crate::formats::packets;

flowyard_testkit::tests! {
    pcap_of_our_writer,
    pcapng_of_our_writer,
    pcap_of_the_other_writer,
    pcapng_of_the_other_writer,
}

/// The snap length of our writer.
const SNAP: u32 = MAX_PACKET as u32;

/// Writes `packets` with our writer to a temporary file.
fn written(format: Format, packets: &[Packet]) -> File {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("capture");
    let mut writer = Writer::create(&path, format, LinkType::Ethernet).unwrap();
    for Packet { time, wire_len, data, .. } in packets {
        writer.write(*time, *wire_len, data).unwrap();
    }
    writer.finish().unwrap();
    File::open(&path).unwrap()
}

/// A packet as read by `pcap-file`.
fn packet(timestamp: Duration, wire_len: u32, data: &[u8]) -> Packet {
    let time = u64::try_from(timestamp.as_nanos()).unwrap();
    Packet { time, wire_len, interface: 0, data: data.to_vec() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    fn pcap_of_our_writer(packets in packets(1), nanos: bool) {
        let (format, unit, resolution) = match nanos {
            true => (Format::PcapNanos, 1, TsResolution::NanoSecond),
            false => (Format::PcapMicros, 1000, TsResolution::MicroSecond),
        };
        let mut reader = PcapReader::new(written(format, &packets)).unwrap();
        let header = reader.header();
        prop_assert_eq!((header.version_major, header.version_minor), (2, 4));
        prop_assert_eq!((header.datalink, header.snaplen), (DataLink::ETHERNET, SNAP));
        prop_assert_eq!(header.ts_resolution, resolution);
        let mut got = Vec::new();
        while let Some(one) = reader.next_packet() {
            let PcapPacket { timestamp, orig_len, data } = one.unwrap();
            got.push(packet(timestamp, orig_len, &data));
        }
        let want = packets.iter().map(|p| Packet { time: p.time / unit * unit, ..p.clone() });
        prop_assert_eq!(got, want.collect::<Vec<_>>());
    }

    fn pcapng_of_our_writer(packets in packets(1)) {
        let mut reader = PcapNgReader::new(written(Format::Pcapng, &packets)).unwrap();
        prop_assert_eq!(reader.section().major_version, 1);
        let mut got = Vec::new();
        while let Some(block) = reader.next_block() {
            match block.unwrap() {
                Block::EnhancedPacket(block) => {
                    prop_assert_eq!(block.interface_id, 0);
                    got.push(packet(block.timestamp, block.original_len, &block.data));
                }
                Block::InterfaceDescription(interface) => {
                    let InterfaceDescriptionBlock { linktype, snaplen, options } = interface;
                    prop_assert_eq!((linktype, snaplen), (DataLink::ETHERNET, SNAP));
                    prop_assert_eq!(options, [InterfaceDescriptionOption::IfTsResol(9)]);
                }
                other => prop_assert!(false, "{:?}", other),
            }
        }
        prop_assert_eq!(reader.interfaces().len(), 1);
        prop_assert_eq!(got, packets);
    }

    fn pcap_of_the_other_writer(packets in packets(1000), nanos: bool, big: bool) {
        let header = PcapHeader {
            snaplen: SNAP,
            endianness: if big { Endianness::Big } else { Endianness::Little },
            ts_resolution: match nanos {
                true => TsResolution::NanoSecond,
                false => TsResolution::MicroSecond,
            },
            ..PcapHeader::default()
        };
        let mut writer = PcapWriter::with_header(Vec::new(), header).unwrap();
        for Packet { time, wire_len, data, .. } in &packets {
            let one = PcapPacket::new(Duration::from_nanos(*time), *wire_len, data);
            writer.write_packet(&one).unwrap();
        }
        let outcome = read(&writer.into_writer()).unwrap();
        prop_assert_eq!((outcome.packets, outcome.damage), (packets, None));
    }

    fn pcapng_of_the_other_writer(
        packets in packets(1), kinds in prop::collection::vec(0..3_u8, 80), big: bool,
    ) {
        let endianness = if big { Endianness::Big } else { Endianness::Little };
        let mut writer = PcapNgWriter::with_endianness(Vec::new(), endianness).unwrap();
        for linktype in [DataLink::RAW, DataLink::ETHERNET] {
            let comment = InterfaceDescriptionOption::Comment("an interface".into());
            let options = vec![comment, InterfaceDescriptionOption::IfTsResol(9)];
            let interface = InterfaceDescriptionBlock { linktype, snaplen: SNAP, options };
            writer.write_pcapng_block(interface).unwrap();
        }
        let (mut want, mut last) = (Vec::new(), 0);
        for (packet, kind) in packets.iter().zip(kinds) {
            let Packet { time, wire_len, ref data, .. } = *packet;
            if let interface_id @ 0..=1 = u32::from(kind) {
                writer.write_pcapng_block(EnhancedPacketBlock {
                    interface_id,
                    timestamp: Duration::from_nanos(time),
                    original_len: wire_len,
                    data: data.into(),
                    options: vec![EnhancedPacketOption::Flags(1)],
                }).unwrap();
                want.push(Packet { interface: interface_id, ..packet.clone() });
                last = time;
            } else {
                let original_len = data.len() as u32;
                let block = SimplePacketBlock { original_len, data: data.into() };
                writer.write_pcapng_block(block).unwrap();
                // A simple packet has no time stamp.
                want.push(Packet { time: last, wire_len: original_len, ..packet.clone() });
            }
        }
        let outcome = read(&writer.into_inner()).unwrap();
        prop_assert_eq!((outcome.packets, outcome.damage), (want, None));
    }
}

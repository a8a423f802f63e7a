//! Generated traffic is read back from a capture unchanged.

use flowyard_ports::{
    Source,
    pcap::{self, Format, Writer},
};
use flowyard_testkit::{Profile, Traffic};
use flowyard_wire::LinkType;

flowyard_testkit::tests! {
    traffic_survives_a_capture,
}

fn traffic_survives_a_capture() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("traffic.pcapng");
    let want: Vec<_> = Traffic::new(Profile::default(), 4).take(2000).collect();
    let mut writer = Writer::create(&path, Format::Pcapng, LinkType::Ethernet).unwrap();
    for (packet, frame) in &want {
        writer.write(packet.time, frame.len() as u32, frame).unwrap();
    }
    writer.finish().unwrap();
    let mut reader = pcap::open(&path).unwrap();
    let mut want = want.iter();
    loop {
        let burst = reader.read().unwrap();
        if burst.is_empty() {
            break;
        }
        for (record, data) in burst.iter() {
            let (packet, frame) = want.next().unwrap();
            assert_eq!((record.time, data), (packet.time, frame.as_slice()));
        }
    }
    assert!(want.next().is_none() && reader.damage().is_none());
}

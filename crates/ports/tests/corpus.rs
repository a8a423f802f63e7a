//! Every capture of the shared corpus reads as described by its manifest.

use crate::common::read_all;
use flowyard_ports::{Error, Fault, linktype, pcap};
use flowyard_testkit::harness::{self, Need};

flowyard_testkit::tests! {
    every_capture_reads_as_the_manifest_says needs [Need::Shared("captures/MANIFEST.tsv")],
}

/// A capture whose second section has pcapng version 2; tcpdump, tshark and flowyard stop there.
const VERSION_2: &str = "13-formats/gopacket__be__test901.pcapng";

fn every_capture_reads_as_the_manifest_says() {
    let captures = harness::shared("captures");
    let manifest = std::fs::read_to_string(captures.join("MANIFEST.tsv")).unwrap();
    let mut lines = manifest.lines();
    let head: Vec<&str> = lines.next().unwrap().split('\t').collect();
    let column = |name: &str| head.iter().position(|&column| column == name).unwrap();
    let columns = ["file", "packets", "captured_bytes", "bytes_on_wire", "linktype", "notes"];
    let columns = columns.map(column);
    let (mut files, mut packets, mut named, mut damaged) = (0, 0, 0, 0);
    for line in lines {
        let fields: Vec<&str> = line.split('\t').collect();
        let [file, count, captured, wire, link, notes] = columns.map(|column| fields[column]);
        let number = |text: &str| text.parse::<u64>().unwrap();
        if file == VERSION_2 {
            // The manifest counts the packets of the version 2 section, too.
            let outcome = read_all(&mut pcap::open(captures.join(file)).unwrap()).unwrap();
            assert_eq!(outcome.damage.unwrap().fault, Fault::Version(2));
            assert_eq!(outcome.packets.len(), 1);
            files += 1;
            continue;
        }
        files += 1;
        let mut reader = match pcap::open(captures.join(file)) {
            Ok(reader) => reader,
            Err(error) => {
                let Error::LinkType { number, .. } = error else { panic!("{error}") };
                assert_eq!(number.to_string(), link, "{file}");
                assert_ne!(linktype::name(number), "unknown", "{file}: {number}");
                assert!(error.to_string().contains(linktype::name(number)), "{error}");
                named += 1;
                continue;
            }
        };
        let outcome = read_all(&mut reader).unwrap_or_else(|error| panic!("{error}"));
        let of =
            |length: fn(&crate::common::Packet) -> u64| outcome.packets.iter().map(length).sum();
        let got: [u64; 3] =
            [of(|_| 1), of(|packet| packet.data.len() as u64), of(|packet| packet.wire_len.into())];
        assert_eq!(got, [count, captured, wire].map(number), "{file}: {:?}", outcome.damage);
        assert_eq!(outcome.skipped, [], "{file}");
        packets += got[0];
        assert_eq!(outcome.damage.is_some(), notes.contains("FILE:"), "{file}: {outcome:?}");
        if let Some(damage) = outcome.damage {
            let cut = matches!(damage.fault, Fault::Cut { .. });
            assert_eq!(cut, notes.contains("FILE:truncated-file"), "{damage}");
            assert_eq!(damage.packets, got[0]);
            damaged += 1;
        }
    }
    flowyard_testkit::note!(
        "{files} files, {packets} packets; {named} of other link types, {damaged} damaged"
    );
    assert!(files >= 400 && damaged >= 4 && named >= 30, "the corpus is incomplete");
}

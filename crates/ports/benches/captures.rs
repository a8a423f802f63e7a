//! Reads packets of 64 bytes from a file in the page cache; one item is one packet.

use std::path::PathBuf;

use divan::{Bencher, black_box, counter::ItemsCount};
use flowyard_ports::{
    Source,
    pcap::{self, Format, Writer},
};
use flowyard_wire::LinkType;

const PACKETS: u64 = 1_000_000;

fn main() {
    divan::main();
}

#[divan::bench(args = [Format::PcapMicros, Format::Pcapng], sample_count = 20)]
fn read_64_bytes(bencher: Bencher<'_, '_>, format: Format) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = capture(dir.path().join("capture"), format);
    bencher.counter(ItemsCount::new(PACKETS)).bench_local(|| {
        let mut reader = pcap::open(&path).expect("the capture opens");
        let (mut packets, mut sum) = (0, 0);
        loop {
            let burst = reader.read().expect("the capture reads");
            if burst.is_empty() {
                break;
            }
            packets += burst.len() as u64;
            for (record, data) in burst.iter() {
                sum += record.time ^ u64::from(data[0]);
            }
        }
        assert_eq!(packets, PACKETS);
        black_box(sum)
    });
}

/// Baseline: the same file through `read(2)` alone.
#[divan::bench(sample_count = 20)]
fn read_only(bencher: Bencher<'_, '_>) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = capture(dir.path().join("capture"), Format::PcapMicros);
    let mut buf = vec![0; 1 << 18];
    bencher.counter(ItemsCount::new(PACKETS)).bench_local(|| {
        let mut file = std::fs::File::open(&path).expect("the capture opens");
        while std::io::Read::read(&mut file, &mut buf).expect("the capture reads") > 0 {
            black_box(&buf);
        }
    });
}

fn capture(path: PathBuf, format: Format) -> PathBuf {
    let mut writer = Writer::create(&path, format, LinkType::Ethernet).expect("a new file");
    for i in 0..PACKETS {
        writer.write(i * 1000, 64, &[i as u8; 64]).expect("free disk space");
    }
    writer.finish().expect("free disk space");
    path
}

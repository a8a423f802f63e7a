//! The published RSS vectors, with indirection table entries and the symmetric key.

use std::net::IpAddr;

use flowyard_flow::toeplitz::{HashTypes, MICROSOFT_KEY, SYMMETRIC_KEY, Toeplitz};
use flowyard_frame::{FlowKey, proto};
use flowyard_testkit::harness::{Need, shared};

const VECTORS: &str = "vectors/rss_microsoft.csv";

flowyard_testkit::tests! {
    published_hashes_and_entries needs [Need::Shared(VECTORS)],
}

fn tcp(src: &str, sport: u16, dst: &str, dport: u16) -> FlowKey {
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    FlowKey::five_tuple(proto::TCP, ip(src), sport, ip(dst), dport)
}

fn published_hashes_and_entries() {
    let text = std::fs::read_to_string(shared(VECTORS)).unwrap();
    let microsoft = Toeplitz::new(&MICROSOFT_KEY).unwrap();
    let symmetric = Toeplitz::new(&SYMMETRIC_KEY).unwrap();
    let (with, without) = (HashTypes::default(), HashTypes::with_ports(&[]));
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).unwrap(),
        None => text.parse().unwrap(),
    };
    let mut rows = 0;
    for row in text.lines().skip(1) {
        let f: Vec<_> = row.split(',').collect();
        let key = tcp(f[1], f[2].parse().unwrap(), f[3], f[4].parse().unwrap());
        let hash = microsoft.hash_flow(&key, &with);
        assert_eq!(hash, number(f[5]), "{row}");
        assert_eq!(microsoft.hash_flow(&key, &without), number(f[6]), "{row}");
        for (size, column) in [(128, 7), (512, 8), (2048, 9)] {
            assert_eq!(hash & (size - 1), number(f[column]), "{row}");
        }
        assert_eq!(symmetric.hash_flow(&key, &with), number(f[10]), "{row}");
        assert_eq!(symmetric.hash_flow(&key.reversed(), &with), number(f[11]), "{row}");
        rows += 1;
    }
    assert_eq!(rows, 8);
}

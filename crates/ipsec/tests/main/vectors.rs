//! Packets of `esp_aes_gcm`: each is opened, and sealed again to the same bytes.

use std::net::IpAddr;

use flowyard_ipsec::esp::{self, Kind};
use flowyard_ipsec::sa::{Flags, Limits, Mode, Sa, SaConfig, Tally};
use flowyard_ipsec::suite::{BadKey, KeyMaterial, Suite};
use flowyard_testkit::harness::{Need, shared};

const VECTORS: &str = "vectors/offload_vectors.json";

flowyard_testkit::tests! {
    esp_aes_gcm needs [Need::Shared(VECTORS)],
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

fn addresses(packet: &[u8]) -> (IpAddr, IpAddr) {
    let v4 = |at: usize| IpAddr::from(*packet[at..].first_chunk::<4>().unwrap());
    let v6 = |at: usize| IpAddr::from(*packet[at..].first_chunk::<16>().unwrap());
    if packet[0] >> 4 == 4 { (v4(12), v4(16)) } else { (v6(8), v6(24)) }
}

fn esp_aes_gcm() {
    let text = std::fs::read_to_string(shared(VECTORS)).unwrap();
    let all: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut names = Vec::new();
    for vector in all["esp_aes_gcm"].as_array().unwrap() {
        let bytes = |name: &str| hex(vector[name].as_str().unwrap());
        let name = vector["name"].as_str().unwrap();
        let key = [bytes("key"), bytes("salt")].concat();
        let suite = match Suite::of("rfc4106(gcm(aes))", key.len()) {
            Ok(suite) => suite,
            Err(error) => {
                // Keys of 192 bits are refused: docs/decisions/0068-cryptography-of-ipsec.md.
                assert_eq!((name, error), ("pkt_aes_192_gcm", BadKey::Aes192));
                continue;
            }
        };
        let (inner, outer) = (bytes("inner"), bytes("outer"));
        let Kind::Esp(arrived) = esp::kind(&outer, |_| false) else { panic!("{name} is not ESP") };
        let at = if outer[0] >> 4 == 4 { 20 } else { 40 };
        let iv = u64::from_be_bytes(*outer[at + 8..].first_chunk().unwrap());
        let (src, dst) = addresses(&outer);
        let config = SaConfig {
            src,
            dst,
            spi: arrived.spi,
            reqid: 0,
            mode: Mode::Tunnel,
            suite,
            key: KeyMaterial::new(key),
            is_extended: false,
            window: 64,
            encap: None,
            limits: Limits::NONE,
            flags: Flags::default(),
            seq: u64::from(arrived.low) - 1,
            oseq: u64::from(arrived.low) - 1,
            line: 1,
        };
        // The first IV is one below that of the vector, because the number is added.
        let sa = Sa::new(config, iv.wrapping_sub(arrived.low.into()), 0).unwrap();
        let mut packet = outer.clone();
        let opened = esp::open(&sa, &arrived, &mut packet, &mut Tally::default()).unwrap();
        assert_eq!(packet[opened.cut..opened.cut + opened.len], inner, "{name}");

        let plan = esp::plan(&sa, &inner).unwrap();
        let mut sealed = vec![0; plan.head];
        sealed.extend(&inner);
        sealed.resize(plan.total(), 0);
        let number = sa.take().unwrap();
        esp::seal(&sa, number, &plan, &mut sealed, &mut Tally::default()).unwrap();
        assert_eq!(sealed[at..], outer[at..], "{name}: ESP and what follows");
        names.push(name.to_owned());
    }
    assert_eq!(names, ["pkt_aes_128_gcm", "pkt_aes_256_gcm", "pkt_aes_256_gcm_v6"]);
}

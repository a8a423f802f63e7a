use flowyard_frame::{FlowKey, Rng, proto};
use flowyard_testkit::Build;
use flowyard_wire::{Headers, LinkType};
use proptest::prelude::*;

use super::*;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().map(|c| (c as char).to_digit(16).unwrap() as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn config(codepoint: u8, server: usize, nonce: usize, key: Option<&str>) -> Config {
    let key = key.map(|key| hex(key).try_into().unwrap());
    Config::new(codepoint, server, nonce, key).unwrap()
}

const KEY: &str = "8f95f09245765f80256934e50c66207f";

/// Appendix B of the draft. The table gives codepoint 3 for the last vector, but the vector's first
/// byte has codepoint 0, which is used here.
const VECTORS: [(u8, &str, &str, Option<&str>, &str); 5] = [
    (0, "c4605e", "4504cc4f", None, "07c4605e4504cc4f"),
    (0, "ed793a", "ee080dbf", Some(KEY), "0720b1d07b359d3c"),
    (1, "ed793a51d49b8f5fab65", "ee080dbf48", Some(KEY), "2fcc381bc74cb4fbad2823a3d1f8fed2"),
    (2, "ed793a51d49b8f5f", "ee080dbf48c0d1e5", Some(KEY), "504dd2d05a7b0de9b2b9907afb5ecf8cc3"),
    (
        0,
        "ed793a51d49b8f5fab",
        "ee080dbf48c0d1e55d",
        Some(KEY),
        "125779c9cc86beb3a3a4a3ca96fce4bfe0cdbc",
    ),
];

/// The bytes that flows are spread by are those that this reader takes for the server ID.
#[test]
fn the_spread_of_packets_has_the_same_server_ids() {
    let config = |codepoint| Config::new(codepoint, 3, 4, None).unwrap();
    let reader = Reader::new(&(0..7).map(config).collect::<Vec<_>>());
    let spread = flowyard_flow::Quic::new(&[443], 8, Some(3)).unwrap();
    let [near, far] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(std::net::IpAddr::from);
    let key = FlowKey::five_tuple(proto::UDP, near, 4000, far, 443);
    let mut random = Rng::new(1);
    let mut servers = 0;
    for _ in 0..5_000 {
        let mut packet: Vec<u8> = (0..random.below(24)).map(|_| random.bits() as u8).collect();
        if let (Some(len), true) = (packet.get_mut(5), random.below(2) == 0) {
            *len = 5 + random.below(6) as u8;
        }
        let frame = Build::new(&key).payload(&packet).bytes();
        let headers = Headers::parse(LinkType::Ethernet, &frame);
        let route = match spread.hashed(&key, &headers, &frame) {
            Some(id) => Route::Server(ServerId::new(id).unwrap()),
            None => Route::ByAddress,
        };
        assert_eq!(route, reader.route(&packet), "{packet:02x?}");
        servers += u32::from(route != Route::ByAddress);
    }
    assert!((1_000..4_500).contains(&servers), "{servers}");
}

#[test]
fn the_vectors_of_the_draft() {
    for (codepoint, server, nonce, key, cid) in VECTORS {
        let (server, nonce, cid) = (hex(server), hex(nonce), hex(cid));
        let config = config(codepoint, server.len(), nonce.len(), key);
        let id = ServerId::new(&server).unwrap();
        assert_eq!(connection_id_of(&config, &id, &nonce).unwrap(), cid);
        let reader = Reader::new(&[config]);
        let short = [&[0x40][..], &cid, b"payload"].concat();
        assert_eq!(reader.route(&short), Route::Server(id));
        let len = cid.len() as u8;
        let long = [&[0xc0, 0, 0, 0, 1, len][..], &cid, &[0, 1, 2]].concat();
        assert_eq!(reader.route(&long), Route::Server(id));
        // The connection ID of this long header is too short for a server ID.
        let long = [&[0xc0, 0, 0, 0, 1, len - 1][..], &cid].concat();
        assert_eq!(reader.route(&long), Route::ByAddress);
    }
}

#[test]
fn the_worked_example_of_the_draft() {
    let config = config(0, 3, 4, Some("fdf726a9893ec05c0632d3956680baf0"));
    let id = ServerId::new(&hex("31441a")).unwrap();
    let cid = connection_id_of(&config, &id, &hex("9c69c275")).unwrap();
    assert_eq!(cid, hex("0767947d29be054a"));
}

#[test]
fn invalid_configurations_are_refused() {
    assert_eq!(Config::new(7, 4, 4, None), Err(BadConfig::Codepoint(7)));
    for (server, nonce) in [(0, 4), (16, 4), (4, 3), (10, 10), (usize::MAX, 4)] {
        assert_eq!(Config::new(0, server, nonce, None), Err(BadConfig::Lengths { server, nonce }));
    }
    let secret = format!("{:?}", config(1, 3, 4, Some(KEY)));
    assert_eq!(secret, "encrypted at 1: 3 + 4 bytes");
    assert_eq!(ServerId::new(&[]), None);
    assert_eq!(ServerId::new(&[0; 16]), None);
}

proptest! {
    #[test]
    fn encoded_server_ids_are_decoded(
        server in prop::collection::vec(any::<u8>(), 1..=15), nonce in prop::collection::vec(any::<u8>(), 4..=18),
        key in any::<Option<[u8; 16]>>(), codepoint in 0u8..7, behind in prop::collection::vec(any::<u8>(), 0..9),
    ) {
        let Ok(config) = Config::new(codepoint, server.len(), nonce.len(), key) else {
            prop_assert!(server.len() + nonce.len() > 19);
            return Ok(());
        };
        let id = ServerId::new(&server).unwrap();
        let cid = connection_id_of(&config, &id, &nonce).unwrap();
        prop_assert_eq!(cid.len(), 1 + server.len() + nonce.len());
        let packet = [&[0x41][..], &cid, &behind].concat();
        prop_assert_eq!(Reader::new(&[config]).route(&packet), Route::Server(id));
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..40), key in any::<Option<[u8; 16]>>(), server in 1usize..15, nonce in 4usize..18) {
        if let Ok(config) = Config::new(bytes.first().copied().unwrap_or(0) % 7, server, nonce, key) {
            let _ = Reader::new(&[config]).route(&bytes);
        }
    }
}

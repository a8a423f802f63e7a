use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use flowyard_frame::proto;
use flowyard_testkit::batch;
use proptest::prelude::*;

use super::*;

/// Microsoft, "Verifying the RSS Hash Calculation": source, destination, hash with and without
/// ports.
const VECTORS: [(&str, u16, &str, u16, u32, u32); 8] = [
    ("66.9.149.187", 2794, "161.142.100.80", 1766, 0x51cc_c178, 0x323e_8fc2),
    ("199.92.111.2", 14230, "65.69.140.83", 4739, 0xc626_b0ea, 0xd718_262a),
    ("24.19.198.95", 12898, "12.22.207.184", 38024, 0x5c2b_394a, 0xd2d0_a5de),
    ("38.27.205.30", 48228, "209.142.163.6", 2217, 0xafc7_327f, 0x8298_9176),
    ("153.39.163.191", 44251, "202.188.127.2", 1303, 0x10e8_28a2, 0x5d18_09c5),
    ("3ffe:2501:200:1fff::7", 2794, "3ffe:2501:200:3::1", 1766, 0x4020_7d3d, 0x2cc1_8cd5),
    ("3ffe:501:8::260:97ff:fe40:efab", 14230, "ff02::1", 4739, 0xdde5_1bbf, 0x0f0c_461c),
    (
        "3ffe:1900:4545:3:200:f8ff:fe21:67cf",
        44251,
        "fe80::200:f8ff:fe21:67cf",
        38024,
        0x02d1_feef,
        0x4b61_e985,
    ),
];

fn tcp(src: &str, sport: u16, dst: &str, dport: u16) -> FlowKey {
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    FlowKey::five_tuple(proto::TCP, ip(src), sport, ip(dst), dport)
}

fn v4(src: u32, sport: u16, dst: u32, dport: u16) -> FlowKey {
    let [src, dst] = [Ipv4Addr::from_bits(src).into(), Ipv4Addr::from_bits(dst).into()];
    FlowKey::five_tuple(proto::TCP, src, sport, dst, dport)
}

/// Keys as a parser makes them, with absent fields zero.
fn any_key() -> impl Strategy<Value = FlowKey> {
    let fields = (any::<[u8; 16]>(), any::<[u8; 16]>(), any::<u16>(), any::<u16>());
    let kind = (0..4_u8, 0..3_u8, 0..5_u8, any::<[u8; 6]>(), any::<u32>());
    (fields, kind).prop_map(|((src, dst, sport, dport), (family, frag, proto, mac, tunnel_id))| {
        let proto = [proto::TCP, proto::UDP, proto::SCTP, proto::ICMP, proto::GRE][proto as usize];
        let rest = FlowKey { frag, eth_dst: mac, eth_src: mac, tunnel_id, ..FlowKey::ZERO };
        let short = |a: [u8; 16]| std::array::from_fn(|i| if i < 4 { a[i] } else { 0 });
        match family {
            0 => FlowKey { eth_type: 0x0806, ..rest },
            1 => FlowKey { src, dst, sport, dport, proto, eth_type: 0x86dd, ..rest },
            _ => {
                let (src, dst) = (short(src), short(dst));
                FlowKey { src, dst, sport, dport, proto, eth_type: 0x0800, ..rest }
            }
        }
    })
}

#[test]
fn microsofts_vectors() {
    let toeplitz = Toeplitz::new(&MICROSOFT_KEY).unwrap();
    let (with, without) = (HashTypes::default(), HashTypes::with_ports(&[]));
    for (src, sport, dst, dport, l3l4, l3) in VECTORS {
        let key = tcp(src, sport, dst, dport);
        assert_eq!(toeplitz.hash_flow(&key, &with), l3l4, "{key}");
        assert_eq!(toeplitz.hash_flow(&key, &without), l3, "{key}");
        let fragment = FlowKey { frag: 1, ..key };
        assert_eq!(
            toeplitz.hash_flow(&fragment, &with),
            l3,
            "only the addresses of a first fragment are hashed"
        );
        let (input, len) = Fields::input(with.fields(&key), &key);
        assert_eq!(model::hash(&MICROSOFT_KEY, &input[..len]), l3l4, "{key}");
    }
}

#[test]
fn keys_of_a_wrong_length_are_refused() {
    for len in [0, 16, 39, 257] {
        assert_eq!(Toeplitz::new(&vec![1; len]).unwrap_err(), BadKey { len });
    }
    for len in [40, 52, 256] {
        assert!(Toeplitz::new(&vec![1; len]).is_ok());
    }
}

/// Keys with a period of 16 bits are symmetric, and lose entropy.
#[test]
fn the_symmetric_key_collapses_structured_flows() {
    let distinct = |toeplitz: &Toeplitz, keys: &mut dyn Iterator<Item = FlowKey>| {
        let types = HashTypes::default();
        keys.map(|key| toeplitz.hash_flow(&key, &types)).collect::<BTreeSet<_>>().len()
    };
    let microsoft = Toeplitz::new(&MICROSOFT_KEY).unwrap();
    let symmetric = Toeplitz::new(&SYMMETRIC_KEY).unwrap();
    // 256 pairs 10.0.0.i -> 10.0.1.i with equal ports.
    let mirror = || (0..256).map(|i| v4(0x0a00_0000 + i, 5000, 0x0a00_0100 + i, 5000));
    assert_eq!(distinct(&microsoft, &mut mirror()), 256);
    assert_eq!(distinct(&symmetric, &mut mirror()), 1);
    // 2048 flows between two hosts with equal ports, as in RTP.
    let rtp = || (0..2048).map(|i| v4(0x0a00_0001, 10000 + i, 0x0a00_0002, 10000 + i));
    assert_eq!(distinct(&symmetric, &mut rtp()), 1);
    assert_eq!(distinct(&microsoft, &mut rtp()), 2048);
    // Random flows: at most 16 bits of entropy, both halves are equal.
    let mut random = flowyard_frame::Rng::new(7);
    let mut flows = (0..4096).map(|_| {
        let (a, b) = (random.bits(), random.bits());
        v4(a as u32, b as u16, (a >> 32) as u32, (b >> 16) as u16)
    });
    let types = HashTypes::default();
    let hashes: BTreeSet<_> = flows.by_ref().map(|key| symmetric.hash_flow(&key, &types)).collect();
    assert!((3900..4050).contains(&hashes.len()), "{} of 4096 are distinct", hashes.len());
    assert!(hashes.iter().all(|hash| hash >> 16 == hash & 0xffff));
}

#[test]
fn symmetric_xor_is_the_same_both_ways_with_any_key() {
    let toeplitz = Toeplitz::new(&random_key(3)).unwrap();
    let types = HashTypes::default().symmetric_xor(true);
    let key = v4(0x0a00_0001, 40000, 0x0a00_0002, 11211);
    assert_eq!(toeplitz.hash_flow(&key, &types), toeplitz.hash_flow(&key.reversed(), &types));
    // The input, byte by byte: SRC^DST twice, SP^DP twice.
    let x = (40000_u16 ^ 11211).to_be_bytes();
    let input = [0, 0, 0, 3, 0, 0, 0, 3, x[0], x[1], x[0], x[1]];
    assert_eq!(toeplitz.hash_flow(&key, &types), model::hash(toeplitz.key(), &input));
}

proptest! {
    #[test]
    fn tables_are_the_model(
        key in prop::collection::vec(any::<u8>(), 40..=60),
        input in prop::collection::vec(any::<u8>(), 0..=56),
    ) {
        let toeplitz = Toeplitz::new(&key).unwrap();
        let input = &input[..input.len().min(key.len() - 4)];
        prop_assert_eq!(toeplitz.hash(input), model::hash(&key, input));
    }

    #[test]
    fn a_batch_is_the_model_on_every_path(
        hash_key in prop::collection::vec(any::<u8>(), 40..=52),
        keys in prop::collection::vec(any_key(), 0..=32),
        only_ipv4 in any::<bool>(),
        udp in any::<bool>(),
        symmetric_xor in any::<bool>(),
    ) {
        let ports: &[u8] = if udp { &[6, 17, 132] } else { &[6] };
        let types = HashTypes::with_ports(ports).symmetric_xor(symmetric_xor);
        let fast = Toeplitz::new(&hash_key).unwrap();
        let mut batch = batch(keys.into_iter().filter(|key| !only_ipv4 || key.is_ipv4()));
        for toeplitz in [fast.clone().portable(), fast] {
            toeplitz.hash_batch(&types, &mut batch);
            for lane in batch.lanes() {
                let key = &batch.keys[lane];
                let (input, len) = if symmetric_xor {
                    types.fields(key).input(&super::symmetric_xor(key))
                } else {
                    types.fields(key).input(key)
                };
                let slow = model::hash(&hash_key, &input[..len]);
                prop_assert_eq!(batch.frames[lane].hash, slow, "{}, {:?}", toeplitz.path(), key);
            }
        }
    }
}

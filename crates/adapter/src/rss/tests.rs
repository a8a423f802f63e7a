use std::net::Ipv4Addr;

use flowyard_frame::proto;

use super::*;

fn profile(name: &str) -> &'static Profile {
    Profile::find(name).unwrap()
}

fn rss(name: &str, queues: u16) -> Rss {
    Rss::new(profile(name), queues, RssConfig::default()).unwrap()
}

fn tcp(src: [u8; 4], sport: u16, dst: [u8; 4], dport: u16) -> FlowKey {
    let (src, dst) = (Ipv4Addr::from(src), Ipv4Addr::from(dst));
    FlowKey::five_tuple(proto::TCP, src.into(), sport, dst.into(), dport)
}

/// The first row of Microsoft's "Verifying the RSS Hash Calculation".
fn microsoft() -> FlowKey {
    tcp([66, 9, 149, 187], 2794, [161, 142, 100, 80], 1766)
}

#[test]
fn an_x520_sends_microsofts_first_row_to_queue_8() {
    let rss = rss("x520", 16);
    assert_eq!(rss.hash(&microsoft()), Some(0x51cc_c178));
    assert_eq!(rss.queue(rss.hash(&microsoft())), 8, "observed on a real X520");
}

#[test]
fn fragments_and_portless_types_hash_addresses() {
    let rss = rss("82599", 16);
    let two = Some(0x323e_8fc2);
    for key in [
        FlowKey { frag: 1, ..microsoft() },
        FlowKey { frag: 2, sport: 0, dport: 0, ..microsoft() },
        FlowKey { proto: proto::UDP, ..microsoft() },
        FlowKey { proto: proto::SCTP, ..microsoft() },
        FlowKey { proto: proto::GRE, sport: 0, dport: 0, ..microsoft() },
    ] {
        assert_eq!(rss.hash(&key), two, "{key:?}");
    }
    let arp = FlowKey { eth_type: 0x0806, ..microsoft() };
    assert_eq!((rss.hash(&arp), rss.queue(rss.hash(&arp))), (None, 0));
}

#[test]
fn udp_ports_can_be_turned_on_and_nothing_else_on_the_500_series() {
    let with = |flow, fields| RssConfig {
        fields: Some(HashFields::UDP_AND_SCTP_AS_IP.with(flow, fields)),
        ..RssConfig::default()
    };
    let on = with(FlowType::Udp4, Fields::FOUR_TUPLE);
    let rss = Rss::new(profile("82599"), 16, on).unwrap();
    let udp = FlowKey { proto: proto::UDP, ..microsoft() };
    assert_eq!(rss.hash(&udp), Some(0x51cc_c178));
    assert_eq!(rss.hash(&FlowKey { frag: 1, ..udp }), Some(0x323e_8fc2));
    let refused = Rss::new(profile("82599"), 16, with(FlowType::Tcp4, Fields::TWO_TUPLE));
    assert!(refused.unwrap_err().to_string().contains("only UDP can change"));
    let sctp = with(FlowType::Sctp6, Fields::FOUR_TUPLE);
    assert!(Rss::new(profile("virtio"), 4, sctp.clone()).is_err());
    assert!(Rss::new(profile("e810"), 4, sctp).is_ok());
    assert!(Rss::new(profile("e810"), 4, with(FlowType::Ipv4, Fields::FOUR_TUPLE)).is_err());
    assert_eq!(self::rss("x710", 4).hash(&udp), Some(0x51cc_c178), "ports by default");
}

#[test]
fn a_type_that_is_off_goes_to_queue_0() {
    let off = FlowType::ALL.into_iter().fold(HashFields::ALL_PORTS, |f, t| f.with(t, Fields::NONE));
    let config = RssConfig { fields: Some(off), ..RssConfig::default() };
    let rss = Rss::new(profile("virtio"), 4, config).unwrap();
    assert_eq!(rss.hash(&microsoft()), None);
    let explained = rss.explain(&microsoft());
    assert_eq!((explained.hash_type, explained.queue, explained.index), ("none", 0, None));
}

#[test]
fn queues_beyond_the_entries_are_clamped_and_reported() {
    let rss = rss("82599", 32);
    assert_eq!((rss.queues(), rss.clamped_from()), (16, Some(32)));
    assert_eq!(rss.reta().iter().max(), Some(&15));
    assert!(rss.explain(&microsoft()).why.contains("only the first 16 of 32 queues"));
    assert_eq!(self::rss("x550", 63).clamped_from(), None);
    assert_eq!(self::rss("x550", 64).clamped_from(), Some(64));
    assert_eq!(self::rss("x710", 200).clamped_from(), None);
}

#[test]
fn wrong_tables_and_keys_are_refused_with_the_fix() {
    let new = |name, queues, config| Rss::new(profile(name), queues, config).unwrap_err();
    let reta = |reta| RssConfig { reta: Some(reta), ..RssConfig::default() };
    assert_eq!(
        new("82599", 16, reta(vec![0; 512])),
        Error::RetaLength { name: "82599", got: 512, want: 128 }
    );
    let mut wide = vec![0; 128];
    wide[5] = 16;
    let text = new("82599", 32, reta(wide)).to_string();
    assert!(
        text.contains("entry 5 of the indirection table has queue 16") && text.contains("0 to 15"),
        "{text}"
    );
    let short = RssConfig { key: vec![1; 39], ..RssConfig::default() };
    assert!(new("x710", 4, short).to_string().contains("use 40, or 52 as the adapter holds"));
    assert_eq!(new("software", 4, RssConfig::default()), Error::NoRss("software"));
    assert_eq!(new("82599", 0, RssConfig::default()), Error::NoQueues("82599"));
    let xor = RssConfig { hfunc: Some(Hfunc::SymmetricXor), ..RssConfig::default() };
    assert_eq!(new("82599", 4, xor), Error::NoSymmetricXor("82599"));
    let half = RssConfig {
        hfunc: Some(Hfunc::SymmetricXor),
        fields: Some(HashFields::ALL_PORTS.with(FlowType::Tcp4, Fields::SRC_IP)),
        ..RssConfig::default()
    };
    assert!(matches!(new("e810", 4, half), Error::Unpaired { flow: FlowType::Tcp4, .. }));
    let vf = RssConfig { function: Function::Virtual, ..RssConfig::default() };
    assert_eq!(new("virtio", 4, vf.clone()), Error::NoVirtual("virtio"));
    assert_eq!(Rss::new(profile("x710"), 4, vf.clone()).unwrap().reta().len(), 64);
    let long = RssConfig { key: vec![7; 52], ..vf };
    assert!(Rss::new(profile("e810"), 4, long).is_ok());
}

#[test]
fn a_seed_makes_a_key() {
    let keys = [1, 1, 2].map(|seed| RssConfig::seeded(seed).key);
    assert_eq!((keys[0].len(), keys[0] == keys[1], keys[0] == keys[2]), (40, true, false));
}

#[test]
fn symmetric_xor_is_symmetric() {
    let config = RssConfig { hfunc: Some(Hfunc::SymmetricXor), ..RssConfig::default() };
    let rss = Rss::new(profile("e810"), 16, config).unwrap();
    let key = microsoft();
    assert_eq!(rss.hash(&key), rss.hash(&key.reversed()));
    assert_ne!(rss.hash(&key), self::rss("e810", 16).hash(&key));
    let names: Vec<_> = rss.explain(&key).input.iter().map(|f| f.name).collect();
    assert_eq!(names, ["src^dst", "src^dst", "sport^dport", "sport^dport"]);
}

#[test]
fn the_symmetric_key_collapses_patterned_traffic() {
    let config = RssConfig { key: SYMMETRIC_KEY.to_vec(), ..RssConfig::default() };
    let symmetric = Rss::new(profile("82599"), 16, config).unwrap();
    let plain = rss("82599", 16);
    let distinct = |rss: &Rss| {
        let hash = |i| rss.hash(&tcp([10, 0, 0, i], 5000, [10, 0, 1, i], 5000));
        (0..=255).map(hash).collect::<std::collections::HashSet<_>>().len()
    };
    assert_eq!((distinct(&plain), distinct(&symmetric)), (256, 1));
}

#[test]
fn home_addresses_replace_the_headers() {
    let rss = rss("virtio", 4);
    let mut key = FlowKey { eth_type: 0x86dd, proto: proto::TCP, sport: 5, ..FlowKey::ZERO };
    key.src = [1; 16];
    key.dst = [2; 16];
    let home = FlowKey { src: [9; 16], ..key };
    assert_eq!(rss.hash_with(&key, None, None), rss.hash(&key));
    assert_eq!(rss.hash_with(&key, Some([9; 16]), None), rss.hash(&home));
    assert_ne!(rss.hash(&home), rss.hash(&key));
    let without = self::rss("82599", 4);
    assert_eq!(without.hash_with(&key, Some([9; 16]), None), without.hash(&key));
    let v4 = microsoft();
    assert_eq!(rss.hash_with(&v4, Some([9; 16]), None), rss.hash(&v4));
}

#[test]
fn the_explanation_lists_the_hashed_bytes() {
    for (name, hfunc) in
        [("82599", Some(Hfunc::Toeplitz)), ("e810", Some(Hfunc::SymmetricXor)), ("mlx5", None)]
    {
        let rss = Rss::new(profile(name), 8, RssConfig { hfunc, ..RssConfig::default() }).unwrap();
        for proto in [proto::TCP, proto::UDP, proto::SCTP, proto::ICMP] {
            for (eth_type, frag) in [(0x0800, 0), (0x86dd, 0), (0x0800, 1), (0x86dd, 2)] {
                let key = FlowKey { proto, eth_type, frag, ..microsoft() };
                let explained = rss.explain(&key);
                let bytes: Vec<_> = explained.input.iter().flat_map(|f| f.bytes.clone()).collect();
                let mut input = [0; INPUT_MAX];
                let fields = rss.fields.get(FlowType::of(&key).unwrap());
                let len = rss.input(&key, fields, &mut input);
                assert_eq!(bytes, input[..len], "{key:?}");
                assert_eq!(explained.hash, Some(rss.toeplitz.hash(&bytes)));
                assert_eq!(explained.queue, rss.queue(explained.hash));
            }
        }
    }
    let explained = rss("x710", 8).explain(&FlowKey { proto: proto::SCTP, ..microsoft() });
    assert!(explained.why.contains("verification tag"), "{}", explained.why);
    let json = serde_json::to_string(&rss("82599", 16).explain(&microsoft())).unwrap();
    assert!(json.contains(r#""hash_type":"TCP_IPV4""#), "{json}");
}

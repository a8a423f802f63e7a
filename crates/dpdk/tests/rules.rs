//! Rules: a driver that has none refuses with a reason; the stand-in takes some, counts, and refuses others.

use std::net::IpAddr;
use std::sync::Arc;

use flowyard_dpdk::rules::{
    Ask, Capabilities, Device, Hits, Limits, Match, Offer, Place, PortRules, Protocol, Rule, Seen,
    StandIn, SwitchPort,
};
use flowyard_dpdk::{Buffers, Copying, Error, Port, Settings};
use flowyard_testkit::Rng;

use super::devices::{DPDK, eal};

flowyard_testkit::tests! {
    rules_without_a_meaning_are_refused,
    the_table_of_the_stand_in_is_learnt,
    the_stand_in_counts_and_refuses,
    the_stand_in_agrees_with_its_model,
    a_driver_without_rules_refuses_with_a_reason needs [DPDK],
}

fn limits() -> Limits {
    Limits {
        rules: 3,
        queues: 2,
        vlans: false,
        ipv6: true,
        prefixes: false,
        marks: true,
        counts: true,
        switch: None,
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn rule(to: &str, bits: u8, place: Place) -> Rule {
    let offer = Offer { place, mark: None, count: true };
    Rule { to: Some((ip(to), bits)), offer, ..Rule::default() }
}

fn seen(to: &str) -> Seen {
    Seen {
        vlan: None,
        from: ip("10.0.0.1"),
        to: ip(to),
        transport: Some((Protocol::Udp, 5, 53)),
        bytes: 60,
    }
}

fn rules_without_a_meaning_are_refused() {
    let good = rule("10.0.0.2", 32, Place::Drop);
    good.check().unwrap();
    let other = SwitchPort { domain: 1, number: 2 };
    for (bad, wanted) in [
        (Rule { from: Some((ip("::1"), 128)), ..good.clone() }, "different families"),
        (rule("10.0.0.2", 33, Place::Drop), "a prefix is longer"),
        (
            Rule { to: None, protocol: Some(Protocol::Tcp), ..good.clone() },
            "a protocol requires an address",
        ),
        (Rule { to_port: Some(53), ..good.clone() }, "a port requires the protocol"),
        (Rule { vlan: Some(4096), ..good.clone() }, "a VLAN has a number"),
        (
            Rule {
                offer: Offer { place: Place::Port(other), mark: Some(3), count: false },
                ..good.clone()
            },
            "has no mark",
        ),
        (Rule { offer: Offer::default(), ..good }, "the rule does nothing"),
    ] {
        let error = StandIn::new(limits()).create(&bad).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
}

fn the_table_of_the_stand_in_is_learnt() {
    let mut device = StandIn::new(limits());
    let table = Capabilities::learn(&mut device);
    assert_eq!(table.table().len(), Match::ALL.len() * Ask::ALL.len());
    for (of, ask, verdict) in table.table() {
        let is_port = matches!(ask, Ask::Port | Ask::CountPort);
        let accepts = !matches!(of, Match::Vlan | Match::Ipv4Prefix) && !is_port;
        assert_eq!(verdict.is_ok(), accepts, "{of:?} {ask:?} {verdict:?}");
    }
    assert!(table.accepts_any());
    let why = table.of(Match::Vlan, Ask::Drop).unwrap_err().to_string();
    assert_eq!(why, "the stand-in has no VLANs");
    let why = table.of(Match::Udp, Ask::Port).unwrap_err().to_string();
    assert_eq!(why, "the port is not one of an embedded switch");
    let switch = Some(SwitchPort { domain: 1, number: 0 });
    let in_switch = Capabilities::learn(&mut StandIn::new(Limits { switch, ..limits() }));
    assert!(in_switch.of(Match::Udp, Ask::CountPort).is_ok());
    // Nothing was left in the device.
    for last in 1..=3 {
        device.create(&rule(&format!("10.0.0.{last}"), 32, Place::Drop)).unwrap();
    }
    let none = Limits { marks: false, counts: false, ..limits() };
    let table = Capabilities::learn(&mut StandIn::new(none));
    assert!(table.of(Match::Udp, Ask::Queue).is_ok() && table.of(Match::Udp, Ask::Mark).is_err());
    assert!(table.of(Match::Udp, Ask::CountDrop).is_err());
}

fn the_stand_in_counts_and_refuses() {
    let mut device = StandIn::new(limits());
    let drop = device.create(&rule("10.0.0.2", 32, Place::Drop)).unwrap();
    let queue = device.create(&rule("10.0.0.3", 32, Place::Queue(1))).unwrap();
    let third = device.create(&rule("10.0.0.4", 32, Place::Drop)).unwrap();
    let full = device.create(&rule("10.0.0.5", 32, Place::Drop)).unwrap_err().to_string();
    assert_eq!(full, "the stand-in is full: it has 3 rules");
    let none = device.validate(&rule("10.0.0.5", 32, Place::Queue(2))).unwrap_err().to_string();
    let port = Place::Port(SwitchPort { domain: 1, number: 2 });
    let out = device.validate(&rule("10.0.0.5", 32, port)).unwrap_err().to_string();
    assert_eq!(out, "the stand-in has no such port in an embedded switch");
    assert_eq!(none, "the stand-in has no queue of that number");
    for _ in 0..5 {
        assert_eq!(device.receive(&seen("10.0.0.2")).unwrap().0, drop);
        assert_eq!(device.receive(&seen("10.0.0.3")).unwrap().1.offer.place, Place::Queue(1));
        assert_eq!(device.receive(&seen("10.0.0.9")), None);
    }
    let hits = Hits { frames: Some(5), bytes: Some(300) };
    assert_eq!((device.query(drop), device.query(queue)), (Ok(hits), Ok(hits)));
    assert_eq!(device.query(third), Ok(Hits { frames: Some(0), bytes: Some(0) }));
    device.destroy(drop).unwrap();
    assert!(device.destroy(drop).is_err() && device.query(drop).is_err());
    assert_eq!(device.receive(&seen("10.0.0.2")), None);
    device.create(&rule("10.0.0.5", 32, Place::Drop)).unwrap();
}

/// Random rules and frames against a list of rules that is searched from the front.
fn the_stand_in_agrees_with_its_model() {
    let mut rng = Rng::new(7);
    let all = Limits {
        rules: 64,
        queues: 4,
        vlans: true,
        ipv6: true,
        prefixes: true,
        marks: true,
        counts: true,
        switch: None,
    };
    for _ in 0..200 {
        let mut device = StandIn::new(all.clone());
        let mut model = Vec::new();
        for _ in 0..rng.below(20) {
            let bits = [0, 8, 24, 31, 32][rng.below(5) as usize];
            let mut rule =
                rule(&format!("10.0.{}.{}", rng.below(2), rng.below(4)), bits, Place::Drop);
            rule.priority = rng.below(3) as u32;
            if rng.below(2) == 0 {
                (rule.protocol, rule.to_port) =
                    (Some(Protocol::Udp), Some(53 + rng.below(2) as u16));
            }
            model.push((rule.clone(), device.create(&rule).unwrap(), 0));
        }
        for _ in 0..200 {
            let frame = seen(&format!("10.0.{}.{}", rng.below(2), rng.below(4)));
            let fits = |rule: &Rule| {
                let (Some((IpAddr::V4(net), bits)), IpAddr::V4(to)) = (rule.to, frame.to) else {
                    return false;
                };
                let mask = if bits == 0 { 0 } else { u32::MAX << (32 - bits) };
                u32::from(net) & mask == u32::from(to) & mask
                    && rule.to_port.is_none_or(|port| port == 53)
            };
            let best = (0..model.len())
                .filter(|at| fits(&model[*at].0))
                .min_by_key(|at| model[*at].0.priority);
            let found = device.receive(&frame).map(|(id, _)| id);
            assert_eq!(found, best.map(|at| model[at].1));
            if let Some(at) = best {
                model[at].2 += 1;
            }
        }
        for (_, id, hits) in model {
            assert_eq!(device.query(id), Ok(Hits { frames: Some(hits), bytes: Some(60 * hits) }));
        }
    }
}

fn a_driver_without_rules_refuses_with_a_reason() {
    let settings = Settings { queues: 1, rx_frames: 64, tx_frames: 64, mtu: 0 };
    let choose =
        |_: &_| Ok::<_, Error>(Buffers::Copying(Arc::new(Copying::new(eal(), 512, 2048)?)));
    let queues = Port::open(eal(), "net_null30", &settings, choose).unwrap();
    let mut rules = PortRules::new(queues[0].port());
    let drop = rule("10.0.0.2", 32, Place::Drop);
    for result in [rules.validate(&drop).map(|()| None), rules.create(&drop).map(Some)] {
        let why = result.unwrap_err().to_string();
        assert!(why.starts_with("net_null refused to ") && why.contains(": "), "{why}");
    }
    let table = Capabilities::learn(&mut rules);
    assert!(!table.accepts_any());
    // A driver that reports no embedded switch, asked all the same.
    assert_eq!(rules.switch_port(), None);
    let out = rule("10.0.0.2", 32, Place::Port(SwitchPort { domain: 1, number: 0 }));
    let why = rules.validate(&out).unwrap_err().to_string();
    assert!(why.starts_with("net_null refused to "), "{why}");
}

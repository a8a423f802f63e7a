//! Datagrams that are placed one by one.

use std::collections::BTreeSet;

use super::*;
use crate::Persistence;

const VIP: [u8; 4] = [192, 0, 2, 1];

fn dns(mode: Mode, choice: Choice, one_packet: bool) -> Service {
    let mut service = service("dns", VIP.into(), proto::UDP, 53..=53, mode);
    (service.choice, service.one_packet) = (choice, one_packet);
    service.backends = (1..=4).map(|n| backend(n, IpAddr::from([10, 0, 1, n]), None)).collect();
    service
}

fn flow(port: u16) -> FlowKey {
    FlowKey::five_tuple(proto::UDP, ip("203.0.113.7"), port, VIP.into(), 53)
}

fn send(work: &mut Balance, key: &FlowKey) -> To {
    balance(work, &Build::new(key).payload(&[7; 20]).bytes()).0.to
}

#[test]
fn datagrams_of_one_port_go_to_all_backends_and_enter_nothing() {
    for mode in [Mode::Dsr, Mode::Dnat, Mode::Ipip, Mode::Gue] {
        let (hub, mut works) = group(vec![dns(mode, Choice::RoundRobin, true)], 2);
        let tos: Vec<_> = (0..8).map(|_| send(&mut works[0], &flow(9))).collect();
        let different: BTreeSet<_> = tos.iter().map(|to| format!("{to:?}")).collect();
        assert_eq!((different.len(), &tos[..4]), (4, &tos[4..]), "{mode:?}");
        assert!(hub.occupancy().iter().all(|of| of.connections == 0));
        let counts = hub.states()[0].counts;
        assert_eq!((counts.connections, counts.in_packets), (0, 8));
        // The hash of a flow is always the same.
        let mut by_hash = group(vec![dns(mode, Choice::Maglev, true)], 1).1.remove(0);
        let first = send(&mut by_hash, &flow(9));
        assert!((0..5).all(|_| send(&mut by_hash, &flow(9)) == first));
    }
}

#[test]
fn replies_are_translated_and_other_packets_of_a_backend_are_not() {
    let (hub, mut works) = group(vec![dns(Mode::Dnat, Choice::RoundRobin, true)], 2);
    let reply = |n: u8, port: u16| {
        let from = IpAddr::from([10, 0, 1, n]);
        FlowKey::five_tuple(proto::UDP, from, 53, ip("203.0.113.7"), port)
    };
    for (n, port) in [(1, 9), (4, 9)] {
        assert_eq!(send(&mut works[0], &reply(n, port)), To::Port(50), "nobody has asked");
    }
    assert_eq!(hub.explain(&reply(1, 9), 5).why, Because::NotAsked);
    send(&mut works[0], &flow(9));
    assert_eq!(hub.explain(&reply(1, 9), 5).why, Because::Answer);
    for core in [0, 1] {
        let (action, got) =
            balance(&mut works[core], &Build::new(&reply(1, 9)).payload(&[1; 9]).bytes());
        assert_eq!(action.to, To::Port(40));
        let want = with_macs(flow(9).flow().reversed(), CLIENTS);
        assert_eq!(got, Build::new(&want).ttl(63).payload(&[1; 9]).bytes());
    }
    assert_eq!(send(&mut works[0], &reply(1, 10)), To::Port(50), "another port");
    assert_eq!(hub.states()[0].counts.out_packets, 2);
    // After the time of a connection of UDP, it is no reply any more.
    let late = hub.explain(&reply(1, 9), 121_000_000_000);
    assert_eq!(late.why, Because::NotAsked);
}

#[test]
fn a_reload_applies_to_flows_that_have_entries() {
    let (hub, mut works) = group(vec![dns(Mode::Dsr, Choice::RoundRobin, false)], 1);
    let first = send(&mut works[0], &flow(9));
    assert!((0..4).all(|_| send(&mut works[0], &flow(9)) == first));
    hub.set(vec![dns(Mode::Dsr, Choice::RoundRobin, true)], 1).unwrap();
    let tos: BTreeSet<_> = (0..4).map(|_| format!("{:?}", send(&mut works[0], &flow(9)))).collect();
    assert_eq!(tos.len(), 4);
    assert_eq!(hub.explain(&flow(9), 5).why, Because::Turns);
    hub.set(vec![dns(Mode::Dsr, Choice::RoundRobin, false)], 2).unwrap();
    let first = send(&mut works[0], &flow(9));
    assert!((0..4).all(|_| send(&mut works[0], &flow(9)) == first));
}

#[test]
fn networks_keep_their_backend_for_single_datagrams() {
    let mut service = dns(Mode::Dsr, Choice::RoundRobin, true);
    service.persist = Some(Persistence {
        timeout: 300_000_000_000,
        mask_v4: 24,
        mask_v6: 64,
        networks: 64,
        keeps_drained: true,
    });
    let (_, mut works) = group(vec![service], 2);
    let first = send(&mut works[0], &flow(9));
    for port in 10..30 {
        assert_eq!(send(&mut works[usize::from(port % 2)], &flow(port)), first);
    }
}

#[test]
fn a_service_without_backends_drops_with_a_reason() {
    let mut service = dns(Mode::Dnat, Choice::Maglev, true);
    service.backends.clear();
    let (hub, mut works) = group(vec![service], 1);
    assert_eq!(send(&mut works[0], &flow(1)), To::Drop(DropReason::NoBackend.code()));
    assert_eq!(hub.states()[0].counts.dropped(), 1);
}

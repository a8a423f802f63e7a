use crate::{HEAVIEST, Sum};

use super::*;
use crate::Because;

fn tcp(client: u8, port: u16, flags: u8) -> Vec<u8> {
    let key = FlowKey::five_tuple(
        proto::TCP,
        ip(&format!("203.0.113.{client}")),
        port,
        ip("192.0.2.1"),
        80,
    );
    Build::new(&FlowKey { tcp_flags: flags, ..key }).payload(&[7; 100]).bytes()
}

fn flow(client: u8, port: u16) -> FlowKey {
    FlowKey::five_tuple(proto::TCP, ip(&format!("203.0.113.{client}")), port, ip("192.0.2.1"), 80)
}

fn web(choice: Choice, mode: Mode) -> Service {
    let mut service = service("web", ip("192.0.2.1"), proto::TCP, 80..=80, mode);
    service.choice = choice;
    service.backends = (1..=3).map(|n| backend(n, ip(&format!("10.0.1.{n}")), None)).collect();
    service
}

fn sums(hub: &Hub) -> (Sum, Vec<Sum>) {
    let state = &hub.states()[0];
    (state.counts, state.backends.iter().map(|backend| backend.counts).collect())
}

#[test]
fn every_packet_is_counted_once_for_its_backend() {
    let (hub, mut works) = group(vec![web(Choice::RoundRobin, Mode::Dnat)], 2);
    let (mut sent, mut bytes, mut back, mut back_bytes) = ([0u64; 3], [0u64; 3], [0u64; 3], 0u64);
    for client in 0..60 {
        let work = &mut works[usize::from(client) % 2];
        for flags in [FlowKey::SYN, FlowKey::ACK, FlowKey::ACK] {
            let data = tcp(client, 4000, flags);
            let (action, got) = balance(work, &data);
            let To::Port(port @ 1..=3) = action.to else { panic!("{action:?}") };
            let at = usize::from(port) - 1;
            (sent[at], bytes[at]) = (sent[at] + 1, bytes[at] + data.len() as u64);
            if flags == FlowKey::SYN {
                let key = parse::key(&Headers::parse(LinkType::Ethernet, &got), &got, 0);
                let answer = Build::new(&key.flow().reversed()).payload(&[1; 500]).bytes();
                assert_eq!(balance(work, &answer).0.to, To::Port(40));
                (back[at], back_bytes) = (back[at] + 1, back_bytes + answer.len() as u64);
            }
        }
    }
    let (all, each) = sums(&hub);
    for at in 0..3 {
        assert_eq!((each[at].connections, each[at].in_packets), (20, sent[at]), "{at}");
        assert_eq!((each[at].in_bytes, each[at].out_packets), (bytes[at], back[at]), "{at}");
    }
    assert_eq!((all.connections, all.in_packets, all.out_packets), (60, 180, 60));
    assert_eq!((all.out_bytes, all.dropped()), (back_bytes, 0));
    assert_eq!(hub.states()[0].backends.iter().map(|b| b.active).sum::<u32>(), 60);
    assert_eq!(
        hub.occupancy().iter().map(|of| (of.connections, of.opening)).collect::<Vec<_>>(),
        [(30, 0); 2]
    );
}

#[test]
fn fullnat_replies_are_counted_for_their_backend() {
    let (hub, mut works) = group(vec![web(Choice::Maglev, Mode::FullNat)], 1);
    let (action, got) = balance(&mut works[0], &tcp(1, 4000, FlowKey::SYN));
    let To::Port(port) = action.to else { panic!("{action:?}") };
    let key = parse::key(&Headers::parse(LinkType::Ethernet, &got), &got, 0);
    let answer = Build::new(&key.flow().reversed()).payload(&[1; 500]).bytes();
    assert_eq!(balance(&mut works[0], &answer).0.to, To::Port(40));
    let (_, each) = sums(&hub);
    let of = each[usize::from(port) - 1];
    assert_eq!((of.in_packets, of.out_packets, of.out_bytes), (1, 1, answer.len() as u64));
}

#[test]
fn drops_are_counted_for_the_backend_or_else_for_the_service() {
    let with = Service { mtu: Some(100), ..web(Choice::Maglev, Mode::Dsr) };
    let (hub, mut works) = group(vec![with], 1);
    assert!(balance(&mut works[0], &tcp(1, 4000, FlowKey::SYN)).0.to.is_drop());
    let too_long = usize::from(DropReason::TooLong.code());
    let (all, each) = sums(&hub);
    assert_eq!((all.drops[too_long], each.iter().map(Sum::dropped).sum::<u64>()), (1, 1));
    for name in ["b1", "b2", "b3"] {
        hub.drain("web", name, true, 9).unwrap();
    }
    assert!(balance(&mut works[0], &tcp(2, 4000, FlowKey::SYN)).0.to.is_drop());
    let none = usize::from(DropReason::NoBackend.code());
    let (all, each) = sums(&hub);
    assert_eq!((all.drops[none], each.iter().map(Sum::dropped).sum::<u64>()), (1, 1));
    // The existing connection stays, and its packet is still too long.
    assert!(balance(&mut works[0], &tcp(1, 4000, FlowKey::ACK)).0.to.is_drop());
    assert_eq!(sums(&hub).0.drops[too_long], 2);
}

#[test]
fn a_drained_backend_keeps_its_connections_and_its_counters() {
    let (hub, mut works) = group(vec![web(Choice::Maglev, Mode::Dsr)], 1);
    let first: Vec<To> =
        (0..50).map(|c| balance(&mut works[0], &tcp(c, 1, FlowKey::SYN)).0.to).collect();
    hub.drain("web", "b1", true, 6).unwrap();
    hub.set_weight("web", "b2", Some(HEAVIEST), 6).unwrap();
    let again: Vec<To> =
        (0..50).map(|c| balance(&mut works[0], &tcp(c, 1, FlowKey::ACK)).0.to).collect();
    assert_eq!(first, again);
    let fresh: Vec<To> =
        (0..50).map(|c| balance(&mut works[0], &tcp(c, 2, FlowKey::SYN)).0.to).collect();
    assert!(!fresh.contains(&To::Port(1)), "{fresh:?}");
    let (all, each) = sums(&hub);
    assert_eq!((all.connections, all.in_packets), (100, 150));
    assert_eq!(each[0].in_packets, 2 * each[0].connections);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The explanation of a flow agrees with what happens to its packets.
    #[test]
    fn the_explanation_agrees_with_the_data_path(
        which in 0usize..8, clients in prop::collection::vec((1u8..200, 1u16..9), 1..20), down in 0u8..5, drained in 0u8..5,
    ) {
        let choice = [
            Choice::Maglev, Choice::SourceHash, Choice::RoundRobin, Choice::LeastConnections, Choice::WeightedLeast,
            Choice::NeverQueue, Choice::Failover, Choice::Overflow,
        ][which];
        let mut service = web(choice, Mode::Dsr);
        (0..).zip(&mut service.backends).for_each(|(n, backend)| backend.weight = 1 + n % 2 * 4);
        let (hub, mut works) = group(vec![service], 2);
        let change = |hub: &Hub| {
            let _ = hub.set_up("web", &format!("b{down}"), false, 7);
            let _ = hub.drain("web", &format!("b{drained}"), true, 7);
        };
        for (turn, &(client, port)) in clients.iter().enumerate() {
            if turn == clients.len() / 2 {
                change(&hub);
            }
            let explained = hub.explain(&flow(client, port), 5);
            let before = explained.backend.and_then(|id| explained.plan.target(id)).map(|target| target.exit.port);
            let core = turn % 2;
            let is_new = !matches!(explained.why, Because::Kept(_));
            let (action, _) = balance(&mut works[core], &tcp(client, port, if is_new { FlowKey::SYN } else { FlowKey::ACK }));
            match (explained.why, before) {
                (Because::NoBackend, None) => prop_assert!(action.to.is_drop()),
                (Because::Full, None) => {
                    prop_assert_eq!(choice, Choice::Overflow);
                    prop_assert_eq!(action.to, To::Drop(DropReason::BackendLimit.code()));
                }
                (Because::Turns, None) => prop_assert!(matches!(action.to, To::Port(1..=3))),
                (_, Some(port)) => prop_assert_eq!(action.to, To::Port(port)),
                (why, None) => prop_assert!(false, "{:?}", why),
            }
            let after = hub.explain(&flow(client, port), 5);
            let To::Port(port) = action.to else { continue };
            prop_assert!(matches!(after.why, Because::Kept(_)), "{:?}", after.why);
            let target = after.backend.and_then(|id| after.plan.target(id)).unwrap();
            prop_assert_eq!(target.exit.port, port);
        }
    }
}

/// One core has an entry with a removed backend, and another core has chosen a new backend since: the newer
/// entry is reported.
#[test]
fn of_two_entries_the_usable_one_is_reported() {
    let (hub, mut works) = group(vec![web(Choice::SourceHash, Mode::Dsr)], 2);
    let To::Port(first) = balance(&mut works[0], &tcp(1, 1, FlowKey::SYN)).0.to else { panic!() };
    let _ = hub.set_up("web", &format!("b{first}"), false, 7);
    let To::Port(second) = balance(&mut works[1], &tcp(1, 1, FlowKey::ACK)).0.to else { panic!() };
    assert_ne!(first, second);
    let explained = hub.explain(&flow(1, 1), 8);
    let Because::Kept(kept) = &explained.why else { panic!("{:?}", explained.why) };
    let target = explained.plan.target(kept.backend).unwrap();
    assert_eq!((kept.core, target.exit.port), (1, second));
    // The first core queries the other before it chooses.
    assert_eq!(balance(&mut works[0], &tcp(1, 1, FlowKey::ACK)).0.to, To::Port(second));
}

#[test]
fn packets_of_no_service_are_explained() {
    let (hub, mut works) = group(vec![web(Choice::Maglev, Mode::Dnat)], 1);
    let because = |text: &str| hub.explain(&text.parse().unwrap(), 5).why;
    assert_eq!(because("tcp 1.2.3.4:5 > 192.0.2.1:81"), Because::NoService { is_vip: true });
    assert_eq!(because("udp 1.2.3.4:5 > 192.0.2.1:80"), Because::NoService { is_vip: true });
    assert_eq!(because("tcp 1.2.3.4:5 > 192.0.2.2:80"), Because::NoService { is_vip: false });
    assert_eq!(because("tcp 10.0.1.2:80 > 1.2.3.4:5"), Because::NotAsked);
    let To::Port(port) = balance(&mut works[0], &tcp(1, 4000, FlowKey::SYN)).0.to else { panic!() };
    for other in 1..=3 {
        let answered = because(&format!("tcp 10.0.1.{other}:80 > 203.0.113.1:4000"));
        assert_eq!(answered, if other == port { Because::Answer } else { Because::NotAsked });
    }
    let explained = hub.explain(&flow(1, 1), 5);
    assert_eq!(
        (explained.why, explained.entries, explained.fall_back),
        (Because::Entry, 251, explained.backend)
    );
    assert_eq!(explained.checksum, hub.states()[0].checksum);
}

#[test]
fn a_full_table_drops_new_connections_only_if_that_is_configured() {
    for full_drops in [false, true] {
        let hub =
            Arc::new(Hub::new(Control::new(vec![web(Choice::Maglev, Mode::Dsr)], 251, 7).unwrap()));
        let settings = BalanceSettings { connections: 4, full_drops, ..settings() };
        let mut work = Balance::group(&hub, 1, &settings).remove(0);
        let mut send = |port, flags| balance(&mut work, &tcp(1, port, flags)).0.to;
        for port in 1..=4 {
            for flags in [FlowKey::SYN, FlowKey::ACK] {
                assert!(matches!(send(port, flags), To::Port(_)));
            }
        }
        assert_eq!(hub.occupancy()[0].connections, 4);
        match send(5, FlowKey::SYN) {
            To::Drop(reason) => {
                assert!(full_drops);
                assert_eq!(reason, DropReason::NoConnection.code());
            }
            to => assert!(!full_drops && matches!(to, To::Port(_)), "{to:?}"),
        }
    }
}

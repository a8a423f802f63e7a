//! Two services whose backends have one address and port (dnat).

use super::*;

const VIPS: [[u8; 4]; 2] = [[192, 0, 2, 1], [192, 0, 2, 2]];

/// Two services with the same `backends` backends, of which each has the port 8080.
fn both(proto: u8, backends: u8) -> Vec<Service> {
    let one = |at: usize| {
        let mut one = service(["web", "shop"][at], VIPS[at].into(), proto, 80..=80, Mode::Dnat);
        let backend = |n: u8| Backend {
            name: format!("b{n}"),
            ..backend(n + 10 * at as u8, IpAddr::from([10, 0, 1, n]), Some(8080))
        };
        one.backends = (1..=backends).map(backend).collect();
        one
    };
    vec![one(0), one(1)]
}

fn flow(proto: u8, at: usize, port: u16) -> FlowKey {
    FlowKey::five_tuple(proto, ip("203.0.113.7"), port, VIPS[at].into(), 80)
}

fn reply(proto: u8, backend: u8, port: u16) -> FlowKey {
    FlowKey::five_tuple(proto, IpAddr::from([10, 0, 1, backend]), 8080, ip("203.0.113.7"), port)
}

fn send(work: &mut Balance, key: &FlowKey, flags: u8) -> To {
    balance(work, &Build::new(key).flags(flags).bytes()).0.to
}

const AMBIGUOUS: To = To::Drop(DropReason::Ambiguous.code());
const NOT_ASKED: To = To::Port(50);

/// The VIP from which the client gets this reply.
fn from(work: &mut Balance, key: &FlowKey, flags: u8) -> Option<IpAddr> {
    let (action, got) = balance(work, &Build::new(key).flags(flags).bytes());
    assert!(right(&got));
    let parsed = parse::key(&Headers::parse(LinkType::Ethernet, &got), &got, 0);
    (action.to == To::Port(40)).then(|| parsed.src_ip().unwrap())
}

#[test]
fn replies_return_from_the_address_that_was_asked() {
    for proto in [proto::TCP, proto::UDP, proto::SCTP] {
        let (hub, mut works) = group(both(proto, 1), 2);
        for port in 1..60u16 {
            let at = usize::from(port % 2);
            let flags = if proto == proto::TCP { FlowKey::SYN } else { 0 };
            assert_eq!(
                send(&mut works[0], &flow(proto, at, port), flags),
                To::Port(1 + 10 * at as u16)
            );
        }
        for port in 1..60u16 {
            let at = usize::from(port % 2);
            for core in [0, 1] {
                let got = from(&mut works[core], &reply(proto, 1, port), FlowKey::ACK);
                assert_eq!(got, Some(VIPS[at].into()), "{port} {core}");
            }
            let said = hub.explain(&reply(proto, 1, port), 5);
            assert_eq!((said.why, said.service), (Because::Answer, Some(at as u16)));
        }
        assert_eq!(send(&mut works[0], &reply(proto, 1, 99), 0), NOT_ASKED);
        assert_eq!(hub.explain(&reply(proto, 1, 99), 5).why, Because::NotAsked);
        let out: Vec<_> = hub.states().iter().map(|state| state.counts.out_packets).collect();
        assert_eq!(out, [58, 60]);
    }
}

#[test]
fn one_port_of_a_client_gets_another_backend_by_the_other_address() {
    let (hub, mut works) = group(both(proto::TCP, 2), 2);
    for port in 1..60u16 {
        let first = send(&mut works[0], &flow(proto::TCP, 0, port), FlowKey::SYN);
        let second = send(&mut works[1], &flow(proto::TCP, 1, port), FlowKey::SYN);
        let [To::Port(a), To::Port(b)] = [first, second] else { panic!("{first:?} {second:?}") };
        assert_ne!(a, b - 10, "{port}");
        for (at, backend) in [(0, a), (1, b - 10)] {
            let got = from(&mut works[at], &reply(proto::TCP, backend as u8, port), FlowKey::ACK);
            assert_eq!(got, Some(VIPS[at].into()));
        }
    }
    let ambiguous: Vec<_> = hub.states().iter().map(|state| state.counts.ambiguous).collect();
    assert!(ambiguous[0] == 0 && (15..45).contains(&ambiguous[1]), "{ambiguous:?}");
}

#[test]
fn without_another_backend_the_second_connection_is_dropped_until_the_first_closes() {
    let (hub, mut works) = group(both(proto::TCP, 1), 2);
    let (web, shop) = (flow(proto::TCP, 0, 7), flow(proto::TCP, 1, 7));
    assert_eq!(send(&mut works[0], &web, FlowKey::SYN), To::Port(1));
    assert_eq!(send(&mut works[0], &web, FlowKey::ACK), To::Port(1));
    for core in [0, 1] {
        for flags in [FlowKey::SYN, FlowKey::ACK] {
            assert_eq!(send(&mut works[core], &shop, flags), AMBIGUOUS);
        }
    }
    let counts = hub.states()[1].counts;
    assert_eq!((counts.drops[usize::from(DropReason::Ambiguous.code())], counts.ambiguous), (4, 4));
    assert_eq!(send(&mut works[0], &flow(proto::TCP, 1, 8), FlowKey::SYN), To::Port(11));
    assert_eq!(send(&mut works[0], &web, FlowKey::ACK | FlowKey::FIN), To::Port(1));
    assert_eq!(send(&mut works[1], &shop, FlowKey::SYN), To::Port(11));
    let got = from(&mut works[0], &reply(proto::TCP, 1, 7), FlowKey::ACK);
    assert_eq!(got, Some(VIPS[1].into()));
    let active: Vec<_> = hub.states().iter().map(|state| state.backends[0].active).collect();
    assert_eq!(active, [0, 2]);
    // A late packet of the first connection must not replace the second one.
    assert_eq!(send(&mut works[0], &web, FlowKey::ACK), AMBIGUOUS);
}

#[test]
fn errors_about_packets_of_clients_name_the_address_that_was_asked() {
    let (_, mut works) = group(both(proto::UDP, 1), 1);
    for at in [0, 1] {
        let key = flow(proto::UDP, at, 20 + at as u16);
        let (_, there) = balance(&mut works[0], &Build::new(&key).payload(&[1; 40]).bytes());
        let about = error_quoting(&there, ip("10.0.1.254"), ip("203.0.113.7"), (3, 1));
        let (action, got) = balance(&mut works[0], &about);
        assert_eq!(action.to, To::Port(40));
        let parsed = parse::key(&Headers::parse(LinkType::Ethernet, &got), &got, 0);
        assert_eq!(parsed.src_ip(), Some(VIPS[at].into()));
    }
}

#[test]
fn single_datagrams_of_one_port_to_both_are_counted_as_ambiguous() {
    let mut services = both(proto::UDP, 1);
    services.iter_mut().for_each(|service| service.one_packet = true);
    let (hub, mut works) = group(services, 1);
    send(&mut works[0], &flow(proto::UDP, 1, 5), 0);
    assert_eq!(from(&mut works[0], &reply(proto::UDP, 1, 5), 0), Some(VIPS[1].into()));
    assert_eq!(hub.states()[0].counts.ambiguous, 0);
    send(&mut works[0], &flow(proto::UDP, 0, 5), 0);
    assert_eq!(from(&mut works[0], &reply(proto::UDP, 1, 5), 0), Some(VIPS[0].into()));
    assert_eq!(hub.states()[0].counts.ambiguous, 1);
    assert_eq!(hub.states().iter().map(|state| state.counts.out_packets).sum::<u64>(), 2);
}

/// A range of ports without translation, and a service whose backend has one of them.
#[test]
fn a_port_of_a_range_may_be_that_of_another_service() {
    let mut range = service("range", VIPS[0].into(), proto::TCP, 5000..=5010, Mode::Dnat);
    range.backends = vec![backend(1, ip("10.0.1.1"), None)];
    let mut one = service("one", VIPS[1].into(), proto::TCP, 80..=80, Mode::Dnat);
    one.backends = vec![backend(2, ip("10.0.1.1"), Some(5005))];
    let (_, mut works) = group(vec![range, one], 1);
    let client = ip("203.0.113.7");
    for (vip, port, sport) in [(0, 5004, 1), (0, 5005, 2), (1, 80, 3), (0, 5010, 4)] {
        let key = FlowKey::five_tuple(proto::TCP, client, sport, VIPS[vip].into(), port);
        assert_eq!(send(&mut works[0], &key, FlowKey::SYN), To::Port(1 + vip as u16));
        let at = if vip == 1 { 5005 } else { port };
        let back = FlowKey::five_tuple(proto::TCP, ip("10.0.1.1"), at, client, sport);
        let (_, got) = balance(&mut works[0], &Build::new(&back).flags(FlowKey::ACK).bytes());
        let parsed = parse::key(&Headers::parse(LinkType::Ethernet, &got), &got, 0);
        assert_eq!((parsed.src_ip(), parsed.sport), (Some(VIPS[vip].into()), port));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    /// Whatever clients send to either address, by any core: a client's port has at most one connection to a backend's port,
    /// and each reply returns from the address of that connection.
    #[test]
    fn no_reply_comes_from_the_wrong_address(
        backends in 1u8..4, steps in prop::collection::vec((1u16..6, 0usize..2, 0usize..2, 0usize..3), 1..80),
    ) {
        let (hub, mut works) = group(both(proto::TCP, backends), 2);
        for (port, at, core, what) in steps {
            let flags = [FlowKey::SYN, FlowKey::ACK, FlowKey::FIN | FlowKey::ACK][what];
            let to = send(&mut works[core], &flow(proto::TCP, at, port), flags);
            let To::Port(number) = to else {
                prop_assert_eq!(to, AMBIGUOUS);
                continue;
            };
            let chosen = (number - 10 * at as u16) as u8;
            prop_assert!((1..=backends).contains(&chosen));
            let got = from(&mut works[1 - core], &reply(proto::TCP, chosen, port), FlowKey::ACK);
            prop_assert_eq!(got, Some(IpAddr::from(VIPS[at])));
        }
        let held: u64 = hub.states().iter().flat_map(|state| state.backends.iter().map(|is| u64::from(is.active))).sum();
        // Five ports to two addresses, and a closing connection beside each.
        prop_assert!(held <= 20);
    }
}

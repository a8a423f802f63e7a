//! Connections as they are listed for users.

use std::collections::BTreeSet;

use super::*;
use crate::{Connection, Filter, Network, State, StateFilter};

fn web(mode: Mode) -> Service {
    let mut service = service("web", ip("192.0.2.1"), proto::TCP, 80..=80, mode);
    service.backends = (1..=3).map(|n| backend(n, ip(&format!("10.0.1.{n}")), None)).collect();
    service
}

fn names() -> Service {
    let mut service = service("names", ip("2001:db8::80"), proto::UDP, 53..=53, Mode::Dsr);
    service.backends = vec![backend(4, ip("2001:db8:1::4"), None)];
    service
}

fn client(number: u16) -> FlowKey {
    let [a, b] = number.to_be_bytes();
    FlowKey::five_tuple(proto::TCP, IpAddr::from([10, 1, a, b]), 7, ip("192.0.2.1"), 80)
}

fn asks(number: u16) -> FlowKey {
    let from = ip(&format!("2001:db8:5:{number:x}::1"));
    FlowKey::five_tuple(proto::UDP, from, 9, ip("2001:db8::80"), 53)
}

fn listed(hub: &Hub, filter: Filter) -> Vec<Connection> {
    let mut all = Vec::new();
    let examined = hub.list(&hub.plan(), &filter, 5, &|| false, &mut |one| all.push(*one));
    assert!(examined >= all.len() as u64);
    all
}

/// Two cores with connections of two services; every third of TCP has got a second packet, and every fifth a FIN.
fn busy() -> (Arc<Hub>, Vec<Balance>) {
    let (hub, mut works) = group(vec![web(Mode::Dsr), names()], 2);
    for n in 0..600 {
        let work = &mut works[usize::from(n) % 2];
        balance(work, &Build::new(&client(n)).flags(FlowKey::SYN).bytes());
        if n % 3 == 0 {
            balance(work, &Build::new(&client(n)).flags(FlowKey::ACK).bytes());
        }
        if n % 5 == 0 {
            balance(work, &Build::new(&client(n)).flags(FlowKey::FIN | FlowKey::ACK).bytes());
        }
        if n < 50 {
            balance(work, &Build::new(&asks(n)).bytes());
        }
    }
    (hub, works)
}

#[test]
fn every_connection_is_listed_once_with_its_backend_and_core() {
    let (hub, works) = busy();
    let all = listed(&hub, Filter::default());
    assert_eq!(all.len(), 650);
    let flows: BTreeSet<_> = all.iter().map(|one| one.flow.to_string()).collect();
    assert_eq!(flows.len(), 650);
    let plan = hub.plan();
    for one in &all {
        let explained = hub.explain(&one.flow, 5);
        assert_eq!((Some(one.backend), one.service), (explained.backend, explained.service));
        let target = plan.target(one.backend).unwrap();
        assert_eq!(one.service, Some(target.service));
        let own = works[usize::from(one.core)].table(one.core.into()).unwrap();
        let key = ConnKey::of(&one.flow);
        assert!(own.find(&key, key.hash(plan.seed()), 5).is_some());
        assert!(one.local.is_none() && !one.is_copy && !one.is_in_front);
    }
}

#[test]
fn filters_restrict_what_is_listed_and_can_be_combined() {
    let (hub, _works) = busy();
    let all = listed(&hub, Filter::default());
    let plan = hub.plan();
    let network = |text: &str, bits| Network::new(ip(text), bits);
    let states =
        [State::Opening, State::Open, State::Closing, State::Datagrams].map(StateFilter::Is);
    let stands =
        states.into_iter().chain([StateFilter::Established(true), StateFilter::Established(false)]);
    let networks = [
        network("10.1.2.0", 24),
        network("10.1.0.9", 32),
        network("10.0.0.0", 8),
        network("0.0.0.0", 0),
        network("::", 0),
        network("2001:db8:5:8::", 61),
    ];
    let backends = plan.services().iter().flat_map(|table| plan.members(table)).map(|t| t.id);
    let backends: Vec<_> = backends.map(Some).chain([None]).collect();
    let mut kinds = BTreeSet::new();
    for stand in stands.map(Some).chain([None]) {
        for client in networks.into_iter().chain([None]) {
            for &backend in &backends {
                for service in [Some(0), Some(1), Some(2), None] {
                    let filter = Filter { service, backend, client, state: stand };
                    let fits = |one: &&Connection| {
                        let addr = one.flow.src_ip().unwrap();
                        service.is_none_or(|service| one.service == Some(service))
                            && backend.is_none_or(|backend| one.backend == backend)
                            && client.is_none_or(|network| {
                                Network::new(addr, network.bits) == Some(network)
                            })
                            && match stand {
                                None => true,
                                Some(StateFilter::Is(state)) => one.state == state,
                                Some(StateFilter::Established(is)) => one.is_established == is,
                            }
                    };
                    let want = all.iter().filter(fits).count();
                    assert_eq!(listed(&hub, filter).len(), want, "{filter:?}");
                    kinds.insert(want);
                }
            }
        }
    }
    // By hand: 40 of 600 got all three packets, 80 a FIN as their second one, and 160 an ACK alone.
    let of = |state| {
        listed(&hub, Filter { state: Some(StateFilter::Is(state)), ..Filter::default() }).len()
    };
    let counts = [State::Opening, State::Open, State::Closing, State::Datagrams].map(of);
    assert_eq!(counts, [320, 160, 120, 50]);
    assert!(kinds.len() > 20, "{kinds:?}");
    assert_eq!((network("10.0.0.0", 33), network("::", 129)), (None, None));
}

#[test]
fn copies_and_local_ports_are_shown_and_removed_services_are_not_named() {
    let (hub, mut works) = group(vec![web(Mode::Dnat)], 2);
    for work in &mut works {
        balance(work, &Build::new(&client(1)).flags(FlowKey::SYN).bytes());
    }
    let both: Vec<_> = listed(&hub, Filter::default());
    assert_eq!(both.iter().map(|one| (one.core, one.is_copy)).collect::<Vec<_>>(), {
        [(0, true), (1, false)]
    });
    hub.set(vec![names()], 5).unwrap();
    let left = listed(&hub, Filter::default());
    assert!(left.len() == 2 && left.iter().all(|one| one.service.is_none()));
    assert!(left.iter().all(|one| hub.plan().target(one.backend).is_none()));

    let (hub, mut works) = group(vec![web(Mode::FullNat)], 1);
    let (_, sent) = balance(&mut works[0], &Build::new(&client(1)).flags(FlowKey::SYN).bytes());
    let key = parse::key(&Headers::parse(LinkType::Ethernet, &sent), &sent, 0);
    let all = listed(&hub, Filter::default());
    let local = std::net::SocketAddr::new(key.src_ip().unwrap(), key.sport);
    assert_eq!(all.iter().map(|one| one.local).collect::<Vec<_>>(), [Some(local)]);
}

#[test]
fn a_caller_that_is_gone_ends_the_listing() {
    let mut many = settings();
    many.connections = 65_536;
    many.opening_most = 65_536;
    let hub = Arc::new(Hub::new(Control::new(vec![web(Mode::Dsr)], 251, 7).unwrap()));
    let mut works = Balance::group(&hub, 1, &many);
    for n in 0..40_000 {
        balance(&mut works[0], &Build::new(&client(n)).flags(FlowKey::SYN).bytes());
    }
    let (mut count, asked) = (0, std::cell::Cell::new(0));
    let gone = || asked.replace(asked.get() + 1) == 1;
    let examined = hub.list(&hub.plan(), &Filter::default(), 5, &gone, &mut |_| count += 1);
    assert_eq!((examined, count, asked.get()), (32_768, 32_768, 2));
}

//! Connections of a client's network stay with one backend.

use std::collections::BTreeSet;

use super::*;
use crate::{Ceiling, Persistence};

const VIP: [u8; 4] = [192, 0, 2, 1];
const SECOND: Nanos = 1_000_000_000;

fn persistence() -> Persistence {
    Persistence {
        timeout: 300 * SECOND,
        mask_v4: 24,
        mask_v6: 64,
        networks: 1024,
        keeps_drained: true,
    }
}

fn web(choice: Choice, backends: u8, persist: Option<Persistence>) -> Service {
    let mut service = service("web", VIP.into(), proto::TCP, 80..=80, Mode::Dsr);
    (service.choice, service.persist) = (choice, persist);
    service.backends =
        (1..=backends).map(|n| backend(n, IpAddr::from([10, 0, 1, n]), None)).collect();
    service
}

fn flow(network: u8, host: u8, port: u16) -> FlowKey {
    FlowKey::five_tuple(proto::TCP, IpAddr::from([10, 1, network, host]), port, VIP.into(), 80)
}

fn at(work: &mut Balance, key: &FlowKey, flags: u8, now: Nanos) -> To {
    let data = Build::new(key).flags(flags).bytes();
    let (mut pool, mut batch) = (Pool::new(4, 2048), Batch::default());
    let frame = pool.copy(&data, Meta { wire_len: data.len() as u32, ..Meta::default() }).unwrap();
    let key = parse::key(&Headers::parse(LinkType::Ethernet, &data), &data, 0);
    let lane = batch.push(frame, key).unwrap();
    batch.actions[lane] = Action::queue(0);
    work.work(&mut batch, &pool, now);
    batch.actions[lane].to
}

const CHOICES: [Choice; 4] =
    [Choice::Maglev, Choice::SourceHash, Choice::RoundRobin, Choice::LeastConnections];

#[test]
fn connections_of_a_network_go_to_one_backend_whatever_core_gets_them() {
    for choice in CHOICES {
        let (hub, mut works) = group(vec![web(choice, 8, Some(persistence()))], 3);
        let mut used = BTreeSet::new();
        for network in 0..20 {
            let first = at(&mut works[0], &flow(network, 1, 1000), FlowKey::SYN, 5);
            for n in 2..40 {
                let to = at(&mut works[usize::from(n % 3)], &flow(network, n, 7), FlowKey::SYN, 5);
                assert_eq!(to, first, "{choice:?} {network}");
            }
            used.insert(format!("{first:?}"));
        }
        assert!(used.len() > 3, "{choice:?} uses {used:?}");
        let (settings, table) = hub.states()[0].persist.clone().unwrap();
        let counts = table.counts(settings.timeout, 5);
        assert_eq!((counts.networks, counts.given, counts.kept), (20, 20, 20 * 38));
    }
}

#[test]
fn a_network_is_forgotten_when_no_connection_came_for_the_time() {
    let (_, mut works) = group(vec![web(Choice::RoundRobin, 3, Some(persistence()))], 1);
    let mut next = |port: u16, now: Nanos| at(&mut works[0], &flow(1, 1, port), FlowKey::SYN, now);
    let first = next(1, SECOND);
    // Each connection begins the time anew.
    for n in 1..10u16 {
        assert_eq!(next(1 + n, u64::from(n) * 299 * SECOND), first, "{n}");
    }
    assert_ne!(next(99, 3 * 299 * SECOND + 301 * SECOND + 6 * 299 * SECOND), first);
}

#[test]
fn a_drained_backend_keeps_its_networks_unless_they_are_to_move() {
    for keeps_drained in [true, false] {
        let persist = Persistence { keeps_drained, ..persistence() };
        let (hub, mut works) = group(vec![web(Choice::Maglev, 2, Some(persist))], 1);
        let work = &mut works[0];
        let first: Vec<_> = (0..20).map(|n| at(work, &flow(n, 1, 1), FlowKey::SYN, 5)).collect();
        hub.drain("web", "b1", true, 6).unwrap();
        for n in 0..20 {
            let to = at(work, &flow(n, 2, 2), FlowKey::SYN, 7);
            let wanted = if keeps_drained { first[usize::from(n)] } else { To::Port(2) };
            assert_eq!(to, wanted, "{n}");
        }
        // A network that has no backend yet never gets the drained one.
        (100..140).for_each(|n| assert_eq!(at(work, &flow(n, 1, 1), FlowKey::SYN, 8), To::Port(2)));
        // A backend that is down loses its networks at once, and for good.
        hub.drain("web", "b1", false, 9).unwrap();
        hub.set_up("web", "b1", false, 9).unwrap();
        (0..20).for_each(|n| assert_eq!(at(work, &flow(n, 3, 3), FlowKey::SYN, 9), To::Port(2)));
        hub.set_up("web", "b1", true, 10).unwrap();
        (0..20).for_each(|n| assert_eq!(at(work, &flow(n, 4, 4), FlowKey::SYN, 11), To::Port(2)));
    }
}

#[test]
fn a_backup_loses_its_networks_when_another_backend_returns() {
    let mut service = web(Choice::Maglev, 2, Some(persistence()));
    service.backends[1].backup = true;
    let (hub, mut works) = group(vec![service], 1);
    hub.set_up("web", "b1", false, 1).unwrap();
    assert_eq!(at(&mut works[0], &flow(1, 1, 1), FlowKey::SYN, 2), To::Port(2));
    hub.set_up("web", "b1", true, 3).unwrap();
    assert_eq!(at(&mut works[0], &flow(1, 2, 2), FlowKey::SYN, 4), To::Port(1));
}

#[test]
fn a_full_backend_gets_no_connections_of_its_networks() {
    let mut service = web(Choice::Maglev, 2, Some(persistence()));
    service
        .backends
        .iter_mut()
        .for_each(|backend| backend.ceiling = Some(Ceiling::new(3, Some(3))));
    let (hub, mut works) = group(vec![service], 1);
    let work = &mut works[0];
    let all: Vec<_> = (1..=7).map(|n| at(work, &flow(1, n, 1), FlowKey::SYN, 5)).collect();
    assert_ne!(all[0], all[3]);
    let limit = To::Drop(DropReason::BackendLimit.code());
    assert_eq!(all, [all[0], all[0], all[0], all[3], all[3], all[3], limit]);
    let (settings, table) = hub.states()[0].persist.clone().unwrap();
    assert_eq!(table.counts(settings.timeout, 5).moved, 1);
}

/// Without an entry, the packets of a connection still go to the backend of the network.
#[test]
fn connections_without_an_entry_go_to_the_backend_of_their_network() {
    let service = web(Choice::RoundRobin, 5, Some(persistence()));
    let hub = Arc::new(Hub::new(Control::new(vec![service], 251, 7).unwrap()));
    let settings = BalanceSettings { connections: 1, ..settings() };
    let mut works = Balance::group(&hub, 2, &settings);
    let first = at(&mut works[0], &flow(1, 1, 1), FlowKey::SYN, 5);
    at(&mut works[0], &flow(1, 1, 1), FlowKey::ACK, 5);
    let second = at(&mut works[1], &flow(2, 1, 1), FlowKey::SYN, 5);
    at(&mut works[1], &flow(2, 1, 1), FlowKey::ACK, 5);
    assert_ne!(first, second);
    for port in 2..40 {
        for (network, wanted) in [(1, first), (2, second)] {
            for flags in [FlowKey::SYN, FlowKey::ACK] {
                let work = &mut works[usize::from(port % 2)];
                assert_eq!(at(work, &flow(network, 9, port), flags, 6), wanted, "{network} {port}");
            }
        }
    }
}

/// Machines that know nothing of each other, or have forgotten, choose the same backend by hash.
#[test]
fn with_maglev_another_machine_chooses_the_same_backend_for_a_network() {
    for choice in [Choice::Maglev, Choice::SourceHash] {
        let mut nodes: Vec<_> = (0..2)
            .map(|_| group(vec![web(choice, 9, Some(persistence()))], 1).1.remove(0))
            .collect();
        for n in 0..50 {
            let [a, b] = [0, 1].map(|node: usize| {
                at(&mut nodes[node], &flow(n, 1 + node as u8, 40 + u16::from(n)), FlowKey::SYN, 5)
            });
            assert_eq!(a, b, "{choice:?} {n}");
        }
    }
}

#[test]
fn a_reload_keeps_the_networks_unless_masks_or_size_change() {
    let (hub, mut works) = group(vec![web(Choice::RoundRobin, 3, Some(persistence()))], 1);
    let first = at(&mut works[0], &flow(1, 1, 1), FlowKey::SYN, 5);
    let longer = Persistence { timeout: 900 * SECOND, ..persistence() };
    hub.set(vec![web(Choice::RoundRobin, 4, Some(longer))], 6).unwrap();
    for n in 2..9 {
        assert_eq!(at(&mut works[0], &flow(1, n, 1), FlowKey::SYN, 800 * SECOND), first);
    }
    let wider = Persistence { mask_v4: 16, ..longer };
    hub.set(vec![web(Choice::RoundRobin, 4, Some(wider))], 7).unwrap();
    let (settings, table) = hub.states()[0].persist.clone().unwrap();
    assert_eq!(table.counts(settings.timeout, 801 * SECOND).networks, 0);
    hub.set(vec![web(Choice::RoundRobin, 4, None)], 8).unwrap();
    assert!(hub.states()[0].persist.is_none());
    let tos: BTreeSet<_> = (0..20)
        .map(|n| format!("{:?}", at(&mut works[0], &flow(1, 100 + n, 1), FlowKey::SYN, 9)))
        .collect();
    assert!(tos.len() > 1);
}

#[test]
fn a_trace_names_the_network_that_decides() {
    let (hub, mut works) = group(vec![web(Choice::RoundRobin, 3, Some(persistence()))], 1);
    assert_eq!(hub.explain(&flow(1, 1, 1), SECOND).why, Because::Turns);
    let to = at(&mut works[0], &flow(1, 1, 1), FlowKey::SYN, SECOND);
    let next = hub.explain(&flow(1, 2, 2), 41 * SECOND);
    let Because::Network { age } = next.why else { panic!("{:?}", next.why) };
    assert_eq!(age / SECOND, 39);
    let target = hub.plan().target(next.backend.unwrap()).unwrap().exit.port;
    assert_eq!(to, To::Port(target));
    assert_eq!(hub.explain(&flow(1, 2, 2), 400 * SECOND).why, Because::Turns);
}

//! Limits of the connections of backends.

use super::*;
use crate::{Ceiling, State};

const VIP: [u8; 4] = [192, 0, 2, 1];

fn limited(mode: Mode, choice: Choice, most: &[u32]) -> Service {
    let mut service = service("web", VIP.into(), proto::TCP, 80..=80, mode);
    service.choice = choice;
    service.backends = (1..)
        .zip(most)
        .map(|(n, &most)| {
            let ceiling = (most > 0).then(|| Ceiling::new(most, None));
            Backend { ceiling, ..backend(n, IpAddr::from([10, 0, 1, n]), None) }
        })
        .collect();
    service
}

fn send(work: &mut Balance, number: u16, flags: u8) -> To {
    let [a, b] = number.to_be_bytes();
    let key = FlowKey::five_tuple(proto::TCP, IpAddr::from([10, 1, a, b]), 7, VIP.into(), 80);
    balance(work, &Build::new(&key).flags(flags).bytes()).0.to
}

const LIMIT: To = To::Drop(DropReason::BackendLimit.code());

#[test]
fn a_full_backend_gets_no_connections_and_keeps_those_that_it_has() {
    for mode in [Mode::Dsr, Mode::Dnat, Mode::FullNat, Mode::Ipip, Mode::Gue] {
        // The second core has no local address.
        let cores = if mode == Mode::FullNat { 1 } else { 2 };
        for choice in [Choice::Maglev, Choice::RoundRobin, Choice::LeastConnections] {
            let (hub, mut works) = group(vec![limited(mode, choice, &[10, 20])], cores);
            let first: Vec<_> = (0..40)
                .map(|n| send(&mut works[usize::from(n) % cores], n, FlowKey::SYN))
                .collect();
            let to = |port: u16| first.iter().filter(|to| **to == To::Port(port)).count();
            assert_eq!((to(1), to(2)), (10, 20), "{mode:?} {choice:?}");
            assert!(first[..30].iter().all(|to| *to != LIMIT));
            assert_eq!(first[30..], [LIMIT; 10]);
            // Their other packets go on, also by another core, and do not count.
            for n in 0..30 {
                let now = send(&mut works[usize::from(n + 1) % cores], n, FlowKey::ACK);
                assert_eq!(now, first[usize::from(n)], "{mode:?} {choice:?} {n}");
            }
            let state = &hub.states()[0];
            let drops = state.counts.drops[usize::from(DropReason::BackendLimit.code())];
            assert_eq!((drops, state.counts.connections), (10, 30), "{mode:?} {choice:?}");
            assert!(state.counts.passed_over >= 10);
            let seen: Vec<_> = state.backends.iter().map(|is| (is.active, is.is_full)).collect();
            assert_eq!(seen, [(10, true), (20, true)]);
        }
    }
}

#[test]
fn a_backend_accepts_connections_again_below_its_lower_threshold() {
    let (hub, mut works) = group(vec![limited(Mode::Dsr, Choice::Maglev, &[8])], 1);
    let work = &mut works[0];
    (0..8).for_each(|n| assert_eq!(send(work, n, FlowKey::SYN), To::Port(1)));
    let target = hub.plan().targets().next().unwrap().clone();
    // The lower threshold is 6.
    for (gone, wanted) in [(0, LIMIT), (1, LIMIT), (2, LIMIT), (3, To::Port(1))] {
        (0..gone).for_each(|_| target.count(false));
        assert_eq!(send(work, 100 + gone, FlowKey::SYN), wanted, "{gone} ended");
        if wanted == LIMIT {
            (0..gone).for_each(|_| target.active.set(target.active.get() + 1));
        }
    }
}

/// A connection that the balancer does not know, but which is open, goes to the backend that it has by the Maglev table.
#[test]
fn packets_of_open_connections_are_not_limited() {
    let (hub, mut works) = group(vec![limited(Mode::Dsr, Choice::Maglev, &[1, 1])], 1);
    for n in 0..50u16 {
        let [a, b] = n.to_be_bytes();
        let key = FlowKey::five_tuple(proto::TCP, IpAddr::from([10, 1, a, b]), 7, VIP.into(), 80);
        let (plan, conn) = (hub.plan(), ConnKey::of(&key));
        let wanted = plan.fall_back(0, &conn, conn.hash(plan.seed())).unwrap().exit.port;
        assert_eq!(send(&mut works[0], n, FlowKey::ACK), To::Port(wanted));
    }
    assert_eq!(hub.states()[0].counts.connections, 50);
    assert_eq!(send(&mut works[0], 90, FlowKey::SYN), LIMIT);
}

/// Without an entry no other backend could be remembered for the connection, so it is dropped.
#[test]
fn without_an_entry_a_connection_does_not_go_to_another_backend() {
    let service = limited(Mode::Dsr, Choice::Maglev, &[1, 0]);
    let hub = Arc::new(Hub::new(Control::new(vec![service], 251, 7).unwrap()));
    let settings = BalanceSettings { connections: 1, opening_most: 1, ..settings() };
    let mut works = Balance::group(&hub, 1, &settings);
    let full = hub.plan().targets().next().unwrap().clone();
    full.active.set(1);
    let conn = |n: u16| {
        let [a, b] = n.to_be_bytes();
        ConnKey::of(&FlowKey::five_tuple(
            proto::TCP,
            IpAddr::from([10, 1, a, b]),
            7,
            VIP.into(),
            80,
        ))
    };
    let plan = hub.plan();
    let by_table = |n: u16| plan.fall_back(0, &conn(n), conn(n).hash(plan.seed())).unwrap().index;
    // An established connection takes the only entry.
    let taken = (0..).find(|n| by_table(*n) == 1).unwrap();
    send(&mut works[0], taken, FlowKey::SYN);
    send(&mut works[0], taken, FlowKey::ACK);
    for n in taken + 1..taken + 40 {
        let wanted = if by_table(n) == 0 { LIMIT } else { To::Port(2) };
        assert_eq!(send(&mut works[0], n, FlowKey::SYN), wanted, "{n}");
    }
    assert_eq!(full.active.get(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// On any cores, in any order: no backend exceeds its limit, and a new connection is dropped only if none has room.
    #[test]
    fn no_backend_exceeds_its_limit(
        which in 0usize..7, most in prop::collection::vec(0u32..6, 1..4), steps in prop::collection::vec((0u16..40, 0usize..3, 0u8..8), 1..120),
    ) {
        let choice = [
            Choice::Maglev, Choice::SourceHash, Choice::RoundRobin, Choice::LeastConnections, Choice::WeightedLeast,
            Choice::NeverQueue, Choice::Failover,
        ][which];
        let (hub, mut works) = group(vec![limited(Mode::Dsr, choice, &most)], 3);
        let mut open = std::collections::BTreeMap::new();
        for (number, core, what) in steps {
            let (plan, table) = (hub.plan(), hub.plan());
            let had_room = plan.has_room(&table.services()[0]);
            let flags = if what == 0 { FlowKey::ACK | FlowKey::FIN } else { FlowKey::SYN };
            if what == 0 && !open.contains_key(&number) {
                continue; // it would open a connection that is not limited
            }
            let to = send(&mut works[core], number, flags);
            match open.get(&number) {
                Some((wanted, State::Open)) => prop_assert_eq!(to, *wanted),
                Some(_) => {} // a SYN on a closing connection begins another one
                None => prop_assert_eq!(to != LIMIT, had_room),
            }
            // After it was closed once, a core may still have the entry of the first connection of the port.
            let was_closed = matches!(open.get(&number), Some((_, State::Closing)));
            let state = if what == 0 || was_closed { State::Closing } else { State::Open };
            if to != LIMIT {
                open.insert(number, (to, state));
            }
            for (target, &most) in hub.plan().targets().zip(&most) {
                prop_assert!(most == 0 || target.active.get() <= most);
            }
        }
    }
}

#[test]
fn a_trace_names_the_backend_that_is_full() {
    let (hub, mut works) = group(vec![limited(Mode::Dsr, Choice::LeastConnections, &[1, 1])], 1);
    let flow =
        |n: u8| FlowKey::five_tuple(proto::TCP, IpAddr::from([10, 9, 9, n]), 7, VIP.into(), 80);
    let plan = hub.plan();
    let ids: Vec<_> = plan.targets().map(|target| target.id).collect();
    assert_eq!(hub.explain(&flow(1), 5).backend, Some(ids[0]));
    send(&mut works[0], 1, FlowKey::SYN);
    let first = hub.explain(&flow(1), 5);
    assert_eq!(
        (first.backend, first.why, first.passed_over),
        (Some(ids[1]), Because::Compared, None)
    );
    send(&mut works[0], 2, FlowKey::SYN);
    let full = hub.explain(&flow(1), 5);
    assert_eq!((full.backend, full.why), (None, Because::Full));
    assert!(full.passed_over.is_some());
    for (choice, passed) in [(Choice::Maglev, true), (Choice::RoundRobin, false)] {
        hub.set(vec![limited(Mode::Dsr, choice, &[1, 1])], 5).unwrap();
        let full = hub.explain(&flow(1), 5);
        assert_eq!((full.why, full.passed_over.is_some()), (Because::Full, passed));
    }
}

/// A connection whose packets come to several cores has an entry in the table of each.
#[test]
fn a_connection_with_entries_of_several_cores_counts_once() {
    let (hub, mut works) = group(vec![limited(Mode::Dsr, Choice::Maglev, &[5])], 3);
    let active = |hub: &Hub| hub.states()[0].backends[0].active;
    send(&mut works[0], 1, FlowKey::SYN);
    for core in [0, 1, 2, 0, 1, 2] {
        assert_eq!(send(&mut works[core], 1, FlowKey::ACK), To::Port(1));
        assert_eq!(active(&hub), 1);
    }
    let held: Vec<_> = hub.occupancy().iter().map(|of| of.connections).collect();
    assert_eq!(held, [1, 1, 1]);
    // It ends on one core after the other. The one that has got it last counts it.
    let mut batch = Batch::default();
    for (core, wanted) in [(0, 1), (1, 1), (2, 0)] {
        for _ in 0..8 {
            works[core].work(&mut batch, &Pool::new(1, 64), 901_000_000_000);
        }
        assert_eq!(active(&hub), wanted, "core {core}");
    }
}

/// Connections end on a core that receives no more frames, too, so that its backends accept others.
#[test]
fn connections_expire_on_a_quiet_core() {
    let (hub, mut works) = group(vec![limited(Mode::Dsr, Choice::Maglev, &[300])], 2);
    let active = |hub: &Hub| hub.states()[0].backends[0].active;
    (0..300).for_each(|n| assert_eq!(send(&mut works[0], n, FlowKey::SYN), To::Port(1)));
    (0..150).for_each(|n| assert_eq!(send(&mut works[0], n, FlowKey::ACK), To::Port(1)));
    assert_eq!(send(&mut works[1], 300, FlowKey::SYN), LIMIT);
    // Half-open connections end after 30 seconds, the others after 15 minutes.
    for (end, left) in [(31, 150), (901, 0)] {
        let end = end * 1_000_000_000;
        for _ in 0..5 {
            works[0].speak(end, &mut |_, _| panic!("nothing is sent"));
        }
        assert_eq!(active(&hub), left, "a part in each call, and the rest in the next ones");
    }
    assert_eq!(send(&mut works[1], 300, FlowKey::SYN), To::Port(1));
}

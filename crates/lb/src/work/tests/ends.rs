//! Ends of connections that another machine has seen.

use super::replicate::{Machine, SECOND, flow, web};
use super::*;
use crate::{End, State, SyncReport};

const FIN: u8 = FlowKey::FIN | FlowKey::ACK;

fn hash(client: u16) -> u64 {
    ConnKey::of(&flow(proto::TCP, client)).hash(7)
}

fn segment(client: u16, flags: u8, seq: u32) -> Vec<u8> {
    Build::new(&flow(proto::TCP, client)).flags(flags).seq(seq).bytes()
}

/// The state and the end of the entry of a connection on the first core.
fn entry(machine: &Machine, client: u16, now: Nanos) -> Option<(State, Option<u32>)> {
    let conns = machine.cores[0].conns[usize::from(client) % 2].lock().unwrap();
    let slot = conns.find(&ConnKey::of(&flow(proto::TCP, client)), hash(client), now)?;
    conns.get(slot, now).map(|conn| (conn.state(), conn.end()))
}

/// Three machines. The first has a connection of the returned client to a backend that is drained, and has reported it.
fn reported() -> ([Machine; 3], u16) {
    let mut machines = [(); 3].map(|()| Machine::new(&web(Mode::Dsr, Choice::Maglev, 2, &[])));
    let client = (0..40).find(|client| machines[0].open(*client, SECOND) == To::Port(1)).unwrap();
    machines.iter().for_each(|machine| machine.set(&web(Mode::Dsr, Choice::Maglev, 2, &[1])));
    let reports = machines[0].pass(SECOND);
    machines[1..].iter_mut().for_each(|machine| machine.hear(&reports, SECOND));
    (machines, client)
}

#[test]
fn the_machine_that_has_the_entry_learns_the_end() {
    for flags in [FIN, FlowKey::RST] {
        let ([mut owner, mut sees, mut other], client) = reported();
        let now = 3 * SECOND;
        assert_eq!(sees.give(0, &segment(client, flags, 1000), now), To::Port(1));
        let end = 1000 + u32::from(flags == FIN);
        let ends = sees.hub.take_ends();
        assert_eq!(ends, [End { hash: hash(client), end, at: now }]);
        assert!(sees.hub.take_ends().is_empty());
        // The machine that has seen the end has an entry, and needs no report any more.
        assert_eq!(sees.hub.replicated().unwrap().get(hash(client), now), None);
        let later = now + SECOND / 10;
        for machine in [&mut owner, &mut other] {
            machine.hear_ends(&ends, later);
            assert_eq!(machine.hub.replicated().unwrap().get(hash(client), later), None);
        }
        assert_eq!((owner.hub.closed_by_others(), other.hub.closed_by_others()), (1, 0));
        assert_eq!(entry(&owner, client, later), Some((State::Closing, Some(end))));
        // The old connection goes on to the old backend, and a new one from the same port to the other.
        assert_eq!(owner.give(0, &segment(client, FlowKey::ACK, end), later), To::Port(1));
        assert_eq!(owner.give(0, &segment(client, FlowKey::ACK, end + 9), later), To::Port(2));
        assert_eq!(other.give(0, &segment(client, FlowKey::ACK, end + 9), later), To::Port(2));
        assert!(owner.hub.take_ends().is_empty(), "what is heard is not told again");
    }
}

#[test]
fn an_entry_that_was_ended_elsewhere_is_not_reported_for_long() {
    let ([mut owner, mut sees, _], client) = reported();
    let (now, closing) = (2 * SECOND, Timeouts::default().closing);
    sees.give(0, &segment(client, FIN, 1000), now);
    owner.hear_ends(&sees.hub.take_ends(), now);
    let mut pass = |now| owner.pass(now).into_iter().collect::<Vec<_>>();
    let has = |reports: &[SyncReport]| {
        let of =
            |r: &SyncReport| matches!(r, SyncReport::Has { hash: of, .. } if *of == hash(client));
        reports.iter().any(of)
    };
    assert!(has(&pass(now + closing / 4)));
    assert!(!has(&pass(now + closing / 2)));
    let gone = SyncReport::Gone { hash: hash(client) };
    assert!(pass(now + closing / 2).contains(&gone));
    assert_eq!(entry(&owner, client, now + closing + SECOND), None);
}

#[test]
fn an_entry_that_got_a_packet_after_the_end_is_not_changed() {
    let ([mut owner, mut sees, _], client) = reported();
    sees.give(0, &segment(client, FIN, 1000), 2 * SECOND);
    let ends = sees.hub.take_ends();
    // A new connection has begun before the message arrives.
    for flags in [FlowKey::SYN, FlowKey::ACK] {
        owner.give(usize::from(client) % 2, &segment(client, flags, 5000), 2 * SECOND + SECOND / 2);
    }
    owner.hear_ends(&ends, 3 * SECOND);
    assert_eq!(owner.hub.closed_by_others(), 0);
    assert_eq!(entry(&owner, client, 3 * SECOND), Some((State::Open, None)));
    // A half-open one is not changed either.
    owner.give(usize::from(client) % 2, &segment(client, FIN, 5000), 3 * SECOND);
    owner.give(usize::from(client) % 2, &segment(client, FlowKey::SYN, 9000), 4 * SECOND);
    owner.hear_ends(&ends, 4 * SECOND);
    assert_eq!(entry(&owner, client, 4 * SECOND), Some((State::Opening, None)));
}

#[test]
fn a_message_that_comes_late_ends_an_entry_that_was_not_used_since() {
    let ([mut owner, mut sees, _], client) = reported();
    sees.give(0, &segment(client, FIN, 1000), 2 * SECOND);
    let ends = sees.hub.take_ends();
    // A report that came meanwhile may be that of a later connection, and stays.
    let replica = owner.hub.replicated().unwrap();
    replica.put(hash(client), 1, 20 * SECOND, 100);
    let now = 20 * SECOND;
    owner.hear_ends(&ends, now);
    assert_eq!(owner.hub.replicated().unwrap().get(hash(client), now), Some(1));
    assert_eq!(entry(&owner, client, now), Some((State::Closing, Some(1001))));
    assert_eq!(entry(&owner, client, 2 * SECOND + Timeouts::default().closing + SECOND), None);
}

#[test]
fn only_tcp_entries_that_can_have_an_end_get_one() {
    let now = 3 * SECOND;
    let end = |hash| End { hash, end: 77, at: now };
    // A connection that is not known.
    let ([mut owner, ..], client) = reported();
    owner.hear_ends(&[end(hash(client) ^ 1)], now);
    assert_eq!(entry(&owner, client, now), Some((State::Open, None)));
    // The first end stays.
    owner.hear_ends(&[end(hash(client)), End { end: 78, ..end(hash(client)) }], now);
    assert_eq!(entry(&owner, client, now), Some((State::Closing, Some(77))));
    // A connection with a local port, and one of another protocol.
    let full = web(Mode::FullNat, Choice::Maglev, 2, &[]);
    let sctp = service("web", ip("192.0.2.1"), 132, 80..=80, Mode::Dsr);
    let sctp = Service { backends: full.backends.clone(), ..sctp };
    for (service, proto) in [(full, proto::TCP), (sctp, 132)] {
        let mut machine = Machine::new(&service);
        let key = flow(proto, 2);
        let hash = ConnKey::of(&key).hash(7);
        machine.frame(0, &key, FlowKey::SYN, SECOND);
        machine.frame(0, &key, FlowKey::ACK, SECOND);
        machine.hear_ends(&[end(hash)], now);
        assert_eq!(machine.hub.closed_by_others(), 0, "{proto}");
    }
}

#[test]
fn the_ends_of_connections_that_no_other_machine_can_have_are_not_told() {
    let mut machine = Machine::new(&web(Mode::Dsr, Choice::Maglev, 2, &[]));
    machine.open(0, SECOND);
    machine.give(0, &segment(0, FIN, 1000), SECOND);
    assert!(machine.hub.take_ends().is_empty());
    // A connection whose first packet is not a SYN may have an entry on another machine; on all cores of this one.
    for (client, core) in [(2, 0), (4, 1)] {
        machine.give(0, &segment(client, FlowKey::ACK, 999), SECOND);
        machine.give(core, &segment(client, FlowKey::ACK, 999), SECOND);
        machine.give(core, &segment(client, FIN, 1000), SECOND);
        machine.give(core, &segment(client, FIN, 1000), SECOND);
        let ends = machine.hub.take_ends();
        assert_eq!(ends, [End { hash: hash(client), end: 1001, at: SECOND }], "{client}");
    }
    // The end may be the first packet.
    machine.give(0, &segment(6, FlowKey::RST, 1000), SECOND);
    assert_eq!(machine.hub.take_ends(), [End { hash: hash(6), end: 1000, at: SECOND }]);
}

#[test]
fn ends_without_room_are_counted_and_reported_connections_come_first() {
    let (mut machines, client) = reported();
    let sees = &mut machines[1];
    for other in 1000..6000 {
        sees.give(0, &segment(other, FIN, 1000), 2 * SECOND);
    }
    let dropped = sees.hub.dropped_ends();
    assert!((5000 - 2048..5000).contains(&dropped), "{dropped}");
    sees.give(0, &segment(client, FIN, 1000), 2 * SECOND);
    let ends = sees.hub.take_ends();
    assert_eq!(ends.last(), Some(&End { hash: hash(client), end: 1001, at: 2 * SECOND }));
    assert_eq!(sees.hub.dropped_ends(), dropped);
}

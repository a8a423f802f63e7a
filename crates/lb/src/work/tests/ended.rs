//! Connections that were closed, and later ones from the same port: the sequence numbers tell them apart.

use super::replicate::{Machine, SECOND, flow, web};
use super::*;
use crate::SyncReport;
use flowyard_testkit::Rng;
use flowyard_yard::ControlPlane;

const FIN: u8 = FlowKey::FIN | FlowKey::ACK;
/// The seed of the machines.
const SEED: u64 = 7;
/// More than the largest window of TCP.
const WINDOW: u32 = 1 << 30;
/// How far a clock of initial sequence numbers that counts each 64 ns comes in 26 seconds.
const LATER: u32 = 406_250_000;

const MODES: [Mode; 5] = [Mode::Dsr, Mode::Ipip, Mode::Gue, Mode::Dnat, Mode::FullNat];

/// A segment of a client.
fn segment(client: u16, flags: u8, seq: u32, len: usize) -> Vec<u8> {
    let key = flow(proto::TCP, client);
    Build::new(&key).flags(flags).seq(seq).payload(&vec![7; len]).bytes()
}

/// A machine with a connection of the returned client to the first of two backends, which is drained afterwards: the table
/// names the second one.
fn drained(mode: Mode) -> (Machine, u16) {
    let mut machine = Machine::new(&web(mode, Choice::Maglev, 2, &[]));
    // The core of an even client has the local address.
    let opens = |client: &u16| machine.open(*client, SECOND) == To::Port(1);
    let client = (0..40).filter(|client| client % 2 == 0).find(opens).unwrap();
    machine.set(&web(mode, Choice::Maglev, 2, &[1]));
    (machine, client)
}

/// The flow of the first backend's replies to the client of [`drained`].
fn reply(client: u16, mode: Mode) -> FlowKey {
    let to = flow(proto::TCP, client);
    let (to, port) = match mode {
        Mode::FullNat => (ip("10.9.0.1"), 1024 + client / 2),
        _ => (to.src_ip().unwrap(), to.sport),
    };
    FlowKey::five_tuple(proto::TCP, IpAddr::from([10, 0, 1, 1]), 80, to, port)
}

/// The connections of each backend.
fn active(machine: &Machine) -> Vec<u32> {
    machine.hub.states()[0].backends.iter().map(|backend| backend.active).collect()
}

#[test]
fn a_segment_behind_the_end_belongs_to_another_connection() {
    for (mode, end_flags) in MODES.into_iter().flat_map(|mode| [(mode, FIN), (mode, FlowKey::RST)])
    {
        for first in [1000, u32::MAX - 20, u32::MAX - 10, 1 << 31, 0u32.wrapping_sub(12)] {
            let (mut machine, client) = drained(mode);
            let before = active(&machine);
            let end = first.wrapping_add(10 + u32::from(end_flags == FIN));
            let mut send =
                |flags, seq: u32, len| machine.give(0, &segment(client, flags, seq, len), SECOND);
            assert_eq!(send(end_flags, first, 10), To::Port(1), "{mode:?} {first}");
            // The last ACK, a keepalive probe, what is sent again, and late segments.
            for (flags, back, len) in [
                (FlowKey::ACK, 0, 0),
                (FlowKey::ACK, 1, 1),
                (end_flags, end.wrapping_sub(first), 10),
                (FlowKey::RST, 0, 0),
                (FlowKey::ACK, 1 << 20, 1000),
                (FlowKey::ACK, WINDOW - 1, 1000),
            ] {
                let seq = end.wrapping_sub(back);
                assert_eq!(send(flags, seq, len), To::Port(1), "{mode:?} {first} {back}");
            }
            let later = end.wrapping_add(LATER);
            assert_eq!(send(FlowKey::ACK, later, 0), To::Port(2), "{mode:?} {first}");
            assert_eq!(send(FlowKey::ACK, later, 100), To::Port(2));
            assert_eq!(send(FIN, later.wrapping_add(100), 0), To::Port(2));
            assert_eq!(send(FlowKey::ACK, later.wrapping_add(101), 0), To::Port(2));
            assert_eq!(active(&machine), [before[0] - 1, before[1] + 1], "{mode:?}");
        }
    }
}

#[test]
fn numbers_outside_of_the_window_belong_to_another_connection() {
    for ahead in [1, 2, 1000, LATER, 1 << 31, (1 << 31) + 1, 3 * WINDOW - 1, 3 * WINDOW] {
        let (mut machine, client) = drained(Mode::Dsr);
        machine.give(0, &segment(client, FIN, 5000, 0), SECOND);
        let later = segment(client, FlowKey::ACK, 5001u32.wrapping_add(ahead), 0);
        assert_eq!(machine.give(0, &later, SECOND), To::Port(2), "{ahead}");
    }
    // A new connection whose numbers are just before the end cannot be recognized.
    for back in [0, 1, WINDOW - 1] {
        let (mut machine, client) = drained(Mode::Dsr);
        machine.give(0, &segment(client, FIN, 5000, 0), SECOND);
        let other = segment(client, FlowKey::ACK, 5001u32.wrapping_sub(back), 0);
        assert_eq!(machine.give(0, &other, SECOND), To::Port(1), "{back}");
    }
}

#[test]
fn a_client_sends_on_after_the_end_of_the_server() {
    for mode in [Mode::Dnat, Mode::FullNat] {
        for flags in [FIN, FlowKey::RST] {
            let (mut machine, client) = drained(mode);
            let reply = reply(client, mode);
            machine.frame(0, &reply, flags, SECOND);
            for seq in [1, 1000, LATER, WINDOW, 3 << 30] {
                let data = segment(client, FlowKey::ACK, seq, 1000);
                assert_eq!(machine.give(0, &data, SECOND), To::Port(1), "{mode:?} {seq}");
            }
            // Then it ends, too.
            machine.give(0, &segment(client, FIN, 3 << 30, 0), SECOND);
            let late = segment(client, FlowKey::ACK, 3 << 30, 0);
            assert_eq!(machine.give(0, &late, SECOND), To::Port(1));
            let other = segment(client, FlowKey::ACK, (3 << 30) + 1000, 0);
            assert_eq!(machine.give(0, &other, SECOND), To::Port(2));
        }
    }
}

/// Services that send the client's address to the backend store the first sequence number in the place of the end.
#[test]
fn services_that_tell_the_clients_address_keep_the_entry() {
    for proxy in [false, true] {
        let telling = |drained: &[u8]| {
            let mut service = web(Mode::FullNat, Choice::Maglev, 2, drained);
            (service.proxy, service.toa) = (proxy, !proxy);
            service
        };
        let mut machine = Machine::new(&telling(&[]));
        let mut syn =
            |client: &u16| machine.give(0, &segment(*client, FlowKey::SYN, 99, 0), SECOND);
        let client = (0..40).find(|client| syn(client) == To::Port(1)).unwrap();
        machine.set(&telling(&[1]));
        for (flags, seq, len) in
            [(FlowKey::ACK, 100, 10), (FIN, 110, 0), (FlowKey::ACK, 111 + LATER, 10)]
        {
            let to = machine.give(0, &segment(client, flags, seq, len), SECOND);
            assert_eq!(to, To::Port(1), "proxy {proxy}, {seq}");
        }
        // The header or the option is in the first segment, which may be sent again.
        let first = machine.sent(0, &segment(client, FlowKey::ACK, 100, 10), SECOND).1;
        assert_eq!(first.len(), 54 + 10 + if proxy { 28 } else { 8 });
    }
}

#[test]
fn all_cores_know_the_end() {
    // A machine of these tests has one local address, and only one core could enter a new connection of FullNAT.
    for mode in MODES.into_iter().filter(|mode| *mode != Mode::FullNat) {
        let (mut machine, client) = drained(mode);
        let data = |flags, seq| segment(client, flags, seq, 0);
        assert_eq!(machine.give(1, &data(FIN, 1000), SECOND), To::Port(1), "{mode:?}");
        for core in [0, 1, 0] {
            assert_eq!(machine.give(core, &data(FlowKey::ACK, 1001), SECOND), To::Port(1));
        }
        let before = active(&machine);
        // The other core has an entry or gets one.
        for core in [0, 1, 0, 1] {
            let to = machine.give(core, &data(FlowKey::ACK, 1001 + LATER), SECOND);
            assert_eq!(to, To::Port(2), "{mode:?}, core {core}");
        }
        assert!(active(&machine)[1] > before[1]);
    }
}

/// The first core has an open entry of the connection that has moved away from it, and has not seen its end.
#[test]
fn a_copy_of_a_connection_that_is_over_is_not_used() {
    let (mut machine, client) = drained(Mode::Dsr);
    let mut send = |core, flags, seq| machine.give(core, &segment(client, flags, seq, 0), SECOND);
    assert_eq!(send(1, FlowKey::ACK, 1000), To::Port(1));
    assert_eq!(send(1, FIN, 1000), To::Port(1));
    for core in [1, 1, 0] {
        assert_eq!(send(core, FlowKey::ACK, 1001 + LATER), To::Port(2), "core {core}");
    }
    // Another one, whose SYN has reached the other core.
    assert_eq!(send(1, FIN, 1001 + LATER), To::Port(2));
    assert_eq!(send(0, FlowKey::SYN, 1001 + 2 * LATER), To::Port(2));
}

#[test]
fn an_entry_that_begins_with_the_end_has_it() {
    let mut machine = Machine::new(&web(Mode::Dsr, Choice::Maglev, 2, &[]));
    let mut fin = |client: &u16| machine.give(0, &segment(*client, FIN, 1000, 5), SECOND);
    let client = (0..40).find(|client| fin(client) == To::Port(1)).unwrap();
    machine.set(&web(Mode::Dsr, Choice::Maglev, 2, &[1]));
    for (seq, to) in [(1006, 1), (1005, 1), (1007, 2), (1006, 2)] {
        let data = segment(client, FlowKey::ACK, seq, 0);
        assert_eq!(machine.give(0, &data, SECOND), To::Port(to), "{seq}");
    }
}

#[test]
fn the_end_is_not_read_from_a_fragment() {
    let (mut machine, client) = drained(Mode::Dsr);
    let key = flow(proto::TCP, client);
    let fin = Build::new(&key).flags(FIN).seq(1000).payload(&[7; 8]).fragment(0, true);
    assert_eq!(machine.give(0, &fin.bytes(), SECOND), To::Port(1));
    let rest = segment(client, FlowKey::ACK, 1501, 0);
    assert_eq!(machine.give(0, &rest, SECOND), To::Port(1));
}

#[test]
fn another_process_knows_the_end() {
    for mode in [Mode::Dsr, Mode::Dnat, Mode::FullNat] {
        let (mut old, client) = drained(mode);
        old.give(0, &segment(client, FIN, 1000, 0), SECOND);
        let mut new = Machine::new(&web(mode, Choice::Maglev, 2, &[1]));
        let (_, control) = old.hub.hand_over(SECOND).unwrap();
        new.hub.go_on(&control, SECOND).unwrap();
        for (old, new) in old.cores.iter().zip(&mut new.cores) {
            new.go_on(&old.hand_over(SECOND).unwrap(), SECOND).unwrap();
        }
        for (seq, to) in [(1001, 1), (1002 + LATER, 2)] {
            let data = segment(client, FlowKey::ACK, seq, 0);
            assert_eq!(new.give(0, &data, SECOND), To::Port(to), "{mode:?} {seq}");
        }
    }
}

/// A report has no sequence number, so the connection of a client that is silent for long after its end is not reported.
#[test]
fn a_connection_that_was_closed_some_time_ago_is_reported_as_gone() {
    let closing = Timeouts::default().closing;
    let (mut machine, client) = drained(Mode::Dsr);
    let passes =
        |machine: &mut Machine, now| -> Vec<_> { (0..3).flat_map(|_| machine.pass(now)).collect() };
    let is_gone = |reports: &[SyncReport]| {
        reports.iter().any(|report| matches!(report, SyncReport::Gone { .. }))
    };
    let has = |reports: &[SyncReport]| {
        let client = ConnKey::of(&flow(proto::TCP, client)).hash(SEED);
        reports.iter().any(|r| matches!(r, SyncReport::Has { hash, .. } if *hash == client))
    };
    assert!(has(&passes(&mut machine, SECOND)));
    machine.give(0, &segment(client, FIN, 1000, 0), SECOND);
    // The server still sends, and the client acknowledges it.
    let mut now = SECOND;
    for _ in 0..10 {
        now += closing / 4;
        let reports = passes(&mut machine, now);
        assert!(has(&reports) && !is_gone(&reports));
        machine.give(0, &segment(client, FlowKey::ACK, 1001, 0), now);
    }
    let reports = passes(&mut machine, now + closing / 2);
    assert!(!has(&reports) && is_gone(&reports), "{reports:?}");
    // An open connection may be silent for longer.
    let (mut machine, _) = drained(Mode::Dsr);
    assert!(has(&passes(&mut machine, SECOND)));
    let reports = passes(&mut machine, SECOND + 3 * closing);
    assert!(has(&reports) && !is_gone(&reports));
}

/// A client of the fleet below, with one port.
struct Client {
    /// Its initial sequence numbers follow a clock, as in RFC 9293 section 3.4.1.
    offset: u32,
    /// When it may open its next connection.
    next: Nanos,
}

/// Three machines behind a router that may send the later packets of a connection to another machine, clients that use their
/// port again before entries expire, and weights that change between connections. Returns the number of connections, those of them that
/// were moved, and those that came to two backends. With `ends`, the machines tell each other about ends of connections.
fn fleet(seed: u64, ends: bool) -> (usize, usize, usize) {
    let (mut connections, mut moved, mut broken) = (0, 0, 0);
    let mut rng = Rng::new(seed);
    let mode = [Mode::Dsr, Mode::Ipip, Mode::Gue][rng.below(3) as usize];
    let choice = [Choice::Maglev, Choice::Maglev, Choice::RoundRobin][rng.below(3) as usize];
    let first = web(mode, choice, 4, &[]);
    let mut machines = [(); 3].map(|()| Machine::new(&first));
    let mut clients: Vec<_> =
        (0..12).map(|_| Client { offset: rng.bits() as u32, next: SECOND }).collect();
    for step in 1..400u64 {
        let now = step * SECOND / 2;
        if rng.below(8) == 0 {
            let drained = 1 + rng.below(4) as u8;
            let second = web(mode, choice, 4, &[drained]);
            machines.iter().for_each(|machine| machine.set(&second));
        }
        if step % 2 == 0 {
            (0..3).for_each(|from| share(&mut machines, from, now));
        }
        for (number, client) in (0..).zip(&mut clients) {
            if now < client.next {
                continue;
            }
            let isn = client.offset.wrapping_add((now >> 6) as u32);
            let places = (rng.below(3) as usize, rng.below(3) as usize);
            let came = connection(&mut machines, number, places, isn, now, &mut rng);
            connections += 1;
            moved += usize::from(places.0 != places.1);
            broken += usize::from(came.iter().any(|to| *to != came[0]));
            // Reports of the connection end some seconds after it.
            client.next = now + (28 + rng.below(40)) * SECOND / 2;
        }
        for from in (0..3).filter(|_| ends) {
            let ends = machines[from].hub.take_ends();
            (0..3).filter(|to| *to != from).for_each(|to| machines[to].hear_ends(&ends, now));
        }
    }
    (connections, moved, broken)
}

#[test]
fn a_client_of_a_fleet_may_use_its_port_again() {
    let sum = |ends| {
        let one = |sum: (usize, usize, usize), seed| {
            let run = fleet(seed, ends);
            assert!(!ends || run.2 == 0, "seed {seed}: {run:?}");
            (sum.0 + run.0, sum.1 + run.1, sum.2 + run.2)
        };
        (0..24).fold((0, 0, 0), one)
    };
    let (connections, moved, _) = sum(true);
    assert!(connections > 2000 && moved > 1000, "{connections}, {moved}");
    // Otherwise the runs would show nothing.
    let (.., broken) = sum(false);
    assert!(broken > 20, "{broken}");
}

/// A machine reports its connections to the others.
fn share(machines: &mut [Machine], from: usize, now: Nanos) {
    let reports = machines[from].pass(now);
    for to in (0..machines.len()).filter(|to| *to != from) {
        machines[to].hear(&reports, now);
    }
}

/// Where the packets of a connection go, whose SYN and some other packets come to machine `at`, and the rest to machine `then`.
fn connection(
    machines: &mut [Machine],
    client: u16,
    (at, then): (usize, usize),
    isn: u32,
    now: Nanos,
    rng: &mut Rng,
) -> Vec<To> {
    let mut came = vec![machines[at].give(0, &segment(client, FlowKey::SYN, isn, 0), now)];
    // The reports of machine `at` may come to the other one before the packets. They must if the table does not name the backend,
    // and only established connections are reported.
    let is_by_table = machines[at].hub.plan().services()[0].service.choice == Choice::Maglev;
    let is_reported = !is_by_table || rng.below(2) == 0;
    let mut stay = rng.below(6) + u64::from(!is_by_table);
    let mut seq = isn.wrapping_add(1);
    let mut send = |flags, seq, len| {
        let machine = if stay > 0 { at } else { then };
        if stay == 0 && is_reported && at != then {
            share(machines, at, now);
        }
        // Nothing is moved behind the end: a machine that gets the last ACK alone takes it for one of an open connection.
        let ends = flags & (FlowKey::FIN | FlowKey::RST) != 0;
        stay = if stay == 0 || !ends { stay.saturating_sub(1) } else { u64::MAX };
        came.push(machines[machine].give(0, &segment(client, flags, seq, len), now));
    };
    send(FlowKey::ACK, seq, 0);
    for _ in 0..rng.below(6) {
        let len = 1 + rng.below(1400) as usize;
        send(FlowKey::ACK, seq, len);
        seq = seq.wrapping_add(len as u32);
    }
    let ends = if rng.below(4) == 0 { FlowKey::RST } else { FIN };
    let len = rng.below(2) as usize * 100;
    send(ends, seq, len);
    let end = seq.wrapping_add(len as u32 + u32::from(ends == FIN));
    for _ in 0..rng.below(4) {
        match rng.below(4) {
            0 => send(ends, seq, len),
            1 => send(FlowKey::ACK, end.wrapping_sub(1), 1),
            2 => send(FlowKey::RST, end, 0),
            _ => send(FlowKey::ACK, end, 0),
        }
    }
    came
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Whatever segments come to whatever cores, each entry is counted as a connection of its backend.
    #[test]
    fn every_entry_is_counted(
        mode in 0usize..5, choice in 0usize..3,
        steps in prop::collection::vec((0u16..6, 0usize..2, 0u8..8, 0u32..4, 0u64..40), 1..200),
    ) {
        let choice = [Choice::Maglev, Choice::RoundRobin, Choice::LeastConnections][choice];
        let mut machine = Machine::new(&web(MODES[mode], choice, 3, &[]));
        let mut now = SECOND;
        for (client, core, what, seq, wait) in steps {
            let flags = match what {
                0 => FlowKey::SYN,
                1 => FIN,
                2 => FlowKey::RST,
                3 if wait > 30 => {
                    now += (wait - 30) * SECOND;
                    FlowKey::ACK
                }
                4 if wait > 30 => {
                    machine.set(&web(MODES[mode], choice, 3, &[1 + (wait % 3) as u8]));
                    FlowKey::ACK
                }
                _ => FlowKey::ACK,
            };
            machine.give(core, &segment(client, flags, seq << 30, 0), now);
            let mut counted = vec![0; 3];
            for table in &*machine.cores[0].conns {
                let table = table.lock().unwrap();
                for (_, conn) in table.iter(0).filter(|(_, conn)| conn.is_counted()) {
                    let plan = machine.hub.plan();
                    counted[usize::from(plan.target(conn.backend).unwrap().index)] += 1;
                }
            }
            prop_assert_eq!(active(&machine), counted);
        }
    }
}

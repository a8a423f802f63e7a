//! Another process takes the connections and the states of backends over.

use super::*;
use flowyard_yard::ControlPlane;

fn flow(client: u8) -> FlowKey {
    FlowKey::five_tuple(proto::TCP, ip(&format!("203.0.113.{client}")), 4000, ip("192.0.2.1"), 80)
}

fn segment(client: u8, flags: u8) -> Vec<u8> {
    Build::new(&flow(client)).flags(flags).payload(&[7; 100]).bytes()
}

/// The service with these backends, in this order. Their choice depends on what came before, so only the table knows where a
/// connection belongs.
fn web(mode: Mode, backends: &[u8]) -> Service {
    let mut service = service("web", ip("192.0.2.1"), proto::TCP, 80..=80, mode);
    service.choice = Choice::RoundRobin;
    let port = if mode == Mode::Dsr { None } else { Some(8080) };
    let one = |n: &u8| backend(*n, ip(&format!("10.0.1.{n}")), port);
    service.backends = backends.iter().map(one).collect();
    service
}

/// What another process gets.
fn states(hub: &Hub, works: &[Balance], now: Nanos) -> (Vec<u8>, Vec<Vec<u8>>) {
    let (kind, control) = hub.hand_over(now).unwrap();
    assert_eq!(kind, hub.kind());
    (control, works.iter().map(|work| work.hand_over(now).unwrap()).collect())
}

fn go_on(hub: &Hub, works: &mut [Balance], (control, cores): &(Vec<u8>, Vec<Vec<u8>>), now: Nanos) {
    hub.go_on(control, now).unwrap();
    works.iter_mut().zip(cores).for_each(|(work, state)| work.go_on(state, now).unwrap());
}

#[test]
fn connections_stay_with_their_backends_and_keep_their_local_ports() {
    for mode in [Mode::Dsr, Mode::Dnat, Mode::FullNat] {
        // There is one local address, which is that of the first core.
        let cores = if mode == Mode::FullNat { 1 } else { 2 };
        let (old_hub, mut old) = group(vec![web(mode, &[1, 2, 3])], cores);
        let mut before = Vec::new();
        for client in 0..60 {
            let work = &mut old[usize::from(client) % cores];
            balance(work, &segment(client, FlowKey::SYN));
            before.push(balance(work, &segment(client, FlowKey::ACK)));
        }
        let state = states(&old_hub, &old, 5);
        // Other services and another order of the backends: their IDs differ.
        let mut other = web(mode, &[9]);
        (other.name, other.vip) = ("other".into(), ip("192.0.2.9"));
        other.backends[0].addr = ip("10.0.1.99");
        let (hub, mut new) = group(vec![other, web(mode, &[4, 3, 2, 1])], cores);
        go_on(&hub, &mut new, &state, 5);
        for client in 0..60 {
            let work = &mut new[usize::from(client) % cores];
            let after = balance(work, &segment(client, FlowKey::ACK));
            assert_eq!(after, before[usize::from(client)], "{mode:?} {client}");
        }
        let active: Vec<u32> = hub.states()[1].backends.iter().map(|b| b.active).collect();
        assert_eq!(active, [0, 20, 20, 20], "{mode:?}");
        let held: usize = hub.occupancy().iter().map(|of| of.connections).sum();
        assert_eq!(held, 60);
        if mode == Mode::FullNat {
            // Replies find their connections by the local ports.
            let (_, sent) = &before[7];
            let key = parse::key(&Headers::parse(LinkType::Ethernet, sent), sent, 0);
            let reply = Build::new(&key.flow().reversed()).flags(FlowKey::ACK).bytes();
            assert_eq!(balance(&mut new[0], &reply).0.to, To::Port(40));
        }
    }
}

#[test]
fn connections_of_backends_that_are_gone_are_placed_again() {
    let (old_hub, mut old) = group(vec![web(Mode::Dnat, &[1, 2])], 1);
    for client in 0..10 {
        balance(&mut old[0], &segment(client, FlowKey::SYN));
        balance(&mut old[0], &segment(client, FlowKey::ACK));
    }
    let state = states(&old_hub, &old, 5);
    let (hub, mut new) = group(vec![web(Mode::Dnat, &[2, 3])], 1);
    go_on(&hub, &mut new, &state, 5);
    let occupancy = hub.occupancy();
    assert_eq!(occupancy[0].connections, 5);
    for client in 0..10 {
        let to = balance(&mut new[0], &segment(client, FlowKey::ACK)).0.to;
        assert!(matches!(to, To::Port(2 | 3)), "{to:?}");
    }
}

#[test]
fn connections_without_room_are_not_counted() {
    let (old_hub, mut old) = group(vec![web(Mode::Dsr, &[1, 2])], 1);
    for client in 0..100 {
        balance(&mut old[0], &segment(client, FlowKey::SYN));
        balance(&mut old[0], &segment(client, FlowKey::ACK));
    }
    let state = states(&old_hub, &old, 5);
    let hub = Arc::new(Hub::new(Control::new(vec![web(Mode::Dsr, &[1, 2])], 251, 7).unwrap()));
    let settings = BalanceSettings { connections: 32, ..settings() };
    let mut new = Balance::group(&hub, 1, &settings);
    go_on(&hub, &mut new, &state, 5);
    let active: u32 = hub.states()[0].backends.iter().map(|backend| backend.active).sum();
    let held = hub.occupancy()[0].connections;
    assert!((1..=32).contains(&held), "{held}");
    assert_eq!(active as usize, held);
}

#[test]
fn the_states_of_backends_are_taken_over() {
    let checked = |backends: &[u8]| {
        let mut web = web(Mode::Dnat, backends);
        web.check = Some(crate::check::Check {
            asks: crate::check::Asks::Tcp,
            port: None,
            agreed: false,
            rules: crate::health::Rules { interval: 1 << 30, timeout: 1 << 30, rise: 2, fall: 3 },
        });
        web
    };
    let (old_hub, old) = group(vec![checked(&[1, 2, 3, 4])], 1);
    old_hub.set_up("web", "b1", false, 1000).unwrap();
    old_hub.drain("web", "b2", true, 1000).unwrap();
    old_hub.set_weight("web", "b3", Some(5), 1000).unwrap();
    let state = states(&old_hub, &old, 5000);
    let (hub, mut new) = group(vec![checked(&[4, 3, 2, 1])], 1);
    go_on(&hub, &mut new, &state, 100);
    let shown = |hub: &Hub| {
        let backends = hub.states().remove(0).backends;
        backends
            .into_iter()
            .map(|b| (b.is_up, b.drained, b.set_weight, b.weight))
            .collect::<Vec<_>>()
    };
    let mut turned = shown(&hub);
    turned.reverse();
    assert_eq!(turned, shown(&old_hub));
    assert_eq!(turned[0], (false, false, None, 0));
    assert_eq!(hub.states()[0].backends[3].since, 0, "the change was before this clock began");
    // A backend that is not checked any more would never come up.
    let (hub, mut new) = group(vec![web(Mode::Dnat, &[1, 2, 3, 4])], 1);
    go_on(&hub, &mut new, &state, 100);
    assert!(hub.states()[0].backends.iter().all(|backend| backend.is_up));
}

#[test]
fn networks_and_datagrams_without_an_entry_are_taken_over() {
    let udp = |backends: &[u8], one_packet: bool| {
        let mut web = web(Mode::Dnat, backends);
        (web.proto, web.one_packet) = (proto::UDP, one_packet);
        if one_packet {
            (web.vip, web.name) = (ip("192.0.2.2"), "dns".into());
            web.backends.iter_mut().for_each(|backend| backend.port = Some(53));
        } else {
            web.persist = Some(crate::Persistence {
                timeout: 300_000_000_000,
                mask_v4: 32,
                mask_v6: 128,
                networks: 1000,
                keeps_drained: true,
            });
        }
        web
    };
    let datagram = |client: u8, port: u16, vip: &str| {
        let from = ip(&format!("203.0.113.{client}"));
        Build::new(&FlowKey::five_tuple(proto::UDP, from, port, ip(vip), 80))
            .payload(&[7; 60])
            .bytes()
    };
    let (old_hub, mut old) = group(vec![udp(&[1, 2, 3], false), udp(&[1, 2, 3], true)], 1);
    let sent: Vec<To> =
        (0..30).map(|c| balance(&mut old[0], &datagram(c, 1, "192.0.2.1")).0.to).collect();
    let asked: Vec<Vec<u8>> =
        (0..30).map(|c| balance(&mut old[0], &datagram(c, 1, "192.0.2.2")).1).collect();
    let state = states(&old_hub, &old, 5);
    let (hub, mut new) = group(vec![udp(&[1, 2, 3], true), udp(&[3, 2, 1], false)], 1);
    go_on(&hub, &mut new, &state, 5);
    for client in 0..30 {
        // Another connection of the client.
        let to = balance(&mut new[0], &datagram(client, 2, "192.0.2.1")).0.to;
        assert_eq!(to, sent[usize::from(client)], "{client}");
        let asked = &asked[usize::from(client)];
        let key = parse::key(&Headers::parse(LinkType::Ethernet, asked), asked, 0);
        let answer = Build::new(&key.flow().reversed()).payload(&[1; 40]).bytes();
        assert_eq!(balance(&mut new[0], &answer).0.to, To::Port(40), "{client}");
    }
}

#[test]
fn entries_expire_when_they_would_have() {
    let (old_hub, mut old) = group(vec![web(Mode::Dsr, &[1])], 1);
    balance(&mut old[0], &segment(1, FlowKey::SYN));
    balance(&mut old[0], &segment(2, FlowKey::SYN));
    balance(&mut old[0], &segment(2, FlowKey::ACK));
    let timeouts = Timeouts::default();
    // Half of the time of the half-open connection has passed, by another clock than that of the new process.
    let state = states(&old_hub, &old, timeouts.opening / 2);
    let (hub, mut new) = group(vec![web(Mode::Dsr, &[1])], 1);
    let began = 1 << 40;
    go_on(&hub, &mut new, &state, began);
    let live = |work: &Balance, now: Nanos| work.table(0).unwrap().iter(now).count();
    assert_eq!(live(&new[0], began + timeouts.opening / 3), 2);
    assert_eq!(live(&new[0], began + timeouts.opening * 2 / 3), 1);
    assert_eq!(live(&new[0], began + timeouts.open), 0);
}

proptest! {
    /// A state that was damaged is refused, or read: never a panic.
    #[test]
    fn any_bytes_are_read(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(), any in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let (old_hub, mut old) = group(vec![web(Mode::FullNat, &[1, 2])], 1);
        for client in 0..5 {
            balance(&mut old[0], &segment(client, FlowKey::SYN));
        }
        let (control, cores) = states(&old_hub, &old, 5);
        for state in [control, cores[0].clone()] {
            let mut damaged = state.clone();
            for (at, byte) in &damage {
                let at = at.index(damaged.len());
                damaged[at] = *byte;
            }
            damaged.truncate(cut.index(state.len() + 1));
            for bytes in [&damaged, &any] {
                let (hub, mut new) = group(vec![web(Mode::FullNat, &[1, 2])], 1);
                let _refused = hub.go_on(bytes, 5);
                let _refused = new[0].go_on(bytes, 5);
                balance(&mut new[0], &segment(1, FlowKey::ACK));
            }
        }
    }
}

#[test]
fn a_local_port_stays_at_its_address_in_another_order_of_addresses() {
    let start = |local: &[&str]| {
        let hub = Arc::new(Hub::new(Control::new(vec![web(Mode::FullNat, &[1])], 251, 7).unwrap()));
        let local = local.iter().map(|addr| ip(addr)).collect();
        let works = Balance::group(&hub, 1, &BalanceSettings { local, ..settings() });
        (hub, works)
    };
    let (old_hub, mut old) = start(&["10.9.0.1", "10.9.0.2"]);
    balance(&mut old[0], &segment(1, FlowKey::SYN));
    let before = balance(&mut old[0], &segment(1, FlowKey::ACK));
    let state = states(&old_hub, &old, 5);
    for (local, stays) in
        [(&["10.9.0.2", "10.9.0.1"][..], 1), (&["10.9.0.1"], 1), (&["10.9.0.2"], 0)]
    {
        let (hub, mut new) = start(local);
        go_on(&hub, &mut new, &state, 5);
        assert_eq!(hub.occupancy()[0].connections, stays, "{local:?}");
        let after = balance(&mut new[0], &segment(1, FlowKey::ACK));
        assert_eq!(after == before, stays == 1, "{local:?}");
    }
}

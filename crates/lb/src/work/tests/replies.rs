//! Only packets of known connections are replies: answers to health checks, and other traffic of a DNAT
//! backend, stay as they are.

use super::*;

fn web(mode: Mode) -> Service {
    let mut service = service("web", ip("192.0.2.1"), proto::TCP, 80..=80, mode);
    service.backends = vec![backend(1, ip("10.0.1.1"), Some(8080))];
    service
}

/// A segment of the backend's server to `to`.
fn from_backend(to: &str, port: u16, flags: u8) -> Vec<u8> {
    let key = FlowKey::five_tuple(proto::TCP, ip("10.0.1.1"), 8080, ip(to), port);
    Build::new(&key).flags(flags).payload(b"HTTP/1.1 200").bytes()
}

fn from_client(port: u16, flags: u8) -> Vec<u8> {
    let key = FlowKey::five_tuple(proto::TCP, ip("203.0.113.7"), port, ip("192.0.2.1"), 80);
    Build::new(&key).flags(flags).bytes()
}

#[test]
fn answers_of_health_checks_are_not_translated() {
    const SYN_ACK: u8 = FlowKey::SYN | FlowKey::ACK;
    for (pass, wanted) in
        [(vec![None], To::Drop(DropReason::NoService.code())), (vec![Some(50)], To::Port(50))]
    {
        let hub = Arc::new(Hub::new(Control::new(vec![web(Mode::Dnat)], 251, 7).unwrap()));
        let mut all = Balance::group(&hub, 2, &BalanceSettings { pass, ..settings() });
        for flags in [SYN_ACK, FlowKey::ACK, FlowKey::FIN | FlowKey::ACK, FlowKey::RST] {
            let data = from_backend("10.0.1.253", 54_764, flags);
            let (action, got) = balance(&mut all[0], &data);
            assert_eq!(action.to, wanted);
            assert_eq!(got, data, "unchanged");
        }
        let sum = hub.states()[0].counts;
        assert_eq!((sum.out_packets, sum.out_bytes, sum.dropped()), (0, 0, 0), "not counted");
        // A connection through the balancer, whose packets arrive on different cores.
        assert_eq!(balance(&mut all[1], &from_client(4000, FlowKey::SYN)).0.to, To::Port(1));
        for flags in [SYN_ACK, FlowKey::ACK, FlowKey::FIN | FlowKey::ACK] {
            for core in [0, 1, 0] {
                let (action, got) =
                    balance(&mut all[core], &from_backend("203.0.113.7", 4000, flags));
                assert_eq!(action.to, To::Port(40));
                let headers = Headers::parse(LinkType::Ethernet, &got);
                assert_eq!(headers.src_ip(&got), Some(ip("192.0.2.1")));
                let other = balance(&mut all[core], &from_backend("203.0.113.7", 4001, flags));
                assert_eq!(other.0.to, wanted, "another port of the client");
            }
        }
    }
}

/// Where a frame that arrives at `now` goes.
fn pass_at(work: &mut Balance, data: &[u8], now: Nanos) -> To {
    let mut pool = Pool::new(4, 2048);
    let meta = Meta { wire_len: data.len() as u32, ..Meta::default() };
    let frame = pool.copy(data, meta).unwrap();
    let key = parse::key(&Headers::parse(LinkType::Ethernet, data), data, 0);
    let mut batch = Batch::default();
    let lane = batch.push(frame, key).unwrap();
    batch.actions[lane] = Action::queue(0);
    work.work(&mut batch, &pool, now);
    batch.actions[lane].to
}

#[test]
fn replies_keep_their_connection() {
    // The backend sends and the client is silent, for longer than the timeout.
    let (hub, mut all) = group(vec![web(Mode::Dnat)], 2);
    balance(&mut all[0], &from_client(4000, FlowKey::ACK));
    let minute = 60_000_000_000;
    let data = from_backend("203.0.113.7", 4000, FlowKey::ACK);
    // A segment of the backend within the timeout of unestablished connections shows that it is one.
    assert_eq!(pass_at(&mut all[0], &data, 1_000_000_000), To::Port(40));
    for now in 1..60 {
        let core = now as usize % 2;
        assert_eq!(pass_at(&mut all[core], &data, now * minute), To::Port(40), "{now}");
    }
    assert_eq!(pass_at(&mut all[1], &data, 76 * minute), To::Port(50), "it has expired");
    assert_eq!(hub.occupancy()[1].connections, 0, "replies make no entry");
}

#[test]
fn a_connection_that_closes_has_no_lease() {
    const MS: Nanos = 1_000_000;
    let timeouts = Timeouts { closing: MS, ..Timeouts::default() };
    for core in [0, 1] {
        let hub = Arc::new(Hub::new(Control::new(vec![web(Mode::Dnat)], 251, 7).unwrap()));
        let mut all = Balance::group(&hub, 2, &BalanceSettings { timeouts, ..settings() });
        let data = from_backend("203.0.113.7", 4000, FlowKey::ACK);
        for segment in [
            from_client(4000, FlowKey::SYN),
            from_client(4000, FlowKey::ACK),
            data.clone(), // the connection is established
            from_client(4000, FlowKey::FIN | FlowKey::ACK),
        ] {
            pass_at(&mut all[0], &segment, 129 * MS);
        }
        // The tables count time in units of 134 ms, and leases have 100 ms.
        assert_eq!(pass_at(&mut all[core], &data, 131 * MS), To::Port(40));
        assert_eq!(pass_at(&mut all[core], &data, 140 * MS), To::Port(50), "it has expired");
    }
}

#[test]
fn replies_of_connections_without_an_entry_are_recognized() {
    // No SYN gets an entry, so the Maglev table alone chooses.
    let hub = Arc::new(Hub::new(Control::new(vec![web(Mode::Dnat)], 251, 7).unwrap()));
    let mut all = Balance::group(&hub, 2, &BalanceSettings { opening_most: 0, ..settings() });
    assert_eq!(balance(&mut all[0], &from_client(4000, FlowKey::SYN)).0.to, To::Port(1));
    assert_eq!(hub.occupancy()[0].connections, 0);
    for core in [0, 1] {
        let to = |port| from_backend("203.0.113.7", port, FlowKey::SYN | FlowKey::ACK);
        assert_eq!(balance(&mut all[core], &to(4000)).0.to, To::Port(40));
        assert_ne!(balance(&mut all[core], &to(4001)).0.to, To::Port(40));
    }
    let check = from_backend("10.0.1.253", 54_764, FlowKey::SYN | FlowKey::ACK);
    assert_ne!(balance(&mut all[0], &check).0.to, To::Port(40));
}

#[test]
fn replies_go_to_the_station_from_which_the_clients_packets_came() {
    for mode in [Mode::Dnat, Mode::FullNat] {
        let hub = Arc::new(Hub::new(Control::new(vec![web(mode)], 251, 7).unwrap()));
        let clients = Exit { dst: [0; 6], ..CLIENTS };
        let with = BalanceSettings {
            clients,
            returns: true,
            local: vec![ip("10.9.0.1"), ip("10.9.0.2")],
            ..settings()
        };
        let mut all = Balance::group(&hub, 2, &with);
        for (port, from) in [(4000, 8), (4001, 9), (4000, 7)] {
            let mut data = from_client(port, FlowKey::ACK);
            data[6..12].copy_from_slice(&[2, 0, 0, 0, 7, from]);
            let (_, sent) = balance(&mut all[0], &data);
            let sent = parse::key(&Headers::parse(LinkType::Ethernet, &sent), &sent, 0).flow();
            let back = Build::new(&sent.reversed()).flags(FlowKey::ACK).bytes();
            for core in [0, 1] {
                all[core].answer_leases.clear();
                let (action, got) = balance(&mut all[core], &back);
                assert_eq!(action.to, To::Port(40), "{mode:?}");
                assert_eq!(got[..6], [2, 0, 0, 0, 7, from], "{mode:?}, core {core}");
                assert_eq!(got[6..12], CLIENTS.src);
            }
        }
    }
}

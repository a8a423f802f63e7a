use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::{Backend, Choice, ConnKey, Control, Exit, Mode, Plan, Service, Timeouts, quic};
use flowyard_flow::{Secret, parse};
use flowyard_frame::{Action, FlowKey, LANES, To};
use flowyard_testkit::Build;
use flowyard_wire::checksum::transport_checksum;
use flowyard_wire::{Headers, Net, Verdict};
use proptest::prelude::*;

use super::*;
use flowyard_pool::Meta;

thread_local! {
    /// The tables of other cores that were searched.
    pub(super) static ASKED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

pub(super) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(super) fn backend(number: u8, addr: IpAddr, port: Option<u16>) -> Backend {
    let exit = Exit {
        port: number.into(),
        src: [2, 0, 0, 0, 0, number],
        dst: [2, 0, 0, 0, 1, number],
        via: None,
    };
    let name = format!("b{number}");
    Backend {
        name,
        addr,
        port,
        weight: 1,
        drain: false,
        backup: false,
        ceiling: None,
        exit,
        server_id: vec![number],
    }
}

pub(super) fn service(
    name: &str,
    vip: IpAddr,
    proto: u8,
    ports: RangeInclusive<u16>,
    mode: Mode,
) -> Service {
    Service::new(name, vip, proto, ports, mode, Vec::new())
}

const CLIENTS: Exit =
    Exit { port: 40, src: [2, 0, 0, 0, 0, 40], dst: [2, 0, 0, 0, 9, 40], via: None };

pub(super) fn settings() -> BalanceSettings {
    BalanceSettings {
        connections: 4096,
        full_drops: false,
        opening_most: 1024,
        timeouts: Timeouts::default(),
        clients: CLIENTS,
        returns: false,
        local: vec![ip("10.9.0.1"), ip("2001:db8:9::1")],
        pass: vec![Some(50)],
        places: Vec::new(),
        neighbour_fresh: 0,
        replicated: 0,
        secret: Secret::FIXED,
    }
}

pub(super) fn group(services: Vec<Service>, cores: usize) -> (Arc<Hub>, Vec<Balance>) {
    let hub = Arc::new(Hub::new(Control::new(services, 251, 7).unwrap()));
    let all = Balance::group(&hub, cores, &settings());
    (hub, all)
}

pub(super) fn one(service: Service) -> Balance {
    group(vec![service], 1).1.remove(0)
}

/// Balances one frame. Returns its action and the frame afterwards.
pub(super) fn balance(balance: &mut Balance, data: &[u8]) -> (Action, Vec<u8>) {
    let mut pool = Pool::new(64, 2048);
    let mut batch = Batch::default();
    let meta = Meta { wire_len: data.len() as u32, ..Meta::default() };
    let frame = pool.copy(data, meta).unwrap();
    let key = parse::key(&Headers::parse(LinkType::Ethernet, data), data, 0);
    let lane = batch.push(frame, key).unwrap();
    batch.actions[lane] = Action { mark: 9, ..Action::queue(0) };
    assert_eq!(balance.work(&mut batch, &pool, 5), 5);
    (batch.actions[lane], pool.bytes(&batch.frames[lane]).to_vec())
}

/// Whether no header, inside tunnels too, has a wrong checksum.
pub(super) fn right(data: &[u8]) -> bool {
    let mut level = Some(Headers::parse(LinkType::Ethernet, data));
    let mut right = true;
    while let Some(headers) = level {
        right &= headers.ipv4_checksum(data) != Verdict::Bad;
        right &= headers.transport_checksum(data) != Verdict::Bad;
        level = headers.inner(data);
    }
    right
}

fn with_macs(key: FlowKey, exit: Exit) -> FlowKey {
    FlowKey { eth_src: exit.src, eth_dst: exit.dst, ..key }
}

/// Addresses of VIP, backend and client, of a family.
pub(super) fn addrs(v6: bool) -> [IpAddr; 3] {
    if v6 {
        [ip("2001:db8::80"), ip("2001:db8:1::1"), ip("2001:db8:5::5")]
    } else {
        [ip("192.0.2.1"), ip("10.0.1.1"), ip("203.0.113.7")]
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// A translated frame equals one that is built with the translated addresses.
    #[test]
    fn translation_equals_a_new_frame(
        v6: bool, which in 0usize..3, full: bool, port in any::<Option<u16>>(), sport: u16, dport in 1u16..,
        payload in prop::collection::vec(any::<u8>(), 0..300), vlan in 0u16..3,
    ) {
        let proto = [proto::TCP, proto::UDP, proto::SCTP][which];
        let [vip, to, client] = addrs(v6);
        let mode = if full { Mode::FullNat } else { Mode::Dnat };
        let mut service = service("s", vip, proto, dport..=dport, mode);
        service.backends = vec![backend(1, to, port)];
        let exit = service.backends[0].exit;
        let mut work = one(service);
        let key = FlowKey { vlan_tci: vlan, ..FlowKey::five_tuple(proto, client, sport, vip, dport) };
        let (action, got) = balance(&mut work, &Build::new(&key).payload(&payload).bytes());
        prop_assert_eq!((action.to, action.mark), (To::Port(1), 9));
        let local = if v6 { ip("2001:db8:9::1") } else { ip("10.9.0.1") };
        let (src, from) = if full { (local, 1024) } else { (client, sport) };
        let want = FlowKey::five_tuple(proto, src, from, to, port.unwrap_or(dport));
        let want = with_macs(FlowKey { vlan_tci: vlan, ..want }, exit);
        prop_assert_eq!(&got, &Build::new(&want).ttl(63).payload(&payload).bytes());
        // The reply.
        let answer = FlowKey { vlan_tci: vlan, ..want.flow().reversed() };
        let (action, got) = balance(&mut work, &Build::new(&answer).payload(&payload).bytes());
        prop_assert_eq!(action.to, To::Port(40));
        let want = with_macs(FlowKey { vlan_tci: vlan, ..key.flow().reversed() }, CLIENTS);
        prop_assert_eq!(&got, &Build::new(&want).ttl(63).payload(&payload).bytes());
    }

    #[test]
    fn a_tunnel_contains_the_packet(v6: bool, to_v6: bool, gue: bool, pad in 0usize..80, payload in prop::collection::vec(any::<u8>(), 0..300)) {
        let ([vip, _, client], [_, to, _]) = (addrs(v6), addrs(to_v6));
        let mode = if gue { Mode::Gue } else { Mode::Ipip };
        let mut service = service("s", vip, proto::TCP, 80..=80, mode);
        service.backends = vec![backend(1, to, None)];
        let key = FlowKey { tos: 0x2e, ..FlowKey::five_tuple(proto::TCP, client, 5, vip, 80) };
        let plain = Build::new(&key).ttl(63).payload(&payload).bytes();
        let padded = Build::new(&key).payload(&payload).pad(pad).bytes();
        let (action, got) = balance(&mut one(service), &padded);
        prop_assert_eq!(action.to, To::Port(1));
        prop_assert!(got.ends_with(&plain[14..]) && right(&got));
        let outer = Headers::parse(LinkType::Ethernet, &got);
        prop_assert_eq!(outer.net, if to_v6 { Net::Ipv6 } else { Net::Ipv4 });
        prop_assert_eq!((outer.dst_ip(&got), outer.tos(&got)), (Some(to), Some(0x2e)));
        prop_assert_eq!(got.len(), plain.len() + mode.overhead(to_v6));
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(
        mut data in prop::collection::vec(any::<u8>(), 0..160), mode in 0usize..7, edit in 0usize..7, at in 0usize..160, byte: u8,
    ) {
        let (proxy, toa) = (mode == 5, mode == 6);
        let mode = [Mode::Dsr, Mode::Dnat, Mode::FullNat, Mode::Ipip, Mode::Gue, Mode::FullNat, Mode::FullNat][mode];
        let vip = ip("192.0.2.1");
        let mut service = service("s", vip, proto::TCP, 1..=65_535, mode);
        (service.mss, service.mtu, service.proxy) = (Some(1000), Some(150), proxy);
        service.toa = toa;
        service.backends = vec![backend(1, ip("10.0.1.1"), None)];
        let hub = Arc::new(Hub::new(Control::new(vec![service], 251, 7).unwrap()));
        let addrs = vec![ip("192.0.2.253"), ip("2001:db8::fe")];
        let place = Place { mac: [2; 6], addrs, answers: true };
        let settings = BalanceSettings { places: vec![place], neighbour_fresh: 9, ..settings() };
        let mut work = Balance::group(&hub, 1, &settings).remove(0);
        // An existing connection and a frame related to it (a segment, a reply, an error about it or its
        // tunnel, a neighbour message), damaged and truncated at any byte.
        let key = FlowKey::five_tuple(proto::TCP, ip("10.0.0.1"), 5, vip, 80);
        let (_, there) = balance(&mut work, &Build::new(&key).flags(FlowKey::SYN).bytes());
        let sent = parse::key(&Headers::parse(LinkType::Ethernet, &there), &there, 0).flow();
        let (router, from) = (ip("10.0.1.254"), sent.src_ip().unwrap());
        let mut like = match edit {
            0 => Vec::new(),
            1 => Build::new(&key).flags(byte).payload(&data).bytes(),
            2 => Build::new(&sent.reversed()).flags(byte).payload(&data).bytes(),
            3 => error_quoting(&[&there[..], &data].concat(), router, from, (3, 4)),
            4 => error_about(&key.reversed(), 3, 4),
            5 => Build::new(&FlowKey { eth_type: 0x0806, ..FlowKey::ZERO }).payload(&data).bytes(),
            _ => data.clone(),
        };
        if let Some(old) = like.get_mut(at) {
            *old = byte;
        }
        let _ = balance(&mut work, &like);
        like.truncate(data.len());
        let n = like.len();
        data[..n].copy_from_slice(&like);
        let _ = balance(&mut work, &data);
    }

    #[test]
    fn the_mss_option_is_limited(before in 0usize..4, offered: u16, clamp: u16) {
        let mut service = service("s", ip("192.0.2.1"), proto::TCP, 80..=80, Mode::Dsr);
        (service.mss, service.backends) = (Some(clamp), vec![backend(1, ip("10.0.1.1"), None)]);
        let key = FlowKey::five_tuple(proto::TCP, ip("10.0.0.1"), 5, service.vip, 80);
        let mut options = vec![1; before]; // no-operation: the option may be at an odd offset
        options.extend([2, 4, (offered >> 8) as u8, offered as u8]);
        options.resize(8, 0);
        let mut data = Build::new(&key).flags(FlowKey::SYN).payload(&options).bytes();
        let sum = |data: &mut Vec<u8>| {
            data[46] = 0x70;
            data[50..52].fill(0);
            let sum = transport_checksum(ip("10.0.0.1"), ip("192.0.2.1"), 6, &data[34..]);
            data[50..52].copy_from_slice(&sum.to_be_bytes());
        };
        sum(&mut data);
        let (_, got) = balance(&mut one(service), &data);
        let at = 54 + before + 2;
        data[at..at + 2].copy_from_slice(&offered.min(clamp).to_be_bytes());
        sum(&mut data);
        (data[22], data[24]) = (63, data[24] + 1); // one hop further
        prop_assert_eq!(&got[12..], &data[12..]);
    }
}

/// The data offset of a SYN says that its option is longer than the packet.
#[test]
fn an_option_that_the_packet_cuts_stays_as_it_is() {
    for (mode, toa, proxy) in [
        (Mode::Dsr, false, false),
        (Mode::Dnat, false, false),
        (Mode::FullNat, true, false),
        (Mode::FullNat, false, true),
        (Mode::Ipip, false, false),
    ] {
        let mut service = service("s", ip("192.0.2.1"), proto::TCP, 80..=80, mode);
        (service.mss, service.backends) = (Some(256), vec![backend(1, ip("10.0.1.1"), None)]);
        (service.toa, service.proxy) = (toa, proxy);
        let mut work = one(service);
        let client = FlowKey::five_tuple(proto::TCP, ip("10.0.0.1"), 5, ip("192.0.2.1"), 80);
        let first = balance(&mut work, &Build::new(&client).flags(FlowKey::SYN).bytes()).1;
        let sent = parse::key(&Headers::parse(LinkType::Ethernet, &first), &first, 0).flow();
        let answer = mode.translates().then_some((sent.reversed(), FlowKey::SYN | FlowKey::ACK));
        for (key, flags) in [(client, FlowKey::SYN)].into_iter().chain(answer) {
            for (words, cut) in (5..16).flat_map(|words| (0..8).map(move |cut| (words, cut))) {
                for options in [[2, 4, 9, 9, 2, 4, 9, 9], [1, 1, 1, 2, 4, 9, 9, 0]] {
                    let frame = Build::new(&key).flags(flags).payload(&options[..cut]);
                    let mut frame = frame.bytes();
                    frame[14 + 20 + 12] = words << 4;
                    let _action = balance(&mut work, &frame);
                }
            }
        }
    }
}

#[test]
fn a_quic_client_that_moves_keeps_its_server() {
    for key in [None, Some([9; 16])] {
        let vip = ip("192.0.2.1");
        let config = quic::Config::new(1, 1, 6, key).unwrap();
        let mut service = service("q", vip, proto::UDP, 443..=443, Mode::Dsr);
        service.backends = (1..=8).map(|n| backend(n, IpAddr::from([10, 0, 1, n]), None)).collect();
        service.quic = vec![config.clone()];
        let mut work = one(service);
        for number in 0..64u8 {
            let server = quic::ServerId::new(&[number % 8 + 1]).unwrap();
            let cid = quic::connection_id_of(&config, &server, &[number; 6]).unwrap();
            let packet = [&[0x40][..], &cid, &[0; 20]].concat();
            for client in [[10, 0, 0, number], [10, 7, number, 7]] {
                let key = FlowKey::five_tuple(proto::UDP, client.into(), 999, vip, 443);
                let (action, _) = balance(&mut work, &Build::new(&key).payload(&packet).bytes());
                assert_eq!(action.to, To::Port(u16::from(number % 8 + 1)));
            }
        }
        // A server that does not exist: routed by address.
        let cid = quic::connection_id_of(&config, &quic::ServerId::new(&[99]).unwrap(), &[1; 6]);
        let packet = [&[0x40][..], &cid.unwrap(), &[0; 20]].concat();
        let key = FlowKey::five_tuple(proto::UDP, ip("10.0.0.200"), 999, vip, 443);
        let (action, _) = balance(&mut work, &Build::new(&key).payload(&packet).bytes());
        assert!(matches!(action.to, To::Port(1..=8)));
    }
}

/// The destination that this balancer chooses for flow `number`.
fn to(work: &mut Balance, number: u16, flags: u8) -> To {
    let [a, b] = number.to_be_bytes();
    let src = IpAddr::from([10, 1, a, b]);
    let key = FlowKey::five_tuple(proto::TCP, src, 7, ip("192.0.2.1"), 80);
    balance(work, &Build::new(&key).flags(flags).bytes()).0.to
}

fn web(backends: RangeInclusive<u8>) -> Vec<Service> {
    let mut service = service("web", ip("192.0.2.1"), proto::TCP, 80..=80, Mode::Dsr);
    service.backends = backends.map(|n| backend(n, IpAddr::from([10, 0, 1, n]), None)).collect();
    vec![service]
}

#[test]
fn the_loss_of_a_balancer_breaks_no_connection() {
    // Three balancers behind a router that distributes by hash; one fails, and the others get its flows.
    let mut nodes: Vec<_> = (0..3).map(|_| group(web(1..=10), 1).1.remove(0)).collect();
    let before: Vec<_> =
        (0..300).map(|n| to(&mut nodes[usize::from(n) % 3], n, FlowKey::SYN)).collect();
    nodes.remove(0);
    for n in 0..300u16 {
        let node = if n % 3 == 0 { usize::from(n) % 2 } else { usize::from(n) % 3 - 1 };
        assert_eq!(to(&mut nodes[node], n, FlowKey::ACK), before[usize::from(n)], "{n}");
    }
}

#[test]
fn connections_stay_when_backends_come_and_go() {
    let (hub, mut works) = group(web(1..=10), 2);
    let before: Vec<_> = (0..400).map(|n| to(&mut works[0], n, FlowKey::SYN)).collect();
    hub.set(web(2..=11), 1).unwrap();
    let mut moved = 0;
    for n in 0..400u16 {
        // On another core, as if the flow was moved.
        let now = to(&mut works[1], n, FlowKey::ACK);
        let was = before[usize::from(n)];
        assert!(now == was || was == To::Port(1), "{n}: {was:?} {now:?}");
        moved += u32::from(now != was);
        assert_eq!(to(&mut works[0], n, FlowKey::ACK), now, "and back");
    }
    assert!((20..80).contains(&moved), "{moved} of 400 were on the removed backend");
}

#[test]
fn connections_are_counted_by_backend() {
    let (hub, mut works) = group(web(1..=2), 1);
    for n in 0..100 {
        to(&mut works[0], n, FlowKey::SYN);
    }
    let sum = |plan: &Plan| -> u32 { plan.targets().map(|t| t.active.get()).sum() };
    assert_eq!(sum(&hub.plan()), 100);
    let mut batch = Batch::default();
    for _ in 0..8 {
        works[0].work(&mut batch, &Pool::new(1, 64), 31_000_000_000); // all half-open connections have expired
    }
    assert_eq!(sum(&hub.plan()), 0);
}

mod directory;
mod ended;
mod ends;
mod errors;
mod flood;
mod fragments;
mod front;
mod handed;
mod limits;
mod listing;
mod marks;
mod one_packet;
mod operate;
mod persist;
mod ports;
mod present;
mod replicate;
mod replies;
mod shared;
mod unfinished;

use errors::error_about;
pub(super) use errors::error_quoting;

#[test]
fn new_limits_hold_at_once_and_connections_stay() {
    let (hub, mut works) = group(web(1..=10), 2);
    let before: Vec<_> = (0..100).map(|n| to(&mut works[0], n, FlowKey::SYN)).collect();
    let stray = |work: &mut Balance| {
        let key = FlowKey::five_tuple(proto::TCP, ip("10.1.0.1"), 7, ip("198.51.100.1"), 80);
        balance(work, &Build::new(&key).bytes()).0.to
    };
    assert_eq!(stray(&mut works[1]), To::Port(50));
    let open = 5_000_000_000;
    let new = BalanceSettings {
        full_drops: true,
        opening_most: 100,
        timeouts: Timeouts { open, ..Timeouts::default() },
        pass: vec![None],
        ..settings()
    };
    assert_ne!(BalanceLimits::of(&new), BalanceLimits::of(&settings()));
    let message: ControlMessage = Arc::new(BalanceLimits::of(&new));
    for work in &mut works {
        work.control(&message, 0, &mut |_, _| {});
        assert_eq!(work.table(work.core).unwrap().timeouts().open, open);
        assert_eq!(stray(work), To::Drop(DropReason::NoService.code()));
    }
    assert_eq!(hub.pass(), [None]);
    for n in 0..100 {
        assert_eq!(to(&mut works[1], n, FlowKey::ACK), before[usize::from(n)], "{n}");
    }
    // The limit of unestablished connections is the new one: each further SYN evicts one.
    for n in 1000..1300 {
        let _placed = to(&mut works[0], n, FlowKey::SYN);
    }
    assert!(works[0].table(0).unwrap().unestablished() <= 100);
}

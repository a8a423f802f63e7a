//! ICMP errors that pass through the balancer, and those that it sends.

use super::*;

/// An ICMP error from a router to the VIP about a packet of `flow`.
pub(super) fn error_about(flow: &FlowKey, kind: u8, code: u8) -> Vec<u8> {
    let quoted = Build::new(flow).payload(&[7; 40]).bytes();
    let router = if flow.is_ipv6() { ip("2001:db8:77::1") } else { ip("198.51.100.1") };
    let v6 = flow.is_ipv6();
    let icmp = if v6 { proto::ICMPV6 } else { proto::ICMP };
    let key = FlowKey::five_tuple(icmp, router, 0, flow.src_ip().unwrap(), 0);
    let mut data = Build::new(&key).payload(&quoted[14..]).bytes();
    let l4 = if v6 { 54 } else { 34 };
    (data[l4], data[l4 + 1]) = (kind, code);
    data[l4 + 2..l4 + 8].copy_from_slice(&[0, 0, 0, 0, 5, 0]);
    let sum = if v6 {
        transport_checksum(router, flow.src_ip().unwrap(), icmp, &data[l4..])
    } else {
        flowyard_wire::checksum::checksum(&data[l4..])
    };
    data[l4 + 2..l4 + 4].copy_from_slice(&sum.to_be_bytes());
    assert!(right(&data));
    data
}

#[test]
fn errors_go_to_the_backend_whose_packet_they_quote() {
    for (v6, mode) in [false, true]
        .into_iter()
        .flat_map(|v6| [Mode::Dsr, Mode::Ipip, Mode::Dnat, Mode::FullNat].map(|mode| (v6, mode)))
    {
        let [vip, _, client] = addrs(v6);
        let mut service = service("s", vip, proto::TCP, 80..=80, mode);
        let addr =
            |n: u8| if v6 { ip(&format!("2001:db8:1::{n}")) } else { IpAddr::from([10, 0, 1, n]) };
        let port = mode.translates().then_some(8080);
        service.choice = Choice::RoundRobin; // so that only the connection table determines the backend
        service.backends = (1..=4).map(|n| backend(n, addr(n), port)).collect();
        let mut work = one(service);
        for sport in 1000..1020 {
            let key = FlowKey::five_tuple(proto::TCP, client, sport, vip, 80);
            let (went, forwarded) =
                balance(&mut work, &Build::new(&key).flags(FlowKey::SYN).bytes());
            let (kind, code) = if v6 { (2, 0) } else { (3, 4) };
            let (came, got) = balance(&mut work, &error_about(&key.reversed(), kind, code));
            assert_eq!(came.to, went.to, "{mode:?} {sport}");
            assert!(right(&got), "{mode:?}");
            if !mode.translates() {
                continue;
            }
            let headers = Headers::parse(LinkType::Ethernet, &got);
            let sent = Headers::parse(LinkType::Ethernet, &forwarded);
            assert_eq!(headers.dst_ip(&got), sent.dst_ip(&forwarded));
            // The quoted packet is the one that the backend sent, with correct checksums.
            let quoted = &got[headers.l4 as usize + 8..];
            let inner = crate::icmp::quoted(&got[headers.l4 as usize..], v6).unwrap();
            assert_eq!(inner.flow, parse::key(&sent, &forwarded, 0).flow().reversed());
            let levels = Headers::parse(LinkType::RawIp, quoted);
            assert_eq!(levels.transport_checksum(quoted), Verdict::Good);
            assert_ne!(levels.ipv4_checksum(quoted), Verdict::Bad);
        }
    }
}

/// Without an entry, the hash says which backend a packet went to. Only full NAT has no address to which the error
/// could be sent, because the local address was that of the entry.
#[test]
fn an_error_about_an_unknown_connection_goes_where_its_packets_go_unless_it_was_translated() {
    for (v6, mode) in [false, true]
        .into_iter()
        .flat_map(|v6| [Mode::Dsr, Mode::Ipip, Mode::Dnat, Mode::FullNat].map(|mode| (v6, mode)))
    {
        let [vip, _, client] = addrs(v6);
        let mut service = service("s", vip, proto::TCP, 80..=80, mode);
        let addr =
            |n: u8| if v6 { ip(&format!("2001:db8:1::{n}")) } else { IpAddr::from([10, 0, 1, n]) };
        let port = mode.translates().then_some(8080);
        service.backends = (1..=4).map(|n| backend(n, addr(n), port)).collect();
        let mut work = one(service);
        for sport in 1000..1020 {
            let key = FlowKey::five_tuple(proto::TCP, client, sport, vip, 80);
            let (kind, code) = if v6 { (2, 0) } else { (3, 4) };
            let error = error_about(&key.reversed(), kind, code);
            let (came, got) = balance(&mut work, &error);
            if mode == Mode::FullNat {
                assert_eq!(came.to, To::Drop(DropReason::NoConnection.code()), "{v6} {sport}");
                assert_eq!(got, error, "unchanged");
                continue;
            }
            let (went, _) = balance(&mut work, &Build::new(&key).flags(FlowKey::ACK).bytes());
            assert!(matches!(went.to, To::Port(1..=4)), "{went:?}");
            assert_eq!(came.to, went.to, "{mode:?} {sport}");
            assert!(right(&got), "{mode:?}");
        }
    }
}

/// An ICMP error of `router` to `to` that quotes the packet in `frame`.
pub(in crate::work) fn error_quoting(
    frame: &[u8],
    router: IpAddr,
    to: IpAddr,
    (kind, code): (u8, u8),
) -> Vec<u8> {
    let v6 = router.is_ipv6();
    let icmp = if v6 { proto::ICMPV6 } else { proto::ICMP };
    let key = FlowKey::five_tuple(icmp, router, 0, to, 0);
    let mut data = Build::new(&key).payload(&frame[14..]).bytes();
    let l4 = if v6 { 54 } else { 34 };
    (data[l4], data[l4 + 1]) = (kind, code);
    data[l4 + 2..l4 + 8].copy_from_slice(&[0, 0, 0, 0, 5, 0]); // 1280 bytes fit
    let sum = match v6 {
        true => transport_checksum(router, to, icmp, &data[l4..]),
        false => flowyard_wire::checksum::checksum(&data[l4..]),
    };
    data[l4 + 2..l4 + 4].copy_from_slice(&sum.to_be_bytes());
    assert!(right(&data));
    data
}

#[test]
fn errors_from_the_backends_side_go_to_the_client() {
    for (v6, mode) in
        [false, true].into_iter().flat_map(|v6| [Mode::Dnat, Mode::FullNat].map(|mode| (v6, mode)))
    {
        for which in [proto::TCP, proto::UDP, proto::SCTP] {
            let [vip, to, client] = addrs(v6);
            let mut service = service("s", vip, which, 80..=80, mode);
            service.backends = vec![backend(1, to, Some(8080))];
            let mut work = one(service);
            let key = FlowKey::five_tuple(which, client, 999, vip, 80);
            let sent = balance(&mut work, &Build::new(&key).payload(&[7; 40]).bytes()).1;
            let from = Headers::parse(LinkType::Ethernet, &sent).src_ip(&sent).unwrap();
            let router = if v6 { ip("2001:db8:1::fe") } else { ip("10.0.1.254") };
            let kind = if v6 { (2, 0) } else { (3, 4) };
            let (action, got) = balance(&mut work, &error_quoting(&sent, router, from, kind));
            assert_eq!(action.to, To::Port(40), "{mode:?} {which} {v6}");
            assert!(right(&got));
            let headers = Headers::parse(LinkType::Ethernet, &got);
            assert_eq!((headers.src_ip(&got), headers.dst_ip(&got)), (Some(vip), Some(client)));
            let message = &got[headers.l4 as usize..];
            assert_eq!(message[4..8], [0, 0, 5, 0], "the MTU is as it was");
            assert_eq!(crate::icmp::quoted(message, v6).unwrap().flow, key.flow());
            let inner = Headers::parse(LinkType::RawIp, &message[8..]);
            assert_ne!(inner.ipv4_checksum(&message[8..]), Verdict::Bad);
            if which != proto::SCTP {
                assert_eq!(inner.transport_checksum(&message[8..]), Verdict::Good);
            }
            // About a packet of no connection, or not addressed to its sender.
            let stranger = FlowKey::five_tuple(
                which,
                from,
                999,
                ip(if v6 { "::9" } else { "10.0.1.9" }),
                8080,
            );
            let error = error_quoting(&Build::new(&stranger).bytes(), router, from, kind);
            assert_ne!(balance(&mut work, &error).0.to, To::Port(40));
            let other = if v6 { ip("2001:db8:5::6") } else { ip("203.0.113.8") };
            let error = error_quoting(&sent, router, other, kind);
            assert_ne!(balance(&mut work, &error).0.to, To::Port(40));
        }
    }
}

#[test]
fn an_error_that_looks_like_one_about_a_tunnel_goes_to_the_client() {
    // A datagram of a FullNAT connection from a local address to the port of GUE.
    let [vip, to, client] = addrs(false);
    let mut service = service("s", vip, proto::UDP, 53..=53, Mode::FullNat);
    service.backends = vec![backend(1, to, Some(6080))];
    let mut work = one(service);
    let key = FlowKey::five_tuple(proto::UDP, client, 999, vip, 53);
    let (_, sent) = balance(&mut work, &Build::new(&key).payload(&[7; 40]).bytes());
    let error = error_quoting(&sent, ip("10.0.1.254"), ip("10.9.0.1"), (3, 4));
    let (action, got) = balance(&mut work, &error);
    assert_eq!(action.to, To::Port(40));
    assert_eq!(crate::icmp::quoted(&got[34..], false).unwrap().flow, key.flow());
}

#[test]
fn the_path_mtu_of_a_tunnel_is_recorded() {
    for (v6, to_v6, mode, whole) in [false, true].into_iter().flat_map(|v6| {
        [false, true].into_iter().flat_map(move |to_v6| {
            [Mode::Ipip, Mode::Gue]
                .into_iter()
                .flat_map(move |mode| [false, true].map(|whole| (v6, to_v6, mode, whole)))
        })
    }) {
        let ([vip, _, client], [_, to, _]) = (addrs(v6), addrs(to_v6));
        let mut service = service("s", vip, proto::UDP, 80..=80, mode);
        service.backends = vec![backend(1, to, None)];
        let mut work = one(service);
        let key = FlowKey::five_tuple(proto::UDP, client, 999, vip, 80);
        let head = if v6 { 48 } else { 28 };
        let room = 1280 - mode.overhead(to_v6); // for the client's packet
        let long = |len: usize| {
            let mut data = Build::new(&key).payload(&vec![7; len - head]).bytes();
            if !v6 {
                data[20] = 0x40; // must not be fragmented
                data[24..26].fill(0);
                let sum = flowyard_wire::checksum::checksum(&data[14..34]);
                data[24..26].copy_from_slice(&sum.to_be_bytes());
            }
            data
        };
        let (action, sent) = balance(&mut work, &long(room + 1));
        assert_eq!(action.to, To::Port(1));
        // With the bytes that RFC 792 guarantees only the tunnel is known; with more, the client is too.
        let outer = if to_v6 { 40 } else { 20 };
        let quote = &sent[..14 + outer + if whole { 8 + head } else { 8 }];
        let (router, source) = match to_v6 {
            true => (ip("2001:db8:1::fe"), ip("2001:db8:9::1")),
            false => (ip("10.0.1.254"), ip("10.9.0.1")),
        };
        let kind = if to_v6 { (2, 0) } else { (3, 4) };
        let what = format!("{mode:?} {v6} in {to_v6}, {whole}");
        let (action, got) = balance(&mut work, &error_quoting(quote, router, source, kind));
        let notified = |got: &[u8]| {
            assert!(right(got), "{what}");
            let headers = Headers::parse(LinkType::Ethernet, got);
            assert_eq!(
                (headers.src_ip(got), headers.dst_ip(got)),
                (Some(vip), Some(client)),
                "{what}"
            );
            let message = &got[headers.l4 as usize..];
            assert_eq!(message[..2], if v6 { [2, 0] } else { [3, 4] }, "{what}");
            assert_eq!(message[4..8], (room as u32).to_be_bytes(), "{what}");
            assert_eq!(crate::icmp::quoted(message, v6).unwrap().flow, key.flow(), "{what}");
        };
        match whole || mode == Mode::Ipip && !v6 && action.to == To::Port(40) {
            true => {
                assert_eq!(action.to, To::Port(40), "{what}");
                notified(&got);
            }
            false => assert_eq!(action.to, To::Drop(DropReason::Taken.code()), "{what}"),
        }
        assert_eq!(balance(&mut work, &long(room)).0.to, To::Port(1), "it fits: {what}");
        let (action, got) = balance(&mut work, &long(room + 1));
        assert_eq!(action.to, To::Port(0), "back: {what}");
        notified(&got);
    }
}

#[test]
fn expired_packets_are_answered_with_time_exceeded() {
    for (v6, mode) in [false, true].into_iter().flat_map(|v6| {
        [Mode::Dsr, Mode::Dnat, Mode::FullNat, Mode::Ipip, Mode::Gue].map(|mode| (v6, mode))
    }) {
        let [vip, to, client] = addrs(v6);
        let mut service = service("s", vip, proto::UDP, 80..=80, mode);
        service.backends = vec![backend(1, to, None)];
        let mut work = one(service);
        let key = FlowKey::five_tuple(proto::UDP, client, 999, vip, 80);
        let (_, sent) = balance(&mut work, &Build::new(&key).ttl(2).bytes());
        let levels = Headers::parse(LinkType::Ethernet, &sent);
        let at = 14 + mode.overhead(v6) + if v6 { 7 } else { 8 };
        assert_eq!(sent[at], 1, "{mode:?}");
        let mut check = |frame: &[u8], in_port: u16, from: IpAddr, to: IpAddr| {
            let (action, got) = balance(&mut work, frame);
            assert_eq!(action.to, To::Port(in_port));
            assert!(right(&got));
            let headers = Headers::parse(LinkType::Ethernet, &got);
            assert_eq!((headers.src_ip(&got), headers.dst_ip(&got)), (Some(from), Some(to)));
            let message = &got[headers.l4 as usize..];
            assert_eq!(message[..2], if v6 { [3, 0] } else { [11, 0] });
            // A packet to a group must not be answered.
            let mut again = Build::new(&key).ttl(1).bytes();
            again[0] = 1; // to a group
            assert_eq!(balance(&mut work, &again).0.to, To::Drop(DropReason::TtlExpired.code()));
        };
        check(&Build::new(&key).ttl(1).bytes(), 0, vip, client);
        check(&Build::new(&key).ttl(0).bytes(), 0, vip, client);
        if mode.translates() {
            let back = parse::key(&levels, &sent, 0).flow().reversed();
            check(&Build::new(&back).ttl(1).bytes(), 0, vip, to);
        }
    }
}

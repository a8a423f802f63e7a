//! Announcements of addresses, and echo replies.

use super::*;
use flowyard_works::neighbour::message::{Heard, read};

/// A balancer with an address on port 0, where it also answers for VIPs.
fn there(services: Vec<Service>) -> (Arc<Hub>, Vec<Balance>) {
    let place = Place { mac: [2, 0, 0, 0, 0, 7], addrs: vec![ip("203.0.113.1")], answers: true };
    let silent = Place { answers: false, mac: [2, 0, 0, 0, 0, 8], ..place.clone() };
    let hub = Arc::new(Hub::new(Control::new(services, 251, 7).unwrap()));
    let all = Balance::group(
        &hub,
        2,
        &BalanceSettings { places: vec![place, silent], pass: Vec::new(), ..settings() },
    );
    (hub, all)
}

fn service_at(vip: &str) -> Service {
    let mut service = service(vip, ip(vip), proto::UDP, 53..=53, Mode::Dsr);
    let to = if service.vip.is_ipv6() { "2001:db8:1::1" } else { "10.0.1.1" };
    service.backends = vec![backend(1, ip(to), None)];
    service
}

/// The addresses that are announced at `now`, each by a correct message on the port that answers.
fn announced(work: &mut Balance, now: Nanos) -> Vec<IpAddr> {
    let mut heard = Vec::new();
    work.speak(now, &mut |port, frame| {
        assert_eq!(port, 0);
        assert!(frame[0] & 1 == 1, "to all");
        assert_eq!(frame[6..12], [2, 0, 0, 0, 0, 7]);
        let who = match read(frame).unwrap() {
            Heard::Asks { target, from } => {
                assert_eq!(from.unwrap().0, target);
                from.unwrap()
            }
            Heard::Says { who, replaces } => {
                assert!(replaces);
                who
            }
        };
        assert_eq!(who.1, [2, 0, 0, 0, 0, 7]);
        heard.push(who.0);
        true
    });
    heard
}

#[test]
fn new_addresses_are_announced_twice() {
    let second = 1_000_000_000;
    let (hub, mut all) = there(vec![service_at("192.0.2.1"), service_at("2001:db8::80")]);
    let first = ["10.9.0.1", "192.0.2.1", "2001:db8::80", "2001:db8:9::1"].map(ip);
    assert_eq!(announced(&mut all[0], 5), first);
    assert!(announced(&mut all[1], 5).is_empty(), "one core is enough");
    assert!(announced(&mut all[0], second).is_empty());
    assert_eq!(announced(&mut all[0], 3 * second), first);
    assert!(announced(&mut all[0], 6 * second).is_empty());
    // A new weight is not announced, a new VIP is.
    hub.set_weight("192.0.2.1", "b1", Some(3), 6 * second).unwrap();
    assert!(announced(&mut all[0], 6 * second).is_empty());
    let mut quiet = service_at("192.0.2.3");
    quiet.answers = false;
    hub.set(vec![service_at("192.0.2.1"), service_at("192.0.2.2"), quiet], 7 * second).unwrap();
    assert_eq!(announced(&mut all[0], 7 * second), [ip("192.0.2.2")]);
}

#[test]
fn echo_requests_are_answered() {
    let (_, mut all) = there(vec![service_at("192.0.2.1"), service_at("2001:db8::80")]);
    let asks = |v6: bool, dst: &str| {
        let (icmp, kind, client) = match v6 {
            true => (proto::ICMPV6, 128, ip("2001:db8:5::5")),
            false => (proto::ICMP, 8, ip("203.0.113.7")),
        };
        let key = FlowKey::five_tuple(icmp, client, 0, ip(dst), 0);
        let key = FlowKey { eth_src: [2, 9, 9, 9, 9, 9], eth_dst: [2, 0, 0, 0, 0, 7], ..key };
        let message = [kind, 0, 0, 0, 1, 2, 0, 3, b'p', b'i', b'n', b'g', 1];
        Build::new(&key).payload(&message).bytes()
    };
    for (v6, dst) in [
        (false, "192.0.2.1"),
        (false, "10.9.0.1"),
        (false, "203.0.113.1"),
        (true, "2001:db8::80"),
        (true, "2001:db8:9::1"),
    ] {
        let mut data = asks(v6, dst);
        let icmp = if v6 { 54 } else { 34 };
        let addr = |text: &str| ip(text);
        let [src, proto] = match v6 {
            true => [addr("2001:db8:5::5"), addr(dst)],
            false => [addr("203.0.113.7"), addr(dst)],
        };
        data[icmp + 2..icmp + 4].fill(0);
        let sum = match v6 {
            true => transport_checksum(src, proto, 58, &data[icmp..]),
            false => flowyard_wire::checksum::checksum(&data[icmp..]),
        };
        data[icmp + 2..icmp + 4].copy_from_slice(&sum.to_be_bytes());
        let (action, got) = balance(&mut all[1], &data);
        assert_eq!(action.to, To::Port(0), "{dst}: the input port");
        assert_eq!((&got[..6], &got[6..12]), (&data[6..12], &data[..6]));
        let headers = Headers::parse(LinkType::Ethernet, &got);
        assert_eq!((headers.src_ip(&got), headers.dst_ip(&got)), (Some(proto), Some(src)));
        assert_eq!(got[icmp..icmp + 2], [if v6 { 129 } else { 0 }, 0]);
        assert_eq!(got[icmp + 4..], data[icmp + 4..]);
        assert_eq!(got[if v6 { 21 } else { 22 }], 64);
        assert!(right(&got), "{dst}");
    }
    // Not an own address; not a request; to a group MAC address.
    for (dst, at, byte) in [("192.0.2.9", 34, 8), ("192.0.2.1", 34, 13), ("192.0.2.1", 0, 3)] {
        let mut data = asks(false, dst);
        data[at] = byte;
        let (action, _) = balance(&mut all[1], &data);
        assert_ne!(action.to, To::Port(0), "{dst} {byte}");
    }
}

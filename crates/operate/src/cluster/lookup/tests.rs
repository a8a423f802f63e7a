use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flowyard_testkit::dns::Server;
use proptest::prelude::*;

use super::*;

const WEB: &str = "_http._tcp.web.example";

/// A client whose clock is set by the test while no query is in progress.
fn client(servers: Vec<SocketAddr>) -> (Lookups, Arc<AtomicU64>) {
    #[allow(clippy::disallowed_methods, reason = "tests of real sockets wait by the clock")]
    let start = std::time::Instant::now();
    let ahead = Arc::<AtomicU64>::default();
    let more = Arc::clone(&ahead);
    let clock: Clock =
        Arc::new(move || start.elapsed().as_nanos() as Nanos + more.load(Ordering::Relaxed));
    let mut client = Lookups {
        timeout: SECOND / 2,
        servers,
        current: 0,
        all: Vec::new(),
        sets: BTreeMap::new(),
        has_new_lookups: false,
        is_running: false,
        has_begun: false,
        shortest: SECOND,
        clock,
    };
    client.look_up(&[lookup("web", WEB)]);
    (client, ahead)
}

fn lookup(service: &str, name: &str) -> Lookup {
    Lookup { service: service.into(), name: name.into(), is_v6: false, port: 80 }
}

/// The backends of a service as `ADDRESS:PORT WEIGHT`.
fn shown(fragments: &[Fragment], service: &str) -> Vec<String> {
    let start = format!("config/services/{service}/backends/");
    let one = |fragment: &Fragment| {
        let backend = fragment.key.strip_prefix(&start)?;
        let weight = fragment.text.lines().find_map(|line| line.strip_prefix("weight = "))?;
        Some(format!("{backend} {weight}"))
    };
    fragments.iter().filter_map(one).collect()
}

#[track_caller]
fn new(client: &mut Lookups) -> Vec<Fragment> {
    match client.read() {
        (Some(Services::Usable(fragments)), None) => fragments,
        other => panic!("{other:?}"),
    }
}

/// Why a look has failed that has found nothing new.
#[track_caller]
fn failed(client: &mut Lookups) -> String {
    match client.read() {
        (None, Some(why)) => why,
        other => panic!("{other:?}"),
    }
}

/// What a look finds of which a part has failed, and why.
#[track_caller]
fn in_part(client: &mut Lookups) -> (Vec<Fragment>, String) {
    match client.read() {
        (Some(Services::Usable(fragments)), Some(why)) => (fragments, why),
        other => panic!("{other:?}"),
    }
}

#[test]
fn records_become_backends_and_are_asked_for_again_when_they_expire() {
    let server = Server::start();
    server.set(
        WEB,
        33,
        &["60 SRV 1 30 80 a.example", "90 SRV 1 10 8080 b.example", "60 SRV 2 99 80 c.example"],
    );
    server.set("a.example", 1, &["20 A 10.0.0.1"]);
    server.set("b.example", 1, &["60 CNAME b2.example", "60 A 10.0.0.2"]);
    let (mut client, ahead) = client(vec![server.addr()]);
    let all = new(&mut client);
    assert_eq!(shown(&all, "web"), ["10.0.0.1:80 3", "10.0.0.2:8080 1"]);
    assert_eq!(all[0].text, "addr = \"10.0.0.1\"\nweight = 3\n", "the port of the service");
    assert!(all[1].text.ends_with("port = 8080\n"));
    // The shortest TTL is 20 seconds.
    server.set("a.example", 1, &["20 A 10.0.0.9"]);
    let before = server.asked();
    assert_eq!(client.read(), (None, None));
    assert_eq!(server.asked(), before);
    ahead.store(21 * SECOND, Ordering::Relaxed);
    assert_eq!(shown(&new(&mut client), "web"), ["10.0.0.2:8080 1", "10.0.0.9:80 3"]);
    // A TTL of 0 and one of a year have bounds.
    server.set(WEB, 33, &["0 SRV 1 1 80 a.example"]);
    ahead.store(42 * SECOND, Ordering::Relaxed);
    new(&mut client);
    let before = server.asked();
    assert_eq!(client.read(), (None, None));
    assert_eq!(server.asked(), before, "a second has not passed");
    server.set(WEB, 33, &["31536000 SRV 1 1 80 a.example"]);
    server.set("a.example", 1, &["31536000 A 10.0.0.9"]);
    ahead.store(44 * SECOND, Ordering::Relaxed);
    assert_eq!(client.read(), (None, None));
    let before = server.asked();
    ahead.store(345 * SECOND, Ordering::Relaxed);
    assert_eq!(client.read(), (None, None));
    assert!(server.asked()[0] > before[0], "after five minutes");
}

#[test]
fn the_next_priority_is_used_if_no_target_of_the_first_exists() {
    let server = Server::start();
    server.set(WEB, 33, &["9 SRV 1 1 80 a.example", "9 SRV 2 1 80 b.example"]);
    server.set("b.example", 1, &["9 A 10.0.0.2"]);
    let (mut client, ahead) = client(vec![server.addr()]);
    assert_eq!(shown(&new(&mut client), "web"), ["10.0.0.2:80 1"]);
    // A server that fails says nothing of the target: nothing changes.
    server.set("a.example", 1, &["9 A 10.0.0.1"]);
    ahead.store(10 * SECOND, Ordering::Relaxed);
    assert_eq!(shown(&new(&mut client), "web"), ["10.0.0.1:80 1"]);
    server.code("a.example", 1, 2, &[]);
    ahead.store(20 * SECOND, Ordering::Relaxed);
    let error = failed(&mut client);
    assert!(
        error.contains("_http._tcp.web.example: a.example: ") && error.contains("SERVFAIL"),
        "{error}"
    );
    assert_eq!(client.sets["web"].backends.len(), 1);
}

#[test]
fn what_is_not_answered_keeps_the_last_good_backends() {
    let server = Server::start();
    let one = ["0 SRV 1 1 80 a.example"];
    server.set(WEB, 33, &one);
    server.set("a.example", 1, &["0 A 10.0.0.1"]);
    let (mut client, ahead) = client(vec![server.addr()]);
    // Without an earlier run there is nothing to begin with.
    client.look_up(&[lookup("web", WEB), lookup("dns", "_dns._udp.example")]);
    let error = failed(&mut client);
    assert!(error.starts_with("_dns._udp.example: the response is an error: NXDOMAIN"), "{error}");
    let saved = Fragment {
        key: "config/services/dns/backends/10.0.0.5:80".into(),
        text: "weight = 7\n".into(),
    };
    client.remember(&[saved]);
    ahead.store(2 * SECOND, Ordering::Relaxed);
    let (all, _) = in_part(&mut client);
    assert_eq!(
        (shown(&all, "web"), shown(&all, "dns")),
        (vec!["10.0.0.1:80 1".into()], vec!["10.0.0.5:80 7".into()])
    );
    for (at, (code, records, said)) in (1..).zip([
        (3, &[][..], "NXDOMAIN"),
        (2, &[], "SERVFAIL"),
        (5, &[], "REFUSED"),
        (0, &[], "no record of this type"),
        (0, &["0 TXT"], "no record of this type"),
        (0, &["0 SRV 0 0 0 ."], "no SRV record with a target"),
        (0, &["0 SRV 0 0 80 gone.example"], "gone.example: the response is an error: NXDOMAIN"),
        (99, &[], "no answer within 500 ms"),
    ]) {
        server.code(WEB, 33, code, records);
        ahead.store(10 * at * SECOND, Ordering::Relaxed);
        let error = failed(&mut client);
        assert!(client.sets["web"].error.as_ref().unwrap().contains(said), "{said}: {error}");
        assert_eq!(client.sets["web"].backends.len(), 1, "{said}");
    }
    // A change of one service is not held back by the failure of the other.
    server.set(WEB, 33, &one);
    server.set("a.example", 1, &["0 A 10.0.0.2"]);
    ahead.store(100 * SECOND, Ordering::Relaxed);
    let (all, why) = in_part(&mut client);
    assert!(why.starts_with("_dns._udp.example: "), "{why}");
    assert_eq!((shown(&all, "web"), shown(&all, "dns").len()), (vec!["10.0.0.2:80 1".into()], 1));
    // A service that is no longer in the file is forgotten.
    client.look_up(&[lookup("web", WEB)]);
    let all = new(&mut client);
    assert_eq!((all.len(), shown(&all, "web").len()), (1, 1));
    // With nothing but backends of an earlier run, the provider is away.
    let (mut client, _) = self::client(vec![server.addr()]);
    client.look_up(&[lookup("dns", "_dns._udp.example")]);
    client.remember(&all);
    assert!(failed(&mut client).contains("NXDOMAIN"));
    // A service that was added to the file before a restart, and that nobody knows, does not hold back the other one.
    let (mut client, ahead) = self::client(vec![server.addr()]);
    client.look_up(&[lookup("web", WEB), lookup("new", "_new.example")]);
    client.remember(&all);
    failed(&mut client);
    client.run();
    ahead.store(2 * SECOND, Ordering::Relaxed);
    let (all, why) = in_part(&mut client);
    assert!(shown(&all, "web") == ["10.0.0.2:80 1"] && why.starts_with("_new.example: "), "{why}");
}

#[test]
fn known_backends_are_those_of_the_service_as_it_is_configured_now() {
    let server = Server::start();
    server.set(WEB, 33, &["0 SRV 1 1 80 a.example", "0 SRV 1 2 8080 a.example"]);
    server.set("a.example", 1, &["0 A 10.0.0.1"]);
    let (mut client, ahead) = client(vec![server.addr()]);
    let saved = new(&mut client);
    let texts = |all: &[Fragment]| all.iter().map(|one| one.text.clone()).collect::<Vec<_>>();
    let text = |weight, port| format!("addr = \"10.0.0.1\"\nweight = {weight}\n{port}");
    assert_eq!(texts(&saved), [text(1, ""), text(2, "port = 8080\n")]);
    // From here on no query is answered. The port of the service changes: its backends keep theirs.
    server.code(WEB, 33, 2, &[]);
    ahead.store(10 * SECOND, Ordering::Relaxed);
    let other = Lookup { port: 8080, ..lookup("web", WEB) };
    client.look_up(std::slice::from_ref(&other));
    assert_eq!(texts(&in_part(&mut client).0), [text(1, "port = 80\n"), text(2, "")]);
    // So do those of an earlier run.
    let (mut later, _) = self::client(vec![server.addr()]);
    later.look_up(&[other]);
    later.remember(&saved);
    assert!(failed(&mut later).contains("SERVFAIL"), "nothing but an earlier run");
    assert_eq!(texts(&later.fragments()), [text(1, "port = 80\n"), text(2, "")]);
    // Another name: the backends serve until it is resolved. Another name of the service: they are those of the records.
    client.look_up(&[lookup("web", "_other.example")]);
    assert_eq!(shown(&in_part(&mut client).0, "web").len(), 2);
    client.look_up(&[lookup("www", "_other.example")]);
    let (all, _) = in_part(&mut client);
    assert_eq!((all.len(), shown(&all, "www").len()), (2, 2));
    // A VIP of the other IP version cannot have them.
    client.look_up(&[Lookup { is_v6: true, ..lookup("www", "_other.example") }]);
    assert_eq!(in_part(&mut client).0, []);
    let (mut later, _) = self::client(vec![server.addr()]);
    later.look_up(&[Lookup { is_v6: true, ..lookup("web", WEB) }]);
    later.remember(&saved);
    assert_eq!(later.fragments(), []);
}

/// A DNS server whose responses are all cut off, also those over TCP.
fn cut_off() -> SocketAddr {
    use std::io::{Read, Write};
    let (udp, tcp) = loop {
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        if let Ok(tcp) = std::net::TcpListener::bind(udp.local_addr().unwrap()) {
            break (udp, tcp);
        }
    };
    let addr = udp.local_addr().unwrap();
    let cut = |query: &[u8]| [&query[..2], &[0x83, 0x80], &query[4..]].concat();
    std::thread::spawn(move || {
        let mut bytes = [0; 512];
        while let Ok((len, from)) = udp.recv_from(&mut bytes) {
            udp.send_to(&cut(&bytes[..len]), from).unwrap();
        }
    });
    std::thread::spawn(move || {
        for stream in tcp.incoming() {
            let mut stream = stream.unwrap();
            let mut length = [0; 2];
            stream.read_exact(&mut length).unwrap();
            let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
            stream.read_exact(&mut query).unwrap();
            stream.write_all(&[&length[..], &cut(&query)].concat()).unwrap();
        }
    });
    addr
}

#[test]
fn a_response_over_tcp_that_is_cut_off_is_refused() {
    let (mut client, _) = client(vec![cut_off()]);
    let error = failed(&mut client);
    assert!(error.contains("the response over TCP is cut off"), "{error}");
}

#[test]
fn without_servers_the_error_says_what_to_write() {
    let path = std::path::Path::new("/etc/resolv.conf");
    assert_eq!(
        OpenError::of_resolver(path, &"there is no line 'nameserver ADDRESS'").to_string(),
        "/etc/resolv.conf: the DNS servers of the system are not known: there is no line 'nameserver ADDRESS'; write the \
         addresses of DNS servers as 'servers' in [cluster], such as servers = [\"10.0.0.53\"]"
    );
}

#[test]
fn long_responses_come_by_tcp_and_other_servers_are_asked() {
    let (silent, server) = (Server::start(), Server::start());
    silent.code(WEB, 33, 99, &[]);
    let many: Vec<String> = (1..100).map(|n| format!("60 SRV 1 1 80 a{n}.example")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    server.set(WEB, 33, &many);
    (1..100).for_each(|n| server.set(&format!("a{n}.example"), 1, &[&format!("60 A 10.0.0.{n}")]));
    let (mut client, _) = client(vec![silent.addr(), server.addr()]);
    assert_eq!(new(&mut client).len(), 99);
    assert_eq!((silent.asked(), server.asked()), ([1, 0], [100, 1]));
}

#[test]
fn the_addresses_of_a_target_share_its_weight() {
    let addr = |n: u8| IpAddr::from([10, 0, 0, n]);
    let shares = |targets: &[(u16, u16, Vec<IpAddr>)]| -> Vec<u64> {
        weighted(targets).iter().map(|found| found.weight).collect()
    };
    assert_eq!(shares(&[(3, 80, vec![addr(1), addr(2), addr(3)]), (1, 80, vec![addr(4)])]), [1; 4]);
    assert_eq!(shares(&[(1, 80, vec![addr(1), addr(2)]), (1, 80, vec![addr(3)])]), [1, 1, 2]);
    assert_eq!(shares(&[(0, 80, vec![addr(1)]), (0, 80, vec![addr(2)])]), [1, 1]);
    assert_eq!(shares(&[(0, 80, vec![addr(1)]), (2, 80, vec![addr(2)])]), [1, 32]);
    assert_eq!(shares(&[(5, 80, vec![addr(1)]), (5, 81, vec![addr(1)])]), [1, 1], "two ports");
    assert_eq!(shares(&[(5, 80, vec![addr(1)]), (5, 80, vec![addr(1), addr(2)])]), [3, 1]);
    assert_eq!(shares(&[(5, 80, vec![])]), [0; 0]);
}

#[test]
fn servers_of_the_system_are_those_of_its_file() {
    let text = "# x\nsearch example\nnameserver 10.0.0.53\n nameserver\t2001:db8::1 # y\nnameserver\nnameserver x\n";
    let all: Vec<String> = nameservers(text).map(|addr| addr.to_string()).collect();
    assert_eq!(all, ["10.0.0.53:53", "[2001:db8::1]:53"]);
}

proptest! {
    #[test]
    fn weights_are_in_proportion_and_possible(
        targets in prop::collection::vec((any::<u16>(), 1u16..4, prop::collection::vec(0u8..20, 0..5)), 0..6),
    ) {
        let targets: Vec<_> = targets.into_iter()
            .map(|(weight, port, last)| (weight, port, last.into_iter().map(|n| IpAddr::from([10, 0, 0, n])).collect()))
            .collect();
        let found = weighted(&targets);
        prop_assert!(found.iter().all(|found| (1..=HEAVIEST).contains(&found.weight)));
        let has_some = targets.iter().any(|(.., addrs): &(u16, u16, Vec<IpAddr>)| !addrs.is_empty());
        prop_assert_eq!(has_some, !found.is_empty());
    }

    #[test]
    fn a_target_has_the_share_of_its_weight(
        targets in prop::collection::vec((1u64..200, 1usize..5), 1..6), many in 1u16..300,
    ) {
        let addr = |target: usize, n: usize| IpAddr::from([10, 0, target as u8, n as u8]);
        let records: Vec<_> = targets.iter().enumerate()
            .map(|(at, (weight, count))| (*weight as u16 * many, 80, (0..*count).map(|n| addr(at, n)).collect()))
            .collect();
        let found = weighted(&records);
        let sum = |at: usize| {
            let own = found.iter().filter(|one| (0..5).any(|n| one.addr.ip() == addr(at, n)));
            own.map(|one| one.weight).sum::<u64>()
        };
        let all: u64 = (0..targets.len()).map(sum).sum();
        let wanted: u64 = targets.iter().map(|(weight, _)| weight).sum();
        for (at, (weight, _)) in targets.iter().enumerate() {
            prop_assert_eq!(sum(at) * wanted, weight * all, "{:?}", found);
        }
    }
}

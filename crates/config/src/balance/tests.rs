//! Mistakes in the configuration of a balancer.

use crate::Config;

const GOOD: &str = r#"
[yard]
cores = 2
[[port]]
name = "west"
kind = "mem"
in = "given"
[[queue]]
name = "o"
order = "ordered"
consumers = [0, 1]
[work]
kind = "balance"
[balance]
clients = { port = "west", next_hop = "02:00:00:00:00:01" }
local = ["10.9.0.1", "10.9.0.2", "2001:db8:9::1"]
[[service]]
name = "web"
vip = "192.0.2.1"
proto = "tcp"
port = 80
mode = "fullnat"
[[service.backend]]
name = "a"
addr = "10.0.1.1"
exit = { port = "west", next_hop = "02:00:00:00:00:02" }
"#;

#[test]
fn routes_need_a_free_table_and_a_name_of_an_interface() {
    let with = |keys: &str| {
        GOOD.replace("[[service]]", &format!("[balance.announce]\n{keys}\n[[service]]"))
    };
    for (keys, wanted) in [
        ("table = 254", "table 254 belongs to the kernel; write a number"),
        (
            "interface = \"sixteen-letters-\"",
            "'sixteen-letters-' cannot be the name of an interface",
        ),
        ("interface = \"a%d\"", "'a%d' cannot be the name"),
        ("interface = \"\"", "'' cannot be the name"),
        ("after = 3", "there is no key 'after' here"),
    ] {
        let error = Config::parse("y.toml", &with(keys)).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
    let config = Config::parse("y.toml", &with("table = 100000\nafter_ms = 1")).unwrap();
    let announce = config.announce().unwrap().get_ref();
    assert_eq!(
        (*announce.table.get_ref(), announce.after_ms, announce.withdraw_ms),
        (100_000, 1, 3000)
    );
    assert!(Config::parse("y.toml", GOOD).unwrap().announce().is_none());
}

#[test]
fn fullnat_needs_a_source_address_for_each_core_that_works() {
    assert!(Config::parse("y.toml", GOOD).is_ok());
    let one = ("\"10.9.0.2\", ", "");
    let none = ("\"10.9.0.1\", \"10.9.0.2\", ", "");
    for (from, to, wanted) in [
        (
            one.0,
            one.1,
            "y.toml:25:8: fullnat needs 2 local addresses of this family, one for each core; add",
        ),
        (
            none.0,
            none.1,
            "y.toml:25:8: packets to this backend have no source address; add an address",
        ),
        (
            "clients = { port = \"west\", next_hop = \"02:00:00:00:00:01\" }\n",
            "",
            "have no route to clients",
        ),
    ] {
        let error = Config::parse("y.toml", &GOOD.replace(from, to)).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
    // A core that only transmits needs no address, and the other modes need none either.
    for (from, to) in
        [("consumers = [0, 1]", "consumers = [0]"), ("fullnat", "dnat"), ("fullnat", "ipip")]
    {
        let text = GOOD.replace(one.0, one.1).replace(from, to);
        assert!(Config::parse("y.toml", &text).is_ok(), "{to}");
    }
}

#[test]
fn what_a_configuration_can_hold_is_computed() {
    let config = |from: &str, to: &str| Config::parse("y.toml", &GOOD.replace(from, to)).unwrap();
    let one = |config: &Config| config.capacity().unwrap().unwrap();
    let capacity = one(&config("", ""));
    assert_eq!((capacity.cores, capacity.connections, capacity.opening), (2, 65_536, 32_768));
    assert!(capacity.bytes > 65_536 * 92, "{}", capacity.bytes);
    let web = &capacity.services[0];
    let ports = web.ports.unwrap();
    assert_eq!((ports.addresses, ports.each, ports.backends), (1, 64_512, 1));
    assert_eq!((web.connections, web.further), (64_512, false));
    assert_eq!((web.opening, web.part), (32_768, 32_768));
    // The core with the fewest addresses decides; another backend can use the same ports again.
    let second = "[[service.backend]]\nname = \"b\"\naddr = \"10.0.1.2\"\nexit = { port = \"west\", next_hop = \"02:00:00:00:00:03\" }\n[[service.backend]]\nname = \"a\"";
    let more = config("[[service.backend]]\nname = \"a\"", second);
    assert_eq!(one(&more).services[0].connections, 65_536);
    let more = one(&config("local = [", "connections = 1000000\nlocal = [\"10.9.0.3\", "));
    assert_eq!(more.services[0].ports.unwrap().connections(), 64_512);
    assert_eq!(more.services[0].connections, 64_512);
    let less = one(&config("mode = \"fullnat\"", "mode = \"fullnat\"\nconnections = 100"));
    assert_eq!(less.services[0].connections, 100);
    assert_eq!(less.services[0].opening, 100);
    // A quarter of the local ports is left to established connections.
    let many = one(&config("local = [", "connections = 200000\nopening = 150000\nlocal = ["));
    assert_eq!((many.opening, many.services[0].opening), (150_000, 48_384));
    let dnat = one(&config("fullnat", "dnat"));
    assert_eq!((dnat.services[0].ports, dnat.services[0].further), (None, true));
}

#[test]
fn limits_of_unestablished_connections_are_checked() {
    let error = |from: &str, to: &str| {
        Config::parse("y.toml", &GOOD.replace(from, to)).unwrap_err().to_string()
    };
    let all = error("local = [", "connections = 100\nopening = 101\nlocal = [");
    assert!(all.contains("a core cannot have 101 unestablished connections"), "{all}");
    assert!(all.contains("lower 'opening', or raise 'connections' in [balance]"), "{all}");
    let mode = "mode = \"fullnat\"";
    for (text, most) in [("opening = 40000", 32_768), ("opening = 11\nconnections = 10", 10)] {
        let one = error(mode, &format!("{mode}\n{text}"));
        let wanted = format!("unestablished connections on a core: the most are {most};");
        assert!(one.contains("service 'web' cannot have") && one.contains(&wanted), "{one}");
    }
    let good = GOOD.replace(mode, &format!("{mode}\nopening = 1000"));
    let capacity = Config::parse("y.toml", &good).unwrap().capacity().unwrap().unwrap();
    assert_eq!((capacity.services[0].opening, capacity.services[0].part), (1000, 1000));
}

#[test]
fn what_needs_connections_excludes_one_packet() {
    let text = GOOD
        .replace("\"tcp\"", "\"udp\"")
        .replace("mode = \"fullnat\"", "mode = \"dnat\"\none_packet = true");
    let config = Config::parse("y.toml", &text).unwrap();
    assert!(config.services().unwrap()[0].one_packet);
    let holds = &config.capacity().unwrap().unwrap().services[0];
    assert!(holds.one_packet && (holds.connections, holds.opening, holds.part) == (0, 0, 0));
    for (from, to, wanted) in [
        ("\"dnat\"", "\"fullnat\"", "in mode fullnat a reply is recognized by its connection"),
        (
            "addr = \"10.0.1.1\"",
            "addr = \"10.0.1.1\"\nmax_connections = 5",
            "'max_connections' of a backend has no effect with 'one_packet'",
        ),
        (
            "clients = { port = \"west\", next_hop = \"02:00:00:00:00:01\" }",
            "clients = { port = \"west\" }",
            "replies to datagrams that are placed one by one have no next hop",
        ),
    ] {
        assert!(text.contains(from), "{from}");
        let error = Config::parse("y.toml", &text.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains("y.toml:23:14: ") && error.contains(wanted), "{error}");
    }
}

#[test]
fn persistence_has_the_defaults_of_ipvs() {
    let mode = "mode = \"fullnat\"";
    let text = GOOD.replace(mode, &format!("{mode}\npersist = {{}}"));
    let persist = Config::parse("y.toml", &text).unwrap().services().unwrap()[0].persist.unwrap();
    assert_eq!(
        (persist.timeout, persist.mask_v4, persist.mask_v6, persist.networks),
        (300_000_000_000, 32, 128, 65_536)
    );
    assert!(persist.keeps_drained);
    assert!(Config::parse("y.toml", GOOD).unwrap().services().unwrap()[0].persist.is_none());
}

#[test]
fn a_backend_may_have_a_limit_of_connections() {
    for (keys, wanted) in [
        ("", None),
        ("max_connections = 0", None),
        ("max_connections = 100", Some((100, 75))),
        ("max_connections = 100\nresume_connections = 100", Some((100, 100))),
        ("max_connections = 1", Some((1, 1))),
    ] {
        let text = GOOD.replace("addr = \"10.0.1.1\"", &format!("addr = \"10.0.1.1\"\n{keys}"));
        let services = Config::parse("y.toml", &text).unwrap().services().unwrap();
        let ceiling = services[0].backends[0].ceiling;
        assert_eq!(ceiling.map(|is| (is.most(), is.resume())), wanted, "{keys}");
    }
}

#[test]
fn clients_need_no_next_hop() {
    let config = |to: &str| {
        Config::parse("y.toml", &GOOD.replace(", next_hop = \"02:00:00:00:00:01\" }", to)).unwrap()
    };
    let settings = config(" }").balance_settings().unwrap();
    assert!(settings.returns && settings.clients.via.is_none());
    assert!(!config(", next_hop = \"02:00:00:00:00:01\" }").balance_settings().unwrap().returns);
}

#[test]
fn the_example_of_the_documentation_is_valid() {
    let text = include_str!("../../../../docs/examples/balance.toml");
    let config = Config::parse("balance.toml", text).unwrap();
    let capacity = config.capacity().unwrap().unwrap();
    let names: Vec<_> = capacity.services.iter().map(|service| &*service.name).collect();
    assert_eq!((names, capacity.cores), (vec!["cache", "web", "dns"], 2));
    // It writes no files, and reads one that is in the repository.
    assert!(config.port.iter().all(|port| port.get_ref().output.is_none()));
}

#[test]
fn the_least_lengths_of_packets_and_segments_are_accepted() {
    let is_good = |mode: &str, lengths: &str| {
        let to = format!("port = 80\n{lengths}\nmode = \"{mode}\"");
        Config::parse("y.toml", &GOOD.replace("port = 80\nmode = \"fullnat\"", &to)).is_ok()
    };
    assert!(is_good("fullnat", "mss = 88\nmtu = 68") && is_good("gue", "mtu = 96"));
    let v6 = |mtu: u16| {
        let text = GOOD.replace("192.0.2.1", "2001:db8::1").replace("10.0.1.1", "2001:db8:1::1");
        let text = text.replace("port = 80", &format!("port = 80\nmtu = {mtu}"));
        Config::parse("y.toml", &text.replace("fullnat", "ipip"))
    };
    v6(1320).unwrap();
    let said = v6(1319).unwrap_err().to_string();
    assert_eq!(said, "y.toml:22:7: mtu = 1319 is not possible; write 1320 to 65535");
}

/// Mistakes in `GOOD`: what is replaced, what replaces it, and the message.
const MISTAKES: &[(&str, &str, &str)] = &[
    (
        "[balance]\n",
        "[balance]\nentries = 100\n",
        "y.toml:15:11: 100 is not a prime number from 2 to",
    ),
    (
        "port = 80",
        "port = 0",
        "y.toml:21:8: integer '0' is out of range; write a port from 1 to 65535",
    ),
    (
        "port = 80",
        "port = 70000",
        "y.toml:21:8: integer '70000' is out of range; write a port from",
    ),
    (
        "addr = \"10.0.1.1\"",
        "addr = \"10.0.1.1\"\nport = 0",
        "y.toml:26:8: integer '0' is out of range; write a port from 1 to 65535",
    ),
    (
        "port = 80",
        "mss = 87\nport = 80",
        "y.toml:21:7: mss = 87 is not possible; write 88 to 65535",
    ),
    (
        "port = 80",
        "mtu = 67\nport = 80",
        "y.toml:21:7: mtu = 67 is not possible; write 68 to 65535",
    ),
    (
        "port = 80\nmode = \"fullnat\"",
        "port = 80\nmtu = 95\nmode = \"gue\"",
        "y.toml:22:7: mtu = 95 is not possible; write 96 to 65535",
    ),
    (
        "port = 80",
        "port = \"http\"",
        "y.toml:21:8: string \"http\" is not possible; write a port from",
    ),
    (
        "port = 80",
        "port = \"90-80\"",
        "y.toml:21:8: string \"90-80\" is not possible; write a port",
    ),
    (
        "\"tcp\"",
        "\"icmp\"",
        "y.toml:20:9: 'icmp' is not a valid choice; choose one of tcp, udp, sctp",
    ),
    (
        "10.0.1.1",
        "192.0.2.1",
        "y.toml:25:8: the backend has the address of its own service, 192.0.2.1",
    ),
    ("10.9.0.2", "192.0.2.1", "y.toml:16:22: 192.0.2.1 is the VIP of service 'web'"),
    (
        "[balance]\n",
        "[balance]\naddress = { west = [\"192.0.2.1\"] }\n",
        "y.toml:15:21: 192.0.2.1 is the VIP of service 'web'",
    ),
    ("\"a\"", "\"a b/c\"", "y.toml:24:8: 'a b/c' is not a name that 'flowyard lb' can address"),
    ("\"web\"", "\"a/b\"", "y.toml:18:8: 'a/b' is not a name that 'flowyard lb' can address"),
    (
        "exit = { port = \"west\", next_hop = \"02:00:00:00:00:02\" }",
        "exit = \"west\"",
        "y.toml:26:8: string \"west\" has the wrong type; write { port = \"east\" }",
    ),
    (
        "[balance]\n",
        "[balance]\naddress = \"10.0.1.254\"\n",
        "y.toml:15:11: string \"10.0.1.254\" has the wrong type; write { east = [\"10.0.1.254\"] }",
    ),
    (
        "[balance]\n",
        "[balance]\npass = \"east\"\n",
        "y.toml:15:8: string \"east\" has the wrong type; write { west = \"other\" }",
    ),
    (
        "addr = \"10.0.1.1\"",
        "addr = \"10.0.1.1\"\nmax_connections = 100\nresume_connections = 101",
        "y.toml:27:22: 'resume_connections' is 101, which is more than 'max_connections' (100); lower",
    ),
    (
        "addr = \"10.0.1.1\"",
        "addr = \"10.0.1.1\"\nresume_connections = 10",
        "y.toml:26:22: 'resume_connections' has no effect, because the backend has no limit",
    ),
    (
        "addr = \"10.0.1.1\"",
        "addr = \"10.0.1.1\"\nmax_connections = 9\nresume_connections = 0",
        "y.toml:27:22: the backend could never have less than 0 connections",
    ),
    (
        "mode = \"fullnat\"",
        "mode = \"fullnat\"\npersist = { seconds = 0 }",
        "y.toml:23:23: 'seconds' 0 is out of range; write 1 to 2678400",
    ),
    (
        "mode = \"fullnat\"",
        "mode = \"fullnat\"\npersist = { mask_ipv4 = 33 }",
        "y.toml:23:25: 'mask_ipv4' 33 is out of range; write 1 to 32",
    ),
    (
        "mode = \"fullnat\"",
        "mode = \"fullnat\"\npersist = { mask_ipv6 = 129 }",
        "'mask_ipv6' 129 is out of range; write 1 to 128",
    ),
    (
        "mode = \"fullnat\"",
        "mode = \"fullnat\"\npersist = { networks = 1048577 }",
        "'networks' 1048577 is out of range; write 1 to 1048576",
    ),
    (
        "mode = \"fullnat\"",
        "mode = \"fullnat\"\npersist = { drained = \"stay\" }",
        "'stay' is not a valid choice; choose one of keep, move",
    ),
    (
        "mode = \"fullnat\"",
        "mode = \"dnat\"\none_packet = true",
        "y.toml:23:14: service 'web': only datagrams of UDP can be placed one by one; leave out",
    ),
    ("[[service]]", "[service]", "y.toml:17:1: [service] would be the only section of this name"),
    ("[balance]", "[[balance]]", "there can be only one section [balance]; write [balance]"),
];

#[test]
fn a_mistake_is_reported_at_its_key_with_an_example() {
    for (from, to, message) in MISTAKES {
        assert!(GOOD.contains(from), "{from}");
        let error = Config::parse("y.toml", &GOOD.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(message), "{from} -> {to}\n  got: {error}\n  want: {message}");
    }
}

#[test]
fn the_synchronization_of_connections_is_checked() {
    let with = |keys: &str| {
        let seed = "seed = 281474976710656\n";
        let good = GOOD.replace("[balance]\n", &format!("[balance]\n{seed}"));
        let section = format!("[balance.sync]\nkey_file = \"k\"\n{keys}\n[[service]]");
        Config::parse("y.toml", &good.replace("[[service]]", &section))
    };
    let good = "listen = \"10.9.0.1:7926\"\npeers = [\"10.9.0.2:7926\", \"10.9.0.3:7926\"]";
    let config = with(good).unwrap();
    let sync = config.sync().unwrap();
    let (listen, peers) = config.sync_addresses(sync).unwrap();
    assert_eq!((listen.to_string(), peers.len()), ("10.9.0.1:7926".into(), 2));
    assert_eq!((*sync.interval_ms.get_ref(), sync.wait_ms), (1000, 5000));
    assert_eq!(config.balance_settings().unwrap().replicated, 262_144);
    assert_eq!(Config::parse("y.toml", GOOD).unwrap().balance_settings().unwrap().replicated, 0);
    for (keys, wrong) in [
        ("listen = \"10.9.0.1:1\"\npeers = []", "'peers' is empty"),
        (
            "listen = \"10.9.0.1\"\npeers = [\"10.9.0.2:1\"]",
            "'10.9.0.1' is not an IP address with a port",
        ),
        ("listen = \"10.9.0.1:1\"\npeers = [\"a:1\"]", "'a:1' is not an IP address with a port"),
        ("listen = \"10.9.0.1:0\"\npeers = [\"10.9.0.2:1\"]", "is not an IP address with a port"),
        ("listen = \"10.9.0.1:1\"\npeers = [\"10.9.0.1:1\"]", "is the address of this node"),
        ("listen = \"10.9.0.1:1\"\npeers = [\"10.9.0.2:1\", \"10.9.0.2:1\"]", "is there twice"),
        ("listen = \"10.9.0.1:1\"\npeers = [\"[fd00::1]:1\"]", "another IP version"),
        (&format!("{good}\nconnections = 0"), "room for 0 connections"),
        (&format!("{good}\ninterval_ms = 49"), "49 ms is no interval"),
    ] {
        let error = with(keys).unwrap_err().to_string();
        assert!(error.contains(wrong), "{error}");
    }
    let error = Config::parse(
        "y.toml",
        &GOOD.replace(
            "[[service]]",
            &format!("[balance.sync]\nkey_file = \"k\"\n{good}\n[[service]]"),
        ),
    );
    assert!(error.unwrap_err().to_string().contains("need a common seed"));
}

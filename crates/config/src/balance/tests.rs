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

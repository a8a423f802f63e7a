//! Configurations that are read, and mistakes that are reported.

mod errors;
mod live;

use flowyard_frame::{FlowKey, To};

use super::*;

/// A correct configuration.
const GOOD: &str = r#"
[yard]
cores = 2
idle = "busy"

[[port]]
name = "west"
kind = "pcap"
in = "in.pcap"
pace = "250k"

[[port]]
name = "east"
kind = "mem"
core = 1

[[queue]]
name = "a"
order = "atomic"
consumers = [0, 1]

[[queue]]
name = "o"
order = "ordered"
consumers = [1]
full = "drop"

[steer]
spread = ["a"]
hash_key = "symmetric"
exact = [{ flow = "tcp 10.0.0.1:40000 > 10.0.0.2:11211", queue = "o" }]

[[list]]
name = "tag"
actions = [{ push_vlan = 7 }, { set_src = "10.0.0.9" }, "dec_ttl"]
port = "east"

[work]
kind = "forward"
ports = { west = "east", east = "west" }
"#;

/// The last lines of `GOOD`.
const WORK: &str = "kind = \"forward\"\nports = { west = \"east\", east = \"west\" }";

#[test]
fn a_correct_configuration_is_read() {
    let config = Config::parse("y.toml", GOOD).unwrap();
    assert_eq!((*config.yard.cores.get_ref(), config.yard.idle), (2, IdleWord::Busy));
    assert_eq!((config.port_number("east"), config.queue_number("o")), (Some(1), Some(1)));
    let queue = config.queue[1].get_ref();
    assert_eq!(
        (queue.order, queue.full, *queue.window_frames.get_ref()),
        (Order::Ordered, FullWord::Drop, 1024)
    );
    assert_eq!(config.home(1), Some(1));
    assert_eq!(config.home(0), None);
}

#[test]
fn work_is_read() {
    let read = |work: &str| Config::parse("y.toml", &GOOD.replacen(WORK, work, 1)).unwrap();
    let bridge = read("kind = \"bridge\"");
    let work = bridge.work.get_ref();
    assert_eq!((work.age(), work.stations(), work.cost_ns()), (300_000_000_000, 8192, 0));
    let bridge = read("kind = \"bridge\"\nage_ms = 5\nstations = 3\ncost_ns = 7");
    let work = bridge.work.get_ref();
    assert_eq!((work.age(), work.stations(), work.cost_ns()), (5_000_000, 3, 7));
    let text = "kind = \"route\"\nroute = [{ prefix = \"::/0\", port = \"east\", next_hop = \"2:0:0:0:0:a\" }]";
    let router = read(text);
    let route = router.routes().unwrap().remove(0);
    assert_eq!((route.prefix.to_string().as_str(), route.port), ("::/0", 1));
    assert_eq!(route.next_hop, [2, 0, 0, 0, 0, 10]);
    assert_eq!(router.port_macs().unwrap(), [[2, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0, 1]]);
}

#[test]
fn rules_are_read() {
    let text = GOOD.replace(
        "[work]",
        r#"
[[steer.rule]]
match = { proto = "TCP", src = "10.0.0.0/8", dst_port = 80, vlan = 7, in_port = "east" }
priority = 5
queue = "o"
mark = 9

[[steer.rule]]
match = { proto = "89", dst = "2001:db8::1" }
drop = true

[work]"#,
    );
    let [first, second] = rule::rules(&Config::parse("y.toml", &text).unwrap()).unwrap()[..] else {
        panic!("two rules")
    };
    assert_eq!((first.priority, first.action.to, first.action.mark), (5, To::Queue(1), 9));
    let key: FlowKey = "tcp 10.0.0.0:1 > 0.0.0.0:80 vlan 7".parse().unwrap();
    assert_eq!(first.key, FlowKey { sport: 0, in_port: 1, ..key });
    assert_eq!((&first.mask.src[..5], first.mask.dst), (&[255, 0, 0, 0, 0][..], [0; 16]));
    let FlowKey { sport, dport, proto, eth_type, vlan_tci, in_port, .. } = first.mask;
    assert_eq!((sport, dport, proto), (0, 0xffff, 0xff));
    assert_eq!((eth_type, vlan_tci, in_port), (0xffff, 0xfff, 0xffff));
    let seen: FlowKey = "tcp 10.1.2.3:4 > 5.6.7.8:80 vlan 7".parse().unwrap();
    assert!(!first.matches(&seen));
    assert!(first.matches(&FlowKey { vlan_tci: 0x6007, in_port: 1, ..seen }));
    assert_eq!((second.priority, second.action.to), (0, To::DROP));
    assert!(second.matches(&"proto 89 ::1 > 2001:db8::1".parse().unwrap()));
    assert!(!second.matches(&"proto 89 ::1 > 2001:db8::2".parse().unwrap()));
}

use flowyard_frame::{FlowKey, To};

use super::*;

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

/// The flow of `GOOD` again: VLANs do not count.
const EXACT: &str = "{ flow = \"tcp 10.0.0.1:40000 > 10.0.0.2:11211 vlan 7\", queue = \"a\" }";

/// The last lines of `GOOD`.
const WORK: &str = "kind = \"forward\"\nports = { west = \"east\", east = \"west\" }";

/// The message for `GOOD` with `from` replaced.
fn wrong(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    Config::parse("y.toml", &GOOD.replacen(from, to, 1)).unwrap_err().to_string()
}

#[test]
fn a_good_one_is_read() {
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

/// What can be wrong with rules, counters and what learns from them.
fn rules() -> Vec<(&'static str, &'static str, &'static str)> {
    macro_rules! rule {
        ($text:literal) => {
            concat!("[[steer.rule]]\n", $text, "\n[work]")
        };
    }
    vec![
        ("[work]", rule!("drop = true"), "the key 'match' is missing; add 'match = ...'"),
        (
            "[work]",
            rule!("match = { port = 80 }\ndrop = true"),
            "y.toml:39:11: there is no key 'port' here; choose one of proto, src, dst",
        ),
        (
            "[work]",
            rule!("match = {}\ndrop = true\nqueue = \"a\""),
            "y.toml:39:9: a rule has one destination; give it one",
        ),
        (
            "[work]",
            rule!("match = { src = \"10.0.0.1/8\" }\ndrop = true"),
            "y.toml:39:17: '10.0.0.1/8' has bits behind its length; write \"10.0.0.0/8\"",
        ),
        (
            "[work]",
            rule!("match = { dst = \"10.0.0/8\" }\ndrop = true"),
            "y.toml:39:17: '10.0.0/8' is no address; write \"10.0.0.1\", \"10.0.0.0/8\"",
        ),
        (
            "[work]",
            rule!("match = { src = \"10.0.0.0/8\", dst = \"::/0\" }\ndrop = true"),
            "y.toml:39:37: '::/0' is IPv6, and the rest of this match is not; write two rules",
        ),
        (
            "[work]",
            rule!("match = { proto = \"icmp\", dst_port = 80 }\ndrop = true"),
            "y.toml:39:38: this protocol has no ports; leave it out",
        ),
        (
            "[work]",
            rule!("match = { proto = \"http\" }\ndrop = true"),
            "y.toml:39:19: 'http' is no protocol; write tcp, udp",
        ),
        (
            "[work]",
            rule!("match = { proto = \"tcp\", ethertype = 0x0806 }\ndrop = true"),
            "y.toml:39:19: only IP frames have a protocol",
        ),
        ("[work]", rule!("match = { dst_port = 0 }\ndrop = true"), "write a port from 1 to 65535"),
        ("[work]", rule!("match = { vlan = 4096 }\ndrop = true"), "'4096' is no VLAN id"),
        (
            "[work]",
            rule!("match = { in_port = \"north\" }\ndrop = true"),
            "y.toml:39:21: there is no port 'north'; the ports are west, east",
        ),
        (
            "[work]",
            rule!("match = {}\ndrop = true\n[[steer.rule]]\nmatch = {}\nqueue = \"a\""),
            "y.toml:42:9: an earlier rule has the same match and priority; change the match",
        ),
        (
            "[work]",
            rule!("match = {}\ndrop = true\ncounter = \"web\""),
            "y.toml:41:11: there is no counter 'web'; add counters = [\"web\"] to [steer]",
        ),
        (
            "queue = \"o\" }]",
            "drop = true, counter = \"wbe\" }]\ncounters = [\"web\"]",
            "y.toml:31:81: there is no counter 'wbe'; the 'counters' of [steer] are web",
        ),
        (
            "spread = [\"a\"]",
            "counters = [\"b\", \"b\"]",
            "y.toml:29:18: there is a counter 'b' already; name each counter once",
        ),
        (
            "[work]",
            "[learn]\nkind = \"rfs\"\n[work]",
            "y.toml:20:14: rfs cannot steer to core 0: it has no queue of its own",
        ),
    ]
}

/// What can be wrong with `[elephants]`.
fn elephants() -> Vec<(String, &'static str)> {
    let with = |words: &str| {
        let own = "[[queue]]\nname = \"zero\"\norder = \"direct\"\nconsumers = [0]\n\
                   [[queue]]\nname = \"split\"\norder = \"ordered\"\nconsumers = [0, 1]\n";
        format!("{own}[elephants]\n{words}\n[work]")
    };
    let cases = [
        ("", "the key 'queue' is missing; add 'queue = ...'"),
        ("queue = \"splt\"", "there is no queue 'splt'; the queues are"),
        ("queue = \"zero\"", "would not keep the order of a flow that many cores work on; give"),
        ("queue = \"split\"\ncore = 9", "there is no core 9; cores are"),
        ("queue = \"split\"\nwindow_us = 0", "a window needs time; write some thousands"),
        ("queue = \"split\"\nsample_every = 0", "nothing would be sampled; write 1"),
        ("queue = \"split\"\npromoted_max = 0", "nothing would be split; write at least 1"),
        ("queue = \"split\"\nbusy_high = 1.5", "1.5 is not a share; write a number from 0 to 1"),
        ("queue = \"split\"\ndemote = 0.4", "demote is not below promote: flows would go back"),
        ("queue = \"split\"\nbusy_low = 0.99", "busy_low is not below busy_high"),
        ("queue = \"split\"\ngain = 0.5", "a gain of 0.5 is not one; write 1 or more"),
        ("queue = \"split\"\nrx_ns = -1", "are times of a frame; write nanoseconds from 0 on"),
        ("queue = \"split\"\nwindow = 5", "there is no key 'window' here"),
    ];
    cases.into_iter().map(|(words, message)| (with(words), message)).collect()
}

#[test]
fn elephants_are_read() {
    for (words, message) in elephants() {
        let said = wrong("[work]", &words);
        assert!(said.contains(message), "{words}\n  said: {said}\n  want: {message}");
        assert!(said.starts_with("y.toml:") && said.contains("; "), "{said}");
    }
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
fn what_is_wrong_is_said_with_its_place_and_the_fix() {
    let cases = [
        ("idle = ", "idel = ", "y.toml:4:1: there is no key 'idel' here; did you mean 'idle'?"),
        ("\"busy\"", "\"bussy\"", "y.toml:4:8: 'bussy' is no choice here; did you mean 'busy'?"),
        ("cores = 2", "cores = \"2\"", "y.toml:3:9: string \"2\" has the wrong type; write u16"),
        ("cores = 2", "cores = 0", "y.toml:3:9: a yard cannot have 0 cores; write 1 to 1024"),
        ("cores = 2", "cores = 70000", "y.toml:3:9: integer '70000' is out of range; write u16"),
        ("cores = 2", "cores = 2\npin = [0]", "y.toml:4:7: 1 processors are named for 2 cores"),
        ("cores = 2", "cores = 2\nframes = 9", "y.toml:4:10: 9 buffers are too few"),
        (
            "kind = \"mem\"",
            "kind = \"wire\"",
            "y.toml:14:8: 'wire' is no choice here; choose one of mem, pcap, af_packet",
        ),
        ("core = 1", "core = 2", "y.toml:15:8: there is no core 2; cores are 0 to 1"),
        (
            "core = 1",
            "core = 1\nout = \"x\"",
            "a mem port forgets what it transmits; use kind = \"pcap\"",
        ),
        ("\"250k\"", "\"quick\"", "y.toml:10:8: 'quick' is not a pace; write \"fast\""),
        (
            "\"east\"\nkind",
            "\"west\"\nkind",
            "y.toml:13:8: there is a port 'west' already; give each",
        ),
        (
            "[0, 1]",
            "[0, 7]",
            "y.toml:20:17: there is no core 7; cores are 0 to 1; or raise 'cores'",
        ),
        ("[0, 1]", "[0, 0]", "y.toml:20:17: core 0 is named twice"),
        ("[0, 1]", "[]", "y.toml:20:13: a queue that no core works on"),
        (
            "\"atomic\"",
            "\"direct\"",
            "y.toml:20:13: a direct queue has one consumer; name one core",
        ),
        (
            "spread = [\"a\"]",
            "spread = [\"b\"]",
            "y.toml:29:11: there is no queue 'b'; the queues are a, o",
        ),
        ("\"symmetric\"", "\"6d5a\"", "y.toml:30:12: this is no Toeplitz key; write \"random\""),
        ("tcp 10", "tpc 10", "y.toml:31:19: 'tpc' is not a protocol; write a flow as"),
        (
            "queue = \"o\" }",
            "queue = \"o\", drop = true }",
            "an exact entry has one destination; give it one",
        ),
        (
            "queue = \"o\" }",
            "list = \"x\" }",
            "y.toml:31:65: there is no list 'x'; the lists are tag",
        ),
        ("push_vlan = 7 ", "push_vlan = 4095 ", "y.toml:35:12: there is no VLAN 4095; write 0 to"),
        (
            "push_vlan = 7 ",
            "push_vlam = 7 ",
            "y.toml:35:14: 'push_vlam' is no choice here; did you",
        ),
        ("10.0.0.9", "10.0.9", "y.toml:35:31: '10.0.9' is no IP address; write 10.0.0.1"),
        (
            "\"dec_ttl\"",
            "{ set_eth_dst = \"02\" }",
            "y.toml:35:57: '02' is no MAC address; write six",
        ),
        ("\"dec_ttl\"", "{ set_dscp = 64 }", "y.toml:35:57: there is no DSCP 64; write 0 to 63"),
        ("port = \"east\"\n", "", "y.toml:34:8: an action list has one destination; give it one"),
        ("queue = \"o\" }", "port = \"x\" }", "there is no port 'x'; the ports are west, east"),
        (
            "west = \"east\"",
            "west = \"north\"",
            "there is no port 'north'; the ports are west, east",
        ),
        ("kind = \"forward\"", "kind = \"dance\"", "'dance' is no choice here"),
        ("in = \"in.pcap\"", "", "no port receives anything; give a [[port]] an 'in'"),
        ("[yard]", "[yard", "y.toml:2:6"),
        ("order = \"ordered\"", "", "the key 'order' is missing; add 'order = ...'"),
        ("full = \"drop\"", "window_frames = 1", "a window of 1 frames is not possible; write 32"),
        (
            "[work]",
            "[learn]\nkind = \"atr\"\n[work]",
            "atr cannot steer to core 0: it has no queue of its own",
        ),
    ];
    // A router in place of `GOOD`'s work, and one of a bridge.
    let route = r#"kind = "route"
[[work.route]]
prefix = "10.0.0.0/8"
port = "east"
next_hop = "02:00:00:00:01:01"
"#;
    let router = |from: &str, to: &str| {
        assert!(route.contains(from), "{from}");
        (WORK, route.replacen(from, to, 1))
    };
    let twice = route.replacen("kind = \"route\"\n", "", 1);
    let works = [
        ((WORK, "kind = \"route\"".into()), "y.toml:38:1: there is no route; add a [[work.route]]"),
        (router("/8", "/33"), "y.toml:41:10: '10.0.0.0/33' is no prefix; write it as 10.0.0.0/8"),
        (router("10.0.0.0/8", "10.0.0.1"), "y.toml:41:10: '10.0.0.1' is no prefix"),
        (
            router("10.0.0.0/8", "10.0.0.1/8"),
            "y.toml:41:10: '10.0.0.1/8' has bits behind its length; write 10.0.0.0/8",
        ),
        (router("\"east\"", "\"north\""), "y.toml:42:8: there is no port 'north'; the ports are"),
        (
            router(":01:01", ":01"),
            "y.toml:43:12: '02:00:00:00:01' is no MAC address; write it as 02:00:00:00:00:01",
        ),
        (
            router("\"02:", "\"03:"),
            "y.toml:43:12: '03:00:00:00:01:01' is the address of no station; write a MAC address",
        ),
        (
            (WORK, format!("{route}{twice}")),
            "y.toml:45:10: there is a route to 10.0.0.0/8 already; leave one of them out",
        ),
        (
            router("port =", "prot ="),
            "y.toml:42:1: there is no key 'prot' here; did you mean 'port'?",
        ),
        (
            ("ports = {", "age_ms = 5\nports = {".into()),
            "y.toml:40:10: 'age_ms' is for kind = \"bridge\"; write that kind, or leave it out",
        ),
        (
            ("\"forward\"", "\"bridge\"".into()),
            "y.toml:40:9: 'ports' is for kind = \"forward\"; write that kind, or leave it out",
        ),
        (
            (WORK, "kind = \"bridge\"\nage_ms = 0".into()),
            "y.toml:40:10: an ageing time of 0 ms is not possible; write 1 to 1000000000",
        ),
        (
            (WORK, "kind = \"bridge\"\nstations = 0".into()),
            "y.toml:40:12: a core cannot know 0 stations; write 1 to 16777216",
        ),
        (
            ("\"forward\"", "\"burn\"".into()),
            "y.toml:38:1: the key 'cost_ns' is missing; add 'cost_ns = ...'",
        ),
        (
            ("queue = \"o\" }", format!("queue = \"o\" }}, {EXACT}")),
            "y.toml:31:82: there is an exact entry for this flow already; leave one of them out",
        ),
        (
            (
                "pace = \"250k\"\n\n[[port]]\nname = \"east\"\nkind = \"mem\"",
                "out = \"o.pcap\"\n\n[[port]]\nname = \"east\"\nkind = \"pcap\"\nout = \"o.pcap\""
                    .into(),
            ),
            "y.toml:15:7: another port transmits into this file, and one would replace the other's",
        ),
        (
            ("kind = \"mem\"", "kind = \"mem\"\nrepeat = 0".into()),
            "y.toml:15:10: nothing would be received; write 1 or more, or leave 'in' out",
        ),
        (
            ("spread =", "exact_entries = 9000000000000000000\nspread =".into()),
            "y.toml:28:1: exact_entries = 9000000000000000000 is not possible; write 0 to 16777216",
        ),
        (
            ("[work]", "[learn]\nkind = \"rfs\"\nentries = 0\n[work]".into()),
            "y.toml:38:1: entries = 0 is not possible; write 1 to 16777216",
        ),
        (
            ("cores = 2", "cores = 2\nframes = 9000000000000000000".into()),
            "y.toml:4:10: a pool cannot have 9000000000000000000 buffers; write at most 67108864",
        ),
        (
            ("core = 1", "core = 1\nmac = \"1:2\"".into()),
            "y.toml:16:7: '1:2' is no MAC address; write it as",
        ),
    ];
    let works = works.iter().map(|((from, to), message)| (*from, to.as_str(), *message));
    for (from, to, message) in cases.into_iter().chain(rules()).chain(works) {
        let said = wrong(from, to);
        assert!(said.contains(message), "{from} -> {to}\n  said: {said}\n  want: {message}");
        assert!(said.starts_with("y.toml:") && said.contains("; "), "{said}");
    }
}

#[test]
fn more_ports_than_there_are_numbers_are_refused() {
    let port = |at: usize| format!("[[port]]\nname = \"p{at}\"\nkind = \"mem\"\n");
    let text = GOOD.to_owned() + &(0..70_000).map(port).collect::<String>();
    let said = Config::parse("y.toml", &text).unwrap_err().to_string();
    assert_eq!(said, "y.toml:1:1: there are 70002 ports; write at most 4096");
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

const LIVE: &str = r#"
[yard]
cores = 2
pin = [6, 7]
[[port]]
name = "west"
kind = "af_xdp"
interface = "eth0"
cores = [0, 1]
queues = [2, 3]
match = ["udp to port 4789", "arp"]
mode = "copy"
ring_frames = 512

[[port]]
name = "east"
kind = "af_packet"
interface = "eth1"
fanout = "queue"

[[port]]
name = "host"
kind = "tap"
interface = "tap0"
mtu = 9000
interface_mac = "02:00:00:00:00:01"
host_queue = "cpu"

[[queue]]
name = "q"
order = "ordered"
consumers = [0, 1]

[work]
kind = "forward"
"#;

#[test]
fn ports_on_interfaces_are_read() {
    let config = Config::parse("y.toml", LIVE).unwrap();
    let [west, east, host] = [0, 1, 2].map(|n| config.port[n].get_ref());
    let owners: Vec<u16> = west.owners().map(|core| *core.get_ref()).collect();
    assert_eq!((owners, west.queue_of(0), west.queue_of(1)), (vec![0, 1], 2, 3));
    assert_eq!((west.lent_frames(), east.lent_frames()), (2048, 0));
    assert_eq!(west.xdp_settings().frames, 512);
    assert_eq!(east.owners().count(), 1);
    assert_eq!(east.packet_settings().fanout, flowyard_ports::af_packet::Fanout::Queue);
    let tap = host.tap_settings();
    assert_eq!((tap.mtu, tap.mac), (Some(9000), Some([2, 0, 0, 0, 0, 1])));
    assert_eq!(host.host_queues(config.yard.pin.get_ref()), Some(vec![6]));
    let all = LIVE.replace("\"arp\"", "\"all\"");
    let all = Config::parse("y.toml", &all).unwrap();
    assert_eq!(all.port[0].get_ref().xdp_rules(), flowyard_ports::af_xdp::Rules::All);
}

#[test]
fn what_is_wrong_with_an_interface_is_said() {
    for (from, to, message) in [
        ("interface = \"eth0\"\n", "", "y.toml:6:8: this af_xdp port has no interface; add 'in"),
        ("\"eth0\"", "\"a/b\"", "y.toml:8:13: no interface can be called 'a/b'; write 1 to 15"),
        ("cores = [0, 1]", "cores = [0, 0]", "y.toml:9:13: core 0 is named twice; name each"),
        ("cores = [0, 1]", "cores = [0, 7]", "y.toml:9:13: there is no core 7; cores are 0 to 1"),
        ("cores = [0, 1]", "cores = []", "y.toml:9:9: a port cannot have 0 cores; name 1 to 256"),
        ("[2, 3]", "[2]", "y.toml:10:10: 1 queues are named for 2 cores; name one for each"),
        ("[2, 3]", "[2, 2]", "y.toml:10:10: a queue is named twice"),
        (
            "match = [\"udp to port 4789\", \"arp\"]",
            "",
            "which frames it takes from the kernel; add",
        ),
        ("\"arp\"", "\"apr\"", "y.toml:11:30: unknown word 'apr'; write \"all\""),
        ("\"copy\"", "\"cpy\"", "y.toml:12:8: 'cpy' is no choice here; did you mean 'copy'?"),
        ("512", "500", "y.toml:13:15: a ring of 500 frames is not possible; write a power of two"),
        ("fanout", "match = [\"all\"]\nfanout", "a port of kind \"af_packet\" has no 'match'; le"),
        ("fanout", "pace = \"1M\"\nin = \"x\"\nfanout", "a port of kind \"af_packet\" has no 'in'"),
        ("pin = [6, 7]\n", "", "the host cannot send by processor: no core has one; add 'pin"),
        ("mtu = 9000", "mtu = 9", "an MTU of 9 is not possible; write 68 to"),
        ("02:00:00:00:00:01", "01:00:00:00:00:01", "is no hardware address of one interface; wr"),
        ("02:00:00:00:00:01", "02:00:00:00:01", "is no hardware address of one interface; wr"),
        (
            "cores = 2",
            "cores = 2\nbuffer_bytes = 9000",
            "y.toml:4:16: buffers of 9000 bytes cannot be l",
        ),
        ("cores = 2", "cores = 2\nframes = 1000", "buffers are too few for these cores and ports"),
    ] {
        assert!(LIVE.contains(from), "{from}");
        let said = Config::parse("y.toml", &LIVE.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(said.contains(message), "{from} -> {to}\n  said: {said}\n  want: {message}");
    }
}

//! Mistakes in configurations, and the messages that report them.

use super::{GOOD, WORK};
use crate::Config;

/// A mistake: what is replaced in a correct configuration, what replaces it, and a part of the message.
type Case<'a> = (&'a str, &'a str, &'a str);

/// Mistakes in `[yard]` and `[[port]]`, and in the syntax.
const YARD_AND_PORTS: &[Case<'_>] = &[
    ("idle = ", "idel = ", "y.toml:4:1: there is no key 'idel' here; did you mean 'idle'?"),
    ("\"busy\"", "\"bussy\"", "y.toml:4:8: 'bussy' is not a valid choice; did you mean 'busy'?"),
    ("cores = 2", "cores = \"2\"", "y.toml:3:9: string \"2\" has the wrong type; write 1 to 1024"),
    ("cores = 2", "cores = 0", "y.toml:3:9: a yard cannot have 0 cores; write 1 to 1024"),
    ("cores = 2", "cores = 70000", "y.toml:3:9: integer '70000' is out of range; write 1 to 1024"),
    ("core = 1", "core = 70000", "is out of range; write the number of a core, 0 to 1023"),
    ("cores = 2", "cores = 2\npin = [0]", "y.toml:4:7: 1 CPU is named for 2 cores"),
    ("cores = 2", "cores = 2\npin = [0, 1, 2]", "y.toml:4:7: 3 CPUs are named for 2 cores"),
    ("cores = 2", "cores = 2\nframes = 9", "y.toml:4:10: 9 buffers are too few"),
    (
        "kind = \"mem\"",
        "kind = \"wire\"",
        "y.toml:14:8: 'wire' is not a valid choice; choose one of mem, pcap, af_packet",
    ),
    ("core = 1", "core = 2", "y.toml:15:8: there is no core 2; cores are 0 to 1"),
    (
        "core = 1",
        "core = 1\nout = \"x\"",
        "a mem port does not store the frames that it transmits; use kind = \"pcap\"",
    ),
    (
        "cores = 2",
        "cores = 2\nmetrics = \"999999\"",
        "y.toml:4:11: '999999' is not an address; write an IP address and port such as",
    ),
    ("\"250k\"", "\"quick\"", "y.toml:10:8: 'quick' is not a pace; write \"fast\""),
    ("\"east\"\nkind", "\"west\"\nkind", "y.toml:13:8: there is a port 'west' already; give each"),
    ("in = \"in.pcap\"", "", "no port receives anything; give a [[port]] an 'in'"),
    ("[yard]", "[yard", "y.toml:2:6"),
];

/// Mistakes in `[[queue]]` and `[learn]`.
const QUEUES: &[Case<'_>] = &[
    ("[0, 1]", "[0, 7]", "y.toml:20:17: there is no core 7; cores are 0 to 1; or raise 'cores'"),
    ("[0, 1]", "[0, 0]", "y.toml:20:17: core 0 is named twice"),
    ("[0, 1]", "[]", "y.toml:20:13: no core works on this queue"),
    ("\"atomic\"", "\"direct\"", "y.toml:20:13: a direct queue has one consumer; name one core"),
    ("[0, 1]", "0", "y.toml:20:13: integer '0' has the wrong type; write a list such as [0, 1]"),
    (
        "[[list]]",
        "[list]",
        "[list] would be the only section of this name, but there can be several; write",
    ),
    (
        "[work]\nkind = \"forward\"\nports = { west = \"east\", east = \"west\" }",
        "",
        "there is no [work] section; add one that says",
    ),
    ("order = \"ordered\"", "", "the key 'order' is missing; add 'order = ...'"),
    ("full = \"drop\"", "window_frames = 1", "a window of 1 frames is not possible; write 32"),
    (
        "[work]",
        "[learn]\nkind = \"atr\"\n[work]",
        "atr cannot steer to core 0: it has no queue of its own",
    ),
];

/// Mistakes in `[steer]`.
const STEERING: &[Case<'_>] = &[
    (
        "spread = [\"a\"]",
        "spread = [\"b\"]",
        "y.toml:29:11: there is no queue 'b'; the queues are a, o",
    ),
    ("\"symmetric\"", "\"6d5a\"", "y.toml:30:12: this is not a Toeplitz key; write \"random\""),
    ("tcp 10", "tpc 10", "y.toml:31:19: 'tpc' is not a protocol; write a flow as"),
    (
        "queue = \"o\" }",
        "queue = \"o\", drop = true }",
        "an exact entry has one destination; give it one",
    ),
    ("queue = \"o\" }", "list = \"x\" }", "y.toml:31:65: there is no list 'x'; the lists are tag"),
];

/// Mistakes in `[[list]]` and `[work]`.
const LISTS: &[Case<'_>] = &[
    ("push_vlan = 7 ", "push_vlan = 4095 ", "y.toml:35:12: there is no VLAN 4095; write 0 to"),
    (
        "push_vlan = 7 ",
        "push_vlam = 7 ",
        "y.toml:35:14: 'push_vlam' is not a valid choice; did you",
    ),
    ("10.0.0.9", "10.0.9", "y.toml:35:31: '10.0.9' is not an IP address; write 10.0.0.1"),
    (
        "\"dec_ttl\"",
        "{ set_eth_dst = \"02\" }",
        "y.toml:35:57: '02' is not a MAC address; write six",
    ),
    ("\"dec_ttl\"", "{ set_dscp = 64 }", "y.toml:35:57: there is no DSCP 64; write 0 to 63"),
    ("port = \"east\"\n", "", "y.toml:34:8: an action list has one destination; give it one"),
    ("queue = \"o\" }", "port = \"x\" }", "there is no port 'x'; the ports are west, east"),
    ("west = \"east\"", "west = \"north\"", "there is no port 'north'; the ports are west, east"),
    ("kind = \"forward\"", "kind = \"dance\"", "'dance' is not a valid choice"),
];

macro_rules! rule {
    ($text:literal) => {
        concat!("[[steer.rule]]\n", $text, "\n[work]")
    };
}

/// Mistakes in rules, counters, and in learners that use rules.
const RULES: &[Case<'_>] = &[
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
        "y.toml:39:17: '10.0.0/8' is not an address; write \"10.0.0.1\", \"10.0.0.0/8\"",
    ),
    (
        "[work]",
        rule!("match = { src = \"10.0.0.0/8\", dst = \"::/0\" }\ndrop = true"),
        "y.toml:39:37: '::/0' is IPv6, and the other fields of this match are not; write two rules",
    ),
    (
        "[work]",
        rule!("match = { proto = \"icmp\", dst_port = 80 }\ndrop = true"),
        "y.toml:39:38: this protocol has no ports; leave it out",
    ),
    (
        "[work]",
        rule!("match = { proto = \"http\" }\ndrop = true"),
        "y.toml:39:19: 'http' is not a protocol; write tcp, udp",
    ),
    (
        "[work]",
        rule!("match = { proto = \"tcp\", ethertype = 0x0806 }\ndrop = true"),
        "y.toml:39:19: only IP frames have a protocol",
    ),
    ("[work]", rule!("match = { dst_port = 0 }\ndrop = true"), "write a port from 1 to 65535"),
    ("[work]", rule!("match = { vlan = 4096 }\ndrop = true"), "'4096' is not a VLAN ID"),
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
        "cores = 2",
        "# [yard], settle_slots = 1 and [learn] are not here\ncores = 2\nsettle_slots = 0",
        "y.toml:5:1: settle_slots = 0 is not possible; write 1 to 16777216",
    ),
    (
        "cores = 2",
        "cores = 2\n  settle_slots=16777217",
        "y.toml:4:3: settle_slots = 16777217 is not possible; write 1 to 16777216",
    ),
    (
        "spread =",
        "exact_entries = 0\nspread =",
        "y.toml:32:19: the table is full: all 0 entries are taken; raise 'exact_entries' in [steer], or write fewer",
    ),
    (
        "[work]",
        "[learn]\nkind = \"rfs\"\n[work]",
        "y.toml:20:14: rfs cannot steer to core 0: it has no queue of its own",
    ),
];

/// Settings of `[elephants]` with mistakes, and the messages.
const ELEPHANTS: &[(&str, &str)] = &[
    ("", "the key 'queue' is missing; add 'queue = ...'"),
    ("queue = \"splt\"", "there is no queue 'splt'; the queues are"),
    ("queue = \"zero\"", "does not keep the order of a flow that several cores work on; give"),
    ("queue = \"split\"\ncore = 9", "there is no core 9; cores are"),
    ("queue = \"split\"\nwindow_us = 0", "a window of length 0 is not possible; write"),
    ("queue = \"split\"\nsample_every = 0", "nothing would be sampled; write 1"),
    ("queue = \"split\"\npromoted_max = 0", "nothing would be split; write at least 1"),
    ("queue = \"split\"\nbusy_high = 1.5", "1.5 is not a share; write a number from 0 to 1"),
    ("queue = \"split\"\ndemote = 0.4", "demote is not below promote: flows would move back"),
    ("queue = \"split\"\nbusy_low = 0.99", "busy_low is not below busy_high"),
    ("queue = \"split\"\ngain = 0.5", "a gain of 0.5 is not possible; write 1 or more"),
    (
        "queue = \"split\"\nrx_ns = -1",
        "must be durations of at most 1 s; write nanoseconds, 0 or more",
    ),
    ("queue = \"split\"\nwindow = 5", "there is no key 'window' here"),
];

/// A router in place of the work of `GOOD`, where it begins in line 38.
const ROUTE: &str = r#"kind = "route"
[[work.route]]
prefix = "10.0.0.0/8"
port = "east"
next_hop = "02:00:00:00:01:01"
"#;

/// Mistakes in `ROUTE`.
const ROUTES: &[Case<'_>] = &[
    ("/8", "/33", "y.toml:41:10: '10.0.0.0/33' is not a prefix; write it as 10.0.0.0/8"),
    ("10.0.0.0/8", "10.0.0.1", "y.toml:41:10: '10.0.0.1' is not a prefix"),
    (
        "10.0.0.0/8",
        "10.0.0.1/8",
        "y.toml:41:10: '10.0.0.1/8' has bits behind its length; write 10.0.0.0/8",
    ),
    ("\"east\"", "\"north\"", "y.toml:42:8: there is no port 'north'; the ports are"),
    (
        ":01:01",
        ":01",
        "y.toml:43:12: '02:00:00:00:01' is not a MAC address; write it as 02:00:00:00:00:01",
    ),
    ("\"02:", "\"03:", "y.toml:43:12: '03:00:00:00:01:01' is a group address; write a MAC address"),
    (
        "[[work.route]]\n",
        "[[work.route]]\nprefix = \"10.0.0.0/8\"\nport = \"west\"\n\
         next_hop = \"02:00:00:00:01:01\"\n[[work.route]]\n",
        "y.toml:45:10: there is a route to 10.0.0.0/8 already; leave one of them out",
    ),
    ("port =", "prot =", "y.toml:42:1: there is no key 'prot' here; did you mean 'port'?"),
];

/// Mistakes in `[work]`.
const WORKS: &[Case<'_>] = &[
    (WORK, "kind = \"route\"", "y.toml:38:1: there is no route; add a [[work.route]]"),
    (
        "ports = {",
        "age_ms = 5\nports = {",
        "y.toml:40:10: 'age_ms' is for kind = \"bridge\"; write that kind, or leave it out",
    ),
    (
        "\"forward\"",
        "\"bridge\"",
        "y.toml:40:9: 'ports' is for kind = \"forward\"; write that kind, or leave it out",
    ),
    (
        WORK,
        "kind = \"bridge\"\nage_ms = 0",
        "y.toml:40:10: an ageing time of 0 ms is not possible; write 1 to 1000000000",
    ),
    (
        WORK,
        "kind = \"bridge\"\nstations = 0",
        "y.toml:40:12: a core cannot know 0 stations; write 1 to 16777216",
    ),
    ("\"forward\"", "\"burn\"", "y.toml:38:1: the key 'cost_ns' is missing; add 'cost_ns = ...'"),
    (
        WORK,
        "kind = \"forward\"\ncost_ns = 1_000_000_001",
        "y.toml:40:11: a core cannot be kept busy for 1000000001 ns with each frame; \
         write 0 to 1000000000 (1 s)",
    ),
];

/// Numbers out of range, and settings that contradict another section.
const LIMITS: &[Case<'_>] = &[
    // The flow of `GOOD` again: the VLAN is not compared.
    (
        "queue = \"o\" }",
        "queue = \"o\" }, \
         { flow = \"tcp 10.0.0.1:40000 > 10.0.0.2:11211 vlan 7\", queue = \"a\" }",
        "y.toml:31:82: there is an exact entry for this flow already; leave one of them out",
    ),
    (
        "pace = \"250k\"\n\n[[port]]\nname = \"east\"\nkind = \"mem\"",
        "out = \"o.pcap\"\n\n[[port]]\nname = \"east\"\nkind = \"pcap\"\nout = \"o.pcap\"",
        "y.toml:15:7: another port transmits to this file, and one capture would replace the other",
    ),
    (
        "kind = \"mem\"",
        "kind = \"mem\"\nrepeat = 0",
        "y.toml:15:10: nothing would be received; write 1 or more, or leave 'in' out",
    ),
    (
        "kind = \"mem\"",
        "kind = \"mem\"\nrepeat = 2",
        "y.toml:15:10: there is no capture to repeat; add 'in = \"FILE.pcap\"', or leave 'repeat' out",
    ),
    (
        "spread =",
        "exact_entries = 9000000000000000000\nspread =",
        "y.toml:29:1: exact_entries = 9000000000000000000 is not possible; write 0 to 16777216",
    ),
    (
        "[work]",
        "[learn]\nkind = \"rfs\"\nentries = 0\n[work]",
        "y.toml:40:1: entries = 0 is not possible; write 1 to 16777216",
    ),
    (
        "cores = 2",
        "cores = 2\nframes = 9000000000000000000",
        "y.toml:4:10: a pool cannot have 9000000000000000000 buffers; write at most 67108864",
    ),
    ("core = 1", "core = 1\nmac = \"1:2\"", "y.toml:16:7: '1:2' is not a MAC address; write it as"),
];

/// Checks that `text`, a correct configuration, is rejected with the message when `from` is replaced.
fn rejected(text: &str, &(from, to, message): &Case<'_>) {
    assert!(text.contains(from), "{from}");
    let error = Config::parse("y.toml", &text.replacen(from, to, 1)).unwrap_err().to_string();
    assert!(error.contains(message), "{from} -> {to}\n  got: {error}\n  want: {message}");
    assert!(error.starts_with("y.toml:") && error.contains("; "), "{error}");
}

#[test]
fn a_mistake_is_reported_with_its_place_and_the_fix() {
    for cases in [YARD_AND_PORTS, QUEUES, STEERING, LISTS, RULES, WORKS, LIMITS] {
        cases.iter().for_each(|case| rejected(GOOD, case));
    }
    let router = GOOD.replacen(WORK, ROUTE, 1);
    ROUTES.iter().for_each(|case| {
        assert!(ROUTE.contains(case.0), "{}", case.0);
        rejected(&router, &(ROUTE, &ROUTE.replacen(case.0, case.1, 1), case.2));
    });
}

#[test]
fn a_mistake_in_elephants_is_reported_with_the_fix() {
    let queues = "[[queue]]\nname = \"zero\"\norder = \"direct\"\nconsumers = [0]\n\
                  [[queue]]\nname = \"split\"\norder = \"ordered\"\nconsumers = [0, 1]\n";
    for (settings, message) in ELEPHANTS {
        let to = format!("{queues}[elephants]\n{settings}\n[work]");
        rejected(GOOD, &("[work]", &to, message));
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
fn a_mistake_in_a_flow_has_one_position() {
    let said = |flow: &str| {
        let text = format!(
            "[[port]]\nname = \"a\"\nkind = \"mem\"\nin = \"a.pcap\"\n[[queue]]\nname = \"q\"\norder = \"direct\"\n\
             consumers = [0]\n[work]\nkind = \"switch\"\n[switch]\nflows = [{flow}]\n"
        );
        Config::parse("y.toml", &text).unwrap_err().to_string()
    };
    assert_eq!(
        said("\"tpc,actions=output:1\""),
        "y.toml:12:11: 'tpc': no such field or setting; did you mean 'tcp'?"
    );
    assert_eq!(
        said("\"tcp\""),
        "y.toml:12:14: no actions; add actions=.., such as actions=output:2"
    );
    // With an escape, the column in the file is not that of the text.
    let escaped = said("\"in_port=a,\\u0074pc,actions=output:1\"");
    assert!(escaped.starts_with("y.toml:12:10: column 11 of the text: 'tpc'"), "{escaped}");
}

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

/// The message for `GOOD` with `from` replaced.
fn wrong(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    Config::parse("y.toml", &GOOD.replacen(from, to, 1)).unwrap_err().to_string()
}

#[test]
fn a_good_one_is_read() {
    let config = Config::parse("y.toml", GOOD).unwrap();
    assert_eq!((*config.yard.cores.get_ref(), config.yard.idle), (2, Idle::Busy));
    assert_eq!((config.port_number("east"), config.queue_number("o")), (Some(1), Some(1)));
    let queue = config.queue[1].get_ref();
    assert_eq!(
        (queue.order, queue.full, *queue.window_frames.get_ref()),
        (Order::Ordered, Full::Drop, 1024)
    );
    assert_eq!(config.home(1), Some(1));
    assert_eq!(config.home(0), None);
}

#[test]
fn what_is_wrong_is_said_with_its_place_and_the_mend() {
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
            "y.toml:14:8: 'wire' is no choice here; choose one of mem, pcap",
        ),
        ("core = 1", "core = 2", "y.toml:15:8: there is no core 2; cores are 0 to 1"),
        (
            "core = 1",
            "core = 1\nout = \"x\"",
            "a mem port forgets what it transmits; use kind = \"pcap\"",
        ),
        ("\"250k\"", "\"quick\"", "y.toml:10:8: 'quick' is no pace; write \"fast\""),
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
        ("tcp 10", "tpc 10", "y.toml:31:19: 'tpc' is no protocol; write a flow as"),
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
    for (from, to, message) in cases {
        let said = wrong(from, to);
        assert!(said.contains(message), "{from} -> {to}\n  said: {said}\n  want: {message}");
        assert!(said.starts_with("y.toml:") && said.contains("; "), "{said}");
    }
}

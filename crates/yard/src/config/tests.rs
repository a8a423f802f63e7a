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
            "y.toml:14:8: 'wire' is no choice here; choose one of mem, pcap, af_packet",
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

const LIVE: &str = r#"
[yard]
cores = 2

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
mac = "02:00:00:00:00:01"

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
        ("\"arp\"", "\"apr\"", "y.toml:11:30: 'apr' says nothing about a frame; write \"all\""),
        ("\"copy\"", "\"cpy\"", "y.toml:12:8: 'cpy' is no choice here; did you mean 'copy'?"),
        ("512", "500", "y.toml:13:15: a ring of 500 frames is not possible; write a power of two"),
        ("fanout", "match = [\"all\"]\nfanout", "a port of kind \"af_packet\" has no 'match'; le"),
        ("fanout", "pace = \"1M\"\nin = \"x\"\nfanout", "a port of kind \"af_packet\" has no 'in'"),
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

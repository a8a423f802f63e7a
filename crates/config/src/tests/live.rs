//! Ports on interfaces.

use flowyard_ports::tap::HostQueue;

use crate::Config;

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
    assert_eq!(host.host_queue(config.yard.pin.get_ref()), HostQueue::Cpu(vec![6]));
    let all = LIVE.replace("\"arp\"", "\"all\"");
    let all = Config::parse("y.toml", &all).unwrap();
    assert_eq!(all.port[0].get_ref().xdp_rules(), flowyard_ports::af_xdp::Rules::All);
}

#[test]
fn a_mistake_about_an_interface_is_reported_with_the_fix() {
    for (from, to, message) in [
        ("interface = \"eth0\"\n", "", "y.toml:6:8: this af_xdp port has no interface; add 'in"),
        ("\"eth0\"", "\"a/b\"", "y.toml:8:13: 'a/b' is not a valid name of an interface; write 1"),
        ("cores = [0, 1]", "cores = [0, 0]", "y.toml:9:13: core 0 is named twice; name each"),
        ("cores = [0, 1]", "cores = [0, 7]", "y.toml:9:13: there is no core 7; cores are 0 to 1"),
        ("cores = [0, 1]", "cores = []", "y.toml:9:9: a port cannot have 0 cores; name 1 to 256"),
        ("[2, 3]", "[2]", "y.toml:10:10: 1 queues are named for 2 cores; name one for each"),
        ("[2, 3]", "[2, 2]", "y.toml:10:10: a queue is named twice"),
        (
            "match = [\"udp to port 4789\", \"arp\"]",
            "",
            "does not name the frames it takes from the kernel; add",
        ),
        ("\"arp\"", "\"apr\"", "y.toml:11:30: unknown word 'apr'; write \"all\""),
        ("\"copy\"", "\"cpy\"", "y.toml:12:8: 'cpy' is not a valid choice; did you mean 'copy'?"),
        ("512", "500", "y.toml:13:15: a ring of 500 frames is not possible; write a power of two"),
        ("fanout", "match = [\"all\"]\nfanout", "a port of kind \"af_packet\" has no 'match'; le"),
        ("fanout", "pace = \"1M\"\nin = \"x\"\nfanout", "a port of kind \"af_packet\" has no 'in'"),
        (
            "fanout",
            "pace = \"1M\"\nfanout",
            "y.toml:19:8: a port of kind \"af_packet\" has no 'pace'",
        ),
        (
            "pin = [6, 7]\n",
            "",
            "cannot choose a queue by processor, because no core is pinned; add 'pin",
        ),
        ("mtu = 9000", "mtu = 9", "an MTU of 9 is not possible; write 68 to"),
        ("02:00:00:00:00:01", "01:00:00:00:00:01", "is not a unicast hardware address; wr"),
        ("02:00:00:00:00:01", "02:00:00:00:01", "is not a unicast hardware address; wr"),
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

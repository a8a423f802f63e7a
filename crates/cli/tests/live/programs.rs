//! Real programs on both sides of `flowyard run`, by each kind of port and each kind of work; with
//! link flaps, a killed process and a restart, and a full ring. What a machine lacks (a program, the
//! kernel's VLANs) is skipped, and said.

use std::io::Write;
use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use flowyard_frame::{FlowKey, proto};
use flowyard_ports::af_packet::{Fanout, Ring, Sender, Settings};
use flowyard_ports::live::Interface;
use flowyard_testkit::Build;

use crate::line::{Kind, Line, Plan, ips};
use crate::net::{Net, alone};
use crate::skipped;
use crate::traffic::{Datagrams, stream};
use crate::yard::{Live, drops, total, wait_until};

/// The kinds of work; `route` needs to be told its neighbours.
const WORKS: [(&str, &str); 4] = [
    ("forward", "kind = \"forward\"\nports = { west = \"east\", east = \"west\" }\n"),
    ("burn", "kind = \"burn\"\ncost_ns = 500\nports = { west = \"east\", east = \"west\" }\n"),
    ("bridge", "kind = \"bridge\"\n"),
    ("route", "kind = \"route\"\n"),
];
const NEAR: &str = "02:00:00:00:00:aa";
const FAR: &str = "02:00:00:00:00:bb";

/// Two hosts, a way between them, and the command that is on it.
struct Yard {
    line: Line,
    text: String,
    routes: bool,
    live: Option<Live>,
}

impl Yard {
    fn new(plan: Plan, work: (&str, &str)) -> Self {
        let line = Line::new(plan);
        line.b.sh(&format!("ip link set vd address {FAR}"));
        if line.near() == "va" {
            line.a.sh(&format!("ip link set va address {NEAR}"));
        }
        let (head, _) = plan.text().split_once("[work]").map(|(a, b)| (a.to_owned(), b)).unwrap();
        let mut text = format!("{head}[work]\n{}", work.1);
        let routes = work.0 == "route";
        let hosts = [("10.9.0.1/32", "west", NEAR), ("10.9.0.2/32", "east", FAR)];
        let six = [("fd09::1/128", "west", NEAR), ("fd09::2/128", "east", FAR)];
        for (prefix, port, mac) in hosts.into_iter().chain(six).filter(|_| routes) {
            text += &format!(
                "[[work.route]]\nprefix = \"{prefix}\"\nport = \"{port}\"\nnext_hop = \"{mac}\"\n"
            );
        }
        Self { line, text, routes, live: None }
    }

    /// Starts the command, and waits until the hosts reach each other by both families.
    fn start(&mut self) {
        let line = &self.line;
        let mut live = Live::start(line.yard(), &self.text);
        if line.plan.kind == Kind::Tap {
            wait_until("the tap", || line.a.run("ip link show tap0").status.success());
            line.a.sh("ip link set tap0 txqueuelen 20000");
            line.a.address("tap0", 1);
        }
        if self.routes {
            // The router takes frames whatever their address is, and answers nobody.
            let neighbours = |net: &Net, end: u8, mac: &str, name: &str| {
                net.sh(&format!(
                    "ip neigh replace 10.9.0.{end} lladdr {mac} dev {name}; \
                     ip neigh replace fd09::{end} lladdr {mac} dev {name}"
                ));
            };
            neighbours(&line.a, 2, "02:00:00:00:00:01", line.near());
            neighbours(&line.b, 1, "02:00:00:00:00:01", "vd");
        }
        for to in ips() {
            wait_until("an answer through the yard", || {
                assert!(live.is_alive(), "{}", live.said("err"));
                line.a.run(&format!("ping -c 1 -W 1 {to}")).status.success()
            });
        }
        self.live = Some(live);
    }

    fn stop(&mut self) -> serde_json::Value {
        self.live.take().unwrap().stop()
    }
}

/// Whether a program is there; if not, says so.
fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    let there = found.is_ok_and(|output| output.status.success());
    if !there {
        skip(&format!("the program {program}"));
    }
    there
}

fn skip(needs: &str) {
    let _ = std::io::stderr().write_fmt(format_args!("skipped: needs {needs}\n"));
}

/// A server in a namespace, ended with the test.
struct Server(Child);

impl Server {
    fn start(net: &Net, program: &str, args: &[&str], folder: &std::path::Path) -> Self {
        let mut command = Command::new(program);
        command.args(args).current_dir(folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        crate::sys::within(&mut command, &net.0);
        Self(command.spawn().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let (_killed, _waited) = (self.0.kill(), self.0.wait());
    }
}

fn listens(net: &Net, port: u16) {
    wait_until("the server", || net.sh("ss -Hltn").contains(&format!(":{port} ")));
}

/// Pings of both families: small ones after the neighbours were forgotten, and fragmented ones.
fn ping(yard: &Yard) {
    for to in ips() {
        if !yard.routes {
            yard.line
                .a
                .sh(&format!("ip neigh flush dev {}; ip -6 neigh flush dev {0}", yard.line.near()));
        }
        let said = yard.line.a.sh(&format!("ping -c 5 -i 0.02 -W 20 {to}"));
        let hops = if yard.routes { "ttl=63" } else { "ttl=64" };
        assert_eq!(said.matches(hops).count(), 5, "{said}");
        yard.line.ping(to, "-W 20 -s 4000");
    }
}

/// Numbered datagrams of three fragments each: in order, none twice.
fn fragments(yard: &Yard) {
    for to in ips() {
        let gap = Duration::from_micros(500);
        let arrived = Datagrams { to, flows: 4, count: 50, bytes: 4000, gap }
            .send(&yard.line.a, &yard.line.b);
        assert_eq!((arrived.late, arrived.twice), (0, 0), "{arrived:?}");
        assert!(arrived.total > 0);
    }
}

/// A transfer each way.
fn iperf(yard: &Yard) {
    if !has("iperf3") {
        return;
    }
    let folder = std::env::temp_dir();
    for (to, way, port) in [("10.9.0.2", "", 5201), ("fd09::2", "-R", 5202)] {
        // A server each: between two transfers it closes its door, and resets who is waiting there.
        let args = ["-s", "-1", "-p", &port.to_string()];
        let _server = Server::start(&yard.line.b, "iperf3", &args, &folder);
        listens(&yard.line.b, port);
        let said = yard.line.a.sh(&format!("iperf3 -J -n 8M {way} -p {port} -c {to}"));
        let report: serde_json::Value = serde_json::from_str(&said).unwrap();
        let bytes = report["end"]["sum_received"]["bytes"].as_u64().expect(&said);
        // What is still in the sender's buffer when it is done is not counted.
        assert!(bytes > 4 << 20, "{said}");
    }
}

/// A file by HTTP: as it was.
fn http(yard: &Yard) {
    if !has("python3") || !has("curl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file: Vec<u8> =
        (0..3_000_000_u32).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
    std::fs::write(folder.path().join("file"), &file).unwrap();
    let args = ["-m", "http.server", "8080", "--bind", "::"];
    let _server = Server::start(&yard.line.b, "python3", &args, folder.path());
    listens(&yard.line.b, 8080);
    for to in ["10.9.0.2", "[fd09::2]"] {
        let to = format!("curl -sS --noproxy '*' --max-time 60 http://{to}:8080/file");
        let got = yard.line.a.run(&to);
        assert!(got.status.success() && got.stdout == file, "{to}: {:?}", got.stderr);
    }
}

/// Values that memcached is given and gives back, by several connections.
fn memcached(yard: &Yard) {
    if !has("memcached") {
        return;
    }
    let args = ["-u", "root", "-l", "10.9.0.2", "-p", "11211", "-U", "0", "-t", "2"];
    let _server = Server::start(&yard.line.b, "memcached", &args, &std::env::temp_dir());
    listens(&yard.line.b, 11211);
    let clients: Vec<_> = (0..4).map(|id| yard.line.a.spawn(move || load(id))).collect();
    let done: u32 = clients.into_iter().map(|client| client.join().unwrap()).sum();
    assert_eq!(done, 4 * 300);
}

/// A connection that sets and gets; how many values came back.
fn load(id: u32) -> u32 {
    use std::io::{BufRead, BufReader, Read};
    let to: std::net::SocketAddr = "10.9.0.2:11211".parse().unwrap();
    let mut stream = std::net::TcpStream::connect_timeout(&to, Duration::from_secs(30)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    for n in 0..300 {
        let value: Vec<u8> =
            (0..n * 7 % 2000 + 1).map(|at| b'a' + ((at + n + id) % 26) as u8).collect();
        write!(stream, "set k{id}-{n} 0 0 {}\r\n", value.len()).unwrap();
        stream.write_all(&[&value[..], b"\r\n"].concat()).unwrap();
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        assert_eq!(line, "STORED\r\n");
        write!(stream, "get k{id}-{n}\r\n").unwrap();
        line.clear();
        answers.read_line(&mut line).unwrap();
        assert_eq!(line, format!("VALUE k{id}-{n} 0 {}\r\n", value.len()));
        let mut got = vec![0; value.len() + 7];
        answers.read_exact(&mut got).unwrap();
        assert!(got.starts_with(&value) && got.ends_with(b"\r\nEND\r\n"));
    }
    300
}

/// Tagged frames keep their tags: one, two, and one of priority only.
fn tags(yard: &Yard) {
    let key = FlowKey::five_tuple(proto::UDP, [10, 9, 0, 1].into(), 7, [10, 9, 0, 2].into(), 9);
    let plain = Build::new(&key).payload(&[0x5a; 100]).bytes();
    let near = yard.line.near();
    let mut receiver = yard.line.b.within(|| {
        let settings = Settings { fanout: Fanout::Hash, frames: 256 };
        Ring::open(&Interface::find("vd").unwrap(), 1, settings).unwrap().pop().unwrap()
    });
    let mut sender =
        yard.line.a.within(move || Sender::open(&Interface::find(near).unwrap(), false).unwrap());
    let all: [&[u8]; 4] =
        [&[], &[0x81, 0, 0x60, 5], &[0x88, 0xa8, 0, 7, 0x81, 0, 0x20, 5], &[0x81, 0, 0xe0, 0]];
    for tag in all {
        let frame = [&plain[..12], tag, &plain[12..]].concat();
        let (sent, error) = sender.send([&frame[..]].into_iter());
        assert_eq!(sent, 1, "{error:?}");
        let mut arrived = Vec::new();
        wait_until("a tagged frame", || {
            while let Some(found) = receiver.peek() {
                let mut bytes = vec![0; found.len(None, 0)];
                found.write(None, 0, &mut bytes);
                receiver.advance();
                // Hosts have things to say of their own.
                if bytes.len() >= 142 && bytes.ends_with(&[0x5a; 100]) {
                    arrived.push(bytes);
                }
            }
            !arrived.is_empty()
        });
        assert_eq!(arrived.len(), 1);
        // A router changes addresses, hops and checksum; the rest it leaves.
        let whole = if yard.routes { 12..14 + tag.len() } else { 0..frame.len() };
        assert_eq!((arrived[0].len(), &arrived[0][whole.clone()]), (frame.len(), &frame[whole]));
    }
}

/// Hosts on a VLAN: pings and a stream.
fn vlan(yard: &Yard) {
    if yard.routes {
        return; // Its prefixes are of the untagged hosts.
    }
    let add = |name: &str| format!("ip link add link {name} name {name}.5 type vlan id 5");
    if !yard.line.b.run(&add("vd")).status.success() {
        return skip("the kernel's VLANs (8021q)");
    }
    yard.line.a.sh(&add(yard.line.near()));
    for (net, name, end) in [(&yard.line.a, yard.line.near(), 1), (&yard.line.b, "vd", 2)] {
        net.sh(&format!("ip addr add 10.5.0.{end}/24 dev {name}.5; ip link set {name}.5 up"));
    }
    let to: IpAddr = "10.5.0.2".parse().unwrap();
    yard.line.ping(to, "-W 20");
    stream(&yard.line.a, &yard.line.b, to, 2 << 20);
    yard.line.b.sh("ip link del vd.5");
}

/// The yard's far interface goes down and up again.
fn flap(yard: &Yard) {
    let east = if yard.line.plan.kind == Kind::Tap { "va" } else { "vc" };
    for _ in 0..2 {
        yard.line.yard().sh(&format!("ip link set {east} down"));
        let unreached = yard.line.a.run("ping -c 3 -i 0.05 -W 1 10.9.0.2");
        assert!(!unreached.status.success(), "down is down");
        yard.line.yard().sh(&format!("ip link set {east} up"));
        wait_until("an answer after the flap", || {
            yard.line.a.run("ping -c 1 -W 1 10.9.0.2").status.success()
        });
    }
}

/// Frames come while the command is stopped: the ring is full, and what it had no room for counts.
fn full_ring(yard: &Yard) {
    let live = yard.live.as_ref().unwrap();
    live.signal("STOP");
    let burst = Datagrams { to: ips()[0], flows: 4, count: 6000, bytes: 200, gap: Duration::ZERO };
    let line = &yard.line;
    line.a.sh(&format!("ip neigh replace 10.9.0.2 lladdr {FAR} dev {}", line.near()));
    burst.send(&line.a, &line.b);
    live.signal("CONT");
    wait_until("an answer after the burst", || {
        line.a.run("ping -c 1 -W 1 10.9.0.2").status.success()
    });
}

/// All programs, and then all troubles.
fn everything(plan: Plan, work: (&str, &str)) {
    let mut yard = Yard::new(plan, work);
    yard.start();
    for program in [ping, fragments, iperf, http, memcached, tags, vlan] {
        program(&yard);
    }
    let books = yard.stop();
    crate::tell(format_args!(
        "{:?}, {}: {} frames in, {} copied, {} out, dropped {:?}",
        plan.kind,
        work.0,
        total(&books, "rx_frames"),
        total(&books, "copies"),
        total(&books, "tx_frames"),
        drops(&books)
    ));
    // A switch does not send frames back; a router has nothing for ARP and groups.
    let about: &[&str] = match work.0 {
        "bridge" => &["overrun", "filtered", "reserved"],
        "route" => &["overrun", "filtered", "not_ip", "no_route"],
        _ => &["overrun"],
    };
    let odd: Vec<_> = drops(&books).into_iter().filter(|d| !about.contains(&&*d.0)).collect();
    assert_eq!(odd, []);
    assert!(total(&books, "tx_frames") > 10_000, "{books:#}");
}

fn with_all_works(kind: Kind) {
    if skipped() {
        return;
    }
    let _alone = alone();
    for work in WORKS {
        everything(Plan { cores: 2, ..Plan::of(kind) }, work);
    }
}

#[test]
fn af_packet() {
    with_all_works(Kind::Packet);
}

#[test]
fn af_xdp() {
    with_all_works(Kind::Xdp);
}

#[test]
fn tap() {
    with_all_works(Kind::Tap);
}

/// A link that flaps, a kill and a restart, a burst with nobody there: the same for all.
fn in_trouble(kind: Kind) {
    if skipped() {
        return;
    }
    let _alone = alone();
    let mut yard = Yard::new(Plan { port: "ring_frames = 1024", ..Plan::of(kind) }, WORKS[0]);
    yard.start();
    flap(&yard);
    yard.live.take().unwrap().kill();
    yard.start();
    http(&yard);
    full_ring(&yard);
    let books = yard.stop();
    let lost = drops(&books);
    crate::tell(format_args!(
        "{kind:?}: {} frames in, dropped {lost:?}",
        total(&books, "rx_frames")
    ));
    assert!(lost.iter().any(|(why, _)| why == "overrun"), "{lost:?}");
    assert!(total(&books, "rx_frames") > 24_000, "what overran is counted as received");
}

#[test]
fn af_packet_in_trouble() {
    in_trouble(Kind::Packet);
}

#[test]
fn af_xdp_in_trouble() {
    in_trouble(Kind::Xdp);
}

#[test]
fn tap_in_trouble() {
    in_trouble(Kind::Tap);
}

/// Frames as long as each kind takes.
fn jumbo(kind: Kind, mtu: u32, buffer: &'static str) {
    if skipped() {
        return;
    }
    let _alone = alone();
    let mut yard = Yard::new(Plan { mtu, yard: buffer, ..Plan::of(kind) }, WORKS[0]);
    yard.start();
    for (to, headers) in ips().into_iter().zip([28, 48]) {
        yard.line.ping(to, &format!("-W 20 -M do -s {}", mtu - headers));
        stream(&yard.line.a, &yard.line.b, to, 8 << 20);
    }
    iperf(&yard);
    let books = yard.stop();
    let odd: Vec<_> = drops(&books).into_iter().filter(|d| d.0 != "overrun").collect();
    assert_eq!(odd, []);
}

#[test]
fn af_packet_jumbo() {
    jumbo(Kind::Packet, 9000, "buffer_bytes = 9216");
}

#[test]
fn af_xdp_jumbo() {
    jumbo(Kind::Xdp, 3700, "buffer_bytes = 3776");
}

#[test]
fn tap_jumbo() {
    jumbo(Kind::Tap, 9000, "buffer_bytes = 9216");
}

//! Traffic between the hosts on both sides of the instance, with checks of what arrives: one function for
//! each program. A function whose program or kernel module is missing is skipped.

use std::io::Write;
use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use flowyard_frame::{FlowKey, proto};
use flowyard_ports::af_packet::{Fanout, Ring, Sender, Settings};
use flowyard_ports::live::Interface;
use flowyard_testkit::Build;

use crate::run::programs::Yard;
use crate::yard::wait_until;
use flowyard_livekit::line::ips;
use flowyard_livekit::net::{Net, pings};
use flowyard_livekit::traffic::{Datagrams, stream};
use flowyard_testkit::harness::{self, Need};

/// A server in a namespace, which ends with the test.
struct Server(Child);

impl Server {
    fn start(net: &Net, program: &str, args: &[&str], folder: &std::path::Path) -> Self {
        let mut command = Command::new(program);
        command.args(args).current_dir(folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        flowyard_livekit::sys::within(&mut command, &net.0);
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

/// Pings with both IP versions: small ones after the neighbour tables are flushed, and fragmented ones.
pub(crate) fn ping(yard: &Yard) {
    for to in ips() {
        if !yard.routes {
            yard.line
                .a
                .sh(&format!("ip neigh flush dev {}; ip -6 neigh flush dev {0}", yard.line.near()));
        }
        let said = yard.line.a.sh(&format!("{} {to}", pings(5)));
        let hops = if yard.routes { "ttl=63" } else { "ttl=64" };
        assert_eq!(said.matches(hops).count(), 5, "{said}");
        yard.line.ping(to, "-W 20 -s 4000");
    }
}

/// Numbered datagrams of three fragments each arrive in order, and none twice.
pub(crate) fn fragments(yard: &Yard) {
    for to in ips() {
        // The sending host itself can reorder datagrams that wait for a neighbour's MAC address, so resolve
        // it first.
        yard.line.ping(to, "-W 20");
        let gap = Duration::from_micros(500);
        let arrived = Datagrams { to, flows: 4, count: 50, bytes: 4000, gap }
            .send(&yard.line.a, &yard.line.b);
        assert_eq!((arrived.late, arrived.twice), (0, 0), "{arrived:?}");
        assert!(arrived.total > 0);
    }
}

/// A transfer in each direction.
pub(crate) fn iperf(yard: &Yard) {
    if !harness::can_run("TCP transfers", Need::Program("iperf3")) {
        return;
    }
    let folder = std::env::temp_dir();
    for (to, way, port) in [("10.9.0.2", "", 5201), ("fd09::2", "-R", 5202)] {
        // Two servers, because a server closes its port after a transfer and resets waiting clients.
        let args = ["-s", "-1", "-p", &port.to_string()];
        let _server = Server::start(&yard.line.b, "iperf3", &args, &folder);
        listens(&yard.line.b, port);
        let said = yard.line.a.sh(&format!("iperf3 -J -n 32M {way} -p {port} -c {to}"));
        let report: serde_json::Value = serde_json::from_str(&said).unwrap();
        let bytes = report["end"]["sum_received"]["bytes"].as_u64().expect(&said);
        // Bytes that are in the sender's buffer at the end are not counted. A buffer has up to 6 MiB.
        assert!(bytes > 16 << 20, "{said}");
    }
}

/// A file downloaded by HTTP is unchanged.
pub(crate) fn http(yard: &Yard) {
    let can_run = |program| harness::can_run("an HTTP download", Need::Program(program));
    if !can_run("python3") || !can_run("curl") {
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

/// memcached returns the values that several connections have set.
pub(crate) fn memcached(yard: &Yard) {
    if !harness::can_run("requests to memcached", Need::Program("memcached")) {
        return;
    }
    let args = ["-u", "root", "-l", "10.9.0.2", "-p", "11211", "-U", "0", "-t", "2"];
    let _server = Server::start(&yard.line.b, "memcached", &args, &std::env::temp_dir());
    listens(&yard.line.b, 11211);
    let clients: Vec<_> = (0..4).map(|id| yard.line.a.spawn(move || load(id))).collect();
    let done: u32 = clients.into_iter().map(|client| client.join().unwrap()).sum();
    assert_eq!(done, 4 * 300);
}

/// Sets and gets values over one connection; returns their number.
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

/// Frames keep their VLAN tags: none, one, two, and a priority tag.
pub(crate) fn tags(yard: &Yard) {
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
                // Hosts also send frames of their own.
                if bytes.len() >= 142 && bytes.ends_with(&[0x5a; 100]) {
                    arrived.push(bytes);
                }
            }
            !arrived.is_empty()
        });
        assert_eq!(arrived.len(), 1);
        // A router changes addresses, TTL and checksum, but nothing else.
        let whole = if yard.routes { 12..14 + tag.len() } else { 0..frame.len() };
        assert_eq!((arrived[0].len(), &arrived[0][whole.clone()]), (frame.len(), &frame[whole]));
    }
}

/// Hosts on a VLAN: pings and a stream.
pub(crate) fn vlan(yard: &Yard) {
    if yard.routes {
        return; // The configured routes are for the untagged hosts only.
    }
    let add = |name: &str| format!("ip link add link {name} name {name}.5 type vlan id 5");
    if !yard.line.b.run(&add("vd")).status.success() {
        harness::can_run(
            "hosts on a VLAN",
            Need::Check(|| Err("VLANs of the kernel (8021q)".into())),
        );
        return;
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

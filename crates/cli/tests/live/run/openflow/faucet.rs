//! Faucet, in typical uses.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use super::{Controller, Star, ends, ip, path, program, says, text};
use crate::yard::{Live, wait_until};
use flowyard_livekit::net::{alone, pings};
use flowyard_livekit::traffic::stream;

flowyard_testkit::tests! {
    one_vlan,
    one_vlan_by_table_features,
    two_vlans_and_a_trunk,
    routes_between_vlans,
    access_lists,
    in_trouble,
    two_controllers,
}

/// The folder of Faucet 1.10 (`pip install faucet`).
const VARIABLE: &str = "FLOWYARD_FAUCET";
const FAUCET: &str = "faucet";

const ONE: &str = "vlans: {office: {vid: 100}}
dps:
  sw:
    dp_id: 1
    hardware: Open vSwitch
    interfaces:
      1: {native_vlan: office}
      2: {native_vlan: office}
      3: {native_vlan: office}
      4: {native_vlan: office}
";

const DIALS: &str = "controllers = [\"tcp:10.99.0.1:6653\"]";

/// A Faucet process, its files, and the port of its metrics.
struct Faucet {
    program: PathBuf,
    folder: TempDir,
    port: u16,
    running: Option<Controller>,
}

impl Faucet {
    /// A Faucet that is not started yet, at this port; its metrics are at this port plus 1,000.
    fn new(port: u16, text: &str) -> Self {
        let program = program(VARIABLE, FAUCET);
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("faucet.yaml"), text).unwrap();
        Self { program, folder, port, running: None }
    }

    fn start(&mut self, star: &Star) {
        let mut command = Command::new(&self.program);
        command.args(["--ryu-ofp-tcp-listen-port", &self.port.to_string()]);
        command.env("PATH", path(&self.program)).env("OSKEN_HUB_TYPE", "eventlet");
        for (name, value) in [
            ("FAUCET_CONFIG", "faucet.yaml"),
            ("FAUCET_LOG", "log"),
            ("FAUCET_EXCEPTION_LOG", "exceptions"),
            ("FAUCET_PROMETHEUS_ADDR", "127.0.0.1"),
        ] {
            command.env(name, value);
        }
        command.env("FAUCET_PROMETHEUS_PORT", (self.port + 1000).to_string());
        self.running = Some(Controller::start(&star.control, command, self.folder.path()));
    }

    /// Sends SIGKILL.
    fn kill(&mut self) {
        drop(self.running.take());
    }

    fn log(&self) -> String {
        text(&self.folder.path().join("log"))
    }

    /// Waits until its log has more than `before` lines that contain `what`.
    #[track_caller]
    fn logs(&mut self, what: &str, before: usize) {
        wait_until(&format!("Faucet logs {what}"), || {
            self.running.as_mut().unwrap().lives(self.folder.path());
            self.count(what) > before
        });
    }

    fn count(&self, what: &str) -> usize {
        self.log().matches(what).count()
    }

    /// Waits until Faucet has configured the switch and the switch has confirmed it.
    #[track_caller]
    fn converges(&mut self, star: &Star) {
        let figure = "dp_status{dp_id=\"0x1\",dp_name=\"sw\"} 1.0";
        wait_until("Faucet's switch is up", || {
            self.running.as_mut().unwrap().lives(self.folder.path());
            self.figures(star).contains(figure)
        });
    }

    /// Its metrics in Prometheus' format.
    fn figures(&self, star: &Star) -> String {
        let at = ("127.0.0.1", self.port + 1000);
        star.control.within(move || {
            let Ok(mut stream) = TcpStream::connect(at) else { return String::new() };
            let asked = stream.write_all(b"GET / HTTP/1.0\r\n\r\n");
            let mut said = Vec::new();
            let _ = asked.and_then(|()| stream.read_to_end(&mut said));
            String::from_utf8_lossy(&said).into_owned()
        })
    }

    /// Checks that it logged no exception, and that the switch refused no message.
    #[track_caller]
    fn is_content(&self) {
        let exceptions = text(&self.folder.path().join("exceptions"));
        assert_eq!(exceptions, "");
        let log = self.log();
        assert!(!log.contains("OFError"), "{log}");
    }
}

/// A star with its switch, configured by Faucet.
fn set_up(text: &str) -> (Star, Live, Faucet) {
    let mut faucet = Faucet::new(6653, text);
    let star = Star::new();
    faucet.start(&star);
    let live = star.start(DIALS);
    faucet.converges(&star);
    (star, live, faucet)
}

/// Waits until every pair of hosts has reached each other once; after that, no ping may be lost.
#[track_caller]
fn all_reach(star: &Star) {
    for from in 1..=4 {
        (1..=4).filter(|to| *to != from).for_each(|to| star.reached(from, to));
    }
    assert_eq!(star.ping_all(&[1, 2, 3, 4]), 12);
}

/// Whether a host can open a connection to another one.
fn connects(star: &Star, from: usize, to: SocketAddr) -> bool {
    let patience = Duration::from_millis(1500);
    star.hosts[from - 1].within(move || TcpStream::connect_timeout(&to, patience).is_ok())
}

fn one_vlan_with(hardware: &str) {
    let _alone = alone();
    let text = ONE.replace("Open vSwitch", hardware);
    let (star, live, faucet) = set_up(&text);
    all_reach(&star);
    let rate = stream(&star.hosts[0], &star.hosts[3], ip(4), 16 << 20);
    let six = "fd09::1".parse().unwrap();
    stream(&star.hosts[2], &star.hosts[0], six, 4 << 20);
    faucet.is_content();
    ends(live, &format!("Faucet ({hardware}), one VLAN, TCP {rate:.0} Mb/s"), &[]);
}

fn one_vlan() {
    one_vlan_with("Open vSwitch");
}

/// Faucet configures each table's features (`OFPMP_TABLE_FEATURES`) before it uses the table.
fn one_vlan_by_table_features() {
    one_vlan_with("GenericTFM");
}

/// Two hosts in one VLAN, one in another, and a trunk. Only the trunk carries tagged frames.
fn two_vlans_and_a_trunk() {
    let _alone = alone();
    let text = "vlans: {office: {vid: 100}, lab: {vid: 200}}
dps:
  sw:
    dp_id: 1
    hardware: Open vSwitch
    interfaces:
      1: {native_vlan: office}
      2: {native_vlan: office}
      3: {native_vlan: lab}
      4: {tagged_vlans: [office, lab]}
";
    let (star, live, faucet) = set_up(text);
    star.reached(1, 2);
    assert_eq!(star.ping_all(&[1, 2]), 2);
    for (from, to) in [(1, 3), (3, 2), (1, 4)] {
        assert!(!star.reaches(from, to), "h{to} is in another VLAN than h{from}");
    }
    let [mut one, mut two, mut lab, mut trunk] = [1, 2, 3, 4].map(|host| star.wire(host));
    let (all, plain) = ([0xff; 6], [0x88, 0xb5]);
    let office_tag = [0x81, 0, 0, 100, 0x88, 0xb5];
    let lab_tag = [0x81, 0, 0, 200, 0x88, 0xb5];
    // A broadcast in a VLAN. When one host has received it, all other receivers have, too.
    trunk.send(all, 4, &office_tag, 1);
    assert_eq!((one.hears(1), two.hears(1)), (vec![plain.to_vec()], vec![plain.to_vec()]));
    trunk.send(all, 4, &lab_tag, 2);
    assert_eq!(lab.hears(2), [plain]);
    one.send(all, 1, &plain, 3);
    assert_eq!((two.hears(3), trunk.hears(3)), (vec![plain.to_vec()], vec![office_tag.to_vec()]));
    lab.send(all, 3, &plain, 4);
    assert_eq!(trunk.hears(4), [lab_tag]);
    // To a host that was learned: no other host receives it.
    let figure = "L2 learned on Port 4";
    wait_until("the trunk's host is learnt", || faucet.count(figure) >= 2);
    one.send([2, 0, 0, 0, 0, 4], 1, &plain, 5);
    assert_eq!(trunk.hears(5), [office_tag]);
    trunk.send([2, 0, 0, 0, 0, 1], 4, &office_tag, 6);
    assert_eq!(one.hears(6), [plain]);
    // A VLAN that the trunk does not carry.
    trunk.send(all, 4, &[0x81, 0, 0, 99, 0x88, 0xb5], 7);
    trunk.send(all, 4, &office_tag, 8);
    assert_eq!((one.hears(8), two.hears(8)), (vec![plain.to_vec()], vec![plain.to_vec()]));
    faucet.is_content();
    ends(live, "Faucet, two VLANs and a trunk", &[]);
}

/// Faucet routes between VLANs: it answers ARP and pings to the router by packet-out, and the TTL is
/// decremented.
fn routes_between_vlans() {
    let _alone = alone();
    let text = "vlans:
  office: {vid: 100, faucet_vips: [10.1.0.254/24], faucet_mac: '0e:00:00:00:00:01'}
  lab: {vid: 200, faucet_vips: [10.2.0.254/24], faucet_mac: '0e:00:00:00:00:02'}
routers: {between: {vlans: [office, lab]}}
dps:
  sw:
    dp_id: 1
    hardware: Open vSwitch
    interfaces:
      1: {native_vlan: office}
      2: {native_vlan: office}
      3: {native_vlan: lab}
      4: {native_vlan: lab}
";
    let (star, live, faucet) = set_up(text);
    for (host, n) in star.hosts.iter().zip(1..) {
        let net = if n < 3 { 1 } else { 2 };
        host.sh(&format!(
            "ip addr add 10.{net}.0.{n}/24 dev eth; ip route add 10.0.0.0/8 via 10.{net}.0.254"
        ));
    }
    let near = |line: &str| star.hosts[0].run(line).status.success();
    wait_until("the router answers", || near("ping -n -c 1 -W 1 10.1.0.254"));
    wait_until("the router knows the way", || near("ping -n -c 1 -W 1 10.2.0.4"));
    let said = star.hosts[0].sh(&format!("{} 10.2.0.4", pings(5)));
    assert_eq!(said.matches("ttl=63").count(), 5, "{said}");
    stream(&star.hosts[0], &star.hosts[3], [10, 2, 0, 4].into(), 8 << 20);
    faucet.is_content();
    ends(live, "Faucet, routes between VLANs", &[]);
}

/// An ACL refuses some connections and permits others; then Faucet reads another ACL.
fn access_lists() {
    let _alone = alone();
    let text = format!(
        "acls:
  door:
  - rule: {{dl_type: 0x800, ip_proto: 6, tcp_dst: 7001, actions: {{allow: 0}}}}
  - rule: {{dl_type: 0x800, ip_proto: 1, actions: {{allow: 0}}}}
  - rule: {{actions: {{allow: 1}}}}
{}",
        ONE.replace("1: {native_vlan: office}", "1: {native_vlan: office, acls_in: [door]}")
    );
    let (star, live, mut faucet) = set_up(&text);
    let doors = [7001, 7002].map(|port| SocketAddr::new(ip(2), port));
    let _open = star.hosts[1].within(move || doors.map(|at| TcpListener::bind(at).unwrap()));
    star.reached(3, 2);
    wait_until("the open door", || connects(&star, 1, doors[1]));
    assert!(!connects(&star, 1, doors[0]), "h1 can connect to a denied port");
    assert!(connects(&star, 3, doors[0]), "h3 cannot connect to a permitted port");
    assert!(!star.reaches(1, 2) && star.reaches(3, 2), "pings of h1 are dropped");
    let shut = says(&live, "dump-flows", &["tcp,tcp_dst=7001,in_port=1"]);
    let counted = shut.lines().any(|line| line.contains("drop") && !line.contains("n_packets=0,"));
    assert!(counted, "{shut}");
    stream(&star.hosts[0], &star.hosts[1], ip(2), 4 << 20);
    // The opposite ACL, after Faucet has reloaded its file.
    let swapped =
        text.replace("tcp_dst: 7001", "tcp_dst: 7002").replace("ip_proto: 1,", "ip_proto: 17,");
    std::fs::write(faucet.folder.path().join("faucet.yaml"), swapped).unwrap();
    faucet.running.as_ref().unwrap().signal("HUP");
    wait_until("the door is open", || connects(&star, 1, doors[0]));
    wait_until("the other is shut", || !connects(&star, 1, doors[1]));
    all_reach(&star);
    faucet.converges(&star);
    faucet.is_content();
    ends(live, "Faucet, access lists", &[]);
}

/// A link goes down and up, the controller is killed and restarted, then the switch.
fn in_trouble() {
    let _alone = alone();
    let (star, live, mut faucet) = set_up(ONE);
    all_reach(&star);
    for port in ["2", "3"] {
        let [down, up] = ["down", "up"].map(|how| format!("Port {port} ({port}) {how}"));
        let (downs, ups) = (faucet.count(&down), faucet.count(&up));
        star.switch.sh(&format!("ip link set p{port} down"));
        faucet.logs(&down, downs);
        let shown = says(&live, "show", &[]);
        let is_down = format!(" {port}(p{port})");
        assert!(
            shown.lines().any(|l| l.starts_with(&is_down) && l.contains("LINK_DOWN")),
            "{shown}"
        );
        assert!(star.reaches(1, 4) && !star.reaches(1, port.parse().unwrap()));
        star.switch.sh(&format!("ip link set p{port} up"));
        faucet.logs(&up, ups);
        all_reach(&star);
    }

    // Without a controller, the flows stay, and known hosts reach each other.
    faucet.kill();
    let flows = says(&live, "dump-flows", &[]).lines().count();
    assert!(flows > 10, "{flows}");
    assert_eq!(star.ping_all(&[1, 2, 3, 4]), 12);
    let rate = stream(&star.hosts[0], &star.hosts[3], ip(4), 16 << 20);
    let talk = star.hosts[0].spawn(move || {
        // Continuous pings count the losses when the controller starts again.
        let mut lost = 0;
        for _ in 0..100 {
            let ping =
                Command::new("ping").args(["-n", "-q", "-c", "1", "-W", "1", "10.9.0.2"]).output();
            lost += u32::from(!ping.unwrap().status.success());
            std::thread::sleep(Duration::from_millis(50));
        }
        lost
    });
    let before = faucet.count("Cold start");
    faucet.start(&star);
    faucet.logs("Cold start", before);
    faucet.converges(&star);
    let lost = talk.join().unwrap();
    all_reach(&star);
    ends(
        live,
        &format!(
            "Faucet, flaps and its restart ({lost} of 100 pings lost by it), TCP {rate:.0} Mb/s"
        ),
        &["port_down"],
    );

    // Now the switch is killed and restarted.
    let before = faucet.count("Cold start");
    let live = star.start(DIALS);
    faucet.logs("Cold start", before);
    all_reach(&star);
    live.kill();
    let before = faucet.count("Cold start");
    let live = star.start(DIALS);
    faucet.logs("Cold start", before);
    all_reach(&star);
    faucet.is_content();
    ends(live, "Faucet, the switch after a kill", &[]);
}

/// Two independent Faucets, as its manual recommends: either may fail.
fn two_controllers() {
    let _alone = alone();
    let (mut one, mut two) = (Faucet::new(6653, ONE), Faucet::new(6654, ONE));
    let star = Star::new();
    one.start(&star);
    two.start(&star);
    let live = star.start("controllers = [\"tcp:10.99.0.1:6653\", \"tcp:10.99.0.1:6654\"]");
    one.converges(&star);
    two.converges(&star);
    all_reach(&star);
    let flap = |who: &mut Faucet, port: usize| {
        let [down, up] = ["down", "up"].map(|how| format!("Port {port} ({port}) {how}"));
        let (downs, ups) = (who.count(&down), who.count(&up));
        star.switch.sh(&format!("ip link set p{port} down"));
        who.logs(&down, downs);
        star.switch.sh(&format!("ip link set p{port} up"));
        who.logs(&up, ups);
        all_reach(&star);
    };
    one.kill();
    assert_eq!(star.ping_all(&[1, 2, 3, 4]), 12);
    flap(&mut two, 3);
    let before = one.count("Cold start");
    one.start(&star);
    one.logs("Cold start", before);
    one.converges(&star);
    all_reach(&star);
    two.kill();
    assert_eq!(star.ping_all(&[1, 2, 3, 4]), 12);
    flap(&mut one, 4);
    one.is_content();
    two.is_content();
    ends(live, "two Faucets", &["port_down"]);
}

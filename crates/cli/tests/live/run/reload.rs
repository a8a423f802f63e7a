//! SIGHUP under numbered traffic: routes change, and a service of systemd replaces itself by a process with other ports.

use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

use flowyard_livekit::alone;
use flowyard_livekit::line::{Kind, Line, Plan, ips};
use flowyard_livekit::net::Net;

use super::take_over::{Process, RATE, Traffic, rounds};
use crate::yard::{clock, drops, total, wait_until};

flowyard_testkit::tests! {
    routes_change_without_loss,
    a_service_replaces_itself_when_its_ports_change,
    a_service_of_another_user_replaces_itself,
    a_successor_that_cannot_start_leaves_the_service_alone,
}

fn hup(id: u32) {
    let sent = Command::new("kill").args(["-s", "HUP", &id.to_string()]).status().unwrap();
    assert!(sent.success());
}

/// The MAC address of the second host.
fn far_mac(line: &Line) -> String {
    line.b.sh("ip -o link show vd | sed 's/.*ether \\([^ ]*\\).*/\\1/'").trim().to_owned()
}

/// A router with these prefixes towards the second host, and some others.
fn router(line: &Line, prefixes: &[&str], others: u32) -> String {
    let mac = far_mac(line);
    let route = |prefix: &str| {
        format!("[[work.route]]\nprefix = \"{prefix}\"\nport = \"east\"\nnext_hop = \"{mac}\"\n")
    };
    let near: String = prefixes.iter().map(|prefix| route(prefix)).collect();
    let far: String =
        (0..others).map(|n| route(&format!("172.16.{}.{}/32", n / 256, n % 256))).collect();
    let text = line.plan.text();
    let (front, _) = text.split_once("[work]").unwrap();
    format!("{front}[work]\nkind = \"route\"\n{near}{far}")
}

fn routes_change_without_loss() {
    let _alone = alone();
    for cores in [1, 2] {
        let line = Line::new(Plan { cores, ..Plan::of(Kind::Packet) });
        line.acquaint(true);
        let tables: [(&[&str], u32); 3] = [
            (&["10.9.0.2/32"], 0),
            (&["10.9.0.0/24", "0.0.0.0/0"], 2000),
            (&["10.0.0.0/8", "10.9.0.2/32", "192.0.2.0/24"], 500),
        ];
        let process = Process::start(line.yard(), &router(&line, tables[0].0, tables[0].1));
        let traffic = Traffic::start(&line);
        wait_until("traffic", || traffic.sent() > RATE / 10);
        let reloads = 3 * rounds();
        for round in 1..=reloads {
            let (prefixes, others) = tables[round as usize % tables.len()];
            process.write(&router(&line, prefixes, others));
            hup(process.id());
            let many = || process.said("err").matches("tables reloaded").count();
            wait_until("the reload", || many() == round as usize);
            let before = traffic.sent();
            wait_until("traffic", || traffic.sent() > before + RATE / 50);
        }
        let seen = traffic.stop();
        assert_eq!((seen.received, seen.late, seen.twice), (seen.sent, 0, 0), "{seen:?}");
        // Without the route, packets are dropped: the tables were used.
        let ping = "ping -c 2 -i 0.02 -W 1 -q 10.9.0.2 || true";
        process.write(&router(&line, &["192.0.2.0/24"], 0));
        hup(process.id());
        let many = || process.said("err").matches("tables reloaded").count();
        wait_until("the last reload", || many() > reloads as usize);
        line.a.sh(ping);
        let counters = process.stop();
        let dropped = drops(&counters);
        assert!(dropped.iter().any(|(reason, _)| reason == "no_route"), "{dropped:?}");
        flowyard_testkit::note!(
            "{cores} cores: {reloads} reloads of up to 2002 routes, {seen:?}, {} frames",
            total(&counters, "rx_frames")
        );
    }
}

/// A socket as that of systemd.
struct Manager {
    socket: UnixDatagram,
    folder: tempfile::TempDir,
}

impl Manager {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        let open = |path: &std::path::Path| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
            std::fs::set_permissions(path, mode).unwrap();
        };
        open(folder.path());
        open(&folder.path().join("notify"));
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self { socket, folder }
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        let path = self.folder.path().join("notify").display().to_string();
        let usec = "2000000".to_owned();
        vec![("NOTIFY_SOCKET", path), ("INVOCATION_ID", "1".into()), ("WATCHDOG_USEC", usec)]
    }

    /// The next message with a line that begins so.
    fn wait_for(&self, wanted: &str) -> String {
        let (clock, mut bytes) = (clock(), [0; 1024]);
        loop {
            assert!(clock() < 60_000_000_000, "not within a minute: {wanted}");
            let got = self.socket.recv(&mut bytes).unwrap_or_else(|e| panic!("{wanted}: {e}"));
            let text = String::from_utf8_lossy(&bytes[..got]).into_owned();
            if text.lines().any(|line| line.starts_with(wanted)) {
                return text;
            }
        }
    }
}

/// The configuration with one more port.
fn with_a_third_port(text: &str) -> String {
    text.replacen(
        "[[queue]]",
        "[[port]]\nname = \"south\"\nkind = \"af_packet\"\ninterface = \"vx\"\n[[queue]]",
        1,
    )
}

/// A second link in the namespace of the instance.
fn third_link(line: &Line) {
    line.yard()
        .sh("ip link add vx type veth peer name vy && ip link set vx up && ip link set vy up");
}

fn a_service_replaces_itself_when_its_ports_change() {
    replaces_itself(Process::start_with);
}

/// A program that is started by another user than root has no capabilities by itself.
fn a_service_of_another_user_replaces_itself() {
    replaces_itself(Process::start_as_nobody);
}

fn replaces_itself(start: fn(&Net, &str, &[(&str, String)]) -> Process) {
    let _alone = alone();
    let line = Line::new(Plan::of(Kind::Packet));
    third_link(&line);
    let manager = Manager::new();
    let two = line.plan.text();
    let three = with_a_third_port(&two);
    let first = start(line.yard(), &two, &manager.environment());
    manager.wait_for("READY=1");
    line.ping(ips()[0], "");
    let traffic = Traffic::start(&line);
    let (mut id, mut before) = (first.id(), traffic.sent());
    let (folder, mut first) = (first.folder(), Some(first));
    for round in 0..rounds() {
        wait_until("traffic", || traffic.sent() > before + RATE / 10);
        let text = if round % 2 == 0 { &three } else { &two };
        std::fs::write(folder.path().join("y.toml"), text).unwrap();
        hup(id);
        manager.wait_for("RELOADING=1");
        let message = manager.wait_for("MAINPID=");
        assert!(message.lines().any(|line| line == "READY=1"), "{message}");
        let next: u32 = message
            .lines()
            .find_map(|line| line.strip_prefix("MAINPID="))
            .unwrap()
            .parse()
            .unwrap();
        assert_ne!(next, id);
        if let Some(first) = first.take() {
            assert_eq!(drops(&first.ended()), []);
        }
        (id, before) = (next, traffic.sent());
        // The watchdog is that of the new process.
        manager.wait_for("WATCHDOG=1");
    }
    wait_until("traffic", || traffic.sent() > before + RATE / 10);
    let seen = traffic.stop();
    let ended = Command::new("kill").args(["-s", "TERM", &id.to_string()]).status().unwrap();
    assert!(ended.success());
    manager.wait_for("STOPPING=1");
    flowyard_testkit::note!("{} replacements by SIGHUP, {seen:?}", rounds());
    assert_eq!((seen.received, seen.late, seen.twice), (seen.sent, 0, 0), "{seen:?}");
}

fn a_successor_that_cannot_start_leaves_the_service_alone() {
    let _alone = alone();
    let line = Line::new(Plan::of(Kind::Packet));
    let manager = Manager::new();
    let process = Process::start_with(line.yard(), &line.plan.text(), &manager.environment());
    manager.wait_for("READY=1");
    line.ping(ips()[0], "");
    let traffic = Traffic::start(&line);
    wait_until("traffic", || traffic.sent() > RATE / 10);
    // There is no such interface.
    process.write(&with_a_third_port(&line.plan.text()));
    hup(process.id());
    manager.wait_for("RELOADING=1");
    manager.wait_for("READY=1");
    let said = process.said("err");
    assert!(said.contains("the process that was to take over has ended"), "{said}");
    assert!(said.contains("vx"), "the reason is in the log: {said}");
    let before = traffic.sent();
    wait_until("traffic", || traffic.sent() > before + RATE / 10);
    let seen = traffic.stop();
    assert_eq!((seen.received, seen.late, seen.twice), (seen.sent, 0, 0), "{seen:?}");
    assert_eq!(drops(&process.stop()), []);
}

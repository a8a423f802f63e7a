//! `flowyard host`, `plan`, `apply`, `prove`, `undo` on a veth, whose kernel has RPS, RFS and XPS but no adapter.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use flowyard_livekit::net::{Net, alone};
use serde_json::Value;
use tempfile::TempDir;

use crate::yard::{binary, wait_until};

flowyard_testkit::tests! {
    a_plan_for_a_veth_is_applied_proven_and_undone,
    locality_is_applied_and_undone,
    a_killed_apply_is_undone,
    an_unconfirmed_apply_undoes_itself,
    a_foreign_change_is_noticed,
    the_management_connection_is_guarded,
    a_connection_that_is_not_moved_works_during_an_apply,
    live_traffic_is_analyzed,
    foreign_changes_are_watched,
    rebalance_is_refused_without_a_table,
    announced_changes_are_reported_at_once,
    probes_come_where_they_are_predicted,
}

/// A host with the interface v1, which has two queues in each direction, and a peer that sends to it.
struct Rig {
    host: Net,
    peer: Net,
    folder: TempDir,
}

impl Rig {
    fn new() -> Self {
        let (host, peer) = (Net::new().unwrap(), Net::new().unwrap());
        peer.cable("v0", &host, "v1", 2);
        peer.sh("ip addr add 10.9.0.1/24 dev v0");
        host.sh("ip addr add 10.9.0.2/24 dev v1");
        Self { host, peer, folder: tempfile::tempdir().unwrap() }
    }

    /// A line of a shell in the host's namespace, with `/sys` of that namespace, as `ip netns exec` has it.
    fn line(&self, line: &str) -> String {
        let (folder, binary) = (self.folder.path().display(), binary());
        let binary = binary.to_str().unwrap().to_owned();
        let line = line.replace("flowyard ", &format!("{binary} "));
        format!("cd {folder}; exec unshare -m sh -c 'mount -t sysfs none /sys || exit 9; {line}'")
    }

    fn run(&self, line: &str) -> Output {
        self.host.run(&self.line(line))
    }

    fn sh(&self, line: &str) -> String {
        self.host.sh(&self.line(line))
    }

    /// Every setting of RPS, RFS and XPS.
    fn settings(&self) -> String {
        self.sh("cd /sys/class/net/v1/queues && grep . */rps_cpus */rps_flow_cnt */xps_cpus")
    }

    /// Sends datagrams of 64 flows until the result is dropped.
    fn traffic(&self) -> Sending {
        let ended = Arc::new(AtomicBool::new(false));
        let is_ended = Arc::clone(&ended);
        let thread = self.peer.spawn(move || {
            let sockets: Vec<_> = (0..64).map(|_| UdpSocket::bind("10.9.0.1:0").unwrap()).collect();
            while !is_ended.load(Ordering::Relaxed) {
                for socket in &sockets {
                    // Nobody listens: the answer "port unreachable" is an error of a later call.
                    let _refused = socket.send_to(b"hello", "10.9.0.2:4000");
                }
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        });
        Sending { ended, thread: Some(thread) }
    }

    /// Makes a plan for the traffic of a second, and returns it.
    fn plan(&self, goal: &str) -> Value {
        let _sending = self.traffic();
        self.sh(&format!("flowyard plan v1 --goal {goal} --seconds 1 -o plan.json"));
        self.read()
    }

    fn read(&self) -> Value {
        let text = std::fs::read_to_string(self.folder.path().join("plan.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// Puts another value into all steps of settings that end with `setting`, as an editor would.
    fn edit(&self, setting: &str, to: &str) {
        let mut plan = self.read();
        for step in plan["steps"].as_array_mut().unwrap() {
            if step["setting"].as_str().unwrap().ends_with(setting) {
                step["to"] = to.into();
            }
        }
        std::fs::write(self.folder.path().join("plan.json"), plan.to_string()).unwrap();
    }
}

struct Sending {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn text(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

fn a_plan_for_a_veth_is_applied_proven_and_undone() {
    let _alone = alone();
    let rig = Rig::new();
    let state: Value = serde_json::from_str(&rig.sh("flowyard host v1 --json")).unwrap();
    assert_eq!(state["driver"]["name"], "veth");
    assert!(state["rss"]["unknown"].as_str().unwrap().contains("EOPNOTSUPP"), "{state}");
    let before = rig.settings();
    let plan = rig.plan("balance");
    assert!(plan["traffic"]["frames"].as_u64().unwrap() > 1000, "{plan}");
    assert_eq!(plan["steps"].as_array().unwrap().len(), 2, "{plan}");
    // All flows on CPU 1: the prediction is exact.
    rig.edit("rps_cpus", "1");
    rig.sh("flowyard apply plan.json --journal .");
    let applied = rig.settings();
    assert!(
        applied.contains("rx-0/rps_cpus:2") && applied.contains("rx-1/rps_cpus:2"),
        "{applied}"
    );
    let proof = {
        let _sending = rig.traffic();
        rig.run("flowyard prove v1 --seconds 1 --json")
    };
    assert!(proof.status.success(), "{}", text(&proof));
    let proof: Value = serde_json::from_slice(&proof.stdout).unwrap();
    assert!(proof["frames"].as_u64().unwrap() > 1000, "{proof}");
    assert_eq!((&proof["agrees"], &proof["differing_flows"]), (&true.into(), &0.into()));
    assert_eq!(proof["cpus"][0]["seen"], 0, "{proof}");
    rig.sh("flowyard undo v1 --journal .");
    assert_eq!(rig.settings(), before);
    let again = rig.run("flowyard undo v1 --journal .");
    assert_eq!(again.status.code(), Some(2), "{}", text(&again));
}

fn locality_is_applied_and_undone() {
    let _alone = alone();
    let rig = Rig::new();
    let before = rig.settings();
    let plan = rig.plan("locality");
    let steps: Vec<_> =
        plan["steps"].as_array().unwrap().iter().map(|step| step["setting"].to_string()).collect();
    let has = |end: &str| steps.iter().any(|step| step.trim_matches('"').ends_with(end));
    assert!(has("rps_flow_cnt") && has("xps_cpus"), "{steps:?}");
    for refusal in plan["refusals"].as_array().unwrap() {
        assert!(!refusal["limit"].as_str().unwrap().is_empty(), "{refusal}");
        assert!(!refusal["source"].as_str().unwrap().is_empty(), "{refusal}");
    }
    rig.sh("flowyard apply plan.json --journal .");
    let applied = rig.settings();
    assert!(applied.contains("rps_flow_cnt:16384") && applied != before, "{applied}");
    rig.sh("flowyard undo v1 --journal .");
    assert_eq!(rig.settings(), before);
}

fn a_killed_apply_is_undone() {
    let _alone = alone();
    let rig = Rig::new();
    let before = rig.settings();
    rig.plan("balance");
    // Killed while it waits for the confirmation; the shell in front of it, too.
    let killed = rig.run(
        "flowyard apply plan.json --journal . --confirm-within 60s & sleep 1; \
         kill -9 $!; wait $!; cat /sys/class/net/v1/queues/rx-0/rps_cpus",
    );
    assert_ne!(rig.settings(), before, "{}", text(&killed));
    rig.sh("flowyard undo v1 --journal .");
    assert_eq!(rig.settings(), before);
}

fn an_unconfirmed_apply_undoes_itself() {
    let _alone = alone();
    let rig = Rig::new();
    let before = rig.settings();
    rig.plan("balance");
    let unconfirmed = rig.run("flowyard apply plan.json --journal . --confirm-within 1s");
    assert_eq!(unconfirmed.status.code(), Some(1), "{}", text(&unconfirmed));
    assert!(text(&unconfirmed).contains("not confirmed in time; the change was undone"));
    assert_eq!(rig.settings(), before);
    // Confirmed from another shell.
    let confirmed = std::thread::scope(|scope| {
        let applying =
            scope.spawn(|| rig.run("flowyard apply plan.json --journal . --confirm-within 60s"));
        wait_until("the plan is applied", || {
            rig.run("flowyard confirm v1 --journal .").status.success()
        });
        applying.join().unwrap()
    });
    assert!(confirmed.status.success(), "{}", text(&confirmed));
    assert_ne!(rig.settings(), before);
    rig.sh("flowyard undo v1 --journal .");
    assert_eq!(rig.settings(), before);
}

fn a_foreign_change_is_noticed() {
    let _alone = alone();
    let rig = Rig::new();
    rig.plan("balance");
    rig.sh("echo 1 > /sys/class/net/v1/queues/rx-1/rps_cpus");
    let foreign = rig.settings();
    let refused = rig.run("flowyard apply plan.json --journal .");
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused).contains("rx-1.rps_cpus was"), "{}", text(&refused));
    assert_eq!(rig.settings(), foreign);
    // After an apply, undo leaves it, too.
    rig.plan("balance");
    rig.sh("flowyard apply plan.json --journal .");
    rig.sh("echo 2 > /sys/class/net/v1/queues/rx-1/rps_cpus");
    let kept = rig.run("flowyard undo v1 --journal .");
    assert_eq!(kept.status.code(), Some(1));
    assert!(text(&kept).contains("rx-1.rps_cpus is"), "{}", text(&kept));
    assert!(rig.settings().contains("rx-1/rps_cpus:2"));
    rig.sh("flowyard undo v1 --journal . --forget");
}

fn the_management_connection_is_guarded() {
    let _alone = alone();
    let rig = Rig::new();
    let before = rig.settings();
    rig.plan("balance");
    let ssh = "SSH_CONNECTION=\"10.9.0.1 50000 10.9.0.2 22\"";
    for prepare in [ssh, "ip route add default via 10.9.0.1;"] {
        let refused = rig.run(&format!("{prepare} flowyard apply plan.json --journal ."));
        assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
        assert!(text(&refused).contains("--allow-management"), "{}", text(&refused));
        assert_eq!(rig.settings(), before);
    }
    rig.sh(&format!("{ssh} flowyard apply plan.json --journal . --allow-management"));
    rig.sh("flowyard undo v1 --journal .");
    assert_eq!(rig.settings(), before);
}

/// A TCP connection from the peer to the host, which this process has accepted and answers: it is a parent of the
/// commands, as a server of SSH is.
struct Connection {
    client: TcpStream,
    name: String,
}

impl Connection {
    fn new(rig: &Rig) -> Self {
        let server = rig.host.within(|| TcpListener::bind("10.9.0.2:2222").unwrap());
        let client = rig.peer.within(|| TcpStream::connect("10.9.0.2:2222").unwrap());
        client.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        client.set_nodelay(true).unwrap();
        let name = format!("tcp {} > 10.9.0.2:2222", client.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut server, _) = server.accept().unwrap();
            let mut bytes = [0; 64];
            while let Ok(len @ 1..) = server.read(&mut bytes) {
                server.write_all(&bytes[..len]).unwrap();
            }
        });
        Self { client, name }
    }

    /// Sends something, which must come back.
    fn works(&mut self) {
        let mut bytes = [0; 5];
        self.client.write_all(b"hello").unwrap();
        self.client.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"hello");
    }
}

fn a_connection_that_is_not_moved_works_during_an_apply() {
    let _alone = alone();
    let rig = Rig::new();
    let mut connection = Connection::new(&rig);
    connection.works();
    let before = rig.settings();
    // RFS and RPS can move it. It is found without SSH_CONNECTION, which sudo removes.
    for goal in ["balance", "locality"] {
        rig.plan(goal);
        let refused = rig.run("unset SSH_CONNECTION; flowyard apply plan.json --journal .");
        let said = text(&refused);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains(&connection.name) && said.contains("--allow-management"), "{said}");
        assert_eq!(rig.settings(), before);
    }
    // The queues by which CPUs transmit do not. The default route is over the same interface.
    let mut plan = rig.read();
    let is_xps = |step: &Value| step["setting"].as_str().unwrap().ends_with("xps_cpus");
    plan["steps"].as_array_mut().unwrap().retain(is_xps);
    assert!(!plan["steps"].as_array().unwrap().is_empty());
    std::fs::write(rig.folder.path().join("plan.json"), plan.to_string()).unwrap();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let working = scope.spawn(|| {
            let mut rounds = 0;
            while !ended.load(Ordering::Relaxed) {
                connection.works();
                rounds += 1;
            }
            rounds
        });
        let applied =
            rig.run("ip route add default via 10.9.0.1; flowyard apply plan.json --journal .");
        let changed = rig.settings();
        let undone = rig.run("flowyard undo v1 --journal .");
        ended.store(true, Ordering::Relaxed);
        assert!(applied.status.success(), "{}", text(&applied));
        assert!(undone.status.success(), "{}", text(&undone));
        assert_ne!(changed, before);
        assert!(working.join().unwrap() > 10);
    });
    assert_eq!(rig.settings(), before);
}

fn live_traffic_is_analyzed() {
    let _alone = alone();
    let rig = Rig::new();
    let _sending = rig.traffic();
    let text = rig.sh("flowyard analyze --interface v1 --seconds 1 --json");
    let analysis: Value = serde_json::from_str(&text).unwrap();
    assert!(analysis["traffic"]["received"].as_u64().unwrap() > 1000, "{analysis}");
    assert!(analysis["setup"]["local"].as_str().unwrap().contains("10.9.0.2"), "{analysis}");
    let flow = "tcp 10.9.0.1:40000 > 10.9.0.2:80";
    let explained = rig.sh(&format!("flowyard explain \"{flow}\" --interface v1 --json"));
    let explained: Value = serde_json::from_str(&explained).unwrap();
    assert_eq!(explained["adapter"], "software");
}

fn rebalance_is_refused_without_a_table() {
    let _alone = alone();
    let rig = Rig::new();
    let before = rig.settings();
    for options in ["--once", "--dry-run --count 1", "--allow-management"] {
        let refused = rig.run(&format!("flowyard rebalance v1 --journal . {options}"));
        assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
        let said = text(&refused);
        assert!(said.contains("EOPNOTSUPP") && said.contains("RPS has no such table"), "{said}");
    }
    assert_eq!(rig.settings(), before);
    assert_eq!(rig.sh("ls"), "", "there is no journal");
}

fn foreign_changes_are_watched() {
    let _alone = alone();
    let rig = Rig::new();
    let _sending = rig.traffic();
    let watched = rig.sh("(sleep 0.7; echo 1 > /sys/class/net/v1/queues/rx-1/rps_cpus) & \
         flowyard watch-host v1 --interval 400ms --count 5 --metrics-file watch.prom --json");
    let events: Vec<Value> =
        watched.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let is_seen = |event: &Value| {
        event["kind"] == "setting" && event["what"].as_str().unwrap().contains("rx-1.rps_cpus was")
    };
    assert_eq!(events.iter().filter(|event| is_seen(event)).count(), 1, "{watched}");
    let metrics = std::fs::read_to_string(rig.folder.path().join("watch.prom")).unwrap();
    assert!(
        metrics.contains("flowyard_host_setting_changes_total{interface=\"v1\"} 1\n"),
        "{metrics}"
    );
    assert!(metrics.contains("# TYPE flowyard_host_compared_frames_total counter"), "{metrics}");
}

fn announced_changes_are_reported_at_once() {
    let _alone = alone();
    let rig = Rig::new();
    // A comparison comes only after a minute, so what is reported before was announced by the kernel.
    let page = std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            rig.run(
                "(sleep 1; ethtool -L v1 rx 1; ethtool -K v1 gro off) & \
                 timeout 5 flowyard watch-host v1 --interval 60s --metrics 9465 --json > events",
            )
        });
        let page = rig.host.within(|| {
            std::thread::sleep(std::time::Duration::from_secs(3));
            let mut stream = TcpStream::connect("127.0.0.1:9465").unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            let mut page = String::new();
            stream.read_to_string(&mut page).unwrap();
            page
        });
        watching.join().unwrap();
        page
    });
    let events = std::fs::read_to_string(rig.folder.path().join("events")).unwrap();
    let all: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for what in ["channels was 'rx 2 tx 2", "feature rx-gro was 'on' and is 'off'"] {
        let is_seen = |event: &&Value| event["what"].as_str().unwrap().starts_with(what);
        let event = all.iter().find(is_seen).unwrap_or_else(|| panic!("{what}: {events}"));
        assert_eq!((&event["kind"], &event["by"]), (&"setting".into(), &"notification".into()));
    }
    assert!(
        page.contains("notifications_total{interface=\"v1\",subject=\"channels\"} 1\n"),
        "{page}"
    );
    assert!(!page.contains("notified_changes_total{interface=\"v1\"} 0\n"), "{page}");
}

fn probes_come_where_they_are_predicted() {
    let _alone = alone();
    let rig = Rig::new();
    let from = format!("--probe-from v0 --probe-netns {} --json", rig.peer.path());
    rig.sh("echo 2 > /sys/class/net/v1/queues/rx-0/rps_cpus; echo 2 > /sys/class/net/v1/queues/rx-1/rps_cpus");
    let udp = |n: u32| format!("udp 10.9.0.1:{} > 10.9.0.2:4000", 20_000 + n);
    let mut flows: Vec<String> = (0..20).map(udp).collect();
    flows.push("tcp 10.9.0.1:20000 > 10.9.0.2:4000".to_owned());
    let file = rig.folder.path().join("flows");
    std::fs::write(&file, "# flows\n".to_owned() + &flows.join("\n")).unwrap();
    // Other traffic goes on, and a socket that listens receives no probe.
    let socket = rig.host.within(|| UdpSocket::bind("10.9.0.2:4000").unwrap());
    let answers = rig.sh("grep -h ^Icmp: /proc/net/snmp");
    let sending = rig.traffic();
    let proven = rig.run(&format!("flowyard prove v1 --probe flows {from}"));
    drop(sending);
    assert!(proven.status.success(), "{}", text(&proven));
    let proof: Value = serde_json::from_slice(&proven.stdout).unwrap();
    let probes = proof["probes"].as_array().unwrap();
    assert_eq!(probes.len(), flows.len());
    for (probe, flow) in probes.iter().zip(&flows) {
        assert_eq!((&probe["flow"], &probe["seen"]), (&flow.as_str().into(), &"CPU 1".into()));
    }
    socket.set_nonblocking(true).unwrap();
    let mut bytes = [0; 100];
    while let Ok(len) = socket.recv(&mut bytes) {
        assert_eq!(&bytes[..len], b"hello", "a probe was delivered");
    }
    assert_eq!(rig.sh("grep -h ^Icmp: /proc/net/snmp"), answers);
    // An interface that is not connected, and one whose CPU cannot be predicted.
    let flow = &flows[0];
    let lost = rig.run(&format!(
        "ip link add v8 type veth peer name v9; ip link set v8 up; ip link set v9 up; \
        flowyard prove v1 --probe \"{flow}\" --probe-from v8"
    ));
    assert_eq!(lost.status.code(), Some(1));
    assert!(text(&lost).contains("the frames did not arrive"), "{}", text(&lost));
    rig.sh("echo 0 > /sys/class/net/v1/queues/rx-0/rps_cpus");
    let unknown = rig.run(&format!("flowyard prove v1 --probe \"{flow}\" {from}"));
    assert_eq!(unknown.status.code(), Some(1));
    assert!(
        text(&unknown).contains("neither its queue nor its CPU is predictable"),
        "{}",
        text(&unknown)
    );
    let entries = rig.run(&format!("flowyard prove v1 --probe entries {from}"));
    assert_eq!(entries.status.code(), Some(2), "{}", text(&entries));
}

//! `learner.py`, an os-ken application, run by osken-manager.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Controller, Star, ends, ip, path, program, runs, says, text};
use crate::yard::wait_until;
use flowyard_livekit::net::alone;
use flowyard_livekit::traffic::stream;
use flowyard_testkit::harness::Need;

flowyard_testkit::tests! {
    a_learning_switch needs [OS_KEN],
    roles needs [OS_KEN],
}

/// The folder of os-ken's manager (`pip install os-ken==3.1.1`).
const VARIABLE: &str = "FLOWYARD_OS_KEN_BIN";
const MANAGER: &str = "osken-manager";
const OS_KEN: Need = Need::Check(|| runs(VARIABLE, MANAGER));

const DIALS: &str = "controllers = [\"tcp:10.99.0.1:6653\"]";

/// The application's process, with the events that it writes and the commands that it reads.
struct Learner {
    program: PathBuf,
    folder: TempDir,
    port: u16,
    running: Option<Controller>,
}

impl Learner {
    /// An application that is not started yet, at this port.
    fn new(port: u16) -> Self {
        let program = program(VARIABLE, MANAGER);
        Self { program, folder: tempfile::tempdir().unwrap(), port, running: None }
    }

    fn start(&mut self, star: &Star) {
        for (name, text) in
            [("learner.py", include_str!("learner.py")), ("commands", ""), ("events", "")]
        {
            std::fs::write(self.folder.path().join(name), text).unwrap();
        }
        let mut command = Command::new(&self.program);
        command.args(["--ofp-tcp-listen-port", &self.port.to_string(), "learner.py"]);
        command.env("PATH", path(&self.program)).env("OSKEN_HUB_TYPE", "eventlet");
        command.env("LEARNER_IDLE", "2");
        self.running = Some(Controller::start(&star.control, command, self.folder.path()));
    }

    /// Sends SIGKILL.
    fn kill(&mut self) {
        drop(self.running.take());
    }

    /// All its events of a kind.
    fn events(&self, kind: &str) -> Vec<Value> {
        let all = text(&self.folder.path().join("events"));
        // The last line may be incomplete.
        let events = all.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.filter(|event| event["event"] == kind).collect()
    }

    /// Waits until it has more than `before` events of a kind, and returns the next one.
    #[track_caller]
    fn sees(&mut self, kind: &str, before: usize) -> Value {
        let mut found = None;
        wait_until(&format!("the application sees {kind}"), || {
            self.running.as_mut().unwrap().lives(self.folder.path());
            found = self.events(kind).into_iter().nth(before);
            found.is_some()
        });
        found.unwrap()
    }

    /// Sends it a command.
    fn told(&self, command: &Value) {
        let mut file = std::fs::File::options();
        let mut file = file.append(true).open(self.folder.path().join("commands")).unwrap();
        file.write_all(format!("{command}\n").as_bytes()).unwrap();
    }

    /// Sends it a command, and waits until the switch has answered a barrier.
    #[track_caller]
    fn done(&mut self, command: &Value) {
        let before = self.events("barrier").len();
        self.told(command);
        self.told(&json!(["barrier"]));
        self.sees("barrier", before);
    }

    /// Requests a role; returns the answer, which may be an error.
    #[track_caller]
    fn role(&mut self, name: &str, generation: u64) -> Value {
        let kinds = ["role", "error"];
        let before = kinds.map(|kind| self.events(kind).len());
        self.done(&json!(["role", name, generation]));
        let mut new =
            kinds.iter().zip(before).filter_map(|(kind, n)| self.events(kind).into_iter().nth(n));
        new.next().expect("an answer came before the barrier's")
    }
}

/// A test frame to `to` with this mark.
fn frame(to: [u8; 6], mark: u8) -> String {
    let bytes = [&to[..], &[2, 0, 0, 0, 0, 0x77, 0x88, 0xb5], &[mark; 60]].concat();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A learning switch: packet-in, packet-out, flows that are added and expire, port status.
fn a_learning_switch() {
    let _alone = alone();
    let mut learner = Learner::new(6653);
    let star = Star::new();
    learner.start(&star);
    let live = star.start(DIALS);
    let up = learner.sees("up", 0);
    assert_eq!((&up["datapath"], &up["tables"]), (&json!(1), &json!(255)));
    assert_eq!(learner.sees("ports", 0)["names"], json!(["p1", "p2", "p3", "p4"]));
    learner.done(&json!(["barrier"]));
    assert_eq!(star.ping_all(&[1, 2, 3, 4]), 12);
    let rate = stream(&star.hosts[0], &star.hosts[3], ip(4), 16 << 20);
    let seen = learner.events("packet_in");
    let ports: std::collections::BTreeSet<_> =
        seen.iter().map(|e| e["port"].as_u64().unwrap()).collect();
    assert_eq!(ports.into_iter().collect::<Vec<_>>(), [1, 2, 3, 4]);
    // Sent by the table-miss flow, with the whole frame.
    assert!(seen.iter().all(|e| e["reason"] == 0 && e["bytes"] == e["whole"]), "{seen:?}");

    // Without traffic, all flows but the table-miss flow expire and report that: twelve pairs, two
    // directions.
    wait_until("all flows are gone", || says(&live, "dump-flows", &[]).lines().count() == 1);
    let gone = learner.sees("flow_removed", 11);
    assert_eq!(
        (&gone["reason"], &gone["idle"], &gone["priority"]),
        (&json!(0), &json!(2), &json!(1))
    );
    let gone = learner.events("flow_removed");
    let sum = |name: &str| gone.iter().map(|e| e[name].as_u64().unwrap()).sum::<u64>();
    assert!(gone.iter().all(|e| e["seconds"].as_u64().unwrap() >= 2), "{gone:?}");
    assert!(sum("bytes") > 16 << 20 && sum("packets") > 24, "{gone:?}");

    // Frames sent by the application.
    let mut wires = [1, 2, 3].map(|host| star.wire(host));
    learner.told(&json!(["send", 2, frame([0xff; 6], 0x21)]));
    learner.told(&json!(["send", "ALL", frame([0xff; 6], 0x22)]));
    let plain = vec![vec![0x88, 0xb5]];
    for (at, wire) in wires.iter_mut().enumerate() {
        let mut all = Vec::new();
        wait_until("the frame to all", || {
            while let Some(bytes) = wire.take() {
                all.push(bytes);
            }
            all.iter().any(|bytes| bytes.ends_with(&[0x22; 60]))
        });
        let first = all.iter().filter(|bytes| bytes.ends_with(&[0x21; 60])).count();
        assert_eq!(first, usize::from(at == 1), "h{} and the frame for h2", at + 1);
    }
    learner.done(&json!(["drop", "02:00:00:00:00:03"]));
    learner.told(&json!(["table", frame([2, 0, 0, 0, 0, 3], 0x23), 1]));
    learner.told(&json!(["send", 3, frame([2, 0, 0, 0, 0, 3], 0x24)]));
    assert_eq!(wires[2].hears(0x24), plain);
    assert_eq!(wires[2].heard(0x23), Vec::<Vec<u8>>::new(), "a frame passed its drop flow");
    let dropped = says(&live, "dump-flows", &["dl_dst=02:00:00:00:00:03"]);
    assert!(dropped.contains("n_packets=1,") && dropped.contains("actions=drop"), "{dropped}");
    says(&live, "del-flows", &["dl_dst=02:00:00:00:00:03"]);

    // Port status of a link, and a port that is disabled.
    for (line, state) in [("down", 1), ("up", 0)] {
        let before = learner.events("port_status").len();
        star.switch.sh(&format!("ip link set p3 {line}"));
        let said = learner.sees("port_status", before);
        assert_eq!((&said["port"], &said["reason"]), (&json!(3), &json!(2)), "{said}");
        assert_eq!(said["state"].as_u64().unwrap() & 1, state, "{said}");
    }
    star.reached(1, 3);
    learner.done(&json!(["down", 4, true]));
    assert!(!star.reaches(1, 4) && star.reaches(1, 2));
    learner.done(&json!(["down", 4, false]));
    star.reached(1, 4);
    assert_eq!(learner.events("error"), Vec::<Value>::new());
    ends(live, &format!("a learning switch on os-ken, TCP {rate:.0} Mb/s"), &["port_down"]);
}

/// A master and a slave exchange their roles; a late claim; a controller that is killed and restarted.
fn roles() {
    let _alone = alone();
    let (mut one, mut two) = (Learner::new(6653), Learner::new(6654));
    let star = Star::new();
    one.start(&star);
    two.start(&star);
    let live = star.start("controllers = [\"tcp:10.99.0.1:6653\", \"tcp:10.99.0.1:6654\"]");
    one.sees("up", 0);
    two.sees("up", 0);
    let is = |said: Value, role: &str, generation: u64| {
        let wanted = json!({ "event": "role", "role": role, "generation": generation });
        assert_eq!(said, wanted);
    };
    let refused = |said: Value, kind: u16, code: u16| {
        assert_eq!(said, json!({ "event": "error", "type": kind, "code": code }));
    };
    is(one.role("MASTER", 5), "MASTER", 5);
    is(two.role("SLAVE", 5), "SLAVE", 5);
    is(one.role("NOCHANGE", 0), "MASTER", 5);

    // Only the master receives packet-ins; a slave receives port status and cannot change anything.
    let before = two.events("packet_in").len();
    star.reached(1, 2);
    assert_eq!(star.ping_all(&[1, 2, 3, 4]), 12);
    assert_eq!(two.events("packet_in").len(), before);
    assert!(!one.events("packet_in").is_empty());
    let errors = two.events("error").len();
    two.done(&json!(["drop", "02:00:00:00:00:02"]));
    refused(two.sees("error", errors), 1, 10);
    two.done(&json!(["send", 2, frame([0xff; 6], 1)]));
    refused(two.sees("error", errors + 1), 1, 10);
    assert!(star.reaches(1, 2));
    let heard = [&one, &two].map(|who| who.events("port_status").len());
    star.switch.sh("ip link set p4 down");
    one.sees("port_status", heard[0]);
    two.sees("port_status", heard[1]);
    star.switch.sh("ip link set p4 up");
    one.sees("port_status", heard[0] + 1);
    two.sees("port_status", heard[1] + 1);

    // They exchange their roles; a claim with an older generation is refused.
    is(two.role("MASTER", 6), "MASTER", 6);
    is(one.role("NOCHANGE", 0), "SLAVE", 6);
    refused(one.role("MASTER", 5), 11, 0);
    let before = one.events("packet_in").len();
    wait_until("the first one's flows are gone", || {
        says(&live, "dump-flows", &[]).lines().count() == 1
    });
    // The new master learns hosts that it has not seen.
    assert_eq!(star.ping_all(&[1, 2, 3, 4]), 12);
    assert_eq!(one.events("packet_in").len(), before);

    // The master is killed: its flows stay until they are idle, and then the slave takes over.
    two.kill();
    is(one.role("MASTER", 7), "MASTER", 7);
    star.reached(1, 2);
    assert_eq!(star.ping_all(&[1, 2, 3, 4]), 12);
    two.start(&star);
    two.sees("up", 0);
    is(two.role("SLAVE", 7), "SLAVE", 7);
    refused(two.role("MASTER", 6), 11, 0);
    is(two.role("MASTER", 8), "MASTER", 8);
    star.reached(3, 4);
    assert_eq!(star.ping_all(&[1, 2, 3, 4]), 12);
    ends(live, "two masters and slaves on os-ken", &["port_down"]);
}

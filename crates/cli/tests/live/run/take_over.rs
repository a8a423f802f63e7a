//! `--take-over`: a new process goes on with the ports of a running one, under numbered traffic.

use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use flowyard_livekit::line::{Kind, Line, Plan, ips};
use flowyard_livekit::net::Net;
use flowyard_livekit::{alone, sys};
use serde_json::Value;

use crate::yard::{binary, clock, command, drops, total, wait_until};

flowyard_testkit::tests! {
    af_packet_ports_are_taken_over_without_loss,
    a_tap_is_taken_over_without_loss,
    several_cores_are_taken_over_without_loss,
    af_xdp_ports_are_taken_over_without_loss,
    af_xdp_ports_of_several_cores_are_taken_over_without_loss,
    a_configuration_that_does_not_fit_leaves_the_running_process_alone,
    a_process_that_dies_while_it_takes_over_leaves_the_running_one_alone,
    a_port_with_another_interface_is_opened_anew,
    a_port_that_the_kernel_knows_otherwise_is_refused,
}

/// Upgrades in a row; FLOWYARD_ROUNDS changes it.
pub(super) fn rounds() -> u32 {
    std::env::var("FLOWYARD_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(10)
}

/// Datagrams a second.
pub(super) const RATE: u64 = 100_000;
const FLOWS: u64 = 16;
/// A sender that is this far ahead of the reader waits: what the kernel keeps for an AF_PACKET port (8,192 frames) and a
/// TAP (1,000) does not overflow on a slow machine. At the rate above, these are 60 and 9 ms.
const AHEAD: (u64, u64) = (6_000, 900);

/// What was sent and received.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) sent: u64,
    pub(super) received: u64,
    pub(super) late: u64,
    pub(super) twice: u64,
}

/// Numbered datagrams from one host to the other, until they are stopped.
pub(super) struct Traffic {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    sender: JoinHandle<()>,
    receiver: JoinHandle<Seen>,
}

impl Traffic {
    pub(super) fn start(line: &Line) -> Self {
        let (a, b, to) = (&line.a, &line.b, ips()[0]);
        let ahead = if line.plan.kind == Kind::Tap { AHEAD.1 } else { AHEAD.0 };
        let stop = Arc::<AtomicBool>::default();
        let [sent, read] = [(); 2].map(|()| Arc::<AtomicU64>::default());
        let socket = b.within(move || UdpSocket::bind((to, 0)).unwrap());
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        sys::big_buffer(&socket);
        let at = socket.local_addr().unwrap();
        let sender = {
            let (stop, sent, read) = (Arc::clone(&stop), Arc::clone(&sent), Arc::clone(&read));
            a.spawn(move || send(at, ahead, &stop, (&sent, &read)))
        };
        let receiver = {
            let (stop, sent) = (Arc::clone(&stop), Arc::clone(&sent));
            b.spawn(move || receive(&socket, &stop, &sent, &read))
        };
        Self { stop, sent, sender, receiver }
    }

    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    pub(super) fn stop(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        self.sender.join().unwrap();
        self.receiver.join().unwrap()
    }
}

fn send(to: SocketAddr, ahead: u64, stop: &AtomicBool, (sent, read): (&AtomicU64, &AtomicU64)) {
    let sockets: Vec<_> = (0..FLOWS).map(|_| UdpSocket::bind(("0.0.0.0", 0)).unwrap()).collect();
    let (clock, mut data, mut number) = (clock(), [0; 64], 0);
    while !stop.load(Ordering::Relaxed) {
        let due = (clock() * RATE / 1_000_000_000).min(read.load(Ordering::Relaxed) + ahead);
        while number < due {
            data[..8].copy_from_slice(&(number % FLOWS).to_be_bytes());
            data[8..16].copy_from_slice(&(number / FLOWS).to_be_bytes());
            sockets[(number % FLOWS) as usize].send_to(&data, to).unwrap();
            number += 1;
            sent.store(number, Ordering::Relaxed);
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

fn receive(socket: &UdpSocket, stop: &AtomicBool, sent: &AtomicU64, read: &AtomicU64) -> Seen {
    let (mut seen, mut next, mut silences) = (Seen::default(), [0; FLOWS as usize], 0);
    let mut data = [0; 64];
    loop {
        if let Ok(len) = socket.recv(&mut data) {
            assert_eq!(len, data.len());
            let word = |at: usize| u64::from_be_bytes(data[at..at + 8].try_into().unwrap());
            let (flow, number) = (word(0) as usize, word(8));
            seen.received += 1;
            read.store(seen.received, Ordering::Relaxed);
            seen.late += u64::from(number + 1 < next[flow]);
            seen.twice += u64::from(number + 1 == next[flow]);
            next[flow] = next[flow].max(number + 1);
            silences = 0;
        } else if stop.load(Ordering::Relaxed) {
            silences += 1;
        }
        seen.sent = sent.load(Ordering::Relaxed);
        if silences == 25 || silences > 0 && seen.received >= seen.sent {
            return seen;
        }
    }
}

/// A process that runs a configuration, or takes over from another one.
pub(super) struct Process {
    child: Child,
    folder: Arc<tempfile::TempDir>,
    number: u32,
}

impl Process {
    pub(super) fn start(net: &Net, text: &str) -> Self {
        Self::start_with(net, text, &[])
    }

    /// With these environment variables.
    pub(super) fn start_with(net: &Net, text: &str, environment: &[(&str, String)]) -> Self {
        let args = ["--json", "--control", "sock", "--user", "root"];
        Self::start_by(command(net, text, &args), environment)
    }

    /// As another user, with the capability that AF_PACKET ports need, as a unit of systemd starts it.
    pub(super) fn start_as_nobody(net: &Net, text: &str, environment: &[(&str, String)]) -> Self {
        let (inner, folder) = command(net, text, &["--json", "--control", "sock"]);
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(folder.path(), all).unwrap();
        let mut outer = Command::new("setpriv");
        outer.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        outer.args(["--inh-caps=+net_raw", "--ambient-caps=+net_raw", "--"]);
        outer.arg(inner.get_program()).args(inner.get_args());
        outer.current_dir(folder.path()).stdin(Stdio::null());
        sys::within(&mut outer, &net.0);
        Self::start_by((outer, folder), environment)
    }

    fn start_by(
        (mut command, folder): (Command, tempfile::TempDir),
        environment: &[(&str, String)],
    ) -> Self {
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        let folder = Arc::new(folder);
        let child = output(&mut command, &folder, 0).spawn().unwrap();
        let process = Self { child, folder, number: 0 };
        wait_until("the start", || process.folder.path().join("sock").exists());
        process
    }

    /// Starts another process that takes over with the configuration in this one's folder.
    fn successor(&self, net: &Net) -> Self {
        let number = self.number + 1;
        let mut command = Command::new(binary());
        command.args([
            "run",
            "y.toml",
            "--json",
            "--control",
            "sock",
            "--user",
            "root",
            "--take-over",
        ]);
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        sys::within(&mut command, &net.0);
        let child = output(&mut command, &self.folder, number).spawn().unwrap();
        Self { child, folder: Arc::clone(&self.folder), number }
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its folder, which stays after it has ended.
    pub(super) fn folder(&self) -> Arc<tempfile::TempDir> {
        Arc::clone(&self.folder)
    }

    /// Writes another configuration.
    pub(super) fn write(&self, text: &str) {
        std::fs::write(self.folder.path().join("y.toml"), text).unwrap();
    }

    pub(super) fn said(&self, file: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(format!("{file}{}", self.number))).unwrap()
    }

    /// Waits until it ends by itself; returns its counters.
    pub(super) fn ended(mut self) -> Value {
        let mut status = None;
        wait_until("the end of a process", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        assert!(status.unwrap().success(), "{}{}", self.said("out"), self.said("err"));
        let counters: Value = serde_json::from_str(&self.said("out")).unwrap();
        assert_eq!((&counters["balanced"], &counters["held"]), (&true.into(), &0.into()));
        counters
    }

    pub(super) fn stop(self) -> Value {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", "INT", &pid]).status().unwrap().success());
        self.ended()
    }

    /// For how long no process has received, by its log.
    fn paused_us(&self) -> u64 {
        let mut paused = None;
        wait_until("the log of the take-over", || {
            let said = self.said("err");
            let digits = said.split_once("paused_us=").map(|(_, rest)| rest.to_owned());
            paused = digits.and_then(|text| {
                text.split(|c: char| !c.is_ascii_digit()).next().and_then(|text| text.parse().ok())
            });
            paused.is_some()
        });
        paused.unwrap()
    }

    /// Resident memory in KiB.
    fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let (_killed, _waited) = (self.child.kill(), self.child.wait());
    }
}

fn output<'a>(
    command: &'a mut Command,
    folder: &tempfile::TempDir,
    number: u32,
) -> &'a mut Command {
    let file =
        |name: &str| std::fs::File::create(folder.path().join(format!("{name}{number}"))).unwrap();
    command.stdout(file("out")).stderr(file("err"))
}

/// The configuration with its two ports in the other order.
fn swapped(text: &str) -> String {
    let [head, west, rest] = text.split("[[port]]").collect::<Vec<_>>()[..] else {
        panic!("not two ports: {text}")
    };
    let (east, rest) = rest.split_at(rest.find("[[queue]]").unwrap());
    format!("{head}[[port]]{east}[[port]]{west}{rest}")
}

/// Takes over again and again under traffic.
fn upgrades(plan: Plan) {
    let _alone = alone();
    let line = Line::new(plan);
    let net = line.yard();
    let mut process = Process::start(net, &plan.text());
    if plan.kind == Kind::Tap {
        line.set_up_tap();
    }
    line.ping(ips()[0], "");
    let traffic = Traffic::start(&line);
    let (began, clock) = (traffic.sent(), clock());
    let (mut memory, mut pauses, mut received) = (Vec::new(), Vec::new(), 0);
    for round in 0..rounds() {
        let before = traffic.sent();
        wait_until("traffic", || traffic.sent() > before + RATE / 20);
        memory.push(process.memory());
        // Ports have other numbers in every second process.
        let text = if round % 2 == 0 { swapped(&plan.text()) } else { plan.text() };
        std::fs::write(process.folder.path().join("y.toml"), text).unwrap();
        let mut next = process.successor(net);
        wait_until("the take-over", || {
            let status = next.child.try_wait().unwrap();
            assert!(status.is_none(), "{}\n{}", next.said("err"), process.said("err"));
            process.child.try_wait().unwrap().is_some()
        });
        let counters = process.ended();
        assert_eq!(drops(&counters), [], "{counters:#}");
        received += total(&counters, "rx_frames");
        process = next;
        pauses.push(process.paused_us());
    }
    pauses.sort_unstable();
    let before = traffic.sent();
    wait_until("traffic", || traffic.sent() > before + RATE / 20);
    let (rate, spent) = (traffic.sent() - began, clock());
    let seen = traffic.stop();
    let counters = process.stop();
    received += total(&counters, "rx_frames");
    assert_eq!(drops(&counters), []);
    flowyard_testkit::note!(
        "{:?}: {} upgrades, {seen:?}, {} datagrams/s, {received} frames, paused for {} to {} us, memory of \
         the first and last {} {} KiB",
        plan.kind,
        rounds(),
        rate * 1_000_000_000 / spent,
        pauses[0],
        pauses[pauses.len() - 1],
        memory[0],
        memory[memory.len() - 1],
    );
    assert_eq!((seen.received, seen.late, seen.twice), (seen.sent, 0, 0), "{seen:?}");
    assert!(received >= seen.sent, "every process has received: {received} of {}", seen.sent);
    // The second process is the first one that has taken over.
    let (first, last) = (memory[1.min(memory.len() - 1)], memory[memory.len() - 1]);
    assert!(last < first + first / 4 + 4096, "memory grows: {memory:?}");
}

fn af_packet_ports_are_taken_over_without_loss() {
    upgrades(Plan::of(Kind::Packet));
}

fn a_tap_is_taken_over_without_loss() {
    upgrades(Plan::of(Kind::Tap));
}

fn several_cores_are_taken_over_without_loss() {
    upgrades(Plan { cores: 2, ..Plan::of(Kind::Packet) });
}

fn af_xdp_ports_are_taken_over_without_loss() {
    upgrades(Plan::of(Kind::Xdp));
}

fn af_xdp_ports_of_several_cores_are_taken_over_without_loss() {
    upgrades(Plan { cores: 2, ..Plan::of(Kind::Xdp) });
}

/// A process with AF_PACKET ports on one core, under traffic.
fn started() -> (Line, Process, Traffic) {
    let line = Line::new(Plan::of(Kind::Packet));
    let process = Process::start(line.yard(), &line.plan.text());
    line.ping(ips()[0], "");
    let traffic = Traffic::start(&line);
    (line, process, traffic)
}

fn a_configuration_that_does_not_fit_leaves_the_running_process_alone() {
    let _alone = alone();
    let (line, process, traffic) = started();
    let other = Plan { cores: 2, ..line.plan }.text();
    std::fs::write(process.folder.path().join("y.toml"), other).unwrap();
    let mut refused = process.successor(line.yard());
    let mut status = None;
    wait_until("the refusal", || {
        status = refused.child.try_wait().unwrap();
        status.is_some()
    });
    assert!(!status.unwrap().success());
    let said = refused.said("err");
    assert!(said.contains("port 'west' is open with another 'cores'"), "{said}");
    let before = traffic.sent();
    wait_until("traffic", || traffic.sent() > before + RATE / 10);
    let seen = traffic.stop();
    assert_eq!((seen.received, seen.late, seen.twice), (seen.sent, 0, 0), "{seen:?}");
    assert!(process.folder.path().join("sock").exists(), "the control socket stays");
    assert_eq!(drops(&process.stop()), []);
}

/// A client of the control socket that lets the engine pause and never commits.
fn a_process_that_dies_while_it_takes_over_leaves_the_running_one_alone() {
    use std::io::{BufRead, BufReader, Read, Write};
    let _alone = alone();
    let (_line, process, traffic) = started();
    for _ in 0..rounds() {
        let path = process.folder.path().join("sock");
        let mut stream = std::os::unix::net::UnixStream::connect(path).unwrap();
        stream.write_all(b"{\"ask\":\"hand_over\"}\n").unwrap();
        let mut reader = BufReader::with_capacity(1 << 20, stream.try_clone().unwrap());
        let mut text = String::new();
        assert!(reader.read_line(&mut text).unwrap() > 0);
        assert!(text.contains("answer"), "{text}");
        stream.write_all(b"descriptors\n").unwrap();
        assert_eq!(reader.read(&mut [0]).unwrap(), 1);
        stream.write_all(b"freeze\n").unwrap();
        // Anything of the state: the engine is paused then.
        let mut byte = [0];
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        while reader.read(&mut byte).unwrap() == 1 && byte != *b"{" {}
        drop((reader, stream));
        let before = traffic.sent();
        wait_until("traffic", || traffic.sent() > before + RATE / 20);
    }
    let seen = traffic.stop();
    assert_eq!((seen.received, seen.late, seen.twice), (seen.sent, 0, 0), "{seen:?}");
    let said = process.said("err");
    assert!(said.contains("this one goes on"), "{said}");
    assert_eq!(drops(&process.stop()), []);
}

/// Tries to take over with this configuration, which is refused; returns the reason.
fn refused(process: &Process, line: &Line, text: &str) -> String {
    process.write(text);
    let mut refused = process.successor(line.yard());
    let mut status = None;
    wait_until("the refusal", || {
        status = refused.child.try_wait().unwrap();
        status.is_some()
    });
    assert!(!status.unwrap().success());
    refused.said("err")
}

fn a_port_that_the_kernel_knows_otherwise_is_refused() {
    let _alone = alone();
    let line = Line::new(Plan::of(Kind::Packet));
    let text = line.plan.text();
    let process = Process::start(line.yard(), &text);
    let said = refused(&process, &line, &text.replace("ring_frames = 8192", "ring_frames = 4096"));
    assert!(said.contains("port 'west' is open with another 'ring_frames'"), "{said}");
    let said = refused(&process, &line, &text.replace("west", "wild"));
    assert!(said.contains("interface 'vb' of port 'wild' is in use by port 'west'"), "{said}");
    line.ping(ips()[0], "");
    process.stop();
}

/// The first host moves to another link. The new process must not go on with the interface that the port had.
fn a_port_with_another_interface_is_opened_anew() {
    let _alone = alone();
    let line = Line::new(Plan::of(Kind::Packet));
    let text = line.plan.text();
    let mut process = Process::start(line.yard(), &text);
    line.ping(ips()[0], "");
    line.a.cable("vm", line.yard(), "vn", 1);
    for (from, to) in [("vb", "vn"), ("vn", "vb")] {
        let (old, new) = if from == "vb" { ("va", "vm") } else { ("vm", "va") };
        let moved = |text: &str| text.replace("\"vb\"", &format!("\"{to}\""));
        process.write(&moved(&text));
        let next = process.successor(line.yard());
        let counters = process.ended();
        assert!(total(&counters, "rx_frames") >= 4, "{counters:#}");
        process = next;
        process.paused_us();
        line.a.sh(&format!("ip address flush dev {old}"));
        line.a.address(new, 1);
        line.a.sh("ip neigh flush all");
        line.b.sh("ip neigh flush all");
        line.ping(ips()[0], "");
    }
    assert!(total(&process.stop(), "rx_frames") >= 4);
}

//! The program on a veth between two namespaces: frames are processed on the CPU that the model predicts.
//!
//! These tests run with `FLOWYARD_LIVE=1` only.
#![allow(clippy::print_stderr, reason = "a test reads what its child process prints")]

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use flowyard_adapter::rules;
use flowyard_flow::toeplitz::random_key;
use flowyard_frame::{FlowKey, proto};
use flowyard_livekit::net::{Net, alone};
use flowyard_livekit::{sys, traffic};
use flowyard_steer::{Attached, Follow, Model, Policy, Program, Reason, online_cpus};
use flowyard_testkit::harness::{self, Need};
use flowyard_testkit::{Build, note};

mod elephants;

flowyard_testkit::tests! {
    frames_reach_the_predicted_cpus needs TOOLS,
    streams_are_whole_in_both_directions needs TOOLS,
    a_killed_process_leaves_nothing_behind needs TOOLS,
    a_second_program_is_refused needs TOOLS,
    datagrams_follow_their_readers_in_order needs TOOLS,
    streams_follow_their_senders needs TOOLS,
    mod elephants,
    child on_demand "started by another test",
}

fn main() -> std::process::ExitCode {
    harness::run(tests())
}

const TOOLS: [Need; 4] =
    [Need::Live, Need::Namespaces, Need::Program("ip"), Need::Program("ethtool")];

/// How long a test waits for what must happen.
const LONG: Duration = Duration::from_secs(20);

/// Two hosts, 10.9.0.1 and 10.9.0.2; the frames of the second one's interface vb are steered.
struct Rig {
    a: Net,
    b: Net,
}

impl Rig {
    fn new() -> Self {
        let (a, b) = Net::steered_pair().unwrap();
        Self { a, b }
    }

    fn steer(&self, policy: &Policy) -> Program {
        let policy = policy.clone();
        self.b.within(move || {
            // On a busy machine the threads of CPUs may wait for long.
            let mut program = Program::load(&policy, 16_384).unwrap();
            assert_eq!(program.attach("vb").unwrap(), Attached::Driver);
            program
        })
    }

    fn has_program(&self) -> bool {
        self.b.sh("ip link show vb").contains("xdp")
    }
}

/// A policy over all CPUs, with a key that nobody has seen.
fn policy(key: u64) -> Policy {
    Policy { key: random_key(key).to_vec(), ..Policy::over(&online_cpus().unwrap()) }
}

/// A socket of `net` at `from`, connected to `to`: only such sockets know where their frames were processed.
fn socket(net: &Net, from: SocketAddr, to: SocketAddr) -> UdpSocket {
    net.within(move || {
        let socket = UdpSocket::bind(from).unwrap();
        socket.connect(to).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        socket
    })
}

fn frames_reach_the_predicted_cpus() {
    let _alone = alone();
    let cpus = online_cpus().unwrap();
    if cpus.len() < 2 {
        harness::ignore("there is only one CPU");
    }
    let rig = Rig::new();
    let text = "flow-type udp4 dst-port 30004 action 1\nflow-type udp4 dst-port 30006 action 0\n\
                flow-type udp4 dst-port 30008 action -1\n";
    let policy = Policy { rules: rules::parse("rules", text).unwrap(), ..policy(11) };
    let model = Model::new(&policy).unwrap();
    let mut program = rig.steer(&policy);
    let (mut by_cpu, mut dropped) = (vec![0; cpus.len()], 0);
    for flow in 0..200_u16 {
        let [a, b]: [IpAddr; 2] = if flow.is_multiple_of(2) {
            [1, 2].map(|n| IpAddr::from([10, 9, 0, n]))
        } else {
            [1, 2].map(|n| IpAddr::from([0xfd09, 0, 0, 0, 0, 0, 0, n]))
        };
        let (sport, dport) = (20_000 + flow, 30_000 + flow);
        let sender = socket(&rig.a, (a, sport).into(), (b, dport).into());
        let receiver = socket(&rig.b, (b, dport).into(), (a, sport).into());
        let key = FlowKey::five_tuple(proto::UDP, a, sport, b, dport);
        let decision = model.decide(&Build::new(&key).payload(b"steered").bytes());
        sender.send(b"steered").unwrap();
        let mut bytes = [0; 16];
        if decision.reason == Reason::Dropped {
            receiver.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            assert!(receiver.recv(&mut bytes).is_err());
            dropped += 1;
            continue;
        }
        assert_eq!(receiver.recv(&mut bytes).unwrap(), 7);
        let cpu = policy.cpus[usize::from(decision.queue)].unwrap();
        assert_eq!(sys::incoming_cpu(&OwnedFd::from(receiver)), cpu, "{key:?}: {decision:?}");
        by_cpu[usize::from(decision.queue)] += 1;
    }
    note!("by queue: {by_cpu:?}, dropped: {dropped}");
    assert_eq!(dropped, 1);
    assert!(by_cpu.iter().all(|flows| *flows > 0), "{by_cpu:?}");
    let counts = program.counts().unwrap();
    let of = |reason| counts.iter().filter_map(|one| one.frames.get(&reason)).sum::<u64>();
    assert_eq!((of(Reason::Dropped), of(Reason::Rule)), (1, 2), "{counts:?}");
    assert!(of(Reason::Rss) >= 197, "{counts:?}");
    assert!(rig.has_program());
    drop(program);
    assert!(!rig.has_program());
}

fn streams_are_whole_in_both_directions() {
    let _alone = alone();
    let rig = Rig::new();
    let mut program = rig.steer(&policy(5));
    let near: IpAddr = [10, 9, 0, 1].into();
    let far: IpAddr = [10, 9, 0, 2].into();
    let there = traffic::stream(&rig.a, &rig.b, far, 20_000_000);
    let back = traffic::stream(&rig.b, &rig.a, near, 20_000_000);
    note!("{there:.0} and {back:.0} Mbit/s");
    let bytes: u64 = program.counts().unwrap().iter().map(|one| one.bytes).sum();
    assert!(bytes > 20_000_000, "{bytes}");
}

/// What the readers of numbered datagrams saw.
#[derive(Debug, Default)]
struct Read {
    all: u64,
    late: u64,
    /// Those that were processed on the CPU that reads them.
    local: u64,
}

/// Sends numbered datagrams of 4 flows to threads that change their CPU every 100 datagrams, and checks their order.
///
/// The sender waits while more than `WINDOW` datagrams have not been read, so that no ring and no socket buffer
/// overflows, whatever else the machine does: each datagram must be read.
fn migrate(rig: &Rig, count: u64) -> Read {
    const WINDOW: u64 = 512;
    let cpus = online_cpus().unwrap();
    let done = Arc::new(AtomicU64::new(0));
    let [a, b] = [1, 2].map(|n| IpAddr::from([10, 9, 0, n]));
    let ports = (0..4_u16).map(|flow| (40_000 + flow, 50_000 + flow));
    let (senders, receivers): (Vec<_>, Vec<_>) = ports
        .map(|(sport, dport)| {
            let sender = socket(&rig.a, (a, sport).into(), (b, dport).into());
            (sender, socket(&rig.b, (b, dport).into(), (a, sport).into()))
        })
        .unzip();
    let readers: Vec<_> = (0..)
        .zip(receivers)
        .map(|(number, socket)| {
            let (cpus, done) = (cpus.clone(), Arc::clone(&done));
            sys::big_buffer(&socket);
            std::thread::spawn(move || {
                let (mut read, mut last, mut cpu, mut bytes) = (Read::default(), 0, 0, [0; 64]);
                let descriptor = OwnedFd::from(socket.try_clone().unwrap());
                while read.all < count && socket.recv(&mut bytes).is_ok_and(|bytes| bytes == 8) {
                    let number_now = u64::from_be_bytes(*bytes.first_chunk().unwrap());
                    read.late += u64::from(number_now < last);
                    last = last.max(number_now);
                    read.local += u64::from(sys::incoming_cpu(&descriptor) == cpu);
                    if read.all.is_multiple_of(100) {
                        cpu = cpus[(read.all as usize / 100 + number) % cpus.len()];
                        sys::pin(0, cpu);
                    }
                    read.all += 1;
                    done.fetch_add(1, Relaxed);
                }
                read
            })
        })
        .collect();
    for number in 1..=count {
        for sender in &senders {
            sender.send(&number.to_be_bytes()).unwrap();
        }
        let mut waits = 0;
        while number * 4 > done.load(Relaxed) + WINDOW {
            std::thread::sleep(Duration::from_micros(100));
            waits += 1;
            assert!(
                waits < 200_000,
                "datagrams were lost: {number} sent, {done:?} of 4 flows read"
            );
        }
    }
    let seen = readers.into_iter().map(|reader| reader.join().unwrap());
    seen.fold(Read::default(), |sum, one| Read {
        all: sum.all + one.all,
        late: sum.late + one.late,
        local: sum.local + one.local,
    })
}

fn datagrams_follow_their_readers_in_order() {
    let _alone = alone();
    let rig = Rig::new();
    let named = std::env::var("FLOWYARD_DATAGRAMS").ok(); // of each flow
    let count = named.and_then(|number| number.parse().ok()).unwrap_or(50_000);
    for settles in [true, false] {
        let policy = Policy { follow: Some(Follow::Readers), settles, ..policy(9) };
        let mut program = rig.steer(&policy);
        let read = migrate(&rig, count);
        let counts = program.counts().unwrap();
        let of = |reason| counts.iter().filter_map(|one| one.frames.get(&reason)).sum::<u64>();
        let [rss, filter, settling] = [Reason::Rss, Reason::Filter, Reason::Settling].map(of);
        note!("settles: {settles}: {read:?}; rss {rss}, filter {filter}, settling {settling}");
        assert!(read.all == 4 * count && filter > count, "{read:?}: {counts:?}");
        if settles {
            assert_eq!(read.late, 0, "{read:?}: {counts:?}");
            assert!(settling > 0, "{counts:?}");
        } else {
            // The first frame of each flow of which something is learned goes where those before it went.
            assert!(settling <= 4, "{counts:?}");
        }
    }
}

fn streams_follow_their_senders() {
    let _alone = alone();
    let rig = Rig::new();
    let policy = Policy { follow: Some(Follow::Senders { sample: 20 }), ..policy(6) };
    let mut program = rig.steer(&policy);
    let there = traffic::stream(&rig.a, &rig.b, [10, 9, 0, 2].into(), 20_000_000);
    let back = traffic::stream(&rig.b, &rig.a, [10, 9, 0, 1].into(), 20_000_000);
    let counts = program.counts().unwrap();
    let of = |reason| counts.iter().filter_map(|one| one.frames.get(&reason)).sum::<u64>();
    note!("{there:.0} and {back:.0} Mbit/s; {} of {} by RSS", of(Reason::Rss), of(Reason::Filter));
    assert!(of(Reason::Filter) > 1000, "{counts:?}");
}

fn a_second_program_is_refused() {
    let _alone = alone();
    let rig = Rig::new();
    let _first = rig.steer(&policy(1));
    let (second, none) = rig.b.within(|| {
        let mut program = Program::load(&policy(2), 64).unwrap();
        (
            program.attach("vb").unwrap_err().to_string(),
            program.attach("vx").unwrap_err().to_string(),
        )
    });
    assert!(second.starts_with("'vb' has an XDP program already; stop"), "{second}");
    assert!(none.starts_with("there is no interface 'vx'"), "{none}");
}

fn a_killed_process_leaves_nothing_behind() {
    let _alone = alone();
    let rig = Rig::new();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "child", "--nocapture"]);
    command.env("FLOWYARD_STEER", "vb").stdout(Stdio::null()).stderr(Stdio::piped());
    sys::within(&mut command, &rig.b.0);
    sys::end_with_parent(&mut command);
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains("attached to vb")));
    assert!(rig.has_program());
    child.kill().unwrap(); // SIGKILL
    child.wait().unwrap();
    for _ in 0..200 {
        if !rig.has_program() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("the program is still there: {}", rig.b.sh("ip link show vb"));
}

/// Steers the interface that the environment names, until it is killed.
fn child() {
    let interface = std::env::var("FLOWYARD_STEER").unwrap();
    let mut program = Program::load(&policy(3), 64).unwrap();
    program.attach(&interface).unwrap();
    eprintln!("attached to {interface}");
    std::thread::sleep(Duration::from_secs(600));
}

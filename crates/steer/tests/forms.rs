//! Forms of packets and groups of sockets on a veth between two namespaces.
//!
//! These tests run with `FLOWYARD_LIVE=1` only.
#![allow(clippy::print_stderr, reason = "a test reads what its child process prints")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use flowyard_flow::Quic;
use flowyard_flow::toeplitz::random_key;
use flowyard_frame::{FlowKey, proto};
use flowyard_livekit::net::{Net, alone};
use flowyard_livekit::{sys, traffic};
use flowyard_steer::{Attached, Model, Pieces, Policy, Program, Reason, Sockets, online_cpus};
use flowyard_testkit::harness::{self, Need};
use flowyard_testkit::{Build, note};
use rustix::net::{AddressFamily, SocketType, sockopt};

flowyard_testkit::tests! {
    jumbo_frames_are_received needs TOOLS,
    jumbo_frames_are_refused_without_pieces needs TOOLS,
    sockets_get_the_packets_of_their_cpu needs TOOLS,
    connections_reach_the_listener_of_their_cpu needs TOOLS,
    a_group_outlives_a_killed_process needs TOOLS,
    readers on_demand "started by another test",
    listeners on_demand "started by another test",
    steers_sockets on_demand "started by another test",
}

fn main() -> std::process::ExitCode {
    harness::run(tests())
}

const TOOLS: [Need; 4] =
    [Need::Live, Need::Namespaces, Need::Program("ip"), Need::Program("ethtool")];

/// How long a test waits for what must happen.
const LONG: Duration = Duration::from_secs(20);

/// The port that the sockets share.
const PORT: u16 = 443;

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

    fn mtu(&self, bytes: u32) {
        self.a.sh(&format!("ip link set va mtu {bytes}"));
        self.b.sh(&format!("ip link set vb mtu {bytes}"));
    }

    fn steer(&self, policy: &Policy) -> Program {
        let policy = policy.clone();
        self.b.within(move || {
            let mut program = Program::load(&policy, 2048).unwrap();
            assert_eq!(program.attach("vb").unwrap(), Attached::Driver);
            program
        })
    }

    /// This program with another of its tests, in the second host; `key` and `value` are in its environment.
    fn child(&self, test: &str, key: &str, value: &str) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", test, "--nocapture"]);
        command.env(key, value).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        sys::within(&mut command, &self.b.0);
        sys::end_with_parent(&mut command);
        command.spawn().unwrap()
    }
}

/// A policy over all CPUs, with a key that nobody has seen.
fn policy(key: u64) -> Policy {
    Policy { key: random_key(key).to_vec(), ..Policy::over(&online_cpus().unwrap()) }
}

fn two_cpus() -> Vec<u32> {
    let cpus = online_cpus().unwrap();
    if cpus.len() < 2 {
        harness::ignore("there is only one CPU");
    }
    cpus
}

/// Datagrams of 8,900 bytes in one frame each, and a stream, arrive whole.
fn jumbo_frames_are_received() {
    let _alone = alone();
    let rig = Rig::new();
    rig.mtu(9000);
    let mut program = rig.steer(&policy(5));
    let datagrams = traffic::Datagrams {
        to: [10, 9, 0, 2].into(),
        flows: 8,
        count: 500,
        bytes: 8_900,
        gap: Duration::from_micros(300),
    };
    let arrived = datagrams.send(&rig.a, &rig.b);
    note!("{arrived:?}");
    assert_eq!((arrived.total, arrived.late, arrived.twice), (4_000, 0, 0));
    let rate = traffic::stream(&rig.a, &rig.b, [10, 9, 0, 2].into(), 20_000_000);
    let counts = program.counts().unwrap();
    note!("{rate:.0} Mbit/s; {counts:?}");
    let frames: u64 = counts.iter().flat_map(|one| one.frames.values()).sum();
    let bytes: u64 = counts.iter().map(|one| one.bytes).sum();
    // Whole frames, not their first pieces, are counted.
    assert!(bytes > 4_000 * 8_900 + 20_000_000 && bytes / frames > 3_600, "{bytes} in {frames}");
    assert!(counts.iter().all(|one| one.frames[&Reason::Rss] > 0), "{counts:?}");
}

fn jumbo_frames_are_refused_without_pieces() {
    let _alone = alone();
    let rig = Rig::new();
    rig.mtu(9000);
    let error = rig.b.within(|| {
        let mut program = Program::load_for(&policy(1), 64, Some(Pieces::One)).unwrap();
        program.attach("vb").unwrap_err().to_string()
    });
    let whole =
        "'vb' has an MTU of 9000, and this kernel hands XDP only frames that fit in a page; ";
    assert!(error.starts_with(whole) && error.contains("Linux 5.18"), "{error}");
    rig.mtu(1500);
    rig.b.within(|| {
        let mut program = Program::load_for(&policy(1), 64, Some(Pieces::One)).unwrap();
        assert_eq!(program.attach("vb").unwrap(), Attached::Driver);
    });
}

/// Sends QUIC packets of 64 connections from 4 ports each, as a client does that changes its address; returns the CPU
/// of each connection.
fn connections(rig: &Rig, policy: &Policy) -> BTreeMap<u64, u32> {
    let model = Model::new(policy).unwrap();
    let [a, b] = [1, 2].map(|n| IpAddr::from([10, 9, 0, n]));
    let mut cpus = BTreeMap::new();
    for number in 0..256_u64 {
        let (id, sport) = (number % 64, 20_000 + number as u16);
        let packet = [&[0x41][..], &id.to_be_bytes(), &number.to_be_bytes()].concat();
        let key = FlowKey::five_tuple(proto::UDP, a, sport, b, PORT);
        let decision = model.decide(&Build::new(&key).payload(&packet).bytes());
        let cpu = policy.cpus[usize::from(decision.queue)].unwrap();
        assert_eq!(*cpus.entry(id).or_insert(cpu), cpu, "connection {id} moves");
        rig.a.within(move || {
            let socket = UdpSocket::bind((a, sport)).unwrap();
            socket.send_to(&packet, (b, PORT)).unwrap();
        });
    }
    cpus
}

/// What the children's threads say: `CPU connection` for each packet.
fn said(lines: &mut dyn Iterator<Item = String>, count: usize) -> Vec<(u32, u64)> {
    let numbers = lines.filter_map(|line| {
        let (cpu, id) = line.strip_prefix("read ")?.split_once(' ')?;
        Some((cpu.parse().ok()?, id.parse().ok()?))
    });
    numbers.take(count).collect()
}

fn lines_of(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok)
}

/// A policy that spreads connections over all CPUs by their IDs.
fn by_id() -> Policy {
    Policy { quic: Some(Quic::new(&[PORT], 8, None).unwrap()), ..policy(7) }
}

fn sockets_get_the_packets_of_their_cpu() {
    let _alone = alone();
    let cpus = two_cpus();
    let rig = Rig::new();
    let policy = by_id();
    let _program = rig.steer(&policy);
    // Two threads for each CPU.
    let mut child = rig.child("readers", "FLOWYARD_READERS", "2");
    let mut lines = lines_of(&mut child);
    assert!(lines.any(|line| line == "ready"));
    let mut sockets = Sockets::attach(child.id(), PORT).unwrap();
    let placed = sockets.counts().unwrap();
    assert_eq!((placed[0].sockets, placed[0].placed), (2 * cpus.len() as u32, placed[0].sockets));
    let expected = connections(&rig, &policy);
    let read = said(&mut lines, 256);
    let local = read.iter().filter(|(cpu, id)| expected[id] == *cpu).count();
    let counts = sockets.counts().unwrap();
    note!("{local} of {}; {counts:?}", read.len());
    assert_eq!((read.len(), local), (256, 256), "{read:?}");
    assert_eq!((counts[0].local, counts[0].other), (256, 0));
    // Threads that move are followed by what they read.
    child.stdin.as_mut().unwrap().write_all(b"turn\n").unwrap();
    assert!(lines.any(|line| line == "turned"));
    for _ in 0..2 {
        connections(&rig, &policy); // after a packet each thread moves, and the next is read on the new CPU
        assert_eq!(said(&mut lines, 256).len(), 256);
    }
    sockets.follow().unwrap();
    connections(&rig, &policy);
    let read = said(&mut lines, 256);
    let local = read.iter().filter(|(cpu, id)| expected[id] == *cpu).count();
    note!("{local} of {} after the threads have moved", read.len());
    assert_eq!((read.len(), local), (256, 256));
    // Detached, the kernel's hash decides: about half of the packets are read elsewhere.
    drop(sockets);
    connections(&rig, &policy);
    let read = said(&mut lines, 256);
    let local = read.iter().filter(|(cpu, id)| expected[id] == *cpu).count();
    note!("{local} of {} without the program", read.len());
    assert!(read.len() == 256 && (32..224).contains(&local), "{local} of {}", read.len());
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A socket that shares PORT.
fn shared_socket(kind: SocketType) -> std::os::fd::OwnedFd {
    let socket = rustix::net::socket(AddressFamily::INET, kind, None).unwrap();
    sockopt::set_socket_reuseport(&socket, true).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from(([0, 0, 0, 0], PORT))).unwrap();
    socket
}

/// Threads on every CPU, as many as the environment says, that read sockets of one group. A line of standard input moves
/// them to the next CPU.
fn readers() {
    let each: u32 = std::env::var("FLOWYARD_READERS").unwrap().parse().unwrap();
    let cpus = online_cpus().unwrap();
    let turned = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let order = std::sync::atomic::Ordering::SeqCst;
    for number in 0..cpus.len() * each as usize {
        let socket = UdpSocket::from(shared_socket(SocketType::DGRAM));
        let (cpus, turned) = (cpus.clone(), turned.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 64];
            loop {
                let cpu = cpus[(number + turned.load(order)) % cpus.len()];
                sys::pin(0, cpu);
                let length = socket.recv(&mut bytes).unwrap();
                assert_eq!(length, 17);
                eprintln!("read {cpu} {}", u64::from_be_bytes(bytes[1..9].try_into().unwrap()));
            }
        });
    }
    std::thread::sleep(Duration::from_millis(300)); // until all threads wait
    eprintln!("ready");
    for _ in std::io::stdin().lines() {
        turned.fetch_add(1, order);
        eprintln!("turned");
    }
    std::thread::sleep(LONG * 10);
}

fn connections_reach_the_listener_of_their_cpu() {
    let _alone = alone();
    let cpus = two_cpus();
    let rig = Rig::new();
    let policy = policy(3);
    let model = Model::new(&policy).unwrap();
    let _program = rig.steer(&policy);
    let mut child = rig.child("listeners", "FLOWYARD_READERS", "1");
    let mut lines = lines_of(&mut child);
    assert!(lines.any(|line| line == "ready"));
    let mut sockets = Sockets::attach(child.id(), PORT).unwrap();
    let [a, b] = [1, 2].map(|n| IpAddr::from([10, 9, 0, n]));
    let mut expected = BTreeMap::new();
    let mut open = Vec::new();
    for _ in 0..100 {
        let stream = rig.a.within(move || std::net::TcpStream::connect((b, PORT)).unwrap());
        let sport = stream.local_addr().unwrap().port();
        let key = FlowKey::five_tuple(proto::TCP, a, sport, b, PORT);
        let queue = model.decide(&Build::new(&key).bytes()).queue;
        expected.insert(u64::from(sport), policy.cpus[usize::from(queue)].unwrap());
        open.push(stream);
    }
    let read = said(&mut lines, 100);
    let local = read.iter().filter(|(cpu, id)| expected[id] == *cpu).count();
    let counts = sockets.counts().unwrap();
    note!("{local} of {}; {counts:?}", read.len());
    assert_eq!((counts[0].protocol, counts[0].sockets), ("tcp", cpus.len() as u32));
    assert_eq!((read.len(), local), (100, 100));
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A listener for each CPU, whose threads wait in epoll sets.
fn listeners() {
    for cpu in online_cpus().unwrap() {
        let socket = shared_socket(SocketType::STREAM);
        rustix::net::listen(&socket, 128).unwrap();
        let listener = std::net::TcpListener::from(socket);
        std::thread::spawn(move || {
            sys::pin(0, cpu);
            use rustix::event::epoll;
            let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
            let data = epoll::EventData::new_u64(0);
            epoll::add(&set, &listener, data, epoll::EventFlags::IN).unwrap();
            let mut open = Vec::new();
            loop {
                let mut events = Vec::with_capacity(1);
                epoll::wait(&set, rustix::buffer::spare_capacity(&mut events), None).unwrap();
                let (stream, peer) = listener.accept().unwrap();
                open.push(stream);
                eprintln!("read {cpu} {}", peer.port());
            }
        });
    }
    std::thread::sleep(Duration::from_millis(300));
    eprintln!("ready");
    std::thread::sleep(LONG * 10);
}

fn a_group_outlives_a_killed_process() {
    let _alone = alone();
    two_cpus();
    let rig = Rig::new();
    let policy = by_id();
    let _program = rig.steer(&policy);
    let mut group = rig.child("readers", "FLOWYARD_READERS", "1");
    let mut lines = lines_of(&mut group);
    assert!(lines.any(|line| line == "ready"));
    let mut steering = rig.child("steers_sockets", "FLOWYARD_PROCESS", &group.id().to_string());
    assert!(lines_of(&mut steering).any(|line| line == "attached"));
    steering.kill().unwrap(); // SIGKILL
    steering.wait().unwrap();
    let expected = connections(&rig, &policy);
    let read = said(&mut lines, 256);
    let local = read.iter().filter(|(cpu, id)| expected[id] == *cpu).count();
    note!("{local} of {} after kill -9", read.len());
    assert_eq!((read.len(), local), (256, 256));
    // Another one takes over, with sockets of a second process, which then ends: the kernel's hash finds the others.
    let mut second = rig.child("readers", "FLOWYARD_READERS", "1");
    let mut more = lines_of(&mut second);
    assert!(more.any(|line| line == "ready"));
    let mut sockets = Sockets::attach(second.id(), PORT).unwrap();
    for _ in 0..100 {
        if sockets.counts().unwrap()[0].sockets == online_cpus().unwrap().len() as u32 {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
        sockets.refresh().unwrap();
    }
    connections(&rig, &policy);
    assert_eq!(said(&mut more, 256).len(), 256);
    second.kill().unwrap();
    second.wait().unwrap();
    connections(&rig, &policy);
    assert_eq!(said(&mut lines, 256).len(), 256);
    drop(sockets);
    group.kill().unwrap();
    group.wait().unwrap();
}

/// Steers the sockets of the process that the environment names, until it is killed.
fn steers_sockets() {
    let process = std::env::var("FLOWYARD_PROCESS").unwrap().parse().unwrap();
    let sockets = Sockets::attach(process, PORT).unwrap();
    eprintln!("attached");
    std::thread::sleep(LONG * 10);
    drop(sockets);
}

//! `flowyard steer` on a veth: pins, restarts, and what a running one answers.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use flowyard_livekit::net::{Net, alone};
use flowyard_livekit::sys;
use flowyard_testkit::note;
use serde_json::Value;
use tempfile::TempDir;

use crate::yard::{binary, wait_until};

flowyard_testkit::tests! {
    restarts_lose_and_reorder_nothing,
    without_pin_nothing_is_left,
    pins_of_others_are_refused,
    a_running_one_is_shown_and_traced,
    threads_of_rings_do_not_preempt_unless_told_to,
}

/// Two hosts; the frames of the second one's interface vb are steered. A BPF file system of its own.
struct Rig {
    a: Net,
    b: Net,
    folder: TempDir,
    /// A process in the mount namespace with the BPF file system, which ends when its input does.
    holder: Child,
}

impl Rig {
    fn new() -> Self {
        let (a, b) = Net::steered_pair().unwrap();
        // A veth drops what its receiver has no time for, unless the sender has a queue that waits.
        a.sh("tc qdisc add dev va root pfifo limit 100000");
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("bpf")).unwrap();
        let line = format!(
            "mount -t sysfs none /sys && mount -t bpf bpf {}/bpf && echo ready && exec cat",
            folder.path().display()
        );
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &line]).stdin(Stdio::piped()).stdout(Stdio::piped());
        sys::within(&mut command, &b.0);
        sys::end_with_parent(&mut command);
        let mut holder = command.spawn().unwrap();
        let mut said = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "ready\n");
        Self { a, b, folder, holder }
    }

    fn pins(&self) -> String {
        format!("{}/bpf/vb", self.folder.path().display())
    }

    fn socket(&self) -> String {
        format!("{}/sock", self.folder.path().display())
    }

    /// `flowyard` with these arguments, on the host whose frames are steered.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        let pid = self.holder.id().to_string();
        command.args(["-m", "-t", &pid, "--"]).arg(binary()).args(args).stdin(Stdio::null());
        sys::within(&mut command, &self.b.0);
        command
    }

    /// Its standard output, if it succeeds, or else what it says.
    fn run(&self, args: &[&str]) -> Result<String, (Option<i32>, String)> {
        let output = self.command(args).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err((output.status.code(), text(&output.stderr))),
        }
    }

    fn ask(&self, args: &[&str]) -> Value {
        let said = self.run(&[args, &["--control", &self.socket(), "--json"]].concat()).unwrap();
        serde_json::from_str(&said).unwrap()
    }

    /// Starts `flowyard steer vb`, and waits until it steers.
    fn steer(&self, args: &[&str]) -> Steering {
        let (socket, log) = (self.socket(), self.folder.path().join("log"));
        let mut command = self.command(&[&["steer", "vb", "--control", &socket], args].concat());
        command.stdout(Stdio::null()).stderr(File::create(&log).unwrap());
        sys::end_with_parent(&mut command);
        let child = command.spawn().unwrap();
        let mut steering = Steering(child);
        wait_until("steering", || {
            let said = std::fs::read_to_string(&log).unwrap();
            assert!(steering.0.try_wait().unwrap().is_none(), "{said}");
            said.contains("steering the frames of vb")
        });
        steering
    }

    /// The kernel's counters of frames and datagrams that were lost.
    fn losses(&self) -> String {
        let sender = "tc -s qdisc show dev va; ip -s -s link show va; grep ^Udp: /proc/net/snmp";
        let receiver = "ethtool -S vb; ip -s -s link show vb; grep ^Udp: /proc/net/snmp; cat /proc/net/softnet_stat; \
                        cat /proc/net/udp";
        format!("{}\n{}", self.a.sh(sender), self.b.sh(receiver))
    }

    fn has_program(&self) -> bool {
        self.b.sh("ip link show vb").contains("xdp")
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        self.holder.wait().unwrap();
    }
}

/// A process, killed when this is dropped.
struct Steering(Child);

impl Steering {
    fn end(mut self, signal: &str) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
        self.0.wait().unwrap();
    }
}

impl Drop for Steering {
    fn drop(&mut self) {
        let (_killed, _reaped) = (self.0.kill(), self.0.wait());
    }
}

/// Datagrams on their way. No ring and no socket buffer overflows, whatever else the machine does: each datagram of
/// [`Traffic`] must be read.
const WINDOW: u64 = 512;

/// Numbered datagrams of 4 flows, to threads that change their CPU, until the result is joined.
struct Traffic {
    ended: Arc<AtomicBool>,
    sender: std::thread::JoinHandle<u64>,
    readers: Vec<std::thread::JoinHandle<(u64, u64)>>,
}

impl Traffic {
    fn start(rig: &Rig) -> Self {
        let socket = |net: &Net, from: String, to: String| {
            net.within(move || {
                let socket = UdpSocket::bind(from).unwrap();
                socket.connect(to).unwrap();
                socket
            })
        };
        let pairs = (0..4).map(|flow| {
            let (near, far) = (format!("10.9.0.1:4000{flow}"), format!("10.9.0.2:5000{flow}"));
            (socket(&rig.a, near.clone(), far.clone()), socket(&rig.b, far, near))
        });
        let (senders, receivers): (Vec<_>, Vec<_>) = pairs.unzip();
        let (ended, done) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let readers = receivers.into_iter().enumerate().map(|(at, socket)| {
            sys::big_buffer(&socket);
            let (is_ended, done) = (Arc::clone(&ended), Arc::clone(&done));
            std::thread::spawn(move || read(at, &socket, &is_ended, &done))
        });
        let readers = readers.collect();
        let is_ended = Arc::clone(&ended);
        let sender = std::thread::spawn(move || {
            let mut number = 0_u64;
            while !is_ended.load(Ordering::Relaxed) {
                number += 1;
                for socket in &senders {
                    socket.send(&number.to_be_bytes()).unwrap();
                }
                let on_their_way = || number * 4 - done.load(Ordering::Relaxed);
                let mut wait = number.is_multiple_of(4);
                while wait && !is_ended.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_micros(400));
                    wait = on_their_way() > WINDOW;
                }
            }
            number
        });
        Self { ended, sender, readers }
    }

    /// Datagrams that were sent, received and late.
    fn end(self) -> (u64, u64, u64) {
        self.ended.store(true, Ordering::Relaxed);
        let sent = self.sender.join().unwrap() * self.readers.len() as u64;
        let read = self.readers.into_iter().map(|reader| reader.join().unwrap());
        let (read, late) = read.fold((0, 0), |(a, b), (read, late)| (a + read, b + late));
        (sent, read, late)
    }
}

/// How many datagrams are received, and how many of them after a later one.
fn read(at: usize, socket: &UdpSocket, is_ended: &AtomicBool, done: &AtomicU64) -> (u64, u64) {
    let cpus = flowyard_steer::online_cpus().unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let (mut count, mut late, mut last) = (0_u64, 0, 0);
    let mut bytes = [0; 64];
    loop {
        match socket.recv(&mut bytes) {
            Ok(_) => {
                let number = u64::from_be_bytes(*bytes.first_chunk().unwrap());
                late += u64::from(number < last);
                last = last.max(number);
                if count.is_multiple_of(500) {
                    sys::pin(0, cpus[(count as usize / 500 + at) % cpus.len()]);
                }
                count += 1;
                done.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) if is_ended.load(Ordering::Relaxed) => return (count, late),
            Err(_) => {}
        }
    }
}

/// Frames that the programs have steered so far.
fn steered(state: &Value) -> u64 {
    let queues = state["queues"].as_array().unwrap();
    let frames = queues.iter().flat_map(|queue| queue["frames"].as_object().unwrap().values());
    frames.map(|frames| frames.as_u64().unwrap()).sum()
}

fn restarts_lose_and_reorder_nothing() {
    let _alone = alone();
    let rig = Rig::new();
    let pin = format!("--pin={}", rig.pins());
    for policy in ["rfs", "rss"] {
        // On a busy machine the threads of CPUs may wait for long.
        let args = ["--policy", policy, "--queue-frames", "16384", &pin];
        let mut steering = rig.steer(&args);
        // An address that nobody sends from: it always goes where RSS says, under a key that must stay.
        let flow = "udp 10.9.0.7:7 > 10.9.0.2:7";
        let by_rss = || {
            let found = rig.ask(&["explain", flow, "--interface", "vb", "--where"]);
            found["places"][1]["why"].as_str().unwrap().to_owned()
        };
        let first = by_rss();
        assert!(first.starts_with("rss: hash 0x"), "{first}");
        let traffic = Traffic::start(&rig);
        let mut before = 0;
        for restart in 0..20 {
            std::thread::sleep(Duration::from_millis(100));
            steering.end(if restart % 2 == 0 { "TERM" } else { "KILL" });
            assert!(rig.has_program(), "restart {restart}");
            std::thread::sleep(Duration::from_millis(20));
            steering = rig.steer(&args);
            // The sender waits for its readers, which get little of a busy machine.
            let mut now = before;
            wait_until(&format!("frames are steered after restart {restart}"), || {
                now = steered(&rig.ask(&["show", "steer"]));
                now > before
            });
            before = now;
        }
        let (sent, read, late) = traffic.end();
        assert_eq!(by_rss(), first);
        let state = rig.ask(&["show", "steer"]);
        let of = |stage: &str| -> u64 {
            let queues = state["queues"].as_array().unwrap();
            queues.iter().map(|queue| queue["frames"][stage].as_u64().unwrap()).sum()
        };
        note!(
            "{policy}: {sent} sent, {read} received, {late} late; rss {}, filter {}, settling {}, moves {}",
            of("rss"),
            of("filter"),
            of("settling"),
            state["flow_moves"]
        );
        assert_eq!((read, late), (sent, 0), "{state:#}\n{}", rig.losses());
        assert!(sent > 10_000 && steered(&state) >= sent, "{sent}: {state:#}");
        let follows = policy == "rfs";
        assert!(!follows || state["flow_moves"].as_u64().unwrap() > 0, "{state:#}");
        let (status, said) =
            rig.run(&["steer", "vb", "--stop", &pin, "--control", &rig.socket()]).unwrap_err();
        assert!(status == Some(1) && said.contains("is running; end it first"), "{said}");
        steering.end("TERM");
        let said = rig.run(&["steer", "vb", "--stop", &pin]).unwrap();
        assert!(said.contains("frames are not steered any more"), "{said}");
        wait_until("the end of the program", || !rig.has_program());
        let said = rig.run(&["steer", "vb", "--stop", &pin]).unwrap();
        assert!(said.contains("nothing is pinned in"), "{said}");
    }
}

fn without_pin_nothing_is_left() {
    let _alone = alone();
    let rig = Rig::new();
    for signal in ["TERM", "KILL"] {
        let steering = rig.steer(&["--policy", "rfs"]);
        assert!(rig.has_program());
        steering.end(signal);
        wait_until("the end of the program", || !rig.has_program());
    }
}

/// The scheduling policies of the kernel threads of rings, by process.
fn ring_threads() -> BTreeMap<u32, u32> {
    let entries = std::fs::read_dir("/proc").unwrap();
    let one = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.ok()?;
        let pid = entry.file_name().to_str()?.parse().ok()?;
        // "PID (NAME) STATE PPID ...": the policy is the 41st word, the 39th behind the name.
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let (name, rest) = stat.split_once(" (")?.1.rsplit_once(") ")?;
        let policy = rest.split(' ').nth(38)?.parse().ok()?;
        name.starts_with("cpumap/").then_some((pid, policy))
    };
    entries.filter_map(one).collect()
}

fn threads_of_rings_do_not_preempt_unless_told_to() {
    let _alone = alone();
    let rig = Rig::new();
    let cpus = flowyard_steer::online_cpus().unwrap().len();
    let (sched_other, sched_batch) = (0, 3); // as in linux/sched.h
    for (option, wanted) in [("batch", sched_batch), ("normal", sched_other)] {
        let before = ring_threads();
        let steering = rig.steer(&["--ring-threads", option]);
        let new: Vec<_> = ring_threads()
            .into_iter()
            .filter_map(|(pid, policy)| (!before.contains_key(&pid)).then_some(policy))
            .collect();
        steering.end("TERM");
        assert_eq!(new, vec![wanted; cpus], "{option}");
    }
}

fn pins_of_others_are_refused() {
    let _alone = alone();
    let rig = Rig::new();
    let pin = format!("--pin={}", rig.pins());
    let refused = |args: &[&str], why: &str| {
        let (status, said) = rig.run(&[&["steer"], args].concat()).unwrap_err();
        assert!(status == Some(2) && said.contains(why), "{status:?} {said}");
    };
    let no_bpf = format!("--pin={}/vb", rig.folder.path().display());
    refused(&["vb", &no_bpf], "is not in a BPF file system; mount one");
    refused(&["vx", &pin], "there is no interface 'vx'");
    rig.steer(&[&pin]).end("TERM");
    let (status, said) = rig.run(&["steer", "vb"]).unwrap_err();
    assert!(
        status == Some(1)
            && said.contains("start with --pin, or remove it with 'flowyard steer vb --stop'"),
        "{said}"
    );
    refused(&["vb", &pin, "--queue-frames", "64"], "use --queue-frames 2048");
    refused(&["lo", &pin], "belongs to another interface (index ");
    // What another version has left.
    let layout = |from: &str, to: &str| {
        let pid = rig.holder.id().to_string();
        let (from, to) = (format!("{}/{from}", rig.pins()), format!("{}/{to}", rig.pins()));
        let mut command = Command::new("nsenter");
        command.args(["-m", "-t", &pid, "--", "mv", &from, &to]);
        assert!(command.status().unwrap().success());
    };
    layout("layout-2", "layout-0");
    refused(
        &["vb", &pin],
        "another version of flowyard has pinned (layout-0; this one has layout-2)",
    );
    assert!(rig.has_program());
    layout("layout-0", "layout-2");
    // An interface that was deleted leaves pins that are replaced.
    rig.b.sh("ip link del vb");
    rig.a.cable("va", &rig.b, "vb", 1);
    rig.steer(&[&pin]).end("KILL");
    assert!(rig.has_program());
    rig.run(&["steer", "vb", "--stop", &pin]).unwrap();
    wait_until("the end of the program", || !rig.has_program());
}

fn a_running_one_is_shown_and_traced() {
    let _alone = alone();
    let rig = Rig::new();
    // On a busy machine the threads of CPUs may wait for long.
    let args = ["--policy", "rfs", "--queue-frames", "16384", "--metrics", "127.0.0.1:0"];
    let _steering = rig.steer(&args);
    let traffic = Traffic::start(&rig);
    wait_until("moves", || rig.ask(&["show", "steer"])["flow_moves"].as_u64().unwrap() > 0);
    let state = rig.ask(&["show", "steer"]);
    assert_eq!(
        (&state["schema"], &state["policy"]),
        (&"flowyard.show.steer/1".into(), &"rfs".into())
    );
    assert!(state["learned_flows"].as_u64().unwrap() >= 4, "{state:#}");
    let rings: u64 = state["rings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|ring| ring["frames"].as_u64().unwrap())
        .sum();
    assert!(rings > 0 && rings <= steered(&rig.ask(&["show", "steer"])), "{state:#}");
    let socket = rig.socket();
    let text = rig.run(&["show", "steer", "--control", &socket]).unwrap();
    assert!(text.contains("vb: rfs, driver") && text.contains("Rings of CPUs"), "{text}");
    let top = rig.run(&["top", "--once", "--interval", "0.2", "--control", &socket]).unwrap();
    assert!(top.contains("frames/s") && top.contains("Rings of CPUs"), "{top}");
    let flow = "udp 10.9.0.1:40001 > 10.9.0.2:50001";
    let trace = rig.ask(&["trace", flow, "--count", "3"]);
    assert_eq!(trace["frames"].as_array().unwrap().len(), 3, "{trace:#}");
    let steps = trace["frames"][0]["steps"].as_array().unwrap();
    let stages: Vec<_> = steps.iter().map(|step| step["stage"].as_str().unwrap()).collect();
    assert!(stages.starts_with(&["rx", "steer"]) && stages.ends_with(&["enqueue"]), "{stages:?}");
    let place = rig.ask(&["explain", flow, "--interface", "vb", "--where"]);
    assert_eq!(
        (&place["decides"], &place["places"][1]["place"]),
        (&"xdp".into(), &"xdp".into()),
        "{place:#}"
    );
    assert!(
        place["cpu"].is_u64()
            && place["places"][1]["why"].as_str().unwrap().contains("its consumer was last seen"),
        "{place:#}"
    );
    let none = rig.ask(&["trace", "udp 10.9.0.9:1 > 10.9.0.2:2", "--seconds", "0.1"]);
    assert!(none["note"].as_str().unwrap().contains("no frame of this flow was received on vb"));
    for (args, why) in [
        (&["show", "cores"][..], "this instance is 'flowyard steer', not a yard"),
        (&["trace", "--drops", "any"], "has no log of dropped frames"),
        (&["trace", flow, "--both"], "sees only received frames"),
    ] {
        let (status, said) = rig.run(&[args, &["--control", &socket]].concat()).unwrap_err();
        assert!(status == Some(2) && said.contains(why), "{said}");
    }
    let log = std::fs::read_to_string(rig.folder.path().join("log")).unwrap();
    let at = log.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
    let page = rig.b.within(move || {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        page
    });
    assert!(page.contains("flowyard_steer_flow_moves_total{interface=\"vb\"}"), "{page}");
    assert!(
        page.contains("flowyard_steer_ring_dropped_frames_total{interface=\"vb\",cpu="),
        "{page}"
    );
    let (sent, read, late) = traffic.end();
    assert_eq!((read, late), (sent, 0), "{}", rig.losses());
}

//! The share of packets that reach the processor of the thread that serves them: memcached with two
//! threads behind a TAP of two queues, compared with the kernel's own RPS and RFS. This is a
//! measurement, not a test:
//! `FLOWYARD_LIVE=1 cargo test --release -p flowyard-config --test interfaces steering -- --ignored --nocapture`
//!
//! ```text
//!  yard    a: memcached, two threads, each on a processor ── tap0 ── yard ── [va] ──── [vd] b: clients
//!  kernel  a: memcached, two threads, each on a processor ─────────────────  [va] ──── [vd] b: clients
//! ```
//!
//! The kernel reports the result: after each request, the server's socket has the processor on
//! which its last packet was received (SO_INCOMING_CPU). The thread that has the socket in its
//! epoll set is pinned, so its processor is known.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use flowyard_report::{Cell, Column, Style, Table};

use crate::yard::Live;
use flowyard_livekit::net::{Net, alone};
use flowyard_livekit::sys;

flowyard_testkit::tests! {
    steering on_demand "a measurement",
}

const CONNECTIONS: usize = 64;
/// The number of requests of each connection before the measurement, and during it.
const WARM: usize = 150;
const COUNTED: usize = 150;
const ROUNDS: usize = 3;
const PORT: u16 = 11_211;

/// The server, until dropped.
struct Memcached {
    child: Child,
    /// The processor of the thread that waits on each epoll set.
    sets: BTreeMap<u32, u32>,
}

impl Memcached {
    fn start(net: &Net) -> Self {
        let mut command = Command::new("memcached");
        command.args(["-t", "2", "-u", "nobody", "-l", "10.9.0.1", "-U", "0", "-p"]);
        command.arg(PORT.to_string()).stdout(Stdio::null()).stderr(Stdio::null());
        sys::within(&mut command, &net.0);
        let child = command.spawn().unwrap();
        thread::sleep(Duration::from_millis(400));
        let mut sets = BTreeMap::new();
        for task in fs::read_dir(format!("/proc/{}/task", child.id())).unwrap() {
            let task = task.unwrap().path();
            let name = fs::read_to_string(task.join("comm")).unwrap();
            if !name.starts_with("mc-worker") {
                continue;
            }
            // The thread waits for its epoll set, whose number is the first argument of the system
            // call.
            let call = fs::read_to_string(task.join("syscall")).unwrap();
            let set = call.split_whitespace().nth(1).unwrap().trim_start_matches("0x");
            let (set, cpu) = (u32::from_str_radix(set, 16).unwrap(), sets.len() as u32);
            let thread = task.file_name().unwrap().to_str().unwrap().parse().unwrap();
            sys::pin(thread, cpu);
            sets.insert(set, cpu);
        }
        assert_eq!(sets.len(), 2, "memcached has two threads that work");
        Self { child, sets }
    }

    /// For each client's address: the server's socket, and the processor of its thread.
    fn sockets(&self) -> BTreeMap<SocketAddr, (OwnedFd, u32)> {
        let mut all = BTreeMap::new();
        for (set, cpu) in &self.sets {
            let path = format!("/proc/{}/fdinfo/{set}", self.child.id());
            for line in fs::read_to_string(path).unwrap().lines() {
                let mut words = line.split_whitespace();
                if words.next() != Some("tfd:") {
                    continue;
                }
                let number = words.next().unwrap().parse().unwrap();
                let socket = sys::descriptor_of(self.child.id(), number).unwrap();
                if let Some(peer) = sys::peer(&socket) {
                    all.insert(peer, (socket, *cpu));
                }
            }
        }
        all
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

/// The number of requests whose packet was received on the processor of the serving thread, and the
/// number of all requests.
#[derive(Clone, Copy, Default, Debug)]
struct Share {
    met: u64,
    of: u64,
}

impl Share {
    fn share(self) -> f64 {
        self.met as f64 / self.of as f64
    }
}

/// A request and its answer, of 100 bytes.
fn get(stream: &mut TcpStream) {
    stream.write_all(b"get key\r\n").unwrap();
    let mut answer = [0; "VALUE key 0 100\r\n".len() + 100 + "\r\nEND\r\n".len()];
    stream.read_exact(&mut answer).unwrap();
    assert!(answer.starts_with(b"VALUE key 0 100\r\n") && answer.ends_with(b"END\r\n"));
}

/// Many connections from `clients` that send requests in random order. Returns the share after each
/// could be learnt, and requests per second.
fn load(clients: &Net, server: &Memcached) -> (Share, f64) {
    let mut streams = clients.within(|| {
        let to = SocketAddr::from(([10, 9, 0, 1], PORT));
        let connect = |_| {
            let stream = TcpStream::connect_timeout(&to, Duration::from_secs(5)).unwrap();
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            stream
        };
        (0..CONNECTIONS).map(connect).collect::<Vec<_>>()
    });
    let set = format!("set key 0 0 100\r\n{}\r\n", "v".repeat(100));
    for stream in &mut streams {
        stream.write_all(set.as_bytes()).unwrap();
        let mut answer = [0; 8];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"STORED\r\n");
    }
    let mut sockets = server.sockets();
    let mut pairs: Vec<_> = streams
        .into_iter()
        .map(|stream| {
            let (socket, cpu) = sockets.remove(&stream.local_addr().unwrap()).unwrap();
            (stream, socket, cpu)
        })
        .collect();
    // Two clients, each with half of the connections.
    let second = pairs.split_off(CONNECTIONS / 2);
    let clock = crate::yard::clock();
    let began = clock();
    let parts = [pairs, second].map(|mut pairs| {
        thread::spawn(move || {
            let (mut share, mut random) = (Share::default(), 0x9e37_79b9_u64);
            let count = pairs.len();
            for round in 0..(WARM + COUNTED) * count {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = (random >> 33) as usize % count;
                let (stream, socket, cpu) = &mut pairs[at];
                get(stream);
                if round >= WARM * count {
                    share.met += u64::from(sys::incoming_cpu(socket) == *cpu);
                    share.of += 1;
                }
            }
            share
        })
    });
    let mut all = Share::default();
    for part in parts {
        let part = part.join().unwrap();
        (all.met, all.of) = (all.met + part.met, all.of + part.of);
    }
    let asked = (CONNECTIONS * (WARM + COUNTED)) as f64;
    (all, asked * 1e9 / (clock() - began) as f64)
}

/// The kind of steering.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Steering {
    Yard { learn: &'static str },
    Kernel { rps: bool, rfs: bool },
}

const ALL: [(&str, Steering); 6] = [
    ("yard, hash alone", Steering::Yard { learn: "" }),
    ("yard, ATR", Steering::Yard { learn: "[learn]\nkind = \"atr\"\n" }),
    ("yard, RFS", Steering::Yard { learn: "[learn]\nkind = \"rfs\"\n" }),
    ("kernel, no steering", Steering::Kernel { rps: false, rfs: false }),
    ("kernel, RPS", Steering::Kernel { rps: true, rfs: false }),
    ("kernel, RFS", Steering::Kernel { rps: true, rfs: true }),
];

/// A configuration between `tap0` and `va`. Frames of the host leave directly, through the core
/// that has the queue of the sending processor; received frames are steered.
fn yard(learn: &str) -> String {
    format!(
        "[yard]\ncores = 2\npin = [0, 1]
        [[port]]\nname = \"host\"\nkind = \"tap\"\ninterface = \"tap0\"\ncores = [0, 1]
        host_queue = \"cpu\"\ninterface_mac = \"02:00:00:00:00:aa\"
        [[port]]\nname = \"net\"\nkind = \"af_packet\"\ninterface = \"va\"\ncores = [0, 1]
        [[queue]]\nname = \"q0\"\norder = \"direct\"\nconsumers = [0]
        [[queue]]\nname = \"q1\"\norder = \"direct\"\nconsumers = [1]
        [[steer.rule]]\nmatch = {{ in_port = \"host\" }}\nport = \"net\"
        {learn}
        [work]\nkind = \"forward\"\nports = {{ net = \"host\", host = \"net\" }}\n"
    )
}

/// The kernel's flow table for RFS belongs to the machine, not to a namespace. Dropping this value
/// restores it.
struct FlowTable(String);

const FLOW_TABLE: &str = "/proc/sys/net/core/rps_sock_flow_entries";

impl FlowTable {
    fn set(entries: u32) -> Self {
        let was = fs::read_to_string(FLOW_TABLE).unwrap();
        fs::write(FLOW_TABLE, entries.to_string()).unwrap();
        Self(was)
    }
}

impl Drop for FlowTable {
    fn drop(&mut self) {
        let _as_it_was = fs::write(FLOW_TABLE, self.0.trim());
    }
}

fn measure(steering: Steering) -> (Share, f64) {
    let [a, b] = [(); 2].map(|()| Net::new().unwrap());
    a.cable("va", &b, "vd", 2);
    b.address("vd", 2);
    let _table;
    let live = match steering {
        Steering::Yard { learn } => {
            let live = Live::start(&a, &yard(learn));
            a.sh("ip link set tap0 txqueuelen 20000");
            a.address("tap0", 1);
            Some(live)
        }
        Steering::Kernel { rps, rfs } => {
            a.address("va", 1);
            let set = |name: &str, value: u32| {
                a.sh(&format!(
                    "unshare -m sh -c 'mount -t sysfs none /sys && \
                     for q in /sys/class/net/va/queues/rx-*; do echo {value} > $q/{name}; done'"
                ));
            };
            set("rps_cpus", if rps { 3 } else { 0 });
            set("rps_flow_cnt", if rfs { 4096 } else { 0 });
            _table = rfs.then(|| FlowTable::set(32_768));
            None
        }
    };
    let server = Memcached::start(&a);
    let result = load(&b, &server);
    drop(server);
    if let Some(live) = live {
        let outcome = live.stop();
        assert_eq!(outcome.total().drops.total(), 0, "{:?}", outcome.total());
    }
    result
}

fn steering() {
    let _alone = alone();
    let mut all: BTreeMap<&str, Vec<(Share, f64)>> = BTreeMap::new();
    let load_before = fs::read_to_string("/proc/loadavg").unwrap();
    for _ in 0..ROUNDS {
        for (name, steering) in ALL {
            let (share, rate) = measure(steering);
            flowyard_testkit::note!("  {name}: {:.4} {rate:.0}/s", share.share());
            all.entry(name).or_default().push((share, rate));
        }
    }
    let mut table = Table::new("Packets that reach the processor of the serving thread")
        .column(Column::text("steered by"))
        .column(Column::number("share").unit("median"))
        .column(Column::number("least"))
        .column(Column::number("most"))
        .column(Column::number("requests").unit("1/s"));
    for (name, _) in ALL {
        let mut shares: Vec<f64> = all[name].iter().map(|run| run.0.share()).collect();
        let mut rates: Vec<f64> = all[name].iter().map(|run| run.1).collect();
        shares.sort_by(f64::total_cmp);
        rates.sort_by(f64::total_cmp);
        let percent = |share: f64| Cell::new(format!("{:.1} %", share * 100.0));
        let (first, last) = (shares[0], shares[shares.len() - 1]);
        let middle = shares.len() / 2;
        table.push([
            Cell::new(name),
            percent(shares[middle]),
            percent(first),
            percent(last),
            Cell::new(format!("{:.0}", rates[middle])),
        ]);
    }
    let load_after = fs::read_to_string("/proc/loadavg").unwrap();
    let table = table.note(format!(
        "{ROUNDS} rounds, rotated; load average {} before, {} after",
        load_before.trim(),
        load_after.trim()
    ));
    flowyard_testkit::note!("{}", table.to_text(&Style::plain()));
}

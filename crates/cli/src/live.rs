//! Measurements with real sockets, which need root: two hosts in network namespaces, memcached, pinned
//! threads.
//!
//! ```text
//!  server's namespace   memcached, or our own sockets ── [vb] ════ [va] ── clients   clients' namespace
//! ```
//!
//! [`sockets`] and [`threads`] time single operations. [`memcached`] measures the request rate that the
//! host model predicts from these times. The namespaces have no names; each ends with the process that
//! holds it, which ends with this one. The machine's own interfaces are not used. One of its settings is
//! changed ([`FlowTable`]) and restored.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use rustix::fd::AsFd;
use rustix::thread::{CpuSet, LinkNameSpaceType};

pub(crate) mod memcached;
pub(crate) mod sockets;
pub(crate) mod threads;

pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);

/// Why these measurements are not possible here; `None` if they are.
pub(crate) fn obstacle() -> Option<&'static str> {
    let has = |program: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
    };
    if !rustix::process::geteuid().is_root() {
        return Some("root is needed, for network namespaces and real-time threads");
    }
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return Some("two CPUs are needed");
    }
    let programs = ["ip", "unshare", "nsenter", "chrt", "mount"];
    if programs.into_iter().any(|program| !has(program)) {
        return Some(
            "the programs ip, unshare, nsenter, mount and chrt are needed (packages iproute2, util-linux)",
        );
    }
    (!has("memcached")).then_some("the program memcached is needed")
}

/// A network namespace, which ends when this is dropped.
pub(crate) struct Net {
    holder: Child,
    file: File,
}

impl Net {
    /// Makes a namespace and sets its loopback up.
    pub(crate) fn new() -> anyhow::Result<Self> {
        // `cat` holds the namespace, and ends when our end of its standard input is closed.
        let mut holder = Command::new("unshare")
            .args(["-n", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .context("unshare")?;
        let own = fs::read_link("/proc/self/ns/net")?;
        let path = format!("/proc/{}/ns/net", holder.id());
        for _ in 0..500 {
            if fs::read_link(&path).is_ok_and(|its| its != own) {
                let net = Self { holder, file: File::open(&path)? };
                net.sh("ip link set lo up")?;
                return Ok(net);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _gone = (holder.kill(), holder.wait());
        anyhow::bail!("cannot create a network namespace")
    }

    /// Runs a shell command in the namespace.
    pub(crate) fn sh(&self, line: &str) -> anyhow::Result<()> {
        let net = format!("--net=/proc/{}/ns/net", self.holder.id());
        let done = Command::new("nsenter").args([&net, "sh", "-c", line]).output()?;
        let error = String::from_utf8_lossy(&done.stderr).trim().to_owned();
        anyhow::ensure!(done.status.success(), "{line}: {error}");
        Ok(())
    }

    /// Runs `what` on a thread in the namespace; sockets and processes that it makes are in it too.
    pub(crate) fn within<T: Send>(
        &self,
        what: impl FnOnce() -> anyhow::Result<T> + Send,
    ) -> anyhow::Result<T> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let kind = Some(LinkNameSpaceType::Network);
                rustix::thread::move_into_link_name_space(self.file.as_fd(), kind)?;
                what()
            });
            thread.join().map_err(|_| anyhow::anyhow!("a measuring thread panicked"))?
        })
    }

    /// Sets RPS and RFS for an interface's receive queue: the CPUs, as a bit mask, and the number of RFS
    /// entries.
    pub(crate) fn steer(&self, interface: &str, cpus: u32, flows: u32) -> anyhow::Result<()> {
        let queue = format!("/sys/class/net/{interface}/queues/rx-0");
        self.sh(&format!(
            "unshare -m sh -c 'mount -t sysfs none /sys && \
             echo {cpus:x} > {queue}/rps_cpus && echo {flows} > {queue}/rps_flow_cnt'"
        ))
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let _gone = (self.holder.kill(), self.holder.wait());
    }
}

/// The server's namespace and the clients', connected by a veth.
pub(crate) struct Hosts {
    pub(crate) server: Net,
    pub(crate) clients: Net,
}

impl Hosts {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let (server, clients) = (Net::new()?, Net::new()?);
        let peer = clients.holder.id();
        server.sh(&format!(
            "ip link add vb type veth peer name va netns {peer} && \
             ip addr add {SERVER}/24 dev vb && ip link set vb up"
        ))?;
        clients.sh("ip addr add 10.9.0.2/24 dev va && ip link set va up")?;
        Ok(Self { server, clients })
    }

    /// Opens `count` connections from the clients to `port` of the server.
    pub(crate) fn connect(&self, port: u16, count: usize) -> anyhow::Result<Vec<TcpStream>> {
        self.clients.within(|| {
            let to = SocketAddr::from((SERVER, port));
            let one = |_| {
                // A server may have started its threads but not listen yet.
                let connect = || TcpStream::connect_timeout(&to, Duration::from_secs(5));
                let mut stream = connect();
                for _ in 0..200 {
                    if stream.is_ok() {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(10));
                    stream = connect();
                }
                let stream = stream?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(Duration::from_secs(5)))?;
                Ok(stream)
            };
            (0..count).map(one).collect()
        })
    }

    /// Opens `count` connections; returns both ends of each: the client's, the server's.
    pub(crate) fn pairs(&self, count: usize) -> anyhow::Result<Vec<[TcpStream; 2]>> {
        let listener = self.server.within(|| Ok(TcpListener::bind((SERVER, 0))?))?;
        let port = listener.local_addr()?.port();
        let mut pairs = Vec::with_capacity(count);
        for _ in 0..count {
            let client = self.connect(port, 1)?.remove(0);
            let server = listener.accept()?.0;
            server.set_nodelay(true)?;
            pairs.push([client, server]);
        }
        Ok(pairs)
    }
}

/// Runs `what` on a thread with real-time priority (SCHED_RR), which threads that it starts inherit; with
/// ordinary priority where that is not permitted. Also returns the share of all CPU time that other
/// programs used meanwhile.
pub(crate) fn urgent<T: Send>(what: impl FnOnce() -> T + Send) -> anyhow::Result<(T, f64)> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if rustix::process::geteuid().is_root() {
                let number = rustix::thread::gettid().as_raw_nonzero().to_string();
                // If this fails, the measurement runs with ordinary priority.
                let _told = Command::new("chrt").args(["-r", "-p", "1", &number]).output();
            }
            let others = Others::from(None);
            let made = what();
            (made, others.share())
        });
        let made = thread.join();
        // Let other programs run for a while.
        std::thread::sleep(Duration::from_millis(30));
        made.map_err(|_| anyhow::anyhow!("a measuring thread panicked"))
    })
}

/// Pins the calling thread to `cpu` and gives it real-time priority without time slices (SCHED_FIFO). No
/// ordinary thread runs on that CPU until it blocks, so it must run for a short time only.
pub(crate) fn hurry(cpu: usize) -> anyhow::Result<()> {
    hurry_thread(rustix::thread::gettid(), cpu)
}

/// As [`hurry`], for another thread.
pub(crate) fn hurry_thread(thread: rustix::process::Pid, cpu: usize) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(Some(thread), &set)
        .with_context(|| format!("cannot pin a thread to CPU {cpu}"))?;
    let number = thread.as_raw_nonzero().to_string();
    let done = Command::new("chrt").args(["-f", "-p", "1", &number]).output().context("chrt")?;
    let error = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    anyhow::ensure!(done.status.success(), "cannot make a thread real-time: {error}");
    Ok(())
}

/// The size of the kernel's global RFS flow table, which all namespaces share. The former size is restored
/// when this is dropped.
pub(crate) struct FlowTable(String);

const FLOW_TABLE: &str = "/proc/sys/net/core/rps_sock_flow_entries";

impl FlowTable {
    pub(crate) fn set(entries: u32) -> anyhow::Result<Self> {
        let was = fs::read_to_string(FLOW_TABLE).context(FLOW_TABLE)?;
        fs::write(FLOW_TABLE, entries.to_string()).context(FLOW_TABLE)?;
        Ok(Self(was))
    }
}

impl Drop for FlowTable {
    fn drop(&mut self) {
        let _as_it_was = fs::write(FLOW_TABLE, self.0.trim());
    }
}

/// Measures the share of all CPU time that other programs use during a measurement, by the kernel's ticks.
pub(crate) struct Others {
    server: Option<u32>,
    from: [u64; 2],
}

impl Others {
    /// Starts counting. The process `server` belongs to the measurement, as this process does.
    pub(crate) fn from(server: Option<u32>) -> Self {
        Self { server, from: Self::ticks(server) }
    }

    /// Ticks that other programs used, and ticks of all CPUs.
    fn ticks(server: Option<u32>) -> [u64; 2] {
        let file = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let all = file("/proc/stat");
        let first = all.lines().next().unwrap_or_default().split_whitespace().skip(1);
        let all: Vec<u64> = first.filter_map(|ticks| ticks.parse().ok()).take(8).collect();
        let work: u64 = all.iter().take(3).sum(); // user, nice, system
        let ours = |path: &str| -> u64 {
            let text = file(path);
            // The name in parentheses may contain anything. Words 12 and 13 after it are the user and
            // system time.
            let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
            let times = rest.split_whitespace().skip(11).take(2);
            times.filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
        };
        let ours = ours("/proc/self/stat")
            + server.map_or(0, |process| ours(&format!("/proc/{process}/stat")));
        [work.saturating_sub(ours), all.iter().sum()]
    }

    /// The share since the start.
    pub(crate) fn share(&self) -> f64 {
        let to = Self::ticks(self.server);
        let [work, all] = [0, 1].map(|n| to[n].saturating_sub(self.from[n]) as f64);
        work / all.max(1.0)
    }
}

/// Repeats a measurement until `wanted` rounds were quiet, but no more than three times as often.
pub(crate) struct Rounds {
    wanted: usize,
    all: usize,
    quiet: usize,
    most: f64,
}

/// A round is quiet if other programs used no more than this share of all CPU time.
const QUIET: f64 = 0.05;

impl Rounds {
    pub(crate) const fn new(wanted: usize) -> Self {
        Self { wanted, all: 0, quiet: 0, most: 0.0 }
    }

    /// Whether another round is needed.
    pub(crate) const fn go_on(&self) -> bool {
        self.quiet < self.wanted && self.all < 3 * self.wanted
    }

    /// Counts a round in which other programs used this share of all CPU time.
    pub(crate) fn add(&mut self, others: f64) {
        self.all += 1;
        self.quiet += usize::from(others <= QUIET);
        self.most = self.most.max(others);
    }

    /// A note for the report.
    pub(crate) fn note(&self) -> String {
        let (all, quiet, most) = (self.all, self.quiet, 100.0 * self.most);
        let note = format!(
            "{all} rounds; in {quiet} of them other programs used no more than 5 % of the CPU time, and at most {most:.0} % in any."
        );
        let disturbed = quiet == 0 && all > 0;
        if disturbed {
            note + " The measured rates are too low, because other programs ran in every round."
        } else {
            note
        }
    }
}

/// The median; 0 of no values.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

//! What root can measure with real sockets: two hosts in namespaces, memcached, pinned threads.
//!
//! ```text
//!  server's namespace   memcached, or ends of our own ── [vb] ════ [va] ── clients   clients' namespace
//! ```
//!
//! [`sockets`] and [`threads`] time one operation at a time with ends of our own; [`memcached`] is what is
//! to be predicted from them. Namespaces have no name and end with the process that holds them, which
//! ends with us. The machine's own interfaces are not touched; of its settings one is, and is put back.

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

/// The server's address.
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);

/// Why nothing live can be measured here; `None` if it can.
pub(crate) fn obstacle() -> Option<&'static str> {
    let has = |program: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
    };
    if !rustix::process::geteuid().is_root() {
        return Some("it needs root, for network namespaces and real-time threads");
    }
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return Some("it needs two processors");
    }
    let programs = ["ip", "unshare", "nsenter", "chrt", "mount"];
    if programs.into_iter().any(|program| !has(program)) {
        return Some(
            "it needs the programs ip, unshare, nsenter, mount and chrt (iproute2, util-linux)",
        );
    }
    (!has("memcached")).then_some("it needs memcached")
}

/// A network namespace, until dropped.
pub(crate) struct Net {
    holder: Child,
    file: File,
}

impl Net {
    /// A new one, with its loopback up.
    pub(crate) fn new() -> anyhow::Result<Self> {
        // It reads until we are gone.
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
        anyhow::bail!("no network namespace can be made")
    }

    /// Runs a line of shell here.
    pub(crate) fn sh(&self, line: &str) -> anyhow::Result<()> {
        let net = format!("--net=/proc/{}/ns/net", self.holder.id());
        let done = Command::new("nsenter").args([&net, "sh", "-c", line]).output()?;
        let told = String::from_utf8_lossy(&done.stderr).trim().to_owned();
        anyhow::ensure!(done.status.success(), "{line}: {told}");
        Ok(())
    }

    /// Runs `what` on a thread that is here; sockets and processes made by it are here too.
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

    /// Which processors, as bits, take what `interface` receives (RPS), and entries for RFS.
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

/// The server's host and the clients', with a cable between them.
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

    /// A connection to `port` of the server's host.
    pub(crate) fn connect(&self, port: u16, count: usize) -> anyhow::Result<Vec<TcpStream>> {
        self.clients.within(|| {
            let to = SocketAddr::from((SERVER, port));
            let one = |_| {
                // A server's threads may be there before it listens.
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

    /// Connections, both ends in our hands: client's, server's.
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

/// Runs `what` on a thread that goes, as the threads that it starts do, before all ordinary work, if
/// that is allowed: they take turns among themselves (SCHED_RR). And what others had meanwhile.
pub(crate) fn urgent<T: Send>(what: impl FnOnce() -> T + Send) -> anyhow::Result<(T, f64)> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if rustix::process::geteuid().is_root() {
                let number = rustix::thread::gettid().as_raw_nonzero().to_string();
                // Where it cannot be had, it is measured without.
                let _told = Command::new("chrt").args(["-r", "-p", "1", &number]).output();
            }
            let others = Others::from(None);
            let made = what();
            (made, others.share())
        });
        let made = thread.join();
        // The others want the machine too.
        std::thread::sleep(Duration::from_millis(30));
        made.map_err(|_| anyhow::anyhow!("a measuring thread panicked"))
    })
}

/// The calling thread is on `cpu` from here on, before all ordinary work, and not interrupted by its
/// equals: a run of it is to be short.
pub(crate) fn hurry(cpu: usize) -> anyhow::Result<()> {
    hurry_thread(rustix::thread::gettid(), cpu)
}

/// The same of another thread.
pub(crate) fn hurry_thread(thread: rustix::process::Pid, cpu: usize) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(Some(thread), &set)
        .with_context(|| format!("cannot pin a thread to processor {cpu}"))?;
    let number = thread.as_raw_nonzero().to_string();
    let done = Command::new("chrt").args(["-f", "-p", "1", &number]).output().context("chrt")?;
    let told = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    anyhow::ensure!(done.status.success(), "no real-time thread: {told}");
    Ok(())
}

/// The kernel's flow table for RFS is the machine's, not a namespace's: as it was, when dropped.
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

/// The share of the processors that others have while something is measured, by the kernel's ticks.
pub(crate) struct Others {
    server: Option<u32>,
    from: [u64; 2],
}

impl Others {
    /// From now on; `server` is a process of ours too.
    pub(crate) fn from(server: Option<u32>) -> Self {
        Self { server, from: Self::ticks(server) }
    }

    /// Ticks of others' work, and of all processors.
    fn ticks(server: Option<u32>) -> [u64; 2] {
        let file = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let all = file("/proc/stat");
        let first = all.lines().next().unwrap_or_default().split_whitespace().skip(1);
        let all: Vec<u64> = first.filter_map(|ticks| ticks.parse().ok()).take(8).collect();
        let work: u64 = all.iter().take(3).sum(); // user, nice, system
        let ours = |path: &str| -> u64 {
            let text = file(path);
            // After the name, which may hold anything: the 12th and 13th words are user and system.
            let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
            let times = rest.split_whitespace().skip(11).take(2);
            times.filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
        };
        let ours = ours("/proc/self/stat")
            + server.map_or(0, |process| ours(&format!("/proc/{process}/stat")));
        [work.saturating_sub(ours), all.iter().sum()]
    }

    /// Until now.
    pub(crate) fn share(&self) -> f64 {
        let to = Self::ticks(self.server);
        let [work, all] = [0, 1].map(|n| to[n].saturating_sub(self.from[n]) as f64);
        work / all.max(1.0)
    }
}

/// What is measured again and again until so many rounds were quiet, or it has been three times as often.
pub(crate) struct Rounds {
    wanted: usize,
    all: usize,
    quiet: usize,
    most: f64,
}

/// Others' share of the processors up to which a round counts as quiet.
const QUIET: f64 = 0.05;

impl Rounds {
    pub(crate) const fn new(wanted: usize) -> Self {
        Self { wanted, all: 0, quiet: 0, most: 0.0 }
    }

    /// Whether another round is to be had.
    pub(crate) const fn go_on(&self) -> bool {
        self.quiet < self.wanted && self.all < 3 * self.wanted
    }

    /// One more, of which others had so much.
    pub(crate) fn add(&mut self, others: f64) {
        self.all += 1;
        self.quiet += usize::from(others <= QUIET);
        self.most = self.most.max(others);
    }

    /// What to tell the reader.
    pub(crate) fn note(&self) -> String {
        let (all, quiet, most) = (self.all, self.quiet, 100.0 * self.most);
        let told = format!(
            "{all} rounds, in {quiet} of which other programs had up to 5 % of the processors; the most was {most:.0} %."
        );
        let disturbed = quiet == 0 && all > 0;
        if disturbed { told + " The measured side is what they left." } else { told }
    }
}

/// The middle one; 0 of none.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

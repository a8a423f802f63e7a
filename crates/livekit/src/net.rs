//! Network namespaces that end with the test, and links between them.
//!
//! A namespace has no name. It exists while a file descriptor of it is open, so nothing is left, however the
//! test ends.

use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::sys;

/// A network namespace, by an open file descriptor.
#[derive(Debug)]
pub struct Net(pub File);

impl Net {
    /// Makes a namespace with only its loopback up, and IPv6 disabled on new interfaces.
    ///
    /// # Errors
    ///
    /// When the kernel or missing privileges do not permit it.
    pub fn new() -> std::io::Result<Self> {
        let made = thread::spawn(|| {
            sys::unshare()?;
            File::open("/proc/thread-self/ns/net")
        });
        let net = Self(made.join().unwrap()?);
        // Without IPv6, hosts send no packets of their own.
        net.sh("echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6");
        net.sh("ip link set lo up");
        Ok(net)
    }

    /// Its path for `ip ... netns`.
    #[must_use]
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// The number of wrong checksums and headers that the host has counted.
    ///
    /// # Panics
    /// When `nstat` fails.
    #[must_use]
    pub fn checksum_errors(&self) -> u64 {
        let seen = self.sh(
            "nstat -az TcpInCsumErrors UdpInCsumErrors Icmp6InCsumErrors Ip6InHdrErrors IpInHdrErrors",
        );
        let count = |line: &str| line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok());
        seen.lines().filter_map(count).sum()
    }

    /// Runs a shell command in the namespace.
    pub fn run(&self, line: &str) -> Output {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        sys::within(&mut command, &self.0);
        command.output().unwrap()
    }

    /// Runs a shell command in the namespace, which must succeed; returns its standard output.
    pub fn sh(&self, line: &str) -> String {
        let output = self.run(line);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "{line}: {}{}",
            text(&output.stdout),
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    /// Runs `what` on a thread in the namespace.
    pub fn spawn<T: Send + 'static>(
        &self,
        what: impl FnOnce() -> T + Send + 'static,
    ) -> thread::JoinHandle<T> {
        let net = self.0.try_clone().unwrap();
        thread::spawn(move || {
            sys::enter(&net).unwrap();
            what()
        })
    }

    /// Runs `what` on a thread in the namespace, and waits for it.
    pub fn within<T: Send + 'static>(&self, what: impl FnOnce() -> T + Send + 'static) -> T {
        self.spawn(what).join().unwrap()
    }

    /// Makes a veth from `here` to `there` in `other`, with this number of queues. With several queues it
    /// keeps the order of each flow, whatever CPU sends: GRO and no TSO make a veth receive by queue (NAPI)
    /// and not from the sending CPU's backlog.
    pub fn cable(&self, here: &str, other: &Self, there: &str, queues: usize) {
        self.uneven(here, queues, other, there, queues);
        if queues > 1 {
            self.sh(&format!("ethtool -K {here} gro on tso off"));
            other.sh(&format!("ethtool -K {there} gro on tso off"));
        }
    }

    /// Makes a veth whose ends have different numbers of queues.
    pub fn uneven(&self, here: &str, n: usize, other: &Self, there: &str, m: usize) {
        let many = |queues: usize| format!("numrxqueues {queues} numtxqueues {queues}");
        let (path, here_many, there_many) = (other.path(), many(n), many(m));
        self.sh(&format!(
            "ip link add {here} {here_many} type veth peer name {there} {there_many} netns {path}; \
             ip link set {here} up"
        ));
        other.sh(&format!("ip link set {there} up"));
    }

    /// Two hosts, 10.9.0.1 with interface va and 10.9.0.2 with vb, for tests that steer the frames of vb.
    ///
    /// # Errors
    ///
    /// Those of [`Net::new`].
    pub fn steered_pair() -> std::io::Result<(Self, Self)> {
        let (a, b) = (Self::new()?, Self::new()?);
        a.cable("va", &b, "vb", 1);
        a.address("va", 1);
        b.address("vb", 2);
        // Checksums that are left to an adapter would be missing after a redirect.
        a.sh("ethtool -K va tx off");
        // Datagrams that wait for the answer of ARP are overtaken by those that are sent when it has come.
        let far = b.within(|| UdpSocket::bind("10.9.0.2:9"))?;
        far.set_read_timeout(Some(Duration::from_secs(20)))?;
        a.within(|| UdpSocket::bind("10.9.0.1:9")?.send_to(b"first", "10.9.0.2:9"))?;
        far.recv(&mut [0; 8])?;
        Ok((a, b))
    }

    /// Gives interface `name` the addresses 10.9.0.`n` and fd09::`n`.
    pub fn address(&self, name: &str, n: u8) {
        self.sh(&format!(
            "echo 0 > /proc/sys/net/ipv6/conf/{name}/disable_ipv6; \
             ip addr add 10.9.0.{n}/24 dev {name}; ip addr add fd09::{n}/64 dev {name} nodad"
        ));
    }
}

/// The command that sends `count` requests at once and waits for all answers; its arguments end with the address.
///
/// After its last request, `ping` waits for an interval or for twice the longest round trip, whichever is longer, and
/// for `-W` only if nothing was answered. With a short interval it misses the last answers of a busy machine, so the
/// interval is five seconds here. It ends at once when every request is answered.
#[must_use]
pub fn pings(count: u32) -> String {
    format!("ping -n -c {count} -l {count} -i 5 -W 5")
}

/// A lock for tests that must not run at the same time.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

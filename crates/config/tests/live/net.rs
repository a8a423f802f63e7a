//! Namespaces that end with the test, and cables between them.
//!
//! ```text
//!  af_packet, af_xdp   a [va] ──── [vb] m [vc] ──── [vd] b    the yard is in m, between vb and vc
//!  tap                 a [tap0 ── yard ── va] ───── [vd] b    the yard is the adapter of a
//! ```
//!
//! A namespace has no name: it is there while a file descriptor of it is open, so nothing is left
//! behind however the test ends.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::sys;

/// A network namespace.
pub(crate) struct Net(pub(crate) File);

impl Net {
    pub(crate) fn new() -> std::io::Result<Self> {
        let made = thread::spawn(|| {
            sys::unshare()?;
            File::open("/proc/thread-self/ns/net")
        });
        let net = Self(made.join().unwrap()?);
        // Nobody is to speak but the test.
        net.sh("echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6");
        net.sh("ip link set lo up");
        Ok(net)
    }

    /// For `ip ... netns`.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// Runs a line of shell here.
    pub(crate) fn run(&self, line: &str) -> Output {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        sys::within(&mut command, &self.0);
        command.output().unwrap()
    }

    /// Runs a line of shell here that has to succeed.
    pub(crate) fn sh(&self, line: &str) -> String {
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

    /// Runs `what` on a thread that is here.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        what: impl FnOnce() -> T + Send + 'static,
    ) -> thread::JoinHandle<T> {
        let net = self.0.try_clone().unwrap();
        thread::spawn(move || {
            sys::enter(&net).unwrap();
            what()
        })
    }

    /// As [`Net::spawn`], and waits for it.
    pub(crate) fn within<T: Send + 'static>(&self, what: impl FnOnce() -> T + Send + 'static) -> T {
        self.spawn(what).join().unwrap()
    }

    /// A cable from `here` to `there` in `other`, with as many queues. One with several keeps the
    /// order of each flow, whatever processor its frames are sent on: frames are taken off by queue
    /// (NAPI) and not from the sending processor's backlog, for which veth wants GRO and no TSO.
    pub(crate) fn cable(&self, here: &str, other: &Self, there: &str, queues: usize) {
        self.uneven(here, queues, other, there, queues);
        if queues > 1 {
            self.sh(&format!("ethtool -K {here} gro on tso off"));
            other.sh(&format!("ethtool -K {there} gro on tso off"));
        }
    }

    /// A cable whose ends have different numbers of queues.
    pub(crate) fn uneven(&self, here: &str, n: usize, other: &Self, there: &str, m: usize) {
        let many = |queues: usize| format!("numrxqueues {queues} numtxqueues {queues}");
        let (path, here_many, there_many) = (other.path(), many(n), many(m));
        self.sh(&format!(
            "ip link add {here} {here_many} type veth peer name {there} {there_many} netns {path}; \
             ip link set {here} up"
        ));
        other.sh(&format!("ip link set {there} up"));
    }

    /// Gives `name` addresses of both families, with `n` at their ends.
    pub(crate) fn address(&self, name: &str, n: u8) {
        self.sh(&format!(
            "echo 0 > /proc/sys/net/ipv6/conf/{name}/disable_ipv6; \
             ip addr add 10.9.0.{n}/24 dev {name}; ip addr add fd09::{n}/64 dev {name} nodad"
        ));
    }
}

/// Tests that need the machine for themselves, one at a time.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether namespaces can be made here, and every program is there that the tests call.
pub(crate) fn can() -> Result<(), String> {
    if !sys::is_root() {
        return Err("root, for network namespaces".into());
    }
    let missing = ["ip", "ethtool"].into_iter().find(|program| {
        let found = Command::new(program).arg("--version").output();
        found.is_err()
    });
    match (missing, Net::new()) {
        (Some(program), _) => Err(format!("the program {program}")),
        (None, Err(error)) => Err(format!("network namespaces ({error})")),
        (None, Ok(_)) => Ok(()),
    }
}

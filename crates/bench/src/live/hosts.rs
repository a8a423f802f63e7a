//! Two hosts in network namespaces with a veth between them, and their RPS and RFS settings.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use rustix::fd::AsFd;
use rustix::thread::LinkNameSpaceType;

/// The server's address.
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);

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

    /// Connects the namespace with `other` by a veth; both ends are up.
    fn veth(&self, here: &str, other: &Self, there: &str) -> anyhow::Result<()> {
        let peer = other.holder.id();
        self.sh(&format!(
            "ip link add {here} type veth peer name {there} netns {peer} && ip link set {here} up"
        ))?;
        other.sh(&format!("ip link set {there} up"))
    }

    /// A command that runs in the namespace, and is killed when the thread that starts it ends.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.holder.id()));
        command.args(["setpriv", "--pdeathsig", "KILL", "--"]).arg(program);
        command
    }

    /// A file below `/proc/net`, as the namespace sees it.
    pub(crate) fn proc(&self, file: &str) -> anyhow::Result<String> {
        let path = format!("/proc/{}/net/{file}", self.holder.id());
        fs::read_to_string(&path).context(path)
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
        let hosts = Self::unaddressed()?;
        hosts.address("vb")?;
        Ok(hosts)
    }

    /// As [`Hosts::new`], but no interface of the server has an address: [`Hosts::address`] gives it to one.
    pub(crate) fn unaddressed() -> anyhow::Result<Self> {
        let (server, clients) = (Net::new()?, Net::new()?);
        server.veth("vb", &clients, "va")?;
        clients.sh("ip addr add 10.9.0.2/24 dev va")?;
        Ok(Self { server, clients })
    }

    /// As [`Hosts::new`], but the hosts reach each other only through a third namespace, which is returned too, with
    /// the interfaces `vc` to the server and `vd` to the clients.
    pub(crate) fn apart() -> anyhow::Result<(Self, Net)> {
        let (server, between, clients) = (Net::new()?, Net::new()?, Net::new()?);
        server.veth("vb", &between, "vc")?;
        clients.veth("va", &between, "vd")?;
        clients.sh("ip addr add 10.9.0.2/24 dev va")?;
        let hosts = Self { server, clients };
        hosts.address("vb")?;
        Ok((hosts, between))
    }

    /// Gives the server's address to its interface `name`, and sets it up.
    pub(crate) fn address(&self, name: &str) -> anyhow::Result<()> {
        self.server.sh(&format!("ip addr add {SERVER}/24 dev {name} && ip link set {name} up"))
    }

    /// Opens `count` connections from the clients to `port` of the server.
    pub(crate) fn connect(&self, port: u16, count: usize) -> anyhow::Result<Vec<TcpStream>> {
        self.connect_from(&self.clients, port, count)
    }

    /// Opens `count` connections from a host to `port` of the server.
    pub(crate) fn connect_from(
        &self,
        net: &Net,
        port: u16,
        count: usize,
    ) -> anyhow::Result<Vec<TcpStream>> {
        net.within(|| {
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

//! Two hosts with an instance of flowyard between them, for each kind of port.
//!
//! ```text
//!  af_packet, af_xdp   a [va] ──────── [vb] m [vc] ──────── [vd] b    the instance is in m, between vb and vc
//!  tap                 a [tap0 ── instance ── va] ───────── [vd] b    the instance is the adapter of a
//! ```

use std::net::IpAddr;

use crate::net::Net;

/// Kind of the instance's ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// AF_PACKET.
    Packet,
    /// AF_XDP.
    Xdp,
    /// A tap on the first host's side, AF_PACKET on the other.
    Tap,
}

/// Description of a line.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Kind of ports.
    pub kind: Kind,
    /// Number of cores.
    pub cores: usize,
    /// Order of the queues.
    pub order: &'static str,
    /// MTU of all links.
    pub mtu: u32,
    /// More keys of `[yard]`.
    pub yard: &'static str,
    /// More keys of each live port.
    pub port: &'static str,
}

impl Plan {
    /// One core, a direct queue, an MTU of 1500.
    #[must_use]
    pub const fn of(kind: Kind) -> Self {
        // For frames that arrive while the instance does not run.
        let port = "ring_frames = 8192";
        Self { kind, cores: 1, order: "direct", mtu: 1500, yard: "", port }
    }

    /// The configuration in TOML.
    #[must_use]
    pub fn text(&self) -> String {
        let Self { kind, cores, order, mtu, yard, port } = *self;
        let all: Vec<usize> = (0..cores).collect();
        let live = |name: &str, kind: &str, interface: &str, more: &str| {
            format!(
                "[[port]]\nname = \"{name}\"\nkind = \"{kind}\"\ninterface = \"{interface}\"\n\
                 cores = {all:?}\n{more}\n{}\n",
                if kind == "tap" { "" } else { port }
            )
        };
        let (west, east) = match kind {
            Kind::Packet => (
                live("west", "af_packet", "vb", "fanout = \"hash\""),
                live("east", "af_packet", "vc", "fanout = \"queue\""),
            ),
            Kind::Xdp => (
                live("west", "af_xdp", "vb", "match = [\"all\"]"),
                live("east", "af_xdp", "vc", "match = [\"all\"]"),
            ),
            Kind::Tap => (
                live(
                    "west",
                    "tap",
                    "tap0",
                    &format!("mtu = {mtu}\ninterface_mac = \"02:00:00:00:00:aa\""),
                ),
                live("east", "af_packet", "va", ""),
            ),
        };
        let queue = |name: &str, consumers: &[usize]| {
            format!(
                "[[queue]]\nname = \"{name}\"\norder = \"{order}\"\nconsumers = {consumers:?}\n"
            )
        };
        let queues: String = match order {
            "direct" => all.iter().map(|core| queue(&format!("q{core}"), &[*core])).collect(),
            _ => queue("q", &all),
        };
        let forward = "[work]\nkind = \"forward\"\nports = { west = \"east\", east = \"west\" }\n";
        format!("[yard]\ncores = {cores}\n{yard}\n{west}{east}{queues}{forward}")
    }
}

/// Two hosts and the links between them.
#[derive(Debug)]
pub struct Line {
    /// Its description.
    pub plan: Plan,
    /// The first host, 10.9.0.1 and fd09::1.
    pub a: Net,
    /// The second host, 10.9.0.2 and fd09::2.
    pub b: Net,
    /// The instance's namespace, if it is not that of the first host.
    m: Option<Net>,
}

impl Line {
    /// Makes the hosts and links; the instance is started by the caller.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        let [a, b] = [(); 2].map(|()| Net::new().unwrap());
        let mtu = |net: &Net, name: &str| net.sh(&format!("ip link set {name} mtu {}", plan.mtu));
        let m = if plan.kind == Kind::Tap {
            a.cable("va", &b, "vd", plan.cores);
            mtu(&a, "va");
            None
        } else {
            let m = Net::new().unwrap();
            a.cable("va", &m, "vb", plan.cores);
            m.cable("vc", &b, "vd", plan.cores);
            a.address("va", 1);
            mtu(&a, "va");
            mtu(&m, "vb");
            mtu(&m, "vc");
            Some(m)
        };
        b.address("vd", 2);
        mtu(&b, "vd");
        if plan.kind == Kind::Xdp && !plan.port.contains("complete_checksums") {
            // XDP does not see that a checksum is incomplete, so the hosts must complete them.
            a.sh("ethtool -K va tx off > /dev/null");
            b.sh("ethtool -K vd tx off > /dev/null");
        }
        Self { plan, a, b, m }
    }

    /// The instance's namespace.
    #[must_use]
    pub fn yard(&self) -> &Net {
        self.m.as_ref().unwrap_or(&self.a)
    }

    /// The first host's interface.
    #[must_use]
    pub const fn near(&self) -> &'static str {
        if self.m.is_some() { "va" } else { "tap0" }
    }

    /// The instance's interface towards the first host.
    #[must_use]
    pub const fn west(&self) -> &'static str {
        if self.m.is_some() { "vb" } else { "tap0" }
    }

    /// Sets the tap up, if the line has one. The instance must have opened it.
    pub fn set_up_tap(&self) {
        if self.m.is_none() {
            // For frames that the host sends while the instance does not run.
            self.a.sh("ip link set tap0 txqueuelen 20000");
            self.a.address("tap0", 1);
        }
    }

    /// Adds the second host to the first one's neighbour tables, or removes it. A host can reorder frames
    /// that wait for a neighbour's MAC address.
    pub fn acquaint(&self, known: bool) {
        let near = self.near();
        let mac = self.b.sh("ip -o link show vd | sed 's/.*ether \\([^ ]*\\).*/\\1/'");
        let far =
            if known { format!("lladdr {} nud permanent", mac.trim()) } else { String::new() };
        let verb = if known { "replace" } else { "del" };
        for to in ips() {
            self.a.sh(&format!("ip neigh {verb} {to} {far} dev {near}"));
        }
    }

    /// Sends four pings from the first host, which must be answered.
    pub fn ping(&self, to: IpAddr, more: &str) {
        self.a.sh(&format!("ping -c 4 -i 0.02 -W 3 -q {more} {to}"));
    }
}

/// The addresses of the second host, IPv4 first.
#[must_use]
pub fn ips() -> [IpAddr; 2] {
    ["10.9.0.2".parse().unwrap(), "fd09::2".parse().unwrap()]
}

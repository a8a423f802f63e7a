//! A line from host to host with a yard on it, of each kind of port.

use std::net::IpAddr;

use crate::net::Net;
use crate::yard::Live;

/// What the yard's ports are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Packet,
    Xdp,
    /// On the side of the first host; AF_PACKET on the other.
    Tap,
}

/// How the line is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    pub(crate) cores: usize,
    /// Of the queues that the cores work on.
    pub(crate) order: &'static str,
    pub(crate) mtu: u32,
    /// More keys of the yard, and of each port.
    pub(crate) yard: &'static str,
    pub(crate) port: &'static str,
}

impl Plan {
    pub(crate) const fn of(kind: Kind) -> Self {
        // Room for what comes while the yard is not scheduled.
        let port = "ring_frames = 8192";
        Self { kind, cores: 1, order: "direct", mtu: 1500, yard: "", port }
    }

    /// The configuration.
    pub(crate) fn text(&self) -> String {
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

/// Two hosts and what is between them.
pub(crate) struct Line {
    pub(crate) plan: Plan,
    pub(crate) a: Net,
    pub(crate) b: Net,
    /// Where the yard is, if not at the first host.
    m: Option<Net>,
}

impl Line {
    pub(crate) fn new(plan: Plan) -> Self {
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
            // What XDP cannot see: the hosts are to complete checksums themselves.
            a.sh("ethtool -K va tx off > /dev/null");
            b.sh("ethtool -K vd tx off > /dev/null");
        }
        Self { plan, a, b, m }
    }

    /// Where the yard is.
    pub(crate) fn yard(&self) -> &Net {
        self.m.as_ref().unwrap_or(&self.a)
    }

    /// The first host's interface.
    pub(crate) const fn near(&self) -> &'static str {
        if self.m.is_some() { "va" } else { "tap0" }
    }

    /// The yard's interface towards the first host.
    pub(crate) const fn west(&self) -> &'static str {
        if self.m.is_some() { "vb" } else { "tap0" }
    }

    /// Builds and starts the yard.
    pub(crate) fn start(&self) -> Live {
        let live = Live::start(self.yard(), &self.plan.text());
        if self.m.is_none() {
            // Room for what comes while the yard is not scheduled.
            self.a.sh("ip link set tap0 txqueuelen 20000");
            self.a.address("tap0", 1);
        }
        live
    }

    /// Tells the first host who the second is, or lets it forget that. What is sent while a neighbour
    /// is asked for can be overtaken, in the host itself, by what is sent when the answer comes.
    pub(crate) fn acquaint(&self, known: bool) {
        let near = self.near();
        let told = self.b.sh("ip -o link show vd | sed 's/.*ether \\([^ ]*\\).*/\\1/'");
        let far =
            if known { format!("lladdr {} nud permanent", told.trim()) } else { String::new() };
        let verb = if known { "replace" } else { "del" };
        for to in ips() {
            self.a.sh(&format!("ip neigh {verb} {to} {far} dev {near}"));
        }
    }

    pub(crate) fn ping(&self, to: IpAddr, more: &str) {
        self.a.sh(&format!("ping -c 4 -i 0.02 -W 3 -q {more} {to}"));
    }
}

/// The second host.
pub(crate) fn ips() -> [IpAddr; 2] {
    ["10.9.0.2".parse().unwrap(), "fd09::2".parse().unwrap()]
}

//! The fleet: the site of the balancers with a network for management beside it.
//!
//! ```text
//!  balancer n [mgmt] ─── [m1 m2 m3]─┐
//!  10.8.0.n                       (mg) bridge, 10.8.0.254: etcdctl and `flowyard fleet`
//!  member k [eth] ────── [k1 k2 k3]─┘
//!  10.8.0.10+k
//! ```
//!
//! The data network is that of [`Site`]; the two have no link in common, so that a balancer can be cut off from either.

use std::time::Duration;

use tempfile::TempDir;

use super::super::balancer::{Balancer, Config, Mode};
use super::super::load::{Done, Load, Requests};
use super::super::modes::answers;
use super::super::routing::{Bird, Fast, beside, on_router, paths, until_paths};
use super::super::servers::{Farm, Kind};
use super::super::site::{Site, vips};
use super::super::store::{Etcd, Keys};
use super::clients::{Broken, Kept};
use super::{WEB, generation, wait_until};
use flowyard_livekit::net::Net;

/// `after_ms` of the announcements: more than health checks take to find a backend down.
pub(crate) const AFTER_MS: u64 = 2500;

const ANNOUNCE: &str = "[balance.announce]\nafter_ms = 2500\nwithdraw_ms = 1000\n";

/// Whether balancers report connections to each other that Maglev alone would break.
pub(crate) fn synchronizes() -> bool {
    std::env::var("FLOWYARD_FLEET_SYNC").as_deref() != Ok("0")
}

/// Health checks, which the kernels of the balancers send.
const CHECK: &str = "[check]\nkind = \"http\"\npath = \"/who\"\ninterval_ms = 500\ntimeout_ms = 5000\nrise = 2\nfall = 3\n";

/// The ports of most clients.
const PORTS: &str = "30000 60999";

pub(crate) const BALANCERS: usize = 3;
pub(crate) const MEMBERS: usize = 3;
const BACKENDS: usize = 4;

/// The network for management, with the members of etcd.
struct Management {
    net: Net,
    members: Vec<Net>,
    folder: TempDir,
}

impl Management {
    fn new(site: &Site) -> Self {
        let net = Net::new().unwrap();
        net.sh("ip link add mg type bridge mcast_snooping 0; ip link set mg up; ip addr add 10.8.0.254/24 dev mg");
        let plug = |host: &Net, name: &str, port: &str, own: usize| {
            host.cable(name, &net, port, 1);
            net.sh(&format!("ip link set {port} master mg"));
            host.sh(&format!("ip addr add 10.8.0.{own}/24 dev {name}"));
        };
        for (n, balancer) in (1..).zip(&site.balancers) {
            plug(balancer, "mgmt", &format!("m{n}"), n);
        }
        let member = |k| {
            let member = Net::new().unwrap();
            plug(&member, "eth", &format!("k{k}"), 10 + k);
            member
        };
        let members = (1..=MEMBERS).map(member).collect();
        Self { net, members, folder: tempfile::tempdir().unwrap() }
    }

    fn start(&self, k: usize) -> Etcd {
        let peer = |k: usize| format!("m{k}=http://10.8.0.1{k}:2380");
        let peers: Vec<_> = (1..=MEMBERS).map(peer).collect();
        let args = [
            format!("--name=m{k}"),
            format!("--listen-client-urls=http://10.8.0.1{k}:2379,http://127.0.0.1:2379"),
            format!("--advertise-client-urls=http://10.8.0.1{k}:2379"),
            format!("--listen-peer-urls=http://10.8.0.1{k}:2380"),
            format!("--initial-advertise-peer-urls=http://10.8.0.1{k}:2380"),
            format!("--initial-cluster={}", peers.join(",")),
        ];
        Etcd::spawn(&self.members[k - 1], &self.folder.path().join(format!("m{k}")), &args)
    }
}

/// What the clients did in a step.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Connections for one request each.
    short: Done,
    /// Requests on kept connections.
    pub(crate) kept: u64,
    pub(crate) broken: Vec<Broken>,
    /// The longest time of a request on a kept connection, in milliseconds.
    longest: u64,
}

impl Outcome {
    /// Checks that no short request failed, and none on a kept connection.
    #[track_caller]
    fn all_well(&self, name: &str) {
        assert!(self.broken.is_empty(), "{name}: {:?}", self.broken);
        self.no_short_one_failed(name);
    }

    #[track_caller]
    pub(crate) fn no_short_one_failed(&self, name: &str) {
        assert_eq!(self.short.failed, 0, "{name}: {:?}", self.short);
        assert!(self.short.requests > 0 && self.kept > 0, "{name}: {self:?}");
    }

    pub(crate) fn text(&self) -> String {
        format!(
            "{} requests on kept connections, {} on new ones; the longest took {} and {} ms",
            self.kept,
            self.short.requests,
            self.longest,
            self.short.longest / 1_000_000
        )
    }
}

/// The clients.
struct Clients {
    kept: Kept,
    short: Load,
}

pub(crate) struct Fleet {
    pub(crate) site: Site,
    management: Management,
    /// A member that does not run is `None`.
    pub(crate) etcd: Vec<Option<Etcd>>,
    /// Those of the balancers, and last that of the router.
    pub(crate) birds: Vec<Bird>,
    balancers: Vec<Option<Balancer>>,
    farm: Option<Farm>,
    clients: Option<Clients>,
    /// How often the kept connections were opened anew.
    opened: u32,
    total: (u64, u64),
}

impl Fleet {
    /// Networks and BIRD; neither etcd nor balancers nor servers run.
    pub(crate) fn new() -> Self {
        let site = Site::new(BALANCERS, BACKENDS, Mode::Dsr);
        let management = Management::new(&site);
        (1..=BALANCERS).for_each(|n| site.own_address(n));
        let mut birds: Vec<_> = (1..=BALANCERS).map(|n| beside(&site, n, Fast::Bfd)).collect();
        birds.push(on_router(&site, Fast::Bfd));
        // BIRD 2.0 replaces an IPv6 route by deleting it and adding it again. For that moment, the router has an aggregate
        // route that drops packets, as routers have for prefixes that they announce to others; without it, the router tells
        // clients that the network is unreachable, and they give up at once.
        site.router
            .sh("ip route add blackhole 192.0.2.0/24; ip -6 route add blackhole 2001:db8::/32");
        Self {
            site,
            management,
            etcd: (0..MEMBERS).map(|_| None).collect(),
            birds,
            balancers: (0..BALANCERS).map(|_| None).collect(),
            farm: None,
            clients: None,
            opened: 0,
            total: (0, 0),
        }
    }

    /// The keys, as seen from the network for management.
    pub(crate) fn keys(&self) -> Keys<'_> {
        Keys { net: &self.management.net, endpoints: endpoints().join(",") }
    }

    pub(crate) fn config(&self, n: usize) -> Config {
        let state = self.management.folder.path().join(format!("lb{n}.json"));
        let cluster = format!(
            "endpoints = {:?}\nnode = \"lb{n}\"\nstate = {state:?}\npoll_ms = 100\ntimeout_ms = 1500",
            endpoints()
        );
        let seed = 0x0012_3456_789a_bcde;
        Config {
            number: n,
            seed,
            balance: self.balance(n).leak(),
            cluster: Some(cluster),
            ..Config::of(&self.site)
        }
    }

    /// The sections of `[balance]`: announcements, and reports of connections to the other balancers.
    fn balance(&self, n: usize) -> String {
        if !synchronizes() {
            return ANNOUNCE.to_owned();
        }
        let address = |n| format!("10.8.0.{n}:7926");
        let peers: Vec<_> = (1..=BALANCERS).filter(|&peer| peer != n).map(address).collect();
        let key = self.management.folder.path().join("sync.key");
        std::fs::write(&key, "a key of this test that is long enough").unwrap();
        format!(
            "{ANNOUNCE}[balance.sync]\nlisten = {:?}\npeers = {peers:?}\nkey_file = {key:?}\n",
            address(n)
        )
    }

    pub(crate) fn start_etcd(&mut self) {
        (1..=MEMBERS).for_each(|k| self.start_member(k));
        self.keys().are_there();
    }

    pub(crate) fn start_member(&mut self, k: usize) {
        self.etcd[k - 1] = Some(self.management.start(k));
    }

    pub(crate) fn stop_member(&mut self, k: usize) {
        self.etcd[k - 1].take().unwrap().stop();
    }

    /// Cuts balancer `n` off from etcd, without a change of the state of any link.
    pub(crate) fn without_etcd(&self, n: usize) -> Cut {
        Cut::new(&self.management.net, format!("m{n}"))
    }

    /// Cuts balancer `n` off from the router, without a change of the state of any link.
    pub(crate) fn without_router(&self, n: usize) -> Cut {
        Cut::new(&self.site.router, format!("lb{n}"))
    }

    pub(crate) fn put_services(&self) {
        let keys = self.keys();
        keys.put_services(CHECK);
        (1..BACKENDS).for_each(|n| keys.put_backend(n, ""));
    }

    pub(crate) fn start_servers(&mut self) {
        self.farm = Some(Farm::of(&self.site, &[], Kind::Nginx));
    }

    pub(crate) fn start_balancer(&mut self, n: usize) {
        self.balancers[n - 1] = Some(Balancer::start(&self.site, self.config(n)));
    }

    pub(crate) fn balancer(&self, n: usize) -> &Balancer {
        self.balancers[n - 1].as_ref().unwrap()
    }

    /// Takes balancer `n` out, to end it.
    pub(crate) fn take(&mut self, n: usize) -> Balancer {
        self.balancers[n - 1].take().unwrap()
    }

    pub(crate) fn upgrade(&mut self, n: usize) {
        self.balancers[n - 1].as_mut().unwrap().upgrade(&self.site);
    }

    #[track_caller]
    pub(crate) fn until_paths(&self, balancers: &[usize]) -> u64 {
        until_paths(&self.site, &self.birds, balancers)
    }

    #[track_caller]
    pub(crate) fn all_are_paths(&self) {
        assert_eq!(paths(&self.site), [vec![1, 2, 3], vec![1, 2, 3]]);
    }

    /// Waits until all nodes use the newest generation, which has the change of this revision, and have one checksum.
    /// Returns the generation and the checksum.
    #[track_caller]
    pub(crate) fn until_current(&self, revision: u64) -> (u64, String) {
        // The number of a generation is a revision at which a node has seen it.
        let shown = self.keys().until(BALANCERS, "current", revision.saturating_sub(1));
        assert_eq!(shown["agrees"], true, "{shown}");
        let checksums: Vec<_> =
            (0..BALANCERS).map(|n| shown["nodes"][n]["checksum"].as_str().unwrap()).collect();
        assert!(checksums.iter().all(|checksum| *checksum == checksums[0]), "{shown}");
        (generation(&shown), checksums[0].to_owned())
    }

    pub(crate) fn start_clients(&mut self) {
        self.client_ports(PORTS);
        answers(&self.site.client);
        let kept = Kept::start(&self.site.client);
        self.clients = Some(Clients { kept, short: self.short() });
    }

    /// The ports from which the client opens connections from now on.
    fn client_ports(&self, range: &str) {
        let file = "/proc/sys/net/ipv4/ip_local_port_range";
        self.site.client.sh(&format!("echo {range} > {file}"));
    }

    fn short(&self) -> Load {
        let of = |vip| Requests { pause: Duration::from_millis(4), ..Requests::short(vip) };
        Load::start(&self.site.client, &vips().map(of).repeat(2))
    }

    pub(crate) fn kept(&self) -> &Kept {
        &self.clients.as_ref().unwrap().kept
    }

    /// What the clients did since the last call. Each kept connection has had a whole request since the beginning of
    /// this call.
    pub(crate) fn outcome(&mut self) -> Outcome {
        self.kept().round();
        let next = self.short();
        let clients = self.clients.as_mut().unwrap();
        let short = std::mem::replace(&mut clients.short, next).stop();
        let (kept, broken, longest) = clients.kept.take();
        let outcome = Outcome { short, kept, broken, longest };
        if outcome.short.failed > 0 || !outcome.broken.is_empty() {
            let logs = self.balancers.iter().flatten().map(Balancer::said);
            flowyard_testkit::note!("{}", logs.collect::<Vec<_>>().join("\n====\n"));
            outcome.short.why.keys().for_each(|why| self.explain(why));
        }
        self.total.0 += outcome.kept;
        self.total.1 += outcome.short.requests;
        outcome
    }

    /// Prints what the balancers and the backends know of the connection of a request that failed, by the client's port.
    fn explain(&self, why: &str) {
        let port = why.split(" from ").nth(1).and_then(|rest| rest.split(": ").next());
        let Some(port) = port.and_then(|address| address.rsplit(':').next()) else { return };
        for (n, balancer) in (1..).zip(self.balancers.iter().flatten()) {
            let all = balancer.lb(&["connections", "--limit", "100000"]);
            let is_its = |one: &&serde_json::Value| one.to_string().contains(&format!(":{port}\""));
            let found = all["connections"].as_array().into_iter().flatten().filter(is_its);
            flowyard_testkit::note!("balancer {n}: {:?}", found.collect::<Vec<_>>());
        }
        for (n, backend) in (1..).zip(&self.site.backends) {
            let found = backend.sh(&format!("ss -tanoie | grep -A1 ':{port} ' || true"));
            flowyard_testkit::note!("backend {n}: {found}");
        }
    }

    /// Does something while the clients go on, and checks that no request failed and that all balancers are in use
    /// afterwards.
    pub(crate) fn step(&mut self, name: &str, what: fn(&mut Self) -> String) {
        let said = what(self);
        let outcome = self.outcome();
        flowyard_testkit::note!("{name}: {said}; {}", outcome.text());
        outcome.all_well(name);
        self.all_are_paths();
    }

    /// Checks that no request has failed since the last look.
    pub(crate) fn settled(&mut self, name: &str) {
        self.outcome().all_well(name);
    }

    /// Closes all kept connections and opens others, from other ports.
    pub(crate) fn reconnect(&mut self) {
        self.settled("before new connections");
        let Clients { kept, short } = self.clients.take().unwrap();
        let short = short.stop();
        // Ports that no connection had for long. A balancer that had a connection knows it until its time-out, a quarter of
        // an hour, if the server has reset it, or if its end passed through another balancer. A new connection from the same
        // port that is moved to that balancer would be sent to the backend of the old one.
        let first = 10_000 + 1000 * (self.opened % 20);
        self.opened += 1;
        self.client_ports(&format!("{first} {}", first + 999));
        let next = Kept::start(&self.site.client);
        self.client_ports(PORTS);
        self.clients = Some(Clients { kept: next, short: self.short() });
        let (requests, broken, longest) = kept.stop();
        let last = Outcome { short, kept: requests, broken, longest };
        last.all_well("before new connections");
        self.total = (self.total.0 + last.kept, self.total.1 + last.short.requests);
    }

    /// Ends everything in order.
    pub(crate) fn end(mut self) -> String {
        let Clients { kept, short } = self.clients.take().unwrap();
        let short = short.stop();
        let (requests, broken, longest) = kept.stop();
        let last = Outcome { short, kept: requests, broken, longest };
        last.all_well("the end");
        for n in 1..=BALANCERS {
            self.take(n).stop();
        }
        let (kept, short) = (self.total.0 + last.kept, self.total.1 + last.short.requests);
        format!("{kept} requests on kept connections and {short} on new ones")
    }
}

fn endpoints() -> [String; MEMBERS] {
    [1, 2, 3].map(|k| format!("http://10.8.0.1{k}:2379"))
}

/// An interface that drops everything in both directions, until this is dropped. Its link stays up.
pub(crate) struct Cut(Net, String);

impl Cut {
    fn new(net: &Net, interface: String) -> Self {
        let chain = |hook: &str| {
            format!(
                "chain {hook} {{ type filter hook {hook} device {interface} priority 0; policy drop; }} "
            )
        };
        let rules = [chain("ingress"), chain("egress")].join("\n");
        net.sh(&format!("nft 'table netdev cut_{interface} {{\n{rules}\n}}'"));
        Self(Net(net.0.try_clone().unwrap()), interface)
    }

    /// Ends it.
    pub(crate) fn heal(self) {}
}

impl Drop for Cut {
    fn drop(&mut self) {
        self.0.sh(&format!("nft delete table netdev cut_{}", self.1));
    }
}

/// Waits until the table of all balancers has this many backends of each service for new connections.
pub(crate) fn until_up(fleet: &Fleet, count: u64) {
    for n in 1..=BALANCERS {
        wait_until("backends", || {
            let shown = fleet.balancer(n).lb(&["show"]);
            let services = shown["services"].as_array().unwrap();
            services.len() == WEB.len() && services.iter().all(|service| service["up"] == count)
        });
    }
}

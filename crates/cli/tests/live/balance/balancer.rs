//! `flowyard run` as a load balancer: its configuration, and the changes that an operator makes.

use std::process::{Command, Output};

use serde_json::Value;

use super::site::{BACKEND, BRIDGE, EAST, ROUTER, Site, VIPS, WEST, locals, mac};
use crate::yard::{Live, ends, wait_until};
use flowyard_livekit::net::Net;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    Dsr,
    Ipip,
    Gue,
    Dnat,
    FullNat,
}

impl Mode {
    pub(crate) const fn translates(self) -> bool {
        matches!(self, Self::Dnat | Self::FullNat)
    }

    pub(crate) const fn tunnels(self) -> bool {
        matches!(self, Self::Ipip | Self::Gue)
    }
}

/// A backend as configured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backend {
    /// Its number in the site, from 1.
    pub(crate) n: usize,
    pub(crate) drain: bool,
}

/// The configuration of a balancer.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// Its number in the site, from 1.
    pub(crate) number: usize,
    pub(crate) kind: &'static str,
    pub(crate) cores: usize,
    pub(crate) mode: Mode,
    /// Tunnels use the other IP version than the packets in them.
    pub(crate) crossed: bool,
    pub(crate) choice: &'static str,
    pub(crate) seed: u64,
    pub(crate) backends: Vec<Backend>,
    /// More keys of `[balance]`.
    pub(crate) balance: &'static str,
    /// More keys of each service.
    pub(crate) service: &'static str,
    /// More keys of the TCP services: for IPv4, for IPv6.
    pub(crate) web: [&'static str; 2],
    /// It has addresses at its ports, and resolves the MAC addresses of next hops.
    pub(crate) asks: bool,
    /// Answers go to the MAC address from which the client's packets came.
    pub(crate) returns: bool,
    /// Its kernel has an address on the port to the backends, for which an `af_xdp` port takes no frames.
    pub(crate) shared: bool,
    /// It has only the port to the backends.
    pub(crate) one_armed: bool,
    /// XDP answers established connections.
    pub(crate) offload: bool,
    /// The keys of `[cluster]`. Then the configuration has no services.
    pub(crate) cluster: Option<String>,
}

impl Config {
    /// A load balancer with all backends of a site.
    pub(crate) fn of(site: &Site) -> Self {
        Self {
            number: 1,
            kind: "af_packet",
            cores: 1,
            mode: site.mode,
            crossed: false,
            choice: "maglev",
            seed: 7,
            backends: (1..=site.backends.len()).map(|n| Backend { n, drain: false }).collect(),
            balance: "",
            service: "",
            web: [""; 2],
            asks: false,
            returns: false,
            shared: false,
            one_armed: false,
            offload: false,
            cluster: None,
        }
    }

    /// The configuration in TOML.
    pub(crate) fn text(&self) -> String {
        let all: Vec<usize> = (0..self.cores).collect();
        let port = |name: &str, kind: u8| {
            let more = match self.kind {
                "af_xdp" => self.taken(),
                _ => "fanout = \"hash\"".into(),
            };
            let queues = if self.kind == "af_xdp" {
                "cores = [0]".into()
            } else {
                format!("cores = {all:?}")
            };
            format!(
                "[[port]]\nname = \"{name}\"\nkind = \"{}\"\ninterface = \"{name}\"\n{queues}\n\
                 mac = \"{}\"\nring_frames = 8192\n{more}\n",
                self.kind,
                mac(kind, self.number)
            )
        };
        let queue = |core: &usize| {
            format!("[[queue]]\nname = \"q{core}\"\norder = \"direct\"\nconsumers = [{core}]\n")
        };
        let queues: String = all.iter().map(queue).collect();
        let services = [("web", "tcp", 80), ("cache", "udp", 11211), ("echo", "udp", 7)];
        let services: String = match &self.cluster {
            Some(keys) => format!("[cluster]\n{keys}\n"),
            None => {
                let both = |service| self.service(service, 0) + &self.service(service, 1);
                services.iter().map(both).collect()
            }
        };
        let n = self.number;
        let (clients, address) = match self.asks {
            false => (mac(ROUTER, n), String::new()),
            true => (
                format!("10.3.{n}.1"),
                format!(
                    "address = {{ west = [\"10.3.{n}.2\", \"fd03:{n}::2\"], \
                     east = [\"10.2.0.{0}\", \"fd02::{0}\"] }}",
                    120 + n
                ),
            ),
        };
        let west = match self.one_armed {
            true => String::new(),
            false => port("west", WEST),
        };
        let (clients, by) = match self.one_armed {
            true => (mac(BRIDGE, 1), "east"),
            false => (clients, "west"),
        };
        let clients = match self.returns {
            true => String::new(),
            false => format!(", next_hop = \"{clients}\""),
        };
        let offload = if self.offload { "[offload]\nxdp = true\n" } else { "" };
        format!(
            "[yard]\ncores = {}\n{}{}{queues}[work]\nkind = \"balance\"\n[balance]\nseed = {}\n\
             clients = {{ port = \"{by}\"{clients} }}\nlocal = {:?}\n{address}\n{}\n\
             {offload}{services}",
            self.cores,
            west,
            port("east", EAST),
            self.seed,
            locals(n),
            self.balance,
        )
    }

    /// The frames that an `af_xdp` port takes.
    fn taken(&self) -> String {
        let n = 200 + self.number;
        let own = format!(
            "\"not arp to 10.2.0.{n}\", \"not to 10.2.0.{n}\", \"not to fd02::{n}\", \"not to ff02::1:ff00:{n}\", "
        );
        format!("match = [{}\"all\"]", if self.shared { &own } else { "" })
    }

    /// One of the services, for IPv4 (0) or IPv6.
    fn service(&self, (name, proto, port): &(&str, &str, u16), family: usize) -> String {
        let mode = format!("{:?}", self.mode).to_lowercase();
        let mut text = format!(
            "[[service]]\nname = \"{name}{}\"\nvip = \"{}\"\nproto = \"{proto}\"\nport = {port}\n\
             mode = \"{mode}\"\nchoice = \"{}\"\n{}\n{}\n",
            ["4", "6"][family],
            VIPS[family],
            self.choice,
            self.service,
            if *proto == "tcp" { self.web[family] } else { "" }
        );
        for Backend { n, drain } in &self.backends {
            let net = ["10.2.0.", "fd02::"][if self.crossed { 1 - family } else { family }];
            let next = match self.asks {
                true => String::new(),
                false => format!(", next_hop = \"{}\"", mac(BACKEND, *n)),
            };
            text += &format!(
                "[[service.backend]]\nname = \"b{n}\"\naddr = \"{net}{n}\"\ndrain = {drain}\n\
                 exit = {{ port = \"east\"{next} }}\n"
            );
        }
        text
    }
}

/// The control socket's path in the instance's folder.
const SOCKET: &str = "control.sock";

/// A running load balancer.
pub(crate) struct Balancer {
    live: Live,
    config: Config,
    changes: usize,
}

impl Balancer {
    pub(crate) fn start(site: &Site, config: Config) -> Self {
        let net: &Net = &site.balancers[config.number - 1];
        let mut live = Live::start_with(net, &config.text(), &["--control", SOCKET]);
        wait_until("the balancer", || {
            assert!(live.is_alive(), "{}", live.said("err"));
            live.said("err").contains("running")
        });
        Self { live, config, changes: 0 }
    }

    /// Runs a balancer that is to end by itself, because it cannot start.
    pub(crate) fn refused(site: &Site, config: &Config) -> Output {
        let net = &site.balancers[config.number - 1];
        ends(net, &config.text(), &["--control", SOCKET])
    }

    /// Changes the configuration and waits until the instance has reloaded it.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Config)) {
        change(&mut self.config);
        // Renamed into place, so that it is never read in part.
        let file = self.live.folder.path().join("y.toml");
        std::fs::write(file.with_extension("new"), self.config.text()).unwrap();
        std::fs::rename(file.with_extension("new"), file).unwrap();
        self.live.signal("HUP");
        self.changes += 1;
        wait_until("the new services", || {
            let said = self.live.said("err");
            assert!(!said.contains("nothing changed"), "{said}");
            said.matches("tables reloaded").count() == self.changes
        });
    }

    /// Lets another process of the same configuration take over.
    pub(crate) fn upgrade(&mut self, site: &Site) -> Value {
        let net = &site.balancers[self.config.number - 1];
        self.changes = 0; // in the log of the new process
        self.live.upgrade(net, &["--control", SOCKET])
    }

    /// Turns new connections for backend `n` off, or on again.
    pub(crate) fn drain(&mut self, n: usize, drain: bool) {
        self.change(|config| {
            config.backends.iter_mut().filter(|b| b.n == n).for_each(|b| b.drain = drain);
        });
    }

    /// The output of `flowyard lb` with these arguments.
    #[track_caller]
    pub(crate) fn lb(&self, words: &[&str]) -> Value {
        let mut command = Command::new(crate::yard::binary());
        command.arg("lb").args(words).args(["--json", "--control", SOCKET]);
        let output = command.current_dir(self.live.folder.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "lb {words:?}: {said}{}", self.live.said("err"));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Backend `n` of a service in the output of `lb show`.
    #[track_caller]
    pub(crate) fn backend(&self, service: &str, n: usize) -> Value {
        let shown = self.lb(&["show", service]);
        let backends = shown["services"][0]["backends"].as_array().unwrap();
        let name = format!("b{n}");
        backends.iter().find(|backend| backend["name"] == name.as_str()).unwrap().clone()
    }

    /// Its log.
    pub(crate) fn said(&self) -> String {
        self.live.said("err")
    }

    pub(crate) fn stop(self) -> Value {
        self.live.stop()
    }

    pub(crate) fn kill(self) {
        self.live.kill();
    }
}

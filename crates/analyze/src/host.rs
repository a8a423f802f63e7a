//! The host: which side of a connection it is, and on which cores its threads run.
//!
//! A capture does not contain which frames the host received and which it sent, nor the core of the
//! application. Both are modelled, both can be set, and the report states which model was used.

use std::collections::HashMap;
use std::net::IpAddr;
use std::str::FromStr;

use flowyard_frame::{FlowKey, Nanos, proto};
use ipnet::IpNet;

use crate::mix;

/// The side of each connection on which the host is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Local {
    /// The server: the destination of a SYN or the source of a SYN+ACK; otherwise the side with the
    /// only port below 1024; otherwise the destination of the first frame.
    #[default]
    Server,
    /// The other side than the server.
    Client,
    /// The host is a monitor, which receives every frame and sends none.
    All,
    /// The host has these addresses.
    Nets(Vec<IpNet>),
}

impl Local {
    /// Whether a packet comes from the host or goes to it. A host without given addresses is an end of every
    /// connection.
    pub(crate) fn is_end(&self, key: &FlowKey) -> bool {
        let Self::Nets(nets) = self else { return true };
        let inside =
            |ip: Option<IpAddr>| ip.is_some_and(|ip| nets.iter().any(|net| net.contains(&ip)));
        inside(key.src_ip()) || inside(key.dst_ip())
    }

    /// Whether the host receives the direction of a connection's first frame; `None` if it receives
    /// both directions.
    pub(crate) fn receives(&self, first: &FlowKey) -> Option<bool> {
        match self {
            Self::All => None,
            Self::Server => Some(to_server(first)),
            Self::Client => Some(!to_server(first)),
            Self::Nets(nets) => {
                let inside = |ip: Option<IpAddr>| {
                    ip.is_some_and(|ip| nets.iter().any(|net| net.contains(&ip)))
                };
                match (inside(first.src_ip()), inside(first.dst_ip())) {
                    (true, false) => Some(false),
                    (false, true) => Some(true),
                    // Both ends are local, or neither is: the adapter receives both directions.
                    _ => None,
                }
            }
        }
    }
}

/// Whether the first frame of a connection goes to its server.
fn to_server(key: &FlowKey) -> bool {
    if key.proto == proto::TCP && key.tcp_flags & FlowKey::SYN != 0 {
        return key.tcp_flags & FlowKey::ACK == 0;
    }
    match (key.sport < 1024, key.dport < 1024) {
        (true, false) => false,
        (false, true) => true,
        _ => true,
    }
}

impl FromStr for Local {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "server" => Ok(Self::Server),
            "client" => Ok(Self::Client),
            "all" => Ok(Self::All),
            list => list.split(',').map(net).collect::<Result<_, _>>().map(Self::Nets),
        }
    }
}

fn net(text: &str) -> Result<IpNet, String> {
    text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)).map_err(|_| {
        format!("'{text}' is not a valid side; use server, client, all, or addresses such as 10.0.0.2,2001:db8::/64")
    })
}

impl std::fmt::Display for Local {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Server => f.write_str("server"),
            Self::Client => f.write_str("client"),
            Self::All => f.write_str("all"),
            Self::Nets(nets) => {
                let nets: Vec<_> = nets.iter().map(ToString::to_string).collect();
                f.write_str(&nets.join(","))
            }
        }
    }
}

/// How a connection is assigned to the thread that consumes it. Thread `t` starts on core `t`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Consumers {
    /// There is one thread per core, and connections are assigned to the threads in turn, as in
    /// memcached and servers such as nginx.
    #[default]
    RoundRobin,
    /// One thread consumes all connections of a service (protocol and local port).
    Service,
    /// A hash of the connection selects the thread.
    Hash,
    /// The thread of each local port is given; connections of other ports are assigned in turn.
    Map(HashMap<u16, u16>),
}

impl FromStr for Consumers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "round-robin" => return Ok(Self::RoundRobin),
            "service" => return Ok(Self::Service),
            "hash" => return Ok(Self::Hash),
            _ => {}
        }
        let pair = |item: &str| {
            let (port, core) = item.split_once('=')?;
            Some((port.trim().parse().ok()?, core.trim().parse().ok()?))
        };
        text.split(',')
            .map(|item| {
                pair(item).ok_or_else(|| {
                    format!("'{item}' is not a valid consumer model; use round-robin, service, hash, or PORT=CORE such as 11211=3,80=0")
                })
            })
            .collect::<Result<_, _>>()
            .map(Self::Map)
    }
}

impl std::fmt::Display for Consumers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::RoundRobin => f.write_str("round-robin"),
            Self::Service => f.write_str("service"),
            Self::Hash => f.write_str("hash"),
            Self::Map(map) => {
                let mut pairs: Vec<_> = map.iter().collect();
                pairs.sort();
                let pairs: Vec<_> =
                    pairs.iter().map(|(port, core)| format!("{port}={core}")).collect();
                f.write_str(&pairs.join(","))
            }
        }
    }
}

/// The application threads and the cores on which they run.
#[derive(Debug)]
pub(crate) struct Threads {
    model: Consumers,
    /// The core of each thread.
    core: Vec<u16>,
    next: u16,
    /// Time after which the scheduler moves one thread to another core; 0 means never.
    migrate_every: Nanos,
    next_migration: Nanos,
    pub(crate) migrations: u64,
    seed: u64,
}

impl Threads {
    pub(crate) fn new(model: Consumers, cores: u16, migrate_every: Nanos, seed: u64) -> Self {
        let core = (0..cores).collect();
        Self { model, core, next: 0, migrate_every, next_migration: 0, migrations: 0, seed }
    }

    /// The thread of a new connection, whose frames arrive with `key`.
    pub(crate) fn accept(&mut self, key: &FlowKey) -> u16 {
        let threads = self.core.len() as u16;
        let hashed = |n: u64| (mix(n) % u64::from(threads)) as u16;
        match &self.model {
            Consumers::Service => hashed(u64::from(key.proto) << 16 | u64::from(key.dport)),
            Consumers::Hash => {
                let ports = u64::from(key.sport) << 16 | u64::from(key.dport);
                let src = u128::from_be_bytes(key.src);
                hashed(mix(src as u64 ^ (src >> 64) as u64) ^ ports)
            }
            Consumers::Map(map) if map.contains_key(&key.dport) => map[&key.dport] % threads,
            Consumers::RoundRobin | Consumers::Map(_) => {
                let thread = self.next;
                self.next = (self.next + 1) % threads;
                thread
            }
        }
    }

    /// The core on which `thread` runs.
    #[inline]
    pub(crate) fn core(&self, thread: u16) -> u16 {
        self.core[thread as usize]
    }

    /// Advances the scheduler to `now`.
    #[inline]
    pub(crate) fn tick(&mut self, now: Nanos) {
        if self.migrate_every != 0 && now >= self.next_migration {
            self.migrate(now);
        }
    }

    fn migrate(&mut self, now: Nanos) {
        let cores = self.core.len() as u64;
        if self.next_migration == 0 || cores < 2 {
            self.next_migration = now.saturating_add(self.migrate_every);
            return;
        }
        // After a long pause of the traffic, further moves would not change the distribution.
        let due =
            ((now - self.next_migration) / self.migrate_every).saturating_add(1).min(4 * cores);
        for _ in 0..due {
            self.migrations += 1;
            let dice = mix(self.seed ^ self.migrations);
            let thread = (dice % cores) as usize;
            let step = 1 + (dice >> 32) % (cores - 1);
            self.core[thread] = ((u64::from(self.core[thread]) + step) % cores) as u16;
        }
        let last = now - (now - self.next_migration) % self.migrate_every;
        self.next_migration = last.saturating_add(self.migrate_every);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn key(sport: u16, dport: u16, flags: u8) -> FlowKey {
        let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let key = FlowKey::five_tuple(proto::TCP, a.into(), sport, b.into(), dport);
        FlowKey { tcp_flags: flags, ..key }
    }

    #[test]
    fn the_server_is_found_by_syn_then_by_port() {
        let server = Local::Server;
        assert_eq!(server.receives(&key(80, 4000, FlowKey::SYN)), Some(true));
        assert_eq!(server.receives(&key(80, 4000, FlowKey::SYN | FlowKey::ACK)), Some(false));
        assert_eq!(server.receives(&key(80, 4000, FlowKey::ACK)), Some(false));
        assert_eq!(server.receives(&key(4000, 80, FlowKey::ACK)), Some(true));
        assert_eq!(server.receives(&key(4000, 11211, FlowKey::ACK)), Some(true));
        assert_eq!(Local::Client.receives(&key(80, 4000, FlowKey::SYN)), Some(false));
        assert_eq!(Local::All.receives(&key(80, 4000, 0)), None);
    }

    #[test]
    fn addresses_determine_the_side() {
        let local: Local = "10.0.0.2,2001:db8::/64".parse().unwrap();
        assert_eq!(local.receives(&key(1, 2, 0)), Some(true));
        assert_eq!(local.receives(&key(1, 2, 0).reversed()), Some(false));
        assert_eq!(local.to_string(), "10.0.0.2/32,2001:db8::/64");
        let elsewhere: Local = "192.0.2.0/24".parse().unwrap();
        assert_eq!(elsewhere.receives(&key(1, 2, 0)), None);
        assert!("10.0.0.256".parse::<Local>().unwrap_err().contains("10.0.0.256"));
    }

    #[test]
    fn connections_are_assigned_in_turn() {
        let mut threads = Threads::new(Consumers::RoundRobin, 3, 0, 1);
        let taken: Vec<_> = (0..5).map(|n| threads.accept(&key(n, 80, 0))).collect();
        assert_eq!(taken, [0, 1, 2, 0, 1]);
        let mut mapped = Threads::new("80=2".parse().unwrap(), 3, 0, 1);
        assert_eq!(mapped.accept(&key(9, 80, 0)), 2);
        assert_eq!(mapped.accept(&key(9, 81, 0)), 0);
        let mut service = Threads::new(Consumers::Service, 3, 0, 1);
        assert_eq!(service.accept(&key(9, 80, 0)), service.accept(&key(10, 80, 0)));
    }

    #[test]
    fn threads_migrate_as_often_as_configured() {
        let mut threads = Threads::new(Consumers::RoundRobin, 8, 1000, 7);
        for now in (10_000..110_000).step_by(100) {
            threads.tick(now);
        }
        assert_eq!(threads.migrations, 99);
        let before: Vec<_> = (0..8).map(|t| threads.core(t)).collect();
        threads.tick(1_000_000_000_000);
        assert!(threads.migrations <= 99 + 32, "the moves of a long pause are limited");
        assert_ne!(before, (0..8).map(|t| threads.core(t)).collect::<Vec<_>>());
    }
}

//! Polls SRV records, and the addresses of their targets (RFC 2782).
//!
//! ```text
//!  SRV _http._tcp.web.example ──the lowest priority that has addresses──> targets ──A or AAAA──> backends
//!    └── again when the shortest TTL has passed; what is not answered keeps the last good set of its service
//! ```
//!
//! Invariants: a set is replaced as a whole; a look that fails, or that finds no backend, leaves the set as it is.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};

use flowyard_config::{ClusterConfig, Fragment, Lookup, SERVICES, file};
use flowyard_frame::Nanos;
use flowyard_yard::Clock;

use super::found::Services;
use super::login::OpenError;
use crate::dns::{self, Data, Record, Reply, kind};
use crate::health::deadline::Deadline;
use crate::health::dns::{over_tcp, over_udp};
use crate::health::udp;

const SECOND: Nanos = 1_000_000_000;
/// The longest time for which records are used, in seconds, whatever their TTL.
const LONGEST: u64 = 300;
/// The most targets of a service that are resolved, and the most backends that result.
const TARGETS: usize = 1024;
/// The most aliases that lead to an address.
const ALIASES: usize = 8;
/// The heaviest backend that the balancer takes.
const HEAVIEST: u64 = flowyard_lb::HEAVIEST as u64;

/// A backend as the records have it. Its text for the configuration is made from the lookup that is configured when
/// it is offered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Backend {
    addr: SocketAddr,
    weight: u64,
}

/// The last good backends of a service.
#[derive(Clone, Debug, Default)]
struct Set {
    backends: Vec<Backend>,
    /// When they are looked up again.
    due: Nanos,
    /// Why the last look has failed, if it has.
    error: Option<String>,
}

/// Looks up SRV records.
#[derive(Clone)]
pub(super) struct Lookups {
    servers: Vec<SocketAddr>,
    /// The index of the server that answered last.
    current: usize,
    all: Vec<Lookup>,
    /// By the name of the service.
    sets: BTreeMap<String, Set>,
    /// Whether the configured lookups have changed since the last look.
    has_new_lookups: bool,
    /// Whether the balancer runs already, with services of an earlier run.
    is_running: bool,
    /// Whether services were returned already.
    has_begun: bool,
    timeout: Nanos,
    shortest: Nanos,
    clock: Clock,
}

impl std::fmt::Debug for Lookups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lookups").field("servers", &self.servers).finish_non_exhaustive()
    }
}

impl Lookups {
    pub(super) fn new(config: &ClusterConfig, clock: Clock) -> Result<Self, OpenError> {
        let mut servers = config.servers();
        if servers.is_empty() {
            servers = of_system()?;
        }
        let ms = |ms: u64| ms.saturating_mul(1_000_000);
        Ok(Self {
            timeout: ms(*config.timeout_ms.get_ref()) / servers.len().max(1) as Nanos,
            servers,
            current: 0,
            all: Vec::new(),
            sets: BTreeMap::new(),
            has_new_lookups: false,
            is_running: false,
            has_begun: false,
            shortest: ms(*config.poll_ms.get_ref()),
            clock,
        })
    }

    /// Looks up these records from now on.
    pub(super) fn look_up(&mut self, all: &[Lookup]) {
        if self.all == all {
            return;
        }
        self.has_new_lookups = true;
        let old = std::mem::replace(&mut self.all, all.to_vec());
        let is_new = |one: &Lookup| !old.contains(one);
        for one in all.iter().filter(|one| is_new(one)) {
            // A service that is new takes the backends of one that had the same records.
            let same = old.iter().find(|old| old.name == one.name && old.is_v6 == one.is_v6);
            let known = same.and_then(|old| self.sets.get(&old.service)).cloned();
            let set = self.sets.entry(one.service.clone()).or_insert(known.unwrap_or_default());
            set.due = 0;
            // Backends of the other IP version cannot be those of the VIP. Others serve until the new name is resolved.
            set.backends.retain(|backend| backend.addr.is_ipv6() == one.is_v6);
        }
        self.sets.retain(|service, _| all.iter().any(|one| one.service == *service));
    }

    /// Takes the last good backends of an earlier run.
    pub(super) fn remember(&mut self, saved: &[Fragment]) {
        for one in &self.all {
            let backends = saved.iter().filter_map(|saved| backend(one, saved));
            let backends = backends.filter(|backend| backend.addr.is_ipv6() == one.is_v6);
            self.sets.entry(one.service.clone()).or_default().backends = backends.collect();
        }
    }

    /// The balancer runs from now on: a service that has never had records does not hold back the others any more.
    pub(super) const fn run(&mut self) {
        self.is_running = true;
    }

    /// Looks up what is due. Returns the backends of all services if some of them may have changed, and why a look has
    /// failed, if one has.
    pub(super) fn read(&mut self) -> (Option<Services>, Option<String>) {
        let mut is_new = std::mem::take(&mut self.has_new_lookups);
        for one in self.all.clone() {
            let now = (self.clock)();
            if self.sets.get(&one.service).is_some_and(|set| set.due > now) {
                continue;
            }
            let looked = self.backends(&one);
            let now = (self.clock)();
            let set = self.sets.entry(one.service.clone()).or_default();
            match looked {
                Ok((backends, ttl)) => {
                    let ttl = u64::from(ttl).min(LONGEST) * SECOND;
                    (set.due, set.error) = (now + ttl.max(self.shortest), None);
                    is_new |= set.backends != backends;
                    set.backends = backends;
                }
                Err(why) => {
                    set.due = now + self.shortest;
                    set.error = Some(format!("{}: {why}", one.name));
                }
            }
        }
        let failed = self.sets.values().find_map(|set| set.error.clone());
        // A balancer starts with the services of all lookups; the backends of some may be those of an earlier run.
        let is_complete = self.is_running || self.sets.values().all(|set| !set.backends.is_empty());
        let some_succeed = self.sets.values().any(|set| set.error.is_none());
        let is_offered = match self.has_begun {
            true => is_new,
            false => failed.is_none() || is_complete && some_succeed,
        };
        if !is_offered {
            return (None, failed);
        }
        self.has_begun = true;
        (Some(Services::Usable(self.fragments())), failed)
    }

    /// The backends of all services, as the lookups are configured now.
    fn fragments(&self) -> Vec<Fragment> {
        let of = |one: &Lookup| {
            let backends = self.sets.get(&one.service).map(|set| &set.backends[..]);
            backends.unwrap_or_default().iter().map(|found| fragment(one, *found)).collect()
        };
        self.all.iter().flat_map(|one| -> Vec<Fragment> { of(one) }).collect()
    }

    /// The backends of a service, and the time in seconds for which they may be used.
    fn backends(&mut self, one: &Lookup) -> Result<(Vec<Backend>, u32), String> {
        let (records, mut ttl) = self.ask(&one.name, kind::SRV)?;
        let mut targets = Vec::new();
        for record in records {
            if let Data::Service { priority, weight, port, target } = record.data {
                // A target without a name says that the service is not there (RFC 2782).
                if !target.is_empty() {
                    targets.push((priority, weight, port, target));
                }
            }
        }
        targets.sort_unstable();
        targets.dedup();
        if targets.is_empty() {
            return Err("there is no SRV record with a target".into());
        }
        if targets.len() > TARGETS {
            return Err(format!(
                "there are {} targets; at most {TARGETS} are possible",
                targets.len()
            ));
        }
        let of = if one.is_v6 { kind::AAAA } else { kind::A };
        let mut last = String::new();
        for tier in targets.chunk_by(|a, b| a.0 == b.0) {
            let mut tier_of = Vec::new();
            for (_, weight, port, target) in tier {
                match self.ask(target, of) {
                    Ok((records, time)) => {
                        ttl = ttl.min(time);
                        let addrs: Vec<IpAddr> = records.iter().filter_map(address).collect();
                        tier_of.push((*weight, *port, addrs));
                    }
                    // A server that does not answer says nothing of the target; one that does says that it is not there.
                    Err(Failed::Unknown(why)) => return Err(format!("{target}: {why}")),
                    Err(Failed::Absent(why)) => last = format!("{target}: {why}"),
                }
            }
            let found = weighted(&tier_of);
            if !found.is_empty() {
                return Ok((found, ttl));
            }
        }
        Err(if last.is_empty() { "the targets have no addresses".into() } else { last })
    }
}

/// Why there are no records.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Failed {
    /// A server has answered that there are none.
    Absent(String),
    /// No server has answered as it should.
    Unknown(String),
}

impl From<Failed> for String {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Absent(why) | Failed::Unknown(why) => why,
        }
    }
}

impl Lookups {
    /// Asks the servers in turn, and returns the records of this name or of its aliases, and the shortest TTL.
    fn ask(&mut self, name: &str, of: u16) -> Result<(Vec<Record>, u32), Failed> {
        let mut last = Failed::Unknown("no DNS server is named".into());
        for _ in 0..self.servers.len() {
            let server = self.servers[self.current % self.servers.len()];
            match self.ask_one(server, name, of) {
                Err(Failed::Unknown(why)) => {
                    last = Failed::Unknown(format!("{server}: {why}"));
                    self.current = (self.current + 1) % self.servers.len();
                }
                done => return done,
            }
        }
        Err(last)
    }

    fn ask_one(
        &self,
        server: SocketAddr,
        name: &str,
        of: u16,
    ) -> Result<(Vec<Record>, u32), Failed> {
        let now = || (self.clock)();
        let deadline = Deadline::new(&now, self.timeout);
        let told = |error: io::Error| {
            Failed::Unknown(match error.kind() {
                io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
                    format!("no answer within {} ms", self.timeout / 1_000_000)
                }
                _ => error.to_string(),
            })
        };
        let query = dns::query(dns::random_id(), name, of);
        let message = exchange(server, &query, deadline).map_err(told)?;
        let malformed = || Failed::Unknown("the response is malformed".into());
        let reply = Reply::to(&query, &message).ok_or_else(malformed)?;
        let why = || format!("the response is an error: {}", dns::error(reply.code));
        match reply.code {
            0 => {}
            3 => return Err(Failed::Absent(why())),
            _ => return Err(Failed::Unknown(why())),
        }
        let found = of_name(reply.records().ok_or_else(malformed)?, name, of);
        found.ok_or_else(|| Failed::Absent("the response has no record of this type".into()))
    }
}

/// Sends a query by UDP, and by TCP if the response is cut off.
fn exchange(server: SocketAddr, query: &[u8], deadline: Deadline<'_>) -> io::Result<Vec<u8>> {
    let socket = udp::socket(server).map_err(io::Error::other)?;
    socket.connect(server)?;
    let message = over_udp(&socket, query, deadline)?;
    let is_truncated =
        |message: &[u8]| Reply::to(query, message).is_some_and(|reply| reply.is_truncated);
    if !is_truncated(&message) {
        return Ok(message);
    }
    let message = over_tcp(server, query, deadline)?;
    match is_truncated(&message) {
        true => Err(io::Error::other("the response over TCP is cut off, too")),
        false => Ok(message),
    }
}

/// The records of a name and of its aliases, and the shortest TTL on the way; `None` if there are none of this type.
fn of_name(records: Vec<Record>, name: &str, of: u16) -> Option<(Vec<Record>, u32)> {
    let mut owner = name.to_ascii_lowercase();
    let mut ttl = u32::MAX;
    for _ in 0..ALIASES {
        let alias = records.iter().find_map(|record| match &record.data {
            Data::Alias(to) if record.owner == owner => Some((to.clone(), record.ttl)),
            _ => None,
        });
        let Some((to, time)) = alias else { break };
        (owner, ttl) = (to, ttl.min(time));
    }
    let is_asked = |record: &Record| match &record.data {
        Data::Address(addr) => of == if addr.is_ipv4() { kind::A } else { kind::AAAA },
        Data::Service { .. } => of == kind::SRV,
        Data::Alias(_) | Data::Other => false,
    };
    let found = records.into_iter().filter(|record| record.owner == owner && is_asked(record));
    let found: Vec<Record> = found.collect();
    let ttl = found.iter().map(|record| record.ttl).fold(ttl, u32::min);
    (!found.is_empty()).then_some((found, ttl))
}

const fn address(record: &Record) -> Option<IpAddr> {
    match record.data {
        Data::Address(addr) => Some(addr),
        _ => None,
    }
}

/// The backends of targets of one priority, each with its weight, its port and its addresses. The addresses of a target
/// share its weight.
fn weighted(targets: &[(u16, u16, Vec<IpAddr>)]) -> Vec<Backend> {
    let targets = || targets.iter().filter(|(.., addrs)| !addrs.is_empty());
    let some_zero = targets().any(|(weight, ..)| *weight == 0);
    let all_zero = targets().all(|(weight, ..)| *weight == 0);
    // Among others, a weight of 0 is a very small chance (RFC 2782).
    let weight = |weight: u16| match u64::from(weight) {
        0 => 1,
        weight if some_zero && !all_zero => weight * 16,
        weight => weight,
    };
    // The least common multiple, so that no share is rounded, unless there are many.
    let parts = targets().map(|(.., addrs)| addrs.len() as u64);
    let whole = parts.fold(1, |all, n| if all <= 1000 { all / gcd(all, n) * n } else { all });
    let mut sums = BTreeMap::<SocketAddr, u64>::new();
    for (own, port, addrs) in targets() {
        let share = (weight(*own) * whole / addrs.len() as u64).max(1);
        for addr in addrs {
            *sums.entry(SocketAddr::new(*addr, *port)).or_default() += share;
        }
    }
    let divisor = sums.values().copied().fold(0, gcd).max(1);
    let most = sums.values().copied().max().unwrap_or(1) / divisor;
    let fit = |weight: u64| match most > HEAVIEST {
        true => (weight * HEAVIEST / most).max(1),
        false => weight,
    };
    sums.into_iter().map(|(addr, sum)| Backend { addr, weight: fit(sum / divisor) }).collect()
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// What the keys of the backends of a service begin with.
fn keys(one: &Lookup) -> String {
    format!("{SERVICES}{}/backends/", one.service)
}

/// The backend of this service that was saved as `fragment`; `None` if it is none.
fn backend(one: &Lookup, saved: &Fragment) -> Option<Backend> {
    let addr = saved.key.strip_prefix(&keys(one))?.parse().ok()?;
    let weight = saved.text.lines().find_map(|line| line.strip_prefix("weight = "))?;
    Some(Backend { addr, weight: weight.parse().ok()? })
}

/// A backend as the value of a key; its exit is that of the service.
fn fragment(one: &Lookup, backend: Backend) -> Fragment {
    let Backend { addr, weight } = backend;
    let mut text = format!("addr = \"{}\"\nweight = {weight}\n", addr.ip());
    if one.port != addr.port() {
        text += &format!("port = {}\n", addr.port());
    }
    Fragment { key: format!("{}{addr}", keys(one)), text }
}

/// The DNS servers of the system.
fn of_system() -> Result<Vec<SocketAddr>, OpenError> {
    let path = std::path::Path::new("/etc/resolv.conf");
    let text = file::text(path).map_err(|error| OpenError::of_resolver(path, &error))?;
    let servers: Vec<SocketAddr> = nameservers(&text).collect();
    match servers.is_empty() {
        true => Err(OpenError::of_resolver(path, &"there is no line 'nameserver ADDRESS'")),
        false => Ok(servers),
    }
}

/// The servers in a file for the system's resolver (resolv.conf(5)).
fn nameservers(text: &str) -> impl Iterator<Item = SocketAddr> {
    let addr = |line: &str| {
        let mut words = line.split_whitespace();
        words.next().filter(|word| *word == "nameserver")?;
        words.next()?.parse().ok().map(|addr| SocketAddr::new(addr, 53))
    };
    text.lines().filter_map(addr)
}

#[cfg(test)]
mod tests;

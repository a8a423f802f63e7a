//! The keys of `[work]`, and their checks.
//!
//! All kinds share one flat table, so that every key keeps its position in the text, and the error
//! for a key of another kind can name that kind.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::str::FromStr;

use flowyard_frame::Nanos;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::names::{Checked, port_name};
use super::{Config, ConfigError};

/// `[work]`
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WorkConfig {
    /// The kind of work.
    pub kind: Spanned<WorkKind>,
    /// `forward`, `burn`: the port by which frames leave, by the port at which they came in. A port
    /// that is not named sends back its frames.
    pub ports: Option<Spanned<BTreeMap<String, Spanned<String>>>>,
    /// Every kind: the additional time for which the core is kept busy with each frame, in
    /// nanoseconds.
    pub cost_ns: Option<Spanned<u64>>,
    /// `bridge`: the time after which a silent station is forgotten, in milliseconds.
    pub age_ms: Option<Spanned<u64>>,
    /// `bridge`: the number of stations that each core knows.
    pub stations: Option<Spanned<usize>>,
    /// `route`, `ipsec`: the routes.
    #[serde(default)]
    pub route: Vec<Spanned<RouteConfig>>,
}

/// The kind of work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkKind {
    /// Frames leave by the port that is configured for the port at which they came in.
    Forward,
    /// As `forward`, and keeps the core busy for a configured time.
    Burn,
    /// A learning bridge: frames go to the port of the destination MAC address, unknown ones to all
    /// ports.
    Bridge,
    /// A router: frames go to the port and next hop of the longest prefix that contains the
    /// destination.
    Route,
    /// An OpenFlow switch: see `[switch]`.
    Switch,
    /// A load balancer: see `[balance]`.
    Balance,
    /// A gateway of IPsec, which also routes: see `[ipsec]`.
    Ipsec,
}

/// One of `[[work.route]]`.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RouteConfig {
    /// The destinations: `10.0.0.0/8`, `2001:db8::/32`; `0.0.0.0/0` and `::/0` are the default
    /// routes.
    pub prefix: Spanned<String>,
    /// The port by which they leave.
    pub port: Spanned<String>,
    /// The MAC address of the next hop.
    pub next_hop: Spanned<String>,
}

/// A route after parsing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Route {
    pub(crate) prefix: IpNet,
    pub(crate) port: u16,
    pub(crate) next_hop: [u8; 6],
}

impl WorkConfig {
    /// The ageing time that IEEE 802.1Q recommends (table 8-6): 300 s.
    const AGE_MS: u64 = 300_000;
    const STATIONS: usize = 8192;

    /// The additional time for which a core is kept busy with each frame.
    #[must_use]
    pub fn cost_ns(&self) -> Nanos {
        self.cost_ns.as_ref().map_or(0, |cost| *cost.get_ref())
    }

    /// The ageing time of a bridge.
    #[must_use]
    pub fn age(&self) -> Nanos {
        let age = self.age_ms.as_ref().map_or(Self::AGE_MS, |age| *age.get_ref());
        age.saturating_mul(1_000_000)
    }

    /// The number of stations that each core of a bridge knows.
    #[must_use]
    pub fn stations(&self) -> usize {
        self.stations.as_ref().map_or(Self::STATIONS, |stations| *stations.get_ref())
    }
}

impl Config {
    /// The static port map: the port by which frames leave, by the port at which they came in.
    pub(crate) fn port_map(&self) -> Vec<u16> {
        let mut map: Vec<u16> = (0..self.port.len() as u16).collect();
        let named = self.work.get_ref().ports.iter().flat_map(Spanned::get_ref);
        for (from, to) in named {
            if let (Some(from), Some(to)) = (self.port_number(from), self.port_number(to.get_ref()))
            {
                map[usize::from(from)] = to;
            }
        }
        map
    }

    /// The routes.
    ///
    /// # Errors
    /// The first route that is wrong.
    pub(crate) fn routes(&self) -> Result<Vec<Route>, ConfigError> {
        let route = |route: &Spanned<RouteConfig>| {
            let RouteConfig { prefix, port, next_hop } = route.get_ref();
            port_name(self, port.get_ref(), port.span())?;
            Ok(Route {
                prefix: self.prefix(prefix)?,
                port: self.port_number(port.get_ref()).unwrap_or_default(),
                next_hop: self.mac(next_hop)?,
            })
        };
        self.work.get_ref().route.iter().map(route).collect()
    }

    fn prefix(&self, text: &Spanned<String>) -> Result<IpNet, ConfigError> {
        let word = text.get_ref();
        let Ok(prefix) = IpNet::from_str(word) else {
            let what = format!("'{word}' is not a prefix");
            let fix = "write it as 10.0.0.0/8, 10.1.2.3/32 or 2001:db8::/32";
            return Err(self.error(text.span(), what, fix));
        };
        if prefix.trunc() != prefix {
            let what = format!("'{word}' has bits behind its length");
            return Err(self.error(text.span(), what, format!("write {}", prefix.trunc())));
        }
        Ok(prefix)
    }

    /// The MAC addresses of the ports, by number.
    ///
    /// # Errors
    /// The first one that is wrong.
    pub(crate) fn port_macs(&self) -> Result<Vec<[u8; 6]>, ConfigError> {
        let mac = |(number, port): (u16, &super::PortConfig)| match &port.mac {
            Some(text) => self.mac(text),
            None => {
                let [high, low] = number.to_be_bytes();
                Ok([2, 0, 0, 0, high, low])
            }
        };
        (0..).zip(self.ports()).map(mac).collect()
    }

    /// Parses a MAC address, which must not be a group address.
    pub(super) fn mac(&self, text: &Spanned<String>) -> Result<[u8; 6], ConfigError> {
        let word = text.get_ref();
        let Some(mac) = mac(word) else {
            let what = format!("'{word}' is not a MAC address");
            return Err(self.error(text.span(), what, "write it as 02:00:00:00:00:01"));
        };
        if mac[0] & 1 != 0 || mac == [0; 6] {
            let what = format!("'{word}' is a group address");
            let fix = "write a MAC address whose first byte is even";
            return Err(self.error(text.span(), what, fix));
        }
        Ok(mac)
    }
}

/// Parses a MAC address as `02:00:00:00:00:01`.
pub(crate) fn mac(text: &str) -> Option<[u8; 6]> {
    let byte = |word: &str| {
        let digits = (1..=2).contains(&word.len()) && word.bytes().all(|c| c.is_ascii_hexdigit());
        if digits { u8::from_str_radix(word, 16).ok() } else { None }
    };
    let bytes: Option<Vec<u8>> = text.split([':', '-']).map(byte).collect();
    bytes?.try_into().ok()
}

/// Returns the first mistake.
pub(super) fn check(config: &Config) -> Checked {
    let (at, work) = (config.work.span(), config.work.get_ref());
    let kind = *work.kind.get_ref();
    let forwards = matches!(kind, WorkKind::Forward | WorkKind::Burn);
    let routes = matches!(kind, WorkKind::Route | WorkKind::Ipsec);
    let span = |value: Option<Range<usize>>, fits: bool| value.filter(|_| !fits);
    let ports = work.ports.as_ref().map(Spanned::span);
    let age = work.age_ms.as_ref().map(Spanned::span);
    let stations = work.stations.as_ref().map(Spanned::span);
    let route = work.route.first().map(Spanned::span);
    let foreign = [
        ("ports", "forward", span(ports, forwards)),
        ("age_ms", "bridge", span(age, kind == WorkKind::Bridge)),
        ("stations", "bridge", span(stations, kind == WorkKind::Bridge)),
        ("route", "route", span(route, routes)),
    ];
    for (word, owner, at) in foreign {
        if let Some(at) = at {
            let what = format!("'{word}' is for kind = \"{owner}\"");
            return Err(config.error(at, what, "write that kind, or leave it out"));
        }
    }
    if kind == WorkKind::Burn && work.cost_ns.is_none() {
        return Err(config.error(at, "the key 'cost_ns' is missing", "add 'cost_ns = ...'"));
    }
    if let Some(cost) = &work.cost_ns
        && *cost.get_ref() > 1_000_000_000
    {
        let what = format!("a core cannot be kept busy for {} ns with each frame", cost.get_ref());
        return Err(config.error(cost.span(), what, "write 0 to 1000000000 (1 s)"));
    }
    if let Some(ports) = &work.ports {
        for (from, to) in ports.get_ref() {
            port_name(config, from, ports.span())?;
            port_name(config, to.get_ref(), to.span())?;
        }
    }
    if let Some(age) = &work.age_ms
        && !(1..=1_000_000_000).contains(age.get_ref())
    {
        let what = format!("an ageing time of {} ms is not possible", age.get_ref());
        return Err(config.error(age.span(), what, "write 1 to 1000000000"));
    }
    if let Some(stations) = &work.stations
        && !(1..=1 << 24).contains(stations.get_ref())
    {
        let what = format!("a core cannot know {} stations", stations.get_ref());
        return Err(config.error(stations.span(), what, "write 1 to 16777216"));
    }
    config.port_macs()?;
    if routes && work.route.is_empty() {
        let fix = "add a [[work.route]] with prefix, port and next_hop";
        return Err(config.error(at, "there is no route", fix));
    }
    let mut known = HashSet::new();
    for (route, text) in config.routes()?.iter().zip(&work.route) {
        if !known.insert(route.prefix) {
            let what = format!("there is a route to {} already", route.prefix);
            return Err(config.error(
                text.get_ref().prefix.span(),
                what,
                "leave one of them out: a prefix has one next hop",
            ));
        }
    }
    Ok(())
}

//! Services of other balancers as `[[service]]` sections: the rules of IPVS and the configuration of keepalived.
//!
//! ```text
//!  ipvsadm -S -n ──> ipvsadm ──┐
//!                              ├──> services ──> TOML
//!  keepalived.conf ─> keepalived ┘        └──> what could not be carried over, by line
//! ```
//!
//! Nothing is dropped silently: every word of the input is either carried over or reported. A word that is carried over in
//! another form is reported with what it became.
//!
//! Thread-safety: plain functions on plain values.

use std::collections::BTreeSet;
use std::fmt::{self, Write};
use std::net::IpAddr;

mod ipvsadm;
mod keepalived;
#[cfg(test)]
mod tests;

/// Services, and what is to be known about them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Imported {
    /// The services, in the order of the input.
    services: Vec<Service>,
    /// What was not carried over, or not as it was, in the order of the input.
    pub notes: Vec<Note>,
}

/// Something in the input that was not carried over, or not as it was.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Note {
    /// The line in the input, from 1.
    pub line: usize,
    /// What it is, and what happens instead.
    pub text: String,
}

/// A format that can be imported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// The output of `ipvsadm -S -n` (ipvsadm(8)).
    Ipvsadm,
    /// The file of keepalived (keepalived.conf(5)); only `virtual_server` and `virtual_server_group` blocks.
    Keepalived,
}

impl Format {
    /// The format that a text seems to have.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let is_rule = |line: &str| line.starts_with("-A ") || line.starts_with("-a ");
        if text.lines().map(str::trim_start).any(is_rule) {
            Self::Ipvsadm
        } else {
            Self::Keepalived
        }
    }
}

/// The input is wrong, or has no service.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ImportError {
    /// The line in the input, from 1.
    pub line: usize,
    /// What is wrong, and how to fix it.
    pub what: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Service {
    /// Where it is in the input.
    line: usize,
    vip: IpAddr,
    /// `tcp`, `udp` or `sctp`.
    proto: &'static str,
    /// 0 is every port.
    port: u16,
    mode: &'static str,
    choice: &'static str,
    /// The time of persistence in seconds, and the bits of a network.
    persist: Option<u64>,
    one_packet: bool,
    mask: Option<u8>,
    check: Option<Check>,
    backends: Vec<Backend>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Backend {
    addr: IpAddr,
    port: u16,
    weight: u32,
    backup: bool,
    /// The limit of its connections, and the lower threshold; 0 is none.
    limit: u32,
    resume: u32,
}

/// A health check: the keys of `[service.check]` as they are written.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Check {
    kind: &'static str,
    keys: Vec<(&'static str, String)>,
}

/// The largest weight that a backend can have.
const HEAVIEST: u32 = flowyard_lb::HEAVIEST;

/// Reads services.
///
/// # Errors
/// The first line that the other program would not accept, or that there is no service.
pub fn read(text: &str, format: Format) -> Result<Imported, ImportError> {
    let imported = match format {
        Format::Ipvsadm => ipvsadm::read(text)?,
        Format::Keepalived => keepalived::read(text)?,
    };
    let mut imported = imported.unique();
    imported.notes.sort_by_key(|note| note.line);
    if imported.services.is_empty() {
        let what = match format {
            Format::Ipvsadm => {
                "there is no service that can be imported; write the output of 'ipvsadm -S -n' to the file"
            }
            Format::Keepalived => "there is no virtual_server that can be imported",
        };
        return Err(ImportError { line: text.lines().count().max(1), what: what.into() });
    }
    Ok(imported)
}

impl Imported {
    fn note(&mut self, line: usize, text: impl Into<String>) {
        self.notes.push(Note { line, text: text.into() });
    }

    /// Two services with one address, protocol and port cannot exist in one balancer: the first one stays. The same holds
    /// for backends of a service.
    fn unique(mut self) -> Self {
        let mut seen = BTreeSet::new();
        let notes = &mut self.notes;
        self.services.retain_mut(|service| {
            let mut backends = BTreeSet::new();
            service.backends.retain(|backend| backends.insert((backend.addr, backend.port)));
            service.one_family(notes);
            let is_new = seen.insert((service.vip, service.proto, service.port));
            let why = match (is_new, service.backends.is_empty()) {
                (false, _) => "there is another one with this address, protocol and port",
                (true, true) => "it has no server that could be carried over",
                (true, false) => return true,
            };
            let text = format!("service '{}' is left out: {why}", service.name());
            notes.push(Note { line: service.line, text });
            false
        });
        self
    }

    /// The number of services, and of their backends.
    #[must_use]
    pub fn count(&self) -> (usize, usize) {
        (self.services.len(), self.services.iter().map(|service| service.backends.len()).sum())
    }

    /// The sections for a configuration. Backends are reached by port `exit` of the yard.
    #[must_use]
    pub fn toml(&self, exit: &str) -> String {
        let mut all = String::new();
        for service in &self.services {
            let _written = service.write(&mut all, exit); // to a String
        }
        all
    }
}

/// An address and a port, as a name without characters that need quotes.
fn name(addr: IpAddr, port: u16) -> String {
    match port {
        0 => addr.to_string(),
        _ => format!("{addr}-{port}"),
    }
}

impl Service {
    fn name(&self) -> String {
        format!("{}-{}", self.proto, name(self.vip, self.port))
    }

    /// Only tunnels lead to backends of the other IP version.
    fn one_family(&mut self, notes: &mut Vec<Note>) {
        if matches!(self.mode, "ipip" | "gue") {
            return;
        }
        let (line, is_ipv4, name) = (self.line, self.vip.is_ipv4(), self.name());
        self.backends.retain(|backend| {
            let fits = backend.addr.is_ipv4() == is_ipv4;
            if !fits {
                let text = format!(
                    "server {} of service '{name}' is left out: it has the other IP version, which only tunnels reach",
                    backend.addr
                );
                notes.push(Note { line, text });
            }
            fits
        });
    }

    fn write(&self, to: &mut String, exit: &str) -> fmt::Result {
        writeln!(to, "[[service]]\nname = {}\nvip = \"{}\"", quoted(&self.name()), self.vip)?;
        writeln!(to, "proto = \"{}\"", self.proto)?;
        match self.port {
            0 => writeln!(to, "port = \"1-65535\"")?,
            port => writeln!(to, "port = {port}")?,
        }
        writeln!(to, "mode = \"{}\"\nchoice = \"{}\"", self.mode, self.choice)?;
        if self.one_packet {
            writeln!(to, "one_packet = true")?;
        }
        if let Some(seconds) = self.persist {
            let key = if self.vip.is_ipv4() { "mask_ipv4" } else { "mask_ipv6" };
            let most = if self.vip.is_ipv4() { 32 } else { 128 };
            let mask = self.mask.filter(|bits| *bits < most);
            let mask = mask.map_or_else(String::new, |bits| format!(", {key} = {bits}"));
            writeln!(to, "persist = {{ seconds = {seconds}{mask} }}")?;
        }
        if let Some(Check { kind, keys }) = &self.check {
            writeln!(to, "\n[service.check]\nkind = \"{kind}\"")?;
            keys.iter().try_for_each(|(key, value)| writeln!(to, "{key} = {value}"))?;
        }
        // Only these modes translate the port.
        let translates = matches!(self.mode, "dnat" | "fullnat");
        for Backend { addr, port, weight, backup, limit, resume } in &self.backends {
            let named = quoted(&name(*addr, *port));
            writeln!(to, "\n[[service.backend]]\nname = {named}\naddr = \"{addr}\"")?;
            if translates && *port != 0 && *port != self.port {
                writeln!(to, "port = {port}")?;
            }
            if *backup {
                writeln!(to, "backup = true")?;
            }
            if *limit > 0 {
                writeln!(to, "max_connections = {limit}")?;
            }
            if *resume > 0 {
                writeln!(to, "resume_connections = {resume}")?;
            }
            writeln!(to, "weight = {weight}\nexit = {{ port = {} }}", quoted(exit))?;
        }
        writeln!(to)
    }
}

/// A string of TOML.
fn quoted(text: &str) -> String {
    let mut all = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => all += "\\\"",
            '\\' => all += "\\\\",
            c if c.is_control() => {
                let _written = write!(all, "\\u{:04X}", u32::from(c)); // to a String
            }
            c => all.push(c),
        }
    }
    all + "\""
}

/// The way in which a backend is chosen that comes next to a scheduler of IPVS, and a remark if it is another one.
fn choice(scheduler: &str) -> (&'static str, Option<String>) {
    match scheduler {
        "rr" | "wrr" => ("roundrobin", None),
        "lc" => (
            "wlc",
            Some("the scheduler 'lc' ignores weights, and choice = \"wlc\" does not".into()),
        ),
        "wlc" => ("wlc", None),
        "sed" => ("sed", None),
        "nq" => ("nq", None),
        "fo" => ("fo", None),
        "ovf" => ("ovf", None),
        "sh" => ("source", None),
        "mh" => ("maglev", None),
        "lblc" | "lblcr" | "dh" | "twos" => {
            let near = if scheduler == "twos" { "least" } else { "maglev" };
            let what = "does not exist in flowyard";
            (near, Some(format!("the scheduler '{scheduler}' {what}; choice = \"{near}\" is used")))
        }
        _ => (
            "maglev",
            Some(format!("the scheduler '{scheduler}' is not known; choice = \"maglev\" is used")),
        ),
    }
}

/// The time of persistence in seconds, within the limits.
fn persistence(imported: &mut Imported, line: usize, seconds: u64) -> u64 {
    let most = crate::balance::LONGEST_PERSISTENCE;
    if !(1..=most).contains(&seconds) {
        imported.note(
            line,
            format!("persistence of {seconds} s becomes one of {}", seconds.clamp(1, most)),
        );
    }
    seconds.clamp(1, most)
}

/// The number of leading bits of a mask: `255.255.255.0`, or a number for IPv6. `None`, with a note, if it has other bits.
fn mask(imported: &mut Imported, line: usize, text: &str) -> Option<u8> {
    let bits = match text.parse::<std::net::Ipv4Addr>() {
        Ok(mask) if mask.to_bits().leading_ones() + mask.to_bits().trailing_zeros() == 32 => {
            mask.to_bits().leading_ones() as u8
        }
        Ok(_) => 0,
        Err(_) => text.parse().unwrap_or(0),
    };
    if !(1..=128).contains(&bits) {
        let text =
            format!("the mask '{text}' of persistence is left out: it is not that of a network");
        imported.note(line, text);
        return None;
    }
    Some(bits)
}

/// Thresholds of a server's connections as they can be carried over.
fn thresholds(imported: &mut Imported, line: usize, limit: u32, resume: u32) -> (u32, u32) {
    let what = match (limit, resume) {
        (0, 1..) => "a lower threshold without an upper one has no effect, and is left out",
        (limit, resume) if resume > limit => {
            "a lower threshold above the upper one is left out; the default is three quarters of the upper one"
        }
        _ => return (limit, resume),
    };
    imported.note(line, format!("{what} (upper {limit}, lower {resume})"));
    (limit, 0)
}

/// Leaves out what a service with one-packet scheduling cannot have.
fn one_packet(imported: &mut Imported, line: usize, service: &mut Service) {
    if service.one_packet && service.proto != "udp" {
        imported.note(line, "one-packet scheduling is left out: it exists for UDP only");
        service.one_packet = false;
    }
}

/// Leaves out the thresholds of a server if its service has no connections.
fn no_limits(service: &mut Service, line: usize, notes: &mut Vec<Note>) {
    let Some(backend) = service.backends.last_mut().filter(|_| service.one_packet) else { return };
    if backend.limit > 0 {
        let text =
            "the limit of connections is left out: with one-packet scheduling there are none"
                .into();
        notes.push(Note { line, text });
        (backend.limit, backend.resume) = (0, 0);
    }
}

/// A weight within the limits.
fn weight(imported: &mut Imported, line: usize, wanted: u32) -> u32 {
    if wanted > HEAVIEST {
        imported.note(line, format!("weight {wanted} is reduced to the maximum, {HEAVIEST}"));
    }
    wanted.min(HEAVIEST)
}

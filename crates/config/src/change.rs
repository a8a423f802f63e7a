//! The differences between a configuration that is running and a new one, and what becomes of each.
//!
//! ```text
//!  running ──┐                    ┌─ Live      a reload applies it
//!            ├─ key by key ──> ───┼─ TakeOver  a new process applies it, which takes over without loss
//!  new ──────┘                    └─ Restart   only a restart applies it
//! ```
//!
//! Invariants: every key with another value is in exactly one class; a key that is in no list counts as one that needs a
//! restart. Values of secrets are not printed.
//! Thread-safety: plain functions on plain values.

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};
use toml::Spanned;

use super::{Config, OffloadConfig, PortConfig, PortKind, WorkKind};
pub use keys::How;

mod keys;

/// The longest value that is printed, in characters.
const LONGEST: usize = 60;

/// A key with another value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The key and its section, as `'cores' in [yard]`.
    pub key: String,
    /// The heading of the section, as `[yard]`.
    pub section: String,
    /// The running value and the new one; `None` if they are not printed.
    pub values: Option<(String, String)>,
    /// What becomes of it.
    pub how: How,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.values {
            Some((old, new)) => write!(f, "{} ({old} to {new})", self.key),
            None => write!(f, "{} (a secret)", self.key),
        }
    }
}

/// What a new configuration needs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Needs {
    /// Nothing: no key differs.
    Nothing,
    /// A reload.
    Reload,
    /// A new process, which can take over without loss.
    TakeOver,
    /// A restart.
    Restart,
}

/// The differences of two configurations.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// The keys with other values.
    pub keys: Vec<Change>,
    /// Why a new process cannot take over from the running one, besides keys that need a restart.
    pub obstacles: Vec<String>,
}

impl Changes {
    /// What the new configuration needs.
    #[must_use]
    pub fn needs(&self) -> Needs {
        let hardest = self.keys.iter().map(|change| change.how).max();
        match hardest {
            None | Some(How::Scenario) => Needs::Nothing,
            Some(How::Live) => Needs::Reload,
            Some(How::TakeOver) if self.obstacles.is_empty() => Needs::TakeOver,
            Some(How::TakeOver | How::Restart) => Needs::Restart,
        }
    }

    /// The keys that a reload cannot apply.
    pub fn unapplied(&self) -> impl Iterator<Item = &Change> {
        self.keys.iter().filter(|change| change.how >= How::TakeOver)
    }

    /// The keys that a reload cannot apply with their values, why nothing but a restart can apply them, and what to do.
    /// `command` starts a process that takes over. `None` if a reload applies all.
    #[must_use]
    pub fn refusal(&self, command: &str) -> Option<(String, String)> {
        let list = |changes: &mut dyn Iterator<Item = &Change>| {
            changes.map(Change::to_string).collect::<Vec<_>>().join(", ")
        };
        let all = list(&mut self.unapplied());
        let fix = match self.needs() {
            Needs::Nothing | Needs::Reload => return None,
            Needs::TakeOver => format!("run '{command}' to apply them without losing a frame"),
            Needs::Restart if self.obstacles.is_empty() => {
                let mut hard = self.keys.iter().filter(|change| change.how == How::Restart);
                let hard: Vec<_> = hard.by_ref().map(|change| change.key.as_str()).collect();
                let also = match hard.iter().any(|key| key.ends_with(" in [switch]")) {
                    true => ", or change the running switch with 'flowyard switch'",
                    false => "",
                };
                format!(
                    "restart to apply them, because a process that takes over cannot change {}{also}",
                    hard.join(", ")
                )
            }
            Needs::Restart => {
                format!("restart to apply them, because {}", self.obstacles.join("; "))
            }
        };
        Some((format!("a reload cannot change {all}"), fix))
    }
}

impl Config {
    /// The differences between the running configuration and `new`.
    #[must_use]
    pub fn changes(&self, new: &Self) -> Changes {
        let mut keys = Vec::new();
        let all = At { path: "", section: "", key: "", how: None, is_secret: false };
        compare(all, (&tree(self), &tree(new)), &mut keys);
        let needs_process = keys.iter().any(|change| change.how == How::TakeOver);
        let obstacles = if needs_process { self.obstacles(new) } else { Vec::new() };
        Changes { keys, obstacles }
    }

    /// Why a process with the configuration `new` cannot take over from one with this.
    fn obstacles(&self, new: &Self) -> Vec<String> {
        let mut all = Vec::new();
        match self.work.get_ref().kind.get_ref() {
            WorkKind::Switch => all.push("a switch cannot be taken over".to_owned()),
            WorkKind::Ipsec => all.push("a gateway of IPsec cannot be taken over".to_owned()),
            _ => {}
        }
        let is_on =
            |offload: &Spanned<OffloadConfig>| offload.get_ref().xdp || offload.get_ref().rules;
        if self.offload.as_ref().is_some_and(is_on) {
            all.push("an instance with [offload] cannot be taken over".to_owned());
        }
        let stays = |port: &&PortConfig| {
            !matches!(port.kind, PortKind::AfPacket | PortKind::AfXdp | PortKind::Tap)
        };
        if let Some(port) = self.ports().find(stays) {
            let (name, kind) = (port.name.get_ref(), port.kind.name());
            all.push(format!("port '{name}' of kind \"{kind}\" cannot be taken over"));
        }
        let [before, after] = [self, new].map(|config| config.balance().local);
        let is_kept = before.len() <= after.len() && before.iter().zip(&after).all(|(a, b)| a == b);
        if !is_kept {
            // An address must stay on its core, or its connections are left out. Addresses are assigned to cores in turn.
            all.push(
                "connections use the addresses of 'local' in [balance]: others can only be added behind them"
                    .to_owned(),
            );
        }
        all.extend(new.unfit(&self.opened()).err());
        all
    }

    /// The ports as they are opened, for a process that takes over.
    #[must_use]
    pub fn opened(&self) -> Vec<OpenedPort> {
        let is_pinned = !self.yard.pin.get_ref().is_empty();
        let one = |port: &PortConfig| OpenedPort {
            name: port.name.get_ref().clone(),
            kind: port.kind.name().to_owned(),
            interface: port.interface.as_ref().map(|name| name.get_ref().clone()),
            settings: settings(port, is_pinned),
        };
        self.ports().map(one).collect()
    }

    /// Whether a process with this configuration can go on with the ports of one that has opened `running`.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn unfit(&self, running: &[OpenedPort]) -> Result<(), String> {
        let mine = self.opened();
        for port in &mine {
            let name = &port.name;
            let same = running.iter().find(|other| other.is_continued_by(port));
            if let Some(other) = same {
                if other.settings != port.settings {
                    let what = differing(&other.settings, &port.settings);
                    return Err(format!("port '{name}' is open with another {what}"));
                }
                continue;
            }
            let taken = running.iter().find(|other| other.interface == port.interface);
            if let (Some(other), Some(interface)) = (taken, &port.interface) {
                return Err(format!(
                    "interface '{interface}' of port '{name}' is in use by port '{}' of kind \"{}\"",
                    other.name, other.kind
                ));
            }
        }
        let is_gone = |port: &&OpenedPort| !mine.iter().any(|new| port.is_continued_by(new));
        let uses_xdp = running.iter().any(|port| port.kind == PortKind::AfXdp.name());
        match running.iter().find(is_gone).filter(|_| uses_xdp) {
            // The kernel would still write into buffers of the pool that it had for this port.
            Some(port) => Err(format!(
                "port '{}' does not stay, and with ports of kind \"af_xdp\" all must stay",
                port.name
            )),
            None => Ok(()),
        }
    }
}

/// A port that a running process has opened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, serde::Deserialize)]
pub struct OpenedPort {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// Its interface.
    pub interface: Option<String>,
    /// The keys that the kernel was configured with when the port was opened, with their values.
    pub settings: Vec<(String, String)>,
}

impl OpenedPort {
    /// Whether a process that takes over goes on with this port as `new`: its other ports are opened anew.
    #[must_use]
    pub fn is_continued_by(&self, new: &Self) -> bool {
        (&self.name, &self.kind, &self.interface) == (&new.name, &new.kind, &new.interface)
    }
}

/// What the kernel is configured with when a port is opened: the keys that need a restart.
fn settings(port: &PortConfig, is_pinned: bool) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (key, value) in object(port) {
        if keys::how(&format!("port.{key}")) == Some(How::Restart) && !value.is_null() {
            // What is not printed is not needed: ports with secrets cannot be taken over.
            all.push((key, value.to_string()));
        }
    }
    if port.kind == PortKind::AfPacket {
        all.push(("pin".into(), is_pinned.to_string()));
    }
    all
}

/// The first key with different values.
fn differing(old: &[(String, String)], new: &[(String, String)]) -> String {
    let of = |all: &[(String, String)], key: &str| {
        all.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone())
    };
    let keys = old.iter().chain(new).map(|(key, _)| key);
    let key = keys.into_iter().find(|key| of(old, key) != of(new, key));
    key.map_or_else(String::new, |key| format!("'{key}'"))
}

/// The keys of a section or table.
fn object(value: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(value) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

/// All keys, with the defaults of sections whose absence means these.
fn tree(config: &Config) -> Value {
    let mut all = object(config);
    all.insert("balance".into(), Value::Object(object(&config.balance())));
    all.insert("switch".into(), Value::Object(object(&config.switch())));
    Value::Object(all)
}

/// Where two values are compared.
#[derive(Clone, Copy)]
struct At<'a> {
    /// The path in the lists of classes, as `port.offload.csum`.
    path: &'a str,
    /// The section for the user, as `[[port]] 'west'`.
    section: &'a str,
    /// The key within the section, as `offload.csum`.
    key: &'a str,
    how: Option<How>,
    is_secret: bool,
}

/// Compares two values.
fn compare(at: At<'_>, (old, new): (&Value, &Value), into: &mut Vec<Change>) {
    if old == new {
        return;
    }
    let how = keys::how(at.path).or(at.how);
    let at = At { how, is_secret: at.is_secret || keys::is_secret(at.path), ..at };
    match (old, new) {
        (Value::Object(_), Value::Object(_) | Value::Null) | (Value::Null, Value::Object(_)) => {
            compare_keys(at, (old, new), into);
        }
        (Value::Array(a), Value::Array(b)) if a.iter().chain(b).all(has_name) => {
            compare_named(at, (a, b), into);
        }
        _ => into.push(change(at, shown(old), shown(new))),
    }
}

fn compare_keys(at: At<'_>, (old, new): (&Value, &Value), into: &mut Vec<Change>) {
    let (none, null) = (Map::new(), Value::Null);
    let [a, b] = [old, new].map(|value| value.as_object().unwrap_or(&none));
    for name in a.keys().chain(b.keys().filter(|key| !a.contains_key(*key))) {
        let below = |front: &str| match front {
            "" => name.clone(),
            front => format!("{front}.{name}"),
        };
        let both = (a.get(name).unwrap_or(&null), b.get(name).unwrap_or(&null));
        let (path, key) = (below(at.path), below(at.key));
        let is_list = both.0.is_array() || both.1.is_array();
        let inner = match (at.section, is_list) {
            ("", true) => At { path: &path, section: &format!("[[{name}]]"), key: "", ..at },
            ("", false) => At { path: &path, section: &format!("[{name}]"), key: "", ..at },
            _ => At { path: &path, key: &key, ..at },
        };
        compare(inner, both, into);
    }
}

fn has_name(value: &Value) -> bool {
    value.get("name").is_some_and(Value::is_string)
}

fn name(value: &Value) -> &str {
    value.get("name").and_then(Value::as_str).unwrap_or_default()
}

/// Compares two lists of tables with names, such as the ports.
fn compare_named(at: At<'_>, (old, new): (&[Value], &[Value]), into: &mut Vec<Change>) {
    let order = |all: &[Value]| Value::from(all.iter().map(name).collect::<Vec<_>>());
    if order(old) != order(new) {
        let path = format!("{}.name", at.path);
        let at = At { how: keys::how(&path).or(at.how), key: "name", ..at };
        into.push(change(at, shown(&order(old)), shown(&order(new))));
    }
    for before in old {
        let Some(after) = new.iter().find(|after| name(after) == name(before)) else { continue };
        let section = match at.key {
            "" => format!("{} '{}'", at.section, name(before)),
            key => format!("{} {key} '{}'", at.section, name(before)),
        };
        compare_keys(At { section: &section, key: "", ..at }, (before, after), into);
    }
}

fn change(at: At<'_>, old: String, new: String) -> Change {
    let key = match at.key {
        "" => at.section.to_owned(),
        key => format!("'{key}' in {}", at.section),
    };
    let end = at.section.rfind(']').map_or(0, |end| end + 1);
    let section = at.section[..end].to_owned();
    let values = (!at.is_secret).then_some((old, new));
    Change { key, section, values, how: at.how.unwrap_or(How::Restart) }
}

/// A value as text.
fn shown(value: &Value) -> String {
    if value.is_null() {
        return "not set".into();
    }
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests;

//! A configuration in several texts: the file, and services and backends of a provider.
//!
//! ```text
//!  lb.toml                              [yard], [[port]], ..., [[service]]
//!  config/services/web                  the body of a [[service]] named web
//!  config/services/web/backends/a       the body of a [[service.backend]] named a
//!  (no key)                             a document of [[service]] tables
//! ```
//!
//! All texts stand one after the other in the source, so that a position names the text, too.
//!
//! Invariants: the order of the fragments has no effect; a fragment adds services or backends and nothing else.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::cluster::NO_COMMAND;
use super::{CheckKind, Config, ConfigError, ServiceConfig, Source, check};

/// What keys of services begin with, below the prefix of `[cluster]`.
pub const SERVICES: &str = "config/services/";
/// What stands between the name of a service and that of a backend.
const BACKENDS: &str = "/backends/";

/// A part of a configuration that is not in the file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Fragment {
    /// The key below the prefix, such as `config/services/web`; empty for a document of `[[service]]` tables.
    pub key: String,
    /// The value: TOML.
    pub text: String,
}

impl Fragment {
    /// Whether this is a document without a service. One that is not TOML may have been meant to have some.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let has_none = |table: &DeTable<'_>| match table.get("service").map(Spanned::get_ref) {
            None => true,
            Some(DeValue::Array(all)) => all.is_empty(),
            Some(_) => false,
        };
        self.key.is_empty()
            && DeTable::parse(&self.text).is_ok_and(|table| has_none(table.get_ref()))
    }
}

/// A table of TOML whose positions are those of the whole source.
type Table<'a> = Spanned<DeTable<'a>>;

/// A service under a key, and its backends under others.
struct Service<'a> {
    name: &'a str,
    body: Option<Table<'a>>,
    /// The position of its first key.
    at: Range<usize>,
    backends: Vec<Table<'a>>,
}

impl Config {
    /// Reads and checks a configuration whose services are in the text of the file and in `fragments`. `prefix` is for
    /// messages: it stands before the key of a fragment.
    ///
    /// # Errors
    /// The first mistake, with its place and the fix. The place is the file or a key.
    pub fn compose(
        name: &str,
        text: &str,
        prefix: &str,
        fragments: &[Fragment],
    ) -> Result<Self, ConfigError> {
        let mut fragments: Vec<&Fragment> = fragments.iter().collect();
        fragments.sort_unstable();
        let mut source = Source::new(name, text);
        let starts: Vec<usize> = fragments
            .iter()
            .map(|fragment| match fragment.key.as_str() {
                "" => source.add(prefix, &fragment.text),
                key => source.add(&format!("{prefix}/{key}"), &fragment.text),
            })
            .collect();
        let mut root = table(&source, text, 0)?;
        let mut services = BTreeMap::new();
        for (fragment, start) in fragments.iter().zip(starts) {
            match fragment.key.as_str() {
                "" => document(&source, root.get_mut(), &fragment.text, start)?,
                _ => place(&source, &mut services, fragment, start)?,
            }
        }
        add(&source, root.get_mut(), services)?;
        let config = Self::deserialize(toml::Deserializer::from(root));
        let mut config = config.map_err(|error| source.untold(&error, 0))?;
        config.source = source;
        let of_file = config.service.iter().filter(|service| service.span().start < text.len());
        let of_file = of_file.count();
        config.service[of_file..].iter().try_for_each(|service| no_command(&config, service))?;
        check::check(&config)?;
        Ok(config)
    }

    /// The same file with other fragments. What does not come from the text stays, such as the secret.
    ///
    /// # Errors
    /// As [`Config::compose`].
    pub fn recompose(&self, prefix: &str, fragments: &[Fragment]) -> Result<Self, ConfigError> {
        let (name, text) = self.source.first();
        let mut new = Self::compose(name, text, prefix, fragments)?;
        new.keep_secret(self);
        new.ender = self.ender.clone();
        // Only the pace is changed after a file is read.
        new.port = self.port.clone();
        Ok(new)
    }
}

/// Reads the TOML of one text, which begins at `start` in the source.
fn table<'a>(source: &Source, text: &'a str, start: usize) -> Result<Table<'a>, ConfigError> {
    let table = DeTable::parse(text).map_err(|error| source.untold(&error, start))?;
    let span = table.span();
    Ok(Spanned::new(moved(span, start), move_table(table.into_inner(), start)))
}

const fn moved(span: Range<usize>, by: usize) -> Range<usize> {
    span.start + by..span.end + by
}

fn move_table(table: DeTable<'_>, by: usize) -> DeTable<'_> {
    let mut all = DeTable::new();
    for (key, value) in table {
        let key = Spanned::new(moved(key.span(), by), key.into_inner());
        all.insert(key, move_value(value, by));
    }
    all
}

fn move_value(value: Spanned<DeValue<'_>>, by: usize) -> Spanned<DeValue<'_>> {
    let span = moved(value.span(), by);
    let value = match value.into_inner() {
        DeValue::Table(table) => DeValue::Table(move_table(table, by)),
        DeValue::Array(array) => {
            let mut all = DeArray::new();
            array.iter().cloned().for_each(|value| all.push(move_value(value, by)));
            DeValue::Array(all)
        }
        plain => plain,
    };
    Spanned::new(span, value)
}

/// Reads a document of `[[service]]` tables, which begins at `start` in the source, and adds them to those of the file.
fn document<'a>(
    source: &Source,
    root: &mut DeTable<'a>,
    text: &'a str,
    start: usize,
) -> Result<(), ConfigError> {
    for (key, value) in table(source, text, start)?.into_inner() {
        if key.get_ref() != "service" {
            let what = format!("there is no key '{}' here", key.get_ref());
            let fix = "write nothing but [[service]] tables; all other sections are in the file of each machine";
            return Err(source.error(key.span(), what, fix));
        }
        let wrong = |at: Range<usize>| {
            source.error(at, "the services are not a list of tables", "write each as [[service]]")
        };
        let at = value.span();
        let DeValue::Array(all) = value.into_inner() else { return Err(wrong(at)) };
        let mut bodies = Vec::with_capacity(all.len());
        for value in all.iter().cloned() {
            let at = value.span();
            match value.into_inner() {
                DeValue::Table(body) => bodies.push(Spanned::new(at, body)),
                _ => return Err(wrong(at)),
            }
        }
        extend(root, "service", bodies);
    }
    Ok(())
}

/// Reads a fragment, which begins at `start` in the source, and puts it with its service.
fn place<'a>(
    source: &Source,
    services: &mut BTreeMap<&'a str, Service<'a>>,
    fragment: &'a Fragment,
    start: usize,
) -> Result<(), ConfigError> {
    let at = start..start;
    let path = fragment.key.strip_prefix(SERVICES).unwrap_or_default();
    let (name, backend) = match path.split_once(BACKENDS) {
        Some((name, backend)) => (name, Some(backend)),
        None => (path, None),
    };
    let is_name = |name: &str| !name.is_empty() && !name.contains('/');
    if !is_name(name) || !backend.is_none_or(is_name) {
        let fix = "services are under config/services/NAME, and their backends under \
                   config/services/NAME/backends/BACKEND; delete this key";
        return Err(source.error(at, "no configuration is read from a key of this name", fix));
    }
    let mut body = table(source, &fragment.text, start)?;
    if let Some((key, _)) = body.get_ref().get_key_value("name") {
        let what = "the name is the last part of the key";
        return Err(source.error(key.span(), what, "leave 'name' out"));
    }
    let own = DeValue::String(backend.unwrap_or(name).into());
    body.get_mut().insert(Spanned::new(at.clone(), "name".into()), Spanned::new(at.clone(), own));
    let none = || Service { name, body: None, at, backends: Vec::new() };
    let service = services.entry(name).or_insert_with(none);
    match backend {
        None => service.body = Some(body),
        Some(_) => service.backends.push(body),
    }
    Ok(())
}

/// Adds services to those of the file.
fn add<'a>(
    source: &Source,
    root: &mut DeTable<'a>,
    services: BTreeMap<&'a str, Service<'a>>,
) -> Result<(), ConfigError> {
    for service in services.into_values() {
        let Service { name, body, at, backends } = service;
        let Some(mut body) = body else {
            let is_dns = provider(root) == Some("dns");
            match of_file(root, name) {
                Some(service) if is_dns => {
                    let backends = with_exit(service, of_version(service, backends));
                    extend(service, "backend", backends);
                    continue;
                }
                // The service was taken out of the file.
                None if is_dns => continue,
                _ => {}
            }
            let what = format!("this is a backend of service '{name}', which is not there");
            let fix = format!("put the service under {SERVICES}{name}, or delete this key");
            return Err(source.error(at, what, fix));
        };
        let backends = match kubernetes(root) {
            Some(cluster) => common(cluster, body.get_mut(), backends),
            None => backends,
        };
        extend(body.get_mut(), "backend", backends);
        extend(root, "service", vec![body]);
    }
    Ok(())
}

/// The kind of the provider in the file.
fn provider<'a>(root: &'a DeTable<'_>) -> Option<&'a str> {
    let DeValue::Table(cluster) = root.get("cluster")?.get_ref() else { return None };
    cluster.get("kind")?.get_ref().as_str()
}

/// `[cluster]`, if the provider is Kubernetes.
fn kubernetes<'a, 'b>(root: &'a DeTable<'b>) -> Option<&'a DeTable<'b>> {
    match root.get("cluster")?.get_ref() {
        DeValue::Table(cluster) if provider(root) == Some("kubernetes") => Some(cluster),
        _ => None,
    }
}

/// Adds what all services have, and the exit of all backends.
fn common<'a>(
    cluster: &DeTable<'a>,
    service: &mut DeTable<'a>,
    mut backends: Vec<Table<'a>>,
) -> Vec<Table<'a>> {
    if let Some(DeValue::Table(all)) = cluster.get("service").map(Spanned::get_ref) {
        for (key, value) in all {
            if !service.contains_key(&**key.get_ref()) {
                service.insert(key.clone(), value.clone());
            }
        }
    }
    if let Some((key, exit)) = cluster.get_key_value("exit") {
        for backend in &mut backends {
            backend.get_mut().insert(key.clone(), exit.clone());
        }
    }
    backends
}

/// The service of this name in the file, if its backends come from SRV records.
fn of_file<'a, 'b>(root: &'a mut DeTable<'b>, name: &str) -> Option<&'a mut DeTable<'b>> {
    let DeValue::Array(all) = root.get_mut("service")?.get_mut() else { return None };
    all.iter_mut().find_map(|service| match service.get_mut() {
        DeValue::Table(service) => {
            let own = service.get("name").and_then(|own| own.get_ref().as_str());
            (own == Some(name) && service.contains_key("srv")).then_some(service)
        }
        _ => None,
    })
}

/// The backends whose addresses have the IP version of the VIP. Others are from before a change of the VIP in the file.
fn of_version<'a>(service: &DeTable<'a>, mut backends: Vec<Table<'a>>) -> Vec<Table<'a>> {
    let is_v6 = |table: &DeTable<'_>, key: &str| {
        let addr = table.get(key)?.get_ref().as_str()?.parse::<IpAddr>().ok()?;
        Some(addr.is_ipv6())
    };
    if let Some(vip) = is_v6(service, "vip") {
        backends.retain(|backend| is_v6(backend.get_ref(), "addr").is_none_or(|own| own == vip));
    }
    backends
}

/// Backends with the exit that is written for the SRV records of their service.
fn with_exit<'a>(service: &DeTable<'a>, mut backends: Vec<Table<'a>>) -> Vec<Table<'a>> {
    let Some(DeValue::Table(srv)) = service.get("srv").map(Spanned::get_ref) else {
        return backends;
    };
    let Some((key, exit)) = srv.get_key_value("exit") else { return backends };
    for backend in &mut backends {
        backend.get_mut().insert(key.clone(), exit.clone());
    }
    backends
}

/// Adds tables to the array under `key`. If something else is there, it stays, and is refused later.
fn extend<'a>(table: &mut DeTable<'a>, key: &'static str, more: Vec<Table<'a>>) {
    let Some(at) = more.first().map(Spanned::span) else { return };
    let at = at.start..at.start;
    if !table.contains_key(key) {
        let none = DeValue::Array(DeArray::new());
        table.insert(Spanned::new(at.clone(), key.into()), Spanned::new(at, none));
    }
    if let Some(DeValue::Array(array)) = table.get_mut(key).map(Spanned::get_mut) {
        for body in more {
            let span = body.span();
            array.push(Spanned::new(span, DeValue::Table(body.into_inner())));
        }
    }
}

/// Refuses a health check that runs a command: who may write to a provider may not run programs on the machines.
fn no_command(config: &Config, service: &Spanned<ServiceConfig>) -> Result<(), ConfigError> {
    let check = service.get_ref().check.as_ref();
    match check.filter(|check| check.get_ref().kind == CheckKind::Command) {
        None => Ok(()),
        Some(check) => {
            let fix = "write the service in the file of each machine, or use another kind of check";
            Err(config.error(check.span(), NO_COMMAND, fix))
        }
    }
}

#[cfg(test)]
mod tests;

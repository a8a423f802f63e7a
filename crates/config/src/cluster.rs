//! The keys of `[cluster]`, and their checks.

use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::exit::ExitConfig;
use super::names::Checked;
use super::{Config, ConfigError, Source, file, free};

mod address;
mod srv;

pub use address::{Endpoint, Url};
pub use srv::Lookup;

/// Why a health check of kind `command` is refused.
pub(super) const NO_COMMAND: &str = "a health check of a service that does not come from the file of this machine cannot run a command";

/// What services come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProviderKind {
    /// Keys of etcd.
    #[default]
    Etcd,
    /// A document at a URL.
    Http,
    /// SRV records, which have the backends of services in the file.
    Dns,
    /// Services and EndpointSlices of the Kubernetes API.
    Kubernetes,
}

impl fmt::Display for ProviderKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Etcd => "etcd",
            Self::Http => "HTTP",
            Self::Dns => "DNS",
            Self::Kubernetes => "Kubernetes",
        })
    }
}

impl ProviderKind {
    /// The word in the configuration.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::Http => "http",
            Self::Dns => "dns",
            Self::Kubernetes => "kubernetes",
        }
    }
}

/// `[cluster]`: where the services are that all balancers of a cluster have.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterConfig {
    /// What services come from.
    #[serde(default = "etcd")]
    pub kind: Spanned<ProviderKind>,
    /// The addresses of etcd, as `http://10.0.0.1:2379`, or of API servers of Kubernetes. They are tried in turn.
    pub endpoints: Option<Spanned<Vec<Spanned<String>>>>,
    /// The address of the document with the services.
    pub url: Option<Spanned<String>>,
    /// The addresses of DNS servers; by default those of the system.
    pub servers: Option<Spanned<Vec<Spanned<String>>>>,
    /// The namespace of Kubernetes whose services are taken; by default those of all.
    pub namespace: Option<Spanned<String>>,
    /// The class of the load balancers that are taken; by default those without a class.
    pub class: Option<Spanned<String>>,
    /// Of Kubernetes: the port and next hop towards all backends.
    pub exit: Option<Spanned<ExitConfig>>,
    /// Of Kubernetes: keys of all services, as `mode`.
    pub service: Option<Spanned<toml::Table>>,
    /// What all keys begin with.
    pub prefix: Option<Spanned<String>>,
    /// The name of this machine, different on each.
    pub node: Option<Spanned<String>>,
    /// The file in which the last good services are kept.
    pub state: Option<Spanned<PathBuf>>,
    /// The user of the server.
    pub user: Option<Spanned<String>>,
    /// The file with the password of the user.
    pub password_file: Option<Spanned<PathBuf>>,
    /// The file with a token that the server requires.
    pub token_file: Option<Spanned<PathBuf>>,
    /// The file with the authorities that sign certificates of the server; by default those of the system.
    pub ca: Option<Spanned<PathBuf>>,
    /// The file with the certificate of this machine.
    pub cert: Option<Spanned<PathBuf>>,
    /// The file with the key of the certificate.
    pub key: Option<Spanned<PathBuf>>,
    /// The time between two looks at the services, in milliseconds.
    #[serde(default = "poll")]
    pub poll_ms: Spanned<u64>,
    /// The time within which the server must answer one request, and at the start of the instance all that it needs, in
    /// milliseconds.
    #[serde(default = "timeout")]
    pub timeout_ms: Spanned<u64>,
}

fn etcd() -> Spanned<ProviderKind> {
    free(ProviderKind::Etcd)
}

fn poll() -> Spanned<u64> {
    free(1000)
}

fn timeout() -> Spanned<u64> {
    free(5000)
}

impl ClusterConfig {
    /// Reads only the section `[cluster]` of a file, which may have others.
    ///
    /// # Errors
    /// The file cannot be read, or the first mistake in the section.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        #[derive(Deserialize)]
        struct File {
            cluster: Option<Spanned<ClusterConfig>>,
        }
        let name = path.display().to_string();
        let text = file::text(path).map_err(|error| ConfigError::unread(&name, &error))?;
        let source = Source::new(&name, &text);
        let file: File = toml::from_str(&text).map_err(|error| source.untold(&error, 0))?;
        let none = || source.error(0..0, "there is no section [cluster]", "see docs/fleet.md");
        let cluster = file.cluster.ok_or_else(none)?;
        cluster.get_ref().check(cluster.span(), &source)?;
        Ok(cluster.into_inner())
    }

    /// The addresses of the server.
    #[must_use]
    pub fn endpoints(&self) -> Vec<Endpoint> {
        match self.kind.get_ref() {
            ProviderKind::Http => self.url().map(|url| url.endpoint).into_iter().collect(),
            ProviderKind::Etcd | ProviderKind::Kubernetes => {
                let all = self.endpoints.iter().flat_map(Spanned::get_ref);
                all.filter_map(|text| self.endpoint(text.get_ref()).ok()).collect()
            }
            ProviderKind::Dns => Vec::new(),
        }
    }

    /// Reads an address in `endpoints`.
    fn endpoint(&self, text: &str) -> Result<Endpoint, &'static str> {
        match self.kind.get_ref() {
            ProviderKind::Kubernetes => address::of_kubernetes(text),
            _ => text.parse(),
        }
    }

    /// The address of the document with the services.
    #[must_use]
    pub fn url(&self) -> Option<Url> {
        self.url.as_ref()?.get_ref().parse().ok()
    }

    /// The addresses of DNS servers, if some are written.
    #[must_use]
    pub fn servers(&self) -> Vec<SocketAddr> {
        let all = self.servers.iter().flat_map(Spanned::get_ref);
        all.filter_map(|text| srv::server(text.get_ref())).collect()
    }

    /// What all keys begin with.
    #[must_use]
    pub fn prefix(&self) -> &str {
        self.prefix.as_ref().map_or("/flowyard", |prefix| prefix.get_ref())
    }

    /// What services come from, as it stands before the keys of fragments in messages. The query of a URL may hold a
    /// secret, and is left out.
    #[must_use]
    pub fn place(&self) -> String {
        match self.kind.get_ref() {
            ProviderKind::Etcd => format!("etcd:{}", self.prefix()),
            ProviderKind::Http => {
                self.url.as_ref().map_or_else(String::new, |url| Url::redacted(url.get_ref()))
            }
            ProviderKind::Dns => "dns".into(),
            ProviderKind::Kubernetes => "kubernetes".into(),
        }
    }

    /// What the last good services in the file `state` belong to: a URL with its query, because documents may differ by
    /// it. Only the user of the balancer can read the file.
    #[must_use]
    pub fn identity(&self) -> String {
        match self.kind.get_ref() {
            ProviderKind::Etcd => self.prefix().to_owned(),
            ProviderKind::Http => {
                self.url.as_ref().map_or_else(String::new, |url| url.get_ref().clone())
            }
            ProviderKind::Dns => self.place(),
            ProviderKind::Kubernetes => {
                let word = |key: &Option<Spanned<String>>| {
                    key.as_ref().map_or_else(String::new, |key| key.get_ref().clone())
                };
                format!("kubernetes:{}:{}", word(&self.namespace), word(&self.class))
            }
        }
    }

    /// The name of this machine; empty in a file that only names the cluster.
    #[must_use]
    pub fn node(&self) -> &str {
        self.node.as_ref().map_or("", |node| node.get_ref())
    }

    /// The file in which the last good services are kept.
    #[must_use]
    pub fn state(&self) -> &Path {
        self.state.as_ref().map_or(Path::new(""), |state| state.get_ref())
    }

    /// The keys that not every kind has: the key, where it is written, the kinds that have it, and the kinds that need it.
    fn of_some_kinds(&self) -> [OfSomeKinds; 15] {
        use ProviderKind::{Dns, Etcd, Http, Kubernetes};
        fn at<T>(key: &Option<Spanned<T>>) -> Option<Range<usize>> {
            key.as_ref().map(Spanned::span)
        }
        [
            ("endpoints", at(&self.endpoints), &[Etcd, Kubernetes], &[Etcd, Kubernetes]),
            ("url", at(&self.url), &[Http], &[Http]),
            ("servers", at(&self.servers), &[Dns], &[]),
            ("ca", at(&self.ca), &[Etcd, Http, Kubernetes], &[]),
            ("cert", at(&self.cert), &[Etcd, Http, Kubernetes], &[]),
            ("key", at(&self.key), &[Etcd, Http, Kubernetes], &[]),
            ("namespace", at(&self.namespace), &[Kubernetes], &[]),
            ("class", at(&self.class), &[Kubernetes], &[]),
            ("exit", at(&self.exit), &[Kubernetes], &[Kubernetes]),
            ("service", at(&self.service), &[Kubernetes], &[Kubernetes]),
            ("prefix", at(&self.prefix), &[Etcd], &[]),
            ("node", at(&self.node), &[Etcd], &[]),
            ("user", at(&self.user), &[Etcd, Http], &[]),
            ("password_file", at(&self.password_file), &[Etcd, Http], &[]),
            ("token_file", at(&self.token_file), &[Http, Kubernetes], &[]),
        ]
    }

    /// Returns the first mistake; `span` is that of the section.
    fn check(&self, span: Range<usize>, source: &Source) -> Checked {
        let kind = *self.kind.get_ref();
        for (key, at, having, needing) in self.of_some_kinds() {
            match at {
                Some(at) if !having.contains(&kind) => {
                    let others: Vec<_> =
                        having.iter().map(|kind| format!("\"{}\"", kind.word())).collect();
                    let what = format!("'{key}' is not for kind = \"{}\"", kind.word());
                    let fix = format!("leave it out, or write kind = {}", others.join(" or "));
                    return Err(source.error(at, what, fix));
                }
                None if needing.contains(&kind) => {
                    let what = format!("the key '{key}' is missing");
                    return Err(source.error(span, what, format!("add '{key} = ...'")));
                }
                _ => {}
            }
        }
        self.check_server(source)?;
        self.check_access(source)?;
        for (time, name) in [(&self.poll_ms, "poll_ms"), (&self.timeout_ms, "timeout_ms")] {
            if !(100..=60_000).contains(time.get_ref()) {
                let what = format!("{name} = {} is not possible", time.get_ref());
                return Err(source.error(time.span(), what, "write 100 to 60000"));
            }
        }
        Ok(())
    }

    /// Checks where the services are.
    fn check_server(&self, source: &Source) -> Checked {
        if let Some(endpoints) = &self.endpoints {
            let (server, such_as, or) = match self.kind.get_ref() {
                ProviderKind::Kubernetes => (
                    "an API server of Kubernetes",
                    "\"https://10.0.0.1:6443\"",
                    "\"https://kubernetes.example:6443\"",
                ),
                _ => ("etcd", "\"http://10.0.0.1:2379\"", "\"https://etcd.example:2379\""),
            };
            if endpoints.get_ref().is_empty() {
                let what = format!("no address of {server} is named");
                let fix = format!("name at least one, such as {such_as}");
                return Err(source.error(endpoints.span(), what, fix));
            }
            for text in endpoints.get_ref() {
                if let Err(why) = self.endpoint(text.get_ref()) {
                    let what = format!("'{}' is not an address of {server}: {why}", text.get_ref());
                    let fix = format!("write it as {such_as} or {or}");
                    return Err(source.error(text.span(), what, fix));
                }
            }
        }
        self.check_kubernetes(source)?;
        if let Some(servers) = &self.servers {
            let wrong = |text: &&Spanned<String>| srv::server(text.get_ref()).is_none();
            if let Some(text) = servers.get_ref().iter().find(wrong) {
                let what = format!("'{}' is not the address of a DNS server", text.get_ref());
                let fix = "write it as \"10.0.0.53\", \"10.0.0.53:5353\" or \"[2001:db8::53]:53\"";
                return Err(source.error(text.span(), what, fix));
            }
            if servers.get_ref().is_empty() {
                let fix = "name at least one, or leave 'servers' out for those of the system";
                return Err(source.error(servers.span(), "no DNS server is named", fix));
            }
        }
        if let Some(text) = &self.url
            && let Err(why) = text.get_ref().parse::<Url>()
        {
            let what = format!("this is not the address of a document: {why}");
            let fix = "write it as \"https://config.example/services.toml\"";
            return Err(source.error(text.span(), what, fix));
        }
        let Some(text) = &self.prefix else { return Ok(()) };
        let prefix = text.get_ref();
        if prefix.is_empty() || prefix.ends_with('/') || prefix.contains(char::is_control) {
            let what = format!("'{}' cannot be the prefix of keys", prefix.escape_debug());
            let fix = "write at least one character, without '/' at its end, such as \"/flowyard\"";
            return Err(source.error(text.span(), what, fix));
        }
        Ok(())
    }

    /// Checks what is for Kubernetes alone.
    fn check_kubernetes(&self, source: &Source) -> Checked {
        if let Some(name) = &self.namespace {
            let is_label = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            if name.get_ref().is_empty() || !name.get_ref().chars().all(is_label) {
                let what = format!("'{}' is not a namespace", name.get_ref().escape_debug());
                let fix = "write letters in lower case, digits and '-'";
                return Err(source.error(name.span(), what, fix));
            }
        }
        let Some(service) = &self.service else { return Ok(()) };
        let given = ["name", "vip", "proto", "port", "backend", "srv"];
        if let Some(key) = given.iter().find(|key| service.get_ref().contains_key(**key)) {
            let what = format!("'{key}' comes from Kubernetes");
            return Err(source.error(service.span(), what, format!("leave '{key}' out")));
        }
        let kind = service.get_ref().get("check").and_then(|check| check.get("kind"));
        if kind.and_then(toml::Value::as_str) == Some("command") {
            let fix = "use another kind of check, such as \"tcp\"";
            return Err(source.error(service.span(), NO_COMMAND, fix));
        }
        if !service.get_ref().contains_key("mode") {
            let fix = "add 'mode', such as \"dnat\"";
            return Err(source.error(service.span(), "the services have no mode", fix));
        }
        Ok(())
    }

    /// Checks how this machine identifies itself.
    fn check_access(&self, source: &Source) -> Checked {
        let pairs = [
            (self.user.as_ref().map(Spanned::span), "user", &self.password_file, "password_file"),
            (self.cert.as_ref().map(Spanned::span), "cert", &self.key, "key"),
        ];
        for (one, name, other, of) in pairs {
            let (at, there, missing) = match (one, other) {
                (Some(at), None) => (at, name, of),
                (None, Some(other)) => (other.span(), of, name),
                _ => continue,
            };
            let what = format!("'{there}' needs '{missing}'");
            return Err(source.error(at, what, format!("add '{missing} = ...'")));
        }
        if let (Some(user), Some(_)) = (&self.user, &self.token_file) {
            let what = "a request cannot have both a user and a token";
            return Err(source.error(user.span(), what, "leave out 'user' or 'token_file'"));
        }
        let Some(secret) = self.password_file.as_ref().or(self.token_file.as_ref()) else {
            return Ok(());
        };
        // A user of etcd over plain HTTP is an old configuration that goes on to work.
        let is_plain = self.endpoints().iter().any(|endpoint| !endpoint.tls);
        if is_plain && *self.kind.get_ref() != ProviderKind::Etcd {
            let what = "a password or a token would be sent without encryption";
            return Err(source.error(secret.span(), what, "use https"));
        }
        Ok(())
    }
}

/// A key that not every kind has.
type OfSomeKinds =
    (&'static str, Option<Range<usize>>, &'static [ProviderKind], &'static [ProviderKind]);

impl Config {
    /// Where the services are that all balancers of the cluster have, if they are not in the file alone.
    #[must_use]
    pub fn cluster(&self) -> Option<&ClusterConfig> {
        self.cluster.as_ref().map(Spanned::get_ref)
    }
}

/// Returns the first mistake in `[cluster]`, if the configuration has this section.
pub(super) fn check(config: &Config) -> Checked {
    srv::check(config)?;
    let Some(cluster) = &config.cluster else { return Ok(()) };
    let (span, cluster) = (cluster.span(), cluster.get_ref());
    cluster.check(span.clone(), &config.source)?;
    if *cluster.kind.get_ref() == ProviderKind::Etcd && cluster.node.is_none() {
        let fix = "add 'node = ...', a name that no other machine of the cluster has";
        return Err(config.error(span, "the key 'node' is missing", fix));
    }
    if let Some(node) = &cluster.node {
        let name = node.get_ref();
        if name.is_empty()
            || name.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control())
        {
            let what = format!("'{}' cannot be the name of a node", name.escape_debug());
            let fix = "write at least one character, without blanks and '/'";
            return Err(config.error(node.span(), what, fix));
        }
    }
    if cluster.state().as_os_str().is_empty() {
        let fix = "add 'state = \"/var/lib/flowyard/services.json\"', the file in which the last good services are kept";
        return Err(config.error(span, "the key 'state' is missing", fix));
    }
    Ok(())
}

#[cfg(test)]
mod tests;

//! The keys of `[cluster]`, and their checks.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Deserialize;
use toml::Spanned;

use super::names::Checked;
use super::{Config, ConfigError, Source, file, free};

/// `[cluster]`: where the services are that all balancers of a cluster have.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterConfig {
    /// The addresses of etcd, as `http://10.0.0.1:2379`. They are tried in turn.
    pub endpoints: Spanned<Vec<Spanned<String>>>,
    /// What all keys begin with.
    #[serde(default = "prefix")]
    pub prefix: Spanned<String>,
    /// The name of this machine, different on each.
    pub node: Option<Spanned<String>>,
    /// The file in which the last good services are kept.
    pub state: Option<Spanned<PathBuf>>,
    /// The user of etcd.
    pub user: Option<Spanned<String>>,
    /// The file with the password of the user.
    pub password_file: Option<Spanned<PathBuf>>,
    /// The file with the authorities that sign certificates of etcd; by default those of the system.
    pub ca: Option<Spanned<PathBuf>>,
    /// The file with the certificate of this machine.
    pub cert: Option<Spanned<PathBuf>>,
    /// The file with the key of the certificate.
    pub key: Option<Spanned<PathBuf>>,
    /// The time between two looks at etcd, in milliseconds.
    #[serde(default = "poll")]
    pub poll_ms: Spanned<u64>,
    /// The time within which etcd must answer one request, and at the start of the instance all that it needs, in
    /// milliseconds.
    #[serde(default = "timeout")]
    pub timeout_ms: Spanned<u64>,
}

fn prefix() -> Spanned<String> {
    free("/flowyard".into())
}

fn poll() -> Spanned<u64> {
    free(1000)
}

fn timeout() -> Spanned<u64> {
    free(5000)
}

/// An address of etcd.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// Whether the connection is encrypted.
    pub tls: bool,
    /// A host name or an IP address, without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
}

/// The port of etcd (IANA).
const PORT: u16 = 2379;

impl FromStr for Endpoint {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (scheme, rest) = text.split_once("://").ok_or("there is no http:// or https://")?;
        let tls = match scheme {
            "http" => false,
            "https" => true,
            _ => return Err("only http and https are possible"),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.strip_prefix('[') {
            Some(inner) => {
                let (host, port) = inner.split_once(']').ok_or("the ']' is missing")?;
                (host, port.strip_prefix(':').or((!port.is_empty()).then_some("x")))
            }
            None => match rest.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (rest, None),
            },
        };
        let is_host =
            |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '%');
        if host.is_empty() || !host.chars().all(is_host) {
            return Err("this is not a host name or an IP address");
        }
        let port = port.map_or(Ok(PORT), str::parse);
        let port = port.ok().filter(|port| *port > 0).ok_or("the port is not 1 to 65535")?;
        Ok(Self { tls, host: host.into(), port })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        let (host, port) = (&self.host, self.port);
        match host.contains(':') {
            true => write!(f, "{scheme}://[{host}]:{port}"),
            false => write!(f, "{scheme}://{host}:{port}"),
        }
    }
}

impl ClusterConfig {
    /// Reads only the section `[cluster]` of a file, which may have others.
    ///
    /// # Errors
    /// The file cannot be read, or the first mistake in the section.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        #[derive(Deserialize)]
        struct File {
            cluster: Option<ClusterConfig>,
        }
        let name = path.display().to_string();
        let text = file::text(path).map_err(|error| ConfigError::unread(&name, &error))?;
        let source = Source::new(&name, &text);
        let file: File = toml::from_str(&text).map_err(|error| source.untold(&error, 0))?;
        let none = || source.error(0..0, "there is no section [cluster]", "see docs/fleet.md");
        let cluster = file.cluster.ok_or_else(none)?;
        cluster.check(&source)?;
        Ok(cluster)
    }

    /// The addresses of etcd.
    #[must_use]
    pub fn endpoints(&self) -> Vec<Endpoint> {
        let all = self.endpoints.get_ref().iter();
        all.filter_map(|text| text.get_ref().parse().ok()).collect()
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

    /// Returns the first mistake.
    fn check(&self, source: &Source) -> Checked {
        let endpoints = self.endpoints.get_ref();
        if endpoints.is_empty() {
            let fix = "name at least one, such as \"http://127.0.0.1:2379\"";
            return Err(source.error(self.endpoints.span(), "no address of etcd is named", fix));
        }
        for text in endpoints {
            if let Err(why) = text.get_ref().parse::<Endpoint>() {
                let what = format!("'{}' is not an address of etcd: {why}", text.get_ref());
                let fix = "write it as \"http://10.0.0.1:2379\" or \"https://etcd.example:2379\"";
                return Err(source.error(text.span(), what, fix));
            }
        }
        let prefix = self.prefix.get_ref();
        if prefix.is_empty() || prefix.ends_with('/') || prefix.contains(char::is_control) {
            let what = format!("'{}' cannot be the prefix of keys", prefix.escape_debug());
            let fix = "write at least one character, without '/' at its end, such as \"/flowyard\"";
            return Err(source.error(self.prefix.span(), what, fix));
        }
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
        for (time, name) in [(&self.poll_ms, "poll_ms"), (&self.timeout_ms, "timeout_ms")] {
            if !(100..=60_000).contains(time.get_ref()) {
                let what = format!("{name} = {} is not possible", time.get_ref());
                return Err(source.error(time.span(), what, "write 100 to 60000"));
            }
        }
        Ok(())
    }
}

impl Config {
    /// Where the services are that all balancers of the cluster have, if they are not in the file alone.
    #[must_use]
    pub fn cluster(&self) -> Option<&ClusterConfig> {
        self.cluster.as_ref().map(Spanned::get_ref)
    }
}

/// Returns the first mistake in `[cluster]`, if the configuration has this section.
pub(super) fn check(config: &Config) -> Checked {
    let Some(cluster) = &config.cluster else { return Ok(()) };
    let (span, cluster) = (cluster.span(), cluster.get_ref());
    cluster.check(&config.source)?;
    let Some(node) = &cluster.node else {
        let fix = "add 'node = ...', a name that no other machine of the cluster has";
        return Err(config.error(span, "the key 'node' is missing", fix));
    };
    let name = node.get_ref();
    if name.is_empty() || name.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control()) {
        let what = format!("'{}' cannot be the name of a node", name.escape_debug());
        let fix = "write at least one character, without blanks and '/'";
        return Err(config.error(node.span(), what, fix));
    }
    if cluster.state().as_os_str().is_empty() {
        let fix = "add 'state = \"/var/lib/flowyard/services.json\"', the file in which the last good services are kept";
        return Err(config.error(span, "the key 'state' is missing", fix));
    }
    Ok(())
}

#[cfg(test)]
mod tests;

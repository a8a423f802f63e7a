//! Addresses of servers: an endpoint, as `https://10.0.0.1:2379`, and a URL, which also has a path.

use std::fmt;
use std::str::FromStr;

/// An address of a server of HTTP.
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
const ETCD: u16 = 2379;

impl Endpoint {
    /// Reads an address; `port` is the port if none is written, by whether the connection is encrypted.
    pub(super) fn read(text: &str, port: fn(bool) -> u16) -> Result<Self, &'static str> {
        let (scheme, rest) = text.split_once("://").ok_or("there is no http:// or https://")?;
        let tls = match scheme {
            "http" => false,
            "https" => true,
            _ => return Err("only http and https are possible"),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, written) = match rest.strip_prefix('[') {
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
        let port = written.map_or(Ok(port(tls)), str::parse);
        let port = port.ok().filter(|port| *port > 0).ok_or("the port is not 1 to 65535")?;
        Ok(Self { tls, host: host.into(), port })
    }

    /// The value of the field `Host` of a request.
    #[must_use]
    pub fn host_field(&self) -> String {
        let (host, port) = (&self.host, self.port);
        match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        }
    }
}

/// Reads the address of an API server of Kubernetes, whose port is 6443 if none is written.
pub(super) fn of_kubernetes(text: &str) -> Result<Endpoint, &'static str> {
    Endpoint::read(text, |_| 6443)
}

impl FromStr for Endpoint {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::read(text, |_| ETCD)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.tls { "https" } else { "http" }, self.host_field())
    }
}

/// The address of a document: an endpoint, and a path with a query.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Url {
    /// The server.
    pub endpoint: Endpoint,
    /// The path with its query, from the first '/'.
    pub path: String,
}

impl Url {
    /// An address as it may stand in logs: without a user, and without what may hold a secret, the query and what follows.
    #[must_use]
    pub fn redacted(text: &str) -> String {
        let text = text.split(['?', '#']).next().unwrap_or_default();
        let (scheme, rest) = match text.find("//") {
            Some(at) => text.split_at(at + 2),
            None => ("", text),
        };
        let server = rest.find('/').unwrap_or(rest.len());
        let host = rest[..server].rfind('@').filter(|_| !scheme.is_empty()).map_or(0, |at| at + 1);
        format!("{scheme}{}", &rest[host..])
    }
}

impl FromStr for Url {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let start = text.find("://").map_or(0, |at| at + 3);
        let (server, path) = match text[start..].find(['/', '?', '#']) {
            Some(at) => text.split_at(start + at),
            None => (text, ""),
        };
        if server[start..].contains('@') {
            return Err(
                "a user and a password cannot be part of it; use 'user' and 'password_file'",
            );
        }
        if path.contains('#') {
            return Err("'#' and what follows cannot be part of it");
        }
        if !path.chars().all(|c| c.is_ascii_graphic()) {
            return Err("write blanks and letters beyond ASCII as %20 and so on");
        }
        let endpoint = Endpoint::read(server, |tls| if tls { 443 } else { 80 })?;
        let path = if path.starts_with('/') { path.into() } else { format!("/{path}") };
        Ok(Self { endpoint, path })
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.endpoint, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_in_a_log_has_no_secret() {
        for (text, is) in [
            ("https://a/x?token=1", "https://a/x"),
            ("https://a?token=1/2", "https://a"),
            ("https://u:secret@a:1/x@y#z?token", "https://a:1/x@y"),
            ("//u@a/x", "//a/x"),
            ("/x/y@z?token=//", "/x/y@z"),
            ("x@y", "x@y"),
            ("?token", ""),
        ] {
            assert_eq!(Url::redacted(text), is, "{text}");
        }
    }

    #[test]
    fn a_url_is_an_endpoint_and_a_path() {
        for (text, is) in [
            ("http://a", "http://a:80/"),
            ("https://a/", "https://a:443/"),
            (
                "https://[2001:db8::1]:8443/x/y.toml?env=a/b",
                "https://[2001:db8::1]:8443/x/y.toml?env=a/b",
            ),
            ("http://10.0.0.1?x", "http://10.0.0.1:80/?x"),
        ] {
            let url: Url = text.parse().unwrap();
            assert_eq!(url.to_string(), is);
            assert_eq!(is.parse(), Ok(url));
        }
        for (text, said) in [
            ("a/b", "there is no http://"),
            ("http:///x", "not a host name"),
            ("http://user:secret@a/x", "'password_file'"),
            ("http://a/x#y", "'#'"),
            ("http://a/x y", "%20"),
            ("http://a/\r\nX: y", "%20"),
            ("http://a:0/", "the port is not"),
        ] {
            let error = text.parse::<Url>().unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}

//! Endpoints: where a controller is, or where to listen for one.
//!
//! ```text
//!   tcp:HOST[:PORT]    tls:HOST[:PORT]    unix:PATH      to connect to
//!   ptcp:[PORT][:ADDR] ptls:[PORT][:ADDR] punix:PATH     to listen at
//! ```
//!
//! As Open vSwitch writes them; `ssl:` and `pssl:` are `tls:` and `ptls:`. Port 6653 if none is
//! given. A listener without an address listens on the loopback alone.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// OpenFlow's port (IANA).
const PORT: u16 = 6653;

/// How bytes travel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Transport {
    /// TCP: host and port.
    Tcp(String, u16),
    /// TLS over TCP: host and port.
    Tls(String, u16),
    /// A unix stream socket.
    Unix(PathBuf),
}

/// A place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// Whether to listen there.
    pub listens: bool,
    /// How.
    pub transport: Transport,
}

/// Why text is no endpoint.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "'{text}': {why}; write tcp:HOST[:PORT], tls:HOST[:PORT], unix:PATH, or to listen ptcp:[PORT][:ADDRESS], ptls:[PORT][:ADDRESS], punix:PATH"
)]
pub struct EndpointError {
    text: String,
    why: &'static str,
}

impl Endpoint {
    /// Whether a connection is opened from here.
    #[must_use]
    pub const fn dials(&self) -> bool {
        !self.listens
    }

    /// Whether it needs certificates.
    #[must_use]
    pub const fn is_tls(&self) -> bool {
        matches!(self.transport, Transport::Tls(..))
    }
}

/// A host with or without port: `[::1]:6653`, `10.0.0.1`, `name:6633`.
fn host_port(text: &str) -> Result<(String, u16), &'static str> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or("a '[' without ']'")?;
            (host, rest.strip_prefix(':'))
        }
        None => match text.split_once(':') {
            Some((_, rest)) if rest.contains(':') => (text, None),
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err("no host");
    }
    let port = port.map_or(Ok(PORT), |port| port.parse().map_err(|_| "no such port"))?;
    Ok((host.into(), port))
}

/// A port with or without address: `6653`, `6653:10.0.0.1`, `6653:[::]`.
fn port_host(text: &str) -> Result<(String, u16), &'static str> {
    let (port, host) = text.split_once(':').unwrap_or((text, "127.0.0.1"));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = if port.is_empty() { Ok(PORT) } else { port.parse().map_err(|_| "no such port") };
    if host.is_empty() { Err("no address") } else { Ok((host.into(), port?)) }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let wrong = |why| EndpointError { text: text.into(), why };
        let (kind, rest) = text.split_once(':').ok_or_else(|| wrong("no kind of place"))?;
        let (listens, transport) = match kind {
            "tcp" => host_port(rest).map(|(host, port)| (false, Transport::Tcp(host, port))),
            "tls" | "ssl" => {
                host_port(rest).map(|(host, port)| (false, Transport::Tls(host, port)))
            }
            "ptcp" => port_host(rest).map(|(host, port)| (true, Transport::Tcp(host, port))),
            "ptls" | "pssl" => {
                port_host(rest).map(|(host, port)| (true, Transport::Tls(host, port)))
            }
            "unix" | "punix" if rest.is_empty() => Err("no path"),
            "unix" | "punix" => Ok((kind == "punix", Transport::Unix(rest.into()))),
            _ => Err("no such kind of place"),
        }
        .map_err(wrong)?;
        Ok(Self { listens, transport })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bare =
            |host: &String| if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let (kind, host, port) = match &self.transport {
            Transport::Tcp(host, port) => ("tcp", bare(host), port),
            Transport::Tls(host, port) => ("tls", bare(host), port),
            Transport::Unix(path) => {
                let p = if self.listens { "p" } else { "" };
                return write!(f, "{p}unix:{}", path.display());
            }
        };
        if self.listens {
            write!(f, "p{kind}:{port}:{host}")
        } else {
            write!(f, "{kind}:{host}:{port}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_people_write_them() {
        for (text, said) in [
            ("tcp:10.0.0.1", "tcp:10.0.0.1:6653"),
            ("tcp:[::1]:6633", "tcp:[::1]:6633"),
            ("tcp:::1", "tcp:[::1]:6653"),
            ("ssl:name:1", "tls:name:1"),
            ("ptcp:", "ptcp:6653:127.0.0.1"),
            ("ptcp:6634:0.0.0.0", "ptcp:6634:0.0.0.0"),
            ("ptls:6634:[::]", "ptls:6634:[::]"),
            ("punix:/tmp/x", "punix:/tmp/x"),
        ] {
            let read: Endpoint = text.parse().expect(text);
            assert_eq!(read.to_string(), said);
            assert_eq!(read.to_string().parse::<Endpoint>(), Ok(read));
        }
        for text in ["", "tcp", "tcp:", "udp:x", "tcp:x:y", "ptcp:99999", "unix:", "tcp:[::1"] {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
    }
}

//! Endpoints: the address of a controller, or an address to listen on.
//!
//! ```text
//!   tcp:HOST[:PORT]    tls:HOST[:PORT]    unix:PATH      to connect to
//!   ptcp:[PORT][:ADDR] ptls:[PORT][:ADDR] punix:PATH     to listen on
//! ```
//!
//! The syntax is that of Open vSwitch; `ssl:` and `pssl:` are synonyms for `tls:` and `ptls:`. The
//! default port is 6653. A listener without an address listens on 127.0.0.1.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The port of OpenFlow (IANA).
const PORT: u16 = 6653;

/// A transport protocol with its address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Transport {
    /// TCP: host and port.
    Tcp(String, u16),
    /// TLS over TCP: host and port.
    Tls(String, u16),
    /// The path of a Unix stream socket.
    Unix(PathBuf),
}

/// An address to connect to or to listen on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// Whether the switch listens, or else connects.
    pub listens: bool,
    /// The transport and its address.
    pub transport: Transport,
}

/// The text is not an endpoint.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "'{text}': {why}; write tcp:HOST[:PORT], tls:HOST[:PORT] or unix:PATH to connect, or ptcp:[PORT][:ADDRESS], ptls:[PORT][:ADDRESS] or punix:PATH to listen"
)]
pub struct EndpointError {
    text: String,
    why: &'static str,
}

impl EndpointError {
    /// What is wrong with the text.
    #[must_use]
    pub const fn why(&self) -> &'static str {
        self.why
    }
}

impl Endpoint {
    /// Whether the switch opens the connection.
    #[must_use]
    pub const fn dials(&self) -> bool {
        !self.listens
    }

    /// Whether the endpoint needs certificates.
    #[must_use]
    pub const fn is_tls(&self) -> bool {
        matches!(self.transport, Transport::Tls(..))
    }
}

/// Parses a host with an optional port: `[::1]:6653`, `10.0.0.1`, `name:6633`.
fn host_port(text: &str) -> Result<(String, u16), &'static str> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or("the ']' is missing")?;
            (host, rest.strip_prefix(':'))
        }
        None => match text.split_once(':') {
            Some((_, rest)) if rest.contains(':') => (text, None),
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err("the host is missing");
    }
    let port = port.map_or(Ok(PORT), |port| port.parse().map_err(|_| BAD_PORT))?;
    Ok((host.into(), port))
}

const BAD_PORT: &str = "the port is not a number from 0 to 65535";

/// Parses a port with an optional address: `6653`, `6653:10.0.0.1`, `6653:[::]`.
fn port_host(text: &str) -> Result<(String, u16), &'static str> {
    let (port, host) = text.split_once(':').unwrap_or((text, "127.0.0.1"));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = if port.is_empty() { Ok(PORT) } else { port.parse().map_err(|_| BAD_PORT) };
    if host.is_empty() { Err("the address is missing") } else { Ok((host.into(), port?)) }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let wrong = |why| EndpointError { text: text.into(), why };
        let (kind, rest) = text.split_once(':').ok_or_else(|| wrong("the transport is missing"))?;
        let (listens, transport) = match kind {
            "tcp" => host_port(rest).map(|(host, port)| (false, Transport::Tcp(host, port))),
            "tls" | "ssl" => {
                host_port(rest).map(|(host, port)| (false, Transport::Tls(host, port)))
            }
            "ptcp" => port_host(rest).map(|(host, port)| (true, Transport::Tcp(host, port))),
            "ptls" | "pssl" => {
                port_host(rest).map(|(host, port)| (true, Transport::Tls(host, port)))
            }
            "unix" | "punix" if rest.is_empty() => Err("the path is missing"),
            "unix" | "punix" => Ok((kind == "punix", Transport::Unix(rest.into()))),
            _ => Err("the transport is unknown"),
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
    fn endpoints_are_parsed_and_printed() {
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

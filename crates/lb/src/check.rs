//! Configuration of health checks, as plain data.

use crate::health::Rules;

pub mod grpc;

/// The health check of the backends of a service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Check {
    /// The kind of check, with its parameters.
    pub asks: Asks,
    /// Interval, timeout and thresholds.
    pub rules: Rules,
    /// The port to check; `None` is the port that connections go to.
    pub port: Option<u16>,
    /// Whether most machines decide if a backend is up, and not this one alone.
    pub agreed: bool,
}

/// The kinds of check, and when each passes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Asks {
    /// Passes if the backend accepts a TCP connection.
    Tcp,
    /// Passes if the response to an HTTP GET has the expected status and body.
    Http(Http),
    /// Sends a UDP datagram. With `expect`, passes if a reply begins with it. Without, passes unless
    /// an ICMP error arrives.
    Udp {
        /// Payload of the datagram.
        send: Vec<u8>,
        /// The first bytes of a correct reply.
        expect: Option<Vec<u8>>,
    },
    /// Sends a DNS query over UDP. Passes if the response has no error and at least one record.
    Dns {
        /// The domain name, in ASCII.
        name: String,
        /// The type of the records (IANA).
        kind: u16,
    },
    /// Asks a gRPC server for the health of a service, over HTTP/2 without TLS. Passes if the service accepts requests.
    Grpc(Grpc),
    /// Runs a command, given as program and arguments, with the backend's address and port in its
    /// environment. Passes if the exit status is 0.
    Command(Vec<String>),
}

/// An HTTP/1.1 request, and which responses to it pass the check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Http {
    /// The path, beginning with a slash.
    pub path: String,
    /// Value of the Host header; `None` is the backend's address.
    pub host: Option<String>,
    /// The lowest status code that passes.
    pub least: u16,
    /// The highest status code that passes.
    pub most: u16,
    /// Text that the first 64 KiB of the response body must contain.
    pub body: Option<String>,
    /// Present for HTTPS.
    pub tls: Option<Tls>,
}

/// A call of `grpc.health.v1.Health/Check`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grpc {
    /// The name of the service; the empty name is the server.
    pub service: String,
    /// The authority of the request; `None` is the backend's address.
    pub host: Option<String>,
}

/// How the certificate of a backend is verified.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tls {
    /// Whether the certificate must be signed by a trusted authority, be in its validity period and
    /// name the requested host.
    pub verify: bool,
    /// Trusted authorities as PEM certificates; `None` is the system's list.
    pub ca: Option<Vec<u8>>,
}

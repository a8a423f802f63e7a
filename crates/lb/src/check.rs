//! Checks as a user describes them: how a backend is asked how it is. Plain data.

use crate::health::Rules;

/// How the backends of a service are asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Check {
    /// What is asked.
    pub asks: Asks,
    /// How often, and how sure.
    pub rules: Rules,
    /// The port, if it is another than the one that connections go to.
    pub port: Option<u16>,
}

/// What a backend is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Asks {
    /// It takes a TCP connection.
    Tcp,
    /// It answers a GET as it should.
    Http(Http),
    /// It answers the datagram `send` with one that begins with `expect`; without `expect`, what
    /// counts is that no ICMP error comes.
    Udp {
        /// What it is sent.
        send: Vec<u8>,
        /// What its answer begins with.
        expect: Option<Vec<u8>>,
    },
    /// A command ends with 0: its words. Address and port are in its environment.
    Command(Vec<String>),
}

/// What is asked by HTTP/1.1, and what a right answer is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Http {
    /// The path, with its first slash.
    pub path: String,
    /// What is asked for, as the Host header says; none is the backend's address.
    pub host: Option<String>,
    /// The lowest status that is right.
    pub least: u16,
    /// The highest one.
    pub most: u16,
    /// What stands in the first 64 KiB of the body.
    pub body: Option<String>,
    /// Inside of TLS.
    pub tls: Option<Tls>,
}

/// How sure a backend must be who it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tls {
    /// Whether its certificate must be good: of a known authority, in time, and for the host that is asked
    /// for.
    pub verify: bool,
    /// Who may have signed it, in PEM; none is whom the system knows.
    pub ca: Option<Vec<u8>>,
}

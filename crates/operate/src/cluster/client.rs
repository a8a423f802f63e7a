//! Client of the servers that have services: one HTTP/1.1 request for each connection, with TLS and time-outs.
//!
//! Thread-safety: used by one thread at a time.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};

use flowyard_config::{ClusterConfig, Endpoint};
use flowyard_frame::Nanos;
use flowyard_yard::Clock;

use super::http::{self, Answer, Request};
use super::login::{Login, OpenError};
use crate::health::deadline::{Deadline, Timed};
use crate::health::tls;

/// The servers, and how they are asked.
#[derive(Clone)]
pub(super) struct Client {
    endpoints: Vec<Endpoint>,
    /// The index of the endpoint that answered last.
    current: usize,
    login: Login,
    /// For one request to one endpoint.
    timeout: Nanos,
    clock: Clock,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("endpoints", &self.endpoints).finish_non_exhaustive()
    }
}

impl Client {
    /// Prepares a client, and reads the files that it needs.
    pub(super) fn new(config: &ClusterConfig, clock: Clock) -> Result<Self, OpenError> {
        let endpoints = config.endpoints();
        let all = endpoints.len().max(1) as Nanos;
        let login = Login::read(config)?;
        let timeout = config.timeout_ms.get_ref().saturating_mul(1_000_000) / all;
        Ok(Self { endpoints, current: 0, login, timeout, clock })
    }

    /// The number of endpoints.
    pub(super) const fn count(&self) -> usize {
        self.endpoints.len()
    }

    /// Asks another endpoint from now on.
    pub(super) fn turn(&mut self) {
        self.current = (self.current + 1) % self.endpoints.len().max(1);
    }

    /// The time.
    pub(super) fn now(&self) -> Nanos {
        (self.clock)()
    }

    /// The user and the password, if there are some.
    pub(super) fn user(&self) -> Option<(String, String)> {
        self.login.user.clone()
    }

    /// The value of the field `Authorization`, if this machine has a token or a user.
    pub(super) fn authorization(&mut self) -> Option<String> {
        self.login.authorization()
    }

    /// The endpoint that is asked.
    pub(super) fn endpoint(&self) -> String {
        self.endpoints.get(self.current).map_or_else(String::new, ToString::to_string)
    }

    /// Sends a request, and returns the answer or the reason why there is none.
    pub(super) fn ask(&self, request: Request<'_>) -> Result<Answer, String> {
        let Some(endpoint) = self.endpoints.get(self.current) else {
            return Err("no address of a server is named".into());
        };
        let now = || (self.clock)();
        let deadline = Deadline::new(&now, self.timeout);
        let told = |error: io::Error| match error.kind() {
            ErrorKind::TimedOut | ErrorKind::WouldBlock => {
                format!("no answer within {} ms", self.timeout / 1_000_000)
            }
            _ => error.to_string(),
        };
        let stream = addresses(endpoint).and_then(|addrs| connect(&addrs, deadline));
        let stream = stream.map_err(told)?;
        let plain = Timed { stream, deadline };
        let host = endpoint.host_field();
        if !endpoint.tls {
            return http::exchange(plain, &host, request).map_err(told);
        }
        let config = self.login.tls.as_ref().ok_or("TLS is not set up")?;
        let addr = plain.stream.peer_addr().map_err(told)?.ip();
        let name = endpoint.host.parse::<IpAddr>().is_err().then_some(endpoint.host.as_str());
        let stream = tls::stream(config, name, addr, plain).map_err(|fault| fault.to_string())?;
        http::exchange(stream, &host, request).map_err(told)
    }
}

/// The addresses of a host.
fn addresses(endpoint: &Endpoint) -> io::Result<Vec<SocketAddr>> {
    Ok((endpoint.host.as_str(), endpoint.port).to_socket_addrs()?.collect())
}

/// Connects to the first address of a host that accepts. Each address has an equal part of the time that is left.
fn connect(addrs: &[SocketAddr], deadline: Deadline<'_>) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the name has no address");
    for (addr, others) in addrs.iter().zip((1..=addrs.len() as u32).rev()) {
        match TcpStream::connect_timeout(addr, deadline.left()? / others) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests;

//! Probes: run one health check. The call blocks until there is a result or the deadline has passed,
//! so it must run on its own thread.
//!
//! Invariant: a response that is incomplete at the deadline is a failure, however slowly it arrives.
//! Thread-safety: a probe is read-only; any thread may use it.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use flowyard_lb::check::{Asks, Http};

use super::commands::Commands;
use super::deadline::{Deadline, Fault, Timed};
use super::{dns, grpc, http, tls, udp};

/// The backend that is checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Asked {
    /// The name of the service.
    pub(super) service: String,
    /// The name of the backend.
    pub(super) backend: String,
    /// The address and port to check.
    pub(super) addr: SocketAddr,
}

/// A check that is ready to run.
#[derive(Debug)]
pub(super) struct Probe {
    asks: Asks,
    /// The TLS configuration, or the reason why there is none.
    tls: Option<Result<Arc<rustls::ClientConfig>, String>>,
}

impl Probe {
    /// Prepares the check; reads the system's trusted authorities if it needs them.
    pub(super) fn new(asks: &Asks) -> Self {
        let wanted = match asks {
            Asks::Http(Http { tls, .. }) => tls.as_ref(),
            _ => None,
        };
        Self { asks: asks.clone(), tls: wanted.map(tls::client) }
    }

    /// The kind of check.
    pub(super) const fn asks(&self) -> &Asks {
        &self.asks
    }

    /// Runs the check and waits for its result. `commands` runs the command if it is one.
    ///
    /// # Errors
    /// The check failed or could not run.
    pub(super) fn ask(
        &self,
        asked: &Asked,
        commands: &Commands,
        deadline: Deadline<'_>,
    ) -> Result<(), Fault> {
        match &self.asks {
            Asks::Tcp => connect(asked.addr, deadline).map(|_| ()),
            Asks::Http(wanted) => {
                let plain = Timed { stream: connect(asked.addr, deadline)?, deadline };
                let at = asked.addr;
                match &self.tls {
                    None => http::get(plain, wanted, at, deadline),
                    Some(Err(why)) => Err(Fault::Cannot(why.clone())),
                    Some(Ok(config)) => {
                        let stream = tls::stream(config, wanted.host.as_deref(), at.ip(), plain)?;
                        http::get(stream, wanted, at, deadline)
                    }
                }
            }
            Asks::Udp { send, expect } => udp::ask(asked.addr, deadline, send, expect.as_deref()),
            Asks::Dns { name, kind } => dns::ask(asked.addr, name, *kind, deadline),
            Asks::Grpc(wanted) => {
                grpc::ask(&connect(asked.addr, deadline)?, wanted, asked.addr, deadline)
            }
            Asks::Command(words) => commands.run(words, asked, deadline),
        }
    }
}

fn connect(addr: SocketAddr, deadline: Deadline<'_>) -> Result<TcpStream, Fault> {
    let stream = deadline.left().and_then(|left| TcpStream::connect_timeout(&addr, left));
    stream.map_err(|error| deadline.fault(&error))
}

#[cfg(test)]
mod tests;

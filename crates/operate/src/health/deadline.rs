//! The deadline of a check, connections that keep it, and the reasons for which a check fails.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use flowyard_frame::Nanos;

/// Why a check failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// The backend did not respond, or not as expected.
    #[error("{0}")]
    Wrong(String),
    /// The check could not run for a reason on this machine.
    #[error("the check cannot run: {0}")]
    Cannot(String),
}

impl Fault {
    pub(super) fn wrong(what: impl Into<String>) -> Self {
        Self::Wrong(what.into())
    }
}

/// What to do if the kernel has no route for a check.
const NO_ROUTE: &str = "this machine has no route to the backend; if the interface towards it is down \
     ('ip link'), set it up; else give an interface of this machine an address in the \
     network of the backends (ip addr add ADDRESS/BITS dev INTERFACE), which the configuration does not contain, or \
     add a route (ip route add); see 'Checks on the data interface' in docs/balance.md";

/// What to do if nothing answers at the backend's address, or at that of the router towards it.
const NO_HOST: &str = "no route to the backend (EHOSTUNREACH): nothing in the network answered for its address, or a router reported that \
     the address is unreachable; check that the backend runs and has this address; 'ip route get ADDRESS' names the interface \
     and the router that the check uses: if they are wrong, add a route (ip route add ADDRESS via ROUTER dev INTERFACE)";

/// The time at which a check has failed if it has no result.
#[derive(Clone, Copy)]
pub(crate) struct Deadline<'a> {
    now: &'a dyn Fn() -> Nanos,
    until: Nanos,
    timeout: Nanos,
}

impl<'a> Deadline<'a> {
    /// A deadline `timeout` from now.
    pub(crate) fn new(now: &'a dyn Fn() -> Nanos, timeout: Nanos) -> Self {
        Self { now, until: now().saturating_add(timeout), timeout }
    }

    /// The time left; an error after the deadline.
    pub(crate) fn left(&self) -> io::Result<Duration> {
        match self.until.saturating_sub((self.now)()) {
            0 => Err(ErrorKind::TimedOut.into()),
            left => Ok(Duration::from_nanos(left).max(Duration::from_micros(1))),
        }
    }

    /// The failure that corresponds to an I/O error.
    pub(super) fn fault(&self, error: &io::Error) -> Fault {
        if matches!(error.kind(), ErrorKind::NetworkUnreachable | ErrorKind::NetworkDown) {
            return Fault::Cannot(NO_ROUTE.into());
        }
        Fault::Wrong(match error.kind() {
            ErrorKind::HostUnreachable => NO_HOST.into(),
            ErrorKind::TimedOut | ErrorKind::WouldBlock => {
                format!("no response within {} ms", self.timeout / 1_000_000)
            }
            _ => error.to_string(),
        })
    }
}

/// A connection whose reads and writes fail after the deadline.
pub(crate) struct Timed<'a> {
    pub(crate) stream: TcpStream,
    pub(crate) deadline: Deadline<'a>,
}

impl Read for Timed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.deadline.left()?))?;
        self.stream.read(into)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.deadline.left()?))?;
        self.stream.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_route_is_a_matter_of_this_machine() {
        let deadline = Deadline::new(&|| 5, 1_000_000_000);
        let fault = |kind: ErrorKind| deadline.fault(&io::Error::from(kind));
        let Fault::Cannot(why) = fault(ErrorKind::NetworkUnreachable) else {
            panic!("not the backend's")
        };
        assert!(why.contains("no route") && why.contains("ip addr add"), "{why}");
        assert!(matches!(fault(ErrorKind::NetworkDown), Fault::Cannot(_)));
        // It may be the backend that is not there: it counts as down.
        let no_host = io::Error::from_raw_os_error(libc::EHOSTUNREACH);
        let Fault::Wrong(why) = deadline.fault(&no_host) else { panic!("the backend's") };
        assert!(why.contains("no route") && why.contains("ip route get"), "{why}");
        assert!(matches!(fault(ErrorKind::ConnectionRefused), Fault::Wrong(_)));
        assert_eq!(fault(ErrorKind::TimedOut), Fault::wrong("no response within 1000 ms"));
    }
}

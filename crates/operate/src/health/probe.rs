//! Probes: ask a backend how it is. Each call waits until there is an answer or the time is over,
//! so it is for a thread of its own.
//!
//! Invariants: an answer that is late by the deadline is none, however it comes in pieces; a command
//! that is late is killed with all that it has started.
//! Thread-safety: a probe is read-only; any thread may ask.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use flowyard_frame::Nanos;
use flowyard_lb::check::{Asks, Http};
use rustix::process::{Pid, Signal, kill_process_group};

use super::{http, tls};

/// What was wrong with an answer, or with the question.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// The backend did not answer as it should.
    #[error("{0}")]
    Wrong(String),
    /// It could not be asked: something is wrong here, not there.
    #[error("the check cannot run: {0}")]
    Cannot(String),
}

impl Fault {
    pub(super) fn wrong(what: impl Into<String>) -> Self {
        Self::Wrong(what.into())
    }
}

/// Who is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked {
    /// The name of the service.
    pub service: String,
    /// The name of the backend.
    pub backend: String,
    /// Where the question goes.
    pub addr: SocketAddr,
}

/// Until when an answer is waited for.
#[derive(Clone, Copy)]
pub struct Deadline<'a> {
    now: &'a dyn Fn() -> Nanos,
    until: Nanos,
    timeout: Nanos,
}

impl<'a> Deadline<'a> {
    /// So long from now on.
    #[must_use]
    pub fn new(now: &'a dyn Fn() -> Nanos, timeout: Nanos) -> Self {
        Self { now, until: now().saturating_add(timeout), timeout }
    }

    /// How long there is; an error once it is over.
    pub(super) fn left(&self) -> io::Result<Duration> {
        match self.until.saturating_sub((self.now)()) {
            0 => Err(ErrorKind::TimedOut.into()),
            left => Ok(Duration::from_nanos(left).max(Duration::from_micros(1))),
        }
    }

    /// An error of the network, for people.
    pub(super) fn fault(&self, error: &io::Error) -> Fault {
        Fault::Wrong(match error.kind() {
            ErrorKind::TimedOut | ErrorKind::WouldBlock => {
                format!("no answer within {} ms", self.timeout / 1_000_000)
            }
            _ => error.to_string(),
        })
    }
}

/// A way to ask, ready.
#[derive(Debug)]
pub struct Probe {
    asks: Asks,
    /// What TLS needs, or why it is not to be had.
    tls: Option<Result<Arc<rustls::ClientConfig>, String>>,
}

impl Probe {
    /// Makes ready to ask.
    #[must_use]
    pub fn new(asks: &Asks) -> Self {
        let wanted = match asks {
            Asks::Http(Http { tls, .. }) => tls.as_ref(),
            _ => None,
        };
        Self { asks: asks.clone(), tls: wanted.map(tls::client) }
    }

    /// What it asks.
    #[must_use]
    pub const fn asks(&self) -> &Asks {
        &self.asks
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// When it is not the right one, or did not come in time; when nothing could be asked.
    pub fn ask(&self, asked: &Asked, deadline: Deadline<'_>) -> Result<(), Fault> {
        match &self.asks {
            Asks::Tcp => connect(asked.addr, deadline).map(|_| ()),
            Asks::Http(wanted) => {
                let plain = Timed { stream: connect(asked.addr, deadline)?, deadline };
                let at = asked.addr;
                match &self.tls {
                    None => http::get(plain, wanted, at, deadline),
                    Some(Err(why)) => Err(Fault::Cannot(why.clone())),
                    Some(Ok(config)) => {
                        let name = tls::name(wanted.host.as_deref(), at.ip())?;
                        let connection = rustls::ClientConnection::new(Arc::clone(config), name);
                        let connection = connection.map_err(|e| Fault::Cannot(e.to_string()))?;
                        let stream = rustls::StreamOwned::new(connection, plain);
                        http::get(stream, wanted, at, deadline)
                    }
                }
            }
            Asks::Udp { send, expect } => udp(asked.addr, deadline, send, expect.as_deref()),
            Asks::Command(words) => command(words, asked, deadline),
        }
    }
}

fn connect(addr: SocketAddr, deadline: Deadline<'_>) -> Result<TcpStream, Fault> {
    let stream = deadline.left().and_then(|left| TcpStream::connect_timeout(&addr, left));
    stream.map_err(|error| deadline.fault(&error))
}

/// A connection that obeys a deadline, however little comes at a time.
struct Timed<'a> {
    stream: TcpStream,
    deadline: Deadline<'a>,
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

fn udp(
    addr: SocketAddr,
    deadline: Deadline<'_>,
    send: &[u8],
    expect: Option<&[u8]>,
) -> Result<(), Fault> {
    let any = if addr.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).map_err(|error| Fault::Cannot(error.to_string()))?;
    let mut answer = [0; 2048];
    let mut asked = || {
        socket.connect(addr)?;
        socket.send(send)?;
        socket.set_read_timeout(Some(deadline.left()?))?;
        socket.recv(&mut answer)
    };
    match (asked(), expect) {
        (Ok(len), Some(expect)) if !answer[..len].starts_with(expect) => {
            Err(Fault::wrong("its answer begins otherwise"))
        }
        (Ok(_), _) => Ok(()),
        (Err(error), None)
            if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
        {
            Ok(()) // nobody promised an answer
        }
        (Err(error), _) => Err(deadline.fault(&error)),
    }
}

fn command(words: &[String], asked: &Asked, deadline: Deadline<'_>) -> Result<(), Fault> {
    let cannot = |what: String| Fault::Cannot(what);
    let (program, rest) = words.split_first().ok_or_else(|| cannot("no command".into()))?;
    let mut child = Command::new(program)
        .args(rest)
        .env("FLOWYARD_ADDRESS", asked.addr.ip().to_string())
        .env("FLOWYARD_PORT", asked.addr.port().to_string())
        .env("FLOWYARD_SERVICE", &asked.service)
        .env("FLOWYARD_BACKEND", &asked.backend)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|error| cannot(format!("'{program}': {error}")))?;
    loop {
        match (child.try_wait(), deadline.left()) {
            (Ok(Some(status)), _) if status.success() => return Ok(()),
            (Ok(Some(status)), _) => return Err(Fault::wrong(format!("'{program}': {status}"))),
            (Ok(None), Ok(left)) => std::thread::sleep(Duration::from_millis(2).min(left)),
            (Ok(None), Err(error)) => {
                kill(&mut child);
                return Err(deadline.fault(&error));
            }
            (Err(error), _) => {
                kill(&mut child);
                return Err(cannot(error.to_string()));
            }
        }
    }
}

/// Ends a command and what it has started.
fn kill(child: &mut Child) {
    let _gone = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _reaped = child.wait();
}

#[cfg(test)]
mod tests;

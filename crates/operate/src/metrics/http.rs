//! HTTP server for scrapes: answers `GET /metrics`.
//!
//! ```text
//!  accept ──> reading ──whole request──> writing ──sent──> closing ──closed by the client, or late──> gone
//!    └ if too many are open, one is closed: one that is closing, else the one that has been reading for longest
//! ```
//!
//! The server itself is written here, because a scrape is one GET every few seconds from one known
//! peer: server crates bring an executor, or are no longer maintained. Requests are parsed by
//! `httparse`.
//!
//! Invariants: nothing waits for one connection, so that idle clients do not delay a scrape; a request head has at
//! most 8 KiB and arrives within 2 seconds, and the answer is taken within 4; at most 128 connections are open;
//! every connection is closed after one response; only method and path of a request have an effect.
//! Thread-safety: one thread. Dropping the server ends it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::thread::{self, JoinHandle};

use flowyard_frame::Nanos;
use flowyard_yard::Handle;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};

use super::page::page;

/// The longest head of a request, in bytes.
const LONGEST: usize = 8 << 10;
/// The most header fields of a request.
const FIELDS: usize = 64;
/// The most pieces in which a request arrives; each is a reason to parse it again.
const PIECES: usize = 64;
/// The most open connections.
const MOST: usize = 128;
/// The most connections that are accepted before those that are open are served again.
const ACCEPTED: usize = 1024;
const MS: Nanos = 1_000_000;
/// The time within which a request arrives.
const READING: Nanos = 2000 * MS;
/// The time within which the answer is taken.
const WRITING: Nanos = 4000 * MS;
/// The time within which the client closes the connection after the answer. If this side closed it at once, bytes
/// of the client that were not read would make the kernel discard the answer.
const CLOSING: Nanos = 1000 * MS;
/// The pause after a connection could not be accepted, for example because no descriptor was free.
const PAUSE: Nanos = 100 * MS;

/// The metrics server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// The text is neither an address nor a port.
    #[error(
        "--metrics: '{0}' is not an address; write an IP address and port such as 127.0.0.1:9464, or a port alone"
    )]
    Address(String),
    /// A system call failed.
    #[error("metrics on {address}: {source}; choose another --metrics ADDRESS")]
    Io {
        /// The address to bind.
        address: SocketAddr,
        /// The error of the system call.
        source: io::Error,
    },
}

/// Parses an IP address with a port. A port alone means that port of 127.0.0.1.
///
/// # Errors
/// The text is neither.
pub fn address(text: &str) -> Result<SocketAddr, MetricsError> {
    let port = text.parse().map(|port: u16| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    port.or_else(|_| text.parse()).map_err(|_| MetricsError::Address(text.into()))
}

/// The metrics server.
#[derive(Debug)]
pub struct Metrics {
    address: SocketAddr,
    listener: Option<TcpListener>,
    /// A pipe that is closed to end the thread.
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Metrics {
    /// Binds `address`; for port 0 the system chooses a free port.
    ///
    /// # Errors
    /// A system call failed.
    pub fn bind(address: SocketAddr) -> Result<Self, MetricsError> {
        let wrong = |source| MetricsError::Io { address, source };
        let listener = TcpListener::bind(address).map_err(wrong)?;
        listener.set_nonblocking(true).map_err(wrong)?;
        let address = listener.local_addr().map_err(wrong)?;
        Ok(Self { address, listener: Some(listener), stop: None, thread: None })
    }

    /// Continues with the listening socket of the process that is taken over.
    ///
    /// # Errors
    /// It is no listening socket.
    pub fn adopt(listener: OwnedFd) -> io::Result<Self> {
        let listener = TcpListener::from(listener);
        let address = listener.local_addr()?;
        Ok(Self { address, listener: Some(listener), stop: None, thread: None })
    }

    /// A duplicate of the listening socket, before it is served.
    ///
    /// # Errors
    /// The process has too many descriptors.
    pub fn duplicate(&self) -> io::Result<Option<OwnedFd>> {
        let duplicate = self.listener.as_ref().map(TcpListener::try_clone).transpose()?;
        Ok(duplicate.map(OwnedFd::from))
    }

    /// The address on which the server listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts the thread that answers requests.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn serve(&mut self, yard: Handle) -> io::Result<()> {
        let of_yard = yard.clone();
        self.serve_page(move || of_yard.now(), move || page(&yard))
    }

    /// Starts the thread that answers requests with what `page` returns. `now` is a clock.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn serve_page(
        &mut self,
        now: impl Fn() -> Nanos + Send + 'static,
        page: impl Fn() -> String + Send + 'static,
    ) -> io::Result<()> {
        let Some(listener) = self.listener.take() else { return Ok(()) };
        let (stopped, stop) = pipe_with(PipeFlags::CLOEXEC)?;
        let serve = move || {
            Server { listener, stopped, open: Vec::new(), quiet: 0, now: &now, page: &page }.run();
        };
        self.thread = Some(thread::Builder::new().name("metrics".into()).spawn(serve)?);
        self.stop = Some(stop);
        Ok(())
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

/// The state of the thread.
struct Server<'a> {
    listener: TcpListener,
    /// Readable when the server ends.
    stopped: OwnedFd,
    /// Oldest first.
    open: Vec<Connection>,
    /// Until then, no connection is accepted.
    quiet: Nanos,
    now: &'a dyn Fn() -> Nanos,
    /// Makes the answer to a scrape.
    page: &'a dyn Fn() -> String,
}

struct Connection {
    stream: TcpStream,
    state: State,
    /// When it is closed, whatever its state.
    until: Nanos,
}

enum State {
    /// Reads a request, of which this has arrived, in this number of pieces.
    Reading(Vec<u8>, usize),
    /// Sends an answer, of which this number of bytes is sent.
    Writing(Vec<u8>, usize),
    /// Waits until the client has closed the connection.
    Closing,
}

impl Server<'_> {
    fn run(mut self) {
        while let Some((is_offered, ready)) = self.wait() {
            let now = (self.now)();
            let mut ready = ready.into_iter();
            self.open.retain_mut(|connection| {
                let goes_on = match ready.next() {
                    Some(true) => connection.advance(now, self.page),
                    _ => true,
                };
                goes_on && now < connection.until
            });
            if is_offered {
                self.accept();
            }
        }
    }

    /// Waits for events: whether there are new connections, and which of the open ones can go on. `None` at the end.
    fn wait(&self) -> Option<(bool, Vec<bool>)> {
        let now = (self.now)();
        let times = self.open.iter().map(|connection| connection.until);
        let quiet = Some(self.quiet).filter(|&until| until > now);
        let next = times.chain(quiet).min().map(|until| until.saturating_sub(now));
        let next = next.map(|left| Timespec {
            tv_sec: (left / 1_000_000_000) as _,
            tv_nsec: (left % 1_000_000_000) as _,
        });
        let listens = if quiet.is_some() { PollFlags::empty() } else { PollFlags::IN };
        let mut polled =
            vec![PollFd::new(&self.stopped, PollFlags::IN), PollFd::new(&self.listener, listens)];
        polled.extend(self.open.iter().map(|connection| {
            let waits_for = match connection.state {
                State::Writing(..) => PollFlags::OUT,
                _ => PollFlags::IN,
            };
            PollFd::from_borrowed_fd(connection.stream.as_fd(), waits_for)
        }));
        if poll(&mut polled, next.as_ref()).is_err() {
            return Some((false, Vec::new())); // interrupted by a signal
        }
        let is_ready = |polled: &PollFd<'_>| !polled.revents().is_empty();
        let (own, open) = polled.split_at(2);
        let is_offered = quiet.is_none() && is_ready(&own[1]);
        (!is_ready(&own[0])).then(|| (is_offered, open.iter().map(is_ready).collect()))
    }

    /// Accepts the connections that wait.
    fn accept(&mut self) {
        for _ in 0..ACCEPTED {
            let now = (self.now)();
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.close_one();
                    self.quiet = now + PAUSE;
                    return;
                }
            };
            if self.open.len() >= MOST {
                self.close_one();
            }
            if stream.set_nonblocking(true).is_ok() {
                let state = State::Reading(Vec::new(), 0);
                let mut connection = Connection { stream, state, until: now + READING };
                // Most requests are there already.
                if connection.advance(now, self.page) {
                    self.open.push(connection);
                }
            }
        }
    }

    /// Closes the connection that is needed least.
    fn close_one(&mut self) {
        let closing = |one: &Connection| matches!(one.state, State::Closing);
        let reading = |one: &Connection| matches!(one.state, State::Reading(..));
        let open = &self.open;
        let least = open.iter().position(closing).or_else(|| open.iter().position(reading));
        if !open.is_empty() {
            self.open.remove(least.unwrap_or(0));
        }
    }
}

impl Connection {
    /// Does what can be done without waiting. Returns whether the connection stays open.
    fn advance(&mut self, now: Nanos, page: &dyn Fn() -> String) -> bool {
        loop {
            let done = match &mut self.state {
                State::Reading(head, pieces) => read(&mut self.stream, head, pieces),
                State::Writing(answer, sent) => write(&mut self.stream, answer, sent),
                // One read for each call, so that a client that sends without end delays nobody.
                State::Closing => {
                    return match self.stream.read(&mut [0; LONGEST]) {
                        Ok(more) => more > 0,
                        Err(error) => is_to_be_repeated(&error),
                    };
                }
            };
            if let Err(error) = done {
                return is_to_be_repeated(&error);
            }
            (self.state, self.until) = match &self.state {
                State::Reading(head, _) => (State::Writing(answer(head, page), 0), now + WRITING),
                _ => {
                    if self.stream.shutdown(Shutdown::Write).is_err() {
                        return false;
                    }
                    (State::Closing, now + CLOSING)
                }
            };
        }
    }
}

/// Whether the call can succeed when the connection is ready again.
fn is_to_be_repeated(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Reads until the head of a request is complete or cannot become valid.
fn read(stream: &mut TcpStream, head: &mut Vec<u8>, pieces: &mut usize) -> io::Result<()> {
    let mut piece = [0; LONGEST];
    loop {
        let got = stream.read(&mut piece)?;
        head.extend_from_slice(&piece[..got]);
        *pieces += 1;
        if got == 0 && head.is_empty() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if got == 0 || *pieces == PIECES || request(head) != Request::Partial {
            return Ok(());
        }
    }
}

fn write(stream: &mut TcpStream, answer: &[u8], sent: &mut usize) -> io::Result<()> {
    while *sent < answer.len() {
        match stream.write(&answer[*sent..])? {
            0 => return Err(ErrorKind::WriteZero.into()),
            more => *sent += more,
        }
    }
    Ok(())
}

/// The answer to a request.
fn answer(head: &[u8], page: &dyn Fn() -> String) -> Vec<u8> {
    let (status, body) = match request(head) {
        Request::Metrics => ("200 OK", page()),
        Request::Partial => (BAD_REQUEST, format!("{BAD_REQUEST}: use GET /metrics\n")),
        Request::Refused(status) => (status, format!("{status}: use GET /metrics\n")),
    };
    let send_body = !head.starts_with(b"HEAD ");
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let mut text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\n{allow}Connection: close\r\n\r\n",
        body.len()
    );
    if send_body {
        text += &body;
    }
    text.into_bytes()
}

const BAD_REQUEST: &str = "400 Bad Request";
const TOO_LARGE: &str = "431 Request Header Fields Too Large";

/// What the head of a request, as far as it was received, asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Request {
    Metrics,
    /// More bytes are needed.
    Partial,
    /// Refused with this status.
    Refused(&'static str),
}

fn request(head: &[u8]) -> Request {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(head) {
        _ if head.len() > LONGEST => return Request::Refused(TOO_LARGE),
        Ok(httparse::Status::Partial) => return Request::Partial,
        Ok(httparse::Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => return Request::Refused(TOO_LARGE),
        Err(_) => return Request::Refused(BAD_REQUEST),
    }
    if !matches!(request.method, Some("GET" | "HEAD")) {
        return Request::Refused("405 Method Not Allowed");
    }
    let path = request.path.unwrap_or_default().split('?').next();
    match path {
        Some("/metrics") => Request::Metrics,
        _ => Request::Refused("404 Not Found"),
    }
}

#[cfg(test)]
mod tests;

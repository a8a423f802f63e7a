//! HTTP server for scrapes: answers `GET /metrics`, one connection after another.
//!
//! The server itself is written here, because a scrape is one GET every few seconds from one known
//! peer: server crates bring an executor, or are no longer maintained. Requests are parsed by
//! `httparse`.
//!
//! Invariants: a request head has at most 8 KiB and arrives within 2 seconds; every connection is
//! closed after one response; only method and path of a request have an effect.
//! Thread-safety: one thread. Dropping the server ends it.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use flowyard_yard::Handle;

use super::page::page;

/// The longest head of a request, in bytes.
const LONGEST: usize = 8 << 10;
/// The most header fields of a request.
const FIELDS: usize = 64;
/// The longest wait for a read.
const WAIT: Duration = Duration::from_millis(500);
/// The most reads for one request.
const PIECES: usize = 4;

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
    stop: Arc<AtomicBool>,
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
        let address = listener.local_addr().map_err(wrong)?;
        Ok(Self { address, listener: Some(listener), stop: Arc::default(), thread: None })
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
        let Some(listener) = self.listener.take() else { return Ok(()) };
        let stop = Arc::clone(&self.stop);
        let serve = move || {
            for stream in listener.incoming() {
                if stop.load(Ordering::Acquire) {
                    return;
                }
                match stream {
                    Ok(stream) => drop(answer(stream, &yard)), // errors are those of the client
                    Err(_) => thread::sleep(Duration::from_millis(100)),
                }
            }
        };
        self.thread = Some(thread::Builder::new().name("metrics".into()).spawn(serve)?);
        Ok(())
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let woken = TcpStream::connect_timeout(&self.address, Duration::from_millis(100)).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ended = thread.join();
        }
    }
}

fn answer(mut stream: TcpStream, yard: &Handle) -> io::Result<()> {
    stream.set_read_timeout(Some(WAIT))?;
    stream.set_write_timeout(Some(WAIT * 4))?;
    let mut head = Vec::new();
    for _ in 0..PIECES {
        let mut piece = [0; LONGEST];
        let got = stream.read(&mut piece)?;
        head.extend_from_slice(&piece[..got]);
        if got == 0 || request(&head) != Request::Partial {
            break;
        }
    }
    let (status, body) = match request(&head) {
        Request::Metrics => ("200 OK", page(yard)),
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
    stream.write_all(text.as_bytes())?;
    stream.shutdown(std::net::Shutdown::Write)
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
mod tests {
    use super::*;

    #[test]
    fn only_a_complete_get_of_metrics_is_answered() {
        assert_eq!(request(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), Request::Metrics);
        assert_eq!(request(b"HEAD /metrics?x=1 HTTP/1.0\n\n"), Request::Metrics);
        for text in ["", "G", "GET /metrics HTTP/1.1\r\n", "GET /metrics HTTP/1.1\r\nHost: x\r\n"] {
            assert_eq!(request(text.as_bytes()), Request::Partial, "{text:?}");
        }
        let status = |text: &str| match request(text.as_bytes()) {
            Request::Refused(status) => status[..3].to_owned(),
            other => panic!("{text:?}: {other:?}"),
        };
        for (text, wanted) in [
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("GET /metrics\r\n\r\n", "400"),
            ("GET /metrics HTTP/2\r\n\r\n", "400"),
            ("GET /metrics x HTTP/1.1\r\n\r\n", "400"),
            ("GET /metrics HTTP/1.1\r\nno colon\r\n\r\n", "400"),
            ("\0\u{ff}\r\n\r\n", "400"),
        ] {
            assert_eq!(status(text), wanted, "{text:?}");
        }
        assert_eq!(status(&"x".repeat(LONGEST + 1)), "431");
        let fields = "A: b\r\n".repeat(FIELDS + 1);
        assert_eq!(status(&format!("GET /metrics HTTP/1.1\r\n{fields}\r\n")), "431");
    }

    #[test]
    fn a_port_alone_is_on_loopback() {
        assert_eq!(address("9464").unwrap().to_string(), "127.0.0.1:9464");
        assert_eq!(address("[::1]:0").unwrap().to_string(), "[::1]:0");
        assert!(address("localhost").unwrap_err().to_string().contains("127.0.0.1:9464"));
    }
}

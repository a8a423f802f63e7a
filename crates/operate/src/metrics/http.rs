//! The little HTTP that a scrape needs: `GET /metrics`, one connection after another.
//!
//! Written by hand, on purpose: a scrape is one GET in seconds from one peer that we choose. The
//! whole of it is this file; a server crate brings an executor, or is not kept any more.
//!
//! Invariants: a request head is at most 8 KiB and comes within 2 seconds; every connection is
//! closed after one answer; nothing of the request but method and path is looked at.
//! Thread-safety: one thread. Dropping the server ends it.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use flowyard_yard::Handle;

/// The longest head of a request, in bytes.
const LONGEST: usize = 8 << 10;
/// The longest wait for a piece of it, and the most pieces.
const WAIT: Duration = Duration::from_millis(500);
const PIECES: usize = 4;

/// Why there are no metrics.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// The text is no address.
    #[error("'{0}' is no address for metrics; write one such as 127.0.0.1:9464, or a port alone")]
    Address(String),
    /// The system said no.
    #[error("metrics on {address}: {source}; choose another --metrics ADDRESS")]
    Io {
        /// Where.
        address: SocketAddr,
        /// What it said.
        source: io::Error,
    },
}

/// An address as people write it: a port alone is one of 127.0.0.1.
///
/// # Errors
/// When it is neither.
pub fn address(text: &str) -> Result<SocketAddr, MetricsError> {
    let port = text.parse().map(|port: u16| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    port.or_else(|_| text.parse()).map_err(|_| MetricsError::Address(text.into()))
}

/// A metrics server.
#[derive(Debug)]
pub struct Metrics {
    address: SocketAddr,
    listener: Option<TcpListener>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Metrics {
    /// Binds `address`; port 0 takes any that is free.
    ///
    /// # Errors
    /// When the system says no.
    pub fn bind(address: SocketAddr) -> Result<Self, MetricsError> {
        let wrong = |source| MetricsError::Io { address, source };
        let listener = TcpListener::bind(address).map_err(wrong)?;
        let address = listener.local_addr().map_err(wrong)?;
        Ok(Self { address, listener: Some(listener), stop: Arc::default(), thread: None })
    }

    /// Where it is bound.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers from here on.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub fn serve(&mut self, yard: Handle) -> io::Result<()> {
        let Some(listener) = self.listener.take() else { return Ok(()) };
        let stop = Arc::clone(&self.stop);
        let serve = move || {
            for stream in listener.incoming() {
                if stop.load(Ordering::Acquire) {
                    return;
                }
                match stream {
                    Ok(stream) => drop(answer(stream, &yard)), // who goes away gets no answer
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
        if got == 0 || is_whole(&head) || head.len() > LONGEST {
            break;
        }
    }
    let (status, body) = match request(&head) {
        Ok(()) => ("200 OK", super::page(yard)),
        Err(status) => (status, format!("{status}: try GET /metrics\n")),
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

fn is_whole(head: &[u8]) -> bool {
    head.windows(4).any(|end| end == b"\r\n\r\n") || head.windows(2).any(|end| end == b"\n\n")
}

/// Whether this head asks for the metrics; if not, the status that says so.
fn request(head: &[u8]) -> Result<(), &'static str> {
    if head.len() > LONGEST {
        return Err("431 Request Header Fields Too Large");
    }
    if !is_whole(head) {
        return Err("400 Bad Request");
    }
    let line = head.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    if words.next().is_some() || !version.is_some_and(|version| version.starts_with(b"HTTP/1.")) {
        return Err("400 Bad Request");
    }
    if !matches!(method, Some(b"GET" | b"HEAD")) {
        return Err("405 Method Not Allowed");
    }
    let path = target.unwrap_or_default().split(|byte| *byte == b'?').next();
    if path == Some(b"/metrics") { Ok(()) } else { Err("404 Not Found") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_get_of_metrics_is_answered() {
        let status = |text: &str| request(text.as_bytes()).err().map(|s| s[..3].to_owned());
        assert_eq!(status("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), None);
        assert_eq!(status("HEAD /metrics?x=1 HTTP/1.0\n\n"), None);
        for (text, wanted) in [
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("GET /metrics\r\n\r\n", "400"),
            ("GET /metrics HTTP/2\r\n\r\n", "400"),
            ("GET /metrics x HTTP/1.1\r\n\r\n", "400"),
            ("GET /metrics HTTP/1.1\r\n", "400"),
            ("", "400"),
            ("\0\u{ff}\r\n\r\n", "400"),
        ] {
            assert_eq!(status(text).as_deref(), Some(wanted), "{text:?}");
        }
        assert_eq!(status(&"x".repeat(LONGEST + 1)).as_deref(), Some("431"));
    }

    #[test]
    fn a_port_alone_is_on_loopback() {
        assert_eq!(address("9464").unwrap().to_string(), "127.0.0.1:9464");
        assert_eq!(address("[::1]:0").unwrap().to_string(), "[::1]:0");
        assert!(address("localhost").unwrap_err().to_string().contains("127.0.0.1:9464"));
    }
}

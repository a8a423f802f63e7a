//! Non-blocking byte stream over TCP, TLS or a Unix socket.
//!
//! Thread-safety: used by one thread.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustls::Connection;

use super::endpoint::{Endpoint, Transport};
use super::tls::Loaded;

/// The longest wait for a TCP connection to be established.
const PATIENCE: Duration = Duration::from_secs(3);

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(into),
            Self::Unix(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(from),
            Self::Unix(stream) => stream.write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An established connection.
#[derive(Debug)]
pub struct Dialed {
    stream: Stream,
    tls: Option<Box<Connection>>,
}

/// Connects to an endpoint. The TLS handshake is completed by later reads and writes.
///
/// # Errors
/// The connection could not be opened, or `tls` is missing.
pub fn dial(endpoint: &Endpoint, tls: Option<&Loaded>) -> io::Result<Dialed> {
    match &endpoint.transport {
        Transport::Tcp(host, port) => Dialed::tcp(tcp(host, *port)?, None),
        Transport::Tls(host, port) => {
            let missing = || io::Error::other("TLS requires certificates");
            let session = tls.ok_or_else(missing)?.client(host)?;
            Dialed::tcp(tcp(host, *port)?, Some(session))
        }
        Transport::Unix(path) => Dialed::unix(UnixStream::connect(path)?),
    }
}

fn tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl Dialed {
    /// Wraps a TCP stream, with its TLS session if it has one.
    ///
    /// # Errors
    /// The options of the stream cannot be set.
    pub fn tcp(stream: TcpStream, tls: Option<Connection>) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream: Stream::Tcp(stream), tls: tls.map(Box::new) })
    }

    /// Wraps a Unix stream.
    pub(super) fn unix(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream: Stream::Unix(stream), tls: None })
    }

    /// The file descriptor, for `poll`.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        match &self.stream {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }

    /// Whether the TLS session has bytes to send.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Appends received bytes to `into`, at most about 64 KiB. Appends nothing if none have arrived.
    ///
    /// # Errors
    /// The connection has ended; `UnexpectedEof` if the other side closed it.
    pub fn receive(&mut self, into: &mut Vec<u8>) -> io::Result<()> {
        let mut chunk = [0; 16 << 10];
        for _ in 0..4 {
            let got = match &mut self.tls {
                None => self.stream.read(&mut chunk),
                Some(tls) => secured(tls, &mut self.stream, &mut chunk),
            };
            match got {
                Ok(0) => {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the other side closed the connection",
                    ));
                }
                Ok(len) => into.extend_from_slice(&chunk[..len]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends as many of `bytes` as possible and removes them.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn send(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        let mut sent = 0;
        let done = push(&mut self.stream, self.tls.as_deref_mut(), bytes, &mut sent);
        bytes.drain(..sent);
        match done {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            done => done,
        }
    }
}

/// Sends until all of `bytes` were taken, which `sent` counts, or `stream` takes no more.
fn push(
    stream: &mut impl Write,
    mut tls: Option<&mut Connection>,
    bytes: &[u8],
    sent: &mut usize,
) -> io::Result<()> {
    loop {
        match &mut tls {
            None if *sent == bytes.len() => return Ok(()),
            None => *sent += taken(|| stream.write(&bytes[*sent..]))?,
            Some(tls) => {
                // Bytes that TLS has buffered are sent before it accepts more.
                while tls.wants_write() {
                    taken(|| tls.write_tls(stream))?;
                }
                if *sent == bytes.len() || tls.is_handshaking() {
                    return Ok(());
                }
                *sent += tls.writer().write(&bytes[*sent..])?;
            }
        }
    }
}

/// The number of bytes that `write` wrote, which is repeated when it is interrupted. None is an error:
/// the callers would try for ever.
fn taken(mut write: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match write() {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Reads and decrypts.
fn secured(tls: &mut Connection, stream: &mut Stream, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match tls.reader().read(into) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            done => return done,
        }
        if tls.read_tls(stream)? == 0 {
            return Ok(0);
        }
        if let Err(error) = tls.process_new_packets() {
            // Sends the alert to the other side.
            let _ = tls.write_tls(stream);
            return Err(io::Error::other(error));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowyard_testkit::Faulty;

    #[test]
    fn messages_are_sent_whole_over_a_stream_with_faults() {
        let bytes: Vec<u8> = (0..=255).collect();
        for most in [1, 5, 1000] {
            for room in (0..=bytes.len()).step_by(8) {
                let (mut stream, mut sent) = (Faulty::new(most, room), 0);
                let done = push(&mut stream, None, &bytes, &mut sent);
                assert_eq!((sent, &stream.taken[..]), (room, &bytes[..room]));
                assert_eq!(done.is_ok(), room == bytes.len());
            }
        }
    }

    #[test]
    fn a_stream_that_takes_nothing_is_an_error() {
        let mut sent = 0;
        let done = push(&mut [0; 0].as_mut_slice(), None, b"x", &mut sent);
        assert_eq!(done.unwrap_err().kind(), io::ErrorKind::WriteZero);
    }
}

//! Probes: asks a backend how it is. The I/O of [`crate::health`]; each call waits until there is an
//! answer or the time is over, so it is for a thread of its own.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;

/// How a backend is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Probe {
    /// It takes a TCP connection.
    Tcp,
    /// It answers `GET path` with a status from `least` to `most`.
    Http {
        /// The path, with its first slash.
        path: String,
        /// What is asked for, as the Host header says.
        host: String,
        /// The lowest status that is right.
        least: u16,
        /// The highest one.
        most: u16,
    },
    /// It answers the datagram `send` with one that begins with `expect`; without `expect`, what
    /// counts is that no ICMP error comes.
    Udp {
        /// What it is sent.
        send: Vec<u8>,
        /// What its answer begins with.
        expect: Option<Vec<u8>>,
    },
    /// A command ends with 0: its words; address and port are put behind them.
    Command(Vec<String>),
}

/// The longest head of an answer that is read, in bytes.
const HEAD: usize = 1024;

impl Probe {
    /// Asks the backend at `addr`; whether it answers right within `timeout`.
    #[must_use]
    pub fn ask(&self, addr: SocketAddr, timeout: Duration) -> bool {
        let timeout = timeout.max(Duration::from_millis(1));
        match self {
            Self::Tcp => TcpStream::connect_timeout(&addr, timeout).is_ok(),
            Self::Http { path, host, least, most } => http(addr, timeout, path, host)
                .is_ok_and(|status| status.is_some_and(|s| (*least..=*most).contains(&s))),
            Self::Udp { send, expect } => {
                udp(addr, timeout, send, expect.as_deref()).unwrap_or(false)
            }
            Self::Command(words) => command(words, addr, timeout).unwrap_or(false),
        }
    }
}

/// The status of an HTTP/1.1 answer (RFC 9112), if it is one.
fn http(
    addr: SocketAddr,
    timeout: Duration,
    path: &str,
    host: &str,
) -> std::io::Result<Option<u16>> {
    let mut stream = TcpStream::connect_timeout(&addr, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    let asked = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(asked.as_bytes())?;
    let (mut head, mut len) = ([0; HEAD], 0);
    while len < HEAD && !head[..len].contains(&b'\n') {
        match stream.read(&mut head[len..])? {
            0 => break,
            read => len += read,
        }
    }
    Ok(status(&head[..len]))
}

/// The status in the first line of an answer.
#[must_use]
fn status(head: &[u8]) -> Option<u16> {
    let line = head.split(|byte| *byte == b'\n').next()?;
    let rest = line.strip_prefix(b"HTTP/1.")?;
    let digits = rest.get(2..5)?;
    let is_status = rest.get(1) == Some(&b' ') && digits.iter().all(u8::is_ascii_digit);
    if is_status { std::str::from_utf8(digits).ok()?.parse().ok() } else { None }
}

fn udp(
    addr: SocketAddr,
    timeout: Duration,
    send: &[u8],
    expect: Option<&[u8]>,
) -> std::io::Result<bool> {
    let any = if addr.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    socket.connect(addr)?;
    socket.set_read_timeout(Some(timeout))?;
    socket.send(send)?;
    let mut answer = [0; HEAD];
    match (socket.recv(&mut answer), expect) {
        (Ok(len), Some(expect)) => Ok(answer[..len].starts_with(expect)),
        (Ok(_), None) => Ok(true),
        (Err(error), None) => {
            Ok(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
        }
        (Err(error), Some(_)) => Err(error),
    }
}

fn command(words: &[String], addr: SocketAddr, timeout: Duration) -> std::io::Result<bool> {
    let Some((program, rest)) = words.split_first() else { return Ok(false) };
    let mut child = Command::new(program)
        .args(rest)
        .args([addr.ip().to_string(), addr.port().to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let step = Duration::from_millis(5);
    let mut left = timeout;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        if left.is_zero() {
            child.kill()?;
            child.wait()?;
            return Ok(false);
        }
        std::thread::sleep(step.min(left));
        left = left.saturating_sub(step);
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const SOON: Duration = Duration::from_millis(300);

    fn http(least: u16, most: u16) -> Probe {
        Probe::Http { path: "/health".into(), host: "web".into(), least, most }
    }

    #[test]
    fn tcp_and_http_are_asked() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        assert!(Probe::Tcp.ask(addr, SOON));
        drop(listener.accept().unwrap());
        let server = std::thread::spawn(move || {
            for answer in ["HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 503 Busy\r\n\r\n", "SSH-2.0\r\n"] {
                let (mut stream, _) = listener.accept().unwrap();
                let mut asked = [0; 256];
                let len = stream.read(&mut asked).unwrap();
                assert!(asked[..len].starts_with(b"GET /health HTTP/1.1\r\nHost: web\r\n"));
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        assert!(http(200, 299).ask(addr, SOON));
        assert!(!http(200, 299).ask(addr, SOON));
        assert!(!http(0, 999).ask(addr, SOON), "no HTTP");
        server.join().unwrap();
        assert!(!Probe::Tcp.ask(addr, SOON), "the listener is gone");
    }

    #[test]
    fn udp_and_commands_are_asked() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let addr = server.local_addr().unwrap();
        let udp = |expect: Option<&[u8]>| Probe::Udp {
            send: b"ping".to_vec(),
            expect: expect.map(<[u8]>::to_vec),
        };
        assert!(udp(None).ask(addr, SOON), "silence is no error");
        assert!(!udp(Some(b"pong")).ask(addr, Duration::from_millis(20)));
        drop(server);
        assert!(!udp(None).ask(addr, SOON), "port unreachable");
        let command =
            |text: &str| Probe::Command(vec!["sh".into(), "-c".into(), text.into(), "-".into()]);
        assert!(command("test $1:$2 = 127.0.0.1:9").ask("127.0.0.1:9".parse().unwrap(), SOON * 10));
        assert!(!command("exit 1").ask(addr, SOON * 10));
        assert!(!command("sleep 9").ask(addr, Duration::from_millis(30)));
        assert!(!Probe::Command(Vec::new()).ask(addr, SOON));
    }

    #[test]
    fn a_status_is_three_digits() {
        assert_eq!(status(b"HTTP/1.0 404 Not Found"), Some(404));
        for wrong in
            ["", "HTTP/1.1", "HTTP/1.1 20", "HTTP/1.1 2x0 ", "HTTP/2 200 OK", "http/1.1 200"]
        {
            assert_eq!(status(wrong.as_bytes()), None, "{wrong}");
        }
    }
}

//! As much of HTTP/1.1 (RFC 9112) as a health check needs: one GET, the status, and the first part
//! of the body.
//!
//! Written by hand, on purpose: a client crate has its own ideas of time, redirects, proxies and
//! pools, and a check wants none of them.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;

use flowyard_lb::check::Http;

use super::probe::{Deadline, Fault};

/// The longest head and body that are read, in bytes.
const LONGEST: usize = 64 << 10;

/// Asks for the page that is wanted, and looks at the answer.
pub(super) fn get(
    mut stream: impl Read + Write,
    wanted: &Http,
    at: SocketAddr,
    deadline: Deadline<'_>,
) -> Result<(), Fault> {
    let host = wanted.host.clone().unwrap_or_else(|| at.to_string());
    let path = &wanted.path;
    let asked = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: flowyard\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    );
    let sent = stream.write_all(asked.as_bytes()).and_then(|()| stream.flush());
    sent.map_err(|error| deadline.fault(&error))?;
    let mut answer = Vec::with_capacity(4096);
    let mut is_right = false;
    let mut piece = [0; 4096];
    loop {
        let read = match stream.read(&mut piece) {
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // A server that ends a connection as it likes has said all the same what it said.
            Err(error) if is_right && error.kind() == ErrorKind::UnexpectedEof => 0,
            Err(error) => return Err(deadline.fault(&error)),
        };
        answer.extend_from_slice(&piece[..read]);
        if !is_right && (read == 0 || answer.contains(&b'\n') || answer.len() >= LONGEST) {
            match status(&answer) {
                None => return Err(Fault::wrong("its answer is no HTTP")),
                Some(status) if !(wanted.least..=wanted.most).contains(&status) => {
                    return Err(Fault::wrong(format!("status {status}")));
                }
                Some(_) => is_right = true,
            }
        }
        let Some(body) = wanted.body.as_deref().filter(|_| is_right) else {
            if is_right {
                return Ok(());
            }
            continue;
        };
        if holds(&answer, body) {
            return Ok(());
        }
        if read == 0 || answer.len() >= LONGEST {
            return Err(Fault::wrong(format!("'{body}' is not in its body")));
        }
    }
}

/// The status in the first line of an answer.
fn status(head: &[u8]) -> Option<u16> {
    let line = head.split(|byte| *byte == b'\n').next()?;
    let rest = line.strip_prefix(b"HTTP/1.")?;
    let digits = rest.get(2..5)?;
    let is_status = rest.get(1) == Some(&b' ') && digits.iter().all(u8::is_ascii_digit);
    if is_status { std::str::from_utf8(digits).ok()?.parse().ok() } else { None }
}

/// Whether the body of an answer, as far as it came, holds `text`.
fn holds(answer: &[u8], text: &str) -> bool {
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return false };
    let (head, body) = (&answer[..end], &answer[end + 4..]);
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let is_chunked = head.lines().any(|line| {
        line.strip_prefix("transfer-encoding:").is_some_and(|how| how.contains("chunked"))
    });
    let body = if is_chunked { dechunk(body) } else { body.to_vec() };
    text.is_empty() || body.windows(text.len()).any(|part| part == text.as_bytes())
}

/// The chunks of a body (RFC 9112 section 7.1) put together, as far as they came.
fn dechunk(mut body: &[u8]) -> Vec<u8> {
    let mut all = Vec::with_capacity(body.len());
    while let Some(end) = body.windows(2).position(|two| two == b"\r\n") {
        let size = String::from_utf8_lossy(&body[..end]);
        let size = size.split(';').next().unwrap_or_default().trim();
        let Ok(size @ 1..) = usize::from_str_radix(size, 16) else { break };
        let chunk = &body[end + 2..];
        all.extend_from_slice(&chunk[..size.min(chunk.len())]);
        body = chunk.get(size.saturating_add(2)..).unwrap_or_default();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_three_digits() {
        assert_eq!(status(b"HTTP/1.0 404 Not Found"), Some(404));
        for wrong in
            ["", "HTTP/1.1", "HTTP/1.1 20", "HTTP/1.1 2x0 ", "HTTP/2 200 OK", "http/1.1 200"]
        {
            assert_eq!(status(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn bodies_come_whole_or_in_chunks() {
        let plain = b"HTTP/1.1 200 OK\r\nX: ready\r\n\r\nall is well";
        assert!(holds(plain, "is well") && holds(plain, "") && !holds(plain, "ready"));
        assert!(!holds(b"HTTP/1.1 200 OK\r\n", ""), "its head is not over");
        let chunked =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nall \r\n7;x=y\r\nis well\r\n0\r\n\r\n";
        assert!(holds(chunked, "all is well") && !holds(chunked, "7;x"));
        // What is damaged, or has not come, is no panic.
        for end in 0..chunked.len() {
            let _ = holds(&chunked[..end], "all is well");
        }
        assert_eq!(dechunk(b"ffffffffffffffff\r\nabc"), b"abc");
        assert_eq!(dechunk(b"-1\r\nabc"), b"");
    }
}

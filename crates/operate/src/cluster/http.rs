//! One HTTP/1.1 request, and its answer as a whole.

use std::io::{self, ErrorKind, Read, Write};

pub(super) use crate::health::http::Answer;
use crate::health::http::response;

/// A request. Its fields contain no ends of lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    pub(super) method: &'a str,
    /// The path with its query.
    pub(super) path: &'a str,
    /// Fields beside those that every request has.
    pub(super) fields: &'a [(&'a str, String)],
    pub(super) body: &'a [u8],
    /// The longest answer, in bytes, without its head.
    pub(super) longest: usize,
}

/// The longest head of an answer, in bytes.
const HEAD: usize = 64 << 10;

/// Sends a request and reads the answer until the server closes the connection.
pub(super) fn exchange(
    mut stream: impl Read + Write,
    host: &str,
    request: Request<'_>,
) -> io::Result<Answer> {
    let Request { method, path, fields, body, longest } = request;
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: flowyard\r\n");
    for (name, value) in fields {
        head += &format!("{name}: {value}\r\n");
    }
    if method != "GET" {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    head += "Connection: close\r\n\r\n";
    stream.write_all(&[head.as_bytes(), body].concat())?;
    stream.flush()?;
    let mut answer = Vec::with_capacity(4096);
    let mut piece = [0; 16 << 10];
    loop {
        let read = match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // A server may close a TLS connection without close_notify. Whether the body is whole is seen by its framing.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(error),
        };
        answer.extend_from_slice(&piece[..read]);
        if answer.len() > longest + HEAD {
            let most = longest >> 20;
            return Err(io::Error::other(format!("the answer has more than {most} MiB")));
        }
    }
    response(&answer).ok_or_else(|| io::Error::other("the answer is not HTTP/1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends a head and then zeros for ever.
    struct Endless(bool);

    impl Read for Endless {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            if std::mem::replace(&mut self.0, true) {
                into.fill(0);
                return Ok(into.len());
            }
            let head = b"HTTP/1.1 200 OK\r\n\r\n";
            into[..head.len()].copy_from_slice(head);
            Ok(head.len())
        }
    }

    impl Write for Endless {
        fn write(&mut self, from: &[u8]) -> io::Result<usize> {
            Ok(from.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_answer_without_end_is_refused() {
        let request =
            Request { method: "GET", path: "/", fields: &[], body: &[], longest: 2 << 20 };
        let error = exchange(Endless(false), "a", request).unwrap_err();
        assert_eq!(error.to_string(), "the answer has more than 2 MiB");
    }

    #[test]
    fn an_answer_has_a_status_and_a_body() {
        let said =
            |text: &str| response(text.as_bytes()).map(|answer| (answer.status, answer.body));
        let plain = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}rest";
        assert_eq!(said(plain), Some((200, b"{}".to_vec())));
        let chunked = "HTTP/1.1 401 No\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\nX: y\r\n\r\n";
        assert_eq!(said(chunked), Some((401, b"{}".to_vec())));
        assert_eq!(
            said("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"),
            Some((200, b"{".to_vec()))
        );
        for end in 0..chunked.len() {
            let _ = said(&chunked[..end]); // does not panic
        }
        assert_eq!(said("garbage"), None);
    }
}

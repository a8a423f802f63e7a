//! One HTTP/1.1 request with a body, and its answer as a whole.

use std::io::{self, ErrorKind, Read, Write};

use crate::health::http::response;

/// The longest answer, in bytes. Values are 4/3 as long in base64, and a configuration has at most 16 MiB.
pub(super) const LONGEST: usize = 32 << 20;

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    /// The status code.
    pub(super) status: u16,
    /// The body, without the framing of chunks.
    pub(super) body: Vec<u8>,
}

/// Sends a request and reads the answer until the server closes the connection.
pub(super) fn post(
    mut stream: impl Read + Write,
    host: &str,
    path: &str,
    token: Option<&str>,
    body: &[u8],
) -> io::Result<Answer> {
    let token = token.map_or_else(String::new, |token| format!("Authorization: {token}\r\n"));
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: flowyard\r\nContent-Type: application/json\r\n\
         {token}Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body].concat())?;
    stream.flush()?;
    let mut answer = Vec::with_capacity(4096);
    let mut piece = [0; 16 << 10];
    loop {
        let read = match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // A server may close a TLS connection without close_notify. A body that was cut off is no JSON.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(error),
        };
        answer.extend_from_slice(&piece[..read]);
        if answer.len() > LONGEST {
            return Err(io::Error::other("the answer has more than 32 MiB"));
        }
    }
    let answer = response(&answer).map(|(status, body)| Answer { status, body });
    answer.ok_or_else(|| io::Error::other("the answer is not HTTP/1"))
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
        let error = post(Endless(false), "etcd", "/v3/kv/txn", None, b"{}").unwrap_err();
        assert_eq!(error.to_string(), "the answer has more than 32 MiB");
    }

    #[test]
    fn an_answer_has_a_status_and_a_body() {
        let said = |text: &str| response(text.as_bytes());
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

//! HTTP/1.1 client (RFC 9112) for health checks: sends one GET and reads the status and the first part
//! of the body.
//!
//! Responses are parsed by `httparse`. The client itself is written here, because client crates have
//! their own timeouts, redirects, proxies and connection pools, and a check needs none of them.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;

use flowyard_lb::check::Http;
use httparse::{EMPTY_HEADER, Error, ParserConfig, Response, Status, parse_chunk_size};

use super::deadline::{Deadline, Fault};

/// The most bytes of head and body that are read.
const LONGEST: usize = 64 << 10;
/// The most header fields of a response.
const FIELDS: usize = 128;

/// Requests the page and verifies the response.
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
    let mut status_passed = false;
    let mut piece = [0; 4096];
    loop {
        let read = match stream.read(&mut piece) {
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // A server may close a TLS connection without close_notify; what it sent counts.
            Err(error) if status_passed && error.kind() == ErrorKind::UnexpectedEof => 0,
            Err(error) => return Err(deadline.fault(&error)),
        };
        answer.extend_from_slice(&piece[..read]);
        if !status_passed && (read == 0 || answer.contains(&b'\n') || answer.len() >= LONGEST) {
            match status(&answer) {
                None => return Err(Fault::wrong("the response is not HTTP/1")),
                Some(status) if !(wanted.least..=wanted.most).contains(&status) => {
                    return Err(Fault::wrong(format!("the response has status {status}")));
                }
                Some(_) => status_passed = true,
            }
        }
        let Some(body) = wanted.body.as_deref().filter(|_| status_passed) else {
            if status_passed {
                return Ok(());
            }
            continue;
        };
        if contains(&answer, body) {
            return Ok(());
        }
        if read == 0 || answer.len() >= LONGEST {
            return Err(Fault::wrong(format!("the response body does not contain '{body}'")));
        }
    }
}

/// A parser that accepts header fields which browsers accept too.
fn lenient() -> ParserConfig {
    let mut config = ParserConfig::default();
    config
        .allow_obsolete_multiline_headers_in_responses(true)
        .allow_spaces_after_header_name_in_responses(true)
        .ignore_invalid_headers_in_responses(true);
    config
}

/// The status code of a response, of which more may follow.
fn status(answer: &[u8]) -> Option<u16> {
    let mut fields = [EMPTY_HEADER; FIELDS];
    let mut response = Response::new(&mut fields);
    match lenient().parse_response(&mut response, answer) {
        Ok(_) | Err(Error::TooManyHeaders) => response.code,
        Err(_) => None,
    }
}

/// Whether the body of a response, as far as it was received, contains `text`.
fn contains(answer: &[u8], text: &str) -> bool {
    response(answer).is_some_and(|answer| {
        text.is_empty() || answer.body.windows(text.len()).any(|part| part == text.as_bytes())
    })
}

/// A response, as far as it was received.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Answer {
    /// The status code.
    pub(crate) status: u16,
    /// The names, in lower case, and the values of the header fields.
    pub(crate) fields: Vec<(String, String)>,
    /// The body, without the framing of chunks.
    pub(crate) body: Vec<u8>,
    /// Whether the response says where its body ends, and the body was received up to there.
    pub(crate) is_whole: bool,
}

impl Answer {
    /// The value of the first field of this name, which is in lower case.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }
}

/// Reads a response; `None` if its head is not complete.
pub(crate) fn response(answer: &[u8]) -> Option<Answer> {
    let mut fields = [EMPTY_HEADER; FIELDS];
    let mut response = Response::new(&mut fields);
    let Ok(Status::Complete(head)) = lenient().parse_response(&mut response, answer) else {
        return None;
    };
    let rest = &answer[head..];
    let text = |value: &[u8]| String::from_utf8_lossy(value).trim().to_owned();
    let field = |field: &httparse::Header<'_>| (field.name.to_ascii_lowercase(), text(field.value));
    let fields = response.headers.iter().map(field).collect();
    let mut answer = Answer { status: response.code?, fields, body: Vec::new(), is_whole: false };
    let coding = answer.field("transfer-encoding").map(str::to_ascii_lowercase);
    let length = answer.field("content-length").map(str::parse::<usize>);
    (answer.body, answer.is_whole) = match (coding, length) {
        // They have no body (RFC 9112 section 6.3), and some servers send one.
        _ if matches!(answer.status, 204 | 304) => (rest.to_vec(), true),
        (Some(coding), _) if coding.contains("chunked") => dechunk(rest),
        (None, Some(Ok(length))) => (rest[..length.min(rest.len())].to_vec(), rest.len() >= length),
        _ => (rest.to_vec(), false),
    };
    Some(answer)
}

/// Joins the chunks of a body (RFC 9112 section 7.1), as far as they were received, and returns whether these are all.
fn dechunk(mut body: &[u8]) -> (Vec<u8>, bool) {
    let mut all = Vec::with_capacity(body.len());
    loop {
        let (start, size) = match parse_chunk_size(body) {
            Ok(Status::Complete((_, 0))) => return (all, true),
            Ok(Status::Complete(found)) => found,
            Ok(Status::Partial) | Err(_) => return (all, false),
        };
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let chunk = &body[start..];
        all.extend_from_slice(&chunk[..size.min(chunk.len())]);
        body = chunk.get(size.saturating_add(2)..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_three_digits() {
        assert_eq!(status(b"HTTP/1.0 404 Not Found"), Some(404));
        assert_eq!(status(b"HTTP/1.1 200\r\n"), Some(200));
        assert_eq!(status(b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n"), Some(200));
        for wrong in
            ["", "HTTP/1.1", "HTTP/1.1 20", "HTTP/1.1 2x0 ", "HTTP/2 200 OK", "http/1.1 200"]
        {
            assert_eq!(status(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn bodies_are_plain_or_chunked() {
        let plain = b"HTTP/1.1 200 OK\r\nX: ready\r\n\r\nall is well";
        assert!(contains(plain, "is well") && contains(plain, "") && !contains(plain, "ready"));
        assert!(!contains(b"HTTP/1.1 200 OK\r\n", ""), "the head is incomplete");
        let chunked =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nall \r\n7;x=y\r\nis well\r\n0\r\n\r\n";
        assert!(contains(chunked, "all is well") && !contains(chunked, "7;x"));
        // A damaged or incomplete response does not panic.
        for end in 0..chunked.len() {
            let _ = contains(&chunked[..end], "all is well");
        }
        assert_eq!(dechunk(b"fffffffffffffff\r\nabc"), (b"abc".to_vec(), false));
        assert_eq!(dechunk(b"-1\r\nabc"), (Vec::new(), false));
    }

    #[test]
    fn a_body_that_was_cut_off_is_known() {
        let is_whole = |text: &str| response(text.as_bytes()).map(|answer| answer.is_whole);
        let plain = "HTTP/1.1 200 OK\r\nETag: \"a\"\r\nContent-Length: 4\r\n\r\nbody";
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n";
        for (text, least) in [(plain, plain.len()), (chunked, chunked.len() - 2)] {
            for end in 0..=text.len() {
                assert_eq!(is_whole(&text[..end]).unwrap_or(false), end >= least, "{end}");
            }
        }
        assert_eq!(response(plain.as_bytes()).unwrap().field("etag"), Some("\"a\""));
        assert_eq!(is_whole("HTTP/1.1 200 OK\r\n\r\nbody"), Some(false), "it ends anywhere");
        assert_eq!(is_whole("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"), Some(false));
        assert_eq!(is_whole("HTTP/1.1 304 Not Modified\r\n\r\n"), Some(true));
    }
}

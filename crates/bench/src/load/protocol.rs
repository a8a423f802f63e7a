//! What the load generator says, and how it recognizes a whole answer: memcached's text protocol, HTTP/1.1.

use anyhow::ensure;
use flowyard_testkit::Rng;

/// Number of keys in memcached.
pub(super) const KEYS: u64 = 1000;
/// Bytes of a value in memcached.
const VALUE: usize = 100;

/// A protocol, and the mix of requests.
#[derive(Clone, Copy, Debug)]
pub(super) enum Protocol {
    /// Sets with this probability, else gets; all keys are equally frequent.
    Memcached { sets: f64 },
    /// GET of `/`.
    Http,
}

/// What was asked, to check the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asked {
    Get(u64),
    Set,
    Page,
}

/// The request that stores a key.
pub(super) fn set(key: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("set key{key:06} 0 0 {VALUE}\r\n").as_bytes());
    out.extend([b'v'; VALUE]);
    out.extend_from_slice(b"\r\n");
}

impl Protocol {
    /// Appends a request to `out`.
    pub(super) fn ask(self, rng: &mut Rng, out: &mut Vec<u8>) -> Asked {
        match self {
            Self::Http => {
                out.extend_from_slice(b"GET / HTTP/1.1\r\nHost: server\r\n\r\n");
                Asked::Page
            }
            Self::Memcached { sets } => {
                let key = rng.below(KEYS);
                if rng.unit() < sets {
                    set(key, out);
                    return Asked::Set;
                }
                out.extend_from_slice(format!("get key{key:06}\r\n").as_bytes());
                Asked::Get(key)
            }
        }
    }
}

impl Asked {
    /// The length of the answer at the start of `bytes`; `None` if it is not complete.
    ///
    /// # Errors
    /// When it is not the answer to this request.
    pub(super) fn answered(self, bytes: &[u8]) -> anyhow::Result<Option<usize>> {
        match self {
            Self::Set => whole(bytes, b"STORED\r\n"),
            Self::Get(key) => {
                let mut answer = format!("VALUE key{key:06} 0 {VALUE}\r\n").into_bytes();
                answer.extend([b'v'; VALUE]);
                answer.extend_from_slice(b"\r\nEND\r\n");
                whole(bytes, &answer)
            }
            Self::Page => page(bytes),
        }
    }
}

/// Whether `bytes` begin with `answer`, or may do so when there are more.
fn whole(bytes: &[u8], answer: &[u8]) -> anyhow::Result<Option<usize>> {
    let length = bytes.len().min(answer.len());
    ensure!(
        bytes[..length] == answer[..length],
        "the server answered '{}', not '{}'",
        bytes[..length].escape_ascii(),
        answer.escape_ascii()
    );
    Ok((length == answer.len()).then_some(length))
}

/// An HTTP response with status 200 and a Content-Length.
fn page(bytes: &[u8]) -> anyhow::Result<Option<usize>> {
    const END: &[u8] = b"\r\n\r\n";
    let Some(head) = bytes.windows(END.len()).position(|window| window == END) else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
    ensure!(text.starts_with("http/1.1 200"), "the server answered '{}'", text.escape_debug());
    ensure!(!text.contains("connection: close"), "the server will close the connection");
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length = length.and_then(|length| length.trim().parse::<usize>().ok());
    let Some(length) = length else { anyhow::bail!("a response has no Content-Length") };
    let all = head + END.len() + length;
    Ok((bytes.len() >= all).then_some(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_or_more_is_waited_for_or_it_is_wrong() {
        let mut rng = Rng::new(1);
        let mut out = Vec::new();
        let asked = Protocol::Memcached { sets: 0.0 }.ask(&mut rng, &mut out);
        let Asked::Get(key) = asked else { panic!("{asked:?}") };
        assert_eq!(out, format!("get key{key:06}\r\n").into_bytes());
        let mut answer = format!("VALUE key{key:06} 0 100\r\n{}\r\nEND\r\n", "v".repeat(100));
        answer += "STORED\r\n";
        let bytes = answer.as_bytes();
        let length = bytes.len() - 8;
        for cut in 0..length {
            assert_eq!(asked.answered(&bytes[..cut]).unwrap(), None);
        }
        assert_eq!(asked.answered(bytes).unwrap(), Some(length));
        assert_eq!(Asked::Set.answered(&bytes[length..]).unwrap(), Some(8));
        assert!(Asked::Set.answered(bytes).is_err());
        let error = asked.answered(b"END\r\n").unwrap_err().to_string();
        assert!(error.starts_with("the server answered 'END\\r\\n', not 'VALUE"), "{error}");
    }

    #[test]
    fn a_page_has_the_length_that_its_head_says() {
        let page = b"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 3\r\n\r\nabcHTTP";
        assert_eq!(Asked::Page.answered(page).unwrap(), Some(page.len() - 4));
        assert_eq!(Asked::Page.answered(&page[..page.len() - 5]).unwrap(), None);
        assert_eq!(Asked::Page.answered(&page[..30]).unwrap(), None);
        assert!(Asked::Page.answered(b"HTTP/1.1 502 Bad\r\nContent-Length: 0\r\n\r\n").is_err());
        let last = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        assert!(Asked::Page.answered(last).is_err());
    }

    #[test]
    fn sets_are_as_frequent_as_asked() {
        let (mut rng, mut out, mut sets) = (Rng::new(2), Vec::new(), 0);
        for _ in 0..10_000 {
            out.clear();
            sets +=
                u32::from(Protocol::Memcached { sets: 0.1 }.ask(&mut rng, &mut out) == Asked::Set);
        }
        assert!((900..1100).contains(&sets), "{sets}");
    }
}

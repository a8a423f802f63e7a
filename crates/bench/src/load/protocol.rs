//! What the load generator says, and how it recognizes a whole answer: memcached's text protocol, HTTP/1.1.
//!
//! The value of a key follows from the key, so every answer to a GET is known before it arrives, and each of its bytes is
//! compared. Requests and answers are written into buffers of the caller: nothing is allocated for a request.

use std::io::{Read, Write};
use std::ops::Range;

use anyhow::{Context, ensure};
use flowyard_testkit::Rng;

/// The records of a memcached. A key is `key` and its number with leading zeros.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Records {
    /// Number of keys.
    pub(crate) keys: u64,
    /// Length of a key in bytes: at least that of `key` and the largest number, and at most 250.
    pub(crate) key_bytes: usize,
    /// Length of a value in bytes.
    pub(crate) value_bytes: usize,
}

/// Requests that are stored before the answers to them are read: so few that these fit into a socket's buffer.
const STORED: u64 = 512;

/// Memory of memcached for a record, in bytes: more than its item and its place in the hash table.
const RECORD: u64 = 400;

impl Records {
    /// Memory that memcached needs for the records, in megabytes.
    pub(crate) const fn megabytes(self) -> u64 {
        64 + self.keys * RECORD / 1_000_000
    }

    /// Appends the text of a key.
    fn key(self, key: u64, out: &mut Vec<u8>) {
        const HEAD: &[u8] = b"key";
        out.extend_from_slice(HEAD);
        let from = out.len();
        out.resize(from + self.key_bytes - HEAD.len(), b'0');
        number(key, &mut out[from..]);
    }

    /// Appends the value of a key: 16 hexadecimal digits that follow from it, repeated.
    fn value(self, key: u64, out: &mut Vec<u8>) {
        // The finalizer of SplitMix64: neighbouring keys get different digits.
        let mut mixed = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let digits: [u8; 16] =
            std::array::from_fn(|at| b"0123456789abcdef"[(mixed >> (4 * at)) as usize & 15]);
        out.extend(digits.iter().cycle().take(self.value_bytes));
    }

    /// Appends flags, the length of a value, and the end of the line.
    fn length(self, exptime: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(exptime);
        let digits = self.value_bytes.checked_ilog10().unwrap_or(0) as usize + 1;
        let from = out.len();
        out.resize(from + digits, b'0');
        number(self.value_bytes as u64, &mut out[from..]);
        out.extend_from_slice(b"\r\n");
    }

    /// Appends the request that stores a key.
    pub(crate) fn set(self, key: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(b"set ");
        self.key(key, out);
        self.length(b" 0 0 ", out);
        self.value(key, out);
        out.extend_from_slice(b"\r\n");
    }

    /// Appends the request that reads a key.
    pub(crate) fn get(self, key: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(b"get ");
        self.key(key, out);
        out.extend_from_slice(b"\r\n");
    }

    /// Appends the answer to [`Records::get`].
    pub(crate) fn got(self, key: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(b"VALUE ");
        self.key(key, out);
        self.length(b" 0 ", out);
        self.value(key, out);
        out.extend_from_slice(b"\r\nEND\r\n");
    }

    /// Stores `keys` over `stream`, which waits for answers.
    pub(crate) fn store(
        self,
        mut stream: impl Read + Write,
        keys: Range<u64>,
    ) -> anyhow::Result<()> {
        let (mut out, mut stored) = (Vec::new(), Vec::new());
        for from in keys.clone().step_by(STORED as usize) {
            let some = from..keys.end.min(from + STORED);
            out.clear();
            stored.resize((some.end - some.start) as usize * b"STORED\r\n".len(), 0);
            some.for_each(|key| self.set(key, &mut out));
            stream.write_all(&out).context("storing keys in memcached")?;
            stream.read_exact(&mut stored).context("storing keys in memcached")?;
            let is_stored = stored.chunks(b"STORED\r\n".len()).all(|one| one == b"STORED\r\n");
            ensure!(is_stored, "memcached did not store a key: '{}'", stored.escape_ascii());
        }
        Ok(())
    }
}

/// Writes a decimal number to the end of `digits`; what is before it stays.
fn number(mut number: u64, digits: &mut [u8]) {
    for digit in digits.iter_mut().rev() {
        if number == 0 {
            return;
        }
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// A protocol, and the mix of requests.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Protocol {
    /// Sets with this probability, else gets; all keys are equally frequent.
    Memcached { records: Records, sets: f64 },
    /// GET of `/`.
    Http,
}

/// What was asked, to check the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    Get(u64),
    Set,
    Page,
}

impl Protocol {
    /// Appends a request to `out`.
    pub(crate) fn ask(self, rng: &mut Rng, out: &mut Vec<u8>) -> Asked {
        match self {
            Self::Http => {
                out.extend_from_slice(b"GET / HTTP/1.1\r\nHost: server\r\n\r\n");
                Asked::Page
            }
            Self::Memcached { records, sets } => {
                let key = rng.below(records.keys);
                if rng.unit() < sets {
                    records.set(key, out);
                    return Asked::Set;
                }
                records.get(key, out);
                Asked::Get(key)
            }
        }
    }

    /// The length of the answer to `asked` at the start of `bytes`; `None` if it is not complete. `scratch` is changed.
    ///
    /// # Errors
    /// When it is not the answer to this request.
    pub(crate) fn answered(
        self,
        asked: Asked,
        bytes: &[u8],
        scratch: &mut Vec<u8>,
    ) -> anyhow::Result<Option<usize>> {
        match (asked, self) {
            (Asked::Get(key), Self::Memcached { records, .. }) => {
                scratch.clear();
                records.got(key, scratch);
                whole(bytes, scratch)
            }
            (Asked::Page, _) | (_, Self::Http) => page(bytes),
            (Asked::Set, _) => whole(bytes, b"STORED\r\n"),
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
    let all = (head + END.len()).checked_add(length).context("a Content-Length is too large")?;
    Ok((bytes.len() >= all).then_some(all))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, proptest};

    use super::*;

    const RECORDS: Records = Records { keys: 1000, key_bytes: 9, value_bytes: 100 };
    const GETS: Protocol = Protocol::Memcached { records: RECORDS, sets: 0.0 };

    fn answered(asked: Asked, bytes: &[u8]) -> anyhow::Result<Option<usize>> {
        let protocol = if asked == Asked::Page { Protocol::Http } else { GETS };
        protocol.answered(asked, bytes, &mut Vec::new())
    }

    #[test]
    fn requests_and_answers_are_those_of_the_protocol() {
        let records = Records { keys: 500_000, key_bytes: 12, value_bytes: 20 };
        let mut out = Vec::new();
        records.get(42, &mut out);
        assert_eq!(out, b"get key000000042\r\n");
        out.clear();
        records.set(0, &mut out);
        let text = String::from_utf8(out.clone()).unwrap();
        let (head, value) = text.split_once("\r\n").unwrap();
        assert_eq!(head, "set key000000000 0 0 20");
        assert!(value.len() == 22 && value.ends_with("\r\n") && value[..4] == value[16..20]);
        let mut answer = Vec::new();
        records.got(0, &mut answer);
        assert_eq!(answer, format!("VALUE key000000000 0 20\r\n{value}END\r\n").into_bytes());
    }

    #[test]
    fn an_answer_is_whole_or_more_is_waited_for_or_it_is_wrong() {
        let mut rng = Rng::new(1);
        let mut out = Vec::new();
        let asked = GETS.ask(&mut rng, &mut out);
        let Asked::Get(key) = asked else { panic!("{asked:?}") };
        assert_eq!(out, format!("get key{key:06}\r\n").into_bytes());
        let mut bytes = Vec::new();
        RECORDS.got(key, &mut bytes);
        let length = bytes.len();
        bytes.extend_from_slice(b"STORED\r\n");
        for cut in 0..length {
            assert_eq!(answered(asked, &bytes[..cut]).unwrap(), None);
        }
        assert_eq!(answered(asked, &bytes).unwrap(), Some(length));
        assert_eq!(answered(Asked::Set, &bytes[length..]).unwrap(), Some(8));
        assert!(answered(Asked::Set, &bytes).is_err());
        let error = answered(asked, b"END\r\n").unwrap_err().to_string();
        assert!(error.starts_with("the server answered 'END\\r\\n', not 'VALUE"), "{error}");
    }

    #[test]
    fn a_page_has_the_length_that_its_head_says() {
        let page = b"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 3\r\n\r\nabcHTTP";
        assert_eq!(answered(Asked::Page, page).unwrap(), Some(page.len() - 4));
        assert_eq!(answered(Asked::Page, &page[..page.len() - 5]).unwrap(), None);
        assert_eq!(answered(Asked::Page, &page[..30]).unwrap(), None);
        let wrong = b"HTTP/1.1 502 Bad\r\nContent-Length: 0\r\n\r\n";
        assert!(answered(Asked::Page, wrong).is_err());
        let last = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        assert!(answered(Asked::Page, last).is_err());
    }

    #[test]
    fn sets_are_as_frequent_as_asked() {
        let (mut rng, mut out, mut sets) = (Rng::new(2), Vec::new(), 0);
        for _ in 0..10_000 {
            out.clear();
            let protocol = Protocol::Memcached { records: RECORDS, sets: 0.1 };
            sets += u32::from(protocol.ask(&mut rng, &mut out) == Asked::Set);
        }
        assert!((900..1100).contains(&sets), "{sets}");
    }

    proptest! {
        /// Answers that arrive in pieces of any length are each found once, and nothing is left.
        #[test]
        fn answers_in_pieces_are_found_once(seed: u64, cuts in prop::collection::vec(1usize..300, 1..40)) {
            let protocol = Protocol::Memcached { records: RECORDS, sets: 0.3 };
            let (mut rng, mut out, mut wire) = (Rng::new(seed), Vec::new(), Vec::new());
            let asked: Vec<_> = (0..20).map(|_| protocol.ask(&mut rng, &mut out)).collect();
            for one in &asked {
                match one {
                    Asked::Get(key) => RECORDS.got(*key, &mut wire),
                    _ => wire.extend_from_slice(b"STORED\r\n"),
                }
            }
            let (mut found, mut from, mut scratch) = (0, 0, Vec::new());
            let mut to = 0;
            for cut in cuts.iter().cycle() {
                to = wire.len().min(to + cut);
                while let Some(one) = asked.get(found) {
                    let length = protocol.answered(*one, &wire[from..to], &mut scratch).unwrap();
                    let Some(length) = length else { break };
                    (found, from) = (found + 1, from + length);
                }
                if to == wire.len() { break }
            }
            prop_assert_eq!((found, from), (asked.len(), wire.len()));
        }

        /// An answer with one other byte is never taken for the right one.
        #[test]
        fn a_changed_byte_is_an_error(key in 0u64..1000, at: prop::sample::Index, bit in 0u32..8) {
            let mut bytes = Vec::new();
            RECORDS.got(key, &mut bytes);
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(answered(Asked::Get(key), &bytes).is_err());
        }

        /// Any bytes are an error, or incomplete, or as long as the answer: no panic, and nothing beyond the bytes.
        #[test]
        fn any_bytes_are_judged(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for asked in [Asked::Get(7), Asked::Set, Asked::Page] {
                if let Ok(Some(length)) = answered(asked, &bytes) {
                    prop_assert!(length <= bytes.len());
                }
            }
        }
    }
}

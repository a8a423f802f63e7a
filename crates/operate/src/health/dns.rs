//! The DNS check: one query over UDP, and its response (RFC 1035 section 4.1).
//!
//! ```text
//!  ID | RD | 1 question: NAME, TYPE, IN ──> server ──> same ID and question, QR, RCODE 0, a record in the answer section
//! ```
//!
//! Invariants: a datagram that is not a response to this query is ignored; records are counted and not read.
//! Thread-safety: stateless.

use std::io;
use std::net::SocketAddr;

use super::deadline::{Deadline, Fault};
use super::udp;

/// The length of the header, in bytes.
const HEADER: usize = 12;
/// The bit of the second header word that says that the message is a response.
const RESPONSE: u16 = 1 << 15;
/// The bit that asks for recursion.
const RECURSION: u16 = 1 << 8;
/// The class of the Internet.
const IN: u16 = 1;

/// Asks the server at `addr` for records of `name`, and waits for its response.
///
/// # Errors
/// There is no response in time, or one with an error or without a record.
pub(super) fn ask(
    addr: SocketAddr,
    name: &str,
    kind: u16,
    deadline: Deadline<'_>,
) -> Result<(), Fault> {
    let socket = udp::socket(addr)?;
    let told = |error: io::Error| deadline.fault(&error);
    socket.connect(addr).map_err(told)?;
    // Each check has a socket of its own, whose port the kernel chooses at random: so is the ID.
    let id = socket.local_addr().map_err(told)?.port();
    let query = query(id, name, kind);
    socket.send(&query).map_err(told)?;
    let mut bytes = [0; 4096];
    loop {
        let left = deadline.left().map_err(told)?;
        socket.set_read_timeout(Some(left)).map_err(told)?;
        let len = socket.recv(&mut bytes).map_err(told)?;
        if let Some(outcome) = response(&query, &bytes[..len]) {
            return outcome.map_err(|why| Fault::wrong(format!("'{name}': {why}")));
        }
    }
}

/// A query for records of this type. Names are validated by the configuration.
fn query(id: u16, name: &str, kind: u16) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER + name.len() + 6);
    for word in [id, RECURSION, 1, 0, 0, 0] {
        message.extend(word.to_be_bytes());
    }
    for label in name.split('.').filter(|label| !label.is_empty()) {
        message.push(label.len() as u8);
        message.extend(label.as_bytes());
    }
    message.push(0);
    message.extend([kind.to_be_bytes(), IN.to_be_bytes()].concat());
    message
}

/// Whether a response is a good one; `None` if `message` is not a response to `query`.
fn response(query: &[u8], message: &[u8]) -> Option<Result<(), String>> {
    let (header, rest) = message.split_first_chunk::<HEADER>()?;
    let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let is_same = |(a, b): (&u8, &u8)| a.eq_ignore_ascii_case(b);
    let question = query.get(HEADER..)?;
    let echoes = rest.len() >= question.len() && rest.iter().zip(question).all(is_same);
    if header[..2] != query[..2] || word(2) & RESPONSE == 0 {
        return None;
    }
    let (code, answers) = (word(2) & 15, word(6));
    // Some servers leave the question out of errors.
    if !(echoes && word(4) == 1) && code == 0 {
        return None;
    }
    Some(match (code, answers) {
        (0, 1..) => Ok(()),
        (0, 0) => Err("the response has no record".into()),
        (code, _) => Err(format!("the response is an error: {}", error(code))),
    })
}

/// The name of a response code (RFC 1035 section 4.1.1).
fn error(code: u16) -> String {
    let name = match code {
        1 => "FORMERR",
        2 => "SERVFAIL",
        3 => "NXDOMAIN",
        4 => "NOTIMP",
        5 => "REFUSED",
        _ => return format!("code {code}"),
    };
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A query for `a.example` in type AAAA, as other programs write it.
    const QUERY: [u8; 27] = *b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x01a\x07example\0\0\x1c\0\x01";

    /// A response to the query with this second word and number of answers.
    fn answer(flags: u16, answers: u16) -> Vec<u8> {
        let mut message = QUERY.to_vec();
        message[2..4].copy_from_slice(&flags.to_be_bytes());
        message[6..8].copy_from_slice(&answers.to_be_bytes());
        message.extend([0; 28].iter().take(usize::from(answers) * 28));
        message
    }

    #[test]
    fn a_query_is_that_of_the_rfc() {
        assert_eq!(query(0x1234, "a.example", 28), QUERY);
        assert_eq!(query(0x1234, "a.example.", 28), QUERY);
        assert_eq!(query(7, ".", 2), b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\0\0\x02\0\x01");
    }

    #[test]
    fn a_response_is_good_without_an_error_and_with_a_record() {
        let of = |message: &[u8]| response(&QUERY, message);
        assert_eq!(of(&answer(0x8180, 1)), Some(Ok(())));
        let none = "the response has no record";
        assert_eq!(of(&answer(0x8180, 0)), Some(Err(none.into())));
        let wrong = "the response is an error: NXDOMAIN";
        assert_eq!(of(&answer(0x8183, 0)), Some(Err(wrong.into())));
        let short = [&QUERY[..2], &[0x81, 0x85], &[0; 8]].concat();
        assert_eq!(of(&short), Some(Err("the response is an error: REFUSED".into())));
        // Another ID, a query, another question, and a response that is cut.
        let mut other = answer(0x8180, 1);
        other[0] ^= 1;
        assert_eq!(of(&other), None);
        assert_eq!(of(&answer(0x0100, 1)), None);
        let mut other = answer(0x8180, 1);
        other[15] ^= 1;
        assert_eq!(of(&other), None);
        assert_eq!(of(&answer(0x8180, 1)[..26]), None);
        let mut upper = answer(0x8180, 1);
        upper[13] = b'A';
        assert_eq!(of(&upper), Some(Ok(())), "names have no case");
    }

    proptest! {
        #[test]
        fn any_datagram_has_an_outcome(mut bytes in prop::collection::vec(any::<u8>(), 0..80), like: bool, at in 0usize..80, byte: u8) {
            if like {
                bytes = answer(0x8180, 1);
            }
            if let Some(there) = bytes.get_mut(at) {
                *there = byte;
            }
            let _ = response(&QUERY, &bytes);
        }
    }
}

//! DNS messages (RFC 1035 section 4): queries, and the records of their responses.
//!
//! ```text
//!  ID | RD | 1 question: NAME, TYPE, IN ──> server ──> same ID and question, QR, RCODE, records
//! ```
//!
//! Written here and not taken from a library: see docs/decisions/0080-providers-of-services.md.
//!
//! Invariants: a message that is not a response to the query is none; reading a name ends, because each pointer leads to
//! bytes before all that were read of the name.
//! Thread-safety: stateless.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The length of the header, in bytes.
const HEADER: usize = 12;
/// The bit of the second header word that says that the message is a response.
const RESPONSE: u16 = 1 << 15;
/// The bit that says that the message was cut off.
const TRUNCATED: u16 = 1 << 9;
/// The bit that asks for recursion.
const RECURSION: u16 = 1 << 8;
/// The class of the Internet.
const IN: u16 = 1;
/// The longest name as text, in bytes: 255 bytes in a message (RFC 1035 section 2.3.4).
const NAME: usize = 253;

/// Types of records.
pub(crate) mod kind {
    pub(crate) const A: u16 = 1;
    pub(crate) const CNAME: u16 = 5;
    pub(crate) const AAAA: u16 = 28;
    pub(crate) const SRV: u16 = 33;
}

/// The ID of a new query. Its keys are drawn by the system, so nobody who does not see the query knows the number.
pub(crate) fn random_id() -> u16 {
    RandomState::new().build_hasher().finish() as u16
}

/// A query for records of this type. Names are validated by the configuration.
pub(crate) fn query(id: u16, name: &str, kind: u16) -> Vec<u8> {
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

/// A response to a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reply<'a> {
    message: &'a [u8],
    /// Where the answer section begins.
    answers_at: usize,
    /// The response code; 0 without an error.
    pub(crate) code: u16,
    /// The number of records in the answer section.
    pub(crate) answers: u16,
    /// Whether the message was cut off, so that it must be asked for by TCP.
    pub(crate) is_truncated: bool,
}

impl<'a> Reply<'a> {
    /// The response in `message`; `None` if it is not one to `query`.
    pub(crate) fn to(query: &[u8], message: &'a [u8]) -> Option<Self> {
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
        let is_truncated = word(2) & TRUNCATED != 0;
        Some(Self { message, answers_at: HEADER + question.len(), code, answers, is_truncated })
    }

    /// The records of the answer section; `None` if one is malformed.
    pub(crate) fn records(&self) -> Option<Vec<Record>> {
        let mut at = self.answers_at;
        (0..self.answers).map(|_| record(self.message, &mut at)).collect()
    }
}

/// The name of a response code (RFC 1035 section 4.1.1).
pub(crate) fn error(code: u16) -> String {
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

/// A record. Names are in lower case, without a dot at the end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    /// The name that it belongs to.
    pub(crate) owner: String,
    /// The time for which it may be used, in seconds.
    pub(crate) ttl: u32,
    pub(crate) data: Data,
}

/// What a record says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Data {
    Address(IpAddr),
    /// The owner is another name of this one.
    Alias(String),
    Service {
        priority: u16,
        weight: u16,
        port: u16,
        target: String,
    },
    /// A type that is not needed.
    Other,
}

/// Reads the record at `at`, which moves behind it.
fn record(message: &[u8], at: &mut usize) -> Option<Record> {
    let owner = name(message, at)?;
    let fixed: [u8; 10] = message.get(*at..*at + 10)?.try_into().ok()?;
    let word = |i: usize| u16::from_be_bytes([fixed[i], fixed[i + 1]]);
    let start = *at + 10;
    let end = start + usize::from(word(8));
    let bytes = message.get(start..end)?;
    *at = end;
    // A number with the highest bit means 0 (RFC 2181 section 8).
    let ttl = u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]);
    let ttl = if ttl > i32::MAX.unsigned_abs() { 0 } else { ttl };
    // A name may point to bytes before the record, and ends within it.
    let name_at = |mut at: usize| name(message, &mut at).filter(|_| at == end);
    let data = match (word(0), word(2)) {
        (kind::A, IN) => Data::Address(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into()),
        (kind::AAAA, IN) => Data::Address(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()),
        (kind::CNAME, IN) => Data::Alias(name_at(start)?),
        (kind::SRV, IN) => {
            let word = |i: usize| Some(u16::from_be_bytes([*bytes.get(i)?, *bytes.get(i + 1)?]));
            let (priority, weight, port) = (word(0)?, word(2)?, word(4)?);
            Data::Service { priority, weight, port, target: name_at(start + 6)? }
        }
        _ => Data::Other,
    };
    Some(Record { owner, ttl, data })
}

/// Reads the name at `at`, which moves behind it. Labels that are not plain text are malformed.
fn name(message: &[u8], at: &mut usize) -> Option<String> {
    let (mut from, mut text) = (*at, String::new());
    // The start of the run of labels in progress, and whether a pointer was followed.
    let (mut start, mut has_jumped) = (*at, false);
    loop {
        let len = usize::from(*message.get(from)?);
        match len >> 6 {
            0 if len == 0 => {
                if !has_jumped {
                    *at = from + 1;
                }
                return Some(text);
            }
            0 => {
                let label = message.get(from + 1..from + 1 + len)?;
                if !label.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'.') {
                    return None;
                }
                if !text.is_empty() {
                    text.push('.');
                }
                text.extend(label.iter().map(|byte| char::from(byte.to_ascii_lowercase())));
                from += 1 + len;
            }
            3 => {
                let to = (len & 63) << 8 | usize::from(*message.get(from + 1)?);
                if !has_jumped {
                    *at = from + 2;
                }
                if to >= start {
                    return None;
                }
                (from, start, has_jumped) = (to, to, true);
            }
            _ => return None,
        }
        if text.len() > NAME {
            return None;
        }
    }
}

#[cfg(test)]
mod tests;

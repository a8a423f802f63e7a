//! Splits a line into words, and reads numbers and addresses as ethtool does.

use std::fmt::Display;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// One word of a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word<'a> {
    pub(crate) text: &'a str,
    /// The column of the first character, from 1.
    pub(crate) col: u32,
}

/// The words of a line, up to a word that starts with `#`.
pub(crate) fn words(line: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let mut start = None;
    for (i, c) in line.char_indices().chain([(line.len(), ' ')]) {
        match (start, c.is_whitespace()) {
            (None, false) if c == '#' => break,
            (None, false) => start = Some(i),
            (Some(from), true) => {
                let col = line[..from].chars().count() as u32 + 1;
                words.push(Word { text: &line[from..i], col });
                start = None;
            }
            _ => {}
        }
    }
    words
}

/// An error in a value.
pub(crate) struct Fault {
    pub(crate) what: String,
    pub(crate) fix: String,
}

/// A number in the form of `strtoull(.., 0)`: decimal, hexadecimal with 0x, or octal with 0.
pub(crate) fn number(text: &str, max: u64) -> Result<u64, Fault> {
    let parsed = if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        u64::from_str_radix(hex, 16)
    } else if text.len() > 1 && text.starts_with('0') {
        u64::from_str_radix(text, 8)
    } else {
        text.parse()
    };
    match parsed {
        Ok(value) if value <= max && !text.starts_with('+') => Ok(value),
        Ok(_) => Err(Fault {
            what: format!("{text} is too large"),
            fix: format!("use a number up to {max}"),
        }),
        Err(_) => Err(Fault {
            what: format!("`{text}` is not a number"),
            fix: format!("use a number up to {max}: 80, 0x50 or 0120 (a leading 0 means octal)"),
        }),
    }
}

/// A kind of address, for messages.
struct Kind {
    name: &'static str,
    example: &'static str,
}

const IPV4: Kind = Kind { name: "IPv4", example: "10.0.0.1" };
const IPV6: Kind = Kind { name: "IPv6", example: "2001:db8::1" };
const MAC: Kind = Kind { name: "MAC", example: "02:00:00:00:00:01" };

impl Kind {
    fn fault(&self, text: &str) -> Fault {
        Fault {
            what: format!("`{text}` is not a valid {} address", self.name),
            fix: format!("write an address such as {}", self.example),
        }
    }
}

/// An IPv4 address. A prefix length is an error, whose fix is the mask to write instead.
pub(crate) fn ipv4(option: &str, text: &str) -> Result<u32, Fault> {
    let ignored = |len| u32::MAX.checked_shr(len).unwrap_or(0).into();
    ip::<Ipv4Addr>(&IPV4, option, text, u32::BITS, ignored).map(u32::from)
}

/// An IPv6 address, as [`ipv4`].
pub(crate) fn ipv6(option: &str, text: &str) -> Result<u128, Fault> {
    let ignored = |len| u128::MAX.checked_shr(len).unwrap_or(0).into();
    ip::<Ipv6Addr>(&IPV6, option, text, u128::BITS, ignored).map(u128::from)
}

/// An address of `bits` bits. `ignored` gives the mask of the bits after a prefix length.
fn ip<A: FromStr + Display>(
    kind: &Kind,
    option: &str,
    text: &str,
    bits: u32,
    ignored: impl Fn(u32) -> A,
) -> Result<A, Fault> {
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix.parse::<u32>())),
        None => (text, None),
    };
    match (address.parse::<A>(), prefix) {
        (Ok(address), None) => Ok(address),
        (Ok(address), Some(Ok(len))) if len <= bits => Err(Fault {
            what: format!("ethtool accepts no prefix length (`{text}`)"),
            fix: format!(
                "write `{option} {address} m {}`: ones in m are bits to ignore",
                ignored(len)
            ),
        }),
        _ => Err(kind.fault(text)),
    }
}

/// A MAC address in the low 48 bits.
pub(crate) fn mac(text: &str) -> Result<u64, Fault> {
    let mut mac = 0;
    let mut parts = 0;
    for part in text.split(':') {
        let byte = u8::from_str_radix(part, 16).ok().filter(|_| matches!(part.len(), 1 | 2));
        let Some(byte) = byte.filter(|_| !part.starts_with('+')) else {
            return Err(MAC.fault(text));
        };
        mac = mac << 8 & 0xffff_ffff_ffff | u64::from(byte);
        parts += 1;
    }
    if parts == 6 { Ok(mac) } else { Err(MAC.fault(text)) }
}

//! Words and numbers as ethtool reads them.

use std::net::{Ipv4Addr, Ipv6Addr};

/// One word of a line, and the column of its first character, from 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word<'a> {
    pub(super) text: &'a str,
    pub(super) col: u32,
}

/// The words of a line up to a `#` that starts one.
pub(super) fn words(line: &str) -> Vec<Word<'_>> {
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

/// What is wrong with a value, and the mend.
pub(super) type Fault = (String, String);

/// A number as `strtoull(.., 0)` reads it: decimal, 0x hexadecimal, or 0 octal.
pub(super) fn number(text: &str, max: u64) -> Result<u64, Fault> {
    let parsed = if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        u64::from_str_radix(hex, 16)
    } else if text.len() > 1 && text.starts_with('0') {
        u64::from_str_radix(text, 8)
    } else {
        text.parse()
    };
    match parsed {
        Ok(value) if value <= max && !text.starts_with('+') => Ok(value),
        Ok(_) => Err((format!("{text} is too large"), format!("use a number up to {max}"))),
        Err(_) => Err((
            format!("`{text}` is not a number"),
            format!("use a number up to {max}: 80, 0x50 or 0120 (a leading 0 is octal)"),
        )),
    }
}

/// An IPv4 address. A prefix length is refused with the mask to write instead.
pub(super) fn ipv4(option: &str, text: &str) -> Result<u32, Fault> {
    if let Some((address, prefix)) = text.split_once('/') {
        let Some((ip, len)) = address
            .parse::<Ipv4Addr>()
            .ok()
            .zip(prefix.parse::<u32>().ok().filter(|&len| len <= 32))
        else {
            return Err(no_address(text, "IPv4", "10.0.0.1"));
        };
        let ignore = Ipv4Addr::from(u32::MAX.checked_shr(len).unwrap_or(0));
        return Err((
            format!("ethtool takes no prefix length (`{text}`)"),
            format!("write `{option} {ip} m {ignore}`: ones in m are bits to ignore"),
        ));
    }
    text.parse::<Ipv4Addr>().map(u32::from).map_err(|_| no_address(text, "IPv4", "10.0.0.1"))
}

/// An IPv6 address, as [`ipv4`].
pub(super) fn ipv6(option: &str, text: &str) -> Result<u128, Fault> {
    if let Some((address, prefix)) = text.split_once('/') {
        let Some((ip, len)) = address
            .parse::<Ipv6Addr>()
            .ok()
            .zip(prefix.parse::<u32>().ok().filter(|&len| len <= 128))
        else {
            return Err(no_address(text, "IPv6", "2001:db8::1"));
        };
        let ignore = Ipv6Addr::from(u128::MAX.checked_shr(len).unwrap_or(0));
        return Err((
            format!("ethtool takes no prefix length (`{text}`)"),
            format!("write `{option} {ip} m {ignore}`: ones in m are bits to ignore"),
        ));
    }
    text.parse::<Ipv6Addr>().map(u128::from).map_err(|_| no_address(text, "IPv6", "2001:db8::1"))
}

/// A MAC address in the low 48 bits.
pub(super) fn mac(text: &str) -> Result<u64, Fault> {
    let mut mac = 0;
    let mut parts = 0;
    for part in text.split(':') {
        let byte = u8::from_str_radix(part, 16).ok().filter(|_| matches!(part.len(), 1 | 2));
        let Some(byte) = byte.filter(|_| !part.starts_with('+')) else {
            return Err(no_address(text, "MAC", "02:00:00:00:00:01"));
        };
        mac = mac << 8 & 0xffff_ffff_ffff | u64::from(byte);
        parts += 1;
    }
    if parts == 6 { Ok(mac) } else { Err(no_address(text, "MAC", "02:00:00:00:00:01")) }
}

fn no_address(text: &str, kind: &str, example: &str) -> Fault {
    (format!("`{text}` is not an {kind} address"), format!("write one like {example}"))
}

//! The calls for rules: `ioctl(SIOCETHTOOL)`, as linux/ethtool.h defines them.
#![allow(unsafe_code, reason = "ioctl(2) has no safe wrapper")]

use std::io;

use super::layout::{COUNT, LOCATION, Request, SIZE};
use crate::sys::call;

const GRXCLSRLCNT: u32 = 0x2e;
const GRXCLSRULE: u32 = 0x2f;
const GRXCLSRLALL: u32 = 0x30;
const SRXCLSRLDEL: u32 = 0x31;
const SRXCLSRLINS: u32 = 0x32;

/// More rules than any driver has; a larger number is taken for an error of the driver.
const MOST: u32 = 1 << 20;

/// The number of rules, and the size of the table with the flag of drivers that choose locations.
pub(super) fn count(interface: &str) -> io::Result<(u32, u64)> {
    let mut words = request(GRXCLSRLCNT, &Request::EMPTY);
    // SAFETY: the buffer is a struct ethtool_rxnfc, of which the kernel writes no more.
    unsafe { call(interface, &mut words)? };
    let answer = answer(&words);
    Ok((answer.word(COUNT), answer.data()))
}

/// The size of the table, and the locations of the rules, of which there are at most `count`.
pub(super) fn all(interface: &str, count: u32) -> io::Result<(u64, Vec<u32>)> {
    if count > MOST {
        return Err(io::Error::from_raw_os_error(libc::EOVERFLOW));
    }
    let mut words = request(GRXCLSRLALL, &Request::EMPTY);
    words[COUNT / 4] = count;
    // The list of locations begins in the last word of the struct, which is padding otherwise.
    let list = SIZE / 4 - 1;
    words.resize(list + (count as usize).max(1), 0);
    // SAFETY: the buffer has room for `count` locations, and the kernel writes no more than it says.
    unsafe { call(interface, &mut words)? };
    let found = words[COUNT / 4].min(count) as usize;
    let data = answer(&words).data();
    Ok((data, words[list..][..found].to_vec()))
}

pub(super) fn one(interface: &str, loc: u32) -> io::Result<Request> {
    let mut words = request(GRXCLSRULE, &Request::EMPTY.at(loc));
    // SAFETY: the buffer is a struct ethtool_rxnfc, of which the kernel writes no more.
    unsafe { call(interface, &mut words)? };
    Ok(answer(&words))
}

/// Returns the location of the rule.
pub(super) fn insert(interface: &str, rule: &Request) -> io::Result<u32> {
    let mut words = request(SRXCLSRLINS, rule);
    // SAFETY: the buffer is a struct ethtool_rxnfc, of which the kernel writes no more.
    unsafe { call(interface, &mut words)? };
    Ok(words[LOCATION / 4])
}

pub(super) fn delete(interface: &str, loc: u32) -> io::Result<()> {
    let mut words = request(SRXCLSRLDEL, &Request::EMPTY.at(loc));
    // SAFETY: the buffer is a struct ethtool_rxnfc, of which the kernel writes no more.
    unsafe { call(interface, &mut words) }
}

fn request(command: u32, bytes: &Request) -> Vec<u32> {
    let mut words: Vec<u32> = bytes
        .as_bytes()
        .chunks_exact(4)
        .map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]))
        .collect();
    words[0] = command;
    words
}

fn answer(words: &[u32]) -> Request {
    let mut bytes = [0; SIZE];
    for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    Request::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_no_rules() {
        let refused = |error: io::Error| error.raw_os_error();
        assert_eq!(count("lo").map_err(refused), Err(Some(libc::EOPNOTSUPP)));
        assert_eq!(delete("lo", 3).map_err(refused), Err(Some(libc::EOPNOTSUPP)));
        assert_eq!(count("a-name-that-is-too-long").map_err(refused), Err(Some(libc::ENODEV)));
    }
}

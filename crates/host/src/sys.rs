//! The calls of ethtool: `ioctl(SIOCETHTOOL)`, as linux/ethtool.h defines them.
//!
//! A request is a buffer of 32-bit words. Its first word is the command, and the kernel writes the answer into
//! it. Netlink has the same data on recent kernels only; this call has it on all of them.
#![allow(unsafe_code, reason = "ioctl(2) has no safe wrapper")]

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketType, socket};

use crate::machine::{Channels, Coalesce, Counts, Driver, Feature, Rss};

const GDRVINFO: u32 = 0x03;
const GCOALESCE: u32 = 0x0e;
const GSTRINGS: u32 = 0x1b;
const GSTATS: u32 = 0x1d;
const GRXFH: u32 = 0x29;
const SRXFH: u32 = 0x2a;
const GSSET_INFO: u32 = 0x37;
const GFEATURES: u32 = 0x3a;
const GCHANNELS: u32 = 0x3c;
const SCHANNELS: u32 = 0x3d;
const GRSSH: u32 = 0x46;
const SRSSH: u32 = 0x47;

/// `ETH_SS_STATS` and `ETH_SS_FEATURES`: sets of names.
const STATS: u32 = 1;
const FEATURES: u32 = 4;
/// Bytes of a name (`ETH_GSTRING_LEN`).
const NAME: usize = 32;
/// More names than any driver has; a larger number is taken for an error of the driver.
const MOST: u32 = 1 << 16;

/// Words of struct `ethtool_rxnfc`, which has 192 bytes.
const RXNFC: usize = 48;

/// Words of struct `ethtool_rxfh` in front of the table and the key.
const RXFH: usize = 6;
/// `ETH_RXFH_CONTEXT_ALLOC`.
const NEW_CONTEXT: u32 = u32::MAX;
/// `ETH_RXFH_INDIR_NO_CHANGE`.
const NO_TABLE: u32 = u32::MAX;

/// By libc, as all calls here: the tests put a driver in front of it (crate ethshim), which does not see system calls of rustix.
pub(crate) fn index(interface: &str) -> io::Result<u32> {
    let mut request = ifreq(interface)?;
    let fd = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    // SAFETY: the socket is open, and the kernel writes the index into the request.
    let got = unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCGIFINDEX as _, &raw mut request) };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has written this part of the union.
    Ok(unsafe { request.ifr_ifru.ifru_ifindex } as u32)
}

/// A request about an interface.
fn ifreq(interface: &str) -> io::Result<libc::ifreq> {
    let name = interface.as_bytes();
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains(&0) {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    // SAFETY: an ifreq is plain numbers, for which zeros are a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    Ok(request)
}

/// The addresses of an interface; none if they cannot be read.
pub(crate) fn addresses(interface: &str) -> Vec<IpAddr> {
    let mut all = Vec::new();
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the call writes one pointer to `list`; the list is freed below with the call that belongs to it.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return all;
    }
    let mut next = list;
    // SAFETY: every pointer of the list is null or valid until freeifaddrs, names end with a zero byte, and an
    // address has the structure of its family.
    unsafe {
        while let Some(one) = next.as_ref() {
            let name = std::ffi::CStr::from_ptr(one.ifa_name);
            if name.to_bytes() == interface.as_bytes() {
                match one.ifa_addr.as_ref().map(|address| i32::from(address.sa_family)) {
                    Some(libc::AF_INET) => {
                        let address = one.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned();
                        all.push(IpAddr::from(address.sin_addr.s_addr.to_ne_bytes()));
                    }
                    Some(libc::AF_INET6) => {
                        let address = one.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned();
                        all.push(IpAddr::from(address.sin6_addr.s6_addr));
                    }
                    _ => {}
                }
            }
            next = one.ifa_next;
        }
        libc::freeifaddrs(list);
    }
    all
}

/// Joins a group of a netlink socket.
pub(crate) fn join(socket: &OwnedFd, group: u32) -> io::Result<()> {
    // SAFETY: the pointer and the size are those of `group`, which the kernel only reads.
    let set = unsafe {
        let value = std::ptr::from_ref(&group).cast();
        let (level, name) = (libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP);
        libc::setsockopt(socket.as_raw_fd(), level, name, value, 4)
    };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

pub(crate) fn driver(interface: &str) -> io::Result<Driver> {
    // The command, five texts of 32 bytes, 12 reserved bytes, five numbers.
    let mut words = [0_u32; 1 + 5 * 8 + 3 + 5];
    words[0] = GDRVINFO;
    // SAFETY: the buffer is a struct ethtool_drvinfo, of which the kernel writes no more.
    unsafe { call(interface, &mut words)? };
    let part = |number: usize| text(&words[1 + 8 * number..][..8]);
    Ok(Driver { name: part(0), version: part(1), firmware: part(2), bus: part(3) })
}

/// Offloads of an interface, by ethtool's command that reads each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum Offload {
    /// The interface computes the checksums of transmitted frames (`ETHTOOL_GTXCSUM`).
    TxChecksum = 0x16,
    /// TCP segmentation offload: the interface splits large TCP segments (`ETHTOOL_GTSO`).
    Tso = 0x1e,
    /// Generic segmentation offload: the kernel splits large segments just before the interface (`ETHTOOL_GGSO`).
    Gso = 0x23,
    /// Generic receive offload: the kernel merges received segments (`ETHTOOL_GGRO`).
    Gro = 0x2b,
}

/// Whether an offload of an interface is on.
///
/// # Errors
/// The error of the kernel.
pub fn offload(interface: &str, offload: Offload) -> io::Result<bool> {
    let mut words = [offload as u32, 0];
    // SAFETY: the buffer is a struct ethtool_value, of which the kernel writes no more.
    unsafe { call(interface, &mut words)? };
    Ok(words[1] != 0)
}

pub(crate) fn channels(interface: &str) -> io::Result<Channels> {
    let mut words = [0_u32; 9];
    words[0] = GCHANNELS;
    // SAFETY: the buffer is a struct ethtool_channels, of which the kernel writes no more.
    unsafe { call(interface, &mut words)? };
    let [_, most @ .., rx, tx, other, combined] = words;
    let now = Counts { rx, tx, other, combined };
    let [rx, tx, other, combined] = most;
    Ok(Channels { most: Counts { rx, tx, other, combined }, now })
}

pub(crate) fn set_channels(interface: &str, counts: Counts) -> io::Result<()> {
    let Counts { rx, tx, other, combined } = counts;
    let mut words = [SCHANNELS, 0, 0, 0, 0, rx, tx, other, combined];
    // SAFETY: the buffer is a struct ethtool_channels.
    unsafe { call(interface, &mut words) }
}

pub(crate) fn rss(interface: &str, context: u32) -> io::Result<Rss> {
    let mut words = vec![0_u32; RXFH];
    (words[0], words[1]) = (GRSSH, context);
    // SAFETY: with sizes of zero the kernel writes only the sizes, in the fixed part of struct ethtool_rxfh.
    unsafe { call(interface, &mut words)? };
    let (table, key) = (words[2], words[3]);
    if table > MOST || key > MOST {
        return Err(io::Error::from_raw_os_error(libc::EOVERFLOW));
    }
    let (table_len, key_len) = (table as usize, key as usize);
    let mut words = vec![0_u32; RXFH + table_len + key_len.div_ceil(4)];
    words[..4].copy_from_slice(&[GRSSH, context, table, key]);
    // SAFETY: the buffer has room for the table and the key; the kernel refuses sizes that are not the
    // driver's, and writes no more than these sizes.
    unsafe { call(interface, &mut words)? };
    let [function, transformation, ..] = words[4].to_ne_bytes();
    let rest = &words[RXFH..];
    let mut key = bytes(&rest[table_len..]);
    key.truncate(key_len);
    if key.iter().all(|byte| *byte == 0) {
        key.clear(); // what a driver leaves that has no key
    }
    Ok(Rss { table: rest[..table_len].to_vec(), key, function, transformation })
}

/// Changes the table or the key of the default context, and leaves the rest as it is.
pub(crate) fn set_rss(
    interface: &str,
    table: Option<&[u32]>,
    key: Option<&[u8]>,
) -> io::Result<()> {
    let mut words = rxfh(interface, 0, table, key)?;
    // SAFETY: the buffer holds as many entries and bytes as its sizes say, and the kernel only reads them.
    unsafe { call(interface, &mut words) }
}

/// Makes a context, and returns its number.
pub(crate) fn create_context(interface: &str, table: &[u32], key: &[u8]) -> io::Result<u32> {
    let key = (!key.is_empty()).then_some(key);
    let mut words = rxfh(interface, NEW_CONTEXT, Some(table), key)?;
    // SAFETY: as for `set_rss`; the kernel writes the number of the context.
    unsafe { call(interface, &mut words)? };
    Ok(words[1])
}

/// Deletes a context, by a table without entries.
pub(crate) fn delete_context(interface: &str, context: u32) -> io::Result<()> {
    if context == 0 {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut words = vec![0_u32; RXFH];
    (words[0], words[1]) = (SRSSH, context);
    // SAFETY: the buffer holds no entries and no key, as its sizes say.
    unsafe { call(interface, &mut words) }
}

/// A request that sets the table or the key of a context.
fn rxfh(
    interface: &str,
    context: u32,
    table: Option<&[u32]>,
    key: Option<&[u8]>,
) -> io::Result<Vec<u32>> {
    // The transformation is repeated: kernels before 6.8 want zero, which they report, too.
    let Rss { transformation, .. } = rss(interface, 0)?;
    let mut words = vec![0_u32; RXFH];
    (words[0], words[1]) = (SRSSH, context);
    words[2] = table.map_or(NO_TABLE, |table| table.len() as u32);
    words[3] = key.map_or(0, |key| key.len() as u32);
    words[4] = u32::from_ne_bytes([0, transformation, 0, 0]);
    words.extend_from_slice(table.unwrap_or_default());
    words.extend(key.unwrap_or_default().chunks(4).map(|part| {
        let mut word = [0; 4];
        word[..part.len()].copy_from_slice(part);
        u32::from_ne_bytes(word)
    }));
    Ok(words)
}

pub(crate) fn fields(interface: &str, flow_type: u32) -> io::Result<u64> {
    let mut words = [0_u32; RXNFC];
    (words[0], words[1]) = (GRXFH, flow_type);
    // SAFETY: the buffer is a struct ethtool_rxnfc, of which the kernel writes no more.
    unsafe { call(interface, &mut words)? };
    Ok(long(words[2], words[3]))
}

pub(crate) fn set_fields(interface: &str, flow_type: u32, fields: u64) -> io::Result<()> {
    let mut words = [0_u32; RXNFC];
    (words[0], words[1]) = (SRXFH, flow_type);
    words[2..4].copy_from_slice(&halves(fields));
    // SAFETY: the buffer is a struct ethtool_rxnfc.
    unsafe { call(interface, &mut words) }
}

pub(crate) fn coalesce(interface: &str) -> io::Result<Coalesce> {
    let mut words = [0_u32; 23];
    words[0] = GCOALESCE;
    // SAFETY: the buffer is a struct ethtool_coalesce, of which the kernel writes no more.
    unsafe { call(interface, &mut words)? };
    Ok(Coalesce {
        rx_usecs: words[1],
        rx_frames: words[2],
        tx_usecs: words[5],
        tx_frames: words[6],
        adaptive_rx: words[10] != 0,
        adaptive_tx: words[11] != 0,
    })
}

pub(crate) fn features(interface: &str) -> io::Result<Vec<Feature>> {
    let names = names(interface, FEATURES)?;
    let blocks = names.len().div_ceil(32);
    // For each block of 32: available, requested, active, never changed.
    let mut words = vec![0_u32; 2 + 4 * blocks];
    (words[0], words[1]) = (GFEATURES, blocks as u32);
    // SAFETY: the buffer has room for as many blocks as it says, and the kernel writes no more.
    unsafe { call(interface, &mut words)? };
    let bit = |at: usize, which: usize| words[2 + 4 * (at / 32) + which] >> (at % 32) & 1 != 0;
    let all = names.into_iter().enumerate().filter(|(_, name)| !name.is_empty());
    Ok(all
        .map(|(at, name)| Feature { name, on: bit(at, 2), changeable: bit(at, 0) && !bit(at, 3) })
        .collect())
}

pub(crate) fn counters(interface: &str) -> io::Result<Vec<(String, u64)>> {
    let names = names(interface, STATS)?;
    // The kernel writes as many numbers as the driver has now, whatever the buffer says. Drivers fix that
    // number by their number of queues; room for as many again and 1024 more covers a change in between.
    let room = 2 * names.len() + 1024;
    let mut words = vec![0_u32; 2 + 2 * room];
    (words[0], words[1]) = (GSTATS, names.len() as u32);
    // SAFETY: the buffer has room for more numbers than the driver has, as explained above.
    unsafe { call(interface, &mut words)? };
    let numbers = words[2..].chunks_exact(2).map(|half| long(half[0], half[1]));
    Ok(names.into_iter().zip(numbers.take(words[1] as usize)).collect())
}

/// The names of a set.
fn names(interface: &str, set: u32) -> io::Result<Vec<String>> {
    // The command, a reserved word, a mask of sets, and a number for each set.
    let mut words = [GSSET_INFO, 0, 0, 0, 0];
    words[2..4].copy_from_slice(&halves(1 << set));
    // SAFETY: the buffer has room for the number of the one set that it asks for.
    unsafe { call(interface, &mut words)? };
    if long(words[2], words[3]) == 0 {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    let count = words[4];
    if count > MOST {
        return Err(io::Error::from_raw_os_error(libc::EOVERFLOW));
    }
    let room = 2 * count as usize + 1024; // as in `counters`
    let mut words = vec![0_u32; 3 + room * NAME / 4];
    words[..3].copy_from_slice(&[GSTRINGS, set, count]);
    // SAFETY: the buffer has room for more names than the driver has; see `counters`.
    unsafe { call(interface, &mut words)? };
    let names = words[3..].chunks_exact(NAME / 4).take(words[2].min(count) as usize);
    Ok(names.map(text).collect())
}

/// Two words of a 64-bit number, in the order of memory.
fn halves(number: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = number.to_ne_bytes();
    [u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])]
}

fn long(first: u32, second: u32) -> u64 {
    let ([a, b, c, d], [e, f, g, h]) = (first.to_ne_bytes(), second.to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// A text that ends at the first zero byte.
fn text(words: &[u32]) -> String {
    let bytes = bytes(words);
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim().to_owned()
}

/// # Safety
/// `words` must have room for what the kernel writes for the command in its first word.
pub(crate) unsafe fn call(interface: &str, words: &mut [u32]) -> io::Result<()> {
    let mut request = ifreq(interface)?;
    let fd = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: the socket is open, the request is complete, and the caller guarantees the room of the buffer.
    let got = unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    if got < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_answers() {
        // Every network namespace has a loopback interface with features and without channels.
        let features = features("lo").unwrap();
        assert!(features.iter().any(|one| one.name == "tx-checksum-ip-generic"), "{features:?}");
        let refused = |error: io::Error| error.raw_os_error();
        assert_eq!(channels("lo").map_err(refused), Err(Some(libc::EOPNOTSUPP)));
        assert_eq!(rss("lo", 0).map_err(refused), Err(Some(libc::EOPNOTSUPP)));
        assert!(index("lo").unwrap() > 0);
        assert!(addresses("lo").contains(&IpAddr::from([127, 0, 0, 1])));
        assert!(addresses("none7").is_empty());
        assert!(offload("lo", Offload::Gso).is_ok());
        for name in ["", "a-name-that-is-too-long", "no\0", "none7"] {
            assert!(driver(name).is_err());
            assert!(offload(name, Offload::Gro).is_err());
        }
    }
}

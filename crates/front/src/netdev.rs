//! Whether an interface takes redirected frames: the question to the generic netlink family `netdev` (Linux 6.3,
//! include/uapi/linux/netdev.h).
//!
//! ```text
//!  dev-get, index ──> xdp-features: bit NETDEV_XDP_ACT_NDO_XMIT
//! ```
//!
//! A driver without this feature gets no frame by XDP_REDIRECT: the kernel drops the frame. A veth has it while its other
//! end has GRO or an XDP program, because only then does that end receive by NAPI.
//!
//! Thread-safety: a [`Netdev`] is used by one thread at a time.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

/// A socket that asks, in the network namespace in which it was opened.
#[derive(Debug)]
pub(crate) struct Netdev {
    socket: OwnedFd,
    family: u16,
}

/// The lengths of the headers of netlink and of generic netlink.
const HEADER: usize = 16;
const GENERIC: usize = 4;
/// `GENL_ID_CTRL`, `CTRL_CMD_GETFAMILY`, `CTRL_ATTR_FAMILY_ID`, `CTRL_ATTR_FAMILY_NAME`.
const CONTROL: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// `NETDEV_CMD_DEV_GET`, `NETDEV_A_DEV_IFINDEX`, `NETDEV_A_DEV_XDP_FEATURES`.
const DEV_GET: u8 = 1;
const INDEX: u16 = 1;
const FEATURES: u16 = 3;
/// `NETDEV_XDP_ACT_NDO_XMIT`.
const TAKES: u64 = 4;
/// `NLMSG_ERROR`.
const ERROR: u16 = 2;

impl Netdev {
    /// Opens the socket in the network namespace of the calling thread.
    ///
    /// # Errors
    /// The error of the kernel; `NotFound` before Linux 6.3, which has no such family.
    pub(crate) fn open() -> io::Result<Self> {
        let protocol = Some(netlink::GENERIC);
        let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, kind, flags, protocol)?;
        let answer = ask(&socket, &message(CONTROL, GET_FAMILY, FAMILY_NAME, b"netdev\0"))?;
        let family = value(&answer, CONTROL, FAMILY_ID).and_then(|id| id.first_chunk());
        let family = family.map(|id| u16::from_ne_bytes(*id)).ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { socket, family })
    }

    /// Whether the interface with this index takes redirected frames now.
    ///
    /// # Errors
    /// The error of the kernel; `NotFound` if there is no such interface.
    pub(crate) fn takes(&self, index: u32) -> io::Result<bool> {
        let question = message(self.family, DEV_GET, INDEX, &index.to_ne_bytes());
        let answer = ask(&self.socket, &question)?;
        let features = value(&answer, self.family, FEATURES).and_then(|bits| bits.first_chunk());
        let features = features.ok_or(io::ErrorKind::NotFound)?;
        Ok(u64::from_ne_bytes(*features) & TAKES != 0)
    }
}

fn ask(socket: &OwnedFd, question: &[u8]) -> io::Result<Vec<u8>> {
    rustix::net::send(socket, question, SendFlags::empty())?;
    let mut answer = vec![0; 8192];
    // The kernel has answered before the call above returns.
    let (len, _) = rustix::net::recv(socket, answer.as_mut_slice(), RecvFlags::DONTWAIT)?;
    answer.truncate(len);
    Ok(answer)
}

/// A request with one attribute.
fn message(family: u16, command: u8, attribute: u16, value: &[u8]) -> Vec<u8> {
    let len = HEADER + GENERIC + (4 + value.len()).next_multiple_of(4);
    let mut all = Vec::with_capacity(len);
    all.extend((len as u32).to_ne_bytes());
    all.extend(family.to_ne_bytes());
    all.extend(1_u16.to_ne_bytes()); // NLM_F_REQUEST
    all.extend([0; 8]);
    all.extend([command, 1, 0, 0]);
    all.extend((4 + value.len() as u16).to_ne_bytes());
    all.extend(attribute.to_ne_bytes());
    all.extend(value);
    all.resize(len, 0);
    all
}

/// The value of an attribute of a message of `family`; `None` if it is not there, or the message is an error.
fn value(message: &[u8], family: u16, attribute: u16) -> Option<&[u8]> {
    let len = u32::from_ne_bytes(*message.first_chunk()?) as usize;
    let kind = u16::from_ne_bytes(*message.get(4..)?.first_chunk()?);
    if kind == ERROR || kind != family {
        return None;
    }
    let mut rest = message.get(HEADER + GENERIC..len)?;
    loop {
        let len = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
        let kind = u16::from_ne_bytes(*rest.get(2..)?.first_chunk()?);
        let value = rest.get(4..len)?;
        if kind == attribute {
            return Some(value);
        }
        rest = rest.get(len.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_in_a_message_and_in_no_part_of_it() {
        let mut all = message(28, DEV_GET, INDEX, &7_u32.to_ne_bytes());
        all.extend([12, 0, FEATURES as u8, 0]);
        all.extend(0x67_u64.to_ne_bytes());
        let len = all.len() as u32;
        all[..4].copy_from_slice(&len.to_ne_bytes());
        assert_eq!(value(&all, 28, INDEX), Some(&7_u32.to_ne_bytes()[..]));
        assert_eq!(value(&all, 28, FEATURES), Some(&0x67_u64.to_ne_bytes()[..]));
        assert_eq!(value(&all, 28, 9), None);
        assert_eq!(value(&all, 29, FEATURES), None, "another family");
        for cut in 0..all.len() {
            assert_eq!(value(&all[..cut], 28, FEATURES), None, "{cut}");
        }
        let mut error = all.clone();
        error[4..6].copy_from_slice(&ERROR.to_ne_bytes());
        assert_eq!(value(&error, ERROR, FEATURES), None);
        // An attribute without a length ends the search.
        all[20..22].fill(0);
        assert_eq!(value(&all, 28, FEATURES), None);
    }

    #[test]
    fn the_kernel_answers_about_the_loopback_interface() {
        match Netdev::open() {
            Ok(netdev) => {
                assert!(!netdev.takes(1).unwrap(), "the loopback interface has no such function");
                assert_eq!(
                    netdev.takes(u32::MAX >> 1).unwrap_err().kind(),
                    io::ErrorKind::NotFound
                );
            }
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::NotFound, "before Linux 6.3"),
        }
    }
}

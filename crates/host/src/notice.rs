//! Notifications of the kernel that a setting of an interface has changed: the multicast group `monitor` of the
//! generic netlink family `ethtool`.
//!
//! ```text
//!  ethtool -L, -X, -K, -C by any program ──> kernel ──> group `monitor` ──> Notice
//! ```
//!
//! Linux 5.6 has the group; features, channels, rings and interrupt moderation are announced since 5.7, whether they
//! were changed by netlink or by ioctl; RSS since 6.17, and RSS contexts that are created or deleted by netlink, too
//! (include/uapi/linux/ethtool_netlink_generated.h). Files, such as affinities, RPS and XPS, and rules are never
//! announced: these have to be compared from time to time.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

use crate::sys;

/// Length of `struct nlmsghdr` and of `struct genlmsghdr`.
const HEADER: usize = 16;
const GENERIC: usize = 4;

/// `GENL_ID_CTRL`, and its command and attributes.
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const GROUPS: u16 = 7;
const GROUP_NAME: u16 = 1;
const GROUP_ID: u16 = 2;

/// `NLMSG_ERROR`.
const ERROR: u16 = 2;

/// The first attribute of every notification is a nest with the interface's index
/// (`ETHTOOL_A_CHANNELS_HEADER` and so on, `ETHTOOL_A_HEADER_DEV_INDEX`).
const INTERFACE: u16 = 1;
const INDEX: u16 = 1;

/// What a notification is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Notice {
    /// `ETHTOOL_MSG_FEATURES_NTF`: features, such as ntuple filters.
    Features,
    /// `ETHTOOL_MSG_RINGS_NTF`: lengths of the rings. Drivers may make their queues again.
    Rings,
    /// `ETHTOOL_MSG_CHANNELS_NTF`: numbers of channels.
    Channels,
    /// `ETHTOOL_MSG_COALESCE_NTF`: interrupt moderation.
    Coalesce,
    /// `ETHTOOL_MSG_RSS_NTF`: key, table, function or fields of RSS.
    Rss,
    /// `ETHTOOL_MSG_RSS_CREATE_NTF`: a new RSS context.
    ContextCreated,
    /// `ETHTOOL_MSG_RSS_DELETE_NTF`: an RSS context was deleted.
    ContextDeleted,
    /// Notifications were lost, because they came faster than they were read.
    Lost,
}

impl Notice {
    const ALL: [(u8, Self); 7] = [
        (13, Self::Features),
        (17, Self::Rings),
        (19, Self::Channels),
        (21, Self::Coalesce),
        (50, Self::Rss),
        (52, Self::ContextCreated),
        (53, Self::ContextDeleted),
    ];

    /// The subject in words.
    #[must_use]
    pub const fn subject(self) -> &'static str {
        match self {
            Self::Features => "features",
            Self::Rings => "rings",
            Self::Channels => "channels",
            Self::Coalesce => "interrupt moderation",
            Self::Rss => "RSS",
            Self::ContextCreated => "a new RSS context",
            Self::ContextDeleted => "a deleted RSS context",
            Self::Lost => "lost notifications",
        }
    }
}

/// A socket that receives the notifications about one interface.
#[derive(Debug)]
pub struct Notices {
    socket: OwnedFd,
    family: u16,
    index: u32,
}

impl Notices {
    /// Joins the group, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// The error of the kernel; `NotFound` if it has no such group, as before Linux 5.6.
    pub fn open(index: u32) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let kind = SocketType::RAW;
        let protocol = Some(netlink::GENERIC);
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, kind, flags, protocol)?;
        rustix::net::send(&socket, &question(b"ethtool\0"), SendFlags::empty())?;
        let mut buffer = vec![0; 1 << 15];
        let (len, _) = rustix::net::recv(&socket, buffer.as_mut_slice(), RecvFlags::empty())?;
        let (family, group) = family(&buffer[..len]).ok_or_else(|| {
            let what = "the kernel has no notifications of ethtool (they came with Linux 5.6)";
            io::Error::new(io::ErrorKind::NotFound, what)
        })?;
        sys::join(&socket, group)?;
        Ok(Self { socket, family, index })
    }

    /// The notifications about the interface that came within `wait`, without repetitions; it returns after the first.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn read(&self, wait: std::time::Duration) -> io::Result<Vec<Notice>> {
        let wait = Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: wait.subsec_nanos().into(),
        };
        let mut all = Vec::new();
        let mut ready = [PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN)];
        match poll(&mut ready, Some(&wait)) {
            Ok(0) | Err(Errno::INTR) => return Ok(all),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let mut buffer = vec![0; 1 << 15];
        loop {
            match rustix::net::recv(&self.socket, buffer.as_mut_slice(), RecvFlags::DONTWAIT) {
                Ok((len, _)) => all.extend(notices(&buffer[..len], self.family, self.index)),
                Err(Errno::NOBUFS) => all.push(Notice::Lost),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        all.sort();
        all.dedup();
        Ok(all)
    }
}

impl AsFd for Notices {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A request for the number and the groups of a generic netlink family.
fn question(name: &[u8]) -> Vec<u8> {
    let mut body = vec![GET_FAMILY, 1, 0, 0];
    body.extend((4 + name.len() as u16).to_ne_bytes());
    body.extend(FAMILY_NAME.to_ne_bytes());
    body.extend(name);
    body.resize(body.len().next_multiple_of(4), 0);
    let mut message = Vec::new();
    message.extend((HEADER as u32 + body.len() as u32).to_ne_bytes());
    message.extend(CONTROL.to_ne_bytes());
    message.extend(1_u16.to_ne_bytes()); // NLM_F_REQUEST
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// The messages of a datagram: type, and what follows the header.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
        let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
        let body = bytes.get(HEADER..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, body))
    })
}

/// Attributes: type, and value.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    /// `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`.
    const FLAGS: u16 = 0xc000;
    std::iter::from_fn(move || {
        let len = usize::from(u16::from_ne_bytes(*bytes.first_chunk()?));
        let kind = u16::from_ne_bytes(*bytes.get(2..)?.first_chunk()?);
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & !FLAGS, value))
    })
}

fn find(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

/// The number of the family, and of its group `monitor`.
fn family(bytes: &[u8]) -> Option<(u16, u32)> {
    let (kind, body) = messages(bytes).next()?;
    let body = body.get(GENERIC..).filter(|_| kind != ERROR)?;
    let family = u16::from_ne_bytes(*find(body, FAMILY_ID)?.first_chunk()?);
    let is_monitor =
        |group: &&[u8]| find(group, GROUP_NAME).is_some_and(|name| name == b"monitor\0");
    let group = attributes(find(body, GROUPS)?).map(|(_, group)| group).find(is_monitor)?;
    Some((family, u32::from_ne_bytes(*find(group, GROUP_ID)?.first_chunk()?)))
}

/// The notifications of a datagram about the interface with this index.
fn notices(bytes: &[u8], family: u16, index: u32) -> Vec<Notice> {
    let read = |(kind, body): (u16, &[u8])| {
        let (&command, attributes) = (body.first()?, body.get(GENERIC..)?);
        let of = find(find(attributes, INTERFACE)?, INDEX)?.first_chunk()?;
        let is_ours = kind == family && u32::from_ne_bytes(*of) == index;
        let found = Notice::ALL.iter().find(|(number, _)| *number == command && is_ours)?;
        Some(found.1)
    };
    messages(bytes).filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = (4 + value.len() as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn message(kind: u16, command: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = (20 + body.len() as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend([command, 1, 0, 0]);
        bytes.extend(body);
        bytes
    }

    /// A notification about interface 7, whose header has an index and a name.
    fn notice(command: u8) -> Vec<u8> {
        let header = [attribute(1, &7_u32.to_ne_bytes()), attribute(2, b"eth0\0")].concat();
        message(21, command, &attribute(0x8000 | 1, &header))
    }

    #[test]
    fn notifications_are_read() {
        let both = [notice(50), notice(19)].concat();
        assert_eq!(notices(&both, 21, 7), [Notice::Rss, Notice::Channels]);
        assert_eq!(notices(&both, 21, 8), []);
        assert_eq!(notices(&both, 22, 7), []);
        // A reply, and a command of a later kernel.
        assert_eq!(notices(&[notice(38), notice(200)].concat(), 21, 7), []);
        // Any part of it, and any damage, is no reason to panic.
        for cut in 0..both.len() {
            let _any = notices(&both[..cut], 21, 7);
            let mut damaged = both.clone();
            damaged[cut] ^= 0xff;
            let _any = notices(&damaged, 21, 7);
        }
    }

    #[test]
    fn the_family_is_found() {
        let group = |name: &[u8], id: u32| {
            attribute(1, &[attribute(1, name), attribute(2, &id.to_ne_bytes())].concat())
        };
        let groups = [group(b"other\0", 3), group(b"monitor\0", 40)].concat();
        let body = [attribute(1, &21_u16.to_ne_bytes()), attribute(7, &groups)].concat();
        assert_eq!(family(&message(CONTROL, 1, &body)), Some((21, 40)));
        assert_eq!(family(&message(ERROR, 1, &body)), None);
        assert_eq!(family(&[]), None);
    }

    #[test]
    fn the_kernel_has_the_group() {
        // Joining needs no privilege; an interface that does not exist has no notifications.
        let notices = Notices::open(u32::MAX).unwrap();
        assert_eq!(notices.read(std::time::Duration::ZERO).unwrap(), []);
    }
}

//! Routes in a routing table of the kernel that last as long as this process (rtnetlink(7), netlink(7)).
//!
//! ```text
//!  RTM_NEWROUTE 192.0.2.1/32 dev INTERFACE table 7925 proto 250 ──> table 7925
//!  the process ends ──> the TUN interface is removed ──> so are its routes
//! ```
//!
//! The routes lead to a TUN interface that belongs to this process and from which nothing is read. The kernel removes the
//! interface when its descriptor is closed, also if the process is killed. No rule of the kernel uses the table, unless the
//! administrator adds one: the routes are for a routing daemon, which reads the table.
//!
//! Thread-safety: used by one thread at a time.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::RouteTable;

/// The value of `proto` of the routes, by which `ip route` and routing daemons tell them from others. The kernel and
/// iproute2 do not assign it.
pub const PROTOCOL: u8 = 250;

/// Message types and flags of include/uapi/linux/netlink.h and rtnetlink.h.
const ERROR: u16 = 2;
const NEW_LINK: u16 = 16;
const NEW_ROUTE: u16 = 24;
const DELETE_ROUTE: u16 = 25;
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const REPLACE: u16 = 0x100;
const CREATE: u16 = 0x400;
/// `RTA_DST`, `RTA_OIF`, `RTA_TABLE`.
const DESTINATION: u16 = 1;
const OUT_INTERFACE: u16 = 4;
const TABLE: u16 = 15;
/// `RT_SCOPE_LINK`, `RTN_UNICAST`.
const SCOPE_LINK: u8 = 253;
const UNICAST: u8 = 1;
/// The length of `struct nlmsghdr`.
const HEADER: usize = 16;

/// The interface and the table.
#[derive(Debug)]
pub struct Routes {
    socket: OwnedFd,
    index: u32,
    table: u32,
    /// The descriptor that keeps the interface.
    tun: File,
}

impl Routes {
    /// Creates the interface `name` in the network namespace of the calling thread and sets it up.
    ///
    /// # Errors
    /// Those of [`flowyard_ports::tap::tun`], and those of rtnetlink.
    pub fn open(name: &str, table: u32) -> io::Result<Self> {
        let routes = Self::of(flowyard_ports::tap::tun(name)?, name, table)?;
        routes.ask(&up(routes.index))?;
        Ok(routes)
    }

    /// Continues with the interface `name` of another process, and its routes.
    ///
    /// # Errors
    /// Those of rtnetlink.
    pub fn adopt(tun: OwnedFd, name: &str, table: u32) -> io::Result<Self> {
        Self::of(File::from(tun), name, table)
    }

    /// A duplicate of the descriptor that keeps the interface.
    ///
    /// # Errors
    /// The process has too many descriptors.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        self.tun.try_clone().map(OwnedFd::from)
    }

    fn of(tun: File, name: &str, table: u32) -> io::Result<Self> {
        let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
        // NETLINK_ROUTE is 0, the default.
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, kind, flags, None)?;
        let index = rustix::net::netdevice::name_to_index(&socket, name)?;
        Ok(Self { socket, index, table, tun })
    }

    fn ask(&self, message: &[u8]) -> io::Result<()> {
        rustix::net::send(&self.socket, message, SendFlags::empty())?;
        let mut answer = [0; 1024];
        // The kernel has answered before the call above returns.
        let (len, _) = rustix::net::recv(&self.socket, answer.as_mut_slice(), RecvFlags::DONTWAIT)?;
        match error_of(&answer[..len]) {
            Some(0) => Ok(()),
            Some(error) => Err(io::Error::from_raw_os_error(-error)),
            None => Err(io::Error::other("the kernel has sent no acknowledgement")),
        }
    }
}

impl RouteTable for Routes {
    fn add(&mut self, address: IpAddr) -> io::Result<()> {
        let flags = CREATE | REPLACE;
        self.ask(&route(NEW_ROUTE, flags, address, self.index, self.table))
    }

    fn remove(&mut self, address: IpAddr) -> io::Result<()> {
        let removed = self.ask(&route(DELETE_ROUTE, 0, address, self.index, self.table));
        match removed {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::SRCH) => Ok(()),
            removed => removed,
        }
    }
}

/// `ip link set dev INDEX up`: `struct ifinfomsg`.
fn up(index: u32) -> Vec<u8> {
    let mut body = vec![0; 4];
    body.extend(index.to_ne_bytes());
    body.extend((libc::IFF_UP as u32).to_ne_bytes()); // flags
    body.extend((libc::IFF_UP as u32).to_ne_bytes()); // which of them change
    message(NEW_LINK, 0, &body)
}

/// A route to one address: `struct rtmsg` and attributes.
fn route(kind: u16, flags: u16, address: IpAddr, index: u32, table: u32) -> Vec<u8> {
    let (family, octets) = match address {
        IpAddr::V4(address) => (libc::AF_INET as u8, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6 as u8, address.octets().to_vec()),
    };
    // The table is in an attribute: the field has room for numbers below 256.
    let bits = octets.len() as u8 * 8;
    let mut body = vec![family, bits, 0, 0, 0, PROTOCOL, SCOPE_LINK, UNICAST, 0, 0, 0, 0];
    for (kind, value) in [
        (DESTINATION, &octets[..]),
        (OUT_INTERFACE, &index.to_ne_bytes()),
        (TABLE, &table.to_ne_bytes()),
    ] {
        body.extend((4 + value.len() as u16).to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(value);
    }
    message(kind, flags, &body)
}

/// A request that the kernel acknowledges. All attributes have lengths that are multiples of four.
fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let mut all = Vec::with_capacity(HEADER + body.len());
    all.extend(((HEADER + body.len()) as u32).to_ne_bytes());
    all.extend(kind.to_ne_bytes());
    all.extend((REQUEST | ACKNOWLEDGE | flags).to_ne_bytes());
    all.extend([0; 8]); // sequence number and port: there is one request at a time
    all.extend(body);
    all
}

/// The error number of an acknowledgement, 0 for success; `None` if the message is none.
fn error_of(message: &[u8]) -> Option<i32> {
    let kind = u16::from_ne_bytes(*message.get(4..)?.first_chunk()?);
    let error = i32::from_ne_bytes(*message.get(HEADER..)?.first_chunk()?);
    (kind == ERROR).then_some(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `ip route replace 192.0.2.1/32 dev IF table 7925 proto 250 scope link` demands (rtnetlink(7)).
    #[test]
    fn a_route_is_encoded_as_rtnetlink_specifies() {
        let message = route(NEW_ROUTE, CREATE | REPLACE, [192, 0, 2, 1].into(), 9, 7925);
        let (length, rest) = message.split_first_chunk().unwrap();
        assert_eq!(u32::from_ne_bytes(*length), 52);
        assert_eq!(rest[..4], [24, 0, 0x05, 0x05]);
        assert_eq!(rest[12..24], [2, 32, 0, 0, 0, 250, 253, 1, 0, 0, 0, 0]);
        let attributes = [
            8, 0, 1, 0, 192, 0, 2, 1, // destination
            8, 0, 4, 0, 9, 0, 0, 0, // interface
            8, 0, 15, 0, 0xf5, 0x1e, 0, 0, // table
        ];
        assert_eq!(rest[24..], attributes);
    }

    #[test]
    fn an_acknowledgement_has_an_error_number() {
        let mut answer = vec![0; 36];
        answer[4] = 2;
        assert_eq!(error_of(&answer), Some(0));
        answer[16..20].copy_from_slice(&(-17_i32).to_ne_bytes());
        assert_eq!(error_of(&answer), Some(-17));
        answer[4] = 3;
        assert_eq!(error_of(&answer), None, "another type");
        assert_eq!(error_of(&answer[..18]), None, "too short");
    }

    #[test]
    fn names_that_are_no_interface_are_refused_before_anything_is_opened() {
        for name in ["", "a%d", "../x", "sixteen-letters-"] {
            let error = Routes::open(name, 7925).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{name}");
        }
    }
}

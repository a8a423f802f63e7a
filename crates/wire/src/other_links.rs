//! The first header of frames whose link is not Ethernet.

use crate::{
    Fault, LinkType,
    walk::{Step, Walk, ether},
};

impl Walk<'_, '_> {
    #[inline(never)]
    pub(crate) fn other_link(&mut self, link: LinkType) -> Step {
        match link {
            LinkType::Ethernet => self.ethernet(),
            LinkType::RawIp => self.ip(),
            LinkType::Ipv4 => self.ipv4(),
            LinkType::Ipv6 => self.ipv6(),
            LinkType::Null | LinkType::Loop => self.loopback(link),
            LinkType::LinuxSll => self.cooked::<16>(14, 2),
            LinkType::LinuxSll2 => self.cooked::<20>(0, 8),
        }
    }

    /// A 4-byte address family. Families are small, so a large one is in the other byte order;
    /// the number of AF_INET6 depends on the system: Linux 10, NetBSD and OpenBSD 24, FreeBSD 28,
    /// Darwin 30.
    fn loopback(&mut self, link: LinkType) -> Step {
        let Some(family) = self.peek::<4>() else {
            return Err(self.short(Fault::TruncatedLink));
        };
        let mut family = u32::from_be_bytes(*family);
        if link == LinkType::Null && family > 0xffff {
            family = family.swap_bytes();
        }
        self.at += 4;
        self.h.l3 = self.at as u32;
        match family {
            2 => self.ipv4(),
            10 | 24 | 28 | 30 => self.ipv6(),
            _ => Ok(()),
        }
    }

    /// Linux cooked capture of `N` bytes, with the protocol and the ARPHRD type at these offsets.
    fn cooked<const N: usize>(&mut self, protocol: usize, hardware: usize) -> Step {
        let Some(header) = self.peek::<N>() else {
            return Err(self.short(Fault::TruncatedLink));
        };
        let field = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        self.at += N;
        self.h.l3 = self.at as u32;
        match (field(hardware), field(protocol)) {
            // Frame relay, GRE, radiotap, netlink: their protocol field is not an EtherType.
            (770 | 778 | 803 | 824, _) => Ok(()),
            (_, 4) => self.llc(),
            (_, 0..=ether::MAX_LENGTH) => Ok(()),
            (_, eth_type) => self.ether_type(eth_type),
        }
    }
}

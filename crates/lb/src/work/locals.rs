//! Local addresses: the source addresses of FullNAT connections and tunnels.
//!
//! Each core has its own addresses, so the destination of a reply tells whose connection table has its
//! connection. All services use all ports of the addresses: a port is taken only towards the backends that
//! a connection with this port has.

use std::net::IpAddr;

use crate::LocalPort;

/// Number of ports that are used of an address: 1024 to 65535.
pub const PORTS: u32 = 64_512;
const FIRST: u16 = 1024;

/// The most unestablished connections that a service with this number of local ports can have: three quarters.
/// If nearly all are taken, many are tried for a new connection.
#[must_use]
pub const fn ports_for_unestablished(ports: usize) -> usize {
    ports - ports.div_ceil(4)
}

/// The largest number of addresses of a family that a core uses.
pub const LOCALS: usize = 256;

/// The pool of local addresses.
#[derive(Debug)]
pub(super) struct Locals {
    /// By family (IPv4 first), then by core.
    pools: [Vec<Vec<IpAddr>>; 2],
    /// Sorted by address.
    owners: Vec<Owner>,
}

/// The core that an address belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Owner {
    addr: IpAddr,
    core: u16,
    /// Index of the address in the core's pool.
    index: u8,
}

impl Locals {
    /// Distributes the addresses of each family over `cores` cores in turn.
    pub(super) fn new(addrs: &[IpAddr], cores: usize) -> Self {
        let mut pools = [vec![Vec::new(); cores], vec![Vec::new(); cores]];
        let mut owners = Vec::new();
        for (family, pool) in pools.iter_mut().enumerate() {
            let mine = addrs.iter().filter(|addr| addr.is_ipv6() == (family == 1));
            for (at, &addr) in mine.enumerate() {
                let core = at % cores.max(1);
                let Ok(index) = u8::try_from(pool[core].len()) else { continue };
                owners.push(Owner { addr, core: core as u16, index });
                pool[core].push(addr);
            }
        }
        owners.sort_unstable();
        Self { pools, owners }
    }

    /// The source address of tunnels of a family.
    pub(super) fn source(&self, v6: bool) -> Option<IpAddr> {
        self.pools[usize::from(v6)].iter().flatten().next().copied()
    }

    /// Whether `addr` is the source address of tunnels.
    pub(super) fn is_source(&self, addr: IpAddr) -> bool {
        self.source(addr.is_ipv6()) == Some(addr)
    }

    /// The number of local ports that a core has in a family.
    pub(super) fn ports(&self, core: usize, v6: bool) -> u32 {
        let pool = self.pools[usize::from(v6)].get(core);
        pool.map_or(0, |pool| pool.len() as u32 * PORTS)
    }

    /// The local port of a core with this number, below [`Self::ports`].
    pub(super) fn port(number: u32) -> LocalPort {
        LocalPort { port: FIRST + (number % PORTS) as u16, address: (number / PORTS) as u8 }
    }

    /// The address of a local port of a core; `None` if it is none.
    pub(super) fn addr(&self, core: usize, local: LocalPort, v6: bool) -> Option<IpAddr> {
        let pool = self.pools[usize::from(v6)].get(core).filter(|_| local.port != 0)?;
        pool.get(usize::from(local.address)).copied()
    }

    /// The addresses of a core in a family, by index.
    pub(super) fn of(&self, core: usize, v6: bool) -> &[IpAddr] {
        self.pools[usize::from(v6)].get(core).map_or(&[], Vec::as_slice)
    }

    /// The core that has this address, and the index of the address on the core.
    pub(super) fn owner(&self, addr: IpAddr) -> Option<(u16, u8)> {
        let at = self.owners.binary_search_by_key(&addr, |owner| owner.addr).ok()?;
        let Owner { core, index, .. } = self.owners[at];
        Some((core, index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_ports_and_addresses_correspond() {
        let text = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "2001:db8::1", "2001:db8::2"];
        let addrs = text.map(|text| text.parse().unwrap());
        let locals = Locals::new(&addrs, 2);
        for (v6, counts) in [(false, [129_024, 64_512]), (true, [64_512, 64_512])] {
            for (core, count) in counts.into_iter().enumerate() {
                assert_eq!(locals.ports(core, v6), count);
                for number in [0, 1, 64_511, 64_512, 129_023, 129_024] {
                    let local = Locals::port(number);
                    assert!(local.port >= 1024);
                    let addr = locals.addr(core, local, v6);
                    assert_eq!(addr.is_some(), number < count);
                    if let Some(addr) = addr {
                        assert_eq!(locals.owner(addr), Some((core as u16, local.address)));
                    }
                }
            }
        }
        assert_eq!(locals.source(true), Some(addrs[3]));
        assert_eq!(locals.addr(0, LocalPort::default(), false), None);
        assert_eq!(locals.owner("10.0.0.9".parse().unwrap()), None);
        assert_eq!(Locals::new(&[], 1).source(false), None);
        let many: Vec<IpAddr> = (0..600u32).map(|n| IpAddr::from(n.to_be_bytes())).collect();
        let locals = Locals::new(&many, 2);
        assert_eq!(locals.ports(1, false), 256 * 64_512);
        assert_eq!((locals.owner(many[511]), locals.owner(many[512])), (Some((1, 255)), None));
    }
}

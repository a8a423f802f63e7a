//! Local addresses: the source addresses of FullNAT connections and tunnels.
//!
//! The local address and port of a connection are computed from its slot in the connection table by
//! division. A reply therefore finds its connection without another table, and two connections never
//! share a port. Each core has its own addresses.

use std::net::IpAddr;

/// Number of ports that are used of an address: 1024 to 65535.
const PORTS: u32 = 64_512;
const FIRST: u16 = 1024;

/// The source address and port of a FullNAT connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Local {
    pub(super) addr: IpAddr,
    pub(super) port: u16,
}

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
    index: u32,
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
                owners.push(Owner { addr, core: core as u16, index: pool[core].len() as u32 });
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

    /// The local address and port of the connection in a slot; `None` if the core has too few addresses.
    pub(super) fn of(&self, (core, slot): (u16, u32), v6: bool) -> Option<Local> {
        let pool = self.pools[usize::from(v6)].get(usize::from(core))?;
        let addr = *pool.get((slot / PORTS) as usize)?;
        Some(Local { addr, port: FIRST + (slot % PORTS) as u16 })
    }

    /// The core and slot of the connection with this local address and port.
    pub(super) fn home(&self, addr: IpAddr, port: u16) -> Option<(u16, u32)> {
        let at = self.owners.binary_search_by_key(&addr, |owner| owner.addr).ok()?;
        let Owner { core, index, .. } = self.owners[at];
        Some((core, index * PORTS + u32::from(port.checked_sub(FIRST)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_and_local_addresses_correspond() {
        let text = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "2001:db8::1", "2001:db8::2"];
        let addrs = text.map(|text| text.parse().unwrap());
        let locals = Locals::new(&addrs, 2);
        for (v6, most) in [(false, [129_023, 64_511]), (true, [64_511, 64_511])] {
            for core in 0..2u16 {
                let most = most[usize::from(core)];
                for slot in [0, 1, 64_511, 64_512, most] {
                    let Some(local) = locals.of((core, slot), v6) else {
                        assert!(slot > most);
                        continue;
                    };
                    assert_eq!(locals.home(local.addr, local.port), Some((core, slot)));
                }
                assert_eq!(locals.of((core, most + 1), v6), None);
            }
        }
        assert_eq!(locals.source(true), Some(addrs[3]));
        assert_eq!(locals.home(addrs[0], 1023), None);
        assert_eq!(locals.home("10.0.0.9".parse().unwrap(), 2000), None);
        assert_eq!(Locals::new(&[], 1).source(false), None);
    }
}

//! Local addresses: what FullNAT connections and tunnels come from.
//!
//! The slot of a connection is its local address and port, by division: an answer finds its
//! connection without a table, and no port is ever given twice. Each core has addresses of its own.

use std::net::IpAddr;

/// Ports of an address that are given: 1024 to 65535.
const PORTS: u32 = 64_512;
const FIRST: u16 = 1024;

/// An address and port of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Local {
    pub(super) addr: IpAddr,
    pub(super) port: u16,
}

/// The pool of local addresses.
#[derive(Debug)]
pub(super) struct Locals {
    /// By family (IPv4 first), by core.
    pools: [Vec<Vec<IpAddr>>; 2],
    /// Sorted: whose it is, and which of theirs.
    owners: Vec<(IpAddr, u16, u32)>,
}

impl Locals {
    /// The addresses of each family are dealt out to `cores` cores in turns.
    pub(super) fn new(addrs: &[IpAddr], cores: usize) -> Self {
        let mut pools = [vec![Vec::new(); cores], vec![Vec::new(); cores]];
        let mut owners = Vec::new();
        for (family, pool) in pools.iter_mut().enumerate() {
            let mine = addrs.iter().filter(|addr| addr.is_ipv6() == (family == 1));
            for (at, &addr) in mine.enumerate() {
                let core = at % cores.max(1);
                owners.push((addr, core as u16, pool[core].len() as u32));
                pool[core].push(addr);
            }
        }
        owners.sort_unstable();
        Self { pools, owners }
    }

    /// The source of tunnels.
    pub(super) fn source(&self, v6: bool) -> Option<IpAddr> {
        self.pools[usize::from(v6)].iter().flatten().next().copied()
    }

    /// Whether tunnels come from `addr`.
    pub(super) fn is_source(&self, addr: IpAddr) -> bool {
        self.source(addr.is_ipv6()) == Some(addr)
    }

    /// The address and port of a connection; `None` if there are not so many.
    pub(super) fn of(&self, (core, slot): (u16, u32), v6: bool) -> Option<Local> {
        let pool = self.pools[usize::from(v6)].get(usize::from(core))?;
        let addr = *pool.get((slot / PORTS) as usize)?;
        Some(Local { addr, port: FIRST + (slot % PORTS) as u16 })
    }

    /// The connection with this address and port: core and slot.
    pub(super) fn home(&self, addr: IpAddr, port: u16) -> Option<(u16, u32)> {
        let at = self.owners.binary_search_by_key(&addr, |(addr, _, _)| *addr).ok()?;
        let (_, core, index) = self.owners[at];
        Some((core, index * PORTS + u32::from(port.checked_sub(FIRST)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_an_address_and_back() {
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

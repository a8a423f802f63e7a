//! What becomes of a frame that a pool transmits: anti-spoof checks, VLAN insertion, and the switch between pools (X550
//! 333369-009, sections 7.8.3.4 and 4.6.10.1.3).

use super::receive::{List, Step, Trace};
use super::{Cast, Insert, L2, Mirrored, POOLS, Pools, Vmdq};

/// Why a transmitted frame is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spoof {
    /// The pool may not transmit (PFVFTE), or does not exist.
    Disabled,
    /// The source address is no filter of the pool (PFVFSPOOF.MACAS).
    Mac,
    /// The pool is not in the VLAN (PFVFSPOOF.VLANAS).
    Vlan,
}

/// The decision on a transmitted frame.
#[derive(Clone, Copy, Debug)]
pub struct Transmitted {
    /// The tag with which the frame leaves.
    pub tci: Option<u16>,
    /// Whether it is sent to the network.
    pub to_network: bool,
    /// The pools of this adapter that get a copy.
    pub pools: Pools,
    /// Why it is dropped, and goes nowhere.
    pub dropped: Option<Spoof>,
    trace: Trace,
}

impl Transmitted {
    /// What led to the list of pools.
    #[must_use]
    pub const fn trace(&self) -> &Trace {
        &self.trace
    }
}

impl Vmdq {
    /// What becomes of a frame that `pool` transmits.
    #[must_use]
    pub fn transmit(&self, pool: u8, frame: &L2) -> Transmitted {
        let mut list = List::empty();
        let mut sent = *frame;
        let bit = if pool < POOLS { 1 << pool } else { 0 };
        let insert = self.insert.get(usize::from(pool)).copied().unwrap_or_default();
        let dropped = self.spoofed(bit, frame, insert);
        sent.tci = match insert {
            Insert::AsSent => frame.tci,
            Insert::Always(tci) => Some(tci),
            Insert::Never => None,
        };
        let to_network = dropped.is_none() && self.leaves(&sent);
        if dropped.is_none() && self.loopback {
            self.between_pools(bit, &sent, to_network, &mut list);
        }
        Transmitted { tci: sent.tci, to_network, pools: list.pools, dropped, trace: list.trace() }
    }

    /// The checks of the sender. The VLAN that is checked is the one that the frame leaves with.
    fn spoofed(&self, bit: Pools, frame: &L2, insert: Insert) -> Option<Spoof> {
        if self.may_transmit & self.layout.all() & bit == 0 {
            return Some(Spoof::Disabled);
        }
        let own = |mac| self.macs.iter().any(|filter| filter.mac == mac && filter.pools & bit != 0);
        if self.check_macs & bit != 0 && !own(frame.src) {
            return Some(Spoof::Mac);
        }
        // A pool whose frames all get the port VLAN cannot tag them itself (ixgbe: a VF with a port VLAN may not add tags).
        let tagged_itself = matches!(insert, Insert::Always(_)) && frame.tci.is_some();
        let tci = match insert {
            Insert::Always(tci) => Some(tci),
            Insert::AsSent => frame.tci,
            Insert::Never => None,
        };
        let member = match tci {
            None => true,
            Some(tci) => {
                let found = self.vlans.iter().find(|filter| filter.vid == tci & 0xfff);
                found.is_some_and(|filter| filter.pools & bit != 0)
            }
        };
        let wrong = self.check_vlans & bit != 0 && (tagged_itself || !member);
        wrong.then_some(Spoof::Vlan)
    }

    /// Step 11: broadcast and multicast always leave, unicast if no exact filter has the address. A filter whose pools may
    /// not receive does not count. Without loopback everything leaves.
    fn leaves(&self, frame: &L2) -> bool {
        let local = self.exact(frame) & self.may_receive & self.layout.all() != 0;
        !self.loopback || frame.cast() != Cast::Unicast || !local
    }

    fn between_pools(&self, bit: Pools, frame: &L2, to_network: bool, list: &mut List) {
        let enabled = self.may_receive & self.layout.all();
        let own = if self.own_loopback & bit == 0 { bit } else { 0 };
        if self.replication {
            self.candidates(frame, list);
            list.keep(Step::Source, !own);
            self.keep_vlan(frame, list);
            list.keep(Step::Enabled, enabled);
            self.mirror(frame, list, |what, _| what == Mirrored::Downlink && to_network);
            list.keep(Step::Enabled, enabled);
            return;
        }
        list.set(Step::Exact, self.exact(frame));
        list.keep(Step::Enabled, enabled);
        let exact = list.pools;
        if frame.cast() == Cast::Unicast
            && list.pools == 0
            && Self::hashed(&self.unicast_hash, frame.dst)
        {
            list.add(Step::UnicastHash, self.where_set(|accept| accept.unicast_hash));
        }
        self.keep_vlan(frame, list);
        if frame.cast() != Cast::Unicast && exact == 0 {
            list.set(Step::Default, self.default_pool.map_or(0, |pool| 1 << pool));
        }
        list.keep(Step::Source, !own);
        list.keep(Step::Enabled, enabled);
        list.set(Step::Enabled, list.pools & list.pools.wrapping_neg());
    }
}

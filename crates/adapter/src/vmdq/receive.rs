//! Which pools get a frame from the network, in the order of the datasheet (X550 333369-009, section 7.8.3.3).

use super::{Cast, L2, Mirrored, POOLS, Pools, Vmdq};

/// A step of the decision. The order is that of section 7.8.3.3.1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// 1: an exact filter has the address.
    Exact,
    /// 2, 12 and 14: pools that may not receive are removed.
    Enabled,
    /// 3: pools that accept broadcast are added.
    Broadcast,
    /// 4: the unicast hash table has the address, and no pool is in the list.
    UnicastHash,
    /// 5: the multicast hash table has the address, and no pool is in the list.
    MulticastHash,
    /// 6: pools that accept all multicast are added.
    AllMulticast,
    /// 7: pools that accept all unicast are added.
    AllUnicast,
    /// 8: pools that are not in the frame's VLAN are removed.
    Vlan,
    /// 9: an empty list gets the default pool.
    Default,
    /// 10: an EtherType filter has a pool.
    EtherType,
    /// 11: pools that have the source address are removed.
    Source,
    /// 13: mirroring rules add pools.
    Mirror,
}

impl Step {
    /// The number of the step in section 7.8.3.3.1 of the X550 datasheet.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Exact => 1,
            Self::Enabled => 2,
            Self::Broadcast => 3,
            Self::UnicastHash => 4,
            Self::MulticastHash => 5,
            Self::AllMulticast => 6,
            Self::AllUnicast => 7,
            Self::Vlan => 8,
            Self::Default => 9,
            Self::EtherType => 10,
            Self::Source => 11,
            Self::Mirror => 13,
        }
    }
}

/// A step that changed the list, and the list after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cause {
    /// The step.
    pub step: Step,
    /// The list after it.
    pub pools: Pools,
}

/// The steps that changed the list, in order.
#[derive(Clone, Copy, Debug)]
pub struct Trace {
    causes: [Cause; Self::MOST],
    len: usize,
}

impl Trace {
    /// Fourteen steps, of which each changes the list at most once.
    const MOST: usize = 14;

    const NONE: Self = Self { causes: [Cause { step: Step::Exact, pools: 0 }; Self::MOST], len: 0 };

    /// The steps that changed the list.
    #[must_use]
    pub fn causes(&self) -> &[Cause] {
        &self.causes[..self.len]
    }
}

/// Why the port drops a frame before pools are chosen (section 7.1.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// No filter of the port has the destination address, and the port is not promiscuous.
    Address,
    /// No VLAN filter has the VLAN.
    Vlan,
}

/// The decision on a received frame.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// The pools that get a copy; an empty list drops the frame.
    pub pools: Pools,
    /// Why the port dropped the frame before pools were chosen.
    pub refused: Option<Refused>,
    /// The queue of an EtherType filter, which holds for its own pool.
    pub queue: Option<u16>,
    /// What led to the list.
    pub trace: Trace,
}

/// A pool list that grows and shrinks.
pub(super) struct List {
    pub(super) pools: Pools,
    trace: Trace,
}

impl List {
    pub(super) const fn empty() -> Self {
        Self { pools: 0, trace: Trace::NONE }
    }

    pub(super) const fn trace(&self) -> Trace {
        self.trace
    }

    pub(super) fn set(&mut self, step: Step, pools: Pools) {
        if pools != self.pools && self.trace.len < Trace::MOST {
            self.trace.causes[self.trace.len] = Cause { step, pools };
            self.trace.len += 1;
        }
        self.pools = pools;
    }

    pub(super) fn add(&mut self, step: Step, pools: Pools) {
        self.set(step, self.pools | pools);
    }

    pub(super) fn keep(&mut self, step: Step, pools: Pools) {
        self.set(step, self.pools & pools);
    }
}

impl Vmdq {
    /// The pools that get a frame from the network.
    #[must_use]
    pub fn receive(&self, frame: &L2) -> Received {
        let refused = self.port_refuses(frame);
        let mut list = List::empty();
        let mut queue = None;
        if refused.is_none() {
            match self.replication {
                true => self.replicate(frame, &mut list, &mut queue),
                false => self.choose_one(frame, &mut list, &mut queue),
            }
        }
        Received { pools: list.pools, refused, queue, trace: list.trace }
    }

    /// Sections 7.1.2.1 and 7.1.2.2: filters of the port in front of the pools.
    fn port_refuses(&self, frame: &L2) -> Option<Refused> {
        let exact = self.macs.iter().any(|filter| filter.mac == frame.dst);
        let address = exact
            || match frame.cast() {
                Cast::Broadcast => true, // FCTRL.BAM, which ixgbe sets
                Cast::Multicast => {
                    self.port_multicast || Self::hashed(&self.multicast_hash, frame.dst)
                }
                Cast::Unicast => self.port_unicast || Self::hashed(&self.unicast_hash, frame.dst),
            };
        if !address {
            return Some(Refused::Address);
        }
        let any_vlan = self.has_promiscuous && self.where_set(|accept| accept.all_vlans) != 0;
        let vlan = !self.filter_vlans
            || frame.tci.is_none()
            || any_vlan
            || self.vlan_number(frame).is_some();
        (!vlan).then_some(Refused::Vlan)
    }

    /// Steps 1 to 8, which reception and transmission have in common. Step 2 removes pools that may not receive.
    pub(super) fn candidates(&self, frame: &L2, list: &mut List) {
        let enabled = self.may_receive & self.layout.all();
        list.set(Step::Exact, self.exact(frame));
        list.keep(Step::Enabled, enabled);
        let accepting = |of: fn(&super::Accept) -> bool| self.where_set(of);
        match frame.cast() {
            Cast::Broadcast => list.add(Step::Broadcast, accepting(|accept| accept.broadcast)),
            Cast::Unicast => {
                if list.pools == 0 && Self::hashed(&self.unicast_hash, frame.dst) {
                    list.add(Step::UnicastHash, accepting(|accept| accept.unicast_hash));
                }
                if self.has_promiscuous {
                    list.add(Step::AllUnicast, accepting(|accept| accept.all_unicast));
                }
            }
            Cast::Multicast => {
                if list.pools == 0 && Self::hashed(&self.multicast_hash, frame.dst) {
                    list.add(Step::MulticastHash, accepting(|accept| accept.multicast_hash));
                }
                list.add(Step::AllMulticast, accepting(|accept| accept.all_multicast));
            }
        }
    }

    /// The pools of the exact filter of the destination address.
    pub(super) fn exact(&self, frame: &L2) -> Pools {
        let found = self.macs.iter().find(|filter| filter.mac == frame.dst);
        found.map_or(0, |filter| filter.pools)
    }

    /// Step 8: only pools of the frame's VLAN stay in the list.
    pub(super) fn keep_vlan(&self, frame: &L2, list: &mut List) {
        if !self.filter_vlans {
            return;
        }
        let members = match (frame.tci, self.vlan_number(frame)) {
            (None, _) => self.where_set(|accept| accept.untagged),
            (Some(_), found) => {
                let any = self.has_promiscuous;
                let all = if any { self.where_set(|accept| accept.all_vlans) } else { 0 };
                found.map_or(0, |number| self.vlans[number].pools) | all
            }
        };
        list.keep(Step::Vlan, members);
    }

    /// Section 7.8.3.3.1: replication is on.
    fn replicate(&self, frame: &L2, list: &mut List, queue: &mut Option<u16>) {
        let enabled = self.may_receive & self.layout.all();
        self.candidates(frame, list);
        self.keep_vlan(frame, list);
        self.default_if_empty(list);
        self.by_ether_type(frame, list, queue);
        let own = self.macs.iter().find(|filter| filter.mac == frame.src);
        list.keep(Step::Source, !(own.map_or(0, |filter| filter.pools) & self.prune_source));
        list.keep(Step::Enabled, enabled);
        self.mirror(frame, list, |mirrored, reached| mirrored == Mirrored::Uplink && reached);
        list.keep(Step::Enabled, enabled);
    }

    /// Section 7.8.3.3.2: replication is off, and the list has one pool.
    fn choose_one(&self, frame: &L2, list: &mut List, queue: &mut Option<u16>) {
        let enabled = self.may_receive & self.layout.all();
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
        self.default_if_empty(list);
        if frame.cast() != Cast::Unicast && exact == 0 {
            list.set(Step::Default, self.default_pool.map_or(0, |pool| 1 << pool));
        }
        self.by_ether_type(frame, list, queue);
        list.keep(Step::Enabled, enabled);
        // Software must see to it that one pool is left; the lowest is taken if it did not.
        list.set(Step::Enabled, list.pools & list.pools.wrapping_neg());
    }

    fn default_if_empty(&self, list: &mut List) {
        if let (0, Some(pool)) = (list.pools, self.default_pool.filter(|pool| *pool < POOLS)) {
            list.set(Step::Default, 1 << pool);
        }
    }

    /// Step 10.
    fn by_ether_type(&self, frame: &L2, list: &mut List, queue: &mut Option<u16>) {
        let found = self.ether_types.iter().find(|filter| filter.eth_type == frame.eth_type);
        let Some(filter) = found else { return };
        *queue = filter.queue;
        if let Some(pool) = filter.pool.filter(|pool| *pool < POOLS) {
            list.set(Step::EtherType, 1 << pool);
        }
    }

    /// Step 13. `by_port` says whether a rule that mirrors a direction of the port applies.
    pub(super) fn mirror(
        &self,
        frame: &L2,
        list: &mut List,
        by_port: impl Fn(Mirrored, bool) -> bool,
    ) {
        let before = list.pools;
        let vlan = self.vlan_number(frame).map_or(0, |number| 1 << number);
        let mut copies = 0;
        for mirror in &self.mirrors {
            let applies = match mirror.what {
                Mirrored::Pools(pools) => pools & before != 0,
                Mirrored::Vlans(numbers) => numbers & vlan != 0,
                direction => by_port(direction, before != 0),
            };
            copies |= u64::from(applies) << mirror.to;
        }
        list.add(Step::Mirror, copies);
    }
}

//! Queues for virtual machines: VMDq pools and SR-IOV virtual functions of the 500 series.
//!
//! ```text
//!  frame ─> port filters ─> pool list: MAC, hash, promiscuous, VLAN, default, EtherType, source, mirror ─┬─> pool ─> queue
//!           (receive.rs)    (receive.rs, in the order of the datasheet)                                   └─> pool ─> queue
//!  pool ─> anti-spoof ─> VLAN insertion ─> network and pools (transmit.rs)                 queue in a pool: layout.rs
//! ```
//!
//! A *pool* is a set of receive queues that belongs to one virtual machine; with SR-IOV, virtual function N has pool N,
//! and the physical function has the first pool after them (ixgbe).
//!
//! Sources: Intel's X550 datasheet 333369-009, sections 7.1.2, 7.1.3.2 and 7.8.3, which was read; the sections 7.10.3 of the
//! 82599 datasheet 331520 describe the same switch. The registers of the 82599 have no bits for promiscuous unicast and
//! promiscuous VLANs, and ixgbe refuses both there (`ixgbe_update_vf_xcast_mode`); see [`Vmdq::new`].
//!
//! Invariants: a pool list has no pool that is not enabled; with replication off it has at most one pool. No allocation
//! per frame. Thread-safety: plain data; decisions take `&self`.

use flowyard_frame::FlowKey;

mod layout;
mod receive;
mod transmit;

pub use layout::Layout;
pub use receive::{Cause, Received, Refused, Step, Trace};
pub use transmit::{Spoof, Transmitted};

/// A set of pools: bit N is pool N.
pub type Pools = u64;

/// The pools of the 500 series.
pub const POOLS: u8 = 64;
/// MAC filters (RAL, RAH), each with a set of pools (MPSAR).
pub const MAC_FILTERS: usize = 128;
/// VLAN filters (PFVLVF), each with a set of pools (PFVLVFB).
pub const VLAN_FILTERS: usize = 64;
/// Mirroring rules (PFMRCTL).
pub const MIRRORS: usize = 4;
/// EtherType filters (ETQF).
pub const ETHER_TYPES: usize = 8;
/// Virtual functions that ixgbe creates at most (`IXGBE_MAX_VFS_DRV_LIMIT`): the physical function keeps a pool.
pub const VIRTUAL_FUNCTIONS: u8 = 63;

/// The header fields that the switch compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct L2 {
    /// Destination MAC address.
    pub dst: [u8; 6],
    /// Source MAC address.
    pub src: [u8; 6],
    /// The tag control information; `None` for untagged frames.
    pub tci: Option<u16>,
    /// The EtherType after the tags.
    pub eth_type: u16,
}

impl L2 {
    /// The fields of a key. A key does not distinguish a tag of zeros from no tag.
    #[must_use]
    pub fn of(key: &FlowKey) -> Self {
        let tci = (key.vlan_tci != 0).then_some(key.vlan_tci);
        Self { dst: key.eth_dst, src: key.eth_src, tci, eth_type: key.eth_type }
    }

    /// The kind of the destination address.
    #[must_use]
    pub fn cast(&self) -> Cast {
        match self.dst {
            [0xff, 0xff, 0xff, 0xff, 0xff, 0xff] => Cast::Broadcast,
            [first, ..] if first & 1 == 1 => Cast::Multicast,
            _ => Cast::Unicast,
        }
    }

    /// The VLAN ID of the tag.
    #[must_use]
    pub fn vlan(&self) -> Option<u16> {
        self.tci.map(|tci| tci & 0xfff)
    }
}

/// The kind of a destination address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cast {
    /// One station.
    Unicast,
    /// A group of stations.
    Multicast,
    /// All stations.
    Broadcast,
}

/// What a pool accepts (PFVML2FLT, in Linux VMOLR).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Accept {
    /// AUPE: untagged frames.
    pub untagged: bool,
    /// ROMPE: multicast frames whose address is in the multicast hash table (MTA).
    pub multicast_hash: bool,
    /// ROPE: unicast frames whose address is in the unicast hash table (PFUTA).
    pub unicast_hash: bool,
    /// BAM: broadcast frames.
    pub broadcast: bool,
    /// MPE: all multicast frames.
    pub all_multicast: bool,
    /// UPE: all unicast frames; not on the 82599.
    pub all_unicast: bool,
    /// VPE: frames of all VLANs; not on the 82599.
    pub all_vlans: bool,
}

/// A MAC filter: an address and its pools.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MacFilter {
    /// The address.
    pub mac: [u8; 6],
    /// Its pools (MPSAR).
    pub pools: Pools,
}

/// A VLAN filter: a VLAN and its pools.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VlanFilter {
    /// The VLAN ID.
    pub vid: u16,
    /// Its pools (PFVLVFB).
    pub pools: Pools,
}

/// An EtherType filter with a pool (ETQF, ETQS).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EtherTypeFilter {
    /// The EtherType.
    pub eth_type: u16,
    /// The pool that gets the frame in place of all others; `None` leaves the list as it is.
    pub pool: Option<u8>,
    /// The queue; `None` leaves it to the later stages.
    pub queue: Option<u16>,
}

/// A mirroring rule (PFMRCTL): which frames the pool `to` also gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mirror {
    /// The pool that gets the copies.
    pub to: u8,
    /// The frames that are copied.
    pub what: Mirrored,
}

/// The frames of a mirroring rule. A rule has one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mirrored {
    /// Frames that one of these pools gets (PFMRVM).
    Pools(Pools),
    /// Frames of the VLANs of these VLAN filters, by the filters' numbers (PFMRVLAN).
    Vlans(u64),
    /// Frames from the network that any pool gets.
    Uplink,
    /// Frames that are sent to the network.
    Downlink,
}

/// The VLAN tag that a pool's transmitted frames get (PFVMVIR).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Insert {
    /// The tag that software requests for the frame, if any.
    #[default]
    AsSent,
    /// Always this one (the port VLAN of `ip link set ... vf N vlan V qos Q`): its tag control information.
    Always(u16),
    /// Never a tag.
    Never,
}

/// A table of the adapter that is full, or a number that it does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// All MAC filters are in use.
    #[error("all 128 MAC filters of the adapter are in use; remove addresses")]
    MacsFull,
    /// All VLAN filters are in use.
    #[error("all 64 VLAN filters of the adapter are in use; remove VLANs")]
    VlansFull,
    /// All mirroring rules are in use.
    #[error("all 4 mirroring rules of the adapter are in use; remove one")]
    MirrorsFull,
    /// All EtherType filters are in use.
    #[error("all 8 EtherType filters of the adapter are in use; remove one")]
    EtherTypesFull,
    /// The layout of the queues has no such pool.
    #[error("there is no pool {0}: this layout has pools 0 to {last}", last = .1 - 1)]
    NoPool(u8, u8),
}

/// The switch of one port, as its registers describe it.
#[derive(Clone, Debug)]
pub struct Vmdq {
    /// How the 128 queues are divided.
    pub layout: Layout,
    /// What each pool accepts.
    pub accept: [Accept; POOLS as usize],
    /// Whether a frame can go to several pools (PFVTCTL.RPL_EN).
    pub replication: bool,
    /// The pool of frames that no filter matched; `None`: they are dropped (PFVTCTL.DIS_DEF_POOL).
    pub default_pool: Option<u8>,
    /// Whether VLANs are filtered (VLNCTRL.VFE).
    pub filter_vlans: bool,
    /// Pools that may receive (PFVFRE).
    pub may_receive: Pools,
    /// Pools that may transmit (PFVFTE).
    pub may_transmit: Pools,
    /// Whether the port accepts unicast frames to any address (FCTRL.UPE).
    pub port_unicast: bool,
    /// Whether the port accepts multicast frames to any address (FCTRL.MPE).
    pub port_multicast: bool,
    /// Whether frames between pools stay inside the adapter (PFDTXGSWC.LBE).
    pub loopback: bool,
    /// Pools that get frames which they sent to themselves (PFVMTXSW.LLE).
    pub own_loopback: Pools,
    /// Pools whose frames are dropped on reception if their source address is a filter of the same pool (PFFLP).
    pub prune_source: Pools,
    /// Pools whose source addresses are checked on transmission (PFVFSPOOF.MACAS).
    pub check_macs: Pools,
    /// Pools whose VLANs are checked on transmission (PFVFSPOOF.VLANAS).
    pub check_vlans: Pools,
    /// The tags that transmitted frames get.
    pub insert: [Insert; POOLS as usize],
    /// Whether pools can accept all unicast frames and all VLANs.
    has_promiscuous: bool,
    macs: Vec<MacFilter>,
    vlans: Vec<VlanFilter>,
    ether_types: Vec<EtherTypeFilter>,
    mirrors: Vec<Mirror>,
    unicast_hash: Box<[u64; 64]>,
    multicast_hash: Box<[u64; 64]>,
}

impl Vmdq {
    /// A switch with `layout` and no filters. Every pool is enabled, accepts broadcast and untagged frames, frames can go
    /// to several pools, and frames between pools stay inside. `has_promiscuous` is false for the 82599.
    #[must_use]
    pub fn new(layout: Layout, has_promiscuous: bool) -> Self {
        let accept = Accept { untagged: true, broadcast: true, ..Accept::default() };
        Self {
            layout,
            accept: [accept; POOLS as usize],
            replication: true,
            default_pool: Some(0),
            filter_vlans: false,
            may_receive: layout.all(),
            may_transmit: layout.all(),
            port_unicast: false,
            port_multicast: false,
            loopback: true,
            own_loopback: 0,
            prune_source: 0,
            check_macs: 0,
            check_vlans: 0,
            insert: [Insert::AsSent; POOLS as usize],
            has_promiscuous,
            macs: Vec::new(),
            vlans: Vec::new(),
            ether_types: Vec::new(),
            mirrors: Vec::new(),
            unicast_hash: Box::new([0; 64]),
            multicast_hash: Box::new([0; 64]),
        }
    }

    /// Whether pools can accept all unicast frames and all VLANs.
    #[must_use]
    pub const fn has_promiscuous(&self) -> bool {
        self.has_promiscuous
    }

    /// The MAC filters.
    #[must_use]
    pub fn macs(&self) -> &[MacFilter] {
        &self.macs
    }

    /// The VLAN filters.
    #[must_use]
    pub fn vlans(&self) -> &[VlanFilter] {
        &self.vlans
    }

    /// Adds `pool` to the filter of `mac`.
    ///
    /// # Errors
    /// If there is no such pool, or no free filter.
    pub fn add_mac(&mut self, mac: [u8; 6], pool: u8) -> Result<(), Error> {
        let bit = self.bit(pool)?;
        if let Some(filter) = self.macs.iter_mut().find(|filter| filter.mac == mac) {
            filter.pools |= bit;
            return Ok(());
        }
        if self.macs.len() == MAC_FILTERS {
            return Err(Error::MacsFull);
        }
        self.macs.push(MacFilter { mac, pools: bit });
        Ok(())
    }

    /// Removes `pool` from the filter of `mac`, and the filter with its last pool.
    pub fn remove_mac(&mut self, mac: [u8; 6], pool: u8) {
        let bit = self.bit(pool).unwrap_or(0);
        self.macs.iter_mut().filter(|filter| filter.mac == mac).for_each(|f| f.pools &= !bit);
        self.macs.retain(|filter| filter.pools != 0);
    }

    /// Adds `pool` to the filter of VLAN `vid`.
    ///
    /// # Errors
    /// If there is no such pool, or no free filter.
    pub fn add_vlan(&mut self, vid: u16, pool: u8) -> Result<(), Error> {
        let bit = self.bit(pool)?;
        if let Some(filter) = self.vlans.iter_mut().find(|filter| filter.vid == vid) {
            filter.pools |= bit;
            return Ok(());
        }
        if self.vlans.len() == VLAN_FILTERS {
            return Err(Error::VlansFull);
        }
        self.vlans.push(VlanFilter { vid, pools: bit });
        Ok(())
    }

    /// Removes `pool` from the filter of VLAN `vid`, and the filter with its last pool. Mirroring rules name VLAN filters
    /// by number, so they must be set again.
    pub fn remove_vlan(&mut self, vid: u16, pool: u8) {
        let bit = self.bit(pool).unwrap_or(0);
        self.vlans.iter_mut().filter(|filter| filter.vid == vid).for_each(|f| f.pools &= !bit);
        self.vlans.retain(|filter| filter.pools != 0);
    }

    /// Adds an EtherType filter.
    ///
    /// # Errors
    /// If its pool does not exist, or no filter is free.
    pub fn add_ether_type(&mut self, filter: EtherTypeFilter) -> Result<(), Error> {
        filter.pool.map_or(Ok(0), |pool| self.bit(pool))?;
        if self.ether_types.len() == ETHER_TYPES {
            return Err(Error::EtherTypesFull);
        }
        self.ether_types.push(filter);
        Ok(())
    }

    /// Adds a mirroring rule.
    ///
    /// # Errors
    /// If its pool does not exist, or no rule is free.
    pub fn add_mirror(&mut self, mirror: Mirror) -> Result<(), Error> {
        self.bit(mirror.to)?;
        if self.mirrors.len() == MIRRORS {
            return Err(Error::MirrorsFull);
        }
        self.mirrors.push(mirror);
        Ok(())
    }

    /// Adds `mac` to the hash table of its kind of address: 4,096 bits, of which the 12 high bits of the address choose one
    /// (MCSTCTRL.MO = 0). Other addresses with the same bits then match, too.
    pub fn add_hash(&mut self, mac: [u8; 6]) {
        let table = if mac[0] & 1 == 1 { &mut self.multicast_hash } else { &mut self.unicast_hash };
        let (word, bit) = hash_bit(mac);
        table[word] |= bit;
    }

    fn hashed(table: &[u64; 64], mac: [u8; 6]) -> bool {
        let (word, bit) = hash_bit(mac);
        table[word] & bit != 0
    }

    /// The number of the VLAN filter of the frame's VLAN.
    fn vlan_number(&self, frame: &L2) -> Option<usize> {
        let vid = frame.vlan()?;
        self.vlans.iter().position(|filter| filter.vid == vid)
    }

    /// The pools whose setting is on.
    fn where_set(&self, of: impl Fn(&Accept) -> bool) -> Pools {
        let set = |pool: usize| u64::from(of(&self.accept[pool])) << pool;
        (0..usize::from(self.layout.pools())).fold(0, |pools, pool| pools | set(pool))
    }

    fn bit(&self, pool: u8) -> Result<Pools, Error> {
        match pool < self.layout.pools() {
            true => Ok(1 << pool),
            false => Err(Error::NoPool(pool, self.layout.pools())),
        }
    }
}

/// The word and the bit of an address in a hash table: bits 47:36 of the address, the last byte first.
fn hash_bit(mac: [u8; 6]) -> (usize, u64) {
    let vector = usize::from(mac[4] >> 4) | usize::from(mac[5]) << 4;
    (vector >> 6, 1 << (vector & 63))
}

/// The pools of a list, lowest first.
pub fn each(pools: Pools) -> impl Iterator<Item = u8> {
    (0..POOLS).filter(move |pool| pools >> pool & 1 == 1)
}

#[cfg(test)]
mod decisions;
#[cfg(test)]
mod selftests;
#[cfg(test)]
mod slow_model;

//! What Flow Director looks at, and the one mask set of a port.
//!
//! ```text
//!   pool 1 | flow type 1 | VLAN 2 | dst 16 | src 16 | sport 2 | dport 2 | flex 2     42 bytes
//! ```
//!
//! All in network order; IPv4 in the first four bytes of an address. Flow type: bits 1:0 are 0
//! other, 1 UDP, 2 TCP, 3 SCTP; bit 2 is IPv6.
//!
//! Invariant: what the mask set hides is zero in an [`Input`]. Thread-safety: plain data.

use flowyard_frame::{FlowKey, Frag, proto};
use serde::Serialize;

use super::error::{Error, Unmatched};
use super::hash::Folded;

/// Which bits of the VLAN tag count. The CFI bit never does (FDIRM.VLANID, FDIRM.VLANP).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum VlanMask {
    /// None.
    None,
    /// The VLAN id: 0x0fff.
    Id,
    /// The priority: 0xe000.
    Priority,
    /// Both: 0xefff.
    Both,
}

impl VlanMask {
    /// The bits that count.
    #[must_use]
    pub const fn bits(self) -> u16 {
        match self {
            Self::None => 0,
            Self::Id => 0x0fff,
            Self::Priority => 0xe000,
            Self::Both => 0xefff,
        }
    }
}

/// The flexible two bytes: one even offset from the start of the frame for the whole port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Flex {
    /// They do not count.
    Masked,
    /// They count, taken at this offset in bytes, even, at most 62. At 12 they are the first
    /// EtherType, which the model knows from the key (0x8100 when tagged; 802.1ad and
    /// priority-tagged frames with TCI 0 it does not tell apart); elsewhere it takes
    /// [`FlowKey::flex`], which the parser must have filled from there.
    At(u8),
}

impl Flex {
    /// At the EtherType, both Linux drivers' default.
    pub const ETHERTYPE: Self = Self::At(12);
}

/// What counts of a frame: one set for the whole port. A one bit means compared; the hardware's
/// registers say it the other way round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MaskSet {
    /// Source IPv4 address, any bits.
    pub src_v4: u32,
    /// Destination IPv4 address, any bits.
    pub dst_v4: u32,
    /// Source IPv6 address: bit i for byte i in network order.
    pub src_v6: u16,
    /// Destination IPv6 address, as `src_v6`.
    pub dst_v6: u16,
    /// Source port, any bits; 0 unless `l4_type`.
    pub src_port: u16,
    /// Destination port, any bits; 0 unless `l4_type`.
    pub dst_port: u16,
    /// Whether TCP, UDP, SCTP and others are told apart.
    pub l4_type: bool,
    /// The VLAN tag.
    pub vlan: VlanMask,
    /// The pool (VMDq, SR-IOV).
    pub pool: bool,
    /// The flexible bytes.
    pub flex: Flex,
}

impl MaskSet {
    /// Everything but the pool: what ixgbe runs ATR with.
    pub const ATR: Self = Self {
        src_v4: u32::MAX,
        dst_v4: u32::MAX,
        src_v6: u16::MAX,
        dst_v6: u16::MAX,
        src_port: u16::MAX,
        dst_port: u16::MAX,
        l4_type: true,
        vlan: VlanMask::Both,
        pool: false,
        flex: Flex::ETHERTYPE,
    };

    /// The 5-tuple alone: what a first `ethtool -N ... flow-type tcp4` rule with all five fields
    /// fixes.
    pub const FIVE_TUPLE: Self = Self { vlan: VlanMask::None, flex: Flex::Masked, ..Self::ATR };

    /// Whether the hardware can hold this set.
    ///
    /// # Errors
    /// [`Error::PortsWithoutL4`], [`Error::FlexOffset`].
    pub const fn check(&self) -> Result<(), Error> {
        if !self.l4_type && (self.src_port != 0 || self.dst_port != 0) {
            return Err(Error::PortsWithoutL4);
        }
        match self.flex {
            Flex::At(offset) if offset % 2 != 0 || offset > 62 => Err(Error::FlexOffset(offset)),
            _ => Ok(()),
        }
    }
}

/// The masked key, field by field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[allow(missing_docs, reason = "the head says what stands where")]
pub struct Input {
    pub pool: u8,
    pub flow_type: u8,
    pub vlan: u16,
    pub dst: [u8; 16],
    pub src: [u8; 16],
    pub src_port: u16,
    pub dst_port: u16,
    pub flex: u16,
}

impl Input {
    /// What the adapter sees of `key` through `mask`, in pool 0.
    ///
    /// # Errors
    /// When it does not look at such frames.
    #[inline]
    pub fn from_key(key: &FlowKey, mask: &MaskSet) -> Result<Self, Unmatched> {
        if !key.is_ip() {
            return Err(Unmatched::NotIp);
        }
        if key.fragment() != Frag::No {
            return Err(Unmatched::Fragment);
        }
        let l4 = match key.proto {
            _ if !mask.l4_type => 0,
            proto::UDP => 1,
            proto::TCP => 2,
            proto::SCTP => 3,
            _ => 0,
        };
        let (src, dst, family) = if key.is_ipv4() {
            (mask_v4(&key.src, mask.src_v4), mask_v4(&key.dst, mask.dst_v4), 0)
        } else {
            (mask_v6(&key.src, mask.src_v6), mask_v6(&key.dst, mask.dst_v6), 4)
        };
        // The adapter reads ports only behind an L4 header that it knows.
        let ports = if l4 == 0 { 0 } else { u16::MAX };
        let flex = match mask.flex {
            Flex::Masked => 0,
            Flex::At(12) if key.vlan_tci != 0 => 0x8100,
            Flex::At(12) => key.eth_type,
            Flex::At(_) => key.flex,
        };
        Ok(Self {
            pool: 0,
            flow_type: family | l4,
            vlan: key.vlan_tci & mask.vlan.bits(),
            dst,
            src,
            src_port: key.sport & mask.src_port & ports,
            dst_port: key.dport & mask.dst_port & ports,
            flex,
        })
    }

    /// The same in another pool, if `mask` has the pool count.
    #[must_use]
    pub const fn in_pool(self, pool: u8, mask: &MaskSet) -> Self {
        Self { pool: if mask.pool { pool & 0x7f } else { 0 }, ..self }
    }

    /// Whether the key is IPv6.
    #[must_use]
    pub const fn is_ipv6(&self) -> bool {
        self.flow_type & 4 != 0
    }

    /// What the hashes see.
    #[must_use]
    #[inline]
    pub fn folded(&self) -> Folded {
        let words = u128::from_be_bytes(self.src) ^ u128::from_be_bytes(self.dst);
        let halves = (words >> 64) as u64 ^ words as u64;
        Folded {
            first: u32::from(self.pool) << 24
                | u32::from(self.flow_type) << 16
                | u32::from(self.vlan),
            rest: (halves >> 32) as u32
                ^ halves as u32
                ^ (u32::from(self.src_port) << 16 | u32::from(self.dst_port))
                ^ u32::from(self.flex) << 16,
        }
    }
}

#[inline]
fn mask_v4(address: &[u8; 16], mask: u32) -> [u8; 16] {
    let word = u32::from_be_bytes([address[0], address[1], address[2], address[3]]) & mask;
    let mut masked = [0; 16];
    masked[..4].copy_from_slice(&word.to_be_bytes());
    masked
}

#[inline]
fn mask_v6(address: &[u8; 16], mask: u16) -> [u8; 16] {
    if mask == u16::MAX {
        return *address;
    }
    std::array::from_fn(|i| if mask >> i & 1 == 1 { address[i] } else { 0 })
}

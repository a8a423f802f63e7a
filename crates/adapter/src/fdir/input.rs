//! The header fields that Flow Director matches, and the one mask set of a port.
//!
//! ```text
//!   pool 1 | flow type 1 | VLAN 2 | dst 16 | src 16 | sport 2 | dport 2 | flex 2     42 bytes
//! ```
//!
//! All fields are in network order; an IPv4 address is in the first four bytes of its field. Flow
//! type: bits 1:0 are 0 for other protocols, 1 UDP, 2 TCP, 3 SCTP; bit 2 is IPv6.
//!
//! Invariant: bits that the mask set excludes are zero in an [`Input`]. Thread-safety: plain data.

use flowyard_frame::{FlowKey, Frag, proto};
use serde::Serialize;

use super::error::{Error, Unmatched};
use super::hash::Folded;

/// The bits of the VLAN tag that are matched. The CFI bit never is (FDIRM.VLANID, FDIRM.VLANP).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum VlanMask {
    /// No bit.
    None,
    /// The VLAN id: 0x0fff.
    Id,
    /// The priority: 0xe000.
    Priority,
    /// Both: 0xefff.
    Both,
}

impl VlanMask {
    /// The mask: a one for each bit that is matched.
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

/// The two flexible bytes. The whole port has one offset for them, from the start of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Flex {
    /// They are not matched.
    Masked,
    /// They are matched at this offset in bytes, which is even and at most 62. At offset 12 they are
    /// the first EtherType, which the model derives from the key (0x8100 when tagged; it cannot
    /// recognise 802.1ad, nor priority-tagged frames with TCI 0). At other offsets the model uses
    /// [`FlowKey::flex`], which the parser must have filled from that offset.
    At(u8),
}

impl Flex {
    /// The offset of the EtherType, the default of both Linux drivers.
    pub const ETHERTYPE: Self = Self::At(12);
}

/// The fields that are matched, one set for the whole port. A one means that the bit is compared;
/// in the hardware's registers it is a zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MaskSet {
    /// Source IPv4 address; any bits may be set.
    pub src_v4: u32,
    /// Destination IPv4 address; any bits may be set.
    pub dst_v4: u32,
    /// Source IPv6 address: bit i stands for byte i in network order.
    pub src_v6: u16,
    /// Destination IPv6 address, in the form of `src_v6`.
    pub dst_v6: u16,
    /// Source port; any bits may be set, but none without `l4_type`.
    pub src_port: u16,
    /// Destination port; any bits may be set, but none without `l4_type`.
    pub dst_port: u16,
    /// Whether the L4 type is matched: TCP, UDP, SCTP or other.
    pub l4_type: bool,
    /// Bits of the VLAN tag.
    pub vlan: VlanMask,
    /// Whether the pool is matched (VMDq, SR-IOV).
    pub pool: bool,
    /// The flexible bytes.
    pub flex: Flex,
}

impl MaskSet {
    /// Every field except the pool; the mask set of ixgbe's ATR.
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

    /// Only the 5-tuple: the mask set after a first `ethtool -N ... flow-type tcp4` rule with all
    /// five fields.
    pub const FIVE_TUPLE: Self = Self { vlan: VlanMask::None, flex: Flex::Masked, ..Self::ATR };

    /// Checks that the hardware supports this set.
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

/// The masked key that filters are compared with, field by field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[allow(missing_docs, reason = "the head of the file describes the fields")]
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
    /// The fields of `key` that `mask` keeps, in pool 0.
    ///
    /// # Errors
    /// When Flow Director matches no such frames.
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
        // The adapter reads ports only in the L4 protocols that it recognises.
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

    /// A copy in another pool, if `mask` includes the pool.
    #[must_use]
    pub const fn in_pool(self, pool: u8, mask: &MaskSet) -> Self {
        Self { pool: if mask.pool { pool & 0x7f } else { 0 }, ..self }
    }

    /// Whether the frame is IPv6.
    #[must_use]
    pub const fn is_ipv6(&self) -> bool {
        self.flow_type & 4 != 0
    }

    /// The input of both hashes.
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

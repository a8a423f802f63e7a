//! The header fields that are hashed, for each frame (Microsoft, "RSS Hashing Types").

use flowyard_frame::{FlowKey, proto};

/// The hash input of one frame. Field order: source, destination, \[source port, destination port\].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[repr(u8)]
pub enum Fields {
    /// Nothing to hash: not IP. The hash is 0.
    #[default]
    None = 0,
    /// IPv4 addresses, 8 bytes.
    Ipv4 = 2,
    /// IPv4 addresses and ports, 12 bytes.
    Ipv4Ports = 3,
    /// IPv6 addresses, 32 bytes.
    Ipv6 = 4,
    /// IPv6 addresses and ports, 36 bytes.
    Ipv6Ports = 5,
}

impl Fields {
    /// By bits: 0 the ports, 1 IPv4, 2 IPv6.
    const BY_BITS: [Self; 8] = [
        Self::None,
        Self::None,
        Self::Ipv4,
        Self::Ipv4Ports,
        Self::Ipv6,
        Self::Ipv6Ports,
        Self::None,
        Self::None,
    ];

    /// The hash input of `key` in network order: the bytes, and the number of valid ones.
    #[must_use]
    pub fn input(self, key: &FlowKey) -> ([u8; 36], usize) {
        let mut bytes = [0; 36];
        let (address, ports) = match self {
            Self::None => return (bytes, 0),
            Self::Ipv4 => (4, false),
            Self::Ipv4Ports => (4, true),
            Self::Ipv6 => (16, false),
            Self::Ipv6Ports => (16, true),
        };
        bytes[..address].copy_from_slice(&key.src[..address]);
        bytes[address..2 * address].copy_from_slice(&key.dst[..address]);
        if !ports {
            return (bytes, 2 * address);
        }
        bytes[2 * address..][..2].copy_from_slice(&key.sport.to_be_bytes());
        bytes[2 * address + 2..][..2].copy_from_slice(&key.dport.to_be_bytes());
        (bytes, 2 * address + 4)
    }
}

/// The protocols whose ports are hashed, and whether both directions must have the same hash.
///
/// Only the addresses of fragments are hashed, also of the first one, so that all fragments of a
/// datagram have the same hash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HashTypes {
    /// By protocol number: 1 if the ports are hashed.
    ports: [u8; 256],
    symmetric_xor: bool,
}

impl Default for HashTypes {
    /// Ports of TCP, UDP and SCTP.
    fn default() -> Self {
        Self::with_ports(&[proto::TCP, proto::UDP, proto::SCTP])
    }
}

impl HashTypes {
    /// Hashes the ports of these protocols, and only the addresses of all others.
    #[must_use]
    pub const fn with_ports(protocols: &[u8]) -> Self {
        let mut ports = [0; 256];
        let mut i = 0;
        while i < protocols.len() {
            ports[protocols[i] as usize] = 1;
            i += 1;
        }
        Self { ports, symmetric_xor: false }
    }

    /// Switches ethtool's `hfunc symmetric-xor` on or off: see [`symmetric_xor`].
    #[must_use]
    pub const fn symmetric_xor(mut self, on: bool) -> Self {
        self.symmetric_xor = on;
        self
    }

    /// Whether [`symmetric_xor`] is applied.
    #[must_use]
    pub const fn is_symmetric_xor(&self) -> bool {
        self.symmetric_xor
    }

    /// The fields to hash of a frame with this key. Branch-free, because traffic is mixed.
    #[must_use]
    #[inline]
    pub fn fields(&self, key: &FlowKey) -> Fields {
        let ports = usize::from(self.ports[usize::from(key.proto)]) & usize::from(key.frag == 0);
        let ip = usize::from(key.is_ipv4()) << 1 | usize::from(key.is_ipv6()) << 2;
        Fields::BY_BITS[(ip | ports) & 7]
    }
}

/// The key as ethtool's `hfunc symmetric-xor` feeds it to the hash (kernel 6.8 and later): both
/// addresses become SRC ^ DST, both ports SP ^ DP. Both directions have the same hash, but entropy is
/// lost: flows with equal XORs have equal hashes.
#[must_use]
pub fn symmetric_xor(key: &FlowKey) -> FlowKey {
    let address = std::array::from_fn(|i| key.src[i] ^ key.dst[i]);
    let port = key.sport ^ key.dport;
    FlowKey { src: address, dst: address, sport: port, dport: port, ..*key }
}

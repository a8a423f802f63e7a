//! The header fields that each flow type hashes, as set by `ethtool -N DEV rx-flow-hash`, and the hash function.

use std::borrow::Cow;
use std::fmt;

use flowyard_frame::{FlowKey, Frag, proto};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};

/// The hash function (`ethtool -X DEV xfrm`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub enum Hfunc {
    /// Toeplitz over the fields.
    #[default]
    Toeplitz,
    /// Toeplitz over (src^dst, src^dst, sport^dport, sport^dport): both directions of a flow have
    /// the same hash. Linux's documentation warns of its "reduced input entropy".
    SymmetricXor,
    /// Toeplitz over (src|dst, src^dst, sport|dport, sport^dport): both directions of a flow have the
    /// same hash, and less entropy is lost. The default of mlx5.
    SymmetricOrXor,
}

/// A set of hash input fields. It is displayed in ethtool's letters: `s` source address, `d`
/// destination address, `f` source port, `n` destination port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Fields(u8);

impl Fields {
    /// No field: the type is not hashed and its frames go to the default queue.
    pub const NONE: Self = Self(0);
    /// Source address.
    pub const SRC_IP: Self = Self(1);
    /// Destination address.
    pub const DST_IP: Self = Self(2);
    /// Source port.
    pub const SRC_PORT: Self = Self(4);
    /// Destination port.
    pub const DST_PORT: Self = Self(8);
    /// The 2-tuple: both addresses.
    pub const TWO_TUPLE: Self = Self(3);
    /// The 4-tuple: both addresses and both ports.
    pub const FOUR_TUPLE: Self = Self(15);

    /// The fields of either set.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether every field of `other` is in this set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Whether no port is in the set.
    #[must_use]
    pub const fn is_portless(self) -> bool {
        self.0 & 12 == 0
    }

    /// Whether the set has both addresses or neither, and both ports or neither, which
    /// symmetric-XOR requires.
    #[must_use]
    pub const fn is_paired(self) -> bool {
        matches!(self.0, 0 | 3 | 12 | 15)
    }
}

impl fmt::Display for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return f.write_str("nothing");
        }
        for (field, letter) in
            [(Self::SRC_IP, "s"), (Self::DST_IP, "d"), (Self::SRC_PORT, "f"), (Self::DST_PORT, "n")]
        {
            if self.has(field) {
                f.write_str(letter)?;
            }
        }
        Ok(())
    }
}

impl JsonSchema for Fields {
    fn schema_name() -> Cow<'static, str> {
        "Fields".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }

    fn inline_schema() -> bool {
        true
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The class of a frame that decides which fields are hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are ethtool's flow types")]
pub enum FlowType {
    Ipv4,
    Tcp4,
    Udp4,
    Sctp4,
    Ipv6,
    Tcp6,
    Udp6,
    Sctp6,
}

impl FlowType {
    /// Every flow type, in the order of the enum.
    pub const ALL: [Self; 8] = [
        Self::Ipv4,
        Self::Tcp4,
        Self::Udp4,
        Self::Sctp4,
        Self::Ipv6,
        Self::Tcp6,
        Self::Udp6,
        Self::Sctp6,
    ];

    /// The flow type of a frame; `None` when it is not IP. Every fragment has the IP type, also the
    /// first one, which carries the ports: otherwise the first fragment could go to another queue
    /// than the rest of its datagram (Microsoft, "RSS Hashing Types").
    #[must_use]
    #[inline]
    pub fn of(key: &FlowKey) -> Option<Self> {
        if !key.is_ip() {
            return None;
        }
        let l4 = if key.fragment() == Frag::No { key.proto } else { 0 };
        Some(match (key.is_ipv4(), l4) {
            (true, proto::TCP) => Self::Tcp4,
            (true, proto::UDP) => Self::Udp4,
            (true, proto::SCTP) => Self::Sctp4,
            (true, _) => Self::Ipv4,
            (false, proto::TCP) => Self::Tcp6,
            (false, proto::UDP) => Self::Udp6,
            (false, proto::SCTP) => Self::Sctp6,
            (false, _) => Self::Ipv6,
        })
    }

    /// The IP type of the same address family, which has no ports.
    #[must_use]
    pub const fn bare(self) -> Self {
        match self {
            Self::Ipv4 | Self::Tcp4 | Self::Udp4 | Self::Sctp4 => Self::Ipv4,
            Self::Ipv6 | Self::Tcp6 | Self::Udp6 | Self::Sctp6 => Self::Ipv6,
        }
    }

    /// ethtool's name, such as `tcp4`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "ipv4",
            Self::Tcp4 => "tcp4",
            Self::Udp4 => "udp4",
            Self::Sctp4 => "sctp4",
            Self::Ipv6 => "ipv6",
            Self::Tcp6 => "tcp6",
            Self::Udp6 => "udp6",
            Self::Sctp6 => "sctp6",
        }
    }

    /// Microsoft's name of the hash type for these fields: `TCP_IPV4` with ports, `IPV4` without,
    /// `none` when no field is hashed.
    #[must_use]
    pub const fn hash_type(self, fields: Fields) -> &'static str {
        match (if fields.is_portless() { self.bare() } else { self }, fields.is_none()) {
            (_, true) => "none",
            (Self::Ipv4, _) => "IPV4",
            (Self::Tcp4, _) => "TCP_IPV4",
            (Self::Udp4, _) => "UDP_IPV4",
            (Self::Sctp4, _) => "SCTP_IPV4",
            (Self::Ipv6, _) => "IPV6",
            (Self::Tcp6, _) => "TCP_IPV6",
            (Self::Udp6, _) => "UDP_IPV6",
            (Self::Sctp6, _) => "SCTP_IPV6",
        }
    }
}

impl fmt::Display for FlowType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The hashed fields of each flow type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HashFields([Fields; 8]);

impl HashFields {
    /// Ports are hashed for TCP, UDP and SCTP: the default of the 700 and 800 series.
    pub const ALL_PORTS: Self = {
        let (two, four) = (Fields::TWO_TUPLE, Fields::FOUR_TUPLE);
        Self([two, four, four, four, two, four, four, four])
    };

    /// Ports are hashed for TCP and UDP: the default of virtio.
    pub const SCTP_AS_IP: Self = {
        let (two, four) = (Fields::TWO_TUPLE, Fields::FOUR_TUPLE);
        Self([two, four, four, two, two, four, four, two])
    };

    /// Ports are hashed for TCP only: the default of the 500 series.
    pub const UDP_AND_SCTP_AS_IP: Self = {
        let (two, four) = (Fields::TWO_TUPLE, Fields::FOUR_TUPLE);
        Self([two, four, two, two, two, four, two, two])
    };

    /// The hashed fields of a flow type.
    #[must_use]
    #[inline]
    pub const fn get(&self, flow: FlowType) -> Fields {
        self.0[flow as usize]
    }

    /// A copy with other fields for `flow`.
    #[must_use]
    pub const fn with(mut self, flow: FlowType, fields: Fields) -> Self {
        self.0[flow as usize] = fields;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_displayed_in_ethtools_letters() {
        assert_eq!(Fields::FOUR_TUPLE.to_string(), "sdfn");
        assert_eq!(Fields::SRC_IP.or(Fields::DST_PORT).to_string(), "sn");
        assert_eq!(Fields::NONE.to_string(), "nothing");
        assert!(!Fields::SRC_IP.is_paired());
    }

    #[test]
    fn flow_types_are_listed_in_index_order() {
        for (i, flow) in FlowType::ALL.into_iter().enumerate() {
            assert_eq!(flow as usize, i);
        }
    }
}

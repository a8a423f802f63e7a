//! One `ethtool -N` rule as data.

use flowyard_frame::FlowKey;

/// `flow-type` of ethtool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names are ethtool's own")]
pub enum FlowType {
    Ether,
    Ip4,
    Tcp4,
    Udp4,
    Sctp4,
    Ah4,
    Esp4,
    Ip6,
    Tcp6,
    Udp6,
    Sctp6,
    Ah6,
    Esp6,
}

impl FlowType {
    /// All of them, with ethtool's names.
    pub const ALL: [(&'static str, Self); 13] = [
        ("ether", Self::Ether),
        ("ip4", Self::Ip4),
        ("tcp4", Self::Tcp4),
        ("udp4", Self::Udp4),
        ("sctp4", Self::Sctp4),
        ("ah4", Self::Ah4),
        ("esp4", Self::Esp4),
        ("ip6", Self::Ip6),
        ("tcp6", Self::Tcp6),
        ("udp6", Self::Udp6),
        ("sctp6", Self::Sctp6),
        ("ah6", Self::Ah6),
        ("esp6", Self::Esp6),
    ];

    /// ethtool's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, flow_type)| *flow_type == self).map_or("ether", |(name, _)| name)
    }

    /// Whether packets of this type are IPv4.
    #[must_use]
    pub const fn is_ipv4(self) -> bool {
        matches!(self, Self::Ip4 | Self::Tcp4 | Self::Udp4 | Self::Sctp4 | Self::Ah4 | Self::Esp4)
    }

    /// Whether packets of this type are IPv6.
    #[must_use]
    pub const fn is_ipv6(self) -> bool {
        !self.is_ipv4() && !matches!(self, Self::Ether)
    }

    /// Whether packets of this type have ports.
    #[must_use]
    pub const fn has_ports(self) -> bool {
        matches!(
            self,
            Self::Tcp4 | Self::Udp4 | Self::Sctp4 | Self::Tcp6 | Self::Udp6 | Self::Sctp6
        )
    }
}

/// What a rule does with a packet (`action`, `queue`, `vf`, `context`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, serde::Serialize)]
pub enum RuleAction {
    /// `action -1`.
    Drop,
    /// `action -2`: wake the host up.
    Wake,
    /// `action N`, `queue N`.
    Queue(u32),
    /// `vf N [queue M]`.
    Vf {
        /// The virtual function.
        vf: u32,
        /// Its queue.
        queue: u32,
    },
    /// `context N [action M]`: spread over an RSS context; the queue is added to its answer.
    Context {
        /// The RSS context.
        context: u32,
        /// Added to the queue the context chooses.
        queue: u32,
    },
}

/// A word at an offset the rule chooses: `user-def`, offset above value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Flex {
    /// Offset in bytes; from where, the adapter decides.
    pub offset: u16,
    /// The two bytes, big-endian.
    pub value: u16,
}

/// A field's value and the bits of it that matter.
pub type Masked<T> = (T, T);

/// One rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The value of every field that matters; zero elsewhere. `flex` holds the word of `user-def`,
    /// or else of `vlan-etype`.
    pub key: FlowKey,
    /// Ones where a field matters.
    pub mask: FlowKey,
    /// ethtool's flow type.
    pub flow_type: FlowType,
    /// What to do.
    pub action: RuleAction,
    /// `loc`; `None` lets ethtool choose.
    pub loc: Option<u32>,
    /// `user-def`, as written.
    pub user_def: Option<Masked<u64>>,
    /// `vlan-etype`, as written.
    pub vlan_etype: Option<Masked<u16>>,
    /// `spi` of AH and ESP, for which a [`FlowKey`] has no place.
    pub spi: Option<Masked<u32>>,
    /// The line of the file, from 1.
    pub line: u32,
    /// The line as written, without its comment.
    pub text: String,
}

impl Rule {
    /// Whether the rule says that it applies to `key`. A rule with an SPI matches no key, for a key
    /// has none; a flex word is compared with the key's, which must be of the same offset.
    #[must_use]
    pub fn matches(&self, key: &FlowKey) -> bool {
        self.spi.is_none() && key.masked(&self.mask) == self.key
    }

    /// `user-def` as a flex word: offset in bits 16 to 31, value below.
    #[must_use]
    pub fn flex(&self) -> Option<Flex> {
        let (value, _) = self.user_def?;
        Some(Flex { offset: (value >> 16) as u16, value: value as u16 })
    }
}

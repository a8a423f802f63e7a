//! One `ethtool -N` rule as data.

use flowyard_frame::{FlowKey, proto};

use crate::fdir::Moderation;

/// The `flow-type` of ethtool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names are those of ethtool")]
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
    /// All flow types, with their names in ethtool.
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

    /// The name in ethtool.
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

/// The action of a rule on a packet (`action`, `queue`, `vf`, `context`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, serde::Serialize)]
pub enum RuleAction {
    /// `action -1`: drop the packet.
    Drop,
    /// `action -2`: wake up the host.
    Wake,
    /// `action N` or `queue N`: steer to a queue.
    Queue(u32),
    /// `vf N [queue M]`: steer to a virtual function.
    Vf {
        /// The virtual function.
        vf: u32,
        /// The queue of the virtual function.
        queue: u32,
    },
    /// `context N [action M]`: spread over the queues of an RSS context.
    Context {
        /// The RSS context.
        context: u32,
        /// A number that is added to the queue which the context selects.
        queue: u32,
    },
}

/// What a rule does besides steering, as the Flow Director paper lists it. ethtool has no words for it: these are read
/// from files for the models, and no driver is asked for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash, serde::Serialize)]
pub struct Extras {
    /// `count N`: the hardware counter that counts its packets.
    pub counter: Option<u16>,
    /// `moderation CLASS`: the interrupt class of its packets.
    pub moderation: Moderation,
    /// `value N`: the number that the receive descriptors of its packets have; 0 is none.
    pub value: u32,
}

impl Extras {
    /// Nothing besides steering.
    pub const NONE: Self = Self { counter: None, moderation: Moderation::Default, value: 0 };
}

/// A two-byte word at an offset that the rule selects by `user-def`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Flex {
    /// Offset in bytes. The adapter decides where it counts from.
    pub offset: u16,
    /// The value of the two bytes, big-endian.
    pub value: u16,
}

/// The value of a field, and its mask with a one for each bit to match.
pub type Masked<T> = (T, T);

/// One `ethtool -N` rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// The values of the matched bits; all other bits are zero. `flex` has the word of `user-def`, or
    /// without one that of `vlan-etype`.
    pub key: FlowKey,
    /// A one for each bit to match.
    pub mask: FlowKey,
    /// The values as written, also their bits that the mask ignores: ethtool passes them on to the driver.
    pub written: FlowKey,
    /// Whether `vlan`, `vlan-etype` or `user-def` was given, even with a mask that ignores all of it.
    pub ext: bool,
    /// Whether `dst-mac` was given.
    pub dst_mac: bool,
    /// The flow type, which decides the fields that the rule may have.
    pub flow_type: FlowType,
    /// The action on a packet that matches.
    pub action: RuleAction,
    /// What it does besides.
    pub extras: Extras,
    /// The location (`loc`); `None` lets ethtool choose.
    pub loc: Option<u32>,
    /// The value of `user-def`, as written.
    pub user_def: Option<Masked<u64>>,
    /// The value of `vlan-etype`, as written.
    pub vlan_etype: Option<Masked<u16>>,
    /// The `spi` of AH and ESP, for which a [`FlowKey`] has no field.
    pub spi: Option<Masked<u32>>,
    /// The line number in the file, from 1.
    pub line: u32,
    /// The line as written, without its comment.
    pub text: String,
}

impl Rule {
    /// The rule of `flow_type` without options, which every packet of the type matches. Its action is queue 0.
    #[must_use]
    pub fn every(flow_type: FlowType) -> Self {
        use FlowType as T;
        let eth_type = if flow_type.is_ipv4() { 0x0800 } else { 0x86dd };
        let protocol = match flow_type {
            T::Ether | T::Ip4 | T::Ip6 => None,
            T::Tcp4 | T::Tcp6 => Some(proto::TCP),
            T::Udp4 | T::Udp6 => Some(proto::UDP),
            T::Sctp4 | T::Sctp6 => Some(proto::SCTP),
            T::Ah4 | T::Ah6 => Some(proto::AH),
            T::Esp4 | T::Esp6 => Some(proto::ESP),
        };
        let (mut key, mut mask) = (FlowKey::ZERO, FlowKey::ZERO);
        if flow_type != T::Ether {
            (key.eth_type, mask.eth_type) = (eth_type, u16::MAX);
        }
        if let Some(protocol) = protocol {
            (key.proto, mask.proto) = (protocol, u8::MAX);
        }
        Self {
            key,
            mask,
            written: key,
            ext: false,
            dst_mac: false,
            flow_type,
            action: RuleAction::Queue(0),
            extras: Extras::NONE,
            loc: None,
            user_def: None,
            vlan_etype: None,
            spi: None,
            line: 0,
            text: String::new(),
        }
    }

    /// Completes a rule of which `written`, `mask`, `user_def` and `vlan_etype` are set: `key` and the
    /// flexible word follow from these.
    pub fn complete(&mut self) {
        if let Some((value, bits)) = self.user_def {
            (self.written.flex, self.mask.flex) = (value as u16, bits as u16);
        } else if let Some((value, bits)) = self.vlan_etype {
            (self.written.flex, self.mask.flex) = (value, bits);
        }
        self.key = self.written.masked(&self.mask);
    }

    /// Whether `key` matches the rule as written. A rule with an SPI matches no key, because a key has
    /// no SPI. The flexible word is compared with the one in the key, which must be taken from the
    /// same offset.
    #[must_use]
    pub fn matches(&self, key: &FlowKey) -> bool {
        self.spi.is_none() && key.masked(&self.mask) == self.key
    }

    /// `user-def` as a flexible word: the offset is in bits 16 to 31, the value in bits 0 to 15.
    #[must_use]
    pub fn flex(&self) -> Option<Flex> {
        let (value, _) = self.user_def?;
        Some(Flex { offset: (value >> 16) as u16, value: value as u16 })
    }
}

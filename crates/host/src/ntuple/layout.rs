//! A rule as the bytes of struct `ethtool_rxnfc` (linux/ethtool.h).
//!
//! ```text
//!    0 command, flow type, data            16 bytes
//!   16 flow type and flags                  4
//!   20 header values: by flow type         52
//!   72 extended values: MAC, VLAN, data    20
//!   92 header masks, ones are matched      52
//!  144 extended masks                      20, padding 4
//!  168 ring cookie: queue, vf, drop         8
//!  176 location                             4, padding 4
//!  184 RSS context, or number of rules      4, padding 4
//! ```
//!
//! Header fields are in network order, everything else is in the machine's. Addresses come first, then four bytes of
//! ports or SPI, type of service, for IPv4 the version, protocol; of type `ether` the Ethernet header.

use flowyard_adapter::rules::{FlowType, Rule, RuleAction};
use flowyard_frame::FlowKey;

/// Bytes of struct `ethtool_rxnfc`.
pub const SIZE: usize = 192;
const DATA: usize = 8;
const TYPE: usize = 16;
const VALUES: usize = 20;
const MASKS: usize = 92;
/// From header values to extended values, and from header masks to extended masks.
const EXT: usize = 52;
const COOKIE: usize = 168;
pub(super) const LOCATION: usize = 176;
pub(super) const COUNT: usize = 184;

/// `FLOW_EXT`: the VLAN tag and the user's data are valid.
const FLOW_EXT: u32 = 1 << 31;
/// `FLOW_MAC_EXT`: the MAC address beside the flow type's own fields is valid.
const FLOW_MAC_EXT: u32 = 1 << 30;
/// `FLOW_RSS`: the rule spreads over an RSS context.
const FLOW_RSS: u32 = 1 << 29;

/// `RX_CLS_FLOW_DISC` and `RX_CLS_FLOW_WAKE`.
const DROP: u64 = u64::MAX;
const WAKE: u64 = u64::MAX - 1;

/// `SRXCLSRLINS`, which `encode` writes, as ethtool does.
const INSERT: u32 = 0x32;

/// The version in the header values of an IPv4 rule (`ETH_RX_NFC_IP4`).
const VERSION_4: u8 = 1;

/// The numbers of the flow types.
const TYPES: [(FlowType, u32); 13] = [
    (FlowType::Tcp4, 0x01),
    (FlowType::Udp4, 0x02),
    (FlowType::Sctp4, 0x03),
    (FlowType::Tcp6, 0x05),
    (FlowType::Udp6, 0x06),
    (FlowType::Sctp6, 0x07),
    (FlowType::Ah4, 0x09),
    (FlowType::Esp4, 0x0a),
    (FlowType::Ah6, 0x0b),
    (FlowType::Esp6, 0x0c),
    (FlowType::Ip4, 0x0d),
    (FlowType::Ip6, 0x0e),
    (FlowType::Ether, 0x12),
];

/// The bytes of a struct `ethtool_rxnfc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request([u8; SIZE]);

/// Why a rule of a driver has no words in ethtool's syntax.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotARule {
    /// A flow type that `ethtool -N` does not have.
    #[error("flow type {0:#x} is none of ethtool -N")]
    FlowType(u32),
    /// A ring cookie with more than a queue and a virtual function.
    #[error("the action {0:#x} is neither a queue, nor a virtual function, nor a drop")]
    Action(u64),
}

impl Request {
    /// All bytes zero: no rule.
    pub const EMPTY: Self = Self([0; SIZE]);

    /// The request that installs `rule` at `loc`, which may be [`super::ANY_LOCATION`].
    #[must_use]
    pub fn encode(rule: &Rule, loc: u32) -> Self {
        let mut to = Self::EMPTY;
        let number = TYPES.iter().find(|(kind, _)| *kind == rule.flow_type);
        let mut kind = number.map_or(0, |(_, number)| *number);
        kind |= if rule.ext { FLOW_EXT } else { 0 };
        kind |= if rule.dst_mac { FLOW_MAC_EXT } else { 0 };
        let cookie = match rule.action {
            RuleAction::Drop => DROP,
            RuleAction::Wake => WAKE,
            RuleAction::Queue(queue) => queue.into(),
            RuleAction::Vf { vf, queue } => {
                u64::from(vf.saturating_add(1)) << 32 | u64::from(queue)
            }
            RuleAction::Context { context, queue } => {
                kind |= FLOW_RSS;
                to.put(COUNT, &context.to_ne_bytes());
                queue.into()
            }
        };
        to.put(0, &INSERT.to_ne_bytes());
        to.put(TYPE, &kind.to_ne_bytes());
        let first = |pair: Option<(u64, u64)>| pair.unwrap_or_default().0;
        let second = |pair: Option<(u64, u64)>| pair.unwrap_or_default().1;
        let wide = |pair: Option<(u32, u32)>| pair.map(|(a, b)| (u64::from(a), u64::from(b)));
        let spi = wide(rule.spi);
        let etype = wide(rule.vlan_etype.map(|(a, b)| (a.into(), b.into())));
        to.fields(VALUES, rule, &rule.written, first(spi), first(etype), first(rule.user_def));
        to.fields(MASKS, rule, &rule.mask, second(spi), second(etype), second(rule.user_def));
        if rule.flow_type == FlowType::Ip4 {
            to.0[VALUES + 13] = VERSION_4;
        }
        to.put(COOKIE, &cookie.to_ne_bytes());
        to.at(loc)
    }

    /// One of the two sets of fields: the values or the masks.
    fn fields(&mut self, at: usize, rule: &Rule, key: &FlowKey, spi: u64, etype: u64, user: u64) {
        let kind = rule.flow_type;
        if kind == FlowType::Ether {
            self.put(at, &key.eth_dst);
            self.put(at + 6, &key.eth_src);
            self.put(at + 12, &key.eth_type.to_be_bytes());
        } else {
            let width = if kind.is_ipv4() { 4 } else { 16 };
            self.put(at, &key.src[..width]);
            self.put(at + width, &key.dst[..width]);
            let rest = at + 2 * width;
            if rule.spi.is_some() {
                self.put(rest, &(spi as u32).to_be_bytes());
            } else {
                self.put(rest, &key.sport.to_be_bytes());
                self.put(rest + 2, &key.dport.to_be_bytes());
            }
            self.0[rest + 4] = key.tos;
            match kind {
                FlowType::Ip4 => self.0[rest + 6] = key.proto,
                FlowType::Ip6 => self.0[rest + 5] = key.proto,
                _ => {}
            }
        }
        let ext = at + EXT;
        if rule.dst_mac {
            self.put(ext + 2, &key.eth_dst);
        }
        self.put(ext + 8, &(etype as u16).to_be_bytes());
        self.put(ext + 10, &key.vlan_tci.to_be_bytes());
        self.put(ext + 12, &user.to_be_bytes());
    }

    /// The rule in these bytes. What the flags do not declare valid, and bytes without a meaning, are not looked at.
    ///
    /// # Errors
    /// When ethtool has no words for the flow type or the action.
    pub fn decode(&self) -> Result<Rule, NotARule> {
        let flags = self.word(TYPE);
        let number = flags & !(FLOW_EXT | FLOW_MAC_EXT | FLOW_RSS);
        let kind = TYPES.iter().find(|(_, known)| *known == number);
        let kind = kind.ok_or(NotARule::FlowType(number))?.0;
        let mut rule = Rule::every(kind);
        rule.loc = Some(self.word(LOCATION));
        rule.action = self.action(flags & FLOW_RSS != 0)?;
        rule.ext = flags & FLOW_EXT != 0;
        rule.dst_mac = flags & FLOW_MAC_EXT != 0 && kind != FlowType::Ether;
        let (value, bits) = (self.part(VALUES, &rule), self.part(MASKS, &rule));
        let there = |value: u64, bits: u64| value != 0 || bits != 0;
        if there(value.spi.into(), bits.spi.into()) {
            rule.spi = Some((value.spi, bits.spi));
        }
        if there(value.etype.into(), bits.etype.into()) {
            rule.vlan_etype = Some((value.etype, bits.etype));
        }
        if there(value.user, bits.user) {
            rule.user_def = Some((value.user, bits.user));
        }
        (rule.written, rule.mask) = (value.key, bits.key);
        rule.complete();
        Ok(rule)
    }

    fn action(&self, context: bool) -> Result<RuleAction, NotARule> {
        let cookie = u64::from_ne_bytes(self.array(COOKIE));
        let queue = cookie as u32;
        Ok(match (cookie, cookie >> 32) {
            (DROP, _) => RuleAction::Drop,
            (WAKE, _) => RuleAction::Wake,
            (_, 0) if context => RuleAction::Context { context: self.word(COUNT), queue },
            (_, 0) => RuleAction::Queue(queue),
            (_, vf @ 1..=0xff) if !context => RuleAction::Vf { vf: vf as u32 - 1, queue },
            _ => return Err(NotARule::Action(cookie)),
        })
    }

    /// The reverse of [`Self::fields`]. What the flow type implies is kept as in `rule`.
    fn part(&self, at: usize, rule: &Rule) -> Part {
        let kind = rule.flow_type;
        let mut part = Part { key: FlowKey::ZERO, spi: 0, etype: 0, user: 0 };
        let key = &mut part.key;
        let mask = at == MASKS;
        let base = if mask { &rule.mask } else { &rule.key };
        (key.eth_type, key.proto) = (base.eth_type, base.proto);
        if kind == FlowType::Ether {
            (key.eth_dst, key.eth_src) = (self.array(at), self.array(at + 6));
            key.eth_type = u16::from_be_bytes(self.array(at + 12));
        } else {
            let width = if kind.is_ipv4() { 4 } else { 16 };
            key.src[..width].copy_from_slice(&self.0[at..][..width]);
            key.dst[..width].copy_from_slice(&self.0[at + width..][..width]);
            let rest = at + 2 * width;
            if matches!(kind, FlowType::Ah4 | FlowType::Esp4 | FlowType::Ah6 | FlowType::Esp6) {
                part.spi = u32::from_be_bytes(self.array(rest));
            } else {
                key.sport = u16::from_be_bytes(self.array(rest));
                key.dport = u16::from_be_bytes(self.array(rest + 2));
            }
            key.tos = self.0[rest + 4];
            match kind {
                FlowType::Ip4 => key.proto = self.0[rest + 6],
                FlowType::Ip6 => key.proto = self.0[rest + 5],
                _ => {}
            }
        }
        let ext = at + EXT;
        if rule.dst_mac {
            key.eth_dst = self.array(ext + 2);
        }
        if rule.ext {
            part.etype = u16::from_be_bytes(self.array(ext + 8));
            key.vlan_tci = u16::from_be_bytes(self.array(ext + 10));
            part.user = u64::from_be_bytes(self.array(ext + 12));
        }
        part
    }

    /// The same request for another location.
    #[must_use]
    pub fn at(mut self, loc: u32) -> Self {
        self.put(LOCATION, &loc.to_ne_bytes());
        self
    }

    /// The bytes of the struct.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; SIZE] {
        &self.0
    }

    /// A request of these bytes, from a driver or a file.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; SIZE]) -> Self {
        Self(bytes)
    }

    /// The bytes that the kernel reads of a request to install a rule: the command, the rule, and the context if the
    /// rule has one. The others have no meaning, and ethtool leaves them as they happen to be.
    #[must_use]
    pub fn meant(&self) -> Self {
        let mut meant = *self;
        meant.0[4..TYPE].fill(0);
        meant.0[LOCATION + 4..COUNT].fill(0);
        let context = if self.word(TYPE) & FLOW_RSS == 0 { COUNT } else { COUNT + 4 };
        meant.0[context..].fill(0);
        meant
    }

    /// The flow type in front of the rule, of requests that are about a flow type and no rule.
    #[must_use]
    pub fn flow_type(&self) -> u32 {
        self.word(4)
    }

    /// The location in these bytes.
    #[must_use]
    pub fn location(&self) -> u32 {
        self.word(LOCATION)
    }

    pub(super) fn word(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.array(at))
    }

    pub(super) fn data(&self) -> u64 {
        u64::from_ne_bytes(self.array(DATA))
    }

    /// Offsets are constants of this module, below the size.
    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        std::array::from_fn(|i| self.0[at + i])
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..][..bytes.len()].copy_from_slice(bytes);
    }
}

/// The values or the masks of a rule.
struct Part {
    key: FlowKey,
    spi: u32,
    etype: u16,
    user: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowyard_adapter::rules::parse;
    use proptest::prelude::*;

    fn rule(text: &str) -> Rule {
        parse("f", text).unwrap().remove(0)
    }

    /// Offsets and values as ethtool 6.1 passed them.
    #[test]
    fn the_bytes_are_those_of_ethtool() {
        let request =
            Request::encode(&rule("flow-type tcp4 src-ip 10.0.0.1 dst-port 80 action 3"), 7);
        let mut want = [0; SIZE];
        want[..4].copy_from_slice(&0x32_u32.to_ne_bytes());
        want[16..20].copy_from_slice(&1_u32.to_ne_bytes());
        want[20..24].copy_from_slice(&[10, 0, 0, 1]);
        want[30..32].copy_from_slice(&[0, 80]);
        want[92..96].fill(0xff);
        want[102..104].fill(0xff);
        want[168..176].copy_from_slice(&3_u64.to_ne_bytes());
        want[176..180].copy_from_slice(&7_u32.to_ne_bytes());
        assert_eq!(request.as_bytes(), &want);
        let esp = "flow-type esp4 spi 77 dst-mac 02:00:00:00:00:09 vlan-etype 0x8100 vf 3 queue 2";
        let esp = Request::encode(&rule(esp), 1);
        assert_eq!(esp.word(TYPE), 0xc000_000a);
        assert_eq!(esp.0[28..32], [0, 0, 0, 77]);
        assert_eq!(esp.0[72..84], [0, 0, 2, 0, 0, 0, 0, 9, 0x81, 0, 0, 0]);
        assert_eq!(esp.array::<8>(COOKIE), (4_u64 << 32 | 2).to_ne_bytes());
    }

    #[test]
    fn what_ethtool_has_no_words_for_is_refused() {
        let mut bytes = *Request::encode(&rule("flow-type udp4 queue 1"), 1).as_bytes();
        bytes[COOKIE + 5] = 1;
        let cookie = u64::from_ne_bytes(Request::from_bytes(bytes).array(COOKIE));
        assert_eq!(Request::from_bytes(bytes).decode(), Err(NotARule::Action(cookie)));
        bytes[TYPE] = 0x10;
        assert_eq!(Request::from_bytes(bytes).decode(), Err(NotARule::FlowType(0x10)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_and_what_was_read_is_written_again(
            bytes in prop::collection::vec(any::<u8>(), SIZE),
            kind in 0_u32..0x14,
            flags in 0_u32..8,
            action: bool,
        ) {
            let mut bytes: [u8; SIZE] = bytes.try_into().unwrap();
            bytes[TYPE..][..4].copy_from_slice(&(kind | flags << 29).to_ne_bytes());
            if action {
                bytes[COOKIE + 4..][..4].fill(0);
            }
            let Ok(rule) = Request::from_bytes(bytes).decode() else { return Ok(()) };
            let request = Request::encode(&rule, rule.loc.unwrap());
            prop_assert_eq!(request.decode().unwrap(), rule.clone());
            // A context has no number in the words of `ethtool` beyond 32 bits less one, nor has a location.
            let written = rule.options();
            if let Ok(read) = parse("f", &written) {
                let read = Rule { line: 0, text: String::new(), ..read.into_iter().next().unwrap() };
                prop_assert_eq!(read, rule, "{}", written);
            }
        }
    }
}

//! Policies: which packets are protected, by which SA, and which pass as they are (RFC 4301 section 4.4.1).
//!
//! ```text
//!  Policy { selector, priority, protect | bypass | discard } ──> rules of a Wildcard table ──> number of the policy
//! ```
//!
//! As in `ip xfrm`, a smaller number is a more urgent priority, and of equal ones the earlier in the text answers.
//!
//! Thread-safety: plain data, not changed after it was made.

use std::net::IpAddr;

use flowyard_flow::table::{Rule, Wildcard};
use flowyard_frame::{Action, FlowKey, To};
use ipnet::IpNet;

use crate::sa::{Mode, SaConfig};

/// The most policies.
pub const POLICIES: usize = 1 << 15;

/// Which packets a policy is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Packets that come from the other end.
    In,
    /// Packets that come from the other end and are forwarded. The yard treats `in` and `fwd` alike.
    Forward,
    /// Packets to the other end.
    Out,
}

impl Direction {
    /// The name that `ip xfrm` uses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Forward => "fwd",
            Self::Out => "out",
        }
    }
}

/// The packets of a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Selector {
    /// Their sources.
    pub src: IpNet,
    /// Their destinations, of the same family.
    pub dst: IpNet,
    /// Their protocol.
    pub proto: Option<u8>,
    /// Their source port.
    pub sport: Option<u16>,
    /// Their destination port.
    pub dport: Option<u16>,
}

/// Which SAs may carry the packets of a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Template {
    /// The source of the SA; `None` for any.
    pub src: Option<IpAddr>,
    /// The destination of the SA; `None` for any.
    pub dst: Option<IpAddr>,
    /// The SPI; 0 is any.
    pub spi: u32,
    /// The reqid; 0 is any.
    pub reqid: u32,
    /// The mode.
    pub mode: Mode,
}

impl Template {
    /// Whether `sa` may carry packets of this template.
    #[must_use]
    pub fn fits(&self, sa: &SaConfig) -> bool {
        self.mode == sa.mode
            && (self.spi == 0 || self.spi == sa.spi)
            && (self.reqid == 0 || self.reqid == sa.reqid)
            && self.src.is_none_or(|src| src == sa.src)
            && self.dst.is_none_or(|dst| dst == sa.dst)
    }
}

/// What happens to the packets of a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// They are protected by an SA that fits the template.
    Protect(Template),
    /// They pass unprotected.
    Bypass,
    /// They are dropped.
    Discard,
}

/// A policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// Its direction.
    pub direction: Direction,
    /// Its packets.
    pub selector: Selector,
    /// The priority: a smaller number is asked first.
    pub priority: u32,
    /// What happens to the packets.
    pub verdict: Verdict,
    /// The line of the text that describes it, from 1.
    pub line: usize,
}

impl Policy {
    /// Whether packets of this policy may be carried by `sa`. In transport mode these are packets between the addresses of the SA,
    /// so a template without addresses fits only the SAs whose addresses are in the selector.
    #[must_use]
    pub fn fits(&self, sa: &SaConfig) -> bool {
        let Selector { src, dst, .. } = &self.selector;
        let is_between = || src.contains(&sa.src) && dst.contains(&sa.dst);
        match self.verdict {
            Verdict::Protect(template) => {
                template.fits(sa) && (sa.mode == Mode::Tunnel || is_between())
            }
            Verdict::Bypass | Verdict::Discard => false,
        }
    }
}

impl Selector {
    /// The key and the mask of a rule.
    fn rule(&self) -> (FlowKey, FlowKey) {
        let (mut key, mut mask) = (FlowKey::ZERO, FlowKey::ZERO);
        let put = |to: (&mut [u8; 16], &mut [u8; 16]), net: IpNet| {
            let (address, bits) = match (net.network(), net.netmask()) {
                (IpAddr::V4(address), IpAddr::V4(bits)) => {
                    (wide(address.octets()), wide(bits.octets()))
                }
                (IpAddr::V6(address), IpAddr::V6(bits)) => (address.octets(), bits.octets()),
                _ => ([0; 16], [0; 16]), // does not occur: a network has one family
            };
            (*to.0, *to.1) = (address, bits);
        };
        put((&mut key.src, &mut mask.src), self.src);
        put((&mut key.dst, &mut mask.dst), self.dst);
        (key.eth_type, mask.eth_type) =
            (if self.src.addr().is_ipv6() { 0x86dd } else { 0x0800 }, 0xffff);
        if let Some(proto) = self.proto {
            (key.proto, mask.proto) = (proto, 0xff);
        }
        if let Some(port) = self.sport {
            (key.sport, mask.sport) = (port, 0xffff);
        }
        if let Some(port) = self.dport {
            (key.dport, mask.dport) = (port, 0xffff);
        }
        (key, mask)
    }

    /// Whether it selects a packet with this key: the model of the table.
    #[must_use]
    pub fn selects(&self, key: &FlowKey) -> bool {
        let (Some(src), Some(dst)) = (key.src_ip(), key.dst_ip()) else { return false };
        self.src.contains(&src)
            && self.dst.contains(&dst)
            && self.proto.is_none_or(|proto| proto == key.proto)
            && self.sport.is_none_or(|port| port == key.sport)
            && self.dport.is_none_or(|port| port == key.dport)
    }
}

fn wide(four: [u8; 4]) -> [u8; 16] {
    let mut all = [0; 16];
    all[..4].copy_from_slice(&four);
    all
}

/// Policies of one direction, compiled to a table.
#[derive(Clone, Debug)]
pub struct Policies {
    table: Wildcard,
    all: Vec<Policy>,
}

impl Policies {
    /// Compiles policies, in the order of the text; those after the first [`POLICIES`] are left out. `seed` decides where
    /// the table places its keys.
    #[must_use]
    pub fn new(policies: impl IntoIterator<Item = Policy>, seed: u64) -> Self {
        let mut all: Vec<_> = policies.into_iter().take(POLICIES).collect();
        all.sort_by_key(|policy| policy.priority); // stable: equal ones stay in the order of the text
        let mut table = Wildcard::new(POLICIES, POLICIES, seed);
        for (number, policy) in all.iter().enumerate() {
            let (key, mask) = policy.selector.rule();
            let rank = (POLICIES - number) as u16;
            let action = Action { to: To::DROP, counter: 0, mark: number as u32 };
            // The table has space for all, and each has a rank of its own.
            let _never_full = table.put(&Rule { key, mask, priority: rank, action });
        }
        Self { table, all }
    }

    /// The policy for a packet with this key, and its number.
    #[inline]
    #[must_use]
    pub fn get(&self, key: &FlowKey) -> Option<(usize, &Policy)> {
        if self.all.is_empty() {
            return None;
        }
        let number = self.table.get(key)?.0.mark as usize;
        Some((number, self.all.get(number)?))
    }

    /// All policies, the most urgent first.
    #[must_use]
    pub fn all(&self) -> &[Policy] {
        &self.all
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn net() -> impl Strategy<Value = IpNet> {
        let v4 = (0..4_u32, 28..=32_u8).prop_map(|(low, len)| {
            IpNet::new(IpAddr::from((0x0a00_0000 | low).to_be_bytes()), len).unwrap().trunc()
        });
        let v6 = (0..4_u128, 124..=128_u8).prop_map(|(low, len)| {
            IpNet::new(IpAddr::from((0xfd << 120 | low).to_be_bytes()), len).unwrap().trunc()
        });
        prop_oneof![v4, v6]
    }

    fn policy() -> impl Strategy<Value = Policy> {
        let few = |n: u16| prop::option::of(0..n);
        let selector =
            (net(), net(), few(3), few(3), few(3)).prop_filter_map("families differ", |parts| {
                let (src, dst, proto, sport, dport) = parts;
                let same = src.addr().is_ipv4() == dst.addr().is_ipv4();
                same.then_some(Selector {
                    src,
                    dst,
                    proto: proto.map(|proto| proto as u8 + 6),
                    sport,
                    dport,
                })
            });
        (selector, 0..4_u32).prop_map(|(selector, priority)| Policy {
            direction: Direction::Out,
            selector,
            priority: priority * 100_000,
            verdict: Verdict::Bypass,
            line: 0,
        })
    }

    proptest! {
        #[test]
        fn the_table_equals_the_list(
            policies in prop::collection::vec(policy(), 0..30),
            packets in prop::collection::vec((net(), net(), 0..3_u8, 0..3_u16, 0..3_u16), 1..50),
        ) {
            let numbered = policies.into_iter().enumerate().map(|(line, policy)| Policy { line, ..policy });
            let policies: Vec<_> = numbered.collect();
            let table = Policies::new(policies.iter().copied(), 7);
            for (src, dst, proto, sport, dport) in packets {
                if src.addr().is_ipv4() != dst.addr().is_ipv4() {
                    continue;
                }
                let key = FlowKey::five_tuple(proto + 6, src.addr(), sport, dst.addr(), dport);
                let matching = policies.iter().filter(|policy| policy.selector.selects(&key));
                let wanted = matching.min_by_key(|policy| (policy.priority, policy.line));
                prop_assert_eq!(table.get(&key).map(|(_, policy)| policy.line), wanted.map(|policy| policy.line));
            }
        }
    }
}

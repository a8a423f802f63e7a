//! Rules in an adapter (rte_flow): which frames, and what the adapter does with them.
//!
//! ```text
//!  Rule ──validate──> Device: the adapter (PortRules), or a stand-in with limits (StandIn)
//!       ──create───>         ──query──> Hits    ──destroy──>
//!  Capabilities::learn: a table of what the device accepts, by trying
//! ```
//!
//! What an adapter refuses stays in software: a [`Refused`] says why.
//!
//! Thread-safety: a device is used by one thread at a time.

mod capabilities;
#[cfg(feature = "dpdk")]
mod port;
mod stand_in;

use std::net::IpAddr;

pub use capabilities::{Ask, Capabilities, Match, Verdict};
#[cfg(feature = "dpdk")]
pub use port::PortRules;
pub use stand_in::{Limits, Seen, SharedStandIn, StandIn};

#[cfg(feature = "dpdk")]
use crate::sys;

/// A prefix of addresses.
pub type Prefix = (IpAddr, u8);

/// The protocol above IP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// Which frames a rule is for, and what happens to them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rule {
    /// The VLAN.
    pub vlan: Option<u16>,
    /// The source address; the prefix may be 0 bits long, which matches all addresses of the family.
    pub from: Option<Prefix>,
    /// The destination address.
    pub to: Option<Prefix>,
    /// The protocol; requires `from` or `to`.
    pub protocol: Option<Protocol>,
    /// The source port; requires `protocol`.
    pub from_port: Option<u16>,
    /// The destination port; requires `protocol`.
    pub to_port: Option<u16>,
    /// Rules with a lower number are tried first.
    pub priority: u32,
    /// What the adapter does.
    pub offer: Offer,
}

/// What the adapter does with the frames of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Offer {
    /// It drops them, or passes them on: to a queue, or as it would without the rule.
    pub place: Place,
    /// It marks them with this number, which its driver hands on with the frame.
    pub mark: Option<u32>,
    /// It counts them.
    pub count: bool,
}

/// Where the frames of a rule go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Place {
    /// Where they would go without the rule.
    #[default]
    Usual,
    /// To this queue.
    Queue(u16),
    /// Out of the adapter, as if this port had transmitted them. The port is one of the same embedded switch.
    Port(SwitchPort),
    /// Nowhere.
    Drop,
}

/// A port of an adapter's embedded switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct SwitchPort {
    /// The switch: ports with the same number are in one switch.
    pub domain: u16,
    /// The port, as DPDK numbers ports.
    pub number: u16,
}

/// The number of a rule in its device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct RuleId(pub(crate) u32);

/// The counters of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hits {
    /// Frames, if the device counts them.
    pub frames: Option<u64>,
    /// Bytes, if the device counts them.
    pub bytes: Option<u64>,
}

/// Why a rule is not in the adapter.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// Something that takes rules.
pub trait Device {
    /// The device's port in the embedded switch of its adapter; `None` if there is no such switch, or the port is closed.
    fn switch_port(&self) -> Option<SwitchPort>;

    /// Whether the device would take `rule`; it changes nothing.
    ///
    /// # Errors
    /// Why it would not.
    fn validate(&mut self, rule: &Rule) -> Result<(), Refused>;

    /// Puts `rule` into the device.
    ///
    /// # Errors
    /// Why it is not there.
    fn create(&mut self, rule: &Rule) -> Result<RuleId, Refused>;

    /// Reads the counters of a rule that counts.
    ///
    /// # Errors
    /// When there is no such rule, or the device cannot say.
    fn query(&mut self, rule: RuleId) -> Result<Hits, Refused>;

    /// Removes a rule.
    ///
    /// # Errors
    /// When there is no such rule, or the device failed.
    fn destroy(&mut self, rule: RuleId) -> Result<(), Refused>;
}

impl Rule {
    /// Whether the rule has a meaning at all.
    ///
    /// # Errors
    /// What contradicts itself.
    pub fn check(&self) -> Result<(), Refused> {
        let wrong = |what: &str| Err(Refused(what.into()));
        let too_long = |prefix: &Option<Prefix>| {
            prefix.is_some_and(|(address, bits)| bits > if address.is_ipv4() { 32 } else { 128 })
        };
        if let (Some((from, _)), Some((to, _))) = (self.from, self.to)
            && from.is_ipv4() != to.is_ipv4()
        {
            return wrong("the source and the destination are of different families");
        }
        if too_long(&self.from) || too_long(&self.to) {
            return wrong("a prefix is longer than its address");
        }
        if self.protocol.is_some() && self.from.is_none() && self.to.is_none() {
            return wrong("a protocol requires an address, which says whether it is IPv4 or IPv6");
        }
        if self.protocol.is_none() && (self.from_port.is_some() || self.to_port.is_some()) {
            return wrong("a port requires the protocol");
        }
        if self.vlan.is_some_and(|vlan| vlan > 4095) {
            return wrong("a VLAN has a number up to 4095");
        }
        if matches!(self.offer.place, Place::Port(_)) && self.offer.mark.is_some() {
            return wrong("a frame that the adapter sends out by another port has no mark");
        }
        if self.offer == Offer::default() {
            return wrong("the rule does nothing");
        }
        Ok(())
    }

    /// The form of the C side.
    #[cfg(feature = "dpdk")]
    pub(crate) fn raw(&self) -> sys::Rule {
        let mut raw = sys::Rule { priority: self.priority, ..sys::Rule::default() };
        if let Some(vlan) = self.vlan {
            raw.matches |= sys::MATCH_VLAN;
            (raw.vlan, raw.vlan_mask) = (vlan, 0x0fff);
        }
        for (prefix, bytes, mask) in [
            (self.from, &mut raw.from, &mut raw.from_mask),
            (self.to, &mut raw.to, &mut raw.to_mask),
        ] {
            let Some((address, bits)) = prefix else { continue };
            match address {
                IpAddr::V4(address) => {
                    raw.matches |= sys::MATCH_IPV4;
                    bytes[..4].copy_from_slice(&address.octets());
                }
                IpAddr::V6(address) => {
                    raw.matches |= sys::MATCH_IPV6;
                    bytes.copy_from_slice(&address.octets());
                }
            }
            mask.copy_from_slice(&mask_of(bits));
            bytes.iter_mut().zip(*mask).for_each(|(byte, mask)| *byte &= mask);
        }
        raw.matches |= match self.protocol {
            Some(Protocol::Tcp) => sys::MATCH_TCP,
            Some(Protocol::Udp) => sys::MATCH_UDP,
            None => 0,
        };
        if let Some(port) = self.from_port {
            (raw.from_port, raw.from_port_mask) = (port, u16::MAX);
        }
        if let Some(port) = self.to_port {
            (raw.to_port, raw.to_port_mask) = (port, u16::MAX);
        }
        match self.offer.place {
            Place::Usual => {}
            Place::Queue(queue) => {
                raw.actions |= sys::DO_QUEUE;
                raw.queue = queue.into();
            }
            Place::Port(port) => {
                raw.actions |= sys::DO_PORT;
                raw.queue = port.number.into();
            }
            Place::Drop => raw.actions |= sys::DO_DROP,
        }
        if let Some(mark) = self.offer.mark {
            raw.actions |= sys::DO_MARK;
            raw.mark = mark;
        }
        raw.actions |= if self.offer.count { sys::DO_COUNT } else { 0 };
        raw
    }
}

/// The mask of a prefix.
#[cfg(feature = "dpdk")]
fn mask_of(bits: u8) -> [u8; 16] {
    let mask = u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0);
    mask.to_be_bytes()
}

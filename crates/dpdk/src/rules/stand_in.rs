//! A device in software that takes rules within limits, in place of adapters that this project does not have: it
//! refuses as they do, and counts the frames that it is shown.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Device, Hits, Place, Protocol, Refused, Rule, RuleId, SwitchPort};

/// What the stand-in takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The most rules.
    pub rules: usize,
    /// The number of queues.
    pub queues: u16,
    /// Whether it matches VLANs.
    pub vlans: bool,
    /// Whether it matches IPv6.
    pub ipv6: bool,
    /// Whether it matches prefixes that are not whole addresses.
    pub prefixes: bool,
    /// Whether it sets marks.
    pub marks: bool,
    /// Whether it counts.
    pub counts: bool,
    /// Its port in an embedded switch, to whose other ports it sends frames.
    pub switch: Option<SwitchPort>,
}

/// A frame, as far as rules see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The VLAN, if it is tagged.
    pub vlan: Option<u16>,
    /// The addresses.
    pub from: std::net::IpAddr,
    /// The destination.
    pub to: std::net::IpAddr,
    /// Protocol and ports.
    pub transport: Option<(Protocol, u16, u16)>,
    /// The length in bytes.
    pub bytes: u64,
}

/// The stand-in.
#[derive(Clone, Debug)]
pub struct StandIn {
    limits: Limits,
    rules: BTreeMap<u32, (Rule, Hits)>,
    next: u32,
}

impl StandIn {
    /// A stand-in without rules.
    #[must_use]
    pub const fn new(limits: Limits) -> Self {
        Self { limits, rules: BTreeMap::new(), next: 0 }
    }

    /// Applies the rules to a frame: the rule that matches and what it does. Among rules of equal priority the older one
    /// matches.
    pub fn receive(&mut self, frame: &Seen) -> Option<(RuleId, Rule)> {
        let matching = self.rules.iter_mut().filter(|(_, (rule, _))| matches(rule, frame));
        let (id, (rule, hits)) = matching.min_by_key(|(id, (rule, _))| (rule.priority, **id))?;
        if rule.offer.count {
            hits.frames = hits.frames.map(|frames| frames + 1);
            hits.bytes = hits.bytes.map(|bytes| bytes + frame.bytes);
        }
        Some((RuleId(*id), rule.clone()))
    }

    /// Takes the device out of its embedded switch, as if its port were closed.
    pub const fn leave_switch(&mut self) {
        self.limits.switch = None;
    }

    /// The number of rules.
    #[must_use]
    pub fn rules(&self) -> usize {
        self.rules.len()
    }

    fn fits(&self, rule: &Rule) -> Result<(), Refused> {
        rule.check()?;
        let Limits { queues, vlans, ipv6, prefixes, marks, counts, .. } = self.limits;
        let no = |what: &str| Err(Refused(format!("the stand-in has no {what}")));
        let addresses = || rule.from.iter().chain(&rule.to);
        if rule.vlan.is_some() && !vlans {
            return no("VLANs");
        }
        if addresses().any(|(address, _)| address.is_ipv6()) && !ipv6 {
            return no("IPv6");
        }
        let is_part =
            |(address, bits): &super::Prefix| *bits < if address.is_ipv4() { 32 } else { 128 };
        if addresses().any(is_part) && !prefixes {
            return no("prefixes");
        }
        if matches!(rule.offer.place, Place::Queue(queue) if queue >= queues) {
            return no("queue of that number");
        }
        if let Place::Port(to) = rule.offer.place
            && self.limits.switch.is_none_or(|own| own.domain != to.domain)
        {
            return no("such port in an embedded switch");
        }
        if rule.offer.mark.is_some() && !marks {
            return no("marks");
        }
        if rule.offer.count && !counts {
            return no("counters");
        }
        Ok(())
    }
}

fn matches(rule: &Rule, frame: &Seen) -> bool {
    let within = |prefix: &Option<super::Prefix>, address: std::net::IpAddr| {
        prefix.is_none_or(|(net, bits)| match (net, address) {
            (std::net::IpAddr::V4(net), std::net::IpAddr::V4(address)) => {
                let differ = u32::from(net) ^ u32::from(address);
                differ.checked_shr(32 - u32::from(bits)).unwrap_or(0) == 0
            }
            (std::net::IpAddr::V6(net), std::net::IpAddr::V6(address)) => {
                let differ = u128::from(net) ^ u128::from(address);
                differ.checked_shr(128 - u32::from(bits)).unwrap_or(0) == 0
            }
            _ => false,
        })
    };
    let transport = match (rule.protocol, frame.transport) {
        (None, _) => true,
        (Some(wanted), Some((protocol, from, to))) => {
            wanted == protocol
                && rule.from_port.is_none_or(|port| port == from)
                && rule.to_port.is_none_or(|port| port == to)
        }
        (Some(_), None) => false,
    };
    transport
        && rule.vlan.is_none_or(|vlan| frame.vlan == Some(vlan))
        && within(&rule.from, frame.from)
        && within(&rule.to, frame.to)
}

impl Device for StandIn {
    fn switch_port(&self) -> Option<SwitchPort> {
        self.limits.switch
    }

    fn validate(&mut self, rule: &Rule) -> Result<(), Refused> {
        self.fits(rule)
    }

    fn create(&mut self, rule: &Rule) -> Result<RuleId, Refused> {
        self.fits(rule)?;
        if self.rules.len() >= self.limits.rules {
            return Err(Refused(format!(
                "the stand-in is full: it has {} rules",
                self.limits.rules
            )));
        }
        let zero = rule.offer.count.then_some(0);
        let id = self.next;
        self.next += 1;
        self.rules.insert(id, (rule.clone(), Hits { frames: zero, bytes: zero }));
        Ok(RuleId(id))
    }

    fn query(&mut self, rule: RuleId) -> Result<Hits, Refused> {
        match self.rules.get(&rule.0) {
            None => Err(Refused(format!("there is no rule {}", rule.0))),
            Some((rule, _)) if !rule.offer.count => Err(Refused("the rule does not count".into())),
            Some((_, hits)) => Ok(*hits),
        }
    }

    fn destroy(&mut self, rule: RuleId) -> Result<(), Refused> {
        let removed = self.rules.remove(&rule.0);
        removed.map(drop).ok_or_else(|| Refused(format!("there is no rule {}", rule.0)))
    }
}

/// A stand-in that is the device of a yard and, at the same time, what a port applies to its frames.
#[derive(Clone, Debug)]
pub struct SharedStandIn(Arc<Mutex<StandIn>>);

impl SharedStandIn {
    /// Shares `device`.
    #[must_use]
    pub fn new(device: StandIn) -> Self {
        Self(Arc::new(Mutex::new(device)))
    }

    /// Does something with the stand-in.
    pub fn with<T>(&self, call: impl FnOnce(&mut StandIn) -> T) -> T {
        call(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Device for SharedStandIn {
    fn switch_port(&self) -> Option<SwitchPort> {
        self.with(|device| device.switch_port())
    }

    fn validate(&mut self, rule: &Rule) -> Result<(), Refused> {
        self.with(|device| device.validate(rule))
    }

    fn create(&mut self, rule: &Rule) -> Result<RuleId, Refused> {
        self.with(|device| device.create(rule))
    }

    fn query(&mut self, rule: RuleId) -> Result<Hits, Refused> {
        self.with(|device| device.query(rule))
    }

    fn destroy(&mut self, rule: RuleId) -> Result<(), Refused> {
        self.with(|device| device.destroy(rule))
    }
}

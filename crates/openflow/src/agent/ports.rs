//! The ports of the owner, as controllers read and configure them (1.3.5, section 7.2.1).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::peers::PORT_STATUS;
use super::{Agent, Ask, Out, Undo};
use crate::change::Change;
use crate::multipart::NOT_COUNTED;
use crate::port::{Port, PortMod, PortReason, PortStats, PortStatus, reserved};
use crate::problem::{self, Problem};
use crate::{Message, Version};

/// `OFPPC_*`.
pub mod config {
    #![allow(missing_docs, reason = "the names are the specification's own")]
    pub const PORT_DOWN: u32 = 1;
    pub const NO_RECV: u32 = 4;
    /// 1.0 only: the port is left out of a flood.
    pub const NO_FLOOD: u32 = 0x10;
    pub const NO_FWD: u32 = 0x20;
    pub const NO_PACKET_IN: u32 = 0x40;
}

/// The bits that a controller may set. 1.0 also has a bit for the spanning tree protocol, which the
/// switch does not run.
const SETTABLE: u32 = config::PORT_DOWN | config::NO_RECV | config::NO_FWD | config::NO_PACKET_IN;
const SETTABLE_V10: u32 = SETTABLE | config::NO_FLOOD | 2 | 8;

/// The ports, and the last counters that the owner reported.
#[derive(Debug, Default)]
pub(super) struct Ports {
    list: BTreeMap<u32, (Arc<Port>, u64)>,
    stats: BTreeMap<u32, PortStats>,
}

impl Ports {
    pub(super) fn has(&self, number: u32) -> bool {
        self.list.contains_key(&number)
    }

    /// The configuration of a port; 0 for an unknown port.
    pub(super) fn config(&self, number: u32) -> u32 {
        self.list.get(&number).map_or(0, |(port, _)| port.config)
    }

    /// All ports that the version can express, in its form.
    pub(super) fn list(&self, version: Version) -> Vec<Port> {
        let ports = self.list.values().map(|(port, _)| &**port);
        ports.filter(|port| sayable(port.number, version)).map(|port| said(port, version)).collect()
    }

    /// The counters of all ports, or of one.
    pub(super) fn stats(&self, number: Option<u32>, version: Version, now: u64) -> Vec<PortStats> {
        let ports = self.list.iter().filter(|(at, _)| number.is_none_or(|number| number == **at));
        let ports = ports.filter(|(at, _)| sayable(**at, version));
        ports
            .map(|(at, (_, since))| {
                let (duration_sec, duration_nsec) = super::flows::age(*since, now);
                let unknown = || PortStats { basic: [NOT_COUNTED; 8], ..PortStats::default() };
                let found = self.stats.get(at).cloned().unwrap_or_else(unknown);
                PortStats { number: *at, duration_sec, duration_nsec, ..found }
            })
            .collect()
    }

    pub(super) fn restore(&mut self, number: u32, old: Arc<Port>) {
        if let Some((port, _)) = self.list.get_mut(&number) {
            *port = old;
        }
    }
}

/// Whether the version can express the number: port numbers of 1.0 have 16 bits.
const fn sayable(number: u32, version: Version) -> bool {
    !matches!(version, Version::V10) || number < 0xff00 || number >= reserved::MAX
}

/// A port in the form of a version. 1.0 has only one bit of state, and no speed of 40 gigabits.
fn said(port: &Port, version: Version) -> Port {
    if version != Version::V10 {
        return port.clone();
    }
    let old = |bits: u32| bits & 0x7f | bits >> 4 & 0xf80;
    let ethernet = port.ethernet.map(|words| words.map(old));
    Port { state: port.state & 1, ethernet, properties: Vec::new(), ..port.clone() }
}

impl Agent {
    /// Adds a port. A port with the same number is replaced.
    pub fn port_add(&mut self, port: Port, now: u64, out: &mut Vec<Out>) {
        self.port_set(PortReason::Add, port, now, out);
    }

    /// Updates a port, for example after its link went down. The configuration of controllers is
    /// kept. An unknown port is added.
    pub fn port_change(&mut self, port: Port, now: u64, out: &mut Vec<Out>) {
        let there = self.ports.list.get(&port.number);
        let reason = if there.is_some() { PortReason::Modify } else { PortReason::Add };
        let config = there.map_or(port.config, |(old, _)| old.config);
        self.port_set(reason, Port { config, ..port }, now, out);
    }

    fn port_set(&mut self, reason: PortReason, port: Port, now: u64, out: &mut Vec<Out>) {
        let port = Arc::new(port);
        let since = self.ports.list.get(&port.number).map_or(now, |(_, since)| *since);
        self.ports.list.insert(port.number, (Arc::clone(&port), since));
        self.emit(Change::Port(Arc::clone(&port)));
        self.port_status(reason, &port, out);
    }

    /// Removes a port.
    pub fn port_remove(&mut self, number: u32, out: &mut Vec<Out>) {
        let Some((port, _)) = self.ports.list.remove(&number) else { return };
        self.ports.stats.remove(&number);
        self.emit(Change::PortGone(number));
        self.port_status(PortReason::Delete, &port, out);
    }

    /// Sets the counters of ports; those of other ports stay.
    pub fn port_stats(&mut self, stats: Vec<PortStats>) {
        let there = stats.into_iter().filter(|stats| self.ports.list.contains_key(&stats.number));
        let found: Vec<PortStats> = there.collect();
        self.ports.stats.extend(found.into_iter().map(|stats| (stats.number, stats)));
    }

    /// The ports.
    #[must_use]
    pub fn ports(&self) -> Vec<Arc<Port>> {
        self.ports.list.values().map(|(port, _)| Arc::clone(port)).collect()
    }

    fn port_status(&self, reason: PortReason, port: &Port, out: &mut Vec<Out>) {
        for (&to, peer) in &self.peers {
            if peer.wants(PORT_STATUS, reason as u32) && sayable(port.number, peer.version) {
                let port = said(port, peer.version);
                let message = Message::PortStatus(PortStatus { reason, port });
                out.push(Out { to, xid: 0, message, after: self.changes, counts: None });
            }
        }
    }

    /// Whether a port-mod can be carried out.
    pub(super) fn check_port_mod(&self, m: &PortMod, version: Version) -> Result<(), Problem> {
        let (port, _) = self.ports.list.get(&m.number).ok_or(problem::PORT_BAD_PORT)?;
        if port.hw != m.hw {
            return Err(problem::PORT_BAD_HW_ADDR);
        }
        let settable = if version == Version::V10 { SETTABLE_V10 } else { SETTABLE };
        if m.mask & !settable != 0 {
            return Err(problem::PORT_BAD_CONFIG);
        }
        let supported = port.ethernet.map_or(0, |words| words[2]);
        if m.advertise.is_some_and(|[bits]| bits & !supported != 0) {
            return Err(problem::PORT_BAD_ADVERTISE);
        }
        Ok(())
    }

    pub(super) fn port_mod(
        &mut self,
        ask: Ask,
        m: &PortMod,
        out: &mut Vec<Out>,
    ) -> Result<(), Problem> {
        self.check_port_mod(m, ask.version)?;
        let Some((port, since)) = self.ports.list.get(&m.number) else { return Ok(()) };
        let config = port.config & !m.mask | m.config & m.mask;
        if config == port.config {
            return Ok(());
        }
        let (old, since) = (Arc::clone(port), *since);
        let port = Arc::new(Port { config, ..(*old).clone() });
        self.ports.list.insert(m.number, (Arc::clone(&port), since));
        if let Some(undo) = &mut self.undo {
            undo.push(Undo::Port(m.number, old));
        }
        self.emit(Change::Port(Arc::clone(&port)));
        self.port_status(PortReason::Modify, &port, out);
        Ok(())
    }
}

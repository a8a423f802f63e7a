//! The OpenFlow agent of a switch: its connections to controllers, and the links of its ports.
//!
//! ```text
//!  controllers <──> Channel (agent) ──changes──> SwitchHub ──mail──> cores
//!                      ^    └─────<── punts, number of the last change in effect ──┘
//!                      └── link down, interface gone ── watch
//! ```
//!
//! This starts after privileges are dropped, so that certificates and keys are read by the final user.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::Receiver as Punts;
use flowyard_config::{Config, FailWord, SwitchConfig, VersionWord};
use flowyard_openflow::Version;
use flowyard_openflow::agent::Agent;
use flowyard_openflow::change::{Change, Punt};
use flowyard_openflow::port::{Port, PortStats, state};
use flowyard_operate::openflow::tls::Tls;
use flowyard_operate::openflow::{Channel, Config as Speaks, Fail, Plane, Prepared};
use flowyard_ports::live;
use flowyard_switch::SwitchHub;
use flowyard_yard::Clock;
use flowyard_yard::ControlPlane;

use crate::stop::{Stop, bad_input};

/// Interval between two checks of the links.
const LOOK: Duration = Duration::from_millis(50);

/// A switch whose agent is not started yet.
pub(super) struct Switch {
    agent: Agent,
    hub: Arc<SwitchHub>,
    speaks: Speaks,
    /// The interface of each port.
    interfaces: Vec<Option<Interface>>,
}

/// A switch with a running agent, which ends when this is dropped.
pub(super) struct Reachable {
    /// Declared, and so dropped, before the channel that it uses.
    _watch: Watch,
    channel: Arc<Channel>,
    /// How it spoke to controllers at the start.
    speaks: Speaks,
}

impl Switch {
    /// The switch of a configuration, if it has one.
    pub(super) fn plan(config: &Config) -> Result<Option<Self>, Stop> {
        let wanted = config.switch();
        let mut agent = config.switch_agent().map_err(bad_input)?;
        let Some(hub) = config.switch_hub(agent.lookups()) else { return Ok(None) };
        config.load_switch(&mut agent).map_err(bad_input)?;
        let speaks = speaks(&wanted, Speaks::default()).map_err(bad_input)?;
        let interface = |port: &flowyard_config::PortConfig| {
            let name = port.interface.as_ref()?.get_ref().clone();
            Some(Interface { name, has_configured_mac: port.mac.is_some() })
        };
        let interfaces = config.port.iter().map(|port| interface(port.get_ref())).collect();
        Ok(Some(Self { agent, hub, speaks, interfaces }))
    }

    /// The agent's connection to the cores, the states of its connections to controllers, and the messages
    /// that pass on them.
    pub(super) fn control(&self) -> [Arc<dyn ControlPlane>; 3] {
        let (connections, tap) = (self.speaks.connections.clone(), self.speaks.tap.clone());
        [Arc::<SwitchHub>::clone(&self.hub), Arc::new(connections), Arc::new(tap)]
    }

    /// Starts the agent and opens its connections.
    pub(super) fn open(self, clock: &Clock) -> Result<Reachable, Stop> {
        let Self { mut agent, hub, speaks, interfaces } = self;
        let mut ports = hub.ports();
        let mut out = Vec::new(); // no controller is connected yet
        for (port, interface) in ports.iter_mut().zip(&interfaces) {
            if let Some(interface) = interface {
                interface.describe(port);
                agent.port_change(port.clone(), clock(), &mut out);
            }
        }
        // In the cores' mailboxes before they start, so that the first frame finds the configured flows.
        hub.apply(&agent.drain());
        let plane = Box::new(Yard { hub, clock: Arc::clone(clock) });
        let channel = Channel::start(speaks.clone(), agent, plane);
        let channel = Arc::new(channel.map_err(|error| bad_input(format!("[switch]: {error}")))?);
        let watched: Vec<_> = ports
            .into_iter()
            .zip(interfaces)
            .map(|(port, interface)| (port, interface, Some(true)))
            .collect();
        for place in channel.listening() {
            tracing::info!("OpenFlow: listening at {place}");
        }
        let watch = Watch::start(watched, Arc::clone(&channel))?;
        Ok(Reachable { _watch: watch, channel, speaks })
    }
}

impl Drop for Reachable {
    fn drop(&mut self) {
        // Nothing waits for an agent that may be stuck, such as the watch of the links.
        self.channel.end();
    }
}

impl Reachable {
    /// Whether the agent runs; false only after a defect ended it.
    pub(super) fn is_running(&self) -> bool {
        self.channel.is_running()
    }

    /// What changes its connections to controllers.
    pub(super) fn connections(&self) -> Connections {
        Connections { channel: Arc::clone(&self.channel), speaks: self.speaks.clone() }
    }
}

/// The connections of a running switch to its controllers.
pub(super) struct Connections {
    channel: Arc<Channel>,
    speaks: Speaks,
}

impl Connections {
    /// Reads certificates and binds addresses of `new`. Nothing is changed yet.
    pub(super) fn prepare(&self, new: &Config) -> Result<Prepared, String> {
        let speaks = speaks(&new.switch(), self.speaks.clone())?;
        self.channel.prepare(speaks).map_err(|error| format!("[switch]: {error}"))
    }

    /// Uses what was prepared from `new`.
    pub(super) fn change(&self, prepared: Prepared, new: &Config) {
        if let Err(error) = self.channel.change(prepared) {
            tracing::error!(%error, "connections to controllers");
        }
        let memory = new.switch_memory();
        self.channel.with(move |agent, _, _| agent.limit_memory(memory));
        for place in self.channel.listening() {
            tracing::info!("OpenFlow: listening at {place}");
        }
    }
}

/// How a switch speaks to controllers; `else_as` has what is not configured.
fn speaks(wanted: &SwitchConfig, else_as: Speaks) -> Result<Speaks, String> {
    let mut endpoints = Vec::new();
    for text in wanted.controllers.iter().chain(&wanted.listen) {
        let endpoint = text.get_ref().parse();
        endpoints.push(endpoint.map_err(|error| format!("[switch]: {error}"))?);
    }
    let fail = match wanted.fail {
        FailWord::Secure => Fail::Secure,
        FailWord::Standalone => Fail::Standalone,
    };
    let version = |word: &VersionWord| match word {
        VersionWord::V10 => Version::V10,
        VersionWord::V13 => Version::V13,
        VersionWord::V14 => Version::V14,
    };
    let versions = wanted.versions.iter().map(version).collect();
    Ok(Speaks { endpoints, fail, tls: tls(wanted), versions, ..else_as })
}

/// The data plane, as the agent's [`Plane`].
struct Yard {
    hub: Arc<SwitchHub>,
    clock: Clock,
}

impl Plane for Yard {
    fn now(&self) -> u64 {
        (self.clock)()
    }

    fn apply(&mut self, changes: &[(u64, Change)]) {
        self.hub.apply(changes);
    }

    fn in_force(&self) -> u64 {
        self.hub.in_force()
    }

    fn punts(&self) -> Punts<Punt> {
        self.hub.punts()
    }

    fn port_stats(&mut self) -> Vec<PortStats> {
        self.hub.port_stats()
    }
}

/// The interface of a port.
struct Interface {
    name: String,
    /// Whether the configuration names a MAC address, which then counts.
    has_configured_mac: bool,
}

impl Interface {
    /// Gives a port the MAC address and the speed of its interface, as far as they are known.
    fn describe(&self, port: &mut Port) {
        if let Some(mac) = live::mac_address(&self.name).filter(|_| !self.has_configured_mac) {
            port.hw = mac;
        }
        port.ethernet = Some(live::speed(&self.name).map_or([0; 6], ethernet));
    }
}

/// The features of an Ethernet port with this speed in Mbit/s: current, advertised, supported, of the peer
/// (`OFPPF_*`), and the current and the highest speed in kbit/s.
fn ethernet(mbps: u32) -> [u32; 6] {
    // `OFPPF_OTHER`, or the full-duplex bit of a speed.
    let bit = match mbps {
        10 => 1,
        100 => 3,
        1000 => 5,
        10_000 => 6,
        40_000 => 7,
        100_000 => 8,
        1_000_000 => 9,
        _ => 10,
    };
    let kbps = mbps.saturating_mul(1000);
    [1 << bit, 0, 1 << bit, 0, kbps, kbps]
}

/// A thread that checks the links of the ports' interfaces and notifies the agent of changes.
struct Watch {
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A port, its interface, and the state of its link at the last check; `None` if the interface is gone.
type Watched = (Port, Option<Interface>, Option<bool>);

impl Watch {
    fn start(ports: Vec<Watched>, channel: Arc<Channel>) -> Result<Self, Stop> {
        let (stop, stopped) = sync_channel(0);
        let work = move || watch(ports, &channel, &stopped);
        let thread = std::thread::Builder::new().name("of-links".into()).spawn(work)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

fn watch(mut ports: Vec<Watched>, channel: &Channel, stopped: &Receiver<()>) {
    loop {
        for (port, interface, before) in &mut ports {
            let Some(interface) = interface else { continue };
            let link = live::has_link(&interface.name);
            if link == std::mem::replace(before, link) {
                continue;
            }
            let down = if link == Some(true) { 0 } else { state::LINK_DOWN };
            if link.is_some() {
                interface.describe(port);
            }
            let port = Port { state: down, ..port.clone() };
            channel.with(move |agent, now, out| match link {
                Some(_) => agent.port_change(port, now, out),
                None => agent.port_remove(port.number, out),
            });
        }
        if stopped.recv_timeout(LOOK) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// The TLS files, if all three are configured. If one is missing, opening a TLS connection fails with an error.
fn tls(wanted: &SwitchConfig) -> Option<Tls> {
    let certificate = wanted.certificate.clone()?;
    Some(Tls { certificate, key: wanted.key.clone()?, authority: wanted.authority.clone()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_becomes_features_and_kilobits() {
        assert_eq!(ethernet(1000), [1 << 5, 0, 1 << 5, 0, 1_000_000, 1_000_000]);
        assert_eq!(ethernet(25_000)[0], 1 << 10);
        assert_eq!(ethernet(u32::MAX)[4], u32::MAX);
    }

    #[test]
    fn an_unknown_interface_changes_nothing_but_the_speed() {
        let interface = Interface { name: "no-such-one".into(), has_configured_mac: false };
        let mut port = Port { hw: [2, 0, 0, 0, 0, 7], ..Port::default() };
        interface.describe(&mut port);
        assert_eq!((port.hw, port.ethernet), ([2, 0, 0, 0, 0, 7], Some([0; 6])));
    }
}

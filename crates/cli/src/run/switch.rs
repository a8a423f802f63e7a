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
use flowyard_operate::openflow::{Channel, Config as Speaks, Fail, Plane};
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
    interfaces: Vec<Option<String>>,
}

/// A switch with a running agent, which ends when this is dropped.
pub(super) struct Reachable {
    /// Declared, and so dropped, before the channel that it uses.
    _watch: Watch,
    channel: Arc<Channel>,
}

impl Switch {
    /// The switch of a configuration, if it has one.
    pub(super) fn plan(config: &Config) -> Result<Option<Self>, Stop> {
        let wanted = config.switch();
        let mut agent = config.switch_agent().map_err(bad_input)?;
        let Some(hub) = config.switch_hub(agent.lookups()) else { return Ok(None) };
        config.load_switch(&mut agent).map_err(bad_input)?;
        let mut endpoints = Vec::new();
        for text in wanted.controllers.iter().chain(&wanted.listen) {
            let endpoint = text.get_ref().parse();
            endpoints.push(endpoint.map_err(|error| bad_input(format!("[switch]: {error}")))?);
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
        let tls = tls(&wanted);
        let speaks = Speaks { endpoints, fail, tls, versions, ..Speaks::default() };
        let name = |port: &flowyard_config::PortConfig| {
            port.interface.as_ref().map(|name| name.get_ref().clone())
        };
        let interfaces = config.port.iter().map(|port| name(port.get_ref())).collect();
        Ok(Some(Self { agent, hub, speaks, interfaces }))
    }

    /// The agent's connection to the cores, and the states of its connections to controllers.
    pub(super) fn control(&self) -> [Arc<dyn ControlPlane>; 2] {
        [Arc::<SwitchHub>::clone(&self.hub), Arc::new(self.speaks.connections.clone())]
    }

    /// Starts the agent and opens its connections.
    pub(super) fn open(self, clock: &Clock) -> Result<Reachable, Stop> {
        let Self { mut agent, hub, speaks, interfaces } = self;
        let ports = hub.ports();
        // In the cores' mailboxes before they start, so that the first frame finds the configured flows.
        hub.apply(&agent.drain());
        let plane = Box::new(Yard { hub, clock: Arc::clone(clock) });
        let channel = Channel::start(speaks, agent, plane);
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
        Ok(Reachable { _watch: watch, channel })
    }
}

impl Reachable {
    /// Whether the agent runs; false only after a defect ended it.
    pub(super) fn is_running(&self) -> bool {
        self.channel.is_running()
    }
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

/// A thread that checks the links of the ports' interfaces and notifies the agent of changes.
struct Watch {
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A port, its interface, and the state of its link at the last check; `None` if the interface is gone.
type Watched = (Port, Option<String>, Option<bool>);

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
            let link = live::has_link(interface);
            if link == std::mem::replace(before, link) {
                continue;
            }
            let down = if link == Some(true) { 0 } else { state::LINK_DOWN };
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

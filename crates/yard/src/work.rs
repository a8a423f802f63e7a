//! Work: what the yard is for. It sees each frame once, on one core, and says where it goes.
//!
//! | kind | by what | where |
//! |---|---|---|
//! | [`Forward`] | the port it came in by | a fixed port |
//! | [`Bridge`] | destination MAC address | the port where that was last seen; unknown: all others |
//! | [`Router`] | destination IP address | port and next hop of the longest prefix |
//! | [`Switch`] | any header, by OpenFlow tables | ports, groups, a controller |
//! | [`Balance`] | the connection; of a new one, its service | a backend of the service |
//!
//! [`Burn`] does any of them, and takes its time. Others come by implementing [`Work`].
//!
//! Thread-safety: each core has a work of its own; what they share is theirs to arrange.

use std::sync::Arc;

use flowyard_frame::{Batch, Lanes, Nanos, To};
use flowyard_openflow::change::Lookups;
use flowyard_switch::Datapath;

use crate::Clock;
use crate::config::{Config, WorkKind};
use crate::mail::Changes;
use crate::pool::Pool;

mod balance;
mod bridge;
mod burn;
mod forward;
mod route;
mod switch;

pub use balance::{
    Balance, BalanceSettings, Because, Explained, Hub, Kept, Occupancy, Place, Report,
};
pub use bridge::Bridge;
pub use burn::Burn;
pub use forward::Forward;
pub use route::{Hop, Router};
pub use switch::{Switch, SwitchHub, SwitchSettings};

/// What is done with frames.
pub trait Work: Send {
    /// Does the work on every lane whose action is a queue (a port is a table's answer, which
    /// stands; see [`todo()`]): changes bytes as it likes, and sets each lane's action to a port, a
    /// list of ports that get a frame each ([`crate::Places::lists`]), or a drop (with a
    /// [`crate::DropReason`]'s code as counter). Returns the time from which on the batch is done:
    /// `now`, unless the clock is a virtual one and the work takes time under it.
    fn work(&mut self, batch: &mut Batch, pool: &Pool, now: Nanos) -> Nanos;

    /// Changes what it does, between two batches; frames that this makes leave by `send`, with the
    /// port's number. A switch does; others have nothing to change.
    fn change(&mut self, _changes: &Changes, _now: Nanos, _send: &mut dyn FnMut(u16, &[u8])) {}

    /// Answers frames before they enter a queue, as if it had worked on them: those of `lanes` that it knows get an
    /// action to a port, the others keep theirs. Lanes are of frames that one port received and that
    /// [`flowyard_flow::parse::fast`] took. Returns the lanes that it answered.
    fn front(&mut self, _batch: &mut Batch, _lanes: Lanes, _now: Nanos) -> Lanes {
        Lanes::NONE
    }

    /// The data plane, if the work is a switch: people ask it things.
    fn switch(&self) -> Option<&Datapath> {
        None
    }

    /// Sends what the work itself has to say, besides the frames that it is given: `send` takes a port and the
    /// bytes of a frame, and says whether it could leave. Called once a tick; returns how many left.
    fn speak(&mut self, _now: Nanos, _send: &mut dyn FnMut(u16, &[u8]) -> bool) -> u32 {
        0
    }
}

/// The lanes that want work: those whose action is a queue.
#[must_use]
#[inline]
pub fn todo(batch: &Batch) -> Lanes {
    let wants = |&lane: &usize| matches!(batch.actions[lane].to, To::Queue(_));
    Lanes(batch.lanes().filter(wants).fold(0, |bits, lane| bits | 1 << lane))
}

/// The work of every core, as the configuration says. Without a real clock, time that it takes is
/// charged to the virtual one.
pub(crate) fn of(
    config: &Config,
    clock: Option<&Clock>,
    hub: Option<&Arc<Hub>>,
    switch: Option<&Arc<SwitchHub>>,
) -> Vec<Box<dyn Work>> {
    let work = config.work.get_ref();
    let cores = *config.yard.cores.get_ref();
    let all: Vec<Box<dyn Work>> = match work.kind.get_ref() {
        WorkKind::Forward | WorkKind::Burn => {
            let forward = Forward::new(&config.port_map());
            (0..cores).map(|_| Box::new(forward.clone()) as _).collect()
        }
        WorkKind::Bridge => {
            let works = |core: u16| {
                let consumes = |core: u16| move |&consumer: &u16| consumer == core;
                config.queues().any(|q| {
                    q.consumers.get_ref().iter().map(toml::Spanned::get_ref).any(consumes(core))
                })
            };
            let working: Vec<bool> = (0..cores).map(works).collect();
            let ports = config.port.len() as u16;
            let all = Bridge::group(&working, ports, work.stations(), work.age(), config.yard.seed);
            all.into_iter().map(|bridge| Box::new(bridge) as _).collect()
        }
        WorkKind::Balance => {
            let (Some(hub), Ok(settings)) = (hub, config.balance_settings()) else {
                return Vec::new(); // checked before
            };
            let all = Balance::group(hub, cores.into(), &settings);
            all.into_iter().map(|balance| Box::new(balance) as _).collect()
        }
        WorkKind::Switch => {
            let Some(hub) = switch else { return Vec::new() };
            hub.group().into_iter().map(|switch| Box::new(switch) as _).collect()
        }
        WorkKind::Route => {
            let (macs, routes) =
                (config.port_macs().unwrap_or_default(), config.routes().unwrap_or_default());
            let mut router = Router::new(routes.len());
            for route in routes {
                let src = macs.get(usize::from(route.port)).copied().unwrap_or_default();
                // There is room for each, and no two are equal.
                let _room =
                    router.put(&route.prefix, Hop { port: route.port, src, dst: route.next_hop });
            }
            (0..cores).map(|_| Box::new(router.clone()) as _).collect()
        }
    };
    let burn = |then| match work.cost_ns() {
        0 => then,
        cost => Box::new(Burn::new(cost, clock.cloned(), then)) as _,
    };
    all.into_iter().map(burn).collect()
}

/// Where control of the services leaves its plans, if the work is to balance.
pub(crate) fn hub(config: &Config) -> Option<Arc<Hub>> {
    let balances = *config.work.get_ref().kind.get_ref() == WorkKind::Balance;
    let control = balances.then(|| config.control().ok()).flatten()?;
    Some(Arc::new(Hub::new(control)))
}

/// The lists of ports that the work sends to.
pub(crate) fn lists(config: &Config) -> Vec<Vec<u16>> {
    match config.work.get_ref().kind.get_ref() {
        WorkKind::Bridge => bridge::floods(config.port.len() as u16),
        WorkKind::Forward
        | WorkKind::Burn
        | WorkKind::Route
        | WorkKind::Balance
        | WorkKind::Switch => Vec::new(),
    }
}

/// Where an agent reaches the switch, if the work is to be one. `lookups` are the counters of its
/// tables, if there is an agent that has some.
#[must_use]
pub fn switch_hub(config: &Config, lookups: Vec<Lookups>) -> Option<Arc<SwitchHub>> {
    if *config.work.get_ref().kind.get_ref() != WorkKind::Switch {
        return None;
    }
    let macs = config.port_macs().unwrap_or_default(); // checked before
    let ports = config.switch_ports().into_iter().zip(macs).zip(config.ports());
    Some(Arc::new(SwitchHub::new(SwitchSettings {
        cores: (*config.yard.cores.get_ref()).into(),
        datapath: flowyard_switch::Settings { lookups, ..config.switch_settings() },
        ports: ports
            .map(|((number, mac), port)| (number, mac, port.name.get_ref().clone()))
            .collect(),
        punts: *config.switch().punts.get_ref(),
    })))
}

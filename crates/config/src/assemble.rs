//! Assembly: from a resolved configuration to an engine.
//!
//! ```text
//!  Setup ──┬─ ports: captures are opened, sockets on interfaces are opened on the pool
//!          ├─ work of each core, and its control plane
//!          └─ blueprint ──────────────────────────────────────> Yard::build
//! ```
//!
//! Parts that the caller passes in [`Parts`] replace those of the configuration.
//!
//! Thread-safety: runs on the calling thread, before any core runs.

use std::any::Any;
use std::sync::Arc;

use flowyard_flow::table::marked::Answers;
use flowyard_frame::{Batch, Nanos};
use flowyard_front::adapters::{EntryState, State, Users};
use flowyard_front::{Adapters, Kernel};
use flowyard_ipsec::{Ipsec, IpsecHub};
use flowyard_lb::{Balance, Control, Hub};
use flowyard_openflow::change::Lookups;
use flowyard_pool::Pool;
use flowyard_ports::live::{Carries, OpenError};
use flowyard_ports::mem::Frames;
use flowyard_ports::pcap::{self, Format};
use flowyard_ports::port::live::LivePort;
use flowyard_ports::port::{Behind, Coalesce, Finish, Log, PcapTx, Repeat, SourceRx, Verify};
use flowyard_ports::port::{dpdk, live, memif, vhost_user};
use flowyard_switch::{SwitchHub, SwitchSettings};
use flowyard_works::{Bridge, Forward, Hop, Router, Routes, burn};
use flowyard_yard::front::{Drains, Front};
use flowyard_yard::port::{Discard, Halves, Received};
use flowyard_yard::work::Work;
use flowyard_yard::{Blueprint, BlueprintError, Clock, ControlPlane, Parts, Rx, Tx, Yard};
use ipnet::IpNet;

use super::resolve::{CapturePort, PortBody, Setup, WorkPlan};
use super::{Config, ConfigError, QueueLimits, memory, offload};

/// The reason why an engine cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The configuration is wrong, or names a resource that cannot be opened.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The blueprint is wrong.
    #[error(transparent)]
    Blueprint(#[from] BlueprintError),
    /// A capture cannot be used.
    #[error("port {port}: {error}")]
    Capture {
        /// The port's number.
        port: u16,
        /// Whether it is the capture that the port writes.
        is_output: bool,
        /// The failure, and how to fix it.
        error: flowyard_ports::Error,
    },
    /// An interface cannot be opened.
    #[error("port {port}: {error}")]
    Interface {
        /// The port's number.
        port: u16,
        /// The failure, and how to fix it.
        error: OpenError,
    },
    /// Nothing can answer in front of the ports.
    #[error("[offload]: {0}")]
    Offload(#[from] flowyard_front::Error),
    /// The packet pool of the running process cannot be taken over.
    #[error(
        "the packet pool of the running process cannot be taken over: {0}; stop that process and start this configuration instead"
    )]
    Inherited(std::io::Error),
    /// There is not enough memory for the packet pool.
    #[error(
        "the memory for the packet pool, {mib} MiB, is not available; raise the limit of the process (ulimit -v) \
         or of its group, or reduce 'frames' or 'buffer_bytes' in [yard], or the windows of queues and ports"
    )]
    Memory {
        /// The size of the pool.
        mib: u64,
    },
    /// There is not enough memory for the tables whose size a key determines.
    #[error(transparent)]
    TableMemory(ConfigError),
}

impl Config {
    /// Builds the engine that the configuration describes. Opens captures to read and to write, and the
    /// sockets on interfaces; from then on, sockets receive frames. `log` is called with events of interfaces.
    ///
    /// # Errors
    /// When a capture or an interface cannot be opened, or a table does not accept its entries.
    pub fn build_logged(&self, mut parts: Parts, log: &Log) -> Result<Yard, BuildError> {
        super::send::receive(self, &mut parts.rx)?;
        if let Some(QueueLimits::Dlb2) = self.yard.queue_limits {
            parts.queues = Box::new(flowyard_queue::dlb::queue);
        }
        self.use_event_device(&mut parts);
        let setup = self.resolve()?;
        memory::check(self, &setup.blueprint).map_err(BuildError::TableMemory)?;
        setup.build(parts, log).map_err(|error| match error {
            BuildError::Blueprint(BlueprintError::Queues { what, fix }) => {
                let span = self.event_device().map_or(0..0, toml::Spanned::span);
                self.error(span, what, fix).into()
            }
            BuildError::Interface { port, error: OpenError { what, fix } } => {
                let named = self.ports().nth(usize::from(port));
                let named = named.and_then(|port| port.interface.as_ref().or(port.device.as_ref()));
                let span = named.map_or(0..0, toml::Spanned::span);
                self.error(span, what, fix).into()
            }
            BuildError::Capture { port, is_output, error } => {
                self.capture_error(port, is_output, &error).into()
            }
            other => other,
        })
    }

    /// As [`Config::build_logged`], without a log.
    ///
    /// # Errors
    /// As [`Config::build_logged`].
    pub fn build(&self, parts: Parts) -> Result<Yard, BuildError> {
        let log: Log = Arc::new(|_, _| {});
        self.build_logged(parts, &log)
    }

    /// The switch that the configuration describes; `None` if the work is not a switch. `lookups`
    /// are the counters of the agent's tables.
    #[must_use]
    pub fn switch_hub(&self, lookups: Vec<Lookups>) -> Option<Arc<SwitchHub>> {
        let settings = self.switch_plan().ok().filter(|_| self.is_switch())?;
        let datapath = flowyard_switch::Settings { lookups, ..settings.datapath };
        Some(Arc::new(SwitchHub::new(SwitchSettings { datapath, ..settings })))
    }
}

impl Setup {
    /// Builds the engine.
    ///
    /// # Errors
    /// As [`Config::build_logged`], but an error names the number of a port instead of a position
    /// in the text.
    pub fn build(&self, mut parts: Parts, log: &Log) -> Result<Yard, BuildError> {
        let pool = match (parts.pool.take(), parts.inherited_pool.take()) {
            (Some(pool), _) => pool,
            (None, Some(memory)) => {
                self.blueprint.adopt_pool(memory).map_err(BuildError::Inherited)?
            }
            (None, None) => self.blueprint.try_pool().ok_or_else(|| BuildError::Memory {
                mib: self.blueprint.pool_bytes().div_ceil(1 << 20),
            })?,
        };
        let front = self.offload.clone().map(Kernel::load).transpose()?;
        // The caller may have given adapters, as tests do.
        let adapters = self
            .adapter_flows
            .and_then(|flows| find_or(&mut parts.control, || Some(Adapters::new(flows))));
        for (number, body) in (0..).zip(&self.ports) {
            let both = parts.ports.keys().any(|(port, _)| *port == number);
            let has_rx = both || parts.rx.contains_key(&number);
            let has_tx = both || parts.tx.contains_key(&number);
            match body {
                PortBody::Capture(port) => captures(number, port, [has_rx, has_tx], &mut parts)?,
                PortBody::Live(_) | PortBody::Memif(_) | PortBody::Vhost(_) | PortBody::Dpdk(_)
                    if has_tx => {}
                PortBody::Dpdk(port) => {
                    let opened = dpdk::open(port, &pool, log)
                        .map_err(|error| BuildError::Interface { port: number, error })?;
                    let cores = &self.blueprint.ports[usize::from(number)].cores;
                    if let Some((adapters, rules)) = adapters.as_ref().zip(opened.rules) {
                        adapters.add(number, &port.name, rules, cores);
                    }
                    self.insert(&mut parts, number, opened.halves);
                }
                PortBody::Memif(port) => {
                    let halves = memif::open(port, log)
                        .map_err(|error| BuildError::Interface { port: number, error })?;
                    self.insert(&mut parts, number, halves);
                }
                PortBody::Vhost(port) => {
                    let halves = vhost_user::open(port, log)
                        .map_err(|error| BuildError::Interface { port: number, error })?;
                    self.insert(&mut parts, number, halves);
                }
                PortBody::Live(port) => {
                    let port = &offload::behind(port, front.as_ref());
                    let halves = self.open(port, &mut parts, &pool, log)?;
                    self.insert(&mut parts, number, halves);
                }
            }
        }
        let mut blueprint = self.blueprint.clone();
        if let Some(adapters) = &adapters {
            blueprint.steer.marks = Some(self.offer(adapters, &mut parts, &pool, log));
        }
        self.finish(&mut parts, &pool);
        parts.pool = Some(pool);
        let front = front.map(|front| front as Arc<dyn Front>);
        let marking = adapters.map(|adapters| adapters as Arc<dyn Front>);
        parts.marking.clone_from(&marking);
        let works = self.works_behind(
            parts.clock.as_ref(),
            &mut parts.control,
            front.as_ref(),
            marking.as_ref(),
        );
        parts.front = front.map(|front| (front, Arc::new(Drains::new(self.blueprint.cores))));
        for (core, work) in (0..).zip(works) {
            parts.work.entry(core).or_insert(work);
        }
        Ok(Yard::build(&blueprint, parts)?)
    }

    /// Opens a port on an interface, or goes on with the descriptors of a running process.
    fn open(
        &self,
        port: &LivePort,
        parts: &mut Parts,
        pool: &Pool,
        log: &Log,
    ) -> Result<Vec<Halves>, BuildError> {
        let number = port.number;
        let cores = &self.blueprint.ports[usize::from(number)].cores;
        let of_core = |core| parts.inherited.remove(&(number, core));
        let inherited: Vec<_> = cores.iter().copied().filter_map(of_core).collect();
        let opened = match inherited.is_empty() {
            true => live::open(port, pool, log),
            false => live::take_over(port, inherited, pool, log),
        };
        opened.map_err(|error| BuildError::Interface { port: number, error })
    }

    /// Gives each core of a port its halves.
    fn insert(&self, parts: &mut Parts, number: u16, halves: Vec<Halves>) {
        let cores = &self.blueprint.ports[usize::from(number)].cores;
        for (core, halves) in cores.iter().zip(halves) {
            parts.ports.insert((number, *core), halves);
        }
    }

    /// Offers the user's entries to the adapters; returns those that these may name by marks.
    fn offer(
        &self,
        adapters: &Adapters,
        parts: &mut Parts,
        pool: &Pool,
        log: &Log,
    ) -> Arc<Answers> {
        let steer = &self.blueprint.steer;
        let users = Users { exact: steer.exact.clone(), rules: steer.rules.clone() };
        for (port, drops_bad) in &self.verify {
            if *drops_bad {
                adapters.forbid_forwarding(*port);
            }
        }
        let prepared = adapters.prepare(&users, &|queue| offload::core_of(&self.blueprint, queue));
        if adapters.commit(&prepared, true) {
            let mut pool = pool.share();
            for ((number, _), (rx, _)) in &mut parts.ports {
                if let Some(PortBody::Dpdk(port)) = self.ports.get(usize::from(*number)) {
                    offload::discard(&mut **rx, &mut pool, 2 * usize::from(port.frames));
                }
            }
        }
        for state in adapters.states().ports {
            let took = state.entries.iter().filter(|one| !matches!(one.state, State::Software(_)));
            let (took, of) = (took.count(), state.entries.len());
            let mut text = format!("the adapter has rules for {took} of {of} entries of [steer]");
            if let Some(EntryState { what, state: State::Software(why), .. }) =
                state.entries.iter().find(|one| matches!(one.state, State::Software(_)))
            {
                text += &format!("; {what} is in software: {why}");
            }
            log(&state.port, &text);
        }
        prepared.marks()
    }

    /// Verifies checksums and coalesces frames behind the ports that are to do so. Finishes frames in front of ports that cannot pass on
    /// unfinished ones; ports on interfaces do that themselves.
    fn finish(&self, parts: &mut Parts, pool: &Pool) {
        let around = |tx: &mut Box<dyn Tx>| {
            let inner = std::mem::replace(tx, Box::new(Discard));
            *tx = Finish::around(inner, Carries::NONE, self.delivered, pool);
        };
        let is_live =
            |port: u16| matches!(self.ports.get(usize::from(port)), Some(PortBody::Live(_)));
        for (number, drops_bad) in &self.verify {
            behind(parts, *number, |rx| Box::new(Behind::new(rx, Verify::new(*drops_bad))));
        }
        for number in &self.coalesce {
            behind(parts, *number, |rx| {
                Box::new(Behind::new(rx, Coalesce::new(pool.longest_large())))
            });
        }
        parts.tx.values_mut().for_each(around);
        let others = parts.ports.iter_mut().filter(|((port, _), _)| !is_live(*port));
        others.for_each(|(_, (_, tx))| around(tx));
    }

    /// The work of every core. Without a real clock, the duration of the work is charged to the
    /// virtual clock. A control plane that the work needs and `control` lacks is added to
    /// `control`.
    pub fn works(
        &self,
        clock: Option<&Clock>,
        control: &mut Vec<Arc<dyn ControlPlane>>,
    ) -> Vec<Box<dyn Work>> {
        self.works_behind(clock, control, None, None)
    }

    fn works_behind(
        &self,
        clock: Option<&Clock>,
        control: &mut Vec<Arc<dyn ControlPlane>>,
        front: Option<&Arc<dyn Front>>,
        marking: Option<&Arc<dyn Front>>,
    ) -> Vec<Box<dyn Work>> {
        let Blueprint { cores, ref ports, ref queues, secret, .. } = self.blueprint;
        let all: Vec<Box<dyn Work>> = match &self.work {
            WorkPlan::Forward(map) => {
                let forward = Forward::new(map);
                (0..cores).map(|_| Box::new(forward.clone()) as _).collect()
            }
            WorkPlan::Bridge { stations, age } => {
                let works = |core: u16| queues.iter().any(|queue| queue.consumers.contains(&core));
                let working: Vec<bool> = (0..cores).map(works).collect();
                let key = secret.key("stations");
                let all = Bridge::group(&working, ports.len() as u16, *stations, *age, key);
                all.into_iter().map(|bridge| Box::new(bridge) as _).collect()
            }
            WorkPlan::Route(all) => {
                let router = Router::new(routes(all));
                (0..cores).map(|_| Box::new(router.clone()) as _).collect()
            }
            WorkPlan::Balance { services, entries, seed, settings } => {
                let Some(hub) = find_or(control, || {
                    let control = Control::new(services.clone(), *entries, *seed);
                    control.ok().map(Hub::new) // checked when the configuration was read
                }) else {
                    return Vec::new();
                };
                let front = front.or(marking);
                let all = Balance::group_behind(&hub, cores.into(), settings, front);
                all.into_iter().map(|balance| Box::new(balance) as _).collect()
            }
            WorkPlan::Switch(settings) => {
                let Some(hub) = find_or(control, || Some(SwitchHub::new(settings.clone()))) else {
                    return Vec::new();
                };
                let front = front.or(marking);
                hub.group().into_iter().map(|switch| Box::new(switch.behind(front)) as _).collect()
            }
            WorkPlan::Ipsec { settings, routes: all } => {
                // The keys were tried when the configuration was resolved.
                let Some(hub) = find_or(control, || IpsecHub::new(settings).ok()) else {
                    return Vec::new();
                };
                let router = Router::new(routes(all));
                let work = |_| Box::new(Ipsec::new(Arc::clone(&hub), router.clone())) as _;
                (0..cores).map(work).collect()
            }
        };
        let busy = |work| match self.cost_ns {
            0 => work,
            cost => burn(cost, clock.cloned(), work),
        };
        all.into_iter().map(busy).collect()
    }
}

/// Puts what `around` makes behind the receiving halves of port `number`.
fn behind(parts: &mut Parts, number: u16, around: impl Fn(Box<dyn Rx>) -> Box<dyn Rx>) {
    let wrap = |rx: &mut Box<dyn Rx>| {
        let inner = std::mem::replace(rx, Box::new(Nothing));
        *rx = around(inner);
    };
    parts.rx.get_mut(&number).map(wrap);
    let all = parts.ports.iter_mut().filter(|((port, _), _)| *port == number);
    all.for_each(|(_, (rx, _))| wrap(rx));
}

/// A port that receives nothing, for the moment in which another one is wrapped.
struct Nothing;

impl Rx for Nothing {
    fn rx(&mut self, _into: &mut Batch, _pool: &mut Pool, _now: Nanos) -> Received {
        Received::default()
    }
}

/// The control plane of type `T` in `all`; if there is none, a new one is added.
fn find_or<T: ControlPlane>(
    all: &mut Vec<Arc<dyn ControlPlane>>,
    new: impl FnOnce() -> Option<T>,
) -> Option<Arc<T>> {
    let any = |control: &Arc<dyn ControlPlane>| -> Arc<dyn Any + Send + Sync> {
        Arc::<dyn ControlPlane>::clone(control)
    };
    if let Some(found) = all.iter().find_map(|control| any(control).downcast().ok()) {
        return Some(found);
    }
    let new = Arc::new(new()?);
    all.push(Arc::<T>::clone(&new));
    Some(new)
}

/// The table of these routes.
pub(crate) fn routes(routes: &[(IpNet, Hop)]) -> Routes {
    let mut table = Routes::new(routes.len());
    for (prefix, hop) in routes {
        // The table has space for all entries, and no two are equal.
        let _room = table.put(prefix, *hop);
    }
    table
}

/// Opens the captures of a port. The caller may have given one half, or both, as tests do.
fn captures(
    number: u16,
    port: &CapturePort,
    [has_rx, has_tx]: [bool; 2],
    parts: &mut Parts,
) -> Result<(), BuildError> {
    let failed = |is_output| move |error| BuildError::Capture { port: number, is_output, error };
    if let Some(rx) = (!has_rx).then(|| rx(number, port)).flatten() {
        parts.rx.insert(number, rx.map_err(failed(false))?);
    }
    if let (false, Some(path)) = (has_tx, &port.output) {
        let tx = PcapTx::open(path, Format::PcapNanos).map_err(failed(true))?;
        parts.tx.insert(number, Box::new(tx));
    }
    Ok(())
}

fn rx(number: u16, port: &CapturePort) -> Option<Result<Box<dyn Rx>, flowyard_ports::Error>> {
    let path = port.input.as_ref()?;
    let opened = match &port.ender {
        Some(ender) => pcap::open_until(path, ender),
        None => pcap::open(path),
    };
    Some(opened.and_then(|mut reader| {
        Ok(Box::new(match port.repeat {
            Some(times) => {
                let frames = Frames::read_all(&mut reader)?;
                SourceRx::new(number, Box::new(Repeat::new(frames, times)), port.pace)
            }
            None => SourceRx::new(number, Box::new(reader), port.pace),
        }) as Box<dyn Rx>)
    }))
}

//! `flowyard run`: runs the data plane that a configuration describes, on real threads, and prints its
//! counters at the end.
//!
//! SIGINT and SIGTERM drain: ports stop receiving, and all frames inside are processed and transmitted. A
//! second signal ends the process at once, and so does the first one while it starts. SIGHUP reads the
//! configuration again and applies it without stopping, or names what needs a new process.
//!
//! Order of the start: open ports, control socket and metrics; start the process that runs the commands of health
//! checks; create the interface of routes to VIPs; drop privileges; start threads. Nothing after that needs a privilege
//! that was dropped.

use std::io::{Write, stderr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use self::open::Open;
use self::reload::{Cause, Reload, With};
use self::settings::Settings;
use self::signals::Signals;
use self::user::Becomes;
use flowyard_config::{BuildError, Config};
use flowyard_flow::Secret;
use flowyard_operate::announce::kernel::Routes;
use flowyard_operate::announce::{Announcements, Announcer};
use flowyard_operate::cluster::Cluster;
use flowyard_operate::control::check_group;
use flowyard_operate::doctor::Wanted;
use flowyard_operate::handover::Leaving;
use flowyard_operate::health::Checker;
use flowyard_operate::metrics::Metrics;
use flowyard_operate::reload::Current;
use flowyard_operate::service::Service;
use flowyard_operate::sync::Synchronization;
use flowyard_ports::port::Log;
use flowyard_yard::run::{Outcome, Running};
use flowyard_yard::{ControlPlane, Handle, Parts};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::logs::{self, LogArgs};
use crate::output::{self, Progress, style};
use crate::stop::{Stop, bad_input, failed};

mod capacity;
mod check;
mod cluster;
mod counters;
mod open;
mod reload;
mod settings;
mod signals;
mod simulate;
mod successor;
mod switch;
mod sync;
mod take_over;
mod user;

pub(crate) use check::Check;
pub(crate) use counters::Report;
pub(crate) use simulate::Simulated;

/// Name and version of the JSON document; see docs/schema.
pub(crate) const SCHEMA: &str = "flowyard.run/2";
/// Name and version of the JSON document of `--check`.
pub(crate) const CHECK: &str = "flowyard.run.check/1";
/// Name and version of the JSON document of `--simulate`.
pub(crate) const SIMULATE: &str = "flowyard.run.simulate/1";

const NO_SECRET: &str = "the system has no random bytes for the secret of the tables; write 'seed = N' in [yard] with a secret number N";
const NO_AGENT: &str = "the OpenFlow agent ended unexpectedly: this is a defect of flowyard; please report it with the log";
const DRAWN: &str = "the seed by which backends are chosen was drawn at this start: other machines choose other backends, and so does this one after a restart for connections that it has forgotten; write 'seed' in [balance] to keep the choice";

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard run scenarios/forward.toml
  flowyard run yard.toml --pace capture
  flowyard run yard.toml --check
  flowyard run scenarios/forward.toml --simulate
  flowyard run yard.toml --metrics 9464 --log-format json
  flowyard run yard.toml --control /run/flowyard/yard.sock --control-group netops
  flowyard run yard.toml --take-over

Ctrl-C drains: ports stop receiving, all frames inside are processed and
transmitted, and the counters are printed. SIGHUP applies the changed
configuration without stopping, or names the keys that need a new process;
'flowyard show reload' says what it would do.")]
pub(crate) struct Args {
    /// Configuration file (TOML; see docs/run.md)
    #[arg(value_name = "CONFIG")]
    config: PathBuf,

    /// Speed at which ports receive from captures: capture (the times in the capture), fast (no
    /// pauses), or a number of frames per second [default: as configured]
    #[arg(long, value_name = "PACE")]
    pace: Option<String>,

    /// Check the configuration, build the data plane, and exit without running it
    #[arg(long)]
    check: bool,

    /// Simulate the configuration on one thread in virtual time, once for each of its seeds, and
    /// compare the results with its `[expect]` section (see docs/scenarios.md)
    #[arg(long, conflicts_with_all = ["check", "pace"])]
    simulate: bool,

    /// Use an interface even if it carries the default route; the machine may then be unreachable
    #[arg(long)]
    yes_this_is_my_uplink: bool,

    /// Print the final counters as JSON (schema flowyard.run/2) instead of tables; with --check, what the
    /// configuration can hold (schema flowyard.run.check/1); with --simulate, whether the results are as
    /// expected (schema flowyard.run.simulate/1)
    #[arg(long)]
    json: bool,

    /// Path of the control socket for show, top, trace and lb, or none [default: named after CONFIG,
    /// in /run/flowyard for root, else in $XDG_RUNTIME_DIR/flowyard]
    #[arg(long, value_name = "PATH", help_heading = "Operation")]
    control: Option<PathBuf>,

    /// Group whose members may use the control socket, too [default: only this user]
    #[arg(long, value_name = "GROUP", help_heading = "Operation")]
    control_group: Option<String>,

    /// Serve Prometheus metrics at http://ADDRESS/metrics; ADDRESS is a port of 127.0.0.1 or
    /// ADDRESS:PORT [default: as configured, or none]
    #[arg(long, value_name = "ADDRESS", help_heading = "Operation")]
    metrics: Option<String>,

    /// Take over from the running instance with this control socket, without losing a frame: its ports, its tables of
    /// connections, and its sockets. It ends when this one is ready; if this one cannot start, it goes on
    #[arg(long, conflicts_with_all = ["check", "simulate"], help_heading = "Operation")]
    take_over: bool,

    /// User to change to when all ports are open; root keeps root [default: flowyard if root starts it and there
    /// is such a user, else no change]
    #[arg(long, value_name = "NAME", help_heading = "Operation")]
    user: Option<String>,

    /// Drop every capability; then a port cannot be reopened if its interface is deleted and created
    /// again
    #[arg(long, help_heading = "Operation")]
    drop_all_capabilities: bool,

    #[command(flatten)]
    log: LogArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    if args.simulate {
        return simulate::run(&args.config, args.json);
    }
    args.control_group.as_deref().map_or(Ok(()), check_group).map_err(bad_input)?;
    let signals = Signals::catch().map_err(failed("catching signals"))?;
    if !args.check {
        args.log.start(); // before the ports open, which report how
    }
    let mut running = take_over::ask(args)?;
    let secret = running.as_ref().map_or_else(draw, |running| Ok(running.secret()))?;
    let mut config = read(args, &signals, secret)?;
    let clock = crate::clock::new();
    let becomes = Becomes::of(args)?;
    let (mut joined, mut provided) = (None, None);
    if args.check {
        provided = cluster::check(&mut config, &clock)?;
    } else {
        open::warn_of_readable_secrets(&config, args);
        becomes.check(&config, args)?;
        joined = cluster::join(&mut config, &clock, draw()?)?;
    }
    let commands = open::commands(&config)?;
    let is_open = Arc::<AtomicBool>::default();
    let log = log_of_ports(&is_open);
    let switch = switch::Switch::plan(&config)?;
    let announcements = config.announce().map(|_| Arc::<Announcements>::default());
    let synchronization = sync::of(&config)?;
    let services = joined.as_ref().map(|joined| Arc::clone(&joined.shared));
    let may_run_commands = Arc::<AtomicBool>::default();
    let current = reload::current(&config, args, (&may_run_commands, services.as_ref()));
    let fleet = (announcements.as_ref(), synchronization.as_ref(), services.as_ref());
    let control = control(switch.as_ref(), fleet, &current);
    let mut parts = Parts { clock: Some(Arc::clone(&clock)), control, ..Parts::default() };
    take_over::inherit(&mut parts, &config, running.as_mut())?;
    let yard = config.build_logged(parts, &log).map_err(unbuilt)?;
    is_open.store(true, Ordering::Relaxed);
    if args.check {
        return check::print(&config, provided, args);
    }
    let open = Open::all(&config, args, running.as_mut())?;
    let setup = config.resolve().map_err(bad_input)?;
    let sync = sync::open(&config, running.as_mut())?;
    let routes = open::routes(&config, args, running.as_mut())?;
    // The last step that needs root.
    let commands = commands.start(open::runner()).map_err(|e| Stop::Failed(e.into()))?;
    open::give_up(&config, args, &Wanted::of(&setup), &becomes)?;
    let switch = switch.map(|switch| switch.open(&clock)).transpose()?;
    let yard = take_over::go_on(running, &config, yard, &clock)?;
    signals.started();
    let yard = yard.start(clock).map_err(failed("starting a thread for a core"))?;
    let handle = yard.handle();
    may_run_commands.store(commands.can_run(), Ordering::Relaxed);
    let pool = yard.pool().memory();
    let sockets = (routes.as_ref(), sync.as_ref());
    let handed = open::Handed { config: &config, secret, pool, sockets };
    let serves = open.serve(&handle, handed).and_then(|open| {
        let checks = Checker::start(&handle, config.checks_per_second(), commands)?;
        let synchronizer = sync::start(&handle, sync.zip(synchronization.as_ref()))?;
        let announcer = announcer(&handle, &config, routes.zip(announcements.clone()))?;
        let watcher = joined.map(|joined| joined.watch(&handle)).transpose()?;
        Ok((open, (checks, synchronizer), announcer, watcher))
    });
    let (open, (checks, _synchronizer), announcer, _watcher) = match serves {
        Ok(serves) => serves, // until the end of this function
        Err(error) => return Err(after(yard, error)),
    };
    open.allow_successors(&current);
    let agent_runs = || switch.as_ref().is_none_or(switch::Reachable::is_running);
    let served = (open.metrics, open.leaving);
    let (checks, switch) = (checks.as_ref(), switch.as_ref());
    let settings = settings(handle, served, args, (announcements, checks, switch));
    let with = With { current, settings, services };
    let beside = Beside { signals: &signals, agent_runs: &agent_runs, with };
    let outcome = attend(yard, &beside, announcer);
    conclude(&outcome, args, &beside)
}

/// Why an engine was not built.
fn unbuilt(error: BuildError) -> Stop {
    match error {
        BuildError::Memory { .. } | BuildError::TableMemory(_) => Stop::Failed(error.into()),
        error => bad_input(error),
    }
}

/// Ends the engine after an error.
fn after(yard: Running, error: Stop) -> Stop {
    // Captures are closed by the threads that write them.
    yard.stop();
    let _drained = yard.join();
    error
}

/// What runs beside the engine, for reloads.
fn settings(
    handle: Handle,
    (metrics, leaving): (Option<Metrics>, Option<Arc<Leaving>>),
    args: &Args,
    (announcements, checks, switch): (
        Option<Arc<Announcements>>,
        Option<&Checker>,
        Option<&switch::Reachable>,
    ),
) -> Arc<Settings> {
    Arc::new(Settings {
        handle,
        metrics: Mutex::new(metrics),
        has_metrics_argument: args.metrics.is_some(),
        leaving,
        announcements,
        checks: checks.map(Checker::limit),
        switch: switch.map(switch::Reachable::connections),
    })
}

/// Prints the counters. The result says whether the run was good.
fn conclude(outcome: &Outcome, args: &Args, beside: &Beside<'_>) -> Result<(), Stop> {
    print(outcome, args.json)?;
    let leaving = beside.with.settings.leaving.as_ref();
    if leaving.is_some_and(|leaving| leaving.taken_by().is_some()) {
        take_over::leave();
    }
    verdict(outcome)?;
    if (beside.agent_runs)() { Ok(()) } else { Err(Stop::Failed(anyhow::anyhow!(NO_AGENT))) }
}

/// What an instance shares with other nodes and routers, as far as it is configured.
type Fleet<'a> =
    (Option<&'a Arc<Announcements>>, Option<&'a Arc<Synchronization>>, Option<&'a Arc<Cluster>>);

/// The halves of the run that are not on a core, for queries and for a process that takes over.
fn control(
    switch: Option<&switch::Switch>,
    (announcements, synchronization, services): Fleet<'_>,
    current: &Arc<Current>,
) -> Vec<Arc<dyn ControlPlane>> {
    let mut all: Vec<Arc<dyn ControlPlane>> = vec![Arc::<Current>::clone(current)];
    all.extend(switch.into_iter().flat_map(switch::Switch::control));
    all.extend(announcements.map(|shared| Arc::<Announcements>::clone(shared) as _));
    all.extend(synchronization.map(|shared| Arc::<Synchronization>::clone(shared) as _));
    all.extend(services.map(|shared| Arc::<Cluster>::clone(shared) as _));
    all
}

/// What a port reports while it opens is a fact, such as its mode; later it is a disturbance.
fn log_of_ports(is_open: &Arc<AtomicBool>) -> Log {
    let opened = Arc::clone(is_open);
    Arc::new(move |port, what| match opened.load(Ordering::Relaxed) {
        true => tracing::warn!(port, "{what}"),
        false => tracing::info!(port, "{what}"),
    })
}

/// Reads the configuration of a run, without services of a provider.
fn read(args: &Args, signals: &Signals, secret: [u8; 16]) -> Result<Config, Stop> {
    let mut config = reload::read(&args.config, args.pace.as_deref())?;
    // Nobody who sends frames knows it.
    config.set_secret(Secret::drawn(secret));
    config.end_captures_with(signals.ender());
    if config.expect.is_some() || !config.reload.is_empty() {
        let note = "[[reload]] and [expect] are for --simulate; this run ignores them";
        let _ = writeln!(stderr(), "flowyard: {}: {note}", args.config.display());
    }
    config.refuse_replaced_captures().map_err(bad_input)?;
    if !args.yes_this_is_my_uplink {
        config.refuse_uplinks().map_err(bad_input)?;
    }
    Ok(config)
}

/// Starts to announce the VIPs, if that is configured.
fn announcer(
    yard: &Handle,
    config: &Config,
    parts: Option<(Routes, Arc<Announcements>)>,
) -> std::io::Result<Option<Announcer>> {
    let Some(((routes, shared), how)) = parts.zip(config.announce()) else { return Ok(None) };
    Announcer::start(yard, shared, routes, how.get_ref()).map(Some)
}

/// Random bytes.
fn draw() -> Result<[u8; 16], Stop> {
    let mut bytes = [0; 16];
    let drawn = getrandom(&mut bytes, GetRandomFlags::empty());
    match drawn {
        Ok(16) => Ok(bytes),
        Ok(_) => Err(Stop::Failed(anyhow::anyhow!(NO_SECRET))),
        Err(error) => Err(Stop::Failed(anyhow::Error::new(error).context(NO_SECRET))),
    }
}

/// What happens beside a run.
struct Beside<'a> {
    signals: &'a Signals,
    /// Whether the OpenFlow agent runs, if there is one.
    agent_runs: &'a dyn Fn() -> bool,
    /// What a reload is made with.
    with: With,
}

/// Waits for the end of the run, and handles signals, a failed agent and progress.
fn attend(yard: Running, beside: &Beside<'_>, mut announcer: Option<Announcer>) -> Outcome {
    let Beside { signals, agent_runs, with } = beside;
    let leaving = with.settings.leaving.as_deref();
    let bar = Progress::new("{spinner} {elapsed} {msg}");
    bar.raw().into_iter().for_each(logs::above);
    let mut stopped = false;
    let (handle, mut service) = (yard.handle(), Service::new());
    let name = with.current.name();
    tracing::info!(config = name, cores = handle.cores(), "running");
    service.ready(name);
    if with.current.get().chooses_by_drawn_seed() {
        tracing::info!("{DRAWN}");
    }
    let mut reload = Reload::default();
    while !yard.is_done() {
        if leaving.is_some_and(Leaving::is_frozen) {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        let has_left = |announcer: &mut Announcer| announcer.has_left(handle.now());
        let is_over = signals.stop() && announcer.as_mut().is_none_or(has_left);
        let why = if is_over { None } else { gave_up(&yard, agent_runs) };
        if !stopped && (is_over || why.is_some()) {
            match why {
                Some(why) => tracing::error!("{why}; draining"),
                None => tracing::info!("draining: ports receive no more frames"),
            }
            service.stopping();
            reload.cancel();
            signals.ender().end();
            yard.stop();
            stopped = true;
        }
        if !stopped && let Some(id) = leaving.and_then(Leaving::taken_by) {
            service.taken_by(id);
            reload.taken_by(id);
            take_over::leave_to(id, &handle, announcer.take());
            stopped = true;
        }
        service.watch(&handle);
        if !stopped && reload.step() {
            service.ready(name);
        }
        if !stopped && !reload.is_busy() && signals.reload() {
            service.reloading();
            reload.begin(Cause::File, with);
            if !reload.is_busy() {
                service.ready(name);
            }
        }
        if !stopped
            && !reload.is_busy()
            && let Some(offer) = with.services.as_ref().and_then(|services| services.take())
        {
            reload.begin(Cause::Services(offer), with);
        }
        if bar.raw().is_some() {
            let total = yard
                .counters()
                .iter()
                .fold((0, 0), |(rx, tx), core| (rx + core.rx_frames, tx + core.tx_frames));
            bar.message(format!("received {} frames, sent {}", total.0, total.1));
        }
        yard.tick();
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(bar);
    let outcome = yard.join();
    let total = outcome.total();
    let (received, sent, dropped) = (total.rx_frames, total.tx_frames, total.drops.total());
    tracing::info!(received, sent, dropped, held = outcome.held, "drained");
    outcome
}

/// Why a run cannot go on, if it cannot.
fn gave_up(yard: &Running, agent_runs: &dyn Fn() -> bool) -> Option<&'static str> {
    if !agent_runs() {
        return Some("the OpenFlow agent ended unexpectedly");
    }
    yard.has_failed().then_some("an output cannot be written any more")
}

fn print(outcome: &Outcome, json: bool) -> Result<(), Stop> {
    if json {
        return output::json(SCHEMA, Report::of(outcome));
    }
    output::text(&counters::text(outcome, &style()))
}

/// A run whose frame counters do not balance, or in which a core or an output failed, has failed.
fn verdict(outcome: &Outcome) -> Result<(), Stop> {
    let died = outcome.cores.iter().position(|core| core.died.is_some());
    match died {
        Some(core) => {
            let why = outcome.cores[core].died.as_deref().unwrap_or("");
            Err(Stop::Failed(anyhow::anyhow!(
                "core {core} failed: {why}; its frames are counted as dropped, with the reason core_died"
            )))
        }
        None if !outcome.is_balanced() => Err(Stop::Failed(anyhow::anyhow!(
            "the frame counters do not balance: this is a defect of flowyard; please report it with the configuration"
        ))),
        None if !outcome.failed.is_empty() => {
            Err(Stop::Failed(anyhow::anyhow!(outcome.failed.join("; "))))
        }
        None => Ok(()),
    }
}

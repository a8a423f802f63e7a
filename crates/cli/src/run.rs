//! `flowyard run`: an engine from its configuration, on real threads, with its counters at the end.
//!
//! SIGINT and SIGTERM drain: ports receive no more, everything inside goes out. A second one ends at
//! once. SIGHUP reads the configuration again and takes over its tables, stopping nothing.
//!
//! Order of the start: ports, control socket and metrics are opened; then privileges are given up;
//! only then threads are started. What comes later needs no right, and has none.

use std::io::{IsTerminal, Write, stderr, stdout};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use self::open::Open;
use flowyard_config::Config;
use flowyard_operate::doctor::Wanted;
use flowyard_operate::health::Checker;
use flowyard_operate::service::Service;
use flowyard_ports::port::Log;
use flowyard_report::Document;
use flowyard_scenario::Scenario;
use flowyard_yard::Parts;
use flowyard_yard::run::{Outcome, Running};
use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::logs::{self, LogArgs};
use crate::stop::{Stop, bad_input};

mod counters;
mod open;
mod switch;

/// Run a yard: receive, steer, work, transmit, and account for every frame.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard run scenarios/forward.toml
  flowyard run yard.toml --pace capture
  flowyard run yard.toml --check
  flowyard run scenarios/forward.toml --simulate
  flowyard run yard.toml --metrics 9464 --log-format json
  flowyard run yard.toml --control /run/flowyard/yard.sock --control-group netops

Ctrl-C drains: no more is received, everything inside goes out, and the counters are printed. SIGHUP takes
over the tables of a changed configuration without stopping.")]
pub(crate) struct Args {
    /// The configuration, in TOML (see docs/run.md)
    #[arg(value_name = "CONFIG")]
    config: PathBuf,

    /// How fast captures are received, whatever the configuration says: capture, fast, or frames a
    /// second
    #[arg(long, value_name = "PACE")]
    pace: Option<String>,

    /// Read and build the configuration, then stop
    #[arg(long)]
    check: bool,

    /// Simulate a scenario on one thread under a virtual clock, once for each seed, and compare with
    /// its expectations (see docs/scenarios.md)
    #[arg(long, conflicts_with_all = ["check", "pace", "json"])]
    simulate: bool,

    /// Take an interface although a default route leaves by it: a user who reaches this machine by it may
    /// be cut off
    #[arg(long)]
    yes_this_is_my_uplink: bool,

    /// Print JSON (schema flowyard.run/1)
    #[arg(long)]
    json: bool,

    /// The socket that show, top and trace ask, or none [default: CONFIG's stem in /run/flowyard, or
    /// $XDG_RUNTIME_DIR/flowyard]
    #[arg(long, value_name = "PATH", help_heading = "Operation")]
    control: Option<PathBuf>,

    /// A group that may ask too
    #[arg(long, value_name = "GROUP", help_heading = "Operation")]
    control_group: Option<String>,

    /// Prometheus metrics at http://ADDRESS/metrics: a port of 127.0.0.1, or ADDRESS:PORT
    #[arg(long, value_name = "ADDRESS", help_heading = "Operation")]
    metrics: Option<String>,

    /// The user to become when all is open
    #[arg(long, value_name = "NAME", help_heading = "Operation")]
    user: Option<String>,

    /// Keep no capability at all: a port whose interface is replaced by another of its name then
    /// stays down
    #[arg(long, help_heading = "Operation")]
    drop_all_capabilities: bool,

    #[command(flatten)]
    log: LogArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    if args.simulate {
        return simulate(args);
    }
    let config = read(args)?;
    if config.expect.is_some() || !config.reload.is_empty() {
        let note = "[[reload]] and [expect] are for --simulate; this run leaves them out";
        let _ = writeln!(stderr(), "flowyard: {}: {note}", args.config.display());
    }
    if !args.yes_this_is_my_uplink {
        config.refuse_uplinks().map_err(bad_input)?;
    }
    let clock = crate::clock::new();
    let log: Log = Arc::new(|port, what| tracing::warn!(port, "{what}"));
    let switch = switch::Switch::plan(&config)?;
    let mut parts = Parts { clock: Some(Arc::clone(&clock)), ..Parts::default() };
    parts.control.extend(switch.as_ref().map(switch::Switch::control));
    let yard = config.build_logged(parts, &log).map_err(bad_input)?;
    if args.check {
        writeln!(stdout(), "{}: sound", args.config.display())?;
        return Ok(());
    }
    args.log.start();
    let signals = Signals::catch()?;
    let open = Open::all(&config, args)?;
    let setup = config.resolve().map_err(bad_input)?;
    let writes = config.port.iter().any(|port| port.get_ref().output.is_some());
    open::give_up(args, &Wanted::of(&setup), writes)?;
    let switch = switch.map(|switch| switch.open(&clock)).transpose()?;
    let yard = yard.start(clock);
    let handle = yard.handle();
    let _open = open.serve(&handle)?; // until here, or the end of the program
    let _checks = Checker::start(&handle, config.checks_per_second())?;
    let agent_runs = || switch.as_ref().is_none_or(switch::Reachable::is_running);
    let outcome = attend(yard, config, args, &signals, &agent_runs);
    print(&outcome, args.json)?;
    verdict(&outcome)?;
    if agent_runs() {
        Ok(())
    } else {
        Err(Stop::Failed(anyhow::anyhow!(
            "the OpenFlow agent ended: this is a defect of flowyard; please report it with the log"
        )))
    }
}

/// Whether a scenario comes to what it expects.
fn simulate(args: &Args) -> Result<(), Stop> {
    let name = args.config.display().to_string();
    let scenario = Scenario::read(&name, &args.config).map_err(bad_input)?;
    let differs = |what: String| Stop::Failed(anyhow::anyhow!(what));
    scenario.run().map_err(differs)?;
    writeln!(stdout(), "{name}: as expected, with each of {} seeds", scenario.seeds())?;
    Ok(())
}

fn read(args: &Args) -> Result<Config, Stop> {
    let mut config = Config::read(&args.config).map_err(bad_input)?;
    if let Some(pace) = &args.pace {
        config.set_pace(pace).map_err(|what| bad_input(format!("--pace: {what}")))?;
    }
    Ok(config)
}

/// Signals that arrived and were not attended to.
struct Signals {
    stop: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
}

impl Signals {
    fn catch() -> Result<Self, Stop> {
        let (stop, reload) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal finds the flag down, the second ends the program.
            signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))?;
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        signal_hook::flag::register(SIGHUP, Arc::clone(&reload))?;
        Ok(Self { stop, reload })
    }
}

/// Waits for the yard to end, and sees to signals and progress meanwhile.
fn attend(
    yard: Running,
    mut config: Config,
    args: &Args,
    signals: &Signals,
    agent_runs: &dyn Fn() -> bool,
) -> Outcome {
    let bar = bar();
    bar.iter().for_each(logs::above);
    let mut stopped = false;
    let (handle, mut service) = (yard.handle(), Service::new());
    let name = args.config.display().to_string();
    tracing::info!(config = name, cores = handle.cores(), "running");
    service.ready(&name);
    while !yard.is_done() {
        if signals.stop.load(Ordering::Relaxed) && !stopped {
            tracing::info!("drain begins: no more is received");
            service.stopping();
            yard.stop();
            stopped = true;
        }
        if !stopped && !agent_runs() {
            tracing::error!("the OpenFlow agent ended; so does the yard");
            service.stopping();
            yard.stop();
            stopped = true;
        }
        service.watch(&handle);
        if signals.reload.swap(false, Ordering::Relaxed) {
            service.reloading();
            reload(&yard, &mut config, args);
            service.ready(&name);
        }
        if let Some(bar) = &bar {
            let total = yard
                .counters()
                .iter()
                .fold((0, 0), |(rx, tx), core| (rx + core.rx_frames, tx + core.tx_frames));
            bar.set_message(format!("received {}, sent {}", total.0, total.1));
            bar.tick();
        }
        yard.tick();
        std::thread::sleep(Duration::from_millis(5));
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let outcome = yard.join();
    let total = outcome.total();
    let (received, sent, dropped) = (total.rx_frames, total.tx_frames, total.drops.total());
    tracing::info!(received, sent, dropped, held = outcome.held, "drained");
    outcome
}

/// Takes over new tables; a configuration that is wrong changes nothing.
fn reload(yard: &Running, config: &mut Config, args: &Args) {
    match read(args).map(|new| config.reload(&new).map(|reload| (reload, new))) {
        Ok(Ok((reload, new))) => match reload.apply(&yard.handle()) {
            Ok(()) => {
                *config = new;
                tracing::info!("{}: new tables taken over", args.config.display());
            }
            Err(error) => tracing::error!("{error}; nothing changed"),
        },
        Ok(Err(error)) => tracing::error!("{error}; nothing changed"),
        Err(stop) => tracing::error!("{stop}; nothing changed"),
    }
}

fn bar() -> Option<ProgressBar> {
    let style = ProgressStyle::with_template("{spinner} {elapsed} {msg}").ok()?;
    stderr().is_terminal().then(|| ProgressBar::new_spinner().with_style(style))
}

fn print(outcome: &Outcome, json: bool) -> Result<(), Stop> {
    let mut out = stdout().lock();
    if json {
        let document = Document::new("flowyard.run/1", counters::RunCounters::of(outcome));
        let json = document.to_json().map_err(anyhow::Error::from).map_err(Stop::Failed)?;
        out.write_all(json.as_bytes())?;
    } else {
        out.write_all(counters::text(outcome, &crate::output::style()).as_bytes())?;
    }
    Ok(out.flush()?)
}

/// A run whose counters do not balance, or that lost a core, has failed.
fn verdict(outcome: &Outcome) -> Result<(), Stop> {
    let died = outcome.cores.iter().position(|core| core.died.is_some());
    match died {
        Some(core) => {
            let why = outcome.cores[core].died.as_deref().unwrap_or("");
            Err(Stop::Failed(anyhow::anyhow!(
                "core {core} died: {why}; its frames are counted as core_died"
            )))
        }
        None if !outcome.is_balanced() => Err(Stop::Failed(anyhow::anyhow!(
            "the counters do not balance: this is a defect of flowyard; please report it with the configuration"
        ))),
        None => Ok(()),
    }
}

//! `flowyard bench rfc2544` and the other test methods. Each method is a profile; one function runs them.

use std::io::{IsTerminal, Write, stderr, stdout};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use flowyard_report::{Document as Json, Unit, html, num};
use flowyard_rfc2544::compliance::judge;
use flowyard_rfc2544::document::{self, Document, Machine, Time};
use flowyard_rfc2544::profile::Profile;
use flowyard_rfc2544::qualify::virtual_checks;
use flowyard_rfc2544::suite::{self, Progress, Results};
use flowyard_rfc2544::traffic::{Genome, Mix};
use flowyard_rfc2544::virtual_bench::YardBench;
use flowyard_rfc2544::{Dut, dut::YardDut};
use indicatif::{ProgressBar, ProgressStyle};

use super::live::{LiveBench, Port};
use super::options::{Options, time};
use super::state::StateFile;
use crate::stop::{Stop, bad_input};

/// Name and version of the methods' JSON document.
pub(super) const SCHEMA: &str = "flowyard.bench/1";

/// Version of the searches and the traffic. A state file of another version is refused, because its
/// trials are not comparable with those of this version.
const METHOD: u32 = 2;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard bench rfc2544
  flowyard bench rfc2544 --sizes '64 1518' --tests throughput,loss-rate
  flowyard bench rfc2544 --cores 2 --flows 256 --addresses random --html report.html
  flowyard bench rfc2544 --state run.state --json > run.json

Without --interfaces, the device under test is flowyard's engine simulated in virtual time, with
the CPU costs given by the options under Device. The same command then gives exactly the same
results.")]
pub(crate) struct Rfc2544 {
    #[command(flatten)]
    options: Options,
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  flowyard bench rfc9004 --sizes 64")]
pub(crate) struct Rfc9004 {
    #[command(flatten)]
    options: Options,
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  flowyard bench mlrsearch --sizes imix-csit --flows 64")]
pub(crate) struct Mlrsearch {
    #[command(flatten)]
    options: Options,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard bench lanner --frame-cost 60us --json > i5-660.json
  flowyard bench lanner --frame-cost 50us --json > i5-2400.json
  flowyard bench compare i5-660.json i5-2400.json")]
pub(crate) struct Lanner {
    #[command(flatten)]
    options: Options,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard bench soak
  flowyard bench soak --duration 1h --load 50 --sizes '64 1518' --ports 4")]
pub(crate) struct Soak {
    #[command(flatten)]
    options: Options,

    /// Duration of the run, such as 14h [default: 14h; with --replay, the length of the capture]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    duration: Option<Duration>,

    /// Replay the flows, frame sizes and times of this capture (pcap or pcapng, also compressed by
    /// gzip); the frames' contents are the tester's own
    #[arg(long, value_name = "FILE", conflicts_with_all = ["load", "sizes", "mix", "flows"])]
    replay: Option<PathBuf>,

    /// Speed of the replay, 0.01 to 100; 1 is the speed of the capture
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, requires = "replay")]
    speed: f64,

    /// Load in percent of the line rate, 1 to 100
    #[arg(long, value_name = "PERCENT", default_value_t = 40, value_parser = clap::value_parser!(u64).range(1..=100))]
    load: u64,
}

pub(super) fn rfc2544(args: &Rfc2544) -> Result<(), Stop> {
    run(&args.options, &args.options.profile(|line, _| Profile::rfc2544(line))?)
}

pub(super) fn rfc9004(args: &Rfc9004) -> Result<(), Stop> {
    run(&args.options, &args.options.profile(|line, _| Profile::rfc9004(line))?)
}

pub(super) fn mlrsearch(args: &Mlrsearch) -> Result<(), Stop> {
    run(&args.options, &args.options.profile(|line, _| Profile::csit(line))?)
}

pub(super) fn lanner(args: &Lanner) -> Result<(), Stop> {
    run(&args.options, &args.options.profile(Profile::lanner)?)
}

pub(super) fn soak(args: &Soak) -> Result<(), Stop> {
    let capture = args.replay.as_deref().map(super::replay::read).transpose()?;
    let fourteen_hours = Duration::from_secs(14 * 3600);
    let duration = match (args.duration, &capture) {
        (Some(duration), _) => time("--duration", duration)?,
        (None, None) => time("--duration", fourteen_hours)?,
        // Once through the capture at this speed.
        (None, Some(capture)) => (capture.length_ns as f64 / args.speed) as u64,
    };
    let mut profile =
        args.options.profile(|line, ports| Profile::soak(line, ports, duration, args.load))?;
    if let Some(capture) = capture {
        if !(0.01..=100.0).contains(&args.speed) {
            return Err(bad_input(format!("--speed: must be 0.01 to 100, not {}", args.speed)));
        }
        // In percent: 100 is the capture's own speed.
        profile.speed = Some((args.speed * 100.0).round() as u64);
        (profile.flows, profile.sizes) = (capture.flows(), vec![Genome::fixed(64)]);
        profile.mix = Mix::Replay(capture);
    }
    run(&args.options, &profile)
}

/// Runs a profile on the simulated device, or between interfaces, and prints the results.
fn run(options: &Options, profile: &Profile) -> Result<(), Stop> {
    let spec = options.yard()?;
    let is_real = !options.interfaces.is_empty();
    let time = if is_real { Time::Real } else { Time::Virtual };
    let ports = profile.topology.ports();
    let device = YardDut::new(flowyard_rfc2544::dut::YardSpec { ports, ..spec })
        .map_err(|error| Stop::Failed(error.into()))?
        .describe();
    let device = match options.interfaces.as_slice() {
        [] => device,
        names => {
            let name = options.device.as_deref().unwrap_or("device");
            format!("{name} between {} ({})", names.join(" and "), options.port.name())
        }
    };
    let about = serde_json::to_string(&(SCHEMA, METHOD, profile, &spec, &device))
        .map_err(|error| Stop::Failed(error.into()))?;
    let mut journal = match &options.state {
        Some(path) => StateFile::open(path, &about)?,
        None => StateFile::none(),
    };
    let softnet = backlog();
    let before =
        Machine { load: read("/proc/loadavg"), steal_ticks: steal(), ..Machine::default() };
    let tester = match &options.tester {
        Some(path) => super::qualify::checks(path)?,
        None => virtual_checks(profile.line, 10).map_err(|error| Stop::Failed(error.into()))?,
    };
    let bar = bar();
    let mut watch = |progress: &Progress| show(bar.as_ref(), progress);
    let clock = crate::run::clock();
    let now = || clock();
    let results = if is_real {
        let wires = Port::open_all(&options.interfaces, options.port, options.isolated)?;
        let reset = options.reset.clone().map(super::reset::Command::new);
        let mut bench = LiveBench { wires, clock: &now, reset };
        suite::run(profile, &mut bench, &mut journal, &mut watch)
    } else {
        suite::run(profile, &mut YardBench(spec), &mut journal, &mut watch)
    };
    let results = results.map_err(|error| Stop::Failed(error.into()))?;
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let document = Document {
        time,
        device,
        version: env!("CARGO_PKG_VERSION").into(),
        machine: machine(before),
        tester,
        compliance: judge(&results),
        deviations: document::deviations(time, &results),
        drops: drops(&results, softnet),
        results,
    };
    if let Some(path) = &options.html {
        #[allow(clippy::disallowed_methods, reason = "the page shows the date of its creation")]
        let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let command = std::env::args().collect::<Vec<_>>().join(" ");
        html::write(path, &document::page(&document, &command, &now)).map_err(bad_input)?;
    }
    print(options, document)
}

fn print(options: &Options, document: Document) -> Result<(), Stop> {
    let mut out = stdout().lock();
    if options.json {
        let json =
            Json::new(SCHEMA, document).to_json().map_err(|error| Stop::Failed(error.into()))?;
        out.write_all(json.as_bytes())?;
        return Ok(out.flush()?);
    }
    let style = crate::style();
    writeln!(out, "Device: {}\n", document.device)?;
    for table in document::tables(&document) {
        writeln!(out, "{}", table.to_text(&style))?;
    }
    let passed = document.tester.iter().filter(|check| check.holds).count();
    writeln!(out, "Tester: {passed} of {} checks of the tester passed", document.tester.len())?;
    if document.results.profile.name == "rfc2544" {
        writeln!(out, "{}", document.compliance.verdict)?;
        for point in document.compliance.points.iter().filter(|point| !point.met) {
            let strength = if point.must { "MUST" } else { "SHOULD" };
            writeln!(out, "  {strength} {}: {}", point.section, point.text)?;
        }
    }
    for (reason, count) in &document.drops {
        writeln!(out, "Dropped frames, {reason}: {}", num::exact(*count))?;
    }
    for deviation in &document.deviations {
        writeln!(out, "- {deviation}")?;
    }
    Ok(out.flush()?)
}

fn bar() -> Option<ProgressBar> {
    let style = ProgressStyle::with_template("{spinner} {msg}").ok()?;
    stderr().is_terminal().then(|| ProgressBar::new_spinner().with_style(style))
}

fn show(bar: Option<&ProgressBar>, progress: &Progress) {
    let Some(bar) = bar else { return };
    let (done, all) = progress.steps;
    let left = Unit::Nanos.show(progress.test_left as f64);
    bar.set_message(format!(
        "{done} of {all} tests done; {} bytes, {:?}, trial {}: {:.0} frames/s; this test needs at least {left} more",
        progress.size,
        progress.test,
        progress.trials + 1,
        progress.trial.load.pps(),
    ));
    bar.tick();
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// This machine, with the CPU time that the hypervisor took since `before`.
fn machine(before: Machine) -> Machine {
    let cpuinfo = read("/proc/cpuinfo");
    let model =
        cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    Machine {
        processor: model.unwrap_or("unknown").to_owned(),
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        kernel: read("/proc/sys/kernel/osrelease"),
        steal_ticks: steal().saturating_sub(before.steal_ticks),
        ..before
    }
}

/// Drops that the device counted itself, and those that the kernel's receive backlogs counted since
/// `before`. On a veth these backlogs are the rings of the device and of the tester.
fn drops(results: &Results, before: u64) -> Vec<(String, u64)> {
    let mut drops = results.drops.clone();
    let lost = backlog().saturating_sub(before);
    if lost > 0 {
        drops.push(("receive backlogs of the whole machine (softnet)".into(), lost));
    }
    drops
}

/// Frames that the kernel's receive backlogs have dropped since boot.
fn backlog() -> u64 {
    let table = read("/proc/net/softnet_stat");
    let second = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
    table.lines().filter_map(second).sum()
}

/// CPU time that the hypervisor has taken since boot (steal), in ticks.
fn steal() -> u64 {
    let stat = read("/proc/stat");
    stat.lines()
        .next()
        .and_then(|line| line.split_whitespace().nth(8)?.parse().ok())
        .unwrap_or_default()
}

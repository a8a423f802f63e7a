//! `flowyard bench rfc2544` and the other test methods. Each method is a profile; one function runs them.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use flowyard_bench::machine::Before;
use flowyard_bench::tester::journal::StateFile;
use flowyard_bench::tester::{Command, LiveBench, Port, replay};
use flowyard_report::{Unit, html, num};
use flowyard_rfc2544::compliance::judge;
use flowyard_rfc2544::document::{self, Document, Time};
use flowyard_rfc2544::profile::Profile;
use flowyard_rfc2544::qualify::virtual_checks;
use flowyard_rfc2544::suite::{self, Progress as Step, Results};
use flowyard_rfc2544::traffic::{Genome, Mix};
use flowyard_rfc2544::virtual_bench::YardBench;
use flowyard_rfc2544::{Dut, dut::YardDut};

use super::options::Options;
use super::{qualify, values};
use crate::output::{self, Progress, style};
use crate::stop::{Stop, bad_input};

/// Name and version of the methods' JSON document.
const SCHEMA: &str = "flowyard.bench/2";

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
    let capture = args.replay.as_deref().map(replay::read).transpose()?;
    let fourteen_hours = Duration::from_secs(14 * 3600);
    let duration = match (args.duration, &capture) {
        (Some(duration), _) => values::time("--duration", duration)?,
        (None, None) => values::time("--duration", fourteen_hours)?,
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
            format!("{name} between {} ({})", names.join(" and "), options.port().name())
        }
    };
    let about = serde_json::to_string(&(SCHEMA, METHOD, profile, &spec, &device))
        .map_err(|error| Stop::Failed(error.into()))?;
    let mut journal = match &options.state {
        Some(path) => StateFile::open(path, &about)?,
        None => StateFile::none(),
    };
    crate::interrupt::hint(interrupted(options))?;
    let before = Before::read();
    let tester = match &options.tester {
        Some(path) => qualify::checks(path)?,
        None => virtual_checks(profile.line, 10).map_err(|error| Stop::Failed(error.into()))?,
    };
    let results = measure(options, profile, &mut journal)?;
    let document = Document {
        time,
        device,
        version: env!("CARGO_PKG_VERSION").into(),
        machine: before.machine(),
        tester,
        compliance: judge(&results),
        deviations: document::deviations(time, &results),
        drops: before.drops(&results),
        results,
    };
    if let Some(path) = &options.html {
        let page = document::page(&document, &output::command_line(), &crate::clock::date());
        html::write(path, &page).map_err(bad_input)?;
    }
    if options.json {
        return output::json(SCHEMA, document);
    }
    output::text(&text(&document))
}

/// What to say when the measurement is interrupted: how its trials can be used.
fn interrupted(options: &Options) -> String {
    let page =
        options.html.as_ref().map(|path| format!(" no page was written to {};", path.display()));
    let page = page.unwrap_or_default();
    match &options.state {
        Some(path) => format!(
            "interrupted;{page} the finished trials are in {}: the same command continues after them",
            path.display()
        ),
        None => format!(
            "interrupted;{page} with --state FILE, finished trials are kept and the same command continues after them"
        ),
    }
}

/// Runs the profile's tests, and shows the progress.
fn measure(options: &Options, profile: &Profile, journal: &mut StateFile) -> Result<Results, Stop> {
    let bar = Progress::new("{spinner} {msg}");
    let mut watch = |step: &Step| bar.message(describe(step));
    let clock = crate::clock::new();
    let now = || clock();
    let results = if options.interfaces.is_empty() {
        suite::run(profile, &mut YardBench(options.yard()?), journal, &mut watch)
    } else {
        let wires = Port::open_all(&options.interfaces, options.port(), options.isolated)?;
        let reset = options.reset.clone().map(Command::new);
        let mut bench = LiveBench { wires, clock: &now, reset };
        suite::run(profile, &mut bench, journal, &mut watch)
    };
    results.map_err(|error| Stop::Failed(error.into()))
}

fn text(document: &Document) -> String {
    let style = style();
    let mut text = format!("Device: {}\n\n", document.device);
    let put = |text: &mut String, line: std::fmt::Arguments<'_>| {
        let _infallible = text.write_fmt(line);
        text.push('\n');
    };
    for table in document::tables(document) {
        put(&mut text, format_args!("{}", table.to_text(&style)));
    }
    let passed = document.tester.iter().filter(|check| check.passed).count();
    let all = document.tester.len();
    put(&mut text, format_args!("Tester: {passed} of {all} checks of the tester passed"));
    if document.results.profile.name == "rfc2544" {
        put(&mut text, format_args!("{}", document.compliance.verdict));
        for point in document.compliance.points.iter().filter(|point| !point.met) {
            let strength = if point.must { "MUST" } else { "SHOULD" };
            put(&mut text, format_args!("  {strength} {}: {}", point.section, point.text));
        }
    }
    for (reason, count) in &document.drops {
        put(&mut text, format_args!("Dropped frames, {reason}: {}", num::exact(*count)));
    }
    for deviation in &document.deviations {
        put(&mut text, format_args!("- {deviation}"));
    }
    text
}

fn describe(step: &Step) -> String {
    let (done, all) = step.steps;
    let left = Unit::Nanos.show(step.test_left as f64);
    format!(
        "{done} of {all} tests done; {} bytes, {}, trial {}: {:.0} frames/s; this test needs at least {left} more",
        step.size,
        step.test,
        step.trials + 1,
        step.trial.load.pps(),
    )
}

//! `flowyard bench rfc2544` and the other test methods. Each method is a profile; one function runs them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use flowyard_bench::machine::Before;
use flowyard_bench::tester::journal::StateFile;
use flowyard_bench::tester::{Command, LiveBench, Port, replay};
use flowyard_frame::Nanos;
use flowyard_ports::Damage;
use flowyard_report::text::paragraph;
use flowyard_report::{Unit, num};
use flowyard_rfc2544::compliance::judge;
use flowyard_rfc2544::document::{self, Document, Time};
use flowyard_rfc2544::profile::Profile;
use flowyard_rfc2544::qualify::virtual_checks;
use flowyard_rfc2544::suite::{self, Progress as Step, Results, Watch};
use flowyard_rfc2544::traffic::{Capture, Mix};
use flowyard_rfc2544::virtual_bench::YardBench;
use flowyard_rfc2544::{Dut, dut::YardDut};

use super::options::Options;
use super::{qualify, values};
use crate::interrupt::{Reading, last_words};
use crate::outfile::OutFile;
use crate::output::{self, Progress, style};
use crate::stop::{Stop, bad_input};

/// Name and version of the methods' JSON document.
pub(crate) const SCHEMA: &str = "flowyard.bench/2";

/// Version of the searches and the traffic. A state file of another version is refused, because its
/// trials are not comparable with those of this version.
const METHOD: u32 = 4;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard bench rfc2544
  flowyard bench rfc2544 --sizes 64,1518 --tests throughput,loss-rate
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
#[command(
    after_help = "Example:\n  flowyard bench mlrsearch --sizes imix-csit --flows 64 --line 100M\n\nThe example sets --line because the simulated device forwards this mix at the full rate of the\ndefault line (10M): the search would find no rate at which frames are lost."
)]
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
  flowyard bench soak --duration 1h --load 50 --sizes 64,1518 --ports 4")]
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

    /// Speed of the replay, 0.01 to 100; 1 is the speed of the capture [default: 1]
    #[arg(long, value_name = "FACTOR")]
    speed: Option<f64>,

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
    args.options.refuse_replaced_files(args.replay.as_deref())?;
    let speed = args.speed.unwrap_or(1.0);
    if args.speed.is_some() && args.replay.is_none() {
        return Err(bad_input("--speed: this is the speed of a replay; add --replay FILE"));
    }
    if !(0.01..=100.0).contains(&speed) {
        return Err(bad_input(format!("--speed: must be 0.01 to 100, not {speed}")));
    }
    let (capture, damage) = match args.replay.as_deref().map(read).transpose()? {
        Some((capture, damage)) => (Some(capture), damage),
        None => (None, None),
    };
    if let Some(damage) = &damage {
        output::note(&format!("--replay: only a part of the capture is replayed: {damage}"));
    }
    let fourteen_hours = Duration::from_secs(14 * 3600);
    let duration = match (args.duration, &capture) {
        (Some(duration), _) => values::time("--duration", duration)?,
        (None, None) => values::time("--duration", fourteen_hours)?,
        // Once through the capture at this speed.
        (None, Some(capture)) => {
            let ns = (capture.length_ns as f64 / speed) as u64;
            if ns > values::LONGEST {
                return Err(bad_input(format!(
                    "--replay {}: at this speed the capture takes {}, and a run takes at most 1000h; add --duration \
                     or --speed",
                    capture.name,
                    Unit::Nanos.show(ns as f64)
                )));
            }
            ns
        }
    };
    let mut profile =
        args.options.profile(|line, ports| Profile::soak(line, ports, duration, args.load))?;
    if let Some(capture) = capture {
        // In percent: 100 is the capture's own speed.
        profile.speed = Some((speed * 100.0).round() as u64);
        profile.flows = capture.flows();
        profile.set_mix(Mix::Replay(capture)).map_err(bad_input)?;
    }
    run(&args.options, &profile)?;
    damage.map_or(Ok(()), |damage| Err(Stop::Failed(damage.into())))
}

/// Reads a capture to replay, until a signal ends the reading.
fn read(path: &Path) -> Result<(Capture, Option<Damage>), Stop> {
    let name = path.display();
    let reading = Reading::begin()?;
    let found = replay::read(path, reading.ender());
    let was_interrupted = reading.was_interrupted();
    reading.hand_over()?;
    match found {
        Err(_) if was_interrupted => Err(Stop::Failed(anyhow::anyhow!(
            "--replay {name}: interrupted before its second packet"
        ))),
        Ok(found) if was_interrupted => {
            output::note(&format!(
                "--replay {name}: interrupted; the packets that were read until then are replayed"
            ));
            Ok(found)
        }
        found => Ok(found?),
    }
}

/// Runs a profile on the simulated device, or between interfaces, and prints the results.
fn run(options: &Options, profile: &Profile) -> Result<(), Stop> {
    let spec = options.yard()?;
    options.refuse_replaced_files(options.tester.as_deref())?;
    let file = OutFile::new(options.html.as_ref(), "page")?;
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
    let partial = Partial::default();
    let (html, state) = (options.html.clone(), options.state.clone());
    last_words({
        let partial = Arc::clone(&partial);
        move || interrupted(html.as_deref(), state.as_deref(), &partial)
    })?;
    let before = Before::read();
    let tester = match &options.tester {
        Some(path) => qualify::checks(path)?,
        None => virtual_checks(profile.line, 10).map_err(|error| Stop::Failed(error.into()))?,
    };
    let document = |results: Results| Document {
        time,
        device: device.clone(),
        version: env!("CARGO_PKG_VERSION").into(),
        machine: before.machine(),
        tester: tester.clone(),
        compliance: judge(&results),
        deviations: document::deviations(time, &results),
        drops: before.drops(&results),
        results,
    };
    let keep = |results: &Results, (done, all): (usize, usize)| {
        let mut so_far = document(results.clone());
        so_far.deviations.push(format!(
            "The measurement was interrupted: {done} of {all} tests were finished. The others are missing here."
        ));
        *partial.lock().unwrap_or_else(PoisonError::into_inner) = Some(so_far);
    };
    let keep: Option<&Keep<'_>> = if options.html.is_some() { Some(&keep) } else { None };
    let document = document(measure(options, profile, &mut journal, keep)?);
    let page = || document::page(&document, &output::command_line(), &crate::clock::date());
    let written = file.map_or(Ok(()), |file| file.write_page(&page()));
    if options.json {
        output::json(SCHEMA, document)?;
    } else {
        output::text(&text(&document))?;
    }
    written
}

/// The document of the tests that are finished, for the page of an interrupted measurement.
type Partial = Arc<Mutex<Option<Document>>>;

/// Receives the results of the finished tests, with the numbers of finished tests and of all tests.
type Keep<'a> = dyn Fn(&Results, (usize, usize)) + 'a;

/// Writes the page of what was measured until an interrupt. Returns what to say: where the results are, and how to
/// continue.
fn interrupted(html: Option<&Path>, state: Option<&Path>, partial: &Partial) -> String {
    let so_far = partial.lock().unwrap_or_else(PoisonError::into_inner).take();
    let write = |path: &Path| match so_far {
        None => {
            format!(" no page was written to {}, because no test was finished;", path.display())
        }
        Some(document) => {
            let page = document::page(&document, &output::command_line(), &crate::clock::date());
            let file = OutFile::new(Some(&path), "page");
            match file.and_then(|file| file.map_or(Ok(()), |file| file.write_page(&page))) {
                Ok(()) => format!(" {} has the tests that were finished;", path.display()),
                Err(stop) => format!(" no page was written to {}: {stop};", path.display()),
            }
        }
    };
    let page = html.map(write).unwrap_or_default();
    match state {
        Some(path) => format!(
            "interrupted;{page} the finished trials are in {}: the same command continues after them",
            path.display()
        ),
        None => format!(
            "interrupted;{page} with --state FILE, finished trials are kept and the same command continues after them"
        ),
    }
}

/// What is shown and kept while a measurement lasts.
struct Watched<'a> {
    bar: &'a Progress,
    clock: &'a dyn Fn() -> Nanos,
    is_real: bool,
    left: Steps,
    /// The steps that are done, of all, when the last trial began.
    last: Option<(usize, usize)>,
    keep: Option<&'a Keep<'a>>,
}

impl Watch for Watched<'_> {
    fn begins(&mut self, step: &Step) {
        // Without a terminal, there is a line for each test instead of the bar.
        if self.bar.raw().is_none() && self.last != Some(step.steps) {
            let (done, all) = step.steps;
            let size = &step.size;
            output::note(&format!("test {} of {all}: {size} bytes, {}", done + 1, step.test));
        }
        self.last = Some(step.steps);
        let left = self.left.left((self.clock)(), step, self.is_real);
        self.bar.message(describe(step, &left));
    }

    fn measured(&mut self, results: &Results) {
        let (Some(keep), Some((done, all))) = (self.keep, self.last) else { return };
        keep(results, (done + 1, all));
    }
}

/// Runs the profile's tests, and shows the progress. `keep` gets the results after each test.
fn measure(
    options: &Options,
    profile: &Profile,
    journal: &mut StateFile,
    keep: Option<&Keep<'_>>,
) -> Result<Results, Stop> {
    let bar = Progress::new("{spinner} {msg}");
    let clock = crate::clock::new();
    let now = || clock();
    let is_real = !options.interfaces.is_empty();
    let mut watched =
        Watched { bar: &bar, clock: &now, is_real, left: Steps::default(), last: None, keep };
    let results = if options.interfaces.is_empty() {
        suite::run(profile, &mut YardBench(options.yard()?), journal, &mut watched)
    } else {
        let wires = Port::open_all(&options.interfaces, options.port(), options.isolated)?;
        let reset = options.reset.clone().map(Command::new);
        let mut bench = LiveBench { wires, clock: &now, reset };
        suite::run(profile, &mut bench, journal, &mut watched)
    };
    results.map_err(|error| Stop::Failed(error.into()))
}

fn text(document: &Document) -> String {
    let style = style();
    let mut text = String::new();
    // Paragraphs are as wide as the terminal. `first` stands in front of them.
    let put = |text: &mut String, first: &str, line: std::fmt::Arguments<'_>| {
        let rest = " ".repeat(first.len());
        text.push_str(&paragraph(&line.to_string(), first, &rest, &style));
    };
    put(&mut text, "", format_args!("Device: {}", document.device));
    put(&mut text, "", format_args!("{}", document::traffic(document)));
    text.push('\n');
    for table in document::tables(document) {
        let _infallible = writeln!(text, "{}", table.to_text(&style));
    }
    let checks = || document.tester.iter().filter(|check| !check.information);
    let (passed, all) = (checks().filter(|check| check.passed).count(), checks().count());
    put(&mut text, "", format_args!("Tester: {passed} of {all} checks of the tester passed"));
    if document.results.profile.name == "rfc2544" {
        put(&mut text, "", format_args!("{}", document.compliance.verdict));
        for point in document.compliance.points.iter().filter(|point| !point.met) {
            let strength = if point.must { "MUST" } else { "SHOULD" };
            put(&mut text, "  ", format_args!("{strength} {}: {}", point.section, point.text));
        }
    }
    for (reason, count) in &document.drops {
        put(&mut text, "", format_args!("Dropped frames, {reason}: {}", num::exact(*count)));
    }
    for deviation in &document.deviations {
        put(&mut text, "- ", format_args!("{deviation}"));
    }
    text
}

/// Estimates the time that a run still takes on the clock of this machine.
#[derive(Default)]
struct Steps {
    /// The number of completed steps and the time when the first trial was about to start; trials
    /// from a state file take no time.
    first: Option<(usize, Nanos)>,
}

impl Steps {
    /// What to print about the time left when `step` starts at `now`.
    fn left(&mut self, now: Nanos, step: &Step, is_real: bool) -> String {
        let (done, all) = step.steps;
        let (before, start) = *self.first.get_or_insert((done, now));
        let measured = done - before;
        let show = |ns: f64| Unit::Nanos.show(ns);
        match (measured, is_real) {
            (0, true) => format!("this test needs at least {} more", show(step.test_left as f64)),
            // A trial in virtual time takes more or less than its length.
            (0, false) => "the time left is estimated after the first test".into(),
            (measured, _) => {
                let each = (now - start) as f64 / measured as f64;
                format!("about {} left", show(each * (all - done) as f64))
            }
        }
    }
}

fn describe(step: &Step, left: &str) -> String {
    let (done, all) = step.steps;
    format!(
        "{done} of {all} tests done; {} bytes, {}, trial {}: {:.0} frames/s; {left}",
        step.size,
        step.test,
        step.trials + 1,
        step.trial.load.pps(),
    )
}

#[cfg(test)]
mod tests {
    use flowyard_rfc2544::line::Load;
    use flowyard_rfc2544::profile::Test;
    use flowyard_rfc2544::trial::{SECOND, Trial};

    use super::*;

    /// In virtual time, the length of the trials says nothing about the time that a run takes.
    #[test]
    fn the_time_left_follows_from_the_time_taken() {
        let step = |done| Step {
            size: "64".into(),
            test: Test::Throughput,
            trial: Trial::new(Load::from_pps(1000.0), 60 * SECOND),
            trials: 3,
            test_left: 2400 * SECOND,
            steps: (done, 8),
        };
        let mut steps = Steps::default();
        assert_eq!(
            steps.left(SECOND, &step(0), false),
            "the time left is estimated after the first test"
        );
        assert_eq!(steps.left(9 * SECOND, &step(1), false), "about 56 s left");
        assert_eq!(steps.left(17 * SECOND, &step(2), false), "about 48 s left");
        // Two of the steps came from a state file.
        let mut resumed = Steps::default();
        resumed.left(SECOND, &step(2), false);
        assert_eq!(resumed.left(5 * SECOND, &step(4), false), "about 8 s left");
        let real = Steps::default().left(0, &step(0), true);
        assert!(real.contains("at least"), "{real}");
    }
}

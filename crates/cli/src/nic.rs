//! `flowyard nic`: simulates the programmable adapter of Willmann et al. (HPCA 2005) cycle by cycle.

use std::path::{Path, PathBuf};

use flowyard_nicsim::config::{Config, Key, keys};
use flowyard_nicsim::firmware::Builtin;
use flowyard_nicsim::paper::{self, Study, StudyError};
use flowyard_nicsim::run::{RunError, build, image, run as simulate};
use flowyard_nicsim::{Fast, Reference, trace};
use flowyard_ports::pcap::Destination;
use flowyard_report::exhibit::Exhibit;
use flowyard_report::{Cell, Column, Document, Page, Section, Table, Tone};

use self::machine::MachineArgs;
use crate::outfile::{self, OutFile};
use crate::output::{self, Progress, style};
use crate::stop::{Stop, bad_input};

mod capture;
mod counters;
mod heat;
mod machine;
mod sweep;

pub(crate) use counters::Report;
pub(crate) use sweep::{Points, SCHEMA as SWEEP};

/// Name and version of the JSON document of a run.
pub(crate) const SCHEMA: &str = "flowyard.nic/1";
/// Name and version of the list of keys.
pub(crate) const KEYS: &str = "flowyard.nic-keys/1";
/// Name and version of the document of figures and tables.
pub(crate) const EXHIBITS: &str = "flowyard.nic-exhibits/3";

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard nic run
  flowyard nic table 5
  flowyard nic sweep --vary chip.cores=1,2,4,8,16")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Simulate one configuration and print frame rates, frame counters and core cycles
    Run(RunArgs),
    /// List all configuration keys with their defaults and meaning
    Keys(KeysArgs),
    /// Simulate all combinations of values of one or more configuration keys and print a table
    Sweep(sweep::Args),
    /// Simulate one configuration and print where the cycles were spent: by the paper's functions, by
    /// firmware function, by instruction
    Profile(ProfileArgs),
    /// Write every scratchpad access of a simulation to a file
    Trace(TraceArgs),
    /// Reproduce a table of the paper, 1 to 6: the paper's numbers, the simulated ones, the deviation
    Table(ExhibitArgs),
    /// Reproduce a figure of the paper: 3, 7 or 8
    Figure(ExhibitArgs),
    /// Reproduce all tables and figures of the paper
    Reproduce(ReproduceArgs),
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard nic run
  flowyard nic run --firmware swonly --set chip.mhz=200 --set chip.cores=8 --stats run.json
  flowyard nic run --pcap-in captures/yard.pcap --pcap-out sent.pcap
  flowyard nic run --trace timeline.json --set run.measure_us=200
  flowyard nic profile --firmware swonly --set chip.mhz=200")]
struct RunArgs {
    #[command(flatten)]
    machine: MachineArgs,

    /// Receive the frames of this capture; the simulation runs until all of them have passed through the
    /// adapter, unless run.measure_us is set [default: generated frames]
    #[arg(long, value_name = "CAPTURE")]
    pcap_in: Option<String>,

    /// Receive the capture's frames FACTOR times as fast as in the capture, 0.001 to 1000000000, but not
    /// faster than the link permits [default: 1, or faster if the capture is longer than the measured time]
    #[arg(long, value_name = "FACTOR", requires = "pcap_in")]
    speed: Option<f64>,

    /// Write the transmitted frames to this capture file; the time of a frame is when its last bit was sent
    #[arg(long, value_name = "FILE")]
    pcap_out: Option<PathBuf>,

    /// Also write a timeline of the first millisecond of the measured time to this file, for
    /// <https://ui.perfetto.dev>: functions by core, locks, frame memory, DMAs, frames, interrupts; this uses the
    /// reference simulator
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Print the final value of this firmware variable (may be repeated)
    #[arg(long, value_name = "SYMBOL")]
    peek: Vec<String>,

    /// Use the slow reference simulator, which simulates every component in every cycle
    #[arg(long)]
    reference: bool,

    /// Also write all statistics of the run to this file, as one JSON document (schema flowyard.nic/1)
    #[arg(long, value_name = "FILE")]
    stats: Option<PathBuf>,

    /// Print JSON (schema flowyard.nic/1) instead of text
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  flowyard nic keys\n  flowyard nic keys --json")]
struct KeysArgs {
    /// Print JSON (schema flowyard.nic-keys/1) instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard nic profile --firmware swonly --set chip.mhz=200
  flowyard nic profile --html profile.html")]
struct ProfileArgs {
    #[command(flatten)]
    run: RunArgs,

    /// Also write a self-contained HTML page with a heat map by address and the instructions of the
    /// hottest functions to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  flowyard nic trace --output accesses.fynt --set chip.mhz=200")]
struct TraceArgs {
    #[command(flatten)]
    machine: MachineArgs,

    /// File to write (format: docs/nic.md)
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
}

/// How tables and figures are made and printed.
#[derive(clap::Args)]
struct ShowArgs {
    /// Number of simulations to run in parallel [default: the number of CPUs]
    #[arg(long, value_name = "N", value_parser = crate::args::at_least_one)]
    threads: Option<usize>,

    /// Simulated time that each simulation measures, in microseconds, 1 to 1000000
    #[arg(long, value_name = "US", default_value_t = 2000)]
    measure_us: u64,

    /// Print JSON (schema flowyard.nic-exhibits/3) instead of tables
    #[arg(long, conflicts_with = "csv")]
    json: bool,

    /// Print comma-separated values instead of tables
    #[arg(long)]
    csv: bool,

    /// Also write a self-contained HTML page with plots to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  flowyard nic table 5\n  flowyard nic figure 7 --html figure7.html\n  flowyard nic figure 3 --trace accesses.fynt"
)]
struct ExhibitArgs {
    /// Number of the table or figure in the paper
    number: u32,

    /// For figure 3: read the accesses from this file, written by `flowyard nic trace` with firmware rmw
    /// [default: simulate them]
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    #[command(flatten)]
    show: ShowArgs,
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  flowyard nic reproduce --html willmann-hpca2005.html")]
struct ReproduceArgs {
    #[command(flatten)]
    show: ShowArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    match &args.what {
        What::Run(args) => one(args, false, None),
        What::Profile(args) => one(&args.run, true, args.html.as_deref()),
        What::Keys(args) => list_keys(args),
        What::Sweep(args) => sweep::run(args),
        What::Trace(args) => write_trace(args),
        What::Table(args) => exhibit(args, true),
        What::Figure(args) => exhibit(args, false),
        What::Reproduce(args) => {
            let page = OutFile::new(args.show.html.as_ref(), "page")?;
            let exhibits: Vec<Exhibit> = with_study(&args.show, |study| {
                paper::names().filter_map(|name| paper::make(name, study)).collect()
            })?;
            show(&exhibits, &args.show, page)
        }
    }
}

fn one(args: &RunArgs, profile: bool, page: Option<&Path>) -> Result<(), Stop> {
    let writes = [
        ("--stats", "document", args.stats.as_deref()),
        ("--html", "page", page),
        ("--trace", "timeline", args.trace.as_deref()),
        ("--pcap-out", "capture", args.pcap_out.as_deref()),
    ];
    let capture = args.pcap_in.as_ref().map(Path::new);
    outfile::distinct(&writes, capture.into_iter().chain(args.machine.files()))?;
    let mut parts = args.machine.parts()?;
    if let Some(path) = &args.pcap_out {
        drop(Destination::open(path).map_err(bad_input)?); // before the simulation, which can take long
    }
    let stats = OutFile::new(args.stats.as_ref(), "statistics")?;
    let page = OutFile::new(page.as_ref(), "page")?;
    let trace = OutFile::new(args.trace.as_ref(), "timeline")?;
    let (mut replay, mut damage) = (None, None);
    if let Some(file) = &args.pcap_in {
        if args.speed.is_some_and(|speed| !(0.001..=1e9).contains(&speed)) {
            return Err(bad_input("--speed: must be 0.001 to 1000000000"));
        }
        let (mut arrivals, cut) = capture::arrivals(file)?;
        damage = cut;
        let fixed = args.machine.has_key("run.measure_us")?;
        let frames = (file.as_str(), arrivals.as_mut_slice());
        replay = Some(capture::schedule(frames, args.speed, &mut parts.config, fixed)?);
        parts.arrivals = Some(arrivals);
        parts.to_the_end = !fixed;
    }
    parts.keep_departures = args.pcap_out.is_some();
    parts.peeks = args.peek.clone();
    parts.timeline = args.trace.is_some();
    let outcome = if args.reference || args.trace.is_some() {
        simulate::<Reference>(parts)
    } else {
        simulate::<Fast>(parts)
    };
    let outcome = outcome.map_err(refused)?;
    let replay = replay.map(|replay| replay.ended(&outcome));
    let written = [
        args.pcap_out.as_ref().map_or(Ok(()), |path| capture::write(path, &outcome)),
        stats.map_or(Ok(()), |file| {
            let document = Document::new(SCHEMA, counters::Report::of(&outcome, replay.as_ref()));
            let text = document.to_json().map_err(|error| Stop::Failed(error.into()))?;
            file.write(text.as_bytes())
        }),
        page.map_or(Ok(()), |file| file.write_page(&heat::page(&outcome))),
        trace.map_or(Ok(()), |file| {
            let json = outcome
                .timeline
                .as_ref()
                .map_or_else(String::new, flowyard_nicsim::timeline::Timeline::json);
            file.write(json.as_bytes())
        }),
    ];
    if args.json {
        output::json(SCHEMA, counters::Report::of(&outcome, replay.as_ref()))?;
    } else if profile {
        output::text(&counters::profile(&outcome, &style()))?;
    } else {
        let is_capture = replay.is_some();
        output::text(&replay.map_or_else(String::new, |replay| replay.text()))?;
        output::text(&counters::text(&outcome, is_capture, &style()))?;
    }
    written.into_iter().collect::<Result<(), Stop>>()?;
    damage.map_or(Ok(()), |damage| Err(Stop::Failed(damage.into())))?;
    outcome.verdict().map_err(refused)
}

/// A machine that cannot be built is bad input; every other error of a run is a failure.
fn refused(error: RunError) -> Stop {
    match error {
        RunError::Build(error) => bad_input(error),
        error => Stop::Failed(error.into()),
    }
}

fn list_keys(args: &KeysArgs) -> Result<(), Stop> {
    let keys = keys();
    if args.json {
        return output::json(KEYS, Keys { keys });
    }
    let mut table = Table::new("Configuration keys of the simulated adapter")
        .column(Column::text("key"))
        .column(Column::text("default"))
        .column(Column::text("meaning, and the source of the default"));
    for Key { key, default, about } in keys {
        table.push([Cell::new(key).tone(Tone::Strong), Cell::new(default), Cell::new(about)]);
    }
    output::text(&table.to_text(&style()))
}

/// The keys of the configuration.
#[derive(serde::Serialize, schemars::JsonSchema)]
pub(crate) struct Keys {
    /// In the order of the sections.
    keys: Vec<Key>,
}

fn write_trace(args: &TraceArgs) -> Result<(), Stop> {
    use flowyard_nicsim::Engine;
    let writes = [("--output", "trace", Some(args.output.as_path()))];
    outfile::distinct(&writes, args.machine.files())?;
    let file = OutFile::new(Some(&args.output), "trace")?;
    let elf = args.machine.elf()?;
    let parts = args.machine.parts()?;
    let config = parts.config.clone();
    let failed = |error: &dyn std::fmt::Display| Stop::Failed(anyhow::anyhow!("{error}"));
    let cycles = |us: u64| (us as f64 * config.chip.mhz.hz() / 1e6) as u64;
    let mut engine = build::<Reference>(parts).map_err(bad_input)?;
    let warm = cycles(config.run.warmup_us);
    engine.run_to(warm).map_err(|error| failed(&error))?;
    engine.accesses = Some(Vec::new());
    // No more than a millisecond: a trace grows by a gigabyte per second of simulated time.
    engine
        .run_to(warm + cycles(config.run.measure_us.min(1000)))
        .map_err(|error| failed(&error))?;
    let accesses = engine.accesses.take().unwrap_or_default();
    let bytes = trace::encode(&accesses, trace::hash(&elf));
    file.map_or(Ok(()), |file| file.write(&bytes))?;
    output::text(&format!("{}: {} accesses\n", args.output.display(), accesses.len()))
}

fn exhibit(args: &ExhibitArgs, table: bool) -> Result<(), Stop> {
    let number = args.number;
    outfile::distinct(&[("--html", "page", args.show.html.as_deref())], args.trace.as_deref())?;
    let page = OutFile::new(args.show.html.as_ref(), "page")?;
    if let Some(path) = &args.trace {
        if table || number != 3 {
            return Err(bad_input("--trace: only figure 3 is made from a trace"));
        }
        return show(&[of_trace(path)?], &args.show, page);
    }
    let (kind, there) = if table { ("table", "1 to 6") } else { ("figure", "3, 7 or 8") };
    let name = format!("nic-{kind}-{number}");
    let made = with_study(&args.show, |study| paper::make(&name, study).transpose())?;
    let made = made.ok_or_else(|| {
        bad_input(format!(
            "{kind} {number}: choose {there}; the paper has no other {kind}s with numbers"
        ))
    })?;
    show(&[made], &args.show, page)
}

fn of_trace(path: &Path) -> Result<Exhibit, Stop> {
    let at = |error: &dyn std::fmt::Display| bad_input(format!("{}: {error}", path.display()));
    let file = std::fs::read(path).map_err(|error| at(&error))?;
    let elf = Builtin::Rmw.elf();
    let accesses = trace::decode(&file, trace::hash(elf)).map_err(|error| at(&error))?;
    let image = image(&Config::default(), elf).map_err(|error| at(&error))?;
    paper::caches(&image, &accesses).map_err(|error| Stop::Failed(error.into()))
}

fn with_study<T>(
    show: &ShowArgs,
    make: impl Fn(&Study<'_>) -> Result<T, StudyError>,
) -> Result<T, Stop> {
    if show.measure_us == 0 || show.measure_us > 1_000_000 {
        return Err(bad_input(format!(
            "--measure-us: must be 1 to 1000000, not {}",
            show.measure_us
        )));
    }
    let bar = Progress::new(machine::BAR);
    let progress = |done: usize, of: usize| bar.at(done as u64, of as u64);
    let threads = machine::threads(show.threads);
    let study = Study { threads, measure_us: show.measure_us, progress: &progress };
    make(&study).map_err(|error| Stop::Failed(error.into()))
}

fn show(exhibits: &[Exhibit], args: &ShowArgs, file: Option<OutFile<'_>>) -> Result<(), Stop> {
    let mut written = Ok(());
    if let Some(file) = file {
        let line = output::command_line();
        let mut page = Page::new("A programmable 10 Gb/s network interface")
            .subtitle("Willmann, Kim, Rixner and Pai (HPCA 2005): the paper's numbers and the simulated ones")
            .command(line);
        for exhibit in exhibits {
            let mut section = Section::new(format!("{}: {}", exhibit.place, exhibit.title));
            for plot in &exhibit.plots {
                section = section.plot(plot.clone());
            }
            section = section.table(exhibit.numbers()).list(exhibit.remarks());
            page = page.section(section.folded("Inputs", exhibit.input_table()));
        }
        written = file.write_page(&page);
    }
    if args.json {
        output::json(EXHIBITS, Exhibits { exhibits })?;
        return written;
    }
    let style = style();
    let mut text = String::new();
    for exhibit in exhibits {
        if args.csv {
            text += &exhibit.csv();
        } else {
            let title = format!("{}: {}", exhibit.place, exhibit.title);
            text += &exhibit.table().titled(title).to_text(&style);
            text += "\n";
        }
    }
    if let (Some(path), false, Ok(())) = (&args.html, args.csv, &written) {
        text += &format!("Page with plots: {}\n", path.display());
    }
    output::text(&text)?;
    written
}

/// Figures and tables of the paper.
#[derive(serde::Serialize, schemars::JsonSchema)]
pub(crate) struct Exhibits<'a> {
    /// Each with the numbers of the paper and of the simulation.
    exhibits: &'a [Exhibit],
}

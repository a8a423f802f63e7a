//! `flowyard nic`: the programmable adapter of Willmann et al. (HPCA 2005), cycle by cycle.

use std::io::{IsTerminal, Write, stderr, stdout};
use std::path::{Path, PathBuf};

use flowyard_nicsim::config::Config;
use flowyard_nicsim::engine::Parts;
use flowyard_nicsim::firmware::Builtin;
use flowyard_nicsim::paper::{self, Study, StudyError};
use flowyard_nicsim::run::{Outcome, RunError, image, run as simulate};
use flowyard_nicsim::{Fast, Reference, trace};
use flowyard_report::exhibit::Exhibit;
use flowyard_report::{Document, Page, Section, html};
use indicatif::{ProgressBar, ProgressStyle};

use crate::stop::{Stop, bad_input};

mod books;
mod capture;
mod heat;
mod sweep;

/// Simulate a programmable adapter cycle by cycle, running real firmware.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Run one machine and print its books
    Run(RunArgs),
    /// Vary one or two keys and print a table
    Sweep(sweep::Args),
    /// Cycles by function of the paper, by firmware function, and the hottest addresses
    Profile(ProfileArgs),
    /// Write every scratchpad access of a run to a file
    Trace(TraceArgs),
    /// A table of the paper, 1 to 6: its numbers, ours, the deviation
    Table(ExhibitArgs),
    /// A figure of the paper, 3, 7 or 8
    Figure(ExhibitArgs),
    /// Every table and figure, as text and as one page
    Reproduce(ReproduceArgs),
}

/// The machine.
#[derive(clap::Args, Clone)]
pub(crate) struct MachineArgs {
    /// Firmware: ideal, swonly, rmw, task, steer, or an ELF file of your own (see docs/nic.md)
    #[arg(long, value_name = "NAME|FILE", default_value = "rmw", help_heading = "Machine")]
    firmware: String,

    /// Configuration in TOML; keys not named keep their defaults
    #[arg(long, value_name = "FILE", help_heading = "Machine")]
    config: Option<PathBuf>,

    /// Set one key, such as chip.cores=8, chip.mhz=500/3, load.flows=64 (may be repeated)
    #[arg(long = "set", value_name = "KEY=VALUE", help_heading = "Machine")]
    sets: Vec<String>,
}

impl MachineArgs {
    pub(crate) fn config(&self) -> Result<Config, Stop> {
        let mut config = match &self.config {
            None => Config::default(),
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|error| bad_input(format!("{}: {error}", path.display())))?;
                Config::parse(&text)
                    .map_err(|error| bad_input(format!("{}: {error}", path.display())))?
            }
        };
        for set in &self.sets {
            config.set(set).map_err(|error| bad_input(format!("--set: {error}")))?;
        }
        config.check().map_err(|error| bad_input(format!("--set: {error}")))?;
        Ok(config)
    }

    /// The firmware file's bytes.
    pub(crate) fn elf(&self) -> Result<Vec<u8>, Stop> {
        if let Some(builtin) = Builtin::find(&self.firmware) {
            return Ok(builtin.elf().to_vec());
        }
        let names: Vec<_> = Builtin::ALL.iter().map(|builtin| builtin.name()).collect();
        std::fs::read(&self.firmware).map_err(|error| {
            bad_input(format!(
                "--firmware {}: {error}; it is neither a file nor one of {}",
                self.firmware,
                names.join(", ")
            ))
        })
    }

    pub(crate) fn parts(&self) -> Result<Parts, Stop> {
        let config = self.config()?;
        let image = image(&config, &self.elf()?)
            .map_err(|error| bad_input(format!("--firmware {}: {error}", self.firmware)))?;
        Ok(Parts { config, image, ..Parts::default() })
    }
}

/// One run.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard nic run
  flowyard nic run --firmware swonly --set chip.mhz=200 --set chip.cores=8
  flowyard nic run --pcap-in captures/yard.pcap --pcap-out sent.pcap
  flowyard nic profile --firmware swonly --set chip.mhz=200")]
struct RunArgs {
    #[command(flatten)]
    machine: MachineArgs,

    /// Let the frames of this capture arrive, at its times, instead of generated ones
    #[arg(long, value_name = "CAPTURE")]
    pcap_in: Option<String>,

    /// Write the frames that are sent, with the times of their last bits
    #[arg(long, value_name = "FILE")]
    pcap_out: Option<PathBuf>,

    /// Print this variable of the firmware at the end (may be repeated)
    #[arg(long, value_name = "SYMBOL")]
    peek: Vec<String>,

    /// Use the plain engine, which simulates everything in every cycle (for comparison; slow)
    #[arg(long)]
    reference: bool,

    /// Print JSON (schema flowyard.nic/1)
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct ProfileArgs {
    #[command(flatten)]
    run: RunArgs,

    /// Write a self-contained page: a heat map by address, and the hottest functions by instruction
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  flowyard nic trace --output accesses.fynt --set chip.mhz=200")]
struct TraceArgs {
    #[command(flatten)]
    machine: MachineArgs,

    /// The file to write
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
}

/// How exhibits are made and shown.
#[derive(clap::Args)]
struct ShowArgs {
    /// Host cores to use [default: all]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// Measured microseconds of each run
    #[arg(long, value_name = "US", default_value_t = 2000)]
    measure_us: u64,

    /// Print JSON (schema flowyard.nic-exhibits/2)
    #[arg(long, conflicts_with = "csv")]
    json: bool,

    /// Print CSV
    #[arg(long)]
    csv: bool,

    /// Write a self-contained page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  flowyard nic table 5\n  flowyard nic figure 7 --html figure7.html\n  flowyard nic figure 3 --trace accesses.fynt"
)]
struct ExhibitArgs {
    /// Its number in the paper
    number: u32,

    /// Figure 3 only: take the accesses from this file (made by `flowyard nic trace`, firmware rmw)
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
        What::Sweep(args) => sweep::run(args),
        What::Trace(args) => write_trace(args),
        What::Table(args) => exhibit(args, true),
        What::Figure(args) => exhibit(args, false),
        What::Reproduce(args) => {
            let exhibits: Vec<Exhibit> = with_study(&args.show, |study| {
                paper::names().filter_map(|name| paper::make(name, study)).collect()
            })?;
            show(&exhibits, &args.show)
        }
    }
}

fn one(args: &RunArgs, profile: bool, page: Option<&Path>) -> Result<(), Stop> {
    let mut parts = args.machine.parts()?;
    if let Some(file) = &args.pcap_in {
        parts.arrivals = Some(capture::arrivals(file)?);
    }
    parts.keep_departures = args.pcap_out.is_some();
    parts.peeks = args.peek.clone();
    let outcome =
        if args.reference { simulate::<Reference>(parts) } else { simulate::<Fast>(parts) };
    let outcome = outcome.map_err(|error| match error {
        RunError::Build(error) => bad_input(error),
        error => Stop::Failed(error.into()),
    })?;
    if let Some(path) = &args.pcap_out {
        capture::write(path, &outcome)?;
    }
    if let Some(path) = page {
        html::write(path, &heat::page(&outcome)).map_err(|error| Stop::Failed(error.into()))?;
    }
    let mut out = stdout().lock();
    if args.json {
        let document = Document::new("flowyard.nic/1", books::Report::of(&outcome));
        let json = document.to_json().map_err(anyhow::Error::from).map_err(Stop::Failed)?;
        out.write_all(json.as_bytes())?;
    } else if profile {
        out.write_all(books::profile(&outcome, &crate::style()).as_bytes())?;
    } else {
        out.write_all(books::text(&outcome, &crate::style()).as_bytes())?;
    }
    out.flush()?;
    verdict(&outcome)
}

/// A run whose frames were not what they should be has failed.
fn verdict(outcome: &Outcome) -> Result<(), Stop> {
    match outcome.errors() {
        0 => Ok(()),
        errors => Err(Stop::Failed(anyhow::anyhow!(
            "{errors} frames were out of order, changed or unknown: the firmware is at fault"
        ))),
    }
}

fn write_trace(args: &TraceArgs) -> Result<(), Stop> {
    use flowyard_nicsim::Engine;
    let elf = args.machine.elf()?;
    let parts = args.machine.parts()?;
    let config = parts.config.clone();
    let failed = |error: &dyn std::fmt::Display| Stop::Failed(anyhow::anyhow!("{error}"));
    let cycles = |us: u64| (us as f64 * config.chip.mhz.hz() / 1e6) as u64;
    let mut engine = Reference::build(parts).map_err(|error| failed(&error))?;
    let warm = cycles(config.run.warmup_us);
    engine.run_to(warm).map_err(|error| failed(&error))?;
    engine.accesses = Some(Vec::new());
    // Traces grow by a gigabyte in a second of simulated time: a millisecond is plenty.
    engine
        .run_to(warm + cycles(config.run.measure_us.min(1000)))
        .map_err(|error| failed(&error))?;
    let accesses = engine.accesses.take().unwrap_or_default();
    std::fs::write(&args.output, trace::encode(&accesses, trace::hash(&elf)))
        .map_err(|error| failed(&format!("{}: {error}", args.output.display())))?;
    writeln!(stdout(), "{}: {} accesses", args.output.display(), accesses.len())?;
    Ok(())
}

fn exhibit(args: &ExhibitArgs, table: bool) -> Result<(), Stop> {
    let number = args.number;
    if let Some(path) = &args.trace {
        if table || number != 3 {
            return Err(bad_input("--trace: only figure 3 is made of a trace"));
        }
        return show(&[of_trace(path)?], &args.show);
    }
    let (kind, there) = if table { ("table", "1 to 6") } else { ("figure", "3, 7 and 8") };
    let name = format!("nic-{kind}-{number}");
    let made = with_study(&args.show, |study| paper::make(&name, study).transpose())?;
    let made = made.ok_or_else(|| {
        bad_input(format!("{kind} {number}: there are {there}; the paper's others are drawings"))
    })?;
    show(&[made], &args.show)
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
        return Err(bad_input(format!("--measure-us: from 1 to 1000000, not {}", show.measure_us)));
    }
    let bar = Progress::new();
    let progress = |done: usize, of: usize| bar.at(done, of);
    let study =
        Study { threads: threads(show.threads), measure_us: show.measure_us, progress: &progress };
    make(&study).map_err(|error| Stop::Failed(error.into()))
}

pub(crate) fn threads(wanted: Option<usize>) -> usize {
    wanted.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1)
}

fn show(exhibits: &[Exhibit], args: &ShowArgs) -> Result<(), Stop> {
    let mut out = stdout().lock();
    if let Some(path) = &args.html {
        let line = std::env::args().collect::<Vec<_>>().join(" ");
        let mut page = Page::new("A programmable 10 Gb/s network interface")
            .subtitle("Willmann, Kim, Rixner and Pai (HPCA 2005): the paper's numbers beside ours")
            .command(line);
        for exhibit in exhibits {
            let mut section = Section::new(format!("{}: {}", exhibit.place, exhibit.title));
            for plot in &exhibit.plots {
                section = section.plot(plot.clone());
            }
            page = page.section(section.table(exhibit.numbers()).list(exhibit.remarks()));
        }
        html::write(path, &page).map_err(|error| Stop::Failed(error.into()))?;
    }
    if args.json {
        let document = Document::new("flowyard.nic-exhibits/2", Exhibits { exhibits });
        let json = document.to_json().map_err(anyhow::Error::from).map_err(Stop::Failed)?;
        out.write_all(json.as_bytes())?;
    } else {
        for exhibit in exhibits {
            if args.csv {
                out.write_all(exhibit.csv().as_bytes())?;
            } else {
                out.write_all(exhibit.table().to_text(&crate::style()).as_bytes())?;
                writeln!(out)?;
            }
        }
        if let (Some(path), false) = (&args.html, args.csv) {
            writeln!(out, "Page with plots: {}", path.display())?;
        }
    }
    Ok(out.flush()?)
}

#[derive(serde::Serialize)]
struct Exhibits<'a> {
    exhibits: &'a [Exhibit],
}

/// A progress bar over runs on a terminal; nothing in a pipe.
pub(crate) struct Progress(Option<ProgressBar>);

impl Progress {
    pub(crate) fn new() -> Self {
        let style = ProgressStyle::with_template("{wide_bar} {pos} of {len} runs, {eta} left");
        let bar = stderr().is_terminal().then(|| ProgressBar::new(0));
        Self(bar.zip(style.ok()).map(|(bar, style)| bar.with_style(style)))
    }

    pub(crate) fn at(&self, done: usize, of: usize) {
        if let Some(bar) = &self.0 {
            bar.set_length(of as u64);
            bar.set_position(done as u64);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

//! `flowyard bench qualify`: checks of the tester itself, in virtual time and in real time.
//!
//! ```text
//!  --interfaces a,b              a ───────── b         a cable: measures the tester's own rate
//!  --interfaces a,b --faulty c,d a ── c [X] d ── b     X is the faulty device, run by a thread
//! ```

use std::io::{Write, stdout};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flowyard_frame::Nanos;
use flowyard_report::Document as Json;
use flowyard_rfc2544::dut::{Faults, Faulty, Truth};
use flowyard_rfc2544::line::{Line, Load};
use flowyard_rfc2544::profile::{Profile, Test};
use flowyard_rfc2544::qualify::{Check, faulty, loopback, modes, table, virtual_checks};
use flowyard_rfc2544::setup::{Setup, Topology, Waits};
use flowyard_rfc2544::suite::{self, NoJournal};
use flowyard_rfc2544::tester::{Measure, RealTester, Wire};
use flowyard_rfc2544::traffic::{Addresses, Genome, Spec};
use flowyard_rfc2544::{Dut, Trial};
use serde::{Deserialize, Serialize};

use super::live::{Kind, LiveBench, Port};
use super::options::time;
use crate::stop::{Stop, bad_input};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard bench qualify --seeds 100
  flowyard bench qualify --interfaces a,b --json > tester.json   # a and b are connected by a cable
  flowyard bench rfc2544 --interfaces c,d --tester tester.json
  flowyard bench qualify --interfaces a,b --faulty c,d           # a to c and b to d are cables

Without --interfaces everything runs in virtual time. The exit status is 1 if a check fails.")]
pub(crate) struct Args {
    /// Number of runs of the faulty device for each fault and frame size, 1 to 10000
    #[arg(long, value_name = "N", default_value_t = 100)]
    seeds: u64,

    /// Check the tester in real time on these two interfaces, which a cable connects; they must be in a
    /// network namespace of their own, see --isolated
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    interfaces: Vec<String>,

    /// Run the faulty device between these two interfaces, each of which a cable connects to one of
    /// --interfaces
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "interfaces")]
    faulty: Vec<String>,

    /// Kind of socket that the tester uses on the interfaces
    #[arg(long, value_enum, default_value_t = Kind::Mixed)]
    port: Kind,

    /// Duration of each trial in seconds, with --interfaces
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    seconds: f64,

    /// Number of times that the rate search is repeated for each size, 1 to 100, with --interfaces
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,

    /// Frame sizes in bytes with FCS, separated by blanks, with --interfaces
    #[arg(long, value_name = "SIZES", default_value = "64 128 256 512 1024 1280 1518")]
    sizes: String,

    /// Send in one direction only, with --interfaces
    #[arg(long)]
    uni: bool,

    /// Declare that the interfaces are isolated from every production network (RFC 6815); skips the
    /// check for a network namespace and a default route
    #[arg(long)]
    isolated: bool,

    /// Print JSON (schema flowyard.bench-qualify/1) instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Serialize, Deserialize)]
struct Checks {
    checks: Vec<Check>,
    holds: bool,
    /// The tester's own highest rate by frame size; empty in virtual time.
    #[serde(default)]
    limits: Vec<(Genome, Load)>,
}

/// The tester's own highest rates by frame size, from a file that `--json` wrote.
pub(super) fn limits(path: &Path) -> Result<Vec<(Genome, Load)>, Stop> {
    read(path).map(|read| read.limits)
}

/// The results of the tester's checks, from the same file.
pub(super) fn checks(path: &Path) -> Result<Vec<Check>, Stop> {
    read(path).map(|read| read.checks)
}

fn read(path: &Path) -> Result<Checks, Stop> {
    let name = path.display();
    let fix = "--tester needs the output of 'bench qualify --interfaces' with --json";
    let text =
        std::fs::read_to_string(path).map_err(|e| bad_input(format!("{name}: {e}; {fix}")))?;
    let checks: Checks =
        serde_json::from_str(&text).map_err(|e| bad_input(format!("{name}: {e}; {fix}")))?;
    if checks.limits.is_empty() {
        return Err(bad_input(format!(
            "{name}: the file has no rate of the tester in real time; {fix}"
        )));
    }
    Ok(checks)
}

pub(super) fn run(args: &Args) -> Result<(), Stop> {
    if !(1..=10_000).contains(&args.seeds) {
        return Err(bad_input(format!("--seeds: must be 1 to 10000, not {}", args.seeds)));
    }
    let failed = |error: flowyard_rfc2544::MeasureError| Stop::Failed(error.into());
    let (checks, limits) = match (args.interfaces.as_slice(), args.faulty.as_slice()) {
        ([], _) => (virtual_checks(Line::GBIT_1, args.seeds).map_err(failed)?, Vec::new()),
        ([_, _], []) => on_cable(args)?,
        ([_, _], [_, _]) => (around_faults(args)?, Vec::new()),
        _ => {
            return Err(bad_input("--interfaces, --faulty: give two interfaces each, such as a,b"));
        }
    };
    let holds = checks.iter().all(|check| check.holds);
    let mut out = stdout().lock();
    if args.json {
        let json = Json::new("flowyard.bench-qualify/1", Checks { checks, holds, limits });
        out.write_all(json.to_json().map_err(|error| Stop::Failed(error.into()))?.as_bytes())?;
    } else {
        out.write_all(table(&checks).to_text(&crate::style()).as_bytes())?;
    }
    out.flush()?;
    if holds { Ok(()) } else { Err(Stop::Failed(anyhow::anyhow!("a check of the tester failed"))) }
}

fn sizes(args: &Args) -> Result<Vec<Genome>, Stop> {
    let each = args.sizes.split_whitespace().map(str::parse::<Genome>);
    each.collect::<Result<_, _>>().map_err(|error| bad_input(format!("--sizes: {error}")))
}

fn full(args: &Args) -> Result<Nanos, Stop> {
    let seconds = Duration::try_from_secs_f64(args.seconds)
        .map_err(|error| bad_input(format!("--seconds: {error}; write seconds as 2 or 0.5")))?;
    time("--seconds", seconds)
}

type Shown = (Vec<Check>, Vec<(Genome, Load)>);

/// Checks T1, T2, T5 and T6 of docs/bench.md, on a cable.
fn on_cable(args: &Args) -> Result<Shown, Stop> {
    let profile = Profile {
        sizes: sizes(args)?,
        tests: vec![Test::Throughput],
        topology: if args.uni { Topology::Uni } else { Topology::Pairs(2) },
        ..Profile::rfc2544(Line::GBIT_10).brief(full(args)?, args.repeat)
    };
    let clock = crate::run::clock();
    let now = || clock();
    let wires = Port::open_all(&args.interfaces, args.port, args.isolated)?;
    let mut bench = LiveBench { wires, clock: &now, reset: None };
    let results = suite::run(&profile, &mut bench, &mut NoJournal, &mut |_| ());
    Ok(loopback(&results.map_err(|error| Stop::Failed(error.into()))?))
}

/// Check T9 of docs/bench.md, in real time.
fn around_faults(args: &Args) -> Result<Vec<Check>, Stop> {
    let (full, sizes) = (full(args)?, sizes(args)?);
    let clock = crate::run::clock();
    let now = || clock();
    let mut wires = Port::open_all(&args.interfaces, args.port, args.isolated)?;
    let mut ports = Port::open_all(&args.faulty, Kind::AfPacket, args.isolated)?;
    let mut checks = Vec::new();
    for (mode, faults) in modes() {
        for size in sizes.iter().filter_map(Genome::single) {
            let spec = Spec { flows: 3, addresses: Addresses::Random, ..Spec::fixed(size) };
            let Waits { settle, residue, rest } = Waits::SHORT;
            let setup = Setup {
                learning: false,
                settle,
                residue,
                rest,
                ..Setup::new(Line::GBIT_1, Topology::Uni, spec)
            };
            let mut tester = RealTester::new(&mut wires, &now, setup)
                .map_err(|error| Stop::Failed(error.into()))?;
            let is_over = AtomicBool::new(false);
            let trial = Trial::new(Load::from_pps(4000.0), full);
            let (truth, result) = std::thread::scope(|scope| {
                let device = scope.spawn(|| device(&mut ports, faults, 1, &clock, &is_over));
                let result = tester.measure(&trial);
                is_over.store(true, Ordering::Release);
                (device.join(), result)
            });
            let result = result.map_err(|error| Stop::Failed(error.into()))?;
            let truth = truth
                .map_err(|_| Stop::Failed(anyhow::anyhow!("the faulty device panicked")))?
                .map_err(|error| Stop::Failed(anyhow::anyhow!(error)))?;
            checks.push(faulty(mode, size, &result.counts, &truth));
        }
    }
    Ok(checks)
}

/// Runs the faulty device on two ports until `is_over`.
fn device(
    ports: &mut [Port],
    faults: Faults,
    seed: u64,
    clock: &flowyard_yard::Clock,
    is_over: &AtomicBool,
) -> Result<Truth, String> {
    let mut device = Faulty::new(2, faults, seed);
    let mut out = Vec::new();
    while !is_over.load(Ordering::Acquire) {
        let mut seen = false;
        for (port, wire) in ports.iter_mut().enumerate() {
            wire.receive(&mut |frame| {
                seen = true;
                device.offer(clock(), port as u8, frame);
            });
        }
        device.collect(clock(), &mut |_, port, frame| out.push((port, frame.to_vec())));
        for (port, frame) in out.drain(..) {
            let Some(wire) = ports.get_mut(usize::from(port)) else { continue };
            while wire.send(&[&frame])? == 0 {}
        }
        if !seen {
            std::thread::yield_now();
        }
    }
    let drops: u64 = ports.iter_mut().map(Wire::drops).sum();
    if drops > 0 {
        return Err(format!(
            "the faulty device itself could not receive {drops} frames: the machine is too busy"
        ));
    }
    Ok(device.truth())
}

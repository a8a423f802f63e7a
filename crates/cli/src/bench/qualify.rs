//! `flowyard bench qualify`: what the tester proves of itself, under virtual time and in real time.
//!
//! ```text
//!  --interfaces a,b              a ───────── b         a cable: how fast is the tester itself?
//!  --interfaces a,b --faulty c,d a ── c [X] d ── b     X is the faulty device, on a thread
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

/// What the tester proves of itself: loopback, conservation, repeatability, 2^32 frames, and the truth
/// about a faulty device in every fault, at every size.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard bench qualify --seeds 100
  flowyard bench qualify --interfaces a,b --json > tester.json   # a and b are joined by a cable
  flowyard bench rfc2544 --interfaces c,d --tester tester.json
  flowyard bench qualify --interfaces a,b --faulty c,d           # a to c and b to d are cables")]
pub(crate) struct Args {
    /// Runs of the faulty device for each fault and size
    #[arg(long, value_name = "N", default_value_t = 100)]
    seeds: u64,

    /// In real time, between these two interfaces, which a cable joins; inside a network namespace
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    interfaces: Vec<String>,

    /// The faulty device is between these two interfaces, and cables join them to the others
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "interfaces")]
    faulty: Vec<String>,

    /// What the tester's ports are
    #[arg(long, value_enum, default_value_t = Kind::Mixed)]
    port: Kind,

    /// Length of the trials that count, in real time
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    seconds: f64,

    /// How often each rate is searched, in real time
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,

    /// Frame sizes, in real time
    #[arg(long, value_name = "SIZES", default_value = "64 128 256 512 1024 1280 1518")]
    sizes: String,

    /// One way only, in real time
    #[arg(long)]
    uni: bool,

    /// The interfaces are isolated from every network that others use (RFC 6815), wherever they are
    #[arg(long)]
    isolated: bool,

    /// Print JSON (schema flowyard.bench-qualify/2)
    #[arg(long)]
    json: bool,
}

#[derive(Serialize, Deserialize)]
struct Checks {
    checks: Vec<Check>,
    holds: bool,
    /// The fastest that the tester was, by size: empty under virtual time.
    #[serde(default)]
    limits: Vec<(Genome, Load)>,
}

/// How fast the tester was shown to be, by size, out of what `--json` printed.
pub(super) fn limits(path: &Path) -> Result<Vec<(Genome, Load)>, Stop> {
    read(path).map(|read| read.limits)
}

/// What it was shown to do, out of the same.
pub(super) fn checks(path: &Path) -> Result<Vec<Check>, Stop> {
    read(path).map(|read| read.checks)
}

fn read(path: &Path) -> Result<Checks, Stop> {
    let name = path.display();
    let mend = "--tester wants the output of 'bench qualify --interfaces' with --json";
    let text =
        std::fs::read_to_string(path).map_err(|e| bad_input(format!("{name}: {e}; {mend}")))?;
    let checks: Checks =
        serde_json::from_str(&text).map_err(|e| bad_input(format!("{name}: {e}; {mend}")))?;
    if checks.limits.is_empty() {
        return Err(bad_input(format!("{name}: no rate of the tester in real time; {mend}")));
    }
    Ok(checks)
}

pub(super) fn run(args: &Args) -> Result<(), Stop> {
    if !(1..=10_000).contains(&args.seeds) {
        return Err(bad_input(format!("--seeds: from 1 to 10000, not {}", args.seeds)));
    }
    let failed = |error: flowyard_rfc2544::MeasureError| Stop::Failed(error.into());
    let (checks, limits) = match (args.interfaces.as_slice(), args.faulty.as_slice()) {
        ([], _) => (virtual_checks(Line::GBIT_1, args.seeds).map_err(failed)?, Vec::new()),
        ([_, _], []) => on_cable(args)?,
        ([_, _], [_, _]) => (around_faults(args)?, Vec::new()),
        _ => return Err(bad_input("--interfaces, --faulty: two each, such as a,b")),
    };
    let holds = checks.iter().all(|check| check.passed);
    let mut out = stdout().lock();
    if args.json {
        let json = Json::new("flowyard.bench-qualify/2", Checks { checks, holds, limits });
        out.write_all(json.to_json().map_err(|error| Stop::Failed(error.into()))?.as_bytes())?;
    } else {
        out.write_all(table(&checks).to_text(&crate::style()).as_bytes())?;
    }
    out.flush()?;
    if holds { Ok(()) } else { Err(Stop::Failed(anyhow::anyhow!("the tester does not qualify"))) }
}

fn sizes(args: &Args) -> Result<Vec<Genome>, Stop> {
    let each = args.sizes.split_whitespace().map(str::parse::<Genome>);
    each.collect::<Result<_, _>>().map_err(|error| bad_input(format!("--sizes: {error}")))
}

fn full(args: &Args) -> Result<Nanos, Stop> {
    let seconds = Duration::try_from_secs_f64(args.seconds)
        .map_err(|error| bad_input(format!("--seconds: {error}; such as 2 or 0.5")))?;
    time("--seconds", seconds)
}

type Shown = (Vec<Check>, Vec<(Genome, Load)>);

/// T1, T2, T5 and T6 on a cable.
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

/// T9 in real time.
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

/// The faulty device on two ports, until `is_over`.
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
            "the faulty device itself missed {drops} frames: the machine is too busy"
        ));
    }
    Ok(device.truth())
}

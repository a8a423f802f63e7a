//! `flowyard predict`: what a machine that the user describes serves, and which cost or setting moves that most.
//!
//! ```text
//!  costs, settings ──> Case ──> Prediction ─────────────────────────────┐
//!                       └── each input times 0.5 and 2 ──> Sensitivity ─┴─> tables, page, JSON
//! ```

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use flowyard_adapter::Profile as Adapter;
use flowyard_hostsim::predict::{
    Case, Costs, Interrupts, Model, PredictError, Prediction, Server, WAYS, Yard,
};
use flowyard_hostsim::server::{SetupError, Steering};
use flowyard_hostsim::{Machine, Profile};
use flowyard_report::exhibit::{FACTORS, Rows, Sensitivity};
use schemars::JsonSchema;
use serde::Serialize;

use crate::outfile::{self, OutFile};
use crate::output::{self, Progress};
use crate::parallel::in_parallel;
use crate::stop::{Stop, bad_input};

mod page;
mod values;

#[derive(clap::Args)]
#[command(after_help = "\
Models:
  server  requests to a server such as memcached behind an adapter: requests/s, latency, loss by offered load
  yard    frames of one flow through the engine in order: frames/s by number of cores, and loss by offered load

Examples:
  flowyard predict
  flowyard predict --adapter e810 --steering rfs --queues 8 --machine 1x16x2 --connections 1000
  flowyard predict --set stack_ns=700 --set request_ns=2us --html predict.html
  flowyard predict --profile here.toml --machine 2x16x1 --json
  flowyard predict --model yard --profile here.toml --threads 4 --work 1us

Costs that neither --profile nor --set has are those of the server of the Flow Director paper. Every number in the
result says how it was obtained: measured, given, published, assumed or fitted. The models are those of `flowyard figures`.")]
pub(crate) struct Args {
    /// What to predict
    #[arg(long, value_enum, default_value_t = Kind::Server)]
    model: Kind,

    /// Adapter of the server; `flowyard adapters` lists them [default: x520]
    #[arg(long, value_name = "NAME")]
    adapter: Option<String>,

    /// How the processor of a received frame is chosen: rss, rps, rfs, atr, settled (atr with flowyard's settle stage),
    /// ep (filters that software programs) [default: atr if the model has it for the adapter, or else rss]
    #[arg(long, value_name = "WAY", value_parser = values::way)]
    steering: Option<Steering>,

    /// Number of receive queues of the server; queue Q interrupts processor Q [default: one for each processor, as far as
    /// the adapter can address them]
    #[arg(long, value_name = "N", value_parser = crate::args::at_least_one)]
    queues: Option<usize>,

    /// Number of threads: of the server [default: one for each processor], or of the engine [default: 8]
    #[arg(long, value_name = "N", value_parser = crate::args::at_least_one)]
    threads: Option<usize>,

    /// Number of connections to the server, at most 1000000 [default: 120]
    #[arg(long, value_name = "N", value_parser = crate::args::at_least_one)]
    connections: Option<usize>,

    /// When the adapter interrupts: off (at once), ixgbe (adaptive), or a time between two interrupts such as 50us
    /// [default: ixgbe for its adapters, or else 50us]
    #[arg(long, value_name = "INTERVAL", value_parser = values::interrupts)]
    itr: Option<Interrupts>,

    /// The mean latency above which the server counts as overloaded [default: 100us]
    #[arg(long, value_name = "TIME", value_parser = values::time)]
    latency: Option<f64>,

    /// Work on each frame of model yard [default: 273ns]
    #[arg(long, value_name = "TIME", value_parser = values::time)]
    work: Option<f64>,

    /// Costs of a machine, written by `flowyard calibrate`
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,

    /// Set a cost, such as stack_ns=700; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = values::cost)]
    set: Vec<(String, f64)>,

    /// Processors of the server: sockets x cores of each x threads of each core [default: those of the profile]
    #[arg(long, value_name = "SxCxT", value_parser = values::machine)]
    machine: Option<Machine>,

    /// Do not change each input to see which one moves the result most
    #[arg(long)]
    no_sensitivity: bool,

    /// Number of threads that compute in parallel [default: the number of CPUs]
    #[arg(long, value_name = "N", value_parser = crate::args::at_least_one)]
    jobs: Option<usize>,

    /// Also write the curves, the bars and all numbers to this file, as one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Print JSON (schema flowyard.predict/1) instead of tables
    #[arg(long)]
    json: bool,
}

/// A model.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Kind {
    /// Requests to a server behind an adapter
    Server,
    /// Frames through the engine
    Yard,
}

/// Name and version of the JSON document; see docs/schema.
pub(crate) const SCHEMA: &str = "flowyard.predict/1";

/// What a model predicts for a machine, and which input moves the result most.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Results<'a> {
    /// The prediction.
    prediction: &'a Prediction,
    /// The effect of each input on the first of the rows, largest first; null with --no-sensitivity.
    sensitivity: Option<&'a Sensitivity>,
}

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    args.check()?;
    outfile::distinct(&[("--html", "page", args.html.as_deref())], args.profile.as_deref())?;
    let file = OutFile::new(args.html.as_ref(), "page")?;
    let case = args.case()?;
    let prediction = case.predict().map_err(stop)?;
    let jobs = args.jobs.unwrap_or_else(flowyard_bench::processors);
    let effects = match args.no_sensitivity {
        true => None,
        false => Some(sensitivity(&case, &prediction, jobs)?),
    };
    let page = || page::page(&prediction, effects.as_ref());
    let written = file.map_or(Ok(()), |file| file.write_page(&page()));
    if args.json {
        let results = Results { prediction: &prediction, sensitivity: effects.as_ref() };
        output::json(SCHEMA, results)?;
        return written;
    }
    let mut text = page::text(&prediction, effects.as_ref());
    if let (Some(path), Ok(())) = (&args.html, &written) {
        text += &format!("\nPage with plots: {}\n", path.display());
    }
    output::text(&text)?;
    written
}

/// The profile in a file.
pub(crate) fn read_profile(path: &Path) -> Result<Profile, Stop> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| {
        bad_input(format!("{file}: {error}; `flowyard calibrate --output {file}` writes a profile"))
    })?;
    Profile::parse(&file, &text).map_err(bad_input)
}

impl Args {
    /// Refuses options that the model does not have.
    fn check(&self) -> Result<(), Stop> {
        let server = [
            ("--adapter", self.adapter.is_some()),
            ("--steering", self.steering.is_some()),
            ("--queues", self.queues.is_some()),
            ("--connections", self.connections.is_some()),
            ("--itr", self.itr.is_some()),
            ("--latency", self.latency.is_some()),
            ("--machine", self.machine.is_some()),
        ];
        let yard = [("--work", self.work.is_some())];
        let (wrong, of): (&[_], _) = match self.model {
            Kind::Server => (&yard, "yard"),
            Kind::Yard => (&server, "server"),
        };
        match wrong.iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) => Err(bad_input(format!(
                "{option}: only the model {of} has it; leave it out, or add --model {of}"
            ))),
            None => Ok(()),
        }
    }

    fn given(&self) -> Result<Option<Profile>, Stop> {
        self.profile.as_deref().map(read_profile).transpose()
    }

    fn case(&self) -> Result<Case, Stop> {
        let given = self.given()?;
        let number = |value: Option<usize>| value.map(|value| value as f64);
        let (mut costs, settings, model) = match self.model {
            Kind::Server => {
                let adapter = self.adapter.as_deref().map(adapter).transpose()?;
                let mut costs = Costs::server(given.as_ref()).map_err(stop)?;
                costs.machine = self.machine.unwrap_or(costs.machine);
                let server = Server::new(adapter, self.steering, self.itr).map_err(stop)?;
                let settings = server.settings(
                    costs.machine.cpus(),
                    number(self.queues),
                    number(self.threads),
                    number(self.connections),
                    self.latency.map(|ns| ns / 1e3),
                );
                (costs, settings, Model::Server(server))
            }
            Kind::Yard => {
                let given = given.ok_or_else(|| {
                    bad_input(
                        "--model yard: needs --profile FILE; `flowyard calibrate --output FILE` measures the engine's costs",
                    )
                })?;
                let costs = Costs::yard(&given).map_err(stop)?;
                (costs, Yard::settings(number(self.threads), self.work), Model::Yard(Yard))
            }
        };
        for (name, value) in &self.set {
            costs.set(name, *value).map_err(|error| bad_input(format!("--set: {error}")))?;
        }
        Ok(Case { costs, settings, model })
    }
}

fn adapter(name: &str) -> Result<&'static Adapter, Stop> {
    Adapter::find(name).ok_or_else(|| {
        let all: Vec<&str> = Adapter::ALL.iter().map(|adapter| adapter.name).collect();
        bad_input(format!(
            "--adapter: there is no adapter '{name}'; choose one of {}",
            all.join(", ")
        ))
    })
}

/// Wrong use, or a failure.
fn stop(error: PredictError) -> Stop {
    match error {
        PredictError::Setting { name, why } => {
            bad_input(format!("{}: {why}", values::option(name)))
        }
        PredictError::Limit { .. } => {
            Stop::Failed(anyhow::anyhow!("{error}; give a higher one by --latency"))
        }
        PredictError::Unbalanced | PredictError::Setup(SetupError::Number(_)) => {
            Stop::Failed(error.into())
        }
        PredictError::Profile(_) | PredictError::Setup(_) | PredictError::Cost { .. } => {
            bad_input(error)
        }
    }
}

/// The rows with each input of `prediction` times 0.5 and times 2. A change that is not possible, such as more queues
/// than processors, has no rows.
fn sensitivity(case: &Case, prediction: &Prediction, jobs: usize) -> Result<Sensitivity, Stop> {
    let inputs = &prediction.inputs;
    let runs: Vec<(&str, f64)> =
        inputs.iter().flat_map(|input| FACTORS.map(|factor| (&*input.name, factor))).collect();
    let bar = Progress::new("{bar:40} {pos}/{len} changed inputs, {eta} left; {msg}");
    let done = AtomicUsize::new(0);
    let rows = in_parallel(&runs, jobs, |(input, factor)| {
        let rows = case.times(input, *factor).rows_beside(prediction);
        let count = done.fetch_add(1, Ordering::Relaxed) + 1;
        bar.at(count as u64, runs.len() as u64);
        bar.message((*input).to_owned());
        match rows {
            Err(PredictError::Setting { .. } | PredictError::Limit { .. }) => Ok(Rows::new()),
            rows => rows.map_err(stop),
        }
    });
    drop(bar);
    let rows = rows.into_iter().collect::<Result<Vec<Rows>, Stop>>()?;
    let pairs: Vec<[Rows; 2]> =
        rows.chunks_exact(2).map(|pair| [pair[0].clone(), pair[1].clone()]).collect();
    let values = prediction.values();
    let result = values.first().map_or("", |(name, _)| name);
    Ok(Sensitivity::new(&prediction.model, result, &values, inputs, &pairs))
}

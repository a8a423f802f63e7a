//! `flowyard plan`: a plan of changes of an interface's settings, which is reviewed and applied later.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flowyard_frame::FlowKey;
use flowyard_host::{Effect, Goal, Plan, plan};
use flowyard_report::{Cell, Column, Document, Table};

use crate::outfile::{self, OutFile};
use crate::output::{self, style};
use crate::stop::{Stop, bad_input};
use crate::{host, live};

/// Name and version of the JSON document; see docs/schema.
pub(crate) const SCHEMA: &str = "flowyard.plan/1";

#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("traffic").args(["capture", "seconds"]).required(true)))]
#[command(after_help = "\
Goals:
  balance         every queue and CPU gets an equal share of the traffic
  locality        frames are processed near the adapter, and where the application reads them
  isolate=FLOW    a flow, as 'tcp 10.0.0.1:40000 > 10.0.0.2:80', has a queue of its own; fields that are zero, as in
                  'tcp 0.0.0.0:0 > 10.0.0.2:80', match all flows; with --queues N they have N queues (RSS contexts)
  symmetric       both directions of a connection go to one CPU
  spread-tunnels  connections inside a tunnel go to different CPUs

Examples:
  flowyard plan eth0 --goal balance --seconds 10
  flowyard plan eth0 --goal balance --capture today.pcap -o plan.json
  flowyard plan eth0 --goal 'isolate=tcp 10.0.0.1:40000 > 10.0.0.2:80' --capture today.pcap --json

The command changes nothing. The exit status is 0 also if the plan has no steps.")]
pub(crate) struct Args {
    /// The interface
    #[arg(value_name = "IFACE")]
    interface: String,

    /// What the plan is for: balance, locality, isolate=FLOW, symmetric, spread-tunnels
    #[arg(long, value_name = "GOAL", value_parser = goal)]
    goal: Goal,

    /// With the goal isolate=FLOW: number of queues for the flows that match, by an RSS context if more than one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    queues: Option<u32>,

    /// Plan for the traffic of this capture (may be repeated)
    #[arg(long, value_name = "FILE")]
    capture: Vec<String>,

    /// Plan for the live traffic of this many seconds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: Option<u32>,

    /// Write the plan to this file, for `flowyard apply`
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    output: Option<PathBuf>,

    /// Print JSON (schema flowyard.plan/1) instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    let goal = match (args.goal.clone(), args.queues) {
        (Goal::Isolate(flow), Some(queues @ 2..)) => Goal::Group(flow, queues),
        (goal @ Goal::Isolate(_), _) | (goal, None) => goal,
        (_, Some(_)) => return Err(bad_input("--queues: only the goal isolate=FLOW has it")),
    };
    let writes = [("--output", "plan", args.output.as_deref())];
    outfile::distinct(&writes, args.capture.iter().map(Path::new))?;
    let file = OutFile::new(args.output.as_ref(), "plan")?;
    let state = host::read(&args.interface)?;
    let (traffic, source) = match args.seconds {
        Some(seconds) => {
            let time = Duration::from_secs(seconds.into());
            (live::traffic(&args.interface, state.index, time)?, "live".to_owned())
        }
        None => (live::captured(&args.interface, &args.capture)?, args.capture.join(", ")),
    };
    // The settings may have changed while the traffic was read.
    let state = host::read(&args.interface)?;
    let plan = plan(&state, &goal, &traffic, &source);
    let document = Document::new(SCHEMA, &plan).to_json();
    let document = document.map_err(|error| Stop::Failed(error.into()))?;
    let written = file.map_or(Ok(()), |file| file.write(document.as_bytes()));
    if args.json {
        output::json(SCHEMA, &plan)?;
    } else {
        output::text(&text(&plan))?;
    }
    written
}

/// Reads a plan that `flowyard plan -o` has written.
pub(crate) fn read(path: &Path) -> Result<Plan, Stop> {
    let name = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| {
        bad_input(format!("{name}: {error}; name a plan of `flowyard plan -o`"))
    })?;
    let wrong = |why: String| {
        bad_input(format!("{name}: this is not a plan: {why}; make one with `flowyard plan -o`"))
    };
    Plan::parse(&text, SCHEMA).map_err(wrong)
}

fn goal(text: &str) -> Result<Goal, String> {
    if let Some(flow) = text.strip_prefix("isolate=") {
        return flow.parse::<FlowKey>().map(Goal::Isolate).map_err(|error| error.to_string());
    }
    Ok(match text {
        "balance" => Goal::Balance,
        "locality" => Goal::Locality,
        "symmetric" => Goal::Symmetric,
        "spread-tunnels" => Goal::SpreadTunnels,
        other => {
            return Err(format!(
                "there is no goal '{other}'; choose balance, locality, isolate=FLOW, symmetric or spread-tunnels"
            ));
        }
    })
}

/// The plan for a person who reviews it.
pub(crate) fn text(plan: &Plan) -> String {
    let mut text = String::new();
    let mut line = |what: String| {
        let _infallible = writeln!(text, "{what}");
    };
    let seen = &plan.traffic;
    let driver = match plan.driver.as_str() {
        "" => String::new(),
        driver => format!(" ({driver})"),
    };
    line(format!("Plan for {}{driver}, goal {}", plan.interface, plan.goal));
    line(format!(
        "Traffic: {} frames of {} flows in {:.1} s, from {}",
        seen.frames, seen.flows, seen.seconds, seen.source
    ));
    if plan.steps.is_empty() {
        line(
            "\nNo changes: the settings serve the goal as they are, or cannot be changed."
                .to_owned(),
        );
    } else {
        line("\nSteps:".to_owned());
    }
    for (number, step) in (1..).zip(&plan.steps) {
        line(format!("{number:3}. {}: {}", step.setting, difference(&step.from, &step.to)));
        line(format!("     why: {}", step.why));
    }
    for refusal in &plan.refusals {
        let (what, limit, source) = (&refusal.what, &refusal.limit, &refusal.source);
        line(format!("\nNot possible: {what}\n     limit: {limit}\n     source: {source}"));
    }
    line(String::new());
    text += &effects(plan).to_text(&style());
    if let Some(why) = &plan.today.why_unknown {
        let _infallible = writeln!(text, "The queue of a flow is not predictable: {why}");
    }
    let shown = |value: Option<String>| value.unwrap_or_else(|| "not known".to_owned());
    let _infallible = writeln!(
        text,
        "\nFlows that move to another CPU: {}; frames that could be overtaken while the settings change: {}",
        shown(plan.change.moved_flows.map(|flows| flows.to_string())),
        shown(plan.change.frames_at_risk.map(|frames| format!("{frames:.1}"))),
    );
    for note in &plan.notes {
        let _infallible = writeln!(text, "Note: {note}");
    }
    if !plan.commands.is_empty() {
        let _infallible =
            writeln!(text, "\nThe same as commands:\n  {}", plan.commands.join("\n  "));
    }
    text
}

/// A change of a value; of a long list only the places that differ.
fn difference(from: &str, to: &str) -> String {
    let (old, new): (Vec<_>, Vec<_>) = (from.split(' ').collect(), to.split(' ').collect());
    let entries = new.iter().take_while(|word| word.parse::<u32>().is_ok()).count();
    if from == "none" && entries >= 16 {
        return format!("{from} -> {} ... ({entries} entries)", new[..8].join(" "));
    }
    if old.len() < 16 || old.len() != new.len() {
        return format!("{from} -> {to}");
    }
    let changed: Vec<_> = (0..old.len()).filter(|&at| old[at] != new[at]).collect();
    const MOST: usize = 8;
    let shown = changed.iter().take(MOST).map(|&at| format!("[{at}] {} -> {}", old[at], new[at]));
    let more = match changed.len().saturating_sub(MOST) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let shown: Vec<_> = shown.collect();
    format!("{} of {} entries: {}{more}", changed.len(), old.len(), shown.join(", "))
}

fn effects(plan: &Plan) -> Table {
    let mut table = Table::new("Predicted effect")
        .column(Column::text(""))
        .column(Column::number("today"))
        .column(Column::number("planned"));
    let percent = |share: Option<f64>| {
        share.map_or_else(|| "not known".to_owned(), |share| format!("{:.1} %", 100.0 * share))
    };
    let mut row = |name: String, of: &dyn Fn(&Effect) -> String| {
        table.push([Cell::new(name), Cell::new(of(&plan.today)), Cell::new(of(&plan.planned))]);
    };
    let mut cpus: Vec<_> = plan.today.cpus.keys().chain(plan.planned.cpus.keys()).collect();
    cpus.sort_unstable();
    cpus.dedup();
    for cpu in cpus {
        row(format!("load of CPU {cpu}"), &|effect| {
            percent(Some(effect.cpus.get(cpu).copied().unwrap_or_default()))
        });
    }
    row("CPU not known".to_owned(), &|effect| percent(Some(effect.unknown)));
    row("busiest CPU to mean".to_owned(), &|effect| {
        effect.imbalance.map_or_else(|| "not known".to_owned(), |ratio| format!("{ratio:.2}"))
    });
    row("both directions on one CPU".to_owned(), &|effect| percent(effect.both_directions));
    row("frames that cross NUMA nodes".to_owned(), &|effect| percent(effect.numa_crossings));
    table
}

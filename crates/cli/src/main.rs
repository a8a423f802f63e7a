//! The `flowyard` command; the only place that reads its arguments and the clock.
//!
//! Exit status: 0 done, 1 failed on the way, 2 bad use or bad input. Nothing is half-written.

mod adapters;
mod analyze;
mod args;
mod bench;
mod calibrate;
mod doctor;
mod explain;
mod figures;
mod lb;
mod live;
mod logs;
mod nic;
mod run;
mod schema;
mod show;
mod stop;
mod switch;
mod top;
mod trace;

use std::io::{IsTerminal, Write, stdout};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use flowyard_report::Style;

/// Which core gets this packet, and why?
#[derive(Parser)]
#[command(name = "flowyard", version, propagate_version = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Steer a capture by every policy side by side: load, locality, filter tables, reordering
    Analyze(analyze::Args),
    /// Say which queue and core a flow gets, by which stage, and why not another
    Explain(explain::Args),
    /// Run a yard: receive, steer, work, transmit, and account for every frame
    Run(run::Args),
    /// Show what a running yard knows: tables, flows, elephants, drops, queues, cores
    Show(show::Args),
    /// Watch a running yard: cores, queues, tables, elephants, drops, by the second
    Top(top::Args),
    /// Follow one flow of a running yard through every stage, with the reason for each decision
    Trace(trace::Args),
    /// Speak OpenFlow with a switch: flows, groups, meters, ports, as ovs-ofctl does
    Switch(switch::Args),
    /// Show a running balancer, ask it where a flow goes, drain backends, set weights
    Lb(lb::Args),
    /// Check the machine: what stands in a yard's way, and the command that mends it
    Doctor(doctor::Args),
    /// Measure: how fast the engine is on this machine
    Bench(bench::Args),
    /// Measure what things cost on this machine, for the models: a profile
    Calibrate(calibrate::Args),
    /// The tables and figures of the source papers: their numbers beside ours
    Figures(figures::Args),
    /// List the adapters that flowyard models, with their limits
    Adapters(adapters::Args),
    /// Simulate a programmable adapter cycle by cycle, running real firmware
    Nic(nic::Args),
    /// Print the JSON Schema of a command's --json
    Schema(schema::Args),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if asks_for_help(&error) => error.exit(),
        Err(error) => return say(&usage(&error), 2),
    };
    let done = match cli.command {
        Command::Analyze(args) => analyze::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Show(args) => show::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Switch(args) => switch::run(&args),
        Command::Lb(args) => lb::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Figures(args) => figures::run(&args),
        Command::Adapters(args) => adapters::run(&args),
        Command::Nic(args) => nic::run(&args),
        Command::Schema(args) => schema::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) if stop.is_closed_pipe() => ExitCode::SUCCESS,
        Err(stop) => say(&stop.to_string(), stop.status()),
    }
}

/// One line on standard error, whatever a file name or an argument is made of.
fn say(what: &str, status: u8) -> ExitCode {
    let line = what.replace(char::is_control, " ");
    let _ = writeln!(std::io::stderr(), "flowyard: {line}");
    ExitCode::from(status)
}

fn asks_for_help(error: &clap::Error) -> bool {
    !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

/// What clap says in a paragraph, in a line: lists after a blank, sentences after a semicolon.
fn usage(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let mut line = String::new();
    for part in text.lines().filter(|part| !part.trim().is_empty()) {
        let part = part.strip_prefix("error: ").unwrap_or(part);
        if part.starts_with("For more information") {
            continue;
        }
        line += match part.starts_with("    ") || part.starts_with("  <") || part.starts_with("  [")
        {
            _ if line.is_empty() => "",
            true => " ",
            false => "; ",
        };
        line += part.trim();
    }
    line + "; try --help"
}

/// How tables look: in colour and as wide as the terminal, or plain in a pipe.
fn style() -> Style {
    if !stdout().is_terminal() {
        return Style::plain();
    }
    Style::terminal(terminal_size::terminal_size().map_or(100, |(width, _)| width.0 as usize))
}

//! The `flowyard` command: parses arguments, calls the other crates, prints what they return.
//!
//! Exit status: 0 for success, 1 for a failure at run time, 2 for wrong arguments or bad input. Output
//! files are written whole or not at all; a result that cannot be written is a failure. That the reader of standard
//! output has closed it is none.

mod adapters;
mod analyze;
mod apply;
mod args;
mod bench;
mod calibrate;
mod clock;
mod doctor;
mod explain;
mod figures;
mod fleet;
mod health_commands;
mod help;
mod host;
mod interrupt;
mod lb;
mod live;
mod logs;
mod manual;
mod nic;
mod outfile;
mod output;
mod parallel;
mod plan;
mod predict;
mod probe;
mod prove;
mod rebalance;
mod run;
mod schema;
mod show;
mod steer;
mod stop;
mod switch;
mod top;
mod trace;
mod watch_host;

use std::io::Write;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// The version, and the commit from which the program was built.
const VERSION: &str = env!("FLOWYARD_VERSION");

/// Steer network packets to CPU cores: a software data plane, models of network adapters, benchmarks
#[derive(Parser)]
#[command(name = "flowyard", version = VERSION, propagate_version = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compare steering policies on a captured packet trace: load, locality, filters, reordering
    Analyze(analyze::Args),
    /// Show which receive queue and CPU core a flow gets, and why
    Explain(explain::Args),
    /// Run the data plane that a configuration describes: receive, steer, process, transmit
    Run(run::Args),
    /// Show the state of a running instance: tables, flows, elephants, drops, queues, cores
    Show(show::Args),
    /// Watch a running instance: its cores, queues, tables and drops, updated every second
    Top(top::Args),
    /// Trace frames of one flow through every stage of a running instance, with each decision's reason
    Trace(trace::Args),
    /// Query and change an OpenFlow switch: flows, groups, meters, ports (syntax of ovs-ofctl)
    Switch(switch::Args),
    /// Query and change a running load balancer: services, backends, weights
    Lb(lb::Args),
    /// Show the balancers that share their services by etcd: generations, table checksums, who lags
    Fleet(fleet::Args),
    /// Check whether this machine is set up well for the data plane, and print the commands that fix it
    Doctor(doctor::Args),
    /// Measure the engine's speed on this machine, or test a network device by RFC 2544
    Bench(bench::Args),
    /// Measure what basic operations cost on this machine, and write the costs for the models to use
    Calibrate(calibrate::Args),
    /// Recompute the tables and figures of the source papers and print both numbers side by side
    Figures(figures::Args),
    /// Predict the load that a machine serves, and which cost or setting it depends on most
    Predict(predict::Args),
    /// Show the settings of an interface that decide where its frames go: RSS, interrupts, RPS, XPS
    Host(host::Args),
    /// Plan changes of an interface's settings for a goal, such as balance, and predict their effect
    Plan(plan::Args),
    /// Apply a plan: journal first, read back, undo unless confirmed
    Apply(apply::Apply),
    /// Undo the newest change that `flowyard apply` made to an interface
    Undo(apply::Undo),
    /// Confirm a change that `flowyard apply --confirm-within` would undo
    Confirm(apply::Confirm),
    /// Show by live traffic that flows reach the queues and CPUs that are predicted for them
    Prove(prove::Args),
    /// Report changes of an interface's settings by other programs, and traffic that leaves the prediction
    WatchHost(watch_host::Args),
    /// Move entries of an interface's indirection table from overloaded queues, while their flows pause
    Rebalance(rebalance::Args),
    /// Steer the frames of an interface in the kernel, by XDP, for any program
    Steer(steer::Args),
    /// List the network adapters that flowyard models, with their limits
    Adapters(adapters::Args),
    /// Simulate a programmable network adapter cycle by cycle, running real firmware
    Nic(nic::Args),
    /// Print the JSON Schema of a command's --json output
    Schema(schema::Args),
    /// Print a script with which a shell completes commands and options
    Completions(manual::Completions),
    /// Write manual pages for man(1)
    Man(manual::Man),
    /// Run the commands of health checks; `flowyard run` starts this
    #[command(hide = true)]
    HealthCommands,
}

fn main() -> ExitCode {
    let mut command = help::laid_out(Cli::command());
    let parsed = command.try_get_matches_from_mut(std::env::args_os());
    let read = |mut matches| Cli::from_arg_matches_mut(&mut matches);
    let cli = match parsed.and_then(read) {
        Ok(cli) => cli,
        Err(error) if is_help(&error) => return help::print(&error),
        Err(mut error) => {
            drop_suggestions(&mut error);
            return report(&usage(&error), 2);
        }
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
        Command::Fleet(args) => fleet::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Figures(args) => figures::run(&args),
        Command::Predict(args) => predict::run(&args),
        Command::Host(args) => host::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Apply(args) => apply::run(&args),
        Command::Undo(args) => apply::undo_last(&args),
        Command::Confirm(args) => apply::confirm(&args),
        Command::Prove(args) => prove::run(&args),
        Command::WatchHost(args) => watch_host::run(&args),
        Command::Rebalance(args) => rebalance::run(&args),
        Command::Steer(args) => steer::run(&args),
        Command::Adapters(args) => adapters::run(&args),
        Command::Nic(args) => nic::run(&args),
        Command::Schema(args) => schema::run(&args),
        Command::Completions(args) => manual::completions(&args),
        Command::Man(args) => manual::man(&args),
        Command::HealthCommands => health_commands::run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) if stop.is_closed_pipe() => ExitCode::SUCCESS,
        Err(stop) => report(&stop.to_string(), stop.status()),
    }
}

/// Prints an error as one line on standard error; control characters, such as a newline in a file
/// name, become blanks.
fn report(error: &str, status: u8) -> ExitCode {
    let line = error.replace(char::is_control, " ");
    let _ = writeln!(std::io::stderr(), "flowyard: {line}");
    ExitCode::from(status)
}

fn is_help(error: &clap::Error) -> bool {
    !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

/// Removes suggestions that do not resemble what was written. clap suggests `--rounds` for `--bogus`.
fn drop_suggestions(error: &mut clap::Error) {
    use ContextKind as Kind;
    for (given, suggested) in [
        (Kind::InvalidArg, Kind::SuggestedArg),
        (Kind::InvalidValue, Kind::SuggestedValue),
        (Kind::InvalidSubcommand, Kind::SuggestedSubcommand),
    ] {
        let Some(ContextValue::String(written)) = error.get(given).cloned() else { continue };
        let keep = match error.get(suggested) {
            Some(ContextValue::String(one)) => resembles(&written, one),
            Some(ContextValue::Strings(all)) => all.iter().any(|one| resembles(&written, one)),
            _ => true,
        };
        if !keep {
            error.remove(suggested);
            error.remove(Kind::Usage); // the usage with the suggested argument
        }
    }
}

/// Whether at most a third of the characters of a word differ from another; short words resemble nothing.
fn resembles(written: &str, other: &str) -> bool {
    let (written, other) = (written.trim_start_matches('-'), other.trim_start_matches('-'));
    let len = written.chars().count();
    len > 3 && 3 * strsim::levenshtein(written, other) <= len
}

/// Joins the lines of clap's error message into one: list items after a blank, sentences after a
/// semicolon.
fn usage(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let mut line = String::new();
    for part in text.lines().filter(|part| !part.trim().is_empty()) {
        let part = part.strip_prefix("error: ").unwrap_or(part);
        if part.starts_with("For more information") {
            continue;
        }
        let is_item = ["    ", "  <", "  [", "  -"].iter().any(|front| part.starts_with(front));
        line += match is_item {
            _ if line.is_empty() => "",
            true => " ",
            false => "; ",
        };
        line += part.trim();
    }
    // Followed by an example that is made from the value.
    if let Some(at) = line.find("time unit needed") {
        line.truncate(at);
        line += "the unit is missing; write a time as 5s, 5ms or 5us";
    }
    for (said, plain) in PLAIN {
        line = line.replace(said, plain);
    }
    ranges(&line) + "; try --help"
}

/// Writes ranges of numbers in words: `150 is not in 1..=100` becomes `must be 1 to 100`.
fn ranges(line: &str) -> String {
    let Some((front, range)) = line.rsplit_once(" is not in ") else { return line.to_owned() };
    let (range, behind) = range.split_once(';').map_or((range, ""), |(range, rest)| (range, rest));
    let Some((from, to)) = range.split_once("..") else { return line.to_owned() };
    // The value stands in the message already.
    let front = front.rsplit_once(": ").map_or(front, |(front, _)| front);
    let limits = match (from, to.strip_prefix('=')) {
        ("", Some(to)) => format!("at most {to}"),
        (from, Some(to)) => format!("{from} to {to}"),
        (from, None) if to.is_empty() => format!("at least {from}"),
        (from, None) => format!("{from} or more, and less than {to}"),
    };
    let behind = if behind.is_empty() { String::new() } else { format!(";{behind}") };
    format!("{front}: must be {limits}{behind}")
}

/// Errors of parsers of values, which name no fix, and what is said in their place.
const PLAIN: [(&str, &str); 5] = [
    ("invalid float literal", "this is not a number; write one such as 2 or 0.5"),
    ("invalid digit found in string", "this is not a whole number from 0 on; write one such as 5"),
    ("cannot parse integer from empty string", "the number is missing; write one such as 5"),
    ("cannot parse float from empty string", "the number is missing; write one such as 0.5"),
    ("expected number at 0", "this is not a time; write one as 5s, 5ms or 5us"),
];

#[cfg(test)]
mod tests {
    use super::{Cli, drop_suggestions, usage};
    use clap::Parser;

    #[test]
    fn only_what_resembles_the_words_is_suggested() {
        let said = |line: &str| {
            let mut error = Cli::try_parse_from(line.split(' ')).err().expect("wrong use");
            drop_suggestions(&mut error);
            usage(&error)
        };
        let bogus = said("flowyard calibrate --bogus");
        assert_eq!(bogus, "unexpected argument '--bogus' found; try --help");
        let version = said("flowyard switch dump-flows -O 1.2");
        assert!(
            version.contains("[possible values: 1.0, 1.3, 1.4]") && !version.contains("tip"),
            "{version}"
        );
        assert!(
            said("flowyard analyze --plicy x y").contains("similar argument exists: '--policy'")
        );
        let wrong = |line: &str, fix: &str| assert!(said(line).contains(fix), "{}", said(line));
        wrong(
            "flowyard show flows --seconds abc",
            "this is not a number; write one such as 2 or 0.5",
        );
        wrong(
            "flowyard lb set-weight web/a abc",
            "this is not a whole number from 0 on; write one",
        );
        wrong(
            "flowyard show tables --entries -1",
            "this is not a whole number from 0 on; write one",
        );
        wrong(
            "flowyard analyze x --migrate-every 5",
            "the unit is missing; write a time as 5s, 5ms",
        );
        assert!(said("flowyard analyse x").contains("similar subcommand exists: 'analyze'"));
        let range = said("flowyard bench rfc2544 --repeat 150");
        assert_eq!(range, "invalid value '150' for '--repeat <N>': must be 1 to 100; try --help");
        let missing = said("flowyard nic sweep");
        assert!(missing.contains("were not provided: --vary <KEY=A,B,...>"), "{missing}");
    }
}

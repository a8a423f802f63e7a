//! `flowyard switch`: an OpenFlow client for the command line, with the syntax of `ovs-ofctl`.

mod change;
mod compare;
mod connect;
pub(crate) mod document;
mod edit;
mod monitor;
mod names;
mod passed;
mod print;
mod query;
mod session;
mod snoop;
mod why;
mod words;

use clap::{CommandFactory, Parser, Subcommand};

use crate::stop::Stop;
use connect::{At, Options};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard switch show tcp:127.0.0.1:6653
  flowyard switch dump-flows unix:/run/flowyard/switch.sock tcp,nw_dst=10.0.0.0/8
  flowyard switch add-flow tcp:127.0.0.1 'priority=7,tcp,tp_dst=80,actions=output:1'
  flowyard switch why in_port=1,udp")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,

    #[command(flatten)]
    options: Options,
}

#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    Query(query::Query),
    #[command(flatten)]
    Change(change::Change),
    /// Show which flows a frame matches in the switch of a running instance, and whether the lookup is
    /// cached
    Why(why::Args),
    /// Print the messages that pass between a running instance and its controllers, until interrupted
    Snoop(snoop::Args),
    /// Print the messages that the switch sends to controllers, until interrupted
    #[command(
        after_help = "Example:\n  flowyard switch monitor tcp:127.0.0.1 -O 1.4 --watch --count 10"
    )]
    Monitor {
        #[command(flatten)]
        at: At,
        /// Also print flows when they are added, changed or deleted (needs -O 1.4)
        #[arg(long)]
        watch: bool,
        /// Exit after N messages [default: never]
        #[arg(long, value_name = "N")]
        count: Option<u64>,
    },
    #[command(external_subcommand)]
    Unknown(Vec<String>),
}

/// The commands, for suggestions.
#[derive(Parser)]
struct Root {
    #[command(subcommand)]
    _command: Command,
}

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    match &args.command {
        Command::Query(query) => query::run(&args.options, query),
        Command::Change(change) => change::run(&args.options, change),
        Command::Why(args) => why::run(args),
        Command::Snoop(args) => snoop::run(args),
        Command::Monitor { at, watch, count } => {
            monitor::monitor(&mut args.options.connect(at)?, *watch, *count)
        }
        Command::Unknown(words) => Err(names::unknown(words, &Root::command())),
    }
}

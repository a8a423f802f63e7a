//! `flowyard switch`: an OpenFlow client for the command line, with the syntax of `ovs-ofctl`.

mod change;
mod compare;
mod connect;
pub(crate) mod document;
mod edit;
pub(crate) mod events;
mod monitor;
mod names;
mod passed;
mod ping;
mod print;
mod query;
mod session;
mod snoop;
mod why;
mod words;

use clap::{CommandFactory, Parser, Subcommand};

use crate::stop::Stop;
use connect::Options;

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
    Monitor(monitor::Args),
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
        Command::Monitor(asked) => monitor::run(&args.options, asked),
        Command::Unknown(words) => Err(names::unknown(words, &Root::command())),
    }
}

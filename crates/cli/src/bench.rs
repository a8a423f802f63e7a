//! `flowyard bench`: how fast this machine does it.

use crate::stop::Stop;

mod engine;
pub(crate) mod rounds;

/// Measure: the engine on this machine.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  flowyard bench engine")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// The whole walk in memory: frames a second, nanoseconds by stage, and from which work on
    /// splitting a flow over cores pays
    Engine(engine::Args),
}

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    match &args.what {
        What::Engine(args) => engine::run(args),
    }
}

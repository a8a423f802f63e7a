//! `flowyard bench`: the engine on this machine, and devices by RFC 2544 and its family.

use crate::stop::Stop;

mod compare;
mod engine;
mod generate;
mod guard;
mod live;
mod methods;
mod options;
mod qualify;
mod rank;
mod replay;
mod reset;
mod rfc2889;
pub(crate) mod rounds;
mod state;

/// Measure: the engine on this machine, or a device by RFC 2544 and its family.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard bench engine
  flowyard bench rfc2544
  flowyard bench lanner --json > a.json
  flowyard bench compare a.json b.json")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// The whole walk in memory: frames a second, nanoseconds by stage, and from which work on
    /// splitting a flow over cores pays
    Engine(engine::Args),
    /// RFC 2544 whole: throughput, latency (and RFC 8219), loss rate, back-to-back (RFC 9004),
    /// recovery, reset (RFC 6201)
    Rfc2544(methods::Rfc2544),
    /// Throughput and back-to-back frames by RFC 9004
    Rfc9004(methods::Rfc9004),
    /// Several goals at once: CSIT's NDR and PDR, and RFC 2544's throughput
    Mlrsearch(methods::Mlrsearch),
    /// Lanner's experiment: duplex, 30 s, its sizes, 2 or 4 ports
    Lanner(methods::Lanner),
    /// One long run at a fixed load: 14 hours
    Soak(methods::Soak),
    /// What the tester proves of itself: loopback, conservation, the faulty device
    Qualify(qualify::Args),
    /// Send as fast as it goes
    Generate(generate::Args),
    /// A switch's addresses: caching capacity and learning rate
    Rfc2889(rfc2889::Args),
    /// Two results side by side, with ratios
    Compare(compare::Args),
    /// Several devices in order, or that no difference can be told
    Rank(rank::Args),
}

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    match &args.what {
        What::Engine(args) => engine::run(args),
        What::Rfc2544(args) => methods::rfc2544(args),
        What::Rfc9004(args) => methods::rfc9004(args),
        What::Mlrsearch(args) => methods::mlrsearch(args),
        What::Lanner(args) => methods::lanner(args),
        What::Soak(args) => methods::soak(args),
        What::Qualify(args) => qualify::run(args),
        What::Generate(args) => generate::run(args),
        What::Rfc2889(args) => rfc2889::run(args),
        What::Rank(args) => rank::run(args),
        What::Compare(args) => compare::run(args),
    }
}

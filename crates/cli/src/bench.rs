//! `flowyard bench`: measures the engine on this machine, and network devices by RFC 2544 and related
//! methods.

use crate::stop::Stop;

mod choices;
pub(crate) mod compare;
mod device;
pub(crate) mod engine;
pub(crate) mod eventdev;
pub(crate) mod generate;
pub(crate) mod history;
pub(crate) mod latency;
pub(crate) mod memcached;
pub(crate) mod methods;
mod options;
pub(crate) mod qualify;
pub(crate) mod rank;
pub(crate) mod rfc2889;
pub(crate) mod steer;
mod values;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard bench engine
  flowyard bench latency --html latency.html
  flowyard bench rfc2544
  flowyard bench lanner --json > a.json
  flowyard bench compare a.json b.json")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Measure the engine on memory ports: frames per second, nanoseconds per stage, and whether
    /// splitting one flow over two cores pays
    Engine(engine::Args),
    /// Measure the latency of the engine on memory ports against its load, on one and two cores
    Latency(latency::Args),
    /// Try the rules of event schedulers (ordered, atomic, parallel; release, thresholds, priorities) with
    /// flowyard's queues or an event device of DPDK, and measure their rates
    Eventdev(eventdev::Args),
    /// Print the record of ratios to other programs, by release, or add to it
    History(history::Args),
    /// Test a device by RFC 2544: throughput, latency (also RFC 8219), frame loss rate, back-to-back
    /// frames (RFC 9004), recovery, reset (RFC 6201)
    Rfc2544(methods::Rfc2544),
    /// Measure a device's throughput, and the size of its buffers: the longest burst at line rate that it
    /// forwards without loss (RFC 9004)
    Rfc9004(methods::Rfc9004),
    /// Search several loss ratios at once (MLRsearch): CSIT's NDR and PDR, and RFC 2544's throughput
    Mlrsearch(methods::Mlrsearch),
    /// Repeat the throughput experiment of the Lanner paper: both directions, trials of 30 s, the
    /// paper's frame sizes, 2 or 4 ports
    Lanner(methods::Lanner),
    /// Send at a fixed load for a long time, 14 hours by default, and count every frame
    Soak(methods::Soak),
    /// Check the tester itself: its own speed, that it counts every frame, and that it detects every
    /// fault of a deliberately faulty device
    Qualify(qualify::Args),
    /// Send test frames from one interface as fast as possible and print the rate
    Generate(generate::Args),
    /// Measure a switch's address caching capacity and address learning rate (RFC 2889)
    Rfc2889(rfc2889::Args),
    /// Measure flowyard steer beside RPS and RFS of the kernel: requests of memcached, order, and
    /// whether connections survive
    Steer(steer::Args),
    /// Measure memcached under loads that do not wait for it, with the kernel's steering and a yard's: latency and CPU time
    /// against the offered rate, up to the highest sustained rate
    Memcached(memcached::Args),
    /// Compare two results of the same method, with the ratio for every frame size
    Compare(compare::Args),
    /// Rank several devices by throughput, or report that their difference is not significant
    Rank(rank::Args),
}

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    match &args.what {
        What::Engine(args) => engine::run(args),
        What::Latency(args) => latency::run(args),
        What::Eventdev(args) => eventdev::run(args),
        What::History(args) => history::run(args),
        What::Rfc2544(args) => methods::rfc2544(args),
        What::Rfc9004(args) => methods::rfc9004(args),
        What::Mlrsearch(args) => methods::mlrsearch(args),
        What::Lanner(args) => methods::lanner(args),
        What::Soak(args) => methods::soak(args),
        What::Qualify(args) => qualify::run(args),
        What::Generate(args) => generate::run(args),
        What::Rfc2889(args) => rfc2889::run(args),
        What::Steer(args) => steer::run(args),
        What::Memcached(args) => memcached::run(args),
        What::Rank(args) => rank::run(args),
        What::Compare(args) => compare::run(args),
    }
}

//! `flowyard bench generate`: the tester's sender alone, at its highest rate.

use flowyard_bench::tester::generate::{Job, Sent, run as generate};
use flowyard_report::num;
use flowyard_rfc2544::traffic::Genome;

use super::choices::PortKind;
use super::values;
use crate::output;
use crate::stop::Stop;

/// Name and version of the document.
pub(crate) const SCHEMA: &str = "flowyard.bench-generate/1";

#[derive(clap::Args)]
#[command(after_help = "\
Example:
  flowyard bench generate --interface a --seconds 2 --size 64

The frames are the test frames of all bench methods: RFC 2544 appendix C, each with a tag that
holds its source, flow, sequence number, send time and a checksum.")]
pub(crate) struct Args {
    /// Interface to send from; it must be in a network namespace of its own, unless --isolated is given
    #[arg(long, value_name = "NAME")]
    interface: String,

    /// Kind of socket that sends
    #[arg(long, value_enum, default_value_t = PortKind::AfXdp)]
    port: PortKind,

    /// Duration in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    seconds: f64,

    /// Frame size in bytes with FCS, or a repeated sequence of sizes such as 64x7+594x4+1518
    #[arg(long, value_name = "SIZE", default_value = "64")]
    size: Genome,

    /// Number of flows
    #[arg(long, value_name = "N", default_value_t = 1)]
    flows: u16,

    /// Declare that the interface is isolated from every production network (RFC 6815); skips the
    /// check for a network namespace and a default route
    #[arg(long)]
    isolated: bool,

    /// Print JSON (schema flowyard.bench-generate/1) instead of text
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Stop> {
    let duration = values::seconds(args.seconds)?;
    let job = Job {
        interface: args.interface.clone(),
        kind: args.port.into(),
        size: args.size.clone(),
        flows: args.flows,
        is_isolated: args.isolated,
    };
    let sent = generate(&job, duration, &crate::clock::new())?;
    if args.json {
        return output::json(SCHEMA, sent);
    }
    let Sent { frames, seconds, pps } = sent;
    let (frames, pps) = (num::exact(frames), num::exact(pps as u64));
    output::text(&format!("{frames} frames in {seconds:.3} s: {pps} frames/s\n"))
}

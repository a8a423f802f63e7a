//! `flowyard bench generate`: the tester's sender alone, at its highest rate.

use std::io::{Write, stdout};
use std::time::Duration;

use flowyard_report::{Document as Json, num};
use flowyard_rfc2544::line::Line;
use flowyard_rfc2544::setup::{Setup, Topology};
use flowyard_rfc2544::tester::{BURST, Stream};
use flowyard_rfc2544::traffic::{Genome, Spec};
use serde::Serialize;

use super::live::{Kind, Port};
use super::options::time;
use crate::stop::{Stop, bad_input};

#[derive(clap::Args)]
#[command(after_help = "\
Example:
  flowyard bench generate --interface a --seconds 2 --size 64

The frames are the test frames of all bench methods: RFC 2544 appendix C, each with a tag that
holds its source, flow, sequence number, send time and a checksum.")]
pub(crate) struct Args {
    /// Interface to send from; it must be in a network namespace of its own, see --isolated
    #[arg(long, value_name = "NAME")]
    interface: String,

    /// Kind of socket that sends
    #[arg(long, value_enum, default_value_t = Kind::AfXdp)]
    port: Kind,

    /// Duration in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    seconds: f64,

    /// Frame size in bytes with FCS, or a repeated sequence of sizes such as 64x7,594x4,1518
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

#[derive(Serialize)]
struct Sent {
    frames: u64,
    seconds: f64,
    pps: f64,
}

pub(super) fn run(args: &Args) -> Result<(), Stop> {
    let duration = Duration::try_from_secs_f64(args.seconds)
        .map_err(|error| bad_input(format!("--seconds: {error}; write seconds as 2 or 0.5")))?;
    let duration = time("--seconds", duration)?;
    let spec = Spec { sizes: args.size.clone(), flows: args.flows.max(1), ..Spec::fixed(64) };
    let setup = Setup::new(Line::GBIT_10, Topology::Uni, spec);
    let mut stream = Stream::new(&setup, 0).map_err(|error| Stop::Failed(error.into()))?;
    if !args.isolated {
        super::guard::check(std::slice::from_ref(&args.interface))?;
    }
    let mut port = Port::open(&args.interface, args.port, false)?;
    let clock = crate::run::clock();
    let start = clock();
    let mut now = start;
    while now < start + duration {
        stream.send(&mut port, BURST, now).map_err(|error| Stop::Failed(anyhow::anyhow!(error)))?;
        now = clock();
    }
    port.drain();
    let seconds = (clock() - start) as f64 / 1e9;
    let frames = stream.row();
    let sent = Sent { frames, seconds, pps: frames as f64 / seconds };
    let mut out = stdout().lock();
    if args.json {
        let json = Json::new("flowyard.bench-generate/1", sent);
        out.write_all(json.to_json().map_err(|error| Stop::Failed(error.into()))?.as_bytes())?;
    } else {
        let (frames, pps) = (num::exact(frames), num::exact(sent.pps as u64));
        writeln!(out, "{frames} frames in {seconds:.3} s: {pps} frames/s")?;
    }
    Ok(out.flush()?)
}

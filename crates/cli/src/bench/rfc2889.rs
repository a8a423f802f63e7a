//! `flowyard bench rfc2889`: address caching capacity and learning rate of a switch (RFC 2889 sections 5.7
//! and 5.8).

use flowyard_bench::tester::rfc2889::search;
use flowyard_report::{Cell, Column, Table, Tone, num};
use flowyard_rfc2544::dut::Job;
use flowyard_rfc2544::line::Line;

use super::device::Simulated;
use crate::output::{self, style};
use crate::stop::{Stop, bad_input};

/// Name and version of the document.
pub(crate) const SCHEMA: &str = "flowyard.bench-rfc2889/1";

#[derive(clap::Args)]
#[command(after_help = "\
Example:
  flowyard bench rfc2889 --bridge 4096 --frame-cost 1us --batch-cost 0us --byte-cost-ps 0

The device is flowyard's own switch, simulated in virtual time with four ports. Its table has room for about
2 N addresses in buckets, where N is the number of --bridge; an address whose buckets are full replaces the
oldest one there. So the measured capacity is above N.")]
pub(crate) struct Args {
    /// Line rate in bit/s, 10k to 400G, such as 10M or 1G [default: 10M]
    #[arg(long, value_name = "RATE", value_parser = super::values::line)]
    line: Option<Line>,

    #[command(flatten)]
    simulated: Simulated,

    /// Largest number of addresses to try, 1 to 1000000
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    most: u32,

    /// Rate of learning frames in the search for the capacity, in frames per second
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    learning_pps: u64,

    /// Print JSON (schema flowyard.bench-rfc2889/1) instead of a table
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Stop> {
    let spec = args.simulated.spec(args.line)?;
    let Job::Bridge(sized_for) = spec.job else {
        return Err(bad_input("--bridge: only a switch learns addresses; add --bridge 4096"));
    };
    let line = spec.line.max_load(64).pps() as u64;
    let found = search(spec, args.most, args.learning_pps, line)
        .map_err(|error| Stop::Failed(error.into()))?;
    if args.json {
        return output::json(SCHEMA, found);
    }
    let mut table = Table::new("Address learning of a switch, RFC 2889 (virtual time)")
        .column(Column::text("test"))
        .column(Column::number("result"))
        .column(Column::text("unit and conditions"));
    table.push([
        Cell::new("5.7 caching capacity"),
        Cell::new(num::exact(u64::from(found.capacity))).tone(Tone::Strong),
        Cell::new(format!(
            "addresses, without the tester's own; the table is made for {} (--bridge), with twice as many places; at \
             most {} were tried",
            num::exact(sized_for.into()),
            num::exact(args.most.into())
        )),
    ]);
    table.push([
        Cell::new("5.8 learning rate"),
        Cell::new(num::exact(found.learning_pps)).tone(Tone::Strong),
        Cell::new(format!(
            "frames/s, with {} addresses; the line can carry {}",
            found.learning_addresses,
            num::exact(line)
        )),
    ]);
    output::text(&format!("Device: {}\n\n{}", found.device, table.to_text(&style())))
}

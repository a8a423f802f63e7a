//! `flowyard bench rfc2889`: address caching capacity and learning rate of a switch (RFC 2889 sections 5.7
//! and 5.8).

use std::io::{Write, stdout};

use flowyard_report::{Cell, Column, Document as Json, Table, Tone, num};
use flowyard_rfc2544::dut::{Dut, Job, YardDut, YardSpec};
use flowyard_rfc2544::learn::{PORTS, probe};
use flowyard_rfc2544::search::learning::{Caching, LearningRate, Probe, Probed};
use serde::Serialize;

use super::options::Options;
use crate::stop::{Stop, bad_input};

#[derive(clap::Args)]
#[command(after_help = "\
Example:
  flowyard bench rfc2889 --bridge 4096 --frame-cost 1us --batch-cost 0us --byte-cost-ps 0

The device is flowyard's own switch, simulated in virtual time. Only the options under Device,
--line and --json have an effect.")]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,

    /// Largest number of addresses to try, 1 to 1000000
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    most: u32,

    /// Rate of learning frames in the search for the capacity, in frames per second
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    learning_pps: u64,
}

#[derive(Serialize)]
struct Found {
    device: String,
    capacity: u32,
    learning_addresses: u32,
    learning_pps: u64,
    probes: Vec<(Probe, Probed)>,
}

pub(super) fn run(args: &Args) -> Result<(), Stop> {
    let spec = args.options.yard()?;
    if !matches!(spec.job, Job::Bridge(_)) {
        return Err(bad_input("--bridge: only a switch learns addresses; add --bridge 4096"));
    }
    let spec = YardSpec { ports: PORTS, ..spec };
    let mut probes = Vec::new();
    let mut make = |next: Probe| -> Result<Probed, Stop> {
        let mut dut = YardDut::new(spec).map_err(|error| Stop::Failed(error.into()))?;
        let probed = probe(&mut dut, &next);
        probes.push((next, probed));
        Ok(probed)
    };
    let mut caching = Caching::new(args.most, args.learning_pps);
    while let Some(next) = caching.next_probe() {
        let probed = make(next)?;
        caching.told(next, probed);
    }
    let capacity = caching.answer();
    let learning_addresses = capacity.clamp(1, 4096);
    let line = spec.line.max_load(64).pps() as u64;
    let mut rate = LearningRate::new(learning_addresses, line.max(1));
    while let (1.., Some(next)) = (capacity, rate.next_probe()) {
        let probed = make(next)?;
        rate.told(next, probed);
    }
    let device = YardDut::new(spec).map_err(|error| Stop::Failed(error.into()))?.describe();
    let found = Found { device, capacity, learning_addresses, learning_pps: rate.answer(), probes };
    let mut out = stdout().lock();
    if args.options.json {
        let json = Json::new("flowyard.bench-rfc2889/1", found);
        out.write_all(json.to_json().map_err(|error| Stop::Failed(error.into()))?.as_bytes())?;
        return Ok(out.flush()?);
    }
    writeln!(out, "Device: {}\n", found.device)?;
    let mut table = Table::new("Address learning of a switch, RFC 2889 (virtual time)")
        .column(Column::text("test"))
        .column(Column::number("result"))
        .column(Column::text("unit and conditions"));
    table.push([
        Cell::new("5.7 caching capacity"),
        Cell::new(num::exact(u64::from(found.capacity))).tone(Tone::Strong),
        Cell::new(format!(
            "addresses, without the tester's own; at most {} were tried",
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
    out.write_all(table.to_text(&crate::style()).as_bytes())?;
    Ok(out.flush()?)
}

//! `flowyard prove`: compares where live traffic is received and processed with the prediction.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use flowyard_host::{
    Only, Proof, Sampled, Seen, Settings, State, Traffic, differences, settings_of,
};
use flowyard_report::{Cell, Column, Table};
use flowyard_wire::LinkType;

use crate::output::{self, style};
use crate::stop::Stop;
use crate::{host, live, probe};

/// Name and version of the JSON document; see docs/schema.
pub(crate) const SCHEMA: &str = "flowyard.prove/1";

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard prove eth0 --seconds 10
  flowyard prove eth0 --json | jq '.differing[]'
  flowyard prove eth0 --probe entries --probe-from eth1
  flowyard prove eth0 --probe plan.json --probe-from eth1
  flowyard prove veth1 --probe 'udp 198.18.0.1:1000 > 10.0.0.2:2000' --probe-from veth0 --probe-netns /run/netns/peer

Without --probe, the command sends nothing: it reads copies of received frames, for which it needs CAP_NET_RAW. The
exit status is 0 if every frame or probe with a prediction came where it was predicted, otherwise 1, also if there
was no traffic, or a probe cannot be decided.

With --probe, frames of chosen flows are sent out of another interface, which must be connected to IFACE by a cable
or a switch. They are addressed to IFACE, and their TCP, UDP or SCTP checksum is wrong on purpose, so that no
program receives them and nothing answers. Other traffic may go on: see docs/host.md.")]
pub(crate) struct Args {
    /// The interface
    #[arg(value_name = "IFACE")]
    interface: String,

    /// Look at the traffic of this many seconds
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,

    #[command(flatten)]
    probe: probe::Probes,

    /// Print JSON (schema flowyard.prove/1) instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    let proof = match args.probe.wants() {
        true => probe::measure(&args.interface, &args.probe)?,
        false => measure(&args.interface, Duration::from_secs(args.seconds.into()))?,
    };
    if args.json {
        output::json(SCHEMA, &proof)?;
    } else {
        output::text(&text(&proof))?;
    }
    verdict(&proof).map_err(Stop::Failed)
}

/// Whether every frame with a prediction came where it was predicted; if not, the reason.
pub(crate) fn verdict(proof: &Proof) -> anyhow::Result<()> {
    match (proof.agrees, proof.differing_flows) {
        (true, _) => Ok(()),
        (false, 0) => anyhow::bail!("nothing is proven: {}", proof.notes.join("; ")),
        (false, flows) => anyhow::bail!("{flows} flows did not come where they were predicted"),
    }
}

/// Compares the traffic of some time with the prediction.
pub(crate) fn measure(interface: &str, time: Duration) -> Result<Proof, Stop> {
    let before = host::read(interface)?;
    let (kinds, mut seen) = sockets(&before);
    let lost = live::sample(interface, before.index, &kinds, time, &mut |socket, frame| {
        count(&mut seen, kinds[socket], &frame);
    })?;
    seen.lost = lost;
    let after = host::read(interface)?;
    let settings = settings_of(&before);
    let mut proof = Proof::new(&before, &settings, &seen, &counted(&before, &after));
    note_changes(&mut proof, &settings, &settings_of(&after));
    Ok(proof)
}

/// Notes what other programs changed while traffic was compared.
pub(crate) fn note_changes(proof: &mut Proof, before: &Settings, after: &Settings) {
    for different in differences(before, after) {
        proof.agrees = false;
        proof.notes.push(format!("another program changed a setting meanwhile: {different}"));
    }
}

/// A socket for each receive queue and each CPU, and what they have seen: nothing.
pub(crate) fn sockets(state: &State) -> (Vec<Only>, Seen) {
    let queues = state.rx_queues.value().into_iter().flatten().map(|one| one.queue);
    let cpus = state.cpus.value().into_iter().flatten().map(|one| one.cpu);
    let kinds: Vec<Only> = queues.map(Only::Queue).chain(cpus.map(Only::Cpu)).collect();
    let mut seen = Seen::default();
    for kind in &kinds {
        match kind {
            Only::Queue(queue) => drop(seen.queues.insert(*queue, Traffic::default())),
            Only::Cpu(cpu) => drop(seen.cpus.insert(*cpu, Traffic::default())),
            Only::All | Only::NoQueue => {}
        }
    }
    (kinds, seen)
}

/// Counts a frame that a socket of this kind received.
pub(crate) fn count(seen: &mut Seen, kind: Only, frame: &Sampled<'_>) {
    let traffic = match kind {
        Only::Queue(queue) => seen.queues.get_mut(&queue),
        Only::Cpu(cpu) => seen.cpus.get_mut(&cpu),
        Only::All | Only::NoQueue => None,
    };
    if let Some(traffic) = traffic {
        traffic.sample(LinkType::Ethernet, frame);
    }
}

/// The increase of the driver's counters of each queue.
pub(crate) fn counted(before: &State, after: &State) -> BTreeMap<u32, u64> {
    let packets = |state: &State| -> BTreeMap<u32, u64> {
        let queues = state.rx_queues.value().into_iter().flatten();
        queues.filter_map(|one| Some((one.queue, *one.packets.value()?))).collect()
    };
    let (before, after) = (packets(before), packets(after));
    let increase =
        |(queue, packets): (u32, u64)| Some((queue, packets.checked_sub(*before.get(&queue)?)?));
    after.into_iter().filter_map(increase).collect()
}

fn text(proof: &Proof) -> String {
    let number = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |n| n.to_string());
    let mut queues = Table::new("Receive queues")
        .column(Column::number("queue"))
        .column(Column::number("predicted"))
        .column(Column::number("seen"))
        .column(Column::number("driver's counter"));
    for one in &proof.queues {
        let cells = [Some(one.queue.into()), one.predicted, Some(one.seen), one.counted];
        queues.push(cells.map(|cell| Cell::new(number(cell))));
    }
    let mut cpus = Table::new("CPUs")
        .column(Column::number("CPU"))
        .column(Column::number("predicted"))
        .column(Column::number("seen"));
    for one in &proof.cpus {
        let predicted =
            one.predicted.map_or_else(|| "-".to_owned(), |frames| format!("{frames:.0}"));
        cpus.push([
            Cell::new(one.cpu.to_string()),
            Cell::new(predicted),
            Cell::new(one.seen.to_string()),
        ]);
    }
    let mut text =
        format!("{}: {} frames of {} flows\n\n", proof.interface, proof.frames, proof.flows);
    if !proof.probes.is_empty() {
        text = format!("{}: {} probes\n\n", proof.interface, proof.probes.len());
    }
    text += &queues.to_text(&style());
    text.push('\n');
    text += &cpus.to_text(&style());
    for one in proof.differing.iter().take(10) {
        let (flow, frames) = (&one.flow, one.frames);
        let entry = proof.probes.iter().find(|probe| probe.flow == *flow);
        let entry = entry.and_then(|probe| probe.entry);
        let entry = entry.map_or(String::new(), |entry| format!(" (entry {entry})"));
        let _infallible = writeln!(
            text,
            "differs: {flow}{entry}: {frames} frames in {}, predicted {}",
            one.seen, one.predicted
        );
    }
    let undecided = proof.probes.iter().filter_map(|one| Some((one, one.undecided.as_ref()?)));
    for (one, why) in undecided.take(10) {
        let entry = one.entry.map_or(String::new(), |entry| format!(" (entry {entry})"));
        let _infallible = writeln!(text, "not decidable: {}{entry}: {why}", one.flow);
    }
    for note in &proof.notes {
        let _infallible = writeln!(text, "Note: {note}");
    }
    let verdict = if proof.agrees { "as predicted" } else { "not proven" };
    let _infallible = writeln!(text, "\n{}: {verdict}", proof.interface);
    text
}

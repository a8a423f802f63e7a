//! `flowyard host`: the settings of an interface that decide where its frames go, as they are now.

use std::fmt::Write as _;

use flowyard_host::{Here, Known, RssState, State};
use flowyard_report::{Cell, Column, Table};

use crate::output::{self, style};
use crate::stop::{Stop, bad_input};

/// Name and version of the JSON document; see docs/schema.
pub(crate) const SCHEMA: &str = "flowyard.host/1";

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard host eth0
  flowyard host eth0 --json | jq '.rss.table'
  ip netns exec blue flowyard host veth0

The command changes nothing and needs no privileges. What the kernel or the driver does not tell is listed as
not known, with the reason.")]
pub(crate) struct Args {
    /// The interface
    #[arg(value_name = "IFACE")]
    interface: String,

    /// Print JSON (schema flowyard.host/1) instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    let state = read(&args.interface)?;
    if args.json {
        return output::json(SCHEMA, &state);
    }
    output::text(&text(&state))
}

/// The state of an interface of this machine.
pub(crate) fn read(interface: &str) -> Result<State, Stop> {
    State::read(&Here, interface).map_err(|error| match error.raw_os_error() {
        Some(number) if number == rustix::io::Errno::NODEV.raw_os_error() => {
            let names = flowyard_host::interfaces().join(", ");
            bad_input(format!("there is no interface '{interface}'; choose one of {names}"))
        }
        _ => Stop::Failed(anyhow::Error::new(error).context(format!("reading {interface}"))),
    })
}

fn text(state: &State) -> String {
    let mut text = String::new();
    let mut line = |name: &str, what: String| {
        let _infallible = writeln!(text, "{name:<14}{what}");
    };
    line("interface", format!("{}, index {}", state.interface, state.index));
    if let Some(driver) = state.driver.value() {
        let parts = [
            ("", driver.name.as_str()),
            (" ", &driver.version),
            (", firmware ", &driver.firmware),
            (", bus ", &driver.bus),
        ];
        let parts = parts.iter().filter(|(_, part)| !part.is_empty());
        line("driver", parts.map(|(front, part)| format!("{front}{part}")).collect());
    }
    if let Some(node) = state.numa_node.value() {
        line("NUMA node", if *node < 0 { "none is named".to_owned() } else { node.to_string() });
    }
    if let Some(speed) = state.speed.value() {
        line("speed", format!("{speed} Mbit/s"));
    }
    if let Some(channels) = state.channels.value() {
        let (now, most) = (channels.now, channels.most);
        let parts = [
            ("combined", now.combined, most.combined),
            ("rx", now.rx, most.rx),
            ("tx", now.tx, most.tx),
            ("other", now.other, most.other),
        ];
        let parts = parts.iter().filter(|(_, _, most)| *most > 0);
        let parts: Vec<_> =
            parts.map(|(name, now, most)| format!("{now} {name} of {most}")).collect();
        line("channels", parts.join(", "));
    }
    if let Some(rss) = state.rss.value() {
        line("RSS", about(rss));
    }
    for context in state.contexts.value().into_iter().flatten() {
        line("RSS context", format!("{}: {}", context.number, about(&context.rss)));
    }
    let fields = state.fields.iter().filter_map(|(name, fields)| Some((name, fields.value()?)));
    let fields: Vec<_> = fields.map(|(name, fields)| format!("{name} {fields}")).collect();
    if !fields.is_empty() {
        line("hash fields", fields.join(", "));
    }
    for feature in state.features.value().into_iter().flatten() {
        if ["rx-hashing", "rx-ntuple-filter", "hw-tc-offload", "rx-gro", "rx-lro"]
            .contains(&feature.name.as_str())
        {
            let value = if feature.on { "on" } else { "off" };
            let fixed =
                if feature.changeable { "" } else { ", which the driver does not let change" };
            line("feature", format!("{} {value}{fixed}", feature.name));
        }
    }
    if let Some(rules) = state.rules.value() {
        let most = rules.locations.map_or(String::new(), |most| format!(" at {most} locations"));
        line("rules", format!("{} installed{most}", rules.installed));
        for one in &rules.list {
            line("rule", format!("{}: {}", one.location, one.rule));
        }
    }
    if let Some(one) = state.coalesce.value() {
        let adaptive = if one.adaptive_rx { ", adaptive" } else { "" };
        line("moderation", format!("rx {} us, {} frames{adaptive}", one.rx_usecs, one.rx_frames));
    }
    if let Some(entries) = state.sock_flow_entries.value() {
        line("RFS", if *entries == 0 { "off".to_owned() } else { format!("{entries} entries") });
    }
    for writer in &state.writers {
        line(
            "also writes",
            format!("{} (process {}): {}", writer.name, writer.pid, writer.changes),
        );
    }
    text + "\n" + &queues(state).to_text(&style()) + &unseen(state)
}

fn about(rss: &RssState) -> String {
    let function = rss.function.value().map_or("unknown function", String::as_str);
    let transformation = match rss.transformation.as_str() {
        "none" => String::new(),
        other => format!(" with {other}"),
    };
    let key = rss.key.value().map_or("not known", String::as_str);
    let table = match rss.table.len() {
        0 => "no indirection table".to_owned(),
        entries => format!("table of {entries} entries"),
    };
    format!("{function}{transformation}, {table}, key {key}")
}

/// CPUs in the kernel's notation; `-` for none, `?` if they are not known.
fn cpus(cpus: &Known<Vec<u32>>) -> String {
    match cpus.value().map(Vec::as_slice) {
        None => "?".to_owned(),
        Some([]) => "-".to_owned(),
        Some(cpus) => flowyard_host::cpu_list(cpus),
    }
}

fn queues(state: &State) -> Table {
    let mut table = Table::new("")
        .column(Column::number("queue"))
        .column(Column::number("table entries"))
        .column(Column::number("frames"))
        .column(Column::text("interrupt"))
        .column(Column::text("its CPUs"))
        .column(Column::text("RPS CPUs"))
        .column(Column::number("RFS entries"))
        .column(Column::text("XPS CPUs"));
    let number = |value: Option<u64>| value.map_or_else(|| "?".to_owned(), |n| n.to_string());
    let rss = state.rss.value().map(|rss| &rss.table);
    for rx in state.rx_queues.value().into_iter().flatten() {
        let entries = rss.map(|all| all.iter().filter(|queue| **queue == rx.queue).count() as u64);
        let interrupts = state.interrupts.value().into_iter().flatten();
        let interrupt = interrupts.into_iter().find(|one| one.rx_queue.value() == Some(&rx.queue));
        let tx = state.tx_queues.value().into_iter().flatten().find(|tx| tx.queue == rx.queue);
        table.push([
            Cell::new(rx.queue.to_string()),
            Cell::new(number(entries)),
            Cell::new(number(rx.packets.value().copied())),
            Cell::new(interrupt.map_or("?".to_owned(), |one| format!("{} {}", one.irq, one.name))),
            Cell::new(interrupt.map_or("?".to_owned(), |one| cpus(&one.affinity))),
            Cell::new(cpus(&rx.rps_cpus)),
            Cell::new(number(rx.rps_flow_cnt.value().map(|&n| n.into()))),
            Cell::new(tx.map_or("?".to_owned(), |tx| cpus(&tx.xps_cpus))),
        ]);
    }
    table
}

/// What is not known; one line for each reason.
fn unseen(state: &State) -> String {
    let mut reasons: Vec<(String, String, Vec<String>)> = Vec::new();
    for (name, why) in state.unseen() {
        // The same file of each queue: one line, with the reason of the first.
        let kind = why.replace(|c: char| c.is_ascii_digit(), "");
        match reasons.iter_mut().find(|(other, ..)| *other == kind) {
            Some((_, _, names)) => names.push(name),
            None => reasons.push((kind, why, vec![name])),
        }
    }
    if reasons.is_empty() {
        return String::new();
    }
    let lines = reasons.iter().map(|(_, why, names)| {
        let more =
            if names.len() > 3 { format!(" and {} more", names.len() - 3) } else { String::new() };
        format!("  {}{more}: {why}\n", names[..names.len().min(3)].join(", "))
    });
    "\nNot known:\n".to_owned() + &lines.collect::<String>()
}

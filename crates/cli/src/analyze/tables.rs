//! An [`Analysis`] as tables, which the terminal and the HTML page share.

use flowyard_analyze::{
    Analysis, Elephant, LoadOverTime, LoadSummary, PolicySummary, RebalanceWindow,
};
use flowyard_report::text::paragraph;
use flowyard_report::{Cell, Column, Style, Table, Tone, Unit, num};

pub(crate) mod machine;

/// The whole report as text.
pub(crate) fn text(analysis: &Analysis, style: &Style) -> String {
    let mut text = paragraph(&capture_line(analysis), "", "", style);
    for line in host_line(analysis).lines() {
        text += &paragraph(line, "", "", style);
    }
    for capture in &analysis.captures {
        for (reason, packets) in &capture.skipped {
            text +=
                &format!("{}: skipped {} packets: {reason}\n", capture.file, num::exact(*packets));
        }
        if let Some(damage) = &capture.damage {
            text += &format!("{damage}\n");
        }
    }
    let tables = [
        ("Policies", Some(policies(analysis))),
        ("Load per queue", fitting(style, |bytes| loads_of_queues(analysis, bytes))),
        ("Load per queue over time", over_time(analysis)),
        (
            "Load per core, for policies that pass frames to another core",
            fitting(style, |bytes| loads_of_cores(analysis, bytes)),
        ),
        ("Filter tables", filters(analysis, true)),
        ("Moves of table entries", moves(analysis)),
        (&*elephants_title(analysis), elephants(analysis)),
        ("Rules", rules(analysis)),
        ("Rule counters", machine::counters(analysis)),
        ("Interrupts", machine::interrupts(analysis)),
        ("Interrupts per queue under the first policy", machine::interrupts_of_queues(analysis)),
        ("Tenants", machine::tenants(analysis)),
        ("Storage (FCoE)", machine::storage(analysis)),
        ("NC-SI control frames", machine::control(analysis)),
        ("Unusual or unparsable packets", faults(analysis)),
        ("Checksums", checksums(analysis)),
    ];
    for (title, table) in tables {
        if let Some(table) = table {
            text += "\n";
            text += &table.titled(title).to_text(style);
        }
    }
    for note in &analysis.notes {
        text += "\n";
        text += &paragraph(note, "Note: ", "  ", style);
    }
    text += "\nWhat it means\n";
    for (finding, number) in analysis.verdict.iter().zip(1..) {
        text += "\n";
        text += &paragraph(&finding.text, &format!("{number}. "), "   ", style);
        for command in &finding.commands {
            text += &format!("     {command}\n"); // not wrapped, so that it can be copied
        }
    }
    text
}

/// A table with packets and bytes; if that is too wide for the style, with packets only.
fn fitting(style: &Style, table: impl Fn(bool) -> Option<Table>) -> Option<Table> {
    table(true).filter(|table| table.fits(style)).or_else(|| table(false))
}

/// Largest number of queues of which the load over time is shown.
const SHOWN: usize = 32;

/// The load of each queue over time under the first policy.
fn over_time(analysis: &Analysis) -> Option<Table> {
    let policy = analysis.policies.first()?;
    let load = &policy.queues_over_time;
    let table = over_time_of(load)?;
    let slice = Unit::Nanos.show(load.slice_s * 1e9);
    Some(
        table.note(format!(
            "under {}; each mark is {slice}, and darker for more packets",
            policy.name
        )),
    )
}

/// The load of each queue over time, as tiles; `None` if there is none.
pub(crate) fn over_time_of(load: &LoadOverTime) -> Option<Table> {
    let most = load.packets.iter().flatten().copied().max()?;
    let mut table =
        Table::new("").column(Column::number("queue")).column(Column::text("load over time"));
    let all = load.packets.iter().enumerate().filter(|(_, packets)| !packets.is_empty());
    let total = all.clone().count();
    for (queue, packets) in all.take(SHOWN) {
        let tile = |(slice, &n): (usize, &u32)| {
            let at = Unit::Nanos.show(slice as f64 * load.slice_s * 1e9);
            let share = if n == 0 { f64::NAN } else { f64::from(n) / f64::from(most) };
            (share, format!("{} packets from {at} on", num::exact(n.into())))
        };
        let tiles: Vec<_> = packets.iter().enumerate().map(tile).collect();
        table.push([Cell::new(queue.to_string()).tone(Tone::Strong), Cell::heat(tiles)]);
    }
    if total > SHOWN {
        table = table.note(format!("the first {SHOWN} of {total} queues with packets"));
    }
    Some(table)
}

/// `yard.pcap: 48,211 packets, 31.2 MB on the wire in 32.4 s, 812 connections`
pub(crate) fn capture_line(analysis: &Analysis) -> String {
    let traffic = &analysis.traffic;
    let files = match analysis.captures.as_slice() {
        [one] => one.file.clone(),
        many => format!("{} captures", many.len()),
    };
    format!(
        "{files}: {} packets, {} on the wire in {}, {} connections",
        num::exact(traffic.packets),
        Unit::Bytes.show(traffic.bytes as f64),
        Unit::Nanos.show(traffic.duration_s * 1e9),
        num::exact(traffic.connections),
    )
}

/// The simulated adapter and host, in three lines.
pub(crate) fn host_line(analysis: &Analysis) -> String {
    let setup = &analysis.setup;
    let traffic = &analysis.traffic;
    let reach = if setup.rss_queues < setup.queues {
        format!(" (RSS can use {})", setup.rss_queues)
    } else {
        String::new()
    };
    let side = match setup.local.as_str() {
        "server" => "the host is the server of each connection".to_owned(),
        "client" => "the host is the client of each connection".to_owned(),
        "all" => "the host receives everything, as a monitor does".to_owned(),
        nets => format!("the host is {nets}"),
    };
    let consumers = match setup.consumers.as_str() {
        "round-robin" => "one application thread per core, connections assigned in turn".to_owned(),
        "service" => "one application thread per service".to_owned(),
        "hash" => "one application thread per core, connections assigned by a hash".to_owned(),
        map => format!("services run on the cores {map}"),
    };
    let moving = match setup.migrate_every_ns {
        0 => "threads do not migrate".to_owned(),
        every => format!(
            "one thread migrates to another core every {} ({} migrations)",
            Unit::Nanos.show(every as f64),
            num::exact(setup.migrations)
        ),
    };
    let key = match setup.indirection_entries {
        0 => String::new(), // the adapter has no RSS
        _ => format!("\nRSS key: {}, {}", setup.rss_key_source, setup.rss_key),
    };
    format!(
        "{}, {}{reach}, {}; {side}: it receives {} in {}, sends {}\n\
         Model: {consumers}; {moving}; a core needs {} per frame{key}",
        setup.adapter,
        num::count(setup.queues.into(), "queue", "queues"),
        num::count(setup.cores.into(), "core", "cores"),
        num::count(traffic.received, "packet", "packets"),
        num::count(traffic.received_flows, "flow", "flows"),
        num::exact(traffic.transmitted),
        Unit::Nanos.show(setup.service_ns as f64),
    )
}

/// One row per policy.
pub(crate) fn policies(analysis: &Analysis) -> Table {
    let mut table = Table::new("")
        .column(Column::text("policy"))
        .column(Column::number("max/mean").unit("cores"))
        .column(Column::number("p99").unit("windows"))
        .column(Column::number("locality").unit("packets"))
        .column(Column::number("could reorder").unit("packets"))
        .column(Column::number("flow moves").unit("times"))
        .column(Column::number("by filter").unit("packets"))
        .column(Column::text("load per core"));
    let best = analysis.policies.iter().filter_map(|p| p.locality).fold(0.0, f64::max);
    for policy in &analysis.policies {
        let reorder = policy.reorder;
        table.push([
            Cell::new(&*policy.name).tone(Tone::Strong),
            Cell::new(ratio(policy.imbalance.cores)),
            Cell::new(ratio(policy.imbalance.window_p99)),
            share(policy.locality).tone(tone(policy.locality == Some(best), Tone::Good)),
            Cell::new(num::exact(reorder.packets)).tone(tone(reorder.packets > 0, Tone::Warn)),
            Cell::new(num::exact(reorder.moves)),
            by_filter(policy),
            Cell::spark(loads(&policy.cores)),
        ]);
    }
    table
        .note("max/mean: load of the busiest core over the mean; best 1, worst the number of cores. p99: the same in the 99th percentile of the time windows with at least ten packets per core")
        .note("locality: packets that arrive on the core of the application thread that reads them")
        .note("could reorder: packets that a core would finish before an earlier packet of their flow, by the queue delay model")
}

/// Filter tables, for policies that have one; `with_spark` adds a column that draws the occupancy.
pub(crate) fn filters(analysis: &Analysis, with_spark: bool) -> Option<Table> {
    let mut table = Table::new("")
        .column(Column::text("policy"))
        .column(Column::number("filters").unit("at the end"))
        .column(Column::number("capacity"))
        .column(Column::number("added"))
        .column(Column::number("add failed"))
        .column(Column::number("updated"))
        .column(Column::number("removed"))
        .column(Column::number("flushes"))
        .column(Column::number("aliases"))
        .column(Column::number("hits").unit("packets"));
    if with_spark {
        table = table.column(Column::text("occupancy over time"));
    }
    for policy in &analysis.policies {
        let Some(filters) = &policy.filters else { continue };
        let stats = &filters.stats;
        let over_time: Vec<f64> =
            filters.occupancy_over_time.iter().map(|&(_, n)| f64::from(n)).collect();
        let mut row = vec![
            Cell::new(&*policy.name).tone(Tone::Strong),
            Cell::new(num::exact(u64::from(stats.occupancy))),
            Cell::new(num::exact(u64::from(stats.capacity))),
            Cell::new(num::exact(stats.adds)),
            Cell::new(num::exact(stats.failed_adds)).tone(tone(stats.failed_adds > 0, Tone::Warn)),
            Cell::new(num::exact(stats.updates)),
            Cell::new(num::exact(stats.removes + stats.evictions)),
            Cell::new(num::exact(stats.flushes)).tone(tone(stats.flushes > 0, Tone::Warn)),
            Cell::new(num::exact(stats.aliases)).tone(tone(stats.aliases > 0, Tone::Warn)),
            Cell::new(num::exact(stats.hits)),
        ];
        if with_spark {
            row.push(Cell::spark(over_time));
        }
        table.push(row);
    }
    (!table.is_empty()).then_some(table)
}

/// What moving entries of the indirection table did, beside the table as it was.
pub(crate) fn moves(analysis: &Analysis) -> Option<Table> {
    let moves = analysis.policies.iter().find_map(|policy| policy.rebalance.as_ref())?;
    let over_time = |of: fn(&RebalanceWindow) -> f64| {
        Cell::spark(moves.windows.iter().map(of).collect::<Vec<_>>())
    };
    let time = |nanos: u64| Unit::Nanos.show(nanos as f64);
    let mut table = Table::new("")
        .column(Column::text("indirection table"))
        .column(Column::number("max/mean").unit("queues, mean of windows"))
        .column(Column::number("moves"))
        .column(Column::number("moved entries"))
        .column(Column::number("forced"))
        .column(Column::number("too early"))
        .column(Column::number("busy entries"))
        .column(Column::text("max/mean over time"))
        .note(format!(
            "load is measured over {}; an entry of a queue with more than {} times the mean load moves once no packet has come for it in {}; at most {} move in a second",
            time(moves.window_ns),
            moves.even,
            time(moves.pause_ns),
            moves.moves_per_second
        ))
        .note("forced: moves without a pause (--rebalance-force-after). too early: moves while the old core still had packets of the entry, by the queue delay model; without these, no packet can be overtaken")
        .note("busy entries: entries that were to move, did not pause in time, and stayed");
    let none = || Cell::new("-").tone(Tone::Dim);
    table.push([
        Cell::new("as it was").tone(Tone::Strong),
        Cell::new(ratio(moves.mean_imbalance_of_rss)),
        none(),
        none(),
        none(),
        none(),
        none(),
        over_time(|window| window.rss),
    ]);
    table.push([
        Cell::new("rebalanced").tone(Tone::Strong),
        Cell::new(ratio(moves.mean_imbalance)),
        Cell::new(num::exact(moves.moves)),
        Cell::new(num::exact(moves.moved_entries)),
        Cell::new(num::exact(moves.forced)).tone(tone(moves.forced > 0, Tone::Warn)),
        Cell::new(num::exact(moves.early)).tone(tone(moves.early > 0, Tone::Warn)),
        Cell::new(num::exact(moves.busy_entries)),
        over_time(|window| window.rebalanced),
    ]);
    Some(table)
}

pub(crate) fn elephants_title(analysis: &Analysis) -> String {
    let least = Unit::Share.show(analysis.setup.elephant_share);
    format!("Elephants: flows with more than {least} of the received bytes")
}

/// Elephants, each with its final core and its share of that core's load under every policy.
pub(crate) fn elephants(analysis: &Analysis) -> Option<Table> {
    if analysis.elephants.is_empty() {
        return None;
    }
    let mut table = Table::new("")
        .column(Column::text("flow"))
        .column(Column::number("bytes"))
        .column(Column::number("share"));
    for policy in &analysis.policies {
        table = table.column(Column::number(&*policy.name).unit("core: share"));
    }
    for elephant in &analysis.elephants {
        let mut row = vec![
            Cell::new(&*elephant.flow),
            Cell::new(Unit::Bytes.show(elephant.bytes as f64)),
            Cell::new(Unit::Share.show(elephant.share)),
        ];
        row.extend(analysis.policies.iter().map(|policy| on_core(elephant, policy)));
        table.push(row);
    }
    Some(table.note("core: share: the flow's final core, and the flow's share of the bytes that core has received since the flow moved there"))
}

fn on_core(elephant: &Elephant, policy: &PolicySummary) -> Cell {
    match elephant.policies.get(&policy.name) {
        Some(on) => {
            let text = format!("{}: {}", on.final_core, Unit::Share.show(on.share_of_core));
            Cell::new(text).tone(tone(on.share_of_core > 0.5, Tone::Warn))
        }
        None => Cell::new("dropped").tone(Tone::Dim),
    }
}

/// Each rule of the rule file: accepted or refused, the reason, and the packets that matched it.
pub(crate) fn rules(analysis: &Analysis) -> Option<Table> {
    let mut table = Table::new("")
        .column(Column::number("line"))
        .column(Column::text("rule"))
        .column(Column::text("verdict"))
        .column(Column::number("packets"))
        .column(Column::text("why"));
    for rule in analysis.policies.iter().flat_map(|policy| &policy.rules) {
        table.push([
            Cell::new(rule.line.to_string()),
            Cell::new(&*rule.rule),
            Cell::new(&*rule.verdict).tone(match rule.verdict.as_str() {
                "accepted" => Tone::Good,
                "refused" => Tone::Bad,
                _ => Tone::Warn,
            }),
            Cell::new(num::exact(rule.packets)),
            Cell::new(&*rule.why),
        ]);
    }
    (!table.is_empty()).then_some(table)
}

/// Counts of packets that could not be parsed or are unusual.
pub(crate) fn faults(analysis: &Analysis) -> Option<Table> {
    let traffic = &analysis.traffic;
    let mut table = Table::new("")
        .column(Column::text("what"))
        .column(Column::number("packets"))
        .column(Column::number("share"));
    let unusual = [
        ("not IP", traffic.not_ip),
        ("IP fragments", traffic.fragments),
        ("with VLAN tags", traffic.vlan),
        ("with MPLS labels", traffic.mpls),
        ("in a tunnel", traffic.tunnelled),
        ("truncated by the snapshot length", traffic.truncated),
    ];
    let counted = unusual.into_iter().map(|(what, packets)| (what.to_owned(), packets));
    let faults =
        traffic.parse_errors.iter().map(|(name, &packets)| (name.replace('_', " "), packets));
    for (what, packets) in counted.chain(faults).filter(|(_, packets)| *packets > 0) {
        table.push([
            Cell::new(what),
            Cell::new(num::exact(packets)),
            Cell::new(num::share(packets, traffic.packets)),
        ]);
    }
    (!table.is_empty()).then_some(table)
}

/// The verdicts on checksums.
pub(crate) fn checksums(analysis: &Analysis) -> Option<Table> {
    let mut table = Table::new("").column(Column::text("of"));
    for verdict in ["good", "bad", "partial", "not checked"] {
        table = table.column(Column::number(verdict));
    }
    let mut rows: Vec<_> = analysis.traffic.checksums.iter().collect();
    rows.sort_by_key(|(name, _)| name.starts_with("inner_"));
    for (name, counts) in rows {
        let bad = if counts.bad > 0 { Tone::Bad } else { Tone::Plain };
        table.push([
            Cell::new(checksum_name(name)),
            Cell::new(num::exact(counts.good)),
            Cell::new(num::exact(counts.bad)).tone(bad),
            Cell::new(num::exact(counts.partial)),
            Cell::new(num::exact(counts.not_checked)),
        ]);
    }
    (!table.is_empty()).then_some(table)
}

/// `inner_ipv4` as `inner IPv4`.
fn checksum_name(name: &str) -> String {
    let (prefix, name) = name.strip_prefix("inner_").map_or(("", name), |name| ("inner ", name));
    let name = match name {
        "ipv4" => "IPv4",
        "tcp" => "TCP",
        "udp" => "UDP",
        "sctp" => "SCTP",
        "icmp" => "ICMP",
        "icmpv6" => "ICMPv6",
        other => other,
    };
    format!("{prefix}{name}")
}

/// One row per queue or core, with packets and bytes under each policy.
fn load_table<'a>(
    what: &str,
    policies: impl IntoIterator<Item = (&'a str, &'a [LoadSummary])>,
    bytes: bool,
) -> Option<Table> {
    let policies: Vec<_> = policies.into_iter().collect();
    let mut table = Table::new("").column(Column::number(what));
    for &(name, _) in &policies {
        table = table.column(Column::number(name).unit("packets"));
        if bytes {
            table = table.column(Column::number("").unit("bytes"));
        }
    }
    for number in 0..policies.iter().map(|(_, loads)| loads.len()).max()? {
        let mut row = vec![Cell::new(number.to_string()).tone(Tone::Strong)];
        for (_, loads) in &policies {
            let load = loads.get(number).copied().unwrap_or(LoadSummary { packets: 0, bytes: 0 });
            row.push(Cell::new(num::exact(load.packets)));
            if bytes {
                row.push(Cell::new(Unit::Bytes.show(load.bytes as f64)).tone(Tone::Dim));
            }
        }
        table.push(row);
    }
    Some(table)
}

fn loads_of_queues(analysis: &Analysis, bytes: bool) -> Option<Table> {
    let policies = analysis.policies.iter().map(|policy| (&*policy.name, &*policy.queues));
    load_table("queue", policies, bytes)
}

/// Load per core, only for policies that pass frames from the queue's core to another one.
fn loads_of_cores(analysis: &Analysis, bytes: bool) -> Option<Table> {
    let passes_on = |policy: &&PolicySummary| policy.cores != policy.queues;
    let policies = analysis.policies.iter().filter(passes_on);
    load_table("core", policies.map(|policy| (&*policy.name, &*policy.cores)), bytes)
}

pub(crate) fn loads(loads: &[LoadSummary]) -> Vec<f64> {
    loads.iter().map(|load| load.packets as f64).collect()
}

fn by_filter(policy: &PolicySummary) -> Cell {
    let total: u64 = policy.stages.values().sum();
    let filtered: u64 =
        ["filter", "rule", "dropped"].iter().filter_map(|name| policy.stages.get(*name)).sum();
    if policy.filters.is_none() || total == 0 {
        return Cell::new("-").tone(Tone::Dim);
    }
    Cell::new(num::share(filtered, total))
}

fn ratio(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
}

fn share(value: Option<f64>) -> Cell {
    value.map_or_else(|| Cell::new("-").tone(Tone::Dim), |value| Cell::new(Unit::Share.show(value)))
}

const fn tone(on: bool, then: Tone) -> Tone {
    if on { then } else { Tone::Plain }
}

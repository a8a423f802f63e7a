//! The HTML page: the graphs of RFC 2544, tables, the compliance statement, and all trials.

use flowyard_report::{Axis, Card, Cell, Column, Page, Plot, Section, Table, Tone, Unit, num};

use super::data::{Document, Time, measured};
use super::tables::{name, tables};
use crate::setup::Topology;
use crate::suite::AtSize;
use crate::traffic::{Addresses, Family, Mix};

/// The page. `command` is the command line that repeats the run, `time` the time of the run.
#[must_use]
pub fn page(document: &Document, command: &str, time: &str) -> Page {
    let results = &document.results;
    let lost: u64 = results.trials.iter().map(|row| row.counts.lost()).sum();
    let sent: u64 = results.trials.iter().map(|row| row.counts.sent).sum();
    let mut page = Page::new(format!("Test bench: profile {}", results.profile.name))
        .subtitle(&document.device)
        .command(command)
        .time(time)
        .card(
            Card::new(
                "time",
                match document.time {
                    Time::Virtual => "virtual",
                    Time::Real => "real",
                },
            )
            .detail("results of virtual and real time are not comparable"),
        )
        .card(Card::new("trials", num::exact(results.trials.len() as u64)))
        .card(
            Card::new("frames sent", num::exact(sent))
                .detail(format!("{} lost or damaged", num::exact(lost))),
        );
    let mut graphs = Section::new("Graphs");
    let plots: Vec<Plot> = [throughput(document), latency(document), bursts(document)]
        .into_iter()
        .flatten()
        .chain(results.sizes.iter().filter_map(|at| loss(at, &name(document, &at.size))))
        .collect();
    let any = !plots.is_empty();
    graphs = graphs.plots(plots);
    if any {
        page = page.section(graphs);
    }
    let mut section = Section::new("Results");
    for table in tables(document) {
        section = section.table(table);
    }
    page = page
        .section(section)
        .section(compliance(document))
        .section(configuration(document))
        .section(Section::new("Every trial").table(raw(document)));
    for note in &document.deviations {
        page = page.footnote(note);
    }
    page
}

/// The mean frame size: the position on an axis.
fn bytes(at: &AtSize) -> f64 {
    let sizes = at.size.sizes();
    sizes.iter().map(|&size| f64::from(size)).sum::<f64>() / sizes.len() as f64
}

fn sizes(document: &Document) -> Axis {
    let ticks: Vec<f64> = document.results.sizes.iter().map(bytes).collect();
    Axis::linear("frame size", Unit::Plain("B")).ticks_at(ticks)
}

/// Section 26.1: theoretical and measured rate by frame size.
fn throughput(document: &Document) -> Option<Plot> {
    let line: Vec<_> = measured(&document.results).map(|at| (bytes(at), at.max.pps())).collect();
    let found = measured(&document.results)
        .filter_map(|at| Some((bytes(at), at.throughput.as_ref()?.load?.pps())));
    let found: Vec<_> = found.collect();
    let is_limited = |at: &AtSize| at.throughput.is_some_and(|answer| answer.tester_limit);
    let note = if measured(&document.results).any(is_limited) {
        "RFC 2544 section 26.1; per port. At some sizes the tester was the limit: the device forwards at least the measured rate."
    } else {
        "RFC 2544 section 26.1; per port"
    };
    (!line.is_empty()).then(|| {
        Plot::new("Throughput", sizes(document), Axis::linear("frames a second", Unit::Pps))
            .line("theoretical", line)
            .line("measured", found)
            .note(note)
    })
}

fn latency(document: &Document) -> Option<Plot> {
    let of = |pick: fn(&AtSize) -> Option<f64>| -> Vec<(f64, f64)> {
        let points = document.results.sizes.iter();
        points.filter_map(|at| Some((bytes(at), pick(at)?))).collect()
    };
    let mean = of(|at| Some(at.latency.as_ref()?.mean_ns));
    (!mean.is_empty()).then(|| {
        Plot::new("Latency", sizes(document), Axis::linear("latency", Unit::Nanos))
            .line("mean (RFC 2544)", mean)
            .line("typical (RFC 8219)", of(|at| Some(at.variation.as_ref()?.tl_ns[0] as f64)))
            .line("worst case (RFC 8219)", of(|at| Some(at.variation.as_ref()?.wcl_ns[0] as f64)))
    })
}

fn bursts(document: &Document) -> Option<Plot> {
    let points = document.results.sizes.iter();
    let points: Vec<_> =
        points.filter_map(|at| Some((bytes(at), at.back_to_back.as_ref()?.mean))).collect();
    (!points.is_empty()).then(|| {
        Plot::new("Back-to-back frames", sizes(document), Axis::linear("frames", Unit::Count))
            .line("longest burst", points)
    })
}

/// Section 26.3: loss by load, both axes from 0 to 100 %.
fn loss(at: &AtSize, name: &str) -> Option<Plot> {
    let steps = at.loss_rate.as_ref()?;
    let points: Vec<_> =
        steps.iter().map(|step| (step.percent as f64 / 100.0, step.counts.loss_ratio())).collect();
    let axis = |title: &str| Axis::linear(title, Unit::Share).range(0.0, 1.0);
    Some(
        Plot::new(format!("Frame loss rate, {name} bytes"), axis("input rate"), axis("loss"))
            .line("lost", points)
            .note("RFC 2544 section 26.3"),
    )
}

/// A line about the traffic: who sends, the flows, the filters.
#[must_use]
pub fn traffic(document: &Document) -> String {
    let profile = &document.results.profile;
    let senders = match profile.topology {
        Topology::Uni => "port 0 sends to port 1".to_owned(),
        Topology::Pairs(2) => "both ports send to each other".to_owned(),
        Topology::Pairs(ports) => {
            format!("both ports of each pair send to each other, {ports} ports")
        }
        Topology::Mesh(ports) => format!("each of {ports} ports sends to all others"),
    };
    let filters = match profile.filters {
        0 => "no filters".to_owned(),
        1 => "1 filter".to_owned(),
        count => format!("{count} filters"),
    };
    format!("Traffic: {senders}; {}; {filters}", flows(document))
}

/// The flows of each port, in words.
fn flows(document: &Document) -> String {
    let profile = &document.results.profile;
    let (family, kind) = (family(profile.family), addresses(profile.addresses));
    match profile.flows {
        1 => format!("1 flow per port, with {kind} {family} addresses"),
        count => {
            format!("{count} flows per port, {}; {kind} {family} addresses", mix(&profile.mix))
        }
    }
}

/// Which ports send, in words.
fn ports(topology: Topology) -> String {
    match topology {
        Topology::Uni => "port 0 sends to port 1".to_owned(),
        Topology::Pairs(ports) => format!("{ports}; the two of each pair send to each other"),
        Topology::Mesh(ports) => format!("{ports}; each sends to all others in turn"),
    }
}

/// The order of flows, in words.
fn mix(mix: &Mix) -> String {
    match mix {
        Mix::RoundRobin => "one after another".to_owned(),
        Mix::Zipf(exponent) => format!("chosen by Zipf's law with exponent {exponent}"),
        Mix::Model(name) => format!("with the sizes of the workload {name}"),
        Mix::Etc => "with the requests of the memcached pool ETC".to_owned(),
        Mix::Replay(_) => "as in the replayed capture".to_owned(),
    }
}

const fn addresses(addresses: Addresses) -> &'static str {
    match addresses {
        Addresses::Patterned => "patterned",
        Addresses::Networks => "in 256 networks, random",
        Addresses::Random => "random",
        Addresses::Colliding => "random, with colliding hashes,",
    }
}

const fn family(family: Family) -> &'static str {
    match family {
        Family::Ipv4 => "IPv4",
        Family::Ipv6 => "IPv6",
    }
}

fn compliance(document: &Document) -> Section {
    let mut table = Table::new("")
        .column(Column::text("section"))
        .column(Column::text("strength"))
        .column(Column::text("requirement"))
        .column(Column::text("met"));
    for point in &document.compliance.points {
        let (word, tone) = match (point.met, point.must) {
            (true, _) => ("yes", Tone::Good),
            (false, true) => ("no", Tone::Bad),
            (false, false) => ("no", Tone::Warn),
        };
        table.push([
            Cell::new(point.section.as_str()),
            Cell::new(if point.must { "MUST" } else { "SHOULD" }),
            Cell::new(point.text.as_str()),
            Cell::new(word).tone(tone),
        ]);
    }
    Section::new("Compliance").text(document.compliance.verdict.as_str()).table(table)
}

fn configuration(document: &Document) -> Section {
    let Document { machine, results, .. } = document;
    let profile = &results.profile;
    let sizes: Vec<String> = profile.sizes.iter().map(|size| profile.size_name(size)).collect();
    let mut section = Section::new("Configuration").definitions([
        ("device", document.device.clone()),
        ("version", document.version.clone()),
        ("line", Unit::Bps.show(profile.line.bps as f64)),
        ("ports", ports(profile.topology)),
        ("sizes", sizes.join("; ")),
        ("flows", flows(document)),
        (
            "broadcasts",
            match profile.broadcast_every {
                0 => "none".to_owned(),
                1 => "every frame".to_owned(),
                every => format!("one frame in {every}"),
            },
        ),
        ("seed", profile.seed.to_string()),
        ("processor", format!("{} x {}", machine.processors, machine.processor)),
        ("kernel", machine.kernel.clone()),
        ("load before", machine.load.clone()),
        ("steal", format!("{} ticks", machine.steal_ticks)),
    ]);
    if !document.tester.is_empty() {
        section = section.table(crate::qualify::table(&document.tester));
    }
    let drops =
        document.drops.iter().map(|(reason, count)| format!("{reason}: {}", num::exact(*count)));
    section.list(drops)
}

fn raw(document: &Document) -> Table {
    let mut table = Table::new("")
        .column(Column::text("size"))
        .column(Column::text("test"))
        .column(Column::number("load").unit("frames/s"))
        .column(Column::number("duration"))
        .column(Column::number("intended"))
        .column(Column::number("sent"))
        .column(Column::number("lost"))
        .column(Column::number("dup."))
        .column(Column::number("reord."))
        .column(Column::number("corrupt"))
        .column(Column::text("tester"));
    let time = |ns| Unit::Nanos.show(ns as f64);
    for row in &document.results.trials {
        let counts = &row.counts;
        table.push([
            Cell::new(name(document, &row.size)),
            Cell::new(row.test.to_string()),
            Cell::new(format!("{:.1}", row.trial.load.pps())),
            Cell::new(row.stopped_at.map_or_else(
                || time(row.trial.duration),
                |at| format!("{} of {}", time(at), time(row.trial.duration)),
            )),
            Cell::new(num::exact(counts.intended)),
            Cell::new(num::exact(counts.sent)),
            Cell::new(num::exact(counts.lost())),
            Cell::new(num::exact(counts.duplicates)),
            Cell::new(num::exact(counts.reordered)),
            Cell::new(num::exact(counts.corrupt)),
            Cell::new(row.fault.as_deref().unwrap_or("ok")),
        ]);
    }
    table
}

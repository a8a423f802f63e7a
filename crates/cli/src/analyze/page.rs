//! An [`Analysis`] as one self-contained HTML page with plots.

use flowyard_analyze::{Analysis, PolicySummary, RebalanceWindow};
use flowyard_report::{Axis, Card, Page, Plot, Section, Tone, Unit, num};

use super::tables;

pub(super) fn page(analysis: &Analysis, command: &str) -> Page {
    let traffic = &analysis.traffic;
    let mut page = Page::new("Which core gets each packet")
        .subtitle(tables::capture_line(analysis))
        .command(command)
        .time(crate::clock::date())
        .card(Card::new("packets received", num::exact(traffic.received)).detail(format!(
            "of {}, in {} flows",
            num::exact(traffic.packets),
            num::exact(traffic.received_flows)
        )));
    for card in [best_locality(analysis), flattest(analysis), most_exposed(analysis)] {
        page = page.card(card);
    }
    page = page.section(verdict(analysis)).section(policies(analysis)).section(load(analysis));
    if let Some(section) = filters(analysis) {
        page = page.section(section);
    }
    if let Some(section) = moves(analysis) {
        page = page.section(section);
    }
    page = page.section(flows(analysis));
    if let Some(table) = tables::rules(analysis) {
        page = page.section(Section::new("Rules").table(table));
    }
    let machine = [
        ("Rule counters", tables::machine::counters(analysis)),
        ("Interrupts", tables::machine::interrupts(analysis)),
        ("Tenants", tables::machine::tenants(analysis)),
        ("Storage (FCoE)", tables::machine::storage(analysis)),
        ("NC-SI control frames", tables::machine::control(analysis)),
    ];
    for (title, table) in machine {
        if let Some(table) = table {
            page = page.section(Section::new(title).table(table));
        }
    }
    if let Some(table) = tables::faults(analysis) {
        page = page.section(Section::new("Headers").table(table));
    }
    if let Some(table) = tables::checksums(analysis) {
        page = page.section(Section::new("Checksums").table(table));
    }
    for note in &analysis.notes {
        page = page.footnote(note);
    }
    page.section(model(analysis))
}

fn verdict(analysis: &Analysis) -> Section {
    analysis.verdict.iter().fold(Section::new("What it means"), |section, finding| {
        let section = section.text(&finding.text);
        if finding.commands.is_empty() { section } else { section.code(&finding.commands) }
    })
}

fn named(policy: Option<&PolicySummary>) -> String {
    policy.map_or_else(|| "-".to_owned(), |policy| policy.name.clone())
}

fn best_locality(analysis: &Analysis) -> Card {
    let best = analysis
        .policies
        .iter()
        .filter(|policy| policy.locality.is_some())
        .max_by(|a, b| a.locality.unwrap_or(0.0).total_cmp(&b.locality.unwrap_or(0.0)));
    let share = best.and_then(|policy| policy.locality);
    Card::new(
        "best locality",
        share.map_or_else(|| "-".to_owned(), |share| Unit::Share.show(share)),
    )
    .detail(format!("{}: received on the reading thread's core", named(best)))
    .tone(Tone::Good)
}

/// A busiest core with more than this times the mean load is not a good result.
const UNEVEN: f64 = 1.5;

fn flattest(analysis: &Analysis) -> Card {
    let cores = |policy: &PolicySummary| policy.imbalance.cores.unwrap_or(f64::INFINITY);
    let best = analysis.policies.iter().min_by(|a, b| cores(a).total_cmp(&cores(b)));
    let ratio = best.and_then(|policy| policy.imbalance.cores);
    let text = ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
    let card = Card::new("least uneven load", text)
        .detail(format!("{}: load of the busiest core over the mean; 1 is even", named(best)));
    match ratio {
        Some(ratio) if ratio > UNEVEN => card.tone(Tone::Warn),
        _ => card,
    }
}

fn most_exposed(analysis: &Analysis) -> Card {
    let worst = analysis.policies.iter().max_by_key(|policy| policy.reorder.packets);
    let packets = worst.map_or(0, |policy| policy.reorder.packets);
    let card = Card::new("reordering", num::exact(packets));
    if packets == 0 {
        return card
            .detail("under every policy, no packet would be reordered in this model")
            .tone(Tone::Good);
    }
    card.detail(format!("{}: packets that could be reordered", named(worst))).tone(Tone::Warn)
}

fn policies(analysis: &Analysis) -> Section {
    let names: Vec<_> = analysis.policies.iter().map(|policy| policy.name.clone()).collect();
    let localities: Vec<f64> =
        analysis.policies.iter().map(|policy| policy.locality.unwrap_or(f64::NAN)).collect();
    let exposed: Vec<f64> =
        analysis.policies.iter().map(|policy| policy.reorder.packets as f64).collect();
    Section::new("Policies side by side")
        .text(tables::host_line(analysis).replace('\n', ". "))
        .table(tables::policies(analysis))
        .plots([
            Plot::new(
                "Locality by policy",
                Axis::linear("received on the reading thread's core", Unit::Share).range(0.0, 1.0),
                Axis::categories("", names.clone()),
            )
            .bars("locality", localities),
            Plot::new(
                "Packets that could be reordered",
                Axis::linear("packets", Unit::Count),
                Axis::categories("", names),
            )
            .bars("could be reordered", exposed),
        ])
}

fn load(analysis: &Analysis) -> Section {
    let numbers = |count: usize| (0..count).map(|n| n.to_string()).collect::<Vec<_>>();
    let plot = |title: &str, what: &str, each: fn(&PolicySummary) -> Vec<f64>| {
        let count = analysis.policies.first().map_or(0, |policy| each(policy).len());
        let mut plot = Plot::new(
            title,
            Axis::categories(what, numbers(count)),
            Axis::linear("packets", Unit::Count),
        );
        for policy in &analysis.policies {
            plot = plot.bars(&*policy.name, each(policy));
        }
        plot
    };
    let section = Section::new("Load")
        .plot(plot("Load per queue", "receive queue", |policy| tables::loads(&policy.queues)))
        .plot(plot("Load per core", "core", |policy| tables::loads(&policy.cores)));
    analysis.policies.iter().fold(section, |section, policy| {
        match tables::over_time_of(&policy.queues_over_time) {
            Some(table) => {
                section.folded(format!("Load per queue over time under {}", policy.name), table)
            }
            None => section,
        }
    })
}

fn filters(analysis: &Analysis) -> Option<Section> {
    let table = tables::filters(analysis, false)?;
    let mut plot = Plot::new(
        "Filters in the table over time",
        Axis::linear("time", Unit::Nanos),
        Axis::linear("filters", Unit::Count),
    );
    let mut capacities: Vec<u32> = Vec::new();
    for policy in &analysis.policies {
        let Some(filters) = &policy.filters else { continue };
        let points: Vec<_> = filters
            .occupancy_over_time
            .iter()
            .map(|&(seconds, n)| (seconds * 1e9, f64::from(n)))
            .collect();
        plot = plot.steps(&*policy.name, points);
        // A line at the capacity of a nearly empty table would flatten its curve.
        let peak = filters.occupancy_over_time.iter().map(|&(_, n)| n).max().unwrap_or(0);
        let capacity = filters.stats.capacity;
        if peak > capacity / 4 && !capacities.contains(&capacity) {
            capacities.push(capacity);
        }
    }
    for capacity in capacities {
        let label = format!("capacity {}", num::exact(capacity.into()));
        plot = plot.limit_y(f64::from(capacity), label);
    }
    Some(Section::new("Filter tables").table(table).plot(plot))
}

/// Moves of table entries, if a policy makes some.
fn moves(analysis: &Analysis) -> Option<Section> {
    let moves = analysis.policies.iter().find_map(|policy| policy.rebalance.as_ref())?;
    let points = |of: fn(&RebalanceWindow) -> f64| -> Vec<(f64, f64)> {
        moves.windows.iter().map(|window| (window.end_s * 1e9, of(window))).collect()
    };
    let plot = Plot::new(
        "Load of the busiest queue over time",
        Axis::linear("time", Unit::Nanos),
        Axis::linear("times the mean", Unit::Plain("")),
    )
    .line("table as it was", points(|window| window.rss))
    .line("rebalanced", points(|window| window.rebalanced))
    .limit_y(moves.even, "overloaded");
    Some(Section::new("Moves of table entries").table(tables::moves(analysis)?).plot(plot))
}

fn flows(analysis: &Analysis) -> Section {
    let cdf: Vec<_> = analysis
        .traffic
        .flow_size_cdf
        .iter()
        .map(|&(bytes, share)| (bytes as f64, share))
        .collect();
    let mut section = Section::new("Flows").plot(
        Plot::new(
            "Size of the received flows",
            Axis::log("bytes in the flow", Unit::Count),
            Axis::linear("share of flows up to this size", Unit::Share).range(0.0, 1.0),
        )
        .steps("received flows", cdf),
    );
    if let Some(table) = tables::elephants(analysis) {
        section = section.table(table.titled(tables::elephants_title(analysis)));
    }
    section
}

fn model(analysis: &Analysis) -> Section {
    let setup = &analysis.setup;
    let policies =
        analysis.policies.iter().map(|policy| (policy.name.clone(), policy.title.clone()));
    let terms = [
        ("locality", "The share of received packets that belong to a flow and arrive on the core where the application thread runs that reads them. A capture does not contain the threads; --consumer and --migrate-every describe the model of them.".to_owned()),
        ("could be reordered", format!("Every core is modelled as a first-in first-out queue that needs {} per frame (--service, --core-delay). A packet could be reordered if its core would finish it before another core finishes an earlier packet of the same flow.", Unit::Nanos.show(setup.service_ns as f64))),
        ("max/mean", "The load of the busiest core divided by the mean load of all cores. The best value is 1; the worst is the number of cores.".to_owned()),
        ("aliases", "Packets that matched the filter of another flow with the same signature.".to_owned()),
    ];
    Section::new("How to read this")
        .definitions(policies)
        .definitions(terms.map(|(term, text)| (term.to_owned(), text)))
}

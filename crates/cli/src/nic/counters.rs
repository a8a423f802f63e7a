//! The results of a simulation: counters as text and as JSON, and the profile of its cycles.

use flowyard_nicsim::config::Config;
use flowyard_nicsim::counters::CoreCounters;
use flowyard_nicsim::device::{DeviceCounters, Histogram};
use flowyard_nicsim::isa;
use flowyard_nicsim::profile::{Category, Profile};
use flowyard_nicsim::run::Outcome;
use flowyard_report::{Cell, Column, Style, Table, num};
use schemars::JsonSchema;
use serde::Serialize;

use super::capture::Replay;

/// The JSON document of a simulation.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Report<'a> {
    /// The whole configuration, with its defaults.
    config: &'a Config,
    /// The simulated time that was measured.
    seconds: f64,
    /// The rate of UDP payload in both directions, in Gbit/s.
    udp_gbps: f64,
    /// The highest such rate that the link allows for frames of `load.udp_bytes`; not for those of a capture.
    udp_limit_gbps: f64,
    /// Frames in both directions.
    frames_per_second: f64,
    /// The share of the received frames that was dropped, 0 to 1.
    drop_share: f64,
    /// Frames that left out of order, changed or unexpectedly.
    errors: u64,
    /// Frames inside the adapter at the end: on their way to the link, to the host.
    held: (u64, u64),
    /// The cycles of each core.
    cores: &'a [CoreCounters],
    /// The counters of the devices.
    devices: &'a DeviceCounters,
    /// The cycles by function.
    profile: Profile,
    /// Firmware variables chosen by `--peek`: names and words.
    peeks: &'a [(String, Vec<u32>)],
    /// Times of sent frames from the host's descriptor to the last bit on the link: the lowest value of each bucket
    /// in nanoseconds, and the number of frames in it. A bucket is at most an eighth of its value wide.
    sent_latency_ns: Vec<(f64, u64)>,
    /// Times of received frames from the last bit on the link to the host, in the same form.
    received_latency_ns: Vec<(f64, u64)>,
    /// The capture of `--pcap-in`; absent without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    capture: Option<&'a Replay>,
}

impl<'a> Report<'a> {
    pub(super) fn of(outcome: &'a Outcome, capture: Option<&'a Replay>) -> Self {
        Self {
            config: &outcome.config,
            seconds: outcome.seconds(),
            udp_gbps: outcome.udp_gbps(),
            udp_limit_gbps: outcome.udp_limit_gbps(),
            frames_per_second: outcome.frames_per_second(),
            drop_share: outcome.drop_share(),
            errors: outcome.errors(),
            held: outcome.end.held,
            cores: &outcome.window.cores,
            devices: &outcome.window.devices,
            profile: Profile::of(&outcome.image, &outcome.window),
            peeks: &outcome.peeks,
            sent_latency_ns: buckets(outcome, &outcome.window.devices.sent_latency),
            received_latency_ns: buckets(outcome, &outcome.window.devices.received_latency),
            capture,
        }
    }
}

fn buckets(outcome: &Outcome, histogram: &Histogram) -> Vec<(f64, u64)> {
    let units = outcome.units_per_second as f64 / 1e9;
    histogram.rows().map(|(value, count)| (value as f64 / units, count)).collect()
}

/// The counters as text. The limit of the link is that of generated frames, so a capture has none.
pub(super) fn text(outcome: &Outcome, is_capture: bool, style: &Style) -> String {
    let d = &outcome.window.devices;
    let (udp, limit) = (outcome.udp_gbps(), outcome.udp_limit_gbps());
    let of = match is_capture {
        true => String::new(),
        false => format!(" of {limit:.3} ({:.2} %)", 100.0 * udp / limit.max(1e-9)),
    };
    let mut text = format!(
        "{} of {} MHz, {}, {} Gb/s link; {:.3} ms measured\n\
         UDP {udp:.3} Gb/s{of}, {:.3} M frames/s\n\n",
        num::count(outcome.config.chip.cores.into(), "core", "cores"),
        outcome.config.chip.mhz,
        num::count(outcome.config.chip.banks.into(), "bank", "banks"),
        outcome.config.mac.link_gbps,
        outcome.seconds() * 1e3,
        outcome.frames_per_second() / 1e6,
    );
    text += &frames(outcome).to_text(style);
    text += "\n";
    text += &latencies(outcome).to_text(style);
    text += "\n";
    text += &cores(outcome).to_text(style);
    let (seconds, total) = (outcome.seconds(), outcome.window.total());
    let assists: u64 = d.assist_accesses.iter().sum();
    text += &format!(
        "\nscratchpad: {:.1} M accesses/s by cores, {:.1} M accesses/s by assists; frame memory: {:.2} Gb/s, busy {:.1} % of the time; {} interrupts\n",
        (total.loads + total.stores) as f64 / seconds / 1e6,
        assists as f64 / seconds / 1e6,
        d.sdram.bytes_moved as f64 * 8.0 / seconds / 1e9,
        100.0 * d.sdram.busy_cycles as f64 / seconds / outcome.config.sdram.mhz.hz(),
        d.interrupts,
    );
    for (name, words) in &outcome.peeks {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        text += &format!("{name}: {}\n", words.join(" "));
    }
    if outcome.config.host.queues > 1 {
        let rings = &d.per_queue[..outcome.config.host.queues as usize];
        let rings: Vec<String> = rings.iter().map(ToString::to_string).collect();
        text += &format!("frames by return ring: {}\n", rings.join(" "));
    }
    text
}

fn frames(outcome: &Outcome) -> Table {
    let d = &outcome.window.devices;
    let mut table = Table::new("frames")
        .column(Column::text(""))
        .column(Column::number("in"))
        .column(Column::number("out"))
        .column(Column::number("dropped"))
        .column(Column::number("inside at the end"))
        .column(Column::number("damaged"))
        .column(Column::number("errors"))
        .column(Column::number("mean latency").unit("us"));
    for (name, counters, held, whole) in [
        ("sent", &d.sent, outcome.end.held.0, &outcome.end.devices.sent),
        ("received", &d.received, outcome.end.held.1, &outcome.end.devices.received),
    ] {
        let units = outcome.units_per_second as f64 / 1e6;
        let mean = counters.latency_sum as f64 / (counters.delivered as f64).max(1.0) / units;
        table.push([
            Cell::new(name),
            Cell::new(counters.entered.to_string()),
            Cell::new(counters.delivered.to_string()),
            Cell::new(counters.dropped.to_string()),
            Cell::new(held.to_string()),
            Cell::new(counters.damaged.to_string()),
            Cell::new(whole.errors.to_string()),
            Cell::new(format!("{mean:.2}")),
        ]);
    }
    table
}

/// Quantiles of the time of a frame in the adapter.
fn latencies(outcome: &Outcome) -> Table {
    let d = &outcome.window.devices;
    let mut table = Table::new(
        "time of a frame in the adapter, microseconds (quantiles are exact to an eighth)",
    )
    .column(Column::text(""));
    let shares =
        [(0.5, "median"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %"), (1.0, "longest")];
    for (_, name) in shares {
        table = table.column(Column::number(name));
    }
    let units = outcome.units_per_second as f64 / 1e6;
    for (name, histogram) in [("sent", &d.sent_latency), ("received", &d.received_latency)] {
        let cells = shares.map(|(share, _)| {
            Cell::new(format!("{:.2}", histogram.quantile(share) as f64 / units))
        });
        table.push(std::iter::once(Cell::new(name)).chain(cells));
    }
    table
}

fn cores(outcome: &Outcome) -> Table {
    let mut table = Table::new("cycles of each core, as shares of all its cycles")
        .column(Column::text("core"))
        .column(Column::number("execute"))
        .column(Column::number("fetch"))
        .column(Column::number("load"))
        .column(Column::number("conflict"))
        .column(Column::number("pipeline"))
        .column(Column::number("sum"));
    let row = |name: String, core: &CoreCounters| {
        let cycles = (core.cycles() as f64).max(1.0);
        let share = |part: u64| Cell::new(format!("{:.3}", part as f64 / cycles));
        [
            Cell::new(name),
            share(core.execute),
            share(core.fetch),
            share(core.load),
            share(core.conflict),
            share(core.pipeline),
            share(core.cycles()),
        ]
    };
    for (number, core) in outcome.window.cores.iter().enumerate() {
        table.push(row(number.to_string(), core));
    }
    table.total(row("all".into(), &outcome.window.total()))
}

pub(super) fn profile(outcome: &Outcome, style: &Style) -> String {
    let profile = Profile::of(&outcome.image, &outcome.window);
    let d = &outcome.window.devices;
    let all = profile.total().cycles as f64;
    let columns = |title: &str, first: &str| {
        Table::new(title)
            .column(Column::text(first))
            .column(Column::number("instructions").unit("per frame"))
            .column(Column::number("accesses").unit("per frame"))
            .column(Column::number("cycles").unit("per frame"))
            .column(Column::number("cycles").unit("% of all"))
    };
    let frames =
        |send: bool| (if send { d.sent.delivered } else { d.received.delivered } as f64).max(1.0);
    let cells = |name: String, share: &flowyard_nicsim::profile::Share, per: f64| {
        [
            Cell::new(name),
            Cell::new(format!("{:.1}", share.instructions as f64 / per)),
            Cell::new(format!("{:.1}", share.accesses as f64 / per)),
            Cell::new(format!("{:.1}", share.cycles as f64 / per)),
            Cell::new(format!("{:.1}", 100.0 * share.cycles as f64 / all.max(1.0))),
        ]
    };
    let mut categories = columns("by function of the paper", "function");
    for category in Category::ALL {
        let share = profile.share(category);
        if share.instructions > 0 {
            let per = frames(category.is_send());
            categories.push(cells(category.name().into(), &share, per));
        }
    }
    let mut functions = columns("by firmware function, per received frame", "function");
    for function in &profile.functions {
        functions.push(cells(function.name.clone(), &function.share, frames(false)));
    }
    let mut hot: Vec<_> = outcome.window.heat.iter().enumerate().collect();
    hot.sort_by_key(|(_, heat)| std::cmp::Reverse(heat.count + heat.stall));
    let mut heat = Table::new("hottest addresses")
        .column(Column::text("pc"))
        .column(Column::text("function"))
        .column(Column::text("instruction"))
        .column(Column::number("executed"))
        .column(Column::number("stalled").unit("cycles"))
        .column(Column::text("share of all cycles"));
    let most = hot.first().map_or(1, |(_, heat)| heat.count + heat.stall) as f64;
    for (index, at) in hot.into_iter().take(24) {
        let pc = 4 * index as u32;
        let insn =
            isa::decode(outcome.image.text[index], pc).map_or_else(String::new, |i| i.to_string());
        let name = outcome.image.function(pc).map_or("", |symbol| &symbol.name);
        let cycles = (at.count + at.stall) as f64;
        heat.push([
            Cell::new(format!("{pc:#06x}")),
            Cell::new(name),
            Cell::new(insn),
            Cell::new(at.count.to_string()),
            Cell::new(at.stall.to_string()),
            Cell::bar(cycles / most, format!("{:.2} %", 100.0 * cycles / all.max(1.0))),
        ]);
    }
    format!(
        "{}\n{}\n{}\n{} passes of the dispatch loop, of which {:.1} % found nothing to do\n",
        categories.to_text(style),
        functions.to_text(style),
        heat.to_text(style),
        profile.passes,
        100.0 * profile.idle_passes as f64 / (profile.passes as f64).max(1.0),
    )
}

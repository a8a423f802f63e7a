//! Shows every element with invented data, and difficult cases: `gallery [--text [columns] | --svg | FILE]`.
//!
//! Without an argument the page is written to standard output. Look at it in a browser: light, dark, printed.

use std::io::Write as _;
use std::path::Path;

use flowyard_frame::Rng;
use flowyard_report::{
    Axis, Card, Cell, Column, Page, Plot, Section, Style, Table, Tone, Unit, html, num,
};

/// Seeded random numbers, so that the gallery is the same every time.
struct Dice(Rng);

impl Dice {
    /// A number from 0 to 1.
    fn roll(&mut self) -> f64 {
        self.0.unit()
    }

    fn values(&mut self, count: usize, low: f64, high: f64) -> Vec<f64> {
        (0..count).map(|_| low + (high - low) * self.roll()).collect()
    }

    fn latencies(&mut self, count: usize, middle: f64, spread: f64) -> Vec<f64> {
        let bell = |dice: &mut Self| (0..6).map(|_| dice.roll()).sum::<f64>() - 3.0;
        (0..count).map(|_| middle * (bell(self) * spread).exp()).collect()
    }
}

fn numbers(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|i| i.to_string())
}

fn load(dice: &mut Dice, queues: usize) -> Plot {
    let axis = Axis::categories("queue", numbers(queues));
    Plot::new("Load per queue by policy", axis, Axis::linear("frames", Unit::Count))
        .bars("rss", dice.values(queues, 8e3, 41e3))
        .bars("flow director", dice.values(queues, 14e3, 30e3))
        .bars("software", dice.values(queues, 20e3, 24e3))
        .limit_y(22_500.0, "even share")
}

fn locality() -> Plot {
    let policies = ["rss", "rss, rebalanced", "flow director (ATR)", "perfect filters", "RFS"];
    Plot::new(
        "Locality by policy",
        Axis::linear("frames that reach the core of their application", Unit::Share)
            .range(0.0, 1.0),
        Axis::categories("", policies),
    )
    .bars("locality", [0.124, 0.131, 0.873, 1.0, 0.999_7])
    .note("A frame is local if the core that receives it also runs the application that reads it.")
}

fn occupancy(dice: &mut Dice) -> Plot {
    let mut plot = Plot::new(
        "Queue occupancy over time",
        Axis::linear("time", Unit::Nanos),
        Axis::linear("frames waiting", Unit::Count),
    );
    for queue in 0..3 {
        let mut level = 0.0f64;
        let points: Vec<(f64, f64)> = (0..20_000)
            .map(|i| {
                let burst = if i % 5000 > 4300 + queue * 150 { 0.62 } else { 0.46 };
                level = (level + if dice.roll() < burst { 1.0 } else { -1.0 }).clamp(0.0, 256.0);
                (f64::from(i) * 4e3, level)
            })
            .collect();
        plot = plot.steps(format!("queue {queue}"), points);
    }
    plot.limit_y(256.0, "ring full").limit_x(52e6, "rebalanced")
}

fn latency(dice: &mut Dice) -> Plot {
    Plot::new(
        "Latency",
        Axis::log("latency", Unit::Nanos),
        Axis::linear("share of frames", Unit::Share),
    )
    .cdf("direct", dice.latencies(5000, 2.4e3, 0.5))
    .cdf("atomic", dice.latencies(5000, 5.1e3, 0.7))
    .cdf("ordered", dice.latencies(5000, 6.8e3, 1.1))
    .limit_y(0.99, "p99")
}

const SIZES: [f64; 7] = [64.0, 128.0, 256.0, 512.0, 1024.0, 1280.0, 1518.0];

fn throughput() -> Plot {
    let line_rate = |size: f64| 1e10 / ((size + 20.0) * 8.0);
    let theory: Vec<_> = SIZES.iter().map(|s| (*s, line_rate(*s))).collect();
    let measured: Vec<_> = SIZES.iter().map(|s| (*s, line_rate(*s).min(6.1e6))).collect();
    let ordered: Vec<_> = SIZES.iter().map(|s| (*s, line_rate(*s).min(3.4e6))).collect();
    Plot::new(
        "Throughput by frame size",
        Axis::log("frame size", Unit::Plain("B")).ticks_at(SIZES),
        Axis::log("throughput", Unit::Pps),
    )
    .line("theoretical", theory)
    .line("direct", measured)
    .line("ordered", ordered)
    .note("RFC 2544, section 26.1.")
}

fn loss() -> Plot {
    let rates: Vec<f64> = (1..=10).map(|i| f64::from(i) / 10.0).collect();
    let loss = |knee: f64| -> Vec<(f64, f64)> {
        rates.iter().map(|r| (*r, (1.0 - knee / r).max(0.0))).collect()
    };
    Plot::new(
        "Frame loss rate by offered load",
        Axis::linear("offered load (of line rate)", Unit::Share).range(0.0, 1.0),
        Axis::linear("frame loss rate", Unit::Share).range(0.0, 1.0),
    )
    .line("64 B", loss(0.38))
    .line("256 B", loss(0.71))
    .line("1518 B", loss(1.0))
}

fn cycles() -> Plot {
    Plot::new(
        "Cycles by stage",
        Axis::categories("", ["rss", "flow director", "RFS", "software only"]),
        Axis::linear("cycles per frame", Unit::Count),
    )
    .bars("parse", [38.0, 38.0, 38.0, 41.0])
    .bars("steer", [22.0, 12.0, 61.0, 140.0])
    .bars("settle", [9.0, 9.0, 31.0, 33.0])
    .bars("enqueue", [18.0, 18.0, 19.0, 22.0])
    .bars("work", [210.0, 170.0, 165.0, 172.0])
    .stacked()
}

fn scatter(dice: &mut Dice) -> Plot {
    let cloud = |dice: &mut Dice, k: f64| -> Vec<(f64, f64)> {
        (0..60).map(|_| (10f64.powf(1.0 + 5.0 * dice.roll()), k * (0.4 + dice.roll()))).collect()
    };
    Plot::new(
        "Flow size and reordering",
        Axis::log("frames in the flow", Unit::Count),
        Axis::linear("reordered frames", Unit::Share),
    )
    .points("ATR", cloud(dice, 0.02))
    .points("RFS", cloud(dice, 0.008))
}

fn policies(dice: &mut Dice) -> Table {
    let mut table = Table::new("Policies compared")
        .column(Column::text("policy"))
        .column(Column::number("frames"))
        .column(Column::number("rate").unit("Mpps"))
        .column(Column::number("p99").unit("latency"))
        .column(Column::text("load per queue"))
        .column(Column::text("locality"))
        .column(Column::text("verdict"));
    let rows = [
        ("rss", 1_234_567, "1.23", 8.1e3, 0.124, Cell::new("uneven").tone(Tone::Warn)),
        (
            "flow director (ATR)",
            1_234_555,
            "1.41",
            5.2e3,
            0.873,
            Cell::new("reorders").tone(Tone::Bad),
        ),
        ("RFS", 1_234_567, "1.38", 4.9e3, 0.9997, Cell::new("good").tone(Tone::Good)),
        (
            "software only",
            987_001,
            "0.74",
            81e6,
            f64::NAN,
            Cell::new("not measured").tone(Tone::Dim),
        ),
    ];
    for (name, frames, rate, p99, local, verdict) in rows {
        table.push([
            Cell::new(name),
            Cell::new(num::exact(frames)),
            Cell::new(rate),
            Cell::new(Unit::Nanos.show(p99)),
            Cell::spark(dice.values(16, 1.0, 10.0)),
            Cell::share(local),
            verdict,
        ]);
    }
    table
        .total(["all", "4,690,690"].map(|t| Cell::new(t).tone(Tone::Strong)))
        .note("Locality of `software only` is not defined: it has no receive queue.")
}

fn hard_cases(dice: &mut Dice) -> Section {
    let nan = f64::NAN;
    let long = [
        "a policy with a very long name that goes on",
        "another policy with a long name",
        "短い名前",
        "x",
    ];
    let few = |t: &str| {
        Plot::new(t, Axis::linear("time", Unit::Nanos), Axis::linear("frames", Unit::Count))
    };
    let many = (0..40).fold(few("Forty lines"), |plot, i| {
        let k = f64::from(i);
        plot.line(format!("queue {i}"), vec![(0.0, k), (1e9, k + 20.0 * dice.roll())])
    });
    Section::new("Difficult cases")
        .plot(load(dice, 64))
        .plots([
            Plot::new("One queue", Axis::categories("queue", ["0"]), Axis::linear("frames", Unit::Count)).bars("rss", [12.0]),
            few("Nothing at all"),
            few("One point").line("single", vec![(5e6, 3.0)]),
            few("Not numbers").line("gaps", vec![(0.0, 1.0), (1.0, nan), (2.0, f64::INFINITY), (3.0, 2.0), (4.0, 3.0)]),
            few("Huge").line("huge", vec![(0.0, -1e308), (1.0, 1e308), (2.0, 3e299)]),
            many,
            Plot::new(
                "Long names, and a title that is much too long for one line above a plot of half the width",
                Axis::categories("policy", long),
                Axis::linear("frames", Unit::Count),
            )
            .bars("frames", [1e6, 2e6, nan, 0.0])
            .bars("a series name that is long as well, and then some more", [3e5, 1.0, 2.5e6, 4e5]),
            Plot::new("Horizontal, three sets", Axis::linear("load", Unit::Bps), Axis::categories("", long))
                .bars("in", [9.4e9, 1e9, nan, 3e6])
                .bars("out", [9.1e9, 2e9, f64::INFINITY, 0.0])
                .bars("dropped", [3e8, 4e8, 5e8, 6e8]),
            few("Limits close together")
                .line("load", vec![(0.0, 10.0), (1e9, 12.0)])
                .limit_y(11.8, "first limit").limit_y(11.9, "second limit").limit_y(12.0, "third limit")
                .limit_x(9e8, "here").limit_x(9.3e8, "and here"),
            Plot::new("<b>\"&amp;\u{1b}[31m", Axis::categories("<x>", ["<&>"]), Axis::linear("'y'", Unit::Share)).bars("\u{0}", [0.5]),
        ])
        .table(Table::new("No rows").column(Column::text("name")).column(Column::number("value")))
}

fn page() -> Page {
    let mut dice = Dice(Rng::new(7));
    Page::new("Steering analysis")
        .subtitle("How `campus-uplink.pcap` spreads over 8 queues of an Intel 82599, by policy")
        .command("flowyard analyze campus-uplink.pcap --adapter 82599 --queues 8 --policy rss,fdir,rfs --html report.html")
        .time("2026-03-14 09:26 UTC, 1.4 s")
        .card(Card::new("Frames", "1.23 M").detail("of 1.23 M in the capture"))
        .card(Card::new("Flows", num::exact(48_213)).detail("17 elephants carry 61.2 %"))
        .card(Card::new("Best locality", "100 %").detail("perfect filters").tone(Tone::Good))
        .card(Card::new("Most loaded queue", "1.83 ×").detail("of an even share, rss").tone(Tone::Warn))
        .card(Card::new("Reordered", "0.4 %").detail("flow director (ATR)").tone(Tone::Bad))
        .section(
            Section::new("Policies")
                .text("Each policy saw the same frames in the same order. `rss` uses the Microsoft key; the indirection table has 128 entries.")
                .table(policies(&mut dice))
                .list(["ATR moves flows without waiting, so it reorders.", "RFS waits, so it does not."]),
        )
        .section(Section::new("Load").plot(load(&mut dice, 8)).plot(locality()).plots([cycles(), scatter(&mut dice)]))
        .section(Section::new("Time").plot(occupancy(&mut dice)).plots([latency(&mut dice), throughput()]).plot(loss()))
        .section(Section::new("Terms").definitions([
            ("Locality", "The share of frames that arrive on the core that runs their application."),
            ("Elephant", "A flow with more than 1 % of all bytes."),
        ]))
        .section(hard_cases(&mut dice))
        .footnote("Simulated time; figures do not depend on this machine.")
        .footnote("Frame sizes include the FCS (RFC 1242).")
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut out = std::io::stdout().lock();
    match args.first().map(String::as_str) {
        Some("--text") => {
            let width = args.get(1).and_then(|w| w.parse().ok());
            page().write_text(&mut out, &Style { width, ..Style::plain() })?;
        }
        Some("--svg") => out.write_all(load(&mut Dice(Rng::new(7)), 8).to_svg().as_bytes())?,
        Some(file) => html::write(Path::new(file), &page())?,
        None => out.write_all(page().to_html().as_bytes())?,
    }
    Ok(())
}

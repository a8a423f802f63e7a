//! `flowyard bench steer`: steering in the kernel beside the kernel's own, on a veth between two namespaces.

use std::time::Duration;

use clap::ValueEnum;
use flowyard_bench::steer::requests::Load;
use flowyard_bench::steer::{Frames, Spread, Way, obstacle, order, requests, survival};
use flowyard_report::{Cell, Column, Table, Tone, Unit, num};

use crate::output::{self, Progress, style};
use crate::stop::{Stop, bad_input};

/// Names and versions of the documents.
pub(crate) const REQUESTS: &str = "flowyard.bench-steer-requests/1";
pub(crate) const ORDER: &str = "flowyard.bench-steer-order/1";
pub(crate) const SURVIVAL: &str = "flowyard.bench-steer-survival/1";

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard bench steer requests
  flowyard bench steer requests --rounds 3 --time 500ms --ways none,rfs,steer-rfs --json
  flowyard bench steer order --datagrams 10000000
  flowyard bench steer survival --seconds 60

Hosts are two network namespaces that the command makes and removes; the machine's own interfaces are not
used. It needs root, two CPUs, and the programs that it measures. A host's end of the veth is steered in each way in turn. Exit status 1
means that a promise was broken: a request without an answer, a lost connection, a datagram received twice, or one that steer
delivered late. Rates and times never are a failure.")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// memcached with two threads on two CPUs: requests received on the CPU of their thread, requests per second, latency
    Requests(Requests),
    /// Numbered datagrams to readers that move between CPUs: how many arrive late
    Order(Order),
    /// nginx, iperf3 and readers of datagrams while threads move, the link goes down, and steer is restarted and killed
    Survival(Survival),
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard bench steer requests
  flowyard bench steer requests --rounds 3 --time 500ms --ways none,rfs,steer-rfs --json")]
struct Requests {
    /// Number of rounds; every round measures every way once, beginning with another one
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,

    /// Duration of each measurement, 10ms to 60s; each way and round has two
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = humantime::parse_duration)]
    time: Duration,

    /// Load in open loop, in percent of the rate that memcached reaches in closed loop without steering, 1 to 100
    #[arg(long, value_name = "PERCENT", default_value_t = 50.0)]
    load: f64,

    /// Number of connections, 4 to 1024
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(4..=1024))]
    connections: u16,

    /// Requests that store a value, in percent; the others read one
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0)]
    sets: f64,

    /// Ways of steering [default: all but steer-rfs-unordered]
    #[arg(long, value_name = "WAY,...", value_delimiter = ',')]
    ways: Vec<WayName>,

    /// Print JSON (schema flowyard.bench-steer-requests/1) instead of tables
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard bench steer order --datagrams 10000000
  flowyard bench steer order --every 20ms --ways rfs,steer-rfs --json")]
struct Order {
    /// Datagrams for each way, of all flows together
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(100..))]
    datagrams: u64,

    /// Number of flows, each with a thread that reads it, 1 to 64
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    flows: u16,

    /// Datagrams of a flow that are sent before those of the next one. A flow that never pauses cannot move in order
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    burst: u64,

    /// Time between two moves of a thread to the other CPU, 1ms to 1s
    #[arg(long, value_name = "TIME", default_value = "4ms", value_parser = humantime::parse_duration)]
    every: Duration,

    /// Ways of steering [default: rps,rfs,steer-rfs,steer-rfs-unordered]
    #[arg(long, value_name = "WAY,...", value_delimiter = ',')]
    ways: Vec<WayName>,

    /// Print JSON (schema flowyard.bench-steer-order/1) instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard bench steer survival
  flowyard bench steer survival --seconds 60 --json")]
struct Survival {
    /// For how many seconds everything is disturbed; at least 10, so that each disturbance occurs
    #[arg(long, value_name = "N", default_value_t = 600, value_parser = clap::value_parser!(u32).range(10..=86_400))]
    seconds: u32,

    /// Decides how long the link is down, and which end
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Print JSON (schema flowyard.bench-steer-survival/1) instead of a table
    #[arg(long)]
    json: bool,
}

/// Values of `--ways`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum WayName {
    /// Not at all
    None,
    /// The kernel's RPS
    Rps,
    /// The kernel's RPS and RFS
    Rfs,
    /// flowyard steer --policy rss
    SteerRss,
    /// flowyard steer --policy atr
    SteerAtr,
    /// flowyard steer --policy rfs
    SteerRfs,
    /// flowyard steer --policy rfs --unordered
    SteerRfsUnordered,
}

impl From<WayName> for Way {
    fn from(name: WayName) -> Self {
        match name {
            WayName::None => Self::None,
            WayName::Rps => Self::Rps,
            WayName::Rfs => Self::Rfs,
            WayName::SteerRss => Self::SteerRss,
            WayName::SteerAtr => Self::SteerAtr,
            WayName::SteerRfs => Self::SteerRfs,
            WayName::SteerRfsUnordered => Self::SteerRfsUnordered,
        }
    }
}

pub(super) fn run(args: &Args) -> Result<(), Stop> {
    match &args.what {
        What::Requests(args) => args.run(),
        What::Order(args) => args.run(),
        What::Survival(args) => args.run(),
    }
}

/// Stops if the machine cannot do this.
fn possible(programs: &[&str]) -> Result<(), Stop> {
    obstacle(programs).map_or(Ok(()), |why| Err(bad_input(format!("bench steer: {why}"))))
}

/// The ways that were named, each once, or else `all`.
fn ways(named: &[WayName], all: &[Way]) -> Vec<Way> {
    let mut ways: Vec<Way> = Vec::new();
    for &way in named {
        if !ways.contains(&way.into()) {
            ways.push(way.into());
        }
    }
    if ways.is_empty() { all.to_vec() } else { ways }
}

/// Exit status 1 if a promise was broken.
fn verdict(faults: &[String]) -> Result<(), Stop> {
    if faults.is_empty() {
        return Ok(());
    }
    Err(Stop::Failed(anyhow::anyhow!("promises were broken: {}", faults.join("; "))))
}

fn percent(option: &str, value: f64, least: f64) -> Result<f64, Stop> {
    if (least..=100.0).contains(&value) {
        return Ok(value / 100.0);
    }
    Err(bad_input(format!("{option}: must be {least} to 100 percent, not {value}")))
}

impl Requests {
    fn run(&self) -> Result<(), Stop> {
        if self.rounds == 0 {
            return Err(bad_input("--rounds: must be at least 1"));
        }
        if !(Duration::from_millis(10)..=Duration::from_secs(60)).contains(&self.time) {
            return Err(bad_input("--time: must be 10ms to 60s"));
        }
        let (load, sets) = (percent("--load", self.load, 1.0)?, percent("--sets", self.sets, 0.0)?);
        possible(&["memcached"])?;
        let job = requests::Job {
            program: &std::env::current_exe()?,
            ways: ways(&self.ways, &Way::REQUESTS),
            rounds: self.rounds,
            time: self.time,
            load,
            connections: self.connections.into(),
            sets,
            date: &crate::clock::date(),
            build: crate::VERSION,
        };
        let bar = Progress::new("{bar:40} {pos}/{len} measurements, {eta} left");
        let progress = |done: usize, of: usize| bar.at(done as u64, of as u64);
        let results = requests::measure(&job, &crate::clock::new(), &progress);
        drop(bar);
        let results = results.map_err(Stop::Failed)?;
        if self.json {
            return output::json(REQUESTS, results);
        }
        output::text(&requests_text(&results))
    }
}

fn spread(spread: Spread, unit: Unit) -> String {
    let Spread { median, least, most } = spread;
    format!("{} ({} to {})", unit.show(median), unit.show(least), unit.show(most))
}

fn requests_text(results: &requests::Results) -> String {
    let offered = num::exact(results.offered_rps as u64);
    let closed = "Closed loop: each connection asks again after the answer";
    let open = format!("Open loop: {offered} requests per second at random times");
    let mut text = loads(results, closed, |way| &way.closed, true);
    text += "\n";
    text += &loads(results, &open, |way| &way.open, false);
    let counted = counts(results.ways.iter().map(|one| (one.way, &one.frames)));
    text += &format!(
        "\nMedians of {} rounds of {} (least to greatest). memcached has a thread on each of two CPUs, and so has the \
         generator; {} connections, {:.0} % of the requests store a value. Local requests were received on the CPU of the \
         thread that serves them. Latency counts from the time at which a request was due.\n{counted}",
        results.rounds,
        Unit::Nanos.show(results.time_ns as f64),
        results.connections,
        100.0 * results.sets_share,
    );
    if results.others_share > 0.05 {
        text += &format!(
            "\nNote: the machine was loaded: other programs used up to {:.0} % of the CPU time. Their time is in these \
             results; stop them and measure again.\n",
            100.0 * results.others_share
        );
    }
    text
}

fn loads(
    results: &requests::Results,
    title: &str,
    of: fn(&requests::Measured) -> &Load,
    has_ratio: bool,
) -> String {
    let mut table = Table::new(title)
        .column(Column::text("way"))
        .column(Column::number("local requests"))
        .column(Column::number("requests a second"));
    if has_ratio {
        table = table.column(Column::number("rate to RFS"));
    }
    table = table
        .column(Column::number("p50"))
        .column(Column::number("p99"))
        .column(Column::number("p99.9"));
    for way in &results.ways {
        let load = of(way);
        let mut row = vec![
            Cell::new(way.way.name()).tone(Tone::Strong),
            Cell::new(spread(load.local_share, Unit::Share)),
            Cell::new(spread(load.rps, Unit::Count)),
        ];
        if has_ratio {
            let ratio = way.to_rfs.map_or_else(
                || "-".into(),
                |ratio| {
                    let Spread { median, least, most } = ratio;
                    format!("{median:.3} ({least:.3} to {most:.3})")
                },
            );
            row.push(Cell::new(ratio));
        }
        row.push(Cell::new(Unit::Nanos.show(load.p50_ns.median)));
        row.push(Cell::new(spread(load.p99_ns, Unit::Nanos)));
        row.push(Cell::new(Unit::Nanos.show(load.p999_ns.median)));
        table.push(row);
    }
    table.to_text(&style())
}

/// What `flowyard steer` counted itself.
fn counts<'a>(ways: impl Iterator<Item = (Way, &'a Frames)>) -> String {
    let mut text = String::new();
    for (way, frames) in ways.filter(|(_, frames)| !frames.is_empty()) {
        let some = frames.iter().filter(|(_, count)| **count > 0);
        let list: Vec<_> =
            some.map(|(reason, count)| format!("{reason} {}", num::exact(*count))).collect();
        text +=
            &format!("Frames of {} by the stage that decided: {}.\n", way.name(), list.join(", "));
    }
    text
}

impl Order {
    fn run(&self) -> Result<(), Stop> {
        if !(Duration::from_millis(1)..=Duration::from_secs(1)).contains(&self.every) {
            return Err(bad_input("--every: must be 1ms to 1s"));
        }
        possible(&[])?;
        let job = order::Job {
            program: &std::env::current_exe()?,
            ways: ways(&self.ways, &Way::ORDER),
            datagrams: self.datagrams,
            flows: self.flows,
            burst: self.burst,
            every: self.every,
            date: &crate::clock::date(),
            build: crate::VERSION,
        };
        let bar = Progress::new("{bar:40} {pos}/{len} ways");
        let progress = |done: usize, of: usize| bar.at(done as u64, of as u64);
        let results = order::measure(&job, &crate::clock::new(), &progress);
        drop(bar);
        let results = results.map_err(Stop::Failed)?;
        let faults = results.faults.clone();
        if self.json {
            output::json(ORDER, results)?;
        } else {
            output::text(&order_text(&results))?;
        }
        verdict(&faults)
    }
}

fn order_text(results: &order::Results) -> String {
    let mut table = Table::new("Numbered datagrams to threads that move between two CPUs")
        .column(Column::text("way"))
        .column(Column::number("sent"))
        .column(Column::number("late"))
        .column(Column::number("late by").unit("at most"))
        .column(Column::number("lost"))
        .column(Column::number("of them").unit("at sockets"))
        .column(Column::number("twice"))
        .column(Column::number("moves").unit("of threads"))
        .column(Column::number("moves").unit("of flows"))
        .column(Column::number("local"))
        .column(Column::number("rate"));
    for one in &results.ways {
        let numbers = [
            one.sent,
            one.late,
            one.late_by_most,
            one.lost,
            one.lost_at_sockets,
            one.twice,
            one.moves,
            one.flow_moves,
        ];
        let mut row = vec![Cell::new(one.way.name()).tone(Tone::Strong)];
        row.extend(numbers.map(|number| Cell::new(num::exact(number))));
        row.push(Cell::new(Unit::Share.show(one.local_share)));
        row.push(Cell::new(Unit::Pps.show(one.pps)));
        table.push(row);
    }
    format!(
        "{}\n{} flows in bursts of {}; each thread moves every {}. A datagram is late if a later one of its flow arrived before. Local \
         datagrams were received on the CPU on which they were read.\n{}",
        table.to_text(&style()),
        results.flows,
        results.burst,
        Unit::Nanos.show(results.every_ns as f64),
        counts(results.ways.iter().map(|one| (one.way, &one.frames))),
    )
}

impl Survival {
    fn run(&self) -> Result<(), Stop> {
        possible(&["nginx", "iperf3"])?;
        let job = survival::Job {
            program: &std::env::current_exe()?,
            seconds: self.seconds,
            seed: self.seed,
            date: &crate::clock::date(),
            build: crate::VERSION,
        };
        let bar = Progress::new("{bar:40} {pos}/{len} seconds");
        let progress = |done: usize, of: usize| bar.at(done as u64, of as u64);
        let results = survival::measure(&job, &crate::clock::new(), &progress);
        drop(bar);
        let results = results.map_err(Stop::Failed)?;
        let faults = results.faults.clone();
        if self.json {
            output::json(SURVIVAL, results)?;
        } else {
            output::text(&survival_text(&results))?;
        }
        verdict(&faults)
    }
}

fn survival_text(results: &survival::Results) -> String {
    let survival::Results { seconds, seed, events, http, stream, datagrams, .. } = results;
    let ns = |ns: u64| Unit::Nanos.show(ns as f64);
    let mut table = Table::new(format!("{seconds} seconds under steer rfs, seed {seed}"))
        .column(Column::text("what"))
        .column(Column::text("result"));
    let mut row = |what: &str, result: String| {
        table.push([Cell::new(what).tone(Tone::Strong), Cell::new(result)]);
    };
    row(
        "disturbed by",
        format!(
            "{} moves of threads, {} times the link was down (at most {}), {} restarts of steer, {} kills",
            num::exact(events.moves),
            events.flaps,
            ns(events.longest_down_ns),
            events.restarts,
            events.kills
        ),
    );
    row(
        "nginx",
        format!(
            "{} of {} connections lost, {} of {} requests not answered; p50 {}, p99 {}, longest {}",
            http.broken.len(),
            http.connections,
            http.unanswered,
            num::exact(http.requests),
            ns(http.p50_ns),
            ns(http.p99_ns),
            ns(http.longest_ns)
        ),
    );
    let state = stream.error.clone().unwrap_or_else(|| "no error".into());
    let rate = Unit::Bps.show(stream.bytes as f64 * 8.0 / stream.seconds.max(1e-9));
    row("iperf3", format!("{state}; {rate}, silent in {} of the seconds", stream.silent_seconds));
    row(
        "datagrams",
        format!(
            "{} of {} flows alive at the end; {} of {} received, {} twice, {} late",
            datagrams.alive,
            datagrams.flows,
            num::exact(datagrams.received),
            num::exact(datagrams.sent),
            datagrams.twice,
            datagrams.late
        ),
    );
    table.to_text(&style())
}

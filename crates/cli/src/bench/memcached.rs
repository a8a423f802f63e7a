//! `flowyard bench memcached`: memcached under open-loop load, with the kernel's ways of steering and the yard's.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use flowyard_bench::memcached::{Job, Model, Point, Results, Way, measure, obstacle};
use flowyard_bench::steer::Spread;
use flowyard_report::{Axis, Card, Cell, Column, Page, Plot, Section, Table, Tone, Unit, num};

use crate::outfile::{self, OutFile};
use crate::output::{self, Progress, style};
use crate::stop::{Stop, bad_input};

mod locality;
mod model;
mod order;

/// Name and version of the document.
pub(crate) const SCHEMA: &str = "flowyard.bench-memcached/1";

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard bench memcached
  flowyard bench memcached --quick
  flowyard bench memcached --rounds 5 --html memcached.html
  flowyard bench memcached --ways none,rfs,yard-atr --rates 20000,40000,60000 --json
  flowyard bench memcached --rounds 7 --json > today.json
  flowyard bench memcached --rounds 7 --against yesterday.json
  flowyard calibrate --output here.toml && flowyard bench memcached --profile here.toml

Clients and server are network namespaces that the command makes and removes; the machine's own interfaces are not used.
It needs root, two CPUs, memcached, and the programs ip, unshare, nsenter, setpriv and ethtool. The times at which requests
are due are drawn before and do not depend on answers: a request that is sent late counts with the time that it
waited. Every answer is compared with the value that its key has. Exit status 1 means that memcached is missing, or that a
request was not answered, or wrongly. Rates and times never are a failure.")]
pub(crate) struct Args {
    /// One round, two low rates, 10,000 keys and 100 ms for each: whether everything works here, not how fast it is
    #[arg(long)]
    quick: bool,

    /// Number of rounds; every round measures every way once, beginning with another one [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: Option<u16>,

    /// Duration of each measurement, 10ms to 60s, after a quarter of it to warm up [default: 500ms]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    time: Option<Duration>,

    /// Offered rates in requests per second, ascending; each way is measured until two in a row do not hold
    /// [default: 13 rates from 10000 to 200000]
    #[arg(long, value_name = "RATE,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    rates: Vec<u32>,

    /// A load holds up to this mean latency, if 95 % of the requests are answered in time
    #[arg(long, value_name = "TIME", default_value = "2ms", value_parser = humantime::parse_duration)]
    latency: Duration,

    /// Number of connections, 4 to 1024
    #[arg(long, value_name = "N", default_value_t = 120, value_parser = clap::value_parser!(u16).range(4..=1024))]
    connections: u16,

    /// Number of keys, each with 64 bytes [default: 500000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    keys: Option<u64>,

    /// Requests that store a value, in percent; the others read one [default: 1 of 31, as in the pool ETC]
    #[arg(long, value_name = "PERCENT", default_value_t = 100.0 / 31.0, hide_default_value = true)]
    sets: f64,

    /// How requests reach the server [default: all]
    #[arg(long, value_name = "WAY,...", value_delimiter = ',')]
    ways: Vec<WayName>,

    /// Costs of this machine, written by `flowyard calibrate` as root: print what the model predicts from them beside the
    /// measured curves and highest sustained rates of the kernel's ways
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,

    /// JSON document of an earlier measurement: compare the order of the ways by their highest sustained rates
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,

    /// Write one HTML page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Print JSON (schema flowyard.bench-memcached/1) instead of tables
    #[arg(long)]
    json: bool,
}

/// Values of `--ways`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum WayName {
    /// A veth without steering
    None,
    /// A veth with the kernel's RPS
    Rps,
    /// A veth with the kernel's RPS and RFS
    Rfs,
    /// A yard between two veths (af_packet), by hash
    YardHash,
    /// A yard between two veths, with the learner atr
    YardAtr,
    /// A yard between two veths, with the learner rfs
    YardRfs,
    /// A yard with a TAP for the server, by hash
    TapHash,
    /// A yard with a TAP for the server, with the learner atr
    TapAtr,
    /// A yard with a TAP for the server, with the learner rfs
    TapRfs,
}

impl From<WayName> for Way {
    fn from(name: WayName) -> Self {
        match name {
            WayName::None => Self::None,
            WayName::Rps => Self::Rps,
            WayName::Rfs => Self::Rfs,
            WayName::YardHash => Self::YardHash,
            WayName::YardAtr => Self::YardAtr,
            WayName::YardRfs => Self::YardRfs,
            WayName::TapHash => Self::TapHash,
            WayName::TapAtr => Self::TapAtr,
            WayName::TapRfs => Self::TapRfs,
        }
    }
}

/// The rates of `--rates`, and of `--quick`.
const RATES: [u32; 13] = [
    10_000, 20_000, 30_000, 40_000, 50_000, 60_000, 75_000, 90_000, 110_000, 130_000, 150_000,
    175_000, 200_000,
];
const QUICK: [u32; 2] = [1000, 3000];

pub(super) fn run(args: &Args) -> Result<(), Stop> {
    let reads = args.profile.as_deref().into_iter().chain(args.against.as_deref());
    outfile::distinct(&[("--html", "page", args.html.as_deref())], reads)?;
    let program = std::env::current_exe()?;
    let date = crate::clock::date();
    let job = Job { program: &program, date: &date, ..args.job()? };
    let file = OutFile::new(args.html.as_ref(), "page")?;
    let earlier = args.against.as_deref().map(order::read).transpose()?;
    let profile = args.profile.as_deref().map(crate::predict::read_profile).transpose()?;
    // Before the measurement, which is then alone on the CPUs.
    let predict = |profile| Model::predict(profile, &job);
    let model = profile.as_ref().map(predict).transpose().map_err(|error| {
        bad_input(format!("--profile: {error}; run `flowyard calibrate` again, as root"))
    })?;
    if let Some(why) = obstacle() {
        return Err(bad_input(format!("bench memcached: {why}")));
    }
    if flowyard_bench::in_path("memcached").is_none() {
        let why =
            "bench memcached: the program memcached is missing; install the package memcached";
        return Err(Stop::Failed(anyhow::anyhow!(why)));
    }
    let bar = Progress::new("{bar:40} {pos}/{len} measurements, {eta} left");
    let progress = |done: usize, of: usize| bar.at(done as u64, of as u64);
    let results = measure(&job, &crate::clock::new(), &progress);
    drop(bar);
    let mut results = results.map_err(Stop::Failed)?.beside(model).against(earlier.as_ref());
    if let Some(profile) = &profile {
        results = results.with_predicted_locality(profile).map_err(bad_input)?;
    }
    let written = file.map_or(Ok(()), |file| file.write_page(&page(&results)));
    if args.json {
        output::json(SCHEMA, results)?;
        return written;
    }
    let mut text = text(&results);
    if let (Some(path), Ok(())) = (&args.html, &written) {
        text += &format!("Page with plots: {}\n", path.display());
    }
    output::text(&text)?;
    written
}

impl Args {
    /// What the options ask for, without the program and the date.
    fn job(&self) -> Result<Job<'static>, Stop> {
        let (rounds, time, keys, rates) = if self.quick {
            (1, Duration::from_millis(100), 10_000, &QUICK[..])
        } else {
            (3, Duration::from_millis(500), 500_000, &RATES[..])
        };
        let time = self.time.unwrap_or(time);
        if !(Duration::from_millis(10)..=Duration::from_secs(60)).contains(&time) {
            return Err(bad_input("--time: must be 10ms to 60s"));
        }
        if !(0.0..=100.0).contains(&self.sets) {
            return Err(bad_input(format!("--sets: must be 0 to 100 percent, not {}", self.sets)));
        }
        let rates = if self.rates.is_empty() { rates } else { &self.rates[..] };
        if let Some(pair) = rates.windows(2).find(|pair| pair[0] >= pair[1]) {
            let why = format!("--rates: must ascend, but {} follows {}", pair[1], pair[0]);
            return Err(bad_input(why));
        }
        let mut ways: Vec<Way> = Vec::new();
        for &way in &self.ways {
            if !ways.contains(&way.into()) {
                ways.push(way.into());
            }
        }
        Ok(Job {
            program: std::path::Path::new(""),
            ways: if ways.is_empty() { Way::ALL.to_vec() } else { ways },
            rounds: self.rounds.map_or(rounds, usize::from),
            time,
            rates: rates.iter().copied().map(f64::from).collect(),
            limit: self.latency,
            connections: self.connections.into(),
            keys: self.keys.unwrap_or(keys),
            sets: self.sets / 100.0,
            date: "",
            build: crate::VERSION,
        })
    }
}

/// A median with its extremes.
fn spread(spread: Spread, unit: Unit) -> String {
    let Spread { median, least, most } = spread;
    if least == most {
        return unit.show(median);
    }
    format!("{} ({} to {})", unit.show(median), unit.show(least), unit.show(most))
}

fn text(results: &Results) -> String {
    let (walls, all) = (walls(results).to_text(&style()), table(results).to_text(&style()));
    let mut text = format!("{walls}\n{all}\n{}\n", about(results));
    if let Some(table) = locality::table(results) {
        text += &format!("{}\n{}\n\n", table.to_text(&style()), locality::ABOUT);
    }
    for sentence in order::sentences(results) {
        text += &format!("{sentence}\n");
    }
    if let Some(model) = &results.model {
        text += &model::text(results, model);
    }
    if let Some(note) = remark(results) {
        text += &format!("\nNote: {note}\n");
    }
    text
}

fn about(results: &Results) -> String {
    let requests: u64 = results.ways.iter().map(|way| way.requests).sum();
    format!(
        "Medians of {}, {} each (least to greatest). memcached has a thread on each of two CPUs, and so have the generator \
         and the yard; {} connections, {} keys of {} bytes with values of {} bytes, {:.1} % of the requests store one. A load \
         holds if 95 % of the requests are answered in time with a mean latency of at most {}. Latency counts from the time \
         at which a request was due. CPU time is that of the generator, memcached, the yard and ksoftirqd; \
         the server side is all of them but the generator. All {} requests got one answer each, with the right value.",
        match results.rounds {
            1 => "one round".to_owned(),
            rounds => format!("{rounds} rounds"),
        },
        Unit::Nanos.show(results.time_ns as f64),
        results.connections,
        num::exact(results.keys),
        results.key_bytes,
        results.value_bytes,
        100.0 * results.sets_share,
        Unit::Nanos.show(results.limit_ns as f64),
        num::exact(requests),
    )
}

/// What disturbed the results.
fn remark(results: &Results) -> Option<String> {
    (results.others_share > 0.05).then(|| {
        format!(
            "the machine was loaded: other programs used up to {:.0} % of the CPU time of a measurement. They delayed requests; \
             stop them and measure again.",
            100.0 * results.others_share
        )
    })
}

/// The rate at which the costs of all ways are compared: the lowest of the walls.
fn common(results: &Results) -> f64 {
    results.ways.iter().map(|way| way.wall_rps.median).fold(f64::MAX, f64::min)
}

fn walls(results: &Results) -> Table {
    let common = common(results);
    let title = "memcached: the highest offered rate that holds";
    let title = if common > 0.0 {
        format!("{title}, and what a request costs at {} a second", num::exact(common as u64))
    } else {
        title.to_owned()
    };
    let mut table = Table::new(title)
        .column(Column::text("way"))
        .column(Column::number("wall").unit("1/s"))
        .column(Column::number("local requests"))
        .column(Column::number("CPU per request"))
        .column(Column::number("server side").unit("CPU per request"))
        .column(Column::number("memcached").unit("of it"))
        .column(Column::number("yard").unit("of it"))
        .column(Column::number("dropped").unit("frames"));
    for way in &results.ways {
        let wall = spread(way.wall_rps, Unit::Count);
        let wall = if way.wall_found { wall } else { format!("at least {wall}") };
        let point = way.points.iter().find(|point| point.offered_rps == common);
        let show = |of: &dyn Fn(&Point) -> f64, unit: Unit| {
            point.map_or_else(|| "-".to_owned(), |point| unit.show(of(point)))
        };
        let time = |of: fn(&Point) -> f64| show(&of, Unit::Nanos);
        let dropped: u64 = way.drops.values().sum();
        let row = [
            wall,
            show(&|point| point.local_share.median, Unit::Share),
            time(|point| point.cost.all_ns.median),
            time(|point| point.cost.server_ns.median),
            time(|point| point.cost.memcached_ns.median),
            time(|point| point.cost.yard_ns.median),
            num::exact(dropped),
        ];
        let name = Cell::new(way.way.name()).tone(Tone::Strong);
        table.push(std::iter::once(name).chain(row.map(Cell::new)).collect::<Vec<_>>());
    }
    table
}

fn table(results: &Results) -> Table {
    let mut table = Table::new("By offered rate")
        .column(Column::text("way"))
        .column(Column::number("offered").unit("1/s"))
        .column(Column::number("held"))
        .column(Column::number("answered").unit("1/s"))
        .column(Column::number("mean"))
        .column(Column::number("p50"))
        .column(Column::number("p99"))
        .column(Column::number("p99.9"))
        .column(Column::number("sent late").unit("p99"))
        .column(Column::number("CPU per request"));
    for way in &results.ways {
        for point in &way.points {
            let row = [
                way.way.name().to_owned(),
                num::exact(point.offered_rps as u64),
                format!("{} of {}", point.held, point.rounds),
                Unit::Count.show(point.answered_rps.median),
                Unit::Nanos.show(point.mean_ns.median),
                Unit::Nanos.show(point.p50_ns.median),
                spread(point.p99_ns, Unit::Nanos),
                Unit::Nanos.show(point.p999_ns.median),
                Unit::Nanos.show(point.sent_late_p99_ns.median),
                Unit::Nanos.show(point.cost.all_ns.median),
            ];
            table.push(row.map(Cell::new));
        }
    }
    table
}

/// A plot over the offered rate, with a line for each way.
fn plot(title: &str, results: &Results, y: Axis, of: fn(&Point) -> f64) -> Plot {
    let plot = Plot::new(title, Axis::linear("offered requests per second", Unit::Count), y);
    results.ways.iter().fold(plot, |plot, way| {
        let points = way.points.iter().map(|point| (point.offered_rps, of(point)));
        plot.line(way.way.name(), points.collect::<Vec<_>>())
    })
}

fn page(results: &Results) -> Page {
    let machine = &results.machine;
    let latency = || Axis::log("latency", Unit::Nanos);
    let time = Axis::linear("CPU time of a request", Unit::Nanos);
    let plots = [
        plot("99th percentile", results, latency(), |point| point.p99_ns.median),
        plot("Mean", results, latency(), |point| point.mean_ns.median),
        plot("Median", results, latency(), |point| point.p50_ns.median),
        plot("CPU time of a request", results, time, |point| point.cost.all_ns.median),
    ];
    let mut page = Page::new("memcached against the offered rate")
        .subtitle(format!("{} connections, open loop", results.connections))
        .command(output::command_line())
        .time(crate::clock::date())
        .card(
            Card::new("processor", &machine.processor)
                .detail(format!("{} CPUs, Linux {}", machine.processors, machine.kernel)),
        )
        .card(
            Card::new("rounds", results.rounds.to_string())
                .detail("each value is the median of the rounds"),
        )
        .section(
            order::sentences(results)
                .into_iter()
                .fold(Section::new("Walls").table(walls(results)), Section::note)
                .note(about(results)),
        )
        .section(Section::new("Curves").plots(plots))
        .section(Section::new("All values").table(table(results)));
    if let Some(table) = locality::table(results) {
        let section = Section::new("Locality in the yard").table(table);
        page = page.section(section.note(locality::ABOUT));
    }
    if let Some(model) = &results.model {
        page = page.section(model::section(results, model));
    }
    if let Some(note) = remark(results) {
        page = page.footnote(format!("Note: {note}"));
    }
    page
}

//! `flowyard bench history`: the record of ratios to other programs, by release.

use std::path::{Path, PathBuf};

use flowyard_bench::history::{Entry, entries};
use flowyard_report::{Axis, Card, Cell, Column, Page, Plot, Section, Table, Tone, Unit};
use schemars::JsonSchema;
use serde::Serialize;

use crate::outfile::{self, OutFile};
use crate::output::{self, style};
use crate::stop::{Stop, bad_input};

/// Name and version of the document.
pub(crate) const SCHEMA: &str = "flowyard.bench-history/1";

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard bench engine --peers --l3fwd ./l3fwd --json > engine.json
  flowyard bench history --add engine.json
  flowyard bench history --html history.html

The record has a line of JSON for each release: date, version, machine, and the ratios of the
engine's rate to those of DPDK's programs in the same rounds. Ratios of different machines are not
comparable.")]
pub(crate) struct Args {
    /// The record
    #[arg(value_name = "FILE", default_value = "bench/history.jsonl")]
    file: PathBuf,

    /// Add the results of bench engine --peers --json to the record
    #[arg(long, value_name = "RESULTS")]
    add: Option<PathBuf>,

    /// A remark on the added results
    #[arg(long, value_name = "TEXT", requires = "add")]
    note: Option<String>,

    /// Write one HTML page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Print JSON (schema flowyard.bench-history/1) instead of a table
    #[arg(long)]
    json: bool,
}

/// The record.
#[derive(Serialize, JsonSchema)]
pub(crate) struct History {
    /// Oldest first.
    entries: Vec<Entry>,
}

pub(super) fn run(args: &Args) -> Result<(), Stop> {
    let record = args.file.as_path();
    let reads = args.add.as_deref().into_iter().chain([record]);
    outfile::distinct(&[("--html", "page", args.html.as_deref())], reads)?;
    let added = args.add.is_some().then_some(record);
    outfile::distinct(&[("FILE", "record", added)], args.add.as_deref())?;
    let page = OutFile::new(args.html.as_ref(), "page")?;
    let wrong = |path: &Path, why: String| bad_input(format!("{}: {why}", path.display()));
    let mut text = match std::fs::read_to_string(&args.file) {
        Ok(text) => text,
        Err(error) if args.add.is_some() && error.kind() == std::io::ErrorKind::NotFound => {
            String::new()
        }
        Err(error) => {
            return Err(wrong(
                &args.file,
                format!("{error}; name the record, or make one with --add"),
            ));
        }
    };
    let mut recorded = Ok(());
    let mut all = entries(&text).map_err(|why| wrong(&args.file, why))?;
    if let Some(path) = &args.add {
        let document = std::fs::read_to_string(path).map_err(|error| {
            let fix = "name the output of 'flowyard bench engine --peers --json'";
            wrong(path, format!("{error}; {fix}"))
        })?;
        let entry = Entry::of(&document, args.note.clone()).map_err(|why| wrong(path, why))?;
        let line = entry.line().map_err(|error| Stop::Failed(error.into()))?;
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text += &line;
        all.push(entry);
        if let Some(file) = OutFile::new(Some(&args.file), "record")? {
            recorded = file.write(text.as_bytes());
        }
    }
    let written = page.map_or(Ok(()), |file| file.write_page(&show(&all)));
    if args.json {
        output::json(SCHEMA, History { entries: all })?;
        return recorded.and(written);
    }
    let mut text = table(&all).to_text(&style());
    if let (Some(path), Ok(())) = (&args.html, &written) {
        text += &format!("Page with plots: {}\n", path.display());
    }
    output::text(&text)?;
    recorded.and(written)
}

fn table(entries: &[Entry]) -> Table {
    let mut table = Table::new("Ratios of rates on one core, by release")
        .column(Column::text("date"))
        .column(Column::text("version"))
        .column(Column::text("engine"))
        .column(Column::text("peer"))
        .column(Column::number("ratio"))
        .column(Column::number("lowest"))
        .column(Column::number("highest"))
        .column(Column::number("rounds"));
    for Entry { date, build, ratios, .. } in entries {
        for ratio in ratios {
            table.push([
                Cell::new(day(date)),
                Cell::new(build.as_str()),
                Cell::new(ratio.flowyard.as_str()),
                Cell::new(ratio.peer.as_str()),
                Cell::new(format!("{:.2}", ratio.ratio)).tone(Tone::Strong),
                Cell::new(format!("{:.2}", ratio.least)),
                Cell::new(format!("{:.2}", ratio.most)),
                Cell::new(if ratio.rounds > 0 { ratio.rounds.to_string() } else { "-".into() }),
            ]);
        }
    }
    table
}

/// The day of a date with a time.
fn day(date: &str) -> &str {
    date.split('T').next().unwrap_or(date)
}

/// The machines and remarks.
fn origins(entries: &[Entry]) -> Table {
    let mut table = Table::new("Where and how they were measured")
        .column(Column::text("date"))
        .column(Column::text("version"))
        .column(Column::text("machine"))
        .column(Column::text("peers"))
        .column(Column::text("remark"));
    for Entry { date, build, machine, peers, note, .. } in entries {
        table.push([
            Cell::new(day(date)),
            Cell::new(build.as_str()),
            Cell::new(format!(
                "{} CPUs, {}, Linux {}, load {}",
                machine.processors, machine.processor, machine.kernel, machine.load
            )),
            Cell::new(peers.as_deref().unwrap_or("-")),
            Cell::new(note.as_deref().unwrap_or("-")),
        ]);
    }
    table
}

/// The ratios of each pair, by release.
fn plots(entries: &[Entry]) -> Vec<Plot> {
    let mut pairs = Vec::new();
    for ratio in entries.iter().flat_map(|entry| &entry.ratios) {
        let pair = (&ratio.flowyard, &ratio.peer);
        if !pairs.contains(&pair) {
            pairs.push(pair);
        }
    }
    let plot = |pair: (&String, &String)| {
        let of = |entry: &Entry| {
            let found = entry.ratios.iter().find(|it| (&it.flowyard, &it.peer) == pair)?;
            Some((format!("{} {}", day(&entry.date), entry.build), found.ratio))
        };
        let (names, values): (Vec<_>, Vec<_>) = entries.iter().filter_map(of).unzip();
        let x = Axis::categories("release", names);
        Plot::new(format!("{} : {}", pair.0, pair.1), x, Axis::linear("ratio", Unit::Plain("")))
            .bars("ratio", values)
            .limit_y(1.0, "equal")
    };
    pairs.into_iter().map(plot).collect()
}

fn show(entries: &[Entry]) -> Page {
    let mut page = Page::new("flowyard beside other programs, by release")
        .subtitle("64-byte frames of 8,192 flows, one core, ports in memory")
        .command(output::command_line())
        .time(crate::clock::date());
    for ratio in entries.last().into_iter().flat_map(|entry| &entry.ratios) {
        let rounds = match ratio.rounds {
            0 => String::new(),
            rounds => format!(" in {rounds} rounds"),
        };
        let name = format!("{} : {}", ratio.flowyard, ratio.peer);
        page = page.card(
            Card::new(name, format!("{:.2}", ratio.ratio))
                .detail(format!("{:.2} to {:.2}{rounds}", ratio.least, ratio.most)),
        );
    }
    page.section(Section::new("Ratios").plots(plots(entries)).table(table(entries)))
        .section(Section::new("Origin").table(origins(entries)))
        .footnote("Ratios of different machines are not comparable.")
}

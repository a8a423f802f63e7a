//! `flowyard bench rank`: orders devices by throughput where repetitions show a difference.

use std::path::Path;

use flowyard_rfc2544::document::{Document, rank, rank_table};
use schemars::JsonSchema;
use serde::Serialize;

use crate::output::{self, style};
use crate::stop::{Stop, bad_input};

/// Name and version of the document.
pub(crate) const SCHEMA: &str = "flowyard.bench-rank/1";

#[derive(clap::Args)]
#[command(after_help = "\
Example:
  flowyard bench rank kernel=k1.json,k2.json,k3.json flowyard=f1.json,f2.json,f3.json

Measure the devices in turn, one run of each at a time, so that other load on the machine disturbs
all of them alike. At least three repetitions of each are needed.")]
pub(crate) struct Args {
    /// A device's name and its results: one or more files written by a bench method with --json
    #[arg(value_name = "NAME=FILE,...", required = true)]
    devices: Vec<String>,

    /// Print JSON (schema flowyard.bench-rank/1) instead of a table
    #[arg(long)]
    json: bool,
}

/// Devices in the order of their results.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Ranking {
    /// One for each test and frame size.
    orders: Vec<flowyard_rfc2544::document::Order>,
}

/// Reads a document that a method printed with `--json`.
pub(super) fn read(path: &Path) -> Result<Document, Stop> {
    let name = path.display();
    let fix = "give a file with the output of a bench method with --json";
    let text =
        std::fs::read_to_string(path).map_err(|e| bad_input(format!("{name}: {e}; {fix}")))?;
    let wrong = |why: String| bad_input(format!("{name}: {why}; {fix}"));
    let value: serde_json::Value = serde_json::from_str(&text)
        .map_err(|error| wrong(format!("the file is not JSON: {error}")))?;
    match value.get("schema").and_then(serde_json::Value::as_str) {
        Some(schema) if schema.starts_with("flowyard.bench/") => {}
        Some(schema) => {
            return Err(wrong(format!(
                "the file is a document with the schema {schema}, not flowyard.bench"
            )));
        }
        None => {
            return Err(wrong("the file is not a document of flowyard: it names no schema".into()));
        }
    }
    serde_json::from_value(value)
        .map_err(|error| wrong(format!("the file is damaged, or of another version: {error}")))
}

pub(super) fn run(args: &Args) -> Result<(), Stop> {
    let mut devices = Vec::new();
    for device in &args.devices {
        let (name, files) = device.split_once('=').ok_or_else(|| {
            bad_input(format!(
                "'{device}' has no files; write a device's name and files as kernel=a.json,b.json"
            ))
        })?;
        if devices.iter().any(|(known, _): &(String, _)| known == name) {
            return Err(bad_input(format!(
                "'{name}' is named twice; name each device once, with all its files: {name}=a.json,b.json,c.json"
            )));
        }
        let documents = files.split(',').map(|file| read(Path::new(file)));
        devices.push((name.to_owned(), documents.collect::<Result<Vec<_>, _>>()?));
    }
    let orders = rank(&devices).map_err(bad_input)?;
    if args.json {
        return output::json(SCHEMA, Ranking { orders });
    }
    // `rank` has checked that every device has a document.
    let time = devices.iter().find_map(|(_, all)| Some(all.first()?.time));
    let table = rank_table(&orders, time.unwrap_or(flowyard_rfc2544::document::Time::Real));
    output::text(&table.to_text(&style()))
}

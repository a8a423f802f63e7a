//! `flowyard lb import`: services of IPVS or keepalived as sections of a configuration.

use std::io::{Read, Write, stderr};
use std::path::PathBuf;

use clap::ValueEnum;
use flowyard_config::import::{self, Format};
use schemars::JsonSchema;
use serde::Serialize;

use crate::output;
use crate::stop::{Stop, bad_input, failed};

/// Name and version of the JSON document.
pub(crate) const SCHEMA: &str = "flowyard.lb.import/1";
/// The largest input: a service of 2^20 servers has 64 MiB.
const LARGEST: u64 = 256 << 20;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard lb import /etc/keepalived/keepalived.conf > services.toml
  ipvsadm -S -n | flowyard lb import - --exit east

The [[service]] sections go to standard output. What could not be carried over, or
not as it was, goes to standard error with its line. Append the sections to a
configuration with ports, queues, [work] and [balance] (docs/balance.md), and check
it by 'flowyard run CONFIG --check'.")]
pub(crate) struct Args {
    /// Output of 'ipvsadm -S -n', or keepalived.conf; - is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Format of FILE [default: found by its lines]
    #[arg(long, value_enum, value_name = "FORMAT")]
    from: Option<From>,

    /// Name of the port towards the backends
    #[arg(long, value_name = "PORT", default_value = "east")]
    exit: String,

    /// Print the sections and the notes as JSON (schema flowyard.lb.import/1)
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum From {
    Ipvsadm,
    Keepalived,
}

/// Services of another balancer.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Document {
    /// The number of services.
    services: usize,
    /// The number of backends of all services.
    backends: usize,
    /// The `[[service]]` sections.
    toml: String,
    /// What was not carried over, or not as it was.
    notes: Vec<Note>,
}

/// Something in the input that was not carried over, or not as it was.
#[derive(Debug, Serialize, JsonSchema)]
struct Note {
    /// The line in the input, from 1.
    line: usize,
    /// What it is, and what happens instead.
    text: String,
}

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    let (name, text) = read(args)?;
    let format = match args.from {
        None => Format::of(&text),
        Some(From::Ipvsadm) => Format::Ipvsadm,
        Some(From::Keepalived) => Format::Keepalived,
    };
    let imported = import::read(&text, format).map_err(|error| {
        let import::ImportError { line, what } = error;
        bad_input(format!("{name}:{line}: {what}"))
    })?;
    let (services, backends) = imported.count();
    let toml = imported.toml(&args.exit);
    if args.json {
        let note = |note: &import::Note| Note { line: note.line, text: note.text.clone() };
        let notes = imported.notes.iter().map(note).collect();
        return output::json(SCHEMA, Document { services, backends, toml, notes });
    }
    output::text(&toml)?;
    let mut said = String::new();
    for import::Note { line, text } in &imported.notes {
        said += &format!("{name}:{line}: {text}\n");
    }
    said += &format!(
        "flowyard: imported services: {services}, backends: {backends}; notes: {}\n",
        imported.notes.len()
    );
    // As other notes: a closed standard error is no reason to fail.
    let _written = stderr().write_all(said.as_bytes());
    Ok(())
}

/// The name of the input for messages, and its text.
fn read(args: &Args) -> Result<(String, String), Stop> {
    let is_stdin = args.file.as_os_str() == "-";
    let name = if is_stdin { "standard input".to_owned() } else { args.file.display().to_string() };
    let input: Box<dyn Read> = match is_stdin {
        true => Box::new(std::io::stdin()),
        false => {
            let file = std::fs::File::open(&args.file);
            let fix = "name the output of 'ipvsadm -S -n', or keepalived.conf";
            Box::new(file.map_err(|error| bad_input(format!("{name}: {error}; {fix}")))?)
        }
    };
    let mut bytes = Vec::new();
    input.take(LARGEST + 1).read_to_end(&mut bytes).map_err(failed("reading the services"))?;
    if bytes.len() as u64 > LARGEST {
        return Err(bad_input(format!("{name}: the file is larger than {} MiB", LARGEST >> 20)));
    }
    let text = String::from_utf8(bytes);
    Ok((name.clone(), text.map_err(|_| bad_input(format!("{name}: this is not UTF-8 text")))?))
}

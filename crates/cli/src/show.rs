//! `flowyard show`: what a running yard knows, asked on its control socket.

use std::io::{Write, stdout};
use std::path::PathBuf;

use flowyard_operate::client::{Client, ClientError};
use flowyard_operate::protocol::{Cores, Drops, Elephants, Flows, Queues, Request, Tables};
use flowyard_report::{Document, Style, Table};
use serde::Serialize;

use crate::stop::{Stop, bad_input};

pub(crate) mod tables;

/// Show what a running yard knows.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard show queues
  flowyard show tables --entries 20
  flowyard show flows --seconds 5 --json
  flowyard show drops --control /run/flowyard/yard.sock")]
pub(crate) struct Args {
    /// What to show
    #[arg(value_enum)]
    what: What,

    #[command(flatten)]
    ask: AskArgs,

    /// tables: the most entries of each
    #[arg(long, value_name = "N", default_value_t = 20)]
    entries: usize,

    /// flows: how long frames are counted, in seconds
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    seconds: f64,
}

/// Whom to ask, and how to print.
#[derive(clap::Args)]
pub(crate) struct AskArgs {
    /// The yard's control socket [default: that of the only yard that runs]
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum What {
    /// Entries of the exact, promoted and learnt tables, and the indirection table
    Tables,
    /// The largest flows of each core, counted for some time
    Flows,
    /// Flows that are split over cores, and what was decided
    Elephants,
    /// Frames dropped, by reason and core, with the mend; and the last ones
    Drops,
    /// Queues and tx queues
    Queues,
    /// Counters of the cores
    Cores,
}

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    let mut yard = args.ask.connect()?;
    let ask = &args.ask;
    match args.what {
        What::Tables => {
            let all: Tables =
                yard.ask(&Request::Tables { entries: args.entries }).map_err(refused)?;
            ask.print("flowyard.show.tables/2", &all, |all| tables::tables(all, args.entries))
        }
        What::Flows => {
            if !(args.seconds > 0.0 && args.seconds <= 60.0) {
                return Err(bad_input("--seconds: more than 0, and at most 60"));
            }
            let all: Flows =
                yard.ask(&Request::Flows { seconds: args.seconds }).map_err(refused)?;
            ask.print("flowyard.show.flows/2", &all, tables::flows)
        }
        What::Elephants => {
            let all: Elephants = yard.ask(&Request::Elephants).map_err(refused)?;
            ask.print("flowyard.show.elephants/2", &all, |all| tables::elephants(all, 20))
        }
        What::Drops => {
            let all: Drops = yard.ask(&Request::Drops).map_err(refused)?;
            ask.print("flowyard.show.drops/2", &all, |all| tables::drops(all, 20))
        }
        What::Queues => {
            let all: Queues = yard.ask(&Request::Queues).map_err(refused)?;
            ask.print("flowyard.show.queues/2", &all, |all| vec![tables::queues(all, None)])
        }
        What::Cores => {
            let all: Cores = yard.ask(&Request::Cores).map_err(refused)?;
            ask.print("flowyard.show.cores/1", &all, |all| vec![tables::cores(all, None)])
        }
    }
}

impl AskArgs {
    /// A connection to the yard that is meant.
    pub(crate) fn connect(&self) -> Result<Client, Stop> {
        Client::connect(self.control.as_deref()).map_err(refused)
    }

    /// Prints an answer: as JSON, or as tables.
    pub(crate) fn print<T: Serialize>(
        &self,
        schema: &'static str,
        answer: &T,
        tables: impl FnOnce(&T) -> Vec<Table>,
    ) -> Result<(), Stop> {
        let mut out = stdout().lock();
        if self.json {
            let json = Document::new(schema, answer).to_json();
            out.write_all(json.map_err(anyhow::Error::from).map_err(Stop::Failed)?.as_bytes())?;
        } else {
            out.write_all(text(&tables(answer), &crate::style()).as_bytes())?;
        }
        Ok(out.flush()?)
    }
}

/// Tables below each other.
pub(crate) fn text(tables: &[Table], style: &Style) -> String {
    let texts: Vec<_> = tables.iter().map(|table| table.to_text(style)).collect();
    texts.join("\n")
}

/// A yard that is not there, or does not know what is meant, is bad use.
pub(crate) fn refused(error: ClientError) -> Stop {
    match error {
        ClientError::Gone(_) => Stop::Failed(anyhow::anyhow!("{error}")),
        _ => bad_input(error),
    }
}

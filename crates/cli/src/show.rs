//! `flowyard show`: prints the state of a running instance, queried over its control socket.

use std::path::PathBuf;

use flowyard_operate::client::{Client, ClientError};
use flowyard_operate::protocol::{
    Controllers, Cores, Drops, Elephants, Flows, Offload, Queues, Reload, Request, Sas, Steer,
    Tables,
};
use flowyard_report::{Style, Table};
use serde::Serialize;

use crate::output::{self, style};
use crate::stop::{Stop, bad_input};

mod ipsec;
mod reload;
pub(crate) mod steer;
pub(crate) mod tables;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard show queues
  flowyard show tables --entries 20
  flowyard show flows --seconds 5 --json
  flowyard show offload
  flowyard show reload
  flowyard show steer --json
  flowyard show drops --control /run/flowyard/yard.sock")]
pub(crate) struct Args {
    /// What to show
    #[arg(value_enum)]
    what: What,

    #[command(flatten)]
    ask: AskArgs,

    /// With tables: maximum number of entries to list for each table [default: 20]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    entries: Option<usize>,

    /// With flows: time during which frames are counted, in seconds, at most 60 [default: 1]
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    seconds: Option<f64>,
}

/// The instance to query, and the format of the output.
#[derive(clap::Args)]
pub(crate) struct AskArgs {
    /// Control socket of the instance [default: that of the only running instance]
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,

    /// Print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum What {
    /// Entries of the exact table, of flows that were moved or split (promoted), of learned flows, and the
    /// indirection table
    Tables,
    /// Largest flows of each core, counted for --seconds
    Flows,
    /// Flows that are split over several cores, and the latest decisions to split or merge flows
    Elephants,
    /// Dropped frames by reason and core, how to avoid each kind of drop, and the latest drops
    Drops,
    /// Frames in queues and transmit queues
    Queues,
    /// Counters of the cores
    Cores,
    /// Security associations of an IPsec gateway with their counters, without keys
    Sas,
    /// Connections of a switch to its OpenFlow controllers
    Controllers,
    /// Rules in the adapters of DPDK ports: entries that an adapter drops, marks or gives to a queue, and why others
    /// are in software
    Offload,
    /// What SIGHUP would do now: each key of the configuration file that differs from the configuration in use, and whether
    /// the instance applies it, or a new process is needed
    Reload,
    /// Frames that `flowyard steer` steers, by queue and stage, drops in front of CPUs, and flows learned
    Steer,
}

/// Names and versions of the JSON documents; see docs/schema.
pub(crate) const TABLES: &str = "flowyard.show.tables/2";
pub(crate) const FLOWS: &str = "flowyard.show.flows/2";
pub(crate) const ELEPHANTS: &str = "flowyard.show.elephants/2";
pub(crate) const DROPS: &str = "flowyard.show.drops/2";
pub(crate) const QUEUES: &str = "flowyard.show.queues/2";
pub(crate) const CORES: &str = "flowyard.show.cores/1";
pub(crate) const CONTROLLERS: &str = "flowyard.show.controllers/1";
pub(crate) const SAS: &str = "flowyard.show.sas/1";
pub(crate) const OFFLOAD: &str = "flowyard.show.offload/1";
pub(crate) const RELOAD: &str = "flowyard.show.reload/1";
pub(crate) const STEER: &str = "flowyard.show.steer/1";

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    if let (Some(_), false) = (args.entries, matches!(args.what, What::Tables)) {
        return Err(bad_input("--entries: only 'show tables' lists entries; leave it out"));
    }
    if let (Some(seconds), false) = (args.seconds, matches!(args.what, What::Flows)) {
        return Err(bad_input(format!(
            "--seconds: only 'show flows' counts for a time; for rates of cores and queues use 'flowyard top --once \
             --interval {seconds}'"
        )));
    }
    let (entries, seconds) = (args.entries.unwrap_or(20), args.seconds.unwrap_or(1.0));
    if !(seconds > 0.0 && seconds <= 60.0) {
        return Err(bad_input("--seconds: must be more than 0 and at most 60"));
    }
    let mut client = args.ask.connect()?;
    let ask = &args.ask;
    match args.what {
        What::Tables => {
            let all: Tables = client.ask(&Request::Tables { entries }).map_err(refused)?;
            ask.print(TABLES, &all, |all| tables::tables(all, entries))
        }
        What::Flows => {
            let all: Flows = client.ask(&Request::Flows { seconds }).map_err(refused)?;
            ask.print(FLOWS, &all, tables::flows)
        }
        What::Elephants => {
            let all: Elephants = client.ask(&Request::Elephants).map_err(refused)?;
            ask.print(ELEPHANTS, &all, |all| tables::elephants(all, 20))
        }
        What::Drops => {
            let all: Drops = client.ask(&Request::Drops).map_err(refused)?;
            ask.print(DROPS, &all, |all| tables::drops(all, 20))
        }
        What::Queues => {
            let all: Queues = client.ask(&Request::Queues).map_err(refused)?;
            ask.print(QUEUES, &all, |all| vec![tables::queues(all, None)])
        }
        What::Cores => {
            let all: Cores = client.ask(&Request::Cores).map_err(refused)?;
            ask.print(CORES, &all, |all| vec![tables::cores(all, None)])
        }
        What::Sas => {
            let all: Sas = client.ask(&Request::Sas).map_err(refused)?;
            ask.print(SAS, &all, ipsec::tables)
        }
        What::Controllers => {
            let all: Controllers = client.ask(&Request::Controllers).map_err(refused)?;
            ask.print(CONTROLLERS, &all, |all| vec![tables::controllers(all)])
        }
        What::Offload => {
            let all: Offload = client.ask(&Request::Offload).map_err(refused)?;
            ask.print(OFFLOAD, &all, tables::offload)
        }
        What::Reload => {
            let all: Reload = client.ask(&Request::Reload).map_err(refused)?;
            if ask.json {
                return output::json(RELOAD, &all);
            }
            output::text(&reload::text(&all, &style()))
        }
        What::Steer => {
            let all: Steer = client.ask(&Request::Steer).map_err(refused)?;
            ask.print(STEER, &all, |all| steer::tables(all, None))
        }
    }
}

impl AskArgs {
    /// Connects to the instance.
    pub(crate) fn connect(&self) -> Result<Client, Stop> {
        Client::connect(self.control.as_deref()).map_err(refused)
    }

    /// Prints an answer as JSON or as tables.
    pub(crate) fn print<T: Serialize>(
        &self,
        schema: &'static str,
        answer: &T,
        tables: impl FnOnce(&T) -> Vec<Table>,
    ) -> Result<(), Stop> {
        if self.json {
            return output::json(schema, answer);
        }
        output::text(&text(&tables(answer), &style()))
    }
}

/// Tables as text, one below the other.
pub(crate) fn text(tables: &[Table], style: &Style) -> String {
    let texts: Vec<_> = tables.iter().map(|table| table.to_text(style)).collect();
    texts.join("\n")
}

/// An instance that is not running, or a connection that broke, is a failure (status 1); a request that was
/// refused is wrong use (status 2).
pub(crate) fn refused(error: ClientError) -> Stop {
    match error {
        ClientError::Gone(_)
        | ClientError::Nobody { .. }
        | ClientError::Absent(_)
        | ClientError::Silent(_) => Stop::Failed(anyhow::anyhow!("{error}")),
        _ => bad_input(error),
    }
}

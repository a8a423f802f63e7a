//! `flowyard adapters`: a table of the adapter models.

use flowyard_adapter::Profile;
use flowyard_adapter::profile::{AtrEvict, FdirKind, Tunnels};
use flowyard_report::{Cell, Column, Table};
use schemars::JsonSchema;
use serde::Serialize;

use crate::output::{self, style};
use crate::stop::Stop;

#[derive(clap::Args)]
#[command(after_help = "Example:\n  flowyard adapters --json")]
pub(crate) struct Args {
    /// Print every field of every model as JSON (schema flowyard.adapters/1) instead of a table
    #[arg(long)]
    json: bool,
}

/// Name and version of the JSON document; see docs/schema.
pub(crate) const SCHEMA: &str = "flowyard.adapters/1";

/// The adapter models.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Adapters {
    /// Every model with its limits.
    adapters: &'static [Profile],
}

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    if args.json {
        return output::json(SCHEMA, Adapters { adapters: Profile::ALL });
    }
    output::text(&table().to_text(&style()))
}

fn table() -> Table {
    let mut table = Table::new("")
        .column(Column::text("adapter"))
        .column(Column::text("other names"))
        .column(Column::text("driver"))
        .column(Column::number("RSS entries"))
        .column(Column::number("RSS queues"))
        .column(Column::text("Flow Director"))
        .column(Column::text("ATR"))
        .column(Column::text("tunnels"));
    for profile in Profile::ALL {
        let rss = profile.rss.as_ref();
        table.push([
            Cell::new(profile.name),
            Cell::new(profile.aliases.join(" ")),
            Cell::new(profile.driver),
            Cell::new(rss.map_or_else(|| "-".to_owned(), |rss| rss.reta.to_string())),
            Cell::new(rss.map_or_else(
                || "-".to_owned(),
                |rss| rss.queues.map_or_else(|| "all".to_owned(), |queues| queues.to_string()),
            )),
            Cell::new(fdir(profile.fdir)),
            Cell::new(match profile.atr {
                None => "-".to_owned(),
                Some(atr) => match atr.evict {
                    AtrEvict::Flush => "signature filters; all flushed when full".to_owned(),
                    AtrEvict::Driver => "driver removes filters on FIN or RST".to_owned(),
                    AtrEvict::Hardware => "adapter removes filters on FIN or RST".to_owned(),
                },
            }),
            Cell::new(match profile.tunnels {
                Tunnels::Outer => "outer header",
                Tunnels::Inner => "inner header",
                Tunnels::Unknown => "not known",
            }),
        ]);
    }
    table
}

fn fdir(kind: FdirKind) -> String {
    match kind {
        FdirKind::None => "-".to_owned(),
        FdirKind::Ixgbe { .. } => "2K to 8K perfect or 8K to 32K signature".to_owned(),
        FdirKind::I40e { filters } | FdirKind::Ice { filters } => format!("{filters} filters"),
        FdirKind::NotModelled { filters: Some(most), .. } => format!("{most} rules, not modelled"),
        FdirKind::NotModelled { filters: None, .. } => "rules, not modelled".to_owned(),
    }
}

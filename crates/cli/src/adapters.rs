//! `flowyard adapters`: a table of the adapter models.

use flowyard_adapter::capability::Adaptive;
use flowyard_adapter::profile::{AtrEvict, FdirKind, Support, Tunnels};
use flowyard_adapter::{Capabilities, Profile};
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
    adapters: Vec<Model>,
}

/// A model and what its adapter has besides.
#[derive(Serialize, JsonSchema)]
struct Model {
    #[serde(flatten)]
    profile: &'static Profile,
    /// For virtual machines, interrupts, storage and management, with sources; `null` and `Unknown` where no public source
    /// that was read states it.
    capabilities: Capabilities,
}

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    if args.json {
        let model =
            |profile: &'static Profile| Model { profile, capabilities: profile.capabilities() };
        return output::json(
            SCHEMA,
            Adapters { adapters: Profile::ALL.iter().map(model).collect() },
        );
    }
    let others = others().titled("For virtual machines, interrupts, storage and management");
    output::text(&format!("{}\n{}", table().to_text(&style()), others.to_text(&style())))
}

/// What the adapters have besides.
fn others() -> Table {
    let mut table = Table::new("")
        .column(Column::text("adapter"))
        .column(Column::text("pools"))
        .column(Column::text("virtual functions"))
        .column(Column::text("anti-spoof"))
        .column(Column::text("vectors"))
        .column(Column::text("moderation unit"))
        .column(Column::text("adaptive"))
        .column(Column::text("FCoE contexts"))
        .column(Column::text("NC-SI"))
        .column(Column::text("sources"));
    let known = |number: Option<u32>| number.map_or_else(|| UNKNOWN.to_owned(), |n| n.to_string());
    for profile in Profile::ALL {
        let can = profile.capabilities();
        let unit = can.moderation_unit_ns.map(|unit| format!("{unit} ns"));
        table.push([
            Cell::new(profile.name),
            Cell::new(known(can.pools.map(u32::from))),
            Cell::new(known(can.virtual_functions.map(u32::from))),
            Cell::new(support(can.anti_spoof)),
            Cell::new(known(can.vectors.map(u32::from))),
            Cell::new(unit.unwrap_or_else(|| UNKNOWN.to_owned())),
            Cell::new(match can.adaptive {
                Adaptive::Ixgbe => "ixgbe",
                Adaptive::Dim => "DIM",
                Adaptive::Own => "its own",
                Adaptive::Unknown => UNKNOWN,
            }),
            Cell::new(known(can.fcoe.map(|sizes| sizes.contexts.into()))),
            Cell::new(support(can.ncsi)),
            Cell::new(can.sources.join("; ")),
        ]);
    }
    table
        .note("unknown: no public source that was read states it")
        .note("virtual functions: of a port at most; adaptive: how the Linux driver adapts the moderation of interrupts")
}

/// What the table has for a value that no source states.
const UNKNOWN: &str = "unknown";

const fn support(support: Support) -> &'static str {
    match support {
        Support::Yes => "yes",
        Support::No => "no",
        Support::Unknown => UNKNOWN,
    }
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

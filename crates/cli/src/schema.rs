//! `flowyard schema`: the JSON Schema of the other commands' `--json` output.
//!
//! The same texts are committed as `docs/schema/*.json`; a test compares them.

use flowyard_analyze::{Analysis, Explanation};
use flowyard_bench::tester::{generate::Sent, rfc2889::Found};
use flowyard_operate::protocol::{
    Controllers, Cores, Drops, Elephants, Flows, Lb, LbChange, LbConnections, LbRoutes, LbTrace,
    Offload, Queues, Reload, Sas, Steer, SwitchWhy, Tables, Trace,
};
use flowyard_report::{Cell, Column, Table, Tone};
use flowyard_rfc2544::document::{Comparison, Document};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::json;

use crate::figures::Results;
use crate::stop::{Stop, bad_input};
use crate::switch::{document as switch, events};
use crate::{
    adapters, analyze, apply, bench, calibrate, doctor, explain, figures, fleet, host, lb, nic,
    plan, predict, prove, rebalance, run as yard, show, steer, top, trace, watch_host,
};

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  flowyard schema\n  flowyard schema analyze > flowyard.analyze.2.json\n  flowyard schema lb-show\n\nThe schemas follow JSON Schema draft 2020-12. A document's \"schema\" key has its name and\nversion."
)]
pub(crate) struct Args {
    /// The command whose output the schema describes [default: list all]
    #[arg(value_name = "COMMAND")]
    command: Option<String>,
}

/// A document that a command prints.
struct Printed {
    /// What the user writes after `flowyard schema`: the command, with hyphens for spaces.
    command: &'static str,
    /// Name and version of the document.
    name: &'static str,
    schema: fn(&str) -> Schema,
}

const fn row(command: &'static str, name: &'static str, schema: fn(&str) -> Schema) -> Printed {
    Printed { command, name, schema }
}

const ALL: [Printed; 75] = [
    row("analyze", analyze::SCHEMA, document::<Analysis>),
    row("explain", explain::SCHEMA, document::<Explanation>),
    row("run", yard::SCHEMA, document::<yard::Report>),
    row("run-check", yard::CHECK, document::<yard::Check>),
    row("run-simulate", yard::SIMULATE, document::<yard::Simulated>),
    row("show-tables", show::TABLES, document::<Tables>),
    row("show-flows", show::FLOWS, document::<Flows>),
    row("show-elephants", show::ELEPHANTS, document::<Elephants>),
    row("show-drops", show::DROPS, document::<Drops>),
    row("show-queues", show::QUEUES, document::<Queues>),
    row("show-cores", show::CORES, document::<Cores>),
    row("show-sas", show::SAS, document::<Sas>),
    row("show-controllers", show::CONTROLLERS, document::<Controllers>),
    row("show-offload", show::OFFLOAD, document::<Offload>),
    row("show-reload", show::RELOAD, document::<Reload>),
    row("show-steer", show::STEER, document::<Steer>),
    row("top", top::SCHEMA, document::<top::State>),
    row("trace", trace::SCHEMA, document::<Trace>),
    row("explain-where", explain::places::SCHEMA, document::<explain::places::Where>),
    row("switch-show", switch::SHOW, document::<switch::Show>),
    row("switch-description", switch::DESCRIPTION, document::<switch::Description>),
    row("switch-flows", switch::FLOWS, document::<switch::Flows>),
    row("switch-aggregate", switch::AGGREGATE, document::<switch::Aggregate>),
    row("switch-groups", switch::GROUPS, document::<switch::Groups>),
    row("switch-group-stats", switch::GROUP_STATS, document::<switch::GroupCounters>),
    row("switch-meters", switch::METERS, document::<switch::Meters>),
    row("switch-meter-stats", switch::METER_STATS, document::<switch::MeterCounters>),
    row("switch-ports", switch::PORTS, document::<switch::PortList>),
    row("switch-port-stats", switch::PORT_STATS, document::<switch::PortCounters>),
    row("switch-tables", switch::TABLES, document::<switch::Tables>),
    row("switch-table-settings", switch::TABLE_SETTINGS, document::<switch::TableSettings>),
    row("switch-table-features", switch::TABLE_FEATURES, document::<switch::Features>),
    row("switch-queues", switch::QUEUES, document::<switch::Queues>),
    row("switch-differences", switch::DIFFERENCES, document::<events::Differences>),
    row("switch-ping", switch::PING, document::<events::Echoes>),
    row("switch-monitor", switch::MONITOR, document::<events::News>),
    row("switch-snoop", switch::SNOOP, document::<events::Passed>),
    row("switch-why", switch::WHY, document::<SwitchWhy>),
    row("lb-show", lb::SHOW, document::<Lb>),
    row("lb-trace", lb::TRACE, document::<LbTrace>),
    row("lb-connections", lb::connections::SCHEMA, document::<LbConnections>),
    row("lb-change", lb::CHANGE, document::<LbChange>),
    row("lb-routes", lb::ROUTES, document::<LbRoutes>),
    row("lb-import", lb::import::SCHEMA, document::<lb::import::Document>),
    row("fleet", fleet::SCHEMA, document::<flowyard_operate::cluster::fleet::Fleet>),
    row("doctor", doctor::SCHEMA, document::<doctor::Report>),
    row("host", host::SCHEMA, document::<flowyard_host::State>),
    row("plan", plan::SCHEMA, document::<flowyard_host::Plan>),
    row("apply", apply::SCHEMA, document::<apply::Changed>),
    row("prove", prove::SCHEMA, document::<flowyard_host::Proof>),
    row("watch-host", watch_host::SCHEMA, document::<watch_host::Event>),
    row("rebalance", rebalance::SCHEMA, document::<rebalance::Event>),
    row("steer", steer::SCHEMA, document::<steer::Steered>),
    row("adapters", adapters::SCHEMA, document::<adapters::Adapters>),
    row("calibrate", calibrate::SCHEMA, document::<calibrate::Calibrated>),
    row("figures", figures::SCHEMA, document::<Results<'_>>),
    row("predict", predict::SCHEMA, document::<predict::Results<'_>>),
    row("bench", bench::methods::SCHEMA, document::<Document>),
    row("bench-engine", bench::engine::SCHEMA, document::<flowyard_bench::engine::Results>),
    row("bench-eventdev", bench::eventdev::SCHEMA, document::<flowyard_bench::eventdev::Results>),
    row("bench-latency", bench::latency::SCHEMA, document::<flowyard_bench::latency::Results>),
    row("bench-history", bench::history::SCHEMA, document::<bench::history::History>),
    row("bench-qualify", bench::qualify::SCHEMA, document::<bench::qualify::Checks>),
    row("bench-rank", bench::rank::SCHEMA, document::<bench::rank::Ranking>),
    row("bench-compare", bench::compare::SCHEMA, document::<Comparison>),
    row("bench-rfc2889", bench::rfc2889::SCHEMA, document::<Found>),
    row("bench-generate", bench::generate::SCHEMA, document::<Sent>),
    row(
        "bench-steer-requests",
        bench::steer::REQUESTS,
        document::<flowyard_bench::steer::requests::Results>,
    ),
    row(
        "bench-steer-order",
        bench::steer::ORDER,
        document::<flowyard_bench::steer::order::Results>,
    ),
    row(
        "bench-steer-survival",
        bench::steer::SURVIVAL,
        document::<flowyard_bench::steer::survival::Results>,
    ),
    row(
        "bench-memcached",
        bench::memcached::SCHEMA,
        document::<flowyard_bench::memcached::Results>,
    ),
    row("nic", nic::SCHEMA, document::<nic::Report<'_>>),
    row("nic-keys", nic::KEYS, document::<nic::Keys>),
    row("nic-sweep", nic::SWEEP, document::<nic::Points>),
    row("nic-exhibits", nic::EXHIBITS, document::<nic::Exhibits<'_>>),
];

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    let Some(command) = &args.command else { return crate::output::text(&list()) };
    let Some(found) = ALL.iter().find(|printed| printed.command == command) else {
        let all: Vec<_> = ALL.iter().map(|printed| printed.command).collect();
        return Err(bad_input(format!(
            "there is no schema '{command}'; choose one of {}",
            all.join(", ")
        )));
    };
    let schema = (found.schema)(found.name);
    let text = serde_json::to_string_pretty(&schema).map_err(|error| Stop::Failed(error.into()))?;
    crate::output::text(&(text + "\n"))
}

/// Every schema, with the document that it describes.
fn list() -> String {
    let mut table = Table::new("").column(Column::text("schema")).column(Column::text("document"));
    for printed in &ALL {
        table.push([Cell::new(printed.command).tone(Tone::Strong), Cell::new(printed.name)]);
    }
    table.to_text(&crate::output::style())
}

/// The schema of `T` inside the wrapper that [`flowyard_report::Document`] puts around it.
fn document<T: JsonSchema>(name: &str) -> Schema {
    // The schema of what is written, not of what a reader accepts: a field that is always written is
    // required.
    let mut schema =
        SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>();
    schema.insert("title".to_owned(), json!(name));
    let wrapper = [
        (
            "schema",
            json!({ "const": name, "description": "Name and version of the document's schema. The version is raised when a field is renamed, removed or changes its meaning." }),
        ),
        (
            "flowyard",
            json!({ "type": "string", "description": "Version of flowyard that wrote the document." }),
        ),
    ];
    for (field, about) in wrapper {
        if let Some(fields) = schema.get_mut("properties").and_then(|at| at.as_object_mut()) {
            fields.insert(field.to_owned(), about);
        }
        if let Some(required) = schema.get_mut("required").and_then(|at| at.as_array_mut()) {
            required.insert(0, json!(field));
        }
    }
    schema
}

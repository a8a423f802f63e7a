//! `flowyard schema`: the JSON Schema of the other commands' `--json` output.
//!
//! The same texts are committed as `docs/schema/*.json`; a test compares them.

use flowyard_analyze::{Analysis, Explanation};
use flowyard_operate::protocol::{Lb, LbChange, LbTrace, SwitchWhy};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::json;

use crate::figures::Results;
use crate::stop::Stop;
use crate::switch::document as switch;

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  flowyard schema analyze > flowyard.analyze.2.json\n  flowyard schema lb-show\n\nThe schemas follow JSON Schema draft 2020-12. A document's \"schema\" key has its name and\nversion."
)]
pub(crate) struct Args {
    /// The command whose output the schema describes
    #[arg(value_enum)]
    command: Of,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Of {
    Analyze,
    Explain,
    LbShow,
    LbTrace,
    LbChange,
    Figures,
    SwitchShow,
    SwitchDescription,
    SwitchFlows,
    SwitchAggregate,
    SwitchGroups,
    SwitchGroupStats,
    SwitchMeters,
    SwitchMeterStats,
    SwitchPorts,
    SwitchPortStats,
    SwitchTables,
    SwitchTableSettings,
    SwitchTableFeatures,
    SwitchQueues,
    SwitchWhy,
}

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    let schema = match args.command {
        Of::Analyze => document::<Analysis>(crate::analyze::SCHEMA),
        Of::Explain => document::<Explanation>(crate::explain::SCHEMA),
        Of::LbShow => document::<Lb>(crate::lb::SHOW),
        Of::LbTrace => document::<LbTrace>(crate::lb::TRACE),
        Of::LbChange => document::<LbChange>(crate::lb::CHANGE),
        Of::Figures => document::<Results<'_>>(crate::figures::SCHEMA),
        Of::SwitchShow => document::<switch::Show>(switch::SHOW),
        Of::SwitchDescription => document::<switch::Description>(switch::DESCRIPTION),
        Of::SwitchFlows => document::<switch::Flows>(switch::FLOWS),
        Of::SwitchAggregate => document::<switch::Aggregate>(switch::AGGREGATE),
        Of::SwitchGroups => document::<switch::Groups>(switch::GROUPS),
        Of::SwitchGroupStats => document::<switch::GroupCounters>(switch::GROUP_STATS),
        Of::SwitchMeters => document::<switch::Meters>(switch::METERS),
        Of::SwitchMeterStats => document::<switch::MeterCounters>(switch::METER_STATS),
        Of::SwitchPorts => document::<switch::PortList>(switch::PORTS),
        Of::SwitchPortStats => document::<switch::PortCounters>(switch::PORT_STATS),
        Of::SwitchTables => document::<switch::Tables>(switch::TABLES),
        Of::SwitchTableSettings => document::<switch::TableSettings>(switch::TABLE_SETTINGS),
        Of::SwitchTableFeatures => document::<switch::Features>(switch::TABLE_FEATURES),
        Of::SwitchQueues => document::<switch::Queues>(switch::QUEUES),
        Of::SwitchWhy => document::<SwitchWhy>(switch::WHY),
    };
    let text = serde_json::to_string_pretty(&schema).map_err(|error| Stop::Failed(error.into()))?;
    crate::output::text(&(text + "\n"))
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

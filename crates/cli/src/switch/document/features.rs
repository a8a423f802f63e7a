//! The features of tables as a JSON document.

use flowyard_openflow::ofctl;
use flowyard_openflow::oxm::Field;
use flowyard_openflow::table::{Feature, TableFeatures};
use schemars::JsonSchema;
use serde::Serialize;

use crate::switch::words;

/// The features of tables.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Features {
    /// By number.
    pub(in crate::switch) tables: Vec<TableFeature>,
}

/// The features of a table.
#[derive(Clone, PartialEq, Serialize, JsonSchema)]
pub(crate) struct TableFeature {
    /// The number.
    pub(in crate::switch) table: u8,
    /// Its name.
    pub(in crate::switch) name: String,
    /// The number of flow entries for which it has room.
    pub(in crate::switch) max_entries: u32,
    /// The instructions of its flows.
    pub(in crate::switch) instructions: Vec<String>,
    /// The tables to which goto_table may lead.
    pub(in crate::switch) next_tables: Vec<u8>,
    /// The actions that a flow may apply.
    pub(in crate::switch) apply_actions: Vec<String>,
    /// The actions that a flow may write.
    pub(in crate::switch) write_actions: Vec<String>,
    /// The fields that a flow may match, each with `/mask` if it may have a mask.
    pub(in crate::switch) match_fields: Vec<String>,
    /// The fields that set_field may set.
    pub(in crate::switch) set_fields: Vec<String>,
}

impl From<&TableFeatures> for TableFeature {
    fn from(features: &TableFeatures) -> Self {
        let all = |wanted: u16| features.properties.iter().filter(move |one| one.kind() == wanted);
        let list = |wanted: u16| all(wanted).flat_map(listed).collect();
        let next = all(2).find_map(|feature| match feature {
            Feature::Tables { list, .. } => Some(list.clone()),
            _ => None,
        });
        Self {
            table: features.table,
            name: words::text(&features.name),
            max_entries: features.max_entries,
            instructions: list(0),
            next_tables: next.unwrap_or_default(),
            apply_actions: list(6),
            write_actions: list(4),
            match_fields: list(8),
            set_fields: list(14),
        }
    }
}

/// The elements of a property, as words of a flow.
fn listed(feature: &Feature) -> Vec<String> {
    let word = |names: &[(u16, &str)], number: u16| {
        let found = names.iter().find(|(other, _)| *other == number);
        found.map_or_else(|| number.to_string(), |(_, name)| (*name).into())
    };
    match feature {
        Feature::Instructions { list, .. } => {
            list.iter().map(|(number, _)| word(INSTRUCTIONS, *number)).collect()
        }
        Feature::Actions { list, .. } => {
            list.iter().map(|(number, _)| word(ACTIONS, *number)).collect()
        }
        Feature::Fields { list, .. } => list.iter().map(|(header, _)| field(*header)).collect(),
        Feature::Tables { .. } | Feature::Other(_) => Vec::new(),
    }
}

/// The name of the field with this OXM header.
fn field(header: u32) -> String {
    let found = Field::ALL.iter().find(|field| field.header(false) >> 9 == header >> 9);
    let mask = if header & 0x100 == 0 { "" } else { "/mask" };
    match found {
        Some(field) => format!("{}{mask}", ofctl::field_name(*field)),
        None => format!("{header:#010x}"),
    }
}

const INSTRUCTIONS: &[(u16, &str)] = &[
    (1, "goto_table"),
    (2, "write_metadata"),
    (3, "write_actions"),
    (4, "apply_actions"),
    (5, "clear_actions"),
    (6, "meter"),
];

const ACTIONS: &[(u16, &str)] = &[
    (0, "output"),
    (11, "copy_ttl_out"),
    (12, "copy_ttl_in"),
    (15, "set_mpls_ttl"),
    (16, "dec_mpls_ttl"),
    (17, "push_vlan"),
    (18, "pop_vlan"),
    (19, "push_mpls"),
    (20, "pop_mpls"),
    (21, "set_queue"),
    (22, "group"),
    (23, "mod_nw_ttl"),
    (24, "dec_ttl"),
    (25, "set_field"),
    (26, "push_pbb"),
    (27, "pop_pbb"),
];

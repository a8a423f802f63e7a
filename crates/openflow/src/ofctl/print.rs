//! Flow entries, actions and groups as text that the parsers of this module read. Ports are written with
//! the names that the caller gives, or as numbers.

use std::fmt::Write;

use super::Ports;
use super::fields::{self, port_text as port};
use super::flow::FLAGS;
use super::groups::TYPES;
use crate::act::{Action, Instruction};
use crate::flow::{FlowCommand, FlowMod};
use crate::group::GroupType;
use crate::multipart::{FlowStats, GroupDesc, NOT_COUNTED};
use crate::oxm::{Field, Oxm};
use crate::port::reserved;
use crate::{Match, group, table};

/// A flow entry in one line, as a dump prints it.
#[must_use]
pub fn flow_text(flow: &FlowStats) -> String {
    flow_text_with(flow, true, &[])
}

/// As [`flow_text`], with names of ports, and with or without counters and age.
#[must_use]
pub fn flow_text_with(flow: &FlowStats, with_counters: bool, names: Ports<'_>) -> String {
    let mut text = format!(" cookie={:#x}, ", flow.cookie);
    if with_counters {
        let ms = flow.duration_nsec / 1_000_000;
        let _ = write!(text, "duration={}.{ms:03}s, ", flow.duration_sec);
    }
    let _ = write!(text, "table={}, ", flow.table);
    if with_counters {
        for (name, count) in [("n_packets", flow.packets), ("n_bytes", flow.bytes)] {
            if count != NOT_COUNTED {
                let _ = write!(text, "{name}={count}, ");
            }
        }
    }
    text += &settings(flow.idle_timeout, flow.hard_timeout, flow.importance, flow.flags, ", ");
    text += &rule(flow.priority, &flow.matching, &flow.instructions, names);
    text
}

/// A flow-mod as text that [`super::flow`] parses to the same value, except for its command and buffer.
#[must_use]
pub fn flow_mod_text(m: &FlowMod) -> String {
    flow_mod_text_with(m, &[])
}

/// As [`flow_mod_text`], with names of ports.
#[must_use]
pub fn flow_mod_text_with(m: &FlowMod, names: Ports<'_>) -> String {
    let table = if m.table == table::ALL { "all".into() } else { m.table.to_string() };
    let mut text = format!("table={table},cookie={:#x}", m.cookie);
    if m.command != FlowCommand::Add {
        let _ = write!(text, "/{:#x}", m.cookie_mask);
    }
    text.push(',');
    if m.out_port != reserved::ANY {
        let _ = write!(text, "out_port={},", port(m.out_port, names));
    }
    if m.out_group != group::ANY {
        let _ = write!(text, "out_group={},", m.out_group);
    }
    text += &settings(m.idle_timeout, m.hard_timeout, m.importance, m.flags, ",");
    let deletes = matches!(m.command, FlowCommand::Delete | FlowCommand::DeleteStrict);
    let rule = rule(m.priority, &m.matching, &m.instructions, names);
    text += if deletes { rule.split(" actions=").next().unwrap_or("") } else { &rule };
    text
}

fn settings(idle: u16, hard: u16, importance: u16, bits: u16, behind: &str) -> String {
    let mut text = String::new();
    for (name, value) in
        [("idle_timeout", idle), ("hard_timeout", hard), ("importance", importance)]
    {
        if value > 0 {
            let _ = write!(text, "{name}={value}{behind}");
        }
    }
    for (name, _) in FLAGS.iter().filter(|(_, flag)| bits & flag != 0) {
        text = text + name + behind;
    }
    text
}

fn rule(priority: u16, matching: &Match, instructions: &[Instruction], names: Ports<'_>) -> String {
    let fields = match_text(matching, names);
    let comma = if fields.is_empty() { "" } else { "," };
    let actions = instruction_texts(instructions, names);
    let actions = if actions.is_empty() { "drop".into() } else { actions.join(",") };
    format!("priority={priority}{comma}{fields} actions={actions}")
}

/// The number or the name of a port.
#[must_use]
pub fn port_text(number: u32, names: Ports<'_>) -> String {
    port(number, names)
}

/// The fields of a match: name and value, or the word for a kind of frames and no value.
#[must_use]
pub fn field_texts(matching: &Match, names: Ports<'_>) -> Vec<(&'static str, String)> {
    fields::field_texts(matching, names)
}

/// A match as text, separated by commas; empty for an empty match.
#[must_use]
pub fn match_text(matching: &Match, names: Ports<'_>) -> String {
    let word = |(name, value): (&str, String)| {
        if value.is_empty() { name.to_owned() } else { format!("{name}={value}") }
    };
    let words: Vec<String> = field_texts(matching, names).into_iter().map(word).collect();
    words.join(",")
}

/// The instructions and the actions to apply, one text for each; empty for a flow that drops.
#[must_use]
pub fn instruction_texts(instructions: &[Instruction], names: Ports<'_>) -> Vec<String> {
    let mut words = Vec::new();
    for instruction in instructions {
        match instruction {
            Instruction::ApplyActions(list) => {
                words.extend(list.iter().map(|action| action_text(action, names)));
            }
            Instruction::WriteActions(list) => {
                words.push(format!("write_actions({})", actions_text(list, names)));
            }
            Instruction::ClearActions => words.push("clear_actions".into()),
            Instruction::GotoTable(table) => words.push(format!("goto_table:{table}")),
            Instruction::Meter(meter) => words.push(format!("meter:{meter}")),
            Instruction::WriteMetadata { value, mask } => {
                let oxm = Oxm::masked(Field::Metadata, (*value).into(), (*mask).into());
                words.push(format!("write_metadata:{}", fields::oxm_value(&oxm, names)));
            }
            Instruction::Experimenter { id, .. } => words.push(format!("experimenter:{id:#x}")),
        }
    }
    words
}

/// A list of actions as text; `drop` for an empty list.
#[must_use]
pub fn actions_text(list: &[Action], names: Ports<'_>) -> String {
    let words: Vec<String> = list.iter().map(|action| action_text(action, names)).collect();
    if words.is_empty() { "drop".into() } else { words.join(",") }
}

fn action_text(action: &Action, names: Ports<'_>) -> String {
    match action {
        Action::Output { port: reserved::CONTROLLER, max_len } => format!("CONTROLLER:{max_len}"),
        Action::Output { port: to, .. } if *to > reserved::MAX && *to != reserved::ANY => {
            port(*to, names)
        }
        Action::Output { port: to, .. } => format!("output:{}", port(*to, names)),
        Action::CopyTtlOut => "copy_ttl_out".into(),
        Action::CopyTtlIn => "copy_ttl_in".into(),
        Action::SetMplsTtl(ttl) => format!("set_mpls_ttl({ttl})"),
        Action::DecMplsTtl => "dec_mpls_ttl".into(),
        Action::PushVlan(to) => format!("push_vlan:{to:#06x}"),
        Action::PopVlan => "pop_vlan".into(),
        Action::StripVlan => "strip_vlan".into(),
        Action::PushMpls(to) => format!("push_mpls:{to:#06x}"),
        Action::PopMpls(to) => format!("pop_mpls:{to:#06x}"),
        Action::SetQueue(queue) => format!("set_queue:{queue}"),
        Action::Group(group) => format!("group:{group}"),
        Action::SetNwTtl(ttl) => format!("mod_nw_ttl:{ttl}"),
        Action::DecNwTtl => "dec_ttl".into(),
        Action::SetField(oxm) => {
            format!("set_field:{}->{}", fields::oxm_value(oxm, names), fields::name(oxm.field))
        }
        Action::PushPbb(to) => format!("push_pbb:{to:#06x}"),
        Action::PopPbb => "pop_pbb".into(),
        Action::SetVlanVid(vid) => format!("mod_vlan_vid:{vid}"),
        Action::SetVlanPcp(pcp) => format!("mod_vlan_pcp:{pcp}"),
        Action::SetTpSrc(port) => format!("mod_tp_src:{port}"),
        Action::SetTpDst(port) => format!("mod_tp_dst:{port}"),
        Action::Enqueue { port: to, queue } => format!("enqueue:{}:{queue}", port(*to, names)),
        Action::Experimenter { id, .. } => format!("experimenter:{id:#x}"),
    }
}

/// A group as text that [`super::group`] parses.
#[must_use]
pub fn group_text(desc: &GroupDesc) -> String {
    group_text_with(desc, &[])
}

/// As [`group_text`], with names of ports.
#[must_use]
pub fn group_text_with(desc: &GroupDesc, names: Ports<'_>) -> String {
    let kind = group_type(desc.kind);
    let mut text = format!("group_id={},type={kind}", desc.group);
    for bucket in &desc.buckets {
        text += ",bucket=";
        if bucket.weight != 0 || desc.kind == GroupType::Select {
            let _ = write!(text, "weight:{},", bucket.weight);
        }
        if bucket.watch_port != reserved::ANY {
            let _ = write!(text, "watch_port:{},", port(bucket.watch_port, names));
        }
        if bucket.watch_group != group::ANY {
            let _ = write!(text, "watch_group:{},", bucket.watch_group);
        }
        let _ = write!(text, "actions={}", actions_text(&bucket.actions, names));
    }
    text
}

/// The name of a field, as it stands in a match.
#[must_use]
pub fn field_name(field: Field) -> &'static str {
    fields::name(field)
}

/// The names of the flags of a flow entry.
#[must_use]
pub fn flag_names(bits: u16) -> Vec<&'static str> {
    FLAGS.iter().filter(|(_, flag)| bits & flag != 0).map(|(name, _)| *name).collect()
}

/// The name of a type of groups.
#[must_use]
pub fn group_type(kind: GroupType) -> &'static str {
    TYPES.iter().find(|(_, other)| *other == kind).map_or("", |(name, _)| name)
}

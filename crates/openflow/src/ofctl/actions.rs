//! Actions and instructions as text.

use super::fields::{self, port, port_text};
use super::{Part, TextError};
use crate::Match;
use crate::act::{Action, Instruction};
use crate::oxm::{Field, Oxm, VID_PRESENT};
use crate::port::reserved;

/// Actions that only Open vSwitch has. They get an error message of their own.
const FOREIGN: &[&str] = &[
    "resubmit",
    "learn",
    "ct",
    "move",
    "load",
    "note",
    "sample",
    "conjunction",
    "bundle",
    "multipath",
    "fin_timeout",
    "exit",
    "clone",
    "encap",
    "decap",
    "ct_clear",
    "check_pkt_larger",
];

/// The parts of a flow entry's instructions that the actions fill.
#[derive(Default)]
struct Done {
    meter: Option<u32>,
    apply: Vec<Action>,
    clear: bool,
    write: Option<Vec<Action>>,
    metadata: Option<(u64, u64)>,
    goto: Option<u8>,
}

/// A word with its argument: `word`, `word:argument`, `word=argument` or `word(argument)`.
fn parts(part: Part<'_>) -> (Part<'_>, Option<Part<'_>>) {
    let Some((word, rest)) = part.split(&[':', '=', '(']) else { return (part, None) };
    let open = part.text.as_bytes().get(word.text.len()) == Some(&b'(');
    let inner = rest.text.strip_suffix(')').filter(|_| open);
    (word, Some(inner.map_or(rest, |text| Part { text, ..rest })))
}

/// Parses the actions of a flow entry with this match into instructions.
pub(super) fn instructions(
    part: Part<'_>,
    matching: &Match,
) -> Result<Vec<Instruction>, TextError> {
    let mut done = Done::default();
    let list = part.list()?;
    for one in &list {
        step(*one, list.len(), matching, &mut done)?;
    }
    let mut instructions = Vec::new();
    instructions.extend(done.meter.map(Instruction::Meter));
    if !done.apply.is_empty() {
        instructions.push(Instruction::ApplyActions(done.apply));
    }
    instructions.extend(done.clear.then_some(Instruction::ClearActions));
    instructions.extend(done.write.map(Instruction::WriteActions));
    let metadata = done.metadata;
    instructions.extend(metadata.map(|(value, mask)| Instruction::WriteMetadata { value, mask }));
    instructions.extend(done.goto.map(Instruction::GotoTable));
    Ok(instructions)
}

fn step(part: Part<'_>, all: usize, matching: &Match, done: &mut Done) -> Result<(), TextError> {
    let (word, argument) = parts(part);
    let need = || {
        let fix = format!("write {}:NUMBER", word.text);
        argument.ok_or_else(|| word.wrong("this action needs a number", fix))
    };
    match word.text.to_ascii_lowercase().as_str() {
        "drop" if all == 1 => {}
        "drop" => {
            return Err(
                word.wrong("drop cannot be combined with actions", "leave out drop or the others")
            );
        }
        "goto_table" => done.goto = Some(need()?.number(8)? as u8),
        "meter" => done.meter = Some(need()?.number(32)? as u32),
        "clear_actions" => done.clear = true,
        "write_metadata" => {
            let oxm = fields::oxm(Field::Metadata, need()?)?;
            done.metadata = Some((oxm.value as u64, oxm.mask as u64));
        }
        "write_actions" => {
            done.write = Some(actions(need()?, matching)?);
        }
        "apply_actions" => done.apply.extend(actions(need()?, matching)?),
        name => {
            let old = match argument {
                Some(argument) => old(name, argument, matching)?,
                None => (name == "strip_vlan").then_some(Action::StripVlan),
            };
            done.apply.push(match old {
                Some(action) => action,
                None => action(part, matching)?,
            });
        }
    }
    Ok(())
}

/// The actions that only 1.0 has, among the actions of a flow. The match decides which actions of
/// newer versions do the same.
fn old(name: &str, argument: Part<'_>, matching: &Match) -> Result<Option<Action>, TextError> {
    let is = |field| matching.allows(field);
    let has_ports = is(Field::TcpSrc) || is(Field::UdpSrc) || is(Field::SctpSrc);
    Ok(Some(match name {
        "mod_vlan_vid" | "set_vlan_vid" => Action::SetVlanVid(argument.number(12)? as u16),
        "mod_vlan_pcp" | "set_vlan_pcp" => Action::SetVlanPcp(argument.number(3)? as u8),
        "mod_tp_src" if !has_ports => Action::SetTpSrc(argument.number(16)? as u16),
        "mod_tp_dst" if !has_ports => Action::SetTpDst(argument.number(16)? as u16),
        _ => return Ok(None),
    }))
}

/// Parses a list of actions without instructions. `drop` is the empty list.
pub(super) fn actions(part: Part<'_>, matching: &Match) -> Result<Vec<Action>, TextError> {
    if part.trim().text.eq_ignore_ascii_case("drop") {
        return Ok(Vec::new());
    }
    part.list()?.into_iter().map(|one| action(one, matching)).collect()
}

fn action(part: Part<'_>, matching: &Match) -> Result<Action, TextError> {
    let (word, argument) = parts(part);
    let name = word.text.to_ascii_lowercase();
    let need = |what: &str| {
        let fix = format!("write {}:{what}", word.text);
        argument.ok_or_else(|| word.wrong("this action needs an argument", fix))
    };
    let number = |bits: u32| need("NUMBER")?.number(bits);
    if let Some(field) = modified(word, &name, matching)? {
        return Ok(Action::SetField(Oxm::exact(field, fields::value(field, need("VALUE")?)?)));
    }
    let output = |port: u32| Action::Output {
        port,
        max_len: if port == reserved::CONTROLLER { u16::MAX } else { 0 },
    };
    Ok(match name.as_str() {
        "output" => output(port(need("PORT")?)?),
        "controller" => controller(argument)?,
        "normal" | "flood" | "all" | "local" | "in_port" | "table" => output(port(word)?),
        "group" => Action::Group(number(32)? as u32),
        "set_queue" => Action::SetQueue(number(32)? as u32),
        "enqueue" => {
            let both = need("PORT:QUEUE")?;
            let wrong = || both.wrong("no port and queue", "write enqueue:PORT:QUEUE");
            let (to, queue) = both.split(&[':', ',']).ok_or_else(wrong)?;
            Action::Enqueue { port: port(to)?, queue: queue.number(32)? as u32 }
        }
        "set_field" => set_field(need("VALUE->FIELD")?)?,
        "mod_nw_tos" => {
            let tos = number(8)?;
            if tos & 3 != 0 {
                return Err(
                    part.wrong("the lowest two bits of TOS are ECN", "write a multiple of 4")
                );
            }
            Action::SetField(Oxm::exact(Field::IpDscp, tos >> 2))
        }
        "mod_vlan_vid" | "set_vlan_vid" => {
            Action::SetField(Oxm::exact(Field::VlanVid, VID_PRESENT | number(12)?))
        }
        "mod_vlan_pcp" | "set_vlan_pcp" => Action::SetField(Oxm::exact(Field::VlanPcp, number(3)?)),
        "mod_nw_ttl" | "set_nw_ttl" => Action::SetNwTtl(number(8)? as u8),
        "dec_ttl" | "dec_nw_ttl" if argument.is_none() => Action::DecNwTtl,
        "set_mpls_ttl" => Action::SetMplsTtl(number(8)? as u8),
        "dec_mpls_ttl" => Action::DecMplsTtl,
        "copy_ttl_in" => Action::CopyTtlIn,
        "copy_ttl_out" => Action::CopyTtlOut,
        "push_vlan" => Action::PushVlan(number(16)? as u16),
        "pop_vlan" | "strip_vlan" => Action::PopVlan,
        "push_mpls" => Action::PushMpls(number(16)? as u16),
        "pop_mpls" => Action::PopMpls(number(16)? as u16),
        "push_pbb" => Action::PushPbb(number(16)? as u16),
        "pop_pbb" => Action::PopPbb,
        other if argument.is_none() && other.starts_with(|c: char| c.is_ascii_digit()) => {
            output(port(word)?)
        }
        other => return Err(unknown(word, other)),
    })
}

/// The field that an action `mod_FIELD` sets to its argument as it is written; `None` for other actions.
fn modified(word: Part<'_>, name: &str, matching: &Match) -> Result<Option<Field>, TextError> {
    Ok(Some(match name {
        "mod_dl_src" => Field::EthSrc,
        "mod_dl_dst" => Field::EthDst,
        "mod_nw_src" => Field::Ipv4Src,
        "mod_nw_dst" => Field::Ipv4Dst,
        "mod_nw_ecn" => Field::IpEcn,
        "mod_tp_src" | "mod_tp_dst" => {
            let eth = matching.exact(Field::EthType).map(|eth| eth as u16);
            let proto = matching.exact(Field::IpProto).map(|proto| proto as u8);
            match fields::dependent(&name[4..], eth, proto) {
                Some(Ok(field)) => field,
                Some(Err(fix)) => {
                    return Err(word.wrong("the match does not name a protocol with ports", fix));
                }
                None => return Err(word.wrong("no such action", "")),
            }
        }
        _ => return Ok(None),
    }))
}

/// The error for a word that is no action of OpenFlow.
fn unknown(word: Part<'_>, name: &str) -> TextError {
    if FOREIGN.contains(&name) {
        return word.wrong(
            "this action is an extension of Open vSwitch",
            "write it with actions of OpenFlow",
        );
    }
    word.wrong(
        "no such action",
        "write one such as output:1, set_field:VALUE->FIELD, group:1, drop",
    )
}

/// `controller`, `controller:128`, `controller(max_len=128)`.
fn controller(argument: Option<Part<'_>>) -> Result<Action, TextError> {
    let max_len = match argument {
        None => u16::MAX,
        Some(part) => {
            let inner = part.text.strip_prefix("max_len=").map(str::len);
            part.skip(part.text.len() - inner.unwrap_or(part.text.len())).number(16)? as u16
        }
    };
    Ok(Action::Output { port: reserved::CONTROLLER, max_len })
}

fn set_field(part: Part<'_>) -> Result<Action, TextError> {
    let fix = "write set_field:VALUE->FIELD";
    let at = part.text.find("->").ok_or_else(|| part.wrong("no field to set", fix))?;
    let (value, name) = (part.take(at), part.skip(at + 2));
    if value.text.contains('/') {
        return Err(value.wrong("set_field takes no mask before OpenFlow 1.5", "write all bits"));
    }
    let field = fields::named(name.text);
    let field = field.ok_or_else(|| name.wrong("no such field", "write one such as eth_dst"))?;
    if !field.settable() {
        return Err(name.wrong(
            "this field cannot be set",
            "choose a field of the frame; this one belongs to the switch",
        ));
    }
    let mut action = Action::SetField(Oxm::exact(field, fields::value(field, value)?));
    action.mark_tag();
    Ok(action)
}

/// The instructions as text that [`instructions`] parses.
pub(super) fn instructions_text(instructions: &[Instruction]) -> String {
    let mut words = Vec::new();
    for instruction in instructions {
        match instruction {
            Instruction::ApplyActions(list) => words.extend(list.iter().map(action_text)),
            Instruction::WriteActions(list) => {
                words.push(format!("write_actions({})", actions_text(list)));
            }
            Instruction::ClearActions => words.push("clear_actions".into()),
            Instruction::GotoTable(table) => words.push(format!("goto_table:{table}")),
            Instruction::Meter(meter) => words.push(format!("meter:{meter}")),
            Instruction::WriteMetadata { value, mask } => {
                let oxm = Oxm::masked(Field::Metadata, (*value).into(), (*mask).into());
                words.push(format!("write_metadata:{}", fields::oxm_value(&oxm)));
            }
            Instruction::Experimenter { id, .. } => words.push(format!("experimenter:{id:#x}")),
        }
    }
    if words.is_empty() { "drop".into() } else { words.join(",") }
}

/// The actions as text that [`actions`] parses.
pub(super) fn actions_text(list: &[Action]) -> String {
    let words: Vec<String> = list.iter().map(action_text).collect();
    if words.is_empty() { "drop".into() } else { words.join(",") }
}

fn action_text(action: &Action) -> String {
    match action {
        Action::Output { port: reserved::CONTROLLER, max_len } => format!("CONTROLLER:{max_len}"),
        Action::Output { port, .. } if *port > reserved::MAX && *port != reserved::ANY => {
            port_text(*port)
        }
        Action::Output { port, .. } => format!("output:{}", port_text(*port)),
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
            format!("set_field:{}->{}", fields::oxm_value(oxm), fields::name(oxm.field))
        }
        Action::PushPbb(to) => format!("push_pbb:{to:#06x}"),
        Action::PopPbb => "pop_pbb".into(),
        Action::SetVlanVid(vid) => format!("mod_vlan_vid:{vid}"),
        Action::SetVlanPcp(pcp) => format!("mod_vlan_pcp:{pcp}"),
        Action::SetTpSrc(port) => format!("mod_tp_src:{port}"),
        Action::SetTpDst(port) => format!("mod_tp_dst:{port}"),
        Action::Enqueue { port, queue } => format!("enqueue:{}:{queue}", port_text(*port)),
        Action::Experimenter { id, .. } => format!("experimenter:{id:#x}"),
    }
}

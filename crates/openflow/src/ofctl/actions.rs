//! Actions and instructions as text.

use super::fields::{self, port};
use super::{Part, TextError, foreign};
use crate::Match;
use crate::act::{Action, Instruction};
use crate::oxm::{Field, Oxm, VID_PRESENT};
use crate::port::reserved;

/// All actions and instructions, for suggestions.
const WORDS: &[&str] = &[
    "output",
    "controller",
    "normal",
    "flood",
    "all",
    "local",
    "in_port",
    "table",
    "drop",
    "group",
    "meter",
    "goto_table",
    "write_actions",
    "apply_actions",
    "clear_actions",
    "write_metadata",
    "set_field",
    "set_queue",
    "enqueue",
    "set_tunnel",
    "mod_dl_src",
    "mod_dl_dst",
    "mod_nw_src",
    "mod_nw_dst",
    "mod_nw_tos",
    "mod_nw_ecn",
    "mod_nw_ttl",
    "mod_tp_src",
    "mod_tp_dst",
    "mod_vlan_vid",
    "mod_vlan_pcp",
    "set_mpls_label",
    "set_mpls_tc",
    "set_mpls_ttl",
    "dec_ttl",
    "dec_mpls_ttl",
    "copy_ttl_in",
    "copy_ttl_out",
    "push_vlan",
    "pop_vlan",
    "strip_vlan",
    "push_mpls",
    "pop_mpls",
    "push_pbb",
    "pop_pbb",
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
    (word.trim(), Some(inner.map_or(rest, |text| Part { text, ..rest }).trim()))
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
        "output" => output_to(need("PORT")?)?,
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
        "set_tunnel" => Action::SetField(Oxm::exact(Field::TunnelId, number(32)?)),
        "set_tunnel64" => Action::SetField(Oxm::exact(Field::TunnelId, number(64)?)),
        "set_mpls_label" => Action::SetField(Oxm::exact(Field::MplsLabel, number(20)?)),
        "set_mpls_tc" => Action::SetField(Oxm::exact(Field::MplsTc, number(3)?)),
        "mod_vlan_pcp" | "set_vlan_pcp" => Action::SetField(Oxm::exact(Field::VlanPcp, number(3)?)),
        "mod_nw_ttl" | "set_nw_ttl" => Action::SetNwTtl(number(8)? as u8),
        "dec_ttl" | "dec_nw_ttl" => dec_ttl(word, argument)?,
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
        other => match fields::known_port(word).filter(|_| argument.is_none()) {
            Some(port) => output(port),
            None => {
                let error = foreign::no_action(word, other, WORDS.iter().copied());
                return Err(TextError { may_be_port: argument.is_none(), ..error });
            }
        },
    })
}

/// `output:PORT`, `output(port=PORT)`, and for a controller `output(port=controller,max_len=128)`.
fn output_to(argument: Part<'_>) -> Result<Action, TextError> {
    if !argument.text.contains('=') {
        let port = port(argument)?;
        let max_len = if port == reserved::CONTROLLER { u16::MAX } else { 0 };
        return Ok(Action::Output { port, max_len });
    }
    let (mut to, mut len) = (None, None);
    for one in argument.list()? {
        let wrong = || one.wrong("no such setting of output", "write output:PORT");
        let (name, value) = one.split(&['=']).ok_or_else(wrong)?;
        match name.trim().text {
            "port" => to = Some(port(value.trim())?),
            "max_len" => len = Some((one, value.trim().number(16)? as u16)),
            _ => return Err(wrong()),
        }
    }
    let port = to.ok_or_else(|| argument.wrong("no port", "write output:PORT"))?;
    match len {
        Some((at, _)) if port != reserved::CONTROLLER => Err(at.wrong(
            "only a frame for a controller can be cut",
            "write output:PORT, without max_len",
        )),
        len => {
            let most = if port == reserved::CONTROLLER { u16::MAX } else { 0 };
            Ok(Action::Output { port, max_len: len.map_or(most, |(_, len)| len) })
        }
    }
}

/// `dec_ttl`; `dec_ttl(0)` means the same, because 0 is the number that every controller has.
fn dec_ttl(word: Part<'_>, argument: Option<Part<'_>>) -> Result<Action, TextError> {
    match argument {
        None => Ok(Action::DecNwTtl),
        Some(part) if matches!(part.text, "" | "0") => Ok(Action::DecNwTtl),
        Some(part) => Err(part.wrong(
            "the numbers of controllers are an extension of Open vSwitch",
            format!("write {} alone; every controller gets the frames whose TTL ends", word.text),
        )),
    }
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

/// `controller`, `controller:128`, `controller(max_len=128,reason=action,id=0)`.
fn controller(argument: Option<Part<'_>>) -> Result<Action, TextError> {
    let mut max_len = u16::MAX;
    let has_settings = |part: &Part<'_>| part.text.contains('=') || part.text == "pause";
    let settings = argument.filter(has_settings);
    if let (Some(part), None) = (argument, settings) {
        // `controller()` has no settings.
        max_len = if part.text.is_empty() { max_len } else { part.number(16)? as u16 };
    }
    for one in settings.map_or_else(|| Ok(Vec::new()), Part::list)? {
        let (name, value) = one.split(&['=']).unwrap_or((one, one.skip(one.text.len())));
        let (name, value) = (name.trim().text, value.trim());
        let (why, fix) = match (name, value.text) {
            ("max_len", _) => {
                max_len = value.number(16)? as u16;
                continue;
            }
            // What an output to a controller means in OpenFlow.
            ("reason", "action") | ("id", "0") => continue,
            ("reason", _) => (
                "OpenFlow lets no flow choose the reason",
                "leave it out; the reason of an output is 'action'",
            ),
            ("id", _) => (
                "the number of a controller is an extension of Open vSwitch",
                "leave it out; every controller that wants packet-ins gets the frame",
            ),
            ("userdata" | "meter_id" | "pause", _) => (
                "this setting is an extension of Open vSwitch",
                "leave it out; cookie=NUMBER before the actions tells flows apart",
            ),
            _ => ("no such setting of controller", "write controller(max_len=BYTES)"),
        };
        return Err(one.wrong(why, fix));
    }
    Ok(Action::Output { port: reserved::CONTROLLER, max_len })
}

fn set_field(part: Part<'_>) -> Result<Action, TextError> {
    let fix = "write set_field:VALUE->FIELD";
    let at = part.text.find("->").ok_or_else(|| part.wrong("no field to set", fix))?;
    let (value, name) = (part.take(at).trim(), part.skip(at + 2).trim());
    if value.text.contains('/') {
        return Err(value.wrong("set_field takes no mask before OpenFlow 1.5", "write all bits"));
    }
    let field = fields::named(name.text);
    let none = || foreign::no_field(name, fields::words(), "write one such as eth_dst");
    let field = field.ok_or_else(none)?;
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

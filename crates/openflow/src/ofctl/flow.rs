//! Flow entries as text.

use std::fmt::Write;

use super::fields::{self, KINDS};
use super::{Part, Ports, TextError, actions};
use crate::act::Instruction;
use crate::flow::{FlowCommand, FlowMod, flags};
use crate::multipart::{FlowFilter, FlowStats};
use crate::oxm::{Field, Oxm, VID_PRESENT};
use crate::port::reserved;
use crate::{Match, group, table};

const FLAGS: &[(&str, u16)] = &[
    ("send_flow_rem", flags::SEND_FLOW_REM),
    ("check_overlap", flags::CHECK_OVERLAP),
    ("reset_counts", flags::RESET_COUNTS),
    ("no_packet_counts", flags::NO_PKT_COUNTS),
    ("no_byte_counts", flags::NO_BYT_COUNTS),
];

/// Words of a dump that are not part of a flow entry. They are ignored.
const TOLD: &[&str] = &["duration", "n_packets", "n_bytes", "idle_age", "hard_age"];

/// Parses a flow-mod. The default table is 0; a delete without table applies to all tables. The
/// default priority is 32768.
///
/// # Errors
/// When the text cannot be parsed, with the position and the fix.
pub fn flow(text: &str, command: FlowCommand) -> Result<FlowMod, TextError> {
    flow_with(text, command, &[])
}

/// As [`flow`], with names of ports.
///
/// # Errors
/// As [`flow`].
pub fn flow_with(text: &str, command: FlowCommand, ports: Ports<'_>) -> Result<FlowMod, TextError> {
    let deletes = matches!(command, FlowCommand::Delete | FlowCommand::DeleteStrict);
    let mut m = FlowMod {
        command,
        priority: 32768,
        buffer: u32::MAX,
        out_port: reserved::ANY,
        out_group: group::ANY,
        table: if deletes { table::ALL } else { 0 },
        ..FlowMod::default()
    };
    let whole = Part::new(text, ports);
    let (front, behind) = cut(whole);
    let mut found = Vec::new();
    for part in front.list()? {
        attribute(part, command, &mut m, &mut found)?;
    }
    m.matching = matching(&found)?;
    match behind {
        Some(part) if deletes => {
            return Err(part.wrong("a delete takes no actions", "leave out actions=.."));
        }
        Some(part) => m.instructions = actions::instructions(part, &m.matching)?,
        None if deletes => {}
        None => {
            let end = whole.skip(text.len());
            return Err(end.wrong("no actions", "add actions=.., such as actions=output:2"));
        }
    }
    Ok(m)
}

/// Parses the filter of a dump.
///
/// # Errors
/// As [`flow`].
pub fn filter(text: &str) -> Result<FlowFilter, TextError> {
    let FlowMod { table, out_port, out_group, cookie, cookie_mask, matching, .. } =
        flow(text, FlowCommand::Delete)?;
    Ok(FlowFilter { table, out_port, out_group, cookie, cookie_mask, matching })
}

/// The parts before and after `actions=`.
fn cut(whole: Part<'_>) -> (Part<'_>, Option<Part<'_>>) {
    for word in ["actions=", "action="] {
        let mut from = 0;
        while let Some(at) = whole.text.get(from..).and_then(|rest| rest.find(word)) {
            let at = from + at;
            let before = whole.text[..at].chars().next_back();
            if before.is_none_or(|c| c == ',' || c.is_whitespace()) {
                return (whole.take(at), Some(whole.skip(at + word.len())));
            }
            from = at + word.len();
        }
    }
    (whole, None)
}

/// Parses a part before the actions: a setting of the flow entry, or a field of the match.
fn attribute<'a>(
    part: Part<'a>,
    command: FlowCommand,
    m: &mut FlowMod,
    found: &mut Vec<(Part<'a>, Part<'a>)>,
) -> Result<(), TextError> {
    let Some((name, value)) = part.split(&['=']) else {
        if let Some((_, flag)) = FLAGS.iter().find(|(name, _)| *name == part.text) {
            m.flags |= flag;
        } else {
            found.push((part, part.skip(part.text.len())));
        }
        return Ok(());
    };
    match name.text {
        "table" if value.text.eq_ignore_ascii_case("all") => m.table = table::ALL,
        "table" => m.table = value.number(8)? as u8,
        "priority" => m.priority = value.number(16)? as u16,
        "idle_timeout" => m.idle_timeout = value.number(16)? as u16,
        "hard_timeout" => m.hard_timeout = value.number(16)? as u16,
        "importance" => m.importance = value.number(16)? as u16,
        "out_port" => m.out_port = fields::port(value)?,
        "out_group" => m.out_group = value.number(32)? as u32,
        "cookie" => {
            let add = command == FlowCommand::Add;
            match value.split(&['/']) {
                Some((_, mask)) if add => {
                    return Err(
                        mask.wrong("the cookie of a new flow has no mask", "leave out the mask")
                    );
                }
                Some((value, mask)) => {
                    (m.cookie, m.cookie_mask) = (value.number(64)? as u64, cookie_mask(mask)?);
                }
                None => {
                    m.cookie = value.number(64)? as u64;
                    m.cookie_mask = if add { 0 } else { u64::MAX };
                }
            }
        }
        told if TOLD.contains(&told) => {}
        _ => found.push((name, value)),
    }
    Ok(())
}

/// Parses a number; `-1` is all ones.
fn cookie_mask(part: Part<'_>) -> Result<u64, TextError> {
    if part.text == "-1" { Ok(u64::MAX) } else { part.number(64).map(|mask| mask as u64) }
}

/// Makes a match of names and values.
fn matching(found: &[(Part<'_>, Part<'_>)]) -> Result<Match, TextError> {
    let (mut eth, mut proto) = (None, None);
    let mut fields: Vec<Oxm> = Vec::new();
    let mut put = |part: Part<'_>, oxm: Oxm| {
        if let Some(old) = fields.iter().find(|old| old.field == oxm.field) {
            let same = *old == oxm;
            return if same {
                Ok(())
            } else {
                Err(part.wrong("the field has two different values", "write it once"))
            };
        }
        fields.push(oxm);
        Ok(())
    };
    // The fields on which others depend come first.
    for (name, value) in found {
        if let Some((_, e, p)) =
            KINDS.iter().find(|(word, ..)| *word == name.text && value.text.is_empty())
        {
            eth = Some(*e);
            put(*name, Oxm::exact(Field::EthType, (*e).into()))?;
            if let Some(p) = p {
                proto = Some(*p);
                put(*name, Oxm::exact(Field::IpProto, (*p).into()))?;
            }
        } else if fields::named(name.text) == Some(Field::EthType) {
            eth = Some(value.number(16)? as u16);
        }
    }
    for (name, value) in found {
        if fields::named(name.text) == Some(Field::IpProto) && eth != Some(0x0806) {
            proto = Some(value.number(8)? as u8);
        }
    }
    for (name, value) in found {
        if value.text.is_empty() && KINDS.iter().any(|(word, ..)| *word == name.text) {
            continue;
        }
        let oxm = match (name.text, fields::dependent(name.text, eth, proto)) {
            (_, Some(Err(fix))) => {
                return Err(name.wrong("the match does not name a protocol with ports", fix));
            }
            (_, Some(Ok(field))) => fields::oxm(field, *value)?,
            ("dl_vlan", _) => match value.number(16)? {
                0xffff => Oxm::exact(Field::VlanVid, 0),
                vid if vid <= 0xfff => Oxm::exact(Field::VlanVid, VID_PRESENT | vid),
                _ => return Err(value.wrong("too large", "write 0 to 4095, or 0xffff for no tag")),
            },
            ("nw_tos", _) => Oxm::exact(Field::IpDscp, value.number(8)? >> 2),
            (text, _) => match fields::named(text) {
                Some(field) => fields::oxm(field, *value)?,
                None => {
                    let fix = "write a field such as in_port, dl_dst, ip, nw_dst, tcp_dst";
                    return Err(name.wrong("no such field or setting", fix));
                }
            },
        };
        put(*name, oxm)?;
    }
    let matching = Match(fields);
    // The prerequisites of fields are checked here, because the position of each field is known.
    let lacks = matching.0.iter().find(|oxm| !matching.allows(oxm.field));
    if let Some(oxm) = lacks {
        let of = |(name, value): &&(Part<'_>, Part<'_>)| {
            let named = fields::dependent(name.text, eth, proto).and_then(Result::ok);
            named.or_else(|| fields::named(name.text)) == Some(oxm.field) && !value.text.is_empty()
        };
        let part = found.iter().find(of).map_or(Part::new("", &[]), |(name, _)| *name);
        let fix = "add the header it belongs to: ip, ipv6, tcp, udp, arp, icmp6 or mpls";
        return Err(part.wrong("not every frame has this field", fix));
    }
    Ok(matching)
}

/// A flow entry in one line, as a dump prints it.
#[must_use]
pub fn flow_text(flow: &FlowStats) -> String {
    let mut text = format!(
        " cookie={:#x}, duration={}.{:03}s, table={}, n_packets={}, n_bytes={}, ",
        flow.cookie,
        flow.duration_sec,
        flow.duration_nsec / 1_000_000,
        flow.table,
        flow.packets,
        flow.bytes,
    );
    text += &settings(flow.idle_timeout, flow.hard_timeout, flow.importance, flow.flags, ", ");
    text += &rule(flow.priority, &flow.matching, &flow.instructions);
    text
}

/// A flow-mod as text that [`flow`] parses to the same value, except for its command and buffer.
#[must_use]
pub fn flow_mod_text(m: &FlowMod) -> String {
    let table = if m.table == table::ALL { "all".into() } else { m.table.to_string() };
    let mut text = format!("table={table},cookie={:#x}", m.cookie);
    if m.command != FlowCommand::Add {
        let _ = write!(text, "/{:#x}", m.cookie_mask);
    }
    text.push(',');
    if m.out_port != reserved::ANY {
        let _ = write!(text, "out_port={},", m.out_port);
    }
    if m.out_group != group::ANY {
        let _ = write!(text, "out_group={},", m.out_group);
    }
    text += &settings(m.idle_timeout, m.hard_timeout, m.importance, m.flags, ",");
    let deletes = matches!(m.command, FlowCommand::Delete | FlowCommand::DeleteStrict);
    let rule = rule(m.priority, &m.matching, &m.instructions);
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

fn rule(priority: u16, matching: &Match, instructions: &[Instruction]) -> String {
    let fields = fields::match_text(matching);
    let comma = if fields.is_empty() { "" } else { "," };
    let actions = actions::instructions_text(instructions);
    format!("priority={priority}{comma}{fields} actions={actions}")
}

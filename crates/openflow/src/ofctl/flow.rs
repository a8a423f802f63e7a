//! Flow entries as text.

use super::fields::{self, KINDS};
use super::{Part, Ports, TextError, actions, foreign};
use crate::flow::{FlowCommand, FlowMod, PacketOut, flags};
use crate::multipart::FlowFilter;
use crate::oxm::{Field, Oxm, VID_PRESENT};
use crate::port::reserved;
use crate::{Match, group, table};

pub(super) const FLAGS: &[(&str, u16)] = &[
    ("send_flow_rem", flags::SEND_FLOW_REM),
    ("check_overlap", flags::CHECK_OVERLAP),
    ("reset_counts", flags::RESET_COUNTS),
    ("no_packet_counts", flags::NO_PKT_COUNTS),
    ("no_byte_counts", flags::NO_BYT_COUNTS),
];

/// Settings of a flow entry, which have a value.
const SETTINGS: &[&str] = &[
    "table",
    "priority",
    "idle_timeout",
    "hard_timeout",
    "importance",
    "out_port",
    "out_group",
    "cookie",
    "actions",
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
    filter_with(text, &[])
}

/// As [`filter`], with names of ports.
///
/// # Errors
/// As [`flow`].
pub fn filter_with(text: &str, ports: Ports<'_>) -> Result<FlowFilter, TextError> {
    let FlowMod { table, out_port, out_group, cookie, cookie_mask, matching, .. } =
        flow_with(text, FlowCommand::Delete, ports)?;
    Ok(FlowFilter { table, out_port, out_group, cookie, cookie_mask, matching })
}

/// Parses the number or the name of a port.
///
/// # Errors
/// As [`flow`].
pub fn port_with(text: &str, ports: Ports<'_>) -> Result<u32, TextError> {
    fields::port(Part::new(text, ports).trim())
}

/// Parses a packet-out: `in_port=1,packet=HEX,actions=output:2`. Without `in_port` the frame comes from
/// a controller.
///
/// # Errors
/// As [`flow`].
pub fn packet_out(text: &str, ports: Ports<'_>) -> Result<PacketOut, TextError> {
    const FIX: &str = "write in_port=PORT, packet=HEX and actions=..";
    let whole = Part::new(text, ports);
    let (front, behind) = cut(whole);
    let (mut in_port, mut data) = (reserved::CONTROLLER, None);
    for part in front.list()? {
        let (name, value) = part.split(&['=']).ok_or_else(|| part.wrong("no setting", FIX))?;
        match name.trim().text {
            "in_port" => in_port = fields::port(value.trim())?,
            "packet" => data = Some(bytes(value.trim())?),
            _ => return Err(name.wrong("no such setting", FIX)),
        }
    }
    let end = whole.skip(text.len());
    let data = data.ok_or_else(|| end.wrong("no frame", "add packet= and the bytes in hex"))?;
    let actions = behind.ok_or_else(|| end.wrong("no actions", "add actions=output:PORT"))?;
    let actions = actions::actions(actions, &Match::default())?;
    Ok(PacketOut { buffer: u32::MAX, in_port, actions, data })
}

/// Parses bytes in hex digits.
fn bytes(part: Part<'_>) -> Result<Vec<u8>, TextError> {
    let digits: Option<Vec<u8>> =
        part.text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    let pairs = digits.filter(|digits| digits.len() % 2 == 0 && !digits.is_empty());
    let wrong = || part.wrong("no bytes in hex", "write two hex digits for each byte");
    Ok(pairs.ok_or_else(wrong)?.chunks(2).map(|two| two[0] << 4 | two[1]).collect())
}

/// The parts before and after `actions=`.
fn cut(whole: Part<'_>) -> (Part<'_>, Option<Part<'_>>) {
    for (at, _) in whole.text.match_indices("action") {
        let before = whole.text[..at].chars().next_back();
        if before.is_some_and(|c| c != ',' && !c.is_whitespace()) {
            continue;
        }
        let rest = &whole.text[at + "action".len()..];
        let rest = rest.strip_prefix('s').unwrap_or(rest);
        if let Some(behind) = rest.trim_start().strip_prefix('=') {
            return (whole.take(at), Some(whole.skip(whole.text.len() - behind.len())));
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
    let both = part.split(&['=']).map(|(name, value)| (name.trim(), value.trim()));
    let Some((name, value)) = both else {
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
        put(*name, field(*name, *value, eth, proto)?)?;
    }
    let matching = Match(fields);
    // The prerequisites of fields are checked here, because the position of each field is known.
    let lacks = matching.0.iter().find(|oxm| !matching.allows(oxm.field));
    match lacks {
        None => Ok(matching),
        Some(oxm) => Err(lacking(oxm.field, found, eth, proto)),
    }
}

/// Parses a field of a match whose other fields name this EtherType and IP protocol.
fn field(
    name: Part<'_>,
    value: Part<'_>,
    eth: Option<u16>,
    proto: Option<u8>,
) -> Result<Oxm, TextError> {
    match (name.text, fields::dependent(name.text, eth, proto)) {
        (_, Some(Err(fix))) => {
            Err(name.wrong("the match does not name a protocol with ports", fix))
        }
        (_, Some(Ok(field))) => fields::oxm(field, value),
        ("dl_vlan", _) => match value.number(16)? {
            0xffff => Ok(Oxm::exact(Field::VlanVid, 0)),
            vid if vid <= 0xfff => Ok(Oxm::exact(Field::VlanVid, VID_PRESENT | vid)),
            _ => Err(value.wrong("too large", "write 0 to 4095, or 0xffff for no tag")),
        },
        ("nw_tos", _) => Ok(Oxm::exact(Field::IpDscp, value.number(8)? >> 2)),
        (word, _) if KINDS.iter().any(|(kind, ..)| *kind == word) => {
            Err(value.wrong(format!("{word} takes no value"), format!("write {word} alone")))
        }
        (text, _) => match fields::named(text) {
            Some(field) => fields::oxm(field, value),
            None => {
                let flags = FLAGS.iter().map(|(name, _)| *name);
                let known = fields::words().chain(SETTINGS.iter().copied()).chain(flags);
                let fix = "write a field such as in_port, dl_dst, ip, nw_dst, tcp_dst";
                Err(foreign::no_field(name, known, fix))
            }
        },
    }
}

/// The error for a field that not every matching frame has.
fn lacking(
    field: Field,
    found: &[(Part<'_>, Part<'_>)],
    eth: Option<u16>,
    proto: Option<u8>,
) -> TextError {
    let of = |(name, value): &&(Part<'_>, Part<'_>)| {
        let named = fields::dependent(name.text, eth, proto).and_then(Result::ok);
        let named = named.or_else(|| fields::named(name.text));
        let other = match name.text {
            "nw_tos" => Some(Field::IpDscp),
            _ => None,
        };
        named.or(other) == Some(field) && !value.text.is_empty()
    };
    let part = found.iter().find(of).map_or(Part::new("", &[]), |(name, _)| *name);
    let needs = fields::needs(field);
    // A tag and a port go with every kind of frame.
    let alone = matches!(field, Field::VlanPcp | Field::InPhyPort);
    match fields::kind(eth, proto).filter(|_| !alone) {
        Some(kind) => part.wrong(
            format!("it needs {needs}, but the match says {kind}"),
            format!("write {needs} in place of {kind}, or leave the field out"),
        ),
        None => part.wrong("not every frame has this field", format!("add {needs}")),
    }
}

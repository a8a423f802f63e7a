//! Groups and meters as text.

use std::fmt::Write;

use super::fields::{port, port_text};
use super::{Part, Ports, TextError, actions, bucket};
use crate::group::{
    Band, Bucket, GroupCommand, GroupMod, GroupType, METER_ALL, MeterCommand, MeterMod, meter_flags,
};
use crate::multipart::{GroupDesc, MeterConfig};
use crate::port::reserved;
use crate::{Match, group as groups};

const TYPES: &[(&str, GroupType)] = &[
    ("all", GroupType::All),
    ("select", GroupType::Select),
    ("indirect", GroupType::Indirect),
    ("fast_failover", GroupType::FastFailover),
    ("ff", GroupType::FastFailover),
];

/// The positions of `word` in the text at which a part begins.
fn starts(text: &str, word: &str) -> Vec<usize> {
    let at = text.match_indices(word).map(|(at, _)| at);
    let front = |at: &usize| {
        let before = text[..*at].chars().next_back();
        before.is_none_or(|c| c == ',' || c.is_whitespace())
    };
    at.filter(front).collect()
}

/// The part before the first `word`, and the part after each.
fn behind<'a>(whole: Part<'a>, word: &str) -> (Part<'a>, Vec<Part<'a>>) {
    let at = starts(whole.text, word);
    let ends = at.iter().skip(1).copied().chain([whole.text.len()]);
    let parts = at
        .iter()
        .zip(ends)
        .map(|(from, to)| whole.skip(from + word.len()).take(to - from - word.len()));
    (whole.take(at.first().copied().unwrap_or(whole.text.len())), parts.collect())
}

/// Parses a group-mod.
///
/// # Errors
/// When the text cannot be parsed, with the position and the fix.
pub fn group(text: &str, command: GroupCommand) -> Result<GroupMod, TextError> {
    group_with(text, command, &[])
}

/// As [`group`], with names of ports.
///
/// # Errors
/// As [`group`].
pub fn group_with(
    text: &str,
    command: GroupCommand,
    ports: Ports<'_>,
) -> Result<GroupMod, TextError> {
    let whole = Part::new(text, ports);
    let (front, buckets) = behind(whole, "bucket=");
    let (mut number, mut kind) = (None, None);
    for part in front.list()? {
        let fix = "write group_id=NUMBER, type=TYPE, bucket=ACTIONS";
        let (name, value) = part.split(&['=']).ok_or_else(|| part.wrong("no setting", fix))?;
        match name.text {
            "group_id" if value.text.eq_ignore_ascii_case("all") => number = Some(groups::ALL),
            "group_id" => number = Some(value.number(32)? as u32),
            "type" => {
                let found = TYPES.iter().find(|(name, _)| *name == value.text);
                let fix = "write all, select, indirect or fast_failover";
                kind = Some(found.ok_or_else(|| value.wrong("no such type", fix))?.1);
            }
            _ => return Err(name.wrong("no such setting", fix)),
        }
    }
    let deletes = command == GroupCommand::Delete;
    let end = whole.skip(text.len());
    let number = match number {
        Some(number) => number,
        None if deletes => groups::ALL,
        None => return Err(end.wrong("no group", "add group_id=NUMBER")),
    };
    let kind = match kind {
        Some(kind) => kind,
        None if deletes => GroupType::All,
        None => return Err(end.wrong("no type", "add type=all, select, indirect or fast_failover")),
    };
    let buckets: Result<Vec<Bucket>, _> =
        buckets.into_iter().map(|part| one_bucket(part, kind)).collect();
    Ok(GroupMod { command, kind, group: number, buckets: buckets? })
}

fn one_bucket(part: Part<'_>, kind: GroupType) -> Result<Bucket, TextError> {
    let mut found = bucket();
    if kind == GroupType::Select {
        found.weight = 1;
    }
    let mut rest = part;
    loop {
        rest = rest.trim();
        let skipped = rest.text.trim_start_matches([',', ' ']);
        rest = rest.skip(rest.text.len() - skipped.len());
        let (first, behind) = rest.split(&[',', ' ']).unwrap_or((rest, rest.skip(rest.text.len())));
        let setting = first.split(&[':', '=']);
        match setting {
            Some((name, value)) => match name.text {
                "weight" => found.weight = value.number(16)? as u16,
                "watch_port" => found.watch_port = port(value)?,
                "watch_group" => found.watch_group = value.number(32)? as u32,
                "bucket_id" => {}
                "actions" | "action" => {
                    rest = rest.skip(name.text.len() + 1);
                    break;
                }
                _ => break,
            },
            None => break,
        }
        rest = behind;
    }
    let text = rest.text.trim_end_matches([',', ' ']);
    found.actions = actions::actions(Part { text, ..rest }, &Match::default())?;
    Ok(found)
}

/// A group as text that [`group`] parses.
#[must_use]
pub fn group_text(desc: &GroupDesc) -> String {
    let kind = TYPES.iter().find(|(_, kind)| *kind == desc.kind).map_or("", |(name, _)| name);
    let mut text = format!("group_id={},type={kind}", desc.group);
    for bucket in &desc.buckets {
        text += ",bucket=";
        if bucket.weight != 0 || desc.kind == GroupType::Select {
            let _ = write!(text, "weight:{},", bucket.weight);
        }
        if bucket.watch_port != reserved::ANY {
            let _ = write!(text, "watch_port:{},", port_text(bucket.watch_port));
        }
        if bucket.watch_group != groups::ANY {
            let _ = write!(text, "watch_group:{},", bucket.watch_group);
        }
        let _ = write!(text, "actions={}", actions::actions_text(&bucket.actions));
    }
    text
}

/// Parses a meter-mod.
///
/// # Errors
/// When the text cannot be parsed, with the position and the fix.
pub fn meter(text: &str, command: MeterCommand) -> Result<MeterMod, TextError> {
    let whole = Part::new(text, &[]);
    let word = if starts(text, "bands=").is_empty() { "band=" } else { "bands=" };
    let (front, parts) = behind(whole, word);
    let mut m = MeterMod { command, ..MeterMod::default() };
    let mut number = None;
    for part in front.list()? {
        match part.text {
            "kbps" => m.flags |= meter_flags::KBPS,
            "pktps" => m.flags |= meter_flags::PKTPS,
            "burst" => m.flags |= meter_flags::BURST,
            "stats" => m.flags |= meter_flags::STATS,
            _ => {
                let fix = "write meter=NUMBER, kbps or pktps, burst, stats, band=type=drop,rate=..";
                let setting = part
                    .split(&['='])
                    .filter(|(name, _)| matches!(name.text, "meter" | "meter_id"));
                let (_, value) = setting.ok_or_else(|| part.wrong("no such setting", fix))?;
                number = Some(match value.text {
                    "all" => METER_ALL,
                    "controller" => groups::METER_CONTROLLER,
                    _ => value.number(32)? as u32,
                });
            }
        }
    }
    let deletes = command == MeterCommand::Delete;
    let none = || whole.skip(text.len()).wrong("no meter", "add meter=NUMBER");
    m.meter = number.or(deletes.then_some(METER_ALL)).ok_or_else(none)?;
    for part in parts {
        // `bands=type=..,rate=..,type=..`: each `type` begins another band.
        let at = starts(part.text, "type=");
        let none = || part.wrong("no band", "write type=drop,rate=NUMBER");
        let first = at.first().ok_or_else(none)?;
        if !part.text[..*first].trim_matches([',', ' ']).is_empty() {
            return Err(none());
        }
        for (index, from) in at.iter().enumerate() {
            let to = at.get(index + 1).copied().unwrap_or(part.text.len());
            m.bands.push(band(part.skip(*from).take(to - from))?);
        }
    }
    Ok(m)
}

fn band(part: Part<'_>) -> Result<Band, TextError> {
    let (mut remark, mut rate, mut burst, mut levels) = (false, None, 0, 0);
    for one in part.list()? {
        let fix =
            "write type=drop or dscp_remark, rate=NUMBER, burst_size=NUMBER, prec_level=NUMBER";
        let wrong = || one.wrong("no such setting", fix);
        let (name, value) = one.split(&['=']).ok_or_else(wrong)?;
        match (name.text, value.text) {
            ("type", "drop") => remark = false,
            ("type", "dscp_remark") => remark = true,
            ("type", _) => return Err(value.wrong("no such band", "write drop or dscp_remark")),
            ("rate", _) => rate = Some(value.number(32)? as u32),
            ("burst_size", _) => burst = value.number(32)? as u32,
            ("prec_level", _) => levels = value.number(8)? as u8,
            _ => return Err(wrong()),
        }
    }
    let rate = rate.ok_or_else(|| part.wrong("a band without rate", "add rate=NUMBER"))?;
    Ok(if remark { Band::DscpRemark { rate, burst, levels } } else { Band::Drop { rate, burst } })
}

/// A meter as text that [`meter`] parses.
#[must_use]
pub fn meter_text(config: &MeterConfig) -> String {
    let mut text = match config.meter {
        METER_ALL => "meter=all".into(),
        groups::METER_CONTROLLER => "meter=controller".into(),
        number => format!("meter={number}"),
    };
    for (name, flag) in [
        ("kbps", meter_flags::KBPS),
        ("pktps", meter_flags::PKTPS),
        ("burst", meter_flags::BURST),
        ("stats", meter_flags::STATS),
    ] {
        if config.flags & flag != 0 {
            let _ = write!(text, ",{name}");
        }
    }
    for band in &config.bands {
        let kind = match band {
            Band::DscpRemark { .. } => "dscp_remark",
            Band::Drop { .. } => "drop",
            Band::Experimenter { .. } => "experimenter",
        };
        let _ = write!(text, ",band=type={kind},rate={}", band.rate());
        if band.burst() > 0 {
            let _ = write!(text, ",burst_size={}", band.burst());
        }
        if let Band::DscpRemark { levels, .. } = band {
            let _ = write!(text, ",prec_level={levels}");
        }
    }
    text
}

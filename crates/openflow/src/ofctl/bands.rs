//! Meters as text.

use std::fmt::Write;

use super::groups::{behind, starts};
use super::{Part, TextError};
use crate::group::{self as groups, Band, METER_ALL, MeterCommand, MeterMod, meter_flags};
use crate::multipart::MeterConfig;

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
    let deletes = command == MeterCommand::Delete;
    for part in front.list()? {
        match part.text {
            // To delete a meter, its number is enough.
            text if deletes && text.starts_with(|c: char| c.is_ascii_digit()) => {
                number = Some(part.number(32)? as u32);
            }
            "kbps" => m.flags |= meter_flags::KBPS,
            "pktps" => m.flags |= meter_flags::PKTPS,
            "burst" => m.flags |= meter_flags::BURST,
            "stats" => m.flags |= meter_flags::STATS,
            _ => {
                let fix = match deletes {
                    true => "write meter=NUMBER",
                    false => {
                        "write meter=NUMBER, kbps or pktps, burst, stats, band=type=drop,rate=.."
                    }
                };
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

//! Groups as text.

use super::fields::port;
use super::{Part, Ports, TextError, actions, bucket, foreign};
use crate::group::{Bucket, GroupCommand, GroupMod, GroupType};
use crate::{Match, group as groups};

pub(super) const TYPES: &[(&str, GroupType)] = &[
    ("all", GroupType::All),
    ("select", GroupType::Select),
    ("indirect", GroupType::Indirect),
    ("fast_failover", GroupType::FastFailover),
    ("ff", GroupType::FastFailover),
];

/// The positions of `word` in the text at which a part begins.
pub(super) fn starts(text: &str, word: &str) -> Vec<usize> {
    let at = text.match_indices(word).map(|(at, _)| at);
    let front = |at: &usize| {
        let before = text[..*at].chars().next_back();
        before.is_none_or(|c| c == ',' || c.is_whitespace())
    };
    at.filter(front).collect()
}

/// The part before the first `word`, and the part after each.
pub(super) fn behind<'a>(whole: Part<'a>, word: &str) -> (Part<'a>, Vec<Part<'a>>) {
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
    let deletes = command == GroupCommand::Delete;
    for part in front.list()? {
        let fix = match deletes {
            true => "write group_id=NUMBER",
            false => "write group_id=NUMBER, type=TYPE, bucket=ACTIONS",
        };
        // To delete a group, its number is enough.
        if deletes && part.text.starts_with(|c: char| c.is_ascii_digit()) {
            number = Some(part.number(32)? as u32);
            continue;
        }
        let (name, value) = part.split(&['=']).ok_or_else(|| part.wrong("no setting", fix))?;
        let (name, value) = (name.trim(), value.trim());
        match name.text {
            "group_id" if value.text.eq_ignore_ascii_case("all") => number = Some(groups::ALL),
            "group_id" => number = Some(value.number(32)? as u32),
            "type" => {
                let found = TYPES.iter().find(|(name, _)| *name == value.text);
                let fix = "write all, select, indirect or fast_failover";
                let types = TYPES.iter().map(|(name, _)| *name);
                let wrong = || value.wrong("no such type", foreign::near(value.text, types, fix));
                kind = Some(found.ok_or_else(wrong)?.1);
            }
            _ => return Err(name.wrong("no such setting", fix)),
        }
    }
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

/// Where buckets are inserted, or which are removed. Buckets have positions, from 0, because versions
/// before 1.5 have no numbers of buckets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BucketPlace {
    /// In front of the first, or the first.
    First,
    /// Behind the last, or the last.
    Last,
    /// Behind the bucket at this position, or that bucket.
    At(usize),
    /// All buckets; only to remove them.
    All,
}

/// Buckets to insert into a group, or to remove from it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BucketEdit {
    /// The group.
    pub group: u32,
    /// The place.
    pub place: BucketPlace,
    /// The buckets to insert.
    pub buckets: Vec<Bucket>,
}

/// Parses `group_id=1,command_bucket_id=last,bucket=..`: the buckets to insert into a group of type
/// `kind`, or which to remove if there are none in the text.
///
/// # Errors
/// When the text cannot be parsed, with the position and the fix.
pub fn bucket_edit(text: &str, kind: GroupType, ports: Ports<'_>) -> Result<BucketEdit, TextError> {
    let whole = Part::new(text, ports);
    let (front, buckets) = behind(whole, "bucket=");
    let (mut number, mut place) = (None, BucketPlace::Last);
    for part in front.list()? {
        let fix = "write group_id=NUMBER, command_bucket_id=first, last or a position from 0, bucket=ACTIONS";
        let (name, value) = part.split(&['=']).ok_or_else(|| part.wrong("no setting", fix))?;
        let value = value.trim();
        match (name.trim().text, value.text) {
            ("group_id", _) => number = Some(value.number(32)? as u32),
            ("command_bucket_id", "first") => place = BucketPlace::First,
            ("command_bucket_id", "last") => place = BucketPlace::Last,
            ("command_bucket_id", "all") if buckets.is_empty() => place = BucketPlace::All,
            ("command_bucket_id", _) => place = BucketPlace::At(value.number(16)? as usize),
            _ => return Err(name.wrong("no such setting", fix)),
        }
    }
    let none = || whole.skip(text.len()).wrong("no group", "add group_id=NUMBER");
    let group = number.ok_or_else(none)?;
    let buckets: Result<_, _> = buckets.into_iter().map(|part| one_bucket(part, kind)).collect();
    Ok(BucketEdit { group, place, buckets: buckets? })
}

//! Changes of a group or a table that need what the switch has now: it is read, changed and written back.

use anyhow::anyhow;
use flowyard_openflow::group::{GroupCommand, GroupMod, GroupType};
use flowyard_openflow::multipart::{GroupDesc, Reply, Request};
use flowyard_openflow::ofctl::{self, BucketEdit, BucketPlace};
use flowyard_openflow::port::Property;
use flowyard_openflow::table::{self, TableMod};
use flowyard_openflow::{Message, Version};

use super::connect::{At, Options};
use super::document::{TableSetting, Vacancy};
use super::session::{Session, all};
use crate::stop::{Stop, bad_input};

/// Makes those changes of groups that do not exist add them.
pub(super) fn create(session: &mut Session<'_>, changes: &mut [Message]) -> Result<(), Stop> {
    let mut there: Vec<u32> = all!(session.client()?, Request::GroupDesc, Reply::GroupDesc)
        .iter()
        .map(|desc: &GroupDesc| desc.group)
        .collect();
    for change in changes {
        let Message::GroupMod(m) = change else { continue };
        if !there.contains(&m.group) {
            m.command = GroupCommand::Add;
            there.push(m.group);
        }
    }
    Ok(())
}

/// Inserts buckets into a group, or removes them.
pub(super) fn buckets(options: &Options, at: &At, text: &str, inserts: bool) -> Result<(), Stop> {
    let mut session = Session::new(options, at);
    let parsed = session.parse(|ports| ofctl::bucket_edit(text, GroupType::Select, ports))?;
    match (inserts, parsed.buckets.is_empty(), parsed.place) {
        (true, true, _) => return Err(bad_input("no buckets; add bucket=actions=..")),
        (true, _, BucketPlace::All) => {
            return Err(bad_input("command_bucket_id=all; write first, last or a position"));
        }
        (false, false, _) => {
            return Err(bad_input(
                "buckets to remove have no actions; write command_bucket_id=first, last, all or a position",
            ));
        }
        _ => {}
    }
    let groups = all!(session.client()?, Request::GroupDesc, Reply::GroupDesc);
    let group = groups.into_iter().find(|desc: &GroupDesc| desc.group == parsed.group);
    let GroupDesc { kind, group, mut buckets } = group.ok_or_else(|| {
        Stop::Failed(anyhow!(
            "the switch has no group {}; 'flowyard switch dump-groups {}' lists its groups",
            parsed.group,
            at.switch
        ))
    })?;
    // The default weight of a bucket depends on the type.
    let BucketEdit { place, buckets: new, .. } =
        session.parse(|ports| ofctl::bucket_edit(text, kind, ports))?;
    let count = buckets.len();
    let out = |position: usize| {
        Stop::Failed(anyhow!(
            "group {group} has {count} buckets, and none at position {position}; write 0 to {}",
            count.saturating_sub(1)
        ))
    };
    let from = match place {
        BucketPlace::First | BucketPlace::All => 0,
        BucketPlace::Last if inserts => count,
        BucketPlace::Last => count.checked_sub(1).ok_or_else(|| out(0))?,
        BucketPlace::At(position) if position < count => position + usize::from(inserts),
        BucketPlace::At(position) => return Err(out(position)),
    };
    let to = match place {
        _ if inserts => from,
        BucketPlace::All => count,
        _ if from < count => from + 1,
        _ => return Err(out(from)),
    };
    buckets.splice(from..to, new);
    session.only(Message::GroupMod(GroupMod {
        command: GroupCommand::Modify,
        kind,
        group,
        buckets,
    }))
}

/// Sets eviction or vacancy events of a table. What is not named stays as it is.
pub(super) fn table(options: &Options, at: &At, table: &str, setting: &str) -> Result<(), Stop> {
    let number = match table {
        "all" => table::ALL,
        text => text.parse().map_err(|_| {
            bad_input(format!("'{text}' is not a table; write a number from 0 to 254, or all"))
        })?,
    };
    let wanted = wanted(setting)?;
    let mut session = Session::new(options, at);
    let client = session.client()?;
    if client.version() != Version::V14 {
        return Err(bad_input("tables have settings only in OpenFlow 1.4; add -O 1.4"));
    }
    let tables = all!(client, Request::TableDesc, Reply::TableDesc);
    let tables: Vec<TableSetting> = tables.iter().map(Into::into).collect();
    let mut chosen =
        tables.into_iter().filter(|one| number == table::ALL || one.table == number).peekable();
    if chosen.peek().is_none() {
        return Err(Stop::Failed(anyhow!("the switch has no table {number}")));
    }
    for mut one in chosen {
        match wanted {
            Wanted::Eviction(on) => one.eviction = on,
            Wanted::Vacancy(limits) => {
                one.vacancy = limits.map(|(down, up)| Vacancy { down, up, free: 0 });
            }
        }
        session.only(Message::TableMod(message(&one)))?;
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Wanted {
    Eviction(bool),
    /// The limits in percent, or none.
    Vacancy(Option<(u8, u8)>),
}

fn wanted(setting: &str) -> Result<Wanted, Stop> {
    let limits = |text: &str| -> Option<(u8, u8)> {
        let (down, up) = text.split_once([',', '-'])?;
        let both: (u8, u8) = (down.trim().parse().ok()?, up.trim().parse().ok()?);
        (both.0 <= both.1 && both.1 <= 100).then_some(both)
    };
    match setting {
        "evict" => Ok(Wanted::Eviction(true)),
        "noevict" => Ok(Wanted::Eviction(false)),
        "novacancy" => Ok(Wanted::Vacancy(None)),
        "controller" | "continue" | "drop" => Err(bad_input(format!(
            "{setting}: since OpenFlow 1.3, a flow decides what happens to a frame that no other flow matches; \
             write add-flow 'table=NUMBER,priority=0,actions={}'",
            if setting == "continue" { "goto_table:NUMBER" } else { setting }
        ))),
        other => {
            let found = other.strip_prefix("vacancy:").and_then(limits);
            found.map(|limits| Wanted::Vacancy(Some(limits))).ok_or_else(|| {
                bad_input(format!(
                    "'{other}' is not a setting of a table; write evict, noevict, novacancy, or \
                     vacancy:LOW,HIGH with percentages such as vacancy:20,80"
                ))
            })
        }
    }
}

/// The message that gives a table these settings.
fn message(setting: &TableSetting) -> TableMod {
    let (mut config, mut properties) = (0, Vec::new());
    if setting.eviction {
        config |= 4;
        // Eviction by importance.
        properties.push(Property { kind: 2, data: 2_u32.to_be_bytes().to_vec() });
    }
    if let Some(Vacancy { down, up, .. }) = setting.vacancy {
        config |= 8;
        properties.push(Property { kind: 3, data: vec![down, up, 0, 0] });
    }
    TableMod { table: setting.table, config, properties }
}

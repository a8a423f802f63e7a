//! Commands that change a switch: flows, groups, meters, ports, tables; and frames that it is to send.

use anyhow::anyhow;
use clap::{Subcommand, ValueEnum};
use flowyard_openflow::flow::FlowCommand;
use flowyard_openflow::group::{GroupCommand, MeterCommand};
use flowyard_openflow::ofctl::{self, Ports, TextError};
use flowyard_openflow::port::PortMod;
use flowyard_openflow::{Message, Version};
use flowyard_operate::openflow::client::{Bundled, Refused};

use super::connect::{At, Options, failed};
use super::session::{Session, Wrong};
use super::{compare, edit};
use crate::stop::{Stop, bad_input};

#[derive(clap::Args)]
pub(super) struct Texts {
    #[command(flatten)]
    at: At,

    /// The flow, group or meter, in the syntax of ovs-ofctl; @FILE reads a file with one in each line, @-
    /// reads standard input
    text: String,

    #[command(flatten)]
    how: How,
}

/// How the lines of a file are sent.
#[derive(clap::Args)]
pub(super) struct How {
    /// Send the lines of a file one by one, not as a bundle (a group of changes of which the switch makes
    /// all or none); if some are refused, the others stay in force
    #[arg(long)]
    one_by_one: bool,
}

#[derive(clap::Args)]
pub(super) struct InFile {
    #[command(flatten)]
    at: At,

    /// File with one entry (flow or group, as the command says) in each line; - reads standard input
    file: String,

    #[command(flatten)]
    how: How,
}

#[derive(clap::Args)]
pub(super) struct Which {
    #[command(flatten)]
    at: At,

    /// The match of the flows, such as tcp,nw_dst=10.0.0.0/8, in the syntax of ovs-ofctl [default: all]
    #[arg(default_value = "", hide_default_value = true)]
    text: String,
}

#[derive(clap::Args)]
pub(super) struct WhichGroup {
    #[command(flatten)]
    at: At,

    /// The group: its number, or group_id=NUMBER [default: all groups]
    #[arg(value_name = "GROUP", default_value = "", hide_default_value = true)]
    text: String,
}

#[derive(clap::Args)]
pub(super) struct WhichMeter {
    #[command(flatten)]
    at: At,

    /// The meter: its number, or meter=NUMBER [default: all meters]
    #[arg(value_name = "METER", default_value = "", hide_default_value = true)]
    text: String,
}

#[derive(clap::Args)]
pub(super) struct Buckets {
    #[command(flatten)]
    at: At,

    /// The group and the place, as group_id=NUMBER,command_bucket_id=PLACE, and the buckets to insert
    text: String,
}

/// A change of one port.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum PortChange {
    /// Enable the port
    Up,
    /// Disable the port
    Down,
    /// Process the frames that it receives
    Receive,
    /// Drop the frames that it receives
    NoReceive,
    /// Send frames
    Forward,
    /// Drop the frames that it is to send
    NoForward,
    /// Send its frames to controllers
    PacketIn,
    /// Do not send its frames to controllers
    NoPacketIn,
    /// Take part in floods (needs -O 1.0)
    Flood,
    /// Take no part in floods (needs -O 1.0)
    NoFlood,
}

#[derive(Subcommand)]
pub(super) enum Change {
    /// Add flows
    #[command(
        after_help = "Examples:\n  flowyard switch add-flow tcp:127.0.0.1 'priority=7,tcp,tp_dst=80,actions=output:1'\n  flowyard switch add-flow tcp:127.0.0.1 @saved\n\nThe lines of a file are one bundle: if one is refused, none is in force. A line may begin\nwith add, modify, modify_strict, delete or delete_strict."
    )]
    AddFlow(Texts),
    /// Add the flows in a file, all of them or none
    #[command(after_help = "Example:\n  flowyard switch add-flows tcp:127.0.0.1 saved.txt")]
    AddFlows(InFile),
    /// Change the actions of flows
    #[command(
        after_help = "Example:\n  flowyard switch mod-flows tcp:127.0.0.1 'table=1,tcp,actions=drop'"
    )]
    ModFlows {
        #[command(flatten)]
        texts: Texts,
        /// Only the flow with exactly the match and the priority of TEXT, such as priority=7,tcp
        #[arg(long)]
        strict: bool,
    },
    /// Delete flows: all, or those that a match includes
    #[command(after_help = "Example:\n  flowyard switch del-flows tcp:127.0.0.1 table=1")]
    DelFlows {
        #[command(flatten)]
        which: Which,
        /// Only the flow with exactly the match and the priority of TEXT, such as priority=7,tcp
        #[arg(long)]
        strict: bool,
    },
    /// Add, change and delete flows so that the switch has those of a file, and no others
    #[command(
        after_help = "Example:\n  flowyard switch replace-flows tcp:127.0.0.1 saved.txt\n\nThe changes are one bundle. Flows that are equal keep their counters."
    )]
    ReplaceFlows(InFile),
    /// Add groups
    #[command(
        after_help = "Example:\n  flowyard switch add-group tcp:127.0.0.1 'group_id=1,type=select,bucket=weight:2,actions=output:1'"
    )]
    AddGroup(Texts),
    /// Add the groups in a file, all of them or none
    #[command(after_help = "Example:\n  flowyard switch add-groups tcp:127.0.0.1 groups.txt")]
    AddGroups(InFile),
    /// Change groups
    #[command(
        after_help = "Example:\n  flowyard switch mod-group tcp:127.0.0.1 'group_id=1,type=all,bucket=actions=output:2'"
    )]
    ModGroup {
        #[command(flatten)]
        texts: Texts,
        /// Add the groups that do not exist
        #[arg(long)]
        may_create: bool,
    },
    /// Delete all groups, or one
    #[command(after_help = "Example:\n  flowyard switch del-groups tcp:127.0.0.1 1")]
    DelGroups(WhichGroup),
    /// Insert buckets into a group
    #[command(
        after_help = "Example:\n  flowyard switch insert-buckets tcp:127.0.0.1 'group_id=1,command_bucket_id=last,bucket=actions=output:3'\n\ncommand_bucket_id says where the new buckets go: first (before all others), last (after all others, the default), or a number N: after the bucket at position N, where the first bucket is 0. The group is read, changed and written back."
    )]
    InsertBuckets(Buckets),
    /// Remove buckets from a group
    #[command(
        after_help = "Example:\n  flowyard switch remove-buckets tcp:127.0.0.1 group_id=1,command_bucket_id=0\n\ncommand_bucket_id is first, last (the default), all, or the position of a bucket, from 0."
    )]
    RemoveBuckets(Buckets),
    /// Add meters
    #[command(
        after_help = "Example:\n  flowyard switch add-meter tcp:127.0.0.1 'meter=1,kbps,band=type=drop,rate=1000'"
    )]
    AddMeter(Texts),
    /// Change meters
    #[command(
        after_help = "Example:\n  flowyard switch mod-meter tcp:127.0.0.1 'meter=1,kbps,band=type=drop,rate=2000'"
    )]
    ModMeter(Texts),
    /// Delete all meters, or one
    #[command(after_help = "Example:\n  flowyard switch del-meters tcp:127.0.0.1 1")]
    DelMeters(WhichMeter),
    /// Enable or disable a port, or a part of what it does
    #[command(after_help = "Example:\n  flowyard switch mod-port tcp:127.0.0.1 west down")]
    ModPort {
        #[command(flatten)]
        at: At,
        /// The number or the name of the port
        port: String,
        /// The change
        change: PortChange,
    },
    /// Set eviction or vacancy events of a table (needs -O 1.4)
    #[command(
        after_help = "Example:\n  flowyard switch mod-table -O 1.4 tcp:127.0.0.1 0 vacancy:20,80\n\nSETTING is evict, noevict, vacancy:LOW,HIGH (percent that is free) or novacancy. What happens\nto a frame that matches no flow is decided by a flow of priority 0."
    )]
    ModTable {
        #[command(flatten)]
        at: At,
        /// The number of the table, or all
        table: String,
        /// What to set
        setting: String,
    },
    /// Let the switch process a frame as if a port had received it, with actions of its own
    #[command(
        after_help = "Example:\n  flowyard switch packet-out tcp:127.0.0.1 'in_port=west,packet=ffffffffffff0200000000010806,actions=flood'"
    )]
    PacketOut {
        #[command(flatten)]
        at: At,
        /// in_port=PORT (left out: the controller), packet=HEX and actions=..
        text: String,
    },
}

/// Parses a line with the names of ports.
type Line = fn(&str, Ports<'_>) -> Result<Message, TextError>;

pub(super) fn run(options: &Options, change: &Change) -> Result<(), Stop> {
    match change {
        Change::AddFlow(texts) => send(options, texts, add_flow),
        Change::AddFlows(InFile { at, file, how }) => {
            lines(&mut Session::new(options, at), file, how, add_flow)
        }
        Change::ModFlows { texts, strict: false } => {
            send(options, texts, |text, ports| flow(text, FlowCommand::Modify, ports))
        }
        Change::ModFlows { texts, strict: true } => {
            send(options, texts, |text, ports| flow(text, FlowCommand::ModifyStrict, ports))
        }
        Change::DelFlows { which, strict } => {
            let command = if *strict { FlowCommand::DeleteStrict } else { FlowCommand::Delete };
            one(options, &which.at, |ports| flow(&which.text, command, ports))
        }
        Change::ReplaceFlows(InFile { at, file, how }) => {
            let mut session = Session::new(options, at);
            let changes = compare::replacing(&mut session, file)?;
            let places = vec![format!("{file}: "); changes.len()];
            apply(&mut session, &changes, &places, how)
        }
        Change::AddGroup(texts) => send(options, texts, add_group),
        Change::AddGroups(InFile { at, file, how }) => {
            lines(&mut Session::new(options, at), file, how, add_group)
        }
        Change::ModGroup { texts, may_create } => {
            let mut session = Session::new(options, &texts.at);
            let modify: Line = |text, ports| {
                ofctl::group_with(text, GroupCommand::Modify, ports).map(Message::GroupMod)
            };
            let (mut changes, places) = read(&mut session, &texts.text, modify)?;
            if *may_create {
                edit::create(&mut session, &mut changes)?;
            }
            apply(&mut session, &changes, &places, &texts.how)
        }
        Change::DelGroups(which) => one(options, &which.at, |ports| {
            ofctl::group_with(&which.text, GroupCommand::Delete, ports).map(Message::GroupMod)
        }),
        Change::InsertBuckets(Buckets { at, text }) => edit::buckets(options, at, text, true),
        Change::RemoveBuckets(Buckets { at, text }) => edit::buckets(options, at, text, false),
        Change::AddMeter(texts) => send(options, texts, |text, _| {
            ofctl::meter(text, MeterCommand::Add).map(Message::MeterMod)
        }),
        Change::ModMeter(texts) => send(options, texts, |text, _| {
            ofctl::meter(text, MeterCommand::Modify).map(Message::MeterMod)
        }),
        Change::DelMeters(which) => one(options, &which.at, |_| {
            ofctl::meter(&which.text, MeterCommand::Delete).map(Message::MeterMod)
        }),
        Change::ModPort { at, port, change } => mod_port(options, at, port, *change),
        Change::ModTable { at, table, setting } => edit::table(options, at, table, setting),
        Change::PacketOut { at, text } => {
            let mut session = Session::new(options, at);
            let m = session.parse(|ports| ofctl::packet_out(text, ports))?;
            session.only(Message::PacketOut(m))
        }
    }
}

fn flow(text: &str, command: FlowCommand, ports: Ports<'_>) -> Result<Message, TextError> {
    ofctl::flow_with(text, command, ports).map(Message::FlowMod)
}

/// A flow to add; in a file, a line may begin with another command.
fn add_flow(text: &str, ports: Ports<'_>) -> Result<Message, TextError> {
    let commands = [
        ("add ", FlowCommand::Add),
        ("modify ", FlowCommand::Modify),
        ("modify_strict ", FlowCommand::ModifyStrict),
        ("delete ", FlowCommand::Delete),
        ("delete_strict ", FlowCommand::DeleteStrict),
    ];
    for (word, command) in commands {
        if let Some(rest) = text.trim_start().strip_prefix(word) {
            let front = text.len() - rest.len();
            return flow(rest, command, ports)
                .map_err(|error| TextError { column: error.column + front, ..error });
        }
    }
    flow(text, FlowCommand::Add, ports)
}

fn add_group(text: &str, ports: Ports<'_>) -> Result<Message, TextError> {
    ofctl::group_with(text, GroupCommand::Add, ports).map(Message::GroupMod)
}

/// Sends the change that a text means.
fn one(
    options: &Options,
    at: &At,
    parse: impl Fn(Ports<'_>) -> Result<Message, TextError>,
) -> Result<(), Stop> {
    let mut session = Session::new(options, at);
    let message = session.parse(parse)?;
    session.only(message)
}

/// Sends one change, or those in a file.
fn send(options: &Options, texts: &Texts, line: Line) -> Result<(), Stop> {
    let mut session = Session::new(options, &texts.at);
    let (changes, places) = read(&mut session, &texts.text, line)?;
    apply(&mut session, &changes, &places, &texts.how)
}

/// Sends the changes in a file.
fn lines(session: &mut Session<'_>, file: &str, how: &How, line: Line) -> Result<(), Stop> {
    let (changes, places) = read(session, &format!("@{file}"), line)?;
    apply(session, &changes, &places, how)
}

/// Reads one change, or with @ those in a file, each with the place where it stands. A file is read
/// completely before any change is sent.
fn read(
    session: &mut Session<'_>,
    text: &str,
    line: Line,
) -> Result<(Vec<Message>, Vec<String>), Stop> {
    let Some(path) = text.strip_prefix('@') else {
        let message = session.parse(|ports| line(text, ports))?;
        return Ok((vec![message], vec![String::new()]));
    };
    let lines = compare::file_lines(path)?;
    let messages = session.parse(|ports| {
        let message = |(place, text): &(String, String)| {
            line(text, ports).map_err(|error| Wrong { place: place.clone(), error })
        };
        lines.iter().map(message).collect::<Result<Vec<_>, _>>()
    })?;
    Ok((messages, lines.into_iter().map(|(place, _)| place).collect()))
}

/// Sends changes: one alone, several as a bundle. `places` are the lines of the changes.
fn apply(
    session: &mut Session<'_>,
    changes: &[Message],
    places: &[String],
    how: &How,
) -> Result<(), Stop> {
    let client = session.client()?;
    let place = |refused: &Refused| {
        let place = places.get(refused.index).map_or("", String::as_str);
        format!("{place}the switch refused the change: {}", refused.why)
    };
    if changes.len() > 1 && !how.one_by_one {
        match client.bundle(changes).map_err(failed)? {
            Bundled::Done => return Ok(()),
            Bundled::Refused(refused) => {
                let said = place(&refused);
                return Err(Stop::Failed(anyhow!(
                    "{said}; none of the {} changes is in force (--one-by-one keeps those that are not refused)",
                    changes.len()
                )));
            }
            // Without bundles, the changes can only be made one by one.
            Bundled::Unsupported(_) => {}
        }
    }
    let refused = client.change(changes).map_err(failed)?;
    let Some(first) = refused.first() else { return Ok(()) };
    let said = place(first);
    let kept = changes.len() - refused.len();
    Err(Stop::Failed(match (changes.len(), refused.len()) {
        (1, _) => anyhow!("{said}"),
        (2, 1) => anyhow!("{said}; the other change is in force"),
        (_, 1) => anyhow!("{said}; the other {kept} changes are in force"),
        (_, more) => {
            let others: Vec<String> = refused[1..].iter().take(20).map(place).collect();
            let dots = if more > 21 { "\n.." } else { "" };
            let kept = match kept {
                0 => "none is in force".into(),
                1 => "the other one is in force".into(),
                kept => format!("the other {kept} are in force"),
            };
            anyhow!("{said}\n{}{dots}\n{more} changes were refused; {kept}", others.join("\n"))
        }
    }))
}

fn mod_port(options: &Options, at: &At, text: &str, change: PortChange) -> Result<(), Stop> {
    let (bit, set) = match change {
        PortChange::Up => (1, false),
        PortChange::Down => (1, true),
        PortChange::Receive => (4, false),
        PortChange::NoReceive => (4, true),
        PortChange::Flood => (0x10, false),
        PortChange::NoFlood => (0x10, true),
        PortChange::Forward => (0x20, false),
        PortChange::NoForward => (0x20, true),
        PortChange::PacketIn => (0x40, false),
        PortChange::NoPacketIn => (0x40, true),
    };
    let mut session = Session::new(options, at);
    let number = session.parse(|ports| ofctl::port_with(text, ports))?;
    if bit == 0x10 && session.client()?.version() != Version::V10 {
        return Err(bad_input(
            "only OpenFlow 1.0 can keep a port out of floods; add -O 1.0, or send to a group of type all",
        ));
    }
    let ports = session.ports()?;
    let Some(port) = ports.iter().find(|port| port.number == number) else {
        return Err(bad_input(format!(
            "'{text}': the switch has no port {number}; 'flowyard switch show {}' lists its ports",
            at.switch
        )));
    };
    let m = PortMod {
        number,
        hw: port.hw,
        config: if set { bit } else { 0 },
        mask: bit,
        ..PortMod::default()
    };
    session.only(Message::PortMod(m))
}

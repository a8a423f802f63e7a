//! Flows of switches and files, compared: `diff-flows` and `replace-flows`.
//!
//! Two flows are the same entry if table, priority and match are equal; the entry differs if actions,
//! cookie, timeouts, flags or importance do.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::anyhow;
use flowyard_openflow::act::{Action, Instruction};
use flowyard_openflow::flow::{FlowCommand, FlowMod, flags};
use flowyard_openflow::multipart::{FlowFilter, FlowStats, Reply, Request};
use flowyard_openflow::ofctl::{self, Ports};
use flowyard_openflow::oxm::Oxm;
use flowyard_openflow::port::reserved;
use flowyard_openflow::{Message, Version, decode, encode, group, table};
use flowyard_operate::openflow::Endpoint;

use super::connect::{At, Options, say};
use super::document;
use super::events::{Difference, Differences};
use super::session::{Named, PortNames, Session, Wrong, all, other_version, unwritten};
use crate::output;
use crate::stop::{Stop, bad_input};

/// Flows by table, priority and match.
type Flows = BTreeMap<(u8, u16, Vec<Oxm>), FlowMod>;

/// The lines of a file, or of standard input for `-`, each with its place. Comments and empty lines are
/// left out.
pub(super) fn file_lines(path: &str) -> Result<Vec<(String, String)>, Stop> {
    let text = match path {
        "-" => std::io::read_to_string(std::io::stdin()),
        path => std::fs::read_to_string(path),
    };
    let wrong = |error| {
        bad_input(format!("{path}: {error}; name a readable file, or - for standard input"))
    };
    let text = text.map_err(wrong)?;
    let lines = (1..).zip(text.lines());
    let lines = lines.map(|(number, line)| (number, line.split('#').next().unwrap_or("")));
    let full = lines.filter(|(_, line)| !line.trim().is_empty());
    let placed = |(number, line): (u32, &str)| {
        (format!("{path}: line {number}: "), line.trim_end().to_owned())
    };
    Ok(full.map(placed).collect())
}

/// A flow in the form in which flows are compared.
fn normal(mut flow: FlowMod) -> FlowMod {
    flow.matching = flow.matching.normal();
    flow.flags &= flags::SEND_FLOW_REM | flags::NO_PKT_COUNTS | flags::NO_BYT_COUNTS;
    (flow.command, flow.cookie_mask) = (FlowCommand::Add, 0);
    (flow.buffer, flow.out_port, flow.out_group) = (u32::MAX, reserved::ANY, group::ANY);
    let order = |one: &Instruction| match one {
        Instruction::Meter(_) => 0,
        Instruction::ApplyActions(_) => 1,
        Instruction::ClearActions => 2,
        Instruction::WriteActions(_) => 3,
        Instruction::WriteMetadata { .. } => 4,
        Instruction::GotoTable(_) => 5,
        Instruction::Experimenter { .. } => 6,
    };
    flow.instructions.sort_by_key(order);
    flow.instructions
        .retain(|one| !matches!(one, Instruction::ApplyActions(list) if list.is_empty()));
    for instruction in &mut flow.instructions {
        let (Instruction::ApplyActions(list) | Instruction::WriteActions(list)) = instruction
        else {
            continue;
        };
        for action in list {
            if let Action::Output { port, max_len } = action
                && *port != reserved::CONTROLLER
            {
                *max_len = 0;
            }
        }
    }
    flow
}

fn by_key(flows: impl Iterator<Item = FlowMod>) -> Flows {
    let placed = |flow| {
        let flow = normal(flow);
        ((flow.table, flow.priority, flow.matching.0.clone()), flow)
    };
    flows.map(placed).collect()
}

/// The flows in lines of a file. Of two lines for the same entry, the later one counts.
fn parsed(lines: &[(String, String)], ports: Ports<'_>) -> Result<Flows, Wrong> {
    let flow = |(place, text): &(String, String)| {
        let read = ofctl::flow_with(text, FlowCommand::Add, ports);
        read.map_err(|error| Wrong { place: place.clone(), error })
    };
    let flows: Result<Vec<FlowMod>, Wrong> = lines.iter().map(flow).collect();
    Ok(by_key(flows?.into_iter()))
}

/// The flows as a switch that is sent them in this version reports them: 1.0 has other actions for the same
/// effects. A flow that the version cannot express stays as it is.
fn in_version(flows: Flows, version: Version) -> Flows {
    let sent = |flow: FlowMod| {
        let mut bytes = Vec::new();
        let written = encode(&Message::FlowMod(flow.clone()), version, 0, &mut bytes).is_ok();
        match decode(&bytes) {
            Ok((_, Message::FlowMod(read))) if written => read,
            _ => flow,
        }
    };
    by_key(flows.into_values().map(sent))
}

/// The flows of a switch. It is an error if the version of the connection cannot write all of them, because they
/// would count as missing.
fn installed(session: &mut Session<'_>) -> Result<Flows, Stop> {
    let filter = FlowFilter {
        table: table::ALL,
        out_port: reserved::ANY,
        out_group: group::ANY,
        ..FlowFilter::default()
    };
    let flows = all!(session.client()?, Request::Flow(filter.clone()), Reply::Flow);
    if let Some(missing) = unwritten(session.client()?, filter, flows.len()) {
        let other = other_version(session.client()?);
        return Err(Stop::Failed(anyhow!(
            "{missing}, so the flows cannot be compared; {other} writes those of the other kind, and del-flows \
             deletes both"
        )));
    }
    let flow = |stats: FlowStats| FlowMod {
        table: stats.table,
        priority: stats.priority,
        idle_timeout: stats.idle_timeout,
        hard_timeout: stats.hard_timeout,
        importance: stats.importance,
        flags: stats.flags,
        cookie: stats.cookie,
        matching: stats.matching,
        instructions: stats.instructions,
        ..FlowMod::default()
    };
    Ok(by_key(flows.into_iter().map(flow)))
}

/// The changes that give a switch the flows of a file, and no others.
pub(super) fn replacing(session: &mut Session<'_>, file: &str) -> Result<Vec<Message>, Stop> {
    let lines = file_lines(file)?;
    let wanted = session.parse(|ports| parsed(&lines, ports))?;
    let wanted = in_version(wanted, session.client()?.version());
    let there = installed(session)?;
    let gone = there.iter().filter(|(key, _)| !wanted.contains_key(key));
    let gone = gone.map(|(_, flow)| {
        Message::FlowMod(FlowMod {
            command: FlowCommand::DeleteStrict,
            instructions: Vec::new(),
            cookie: 0,
            ..flow.clone()
        })
    });
    let new = wanted.iter().filter(|(key, flow)| there.get(key) != Some(flow));
    Ok(gone.chain(new.map(|(_, flow)| Message::FlowMod(flow.clone()))).collect())
}

/// The two switches or files to compare.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Address of a switch, or a file with one flow in each line
    first: String,
    /// Address of a switch, or a file with one flow in each line
    second: String,

    #[command(flatten)]
    named: Named,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Prints the flows in which two switches or files differ.
pub(super) fn diff(options: &Options, args: &Args) -> Result<(), Stop> {
    let Args { first, second, named, json } = args;
    let names = named.wanted(*json);
    let one = side(options, first, second, names)?;
    let other = side(options, second, first, names)?;
    // A file has the ports of the switch with which it is compared.
    let of = |one: &Side, other: &Side| {
        one.names.clone().or_else(|| other.names.clone()).unwrap_or_default()
    };
    let (of_one, of_other) = (of(&one, &other), of(&other, &one));
    let (one, other) = (one.flows, other.flows);
    let keys: BTreeSet<_> = one.keys().chain(other.keys()).collect();
    let differing = keys.into_iter().filter(|key| one.get(*key) != other.get(*key));
    let (of_one, of_other) = (of_one.list(), of_other.list());
    let names = [&*of_one, &*of_other];
    let flows: Vec<Difference> =
        differing.filter_map(|key| Difference::of(one.get(key), other.get(key), names)).collect();
    let less = flows.iter().filter(|flow| flow.first.is_some()).count();
    let more = flows.iter().filter(|flow| flow.second.is_some()).count();
    if *json {
        let (first, second) = (first.clone(), second.clone());
        output::json(document::DIFFERENCES, Differences { first, second, flows })?;
    } else {
        for flow in &flows {
            flow.first.iter().try_for_each(|text| say(&format!("-{text}")))?;
            flow.second.iter().try_for_each(|text| say(&format!("+{text}")))?;
        }
    }
    if less + more == 0 {
        return Ok(());
    }
    Err(Stop::Failed(anyhow!("the flows differ: {less} only in {first}, {more} only in {second}")))
}

/// One of two switches or files that are compared.
struct Side {
    flows: Flows,
    /// The names of the ports, if it is a switch and they are wanted.
    names: Option<PortNames>,
}

/// The flows of a switch or a file. In a file, names of ports are those of the other side, if that is a
/// switch.
fn side(options: &Options, which: &str, other: &str, names: bool) -> Result<Side, Stop> {
    // `tcp:..` is an address; a file of that name can be written as `./tcp:..`.
    let at = |text: &str| {
        let switch = text.parse::<Endpoint>().ok().filter(|endpoint| !endpoint.listens)?;
        Some(At { switch })
    };
    if let Some(at) = at(which) {
        let mut session = Session::new(options, &at);
        let flows = installed(&mut session)?;
        let names = names.then(|| session.names()).transpose()?;
        return Ok(Side { flows, names });
    }
    let lines = file_lines(which)?;
    let flows = match at(other) {
        Some(at) => {
            let mut session = Session::new(options, &at);
            let flows = session.parse(|ports| parsed(&lines, ports))?;
            in_version(flows, session.client()?.version())
        }
        None => parsed(&lines, &[])?,
    };
    Ok(Side { flows, names: None })
}

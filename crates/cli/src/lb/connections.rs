//! `flowyard lb connections`: entries of the connection tables.

use clap::builder::PossibleValuesParser;
use flowyard_operate::protocol::{
    LbConnection, LbConnections, LbConnectionsRequest, LbGroup, Request,
};
use flowyard_report::{Cell, Column, Table, Tone, num};

use crate::show::{AskArgs, refused};
use crate::stop::Stop;

/// Name and version of the JSON document.
pub(crate) const SCHEMA: &str = "flowyard.lb.connections/1";

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flowyard lb connections
  flowyard lb connections web --client 203.0.113.7
  flowyard lb connections web/a --state established --limit 1000 --json
  flowyard lb connections --by client --limit 10

Packets go on while the tables are read: a table is locked for 256 entries at a time.")]
pub(crate) struct Args {
    /// Select connections of this service, or of this backend [default: all]
    #[arg(value_name = "SERVICE[/BACKEND]")]
    of: Option<String>,

    /// Select connections of this client, or of all clients in a network, as 203.0.113.0/24
    #[arg(long, value_name = "ADDRESS[/BITS]")]
    client: Option<String>,

    /// Select connections in this state; 'opening' is a SYN only, 'closing' after a FIN or RST, 'datagrams' UDP
    #[arg(long, value_name = "STATE", value_parser = PossibleValuesParser::new(LbConnectionsRequest::STATES))]
    state: Option<String>,

    /// Print the number of connections of each service, backend or client, the largest first, instead of a list
    #[arg(long, value_name = "WHAT", value_parser = PossibleValuesParser::new(LbConnectionsRequest::GROUPS))]
    by: Option<String>,

    /// The most connections, or groups, to print (0 to 100000)
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,

    #[command(flatten)]
    ask: AskArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), Stop> {
    let (service, backend) = match args.of.as_deref().map(|of| of.split_once('/').ok_or(of)) {
        None => (None, None),
        Some(Err(service)) => (Some(service.to_owned()), None),
        Some(Ok(_)) => {
            let (service, backend) = super::split(args.of.as_deref().unwrap_or_default())?;
            (Some(service), Some(backend))
        }
    };
    let request = LbConnectionsRequest {
        service,
        backend,
        client: args.client.clone(),
        state: args.state.clone(),
        by: args.by.clone(),
        limit: args.limit,
    };
    let all: LbConnections =
        args.ask.connect()?.ask(&Request::LbConnections(request)).map_err(refused)?;
    args.ask.print(SCHEMA, &all, |all| {
        vec![match &all.by {
            None => connections(all),
            Some(by) => groups(all, by),
        }]
    })
}

fn connections(all: &LbConnections) -> Table {
    let mut table = Table::new("Connections")
        .column(Column::text("client"))
        .column(Column::text("service address"))
        .column(Column::text("service"))
        .column(Column::text("backend"))
        .column(Column::text("state"))
        .column(Column::number("idle").unit("s"))
        .column(Column::number("expires in").unit("s"))
        .column(Column::number("core"));
    let has_locals = all.connections.iter().any(|one| one.local.is_some());
    if has_locals {
        table = table.column(Column::text("local address"));
    }
    for one in &all.connections {
        let row = [
            Cell::new(one.client.as_str()).tone(Tone::Strong),
            Cell::new(format!("{} {}", one.proto, one.vip)),
            Cell::new(one.service.as_deref().unwrap_or("(removed)")),
            Cell::new(one.backend.as_deref().unwrap_or("(removed)")),
            Cell::new(state(one)),
            Cell::new(format!("{:.1}", one.idle_s)),
            Cell::new(format!("{:.1}", one.expires_in_s)),
            Cell::new(one.core.to_string()),
        ];
        let local = has_locals.then(|| Cell::new(one.local.as_deref().unwrap_or_default()));
        table.push(row.into_iter().chain(local));
    }
    table.note(note(all, "connections"))
}

/// The state in words.
fn state(one: &LbConnection) -> String {
    let mut text = one.state.clone();
    for (is, word) in [
        (!one.is_established && one.state != "opening", ", unestablished"),
        (one.is_copy, ", copy"),
        (one.is_offloaded, ", offloaded"),
    ] {
        text += if is { word } else { "" };
    }
    text
}

fn groups(all: &LbConnections, by: &str) -> Table {
    let mut table = Table::new(format!("Connections by {by}"))
        .column(Column::text(by.to_owned()))
        .column(Column::number("connections"))
        .column(Column::number("established"))
        .column(Column::number("unestablished"))
        .column(Column::number("copies"));
    for group in &all.groups {
        let LbGroup { entries, established, copies, .. } = *group;
        table.push([
            Cell::new(title(group, by)).tone(Tone::Strong),
            Cell::new(num::exact(entries)),
            Cell::new(num::exact(established)),
            Cell::new(num::exact(entries - established)),
            Cell::new(num::exact(copies)),
        ]);
    }
    table.note(note(all, by))
}

fn title(group: &LbGroup, by: &str) -> String {
    let or = |name: &Option<String>| name.clone().unwrap_or_else(|| "(removed)".into());
    match by {
        "client" => or(&group.client),
        "backend" => format!("{}/{}", or(&group.service), or(&group.backend)),
        _ => or(&group.service),
    }
}

/// What the table does not show.
fn note(all: &LbConnections, what: &str) -> String {
    let LbConnections { entries, selected, left_out, ungrouped, .. } = *all;
    let mut text = format!(
        "{} of {} entries in the tables are selected",
        num::exact(selected),
        num::exact(entries)
    );
    if left_out > 0 {
        let which = if all.by.is_some() { "groups" } else { what };
        text +=
            &format!("; {} {which} are left out, raise --limit to see them", num::exact(left_out));
    }
    if ungrouped > 0 {
        text += &format!(
            "; {} entries belong to further clients, which are not counted: select fewer with --client",
            num::exact(ungrouped)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_said() {
        let connection = LbConnection {
            proto: "tcp".into(),
            client: "203.0.113.7:40000".into(),
            vip: "192.0.2.1:80".into(),
            state: "open".into(),
            is_copy: true,
            ..LbConnection::default()
        };
        let all = LbConnections {
            entries: 2000,
            selected: 1200,
            left_out: 1199,
            connections: vec![connection],
            ..LbConnections::default()
        };
        let text = connections(&all).to_text(&flowyard_report::Style::plain());
        for part in [
            "203.0.113.7:40000",
            "(removed)",
            "open, unestablished, copy",
            "1,200 of 2,000 entries in the tables are selected",
            "1,199 connections are left out",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("local address"), "{text}");
        let group = LbGroup {
            service: Some("web".into()),
            entries: 9,
            established: 4,
            ..LbGroup::default()
        };
        let all = LbConnections {
            by: Some("backend".into()),
            groups: vec![group],
            left_out: 3,
            ungrouped: 7,
            ..all
        };
        let text = groups(&all, "backend").to_text(&flowyard_report::Style::plain());
        for part in
            ["web/(removed)", "3 groups are left out", "7 entries belong to further clients"]
        {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}

//! Requests to a switch, and their answers.

use std::time::Duration;

use flowyard_openflow::multipart::{FlowFilter, Monitor, MonitorCommand, Reply, Request};
use flowyard_openflow::port::reserved;
use flowyard_openflow::{Match, Message, Version, group, ofctl};
use flowyard_operate::openflow::client::{Client, name, words};

use super::{failed, print, say};
use crate::stop::{Stop, bad_input};

/// The bodies of a multipart answer.
fn bodies(client: &mut Client, body: Request) -> Result<Vec<Reply>, Stop> {
    let request = Message::MultipartRequest { more: false, body };
    let answers = client.ask(&request).map_err(failed)?;
    let body = |message| match message {
        Message::MultipartReply { body, .. } => Some(body),
        _ => None,
    };
    Ok(answers.into_iter().filter_map(body).collect())
}

/// Concatenates the lists of a multipart answer.
macro_rules! all {
    ($client:expr, $request:expr, $kind:path) => {
        bodies($client, $request)?
            .into_iter()
            .flat_map(|body| match body {
                $kind(list) => list,
                _ => Vec::new(),
            })
            .collect::<Vec<_>>()
    };
}

pub(super) fn show(client: &mut Client) -> Result<(), Stop> {
    let version = client.version();
    let answers = client.ask(&Message::FeaturesRequest).map_err(failed)?;
    let mut ports = Vec::new();
    for answer in answers {
        if let Message::FeaturesReply(features) = answer {
            say(&format!(
                "OpenFlow {}: datapath {:016x}, {} tables, {} buffers, capabilities {:#x}",
                name(version),
                features.datapath,
                features.tables,
                features.buffers,
                features.capabilities
            ))?;
            ports = features.ports;
        }
    }
    for body in bodies(client, Request::Desc)? {
        if let Reply::Desc(desc) = body {
            say(&print::desc(&desc))?;
        }
    }
    if version != Version::V10 {
        ports = all!(client, Request::PortDesc, Reply::PortDesc);
    }
    ports.iter().try_for_each(|port| say(&print::port(port)))
}

pub(super) fn flows(client: &mut Client, filter: FlowFilter, hidden: bool) -> Result<(), Stop> {
    if hidden && client.version() == Version::V10 {
        return Err(bad_input(
            "--hidden: OpenFlow 1.0 has no request for the switch's own entries; use -O 1.3 or -O 1.4",
        ));
    }
    // The switch's own entries have the reserved cookie, and are listed only if it is asked for.
    let own = FlowFilter { cookie: u64::MAX, cookie_mask: u64::MAX, ..filter.clone() };
    let flows = all!(client, Request::Flow(filter), Reply::Flow);
    flows.iter().try_for_each(|flow| say(&ofctl::flow_text(flow)))?;
    if hidden {
        let flows = all!(client, Request::Flow(own), Reply::Flow);
        flows.iter().try_for_each(|flow| say(&print::own(flow)))?;
    }
    Ok(())
}

pub(super) fn aggregate(client: &mut Client, filter: FlowFilter) -> Result<(), Stop> {
    for body in bodies(client, Request::Aggregate(filter))? {
        if let Reply::Aggregate { packets, bytes, flows } = body {
            say(&format!("packet_count={packets} byte_count={bytes} flow_count={flows}"))?;
        }
    }
    Ok(())
}

pub(super) fn groups(client: &mut Client) -> Result<(), Stop> {
    let groups = all!(client, Request::GroupDesc, Reply::GroupDesc);
    groups.iter().try_for_each(|group| say(&format!(" {}", ofctl::group_text(group))))
}

pub(super) fn group_stats(client: &mut Client) -> Result<(), Stop> {
    let groups = all!(client, Request::Group(group::ALL), Reply::Group);
    groups.iter().try_for_each(|group| say(&print::group_stats(group)))
}

pub(super) fn meters(client: &mut Client) -> Result<(), Stop> {
    let meters = all!(client, Request::MeterConfig(group::METER_ALL), Reply::MeterConfig);
    meters.iter().try_for_each(|meter| say(&format!(" {}", ofctl::meter_text(meter))))
}

pub(super) fn meter_stats(client: &mut Client) -> Result<(), Stop> {
    let meters = all!(client, Request::Meter(group::METER_ALL), Reply::Meter);
    meters.iter().try_for_each(|meter| say(&print::meter_stats(meter)))
}

pub(super) fn ports(client: &mut Client) -> Result<(), Stop> {
    let ports = all!(client, Request::PortStats(reserved::ANY), Reply::PortStats);
    ports.iter().try_for_each(|port| say(&print::port_stats(port)))
}

pub(super) fn tables(client: &mut Client) -> Result<(), Stop> {
    let tables = all!(client, Request::Table, Reply::Table);
    tables.iter().try_for_each(|table| say(&print::table(table)))
}

/// Flags of a flow monitor: initial flows, added, removed, modified, with instructions, also own changes.
const EVERYTHING: u16 = 1 | 2 | 4 | 8 | 16 | 32;

pub(super) fn monitor(client: &mut Client, watch: bool, count: Option<u64>) -> Result<(), Stop> {
    let mut printed = 0;
    if watch {
        let monitor = Monitor {
            id: 1,
            out_port: reserved::ANY,
            out_group: group::ANY,
            flags: EVERYTHING,
            table: 0xff,
            command: MonitorCommand::Add,
            matching: Match::default(),
        };
        for body in bodies(client, Request::FlowMonitor(vec![monitor]))? {
            print::updates(&body).iter().try_for_each(|line| say(line))?;
        }
    }
    while count.is_none_or(|count| printed < count) {
        let Some((_, message)) = client.news(Duration::from_secs(1)).map_err(failed)? else {
            continue;
        };
        printed += 1;
        match &message {
            Message::Error(error) => say(&format!("error: {}", words(error, client.version())))?,
            Message::MultipartReply { body, .. } => {
                print::updates(body).iter().try_for_each(|line| say(line))?;
            }
            _ => say(&print::news(&message))?,
        }
    }
    Ok(())
}

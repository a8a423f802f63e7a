//! Every kind of OpenFlow message as a line of text, for snoop: its name, its important fields, and of a long
//! answer the first entries.

use flowyard_openflow::bundle::Bundle;
use flowyard_openflow::group::{GroupCommand, GroupMod, MeterCommand, MeterMod};
use flowyard_openflow::message::{Async, Config, Features, RoleMessage};
use flowyard_openflow::multipart::{FlowFilter, GroupDesc, MeterConfig, Monitor, Reply, Request};
use flowyard_openflow::ofctl::Ports;
use flowyard_openflow::port::{Port, PortMod, reserved};
use flowyard_openflow::{Message, Version, decode, group, ofctl, table};
use flowyard_operate::openflow::client::words;

use super::document::Description;
use super::print;
use super::words::mac;

/// The most entries of an answer that are printed.
const ENTRIES: usize = 3;

/// A message that passed in a connection of this version, with names of ports.
pub(super) fn passed(message: &Message, version: Version, names: Ports<'_>) -> String {
    let port = |port: u32| ofctl::port_text(port, names);
    match message {
        Message::Hello(hello) => format!("hello: version bits {:#x}", hello.versions.unwrap_or(0)),
        Message::Error(error) => format!("error: {}", words(error, version)),
        Message::EchoRequest(data) => format!("echo-request: data_len={}", data.len()),
        Message::EchoReply(data) => format!("echo-reply: data_len={}", data.len()),
        Message::Experimenter { id, kind, data } => experimenter(*id, *kind, data),
        Message::FeaturesRequest => "features-request".into(),
        Message::FeaturesReply(features) => features_reply(features),
        Message::GetConfigRequest => "get-config-request".into(),
        Message::GetConfigReply(config) => format!("get-config-reply: {}", settings(config)),
        Message::SetConfig(config) => format!("set-config: {}", settings(config)),
        Message::PacketIn(m) => print::packet_in(m, names),
        Message::PacketOut(m) => print::packet_out(m, names),
        Message::FlowRemoved(m) => print::removed(m, names),
        Message::PortStatus(m) => print::port_status(m),
        Message::FlowMod(m) => print::flow_mod(m, names),
        Message::GroupMod(m) => group_mod(m, names),
        Message::MeterMod(m) => meter_mod(m),
        Message::PortMod(m) => port_mod(m, names),
        Message::TableMod(m) => format!("table-mod: table={} config={:#x}", m.table, m.config),
        Message::MultipartRequest { more, body } => {
            format!("multipart-request: {}{}", request(body, names), follow(*more))
        }
        Message::MultipartReply { more, body } => {
            format!("multipart-reply: {}{}", reply(body, names), follow(*more))
        }
        Message::QueueConfigRequest { port: of } => {
            format!("queue-config-request: port={}", port(*of))
        }
        Message::QueueConfigReply { port: of, queues } => {
            format!("queue-config-reply: port={} queues={}", port(*of), queues.len())
        }
        Message::BarrierRequest => "barrier-request".into(),
        Message::BarrierReply => "barrier-reply".into(),
        Message::RoleRequest(m) => format!("role-request: {}", role(m)),
        Message::RoleReply(m) => format!("role-reply: {}", role(m)),
        Message::RoleStatus(m) => format!("role-status: {}", role(m)),
        Message::TableStatus(m) => {
            format!("table-status: table={} {}", m.table.table, print::snake(&m.reason))
        }
        Message::RequestForward(bytes) => format!("request-forward: {} bytes", bytes.len()),
        Message::GetAsyncRequest => "get-async-request".into(),
        Message::GetAsyncReply(masks) => format!("get-async-reply: {}", asynchronous(masks)),
        Message::SetAsync(masks) => format!("set-async: {}", asynchronous(masks)),
        Message::Bundle(m) => bundle(m),
        Message::BundleAdd(m) => {
            format!("bundle-add: bundle={} {}", m.id, inner(&m.message, version, names))
        }
    }
}

/// The message inside a bundle.
fn inner(message: &[u8], version: Version, names: Ports<'_>) -> String {
    match decode(message) {
        Ok((_, inner)) if !matches!(inner, Message::BundleAdd(_)) => passed(&inner, version, names),
        Ok((header, _)) => format!("message type {}", header.kind),
        Err(rejected) => rejected.to_string(),
    }
}

const fn follow(more: bool) -> &'static str {
    if more { " (more follow)" } else { "" }
}

fn experimenter(id: u32, kind: u32, data: &[u8]) -> String {
    format!("experimenter: experimenter={id:#x} type={kind} data_len={}", data.len())
}

fn features_reply(m: &Features) -> String {
    let Features { datapath, buffers, tables, auxiliary, capabilities, ports, .. } = m;
    let ports: Vec<String> =
        ports.iter().map(|port| print::port(port).trim_start().to_owned()).collect();
    let ports =
        if ports.is_empty() { String::new() } else { format!(" ports: {}", entries(&ports)) };
    format!(
        "features-reply: datapath={datapath:016x} tables={tables} buffers={buffers} \
         auxiliary={auxiliary} capabilities={capabilities:#x}{ports}"
    )
}

fn settings(config: &Config) -> String {
    format!("flags={:#x} miss_send_len={}", config.flags, config.miss_send_len)
}

fn role(m: &RoleMessage) -> String {
    format!("{} generation={:#x}", print::snake(&m.role), m.generation)
}

fn asynchronous(masks: &Async) -> String {
    let pair = |(kind, mask): &(u16, u32)| {
        let names =
            ["packet_in", "port_status", "flow_removed", "role", "table", "request_forward"];
        let name = names.get(usize::from(*kind / 2)).copied().unwrap_or("other");
        let who = if kind.is_multiple_of(2) { "slave" } else { "master" };
        format!("{name}({who})={mask:#x}")
    };
    masks.0.iter().map(pair).collect::<Vec<_>>().join(" ")
}

fn group_mod(m: &GroupMod, names: Ports<'_>) -> String {
    let GroupMod { command, kind, group, buckets } = m.clone();
    if command == GroupCommand::Delete {
        let which = if group == group::ALL { "all".into() } else { group.to_string() };
        return format!("group-mod: delete group_id={which}");
    }
    let text = ofctl::group_text_with(&GroupDesc { kind, group, buckets }, names);
    format!("group-mod: {} {text}", print::snake(&command))
}

fn meter_mod(m: &MeterMod) -> String {
    let MeterMod { command, flags, meter, bands } = m.clone();
    let deletes = command == MeterCommand::Delete;
    let (flags, bands) = if deletes { (0, Vec::new()) } else { (flags, bands) };
    let text = ofctl::meter_text(&MeterConfig { flags, meter, bands });
    format!("meter-mod: {} {text}", print::snake(&command))
}

fn port_mod(m: &PortMod, names: Ports<'_>) -> String {
    format!(
        "port-mod: port={} addr={} config={:#x} mask={:#x}",
        ofctl::port_text(m.number, names),
        mac(&m.hw),
        m.config,
        m.mask
    )
}

fn bundle(m: &Bundle) -> String {
    let control = [
        "open-request",
        "open-reply",
        "close-request",
        "close-reply",
        "commit-request",
        "commit-reply",
        "discard-request",
        "discard-reply",
    ];
    let control = control.get(usize::from(m.control)).copied().unwrap_or("control");
    format!("bundle-{control}: bundle={} flags={:#x}", m.id, m.flags)
}

/// The number of entries, and the first of them.
fn entries(all: &[String]) -> String {
    let more = if all.len() > ENTRIES { " | .." } else { "" };
    let first: Vec<&str> = all.iter().take(ENTRIES).map(|line| line.trim()).collect();
    match all.len() {
        0 => "no entries".into(),
        1 => format!("1 entry: {}", first.join("")),
        count => format!("{count} entries: {}{more}", first.join(" | ")),
    }
}

fn filter(filter: &FlowFilter, names: Ports<'_>) -> String {
    let table = if filter.table == table::ALL { "all".into() } else { filter.table.to_string() };
    let mut parts = vec![format!("table={table}")];
    if filter.cookie_mask != 0 {
        parts.push(format!("cookie={:#x}/{:#x}", filter.cookie, filter.cookie_mask));
    }
    if filter.out_port != reserved::ANY {
        parts.push(format!("out_port={}", ofctl::port_text(filter.out_port, names)));
    }
    if filter.out_group != group::ANY {
        parts.push(format!("out_group={}", filter.out_group));
    }
    let matching = ofctl::match_text(&filter.matching, names);
    parts.extend(Some(matching).filter(|text| !text.is_empty()));
    parts.join(",")
}

fn request(body: &Request, names: Ports<'_>) -> String {
    let port = |port: u32| ofctl::port_text(port, names);
    let number = |number: u32, all: u32| match number == all {
        true => "all".into(),
        false => number.to_string(),
    };
    match body {
        Request::Desc => "description".into(),
        Request::Flow(which) => format!("flows {}", filter(which, names)),
        Request::Aggregate(which) => format!("aggregate {}", filter(which, names)),
        Request::Table => "tables".into(),
        Request::PortStats(which) => format!("port counters port={}", port(*which)),
        Request::QueueStats { port: which, queue } => {
            format!("queue counters port={} queue={}", port(*which), number(*queue, u32::MAX))
        }
        Request::Group(which) => format!("group counters group_id={}", number(*which, group::ALL)),
        Request::GroupDesc => "groups".into(),
        Request::GroupFeatures => "group features".into(),
        Request::Meter(which) => {
            format!("meter counters meter={}", number(*which, group::METER_ALL))
        }
        Request::MeterConfig(which) => format!("meters meter={}", number(*which, group::METER_ALL)),
        Request::MeterFeatures => "meter features".into(),
        Request::TableFeatures(list) if list.is_empty() => "table features".into(),
        Request::TableFeatures(list) => format!("set features of {} tables", list.len()),
        Request::PortDesc => "ports".into(),
        Request::TableDesc => "table settings".into(),
        Request::QueueDesc { port: which, queue } => {
            format!("queues port={} queue={}", port(*which), number(*queue, u32::MAX))
        }
        Request::FlowMonitor(list) => {
            let one = |m: &Monitor| {
                let out = if m.out_port == reserved::ANY {
                    String::new()
                } else {
                    format!(" out_port={}", port(m.out_port))
                };
                let matching = ofctl::match_text(&m.matching, names);
                format!(
                    "id={} {} table={} flags={:#x}{out} {matching}",
                    m.id,
                    print::snake(&m.command),
                    m.table,
                    m.flags
                )
            };
            format!("flow monitors, {}", entries(&list.iter().map(one).collect::<Vec<_>>()))
        }
        Request::Experimenter { id, kind, data } => experimenter(*id, *kind, data),
    }
}

/// The lines of entries, as the dumps print them.
fn lines<T>(list: &[T], line: impl Fn(&T) -> String) -> String {
    entries(&list.iter().map(line).collect::<Vec<_>>())
}

fn reply(body: &Reply, names: Ports<'_>) -> String {
    match body {
        Reply::Desc(desc) => format!("description: {}", print::desc(&Description::from(&**desc))),
        Reply::Flow(list) => {
            format!("flows, {}", lines(list, |flow| ofctl::flow_text_with(flow, true, names)))
        }
        Reply::Aggregate { packets, bytes, flows } => {
            format!("aggregate: packet_count={packets} byte_count={bytes} flow_count={flows}")
        }
        Reply::Table(list) => format!("tables, {}", entries(&print::tables(list, true))),
        Reply::PortStats(list) => {
            format!("port counters, {}", lines(list, |one| print::port_stats(one, names)))
        }
        Reply::QueueStats(list) => format!("queue counters, {} entries", list.len()),
        Reply::Group(list) => format!("group counters, {}", lines(list, print::group_stats)),
        Reply::GroupDesc(list) => {
            format!("groups, {}", lines(list, |group| ofctl::group_text_with(group, names)))
        }
        Reply::GroupFeatures { types, capabilities, max, .. } => {
            format!("group features: types={types:#x} capabilities={capabilities:#x} max={max:?}")
        }
        Reply::Meter(list) => format!("meter counters, {}", lines(list, print::meter_stats)),
        Reply::MeterConfig(list) => format!("meters, {}", lines(list, ofctl::meter_text)),
        Reply::MeterFeatures { max, bands, capabilities, max_bands, max_color } => format!(
            "meter features: max={max} bands={bands:#x} capabilities={capabilities:#x} \
             max_bands={max_bands} max_color={max_color}"
        ),
        Reply::TableFeatures(list) => format!("table features, {} tables", list.len()),
        Reply::PortDesc(list) => format!("ports, {}", lines(list, |port: &Port| print::port(port))),
        Reply::TableDesc(list) => format!("table settings, {} tables", list.len()),
        Reply::QueueDesc(list) => format!("queues, {} entries", list.len()),
        Reply::FlowMonitor(_) => format!("flow monitor, {}", entries(&print::updates(body, names))),
        Reply::Experimenter { id, kind, data } => experimenter(*id, *kind, data),
    }
}

#[cfg(test)]
mod tests {
    use flowyard_openflow::flow::{FlowCommand, FlowRemoved, PacketIn};

    use super::*;

    /// No message is printed as a structure of the program.
    #[test]
    fn every_message_is_text() {
        let flows = FlowFilter {
            table: table::ALL,
            out_port: reserved::ANY,
            out_group: group::ANY,
            ..FlowFilter::default()
        };
        let group = ofctl::group("group_id=1,type=all,bucket=actions=output:1", GroupCommand::Add);
        let meter = ofctl::meter("meter=1,kbps,band=type=drop,rate=7", MeterCommand::Add);
        let stats =
            |priority| flowyard_openflow::multipart::FlowStats { priority, ..Default::default() };
        for (message, text) in [
            (
                Message::MultipartRequest { more: false, body: Request::Flow(flows) },
                "multipart-request: flows table=all",
            ),
            (
                Message::MultipartReply {
                    more: true,
                    body: Reply::Flow((0..5).map(stats).collect()),
                },
                "multipart-reply: flows, 5 entries: cookie=0x0, ",
            ),
            (
                Message::GroupMod(group.expect("a group")),
                "group-mod: add group_id=1,type=all,bucket=",
            ),
            (
                Message::GroupMod(GroupMod {
                    command: GroupCommand::Delete,
                    group: group::ALL,
                    ..GroupMod::default()
                }),
                "group-mod: delete group_id=all",
            ),
            (
                Message::MeterMod(meter.expect("a meter")),
                "meter-mod: add meter=1,kbps,band=type=drop,rate=7",
            ),
            (
                Message::FeaturesReply(Features::default()),
                "features-reply: datapath=0000000000000000 tables=0",
            ),
            (
                Message::RoleRequest(RoleMessage::default()),
                "role-request: no_change generation=0x0",
            ),
            (Message::SetAsync(Async(vec![(1, 3)])), "set-async: packet_in(master)=0x3"),
            (
                Message::Bundle(Bundle { id: 7, control: 4, ..Bundle::default() }),
                "bundle-commit-request: bundle=7",
            ),
            (
                Message::PortMod(PortMod { number: 2, mask: 1, ..PortMod::default() }),
                "port-mod: port=2 addr=00:00",
            ),
            (
                Message::FlowMod(
                    ofctl::flow("udp,actions=drop", FlowCommand::Add).expect("a flow"),
                ),
                "flow-mod: add table=0",
            ),
        ] {
            let said = passed(&message, Version::V13, &[]);
            assert!(said.starts_with(text), "{said}");
            assert!(!said.contains('{') && !said.contains("Some("), "{said}");
        }
    }
    /// Every number of a port is written as its name, if the names are known.
    #[test]
    fn ports_have_their_names() {
        let flow = ofctl::flow("in_port=1,udp,actions=output:2", FlowCommand::Add).expect("a flow");
        let group = ofctl::group("group_id=1,type=all,bucket=actions=output:2", GroupCommand::Add);
        let out = ofctl::packet_out(
            "in_port=1,packet=0200000000010200000000020800,actions=output:2",
            &[],
        );
        let of_port = |number| flowyard_openflow::multipart::FlowStats {
            matching: ofctl::flow(&format!("in_port={number},actions=drop"), FlowCommand::Add)
                .expect("a flow")
                .matching,
            ..Default::default()
        };
        let counters = vec![flowyard_openflow::port::PortStats { number: 1, ..Default::default() }];
        let filter = FlowFilter { out_port: 2, out_group: group::ANY, ..FlowFilter::default() };
        let arrived = PacketIn { matching: of_port(1).matching, ..PacketIn::default() };
        let gone = FlowRemoved { matching: of_port(1).matching, ..FlowRemoved::default() };
        let body = |body| Message::MultipartReply { more: false, body };
        for (message, numbered, named) in [
            (
                Message::FlowMod(flow),
                "in_port=1 actions=output:2",
                "in_port=west actions=output:east",
            ),
            (Message::GroupMod(group.expect("a group")), "output:2", "output:east"),
            (
                Message::PacketOut(out.expect("a frame")),
                "in_port=1 len=14 actions=output:2",
                "in_port=west len=14 actions=output:east",
            ),
            (Message::PacketIn(arrived), "in_port=1 ", "in_port=west "),
            (Message::FlowRemoved(gone), "in_port=1", "in_port=west"),
            (
                Message::PortMod(PortMod { number: 2, ..PortMod::default() }),
                "port=2 ",
                "port=east ",
            ),
            (body(Reply::PortStats(counters)), "port 1: rx", "port west: rx"),
            (body(Reply::Flow(vec![of_port(2)])), "in_port=2 ", "in_port=east "),
            (
                Message::MultipartRequest { more: false, body: Request::Flow(filter) },
                "out_port=2",
                "out_port=east",
            ),
        ] {
            let said = passed(&message, Version::V13, &[]);
            assert!(said.contains(numbered), "{said}");
            let said = passed(&message, Version::V13, &[("west", 1), ("east", 2)]);
            assert!(said.contains(named), "{said}");
        }
    }
}

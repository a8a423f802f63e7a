//! OpenFlow messages as lines of text.

use flowyard_openflow::Message;
use flowyard_openflow::flow::{FlowRemoved, PacketIn};
use flowyard_openflow::multipart::{Desc, FlowStats, GroupStats, MeterStats, Reply, Update};
use flowyard_openflow::ofctl;
use flowyard_openflow::oxm::Field;
use flowyard_openflow::port::{Port, PortReason, PortStats, Text};
use flowyard_openflow::table::TableStats;

fn text<const N: usize>(text: &Text<N>) -> String {
    let end = text.0.iter().position(|byte| *byte == 0).unwrap_or(N);
    String::from_utf8_lossy(&text.0[..end]).replace(char::is_control, " ")
}

pub(super) fn desc(desc: &Desc) -> String {
    format!(
        "manufacturer '{}', hardware '{}', software '{}', serial '{}', datapath '{}'",
        text(&desc.manufacturer),
        text(&desc.hardware),
        text(&desc.software),
        text(&desc.serial),
        text(&desc.datapath)
    )
}

/// An entry of the switch itself. It is below or above the flows of all priorities.
pub(super) fn own(flow: &FlowStats) -> String {
    let place = if flow.priority == 0 { "below" } else { "above" };
    format!("{} (hidden: {place} all flows)", ofctl::flow_text(flow))
}

fn bits(value: u32, names: &[(u32, &str)]) -> String {
    let found: Vec<&str> =
        names.iter().filter(|(bit, _)| value & bit != 0).map(|(_, name)| *name).collect();
    if found.is_empty() { "0".into() } else { found.join(" ") }
}

pub(super) fn port(port: &Port) -> String {
    let hw: Vec<String> = port.hw.iter().map(|byte| format!("{byte:02x}")).collect();
    let config = [
        (1, "PORT_DOWN"),
        (4, "NO_RECV"),
        (0x10, "NO_FLOOD"),
        (0x20, "NO_FWD"),
        (0x40, "NO_PACKET_IN"),
    ];
    let state = [(1, "LINK_DOWN"), (2, "BLOCKED"), (4, "LIVE")];
    let speed = port.ethernet.map_or(0, |words| words[4]);
    format!(
        " {}({}): addr:{}, config: {}, state: {}, speed: {} Mbps now",
        port.number,
        text(&port.name),
        hw.join(":"),
        bits(port.config, &config),
        bits(port.state, &state),
        speed / 1000
    )
}

pub(super) fn port_stats(stats: &PortStats) -> String {
    let [rx, tx, rx_bytes, tx_bytes, rx_drop, tx_drop, rx_errors, tx_errors] = stats.basic;
    format!(
        "  port {}: rx pkts={rx}, bytes={rx_bytes}, drop={rx_drop}, errs={rx_errors}; \
         tx pkts={tx}, bytes={tx_bytes}, drop={tx_drop}, errs={tx_errors}; duration={}.{:03}s",
        stats.number,
        stats.duration_sec,
        stats.duration_nsec / 1_000_000
    )
}

pub(super) fn table(stats: &TableStats) -> String {
    format!(
        "  table {}: active={}, lookup={}, matched={}",
        stats.table, stats.active, stats.looked_up, stats.matched
    )
}

fn pairs(list: &[(u64, u64)], name: &str) -> String {
    let pair = |(at, (packets, bytes)): (usize, &(u64, u64))| {
        format!(",{name}{at}:packet_count={packets},byte_count={bytes}")
    };
    list.iter().enumerate().map(pair).collect()
}

pub(super) fn group_stats(stats: &GroupStats) -> String {
    format!(
        " group_id={},duration={}.{:03}s,ref_count={},packet_count={},byte_count={}{}",
        stats.group,
        stats.duration_sec,
        stats.duration_nsec / 1_000_000,
        stats.references,
        stats.packets,
        stats.bytes,
        pairs(&stats.buckets, "bucket")
    )
}

pub(super) fn meter_stats(stats: &MeterStats) -> String {
    format!(
        " meter:{} flow_count:{} packet_in_count:{} byte_in_count:{} duration:{}.{:03}s{}",
        stats.meter,
        stats.flows,
        stats.packets,
        stats.bytes,
        stats.duration_sec,
        stats.duration_nsec / 1_000_000,
        pairs(&stats.bands, "band")
    )
}

fn packet_in(m: &PacketIn) -> String {
    let in_port = m.matching.exact(Field::InPort).unwrap_or(0);
    let shown: String = m.data.iter().take(64).map(|byte| format!("{byte:02x}")).collect();
    let more = if m.data.len() > 64 { ".." } else { "" };
    format!(
        "packet-in: in_port={in_port} reason={:?} table={} cookie={:#x} total_len={} data_len={} \
         buffer={:#x} data={shown}{more}",
        m.reason,
        m.table,
        m.cookie,
        m.total,
        m.data.len(),
        m.buffer
    )
}

fn removed(m: &FlowRemoved) -> String {
    let flow = FlowStats {
        table: m.table,
        duration_sec: m.duration_sec,
        duration_nsec: m.duration_nsec,
        priority: m.priority,
        idle_timeout: m.idle_timeout,
        hard_timeout: m.hard_timeout,
        cookie: m.cookie,
        packets: m.packets,
        bytes: m.bytes,
        matching: m.matching.clone(),
        ..FlowStats::default()
    };
    let text = ofctl::flow_text(&flow);
    format!("flow-removed: reason={:?}{}", m.reason, text.trim_end_matches(" actions=drop"))
}

/// A message that the switch sent without a request.
pub(super) fn news(message: &Message) -> String {
    match message {
        Message::PacketIn(m) => packet_in(m),
        Message::FlowRemoved(m) => removed(m),
        Message::PortStatus(m) => {
            let what = match m.reason {
                PortReason::Add => "added",
                PortReason::Delete => "deleted",
                PortReason::Modify => "modified",
            };
            format!("port-status: {what}:{}", port(&m.port))
        }
        Message::TableStatus(m) => format!("table-status: table={} {:?}", m.table.table, m.reason),
        Message::RoleStatus(m) => {
            format!("role-status: {:?} generation={:#x}", m.role, m.generation)
        }
        Message::RequestForward(bytes) => format!("request-forward: {} bytes", bytes.len()),
        other => format!("{other:?}").replace(char::is_control, " "),
    }
}

/// The events of a flow monitor.
pub(super) fn updates(body: &Reply) -> Vec<String> {
    let Reply::FlowMonitor(list) = body else { return Vec::new() };
    let line = |update: &Update| match update {
        Update::Full {
            event,
            table,
            idle_timeout,
            hard_timeout,
            priority,
            cookie,
            matching,
            instructions,
            ..
        } => {
            let what = ["INITIAL", "ADDED", "DELETED", "MODIFIED"];
            let flow = flowyard_openflow::flow::FlowMod {
                table: *table,
                idle_timeout: *idle_timeout,
                hard_timeout: *hard_timeout,
                priority: *priority,
                cookie: *cookie,
                matching: matching.clone(),
                instructions: instructions.clone(),
                out_port: flowyard_openflow::port::reserved::ANY,
                out_group: flowyard_openflow::group::ANY,
                ..Default::default()
            };
            let what = what.get(usize::from(*event)).copied().unwrap_or("?");
            format!("event={what} {}", ofctl::flow_mod_text(&flow))
        }
        Update::Abbrev(xid) => format!("event=ABBREV xid={xid:#x}"),
        Update::Paused => "event=PAUSED".into(),
        Update::Resumed => "event=RESUMED".into(),
    };
    list.iter().map(line).collect()
}

//! OpenFlow messages as lines of text.

use flowyard_openflow::flow::{FlowCommand, FlowMod, FlowRemoved, PacketIn, PacketOut};
use flowyard_openflow::multipart::{FlowStats, GroupStats, MeterStats, NOT_COUNTED, Reply, Update};
use flowyard_openflow::ofctl::{self, Ports};
use flowyard_openflow::oxm::Field;
use flowyard_openflow::port::{Port, PortReason, PortStats, PortStatus, QueueStats};
use flowyard_openflow::table::TableStats;

use super::document::{Description, Show, TableFeature, TableSetting, Vacancy};
use super::words::{CONFIG, STATE, bits, mac, speed, text};

pub(super) fn desc(desc: &Description) -> String {
    let Description { manufacturer, hardware, software, serial, datapath } = desc;
    format!(
        "manufacturer '{manufacturer}', hardware '{hardware}', software '{software}', serial '{serial}', \
         datapath '{datapath}'"
    )
}

/// An entry of the switch itself. It is below or above the flows of all priorities.
pub(super) fn own(flow: &FlowStats, text: &str) -> String {
    let place = if flow.priority == 0 { "below" } else { "above" };
    format!("{text} (hidden: {place} all flows)")
}

/// A switch with its description and its ports.
pub(super) fn show(switch: &Show, ports: &[Port]) -> Vec<String> {
    let first = format!(
        "OpenFlow {}: datapath {}, {} tables, {} buffers, capabilities {:#x}",
        switch.version, switch.datapath, switch.tables, switch.buffers, switch.capabilities
    );
    let mut lines = vec![first];
    lines.extend(switch.description.iter().map(desc));
    lines.extend(ports.iter().map(port));
    lines
}

/// Counters of queues.
pub(super) fn queues(all: &[QueueStats], names: Ports<'_>) -> Vec<String> {
    if all.is_empty() {
        return vec!["  no queues".into()];
    }
    let line = |stats: &QueueStats| {
        let QueueStats { port, queue, bytes, packets, errors, .. } = stats;
        let port = ofctl::port_text(*port, names);
        format!("  port {port} queue {queue}: bytes={bytes}, pkts={packets}, errors={errors}")
    };
    all.iter().map(line).collect()
}

fn listed(value: u32, names: &[(u32, &'static str)]) -> String {
    let found = bits(value, names);
    if found.is_empty() { "0".into() } else { found.join(" ") }
}

pub(super) fn port(port: &Port) -> String {
    let speed = match speed(port) {
        0 => "unknown".into(),
        mbps => format!("{mbps} Mbps now"),
    };
    format!(
        " {}({}): addr:{}, config: {}, state: {}, speed: {speed}",
        port.number,
        text(&port.name),
        mac(&port.hw),
        listed(port.config, CONFIG),
        listed(port.state, STATE),
    )
}

/// A counter, or a question mark if the switch does not have it.
fn count(count: u64) -> String {
    if count == NOT_COUNTED { "?".into() } else { count.to_string() }
}

pub(super) fn port_stats(stats: &PortStats, names: Ports<'_>) -> String {
    let [rx, tx, rx_bytes, tx_bytes, rx_drop, tx_drop, rx_errors, tx_errors] =
        stats.basic.map(count);
    format!(
        "  port {}: rx pkts={rx}, bytes={rx_bytes}, drop={rx_drop}, errs={rx_errors}; \
         tx pkts={tx}, bytes={tx_bytes}, drop={tx_drop}, errs={tx_errors}; duration={}.{:03}s",
        ofctl::port_text(stats.number, names),
        stats.duration_sec,
        stats.duration_nsec / 1_000_000
    )
}

/// The tables that have flow entries or were looked up, and how many have not; or all of them.
pub(super) fn tables(all: &[TableStats], with_empty: bool) -> Vec<String> {
    let is_used = |stats: &&TableStats| with_empty || stats.active > 0 || stats.looked_up > 0;
    let line = |stats: &TableStats| {
        format!(
            "  table {}: active={}, lookup={}, matched={}",
            stats.table, stats.active, stats.looked_up, stats.matched
        )
    };
    let mut lines: Vec<String> = all.iter().filter(is_used).map(line).collect();
    match all.len() - lines.len() {
        0 => {}
        1 => lines.push("  1 table has no flows and was never looked up (--all prints it)".into()),
        more => lines.push(format!(
            "  {more} tables have no flows and were never looked up (--all prints them)"
        )),
    }
    lines
}

/// The settings of tables. Equal tables that follow each other share a line.
pub(super) fn table_settings(all: &[TableSetting]) -> Vec<String> {
    let same =
        |a: &TableSetting, b: &TableSetting| (a.eviction, a.vacancy) == (b.eviction, b.vacancy);
    let line = |run: &[TableSetting]| {
        let [first, ..] = run else { return String::new() };
        let eviction = if first.eviction { "evict" } else { "noevict" };
        let vacancy = match first.vacancy {
            None => "novacancy".into(),
            Some(Vacancy { down, up, free }) => format!("vacancy:{down},{up} ({free} % free)"),
        };
        format!("  {}: {eviction}, {vacancy}", range(first.table, run.len()))
    };
    all.chunk_by(same).map(line).collect()
}

/// `table 3`, or `tables 3 to 9`.
fn range(first: u8, count: usize) -> String {
    match count {
        1 => format!("table {first}"),
        count => format!("tables {first} to {}", usize::from(first) + count - 1),
    }
}

/// The features of tables. Equal tables that follow each other share a paragraph; a goto_table to every
/// later table is equal.
pub(super) fn table_features(all: &[TableFeature]) -> Vec<String> {
    let last = all.iter().map(|one| one.table).max().unwrap_or(0);
    let next = |one: &TableFeature| -> Option<Vec<u8>> {
        let later = one.next_tables.iter().copied().eq(one.table.saturating_add(1)..=last);
        (!later).then(|| one.next_tables.clone())
    };
    let plain = |one: &TableFeature| TableFeature {
        table: 0,
        name: String::new(),
        next_tables: next(one).unwrap_or_default(),
        ..one.clone()
    };
    let mut lines = Vec::new();
    for run in all.chunk_by(|a, b| next(a) == next(b) && plain(a) == plain(b)) {
        let [first, ..] = run else { continue };
        let tables = match next(first) {
            None => "every later table".into(),
            Some(list) => format!("{list:?}"),
        };
        lines.push(format!("  {}:", range(first.table, run.len())));
        lines.push(format!("    max_entries: {}", first.max_entries));
        lines.push(format!("    instructions: {}", first.instructions.join(" ")));
        lines.push(format!("    next tables: {tables}"));
        lines.push(format!("    apply actions: {}", first.apply_actions.join(" ")));
        lines.push(format!("    write actions: {}", first.write_actions.join(" ")));
        lines.push(format!("    match: {}", first.match_fields.join(" ")));
        lines.push(format!("    set_field: {}", first.set_fields.join(" ")));
    }
    lines
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

/// A name of the specification as it is written in text: `NoMatch` is `no_match`.
pub(super) fn snake(name: &impl std::fmt::Debug) -> String {
    let mut text = String::new();
    for c in format!("{name:?}").chars() {
        if c.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.extend(c.to_lowercase());
    }
    text
}

pub(super) fn packet_in(m: &PacketIn, names: Ports<'_>) -> String {
    let in_port = m.matching.exact(Field::InPort).unwrap_or(0) as u32;
    let shown: String = m.data.iter().take(64).map(|byte| format!("{byte:02x}")).collect();
    let more = if m.data.len() > 64 { ".." } else { "" };
    format!(
        "packet-in: in_port={} reason={} table={} cookie={:#x} total_len={} data_len={} \
         buffer={:#x} data={shown}{more}",
        ofctl::port_text(in_port, names),
        snake(&m.reason),
        m.table,
        m.cookie,
        m.total,
        m.data.len(),
        m.buffer
    )
}

/// The flow entry that was removed.
pub(super) fn entry(m: &FlowRemoved) -> FlowStats {
    FlowStats {
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
    }
}

pub(super) fn removed(m: &FlowRemoved, names: Ports<'_>) -> String {
    let text = ofctl::flow_text_with(&entry(m), true, names);
    format!("flow-removed: reason={}{}", snake(&m.reason), text.trim_end_matches(" actions=drop"))
}

pub(super) fn port_status(m: &PortStatus) -> String {
    let what = match m.reason {
        PortReason::Add => "added",
        PortReason::Delete => "deleted",
        PortReason::Modify => "modified",
    };
    format!("port-status: {what}:{}", port(&m.port))
}

pub(super) fn flow_mod(m: &FlowMod, names: Ports<'_>) -> String {
    let command = match m.command {
        FlowCommand::Add => "add",
        FlowCommand::Modify => "modify",
        FlowCommand::ModifyStrict => "modify_strict",
        FlowCommand::Delete => "delete",
        FlowCommand::DeleteStrict => "delete_strict",
    };
    format!("flow-mod: {command} {}", ofctl::flow_mod_text_with(m, names))
}

pub(super) fn packet_out(m: &PacketOut, names: Ports<'_>) -> String {
    format!(
        "packet-out: in_port={} len={} actions={}",
        ofctl::port_text(m.in_port, names),
        m.data.len(),
        ofctl::actions_text(&m.actions, names)
    )
}

/// What a flow monitor reports about a flow.
const EVENTS: [&str; 4] = ["INITIAL", "ADDED", "DELETED", "MODIFIED"];

/// An event of a flow monitor: its word, and the flow if it is about one.
pub(super) fn event(update: &Update) -> (&'static str, Option<FlowMod>) {
    match update {
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
            let flow = FlowMod {
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
            (EVENTS.get(usize::from(*event)).copied().unwrap_or("?"), Some(flow))
        }
        Update::Abbrev(_) => ("ABBREV", None),
        Update::Paused => ("PAUSED", None),
        Update::Resumed => ("RESUMED", None),
    }
}

/// An event of a flow monitor in one line.
pub(super) fn update(update: &Update, names: Ports<'_>) -> String {
    let (what, flow) = event(update);
    match (update, flow) {
        (_, Some(flow)) => format!("event={what} {}", ofctl::flow_mod_text_with(&flow, names)),
        (Update::Abbrev(xid), None) => format!("event={what} xid={xid:#x}"),
        (_, None) => format!("event={what}"),
    }
}

/// The events of a flow monitor.
pub(super) fn updates(body: &Reply, names: Ports<'_>) -> Vec<String> {
    let Reply::FlowMonitor(list) = body else { return Vec::new() };
    list.iter().map(|one| update(one, names)).collect()
}

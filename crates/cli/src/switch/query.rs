//! Commands that print the state of a switch.

use anyhow::anyhow;
use clap::Subcommand;
use flowyard_openflow::group::{GroupCommand, MeterCommand};
use flowyard_openflow::multipart::{FlowFilter, Reply, Request};
use flowyard_openflow::port::reserved;
use flowyard_openflow::{Message, Version, group, ofctl};
use flowyard_operate::openflow::client::{Client, name};
use serde::Serialize;

use super::connect::{At, Options, failed, say};
use super::document::{self, Description};
use super::ping::ping;
use super::session::{Named, Session, all, bodies, other_version, unwritten};
use super::{compare, print};
use crate::output;
use crate::stop::{Stop, bad_input};

#[derive(clap::Args)]
pub(super) struct Asked {
    #[command(flatten)]
    pub(super) at: At,

    /// Print JSON instead of text
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(clap::Args)]
pub(super) struct Filtered {
    #[command(flatten)]
    asked: Asked,

    /// The match of the flows, such as tcp,nw_dst=10.0.0.0/8 [default: all]
    #[arg(default_value = "", hide_default_value = true)]
    text: String,
}

/// Which parts of flows a dump prints.
#[derive(clap::Args)]
pub(super) struct Shown {
    /// Leave out counters and ages, so that two dumps can be compared
    #[arg(long)]
    no_stats: bool,
    /// Also print the entries of the switch itself: for frames that match no flow, and for frames
    /// without a controller
    #[arg(long)]
    hidden: bool,
}

#[derive(clap::Args)]
pub(super) struct OfPort {
    #[command(flatten)]
    asked: Asked,

    #[command(flatten)]
    named: Named,

    /// Only this port: its number or its name [default: all ports]
    port: Option<String>,
}

#[derive(clap::Args)]
pub(super) struct OfGroup {
    #[command(flatten)]
    asked: Asked,

    /// Only this group: its number, or group_id=NUMBER [default: all groups]
    group: Option<String>,
}

#[derive(clap::Args)]
pub(super) struct OfMeter {
    #[command(flatten)]
    asked: Asked,

    /// Only this meter: its number, or meter=NUMBER [default: all meters]
    meter: Option<String>,
}

#[derive(Subcommand)]
pub(super) enum Query {
    /// Print the switch's description and its ports
    #[command(after_help = "Example:\n  flowyard switch show tcp:127.0.0.1:6653")]
    Show(Asked),
    /// Print what the switch says about itself: manufacturer, hardware, software, serial number, name
    #[command(after_help = "Example:\n  flowyard switch dump-desc tcp:127.0.0.1")]
    DumpDesc(Asked),
    /// Print flows: all, or those that a match includes. A note on standard error counts flows that the
    /// version of the connection cannot write
    #[command(after_help = "Example:\n  flowyard switch dump-flows tcp:127.0.0.1 table=0,tcp")]
    DumpFlows {
        #[command(flatten)]
        some: Filtered,
        #[command(flatten)]
        named: Named,
        #[command(flatten)]
        shown: Shown,
    },
    /// Print the total numbers of flows, packets and bytes, of all flows or of those that TEXT includes
    #[command(after_help = "Example:\n  flowyard switch dump-aggregate tcp:127.0.0.1 udp")]
    DumpAggregate(Filtered),
    /// Print the flows in which two switches or files differ; exit with status 1 if there are any
    #[command(
        after_help = "Example:\n  flowyard switch diff-flows saved.txt tcp:127.0.0.1\n\nA line that begins with - is only in the first, one that begins with + only in the second."
    )]
    DiffFlows(compare::Args),
    /// Print all groups, or one
    #[command(
        after_help = "Examples:\n  flowyard switch dump-groups tcp:127.0.0.1\n  flowyard switch dump-groups tcp:127.0.0.1 2"
    )]
    DumpGroups {
        #[command(flatten)]
        of: OfGroup,
        #[command(flatten)]
        named: Named,
    },
    /// Print the counters of all groups, or of one
    #[command(after_help = "Example:\n  flowyard switch dump-group-stats tcp:127.0.0.1")]
    DumpGroupStats(OfGroup),
    /// Print all meters, or one
    #[command(
        after_help = "Examples:\n  flowyard switch dump-meters tcp:127.0.0.1\n  flowyard switch dump-meters tcp:127.0.0.1 1"
    )]
    DumpMeters(OfMeter),
    /// Print the counters of all meters, or of one
    #[command(after_help = "Example:\n  flowyard switch meter-stats tcp:127.0.0.1")]
    MeterStats(OfMeter),
    /// Print the counters of all ports, or of one
    #[command(after_help = "Example:\n  flowyard switch dump-ports tcp:127.0.0.1 west")]
    DumpPorts(OfPort),
    /// Print the description of all ports, or of one
    #[command(after_help = "Example:\n  flowyard switch dump-ports-desc tcp:127.0.0.1 west")]
    DumpPortsDesc {
        #[command(flatten)]
        asked: Asked,
        /// Only this port: its number or its name [default: all ports]
        port: Option<String>,
    },
    /// Print the counters of tables
    #[command(after_help = "Example:\n  flowyard switch dump-tables tcp:127.0.0.1")]
    DumpTables {
        #[command(flatten)]
        asked: Asked,
        /// Also print tables that have no flows and were never looked up
        #[arg(long)]
        all: bool,
    },
    /// Print what mod-table sets: eviction and vacancy events (needs -O 1.4)
    #[command(after_help = "Example:\n  flowyard switch dump-table-desc -O 1.4 tcp:127.0.0.1")]
    DumpTableDesc(Asked),
    /// Print which instructions, actions and fields each table supports
    #[command(
        alias = "table-features",
        after_help = "Example:\n  flowyard switch dump-table-features tcp:127.0.0.1"
    )]
    DumpTableFeatures(Asked),
    /// Print the counters of queues; the switch of flowyard has no queues
    #[command(after_help = "Example:\n  flowyard switch queue-stats tcp:127.0.0.1")]
    QueueStats(OfPort),
    /// Measure how fast the switch answers echo requests
    #[command(after_help = "Example:\n  flowyard switch ping tcp:127.0.0.1 --count 3")]
    Ping {
        #[command(flatten)]
        asked: Asked,
        /// Number of requests
        #[arg(long, value_name = "N", default_value_t = 10)]
        count: u32,
        /// Bytes of data in a request
        #[arg(long, value_name = "N", default_value_t = 56, value_parser = clap::value_parser!(u16).range(..=65_000))]
        bytes: u16,
    },
}

impl Asked {
    fn session<'a>(&'a self, options: &'a Options) -> Session<'a> {
        Session::new(options, &self.at)
    }

    /// Fails if the one that was asked for does not exist.
    fn found(&self, kind: &str, number: Option<u32>, is_missing: bool) -> Result<(), Stop> {
        match number {
            Some(number) if is_missing => {
                Err(Stop::Failed(anyhow!("{}: the switch has no {kind} {number}", self.at.switch)))
            }
            _ => Ok(()),
        }
    }

    /// Prints `document` as JSON, or lines of text.
    fn print<T: Serialize>(
        &self,
        schema: &'static str,
        document: impl FnOnce() -> T,
        lines: impl FnOnce() -> Vec<String>,
    ) -> Result<(), Stop> {
        if self.json {
            return output::json(schema, document());
        }
        lines().iter().try_for_each(|line| say(line))
    }
}

pub(super) fn run(options: &Options, query: &Query) -> Result<(), Stop> {
    match query {
        Query::Show(asked) => show(options, asked),
        Query::DumpDesc(asked) => {
            let desc = description(asked.session(options).client()?)?;
            asked.print(document::DESCRIPTION, || &desc, || desc.iter().map(print::desc).collect())
        }
        Query::DumpFlows { some, named, shown } => flows(options, some, named, shown),
        Query::DumpAggregate(some) => aggregate(options, some),
        Query::DiffFlows(args) => compare::diff(options, args),
        Query::DumpGroups { of, named } => groups(options, of, named),
        Query::DumpGroupStats(of) => {
            let number = of.number()?;
            let request = Request::Group(number.unwrap_or(group::ALL));
            let all = all!(of.asked.session(options).client()?, request, Reply::Group);
            of.asked.found("group", number, all.is_empty())?;
            let document = || document::GroupCounters { groups: each(&all) };
            of.asked.print(document::GROUP_STATS, document, || lines(&all, print::group_stats))
        }
        Query::DumpMeters(of) => {
            let number = of.number()?;
            let request = Request::MeterConfig(number.unwrap_or(group::METER_ALL));
            let all = all!(of.asked.session(options).client()?, request, Reply::MeterConfig);
            of.asked.found("meter", number, all.is_empty())?;
            let document = || document::Meters { meters: each(&all) };
            let line = |meter: &_| format!(" {}", ofctl::meter_text(meter));
            of.asked.print(document::METERS, document, || lines(&all, line))
        }
        Query::MeterStats(of) => {
            let number = of.number()?;
            let request = Request::Meter(number.unwrap_or(group::METER_ALL));
            let all = all!(of.asked.session(options).client()?, request, Reply::Meter);
            of.asked.found("meter", number, all.is_empty())?;
            let document = || document::MeterCounters { meters: each(&all) };
            of.asked.print(document::METER_STATS, document, || lines(&all, print::meter_stats))
        }
        Query::DumpPorts(of) => port_stats(options, of),
        Query::DumpPortsDesc { asked, port } => {
            let mut session = asked.session(options);
            let number = port_number(port.as_ref(), &mut session)?;
            let mut ports = session.ports()?;
            ports.retain(|port| number.is_none_or(|number| number == port.number));
            let document = || document::PortList { ports: each(&ports) };
            asked.print(document::PORTS, document, || lines(&ports, print::port))
        }
        Query::DumpTables { asked, all } => {
            let tables = all!(asked.session(options).client()?, Request::Table, Reply::Table);
            let document = || document::Tables { tables: each(&tables) };
            asked.print(document::TABLES, document, || print::tables(&tables, *all))
        }
        Query::DumpTableDesc(asked) => {
            let all = all!(asked.session(options).client()?, Request::TableDesc, Reply::TableDesc);
            let tables = document::TableSettings { tables: each(&all) };
            asked.print(
                document::TABLE_SETTINGS,
                || &tables,
                || print::table_settings(&tables.tables),
            )
        }
        Query::DumpTableFeatures(asked) => {
            let request = Request::TableFeatures(Vec::new());
            let all = all!(asked.session(options).client()?, request, Reply::TableFeatures);
            let tables = document::Features { tables: each(&all) };
            let lines = || print::table_features(&tables.tables);
            asked.print(document::TABLE_FEATURES, || &tables, lines)
        }
        Query::QueueStats(of) => queue_stats(options, of),
        Query::Ping { asked, count, bytes } => {
            ping(asked.session(options).client()?, asked, *count, usize::from(*bytes))
        }
    }
}

/// The elements of a document.
fn each<'a, T, D: From<&'a T>>(list: &'a [T]) -> Vec<D> {
    list.iter().map(Into::into).collect()
}

/// One line for each element.
fn lines<T>(list: &[T], line: impl Fn(&T) -> String) -> Vec<String> {
    list.iter().map(line).collect()
}

/// The description of the switch.
fn description(client: &mut Client) -> Result<Option<Description>, Stop> {
    let found = bodies(client, Request::Desc)?.into_iter().find_map(|body| match body {
        Reply::Desc(desc) => Some(Description::from(&*desc)),
        _ => None,
    });
    Ok(found)
}

fn show(options: &Options, asked: &Asked) -> Result<(), Stop> {
    let mut session = asked.session(options);
    let ports = session.ports()?;
    let client = session.client()?;
    let description = description(client)?;
    let version = name(client.version());
    for answer in client.ask(&Message::FeaturesRequest).map_err(failed)? {
        let Message::FeaturesReply(features) = answer else { continue };
        let document = document::Show {
            version: version.into(),
            datapath: format!("{:016x}", features.datapath),
            tables: features.tables,
            buffers: features.buffers,
            capabilities: features.capabilities,
            description,
            ports: each(&ports),
        };
        return asked.print(document::SHOW, || &document, || print::show(&document, &ports));
    }
    Ok(())
}

fn flows(options: &Options, some: &Filtered, named: &Named, shown: &Shown) -> Result<(), Stop> {
    let mut session = some.asked.session(options);
    let filter = session.parse(|ports| ofctl::filter_with(&some.text, ports))?;
    if shown.hidden && session.client()?.version() == Version::V10 {
        return Err(bad_input(
            "--hidden: OpenFlow 1.0 has no request for the switch's own entries; use -O 1.3 or -O 1.4",
        ));
    }
    // The switch's own entries have the reserved cookie, and are listed only if it is asked for.
    let own = FlowFilter { cookie: u64::MAX, cookie_mask: u64::MAX, ..filter.clone() };
    let flows = all!(session.client()?, Request::Flow(filter.clone()), Reply::Flow);
    if let Some(missing) = unwritten(session.client()?, filter, flows.len()) {
        let other = other_version(session.client()?);
        output::note(&format!("{missing}; {other} prints those that it can write"));
    }
    let own = match shown.hidden {
        true => all!(session.client()?, Request::Flow(own), Reply::Flow),
        false => Vec::new(),
    };
    let with_counters = !shown.no_stats;
    let print = |names: ofctl::Ports<'_>| {
        let line = |flow: &_| ofctl::flow_text_with(flow, with_counters, names);
        let own_line = |flow: &_| print::own(flow, &line(flow));
        let flow = |flow: &_| document::Flow::of(flow, with_counters, names);
        let own_flow = |flow: &_| document::Flow {
            hidden: true,
            ..document::Flow::of(flow, with_counters, names)
        };
        let document = || document::Flows {
            flows: flows.iter().map(flow).chain(own.iter().map(own_flow)).collect(),
        };
        let text = || [lines(&flows, line), lines(&own, own_line)].concat();
        some.asked.print(document::FLOWS, document, text)
    };
    if named.wanted(some.asked.json) { session.with_names(print)? } else { print(&[]) }
}

fn aggregate(options: &Options, some: &Filtered) -> Result<(), Stop> {
    let mut session = some.asked.session(options);
    let filter = session.parse(|ports| ofctl::filter_with(&some.text, ports))?;
    for body in bodies(session.client()?, Request::Aggregate(filter))? {
        if let Reply::Aggregate { packets, bytes, flows } = body {
            let line = format!("packet_count={packets} byte_count={bytes} flow_count={flows}");
            let document = || document::Aggregate { packets, bytes, flows };
            return some.asked.print(document::AGGREGATE, document, || vec![line]);
        }
    }
    Ok(())
}

impl OfGroup {
    /// The number of the group, if one is named.
    fn number(&self) -> Result<Option<u32>, Stop> {
        let Some(text) = &self.group else { return Ok(None) };
        let read = ofctl::group(text, GroupCommand::Delete).map_err(bad_input)?.group;
        Ok(Some(read).filter(|number| *number != group::ALL))
    }
}

impl OfMeter {
    /// The number of the meter, if one is named.
    fn number(&self) -> Result<Option<u32>, Stop> {
        let Some(text) = &self.meter else { return Ok(None) };
        let read = ofctl::meter(text, MeterCommand::Delete).map_err(bad_input)?.meter;
        Ok(Some(read).filter(|number| *number != group::METER_ALL))
    }
}

fn groups(options: &Options, of: &OfGroup, named: &Named) -> Result<(), Stop> {
    let (asked, number) = (&of.asked, of.number()?);
    let mut session = asked.session(options);
    // OpenFlow has no request for the description of one group.
    let mut groups = all!(session.client()?, Request::GroupDesc, Reply::GroupDesc);
    groups.retain(|desc| number.is_none_or(|number| desc.group == number));
    asked.found("group", number, groups.is_empty())?;
    let print = |names: ofctl::Ports<'_>| {
        let line = |group: &_| format!(" {}", ofctl::group_text_with(group, names));
        let group = |group: &_| document::Group::of(group, names);
        let document = || document::Groups { groups: groups.iter().map(group).collect() };
        asked.print(document::GROUPS, document, || lines(&groups, line))
    };
    if named.wanted(asked.json) { session.with_names(print)? } else { print(&[]) }
}

/// The number of the port, if one is named.
fn port_number(port: Option<&String>, session: &mut Session<'_>) -> Result<Option<u32>, Stop> {
    let Some(text) = port else { return Ok(None) };
    session.parse(|ports| ofctl::port_with(text, ports)).map(Some)
}

fn port_stats(options: &Options, of: &OfPort) -> Result<(), Stop> {
    let mut session = of.asked.session(options);
    let number = port_number(of.port.as_ref(), &mut session)?.unwrap_or(reserved::ANY);
    let all = all!(session.client()?, Request::PortStats(number), Reply::PortStats);
    let print = |names: ofctl::Ports<'_>| {
        let port = |stats: &_| document::PortCounter::of(stats, names);
        let document = || document::PortCounters { ports: all.iter().map(port).collect() };
        of.asked.print(document::PORT_STATS, document, || {
            lines(&all, |one| print::port_stats(one, names))
        })
    };
    if of.asked.json || of.named.wanted(false) { session.with_names(print)? } else { print(&[]) }
}

fn queue_stats(options: &Options, of: &OfPort) -> Result<(), Stop> {
    let mut session = of.asked.session(options);
    let port = port_number(of.port.as_ref(), &mut session)?.unwrap_or(reserved::ANY);
    let request = Request::QueueStats { port, queue: u32::MAX };
    let all = all!(session.client()?, request, Reply::QueueStats);
    let document = || document::Queues { queues: each(&all) };
    let print = |names: ofctl::Ports<'_>| {
        of.asked.print(document::QUEUES, document, || print::queues(&all, names))
    };
    if of.named.wanted(of.asked.json) { session.with_names(print)? } else { print(&[]) }
}

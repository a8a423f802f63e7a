//! The documents of `diff-flows`, `ping`, `monitor` and `snoop`. The last two print one for each message.

use flowyard_openflow::flow::FlowMod;
use flowyard_openflow::multipart::{FlowStats, Update};
use flowyard_openflow::ofctl::{self, Ports};
use flowyard_openflow::oxm::Field;
use flowyard_openflow::port::PortReason;
use flowyard_openflow::{Message, Version};
use schemars::JsonSchema;
use serde::Serialize;

use super::document::{Flow, Port};
use super::passed::passed;
use super::print;

/// The flows in which two switches or files differ.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Differences {
    /// The first switch or file.
    pub(super) first: String,
    /// The second switch or file.
    pub(super) second: String,
    /// By table, priority and match; empty if the flows are equal.
    pub(super) flows: Vec<Difference>,
}

/// A flow that only one side has, or that the sides have with different actions or settings.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Difference {
    /// The table.
    pub(super) table: u8,
    /// The priority.
    pub(super) priority: u16,
    /// The match; empty if it includes every frame.
    pub(super) matching: String,
    /// The flow of the first side in the syntax of `ovs-ofctl`; null if it has none.
    pub(super) first: Option<String>,
    /// The flow of the second side; null if it has none.
    pub(super) second: Option<String>,
}

/// How fast a switch answered echo requests.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Echoes {
    /// The address of the switch.
    pub(super) switch: String,
    /// The bytes of a request, with its header.
    pub(super) bytes: u64,
    /// The time until each answer, in milliseconds.
    pub(super) times_ms: Vec<f64>,
    /// The shortest time; null if nothing was sent.
    pub(super) least_ms: Option<f64>,
    /// The mean; null if nothing was sent.
    pub(super) mean_ms: Option<f64>,
    /// The longest time; null if nothing was sent.
    pub(super) most_ms: Option<f64>,
}

/// A message that the switch sent without a request. Each is a document in a line of its own.
#[derive(Serialize, JsonSchema)]
pub(crate) struct News {
    /// `packet-in`, `flow-removed`, `port-status`, `flow-update`, or the name of another message.
    pub(super) kind: String,
    /// The message as the command prints it without `--json`.
    pub(super) text: String,
    /// The frame of a packet-in; null for other messages.
    pub(super) packet: Option<Packet>,
    /// What a flow-removed or an event of a flow monitor is about; null for other messages.
    pub(super) flow: Option<FlowEvent>,
    /// What a port-status is about; null for other messages.
    pub(super) port: Option<PortEvent>,
}

/// A frame that the switch sent to its controllers.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Packet {
    /// The number of the port where it was received.
    pub(super) in_port: u32,
    /// The name of this port, if it is known.
    pub(super) in_port_name: Option<String>,
    /// Why it was sent, as `no_match`.
    pub(super) reason: String,
    /// The table that sent it.
    pub(super) table: u8,
    /// The cookie of the flow that sent it: 0x and hexadecimal digits.
    pub(super) cookie: String,
    /// The bytes of the frame.
    pub(super) total_bytes: u16,
    /// The bytes that the message has, as hexadecimal digits.
    pub(super) data: String,
}

/// What happened to a flow.
#[derive(Serialize, JsonSchema)]
pub(crate) struct FlowEvent {
    /// `removed` (of a flow-removed), or `initial`, `added`, `deleted`, `modified` (of a flow monitor).
    pub(super) what: String,
    /// Why it was removed, as `idle_timeout`; null for events of a flow monitor.
    pub(super) reason: Option<String>,
    /// The flow. A flow-removed does not contain its actions.
    pub(super) entry: Flow,
}

/// What happened to a port.
#[derive(Serialize, JsonSchema)]
pub(crate) struct PortEvent {
    /// `added`, `deleted` or `modified`.
    pub(super) what: &'static str,
    /// The port.
    pub(super) state: Port,
}

/// The name of a message, which begins its text.
pub(super) fn kind(text: &str) -> String {
    text.split([':', ' ']).next().unwrap_or("").to_owned()
}

impl News {
    /// A message of a connection of this version. `named` are the known ports; the text has their names if
    /// `names` has them.
    pub(super) fn of(
        message: &Message,
        version: Version,
        named: Ports<'_>,
        names: Ports<'_>,
    ) -> Self {
        let text = passed(message, version, names);
        let mut news = Self { kind: kind(&text), text, packet: None, flow: None, port: None };
        match message {
            Message::PacketIn(m) => {
                let in_port = m.matching.exact(Field::InPort).unwrap_or(0) as u32;
                let name = named.iter().find(|(_, number)| *number == in_port);
                news.packet = Some(Packet {
                    in_port,
                    in_port_name: name.map(|(name, _)| (*name).to_owned()),
                    reason: print::snake(&m.reason),
                    table: m.table,
                    cookie: format!("{:#x}", m.cookie),
                    total_bytes: m.total,
                    data: m.data.iter().map(|byte| format!("{byte:02x}")).collect(),
                });
            }
            Message::FlowRemoved(m) => {
                news.flow = Some(FlowEvent {
                    what: "removed".into(),
                    reason: Some(print::snake(&m.reason)),
                    entry: Flow::of(&print::entry(m), true, names),
                });
            }
            Message::PortStatus(m) => {
                let what = match m.reason {
                    PortReason::Add => "added",
                    PortReason::Delete => "deleted",
                    PortReason::Modify => "modified",
                };
                news.port = Some(PortEvent { what, state: Port::from(&m.port) });
            }
            _ => {}
        }
        news
    }

    /// An event of a flow monitor.
    pub(super) fn update(update: &Update, names: Ports<'_>) -> Self {
        let (what, flow) = print::event(update);
        let event = |flow: FlowMod| FlowEvent {
            what: what.to_lowercase(),
            reason: None,
            entry: Flow::of(&stats(flow), false, names),
        };
        Self {
            kind: "flow-update".into(),
            text: print::update(update, names),
            packet: None,
            flow: flow.map(event),
            port: None,
        }
    }
}

/// The flow as a dump has it, without counters.
fn stats(flow: FlowMod) -> FlowStats {
    FlowStats {
        table: flow.table,
        priority: flow.priority,
        idle_timeout: flow.idle_timeout,
        hard_timeout: flow.hard_timeout,
        cookie: flow.cookie,
        matching: flow.matching,
        instructions: flow.instructions,
        ..FlowStats::default()
    }
}

impl Difference {
    /// A flow of which both sides are not equal, each with the names of its ports.
    pub(super) fn of(
        first: Option<&FlowMod>,
        second: Option<&FlowMod>,
        [of_first, of_second]: [Ports<'_>; 2],
    ) -> Option<Self> {
        let (one, names) = match (first, second) {
            (Some(first), _) => (first, of_first),
            (None, Some(second)) => (second, of_second),
            (None, None) => return None,
        };
        Some(Self {
            table: one.table,
            priority: one.priority,
            matching: ofctl::match_text(&one.matching, names),
            first: first.map(|flow| ofctl::flow_mod_text_with(flow, of_first)),
            second: second.map(|flow| ofctl::flow_mod_text_with(flow, of_second)),
        })
    }
}

/// A message that passed between a running instance and a controller. Each is a document in a line of its own.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Passed {
    /// Its number.
    pub(super) number: u64,
    /// Messages before it that were not kept.
    pub(super) missed: u64,
    /// When it passed, in seconds on the clock of the instance.
    pub(super) at_s: f64,
    /// The address of the controller.
    pub(super) connection: String,
    /// Whether the switch sent it; otherwise the controller did.
    pub(super) is_sent: bool,
    /// Its transaction ID; null if its header cannot be read.
    pub(super) xid: Option<u32>,
    /// The name of the message, as `flow-mod`; `unreadable` if it cannot be read.
    pub(super) kind: String,
    /// The message as the command prints it without `--json`.
    pub(super) text: String,
    /// The message as hexadecimal digits.
    pub(super) bytes: String,
}

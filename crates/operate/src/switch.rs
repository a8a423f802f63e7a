//! How a switch handles a frame, and the reason: the answer to `switch_why`; its controllers, and the messages
//! that pass between it and them.
//!
//! Thread-safety: plain functions over a [`Handle`]; any thread may call them.

use std::sync::Arc;
use std::time::Duration;

use flowyard_frame::FlowKey;
use flowyard_openflow::Version;
use flowyard_switch::{SwitchHub, Why, WhyAsked};
use flowyard_yard::Handle;
use flowyard_yard::ask::{Answer, Question};

use crate::openflow::{Connections, Passed, Status, Tap};
use crate::protocol::{
    Controller, Controllers, Snooped, SnoopedMessage, SwitchFlow, SwitchPort, SwitchWhy,
};

/// The answer if the engine does not run a switch.
const NO_SWITCH: &str = "the running configuration is not a switch; write kind = \"switch\" in [work] (see docs/switch.md)";
/// The longest wait for the cores to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The most messages in one answer.
const MOST: usize = 64;

/// The connections of the switch to its controllers.
///
/// # Errors
/// The engine does not run a switch.
pub fn controllers(yard: &Handle) -> Result<Controllers, String> {
    let connections = yard.control_plane::<Connections>().ok_or(NO_SWITCH)?.status();
    let controller = |status: Status| Controller {
        endpoint: status.endpoint,
        peer: status.peer,
        dialed: status.dialed,
        auxiliary: status.auxiliary,
        connected: status.version.is_some(),
        version: status.version.map(|version| {
            let name = match version {
                Version::V10 => "1.0",
                Version::V13 => "1.3",
                Version::V14 => "1.4",
            };
            name.to_owned()
        }),
        ups: status.ups,
        failed_attempts: status.failed,
        received: status.received,
        sent: status.sent,
        dropped_packet_ins: status.dropped,
        error: status.error,
    };
    Ok(Controllers { connections: connections.into_iter().map(controller).collect() })
}

/// What can be done about frames that the work dropped, if the work is a switch. `key` is one of them.
#[must_use]
pub(crate) fn nowhere(yard: &Handle, key: Option<&FlowKey>) -> Option<String> {
    let hub = yard.control_plane::<SwitchHub>()?;
    let fields = key.map_or_else(|| "FIELDS".into(), |key| hub.fields(key));
    Some(format!(
        "the actions of its flow entries output it nowhere: 'flowyard switch why {fields}' shows them"
    ))
}

/// The flow entries that a frame with these fields matches, and how further frames of its flow are
/// handled.
///
/// # Errors
/// The engine does not run a switch, `flow` is not a list of fields, or no core answers.
pub fn why(yard: &Handle, flow: &str) -> Result<SwitchWhy, String> {
    let key = yard.control_plane::<SwitchHub>().ok_or(NO_SWITCH)?.key(flow)?;
    let mut all: Option<SwitchWhy> = None;
    let (mut cached_on_cores, mut answering_cores) = (0, 0);
    let (mut cache_notes, mut in_front) = (Vec::new(), Vec::new());
    let question = Question::Work(Arc::new(WhyAsked(key)));
    for (core, answer) in yard.ask(&question, PATIENCE).into_iter().enumerate() {
        let Some(Answer::Work(Some(answer))) = answer else { continue };
        let Ok(why) = answer.downcast::<Why>() else { continue };
        let why = Why::clone(&why);
        cached_on_cores += u32::from(why.is_known);
        answering_cores += 1;
        in_front.extend(why.ahead.iter().map(|what| format!("core {core}: {what}")));
        cache_notes.extend(why.rest.map(|rest| format!("core {core}: {rest}")));
        match &mut all {
            // All cores have the same flow entries; each counts its offloaded frames.
            Some(all) => {
                for (flow, (_, more)) in all.flows.iter_mut().zip(&why.flows) {
                    flow.offloaded += more;
                }
            }
            None => {
                let answer = why.answer.to_string();
                all = Some(SwitchWhy {
                    flow: flow.into(),
                    outputs: why.outputs,
                    result: why.result,
                    miss_table: why.miss,
                    is_offloaded: why.answer.is_offloaded(),
                    answer,
                    flows: why
                        .flows
                        .into_iter()
                        .map(|(flow, offloaded)| SwitchFlow { flow, offloaded })
                        .collect(),
                    ..SwitchWhy::default()
                });
            }
        }
    }
    let all =
        all.map(|all| SwitchWhy { cached_on_cores, answering_cores, cache_notes, in_front, ..all });
    all.ok_or_else(|| "no core answered; 'flowyard show cores' lists their states".into())
}

/// The messages that passed between a switch and its controllers since the one with number `from`.
///
/// # Errors
/// The engine does not run a switch.
pub fn snoop(yard: &Handle, from: Option<u64>) -> Result<Snooped, String> {
    let (passed, next) = yard.control_plane::<Tap>().ok_or(NO_SWITCH)?.take(from, MOST);
    let message = |passed: Passed| SnoopedMessage {
        number: passed.number,
        at_s: passed.at as f64 / 1e9,
        connection: passed.connection,
        is_sent: passed.is_sent,
        bytes: passed.bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    let hub = yard.control_plane::<SwitchHub>().filter(|_| from.is_none());
    let port = |(number, name): (u32, &str)| SwitchPort { number, name: name.to_owned() };
    let ports = hub.iter().flat_map(|hub| hub.port_names()).map(port).collect();
    Ok(Snooped { messages: passed.into_iter().map(message).collect(), next, ports })
}

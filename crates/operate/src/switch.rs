//! How a switch handles a frame, and the reason: the answer to `switch_why`; and the messages
//! that pass between it and its controllers.
//!
//! Thread-safety: plain functions over a [`Handle`]; any thread may call them.

use std::sync::Arc;
use std::time::Duration;

use flowyard_switch::{SwitchHub, Why, WhyAsked};
use flowyard_yard::Handle;
use flowyard_yard::ask::{Answer, Question};

use crate::openflow::{Passed, Tap};
use crate::protocol::{Snooped, SnoopedMessage, SwitchFlow, SwitchWhy};

/// The longest wait for the cores to answer.
const PATIENCE: Duration = Duration::from_secs(2);

const NONE: &str = "the running configuration is not a switch; write kind = \"switch\" in [work] (see docs/switch.md)";

/// The most messages in one answer.
const MOST: usize = 64;

/// The flow entries that a frame with these fields matches, and how further frames of its flow are
/// handled.
///
/// # Errors
/// The engine does not run a switch, `flow` is not a list of fields, or no core answers.
pub fn why(yard: &Handle, flow: &str) -> Result<SwitchWhy, String> {
    let key = yard.control_plane::<SwitchHub>().ok_or(NONE)?.key(flow)?;
    let mut all: Option<SwitchWhy> = None;
    let (mut cached_on_cores, mut answering_cores, mut cache_notes) = (0, 0, Vec::new());
    let question = Question::Work(Arc::new(WhyAsked(key)));
    for (core, answer) in yard.ask(&question, PATIENCE).into_iter().enumerate() {
        let Some(Answer::Work(Some(answer))) = answer else { continue };
        let Ok(why) = answer.downcast::<Why>() else { continue };
        let why = Why::clone(&why);
        cached_on_cores += u32::from(why.is_known);
        answering_cores += 1;
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
    let all = all.map(|all| SwitchWhy { cached_on_cores, answering_cores, cache_notes, ..all });
    all.ok_or_else(|| "no core answered; 'flowyard show cores' lists their states".into())
}

/// The messages that passed between a switch and its controllers since the one with number `from`.
///
/// # Errors
/// The engine does not run a switch.
pub fn snoop(yard: &Handle, from: Option<u64>) -> Result<Snooped, String> {
    let (passed, next) = yard.control_plane::<Tap>().ok_or(NONE)?.take(from, MOST);
    let message = |passed: Passed| SnoopedMessage {
        number: passed.number,
        at_s: passed.at as f64 / 1e9,
        connection: passed.connection,
        is_sent: passed.is_sent,
        bytes: passed.bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    Ok(Snooped { messages: passed.into_iter().map(message).collect(), next })
}

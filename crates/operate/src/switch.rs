//! A switch, asked: what becomes of a frame, and why.
//!
//! Thread-safety: plain functions over a [`Handle`]; anyone may call them.

use std::sync::Arc;
use std::time::Duration;

use flowyard_switch::{SwitchHub, Why, WhyAsked};
use flowyard_yard::Handle;
use flowyard_yard::ask::{Answer, Question};

use crate::protocol::{SwitchFlow, SwitchWhy};

/// How long cores may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Which flows a frame with these fields meets, and whether what is in front of the tables answers the next.
///
/// # Errors
/// When the yard is no switch, the text no frame's fields, or no core answers.
pub fn why(yard: &Handle, flow: &str) -> Result<SwitchWhy, String> {
    let none = "this yard is no switch; write kind = \"switch\" in [work] (see docs/switch.md)";
    let key = yard.control_plane::<SwitchHub>().ok_or(none)?.key(flow)?;
    let mut all: Option<SwitchWhy> = None;
    let (mut known, mut rests) = ([0; 2], Vec::new());
    let question = Question::Work(Arc::new(WhyAsked(key)));
    for (core, answer) in yard.ask(&question, PATIENCE).into_iter().enumerate() {
        let Some(Answer::Work(Some(answer))) = answer else { continue };
        let Ok(why) = answer.downcast::<Why>() else { continue };
        let why = Why::clone(&why);
        known = [known[0] + u32::from(why.is_known), known[1] + 1];
        rests.extend(why.rest.map(|rest| format!("core {core}: {rest}")));
        match &mut all {
            // Cores have the same flows; what they offloaded is their own.
            Some(all) => {
                for (flow, (_, more)) in all.flows.iter_mut().zip(&why.flows) {
                    flow.offloaded += more;
                }
            }
            None => {
                let answer = why.answer.to_string();
                all = Some(SwitchWhy {
                    flow: flow.into(),
                    miss: why.miss,
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
    let all = all.map(|all| SwitchWhy { known, rests, ..all });
    all.ok_or_else(|| "no core answers; see flowyard show".into())
}

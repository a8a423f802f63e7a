//! Replay: a capture's sizes, flows and times, with the bench's own addresses and tags.
//!
//! The bytes of a capture belong to other networks; what is replayed is its shape: each 5-tuple
//! becomes a flow, each frame keeps its size (at least 64 bytes, so that a tag fits) and its time.

use std::collections::HashMap;
use std::sync::Arc;

use flowyard_flow::parse;
use flowyard_frame::{FlowKey, Nanos};
use flowyard_wire::{Headers, LinkType};
use serde::{Deserialize, Serialize};

use super::{Plan, Step};

/// The plan of a capture: time of the frame, its length on the wire without FCS, and its bytes as
/// far as captured. Times may go back a little, as in captures of several queues: the frame then
/// leaves with the one before. More than 65,536 flows share numbers.
pub fn rewrite<'a>(frames: impl IntoIterator<Item = (Nanos, usize, &'a [u8])>) -> Plan {
    let mut flows: HashMap<FlowKey, u16> = HashMap::new();
    let (mut steps, mut times) = (Vec::new(), Vec::new());
    let (mut first, mut last) = (None, 0);
    for (time, length, bytes) in frames {
        let start = *first.get_or_insert(time);
        last = last.max(time.saturating_sub(start));
        let headers = Headers::parse(LinkType::Ethernet, bytes);
        let key = parse::key(&headers, bytes, 0);
        let number = flows.len() as u16;
        let flow = *flows.entry(key.flow()).or_insert(number);
        steps.push(Step { flow, size: (length + 4).clamp(64, 16_000) as u16, broadcast: false });
        times.push(last);
    }
    // The gap from the end to the beginning of the next round: the mean of all others.
    let gap = last / (times.len() as u64).saturating_sub(1).max(1);
    Plan::timed(steps, times, last + gap.max(1))
}

/// A capture to be replayed. A document has its name and numbers, and not its frames: read from there,
/// it is of no frames.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Capture {
    /// Where it came from.
    pub name: String,
    /// Frames.
    pub frames: u64,
    /// Its length in time.
    pub length_ns: Nanos,
    #[serde(skip)]
    plan: Option<Arc<Plan>>,
}

impl Capture {
    /// The capture `name` that gave `plan`.
    #[must_use]
    pub fn new(name: &str, plan: Plan) -> Self {
        let (frames, length_ns) = (plan.period(), plan.length_ns().unwrap_or_default());
        Self { name: name.into(), frames, length_ns, plan: Some(Arc::new(plan)) }
    }

    pub(super) fn plan(&self) -> Plan {
        self.plan.as_ref().map_or_else(|| Plan::new(Vec::new()), |plan| Plan::clone(plan))
    }

    /// Its flows.
    #[must_use]
    pub fn flows(&self) -> u16 {
        let steps = self.plan.as_ref().map_or(&[][..], |plan| plan.steps());
        steps.iter().map(|step| step.flow).max().unwrap_or_default().saturating_add(1)
    }
}

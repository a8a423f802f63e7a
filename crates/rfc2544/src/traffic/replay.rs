//! Replay of a capture: its frame sizes, flows and times, with the bench's own addresses and tags.
//!
//! The bytes of a capture are not sent, because they belong to other networks. Each 5-tuple becomes
//! a flow; each frame keeps its size (at least 64 bytes, so that a tag fits) and its time.

use std::collections::HashMap;
use std::sync::Arc;

use flowyard_flow::parse;
use flowyard_frame::{FlowKey, Nanos};
use flowyard_wire::{Headers, LinkType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::plan::{Plan, Step};
use crate::line::{Load, OVERHEAD_BYTES};

/// A frame of a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Captured<'a> {
    /// Time stamp.
    pub time: Nanos,
    /// Length on the wire in bytes, without FCS.
    pub wire_len: usize,
    /// The captured bytes.
    pub bytes: &'a [u8],
}

/// The plan of a capture, given as time, length on the wire without FCS, and captured bytes of each
/// frame. A frame whose time is before that of its predecessor, as in captures of several queues,
/// is sent together with the predecessor. Flow numbers wrap around after 65,536 flows.
pub fn rewrite<'a>(frames: impl IntoIterator<Item = Captured<'a>>) -> Plan {
    let mut flows: HashMap<FlowKey, u16> = HashMap::new();
    let (mut steps, mut times) = (Vec::new(), Vec::new());
    let (mut first, mut last) = (None, 0);
    for Captured { time, wire_len, bytes } in frames {
        let start = *first.get_or_insert(time);
        last = last.max(time.saturating_sub(start));
        let headers = Headers::parse(LinkType::Ethernet, bytes);
        let key = parse::key(&headers, bytes, 0);
        let number = flows.len() as u16;
        let flow = *flows.entry(key.flow()).or_insert(number);
        steps.push(Step { flow, size: (wire_len + 4).clamp(64, 16_000) as u16, broadcast: false });
        times.push(last);
    }
    // The gap before the next pass is the mean of all other gaps.
    let gap = last / (times.len() as u64).saturating_sub(1).max(1);
    Plan::timed(steps, times, last + gap.max(1))
}

/// A capture to be replayed. A JSON document contains its name and counts but not its frames; a
/// capture read from a document has no frames.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Capture {
    /// The name of the file.
    pub name: String,
    /// Number of frames.
    pub frames: u64,
    /// Duration of one pass at its own speed.
    pub length_ns: Nanos,
    #[serde(skip)]
    plan: Option<Arc<Plan>>,
}

impl Capture {
    /// The capture `name` with the plan made from it.
    #[must_use]
    pub fn new(name: &str, plan: Plan) -> Self {
        let (frames, length_ns) = (plan.period(), plan.length_ns().unwrap_or_default());
        Self { name: name.into(), frames, length_ns, plan: Some(Arc::new(plan)) }
    }

    pub(super) fn plan(&self) -> Plan {
        self.plan.as_ref().map_or_else(|| Plan::new(Vec::new()), |plan| Plan::clone(plan))
    }

    /// The mean rate of a replay at `speed` hundredths of the capture's own speed.
    #[must_use]
    pub fn mean_load(&self, speed: u64) -> Load {
        let pass_ps = u128::from(self.length_ns) * 1000 * 100 / u128::from(speed.max(1));
        let interval_ps = pass_ps / u128::from(self.frames.max(1));
        Load { interval_ps: u64::try_from(interval_ps).unwrap_or(u64::MAX).max(1) }
    }

    /// The mean rate on the medium of a replay at `speed` hundredths of the capture's own speed, in bit/s. `None` for
    /// a capture that was read from a document.
    #[must_use]
    pub fn mean_bps(&self, speed: u64) -> Option<u64> {
        let plan = self.plan.as_ref()?;
        let bits = u128::from(plan.bytes() + OVERHEAD_BYTES * plan.period()) * 8;
        let ns = u128::from(self.length_ns.max(1)) * 100;
        u64::try_from(bits * u128::from(speed) * 1_000_000_000 / ns).ok()
    }

    /// Number of flows.
    #[must_use]
    pub fn flows(&self) -> u16 {
        let steps = self.plan.as_ref().map_or(&[][..], |plan| plan.steps());
        steps.iter().map(|step| step.flow).max().unwrap_or_default().saturating_add(1)
    }
}

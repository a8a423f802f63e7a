//! The largest flows of each core. Frames are counted only while a request is in progress.

use std::thread;
use std::time::Duration;

use flowyard_flow::learn::elephant::Sampler;
use flowyard_yard::Handle;
use flowyard_yard::ask::{Answer, Question};

use crate::answers::{Gone, PATIENCE};
use crate::protocol::{CoreFlows, FlowState, Flows};

/// One of this many frames is sampled.
const EVERY: u32 = 16;

/// The longest count, in seconds.
pub(crate) const LONGEST: f64 = 60.0;

/// The time between two checks whether the client still waits.
const NAP: Duration = Duration::from_millis(50);

/// Counts the flows that each core works on for `seconds`, or until the client has gone.
pub(crate) fn flows(yard: &Handle, seconds: f64, gone: Gone<'_>) -> Flows {
    let seconds = if seconds.is_finite() { seconds.clamp(0.01, LONGEST) } else { 1.0 };
    let sampler = Box::new(Sampler::new(EVERY, 1, yard.now()));
    let _answers = yard.ask(&Question::Sample(sampler), PATIENCE);
    let mut left = Duration::from_secs_f64(seconds);
    while !left.is_zero() && !gone() {
        let nap = left.min(NAP);
        thread::sleep(nap);
        left -= nap;
    }
    let mut flows = Flows { seconds, ..Flows::default() };
    for (core, answer) in (0..).zip(yard.ask(&Question::Seen, PATIENCE)) {
        let Some(Answer::Seen(seen)) = answer else {
            flows.silent_cores.push(core);
            continue;
        };
        let all = seen.bytes.max(1) as f64;
        let state = |flow: &flowyard_flow::learn::elephant::Flow| FlowState {
            flow: flow.key.to_string(),
            share: f64::from(flow.at_least) / all,
            share_at_most: f64::from(flow.bytes) / all,
            hash: flow.hash,
        };
        flows.cores.push(CoreFlows {
            core,
            frames: seen.frames,
            bytes: seen.bytes,
            flows: seen.flows.iter().map(state).collect(),
        });
    }
    flows
}

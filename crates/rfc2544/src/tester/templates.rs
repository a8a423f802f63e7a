//! Templates: the bytes of each flow and size, built once.

use std::collections::HashMap;

use crate::traffic::{Hosts, Plan, Step};

/// Frames by port, destination, and step.
pub(super) struct Templates {
    hosts: Hosts,
    frames: HashMap<(u8, u8, u16, u16, bool), Vec<u8>>,
}

impl Templates {
    pub(super) fn new(hosts: Hosts) -> Self {
        Self { hosts, frames: HashMap::new() }
    }

    /// The frame of `step` from `from` to `to`, for its tag to be written.
    pub(super) fn get(&mut self, from: u8, to: u8, step: Step) -> &mut [u8] {
        let Step { flow, size, broadcast } = step;
        let hosts = self.hosts;
        self.frames
            .entry((from, to, flow, size, broadcast))
            .or_insert_with(|| frame(hosts, from, to, step))
    }
}

fn frame(hosts: Hosts, from: u8, to: u8, step: Step) -> Vec<u8> {
    let mut frame = hosts.between(from, to, step.flow, step.size.into());
    if step.broadcast
        && let Some(destination) = frame.get_mut(..6)
    {
        destination.fill(0xff);
    }
    frame
}

/// The frames of a port's plan, all built before the first is sent: in real time nothing is looked
/// up by key.
#[derive(Debug)]
pub(crate) struct Prebuilt {
    frames: Vec<Vec<u8>>,
    /// By step of the plan: which frame, and whether it has a tag.
    steps: Vec<(u32, u16, bool)>,
}

impl Prebuilt {
    /// Of `plan`, from port `from` to `routes` in turn.
    pub(crate) fn new(plan: &Plan, hosts: Hosts, from: u8, routes: &[u8]) -> Self {
        let (mut known, mut frames) = (HashMap::new(), Vec::new());
        let steps = plan.steps().iter().map(|&step| {
            let to = routes[usize::from(step.flow) % routes.len().max(1)];
            let number =
                *known.entry((step.flow, step.size, step.broadcast)).or_insert_with(|| {
                    frames.push(frame(hosts, from, to, step));
                    frames.len() as u32 - 1
                });
            (number, step.flow, !step.broadcast)
        });
        let steps = steps.collect();
        Self { frames, steps }
    }

    /// Steps until it repeats.
    pub(crate) const fn period(&self) -> usize {
        self.steps.len()
    }

    /// The frame of step `at`, its flow, and whether it has a tag.
    #[inline]
    pub(crate) fn get(&self, at: usize) -> (&[u8], u16, bool) {
        let (number, flow, is_tagged) = self.steps[at];
        (&self.frames[number as usize], flow, is_tagged)
    }

    /// The longest frame, in bytes without FCS.
    pub(crate) fn longest(&self) -> usize {
        self.frames.iter().map(Vec::len).max().unwrap_or_default()
    }
}

//! Frame templates: the bytes for each flow and size, built once.

use std::collections::HashMap;

use crate::traffic::{Hosts, Plan, Step};

/// Templates by source port, destination port and step.
pub(super) struct Templates {
    hosts: Hosts,
    frames: HashMap<(u8, u8, Step), Vec<u8>>,
}

impl Templates {
    pub(super) fn new(hosts: Hosts) -> Self {
        Self { hosts, frames: HashMap::new() }
    }

    /// The frame of `step` from port `from` to port `to`; the caller writes the tag.
    pub(super) fn get(&mut self, from: u8, to: u8, step: Step) -> &mut [u8] {
        let hosts = self.hosts;
        self.frames.entry((from, to, step)).or_insert_with(|| frame(hosts, from, to, step))
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

/// A step of the plan whose frame is built.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prepared {
    /// Number of the frame in [`Prebuilt`].
    number: u32,
    pub(crate) flow: u16,
    pub(crate) is_tagged: bool,
}

/// All frames of a port's plan, built before the first one is sent, so that sending needs no hash
/// lookup.
#[derive(Debug)]
pub(crate) struct Prebuilt {
    frames: Vec<Vec<u8>>,
    steps: Vec<Prepared>,
}

impl Prebuilt {
    /// The frames of `plan` from port `from` to the ports `routes` in rotation.
    pub(crate) fn new(plan: &Plan, hosts: Hosts, from: u8, routes: &[u8]) -> Self {
        let (mut known, mut frames) = (HashMap::new(), Vec::new());
        let steps = plan.steps().iter().map(|&step| {
            let to = routes[usize::from(step.flow) % routes.len().max(1)];
            let number = *known.entry(step).or_insert_with(|| {
                frames.push(frame(hosts, from, to, step));
                frames.len() as u32 - 1
            });
            Prepared { number, flow: step.flow, is_tagged: !step.broadcast }
        });
        let steps = steps.collect();
        Self { frames, steps }
    }

    /// Number of steps before the plan repeats.
    pub(crate) const fn period(&self) -> usize {
        self.steps.len()
    }

    /// Step `at` of the plan.
    #[inline]
    pub(crate) fn step(&self, at: usize) -> Prepared {
        self.steps[at]
    }

    /// The bytes of a step's frame.
    #[inline]
    pub(crate) fn bytes(&self, step: Prepared) -> &[u8] {
        &self.frames[step.number as usize]
    }

    /// Length of the longest frame in bytes without FCS.
    pub(crate) fn longest(&self) -> usize {
        self.frames.iter().map(Vec::len).max().unwrap_or_default()
    }
}

//! The trail of every flow under every policy: its last core, and when its last frame is done there.
//!
//! ```text
//!  flow 0: [policy 0][policy 1][policy 2]   flow 1: [policy 0][policy 1][policy 2]   ...
//! ```
//!
//! The trails of one flow under all policies are adjacent. They are needed one after the other for
//! the same burst, so the memory is fetched only once; [`Trails::warm`] fetches it for the whole
//! burst.

use flowyard_frame::Nanos;

use crate::flows::FlowId;

/// The state of one flow under one policy.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trail {
    /// The time at which all frames of the flow so far are done.
    done: Nanos,
    /// Bytes since the flow last changed its core.
    pub(crate) bytes_here: u64,
    /// The core of the last frame plus 1; 0 before the first frame.
    core: u16,
    /// The number of times the flow changed its core; saturates at the largest value.
    pub(crate) moves: u16,
}

/// The effect of a frame on the trail of its flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Step {
    /// The frame went to another core than the one before it.
    pub(crate) moved: bool,
    /// The frame would be done before an earlier frame of its flow.
    pub(crate) overtakes: bool,
}

impl Trail {
    /// The core of the last frame; `None` before the first frame.
    pub(crate) fn core(&self) -> Option<u16> {
        self.core.checked_sub(1)
    }

    /// Records a frame of `wire_len` bytes on `core`, which is done with it at `done`.
    #[inline]
    pub(crate) fn step(&mut self, core: u16, wire_len: u32, done: Nanos) -> Step {
        let moved = self.core != core + 1 && self.core != 0;
        if self.core != core + 1 {
            self.moves = self.moves.saturating_add(u16::from(moved));
            self.bytes_here = 0;
            self.core = core + 1;
        }
        self.bytes_here += u64::from(wire_len);
        let overtakes = done < self.done;
        self.done = self.done.max(done);
        Step { moved, overtakes }
    }
}

/// The trails of all flows under all policies.
#[derive(Debug)]
pub(crate) struct Trails {
    policies: usize,
    trails: Vec<Trail>,
}

impl Trails {
    pub(crate) const fn new(policies: usize) -> Self {
        Self { policies, trails: Vec::new() }
    }

    /// Memory per flow in bytes.
    pub(crate) const fn bytes_per_flow(&self) -> usize {
        self.policies * size_of::<Trail>()
    }

    /// Allocates trails for all flows below `flows`, and fetches the trails of `ids` into the cache.
    #[inline]
    pub(crate) fn warm(&mut self, flows: usize, ids: impl Iterator<Item = FlowId>) {
        if self.trails.len() < flows * self.policies {
            self.trails.resize(flows.next_power_of_two() * self.policies, Trail::default());
        }
        // The loads are independent, so their misses overlap. The sum prevents the compiler from
        // removing them.
        let sum = ids.fold(0, |sum, id| sum ^ self.trails[id as usize * self.policies].done);
        std::hint::black_box(sum);
    }

    /// The trail of `flow` under policy number `policy`.
    #[inline]
    pub(crate) fn of(&mut self, flow: FlowId, policy: usize) -> &mut Trail {
        &mut self.trails[flow as usize * self.policies + policy]
    }

    /// The trail of `flow` for reading; `None` for a flow without an allocated trail.
    pub(crate) fn get(&self, flow: FlowId, policy: usize) -> Option<&Trail> {
        self.trails.get(flow as usize * self.policies + policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_done_before_an_earlier_one_overtakes() {
        let mut trails = Trails::new(2);
        trails.warm(6, [5].into_iter());
        let trail = trails.of(5, 1);
        let steps = [(0, 1000), (1, 500), (1, 900), (1, 1100)]
            .map(|(core, done)| trail.step(core, 100, done));
        let step = |moved, overtakes| Step { moved, overtakes };
        assert_eq!(
            steps,
            [step(false, false), step(true, true), step(false, true), step(false, false)]
        );
        assert_eq!((trail.core(), trail.moves, trail.bytes_here), (Some(1), 1, 300));
        assert_eq!(trails.get(5, 0).unwrap().core(), None);
        assert!(trails.get(1000, 0).is_none());
    }
}

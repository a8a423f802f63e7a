//! What every policy remembers of every flow: where it went last, and when that will be done.
//!
//! ```text
//!  flow 0: [policy 0][policy 1][policy 2]   flow 1: [policy 0][policy 1][policy 2]   ...
//! ```
//!
//! All policies' trails of one flow stand together: they are needed one after the other for the
//! same burst, so the memory is fetched once, and [`Trails::warm`] fetches it for the whole burst
//! at a time.

use flowyard_frame::Nanos;

use crate::flows::FlowId;

/// What one policy remembers of one flow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trail {
    /// When the last of its frames so far is done.
    done: Nanos,
    /// Bytes since it last changed cores.
    pub(crate) bytes_here: u64,
    /// The core it was last on, plus 1; 0 before its first frame.
    core: u16,
    /// How often it changed cores; stays at its largest value.
    pub(crate) moves: u16,
}

/// What a frame did to its flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Step {
    /// It went to another core than the frame before it.
    pub(crate) moved: bool,
    /// It would be done before an earlier frame of its flow.
    pub(crate) overtakes: bool,
}

impl Trail {
    /// The core it was last on; `None` before its first frame.
    pub(crate) fn core(&self) -> Option<u16> {
        self.core.checked_sub(1)
    }

    /// A frame of `wire_len` bytes goes to `core`, which will be done with it at `done`.
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

    /// Bytes that one flow takes.
    pub(crate) const fn bytes_per_flow(&self) -> usize {
        self.policies * size_of::<Trail>()
    }

    /// Makes room for flows below `flows` and fetches the trails of `ids` into the cache.
    #[inline]
    pub(crate) fn warm(&mut self, flows: usize, ids: impl Iterator<Item = FlowId>) {
        if self.trails.len() < flows * self.policies {
            self.trails.resize(flows.next_power_of_two() * self.policies, Trail::default());
        }
        // Independent loads, so their misses overlap. The sum only keeps them from being dropped.
        let sum = ids.fold(0, |sum, id| sum ^ self.trails[id as usize * self.policies].done);
        std::hint::black_box(sum);
    }

    /// The trail of `flow` under policy number `policy`.
    #[inline]
    pub(crate) fn of(&mut self, flow: FlowId, policy: usize) -> &mut Trail {
        &mut self.trails[flow as usize * self.policies + policy]
    }

    /// As [`Trails::of`], to read; `None` for a flow that never had room made.
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

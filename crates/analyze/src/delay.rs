//! The queue-delay model: when each core would have finished each frame.
//!
//! Every core is a first-in, first-out server with a fixed cost per frame and an additional fixed
//! delay that the user can set. This is sufficient to determine which frames *could* overtake: a
//! frame overtakes if its core is done with it before another core is done with an earlier frame of
//! the same flow. Times saturate at the end of [`Nanos`] (the year 2554), which broken clocks reach.
//!
//! ```text
//!   arrival ---> [delay of the core] ---> wait for the frames before ---> service ---> done
//! ```
//!
//! Head and tail are the free-running counters of Linux's per-CPU backlog (`input_queue_head`,
//! `input_queue_tail`): frames done and frames taken. Both are computed; no frame is queued.

use flowyard_frame::Nanos;

/// The parameters of the queue-delay model, in nanoseconds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delays {
    /// Time that a core takes for one frame.
    pub service: Nanos,
    /// Time that the interrupted core takes to pass a frame to another core (RPS and RFS only).
    pub dispatch: Nanos,
    /// Additional delay before a core starts a frame, by core; cores beyond the list have none.
    pub extra: Vec<Nanos>,
}

impl Default for Delays {
    /// One microsecond per frame and 200 ns to pass it on: about one million packets per second and
    /// core.
    fn default() -> Self {
        Self { service: 1_000, dispatch: 200, extra: Vec::new() }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Core {
    /// The time at which the core is idle again.
    free_at: Nanos,
    /// Frames taken so far.
    tail: u64,
    /// Additional delay of this core.
    extra: Nanos,
}

/// The cores of one policy.
#[derive(Clone, Debug)]
pub(crate) struct Cores {
    service: Nanos,
    dispatch: Nanos,
    cores: Vec<Core>,
    /// The time at which the interrupt stage of each core is idle again, for policies that pass frames
    /// to other cores.
    dispatchers: Vec<Nanos>,
    /// The core that each queue interrupts; queues behind the end interrupt cores in turn.
    of_queue: Vec<u16>,
}

impl Cores {
    pub(crate) fn new(cores: u16, delays: &Delays) -> Self {
        let core = |n: usize| Core { extra: *delays.extra.get(n).unwrap_or(&0), ..Core::default() };
        Self {
            service: delays.service,
            dispatch: delays.dispatch,
            cores: (0..cores as usize).map(core).collect(),
            dispatchers: vec![0; cores as usize],
            of_queue: Vec::new(),
        }
    }

    /// These cores, with the core that each queue interrupts.
    pub(crate) fn with_queues(self, of_queue: Vec<u16>) -> Self {
        Self { of_queue, ..self }
    }

    /// The core that `queue` interrupts.
    #[inline]
    pub(crate) fn of_queue(&self, queue: u16) -> u16 {
        match self.of_queue.get(queue as usize) {
            Some(core) => *core,
            None => queue % self.cores.len() as u16,
        }
    }

    /// Whether `core` exists.
    pub(crate) fn has(&self, core: u16) -> bool {
        (core as usize) < self.cores.len()
    }

    /// `core` takes a frame at `now`. Returns the time at which it is done with the frame.
    #[inline]
    pub(crate) fn take(&mut self, core: u16, now: Nanos) -> Nanos {
        let core = &mut self.cores[core as usize];
        core.free_at =
            core.free_at.max(now.saturating_add(core.extra)).saturating_add(self.service);
        core.tail += 1;
        core.free_at
    }

    /// The interrupted core passes a frame to another core. Returns the time at which it has done so.
    #[inline]
    pub(crate) fn dispatch(&mut self, core: u16, now: Nanos) -> Nanos {
        let free_at = &mut self.dispatchers[core as usize];
        *free_at = (*free_at).max(now).saturating_add(self.dispatch);
        *free_at
    }

    /// Frames that `core` has taken so far.
    #[inline]
    pub(crate) fn tail(&self, core: u16) -> u64 {
        self.cores[core as usize].tail
    }

    /// Frames that `core` has finished by `now`. This is a lower bound: the time that a core waits
    /// before it starts counts as unfinished frames.
    #[inline]
    pub(crate) fn head(&self, core: u16, now: Nanos) -> u64 {
        let core = &self.cores[core as usize];
        let left = core.free_at.saturating_sub(now).div_ceil(self.service.max(1));
        core.tail.saturating_sub(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(service: Nanos, extra: Vec<Nanos>) -> Delays {
        Delays { service, dispatch: 10, extra }
    }

    #[test]
    fn queues_interrupt_the_cores_that_are_named_or_all_in_turn() {
        let cores = Cores::new(2, &delays(100, vec![]));
        assert_eq!([0, 1, 2].map(|queue| cores.of_queue(queue)), [0, 1, 0]);
        let cores = cores.with_queues(vec![1, 1]);
        assert_eq!([0, 1, 2].map(|queue| cores.of_queue(queue)), [1, 1, 0]);
    }

    #[test]
    fn a_core_is_a_queue() {
        let mut cores = Cores::new(2, &delays(100, vec![0, 1000]));
        assert_eq!(cores.take(0, 0), 100);
        assert_eq!(cores.take(0, 0), 200);
        assert_eq!(cores.take(0, 500), 600);
        assert_eq!(cores.take(1, 0), 1100);
    }

    #[test]
    fn heads_advance_with_the_clock() {
        let mut cores = Cores::new(1, &delays(100, vec![]));
        for _ in 0..5 {
            cores.take(0, 0);
        }
        assert_eq!(cores.tail(0), 5);
        let heads: Vec<_> = [0, 99, 100, 450, 500, 900].map(|now| cores.head(0, now)).into();
        assert_eq!(heads, [0, 0, 1, 4, 5, 5]);
    }

    #[test]
    fn dispatch_is_in_order() {
        let mut cores = Cores::new(1, &delays(100, vec![]));
        assert_eq!(
            (cores.dispatch(0, 0), cores.dispatch(0, 0), cores.dispatch(0, 50)),
            (10, 20, 60)
        );
    }
}

//! Burn: keeps a core busy for a set time with each frame, then forwards it. For experiments.

use flowyard_frame::{Batch, Nanos};

use super::{Forward, Work, todo};
use crate::Clock;
use crate::pool::Pool;

/// Work of a set cost.
#[derive(Clone)]
pub struct Burn {
    cost_ns: Nanos,
    /// The real clock, to spin by; without one the cost is charged to the virtual clock.
    clock: Option<Clock>,
    then: Forward,
}

impl Burn {
    /// Spends `cost_ns` nanoseconds on each frame: by spinning until `clock` says that they are
    /// over or, without a clock, by being done so much later.
    #[must_use]
    pub const fn new(cost_ns: Nanos, clock: Option<Clock>, then: Forward) -> Self {
        Self { cost_ns, clock, then }
    }
}

impl Work for Burn {
    fn work(&mut self, batch: &mut Batch, pool: &Pool, now: Nanos) -> Nanos {
        let cost = self.cost_ns.saturating_mul(todo(batch).count() as u64);
        let done = self.then.work(batch, pool, now);
        match &self.clock {
            None => done.saturating_add(cost),
            Some(clock) => {
                let start = clock();
                while clock().saturating_sub(start) < cost {
                    std::hint::spin_loop();
                }
                done
            }
        }
    }
}

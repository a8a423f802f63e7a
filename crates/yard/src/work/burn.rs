//! Burn: keeps a core busy for a set time with each frame, besides other work. For experiments.

use flowyard_frame::{Batch, Nanos};
use flowyard_switch::Datapath;

use super::{Work, todo};
use crate::Clock;
use crate::mail::Changes;
use crate::pool::Pool;

/// Work of a set cost.
pub struct Burn {
    cost_ns: Nanos,
    /// The real clock, to spin by; without one the cost is charged to the virtual clock.
    clock: Option<Clock>,
    then: Box<dyn Work>,
}

impl Burn {
    /// Spends `cost_ns` nanoseconds on each frame that `then` works on: by spinning until `clock` says that they are
    /// over or, without a clock, by being done so much later.
    #[must_use]
    pub fn new(cost_ns: Nanos, clock: Option<Clock>, then: Box<dyn Work>) -> Self {
        Self { cost_ns, clock, then }
    }
}

/// What it does in front of a queue is left out: every frame is to take its time.
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

    fn change(&mut self, changes: &Changes, now: Nanos, send: &mut dyn FnMut(u16, &[u8])) {
        self.then.change(changes, now, send);
    }

    fn switch(&self) -> Option<&Datapath> {
        self.then.switch()
    }

    fn speak(&mut self, now: Nanos, send: &mut dyn FnMut(u16, &[u8]) -> bool) -> u32 {
        self.then.speak(now, send)
    }
}

//! Burn: work that also keeps a core busy for a configured time with each frame. For experiments.

use flowyard_frame::Nanos;
use flowyard_yard::Clock;
use flowyard_yard::work::{Around, Work, todo};

/// Spends `cost_ns` nanoseconds on each frame that `then` works on. With a clock it spins until the
/// clock has advanced by this time; without one it reports the batch as completed later. No frame
/// is answered before the queues, so that every frame takes its time.
#[must_use]
pub fn burn(cost_ns: Nanos, clock: Option<Clock>, then: Box<dyn Work>) -> Box<dyn Work> {
    let burn = Around::new(then, move |work, batch, pool, now| {
        let cost = cost_ns.saturating_mul(todo(batch).count() as u64);
        let done = work.work(batch, pool, now);
        let Some(clock) = &clock else { return done.saturating_add(cost) };
        let start = clock();
        while clock().saturating_sub(start) < cost {
            std::hint::spin_loop();
        }
        done
    });
    Box::new(burn.without_front())
}

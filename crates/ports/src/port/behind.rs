//! What is done with received frames behind a port of any kind.
//!
//! ```text
//!  port ──rx──> batch ──Step: verify checksums, coalesce──> batch
//! ```
//!
//! Thread-safety: used by one core.

use flowyard_frame::{Batch, Nanos};
use flowyard_pool::Pool;
use flowyard_yard::port::{Descriptors, Received, Rx};

/// What is done with each received batch.
pub trait Step: Send {
    /// Changes the received frames of `batch`, and adds what it did to `got`.
    fn step(&mut self, batch: &mut Batch, pool: &mut Pool, got: &mut Received);
}

/// The receiving half of a port with a [`Step`] behind it; everything else is the port's.
pub struct Behind<S> {
    inner: Box<dyn Rx>,
    step: S,
}

impl<S: Step> Behind<S> {
    /// Does `step` with what `inner` receives.
    #[must_use]
    pub fn new(inner: Box<dyn Rx>, step: S) -> Self {
        Self { inner, step }
    }
}

impl<S: Step> Rx for Behind<S> {
    fn rx(&mut self, into: &mut Batch, pool: &mut Pool, now: Nanos) -> Received {
        let mut got = self.inner.rx(into, pool, now);
        self.step.step(into, pool, &mut got);
        got
    }

    fn attend(&mut self) {
        self.inner.attend();
    }

    fn close(&mut self, pool: &mut Pool) {
        self.inner.close(pool);
    }

    fn remarks(&self) -> Vec<String> {
        self.inner.remarks()
    }

    fn failure(&self) -> Option<String> {
        self.inner.failure()
    }

    fn descriptors(&mut self) -> Option<Descriptors> {
        self.inner.descriptors()
    }

    fn pause(&mut self, paused: bool) {
        self.inner.pause(paused);
    }

    fn position(&mut self) -> Option<Vec<u64>> {
        self.inner.position()
    }

    fn go_on(&mut self, position: &[u64], pool: &mut Pool) -> bool {
        self.inner.go_on(position, pool)
    }
}

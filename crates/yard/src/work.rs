//! Work: what the engine is for. It sees each frame once, on one core, and decides where it leaves.
//!
//! ```text
//!  dequeue ──> Work::work ──> each lane's action: a port, a list of ports, or a drop
//!  received ─> Work::front ─> lanes that the work answers before they enter a queue
//!  control plane ──> Work::control, Work::ask      between two batches
//! ```
//!
//! The engine knows no kind of work: `flowyard-works`, `flowyard-lb` and `flowyard-switch` implement
//! [`Work`]. The half of a work that is not on a core, such as the services of a balancer, is its
//! [`crate::ControlPlane`].
//!
//! Thread-safety: each core has a work of its own; works arrange what they share.

use std::any::Any;
use std::sync::Arc;

use flowyard_frame::{Action, Batch, FlowKey, Lanes, Nanos, To};
use flowyard_pool::Pool;

/// What a control plane sends to the works of all cores: a type of the work's own.
pub type ControlMessage = Arc<dyn Any + Send + Sync>;

/// What a work answers: a type of the work's own.
pub type WorkAnswer = Arc<dyn Any + Send + Sync>;

/// What is done with frames.
///
/// Implementations that wrap another work use [`Around`], which forwards every method.
pub trait Work: Send {
    /// Does the work on every lane whose action is a queue (a port is a table's answer, which
    /// stands; see [`todo()`]): changes bytes as it likes, and sets each lane's action to a port, a
    /// list of ports that get a copy each ([`crate::Places::lists`]), or a drop (with a
    /// [`crate::DropReason`]'s code as counter). Returns the time from which on the batch is done:
    /// `now`, unless the clock is a virtual one and the work takes time under it.
    fn work(&mut self, batch: &mut Batch, pool: &Pool, now: Nanos) -> Nanos;

    /// Answers frames before they enter a queue, as if it had worked on them: those of `lanes` that
    /// it knows get an action to a port, the others keep theirs. Lanes are of frames that one port
    /// received and that [`flowyard_flow::parse::fast`] parsed. Returns the lanes that it answered.
    fn front(&mut self, _batch: &mut Batch, _lanes: Lanes, _now: Nanos) -> Lanes {
        Lanes::NONE
    }

    /// Sends frames of the work's own, such as neighbour solicitations: `send` takes a port and the
    /// bytes of a frame, and returns whether the frame could leave. Called once a tick; returns how
    /// many frames left, or another number above 0 if the work has something to do in the next tick.
    fn speak(&mut self, _now: Nanos, _send: &mut dyn FnMut(u16, &[u8]) -> bool) -> u32 {
        0
    }

    /// Applies a message of its control plane, between two batches. Frames that this makes leave by
    /// `send`, with the port's number.
    fn control(
        &mut self,
        _message: &ControlMessage,
        _now: Nanos,
        _send: &mut dyn FnMut(u16, &[u8]),
    ) {
    }

    /// Answers a question of a type of its own; `None` if it does not know the type.
    fn ask(&self, _question: &(dyn Any + Send + Sync)) -> Option<WorkAnswer> {
        None
    }

    /// Its state, for a process that takes over, in a format of its own; `None` if it cannot be handed over.
    fn hand_over(&self, _now: Nanos) -> Option<Vec<u8>> {
        None
    }

    /// Continues with the state of another process, before the engine is started.
    ///
    /// # Errors
    /// The state is not one of this work, or does not fit its configuration.
    fn go_on(&mut self, _state: &[u8], _now: Nanos) -> Result<(), String> {
        Err("the state of this work cannot be taken over from another process".into())
    }

    /// The table with which it answers in [`Work::front`], with at most `most` entries listed.
    fn table(&self, _most: usize) -> Option<WorkTable> {
        None
    }
}

/// The table of a work that answers in front of the queues.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct WorkTable {
    /// The name in reports.
    pub name: &'static str,
    /// How many entries it has.
    pub entries: usize,
    /// How many it can have.
    pub capacity: usize,
    /// Frames that it answered.
    pub hits: u64,
    /// Entries in no order, not all of them if there are more than were asked for.
    pub listed: Vec<(FlowKey, Action)>,
}

/// What is done instead of [`Work::work`], with the wrapped work as first argument.
pub type AroundFn = dyn FnMut(&mut dyn Work, &mut Batch, &Pool, Nanos) -> Nanos + Send;

/// The one wrapper of works: replaces `work`, and forwards every other method.
pub struct Around {
    inner: Box<dyn Work>,
    around: Box<AroundFn>,
    keeps_front: bool,
}

impl Around {
    /// Does `around` in place of the work of `inner`.
    pub fn new(
        inner: Box<dyn Work>,
        around: impl FnMut(&mut dyn Work, &mut Batch, &Pool, Nanos) -> Nanos + Send + 'static,
    ) -> Self {
        Self { inner, around: Box::new(around), keeps_front: true }
    }

    /// Answers nothing in front of the queues, so that every frame passes through `around`.
    #[must_use]
    pub fn without_front(mut self) -> Self {
        self.keeps_front = false;
        self
    }
}

impl Work for Around {
    fn work(&mut self, batch: &mut Batch, pool: &Pool, now: Nanos) -> Nanos {
        (self.around)(&mut *self.inner, batch, pool, now)
    }

    fn front(&mut self, batch: &mut Batch, lanes: Lanes, now: Nanos) -> Lanes {
        if self.keeps_front { self.inner.front(batch, lanes, now) } else { Lanes::NONE }
    }

    fn speak(&mut self, now: Nanos, send: &mut dyn FnMut(u16, &[u8]) -> bool) -> u32 {
        self.inner.speak(now, send)
    }

    fn control(&mut self, message: &ControlMessage, now: Nanos, send: &mut dyn FnMut(u16, &[u8])) {
        self.inner.control(message, now, send);
    }

    fn ask(&self, question: &(dyn Any + Send + Sync)) -> Option<WorkAnswer> {
        self.inner.ask(question)
    }

    fn hand_over(&self, now: Nanos) -> Option<Vec<u8>> {
        self.inner.hand_over(now)
    }

    fn go_on(&mut self, state: &[u8], now: Nanos) -> Result<(), String> {
        self.inner.go_on(state, now)
    }

    fn table(&self, most: usize) -> Option<WorkTable> {
        self.inner.table(most).filter(|_| self.keeps_front)
    }
}

/// The lanes that want work: those whose action is a queue.
#[must_use]
#[inline]
pub fn todo(batch: &Batch) -> Lanes {
    let mut lanes = Lanes::NONE;
    for (lane, action) in batch.actions.iter().take(batch.len()).enumerate() {
        lanes.0 |= u32::from(matches!(action.to, To::Queue(_))) << lane;
    }
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the calls of each method.
    #[derive(Default)]
    struct Counted(Arc<std::sync::Mutex<Vec<&'static str>>>);

    impl Counted {
        fn note(&self, what: &'static str) {
            self.0.lock().unwrap().push(what);
        }
    }

    impl Work for Counted {
        fn work(&mut self, _batch: &mut Batch, _pool: &Pool, now: Nanos) -> Nanos {
            self.note("work");
            now + 1
        }

        fn front(&mut self, _batch: &mut Batch, lanes: Lanes, _now: Nanos) -> Lanes {
            self.note("front");
            lanes
        }

        fn speak(&mut self, _now: Nanos, send: &mut dyn FnMut(u16, &[u8]) -> bool) -> u32 {
            self.note("speak");
            u32::from(send(3, &[]))
        }

        fn control(
            &mut self,
            _message: &ControlMessage,
            _now: Nanos,
            send: &mut dyn FnMut(u16, &[u8]),
        ) {
            self.note("control");
            send(4, &[]);
        }

        fn ask(&self, _question: &(dyn Any + Send + Sync)) -> Option<WorkAnswer> {
            self.note("ask");
            Some(Arc::new(5_u8))
        }

        fn hand_over(&self, _now: Nanos) -> Option<Vec<u8>> {
            self.note("hand_over");
            Some(vec![7])
        }

        fn go_on(&mut self, _state: &[u8], _now: Nanos) -> Result<(), String> {
            self.note("go_on");
            Ok(())
        }

        fn table(&self, _most: usize) -> Option<WorkTable> {
            self.note("table");
            Some(WorkTable::default())
        }
    }

    #[test]
    fn around_forwards_every_method() {
        let calls = Counted::default();
        let seen = Arc::clone(&calls.0);
        let mut work = Around::new(Box::new(calls), |inner, batch, pool, now| {
            inner.work(batch, pool, now) + 10
        });
        let (mut batch, pool) = (Batch::default(), Pool::new(1, 64));
        assert_eq!(work.work(&mut batch, &pool, 0), 11);
        assert_eq!(work.front(&mut batch, Lanes(5), 0), Lanes(5));
        assert_eq!(work.speak(0, &mut |port, _| port == 3), 1);
        let mut ports = Vec::new();
        work.control(&(Arc::new(()) as ControlMessage), 0, &mut |port, _| ports.push(port));
        assert_eq!(ports, [4]);
        assert_eq!(work.ask(&()).unwrap().downcast_ref::<u8>(), Some(&5));
        assert_eq!(work.hand_over(0), Some(vec![7]));
        assert_eq!(work.go_on(&[7], 0), Ok(()));
        assert!(work.table(1).is_some());
        let all = ["work", "front", "speak", "control", "ask", "hand_over", "go_on", "table"];
        assert_eq!(*seen.lock().unwrap(), all);

        let mut work = work.without_front();
        assert_eq!(work.front(&mut batch, Lanes(5), 0), Lanes::NONE);
        assert!(work.table(1).is_none());
    }
}

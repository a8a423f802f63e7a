//! Room for the messages that wait for the agent: a limit in bytes for each connection, and one for all.
//!
//! A connection that finds no room keeps its messages and is not read, so its controller's TCP waits. It still sends,
//! because the agent may wait for that. A connection of which nothing waits always finds room: the others cannot lock
//! it out.
//!
//! Invariants: at most [`ALL`] bytes wait, and one message of each connection besides.
//! Thread-safety: connections' threads take room, the agent's thread gives it back.

use std::sync::{Arc, Mutex};

use super::outbox::Outbox;
use super::sync::lock;

/// The bytes of messages of one connection that wait for the agent.
const EACH: usize = 2 << 20;
/// Those of all connections.
const ALL: usize = 16 << 20;

/// The bytes of all connections that wait.
#[derive(Debug, Default)]
pub(super) struct Gate(Mutex<usize>);

/// The room that a message takes, until it is dropped.
#[derive(Debug)]
pub(super) struct Ticket {
    gate: Arc<Gate>,
    outbox: Arc<Outbox>,
    /// What the message takes.
    pub(super) bytes: usize,
}

impl Gate {
    /// Takes room, if there is enough. Otherwise the connection is woken when some of its own is free again.
    pub(super) fn enter(self: &Arc<Self>, outbox: &Arc<Outbox>, bytes: usize) -> Option<Ticket> {
        let mut all = lock(&self.0);
        let own = outbox.queued();
        if own > 0 && (own + bytes > EACH || *all + bytes > ALL) {
            outbox.wants_room();
            return None;
        }
        *all += bytes;
        outbox.queue(bytes);
        drop(all);
        Some(Ticket { gate: Arc::clone(self), outbox: Arc::clone(outbox), bytes })
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut all = lock(&self.gate.0);
        *all -= self.bytes;
        self.outbox.unqueue(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_waits_for_room_and_the_others_do_not() {
        let gate = Arc::new(Gate::default());
        let outbox = || Arc::new(Outbox::new().expect("an event"));
        let (one, other) = (outbox(), outbox());
        let first = gate.enter(&one, EACH).expect("room");
        let second = gate.enter(&other, ALL).expect("room for one message in any case");
        assert!(gate.enter(&one, 1).is_none() && gate.enter(&other, 1).is_none());
        assert_eq!(*lock(&gate.0), EACH + ALL);
        drop(first);
        let held = gate.enter(&one, 1).expect("room");
        assert!(gate.enter(&one, 1).is_none(), "the others have what there is for all");
        drop((held, second));
        assert_eq!((*lock(&gate.0), one.queued(), other.queued()), (0, 0, 0));
    }
}

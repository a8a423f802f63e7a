//! Send queue of a connection, with bounds.
//!
//! If more than [`PLENTY`] bytes wait, packet-ins are dropped and counted, and no requests are read. If
//! more than [`TOO_MUCH`] bytes wait, the connection is closed. A single reply may exceed these bounds.
//!
//! Thread-safety: the agent's thread puts messages, the connection's thread takes them; an eventfd wakes
//! the latter.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::event::{EventfdFlags, eventfd};

use super::sync::lock;

/// Waiting bytes above which packet-ins are dropped.
pub(super) const PLENTY: usize = 1 << 20;
/// Waiting bytes above which the connection is closed.
pub(super) const TOO_MUCH: usize = 16 << 20;
/// Waiting bytes of all connections above which the one with the most is closed.
pub(super) const ALL: usize = 64 << 20;
/// The bytes that a connection takes at a time.
const TAKEN: usize = 256 << 10;

#[derive(Debug, Default)]
struct Inside {
    bytes: VecDeque<u8>,
    /// The lengths of the messages in them.
    lens: VecDeque<usize>,
    /// Bytes that the connection has taken and not sent.
    taken: usize,
    sent: u64,
    dropped: u64,
    closed: Option<&'static str>,
}

/// The send queue of a connection.
#[derive(Debug)]
pub(super) struct Outbox {
    inside: Mutex<Inside>,
    event: OwnedFd,
    /// The bytes of the connection's messages that wait for the agent.
    queued: AtomicUsize,
    /// Whether the connection has messages for which there was no room.
    wants_room: AtomicBool,
}

impl Outbox {
    pub(super) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            inside: Mutex::default(),
            event,
            queued: AtomicUsize::new(0),
            wants_room: AtomicBool::new(false),
        })
    }

    pub(super) const fn event(&self) -> &OwnedFd {
        &self.event
    }

    fn wake(&self) {
        // The write fails only if the counter is at its maximum; the reader is awake then.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// Appends a message. If `may_drop`, it is dropped when too much waits.
    pub(super) fn put(&self, bytes: &[u8], may_drop: bool) {
        let mut inside = lock(&self.inside);
        if inside.closed.is_some() {
            return;
        }
        let waits = inside.bytes.len() + inside.taken;
        if may_drop && waits > PLENTY {
            inside.dropped += 1;
            return;
        }
        if waits > TOO_MUCH {
            inside.close("the controller does not read its messages");
        } else {
            inside.bytes.extend(bytes);
            inside.lens.push_back(bytes.len());
            inside.sent += 1;
        }
        drop(inside);
        self.wake();
    }

    /// Ends the connection with a reason.
    pub(super) fn close(&self, why: &'static str) {
        lock(&self.inside).close(why);
        self.wake();
    }

    /// The reason for which the connection must end, if there is one.
    pub(super) fn closed(&self) -> Option<&'static str> {
        lock(&self.inside).closed
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed().is_some()
    }

    /// Appends waiting messages to `into`, which has what the connection has not sent yet, unless that is much.
    /// They are whole messages, because the connection appends others of its own.
    ///
    /// # Errors
    /// The reason for which the connection must end.
    pub(super) fn take(&self, into: &mut Vec<u8>) -> Result<(), &'static str> {
        let mut eight = [0; 8];
        let _ = rustix::io::read(&self.event, &mut eight);
        let mut inside = lock(&self.inside);
        if let Some(why) = inside.closed {
            return Err(why);
        }
        while into.len() < TAKEN
            && let Some(len) = inside.lens.pop_front()
        {
            into.extend(inside.bytes.drain(..len));
        }
        if inside.bytes.is_empty() && inside.bytes.capacity() > PLENTY {
            inside.bytes = VecDeque::new();
        }
        inside.taken = into.len();
        Ok(())
    }

    /// The number of waiting bytes, those included that the connection has taken and not sent.
    pub(super) fn waiting(&self) -> usize {
        let inside = lock(&self.inside);
        inside.bytes.len() + inside.taken
    }

    /// Whether there are bytes that the connection has not taken.
    pub(super) fn has_more(&self) -> bool {
        !lock(&self.inside).bytes.is_empty()
    }

    /// The numbers of messages appended and of packet-ins dropped.
    pub(super) fn counts(&self) -> (u64, u64) {
        let inside = lock(&self.inside);
        (inside.sent, inside.dropped)
    }

    /// The bytes of the connection's messages that wait for the agent. They change under the lock of the gate.
    pub(super) fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    pub(super) fn queue(&self, bytes: usize) {
        self.queued.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn unqueue(&self, bytes: usize) {
        self.queued.fetch_sub(bytes, Ordering::Relaxed);
        if self.wants_room.swap(false, Ordering::Relaxed) {
            self.wake();
        }
    }

    /// The connection is woken when one of its messages was handled.
    pub(super) fn wants_room(&self) {
        self.wants_room.store(true, Ordering::Relaxed);
    }
}

impl Inside {
    /// What waits is not sent any more.
    fn close(&mut self, why: &'static str) {
        self.closed.get_or_insert(why);
        (self.bytes, self.lens) = (VecDeque::new(), VecDeque::new());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_ins_are_dropped_first_and_then_the_connection_is_closed() {
        let outbox = Outbox::new().expect("an event");
        let chunk = vec![0; 64 << 10];
        for _ in 0..100 {
            outbox.put(&chunk, true);
        }
        assert!(outbox.waiting() <= PLENTY + chunk.len());
        assert_eq!(outbox.counts(), (17, 83));
        for _ in 0..235 {
            outbox.put(&chunk, false);
        }
        assert!((TOO_MUCH - PLENTY..=TOO_MUCH).contains(&outbox.waiting()));
        for _ in 0..100 {
            outbox.put(&chunk, false);
        }
        assert_eq!((outbox.is_closed(), outbox.waiting()), (true, 0));
        assert!(outbox.take(&mut Vec::new()).is_err());
    }

    #[test]
    fn what_a_connection_has_taken_and_not_sent_still_waits() {
        let outbox = Outbox::new().expect("an event");
        (0..3).for_each(|_| outbox.put(&vec![7; TAKEN], false));
        let mut bytes = Vec::new();
        outbox.take(&mut bytes).expect("open");
        assert_eq!((bytes.len(), outbox.waiting(), outbox.has_more()), (TAKEN, 3 * TAKEN, true));
        bytes.truncate(10);
        outbox.take(&mut bytes).expect("open");
        // Whole messages are taken, even if they are a little more.
        assert_eq!((bytes.len(), outbox.waiting()), (TAKEN + 10, 2 * TAKEN + 10));
    }
}

//! Send queue of a connection, with bounds.
//!
//! If more than [`PLENTY`] bytes wait, packet-ins are dropped and counted, and no requests are read. If
//! more than [`TOO_MUCH`] bytes wait, the connection is closed. A single reply may exceed these bounds.
//!
//! Thread-safety: the agent's thread puts messages, the connection's thread takes them; an eventfd wakes
//! the latter.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Mutex;

use rustix::event::{EventfdFlags, eventfd};

use super::sync::lock;

/// Waiting bytes above which packet-ins are dropped.
pub(super) const PLENTY: usize = 1 << 20;
/// Waiting bytes above which the connection is closed.
pub(super) const TOO_MUCH: usize = 16 << 20;

#[derive(Debug, Default)]
struct Inside {
    bytes: Vec<u8>,
    sent: u64,
    dropped: u64,
    closed: Option<&'static str>,
}

/// The send queue of a connection.
#[derive(Debug)]
pub(super) struct Outbox {
    inside: Mutex<Inside>,
    event: OwnedFd,
}

impl Outbox {
    pub(super) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { inside: Mutex::default(), event })
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
        if may_drop && inside.bytes.len() > PLENTY {
            inside.dropped += 1;
            return;
        }
        if inside.bytes.len() > TOO_MUCH {
            inside.closed = Some("the controller does not read its messages");
        } else {
            inside.bytes.extend_from_slice(bytes);
            inside.sent += 1;
        }
        drop(inside);
        self.wake();
    }

    /// Ends the connection with a reason.
    pub(super) fn close(&self, why: &'static str) {
        lock(&self.inside).closed.get_or_insert(why);
        self.wake();
    }

    /// Appends the waiting bytes to `into`, unless it still has many.
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
        if into.is_empty() {
            std::mem::swap(into, &mut inside.bytes);
        } else if into.len() < PLENTY / 4 {
            into.append(&mut inside.bytes);
        }
        Ok(())
    }

    /// The number of waiting bytes.
    pub(super) fn waiting(&self) -> usize {
        lock(&self.inside).bytes.len()
    }

    /// The numbers of messages appended and of packet-ins dropped.
    pub(super) fn counts(&self) -> (u64, u64) {
        let inside = lock(&self.inside);
        (inside.sent, inside.dropped)
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
        for _ in 0..300 {
            outbox.put(&chunk, false);
        }
        assert!(outbox.waiting() <= TOO_MUCH + chunk.len());
        assert!(outbox.take(&mut Vec::new()).is_err());
    }
}

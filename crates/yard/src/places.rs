//! Places: the queues and tx queues that frames can be sent to, by the numbers that tables use.
//!
//! ```text
//!  To::Queue(q) ──> queues[q] ── consumers work on it ──┐ complete
//!  To::Port(p)  ──────────────────────────> ports[p] <──┘          the tx queue of port p: direct
//! ```
//!
//! A port is reached through its tx queue, which any core may fill and the core that owns the port
//! empties. A frame in a tx queue is completed when it is transmitted. A port with several cores has a
//! tx queue for each ([`Fan`]).
//!
//! A list of ports is not a place: a frame that leaves by a list enters the tx queue of each of its
//! ports, as a copy. See [`crate::ToPorts`].
//!
//! Thread-safety: immutable except for the queues, which any core may use, and flags that each core writes.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, fence};

use flowyard_flow::Tails;
use flowyard_frame::{Batch, Lanes, To};
use flowyard_pool::Pool;
use flowyard_queue::Queue;

use crate::arrivals::Numbered;

mod fan;

pub use fan::Fan;

/// What a producer does with frames that do not fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Full {
    /// Keeps them, and receives no more until they fit: no frame is lost.
    #[default]
    Hold,
    /// Drops them, counted as `queue_full`.
    Drop,
}

/// A queue with its name and its users.
pub struct Place {
    /// The name in the configuration.
    pub name: String,
    /// The queue.
    pub queue: Box<dyn Queue>,
    /// What producers do when the queue is full.
    pub full: Full,
    /// The cores that dequeue from it.
    pub consumers: Vec<u16>,
    /// The same queue as a [`Fan`], if it is the tx queue of a port with several cores.
    pub fan: Option<Fan>,
    /// What the work notes about frames that enter, if it is an ordered queue of several consumers.
    pub numbered: Option<Numbered>,
}

impl Place {
    /// [`Queue::enqueue`] by core `core`; the keys stay in `pool`.
    #[inline]
    pub fn enqueue(&self, core: u16, pool: &Pool, from: &mut Batch, lanes: Lanes) -> Lanes {
        pool.store_keys(from, lanes);
        match (&self.fan, &self.numbered) {
            (None, None) => self.queue.enqueue_from(core, from, lanes),
            (None, Some(numbered)) => {
                numbered.enter(pool, from, lanes, |from| self.queue.enqueue_from(core, from, lanes))
            }
            (Some(fan), _) => fan.enqueue_by(Some(core), from, lanes),
        }
    }
}

/// Every queue and every port's tx queue.
pub struct Places {
    /// By the number in `To::Queue`.
    pub queues: Vec<Place>,
    /// By the number in `To::Port`.
    pub ports: Vec<Place>,
    /// Port lists, by the number in `To::Ports`.
    pub lists: Vec<Vec<u16>>,
    /// Whether a frame can leave by several ports.
    pub copies: bool,
    /// By core: whether its ports have more frames than it can take.
    pub overloaded: Vec<AtomicBool>,
    /// Whether the engine was found drained at its end: no work makes frames any more.
    pub over: AtomicBool,
}

impl Places {
    /// The place that `to` names, if it exists.
    #[must_use]
    #[inline]
    pub fn get(&self, to: To) -> Option<&Place> {
        match to {
            To::Queue(queue) => self.queues.get(usize::from(queue)),
            To::Port(port) => self.ports.get(usize::from(port)),
            _ => None,
        }
    }

    /// Whether the ports of core `core` have more frames than it can take.
    #[must_use]
    pub fn is_overloaded(&self, core: u16) -> bool {
        self.overloaded.get(usize::from(core)).is_some_and(|flag| flag.load(Relaxed))
    }

    /// Tells the other cores whether the ports of core `core` have more frames than it can take.
    pub(crate) fn set_overloaded(&self, core: u16, is_overloaded: bool) {
        if self.is_overloaded(core) != is_overloaded
            && let Some(flag) = self.overloaded.get(usize::from(core))
        {
            flag.store(is_overloaded, Relaxed);
        }
    }

    /// Whether the engine is over, so that no work makes frames any more.
    #[must_use]
    #[inline]
    pub fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    /// Ends the engine. The frames that works have made although it is over are on the boards for a caller that reads them
    /// afterwards: see [`crate::ToPorts`].
    pub(crate) fn end(&self) {
        self.over.store(true, Relaxed);
        fence(SeqCst);
    }

    /// The ports of list `list`; empty if there is no such list.
    #[must_use]
    #[inline]
    pub fn list(&self, list: u16) -> &[u16] {
        self.lists.get(usize::from(list)).map_or(&[], Vec::as_slice)
    }

    /// Whether a frame can leave the engine by `to`: a port, or a list of ports.
    #[must_use]
    #[inline]
    pub fn is_exit(&self, to: To) -> bool {
        match to {
            To::Port(port) => usize::from(port) < self.ports.len(),
            To::Ports(list) => {
                let ports = self.list(list);
                self.copies
                    && !ports.is_empty()
                    && ports.iter().all(|&port| self.is_exit(To::Port(port)))
            }
            To::Chain(_) => self.copies,
            To::Queue(_) | To::List(_) | To::Drop(_) | To::Sent(_) => false,
        }
    }
}

impl Tails for Places {
    fn tail(&self, home: To) -> u64 {
        self.get(home).map_or(0, |place| place.queue.tail())
    }

    /// A place that does not exist holds nothing: a flow that was sent there may leave at once.
    fn head(&self, home: To) -> u64 {
        self.get(home).map_or(u64::MAX, |place| place.queue.head())
    }
}

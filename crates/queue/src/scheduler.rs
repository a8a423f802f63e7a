//! What makes the queues of a yard, all at once: a function that makes one queue, or an event device.
//!
//! ```text
//!  Wanted, one for each queue and tx queue ──> Scheduler ──> Queues: as many queues, and what a core has to run
//! ```
//!
//! Thread-safety: queues are made by one thread; afterwards any core may use them.

use std::fmt;
use std::sync::Arc;

use crate::contract::{Order, Queue};

/// A queue that a yard needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// The order that it is to keep.
    pub order: Order,
    /// The cores that dequeue from it, at least one.
    pub consumers: Vec<u16>,
    /// The number of frames that it is to hold.
    pub window: usize,
    /// 0 is the most urgent.
    pub priority: u8,
    /// Whether it is the tx queue of a port: what leaves it leaves the yard.
    pub is_tx: bool,
}

/// The queues of a yard.
pub struct Queues {
    /// In the order in which they were asked for.
    pub queues: Vec<Box<dyn Queue>>,
    /// What cores have to run for the queues to work.
    pub service: Option<Arc<dyn Service>>,
}

/// The scheduler of an event device that is a program.
pub trait Service: Send + Sync {
    /// Core `core` is between two ticks. If it is the one that runs the scheduler, it does so once. Returns 1 if
    /// frames entered or left queues since the last call that ran it, otherwise 0.
    fn run(&self, core: u16) -> u32;

    /// Core `core` died; another one runs the scheduler from now on, if there is one.
    fn lose(&self, core: u16);
}

/// The queues cannot be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unfit {
    /// Why.
    pub what: String,
    /// How to fix it.
    pub fix: String,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.fix)
    }
}

impl std::error::Error for Unfit {}

/// Makes the queues of a yard.
pub trait Scheduler {
    /// Makes a queue for each of `wanted`, in a yard with `cores` cores.
    ///
    /// # Errors
    /// When there cannot be such queues.
    fn make(&mut self, cores: u16, wanted: &[Wanted]) -> Result<Queues, Unfit>;

    /// Whether a frame can leave its queue by several ports, as copies.
    fn copies(&self) -> bool {
        true
    }
}

/// A function that makes one queue: its order, how many cores (numbered from 0) are possible consumers, and how many
/// frames it holds.
impl<F: FnMut(Order, u16, usize) -> Box<dyn Queue>> Scheduler for F {
    fn make(&mut self, cores: u16, wanted: &[Wanted]) -> Result<Queues, Unfit> {
        let one = |of: &Wanted| self(of.order, if of.is_tx { 1 } else { cores }, of.window);
        Ok(Queues { queues: wanted.iter().map(one).collect(), service: None })
    }
}

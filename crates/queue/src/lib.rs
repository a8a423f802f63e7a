//! Queues: hand-off of frames between cores, with an order.
//!
//! ```text
//!  producers ── enqueue ──> [ direct | unordered | ordered | atomic ] ── dequeue ──> cores
//!                                          ^                                │ work
//!                                          └──────── complete ──────────────┘──> next queue
//! ```
//!
//! A queue guarantees an order ([`Order`]); it never decides where a frame goes. The frames that a core
//! dequeues are *open* until the core completes them; completing takes every lane, so that no frame is
//! forgotten. Every frame that enters gets a *ticket*, its number in the queue. A queue holds at most its
//! *window* of tickets, counted from the oldest ticket that is not done. A core that does not complete
//! its frames therefore stops the queue after that many frames; [`Queue::holder`] returns that core, and
//! [`Queue::release`] gives up on its batch.
//!
//! Invariants of every queue: frames in = frames out + frames dropped by workers + frames held; per flow,
//! a direct, ordered or atomic queue hands frames on in the order of arrival.
//! Soundness: no queue makes a second usable handle for a frame, whatever the caller or the next queue
//! does.
#![deny(unsafe_code)]

mod atomic;
mod contract;
pub mod dlb;
mod done_bits;
pub mod events;
mod line;
pub mod model;
mod pins;
mod ring;
mod scheduler;
mod sync;

pub use contract::{Open, Order, Queue, Sink};
pub use done_bits::DoneBits;
pub use scheduler::{Queues, Scheduler, Service, Unfit, Wanted};

/// Makes a queue with `order` for the cores 0 to `consumers` - 1, with a window of `capacity` frames. A
/// direct queue has one consumer; `consumers` is ignored.
#[must_use]
pub fn new(order: Order, consumers: u16, capacity: usize) -> Box<dyn Queue> {
    match order {
        Order::Direct | Order::Unordered | Order::Ordered => {
            Box::new(line::Line::new(order, consumers, capacity))
        }
        Order::Atomic => Box::new(atomic::Atomic::new(consumers, capacity)),
    }
}

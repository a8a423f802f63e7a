//! IN WHAT ORDER: hand-off of frames between cores.
//!
//! ```text
//!  producers ── enqueue ──> [ direct | unordered | ordered | atomic ] ── dequeue ──> cores
//!                                          ^                                │ work
//!                                          └──────── complete ──────────────┘──> next queue
//! ```
//!
//! A queue promises an order ([`Order`]); it never decides where a frame goes. What a core dequeues
//! is *open* until the core completes it; completing takes every lane, so nothing is forgotten.
//! Every frame that enters takes a *ticket*, its number in the queue. A queue holds at most its
//! *window* of tickets from the oldest one that is not done: one core that sits on a frame stops
//! the queue after that many, [`Queue::holder`] names it, and [`Queue::release`] lets go.
//!
//! Invariants of every queue: frames in = frames out + frames dropped by workers + frames held;
//! per flow, a direct, ordered or atomic queue hands on in the order of arrival.
#![deny(unsafe_code)]

mod atomic;
mod contract;
mod done_bits;
mod line;
pub mod model;
mod pins;
mod ring;
mod sync;

pub use contract::{Open, Order, Queue, Sink};
pub use done_bits::DoneBits;

/// A queue that promises `order` to the cores 0 to `consumers` - 1, with a window of `capacity`
/// frames. A direct queue has one consumer, whatever `consumers` says.
#[must_use]
pub fn new(order: Order, consumers: u16, capacity: usize) -> Box<dyn Queue> {
    match order {
        Order::Direct | Order::Unordered | Order::Ordered => {
            Box::new(line::Line::new(order, consumers, capacity))
        }
        Order::Atomic => Box::new(atomic::Atomic::new(consumers, capacity)),
    }
}

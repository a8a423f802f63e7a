//! Queues over an event device: Intel's Dynamic Load Balancer, or a program that schedules events in its place.
//!
//! ```text
//!  enqueue ── NEW ──> queue of the device ──> port of a core ── dequeue, work, complete
//!                                                                    │ FORWARD, in lane order; RELEASE for a drop
//!                     tx queue, single link <────────────────────────┘
//!                          └──> port of the core that owns the adapter ── dequeue, transmit, complete
//! ```
//!
//! All queues of a yard are queues of one device, and a frame is one event from its queue to its tx queue. A core has a
//! port of the device for each queue that it serves, so that a port has events of one queue and finishes them in the
//! order in which it got them, which is what event devices demand. A core that serves no queue has a port to enqueue by.
//!
//! An event has 64 bits for its user, which is less than a frame and its action: these lie in a *slot*, and the event
//! has the number of the slot (`slots`). A frame also gets a ticket of its queue. The ticket is done when the frame has
//! been dropped, or has arrived at the port that transmits it, and not when it is forwarded: until then, the device may
//! still let others pass. So `head` and `tail` mean what they mean for other queues, and flows may be moved between
//! queues of a device as between others.
//!
//! A frame that is to leave by several ports is dropped: its copies could not leave in the place of the frame.
//!
//! Invariants: a port is used under its lock. A port with an open batch is not asked for more events. A slot is in the
//! device once; an event that comes a second time is released and counted as a stray.
//! Thread-safety: any thread may call any method.

use std::sync::Arc;

use crate::scheduler::{Queues, Unfit, Wanted};

mod device;
mod layout;
mod port;
mod queue;
mod shared;
mod slots;
mod tickets;

pub use device::{Device, Event, Op, Sched};
pub use layout::{Layout, PortSetup, QueueSetup};

/// The queues of `layout` over `device`, which was set up so and runs. They have at most `events` frames at a time.
#[must_use]
pub fn queues<D: Device + 'static>(layout: &Layout, device: D, events: usize) -> Queues {
    let shared = Arc::new(shared::Shared::new(layout, device, events));
    let one =
        |number: usize| Box::new(queue::EventQueue::new(Arc::clone(&shared), number as u8)) as _;
    let queues = (0..layout.queues.len()).map(one).collect();
    let service = shared.device.needs_run().then(|| Arc::clone(&shared) as _);
    Queues { queues, service }
}

/// [`Layout::new`] and [`queues`], with what makes a device for a layout.
///
/// # Errors
/// When there cannot be such a device.
pub fn make<D: Device + 'static>(
    cores: u16,
    wanted: &[Wanted],
    device: impl FnOnce(&Layout) -> Result<(D, usize), Unfit>,
) -> Result<Queues, Unfit> {
    let layout = Layout::new(cores, wanted)?;
    let (device, events) = device(&layout)?;
    Ok(queues(&layout, device, events))
}

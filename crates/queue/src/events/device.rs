//! What queues need of an event device.
#![allow(unsafe_code, reason = "ports of a device are used by one thread at a time")]

use flowyard_frame::LANES;

/// What an enqueued event does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Op {
    /// It enters.
    #[default]
    New,
    /// It goes on to another queue, in place of the oldest event that its port has dequeued and not finished.
    Forward,
    /// The oldest event that its port has dequeued and not finished is done; nothing is enqueued.
    Release,
}

/// How a queue of a device schedules.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sched {
    /// To any port; events leave in the order in which they came.
    #[default]
    Ordered,
    /// A flow is with one port at a time.
    Atomic,
    /// To any port, in any order.
    Parallel,
}

/// An event.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Event {
    /// The user's data.
    pub payload: u64,
    /// Its flow; 20 bits.
    pub flow: u32,
    /// The queue that it is enqueued to, or was dequeued from.
    pub queue: u8,
    /// What it does.
    pub op: Op,
}

/// A device that runs, set up as a [`super::Layout`] says.
pub trait Device: Send + Sync {
    /// Enqueues up to 32 events by `port`, in order. Returns how many the device took, from the first on.
    ///
    /// # Safety
    /// The device has the port, and no other thread uses it.
    unsafe fn enqueue(&self, port: u8, events: &[Event]) -> usize;

    /// Dequeues from `port`; returns how many events there were.
    ///
    /// # Safety
    /// As for [`Device::enqueue`].
    unsafe fn dequeue(&self, port: u8, into: &mut [Event; LANES]) -> usize;

    /// Whether [`Device::run`] has to be called.
    fn needs_run(&self) -> bool;

    /// Lets the scheduler of the device run once.
    ///
    /// # Safety
    /// No other thread does so.
    unsafe fn run(&self);
}

//! A port of the device: the batch that is open, and what the device has not accepted yet.
//!
//! Invariant: events are finished in the order in which the device gave them, as event devices demand.
//! Thread-safety: under a lock.
#![allow(unsafe_code, reason = "calls of a device whose ports are used by one thread at a time")]

use std::collections::VecDeque;

use flowyard_frame::LANES;

use super::device::{Device, Event, Op};
use super::slots::Held;

/// An event of the open batch.
pub(super) enum Step {
    /// It has a frame: its slot, and its ticket.
    Frame(Held, u64),
    /// The device gave an event that is not in it.
    Stray,
}

/// A port of the device.
pub(super) struct Port {
    number: u8,
    /// The core that has the open batch.
    pub(super) by: Option<u16>,
    /// The events of the open batch; none for a tx queue, whose events are done when they are taken.
    pub(super) steps: Vec<Step>,
    /// The frames of the open batch.
    pub(super) frames: usize,
    /// What was done with earlier events, and was not accepted by the device yet.
    pub(super) pending: VecDeque<Event>,
}

impl Port {
    pub(super) fn new(number: u8) -> Self {
        Self {
            number,
            by: None,
            steps: Vec::with_capacity(LANES),
            frames: 0,
            pending: VecDeque::with_capacity(2 * LANES),
        }
    }

    /// Enqueues events, up to a batch; returns how many the device took, from the first on.
    pub(super) fn enqueue(&mut self, device: &impl Device, events: &[Event]) -> usize {
        let mut taken = 0;
        while taken < events.len() {
            // SAFETY: this port is borrowed mutably, so no other thread uses it.
            let more = unsafe { device.enqueue(self.number, &events[taken..]) };
            if more == 0 {
                break;
            }
            taken += more;
        }
        taken.min(events.len())
    }

    /// Dequeues; returns how many events there were.
    pub(super) fn dequeue(&mut self, device: &impl Device, into: &mut [Event; LANES]) -> usize {
        // SAFETY: as in `enqueue`.
        unsafe { device.dequeue(self.number, into) }.min(LANES)
    }

    /// Enqueues what is pending; returns how many of these events were forwarded.
    pub(super) fn send(&mut self, device: &impl Device) -> usize {
        let mut forwarded = 0;
        while !self.pending.is_empty() {
            let mut events = [Event::default(); LANES];
            let count = self.pending.len().min(LANES);
            events.iter_mut().zip(&self.pending).for_each(|(to, event)| *to = *event);
            let taken = self.enqueue(device, &events[..count]);
            let goes = |event: &Event| event.op == Op::Forward;
            forwarded += self.pending.drain(..taken).filter(goes).count();
            if taken < count {
                break;
            }
        }
        forwarded
    }
}

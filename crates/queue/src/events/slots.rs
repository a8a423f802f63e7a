//! Slots: where the frames of events lie.
//!
//! ```text
//!  event: [ generation | slot ]      slot: [ generation, odd while in the device | frame, action, ticket ]
//! ```
//!
//! A slot is free, held by a thread ([`Held`]), or in the device. The generation of a slot changes with each of its
//! events, so that an event which the device gives a second time is known and names no frame.
//!
//! Invariants: one [`Held`] of a slot exists, or one event of its generation is in the device, or the slot is free.
//! Thread-safety: any thread; the stack of free slots is under a lock.
#![allow(unsafe_code, reason = "slots shared between threads; a slot belongs to its only holder")]

use std::cell::UnsafeCell;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Mutex, MutexGuard, PoisonError};

use flowyard_frame::{Action, Frame, LANES};

/// The exclusive right to a slot that is not in the device.
#[derive(Debug)]
pub(super) struct Held(u32);

/// The ticket of a frame, and the queue that it is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ticket {
    pub(super) queue: u8,
    pub(super) number: u64,
}

/// A frame in the device.
pub(super) struct Body {
    pub(super) frame: Frame,
    pub(super) action: Action,
    pub(super) ticket: Ticket,
}

#[repr(align(64))]
struct Slot {
    generation: AtomicU32,
    body: UnsafeCell<Option<Body>>,
}

/// Slots that a thread holds, up to a batch of them.
#[derive(Default)]
pub(super) struct Some32 {
    held: [Option<Held>; LANES],
    len: usize,
}

impl Some32 {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) fn push(&mut self, held: Held) {
        if let Some(place) = self.held.get_mut(self.len) {
            *place = Some(held);
            self.len += 1;
        }
    }

    pub(super) fn pop(&mut self) -> Option<Held> {
        self.len = self.len.checked_sub(1)?;
        self.held[self.len].take()
    }
}

/// All slots of a device.
pub(super) struct Slots {
    slots: Box<[Slot]>,
    free: Mutex<Vec<Held>>,
}

// SAFETY: the body of a slot is accessed by the thread that has its only `Held`, or that has just taken its event out
// of the device by changing the generation, which one thread can do.
unsafe impl Sync for Slots {}

impl Slots {
    pub(super) fn new(count: usize) -> Self {
        let slot = |_| Slot { generation: AtomicU32::new(0), body: UnsafeCell::new(None) };
        Self {
            slots: (0..count).map(slot).collect(),
            free: Mutex::new((0..count as u32).rev().map(Held).collect()),
        }
    }

    fn free(&self) -> MutexGuard<'_, Vec<Held>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up to `count` free slots, at most a batch.
    pub(super) fn take(&self, count: usize) -> Some32 {
        let mut free = self.free();
        let from = free.len().saturating_sub(count.min(LANES));
        let mut taken = Some32::default();
        free.drain(from..).for_each(|held| taken.push(held));
        taken
    }

    /// Gives slots back.
    pub(super) fn give(&self, mut slots: Some32) {
        if slots.len() > 0 {
            let mut free = self.free();
            while let Some(held) = slots.pop() {
                free.push(held);
            }
        }
    }

    /// Puts a frame into a slot; returns the payload of its event.
    #[expect(clippy::needless_pass_by_value, reason = "the caller gives its right to the slot up")]
    pub(super) fn fill(&self, held: Held, body: Body) -> u64 {
        let Held(number) = held;
        let slot = &self.slots[number as usize];
        // SAFETY: the caller had the only `Held` of the slot.
        unsafe { *slot.body.get() = Some(body) };
        let generation = slot.generation.load(Relaxed) | 1;
        slot.generation.store(generation, Release);
        u64::from(generation) << 32 | u64::from(number)
    }

    /// Takes the frame of an event out of its slot. `None`: there is no such event in the device.
    pub(super) fn empty(&self, payload: u64) -> Option<(Held, Body)> {
        let (generation, number) = ((payload >> 32) as u32, payload as u32);
        let slot = self.slots.get(number as usize).filter(|_| generation & 1 == 1)?;
        let next = generation.wrapping_add(1);
        slot.generation.compare_exchange(generation, next, Acquire, Relaxed).ok()?;
        // SAFETY: this thread alone has changed the generation, which was that of an event in the device, so that
        // nobody holds the slot.
        let body = unsafe { (*slot.body.get()).take() }?;
        Some((Held(number), body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(number: u32) -> Body {
        let mut frame = Frame::unbacked(60);
        frame.mark = number;
        Body { frame, action: Action::queue(1), ticket: Ticket { queue: 0, number: 5 } }
    }

    #[test]
    fn an_event_gives_its_frame_once() {
        let slots = Slots::new(3);
        let mut taken = slots.take(32);
        assert_eq!((taken.len(), slots.take(1).len()), (3, 0));
        let payload = slots.fill(taken.pop().unwrap(), body(7));
        let (held, got) = slots.empty(payload).unwrap();
        assert_eq!((got.frame.mark, got.ticket.number), (7, 5));
        assert!(slots.empty(payload).is_none(), "a second time");
        let second = slots.fill(held, body(8));
        assert!(slots.empty(payload).is_none(), "an earlier event of the slot");
        assert!(slots.empty(0).is_none() && slots.empty(u64::MAX).is_none(), "no event");
        let (held, got) = slots.empty(second).unwrap();
        assert_eq!(got.frame.mark, 8);
        taken.push(held);
        slots.give(taken);
        assert_eq!(slots.take(2).len(), 2);
        assert_eq!(slots.take(2).len(), 1);
    }
}

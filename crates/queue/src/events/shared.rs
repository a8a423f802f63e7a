//! What all queues of a device share: the device, its ports, the slots of frames, and which core lets it run.
//!
//! Thread-safety: any thread.
#![allow(unsafe_code, reason = "the scheduler of the device is run under a lock")]

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use super::device::Device;
use super::layout::Layout;
use super::port::Port;
use super::slots::Slots;
use super::tickets::Tickets;
use crate::contract::Order;
use crate::scheduler::Service;

/// A device with the state of its queues.
pub(super) struct Shared<D> {
    pub(super) device: D,
    pub(super) slots: Slots,
    pub(super) queues: Box<[State]>,
    ports: Box<[Mutex<Port>]>,
    /// By core: the port by which it enqueues.
    producers: Box<[u8]>,
    /// By core: whether it died.
    gone: Box<[AtomicBool]>,
    /// The core that lets the scheduler run.
    scheduling: AtomicU16,
    /// The number of frames that had entered and left queues at the last run.
    run: Mutex<u64>,
    /// Events that were not in the device.
    pub(super) strays: AtomicU64,
}

/// The state of a queue.
pub(super) struct State {
    pub(super) order: Order,
    pub(super) is_tx: bool,
    /// The number of cores that may be consumers.
    pub(super) consumers: u16,
    pub(super) tickets: Tickets,
    pub(super) seats: Box<[Seat]>,
    /// Whether a port may have events that the device has not accepted.
    pub(super) has_pending: AtomicBool,
}

/// The port of a consumer.
pub(super) struct Seat {
    pub(super) port: u8,
    pub(super) core: u16,
    /// The core that uses it now: another one if `core` died.
    pub(super) owner: AtomicU16,
    /// The index of the seat from which `core` took its last batch.
    pub(super) last: AtomicU8,
}

impl<D: Device> Shared<D> {
    pub(super) fn new(layout: &Layout, device: D, events: usize) -> Self {
        let cores = layout.producers.len();
        let state = |(wanted, seats): (&crate::Wanted, &Vec<(u16, u8)>)| State {
            order: wanted.order,
            is_tx: wanted.is_tx,
            consumers: if wanted.order == Order::Direct { 1 } else { cores as u16 },
            tickets: Tickets::new(wanted.window, wanted.is_tx),
            seats: seats
                .iter()
                .map(|&(core, port)| Seat {
                    port,
                    core,
                    owner: AtomicU16::new(core),
                    last: AtomicU8::new(0),
                })
                .collect(),
            has_pending: AtomicBool::new(false),
        };
        Self {
            device,
            slots: Slots::new(events),
            queues: layout.wanted.iter().zip(&layout.seats).map(state).collect(),
            ports: (0..layout.ports.len()).map(|port| Mutex::new(Port::new(port as u8))).collect(),
            producers: layout.producers.clone().into(),
            gone: (0..cores).map(|_| AtomicBool::new(false)).collect(),
            scheduling: AtomicU16::new(layout.scheduling),
            run: Mutex::new(0),
            strays: AtomicU64::new(0),
        }
    }

    pub(super) fn port(&self, number: u8) -> MutexGuard<'_, Port> {
        self.ports[usize::from(number)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The port by which `core` enqueues.
    pub(super) fn producer(&self, core: u16) -> MutexGuard<'_, Port> {
        self.port(self.producers.get(usize::from(core)).copied().unwrap_or(self.producers[0]))
    }

    pub(super) fn is_gone(&self, core: u16) -> bool {
        self.gone.get(usize::from(core)).is_some_and(|gone| gone.load(Relaxed))
    }

    /// Core `core` is alive after all: its ports are its own again.
    #[cold]
    pub(super) fn revive(&self, core: u16) {
        self.gone[usize::from(core)].store(false, Release);
        let seats = self.queues.iter().flat_map(|queue| &queue.seats);
        seats.filter(|seat| seat.core == core).for_each(|seat| seat.owner.store(core, Release));
    }
}

impl<D: Device> Service for Shared<D> {
    fn run(&self, core: u16) -> u32 {
        if self.scheduling.load(Acquire) != core {
            return 0;
        }
        let mut last = match self.run.try_lock() {
            Ok(last) => last,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return 0,
        };
        // SAFETY: under the lock, so no other thread does.
        unsafe { self.device.run() };
        let moved = |queue: &State| queue.tickets.tail().wrapping_add(queue.tickets.head());
        let now = self.queues.iter().map(moved).fold(0, u64::wrapping_add);
        u32::from(std::mem::replace(&mut *last, now) != now)
    }

    fn lose(&self, core: u16) {
        if let Some(gone) = self.gone.get(usize::from(core)) {
            gone.store(true, Release);
        }
        if self.scheduling.load(Acquire) == core {
            let alive = |other: &u16| !self.is_gone(*other);
            if let Some(other) = (0..self.gone.len() as u16).find(alive) {
                self.scheduling.store(other, Release);
            }
        }
    }
}

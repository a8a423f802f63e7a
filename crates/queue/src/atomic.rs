//! Atomic queue: a flow is pinned to a core while any of its frames is in flight.
//!
//! ```text
//!             the core that dequeues deals tickets, one core at a time:
//!  ring ──> ticket ──> pin ┬─ free, or this core ──> this core's batch
//!                          └─ core 2 ──────────────> inbox of core 2, which core 2 empties first
//! ```
//!
//! Frames stay in their slots; only tickets are dealt. No core waits for the dealer: other cores take
//! the tickets in their inboxes. Dealing stops when the dealer's batch is full.
//!
//! After [`Queue::release`] the inbox of a dead core is dealt again, before newer tickets.
//!
//! Invariants: all tickets in flight of a flow are with one core, or parked. Parked frames are handed on
//! in ticket order, and while a frame is parked, all completed frames are parked, so that a flow that has
//! moved to another core does not overtake itself.
//! Thread-safety: any thread may call any method; one thread at a time deals (`dealing`).

use flowyard_frame::{Batch, LANES, Lanes};

use crate::contract::{Open, Order, Queue, Sink, drop_all};
use crate::pins::Pins;
use crate::ring::{Claim, Ring, Seat, Seats, Ticket};
use crate::sync::{Acquire, AtomicBool, Padded, Relaxed, Release};

/// An atomic queue.
pub(crate) struct Atomic {
    consumers: u16,
    ring: Ring,
    /// One for each core, then one whose inbox has orphans: tickets that must be dealt again.
    seats: Seats,
    pins: Pins,
    dealing: Padded<AtomicBool>,
}

/// The exclusive right to deal tickets.
struct Dealer<'a>(&'a Atomic);

impl Drop for Dealer<'_> {
    fn drop(&mut self) {
        self.0.dealing.store(false, Release);
    }
}

impl Atomic {
    pub(crate) fn new(consumers: u16, window: usize) -> Self {
        let consumers = consumers.clamp(1, u16::MAX - 1);
        Self {
            consumers,
            ring: Ring::new(window),
            seats: Seats::new(usize::from(consumers) + 1, window),
            // Four pins for each frame of the window, so that few flows in flight share a pin.
            pins: Pins::new(if cfg!(loom) { 2 } else { window.clamp(256, 1 << 20) * 4 }),
            dealing: Padded::new(AtomicBool::new(false)),
        }
    }

    /// The right to deal, unless another thread has it.
    fn dealer(&self) -> Option<Dealer<'_>> {
        let taken = self.dealing.load(Relaxed)
            || self.dealing.compare_exchange(false, true, Acquire, Relaxed).is_err();
        (!taken).then_some(Dealer(self))
    }
}

/// Moves tickets from the inbox to the seat's next batch.
fn take_up(seat: &mut Seat<'_>) {
    while seat.laid() < LANES
        && let Some(ticket) = seat.next()
    {
        seat.lay(ticket);
    }
}

impl Dealer<'_> {
    /// Deals until the batch of `core` is full or no ticket is left. If the whole batch is one claim, it
    /// is returned; otherwise the batch consists of the tickets that were laid aside.
    fn deal(&self, core: u16, seat: &mut Seat<'_>) -> Option<Claim<'static>> {
        let Atomic { ring, seats, pins, consumers, .. } = self.0;
        let give = |seat: &mut Seat<'_>, home: u16, ticket: Ticket| {
            if home == core { seat.lay(ticket) } else { seats.deal(home, ticket) }
        };
        // Only a dealer uses this seat, so it is free. Orphans are older than all other tickets.
        let mut orphans = seats.reserve(*consumers)?;
        while seat.laid() < LANES
            && let Some(ticket) = orphans.next()
        {
            let home = pins.deal(ring.hash(&ticket), 1, core);
            give(seat, home, ticket);
        }
        while let Some(claim) = ring.claim(LANES - seat.laid()) {
            let hashes = ring.hashes(&claim);
            let mut homes = [core; LANES];
            let mut at = 0;
            for run in hashes[..claim.len()].chunk_by(|a, b| a == b) {
                let home = pins.deal(run[0], run.len() as u32, core);
                homes[at..at + run.len()].fill(home);
                at += run.len();
            }
            if seat.laid() == 0 && homes == [core; LANES] {
                return Some(claim);
            }
            for (ticket, home) in claim.into_tickets().zip(homes) {
                give(seat, home, ticket);
            }
        }
        None
    }
}

impl Queue for Atomic {
    fn enqueue(&self, from: &mut Batch, lanes: Lanes) -> Lanes {
        self.ring.push(from, lanes)
    }

    fn dequeue(&self, core: u16, into: &mut Batch) {
        if !into.is_empty() || core >= self.consumers {
            return;
        }
        let Some(mut seat) = self.seats.reserve(core) else { return };
        // Become the dealer before reading the inbox, so that no other thread adds to it.
        let dealer = self.dealer();
        take_up(&mut seat);
        let dealt = dealer.and_then(|dealer| dealer.deal(core, &mut seat));
        let Some(claim) = dealt.or_else(|| seat.gather()) else { return };
        self.ring.read(&claim, into);
        seat.open(&claim);
    }

    fn complete(&self, core: u16, from: &mut Batch, next: &dyn Queue, dropped: &mut dyn Sink) {
        let Some((_seat, claim)) = self.seats.reopen(core) else {
            drop_all(from, dropped); // the core's batch was released
            self.ring.commit(Some(next));
            return;
        };
        // The hashes from when the frames entered: the worker may have changed its copy.
        let hashes = self.ring.hashes(&claim);
        let unpin = || self.pins.done(&hashes[..claim.len()]);
        let at_once = !self.ring.holds();
        self.ring.complete(&claim, from, (next, dropped), at_once, unpin);
    }

    fn flush(&self, next: &dyn Queue) -> usize {
        self.ring.commit(Some(next))
    }

    fn open(&self, core: u16) -> Option<Open> {
        if core < self.consumers { self.seats.peek(core) } else { None }
    }

    fn release(&self, core: u16) -> usize {
        if core >= self.consumers {
            return 0;
        }
        // No other thread may deal to the core meanwhile. Dealing is short, so this rare call may wait.
        let _dealer = loop {
            match self.dealer() {
                Some(dealer) => break dealer,
                None => std::thread::yield_now(),
            }
        };
        let mut lost = 0;
        if let Some((_seat, claim)) = self.seats.reopen(core) {
            lost = claim.len();
            let hashes = self.ring.hashes(&claim);
            self.ring.abandon(&claim, || self.pins.done(&hashes[..lost]));
        }
        if let Some(mut seat) = self.seats.reserve(core) {
            while let Some(ticket) = seat.next() {
                self.pins.done(&[self.ring.hash(&ticket)]);
                self.seats.deal(self.consumers, ticket);
            }
        }
        lost
    }

    fn tail(&self) -> u64 {
        self.ring.tail()
    }

    fn head(&self) -> u64 {
        self.ring.head()
    }

    fn order(&self) -> Order {
        Order::Atomic
    }

    fn consumers(&self) -> u16 {
        self.consumers
    }
}

//! Seats: the open batch of each core, and the tickets dealt to it.
//!
//! ```text
//!  word:   FREE ── reserve ──> TAKEN ── open(claim) ──> first ticket, frames
//!            ^                  │  ^                           │
//!            └──── drop ────────┘  └──────── reopen ───────────┘
//! ```
//!
//! A [`Seat`] is the exclusive access to one core's seat. Two threads that use the same core number do no
//! harm: the second gets no frames. The inbox of a seat, for queues that deal tickets, is a line of
//! tickets from the dealer to the holder of the seat.
//!
//! Invariants: a claim is in its core's word or belongs to one thread; a ticket is in one inbox.
//! Thread-safety: access to a seat is by `word`; one thread at a time deals.

use flowyard_frame::LANES;

use super::{Claim, Ring};
use crate::contract::Open;
use crate::sync::{AcqRel, Acquire, AtomicU64, Padded, Relaxed, Release};

/// No batch is open.
const FREE: u64 = 0;
/// A thread has exclusive access.
const TAKEN: u64 = u64::MAX;

/// One seat for each core.
pub(crate) struct Seats {
    seats: Box<[Padded<Place>]>,
}

struct Place {
    /// `FREE`, `TAKEN`, or: the first ticket << 7 | scattered << 6 | number of frames.
    word: AtomicU64,
    /// The open tickets by lane, if they are not consecutive (scattered).
    each: [AtomicU64; LANES],
    inbox: Inbox,
}

/// Tickets that were dealt to the core and not yet taken; unused by queues that do not deal.
struct Inbox {
    tickets: Box<[AtomicU64]>,
    dealt: Padded<AtomicU64>,
    taken: AtomicU64,
}

/// Exclusive access to one slot of the ring, split off a claim.
#[must_use]
pub(crate) struct Ticket(u64);

/// Exclusive access to one core's seat.
#[must_use]
pub(crate) struct Seat<'a> {
    place: &'a Place,
    /// Number of tickets laid aside for the next batch.
    laid: usize,
}

impl Claim<'_> {
    /// Splits the claim for dealing.
    pub(crate) fn into_tickets(self) -> impl Iterator<Item = Ticket> {
        debug_assert!(self.each.is_none());
        (self.first..self.first + self.len as u64).map(Ticket)
    }
}

impl Ring {
    /// The hash with which the frame of a ticket entered.
    pub(crate) fn hash(&self, ticket: &Ticket) -> u32 {
        self.frame(ticket.0, &Claim { first: ticket.0, len: 1, each: None }).hash
    }
}

impl Seats {
    /// Seats for `cores` cores, each with an inbox of at least `inbox` tickets.
    pub(crate) fn new(cores: usize, inbox: usize) -> Self {
        let place = || Place {
            word: AtomicU64::new(FREE),
            each: std::array::from_fn(|_| AtomicU64::new(0)),
            inbox: Inbox {
                tickets: (0..inbox.next_power_of_two()).map(|_| AtomicU64::new(0)).collect(),
                dealt: Padded::new(AtomicU64::new(0)),
                taken: AtomicU64::new(0),
            },
        };
        Self { seats: (0..cores).map(|_| Padded::new(place())).collect() }
    }

    fn place(&self, core: u16) -> Option<&Place> {
        self.seats.get(usize::from(core)).map(|place| &**place)
    }

    /// Takes the seat of `core`, unless the core has an open batch, or another thread has the seat.
    #[inline]
    pub(crate) fn reserve(&self, core: u16) -> Option<Seat<'_>> {
        let place = self.place(core)?;
        place.word.compare_exchange(FREE, TAKEN, AcqRel, Relaxed).ok()?;
        Some(Seat { place, laid: 0 })
    }

    /// Takes the seat of `core` with its open batch. The seat stays taken until it is dropped.
    #[inline]
    pub(crate) fn reopen(&self, core: u16) -> Option<(Seat<'_>, Claim<'_>)> {
        let place = self.place(core)?;
        let word = place.word.load(Relaxed);
        if word == FREE || word == TAKEN {
            return None;
        }
        place.word.compare_exchange(word, TAKEN, AcqRel, Relaxed).ok()?;
        let each = (word >> 6 & 1 == 1).then_some(&place.each);
        Some((Seat { place, laid: 0 }, Claim { first: word >> 7, len: word as usize & 63, each }))
    }

    /// See [`crate::Queue::open`].
    pub(crate) fn peek(&self, core: u16) -> Option<Open> {
        let word = self.place(core)?.word.load(Acquire);
        let open = Open { frames: word as usize & 63, since_ticket: word >> 7 };
        (word != FREE && word != TAKEN).then_some(open)
    }

    /// Adds a ticket to the inbox of `core`. One thread at a time deals; an inbox can hold every ticket of
    /// the window.
    pub(crate) fn deal(&self, core: u16, Ticket(ticket): Ticket) {
        let Some(place) = self.place(core) else { return };
        let inbox = &place.inbox;
        let at = inbox.dealt.load(Relaxed);
        inbox.tickets[at as usize & (inbox.tickets.len() - 1)].store(ticket, Relaxed);
        inbox.dealt.store(at + 1, Release);
    }
}

impl<'a> Seat<'a> {
    /// Makes the claim the core's open batch, and releases the seat.
    #[inline]
    pub(crate) fn open(self, claim: &Claim<'a>) {
        let scattered = u64::from(claim.each.is_some());
        let word = claim.first << 7 | scattered << 6 | claim.len as u64;
        self.place.word.store(word, Release);
        std::mem::forget(self);
    }

    /// Removes the oldest ticket from the inbox.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Ticket> {
        let inbox = &self.place.inbox;
        let at = inbox.taken.load(Relaxed);
        if at == inbox.dealt.load(Acquire) {
            return None;
        }
        let ticket = inbox.tickets[at as usize & (inbox.tickets.len() - 1)].load(Relaxed);
        inbox.taken.store(at + 1, Relaxed);
        Some(Ticket(ticket))
    }

    /// Number of tickets laid aside.
    #[inline]
    pub(crate) const fn laid(&self) -> usize {
        self.laid
    }

    /// Lays a ticket aside for the next lane; there must be a free lane.
    #[inline]
    pub(crate) fn lay(&mut self, Ticket(ticket): Ticket) {
        self.place.each[self.laid].store(ticket, Relaxed);
        self.laid += 1;
    }

    /// Makes one claim of the tickets that were laid aside.
    pub(crate) fn gather(&mut self) -> Option<Claim<'a>> {
        let (place, len) = (self.place, std::mem::take(&mut self.laid));
        let tickets = || place.each[..len].iter().map(|ticket| ticket.load(Relaxed));
        let first = tickets().min()?;
        let in_a_row = tickets().eq(first..first + len as u64);
        Some(Claim { first, len, each: (!in_a_row).then_some(&place.each) })
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.place.word.store(FREE, Release);
    }
}

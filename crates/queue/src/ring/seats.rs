//! What each core has open, and what is dealt to it: one seat per core.
//!
//! ```text
//!  word:   FREE ── reserve ──> TAKEN ── open(claim) ──> first ticket, frames
//!            ^                  │  ^                           │
//!            └──── drop ────────┘  └──────── reopen ───────────┘
//! ```
//!
//! A [`Seat`] is the sole access to one core's seat, so two threads that claim to be the same core
//! do no harm: the second is given nothing. The inbox of a seat, for queues that deal tickets out, is
//! a line of tickets from the dealing core to the waiting one.
//!
//! Invariants: a claim is in its core's word or in one thread's hands; a ticket is in one inbox.
//! Thread-safety: seats by `word`; one thread at a time deals.

use flowyard_frame::LANES;

use super::{Claim, Ring};
use crate::contract::Open;
use crate::sync::{AcqRel, Acquire, AtomicU64, Padded, Relaxed, Release};

/// Nothing is open.
const FREE: u64 = 0;
/// A thread is at it.
const TAKEN: u64 = u64::MAX;

/// One seat for each core.
pub(crate) struct Seats {
    seats: Box<[Padded<Place>]>,
}

struct Place {
    /// `FREE`, `TAKEN`, or the first ticket << 7, scattered << 6, frames.
    word: AtomicU64,
    /// The open tickets by lane, when they are scattered.
    each: [AtomicU64; LANES],
    inbox: Inbox,
}

/// Tickets dealt out and not yet taken up; none if the queue deals nothing.
struct Inbox {
    tickets: Box<[AtomicU64]>,
    dealt: Padded<AtomicU64>,
    taken_up: AtomicU64,
}

/// The right to one slot of the ring, dealt out of a claim.
#[must_use]
pub(crate) struct Ticket(u64);

/// Sole access to one core's seat.
#[must_use]
pub(crate) struct Seat<'a> {
    place: &'a Place,
    /// How many tickets were laid aside.
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
    /// The hash that the frame of a ticket came with.
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
                taken_up: AtomicU64::new(0),
            },
        };
        Self { seats: (0..cores).map(|_| Padded::new(place())).collect() }
    }

    fn place(&self, core: u16) -> Option<&Place> {
        self.seats.get(usize::from(core)).map(|place| &**place)
    }

    /// Sits down for `core`, unless it has something open, or somebody is at it.
    #[inline]
    pub(crate) fn reserve(&self, core: u16) -> Option<Seat<'_>> {
        let place = self.place(core)?;
        place.word.compare_exchange(FREE, TAKEN, AcqRel, Relaxed).ok()?;
        Some(Seat { place, laid: 0 })
    }

    /// Takes back what `core` has open. The seat stays taken until it is dropped.
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

    /// Puts a ticket into the inbox of `core`. One thread at a time deals; the inbox has room for
    /// every ticket of the window.
    pub(crate) fn deal(&self, core: u16, Ticket(ticket): Ticket) {
        let Some(place) = self.place(core) else { return };
        let inbox = &place.inbox;
        let at = inbox.dealt.load(Relaxed);
        inbox.tickets[at as usize & (inbox.tickets.len() - 1)].store(ticket, Relaxed);
        inbox.dealt.store(at + 1, Release);
    }
}

impl<'a> Seat<'a> {
    /// Makes the claim what the core has open, and stands up.
    #[inline]
    pub(crate) fn open(self, claim: &Claim<'a>) {
        let scattered = u64::from(claim.each.is_some());
        let word = claim.first << 7 | scattered << 6 | claim.len as u64;
        self.place.word.store(word, Release);
        std::mem::forget(self);
    }

    /// The oldest ticket in the inbox.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Ticket> {
        let inbox = &self.place.inbox;
        let at = inbox.taken_up.load(Relaxed);
        if at == inbox.dealt.load(Acquire) {
            return None;
        }
        let ticket = inbox.tickets[at as usize & (inbox.tickets.len() - 1)].load(Relaxed);
        inbox.taken_up.store(at + 1, Relaxed);
        Some(Ticket(ticket))
    }

    /// How many tickets were laid aside.
    #[inline]
    pub(crate) const fn laid(&self) -> usize {
        self.laid
    }

    /// Lays a ticket aside for the next lane; there must be one.
    #[inline]
    pub(crate) fn lay(&mut self, Ticket(ticket): Ticket) {
        self.place.each[self.laid].store(ticket, Relaxed);
        self.laid += 1;
    }

    /// The tickets that were laid aside, as one claim.
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

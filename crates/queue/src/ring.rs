//! The lock-free ring of all queues: frames stay in its slots until they are done.
//!
//! ```text
//!   head            claimed              tail
//!    │  done, open   │  published         │
//!  ──[x][ ][x][x][ ]─[ ][ ][ ][ ][ ][ ][ ]──>   a ticket is a position; slot = ticket mod slots
//!      oldest            up to `window` tickets
//!
//!  enqueue   reserves tickets (tail), writes the slots, inverts their published bits
//!  dequeue   claims a run of published tickets (claimed), copies the slots out
//!  at once   of an empty ring: reserves, publishes and claims tickets, and leaves the slots as they are
//!  complete  parks frames that may not leave yet in their slots, sets the done bits
//!  commit    the thread that finds the oldest bit set takes the run, hands it on and moves head;
//!            no thread waits
//! ```
//!
//! While a core has a frame, the slot's copy of the handle is not used: it is overwritten when the
//! frame is parked, or by the next frame in the slot. A slot has three columns, so that a run of frames is
//! moved by three copies: frames of 16 bytes, keys of 64, actions of 12. Parking writes a key only if the
//! worker changed it.
//!
//! Access to a slot: the producer from reserving to publishing; the holder of the [`Claim`] from claiming
//! to closing; then the committer, until head passes it. Claims are made only here and in the modules
//! below, and are not `Clone`: the `unsafe` blocks rely on this.
//!
//! Invariants: head <= claimed <= tail <= head + window; bits of tickets from tail on are clear.
//! Thread-safety: every method may be called by any thread.
#![allow(unsafe_code, reason = "slots shared between threads; ownership is by ticket")]

mod column;
mod commit;
mod seats;

use flowyard_frame::{Action, Batch, Frame, LANES, Lanes};

use crate::done_bits::DoneBits;
use crate::sync::{Acquire, AtomicU64, Padded, Relaxed, Release};
use column::Column;
pub(crate) use seats::{Seat, Seats, Ticket};

/// The slots, and the positions of producers, consumers and the committer.
pub(crate) struct Ring {
    frames: Column<Frame>,
    actions: Column<Action>,
    window: u64,
    entry: Padded<Entry>,
    claimed: Padded<AtomicU64>,
    published: DoneBits,
    done: DoneBits,
    /// The done tickets whose slot has a frame that is not handed on yet.
    parked: DoneBits,
    exit: Padded<Exit>,
}

/// Written by producers.
struct Entry {
    tail: AtomicU64,
    /// A cached value of head, so that producers rarely read the committer's cache line.
    head_seen: AtomicU64,
}

/// Written by the committer.
struct Exit {
    /// The oldest ticket that is not done, and [`BUSY`] while a thread commits.
    head: AtomicU64,
    /// Tickets from head up to this one are done, and their done bits cleared. At or below head: none.
    ready: AtomicU64,
    /// Number of parked frames.
    parked: AtomicU64,
}

/// Set in `head` while a thread commits.
const BUSY: u64 = 1 << 63;

/// Exclusive access to up to 32 slots, which the holder must close. If one is lost, the ring stops.
#[must_use]
pub(crate) struct Claim<'a> {
    /// The oldest ticket.
    first: u64,
    len: usize,
    /// The tickets by lane; if `None`, they are `first`, `first` + 1, ...
    each: Option<&'a [AtomicU64; LANES]>,
}

impl Claim<'_> {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// The ticket of a lane below `len`.
    #[inline]
    fn ticket(&self, lane: usize) -> u64 {
        self.each.map_or(self.first + lane as u64, |each| each[lane].load(Relaxed))
    }
}

impl Ring {
    /// A ring for `window` frames.
    pub(crate) fn new(window: usize) -> Self {
        let published = DoneBits::new(window.max(1));
        let slots = published.window();
        Self {
            frames: Column::new(slots),
            actions: Column::new(slots),
            window: window.max(1) as u64,
            entry: Padded::new(Entry { tail: AtomicU64::new(0), head_seen: AtomicU64::new(0) }),
            claimed: Padded::new(AtomicU64::new(0)),
            published,
            done: DoneBits::new(slots),
            parked: DoneBits::new(slots),
            exit: Padded::new(Exit {
                head: AtomicU64::new(0),
                ready: AtomicU64::new(0),
                parked: AtomicU64::new(0),
            }),
        }
    }

    /// See [`Queue::enqueue`].
    pub(crate) fn push(&self, from: &mut Batch, lanes: Lanes) -> Lanes {
        let mut lanes = Lanes(lanes.0 & from.lanes().0);
        let (first, room) = self.reserve(lanes.count() as usize);
        let lowest = lanes.0.trailing_zeros() as usize;
        if room == 0 {
            return lanes;
        }
        if lanes.0 >> lowest & (lanes.0 >> lowest).wrapping_add(1) == 0 {
            let run = lowest..lowest + room;
            // SAFETY: only this thread has reserved these tickets, and they are not yet published. The
            // slots' previous users are before `head`, which `reserve` acquired. The batch's handles are
            // overwritten next.
            unsafe {
                self.frames.put(first, &from.frames[run.clone()]);
                self.actions.put(first, &from.actions[run.clone()]);
            }
            from.frames[run].fill_with(Frame::default);
            lanes = lanes.without(Lanes(Lanes::first(room).0 << lowest));
        } else {
            for (ticket, lane) in (first..).zip(lanes).take(room) {
                // SAFETY: as above, one slot at a time.
                unsafe { self.put(ticket, from, lane) };
                lanes = lanes.without(Lanes::NONE.with(lane));
            }
        }
        self.published.turn(first, room);
        lanes
    }

    /// Reserves up to `want` tickets; returns the first, and their number.
    fn reserve(&self, want: usize) -> (u64, usize) {
        let mut tail = self.entry.tail.load(Relaxed);
        loop {
            // Acquire ordering also if another producer wrote the cached value.
            let mut free = self.window as i64 - (tail as i64 - self.head_seen() as i64);
            if free < want as i64 {
                let head = self.head();
                self.entry.head_seen.store(head, Release);
                free = self.window as i64 - (tail as i64 - head as i64);
            }
            // With an outdated tail there may seem to be more space than there is; then the exchange fails.
            let room = free.clamp(0, want as i64) as u64;
            match self.entry.tail.compare_exchange(tail, tail + room, Relaxed, Relaxed) {
                Ok(_) => return (tail, room as usize),
                Err(now) => tail = now,
            }
        }
    }

    fn head_seen(&self) -> u64 {
        self.entry.head_seen.load(Acquire)
    }

    /// Claims the oldest published tickets, up to `most`, which is at most 32.
    pub(crate) fn claim(&self, most: usize) -> Option<Claim<'static>> {
        let mut first = self.claimed.load(Relaxed);
        loop {
            // With acquire ordering: what the producers wrote is visible.
            let len = self.published.turned(first, most);
            if len == 0 {
                return None;
            }
            match self.claimed.compare_exchange(first, first + len as u64, Relaxed, Relaxed) {
                Ok(_) => return Some(Claim { first, len, each: None }),
                Err(now) => first = now,
            }
        }
    }

    /// Reserves and claims `len` tickets at once, whose slots are not used, if the ring is empty. The caller has the
    /// only seat, so no other thread claims.
    pub(crate) fn claim_unused(&self, len: usize) -> Option<Claim<'static>> {
        // The slots are free, as for `reserve`: their previous users are before `head`. BUSY makes the exchange fail.
        let first = self.exit.head.load(Acquire);
        let tail = first + len as u64;
        if len as u64 > self.window {
            return None;
        }
        self.entry.tail.compare_exchange(first, tail, Relaxed, Relaxed).ok()?;
        self.published.turn(first, len);
        self.claimed.store(tail, Relaxed);
        Some(Claim { first, len, each: None })
    }

    /// Copies the claim's slots to the empty batch `into`.
    pub(crate) fn read(&self, claim: &Claim<'_>, into: &mut Batch) {
        let len = claim.len;
        if claim.each.is_none() {
            // SAFETY: the claim's slots were published, which `claim` acquired, and belong to the claim.
            // The slot's copy of a handle is not used again: see `park` and `hand_on`.
            unsafe {
                self.frames.get(claim.first, &mut into.frames[..len]);
                self.actions.get(claim.first, &mut into.actions[..len]);
            }
        } else {
            for lane in 0..len {
                // SAFETY: as above, one slot at a time.
                unsafe { self.get(claim.ticket(lane), into, lane) };
            }
        }
        into.set_len(len);
        into.keys_in_pool = true;
    }

    /// The hashes with which the claim's frames entered, by lane.
    pub(crate) fn hashes(&self, claim: &Claim<'_>) -> [u32; LANES] {
        let mut frames: [Frame; LANES] = std::array::from_fn(|_| Frame::default());
        if claim.each.is_none() {
            // SAFETY: the claim's slots were published and belong to it; these handles are not used.
            unsafe { self.frames.get(claim.first, &mut frames[..claim.len]) };
        } else {
            let tickets = (0..claim.len).map(|lane| claim.ticket(lane));
            frames.iter_mut().zip(tickets).for_each(|(to, at)| *to = self.frame(at, claim));
        }
        frames.map(|frame| frame.hash)
    }

    /// A copy of the handle in the slot of a ticket of the claim, of which the caller reads the hash.
    fn frame(&self, ticket: u64, _: &Claim<'_>) -> Frame {
        let mut frame = [Frame::default()];
        // SAFETY: the claim's slots were published and belong to it; callers only read the hash.
        unsafe { self.frames.get(ticket, &mut frame) };
        let [frame] = frame;
        frame
    }

    /// Moves the frames in `lanes` of `from` back to the claim's slots, to be handed on later.
    fn park(&self, claim: &Claim<'_>, from: &mut Batch, lanes: Lanes) {
        for lane in lanes {
            let ticket = claim.ticket(lane);
            // SAFETY: the claim's slots were published and belong to it until it is closed. The batch's
            // handle replaces the slot's copy, and is taken out of the batch.
            unsafe {
                self.frames.put(ticket, &[std::mem::take(&mut from.frames[lane])]);
                self.actions.put(ticket, &from.actions[lane..=lane]);
            }
        }
        if claim.each.is_none() && lanes == Lanes::first(claim.len) {
            self.parked.set(claim.first, claim.len);
        } else {
            lanes.for_each(|lane| self.parked.set(claim.ticket(lane), 1));
        }
        if !lanes.is_empty() {
            self.exit.parked.fetch_add(u64::from(lanes.count()), Relaxed);
        }
    }

    /// Ends a claim: its tickets are done, and parked frames wait to be handed on.
    fn close(&self, claim: &Claim<'_>, anything_parked: bool) {
        if claim.each.is_some() {
            (0..claim.len).for_each(|lane| self.done.set(claim.ticket(lane), 1));
        } else if !anything_parked && self.is_oldest(claim) {
            // The claim has the oldest ticket, which is not done: no other thread can commit, see `commit`.
            self.exit.head.store(claim.first + claim.len as u64, Release);
        } else {
            self.done.set(claim.first, claim.len);
        }
    }

    /// Whether all frames that entered before the claim's have left, and the claim's tickets are
    /// consecutive. Until the claim is closed, no other thread can then hand on frames in order.
    pub(crate) fn is_oldest(&self, claim: &Claim<'_>) -> bool {
        claim.each.is_none() && self.exit.head.load(Acquire) == claim.first
    }

    /// Whether any frame is parked.
    pub(crate) fn holds(&self) -> bool {
        self.exit.parked.load(Acquire) > 0
    }

    /// See [`Queue::tail`].
    pub(crate) fn tail(&self) -> u64 {
        self.entry.tail.load(Acquire)
    }

    /// See [`Queue::head`].
    pub(crate) fn head(&self) -> u64 {
        self.exit.head.load(Acquire) & !BUSY
    }

    /// Moves one lane to the slot of a ticket.
    ///
    /// # Safety
    /// The caller has exclusive access to the slot.
    unsafe fn put(&self, ticket: u64, from: &mut Batch, lane: usize) {
        // SAFETY: the caller has exclusive access; the handle is taken out of the batch.
        unsafe {
            self.frames.put(ticket, &[std::mem::take(&mut from.frames[lane])]);
            self.actions.put(ticket, &from.actions[lane..=lane]);
        }
    }

    /// Copies the slot of a ticket to one lane.
    ///
    /// # Safety
    /// The slot was published, and no thread writes it now. Only one of the two handles is used.
    unsafe fn get(&self, ticket: u64, into: &mut Batch, lane: usize) {
        // SAFETY: the caller guarantees it.
        unsafe {
            self.frames.get(ticket, &mut into.frames[lane..=lane]);
            self.actions.get(ticket, &mut into.actions[lane..=lane]);
        }
    }
}

//! The one lock-free ring, under every queue: slots that frames stay in until they are done.
//!
//! ```text
//!   head            claimed              tail
//!    │  done, open   │  published         │
//!  ──[x][ ][x][x][ ]─[ ][ ][ ][ ][ ][ ][ ]──>   a ticket is a position; slot = ticket mod slots
//!      oldest            up to `window` tickets
//!
//!  enqueue   reserves tickets (tail), writes the slots, turns over their published bits
//!  dequeue   claims a run of published tickets (claimed), copies the slots out
//!  complete  parks what may not go yet back in its slots, sets the done bits
//!  commit    the core that finds the oldest bit set takes the run, hands on, moves head; nobody waits
//! ```
//!
//! While a core has a frame, the slot's copy of the handle is not used: it is overwritten when the
//! frame is parked, or by the next frame in the slot. A slot is three columns, so that a run of frames moves
//! as three copies: frame 16 bytes, key 64, action 12. Keys are written once and read in place:
//! parking writes a key only if the worker changed it.
//!
//! Who may touch a slot: the producer from reserving to publishing; the holder of the [`Claim`] from
//! claiming to closing; then the committer, until head passes. Claims are made only here and in
//! the modules below, and are not `Clone`: this is what the `unsafe` blocks rest on.
//!
//! Invariants: head <= claimed <= tail <= head + window; bits of tickets from tail on are clear.
//! Thread-safety: every method may be called by any thread.
#![allow(unsafe_code, reason = "slots shared between threads; ownership is by ticket")]

mod column;
mod commit;
mod seats;

use flowyard_frame::{Action, Batch, FlowKey, Frame, LANES, Lanes};

use crate::done_bits::DoneBits;
use crate::sync::{Acquire, AtomicU64, Padded, Relaxed, Release};
use column::Column;
pub(crate) use seats::{Seat, Seats, Ticket};

/// Slots, and how far producers, consumers and the committer are.
pub(crate) struct Ring {
    frames: Column<Frame>,
    keys: Column<FlowKey>,
    actions: Column<Action>,
    window: u64,
    entry: Padded<Entry>,
    claimed: Padded<AtomicU64>,
    published: DoneBits,
    done: DoneBits,
    /// Which done tickets have a frame in their slot that is yet to be handed on.
    parked: DoneBits,
    exit: Padded<Exit>,
}

/// What producers write.
struct Entry {
    tail: AtomicU64,
    /// Where head was when somebody last looked: spares the producers the committer's line.
    head_seen: AtomicU64,
}

/// What the committer writes.
struct Exit {
    /// The oldest ticket not done, and [`BUSY`] while somebody commits.
    head: AtomicU64,
    /// Tickets from head up to here are done, their done bits cleared. At or below head: none.
    ready: AtomicU64,
    /// How many frames are parked.
    parked: AtomicU64,
}

/// Set in `head` while somebody commits.
const BUSY: u64 = 1 << 63;

/// The right to up to 32 slots, and the duty to close them. Dropping one stops the ring.
#[must_use]
pub(crate) struct Claim<'a> {
    /// The oldest ticket.
    first: u64,
    len: usize,
    /// The tickets by lane; without it, they are `first`, `first` + 1, ...
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
    /// A ring that has room for `window` frames.
    pub(crate) fn new(window: usize) -> Self {
        let published = DoneBits::new(window.max(1));
        let slots = published.window();
        Self {
            frames: Column::new(slots),
            keys: Column::new(slots),
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
            // SAFETY: these tickets are reserved by us alone and not yet published, and their
            // slots' last users are behind `head`, which `reserve` acquired. The batch's handles
            // are overwritten next.
            unsafe {
                self.frames.put(first, &from.frames[run.clone()]);
                self.keys.put(first, &from.keys[run.clone()]);
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

    /// Reserves up to `want` tickets: the first, and how many.
    fn reserve(&self, want: usize) -> (u64, usize) {
        let mut tail = self.entry.tail.load(Relaxed);
        loop {
            // Acquired also when another producer read it off `head` for us.
            let mut free = self.window as i64 - (tail as i64 - self.head_seen() as i64);
            if free < want as i64 {
                let head = self.head();
                self.entry.head_seen.store(head, Release);
                free = self.window as i64 - (tail as i64 - head as i64);
            }
            // An outdated tail may look like more room than there is; then the exchange fails.
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
            // Acquires what the producers wrote.
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

    /// Fills the empty batch `into` with what is in the claim's slots, which keep their copy.
    pub(crate) fn read(&self, claim: &Claim<'_>, into: &mut Batch) {
        let len = claim.len;
        if claim.each.is_none() {
            // SAFETY: the claim's slots were published, which `claim` acquired, and are ours. The
            // slot's copy of a handle is not used again: see `park` and `hand_on`.
            unsafe {
                self.frames.get(claim.first, &mut into.frames[..len]);
                self.keys.get(claim.first, &mut into.keys[..len]);
                self.actions.get(claim.first, &mut into.actions[..len]);
            }
        } else {
            for lane in 0..len {
                // SAFETY: as above, one slot at a time.
                unsafe { self.get(claim.ticket(lane), into, lane) };
            }
        }
        into.set_len(len);
    }

    /// The hashes that the claim's frames came with, by lane.
    pub(crate) fn hashes(&self, claim: &Claim<'_>) -> [u32; LANES] {
        let mut frames: [Frame; LANES] = std::array::from_fn(|_| Frame::default());
        if claim.each.is_none() {
            // SAFETY: the claim's slots were published and are ours; these handles are not used.
            unsafe { self.frames.get(claim.first, &mut frames[..claim.len]) };
        } else {
            let tickets = (0..claim.len).map(|lane| claim.ticket(lane));
            frames.iter_mut().zip(tickets).for_each(|(to, at)| *to = self.frame(at, claim));
        }
        frames.map(|frame| frame.hash)
    }

    /// A second handle on the frame of a ticket of the claim.
    fn frame(&self, ticket: u64, _: &Claim<'_>) -> Frame {
        let mut frame = [Frame::default()];
        // SAFETY: the claim's slots were published and are ours; callers use one handle only.
        unsafe { self.frames.get(ticket, &mut frame) };
        let [frame] = frame;
        frame
    }

    /// Puts what is in `lanes` of `from` back into the claim's slots, to be handed on later.
    fn park(&self, claim: &Claim<'_>, from: &mut Batch, lanes: Lanes) {
        for lane in lanes {
            let ticket = claim.ticket(lane);
            let mut key = [FlowKey::ZERO];
            // SAFETY: the claim's slots were published and are ours until closed. The batch's
            // handle is overwritten, the slot's was the second one.
            unsafe {
                self.frames.put(ticket, &[std::mem::take(&mut from.frames[lane])]);
                self.actions.put(ticket, &from.actions[lane..=lane]);
                self.keys.get(ticket, &mut key);
                if key[0] != from.keys[lane] {
                    self.keys.put(ticket, &from.keys[lane..=lane]);
                }
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

    /// Ends a claim: its tickets are done, what is parked waits to be handed on.
    fn close(&self, claim: &Claim<'_>, anything_parked: bool) {
        if claim.each.is_some() {
            (0..claim.len).for_each(|lane| self.done.set(claim.ticket(lane), 1));
        } else if !anything_parked && self.is_oldest(claim) {
            // Ours is the oldest ticket and not done: nobody else can commit, see `commit`.
            self.exit.head.store(claim.first + claim.len as u64, Release);
        } else {
            self.done.set(claim.first, claim.len);
        }
    }

    /// Whether all that entered before the claim's frames is gone, and they are in a row. While
    /// this holds, and the claim is not closed, nobody else can hand on anything in order.
    pub(crate) fn is_oldest(&self, claim: &Claim<'_>) -> bool {
        claim.each.is_none() && self.exit.head.load(Acquire) == claim.first
    }

    /// Whether a frame is parked.
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

    /// Copies one lane into the slot of a ticket, and leaves an empty handle.
    ///
    /// # Safety
    /// The caller alone has access to the slot now.
    unsafe fn put(&self, ticket: u64, from: &mut Batch, lane: usize) {
        // SAFETY: the caller's promise; the batch's handle is overwritten.
        unsafe {
            self.frames.put(ticket, &[std::mem::take(&mut from.frames[lane])]);
            self.keys.put(ticket, &from.keys[lane..=lane]);
            self.actions.put(ticket, &from.actions[lane..=lane]);
        }
    }

    /// Copies the slot of a ticket into one lane.
    ///
    /// # Safety
    /// The slot was published and nobody writes it now; one of the two handles is used.
    unsafe fn get(&self, ticket: u64, into: &mut Batch, lane: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            self.frames.get(ticket, &mut into.frames[lane..=lane]);
            self.keys.get(ticket, &mut into.keys[lane..=lane]);
            self.actions.get(ticket, &mut into.actions[lane..=lane]);
        }
    }
}

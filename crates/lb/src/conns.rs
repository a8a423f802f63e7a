//! Connections: the exact table of one core. Who stays with which backend, and for how long.
//!
//! ```text
//!  hash ──> bucket, one cache line: [ tag x 8 | slot x 8 | spilled ]
//!                                        │ equal
//!           slots, one line each:     [ key 40 bytes | backend | deadline | wheel links | state ]
//!                                                                 │
//!           wheel: one list for each tick of the next 9 minutes ──┘
//! ```
//!
//! The index is a cuckoo table with partial keys (Fan et al., "Cuckoo Filter", CoNEXT 2014): the
//! other bucket of an entry follows from its tag, so entries move without their keys being read.
//! A slot never moves: its number is the connection's name as long as it lives (FullNAT makes a
//! local port of it). A packet writes only the deadline; the wheel looks at a connection when its
//! old deadline comes, and hangs it further on if there is a new one (Varghese and Lauck, "Hashed
//! and Hierarchical Timing Wheels", SOSP 1987, with one level and lazy moves).
//!
//! Memory: a slot of 64 bytes and 10 of index for each connection of the capacity, and
//! 16 KiB for the wheel: 100 million in 6.9 GiB. Slots are touched when they are first used.
//!
//! Invariants: a key stands at most once; every slot in use hangs in exactly one list; what is
//! past its deadline is never found; nothing is allocated after `new`.
//! Thread-safety: one core's.

use flowyard_frame::{LANES, Lanes, Nanos};

mod index;
mod key;
mod proxied;
mod state;
mod wheel;

use index::Index;
pub use key::ConnKey;
pub use proxied::{Proxied, Stage, Step};
pub use state::{State, Timeouts};
use wheel::Wheel;

/// A connection: one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Conn {
    key: ConnKey,
    /// The backend, as the plan numbers it.
    pub backend: u32,
    /// The first tick at which it is over.
    deadline: u32,
    next: u32,
    prev: u32,
    /// As in [`Proxied`].
    first: u32,
    stage: proxied::Stage,
    /// What it is doing.
    state: State,
    free: bool,
    spare: u8,
}

impl Conn {
    /// Its key.
    #[must_use]
    pub const fn key(&self) -> &ConnKey {
        &self.key
    }

    /// What it is doing.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// What it knows of a header in front of it.
    #[must_use]
    pub const fn proxied(&self) -> Proxied {
        Proxied { first: self.first, stage: self.stage }
    }
}

/// No slot.
const NONE: u32 = u32::MAX;

/// The connections of one core.
#[derive(Clone, Debug)]
pub struct Conns {
    index: Index,
    /// Those used once at least; there is room for all from the start.
    slots: Vec<Conn>,
    capacity: usize,
    len: usize,
    /// Those that are opening.
    opening: usize,
    /// The first free slot; they are linked by `next`.
    free: u32,
    wheel: Wheel,
    timeouts: Timeouts,
}

/// Why a connection is not kept: every slot is taken, or the index has no place for this key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no room for one more connection; wait, or raise the number of 'connections'")]
pub struct Full;

impl Conns {
    /// The most connections that a table takes.
    pub const MOST: usize = 1 << 30;

    /// A table for `capacity` connections, at most [`Conns::MOST`].
    #[must_use]
    pub fn new(capacity: usize, timeouts: Timeouts) -> Self {
        let capacity = capacity.clamp(1, Self::MOST);
        Self {
            index: Index::new(capacity),
            slots: Vec::with_capacity(capacity),
            capacity,
            len: 0,
            opening: 0,
            free: NONE,
            wheel: Wheel::new(),
            timeouts,
        }
    }

    /// Bytes that a table for `capacity` connections takes, all in use.
    #[must_use]
    pub const fn bytes(capacity: usize) -> usize {
        capacity * size_of::<Conn>() + Index::bytes(capacity) + Wheel::BYTES
    }

    /// How many connections there are; some of them may be over.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many are opening: a SYN came, and nothing else.
    #[must_use]
    pub const fn opening(&self) -> usize {
        self.opening
    }

    /// How many it takes.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// The connection in `slot`, if there is one that is not over.
    #[must_use]
    #[inline]
    pub fn get(&self, slot: u32, now: Nanos) -> Option<&Conn> {
        let conn = self.slots.get(slot as usize)?;
        (!conn.free && wheel::tick(now) < conn.deadline).then_some(conn)
    }

    /// The slot of the connection with this key.
    #[must_use]
    pub fn find(&self, key: &ConnKey, hash: u64, now: Nanos) -> Option<u32> {
        self.index
            .find(hash, |slot| self.is(slot, key))
            .filter(|&slot| self.get(slot, now).is_some())
    }

    /// The slots of the connections with the keys of the lanes `want`, into `found`; returns the
    /// lanes that have none. In short loops, so that the cache misses of all lanes are on their way
    /// at once.
    #[inline]
    pub fn find_batch(
        &self,
        keys: &[ConnKey; LANES],
        hashes: &[u64; LANES],
        want: Lanes,
        now: Nanos,
        found: &mut [u32; LANES],
    ) -> Lanes {
        if self.len == 0 {
            return want;
        }
        let mut maybe = Lanes::NONE;
        let mut warm = 0;
        for lane in want {
            warm ^= self.index.fetch(hashes[lane]);
        }
        std::hint::black_box(warm);
        for lane in want {
            if let Some(slot) = self.index.candidate(hashes[lane]) {
                found[lane] = slot;
                maybe = maybe.with(lane);
            }
        }
        let mut warm = 0;
        for lane in maybe {
            warm ^= self.slots.get(found[lane] as usize).map_or(0, |conn| conn.key.words[4]);
        }
        std::hint::black_box(warm);
        let tick = wheel::tick(now);
        let mut missed = want.without(maybe);
        for lane in maybe {
            let live = |slot: u32| {
                let conn = self.slots.get(slot as usize)?;
                (conn.key == keys[lane] && !conn.free && tick < conn.deadline).then_some(slot)
            };
            match live(found[lane]).or_else(|| self.find_again(&keys[lane], hashes[lane], now)) {
                Some(slot) => found[lane] = slot,
                None => missed = missed.with(lane),
            }
        }
        missed
    }

    /// The rare lane where a tag is equal and the key is not.
    #[cold]
    fn find_again(&self, key: &ConnKey, hash: u64, now: Nanos) -> Option<u32> {
        self.find(key, hash, now)
    }

    /// A packet of the connection in `slot` came, with these TCP flags (0 where it is none): it
    /// lives on, in the state that follows. Returns its backend and the state it was in.
    #[inline]
    pub fn seen(&mut self, slot: u32, flags: u8, now: Nanos) -> Option<(u32, State)> {
        let conn = self.slots.get_mut(slot as usize)?;
        let (backend, old) = (conn.backend, conn.state);
        let state = old.after(flags);
        conn.deadline = wheel::after(now, self.timeouts.of(state));
        if state != old {
            self.turn(slot, old, state);
        }
        Some((backend, old))
    }

    /// The state changes: the deadline may now come before the one that the wheel knows.
    #[cold]
    fn turn(&mut self, slot: u32, old: State, state: State) {
        self.opening += usize::from(state == State::Opening);
        self.opening -= usize::from(old == State::Opening);
        self.slots[slot as usize].state = state;
        self.wheel.unlink(&mut self.slots, slot);
        self.wheel.link(&mut self.slots, slot);
    }

    /// Sends the connection in `slot` to another backend from now on.
    pub fn send_to(&mut self, slot: u32, backend: u32) {
        if let Some(conn) = self.slots.get_mut(slot as usize) {
            conn.backend = backend;
        }
    }

    /// Keeps a connection: from now on `key` goes to `backend`. Returns its slot. One with this key
    /// that is there already is replaced.
    ///
    /// # Errors
    /// When there is no room; nothing is changed then.
    pub fn insert(
        &mut self,
        key: &ConnKey,
        hash: u64,
        backend: u32,
        state: State,
        now: Nanos,
    ) -> Result<u32, Full> {
        let deadline = wheel::after(now, self.timeouts.of(state));
        let links = (NONE, NONE);
        let conn = Conn {
            key: *key,
            backend,
            deadline,
            next: links.0,
            prev: links.1,
            first: 0,
            stage: proxied::Stage::None,
            state,
            free: false,
            spare: 0,
        };
        if let Some(slot) = self.index.find(hash, |slot| self.is(slot, key)) {
            self.opening -= usize::from(self.slots[slot as usize].state == State::Opening);
            self.wheel.unlink(&mut self.slots, slot);
            self.put(slot, conn);
            return Ok(slot);
        }
        let slot = match self.free {
            NONE if self.slots.len() < self.capacity => self.slots.len() as u32,
            NONE => return Err(Full),
            free => free,
        };
        if !self.index.insert(hash, slot) {
            return Err(Full);
        }
        if slot as usize == self.slots.len() {
            self.slots.push(conn); // there is room: it never grows
        } else {
            self.free = self.slots[slot as usize].next;
        }
        self.len += 1;
        self.put(slot, conn);
        Ok(slot)
    }

    fn put(&mut self, slot: u32, conn: Conn) {
        self.opening += usize::from(conn.state == State::Opening);
        self.slots[slot as usize] = conn;
        self.wheel.link(&mut self.slots, slot);
    }

    /// Forgets what is over by `now`, and looks at no more than `budget` connections: to be called
    /// with every batch. Each that goes is shown to `gone` (with `seed`, that of the hashes).
    pub fn advance(
        &mut self,
        now: Nanos,
        budget: usize,
        seed: u64,
        gone: &mut dyn FnMut(&Conn),
    ) -> usize {
        let mut expired = 0;
        for _ in 0..budget {
            let Some(slot) = self.wheel.due(&mut self.slots, now) else { break };
            let conn = self.slots[slot as usize];
            if wheel::tick(now) < conn.deadline {
                self.wheel.link(&mut self.slots, slot);
                continue;
            }
            gone(&conn);
            self.index.remove(conn.key.hash(seed), slot);
            self.opening -= usize::from(conn.state == State::Opening);
            let old = &mut self.slots[slot as usize];
            (old.free, old.next) = (true, self.free);
            self.free = slot;
            self.len -= 1;
            expired += 1;
        }
        expired
    }

    /// Those that are not over by `now`, with their slots.
    pub fn iter(&self, now: Nanos) -> impl Iterator<Item = (u32, &Conn)> + '_ {
        let tick = wheel::tick(now);
        (0..).zip(&self.slots).filter(move |(_, conn)| !conn.free && tick < conn.deadline)
    }

    fn is(&self, slot: u32, key: &ConnKey) -> bool {
        self.slots.get(slot as usize).is_some_and(|conn| conn.key == *key)
    }
}

#[cfg(test)]
mod tests;

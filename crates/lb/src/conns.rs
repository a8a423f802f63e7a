//! Connection table of one core: the backend of each connection, and when the entry expires.
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
//! alternative bucket of an entry is computed from its tag, so entries move without their keys being
//! read. A slot never moves: its number identifies the connection during its lifetime. A packet writes only
//! the deadline. The wheel inspects a connection when its
//! old deadline is reached and moves it to a later list if the deadline has changed (Varghese and
//! Lauck, "Hashed and Hierarchical Timing Wheels", SOSP 1987, with one level and lazy moves).
//!
//! A connection that may be one of a forged source address is unestablished: it is not in the wheel but in a
//! list of its service (`lru`). A FullNAT connection has a local port, by which its replies are found
//! (`ports`). When the table is full, entries of unestablished and idle connections are evicted (`room`).
//!
//! Memory for each connection of the capacity: a slot of 64 bytes, 8 bytes that are needed at its end,
//! 10 bytes of index, and with local addresses 10 bytes of index for replies; in all, 80 KiB for
//! wheel and lists. 100 million connections take 7.6 GiB, with local addresses 8.6 GiB. The pages of slots are touched
//! when the slots are first used. Where adapters mark packets (`marking`), 8 bytes more.
//!
//! Invariants: a key has at most one entry; every slot in use is in exactly one list, of the wheel or of a service;
//! an expired entry is never found; no two connections have the same local port towards one backend; nothing is allocated after `new`.
//! Thread-safety: used by one core.

use std::sync::Arc;

use flowyard_flow::table::Directory;
use flowyard_frame::{LANES, Lanes, Nanos};

mod beside;
mod conn;
mod ended;
mod fronted;
mod handed;
mod index;
mod key;
mod listed;
mod lru;
mod marking;
mod ports;
mod proxied;
mod room;
mod state;
mod wheel;

use conn::{ANSWERED, NONE, STATE, TWO_WAY, UNESTABLISHED};
pub use conn::{Conn, LocalPort, Progress};
pub use ended::Numbers;
use fronted::Fronted;
use index::Index;
pub use key::ConnKey;
pub use listed::Listed;
use lru::Lru;
use marking::Marking;
pub use marking::Sender;
use ports::Ports;
pub use proxied::{Proxied, Stage, Step};
pub use room::Held;
use room::Room;
pub use state::{State, Timeouts};
use wheel::Wheel;

/// The connections of one core.
#[derive(Clone, Debug)]
pub struct Conns {
    index: Index,
    /// The slots that were used at least once. The capacity is allocated at the start.
    slots: Vec<Conn>,
    /// By slot.
    ends: Vec<End>,
    capacity: usize,
    len: usize,
    /// Entries in [`State::Opening`].
    opening: usize,
    /// The first free slot; they are linked by `next`.
    free: u32,
    /// The established connections, by deadline.
    wheel: Wheel,
    /// The unestablished connections.
    lru: Lru,
    ports: Ports,
    room: Room,
    /// By slot, the MAC address from which the client's packets come; empty if it is not stored.
    macs: Vec<[u8; 6]>,
    /// The directory in which the entries are listed, and the number of this core.
    listed: Option<(Arc<Directory>, u16)>,
    /// The hashes of entries that were removed, and are still listed.
    gone: Vec<u64>,
    timeouts: Timeouts,
    /// The connections that are answered in front.
    fronted: Option<Box<Fronted>>,
    /// The connections whose packets adapters mark.
    marking: Option<Box<Marking>>,
}

/// What is needed of a connection when it ends.
#[derive(Clone, Copy, Debug)]
struct End {
    /// A part of the hash of its replies, if it has a local port.
    reply: u32,
    /// The number of its service.
    service: u16,
    /// The low bits of the number of the batch that has used it last; stored while it is unestablished.
    batch: u16,
}

/// Whose connection an entry is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// The backend's ID.
    pub backend: u32,
    /// The number of the service.
    pub service: u16,
    /// Whether answers of the backend pass through the balancer.
    pub sees_answers: bool,
}

/// A connection was not entered: every slot is in use, or both buckets of its key in the index are full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the table of connections is full; wait until connections end, or raise 'connections' in [balance]"
)]
pub struct Full;

impl Conns {
    /// The largest capacity of a table.
    pub const MOST: usize = 1 << 30;

    /// An empty table for `capacity` connections; values outside 1 to [`Conns::MOST`] are clamped.
    /// Connections can have local ports if `has_locals` is true.
    #[must_use]
    pub fn new(capacity: usize, timeouts: Timeouts, has_locals: bool) -> Self {
        let capacity = capacity.clamp(1, Self::MOST);
        Self {
            index: Index::new(capacity),
            slots: Vec::with_capacity(capacity),
            ends: Vec::with_capacity(capacity),
            ports: Ports::new(capacity, has_locals),
            room: Room::new(),
            macs: Vec::new(),
            listed: None,
            gone: Vec::new(),
            capacity,
            len: 0,
            opening: 0,
            free: NONE,
            wheel: Wheel::new(),
            lru: Lru::new(),
            timeouts,
            fronted: None,
            marking: None,
        }
    }

    /// Memory in bytes of a table for `capacity` connections when all slots are used.
    #[must_use]
    pub const fn bytes(capacity: usize, has_locals: bool) -> usize {
        let indexes = if has_locals { 2 } else { 1 };
        capacity * (size_of::<Conn>() + size_of::<End>())
            + indexes * Index::bytes(capacity)
            + Wheel::BYTES
            + Lru::BYTES
            + Room::BYTES
    }

    /// The number of entries, including expired ones that [`Conns::advance`] has not removed yet.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether the table has no entries.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of half-open connections: the client sent a SYN and nothing else yet.
    #[must_use]
    pub const fn opening(&self) -> usize {
        self.opening
    }

    /// The largest number of entries.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// The connection in `slot`; `None` if the slot is free or the entry is expired.
    #[must_use]
    #[inline]
    pub fn get(&self, slot: u32, now: Nanos) -> Option<&Conn> {
        let conn = self.slots.get(slot as usize)?;
        (wheel::tick(now) < conn.deadline).then_some(conn)
    }

    /// The slot of the connection with this key; `None` if there is none or it is expired.
    #[must_use]
    pub fn find(&self, key: &ConnKey, hash: u64, now: Nanos) -> Option<u32> {
        self.find_any(key, hash).filter(|&slot| self.get(slot, now).is_some())
    }

    /// The slot with this key, even if the entry is expired: the one that [`Conns::insert`] replaces.
    fn find_any(&self, key: &ConnKey, hash: u64) -> Option<u32> {
        self.index.find(hash, |slot| self.is(slot, key))
    }

    /// The entry that [`Conns::insert`] replaces, expired or not.
    #[must_use]
    pub fn replaced(&self, key: &ConnKey, hash: u64) -> Option<&Conn> {
        self.slots.get(self.find_any(key, hash)? as usize)
    }

    /// Looks up the keys of the lanes `want`, writes their slots to `found` and returns the lanes that
    /// have no entry. The lookup runs in short loops, so that the cache misses of all lanes overlap.
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
                (conn.key == keys[lane] && tick < conn.deadline).then_some(slot)
            };
            match live(found[lane]).or_else(|| self.find_again(&keys[lane], hashes[lane], now)) {
                Some(slot) => found[lane] = slot,
                None => missed = missed.with(lane),
            }
        }
        missed
    }

    /// For a lane whose tag is equal and whose key is not, which is rare.
    #[cold]
    fn find_again(&self, key: &ConnKey, hash: u64, now: Nanos) -> Option<u32> {
        self.find(key, hash, now)
    }

    /// Updates the connection in `slot` for a packet of the client with these TCP flags (0 if it is not TCP):
    /// sets the next state and a new deadline. Returns the backend and the state before the packet.
    ///
    /// The client's second packet establishes the connection; of TCP it must not be a SYN, FIN or RST. If the
    /// answers of the backend pass through the balancer, the backend must have answered before: a TCP that gets
    /// an ACK it does not expect sends a RST, and the connection is closing.
    #[inline]
    pub fn seen(&mut self, slot: u32, flags: u8, now: Nanos) -> Option<(u32, State)> {
        let conn = self.slots.get_mut(slot as usize)?;
        let (backend, old) = (conn.backend, conn.state());
        let state = old.after(flags);
        conn.deadline = wheel::after(now, self.timeouts.of(state));
        if conn.marks & (STATE | UNESTABLISHED) != state as u8 {
            self.seen_first(slot, state, now);
        }
        Some((backend, old))
    }

    /// A packet of the client that changes the state, or belongs to an unestablished connection.
    #[cold]
    fn seen_first(&mut self, slot: u32, state: State, now: Nanos) {
        let is_ready = self.slots[slot as usize].marks & (TWO_WAY | ANSWERED) != TWO_WAY;
        self.turn(slot, state, is_ready && matches!(state, State::Open | State::Datagrams), now);
    }

    /// As [`Conns::seen`], for a packet of the backend. It establishes a TCP connection if it shows that the
    /// backend has it: an ACK without SYN, FIN and RST.
    pub fn answered(&mut self, slot: u32, flags: u8, now: Nanos) {
        let Some(conn) = self.slots.get_mut(slot as usize) else { return };
        if conn.is_established() {
            self.seen(slot, flags, now);
            return;
        }
        conn.marks |= ANSWERED;
        let state = conn.state().after(flags);
        self.turn(slot, state, state.is_proven_by(flags), now);
    }

    /// Notes of the new entry in `slot` what was seen of the connection by another core.
    pub fn adopt(&mut self, slot: u32, seen: Progress, now: Nanos) {
        let Some(conn) = self.slots.get_mut(slot as usize) else { return };
        conn.marks |= if seen.is_answered { ANSWERED } else { 0 };
        if seen.is_established {
            let state = conn.state();
            self.turn(slot, state, true, now);
        }
        self.adopt_end(slot, seen);
    }

    /// Changes the state, establishes the connection if `establishes` is true, and sets the deadline, which may
    /// be earlier than the list that the slot is in.
    fn turn(&mut self, slot: u32, state: State, establishes: bool, now: Nanos) {
        self.unlink(slot);
        self.leave_front(slot);
        let conn = &mut self.slots[slot as usize];
        self.opening -= usize::from(conn.state() == State::Opening && state != State::Opening);
        conn.set_state(state);
        conn.marks &= if establishes { !UNESTABLISHED } else { !0 };
        let timeout = self.timeout(&self.slots[slot as usize]);
        self.slots[slot as usize].deadline = wheel::after(now, timeout);
        self.link(slot);
    }

    /// The timeout of a connection.
    fn timeout(&self, conn: &Conn) -> Nanos {
        match conn.is_established() {
            true => self.timeouts.of(conn.state()),
            false => self.timeouts.unestablished(conn.state()),
        }
    }

    /// Changes the backend of the connection in `slot`.
    pub fn send_to(&mut self, slot: u32, backend: u32) {
        if let Some(conn) = self.slots.get_mut(slot as usize) {
            conn.backend = backend;
        }
        self.leave_front(slot);
    }

    /// The progress of the header of the connection in `slot`.
    #[must_use]
    pub fn proxied(&self, slot: u32) -> Proxied {
        self.slots.get(slot as usize).map(Conn::proxied).unwrap_or_default()
    }

    /// Stores the progress of the header of the connection in `slot`. Inserting another connection
    /// resets it.
    pub fn set_proxied(&mut self, slot: u32, proxied: Proxied) {
        if let Some(conn) = self.slots.get_mut(slot as usize) {
            conn.set_proxied(proxied);
        }
    }

    /// Enters an unestablished connection and returns its slot. An existing entry with this key is replaced.
    /// The connection has no local port.
    ///
    /// # Errors
    /// The table is full; nothing is changed then.
    pub fn insert(
        &mut self,
        key: &ConnKey,
        hash: u64,
        owner: Owner,
        state: State,
        now: Nanos,
    ) -> Result<u32, Full> {
        let deadline = wheel::after(now, self.timeouts.unestablished(state));
        let conn = Conn {
            key: *key,
            backend: owner.backend,
            deadline,
            next: NONE,
            prev: NONE,
            first: 0,
            port: 0,
            address: 0,
            marks: state as u8 | UNESTABLISHED | if owner.sees_answers { TWO_WAY } else { 0 },
        };
        let end = End { reply: 0, service: owner.service, batch: 0 };
        if let Some(slot) = self.find_any(key, hash) {
            self.uncount(slot);
            self.unbind(slot);
            self.unlink(slot);
            self.put(slot, conn, end);
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
        self.enlist(hash);
        if slot as usize == self.slots.len() {
            self.slots.push(conn); // never reallocates: the capacity is allocated
            self.ends.push(end);
        } else {
            self.free = self.slots[slot as usize].next;
        }
        self.len += 1;
        self.put(slot, conn, end);
        Ok(slot)
    }

    fn put(&mut self, slot: u32, conn: Conn, end: End) {
        self.leave_front(slot);
        self.opening += usize::from(conn.state() == State::Opening);
        self.room.came(end.service);
        self.slots[slot as usize] = conn;
        self.ends[slot as usize] = end;
        self.set_mac(slot, [0; 6]);
        self.link(slot);
    }

    fn uncount(&mut self, slot: u32) {
        let state = self.slots[slot as usize].state();
        self.opening -= usize::from(state == State::Opening);
        self.room.went(self.ends[slot as usize].service);
    }

    /// Removes the entry in `slot` and returns it; `None` if the slot is free. `seed` must be that of the
    /// hashes.
    pub fn remove(&mut self, slot: u32, seed: u64) -> Option<Conn> {
        let conn = *self.slots.get(slot as usize).filter(|conn| !conn.is_free())?;
        self.unlink(slot);
        self.release(slot, seed);
        Some(conn)
    }

    /// Frees a slot that is in no list.
    fn release(&mut self, slot: u32, seed: u64) {
        self.leave_front(slot);
        self.uncount(slot);
        self.unbind(slot);
        let hash = self.slots[slot as usize].key.hash(seed);
        self.index.remove(hash, slot);
        self.unlist(hash);
        let old = &mut self.slots[slot as usize];
        (old.deadline, old.next) = (0, self.free);
        self.free = slot;
        self.len -= 1;
    }

    /// Removes expired entries, passes each to `gone` and returns their number. Inspects at most `budget` entries
    /// of the wheel and as many unestablished ones, so that it can be called for every batch. `seed` must be that of the hashes.
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
            if wheel::tick(now) < conn.deadline || self.renew(slot, now) {
                self.wheel.link(&mut self.slots, slot);
                continue;
            }
            gone(&conn);
            self.release(slot, seed);
            expired += 1;
        }
        expired + self.expire(now, budget, seed, gone)
    }

    /// The entries that are not expired, with their slots.
    pub fn iter(&self, now: Nanos) -> impl Iterator<Item = (u32, &Conn)> + '_ {
        let tick = wheel::tick(now);
        (0..).zip(&self.slots).filter(move |(_, conn)| tick < conn.deadline)
    }

    /// Whether `slot` has still the entry of the connection with this key.
    #[must_use]
    pub fn has(&self, slot: u32, key: &ConnKey) -> bool {
        self.is(slot, key) && !self.slots[slot as usize].is_free()
    }

    fn is(&self, slot: u32, key: &ConnKey) -> bool {
        self.slots.get(slot as usize).is_some_and(|conn| conn.key == *key)
    }
}

#[cfg(test)]
mod tests;

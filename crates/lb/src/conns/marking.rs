//! Connections whose packets an adapter marks, so that they are found without a lookup in the index.
//!
//! ```text
//!  established ──put──> number ──> rule in the adapter ──> packets come with the mark of the number
//!  mark ──> number ──> slot ──> the entry has the key of the packet? ──yes──> found      ──no──> index, as without a mark
//!  entry ends, or changes its state or its backend ──> the rule is removed, the number names no slot
//! ```
//!
//! A connection has up to two numbers: one for the client's packets, one for the replies. A mark proves nothing: the
//! entry that it names is compared with the packet and must not be expired, as the entries that the index finds. A key
//! has at most one entry, so the comparison does what a generation would do: whatever a stale or wrong mark names, an entry
//! that passes is the one that the index would have found.
//!
//! The front refuses a connection if it has no room for it, or if it never accepts connections of this kind, such as SCTP
//! associations. The first ones are offered again after [`AGAIN`], if a packet of them comes then; at most [`AGAIN_MOST`]
//! connections wait for that, and others that are refused meanwhile are not offered again. The second ones are offered
//! once.
//!
//! Invariants: a number that names a slot is stored with the slot; the numbers of a slot that is free, or whose connection
//! is not established, are none.

use std::collections::VecDeque;
use std::sync::Arc;

use flowyard_flow::table::marked;
use flowyard_frame::{Batch, FlowKey, LANES, Lanes, Nanos};
use flowyard_yard::front::{AFTER, Change, Entry, Front};

use super::conn::{NONE, OFFERED};
use super::{Conn, ConnKey, Conns, State, wheel};

/// In place of a number, with the number of the port by which the packet came: the front has refused it.
const REFUSED: u32 = 1 << 31;
/// A refused connection is offered again after this time.
const AGAIN: Nanos = 10_000_000_000;
/// The most refused connections that are offered again, and how many in a batch.
const AGAIN_MOST: usize = 4096;
const AGAIN_BATCH: usize = 32;

/// Who has sent a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sender {
    /// The client.
    Client = 0,
    /// The backend: the packet is a reply.
    Backend = 1,
}

#[derive(Clone, Debug)]
pub(super) struct Marking {
    front: Arc<dyn Front>,
    /// By number: the slot.
    slots: Vec<u32>,
    /// By slot: the numbers, by direction.
    numbers: Vec<[u32; 2]>,
    /// Numbers that were removed, and when.
    leaving: VecDeque<(Nanos, u32)>,
    /// Slots of refused connections that may be accepted later, and when they were refused.
    refused: VecDeque<(Nanos, u32)>,
    /// The number of slots that have a number.
    len: usize,
    /// Packets whose connection a mark has named.
    found: u64,
    /// The time of the last batch.
    now: Nanos,
}

impl Conns {
    /// The table with connections whose packets `front` marks.
    #[must_use]
    pub fn with_marks(mut self, front: Arc<dyn Front>) -> Self {
        let numbers = vec![[NONE; 2]; self.capacity];
        self.marking = Some(Box::new(Marking {
            front,
            slots: Vec::new(),
            numbers,
            leaving: VecDeque::new(),
            refused: VecDeque::new(),
            len: 0,
            found: 0,
            now: 0,
        }));
        self
    }

    /// Finds the connections of the lanes `want` whose frame has a mark: writes their slots to `found`, and returns these
    /// lanes.
    #[inline]
    pub fn find_marked(
        &mut self,
        batch: &Batch,
        keys: &[ConnKey; LANES],
        want: Lanes,
        now: Nanos,
        found: &mut [u32; LANES],
    ) -> Lanes {
        if self.marking.is_none() {
            return Lanes::NONE;
        }
        self.find_named(batch, keys, want, now, found)
    }

    #[inline(never)]
    fn find_named(
        &mut self,
        batch: &Batch,
        keys: &[ConnKey; LANES],
        want: Lanes,
        now: Nanos,
        found: &mut [u32; LANES],
    ) -> Lanes {
        let Some(it) = &mut self.marking else { return Lanes::NONE };
        it.begin(now, &mut self.slots);
        let (mut named, mut warm) = (Lanes::NONE, 0);
        for lane in want {
            if let Some(slot) = it.slot(batch.frames[lane].mark)
                && let Some(conn) = self.slots.get(slot as usize)
            {
                // All entries are fetched before the first one is examined, so that the cache misses overlap.
                warm ^= conn.key.words[4];
                found[lane] = slot;
                named = named.with(lane);
            }
        }
        std::hint::black_box(warm);
        let (tick, mut right) = (wheel::tick(now), Lanes::NONE);
        for lane in named {
            let conn = &self.slots[found[lane] as usize];
            if conn.key == keys[lane] && tick < conn.deadline {
                right = right.with(lane);
            }
        }
        it.found += u64::from(right.count());
        right
    }

    /// The slot that a mark on a packet names, if it has the entry of the connection with this key.
    pub fn named(&mut self, mark: u32, key: &ConnKey, now: Nanos) -> Option<u32> {
        let slot = self.named_slot(mark)?;
        let is_right = self.is(slot, key) && self.get(slot, now).is_some();
        self.note_named(is_right.then_some(slot))
    }

    /// The slot that a mark names.
    pub(super) fn named_slot(&self, mark: u32) -> Option<u32> {
        self.marking.as_ref()?.slot(mark)
    }

    /// Counts a connection that was found by a mark.
    pub(super) fn note_named(&mut self, found: Option<u32>) -> Option<u32> {
        if let Some(it) = &mut self.marking {
            it.found += u64::from(found.is_some());
        }
        found
    }

    /// Whether packets of connections are marked.
    #[must_use]
    #[inline]
    pub const fn is_marking(&self) -> bool {
        self.marking.is_some()
    }

    /// Offers the connection in `slot`, of which a packet with this key came, unless it is not established or was offered
    /// before.
    #[inline]
    pub fn offer(&mut self, slot: u32, sender: Sender, key: &FlowKey, now: Nanos) {
        if self.marking.is_some() {
            self.offer_named(slot, sender, key, now);
        }
    }

    #[inline(never)]
    fn offer_named(&mut self, slot: u32, sender: Sender, key: &FlowKey, now: Nanos) {
        let (Some(it), Some(conn)) = (&mut self.marking, self.slots.get_mut(slot as usize)) else {
            return;
        };
        let is_done = sender == Sender::Client && conn.marks & OFFERED != 0;
        if is_done || !conn.is_established() || !is_open(conn) {
            return;
        }
        if let Some(number) = it.put(slot, sender, key, now) {
            it.numbers[slot as usize][sender as usize] = number;
        }
        conn.marks |= if sender == Sender::Client { OFFERED } else { 0 };
    }

    /// The number of connections whose packets the front was asked to mark.
    #[must_use]
    pub fn marked(&self) -> usize {
        self.marking.as_ref().map_or(0, |it| it.len)
    }

    /// Packets whose connection was found by their mark.
    #[must_use]
    pub fn found_by_mark(&self) -> u64 {
        self.marking.as_ref().map_or(0, |it| it.found)
    }

    /// What the front does for packets of the connection in `slot`, or why it does nothing, in words for the user; `None` if
    /// it marks no packets.
    #[must_use]
    pub fn ahead(&self, slot: u32, sender: Sender) -> Option<String> {
        let it = self.marking.as_ref()?;
        let number = it.numbers.get(slot as usize)?[sender as usize];
        let conn = self.slots.get(slot as usize)?;
        let is_open = conn.is_established() && is_open(conn);
        Some(match number {
            NONE if !is_open => {
                "it is not in the adapter: the connection is not established".into()
            }
            NONE => {
                "it was not offered to the adapter: no packet has come since it was established"
                    .into()
            }
            REFUSED.. => {
                let key = FlowKey { in_port: number as u16, ..conn.key.flow() };
                let why = it.front.why_not(&entry(&key));
                let why = why.unwrap_or_else(|| "it was refused".into());
                format!("it is not in the adapter: {why}")
            }
            _ => it.front.state(number),
        })
    }

    /// The entry in `slot` is another one, or in another state: no mark names it.
    pub(super) fn unmark(&mut self, slot: u32) {
        let Some(it) = &mut self.marking else { return };
        if let Some(conn) = self.slots.get_mut(slot as usize) {
            conn.forget_offer();
        }
        it.remove(slot);
    }
}

/// Whether packets of a connection can be expected for long.
const fn is_open(conn: &Conn) -> bool {
    matches!(conn.state(), State::Open | State::Datagrams)
}

/// What is put for packets with this key.
fn entry(key: &FlowKey) -> Entry {
    let key = FlowKey { in_port: key.in_port, ..key.flow() };
    Entry { key, port: key.in_port, macs: None, hop: false, change: Change::None, mtu: 0 }
}

impl Marking {
    /// The slot that a mark names.
    #[inline]
    fn slot(&self, mark: u32) -> Option<u32> {
        let slot = *self.slots.get(marked::flow(mark)? as usize)?;
        (slot != NONE).then_some(slot)
    }

    /// Offers packets of a connection; the number, or what is stored in its place, if it was not offered before.
    fn put(&mut self, slot: u32, sender: Sender, key: &FlowKey, now: Nanos) -> Option<u32> {
        let numbers = self.numbers.get(slot as usize)?;
        if numbers[sender as usize] != NONE {
            return None;
        }
        let refused = Some(REFUSED | u32::from(key.in_port));
        if !self.front.takes(key.in_port, key.in_port) {
            return refused; // the port has no adapter that marks frames
        }
        let entry = entry(key);
        let Some(number) = self.front.put(&[entry], now) else {
            if self.refused.len() < AGAIN_MOST && self.front.may_take_later(&entry) {
                self.refused.push_back((now, slot));
            }
            return refused;
        };
        let at = number as usize;
        if at >= self.slots.len() {
            self.slots.resize(at + 1, NONE);
        }
        self.slots[at] = slot;
        self.len += usize::from(numbers.iter().all(|number| *number >= REFUSED));
        Some(number)
    }

    /// Forgets the numbers of `slot`.
    fn remove(&mut self, slot: u32) {
        let Some(place) = self.numbers.get_mut(slot as usize) else { return };
        let numbers = std::mem::replace(place, [NONE; 2]);
        let mut had = false;
        for number in numbers.into_iter().filter(|number| *number < REFUSED) {
            if let Some(place) = self.slots.get_mut(number as usize)
                && *place == slot
            {
                *place = NONE;
            }
            self.front.remove(number);
            self.leaving.push_back((self.now, number));
            had = true;
        }
        self.len -= usize::from(had);
    }

    /// A batch begins: numbers that were removed long ago are freed, and refused connections may be offered again.
    fn begin(&mut self, now: Nanos, slots: &mut [Conn]) {
        self.now = now;
        while self.leaving.front().is_some_and(|(since, _)| now.saturating_sub(*since) > AFTER)
            && let Some((_, number)) = self.leaving.pop_front()
        {
            self.front.free(number);
        }
        for _ in 0..AGAIN_BATCH {
            let is_over = |(since, _): &(Nanos, u32)| now.saturating_sub(*since) > AGAIN;
            if !self.refused.front().is_some_and(is_over) {
                return;
            }
            let Some((_, slot)) = self.refused.pop_front() else { return };
            let Some(numbers) = self.numbers.get_mut(slot as usize) else { return };
            // The slot may have another connection by now, which is then offered again, too.
            for number in numbers.iter_mut().filter(|number| **number >= REFUSED) {
                *number = NONE;
            }
            if let Some(conn) = slots.get_mut(slot as usize).filter(|_| numbers[0] == NONE) {
                conn.forget_offer();
            }
        }
    }
}

//! L2 table: from MAC address and VLAN to port, learnt from source addresses (IEEE 802.1Q, 8.8).
//!
//! ```text
//!  eth_dst, VLAN ──hash──> bucket  [ MAC VLAN | seen, port ] x 4      one cache line
//!                   └────> bucket  [ MAC VLAN | seen, port ] x 4      the other bucket
//! ```
//!
//! A frame that misses is to be flooded; so is a frame to a group address, which is never learnt. The
//! caller floods, and drops frames that would leave by the port by which they arrived. A station that
//! was silent for longer than the ageing time is unknown.
//!
//! If both buckets of an address are full of stations that are not aged out, the address is not
//! learnt. Forged addresses therefore cannot evict active stations, as they can in a table that
//! replaces entries.
//!
//! Invariants: an address has at most one entry; no allocation after `new`; time never goes back (an
//! earlier `now` counts as the latest known time).

use flowyard_frame::{Action, Batch, FlowKey, LANES, Lanes, Nanos, Rng, To};

use super::Table;
use crate::mix::fold;

mod announced;

pub use announced::Announced;

/// Entries of a bucket: four of 16 bytes are a cache line.
const WAYS: usize = 4;
/// The bits of a VLAN tag that are the VLAN id.
const VLAN: u16 = 0x0fff;
/// Times are kept in units of 2^16 ns, so that they share a word with the port.
const UNIT: u32 = 16;
/// The bit of a MAC address that marks group addresses.
const GROUP: u8 = 1;

/// A station. Key 0 is a free entry.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// MAC address and VLAN id.
    key: u64,
    /// The time when the station was last seen, and its port in the low 16 bits.
    seen: u64,
}

impl Entry {
    fn port(self) -> u16 {
        self.seen as u16
    }
}

/// One cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
struct Bucket([Entry; WAYS]);

/// The result of learning a source address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Learnt {
    /// The station was unknown.
    New,
    /// The station was known at this port, or a later observation is known.
    Known,
    /// The station was known at another port.
    Moved {
        /// The previous port.
        from: u16,
    },
    /// The station was not learnt: both buckets are full.
    Full,
    /// Not the address of a station: a group address, or zero.
    NoStation,
}

/// Counters of what was learnt.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Stations learnt.
    pub learnt: u64,
    /// Stations that changed ports.
    pub moved: u64,
    /// Stations not learnt because both buckets were full.
    pub full: u64,
}

/// A table of learnt stations.
#[derive(Clone, Debug)]
pub struct L2 {
    buckets: Box<[Bucket]>,
    seeds: [u64; 2],
    /// The ageing time, in units of 2^16 ns.
    age: u64,
    /// The latest known time, in units of 2^16 ns.
    now: u64,
    /// Counters since the start.
    pub counts: Counts,
}

impl L2 {
    /// A table for about `stations` stations (at most 2^24; it has twice as many entries) that forgets
    /// stations that were silent for `age` nanoseconds (802.1Q recommends 300 s; the resolution is
    /// 65,536 ns). `seed` decides where stations are placed; keep it from those who choose addresses.
    #[must_use]
    pub fn new(stations: usize, age: Nanos, seed: u64) -> Self {
        let buckets = stations.min(1 << 24).div_ceil(WAYS / 2).max(2);
        let mut random = Rng::new(seed);
        Self {
            buckets: vec![Bucket::default(); buckets].into(),
            seeds: [random.bits(), random.bits()],
            age: age.div_ceil(1 << UNIT),
            now: 0,
            counts: Counts::default(),
        }
    }

    /// Changes the ageing time, also for stations that are known.
    pub fn set_age(&mut self, age: Nanos) {
        self.age = age.div_ceil(1 << UNIT);
    }

    /// The port of a station, if it is known and not aged out at the latest known time.
    #[must_use]
    #[inline]
    pub fn get(&self, mac: &[u8; 6], vlan: u16) -> Option<u16> {
        let key = key(mac, vlan)?;
        let there = |&&entry: &&Entry| entry.key == key && self.lives(entry);
        let places = self.places(key).into_iter();
        places.flat_map(|at| &self.buckets[at].0).find(there).map(|entry| entry.port())
    }

    /// Learns that a frame from this station arrived by `port` at `now`.
    #[inline]
    pub fn learn(&mut self, mac: &[u8; 6], vlan: u16, port: u16, now: Nanos) -> Learnt {
        self.now = self.now.max(now >> UNIT);
        self.note(mac, vlan, port, self.now)
    }

    /// Takes over what another table learnt: the station was at `port` at time `at`. The later of two
    /// observations is kept. Observations older than the ageing time are ignored.
    pub fn hear(&mut self, mac: &[u8; 6], vlan: u16, port: u16, at: Nanos) -> Learnt {
        let at = at >> UNIT;
        self.now = self.now.max(at);
        if self.now - at > self.age {
            return Learnt::NoStation;
        }
        self.note(mac, vlan, port, at)
    }

    /// Records that this station was at `port` at `at`, unless a later observation is known.
    #[inline]
    fn note(&mut self, mac: &[u8; 6], vlan: u16, port: u16, at: u64) -> Learnt {
        let Some(key) = key(mac, vlan) else { return Learnt::NoStation };
        let places = self.places(key);
        let seen = at << UNIT | u64::from(port);
        for at in places {
            #[cfg(test)]
            tests::READS.set(tests::READS.get() + 1);
            if let Some(entry) = self.buckets[at].0.iter_mut().find(|entry| entry.key == key) {
                let before = *entry;
                if before.seen >> UNIT > seen >> UNIT {
                    return Learnt::Known;
                }
                if before.seen != seen {
                    entry.seen = seen; // a line that is not written stays clean
                }
                return if !self.lives(before) {
                    self.counts.learnt += 1;
                    Learnt::New
                } else if before.port() == port {
                    Learnt::Known
                } else {
                    self.counts.moved += 1;
                    Learnt::Moved { from: before.port() }
                };
            }
        }
        self.add(places, Entry { key, seen })
    }

    /// Advances the latest known time to `now`; stations that were silent for too long become unknown.
    pub fn advance(&mut self, now: Nanos) {
        self.now = self.now.max(now >> UNIT);
    }

    /// Forgets the stations at `port`, whose link went down.
    pub fn forget_port(&mut self, port: u16) {
        for entry in self.buckets.iter_mut().flat_map(|bucket| &mut bucket.0) {
            if entry.port() == port {
                *entry = Entry::default();
            }
        }
    }

    /// The stations known at the latest known time: MAC address, VLAN id, port.
    pub fn iter(&self) -> impl Iterator<Item = ([u8; 6], u16, u16)> + '_ {
        let entries = self.buckets.iter().flat_map(|bucket| &bucket.0);
        entries.filter(|entry| entry.key != 0 && self.lives(**entry)).map(|entry| {
            let [a, b, c, d, e, f, g, h] = entry.key.to_be_bytes();
            ([a, b, c, d, e, f], u16::from_be_bytes([g, h]), entry.port())
        })
    }

    /// Puts a new station into a free or aged entry of its buckets, or moves one station to make room.
    #[cold]
    fn add(&mut self, places: [usize; 2], new: Entry) -> Learnt {
        let free = |table: &Self, at: usize| {
            #[cfg(test)]
            tests::READS.set(tests::READS.get() + 1);
            let bucket = &table.buckets[at].0;
            let free = |entry: &&Entry| entry.key == 0 || !table.lives(**entry);
            (bucket.iter().filter(free).count(), bucket.iter().position(|entry| free(&entry)))
        };
        // The emptier bucket, which balances the load (Azar et al., "Balanced Allocations", 1999).
        let [a, b] = places.map(|at| (free(self, at), at));
        let ((_, way), at) = if b.0.0 > a.0.0 { b } else { a };
        let found = way.map(|way| (at, way)).or_else(|| {
            // One of the eight stations may fit in its other bucket.
            for at in places {
                for way in 0..WAYS {
                    let entry = self.buckets[at].0[way];
                    let other = self.places(entry.key).into_iter().find(|&other| other != at)?;
                    if let (_, Some(to)) = free(self, other) {
                        self.buckets[other].0[to] = entry;
                        return Some((at, way));
                    }
                }
            }
            None
        });
        let Some((at, way)) = found else {
            self.counts.full += 1;
            return Learnt::Full;
        };
        self.buckets[at].0[way] = new;
        self.counts.learnt += 1;
        Learnt::New
    }

    #[inline]
    fn lives(&self, entry: Entry) -> bool {
        self.now.saturating_sub(entry.seen >> UNIT) <= self.age
    }

    /// The two buckets of a key, always different.
    #[inline]
    fn places(&self, key: u64) -> [usize; 2] {
        let hash = fold(key ^ self.seeds[0], self.seeds[1] | 1);
        let buckets = self.buckets.len() as u64;
        let first = ((hash >> 32) * buckets) >> 32;
        let off = 1 + (((hash & 0xffff_ffff) * (buckets - 1)) >> 32);
        let second = first + off;
        [first as usize, if second >= buckets { second - buckets } else { second } as usize]
    }
}

impl Table for L2 {
    /// Sends frames to the port of their destination address. The caller floods the lanes that missed.
    #[inline]
    fn lookup(&mut self, batch: &mut Batch, want: Lanes) -> Lanes {
        let mut places = [[0; 2]; LANES];
        for lane in want {
            let FlowKey { eth_dst, vlan_tci, .. } = &batch.keys[lane];
            places[lane] = self.places(word(eth_dst, *vlan_tci));
        }
        let mut missed = want;
        for lane in want {
            let FlowKey { eth_dst, vlan_tci, .. } = &batch.keys[lane];
            let Some(key) = key(eth_dst, *vlan_tci) else { continue };
            let entries = places[lane].iter().flat_map(|&at| &self.buckets[at].0);
            for &entry in entries {
                if entry.key == key && self.lives(entry) {
                    let to = To::Port(entry.port());
                    batch.actions[lane] = Action { to, counter: 0, mark: 0 };
                    missed = missed.without(Lanes(1 << lane));
                    break;
                }
            }
        }
        missed
    }
}

#[inline]
fn word(mac: &[u8; 6], vlan: u16) -> u64 {
    let [a, b, c, d, e, f] = *mac;
    let [g, h] = (vlan & VLAN).to_be_bytes();
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// The key of a station; `None` for group addresses and the address zero.
#[inline]
fn key(mac: &[u8; 6], vlan: u16) -> Option<u64> {
    (mac[0] & GROUP == 0 && *mac != [0; 6]).then(|| word(mac, vlan))
}

#[cfg(test)]
mod tests;

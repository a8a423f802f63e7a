//! Persistence: which backend the connections of a client's network go to.
//!
//! ```text
//!  new connection ──> network of the client ──hash──> set of 8 entries ──> backend, if a connection came in time
//!                                                            │ none
//!                                                            └──> the service's choice, which is entered
//! ```
//!
//! A service has one table for all cores, because connections of a network come to several of them. Only the first packet of a
//! connection needs it. The table is a number of sets of [`WAYS`] entries, in shards with a lock each. Entry and choice happen
//! under one lock, so that cores never give a network two backends.
//!
//! When a set is full, an entry that has expired is replaced, or else the one that was used least recently of those that only
//! one connection has used, or else of all. So addresses that are forged at random replace each other, and not clients that
//! came twice.
//!
//! Invariants: the size is fixed; a network has at most one entry.
//! Thread-safety: any thread; it holds one shard's lock at a time. While a core chooses a backend under this lock, it may
//! take the locks of connection tables, one at a time. No lock of a shard is taken under that of a connection table.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use flowyard_frame::Nanos;
use flowyard_yard::handover::bytes::{BadState, Reader, Writer};

use crate::conns::ConnKey;

/// Entries that a network can have its place in.
const WAYS: usize = 8;
/// The most locks of a table.
const SHARDS: usize = 64;
/// Bits of a time that are less than a tick, which is 0.13 s.
const TICK_BITS: u32 = 27;

/// How connections of clients stay with a backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Persistence {
    /// The time without new connections after which the backend of a network is forgotten.
    pub timeout: Nanos,
    /// The leading bits of an IPv4 address that are its network.
    pub mask_v4: u8,
    /// The leading bits of an IPv6 address that are its network.
    pub mask_v6: u8,
    /// The most networks that are stored.
    pub networks: usize,
    /// Whether new connections of a network still go to its backend while this is drained.
    pub keeps_drained: bool,
}

/// The network of a client, with its family implied by the service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    bits: [u64; 2],
    hash: u64,
}

impl Persistence {
    /// The network of the client of a connection. `seed` is that of the choice of backends.
    #[must_use]
    pub fn network(&self, key: &ConnKey, seed: u64) -> Network {
        let bits = key.network(self.mask_v4, self.mask_v6);
        Network { bits, hash: ConnKey::of_network(bits).source_hash(seed) }
    }

    /// The network that an address belongs to, as it is written.
    #[must_use]
    pub fn written(&self, client: IpAddr) -> String {
        match client {
            IpAddr::V4(addr) => {
                let bits =
                    addr.to_bits() & (u32::MAX << (32 - u32::from(self.mask_v4.clamp(1, 32))));
                format!("{}/{}", std::net::Ipv4Addr::from_bits(bits), self.mask_v4)
            }
            IpAddr::V6(addr) => {
                let shift = 128 - u32::from(self.mask_v6.clamp(1, 128));
                let bits = addr.to_bits() & (u128::MAX << shift);
                format!("{}/{}", std::net::Ipv6Addr::from_bits(bits), self.mask_v6)
            }
        }
    }
}

impl Network {
    /// The hash by which the Maglev table is indexed for connections of this network.
    #[must_use]
    pub const fn hash(&self) -> u64 {
        self.hash
    }
}

#[derive(Clone, Copy, Default)]
struct Entry {
    bits: [u64; 2],
    backend: u32,
    /// When the last connection came, in ticks.
    last: u32,
    /// The number of connections; 0 is no entry.
    uses: u32,
}

/// What became of new connections of a service with persistence.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Persisted {
    /// Networks that have a backend now.
    pub networks: u64,
    /// Connections that went to the backend that their network had.
    pub kept: u64,
    /// Networks that were given a backend.
    pub given: u64,
    /// Networks that were given another backend, because theirs was down, removed, drained or at its limit.
    pub moved: u64,
    /// Networks that were forgotten before their time, because there was no room for another one.
    pub evicted: u64,
}

struct Shard {
    sets: Vec<[Entry; WAYS]>,
    counts: Persisted,
}

/// The networks of a service.
pub struct Persist {
    shards: Box<[Mutex<Shard>]>,
    /// The number of sets of all shards.
    sets: usize,
}

impl fmt::Debug for Persist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Persist").field("sets", &self.sets).finish_non_exhaustive()
    }
}

/// The entry of a network, or the one that it may replace, under its shard's lock.
pub(crate) struct Place<'a> {
    shard: MutexGuard<'a, Shard>,
    set: usize,
    network: Network,
    now: u32,
    /// The way of the network's entry, and its backend; the entry has not expired.
    found: Option<(usize, u32)>,
    /// The ticks after which an entry has expired.
    ticks: u32,
}

impl Persist {
    /// A table for at least `networks` networks.
    #[must_use]
    pub fn new(networks: usize) -> Self {
        let per_shard = networks.div_ceil(WAYS).max(1).div_ceil(SHARDS);
        let shards = networks.div_ceil(WAYS).max(1).div_ceil(per_shard);
        let shard = |_| {
            let sets = vec![[Entry::default(); WAYS]; per_shard];
            Mutex::new(Shard { sets, counts: Persisted::default() })
        };
        Self { shards: (0..shards).map(shard).collect(), sets: per_shard * shards }
    }

    /// The bytes of a table for this number of networks.
    #[must_use]
    pub const fn bytes(networks: usize) -> usize {
        networks.div_ceil(WAYS) * WAYS * size_of::<Entry>()
    }

    /// The place of a network.
    pub(crate) fn place(&self, network: Network, timeout: Nanos, now: Nanos) -> Place<'_> {
        // The Maglev table uses the high bits of the hash.
        let low = network.hash & 0xffff_ffff;
        let set = ((low * self.sets as u64) >> 32) as usize;
        let per_shard = self.sets / self.shards.len();
        let shard = &self.shards[set / per_shard];
        let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        let (set, now, ticks) = (set % per_shard, ticks(now), ticks(timeout).max(1));
        let is = |entry: &Entry| entry.uses > 0 && entry.bits == network.bits;
        let way = shard.sets[set].iter().position(is);
        let found = way.map(|way| (way, shard.sets[set][way]));
        let live = found.filter(|(_, entry)| now.wrapping_sub(entry.last) < ticks);
        let found = live.map(|(way, entry)| (way, entry.backend));
        Place { shard, set, network, now, found, ticks }
    }

    /// The backend of a network, and how long ago its last connection came, in nanoseconds. Changes nothing.
    #[must_use]
    pub fn get(&self, network: Network, timeout: Nanos, now: Nanos) -> Option<(u32, Nanos)> {
        let place = self.place(network, timeout, now);
        let (way, backend) = place.found?;
        let age = place.now.wrapping_sub(place.shard.sets[place.set][way].last);
        Some((backend, Nanos::from(age) << TICK_BITS))
    }

    /// What became of new connections. Locks one shard after the other.
    #[must_use]
    pub fn counts(&self, timeout: Nanos, now: Nanos) -> Persisted {
        let (now, most) = (ticks(now), ticks(timeout).max(1));
        let live = |entry: &&Entry| entry.uses > 0 && now.wrapping_sub(entry.last) < most;
        self.shards.iter().fold(Persisted::default(), |all, shard| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let networks = shard.sets.iter().flatten().filter(live).count() as u64;
            let one = shard.counts;
            Persisted {
                networks: all.networks + networks,
                kept: all.kept + one.kept,
                given: all.given + one.given,
                moved: all.moved + one.moved,
                evicted: all.evicted + one.evicted,
            }
        })
    }
}

impl Persist {
    /// Writes the networks that have a backend, for another process.
    pub(crate) fn hand_over(&self, timeout: Nanos, now: Nanos, writer: &mut Writer) {
        let (now, most) = (ticks(now), ticks(timeout).max(1));
        let mut all: Vec<Entry> = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let live = |entry: &&Entry| entry.uses > 0 && now.wrapping_sub(entry.last) < most;
            all.extend(shard.sets.iter().flatten().filter(live));
        }
        writer.number(all.len() as u64);
        for entry in all {
            let age = now.wrapping_sub(entry.last);
            entry.bits.iter().for_each(|bits| {
                writer.number(*bits);
            });
            writer.number(entry.backend.into()).number(age.into()).number(entry.uses.into());
        }
    }

    /// Enters what [`Persist::hand_over`] has written. `backend` gives the ID of a backend here. Networks for which there is
    /// no room are left out.
    pub(crate) fn take_over(
        &self,
        reader: &mut Reader<'_>,
        (how, seed): (&Persistence, u64),
        now: Nanos,
        backend: impl Fn(u32) -> Option<u32>,
    ) -> Result<(), BadState> {
        for _ in 0..reader.number()? {
            let bits = [reader.number()?, reader.number()?];
            let (there, age, uses) = (reader.small()?, reader.small()?, reader.small()?);
            let Some(backend) = backend(there) else { continue };
            let hash = ConnKey::of_network(bits).source_hash(seed);
            let mut place = self.place(Network { bits, hash }, how.timeout, now);
            let (last, set) = (place.now.wrapping_sub(age), place.set);
            let free = place.shard.sets[set].iter_mut().find(|entry| entry.uses == 0);
            if let Some(free) = free {
                *free = Entry { bits, backend, last, uses };
            }
        }
        Ok(())
    }
}

impl Place<'_> {
    /// The backend of the network, if it has one.
    pub(crate) fn backend(&self) -> Option<u32> {
        self.found.map(|(_, backend)| backend)
    }

    /// A connection goes to the backend of the network.
    pub(crate) fn keep(mut self) {
        let Some((way, _)) = self.found else { return };
        let entry = &mut self.shard.sets[self.set][way];
        (entry.last, entry.uses) = (self.now, entry.uses.saturating_add(1));
        self.shard.counts.kept += 1;
    }

    /// A connection goes to `backend`, and so will the next ones of the network.
    pub(crate) fn give(mut self, backend: u32) {
        let (now, ticks) = (self.now, self.ticks);
        let bits = self.network.bits;
        let entry = Entry { bits, backend, last: now, uses: 1 };
        if let Some((way, _)) = self.found {
            self.shard.sets[self.set][way] = entry;
            self.shard.counts.moved += 1;
            return;
        }
        let age = |entry: &Entry| now.wrapping_sub(entry.last);
        // An expired entry of the network itself must be the one that is replaced.
        let rank = |entry: &Entry| match entry.uses {
            0 => (3, 0),
            _ if entry.bits == bits => (4, 0),
            _ if age(entry) >= ticks => (2, age(entry)),
            1 => (1, age(entry)),
            _ => (0, age(entry)),
        };
        let set = &mut self.shard.sets[self.set];
        let Some(victim) = set.iter_mut().max_by_key(|entry| rank(entry)) else { return };
        let is_evicted = rank(victim).0 < 2;
        *victim = entry;
        self.shard.counts.given += 1;
        self.shard.counts.evicted += u64::from(is_evicted);
    }
}

const fn ticks(time: Nanos) -> u32 {
    (time >> TICK_BITS) as u32
}

#[cfg(test)]
mod tests;

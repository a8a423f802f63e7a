//! The flow table: all connections of a capture, with the load of each direction.
//!
//! A connection has one entry for both directions, and each direction is a flow. `FlowId` is
//! entry number * 2 + direction, so that every policy can keep its state per flow in an array.
//!
//! ```text
//!   key (5-tuple) --orient--> lower end first --hash--> entry number --*2+direction--> FlowId
//! ```
//!
//! Invariants: entries are never removed; their numbers are consecutive and in the order of the first
//! frames. Memory: [`Flows::BYTES_PER_CONNECTION`] and the state of the policies per flow; nothing
//! else grows with the capture.

use flowyard_frame::{FlowKey, LANES};
use hashbrown::HashTable;

use crate::mix;

/// The number of a flow: entry * 2, plus 1 for the frames of the higher end.
pub(crate) type FlowId = u32;

/// The 5-tuple of a connection with its lower end first: 40 bytes, five words.
#[derive(Clone, Copy, Debug)]
struct Ends([u64; 5]);

/// The entry of a connection: one cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Entry {
    ends: Ends,
    /// Wire bytes by direction.
    bytes: [u64; 2],
    /// Packets by direction.
    packets: [u32; 2],
}

/// A flow with its load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FlowLoad {
    pub(crate) id: FlowId,
    /// Wire bytes.
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
}

/// The role of the host in a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Role {
    /// The direction that the host receives: 0, 1 or [`Role::BOTH`].
    pub(crate) received: u8,
    /// The application thread that consumes the connection.
    pub(crate) thread: u16,
}

impl Role {
    /// The host receives both directions.
    pub(crate) const BOTH: u8 = 2;
}

/// All connections of a capture.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    index: HashTable<u32>,
    entries: Vec<Entry>,
    /// By connection as `entries`. A separate array, because it is small and read for every frame.
    roles: Vec<Role>,
}

impl Flows {
    /// Memory per connection in this table: its entry, its role, and its place in an index that is
    /// between 7/16 and 7/8 full and has 5 bytes per place.
    pub(crate) const BYTES_PER_CONNECTION: usize = size_of::<Entry>() + size_of::<Role>() + 12;

    /// Looks up the flows of a burst of keys, in order. A new connection is added with the role that
    /// `open` returns for the key and the direction of its first frame.
    ///
    /// There are three short loops instead of one long one. Each makes one kind of memory access for
    /// the whole burst, so that its cache misses overlap.
    #[inline]
    pub(crate) fn see(
        &mut self,
        keys: &[Option<&FlowKey>],
        ids: &mut [Option<FlowId>],
        mut open: impl FnMut(&FlowKey, u8) -> Role,
    ) {
        let mut asked = [(Ends([0; 5]), 0, 0); LANES];
        for (key, asked) in keys.iter().zip(&mut asked) {
            if let Some(key) = key {
                let (ends, direction) = orient(key);
                *asked = (ends, direction, ends.hash());
            }
        }
        self.warm(asked[..keys.len().min(LANES)].iter().map(|(_, _, hash)| *hash));
        for ((key, id), (ends, direction, hash)) in keys.iter().zip(ids).zip(asked) {
            *id = key.map(|key| {
                let at = self.enter(ends, hash, || open(key, direction));
                at * 2 + u32::from(direction)
            });
        }
    }

    /// Fetches the memory that lookups of `hashes` will read into the cache.
    #[inline]
    fn warm(&self, hashes: impl Iterator<Item = u64>) {
        let mut likely = [0; LANES];
        for (hash, likely) in hashes.zip(&mut likely) {
            // The first place with the same tag bits is nearly always the right one.
            *likely = self.index.find(hash, |_| true).map_or(0, |&at| at as usize);
        }
        let touch = |sum: u64, &at: &usize| match (self.entries.get(at), self.roles.get(at)) {
            (Some(entry), Some(role)) => sum ^ entry.ends.0[0] ^ u64::from(role.thread),
            _ => sum,
        };
        // The sum prevents the compiler from removing the loads.
        std::hint::black_box(likely.iter().fold(0, touch));
    }

    /// The entry number of the connection between these ends, which is added if it is new.
    #[inline]
    fn enter(&mut self, ends: Ends, hash: u64, open: impl FnOnce() -> Role) -> u32 {
        let entries = &mut self.entries;
        let slot = self.index.entry(
            hash,
            |&at| entries[at as usize].ends == ends,
            |&at| entries[at as usize].ends.hash(),
        );
        match slot {
            hashbrown::hash_table::Entry::Occupied(at) => *at.get(),
            hashbrown::hash_table::Entry::Vacant(free) => {
                let at = entries.len() as u32;
                entries.push(Entry { ends, bytes: [0; 2], packets: [0; 2] });
                self.roles.push(open());
                free.insert(at);
                at
            }
        }
    }

    /// Adds a frame to the load of its flow.
    #[inline]
    pub(crate) fn count(&mut self, id: FlowId, wire_len: u32) {
        let entry = &mut self.entries[id as usize / 2];
        entry.bytes[id as usize % 2] += u64::from(wire_len);
        entry.packets[id as usize % 2] += 1;
    }

    /// Whether the host receives this flow (otherwise it transmits it), and the consuming thread.
    #[inline]
    pub(crate) fn role(&self, id: FlowId) -> (bool, u16) {
        let role = self.roles[id as usize / 2];
        (role.received == Role::BOTH || u32::from(role.received) == id % 2, role.thread)
    }

    /// Number of connections.
    pub(crate) fn connections(&self) -> usize {
        self.entries.len()
    }

    /// The load of a flow.
    pub(crate) fn load(&self, id: FlowId) -> FlowLoad {
        let entry = &self.entries[id as usize / 2];
        let direction = id as usize % 2;
        let packets = u64::from(entry.packets[direction]);
        FlowLoad { id, bytes: entry.bytes[direction], packets }
    }

    /// Every flow that the host receives.
    pub(crate) fn received(&self) -> impl Iterator<Item = FlowLoad> + '_ {
        let flows = 0..self.entries.len() as u32 * 2;
        let loads = flows.map(|id| self.load(id));
        loads.filter(|flow| flow.packets > 0 && self.role(flow.id).0)
    }

    /// The 5-tuple of a flow.
    pub(crate) fn key(&self, id: FlowId) -> FlowKey {
        let low_first = self.entries[id as usize / 2].ends.key();
        if id.is_multiple_of(2) { low_first } else { low_first.reversed() }
    }
}

/// The 5-tuple with its lower end first, and 1 if source and destination were exchanged for that.
#[inline]
fn orient(key: &FlowKey) -> (Ends, u8) {
    let (src, dst) = (u128::from_be_bytes(key.src), u128::from_be_bytes(key.dst));
    let swap = (src, key.sport) > (dst, key.dport);
    let (low, low_port, high, high_port) =
        if swap { (dst, key.dport, src, key.sport) } else { (src, key.sport, dst, key.dport) };
    let tail = u64::from(low_port) << 48
        | u64::from(high_port) << 32
        | u64::from(key.proto) << 16
        | u64::from(key.eth_type);
    let halves = |n: u128| [(n >> 64) as u64, n as u64];
    let ([low0, low1], [high0, high1]) = (halves(low), halves(high));
    (Ends([low0, low1, high0, high1, tail]), u8::from(swap))
}

/// Compares word by word in registers, because a call to `memcmp` would cost as much as the lookup.
impl PartialEq for Ends {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        let [a, b] = [&self.0, &other.0];
        (a[0] ^ b[0] | a[1] ^ b[1] | a[2] ^ b[2] | a[3] ^ b[3] | a[4] ^ b[4]) == 0
    }
}

impl Ends {
    #[inline]
    fn hash(&self) -> u64 {
        self.0.iter().fold(0, |hash, &word| mix(hash ^ word))
    }

    fn key(&self) -> FlowKey {
        let [low0, low1, high0, high1, tail] = self.0;
        let slot = |a: u64, b: u64| (u128::from(a) << 64 | u128::from(b)).to_be_bytes();
        FlowKey {
            src: slot(low0, low1),
            dst: slot(high0, high1),
            sport: (tail >> 48) as u16,
            dport: (tail >> 32) as u16,
            proto: (tail >> 16) as u8,
            eth_type: tail as u16,
            ..FlowKey::ZERO
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn key(a: u8, sport: u16, b: u8, dport: u16) -> FlowKey {
        let ip = |n| Ipv4Addr::new(10, 0, 0, n).into();
        FlowKey::five_tuple(6, ip(a), sport, ip(b), dport)
    }

    fn see(flows: &mut Flows, key: FlowKey, open: impl FnMut(&FlowKey, u8) -> Role) -> FlowId {
        let mut id = [None];
        flows.see(&[Some(&key)], &mut id, open);
        id[0].unwrap()
    }

    fn server(_: &FlowKey, direction: u8) -> Role {
        Role { received: direction, thread: 3 }
    }

    #[test]
    fn two_directions_share_an_entry() {
        let mut flows = Flows::default();
        let there = see(&mut flows, key(1, 4000, 2, 80), server);
        let back =
            see(&mut flows, key(2, 80, 1, 4000), |_, _| unreachable!("the connection is known"));
        assert_eq!(there ^ back, 1);
        assert_eq!(flows.key(there), key(1, 4000, 2, 80));
        assert_eq!(flows.key(back), key(2, 80, 1, 4000));
        assert_eq!(flows.connections(), 1);
    }

    #[test]
    fn loads_and_roles_are_by_direction() {
        let mut flows = Flows::default();
        let there = see(&mut flows, key(1, 4000, 2, 80), server);
        let back = there ^ 1;
        flows.count(there, 100);
        flows.count(back, 60);
        flows.count(back, 60);
        let load = |id, bytes, packets| FlowLoad { id, bytes, packets };
        assert_eq!(flows.load(there), load(there, 100, 1));
        assert_eq!(flows.load(back), load(back, 120, 2));
        assert_eq!((flows.role(there), flows.role(back)), ((true, 3), (false, 3)));
        assert_eq!(flows.received().collect::<Vec<_>>(), [load(there, 100, 1)]);
    }

    /// Compares with a map, in bursts with new, known, repeated and absent keys.
    #[test]
    fn many_connections_keep_their_numbers() {
        let mut flows = Flows::default();
        let mut model = std::collections::HashMap::new();
        let mut opened = 0;
        for burst in 0..2000_u64 {
            let keys: Vec<_> = (0..LANES as u64)
                .map(|lane| {
                    let dice = mix(burst << 8 | lane);
                    let proto = if dice & 1 == 0 { 6 } else { 17 };
                    let known = FlowKey { proto, ..key(1, (dice >> 8) as u16 & 0xfff, 2, 80) };
                    (dice & 30 != 0).then_some(known)
                })
                .collect();
            let mut ids = [None; LANES];
            let asked: Vec<_> = keys.iter().map(Option::as_ref).collect();
            flows.see(&asked, &mut ids, |key, direction| {
                opened += 1;
                server(key, direction)
            });
            for (key, id) in keys.iter().zip(ids) {
                assert_eq!(key.is_some(), id.is_some());
                if let (Some(key), Some(id)) = (key, id) {
                    assert_eq!(*model.entry(*key).or_insert(id), id);
                    assert_eq!(flows.key(id), *key);
                }
            }
        }
        assert_eq!((opened, flows.connections()), (model.len(), model.len()));
    }
}

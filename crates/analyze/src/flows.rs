//! The flow table: who has been seen, and how much of it.
//!
//! A connection is one entry, whatever its direction; the two directions of an entry are two
//! flows. `FlowId` = entry number * 2 + direction, so that per-flow state of every policy can be
//! a plain array.
//!
//! ```text
//!   key (5-tuple) --orient--> (low end first) --hash--> entry number --*2+direction--> FlowId
//! ```
//!
//! Invariants: entries are never removed, numbers are dense and given in order of first sight.
//! Memory: [`Flows::BYTES_PER_CONNECTION`] and the policies' own state per flow, nothing else that
//! grows with a capture.

use flowyard_frame::FlowKey;
use hashbrown::HashTable;

use crate::mix;

/// A direction of a connection, by dense number: entry * 2, plus 1 for the far end's frames.
pub(crate) type FlowId = u32;

/// A connection's 5-tuple with its lower end first: 40 bytes, five words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ends([u64; 5]);

/// What is kept of each connection.
#[derive(Clone, Debug)]
struct Entry {
    ends: Ends,
    /// Wire bytes and packets, by direction.
    bytes: [u64; 2],
    packets: [u32; 2],
    /// The direction whose frames this host receives; `None` while it receives both.
    received: Option<u8>,
    /// The application thread that consumes the connection.
    thread: u16,
    opened: bool,
}

/// Where a frame stands in the flow table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    pub(crate) id: FlowId,
    pub(crate) new: bool,
}

/// All connections of a capture.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    index: HashTable<u32>,
    entries: Vec<Entry>,
}

impl Flows {
    /// What one connection costs here: its entry, its place in the index and the index's spare room.
    pub(crate) const BYTES_PER_CONNECTION: usize = size_of::<Entry>() + 6;

    /// The flow of `key`, entered now if it is new.
    #[inline]
    pub(crate) fn see(&mut self, key: &FlowKey) -> Seen {
        let (ends, direction) = orient(key);
        let hash = ends.hash();
        let entries = &mut self.entries;
        let slot = self.index.entry(
            hash,
            |&at| entries[at as usize].ends == ends,
            |&at| entries[at as usize].ends.hash(),
        );
        match slot {
            hashbrown::hash_table::Entry::Occupied(at) => {
                Seen { id: *at.get() * 2 + u32::from(direction), new: false }
            }
            hashbrown::hash_table::Entry::Vacant(free) => {
                let at = entries.len() as u32;
                entries.push(Entry {
                    ends,
                    bytes: [0; 2],
                    packets: [0; 2],
                    received: None,
                    thread: 0,
                    opened: false,
                });
                free.insert(at);
                Seen { id: at * 2 + u32::from(direction), new: true }
            }
        }
    }

    /// The flow of `key`, if it was ever seen.
    pub(crate) fn find(&self, key: &FlowKey) -> Option<FlowId> {
        let (ends, direction) = orient(key);
        let at = self.index.find(ends.hash(), |&at| self.entries[at as usize].ends == ends)?;
        Some(at * 2 + u32::from(direction))
    }

    /// Adds a frame to its flow.
    #[inline]
    pub(crate) fn count(&mut self, id: FlowId, wire_len: u32) {
        let entry = &mut self.entries[id as usize / 2];
        entry.bytes[id as usize % 2] += u64::from(wire_len);
        entry.packets[id as usize % 2] += 1;
    }

    /// Fixes, at a connection's first frame, which direction the host receives and who consumes it.
    pub(crate) fn open(&mut self, id: FlowId, received: Option<FlowId>, thread: u16) {
        let entry = &mut self.entries[id as usize / 2];
        entry.received = received.map(|id| (id % 2) as u8);
        entry.thread = thread;
        entry.opened = true;
    }

    /// Whether the host receives this flow (else it transmits it), and the thread that consumes it.
    #[inline]
    pub(crate) fn role(&self, id: FlowId) -> (bool, u16) {
        let entry = &self.entries[id as usize / 2];
        debug_assert!(entry.opened, "open() comes before role()");
        (entry.received.is_none_or(|direction| u32::from(direction) == id % 2), entry.thread)
    }

    /// How many connections there are.
    pub(crate) fn connections(&self) -> usize {
        self.entries.len()
    }

    /// Wire bytes and packets of a flow.
    pub(crate) fn load(&self, id: FlowId) -> (u64, u64) {
        let entry = &self.entries[id as usize / 2];
        (entry.bytes[id as usize % 2], u64::from(entry.packets[id as usize % 2]))
    }

    /// Every flow that the host receives, with its wire bytes and packets.
    pub(crate) fn received(&self) -> impl Iterator<Item = (FlowId, u64, u64)> + '_ {
        (0..self.entries.len() as u32 * 2).filter_map(|id| {
            let (bytes, packets) = self.load(id);
            (packets > 0 && self.role(id).0).then_some((id, bytes, packets))
        })
    }

    /// The 5-tuple of a flow.
    pub(crate) fn key(&self, id: FlowId) -> FlowKey {
        let low_first = self.entries[id as usize / 2].ends.key();
        if id.is_multiple_of(2) { low_first } else { low_first.reversed() }
    }
}

/// The 5-tuple with its lower end first, and whether that turned it round.
#[inline]
fn orient(key: &FlowKey) -> (Ends, u8) {
    let swap = (key.src, key.sport) > (key.dst, key.dport);
    let (low, low_port, high, high_port) = if swap {
        (&key.dst, key.dport, &key.src, key.sport)
    } else {
        (&key.src, key.sport, &key.dst, key.dport)
    };
    let half = |bytes: &[u8; 16], at: usize| {
        u64::from_be_bytes(std::array::from_fn(|i| bytes[at + i]))
    };
    let tail = u64::from(low_port) << 48
        | u64::from(high_port) << 32
        | u64::from(key.proto) << 16
        | u64::from(key.eth_type);
    (Ends([half(low, 0), half(low, 8), half(high, 0), half(high, 8), tail]), u8::from(swap))
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

    #[test]
    fn two_directions_share_an_entry() {
        let mut flows = Flows::default();
        let there = flows.see(&key(1, 4000, 2, 80));
        let back = flows.see(&key(2, 80, 1, 4000));
        assert!(there.new && !back.new);
        assert_eq!(there.id ^ back.id, 1);
        assert_eq!(flows.key(there.id), key(1, 4000, 2, 80));
        assert_eq!(flows.key(back.id), key(2, 80, 1, 4000));
        assert_eq!(flows.find(&key(2, 80, 1, 4000)), Some(back.id));
        assert_eq!(flows.find(&key(2, 81, 1, 4000)), None);
        assert_eq!(flows.connections(), 1);
    }

    #[test]
    fn loads_and_roles_are_by_direction() {
        let mut flows = Flows::default();
        let there = flows.see(&key(1, 4000, 2, 80)).id;
        let back = flows.see(&key(2, 80, 1, 4000)).id;
        flows.open(there, Some(there), 3);
        flows.count(there, 100);
        flows.count(back, 60);
        flows.count(back, 60);
        assert_eq!((flows.load(there), flows.load(back)), ((100, 1), (120, 2)));
        assert_eq!((flows.role(there), flows.role(back)), ((true, 3), (false, 3)));
        assert_eq!(flows.received().collect::<Vec<_>>(), [(there, 100, 1)]);
    }

    #[test]
    fn the_same_ends_in_another_protocol_are_another_connection() {
        let mut flows = Flows::default();
        flows.see(&key(1, 4000, 2, 80));
        assert!(flows.see(&FlowKey { proto: 17, ..key(1, 4000, 2, 80) }).new);
    }
}

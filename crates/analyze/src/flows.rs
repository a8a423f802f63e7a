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
#[derive(Clone, Copy, Debug)]
struct Ends([u64; 5]);

/// What is kept of each connection: one cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Entry {
    ends: Ends,
    /// Wire bytes and packets, by direction.
    bytes: [u64; 2],
    packets: [u32; 2],
}

/// What the host has to do with a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Role {
    /// The direction whose frames the host receives: 0 or 1, or [`Role::BOTH`].
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
    /// By connection, like `entries`; apart, because it is read for every frame and small.
    roles: Vec<Role>,
}

impl Flows {
    /// What one connection costs here: its entry, its role, and its place in an index that is
    /// between 7/16 and 7/8 full at 5 bytes a place.
    pub(crate) const BYTES_PER_CONNECTION: usize = size_of::<Entry>() + size_of::<Role>() + 12;

    /// The flow of `key`. A new connection is entered, with the role that `open` gives it; `open`
    /// is told the direction of this first frame.
    #[inline]
    pub(crate) fn see(&mut self, key: &FlowKey, open: impl FnOnce(u8) -> Role) -> FlowId {
        let (ends, direction) = orient(key);
        let entries = &mut self.entries;
        let slot = self.index.entry(
            ends.hash(),
            |&at| entries[at as usize].ends == ends,
            |&at| entries[at as usize].ends.hash(),
        );
        let at = match slot {
            hashbrown::hash_table::Entry::Occupied(at) => *at.get(),
            hashbrown::hash_table::Entry::Vacant(free) => {
                let at = entries.len() as u32;
                entries.push(Entry { ends, bytes: [0; 2], packets: [0; 2] });
                self.roles.push(open(direction));
                free.insert(at);
                at
            }
        };
        at * 2 + u32::from(direction)
    }

    /// Adds a frame to its flow.
    #[inline]
    pub(crate) fn count(&mut self, id: FlowId, wire_len: u32) {
        let entry = &mut self.entries[id as usize / 2];
        entry.bytes[id as usize % 2] += u64::from(wire_len);
        entry.packets[id as usize % 2] += 1;
    }

    /// Whether the host receives this flow (else it transmits it), and the thread that consumes it.
    #[inline]
    pub(crate) fn role(&self, id: FlowId) -> (bool, u16) {
        let role = self.roles[id as usize / 2];
        (role.received == Role::BOTH || u32::from(role.received) == id % 2, role.thread)
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

/// Word by word, in registers: a call to `memcmp` would cost as much as the look-up.
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

    const SERVER: fn(u8) -> Role = |direction| Role { received: direction, thread: 3 };

    #[test]
    fn two_directions_share_an_entry() {
        let mut flows = Flows::default();
        let there = flows.see(&key(1, 4000, 2, 80), SERVER);
        let back = flows.see(&key(2, 80, 1, 4000), |_| unreachable!("it is known"));
        assert_eq!(there ^ back, 1);
        assert_eq!(flows.key(there), key(1, 4000, 2, 80));
        assert_eq!(flows.key(back), key(2, 80, 1, 4000));
        assert_eq!(flows.connections(), 1);
    }

    #[test]
    fn loads_and_roles_are_by_direction() {
        let mut flows = Flows::default();
        let there = flows.see(&key(1, 4000, 2, 80), SERVER);
        let back = there ^ 1;
        flows.count(there, 100);
        flows.count(back, 60);
        flows.count(back, 60);
        assert_eq!((flows.load(there), flows.load(back)), ((100, 1), (120, 2)));
        assert_eq!((flows.role(there), flows.role(back)), ((true, 3), (false, 3)));
        assert_eq!(flows.received().collect::<Vec<_>>(), [(there, 100, 1)]);
    }

    #[test]
    fn many_connections_keep_their_numbers() {
        let mut flows = Flows::default();
        let mut new = 0;
        let mut see = |n: u16| {
            let key = key(1, n, 2, 80);
            flows.see(&key, |direction| {
                new += 1;
                SERVER(direction)
            })
        };
        let first: Vec<_> = (0..5000).map(&mut see).collect();
        let again: Vec<_> = (0..5000).map(&mut see).collect();
        assert_eq!(first, again);
        assert_eq!(new, 5000);
        let udp = FlowKey { proto: 17, ..key(1, 7, 2, 80) };
        assert!(
            !first.contains(&flows.see(&udp, SERVER)),
            "another protocol is another connection"
        );
    }
}

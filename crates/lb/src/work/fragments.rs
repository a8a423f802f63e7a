//! Fragments: fragments after the first have no ports, so they are handled like the first fragment of
//! their packet.
//!
//! The engine steers all fragments between two hosts to one core, which corresponds to the second hop by
//! 3-tuple of the Maglev paper (section 4.3). This is the table on that core. A later fragment that
//! arrives before the first is dropped and counted, because its connection is unknown. Senders use an identification
//! again after some time, so a first fragment is forgotten after the time that its receiver would wait for the others.
//!
//! Invariants: the size is fixed; a newer packet replaces an older one in the same entry; who does not know
//! the key cannot choose which.

use crate::ConnKey;
use flowyard_frame::{FlowKey, Nanos};

use super::rewrite::{Packet, l3_of};

/// Number of entries.
const PLACES: usize = 4096;
/// The time after which a receiver gives up a packet (RFC 8200 section 4.5, RFC 1122 section 3.3.2).
const AGE: Nanos = 60_000_000_000;

#[derive(Clone, Copy)]
struct Entry<T> {
    /// Addresses and protocol, without ports.
    whose: ConnKey,
    /// The identification field of the IP header.
    id: u32,
    /// When the first fragment came.
    at: Nanos,
    /// The identification towards a backend that sees other addresses.
    new_id: u16,
    found: T,
}

/// A value for each packet whose first fragment was seen.
pub(super) struct Fragments<T> {
    entries: Box<[Option<Entry<T>>]>,
    key: u64,
    /// New identifications: the first one, how many there are, and how many packets have got one.
    ids: (u16, u32),
    count: u32,
}

impl<T: Copy> Fragments<T> {
    /// No packets. `key` decides which packets share an entry. Each of `cores` cores has a part of the new
    /// identifications, because packets of several cores may leave with one address.
    pub(super) fn new(key: u64, core: usize, cores: usize) -> Self {
        let part = ((1 << 16) / cores.max(1) as u32).max(1);
        let first = (key as u16).wrapping_add((part * core as u32) as u16);
        Self { entries: vec![None; PLACES].into(), key, ids: (first, part), count: 0 }
    }

    /// Stores the value of a first fragment. The packet must not have been modified yet.
    pub(super) fn put(&mut self, packet: &Packet<'_>, key: &FlowKey, found: T, now: Nanos) {
        let Some(id) = id(packet.bytes, key.is_ipv6()) else { return };
        let (whose, at) = self.place(key, id);
        let (first, part) = self.ids;
        let new_id = first.wrapping_add(self.count as u16);
        self.entries[at] = Some(Entry { whose, id, at: now, new_id, found });
        self.count = (self.count + 1) % part;
    }

    /// The value stored for the packet of a later fragment.
    pub(super) fn get(&self, bytes: &[u8], key: &FlowKey, now: Nanos) -> Option<T> {
        self.entry(bytes.get(l3_of(bytes)?..)?, key, now).map(|entry| entry.found)
    }

    /// The identification that the fragments of an IPv4 packet get, if they leave with an address that other senders have,
    /// too: no two of their packets have the same for as long as possible (RFC 6864 section 5.3). The packet must not have
    /// been modified yet.
    pub(super) fn new_id(&self, packet: &Packet<'_>, key: &FlowKey, now: Nanos) -> Option<u16> {
        self.entry(packet.bytes, key, now).filter(|_| !packet.v6).map(|entry| entry.new_id)
    }

    fn entry(&self, packet: &[u8], key: &FlowKey, now: Nanos) -> Option<&Entry<T>> {
        let id = id(packet, key.is_ipv6())?;
        let (whose, at) = self.place(key, id);
        let entry = self.entries[at].as_ref()?;
        let is_young = now.saturating_sub(entry.at) <= AGE;
        (is_young && (entry.whose, entry.id) == (whose, id)).then_some(entry)
    }

    fn place(&self, key: &FlowKey, id: u32) -> (ConnKey, usize) {
        let whose = ConnKey::of(&FlowKey { sport: 0, dport: 0, ..*key });
        (whose, (whose.hash(self.key ^ u64::from(id)) >> 32) as usize % PLACES)
    }
}

/// The identification of a fragment.
fn id(packet: &[u8], v6: bool) -> Option<u32> {
    if !v6 {
        return Some(u16::from_be_bytes(*packet.get(4..)?.first_chunk()?).into());
    }
    // RFC 8200 section 4.5: after hop-by-hop, destination and routing headers.
    let (mut next, mut at) = (*packet.get(6)?, 40);
    for _ in 0..8 {
        let header = packet.get(at..)?.first_chunk::<8>()?;
        match next {
            44 => return Some(u32::from_be_bytes([header[4], header[5], header[6], header[7]])),
            0 | 43 | 60 => {
                next = header[0];
                at += (usize::from(header[1]) + 1) * 8;
            }
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use flowyard_flow::{Secret, parse};
    use flowyard_wire::{Headers, LinkType};

    use super::*;

    /// Packets of the adversary.
    const COUNT: usize = 200;

    /// The first or the last fragment of packet `n` of a sender who chooses address and identification.
    fn fragment(n: u32, is_first: bool) -> Vec<u8> {
        let [a, b, high, low] = n.to_be_bytes();
        let word = if is_first { [0x20, 0] } else { [0, 2] };
        let mut frame = [&[2; 12][..], &[8, 0, 0x45, 0, 0, 36, high, low]].concat();
        frame.extend([word[0], word[1], 64, 17, 0, 0, 10, 9, a, b, 192, 0, 2, 1]);
        frame.extend([1, 2, 0, 53, 0, 24, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9]);
        frame
    }

    fn key(frame: &[u8]) -> FlowKey {
        parse::key(&Headers::parse(LinkType::Ethernet, frame), frame, 0)
    }

    fn put(table: &mut Fragments<u32>, n: u32) {
        let mut frame = fragment(n, true);
        let key = key(&frame);
        table.put(&Packet::new(&mut frame, &key).unwrap(), &key, n, 5);
    }

    fn get(table: &Fragments<u32>, n: u32) -> Option<u32> {
        get_at(table, n, 5)
    }

    fn get_at(table: &Fragments<u32>, n: u32, now: Nanos) -> Option<u32> {
        let frame = fragment(n, false);
        table.get(&frame, &key(&frame), now)
    }

    #[test]
    fn later_fragments_get_the_value_of_the_first() {
        let mut table = Fragments::new(7, 0, 1);
        assert_eq!(get(&table, 1), None, "the first fragment was not seen");
        put(&mut table, 1);
        assert_eq!([1, 2, 1 << 16 | 1].map(|n| get(&table, n)), [Some(1), None, None]);
        put(&mut table, 1 << 16 | 1);
        assert_eq!([1, 1 << 16 | 1].map(|n| get(&table, n)), [Some(1), Some(1 << 16 | 1)]);
    }

    /// Packets of several cores may leave with one address.
    #[test]
    fn cores_have_different_identifications() {
        for cores in [1, 3, 4] {
            let mut all = std::collections::BTreeSet::new();
            let part = (1 << 16) / cores;
            for core in 0..cores {
                let mut table = Fragments::new(0x7f00, core, cores);
                for n in 0..part as u32 {
                    put(&mut table, n);
                    let mut frame = fragment(n, true);
                    let key = key(&frame);
                    let packet = Packet::new(&mut frame, &key).unwrap();
                    all.insert(table.new_id(&packet, &key, 5).unwrap());
                }
            }
            assert_eq!(all.len(), part * cores);
        }
    }

    /// A sender has used the identification again, and the first fragment is late.
    #[test]
    fn a_first_fragment_is_forgotten_after_a_minute() {
        let mut table = Fragments::new(7, 0, 1);
        put(&mut table, 1);
        let after = [0, AGE, AGE + 1].map(|time| get_at(&table, 1, 5 + time));
        assert_eq!(after, [Some(1), Some(1), None]);
    }

    #[test]
    fn the_identification_of_ipv6_is_behind_other_headers() {
        let fragment = [17, 0, 0, 1, 1, 2, 3, 4];
        let head =
            |next: u8, rest: &[u8]| [&[0x60, 0, 0, 0, 0, 8, next, 64][..], &[7; 32], rest].concat();
        let wanted = Some(0x0102_0304);
        assert_eq!(id(&head(44, &fragment), true), wanted);
        for kind in [0, 43, 60] {
            let one = [&[44, 0][..], &[9; 6], &fragment].concat();
            assert_eq!(id(&head(kind, &one), true), wanted);
            let long = [&[44, 2][..], &[9; 22], &fragment].concat();
            assert_eq!(id(&head(kind, &long), true), wanted);
        }
        let others = [&[60, 0][..], &[9; 6]].concat().repeat(6);
        let chain = |count: usize| [&others[..8 * count], &[44, 0], &[9; 6], &fragment].concat();
        assert_eq!(id(&head(60, &chain(6)), true), wanted, "the eighth header");
        assert_eq!(id(&head(60, &[&others[..8], &chain(6)].concat()), true), None, "too many");
        assert_eq!(id(&head(17, &fragment), true), None);
        assert_eq!(id(&head(44, &fragment[..7]), true), None);
        assert_eq!(id(&[0x45, 0, 0, 20, 3, 9], false), Some(0x0309));
    }

    /// The packets whose value another has replaced before their last fragment comes.
    fn lost(secret: Secret, packets: &[u32]) -> usize {
        let mut table = Fragments::new(secret.key("fragments"), 0, 1);
        packets.iter().for_each(|n| put(&mut table, *n));
        packets.iter().filter(|n| get(&table, **n).is_none()).count()
    }

    /// Packets that share an entry replace each other. An adversary who knows the key can compute them, and
    /// keep another's packet from its fragments.
    #[test]
    fn without_the_secret_crafted_packets_replace_each_other_as_often_as_others() {
        let known = Fragments::<u32>::new(Secret::FIXED.key("fragments"), 0, 1);
        let mut by_place = BTreeMap::<_, Vec<_>>::new();
        let crafted = (0..).find_map(|n| {
            let same =
                by_place.entry(known.place(&key(&fragment(n, true)), n & 0xffff).1).or_default();
            same.push(n);
            (same.len() == COUNT).then(|| same.clone())
        });
        let (crafted, others) =
            (crafted.unwrap(), Vec::from_iter(1 << 30..(1 << 30) + COUNT as u32));
        assert_eq!(lost(Secret::FIXED, &crafted), COUNT - 1);
        let of_all = |packets: &[u32]| -> Vec<usize> {
            (2..80).map(|byte| lost(Secret::drawn([byte; 16]), packets)).collect()
        };
        let mut usual = of_all(&others);
        usual.sort_unstable();
        let (median, all) = (usual[usual.len() / 2], of_all(&crafted));
        let mean = all.iter().sum::<usize>() as f64 / all.len() as f64;
        assert!(median > 0 && mean <= 2.0 * median as f64, "{all:?}, usual {median}");
    }
}

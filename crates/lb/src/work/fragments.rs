//! Fragments: fragments after the first have no ports, so they are handled like the first fragment of
//! their packet.
//!
//! The engine steers all fragments between two hosts to one core, which corresponds to the second hop by
//! 3-tuple of the Maglev paper (section 4.3). This is the table on that core. A later fragment that
//! arrives before the first is dropped and counted, because its connection is unknown.
//!
//! Invariants: the size is fixed; a newer packet replaces an older one in the same entry; who does not know
//! the key cannot choose which.

use crate::ConnKey;
use flowyard_frame::FlowKey;

use super::rewrite::{Packet, l3_of};

/// Number of entries.
const PLACES: usize = 4096;

#[derive(Clone, Copy)]
struct Entry<T> {
    /// Addresses and protocol, without ports.
    whose: ConnKey,
    /// The identification field of the IP header.
    id: u32,
    found: T,
}

/// A value for each packet whose first fragment was seen.
pub(super) struct Fragments<T> {
    entries: Box<[Option<Entry<T>>]>,
    key: u64,
}

impl<T: Copy> Fragments<T> {
    /// No packets. `key` decides which packets share an entry.
    pub(super) fn new(key: u64) -> Self {
        Self { entries: vec![None; PLACES].into(), key }
    }

    /// Stores the value of a first fragment. The packet must not have been modified yet.
    pub(super) fn put(&mut self, packet: &Packet<'_>, key: &FlowKey, found: T) {
        let Some(id) = id(packet.bytes, key.is_ipv6()) else { return };
        let (whose, at) = self.place(key, id);
        self.entries[at] = Some(Entry { whose, id, found });
    }

    /// The value stored for the packet of a later fragment.
    pub(super) fn get(&self, bytes: &[u8], key: &FlowKey) -> Option<T> {
        let id = id(bytes.get(l3_of(bytes)?..)?, key.is_ipv6())?;
        let (whose, at) = self.place(key, id);
        let entry = self.entries[at].as_ref()?;
        ((entry.whose, entry.id) == (whose, id)).then_some(entry.found)
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

//! Fragments: later ones have no ports, so what was found for the first of their packet holds for them.
//!
//! All fragments between two hosts are one flow to the yard (`steer` sends them to one core), which is
//! the second hop by 3-tuple of the Maglev paper (section 4.3); here is its table. A later fragment
//! that comes before the first is dropped, and counted: nobody knows whose it is.
//!
//! Invariants: fixed in size; a newer packet takes the place of an older one.

use crate::ConnKey;
use flowyard_frame::FlowKey;

use super::l3_of;
use super::rewrite::Packet;

/// Packets that are remembered.
const PLACES: usize = 4096;

#[derive(Clone, Copy)]
struct Entry<T> {
    /// Addresses and protocol; the identification.
    whose: ConnKey,
    id: u32,
    found: T,
}

/// What was found for first fragments.
pub(super) struct Fragments<T> {
    entries: Box<[Option<Entry<T>>]>,
}

impl<T: Copy> Fragments<T> {
    pub(super) fn new() -> Self {
        Self { entries: vec![None; PLACES].into() }
    }

    /// Remembers what was found for a first fragment, before it is changed.
    pub(super) fn put(&mut self, packet: &Packet<'_>, key: &FlowKey, found: T) {
        let Some(id) = id(packet.bytes, key.is_ipv6()) else { return };
        let (whose, at) = place(key, id);
        self.entries[at] = Some(Entry { whose, id, found });
    }

    /// What holds for a later one.
    pub(super) fn get(&self, bytes: &[u8], key: &FlowKey) -> Option<T> {
        let id = id(bytes.get(l3_of(bytes)?..)?, key.is_ipv6())?;
        let (whose, at) = place(key, id);
        let entry = self.entries[at].as_ref()?;
        ((entry.whose, entry.id) == (whose, id)).then_some(entry.found)
    }
}

fn place(key: &FlowKey, id: u32) -> (ConnKey, usize) {
    let whose = ConnKey::of(&FlowKey { sport: 0, dport: 0, ..*key });
    (whose, (whose.hash(id.into()) >> 32) as usize % PLACES)
}

/// The identification of a fragment.
fn id(packet: &[u8], v6: bool) -> Option<u32> {
    if !v6 {
        return Some(u16::from_be_bytes(*packet.get(4..)?.first_chunk()?).into());
    }
    // RFC 8200 section 4.5: behind hop-by-hop, destination and routing headers.
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

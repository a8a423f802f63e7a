//! Where the bytes of a slot are.

use std::sync::Arc;

use flowyard_mem::Access;

use crate::layout::Layout;
use crate::ring::{Descriptor, Ring, Violation};
use crate::sys::Region;

/// The buffers of a ring.
#[derive(Clone, Debug)]
pub(crate) enum Buffers {
    /// Of the peer, the client: descriptors say where they are.
    Named(Arc<[Arc<Region>]>),
    /// Of this process, the client: by slot, whatever the descriptors say.
    Own { region: Arc<Region>, layout: Layout, to_server: bool, index: u16 },
}

impl Buffers {
    /// The region and the place of the bytes that `d`, the descriptor of `slot`, has.
    #[inline]
    pub(crate) fn locate(&self, slot: u16, d: Descriptor) -> Result<(&Region, usize), Violation> {
        match self {
            Self::Named(regions) => {
                let at = d.offset as usize;
                match regions.get(usize::from(d.region)) {
                    Some(region) if region.has(at, d.length as usize) => Ok((region, at)),
                    other => Err(outside(d, other.map(|region| region.len()))),
                }
            }
            Self::Own { region, layout, to_server, index } => {
                if d.length > layout.buffer_bytes {
                    return Err(too_long(d, layout.buffer_bytes));
                }
                Ok((region, layout.buffer(*to_server, *index, slot) as usize))
            }
        }
    }

    /// Prefetches the cache line where the bytes of `slot` begin. `d` is the slot's descriptor, which may be wrong.
    #[inline]
    pub(crate) fn prefetch(&self, slot: u16, d: Descriptor, access: Access) {
        let (region, at) = match self {
            Self::Named(regions) => match regions.get(usize::from(d.region)) {
                Some(region) => (region, d.offset as usize),
                None => return,
            },
            Self::Own { region, layout, to_server, index } => {
                (region, layout.buffer(*to_server, *index, slot) as usize)
            }
        };
        region.prefetch(at, access);
    }

    /// The descriptor of an empty buffer of this process.
    #[inline]
    pub(crate) fn empty(&self, slot: u16) -> Descriptor {
        match self {
            Self::Named(_) => Descriptor::default(),
            Self::Own { layout, to_server, index, .. } => Descriptor {
                flags: 0,
                region: 0,
                length: layout.buffer_bytes,
                offset: layout.buffer(*to_server, *index, slot),
            },
        }
    }
}

/// The number of slots whose buffers are prefetched before they are used.
const AHEAD: u16 = 8;

/// Prefetches descriptors and buffers of the next slots, which the other side's core has in its cache.
#[derive(Debug)]
pub(crate) struct Prefetcher {
    /// The first slot whose buffer has not been prefetched.
    fetched: u16,
    access: Access,
}

impl Prefetcher {
    /// For slots from `next` on.
    pub(crate) const fn new(access: Access, next: u16) -> Self {
        Self { fetched: next, access }
    }

    /// Prefetches the first descriptors of a batch.
    #[inline]
    pub(crate) fn begin(&self, ring: &Ring, next: u16) {
        for ahead in (0..AHEAD).step_by(4) {
            ring.prefetch(next.wrapping_add(ahead), self.access);
        }
    }

    /// Prefetches the buffers of slots from `next` on that have not been prefetched, but none from `end` on.
    #[inline]
    pub(crate) fn advance(&mut self, ring: &Ring, buffers: &Buffers, next: u16, end: u16) {
        let limit = AHEAD.min(end.wrapping_sub(next));
        // A frame in several buffers can go beyond what was prefetched.
        let mut ahead = self.fetched.wrapping_sub(next);
        ahead = if ahead > AHEAD { 0 } else { ahead };
        while ahead < limit {
            let at = next.wrapping_add(ahead);
            let later = at.wrapping_add(AHEAD);
            if later.is_multiple_of(4) {
                ring.prefetch(later, self.access);
            }
            buffers.prefetch(at, ring.descriptor(at), self.access);
            ahead += 1;
        }
        self.fetched = next.wrapping_add(ahead);
    }
}

/// `bytes` of the region that `d` names; `None`: there is no such region.
#[cold]
#[inline(never)]
fn outside(d: Descriptor, bytes: Option<usize>) -> Violation {
    let Descriptor { region, length, offset, .. } = d;
    Violation(match bytes {
        Some(bytes) => format!(
            "a descriptor names {length} bytes at {offset} of region {region}, which has {bytes}"
        ),
        None => format!("a descriptor names region {region}"),
    })
}

#[cold]
#[inline(never)]
fn too_long(d: Descriptor, bytes: u32) -> Violation {
    Violation(format!("a descriptor names {} bytes in a buffer of {bytes}", d.length))
}

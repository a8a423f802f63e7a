//! Where the bytes of a slot are.

use std::sync::Arc;

use crate::layout::Layout;
use crate::ring::{Descriptor, Violation, violation};
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
                    Some(region) => violation(format!(
                        "a descriptor names {} bytes at {at} of region {}, which has {}",
                        d.length,
                        d.region,
                        region.len()
                    )),
                    None => violation(format!("a descriptor names region {}", d.region)),
                }
            }
            Self::Own { region, layout, to_server, index } => {
                if d.length > layout.buffer_bytes {
                    return violation(format!(
                        "a descriptor names {} bytes in a buffer of {}",
                        d.length, layout.buffer_bytes
                    ));
                }
                Ok((region, layout.buffer(*to_server, *index, slot) as usize))
            }
        }
    }

    /// The descriptor of an empty buffer of this process.
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

//! The memory of a guest: regions by the guest's physical addresses.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use flowyard_mem::{Access, LINE};

use crate::guard;
use crate::sys::Mapping;

/// The losses that a caller of [`Memory::is_lost`] knows at first: nothing.
pub(crate) const UNKNOWN: u64 = u64::MAX;

/// The last byte of the shortest frame, without the checksum.
const SHORT: usize = 59;

/// A region of a guest's memory, as the front end describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RegionPlace {
    /// The guest's physical address of its first byte.
    pub guest: u64,
    /// Its bytes.
    pub len: u64,
    /// The address of its first byte in the front end.
    pub user: u64,
    /// Where it begins in its file.
    pub offset: u64,
}

/// A region that is mapped. Copies of it share the mapping.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    pub(crate) place: RegionPlace,
    mapping: Arc<Mapping>,
}

impl Region {
    /// Maps the region.
    ///
    /// # Errors
    /// When its numbers are not possible, its file is too short, or it cannot be mapped.
    pub(crate) fn map(place: RegionPlace, file: &impl AsFd) -> io::Result<Self> {
        let ends = [place.guest, place.user].map(|start| start.checked_add(place.len));
        if place.len == 0 || ends.contains(&None) {
            return Err(io::Error::other("a region has no bytes, or has no end"));
        }
        let failed = |error: io::Error| {
            let what = format!("a region of {} bytes at {:#x}: {error}", place.len, place.guest);
            io::Error::new(error.kind(), what)
        };
        let mapping = Mapping::new(file, place.offset, place.len).map_err(failed)?;
        Ok(Self { place, mapping: Arc::new(mapping) })
    }

    #[inline]
    pub(crate) const fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }
}

/// All regions of a guest.
///
/// Thread-safety: shared by all rings; it never changes, another table takes its place.
#[derive(Debug)]
pub(crate) struct Memory {
    /// By size, the largest first, which has most of the frames.
    regions: Vec<Region>,
}

impl Memory {
    /// # Errors
    /// When two regions overlap.
    pub(crate) fn new(mut regions: Vec<Region>) -> io::Result<Self> {
        for (at, one) in regions.iter().enumerate() {
            for other in &regions[at + 1..] {
                let (a, b) = (one.place, other.place);
                let overlap = |a_at: u64, b_at: u64| a_at < b_at + b.len && b_at < a_at + a.len;
                if overlap(a.guest, b.guest) || overlap(a.user, b.user) {
                    let what = format!("the regions at {:#x} and {:#x} overlap", a.guest, b.guest);
                    return Err(io::Error::other(what));
                }
            }
        }
        regions.sort_by_key(|region| std::cmp::Reverse(region.place.len));
        Ok(Self { regions })
    }

    /// Whether a region's file was truncated. `seen` is what the caller knows of the losses of all ports; it
    /// begins with [`UNKNOWN`].
    #[inline]
    pub(crate) fn is_lost(&self, seen: &mut u64) -> bool {
        let losses = guard::losses();
        losses != *seen && self.look(seen, losses)
    }

    #[cold]
    fn look(&self, seen: &mut u64, losses: u64) -> bool {
        let is_lost = self.has_loss();
        // A loss remains visible.
        *seen = if is_lost { *seen } else { losses };
        is_lost
    }

    pub(crate) fn has_loss(&self) -> bool {
        self.regions.iter().any(|region| region.mapping.is_lost())
    }

    /// The region with the guest's address `at`, the position in it, and the bytes from there to its end.
    #[inline]
    pub(crate) fn find(&self, at: u64) -> Option<(&Region, usize, usize)> {
        for region in &self.regions {
            let inside = at.wrapping_sub(region.place.guest);
            if inside < region.place.len {
                return Some((region, inside as usize, region.mapping.len() - inside as usize));
            }
        }
        None
    }

    /// The region with all of `count` bytes at the front end's address `at`, and the position in it.
    pub(crate) fn find_user(&self, at: u64, count: usize) -> Option<(&Region, usize)> {
        self.regions.iter().find_map(|region| {
            let inside = usize::try_from(at.checked_sub(region.place.user)?).ok()?;
            region.mapping.has(inside, count).then_some((region, inside))
        })
    }

    /// Whether all of `count` bytes at the guest's address `at` exist.
    pub(crate) fn has(&self, mut at: u64, mut count: usize) -> bool {
        while count > 0 {
            let Some((_, _, left)) = self.find(at) else { return false };
            let part = left.min(count);
            count -= part;
            match at.checked_add(part as u64) {
                Some(next) => at = next,
                None => return count == 0,
            }
        }
        true
    }

    /// Copies bytes out, which may lie in several regions; `false` if they do not exist.
    #[inline]
    pub(crate) fn read(&self, mut at: u64, mut to: &mut [u8]) -> bool {
        while !to.is_empty() {
            let Some((region, inside, left)) = self.find(at) else { return false };
            let (part, rest) = to.split_at_mut(to.len().min(left));
            at = at.wrapping_add(part.len() as u64);
            if !region.mapping.read(inside, part) {
                return false;
            }
            to = rest;
        }
        true
    }

    /// Copies bytes in, which may lie in several regions; `false` if they do not exist.
    #[inline]
    pub(crate) fn write(&self, mut at: u64, mut from: &[u8]) -> bool {
        while !from.is_empty() {
            let Some((region, inside, left)) = self.find(at) else { return false };
            let (part, rest) = from.split_at(from.len().min(left));
            at = at.wrapping_add(part.len() as u64);
            if !region.mapping.write(inside, part) {
                return false;
            }
            from = rest;
        }
        true
    }

    /// Prefetches the cache lines of a short frame behind the header of virtio-net at the guest's address `at`. Before a frame is
    /// written, the header is read; of received frames, the header is not used.
    #[inline]
    pub(crate) fn prefetch(&self, at: u64, header: usize, access: Access) {
        let Some((region, inside, _)) = self.find(at) else { return };
        let (mapping, frame) = (&region.mapping, inside + header);
        if access == Access::Write && inside / LINE != frame / LINE {
            mapping.prefetch(inside, Access::Read);
        }
        mapping.prefetch(frame, access);
        if (frame + SHORT) / LINE != frame / LINE {
            mapping.prefetch(frame + LINE, access);
        }
    }
}

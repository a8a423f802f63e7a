//! A ring in shared memory.
//!
//! ```text
//!  0       4      6      8     64            128
//!  | cookie | flags | head | ... | tail | ...  | descriptors of 16 bytes: flags, region, length, offset, metadata
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use flowyard_mem::Access;

use crate::sys::{Pairs, Region};

pub(crate) const COOKIE: u32 = 0x03E3_1F20;
const DESCRIPTORS: usize = 128;
const DESCRIPTOR: usize = 16;
/// Flag of a descriptor: the frame continues in the next one.
pub(crate) const NEXT: u16 = 1;
/// Flag of a ring: the side that reads its frames polls, and wants no wake-ups.
const POLLED: u16 = 1;

/// The peer broke the protocol.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Violation(pub(crate) String);

pub(crate) fn violation<T>(what: impl Into<String>) -> Result<T, Violation> {
    Err(Violation(what.into()))
}

/// A descriptor: where a part of a frame is, or where there is room for one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Descriptor {
    pub(crate) flags: u16,
    pub(crate) region: u16,
    pub(crate) length: u32,
    pub(crate) offset: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Ring {
    region: Arc<Region>,
    at: usize,
    descriptors: Pairs,
    pub(crate) size: u16,
}

/// The bytes of a ring with `size` descriptors.
pub(crate) const fn bytes(size: usize) -> usize {
    DESCRIPTORS + DESCRIPTOR * size
}

impl Ring {
    /// The ring at `at`, with `2^log2` descriptors.
    pub(crate) fn new(region: Arc<Region>, at: usize, log2: u8) -> Result<Self, Violation> {
        if !(1..=14).contains(&log2) {
            return violation(format!("a ring of 2^{log2} descriptors is not possible"));
        }
        let size = 1_u16 << log2;
        let end = at.checked_add(DESCRIPTORS);
        match end.and_then(|place| Pairs::new(Arc::clone(&region), place, log2)) {
            Some(descriptors) => Ok(Self { region, at, descriptors, size }),
            None => violation(format!(
                "a ring at {at} with {size} descriptors does not lie in its region of {} bytes, or is not aligned",
                region.len()
            )),
        }
    }

    /// Writes the header of an empty ring.
    pub(crate) fn init(&self) {
        self.region.u64(self.at).store(u64::from(COOKIE), Ordering::Relaxed);
        self.tail().store(0, Ordering::Release);
    }

    /// Whether the header has the protocol's cookie.
    pub(crate) fn is_valid(&self) -> bool {
        self.region.u64(self.at).load(Ordering::Acquire) as u32 == COOKIE
    }

    fn flags(&self) -> &AtomicU16 {
        self.region.u16(self.at + 4)
    }

    pub(crate) fn head(&self) -> &AtomicU16 {
        self.region.u16(self.at + 6)
    }

    pub(crate) fn tail(&self) -> &AtomicU16 {
        self.region.u16(self.at + 64)
    }

    /// Tells the other side whether this one polls, or sleeps until it is woken.
    pub(crate) fn set_polled(&self, polls: bool) {
        self.flags().store(if polls { POLLED } else { 0 }, Ordering::Relaxed);
    }

    /// Whether the other side sleeps until it is woken.
    pub(crate) fn wants_wakeups(&self) -> bool {
        self.flags().load(Ordering::Relaxed) & POLLED == 0
    }

    /// The descriptor of the slot with this number, as it is now.
    #[inline]
    pub(crate) fn descriptor(&self, number: u16) -> Descriptor {
        let [first, second] = self.descriptors.get(number);
        let (first, second) = (first.load(Ordering::Relaxed), second.load(Ordering::Relaxed));
        Descriptor {
            flags: first as u16,
            region: (first >> 16) as u16,
            length: (first >> 32) as u32,
            offset: second as u32,
        }
    }

    /// Prefetches the cache line of a descriptor, which four descriptors share.
    #[inline]
    pub(crate) fn prefetch(&self, number: u16, access: Access) {
        flowyard_mem::prefetch(self.descriptors.get(number), access);
    }

    #[inline]
    pub(crate) fn set_descriptor(&self, number: u16, d: Descriptor) {
        let [first, second] = self.descriptors.get(number);
        let word = u64::from(d.flags) | u64::from(d.region) << 16 | u64::from(d.length) << 32;
        first.store(word, Ordering::Relaxed);
        second.store(u64::from(d.offset), Ordering::Relaxed);
    }
}

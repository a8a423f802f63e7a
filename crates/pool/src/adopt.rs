//! A pool that goes on with the memory of another process.
//!
//! ```text
//!  old process   [free][in the kernel's rings][free]   drained: no buffer is in a frame
//!  adopt         nothing is free yet, and nothing is written: the old process may still run
//!  claim         the buffers in the rings, by the ports that take the sockets over
//!  begin         all others become free
//! ```
//!
//! Invariants: a buffer is claimed once, or becomes free once; nothing is written before [`Pool::begin`].
//! Thread-safety: as the pool's; `begin` is called by one thread, before any core runs.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use crate::arena::Arena;
use crate::{CHAIN, FRAMES, LINE, Pool};

/// Buffers that are claimed, while a pool is taken over; `None` otherwise.
pub(crate) type Claims = Mutex<Option<Box<[bool]>>>;

/// The memory of a pool, for another process.
#[derive(Debug)]
pub struct PoolMemory {
    /// The file in memory.
    pub file: OwnedFd,
    /// The number of buffers.
    pub frames: u64,
    /// The bytes of a buffer.
    pub bytes: u64,
}

impl Pool {
    /// Its memory, for another process; `None` if it cannot be shared, or the process has too many descriptors.
    #[must_use]
    pub fn memory(&self) -> Option<PoolMemory> {
        let file = self.arena.file()?.try_clone_to_owned().ok()?;
        let (frames, bytes) = (self.frames() as u64, (self.arena.stride * LINE) as u64);
        Some(PoolMemory { file, frames, bytes })
    }

    /// A pool with the memory of another process. No buffer is free before [`Pool::begin`].
    ///
    /// # Errors
    /// The memory has another size, or cannot be mapped.
    pub fn adopt(memory: PoolMemory) -> io::Result<Self> {
        let PoolMemory { file, frames, bytes } = memory;
        let wrong = || {
            io::Error::new(io::ErrorKind::InvalidData, "no pool has buffers of this size or number")
        };
        let count = u32::try_from(frames).ok().filter(|count| (1..=FRAMES as u32).contains(count));
        let stride = usize::try_from(bytes).ok().filter(|bytes| bytes.is_multiple_of(LINE));
        let stride = stride.map(|bytes| bytes / LINE).filter(|stride| (2..=1025).contains(stride));
        let (count, stride) = count.zip(stride).ok_or_else(wrong)?;
        let pool = Self::empty(Arena::adopt(file, count, stride)?);
        *pool.claims.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(vec![false; count as usize].into());
        Ok(pool)
    }

    /// Whether its buffers wait for [`Pool::begin`].
    #[must_use]
    pub fn is_adopted(&self) -> bool {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Says that buffer `buffer` is in a ring of the kernel. Returns false if that cannot be.
    #[must_use]
    pub fn claim(&self, buffer: u64) -> bool {
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        let claimed = claims.as_mut().and_then(|all| all.get_mut(usize::try_from(buffer).ok()?));
        claimed.is_some_and(|claimed| !std::mem::replace(claimed, true))
    }

    /// All buffers that were not claimed become free. To be called when the other process is drained and will not go on.
    pub fn begin(&self) {
        let claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(claims) = claims else { return };
        // Their metas are those of the other process, which are never read: `take` and `unlend` write one first.
        let free = |(at, claimed): (u32, &bool)| (!claimed).then_some(at);
        // Taken from the end: the lowest numbers first.
        let mut free: Vec<u32> = (1..).zip(&claims).filter_map(free).collect();
        free.reverse();
        free.chunks(CHAIN).for_each(|chain| self.arena.push(chain));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Meta;

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no memfd_create")]
    fn buffers_that_are_lent_stay_lent_and_all_others_become_free() {
        let mut old = Pool::try_lendable(100, 1500).unwrap();
        let mut lend = |byte: u8| {
            let frame = old.copy(&[byte; 60], Meta::default()).unwrap();
            let addr = old.lend(frame);
            (addr, old.buffer_at(addr))
        };
        let lent: Vec<_> = (0..10).map(&mut lend).collect();
        let mut new = Pool::adopt(old.memory().unwrap()).unwrap();
        assert!(new.is_adopted());
        assert_eq!(new.take(60, Meta::default()).map(drop), Err(crate::NoBuffer::Empty));
        assert!(lent.iter().all(|(_, buffer)| new.claim(*buffer)));
        assert!(!new.claim(lent[0].1), "a buffer is claimed once");
        assert!(!new.claim(100), "there is no such buffer");
        assert_eq!(old.held(), 10);
        drop(old);
        new.begin();
        assert!(!new.is_adopted());
        assert_eq!(new.held(), 10);
        let all: Vec<_> = std::iter::from_fn(|| new.take(60, Meta::default()).ok()).collect();
        assert_eq!(all.len(), 90);
        all.into_iter().for_each(|frame| new.put(frame));
        for (byte, (addr, _)) in (0..).zip(lent) {
            // SAFETY: the buffer was lent by the old pool, was claimed, and is made a frame once.
            let frame = unsafe { new.unlend(addr, 60, Meta::default()) };
            assert_eq!(new.bytes(&frame), [byte; 60], "both map the same memory");
            new.put(frame);
        }
        assert_eq!(new.held(), 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no memfd_create")]
    fn memory_of_another_shape_is_refused() {
        let old = Pool::try_lendable(100, 1500).unwrap();
        for (frames, bytes) in
            [(99, 2048), (100, 4096), (100, 2049), (0, 2048), (100, 64), (u64::MAX, 2048)]
        {
            let file = old.memory().unwrap().file;
            assert!(Pool::adopt(PoolMemory { file, frames, bytes }).is_err(), "{frames} {bytes}");
        }
        assert!(Pool::new(10, 1500).memory().is_none(), "memory of the heap cannot be shared");
    }
}

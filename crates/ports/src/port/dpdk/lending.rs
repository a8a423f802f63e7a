//! The yard's pool as external memory of DPDK. All DPDK ports of a yard share one registration.
//!
//! Invariants: a buffer that DPDK has is in no frame. Buffers return to the pool when the last port is closed.
//! Thread-safety: shared by the cores of all DPDK ports of a yard.
#![allow(
    unsafe_code,
    reason = "buffers are lent to DPDK, and frames are made of those that it returns"
)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use flowyard_dpdk::{BURST, Eal, External, Lent};
use flowyard_frame::Frame;
use flowyard_pool::{Meta, Pool};

use super::SPARE_FRAMES;
use crate::live::OpenError;

/// A registered pool.
pub(super) struct Lending {
    pub(super) memory: Arc<External>,
    /// The address of the pool's memory.
    base: u64,
    /// Bytes of a buffer.
    chunk: u64,
    /// The number of queues that receive from it.
    queues: AtomicUsize,
}

/// The pools of this process that are registered.
static REGISTERED: Mutex<Vec<Weak<Lending>>> = Mutex::new(Vec::new());

fn error(error: flowyard_dpdk::Error) -> OpenError {
    OpenError { what: error.what, fix: error.fix }
}

impl Lending {
    /// The registration of this pool; the first caller registers it.
    pub(super) fn of(eal: Eal, pool: &Pool) -> Result<Arc<Self>, OpenError> {
        let Some(umem) = pool.umem() else {
            let what = "the pool's buffers cannot be lent to DPDK";
            return Err(OpenError::new(what, "remove 'buffer_bytes', or write memory = \"copy\""));
        };
        let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
        registered.retain(|known| known.strong_count() > 0);
        let base = umem.address();
        if let Some(known) =
            registered.iter().filter_map(Weak::upgrade).find(|known| known.base == base)
        {
            return Ok(known);
        }
        let (chunk, frames) = (umem.chunk_bytes() as usize, pool.frames());
        // SAFETY: the memory begins on a page, and reaches to the end of the last page that has a buffer; it lives as
        // long as `umem`.
        let memory = unsafe { External::new(eal, base as *mut u8, chunk, frames, Arc::new(umem)) };
        let memory = Arc::new(memory.map_err(error)?);
        let queues = AtomicUsize::new(0);
        let lending = Arc::new(Self { memory, base, chunk: chunk as u64, queues });
        registered.push(Arc::downgrade(&lending));
        Ok(lending)
    }

    /// Lends as many buffers of `pool` as `queues` more queues need before they start.
    pub(super) fn start(
        &self,
        pool: &mut Pool,
        queues: usize,
        frames: usize,
    ) -> Result<(), OpenError> {
        self.queues.fetch_add(queues, Ordering::Relaxed);
        let wanted = queues * (frames + SPARE_FRAMES);
        let mut lent = 0;
        while lent < wanted {
            let count = self.lend(pool, BURST.min(wanted - lent));
            if count == 0 {
                let what =
                    format!("DPDK needs {wanted} buffers to start, and the pool had {lent} left");
                return Err(OpenError::new(what, "raise 'frames' in [yard], or remove it"));
            }
            lent += count;
        }
        Ok(())
    }

    /// Lends up to `most` buffers of `pool`, at most [`BURST`]; returns how many.
    fn lend(&self, pool: &mut Pool, most: usize) -> usize {
        let (mut places, mut count) = ([0; BURST], 0);
        while count < most
            && let Ok(frame) = pool.take(0, Meta::default())
        {
            places[count] = pool.buffer_at(pool.lend(frame)) as u32;
            count += 1;
        }
        // SAFETY: the pool has given these buffers up, and each of its buffers is registered.
        unsafe { self.memory.lend(&places[..count]) };
        count
    }

    /// Lends buffers if drivers have few left to receive into.
    #[inline]
    pub(super) fn refill(&self, pool: &mut Pool) {
        if self.memory.available() < self.queues.load(Ordering::Relaxed) * SPARE_FRAMES / 2 {
            self.lend(pool, BURST);
        }
    }

    /// Buffers in place of those that are to be transmitted: transmitted ones, or new ones of `pool`.
    #[inline]
    pub(super) fn spares(&self, pool: &mut Pool, into: &mut Vec<Frame>, wanted: usize) {
        if into.len() < wanted
            && self.memory.available() > self.queues.load(Ordering::Relaxed) * SPARE_FRAMES
        {
            let mut places = [0; BURST];
            let count = self.memory.take_back(&mut places[..(wanted - into.len()).min(BURST)]);
            into.extend(places[..count].iter().map(|place| self.frame(pool, *place)));
        }
        while into.len() < wanted
            && let Ok(frame) = pool.take(0, Meta::default())
        {
            into.push(frame);
        }
    }

    /// The frame of a buffer that was taken back.
    fn frame(&self, pool: &Pool, place: u32) -> Frame {
        // SAFETY: DPDK has given the buffer back, and the ledger assures that it does so once.
        unsafe { pool.unlend_sent(u64::from(place) * self.chunk, 0) }
    }

    /// The frame that was received into a lent buffer.
    #[inline]
    pub(super) fn received(&self, pool: &Pool, lent: Lent, meta: Meta) -> Frame {
        let address = u64::from(lent.place) * self.chunk + u64::from(lent.off);
        // SAFETY: as in `frame`.
        unsafe { pool.unlend(address, lent.bytes.into(), meta) }
    }

    /// Where the bytes of `frame` are, if it is one of `pool`.
    #[inline]
    pub(super) fn lent(&self, pool: &Pool, frame: &Frame) -> Option<Lent> {
        let at = pool.address(frame)?;
        let bytes = u16::try_from(frame.len()).ok()?;
        Some(Lent { place: pool.buffer_at(at) as u32, off: (at % self.chunk) as u16, bytes })
    }

    /// `queues` queues are closed. If they were the last, all buffers return to `pool`. Returns the number of buffers
    /// that the drivers did not give back.
    pub(super) fn end(&self, pool: &mut Pool, queues: usize) -> usize {
        if self.queues.fetch_sub(queues, Ordering::AcqRel) > queues {
            return 0;
        }
        let mut places = [0; BURST];
        loop {
            let count = self.memory.take_back(&mut places);
            places[..count].iter().for_each(|place| {
                let frame = self.frame(pool, *place);
                pool.put(frame);
            });
            if count == 0 {
                return self.memory.lent();
            }
        }
    }
}

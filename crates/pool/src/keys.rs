//! Keys: the flow keys of frames that wait in queues.
//!
//! ```text
//!  Batch { frames, keys } ──store_keys──> [key of buffer 1][key of buffer 2] ...      64 bytes each
//!  Batch { frames, keys } <──load_keys─── only if somebody reads keys
//! ```
//!
//! Queues carry handles of 16 bytes. A key would be another cache line that moves from core to core with each
//! frame, although the core that transmits rarely reads it.
//!
//! Invariants: the key of a frame in a queue is that with which the frame was received. The key of a buffer is
//! read and written only through the frame that owns the buffer.
//! Thread-safety: as the pool's.

use flowyard_frame::{Batch, FlowKey, Frame, LANES, Lanes};

use crate::Pool;

impl Pool {
    /// Stores the keys of `lanes`, so that the frames can enter a queue. Does nothing if they are stored already, because
    /// the batch came from a queue.
    #[inline(never)]
    pub fn store_keys(&self, batch: &mut Batch, lanes: Lanes) {
        if batch.keys_in_pool {
            return;
        }
        lanes.each(|lane| {
            if let Some(key) = self.key_of(&batch.frames[lane]) {
                // SAFETY: the key is that of a buffer of this pool. The frame is unique and borrowed mutably, so no
                // other thread reads or writes its key.
                unsafe { key.write(batch.keys[lane]) }
            }
        });
    }

    /// Reads the keys of a batch that came from a queue; others have theirs already.
    #[inline(never)]
    pub fn load_keys(&self, batch: &mut Batch) {
        if batch.keys_in_pool {
            for lane in 0..batch.len().min(LANES) {
                if let Some(key) = self.stored_key(&batch.frames[lane]) {
                    batch.keys[lane] = key;
                }
            }
        }
    }

    /// The key of one lane, wherever it is.
    #[must_use]
    pub fn key(&self, batch: &Batch, lane: usize) -> FlowKey {
        let stored = || self.stored_key(&batch.frames[lane]);
        if batch.keys_in_pool { stored().unwrap_or(FlowKey::ZERO) } else { batch.keys[lane] }
    }

    /// The key that was stored last for the frame's buffer; `None` for an empty handle.
    #[inline]
    fn stored_key(&self, frame: &Frame) -> Option<FlowKey> {
        let key = self.key_of(frame)?;
        // SAFETY: the key is that of a buffer of this pool, and zeros are a valid key. The frame is unique and
        // borrowed, so nobody writes its key.
        Some(unsafe { key.read() })
    }

    /// Where the key of the frame's buffer stands.
    #[inline]
    fn key_of(&self, frame: &Frame) -> Option<*mut FlowKey> {
        match self.arena.numbers.place(frame.buf()) {
            Some(place) => Some(self.arena.key(place)),
            None => self.large_key(frame),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Meta;

    fn key(sport: u16) -> FlowKey {
        FlowKey { sport, ..FlowKey::ZERO }
    }

    #[test]
    fn a_key_waits_with_its_buffer() {
        let mut pool = Pool::new(64, 64);
        let mut batch = Batch::default();
        for lane in 0..32 {
            let frame = pool.take(60, Meta::default()).unwrap();
            batch.push(frame, key(lane)).unwrap();
        }
        pool.store_keys(&mut batch, Lanes(0xffff_0000)); // the others stay zero
        // What a queue does: the frames leave in another order and without their keys.
        let mut out = Batch::default();
        for lane in (0..32).rev() {
            out.push(std::mem::take(&mut batch.frames[lane]), FlowKey::ZERO).unwrap();
        }
        assert_eq!(pool.key(&out, 0), FlowKey::ZERO, "the batch has keys of its own");
        out.keys_in_pool = true;
        let wanted = |lane: usize| key(if lane < 16 { 31 - lane as u16 } else { 0 });
        assert!((0..32).all(|lane| pool.key(&out, lane) == wanted(lane)));
        // They are not stored again: the lanes have other keys until they are loaded.
        pool.store_keys(&mut out, Lanes::first(32));
        pool.load_keys(&mut out);
        assert!((0..32).all(|lane| out.keys[lane] == wanted(lane)));
        pool.put_batch(&mut out);
        assert!(!out.keys_in_pool, "an empty batch");
        assert_eq!(pool.held(), 0);
    }

    #[test]
    fn frames_without_a_buffer_have_no_stored_key() {
        let pool = Pool::new(1, 64);
        let mut batch = Batch::default();
        batch.push(Frame::unbacked(60), key(1)).unwrap();
        pool.store_keys(&mut batch, Lanes::first(1));
        assert_eq!(pool.key(&batch, 0), key(1));
        batch.keys_in_pool = true;
        assert_eq!(pool.key(&batch, 0), FlowKey::ZERO);
    }
}

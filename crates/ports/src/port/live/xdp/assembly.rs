//! Joins the parts of received frames that are longer than a buffer (XDP multi-buffer).
//!
//! ```text
//!  part, continues ─┐
//!  part, continues ─┼─ copied one behind the other ──> a buffer of the second size
//!  last part ───────┘
//! ```
//!
//! The kernel puts the parts of a frame into buffers of the first size, one after the other in the rx ring. Works need the
//! bytes of a frame in one place.
//!
//! Invariants: each part returns to the pool when it is added. A frame for which there is no long buffer is lost as a
//! whole and counted once, with its last part.
//! Thread-safety: used by one core.

use flowyard_frame::Frame;
use flowyard_pool::{Meta, Pool};

/// The most parts of a frame. Linux accepts 17 (MAX_SKB_FRAGS) of a transmitted frame.
pub(super) const MOST_PARTS: usize = 16;

/// The frame of which some parts were received.
#[derive(Default)]
pub(super) enum Assembly {
    /// The next part is the first of its frame.
    #[default]
    Empty,
    /// What was joined so far.
    Begun(Frame),
    /// The parts of the frame are thrown away.
    Discards,
}

/// What became of a part.
pub(super) enum Joined {
    /// The frame is complete.
    Whole(Frame),
    /// The frame continues.
    Waits,
    /// It was the last part of a frame that is lost.
    Lost,
}

impl Assembly {
    /// Whether the next part belongs to a frame that has begun.
    pub(super) const fn has_begun(&self) -> bool {
        !matches!(self, Self::Empty)
    }

    /// Adds a part, whose frame continues after it or not.
    #[cold]
    pub(super) fn add(&mut self, part: Frame, continues: bool, pool: &mut Pool) -> Joined {
        *self = match std::mem::take(self) {
            Self::Empty => Self::begin(&part, pool),
            Self::Begun(frame) => Self::append(frame, &part, pool),
            Self::Discards => Self::Discards,
        };
        pool.put(part);
        if continues {
            return Joined::Waits;
        }
        match std::mem::take(self) {
            Self::Begun(frame) => Joined::Whole(frame),
            Self::Empty | Self::Discards => Joined::Lost,
        }
    }

    /// Learns of a part that cannot be read. Returns the number of frames that are lost with it: 1 if it was the last part.
    #[cold]
    pub(super) fn miss(&mut self, continues: bool, pool: &mut Pool) -> u32 {
        if let Some(begun) = self.end() {
            pool.put(begun);
        }
        *self = if continues { Self::Discards } else { Self::Empty };
        u32::from(!continues)
    }

    fn begin(part: &Frame, pool: &mut Pool) -> Self {
        let Ok(mut frame) = pool.take_large(part.len(), pool.meta(part)) else {
            return Self::Discards;
        };
        pool.bytes_mut(&mut frame).copy_from_slice(pool.bytes(part));
        Self::Begun(frame)
    }

    fn append(mut frame: Frame, part: &Frame, pool: &mut Pool) -> Self {
        let (start, len) = (frame.len(), frame.len() + part.len());
        if len > pool.longest_large() {
            pool.put(frame);
            return Self::Discards;
        }
        pool.set_len(&mut frame, len);
        pool.bytes_mut(&mut frame)[start..].copy_from_slice(pool.bytes(part));
        let meta = Meta { wire_len: len as u32, ..pool.meta(&frame) };
        pool.set_meta(&mut frame, meta);
        Self::Begun(frame)
    }

    /// Forgets the frame that has begun, and returns what was joined of it.
    pub(super) fn end(&mut self) -> Option<Frame> {
        match std::mem::take(self) {
            Self::Begun(frame) => Some(frame),
            Self::Empty | Self::Discards => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds the parts of `frame`, and returns what the last one gave.
    fn add(assembly: &mut Assembly, pool: &mut Pool, frame: &[u8], size: usize) -> Joined {
        let count = frame.len().div_ceil(size);
        let mut last = None;
        for (at, bytes) in (1..).zip(frame.chunks(size)) {
            assert!(!matches!(last, Some(Joined::Whole(_) | Joined::Lost)), "before the last part");
            let meta = Meta { wire_len: bytes.len() as u32, in_port: 3, ..Meta::default() };
            let part = pool.copy(bytes, meta).unwrap();
            last = Some(assembly.add(part, at < count, pool));
            assert_eq!(assembly.has_begun(), at < count);
        }
        last.unwrap()
    }

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at / 3) as u8).collect()
    }

    #[test]
    fn parts_are_joined_in_order() {
        let mut pool = Pool::new(4, 2048).with_large(1).unwrap();
        let mut assembly = Assembly::default();
        for (len, size) in [(2, 1), (9014, 1984), (1985, 1984), (flowyard_pool::LONGEST, 2000)] {
            let Joined::Whole(frame) = add(&mut assembly, &mut pool, &bytes(len), size) else {
                panic!("{len} bytes in parts of {size}");
            };
            assert_eq!(pool.bytes(&frame), bytes(len));
            let meta = pool.meta(&frame);
            assert_eq!((meta.wire_len, meta.in_port), (len as u32, 3));
            pool.put(frame);
            assert_eq!(pool.held(), 0);
        }
    }

    #[test]
    fn a_frame_without_a_long_buffer_is_lost_once() {
        let mut pool = Pool::new(4, 2048).with_large(1).unwrap();
        let other = pool.take_large(9000, Meta::default()).unwrap();
        let mut assembly = Assembly::default();
        assert!(matches!(add(&mut assembly, &mut pool, &bytes(9000), 1984), Joined::Lost));
        pool.put(other);
        // The next frame has a buffer again.
        let Joined::Whole(frame) = add(&mut assembly, &mut pool, &bytes(9000), 1984) else {
            panic!("there was a buffer");
        };
        pool.put(frame);
        assert_eq!(pool.held(), 0);
    }

    #[test]
    fn a_part_that_cannot_be_read_loses_its_frame_only() {
        let mut pool = Pool::new(4, 2048).with_large(1).unwrap();
        let mut assembly = Assembly::default();
        let part = |pool: &mut Pool| pool.copy(&bytes(100), Meta::default()).unwrap();
        let first = part(&mut pool);
        assert!(matches!(assembly.add(first, true, &mut pool), Joined::Waits));
        assert_eq!(assembly.miss(true, &mut pool), 0);
        let last = part(&mut pool);
        assert!(matches!(assembly.add(last, false, &mut pool), Joined::Lost));
        let first = part(&mut pool);
        assert!(matches!(assembly.add(first, true, &mut pool), Joined::Waits));
        assert_eq!(assembly.miss(false, &mut pool), 1);
        assert!(!assembly.has_begun());
        assert_eq!(pool.held(), 0);
    }

    #[test]
    fn a_frame_that_is_too_long_is_lost_once() {
        let mut pool = Pool::new(4, 2048).with_large(2).unwrap();
        let mut assembly = Assembly::default();
        let long = bytes(flowyard_pool::LONGEST + 1);
        assert!(matches!(add(&mut assembly, &mut pool, &long, 2000), Joined::Lost));
        assert_eq!(pool.held(), 0);
    }
}

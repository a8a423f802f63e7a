//! Up to 32 frames that travel together, with their keys and actions.

use crate::{Action, FlowKey};

/// The largest number of frames in a [`Batch`].
pub const LANES: usize = 32;

/// A 16-byte handle on one pool buffer.
///
/// A frame owns its buffer, as a `Box` owns its memory. It is not `Clone`, its fields that name the
/// buffer are private, and safe code cannot make a frame that names a buffer:
///
/// ```compile_fail,E0133
/// let forged = flowyard_frame::Frame::from_raw_parts(1, 64, 60);
/// ```
/// ```compile_fail,E0451
/// let forged = flowyard_frame::Frame { buf: 1, ..Default::default() };
/// ```
/// ```compile_fail,E0599
/// let second = flowyard_frame::Frame::default().clone();
/// ```
///
/// Pools rely on this: they hand out the bytes of a buffer, mutably, to the holder of its frame.
/// Buffers are numbered from 1; a frame whose buffer number is 0 names none.
#[derive(PartialEq, Eq, Debug, Default)]
pub struct Frame {
    buf: u32,
    off: u16,
    len: u16,
    /// The receive hash (Toeplitz), 0 until computed.
    pub hash: u32,
    /// The mark that the adapter set, 0 for none; it stays with the frame until it leaves. It is a hint: a reader
    /// checks what it names. The mark of the entry that matched is in the action.
    pub mark: u32,
}

impl Frame {
    /// A frame of `len` bytes at offset `off` of pool buffer `buf`.
    ///
    /// # Safety
    /// The caller owns buffer `buf` exclusively: no other frame that is still used names it, and the
    /// pool does not hand it out before this frame came back. Only a pool can promise that.
    #[must_use]
    #[expect(unsafe_code, reason = "declares the obligation; the body has no unsafe operation")]
    pub const unsafe fn from_raw_parts(buf: u32, off: u16, len: u16) -> Self {
        Self { buf, off, len, hash: 0, mark: 0 }
    }

    /// A frame of `len` bytes that names no buffer, for models, simulators and tests that need a
    /// length, a hash and a mark but no bytes. Pools ignore it: it has no bytes there.
    #[must_use]
    pub const fn unbacked(len: u16) -> Self {
        Self { buf: 0, off: 0, len, hash: 0, mark: 0 }
    }

    /// The number of the pool buffer, from 1; 0 if the frame names no buffer.
    #[must_use]
    pub const fn buf(&self) -> u32 {
        self.buf
    }

    /// Where the frame starts in its buffer, in bytes.
    #[must_use]
    pub const fn off(&self) -> usize {
        self.off as usize
    }

    /// The frame's length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the frame has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether there is no frame: the handle names no buffer and has no length. A frame that a work cut to 0 bytes still
    /// owns its buffer.
    #[must_use]
    pub const fn is_absent(&self) -> bool {
        self.buf | self.len as u32 == 0
    }
}

/// A set of lanes, one bit each; bit 0 is lane 0. As an iterator, it yields lanes in ascending order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lanes(pub u32);

impl Lanes {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// The first `n` lanes, `n` at most 32.
    #[must_use]
    pub const fn first(n: usize) -> Self {
        if n >= LANES { Self(u32::MAX) } else { Self((1 << n) - 1) }
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Number of lanes in the set.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether `lane` is in the set.
    #[must_use]
    pub const fn has(self, lane: usize) -> bool {
        self.0 >> lane & 1 == 1
    }

    /// This set with `lane` added.
    #[must_use]
    pub const fn with(self, lane: usize) -> Self {
        Self(self.0 | 1 << lane)
    }

    /// Calls `each` with every lane, in ascending order. The first lanes without a gap, which most sets are, cost
    /// less than as an iterator.
    #[inline(always)]
    pub fn each(self, mut each: impl FnMut(usize)) {
        let len = self.count() as usize;
        if self == Self::first(len) {
            (0..len).for_each(each);
        } else {
            for lane in self {
                each(lane);
            }
        }
    }

    /// The lanes of `self` that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl Iterator for Lanes {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let lane = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(lane)
    }
}

/// Up to [`LANES`] frames with their keys and actions. A key is written when its frame is received, and not changed.
#[derive(Debug)]
pub struct Batch {
    len: u8,
    /// The frames, by lane; lanes from [`Batch::len`] on are empty.
    pub frames: [Frame; LANES],
    /// The keys, by lane; if `keys_in_pool` is set, possibly those of other frames.
    pub keys: [FlowKey; LANES],
    /// Whether the frames were in a queue. Queues do not carry keys: the keys are in the pool, beside the buffers.
    pub keys_in_pool: bool,
    /// The actions, by lane.
    pub actions: [Action; LANES],
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            len: 0,
            frames: std::array::from_fn(|_| Frame::default()),
            keys: [FlowKey::ZERO; LANES],
            keys_in_pool: false,
            actions: [Action::default(); LANES],
        }
    }
}

impl Batch {
    /// Number of lanes in use.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether no lane is in use.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The lanes in use.
    #[must_use]
    pub const fn lanes(&self) -> Lanes {
        Lanes::first(self.len as usize)
    }

    /// Adds `frame` in the next lane, which it returns.
    ///
    /// # Errors
    /// Returns the frame if the batch is full.
    pub fn push(&mut self, frame: Frame, key: FlowKey) -> Result<usize, Frame> {
        let lane = self.len as usize;
        if lane == LANES {
            return Err(frame);
        }
        self.frames[lane] = frame;
        self.keys[lane] = key;
        self.actions[lane] = Action::default();
        self.len += 1;
        Ok(lane)
    }

    /// Sets the number of lanes in use (at most [`LANES`]), for code that writes the arrays directly.
    pub fn set_len(&mut self, len: usize) {
        self.len = len.min(LANES) as u8;
        self.keys_in_pool &= len > 0;
    }

    /// Removes and yields all frames, in lane order.
    pub fn drain(&mut self) -> impl Iterator<Item = Frame> + '_ {
        let len = std::mem::take(&mut self.len) as usize;
        self.keys_in_pool = false;
        self.frames[..len].iter_mut().map(std::mem::take)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_sixteen_bytes_and_a_key_one_cache_line() {
        assert_eq!(size_of::<Frame>(), 16);
        assert_eq!((size_of::<FlowKey>(), align_of::<FlowKey>()), (64, 64));
        assert_eq!(size_of::<Action>(), 12);
    }

    #[test]
    fn a_frame_has_the_place_that_it_was_made_with() {
        let frame = Frame { buf: 7, off: 64, len: 60, ..Frame::default() };
        assert_eq!((frame.buf(), frame.off(), frame.len(), frame.is_empty()), (7, 64, 60, false));
        let none = Frame::unbacked(1500);
        assert_eq!((none.buf(), none.off(), none.len(), none.is_empty()), (0, 0, 1500, false));
        assert!(Frame::unbacked(0).is_empty() && Frame::unbacked(0).is_absent());
        let cut = Frame { len: 0, ..frame };
        assert!(cut.is_empty() && !cut.is_absent() && !none.is_absent());
    }

    /// Each function of a set of lanes beside the same function of a sorted list of lanes.
    #[test]
    fn lanes_are_a_sorted_set() {
        let list = |set: Lanes| (0..LANES).filter(|n| set.0 & (1 << n) != 0).collect::<Vec<_>>();
        let gaps = [0b1011, 0b10, 1 << 31, 0x8000_0001, 0xffff_0000, 0x5555_5555, u32::MAX - 2];
        let random = crate::rng::Rng::new(1);
        let random = (0..100).scan(random, |rng, _| Some(Lanes(rng.bits() as u32)));
        let sets: Vec<Lanes> =
            (0..=LANES).map(Lanes::first).chain(gaps.map(Lanes)).chain(random).collect();
        for n in 0..=LANES {
            assert_eq!(list(Lanes::first(n)), (0..n).collect::<Vec<_>>(), "the first {n}");
        }
        assert_eq!(Lanes::first(LANES + 1), Lanes::first(LANES));
        for set in sets.iter().copied() {
            let lanes = list(set);
            let mut seen = Vec::new();
            set.each(|lane| seen.push(lane));
            assert_eq!(seen, lanes, "each of {set:?}");
            assert_eq!(set.collect::<Vec<_>>(), lanes, "walk of {set:?}");
            assert_eq!(set.count() as usize, lanes.len(), "{set:?}");
            assert_eq!(set.is_empty(), lanes.is_empty(), "{set:?}");
            for lane in 0..LANES {
                assert_eq!(set.has(lane), lanes.contains(&lane), "{lane} in {set:?}");
                let mut more = lanes.clone();
                more.push(lane);
                more.sort_unstable();
                more.dedup();
                assert_eq!(list(set.with(lane)), more, "{set:?} with {lane}");
            }
            for other in sets.iter().copied() {
                let rest: Vec<_> = lanes.iter().copied().filter(|lane| !other.has(*lane)).collect();
                assert_eq!(list(set.without(other)), rest, "{set:?} without {other:?}");
            }
        }
    }

    #[test]
    fn a_batch_has_the_lanes_that_were_added() {
        let mut batch = Batch::default();
        assert!(batch.is_empty() && batch.lanes() == Lanes::NONE);
        batch.actions[1] = Action::queue(9); // of an earlier batch
        for n in 1..=3_u16 {
            let key = FlowKey { in_port: n, ..FlowKey::ZERO };
            let lane = usize::from(n) - 1;
            assert_eq!(batch.push(Frame::unbacked(n), key), Ok(lane));
            assert_eq!((batch.len(), batch.lanes()), (lane + 1, Lanes::first(lane + 1)));
            assert_eq!((batch.keys[lane], batch.actions[lane]), (key, Action::default()));
            assert!(!batch.is_empty());
        }
        batch.set_len(2);
        assert_eq!(batch.lanes(), Lanes::first(2));
        assert_eq!(batch.drain().map(|frame| frame.len()).collect::<Vec<_>>(), [1, 2]);
        assert_eq!((batch.len(), &batch.frames[0]), (0, &Frame::default()));
        batch.set_len(LANES + 1);
        assert_eq!(batch.len(), LANES);
    }

    #[test]
    fn a_full_batch_gives_the_frame_back() {
        let mut batch = Batch::default();
        for lane in 0..LANES {
            assert_eq!(batch.push(Frame::unbacked(lane as u16), FlowKey::ZERO), Ok(lane));
        }
        assert_eq!(batch.push(Frame::unbacked(99), FlowKey::ZERO), Err(Frame::unbacked(99)));
        assert_eq!(batch.drain().map(|f| f.len()).collect::<Vec<_>>(), (0..32).collect::<Vec<_>>());
        assert!(batch.is_empty());
    }
}

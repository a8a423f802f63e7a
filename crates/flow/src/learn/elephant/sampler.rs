//! Finds large flows: counts the bytes of sampled frames in a small set-associative Space-Saving
//! sketch.
//!
//! ```text
//!  frame, 1 of 64 ──> print ──> set  [print|bytes|over] x 4     64 sets of one cache line: 4 KiB
//!                                keys [FlowKey          ] x 4     written when a way gets another flow
//!                 └──> hash ──> entry of the indirection table    bytes by entry, for rebalancing
//! ```
//!
//! Space-Saving (Metwally, Agrawal, El Abbadi, "Efficient Computation of Frequent and Top-k
//! Elements in Data Streams", ICDT 2005): a flow that is not held replaces the smallest flow and
//! inherits its count, which is recorded as possible error. Each set of four ways is one such list.
//! Elephants have a percent or more of the bytes, so they stay; mice replace each other.
//!
//! Frames that are not sampled cost one subtraction per batch. The gaps between samples are random
//! around their mean, so that periodic traffic is sampled correctly.
//!
//! Invariants, for the sampled bytes of a flow, halved with each window: `bytes - over <= true bytes
//! <= bytes` for each flow held; a flow that is not held has at most the least count of its set.
//! Thread-safety: plain data; each core owns one. No allocation after `new`, except when a [`Seen`]
//! grows for the first time.

use flowyard_frame::{Batch, FlowKey, Lanes, Rng};

use crate::mix::{Mix, words};

/// Ways of a set: four of 16 bytes are a cache line.
const WAYS: usize = 4;
/// Sets of the sketch.
const SETS: usize = 64;
/// The largest number of flows in a [`Seen`].
const NAMED: usize = 16;

/// A flow that is held, without its key. A way with 0 bytes is free.
#[derive(Clone, Copy, Debug, Default)]
struct Way {
    /// The flow's 64-bit hash under a secret seed, which identifies the flow.
    print: u64,
    bytes: u32,
    /// How much of `bytes` may belong to flows that were replaced.
    over: u32,
}

/// One cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
struct Set([Way; WAYS]);

/// A flow, and bounds of its sampled bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// The flow: 5-tuple and IP version.
    pub key: FlowKey,
    /// Its receive hash.
    pub hash: u32,
    /// Upper bound of its sampled bytes, halved with each window.
    pub bytes: u32,
    /// Lower bound of its sampled bytes.
    pub at_least: u32,
}

/// What one core sampled: plain data, sent to the core that decides.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    /// All frames of this window, sampled or not.
    pub frames: u64,
    /// Samples, halved with each window.
    pub samples: u64,
    /// Sampled bytes, halved with each window.
    pub bytes: u64,
    /// The largest flows in descending order; at most 16.
    pub flows: Vec<Flow>,
    /// Sampled bytes by entry of the indirection table, halved with each window.
    pub entries: Vec<u32>,
}

/// Samples the frames of one core.
#[derive(Clone, Debug)]
pub struct Sampler {
    /// Frames until the next sample, at least 1.
    skip: u32,
    every: u32,
    frames: u64,
    samples: u64,
    bytes: u64,
    mix: Mix,
    random: Rng,
    sets: Box<[Set]>,
    /// Key and receive hash of each way.
    keys: Box<[(FlowKey, u32)]>,
    entries: Box<[u32]>,
}

impl Sampler {
    /// Samples one of `every` frames (1 to 2^20; 64 is a good choice) for an indirection table of
    /// `entries` entries (rounded up to a power of two).
    #[must_use]
    pub fn new(every: u32, entries: usize, seed: u64) -> Self {
        let mut new = Self {
            skip: 1,
            every: every.clamp(1, 1 << 20),
            frames: 0,
            samples: 0,
            bytes: 0,
            mix: Mix::new(seed),
            random: Rng::new(!seed),
            sets: vec![Set::default(); SETS].into(),
            keys: vec![(FlowKey::ZERO, 0); SETS * WAYS].into(),
            entries: vec![0; entries.clamp(1, 1 << 16).next_power_of_two()].into(),
        };
        new.skip = new.gap();
        new
    }

    /// The core works on `lanes` of `batch`. Keys, hashes and lengths are read.
    #[inline]
    pub fn sample(&mut self, batch: &Batch, lanes: Lanes) {
        let count = lanes.count();
        self.frames += u64::from(count);
        if count < self.skip {
            self.skip -= count; // most batches end here
        } else {
            self.take(batch, lanes);
        }
    }

    /// Ends a window: writes the result to `seen` and halves the counts.
    pub fn window(&mut self, seen: &mut Seen) {
        seen.frames = std::mem::take(&mut self.frames);
        (seen.samples, seen.bytes) = (self.samples, self.bytes);
        seen.entries.clear();
        seen.entries.extend_from_slice(&self.entries);
        seen.flows.clear();
        let ways = self.sets.iter().flat_map(|set| &set.0).zip(&self.keys);
        let held = ways.filter(|(way, _)| way.bytes > 0).map(|(way, &(key, hash))| Flow {
            key,
            hash,
            bytes: way.bytes,
            at_least: way.bytes - way.over,
        });
        seen.flows.extend(held);
        seen.flows.sort_unstable_by_key(|flow| (std::cmp::Reverse(flow.bytes), flow.hash));
        seen.flows.truncate(NAMED);
        self.halve();
    }

    fn halve(&mut self) {
        self.samples /= 2;
        self.bytes /= 2;
        for way in self.sets.iter_mut().flat_map(|set| &mut set.0) {
            let at_least = (way.bytes - way.over) / 2; // rounded down, and bytes up, so that the bounds hold
            way.bytes = way.bytes.div_ceil(2);
            way.over = way.bytes - at_least;
        }
        for bytes in &mut self.entries {
            *bytes /= 2;
        }
    }

    /// Takes the samples that fall into these lanes.
    #[cold]
    fn take(&mut self, batch: &Batch, mut lanes: Lanes) {
        while self.skip <= lanes.count() {
            lanes = last(lanes, lanes.count() + 1 - self.skip);
            self.skip = self.gap();
            if let Some(lane) = lanes.next() {
                let frame = &batch.frames[lane];
                self.count(&batch.keys[lane], frame.hash, frame.len() as u32);
            }
        }
        self.skip -= lanes.count();
    }

    /// From 1 to `2 * every - 1`, uniformly distributed: `every` on average.
    fn gap(&mut self) -> u32 {
        let width = u64::from(2 * self.every - 1);
        1 + self.random.below(width) as u32
    }

    fn count(&mut self, key: &FlowKey, hash: u32, bytes: u32) {
        let key = key.flow();
        self.samples += 1;
        self.bytes += u64::from(bytes);
        let entry = hash as usize & (self.entries.len() - 1);
        self.entries[entry] = self.entries[entry].saturating_add(bytes);
        let print = self.mix.slim(&words(&key).0);
        let number = print as usize % SETS;
        let set = &mut self.sets[number].0;
        let held = set.iter().position(|way| way.print == print && way.bytes > 0);
        let (mut way, mut least) = (0, u32::MAX);
        for (at, held) in set.iter().enumerate() {
            if held.bytes < least {
                (way, least) = (at, held.bytes);
            }
        }
        let way = held.unwrap_or(way);
        if held.is_none() {
            set[way] = Way { print, bytes: least, over: least };
            self.keys[number * WAYS + way] = (key, hash);
        }
        set[way].bytes = set[way].bytes.saturating_add(bytes);
    }
}

/// The last `count` of these lanes.
#[inline]
fn last(lanes: Lanes, count: u32) -> Lanes {
    let mut skip = lanes.count().saturating_sub(count);
    if lanes == Lanes::first(lanes.count() as usize) {
        return lanes.without(Lanes::first(skip as usize));
    }
    let mut left = lanes.0;
    while skip > 0 {
        left &= left.wrapping_sub(1);
        skip -= 1;
    }
    Lanes(left)
}

#[cfg(test)]
mod tests;

//! The faulty reference device: from a seed, it loses, reorders, duplicates, corrupts and delays
//! frames and limits their rate, and records what it did. The tester has to find exactly that (T9).
//!
//! ```text
//!  offer ─> limit ─> lose ─> corrupt ─> duplicate ─> delay, reorder ─> wait until due ─> collect
//!                 the fate of every frame is recorded ─────────────────────────> Truth
//! ```
//!
//! The truth is computed only from this log, by the plain definitions and without tags; it shares
//! no code with the tester.

use std::collections::BTreeMap;

use flowyard_frame::Nanos;
use flowyard_testkit::Rng;

use super::device::Dut;

mod truth;

pub use truth::Truth;

/// The faults of a device: rates in parts per million, times in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// Frames lost.
    pub lose_ppm: u32,
    /// If not 0, the frame with this number (from 0, per port) is also lost: an exact loss of one.
    pub lose_one: u64,
    /// Frames duplicated.
    pub duplicate_ppm: u32,
    /// Frames corrupted with one to three wrong bits.
    pub corrupt_ppm: u32,
    /// Frames delayed by an additional time.
    pub reorder_ppm: u32,
    /// Maximum additional delay of reordered frames and of duplicates.
    pub reorder_ns: Nanos,
    /// Fixed delay of every frame.
    pub delay_ns: Nanos,
    /// Maximum of a random delay of every frame; this alone also reorders frames.
    pub jitter_ns: Nanos,
    /// Minimum time between frames of a port; 0 for no limit.
    pub service_ns: Nanos,
    /// Length of the queue in front of the rate limit; further frames are lost.
    pub queue_frames: u64,
    /// Duration of a reset; 0 if the device cannot be reset.
    pub reset_ns: Nanos,
}

/// The log entry of a frame that left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Left {
    pub(crate) at: Nanos,
    pub(crate) port: u8,
    pub(crate) number: u64,
    pub(crate) flow: [u8; 12],
    pub(crate) offered: Nanos,
    pub(crate) whole: bool,
}

/// The log entry of a frame that was offered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Offered {
    pub(crate) port: u8,
    /// The frame's number at its port, from 0.
    pub(crate) number: u64,
    pub(crate) at: Nanos,
}

/// The device. It forwards from port 2n to port 2n + 1 and back.
#[derive(Debug)]
pub struct Faulty {
    faults: Faults,
    ports: u8,
    rng: Rng,
    waiting: BTreeMap<(Nanos, u64), (Left, Vec<u8>)>,
    count: u64,
    /// For each port: number of frames offered, and the time at which the port is free again.
    inputs: Vec<(u64, Nanos)>,
    down_until: Nanos,
    log: Vec<Left>,
    offered: Vec<Offered>,
}

impl Faulty {
    /// A device with `ports` ports and the given faults, randomised from `seed`.
    #[must_use]
    pub fn new(ports: u8, faults: Faults, seed: u64) -> Self {
        Self {
            faults,
            ports,
            rng: Rng::new(seed),
            waiting: BTreeMap::new(),
            count: 0,
            inputs: vec![(0, 0); ports.into()],
            down_until: 0,
            log: Vec::new(),
            offered: Vec::new(),
        }
    }

    /// What the device really did.
    #[must_use]
    pub fn truth(&self) -> Truth {
        truth::of(&self.offered, &self.log)
    }

    fn hits(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.rng.below(1_000_000) < u64::from(ppm)
    }

    fn leave(&mut self, left: Left, frame: Vec<u8>) {
        self.count += 1;
        self.waiting.insert((left.at, self.count), (left, frame));
    }
}

impl Dut for Faulty {
    fn describe(&self) -> String {
        format!("the faulty reference device, {:?}", self.faults)
    }

    fn ports(&self) -> u8 {
        self.ports
    }

    fn offer(&mut self, at: Nanos, port: u8, frame: &[u8]) {
        let Some((count, free)) = self.inputs.get_mut(usize::from(port)) else { return };
        let (number, start) = (*count, at.max(*free));
        *count += 1;
        self.offered.push(Offered { port, number, at });
        let Faults { service_ns, queue_frames, .. } = self.faults;
        if service_ns > 0 {
            if start - at > service_ns * queue_frames {
                return;
            }
            *free = start + service_ns;
        }
        let faults = self.faults;
        if at < self.down_until
            || faults.lose_one > 0 && number == faults.lose_one
            || self.hits(faults.lose_ppm)
        {
            return;
        }
        let mut bytes = frame.to_vec();
        let whole = !self.hits(faults.corrupt_ppm);
        if !whole {
            let bits = bytes.len() as u64 * 8;
            let first = self.rng.below(bits);
            bytes[(first / 8) as usize] ^= 1 << (first % 8);
            for _ in 0..self.rng.below(3) {
                let next = self.rng.below(bits);
                if next != first {
                    // Never flip the first bit back, so that the frame stays corrupt.
                    bytes[(next / 8) as usize] ^= 1 << (next % 8);
                }
            }
        }
        let late =
            if self.hits(faults.reorder_ppm) { self.rng.below(faults.reorder_ns + 1) } else { 0 };
        let jitter = self.rng.below(faults.jitter_ns + 1);
        let due = start + service_ns + faults.delay_ns + jitter + late;
        let mut flow = [0; 12];
        flow.copy_from_slice(frame.get(26..38).unwrap_or(&[0; 12]));
        let left = Left { at: due, port: port ^ 1, number, flow, offered: at, whole };
        if self.hits(faults.duplicate_ppm) {
            let again = due + self.rng.below(faults.reorder_ns + 1);
            self.leave(Left { at: again, ..left }, bytes.clone());
        }
        self.leave(left, bytes);
    }

    fn collect(&mut self, until: Nanos, out: &mut dyn FnMut(Nanos, u8, &[u8])) {
        while let Some(entry) = self.waiting.first_entry() {
            if entry.key().0 > until {
                return;
            }
            let (left, bytes) = entry.remove();
            self.log.push(left);
            out(left.at, left.port, &bytes);
        }
    }

    fn reset(&mut self, at: Nanos) -> bool {
        self.down_until = at + self.faults.reset_ns;
        self.faults.reset_ns > 0
    }
}

//! A host that forwards: ports at line rate, a ring for each queue, cores that poll their rings.
//!
//! ```text
//!  line ─> ring of 512 ─> poll: up to 64 frames at a time, round robin over the core's rings ─> line
//! ```
//!
//! Frames come evenly. A core with something in a ring polls; a frame costs a time that a table says. Two
//! hardware threads of a core that both have rings take longer each, by a factor. Cores share nothing
//! else, so each is run alone.
//!
//! Time is counted in tenths of nanoseconds: 67.2 ns between the smallest frames at 10 Gb/s. The state of a
//! core comes back to where it was before long (frames are even, costs a fixed round), and from there on
//! everything repeats: so a run of 14 hours is exact and takes no longer than one of 30 seconds.
//!
//! Invariant: arrived = forwarded + dropped + in rings. Thread-safety: plain functions.

use std::collections::HashMap;

use serde::Serialize;

/// Bytes on the wire beside the frame: preamble and gap. The frame has its FCS.
pub const OVERHEAD: u64 = 20;

/// Tenths of nanoseconds in a second.
const TICKS: f64 = 1e10;
const WEIGHT: u64 = 64;
const RING: u64 = 512;

/// Frames a second of a line.
#[must_use]
pub fn line_pps(bits_per_second: f64, frame_bytes: u64) -> f64 {
    bits_per_second / (8.0 * (frame_bytes + OVERHEAD) as f64)
}

/// One core (or hardware thread) and its rings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Forwarder {
    /// Frames a second offered to each ring.
    pub offered_pps: Vec<f64>,
    /// What frames cost, in nanoseconds, one after the other and then from the start: a flow of n
    /// packets whose first is dear has n entries.
    pub costs_ns: Vec<f64>,
}

/// What a core forwarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Forwarded {
    /// Frames a second.
    pub pps: f64,
    /// Frames that arrived, left, were dropped, and are in rings at the end.
    pub books: [u64; 4],
}

impl Forwarded {
    /// Whether every frame is accounted for.
    #[must_use]
    pub const fn is_balanced(&self) -> bool {
        self.books[0] == self.books[1] + self.books[2] + self.books[3]
    }
}

/// One ring, by the time of its core.
#[derive(Clone, Debug)]
struct Ring {
    /// Tenths of nanoseconds between frames, and until the next one.
    gap: u64,
    next: u64,
    frames: u64,
    arrived: u64,
    dropped: u64,
}

impl Ring {
    /// So many tenths pass.
    fn pass(&mut self, ticks: u64) {
        if ticks < self.next {
            self.next -= ticks;
            return;
        }
        let after = ticks - self.next;
        let came = 1 + after / self.gap;
        self.next = self.gap - after % self.gap;
        self.arrived += came;
        let all = self.frames + came;
        self.frames = all.min(RING);
        self.dropped += all - self.frames;
    }
}

/// Counters at a time, to be repeated.
#[derive(Clone, Debug)]
struct Mark {
    time: u64,
    left: u64,
    rings: Vec<[u64; 2]>,
}

impl Forwarder {
    /// Runs for `seconds`.
    #[must_use]
    pub fn run(&self, seconds: f64) -> Forwarded {
        let end = (seconds.max(0.0) * TICKS) as u64;
        let costs: Vec<u64> = self.costs_ns.iter().map(|ns| (ns * 10.0).round() as u64).collect();
        let gaps = self.offered_pps.iter().filter(|pps| **pps > 0.0);
        let ring = |(n, pps): (usize, &f64)| {
            let gap = ((TICKS / pps).round() as u64).max(1);
            Ring { gap, next: 1 + gap * n as u64 / 7, frames: 0, arrived: 0, dropped: 0 }
        };
        let mut rings: Vec<Ring> = gaps.enumerate().map(ring).collect();
        if rings.is_empty() || costs.iter().sum::<u64>() == 0 {
            return Forwarded::default();
        }
        let (mut time, mut left, mut at, mut turn) = (0u64, 0u64, 0usize, 0usize);
        let mut seen: HashMap<Vec<u64>, Mark> = HashMap::new();
        while time < end {
            let state = || {
                let of = rings.iter().flat_map(|ring| [ring.next, ring.frames]);
                of.chain([at as u64, turn as u64]).collect::<Vec<_>>()
            };
            let mark = Mark {
                time,
                left,
                rings: rings.iter().map(|ring| [ring.arrived, ring.dropped]).collect(),
            };
            if seen.len() < 200_000
                && let Some(before) = seen.insert(state(), mark)
            {
                // The same state as before: all that happened since happens again, and again.
                let period = time - before.time;
                let times = (end - time) / period;
                for (ring, [arrived, dropped]) in rings.iter_mut().zip(before.rings) {
                    ring.arrived += times * (ring.arrived - arrived);
                    ring.dropped += times * (ring.dropped - dropped);
                }
                left += times * (left - before.left);
                time += times * period;
                seen.clear();
                if time >= end {
                    break;
                }
            }
            let some = (0..rings.len()).map(|n| (turn + n) % rings.len());
            let passed = match some.into_iter().find(|&n| rings[n].frames > 0) {
                None => rings.iter().map(|ring| ring.next).min().unwrap_or(1),
                Some(n) => {
                    let frames = rings[n].frames.min(WEIGHT);
                    rings[n].frames -= frames;
                    left += frames;
                    turn = (n + 1) % rings.len();
                    let mut cost = 0;
                    for _ in 0..frames {
                        cost += costs[at];
                        at = (at + 1) % costs.len();
                    }
                    cost
                }
            };
            rings.iter_mut().for_each(|ring| ring.pass(passed));
            time += passed;
        }
        let sum = |of: fn(&Ring) -> u64| rings.iter().map(of).sum::<u64>();
        Forwarded {
            pps: left as f64 * TICKS / time.max(1) as f64,
            books: [sum(|r| r.arrived), left, sum(|r| r.dropped), sum(|r| r.frames)],
        }
    }
}

/// The rate of a whole machine: `rings[i]` are the loads offered to processor i's rings, `cost_ns` what a
/// frame costs a core alone, `share` by how much longer it takes while the other thread of the core has
/// rings too; `sibling` names that thread.
#[must_use]
pub fn machine_pps(
    rings: &[Vec<f64>],
    costs_ns: &[f64],
    share: f64,
    sibling: impl Fn(usize) -> Option<usize>,
    seconds: f64,
) -> f64 {
    let one = |(cpu, offered): (usize, &Vec<f64>)| {
        let other = sibling(cpu).and_then(|other| rings.get(other));
        let factor = if other.is_some_and(|rings| !rings.is_empty()) { share } else { 1.0 };
        let costs_ns = costs_ns.iter().map(|ns| ns * factor).collect();
        Forwarder { offered_pps: offered.clone(), costs_ns }.run(seconds).pps
    };
    rings.iter().enumerate().map(one).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_core_does_what_it_can_and_drops_the_rest() {
        let line = line_pps(1e10, 64);
        assert_eq!(line.round(), 14_880_952.0);
        let full = Forwarder { offered_pps: vec![line], costs_ns: vec![1225.0] }.run(1.0);
        assert!((full.pps * 1225e-9 - 1.0).abs() < 1e-3 && full.is_balanced(), "{full:?}");
        let idle = Forwarder { offered_pps: vec![1e5], costs_ns: vec![1225.0] }.run(1.0);
        assert!((idle.pps / 1e5 - 1.0).abs() < 1e-3 && idle.books[2] == 0, "{idle:?}");
        assert_eq!(Forwarder { offered_pps: vec![], costs_ns: vec![1.0] }.run(1.0).pps, 0.0);
    }

    #[test]
    fn fourteen_hours_are_thirty_seconds_over_and_over() {
        for offered in [vec![14.88e6], vec![0.7e6, 0.7e6], vec![0.4e6, 0.4e6]] {
            let core = Forwarder { offered_pps: offered, costs_ns: vec![832.0] };
            let (short, long) = (core.run(30.0), core.run(14.0 * 3600.0));
            assert!((long.pps / short.pps - 1.0).abs() < 1e-4, "{short:?} {long:?}");
            assert!(long.is_balanced() && long.books[0] > 1000 * short.books[0]);
        }
    }

    #[test]
    fn threads_of_a_core_share_it() {
        let rings = vec![vec![14.88e6]; 4];
        let alone = machine_pps(&rings, &[1000.0], 1.6, |_| None, 0.01);
        let shared = machine_pps(&rings, &[1000.0], 1.6, |cpu| Some((cpu + 2) % 4), 0.01);
        assert!((alone / shared - 1.6).abs() < 0.01);
    }

    proptest! {
        /// The slow twin: no repeating. Same books to the frame.
        #[test]
        fn repeating_changes_nothing(
            offered in prop::collection::vec(1e5f64..2e6, 1..4),
            costs in prop::collection::vec(100.0f64..2000.0, 1..4),
        ) {
            let core = Forwarder { offered_pps: offered, costs_ns: costs };
            let fast = core.run(0.05);
            prop_assert!(fast.is_balanced());
            let slow = slow(&core, 500_000_000);
            prop_assert_eq!(fast.books, slow);
        }
    }

    fn slow(core: &Forwarder, end: u64) -> [u64; 4] {
        let ps: Vec<u64> = core.costs_ns.iter().map(|ns| (ns * 10.0).round() as u64).collect();
        let gaps: Vec<u64> = core.offered_pps.iter().map(|p| (TICKS / p).round() as u64).collect();
        let mut next: Vec<u64> =
            gaps.iter().enumerate().map(|(n, gap)| 1 + gap * n as u64 / 7).collect();
        let (mut frames, mut time, mut turn, mut at) = (vec![0u64; gaps.len()], 0, 0, 0usize);
        let mut books = [0u64; 4];
        while time < end {
            let ready = (0..gaps.len()).map(|n| (turn + n) % gaps.len()).find(|&n| frames[n] > 0);
            match ready {
                None => time = *next.iter().min().unwrap(),
                Some(n) => {
                    let take = frames[n].min(WEIGHT);
                    frames[n] -= take;
                    books[1] += take;
                    turn = (n + 1) % gaps.len();
                    for _ in 0..take {
                        time += ps[at];
                        at = (at + 1) % ps.len();
                    }
                }
            }
            for n in 0..gaps.len() {
                while next[n] <= time {
                    next[n] += gaps[n];
                    books[0] += 1;
                    if frames[n] == RING { books[2] += 1 } else { frames[n] += 1 }
                }
            }
        }
        books[3] = frames.iter().sum();
        books
    }
}

//! A host that forwards frames: ports at line rate, one ring for each queue, cores that poll their rings.
//!
//! ```text
//!  line ─> ring of 512 ─> poll: up to 64 frames at a time, round robin over the core's rings ─> line
//! ```
//!
//! Frames arrive at even distances. A core polls while one of its rings has frames; the cost of each frame
//! is given by a list. If both hardware threads of a core have rings, each takes longer by a factor. Cores
//! share nothing else, so each is simulated alone.
//!
//! Time is counted in tenths of nanoseconds: 67.2 ns between the smallest frames at 10 Gb/s. Frames arrive
//! evenly and costs repeat, so the state of a core soon equals an earlier state, and from there on everything
//! repeats. The repetitions are counted instead of simulated: a run of 14 hours is exact and takes no
//! longer than one of 30 seconds.
//!
//! Invariant: arrived = forwarded + dropped + in rings. Thread-safety: plain functions.

use std::collections::HashMap;

use serde::Serialize;

use crate::accounting::Accounting;

/// Bytes on the wire besides the frame (which includes its FCS): preamble and inter-frame gap.
pub const OVERHEAD: u64 = 20;

/// Tenths of nanoseconds in a second.
const TICKS: f64 = 1e10;
const WEIGHT: u64 = 64;
const RING: u64 = 512;

/// The line rate in frames a second.
#[must_use]
pub fn line_pps(bits_per_second: f64, frame_bytes: u64) -> f64 {
    bits_per_second / (8.0 * (frame_bytes + OVERHEAD) as f64)
}

/// One core (or hardware thread) with its rings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Forwarder {
    /// Frames a second offered to each ring.
    pub offered_pps: Vec<f64>,
    /// The costs of consecutive frames in nanoseconds, repeated from the start after the last. A flow of
    /// n packets whose first is expensive has n entries.
    pub costs_ns: Vec<f64>,
}

/// The result of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Forwarded {
    /// Frames forwarded a second.
    pub pps: f64,
    /// Frames that arrived, were forwarded, were dropped, and are in rings at the end.
    pub accounting: Accounting,
}

impl Forwarded {
    /// Whether every frame is accounted for.
    #[must_use]
    pub const fn is_balanced(&self) -> bool {
        self.accounting.is_balanced()
    }
}

/// One ring, whose clock is the time of its core.
#[derive(Clone, Debug)]
struct Ring {
    /// Tenths of nanoseconds between frames, and until the next frame.
    gap: u64,
    next: u64,
    frames: u64,
    arrived: u64,
    dropped: u64,
}

impl Ring {
    /// Advances the ring by `ticks` tenths of nanoseconds.
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

/// The counters at a point in time, from which the growth of a period is computed.
#[derive(Clone, Debug)]
struct Mark {
    time: u64,
    left: u64,
    rings: Vec<[u64; 2]>,
}

impl Forwarder {
    /// Simulates `seconds` of time.
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
                // The same state as before: the period since then repeats until the end.
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
            accounting: Accounting {
                entered: sum(|r| r.arrived),
                left,
                dropped: sum(|r| r.dropped),
                held: sum(|r| r.frames),
            },
        }
    }
}

/// The rate of a whole machine in frames a second. `rings[i]` are the loads offered to the rings of processor
/// i, `costs_ns` the costs of frames on an otherwise idle core, and `share` the factor by which these grow
/// while the other hardware thread of the core has rings too; `sibling` returns that thread.
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
    fn a_core_forwards_at_its_limit_and_drops_the_rest() {
        let line = line_pps(1e10, 64);
        assert_eq!(line.round(), 14_880_952.0);
        let full = Forwarder { offered_pps: vec![line], costs_ns: vec![1225.0] }.run(1.0);
        assert!((full.pps * 1225e-9 - 1.0).abs() < 1e-3 && full.is_balanced(), "{full:?}");
        let idle = Forwarder { offered_pps: vec![1e5], costs_ns: vec![1225.0] }.run(1.0);
        assert!((idle.pps / 1e5 - 1.0).abs() < 1e-3 && idle.accounting.dropped == 0, "{idle:?}");
        assert_eq!(Forwarder { offered_pps: vec![], costs_ns: vec![1.0] }.run(1.0).pps, 0.0);
    }

    /// Counted repetitions give the frames that arrive and the rate of the core or of the link, to the frame.
    #[test]
    fn a_long_run_counts_every_frame() {
        let (hours, cost) = (14.0 * 3600.0, 832.0);
        for (offered, pps) in [
            (vec![14.88e6], 1e9 / cost),
            (vec![0.7e6, 0.7e6], 1e9 / cost),
            (vec![0.4e6, 0.4e6], 0.8e6),
        ] {
            let core = Forwarder { offered_pps: offered.clone(), costs_ns: vec![cost] };
            let long = core.run(hours);
            assert!(long.is_balanced(), "{long:?}");
            assert!((long.pps / pps - 1.0).abs() < 1e-6, "{long:?} instead of {pps}");
            let gap = |pps: &f64| (TICKS / pps).round();
            let arrived: f64 = offered.iter().map(|pps| hours * TICKS / gap(pps)).sum();
            assert!(
                (long.accounting.entered as f64 - arrived).abs() < 1000.0,
                "{long:?} {arrived}"
            );
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
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Compares with the same simulation without counting repetitions: equal to the frame.
        #[test]
        fn repeating_changes_nothing(
            offered in prop::collection::vec(1e5f64..2e6, 1..4),
            costs in prop::collection::vec(100.0f64..2000.0, 1..4),
        ) {
            let core = Forwarder { offered_pps: offered, costs_ns: costs };
            let fast = core.run(0.05);
            prop_assert!(fast.is_balanced());
            let slow = slow(&core, 500_000_000);
            prop_assert_eq!(fast.accounting, slow);
        }
    }

    fn slow(core: &Forwarder, end: u64) -> Accounting {
        let ps: Vec<u64> = core.costs_ns.iter().map(|ns| (ns * 10.0).round() as u64).collect();
        let gaps: Vec<u64> = core.offered_pps.iter().map(|p| (TICKS / p).round() as u64).collect();
        let mut next: Vec<u64> =
            gaps.iter().enumerate().map(|(n, gap)| 1 + gap * n as u64 / 7).collect();
        let (mut frames, mut time, mut turn, mut at) = (vec![0u64; gaps.len()], 0, 0, 0usize);
        let mut counters = Accounting::default();
        while time < end {
            let ready = (0..gaps.len()).map(|n| (turn + n) % gaps.len()).find(|&n| frames[n] > 0);
            match ready {
                None => time = *next.iter().min().unwrap(),
                Some(n) => {
                    let take = frames[n].min(WEIGHT);
                    frames[n] -= take;
                    counters.left += take;
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
                    counters.entered += 1;
                    if frames[n] == RING { counters.dropped += 1 } else { frames[n] += 1 }
                }
            }
        }
        counters.held = frames.iter().sum();
        counters
    }
}

//! What one policy did to a capture: load, imbalance, locality, reorder exposure.
//!
//! Memory: per queue and core, and 24 bytes per flow; the imbalance of the windows goes into a
//! histogram, the occupancy series is thinned as it grows.

use flowyard_frame::Nanos;
use hdrhistogram::Histogram;

use crate::flows::FlowId;
use crate::policy::{Landing, Stage};

/// Packets and wire bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Load {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

impl Load {
    #[inline]
    fn add(&mut self, wire_len: u32) {
        self.packets += 1;
        self.bytes += u64::from(wire_len);
    }
}

/// What a policy remembers of a flow.
#[derive(Clone, Copy, Debug)]
struct Trail {
    /// When the last of its frames so far is done.
    done: Nanos,
    /// Bytes since it last changed cores.
    bytes_here: u64,
    core: u16,
    moves: u32,
}

const NOWHERE: u16 = u16::MAX;

impl Default for Trail {
    fn default() -> Self {
        Self { done: 0, bytes_here: 0, core: NOWHERE, moves: 0 }
    }
}

/// The running totals of one policy.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) queues: Vec<Load>,
    pub(crate) cores: Vec<Load>,
    pub(crate) stages: [u64; Stage::ALL.len()],
    pub(crate) local: u64,
    /// Received frames, and those of them that belong to a flow.
    pub(crate) received: u64,
    pub(crate) in_flows: u64,
    pub(crate) overtakes: u64,
    pub(crate) moves: u64,
    trails: Vec<Trail>,
    window: Window,
}

/// What became of one flow under one policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fate {
    pub(crate) core: u16,
    pub(crate) moves: u32,
    pub(crate) bytes_here: u64,
}

impl Tally {
    pub(crate) const BYTES_PER_FLOW: usize = size_of::<Trail>();

    pub(crate) fn new(queues: u16, cores: u16, window: Nanos) -> Self {
        Self {
            queues: vec![Load::default(); queues as usize],
            cores: vec![Load::default(); cores as usize],
            stages: [0; Stage::ALL.len()],
            local: 0,
            received: 0,
            in_flows: 0,
            overtakes: 0,
            moves: 0,
            trails: Vec::new(),
            window: Window::new(cores, window),
        }
    }

    /// A received frame landed; `flow` is `None` for frames outside IP.
    #[inline]
    pub(crate) fn land(&mut self, seen: &Received, landing: Landing, done: Nanos) {
        self.received += 1;
        self.stages[landing.stage as usize] += 1;
        if landing.stage == Stage::Dropped {
            return;
        }
        self.queues[landing.queue as usize].add(seen.wire_len);
        self.cores[landing.core as usize].add(seen.wire_len);
        self.window.add(landing.core, seen.now);
        let Some((flow, consumer)) = seen.flow else { return };
        self.in_flows += 1;
        self.local += u64::from(landing.core == consumer);
        if flow as usize >= self.trails.len() {
            self.trails.resize((flow as usize + 1).next_power_of_two(), Trail::default());
        }
        let trail = &mut self.trails[flow as usize];
        if trail.core != landing.core {
            if trail.core != NOWHERE {
                trail.moves += 1;
                self.moves += 1;
                trail.bytes_here = 0;
            }
            trail.core = landing.core;
        }
        trail.bytes_here += u64::from(seen.wire_len);
        if done < trail.done {
            self.overtakes += 1;
        } else {
            trail.done = done;
        }
    }

    pub(crate) fn fate(&self, flow: FlowId) -> Option<Fate> {
        let trail = self.trails.get(flow as usize)?;
        let Trail { core, moves, bytes_here, .. } = *trail;
        (core != NOWHERE).then_some(Fate { core, moves, bytes_here })
    }

    /// Largest over mean load of the cores, by packets; `None` without packets.
    pub(crate) fn imbalance(loads: &[Load]) -> Option<f64> {
        let total: u64 = loads.iter().map(|load| load.packets).sum();
        let max = loads.iter().map(|load| load.packets).max()?;
        (total > 0).then(|| max as f64 * loads.len() as f64 / total as f64)
    }

    /// The 99th percentile of the windows' largest over mean core load, and how many windows had
    /// at least one packet a core (a sparser window is imbalanced whatever the policy).
    pub(crate) fn windows(&mut self) -> (Option<f64>, u64) {
        self.window.close();
        let seen = self.window.seen.len();
        ((seen > 0).then(|| self.window.seen.value_at_quantile(0.99) as f64 / 1000.0), seen)
    }
}

/// What a policy is told of a received frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received {
    pub(crate) now: Nanos,
    pub(crate) wire_len: u32,
    /// The flow and the core its consumer runs on.
    pub(crate) flow: Option<(FlowId, u16)>,
}

/// The current window's load per core, and the imbalance of those before.
#[derive(Debug)]
struct Window {
    width: Nanos,
    end: Nanos,
    cores: Vec<u32>,
    packets: u32,
    /// Largest over mean, in thousandths.
    seen: Histogram<u64>,
}

impl Window {
    fn new(cores: u16, width: Nanos) -> Self {
        let most = (u64::from(cores) * 1000).max(2);
        let seen = Histogram::new_with_max(most, 3).expect("1 <= 2 <= most, three digits");
        Self { width: width.max(1), end: 0, cores: vec![0; cores as usize], packets: 0, seen }
    }

    #[inline]
    fn add(&mut self, core: u16, now: Nanos) {
        if now >= self.end {
            self.close();
            self.end = now - now % self.width + self.width;
        }
        self.cores[core as usize] += 1;
        self.packets += 1;
    }

    fn close(&mut self) {
        let cores = self.cores.len() as u64;
        if u64::from(self.packets) >= cores {
            let max = u64::from(self.cores.iter().copied().max().unwrap_or(0));
            self.seen.saturating_record(max * cores * 1000 / u64::from(self.packets));
        }
        self.cores.fill(0);
        self.packets = 0;
    }
}

/// A series over time, thinned to at most [`Series::MOST`] points by keeping every second one and
/// doubling the interval each time it fills.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    points: Vec<(Nanos, u32)>,
    interval: Nanos,
    next: Nanos,
}

impl Series {
    const MOST: usize = 512;

    #[inline]
    pub(crate) fn add(&mut self, now: Nanos, value: u32) {
        if now >= self.next {
            self.keep(now, value);
        }
    }

    fn keep(&mut self, now: Nanos, value: u32) {
        if self.points.len() == Self::MOST {
            let mut nth = 0;
            self.points.retain(|_| {
                nth += 1;
                nth % 2 == 1
            });
            let span = now - self.points[0].0;
            self.interval = (self.interval * 2).max(span / Self::MOST as u64);
        }
        self.points.push((now, value));
        self.next = now + self.interval;
    }

    pub(crate) fn points(&self) -> &[(Nanos, u32)] {
        &self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn land(tally: &mut Tally, now: Nanos, flow: u32, core: u16, done: Nanos) {
        let seen = Received { now, wire_len: 100, flow: Some((flow, 0)) };
        tally.land(&seen, Landing { queue: core, core, stage: Stage::Rss }, done);
    }

    #[test]
    fn a_frame_done_before_an_earlier_one_overtakes() {
        let mut tally = Tally::new(2, 2, 100);
        land(&mut tally, 0, 5, 0, 1000);
        land(&mut tally, 1, 5, 1, 500);
        land(&mut tally, 2, 5, 1, 900);
        land(&mut tally, 3, 5, 1, 1100);
        land(&mut tally, 3, 6, 1, 10);
        assert_eq!((tally.overtakes, tally.moves, tally.local), (2, 1, 1));
        let fate = tally.fate(5).unwrap();
        assert_eq!((fate.core, fate.moves, fate.bytes_here), (1, 1, 300));
        assert!(tally.fate(7).is_none());
    }

    #[test]
    fn imbalance_is_largest_over_mean() {
        let mut tally = Tally::new(4, 4, 100);
        for now in 0..4 {
            land(&mut tally, now, now as u32, 0, now);
        }
        assert_eq!(Tally::imbalance(&tally.cores), Some(4.0));
        let (p99, windows) = tally.windows();
        assert_eq!(windows, 1);
        assert!((p99.unwrap() - 4.0).abs() < 0.01);
        assert_eq!(Tally::imbalance(&[]), None);
    }

    #[test]
    fn sparse_windows_do_not_count() {
        let mut tally = Tally::new(4, 4, 100);
        for now in (0..1000).step_by(100) {
            land(&mut tally, now, 1, 0, now);
        }
        assert_eq!(tally.windows(), (None, 0));
    }

    #[test]
    fn a_series_is_thinned() {
        let mut series = Series::default();
        for now in 0..1_000_000 {
            series.add(now, now as u32);
        }
        let points = series.points();
        assert!(points.len() <= Series::MOST && points.len() > Series::MOST / 4);
        assert!(points.is_sorted());
        assert_eq!(points[0], (0, 0));
    }
}

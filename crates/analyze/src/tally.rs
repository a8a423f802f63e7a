//! The counters of one policy: load, imbalance, locality and reorder exposure.
//!
//! Memory is proportional to the number of queues and cores: the imbalance of the windows is kept in
//! a histogram, and the occupancy series is thinned when it grows.

use flowyard_frame::Nanos;
use hdrhistogram::Histogram;

use crate::interrupts::Interrupts;
use crate::landing::{Landing, Stage};
use crate::over_time::OverTime;
use crate::packet::Packet;
use crate::summary::LoadSummary;
use crate::trails::Trails;

impl LoadSummary {
    /// Counts one packet.
    #[inline]
    fn add(&mut self, wire_len: u32) {
        self.packets += 1;
        self.bytes += u64::from(wire_len);
    }
}

/// The running totals of one policy.
#[derive(Debug)]
pub(crate) struct Tally {
    /// The number of the policy, which selects its trails.
    number: usize,
    pub(crate) queues: Vec<LoadSummary>,
    pub(crate) cores: Vec<LoadSummary>,
    pub(crate) stages: [u64; Stage::ALL.len()],
    /// Received frames that reached the core of their consumer.
    pub(crate) local: u64,
    /// Received frames.
    pub(crate) received: u64,
    /// Received frames that belong to a flow.
    pub(crate) in_flows: u64,
    /// Received frames that could overtake an earlier frame of their flow.
    pub(crate) overtakes: u64,
    /// Changes of core by a flow.
    pub(crate) moves: u64,
    window: Window,
    pub(crate) over_time: OverTime,
    /// The interrupts, if they are asked for.
    pub(crate) interrupts: Option<Interrupts>,
    /// Whether the next frame asks for a low-latency interrupt.
    pub(crate) is_urgent: bool,
}

impl Tally {
    pub(crate) fn new(number: usize, queues: u16, cores: u16, window: Nanos) -> Self {
        Self {
            number,
            queues: vec![LoadSummary::default(); queues as usize],
            cores: vec![LoadSummary::default(); cores as usize],
            stages: [0; Stage::ALL.len()],
            local: 0,
            received: 0,
            in_flows: 0,
            overtakes: 0,
            moves: 0,
            window: Window::new(cores, window),
            over_time: OverTime::new(queues),
            interrupts: None,
            is_urgent: false,
        }
    }

    /// Counts a received frame. `done` is the time at which its core is done with it.
    #[inline]
    pub(crate) fn land(
        &mut self,
        seen: &Packet,
        landing: Landing,
        done: Nanos,
        trails: &mut Trails,
    ) {
        self.received += 1;
        self.stages[landing.stage as usize] += 1;
        if landing.stage == Stage::Dropped {
            return;
        }
        self.queues[landing.queue as usize].add(seen.wire_len);
        self.cores[landing.core as usize].add(seen.wire_len);
        self.window.add(landing.core, seen.now);
        self.over_time.add(landing.queue, seen.now);
        if let Some(interrupts) = &mut self.interrupts {
            interrupts.arrive(landing.queue, seen.now, seen.wire_len, self.is_urgent);
        }
        let Some((flow, consumer)) = seen.flow else { return };
        self.in_flows += 1;
        self.local += u64::from(landing.core == consumer);
        let step = trails.of(flow, self.number).step(landing.core, seen.wire_len, done);
        self.moves += u64::from(step.moved);
        self.overtakes += u64::from(step.overtakes);
    }

    /// The ratio of the largest load to the mean load, by packets; `None` without packets.
    pub(crate) fn imbalance(loads: &[LoadSummary]) -> Option<f64> {
        let total: u64 = loads.iter().map(|load| load.packets).sum();
        let max = loads.iter().map(|load| load.packets).max()?;
        (total > 0).then(|| max as f64 * loads.len() as f64 / total as f64)
    }

    /// The 99th percentile of the imbalance in a window, and the number of windows with at least ten
    /// packets per core.
    pub(crate) fn windows(&mut self) -> (Option<f64>, u64) {
        self.window.close();
        let windows = self.window.seen.len();
        // The buckets of the histogram are 0.1 % wide, so its value can exceed the worst case.
        let worst = self.cores.len() as f64;
        let p99 = (self.window.seen.value_at_quantile(0.99) as f64 / 1000.0).min(worst);
        ((windows > 0).then_some(p99), windows)
    }
}

/// The load per core in the current window, and the imbalance of the windows before it.
#[derive(Debug)]
struct Window {
    width: Nanos,
    end: Nanos,
    cores: Vec<u32>,
    packets: u32,
    /// The ratio of the largest to the mean core load, in thousandths.
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
            self.end = (now - now % self.width).saturating_add(self.width);
        }
        self.cores[core as usize] += 1;
        self.packets += 1;
    }

    /// Packets per core that a window must have to be counted. With fewer packets a window is
    /// imbalanced by chance under every policy.
    const LEAST: u64 = 10;

    fn close(&mut self) {
        let cores = self.cores.len() as u64;
        if u64::from(self.packets) >= Self::LEAST * cores {
            let max = u64::from(self.cores.iter().copied().max().unwrap_or(0));
            self.seen.saturating_record(max * cores * 1000 / u64::from(self.packets));
        }
        self.cores.fill(0);
        self.packets = 0;
    }
}

/// A series over time with at most [`Series::MOST`] points: when it is full, every second point is
/// removed and the interval is doubled.
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
            self.interval = self.interval.saturating_mul(2).max(span / Self::MOST as u64);
        }
        self.points.push((now, value));
        self.next = now.saturating_add(self.interval);
    }

    pub(crate) fn points(&self) -> &[(Nanos, u32)] {
        &self.points
    }
}

#[cfg(test)]
mod tests {
    use flowyard_frame::FlowKey;

    use super::*;

    fn land(tally: &mut Tally, now: Nanos, core: u16) {
        let packet = Packet { rss_queue: core, ..Packet::new(FlowKey::ZERO, now, 100) };
        let landing = Landing { queue: core, core, stage: Stage::Rss };
        tally.land(&packet, landing, now, &mut Trails::new(1));
    }

    #[test]
    fn imbalance_is_largest_over_mean() {
        let mut tally = Tally::new(0, 4, 4, 100);
        for now in 0..40 {
            land(&mut tally, now, 0);
        }
        assert_eq!(Tally::imbalance(&tally.cores), Some(4.0));
        let (p99, windows) = tally.windows();
        assert_eq!(windows, 1);
        assert!((p99.unwrap() - 4.0).abs() < 0.01);
        assert_eq!(Tally::imbalance(&[]), None);
    }

    #[test]
    fn sparse_windows_do_not_count() {
        let mut tally = Tally::new(0, 4, 4, 100);
        for now in (0..1000).step_by(100) {
            land(&mut tally, now, 0);
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

//! The published measurements of aRFS slot conflicts, compared with the model.
//!
//! Source: K. Kumar, "net: Prevent RPS table overwrite for active flows", netdev, July 2025 (v2 and
//! v4, patch 1/2): E810 (ice), 144 CPUs and 144 queues, 12,000 flows, 8 minutes per row, counters of
//! the original and the new kernel for eight values of `rps_flow_cnt`.
//!
//! The source gives neither packet rates nor burst sizes. In the model all flows send packets at the
//! same rate at random times (Poisson). The thread of each flow is pinned, with 83 or 84 flows per
//! CPU, and consumes every packet. RSS spreads over 2048 entries. Backlogs are always empty. The
//! global table has 144 x `rps_flow_cnt` entries, rounded down to a power of two. `rps_cpus` is not
//! set.
//!
//! Two numbers are fitted, each to one row; every other row is a prediction:
//! - `RATE_PPS`, packets per second and flow, is fitted to the adds of row 4096 (original kernel);
//! - `WRITE_NS`, the driver's time per filter write, is fitted to the adds of row 1024, the largest
//!   published rate: 16.5 M adds and 16.5 M deletes in 480 s are 14.5 us per write if the task never
//!   pauses.

use flowyard_adapter::linux::{
    Arfs, ArfsConfig, ArfsFix, ArfsStats, CpuQueues, RfsConfig, ServiceTask,
};
use flowyard_frame::Rng;
use flowyard_frame::{FlowKey, Nanos, proto};
use std::net::Ipv4Addr;

flowyard_testkit::tests! {
    original_kernel_reprograms_filters_as_often_as_published,
    small_tables_are_bounded_by_the_packets_of_conflicting_flows_and_the_speed_of_the_task,
    new_kernel_adds_one_filter_per_free_slot,
}

const FLOWS: usize = 12_000;
const QUEUES: u16 = 144;
const SECONDS: f64 = 480.0;
/// Fitted to row 4096.
const RATE_PPS: f64 = 105.0;
/// Fitted to row 1024.
const WRITE_NS: Nanos = 14_500;

/// Seconds after which every flow has sent a packet and requested its filter.
const WARM_UP: f64 = 0.5;

/// Counters of one run.
#[derive(Default)]
struct Row {
    adds: f64,
    calls: f64,
    /// List entries visited; not published for the new kernel.
    walk: f64,
}

/// A published row: `rps_flow_cnt`, and the counters of the original and the new kernel.
struct Published {
    flow_cnt: u32,
    original: Row,
    new: Row,
}

/// A row from the adds, steer calls and list walk of the original kernel, and the adds and steer
/// calls of the new one.
const fn published(flow_cnt: u32, original: [f64; 3], new: [f64; 2]) -> Published {
    let [adds, calls, walk] = original;
    let original = Row { adds, calls, walk };
    let [adds, calls] = new;
    Published { flow_cnt, original, new: Row { adds, calls, walk: f64::NAN } }
}

/// The published rows.
const PUBLISHED: [Published; 8] = [
    published(256, [1.6e6, 121.7e6, 267.6e6], [13.4e3, 13.7e3]),
    published(512, [11.5e6, 65.7e6, 199.6e6], [11.2e3, 11.2e3]),
    published(1024, [16.5e6, 27.1e6, 187.3e6], [11.5e3, 11.5e3]),
    published(2048, [10.5e6, 12.5e6, 115.2e6], [11.8e3, 15.5e3]),
    published(4096, [5.5e6, 7.2e6, 65.9e6], [11.8e3, 11.8e3]),
    published(8192, [2.7e6, 3.0e6, 29.9e6], [11.9e3, 11.9e3]),
    published(16384, [1.3e6, 1.4e6, 13.9e6], [11.9e3, 11.9e3]),
    published(32768, [838.1e3, 965.1e3, 8.9e6], [11.9e3, 11.9e3]),
];

/// Backlogs that are always empty.
struct Idle(Vec<u32>);

impl CpuQueues for Idle {
    fn head(&self, cpu: u16) -> u32 {
        self.0[usize::from(cpu)]
    }
    fn tail(&self, cpu: u16) -> u32 {
        self.0[usize::from(cpu)]
    }
    fn online(&self, _cpu: u16) -> bool {
        true
    }
}

struct Flow {
    key: FlowKey,
    hash: u32,
    rss: u16,
    cpu: u16,
}

struct Experiment {
    arfs: Arfs,
    idle: Idle,
    flows: Vec<Flow>,
    rng: Rng,
    now: f64,
}

impl Experiment {
    fn new(flow_cnt: u32, fix: ArfsFix, write: Nanos, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let global = u32::from(QUEUES) * flow_cnt;
        let rfs = RfsConfig {
            sock_flow_entries: (global / 2 + 1).next_power_of_two(),
            flow_cnt,
            queues: QUEUES,
            cpus: QUEUES,
            ..RfsConfig::default()
        };
        let task = ServiceTask { write, ..ServiceTask::default() };
        let flows = (0..FLOWS)
            .map(|i| {
                let hash = rng.bits() as u32;
                let ip = |x: usize| Ipv4Addr::from(0x0a00_0000 + x as u32).into();
                let key = FlowKey::five_tuple(proto::TCP, ip(i), 40000, ip(0), 80);
                Flow { key, hash, rss: (hash & 2047) as u16 % QUEUES, cpu: (i % 144) as u16 }
            })
            .collect();
        Self {
            arfs: Arfs::new(ArfsConfig { task, ..ArfsConfig::e810(rfs, fix) }),
            idle: Idle(vec![0; usize::from(QUEUES)]),
            flows,
            rng,
            now: 0.0,
        }
    }

    /// The number of flows that share a slot of a device table with another flow. Flows that RSS
    /// already delivers to the right queue have no slot.
    fn conflicting(&self, flow_cnt: u32) -> f64 {
        let mut slots = std::collections::HashMap::new();
        for flow in self.flows.iter().filter(|flow| flow.rss != flow.cpu) {
            let slot = flow.hash.wrapping_mul(0x61c8_8647) >> (32 - flow_cnt.ilog2());
            *slots.entry((flow.cpu, slot)).or_insert(0u32) += 1;
        }
        slots.values().filter(|&&n| n > 1).map(|&n| f64::from(n)).sum()
    }

    /// The expected value of [`Experiment::conflicting`] over all draws of hashes.
    fn expected_conflicting(&self, flow_cnt: u32) -> f64 {
        let moving = FLOWS as f64 * (1.0 - 1.0 / f64::from(QUEUES));
        let alone = (1.0 - 1.0 / f64::from(flow_cnt)).powf(moving / f64::from(QUEUES) - 1.0);
        moving * (1.0 - alone)
    }

    /// Lets all flows send for `seconds`, and returns the counters since the start.
    fn run(&mut self, seconds: f64) -> ArfsStats {
        let step = 1e9 / (FLOWS as f64 * RATE_PPS);
        for _ in 0..(seconds * 1e9 / step) as u64 {
            self.now += step;
            let now = self.now as Nanos;
            let flow = &self.flows[self.rng.below(FLOWS as u64) as usize];
            self.arfs.tick(now, &self.idle);
            let queue = self.arfs.queue(&flow.key).unwrap_or(flow.rss);
            if let Some(cpu) = self.arfs.receive(&flow.key, flow.hash, queue, now, &mut self.idle) {
                self.idle.0[usize::from(cpu)] = self.idle.0[usize::from(cpu)].wrapping_add(1);
            }
            self.arfs.consume(flow.hash, flow.cpu);
        }
        self.arfs.stats()
    }
}

/// The counters after eight minutes, extrapolated from the warm-up and `seconds` of steady state.
fn eight_minutes(flow_cnt: u32, fix: ArfsFix, write: Nanos, seconds: f64, seed: u64) -> Row {
    let mut experiment = Experiment::new(flow_cnt, fix, write, seed);
    let warm = experiment.run(WARM_UP);
    let end = experiment.run(seconds);
    let total = |of: fn(&ArfsStats) -> u64| {
        of(&warm) as f64 + (of(&end) - of(&warm)) as f64 * (SECONDS - WARM_UP) / seconds
    };
    Row { adds: total(|s| s.built), calls: total(|s| s.steer_calls), walk: total(|s| s.list_walk) }
}

/// A row of the original kernel: one draw of hashes, or the mean of two if few flows conflict. Each
/// draw is scaled to the expected number of conflicting flows. (A draw of row 32768 has 30 +- 8 of
/// them; the published row must have had a number in this range.)
fn original(flow_cnt: u32) -> Row {
    let draws = if flow_cnt < 8192 { 1_u32 } else { 2 };
    let mut mean = Row::default();
    for seed in 0..draws {
        let seed = u64::from(seed);
        let draw = Experiment::new(flow_cnt, ArfsFix::Before, WRITE_NS, seed);
        let scale =
            draw.expected_conflicting(flow_cnt) / draw.conflicting(flow_cnt) / f64::from(draws);
        let row = eight_minutes(flow_cnt, ArfsFix::Before, WRITE_NS, 0.6, seed);
        mean.adds += row.adds * scale;
        mean.calls += row.calls * scale;
        mean.walk += row.walk * scale;
    }
    mean
}

/// Original kernel, `rps_flow_cnt` 1024 and more: the slots determine the counts. Each pair of
/// conflicting flows costs one add and one delete per packet of the flow that has no filter, and the
/// number of conflicting flows halves when the table doubles. Ratio of the model to the published
/// value, with the fitted cells in brackets:
///
/// ```text
///  rps_flow_cnt   1024   2048   4096   8192  16384  32768
///  adds          [1.01]  1.01 [0.99]   1.04   1.08   0.83
///  steer calls    0.92   0.94   0.84   1.04   1.16   0.92
///  list walk      1.06   1.08   0.99   1.12   1.25   1.03
/// ```
///
/// The list walk is not asserted, because it depends on how soon a burst repeats its request. Nor are
/// the adds of rows 256 and 512. In these rows the driver wrote 3.3 and 24 thousand filters per
/// second, although it wrote 34 thousand in row 1024 and even more flows requested filters (see the
/// next test). Something else delayed it, most likely the lock that it shares with 140 to 250
/// thousand requests per second. The model has no CPU time and cannot reproduce that.
fn original_kernel_reprograms_filters_as_often_as_published() {
    let models = |rows: &'static [Published]| {
        std::thread::spawn(|| {
            rows.iter().map(|row| (row, original(row.flow_cnt))).collect::<Vec<_>>()
        })
    };
    let (few, many) = PUBLISHED[2..].split_at(2);
    let (few, many) = (models(few), models(many));
    for (Published { flow_cnt, original: published, .. }, model) in
        few.join().unwrap().into_iter().chain(many.join().unwrap())
    {
        flowyard_testkit::note!(
            "rps_flow_cnt {flow_cnt}: list walk {:.2}",
            model.walk / published.walk
        );
        for (what, model, published) in
            [("adds", model.adds, published.adds), ("steer calls", model.calls, published.calls)]
        {
            let ratio = model / published;
            flowyard_testkit::note!(
                "rps_flow_cnt {flow_cnt}: {what} {model:.3e} of {published:.3e}: {ratio:.2}"
            );
            assert!((0.8..=1.2).contains(&ratio), "{flow_cnt} {what}: {ratio:.2}");
        }
    }
}

/// Original kernel, rows 256 and 512: the bounds that the slots alone give. A conflicting flow without
/// its filter makes a request with every packet, so there cannot be more requests than packets of
/// conflicting flows; the published requests are 74 % of that in both rows. And the task cannot add
/// more filters than it does when nothing delays it.
fn small_tables_are_bounded_by_the_packets_of_conflicting_flows_and_the_speed_of_the_task() {
    for Published { flow_cnt, original: published, .. } in &PUBLISHED[..2] {
        let draw = Experiment::new(*flow_cnt, ArfsFix::Before, WRITE_NS, 1);
        let most = draw.expected_conflicting(*flow_cnt) * RATE_PPS * SECONDS;
        let ratio = published.calls / most;
        flowyard_testkit::note!(
            "rps_flow_cnt {flow_cnt}: calls {ratio:.2} of the packets of conflicting flows"
        );
        assert!((0.7..1.0).contains(&ratio), "{flow_cnt}: {ratio:.2}");
        let adds = original(*flow_cnt).adds;
        assert!(adds > published.adds, "{flow_cnt}: nothing delays the task of the model");
    }
}

/// New kernel: one add per flow that finds its slot free, independent of the packet rates. Nothing is
/// fitted. The number is 12,000 flows, minus the 1/144 that RSS delivers to the right queue, minus the
/// flows whose slot is in use.
///
/// Row 256 differs (10.2 K in the model, 13.4 K published): 5.0 K filters were deleted there, so some
/// flows paused for longer than 10 x 256 packets of their CPU, about a third of a second, and then
/// continued. The source does not state which flows paused; flows that never pause give the lower
/// bound.
fn new_kernel_adds_one_filter_per_free_slot() {
    for Published { flow_cnt, new: published, .. } in PUBLISHED {
        let mut experiment = Experiment::new(flow_cnt, ArfsFix::After, WRITE_NS, 1);
        let end = experiment.run(0.5);
        let (adds, calls) = (end.built as f64, end.steer_calls as f64);
        flowyard_testkit::note!(
            "rps_flow_cnt {flow_cnt}: adds {adds} of {}, calls {calls}",
            published.adds
        );
        if flow_cnt == 256 {
            assert!(adds < published.adds);
            continue;
        }
        assert!((0.95..=1.05).contains(&(adds / published.adds)), "{flow_cnt}: {adds}");
        // The published 15.5 K calls for 11.8 K adds in row 2048 fit none of the other rows.
        if flow_cnt != 2048 {
            assert!((0.9..=1.1).contains(&(calls / published.calls)), "{flow_cnt}: {calls}");
        }
    }
}

//! The published aRFS slot-thrash table, against our model.
//!
//! Source: K. Kumar, "net: Prevent RPS table overwrite for active flows", netdev, July 2025 (v2 and
//! v4, patch 1/2): E810 (ice), 144 CPUs = 144 queues, 12,000 flows, 8 minutes per row, counters of
//! the original and the new kernel for eight values of `rps_flow_cnt`.
//!
//! The source gives neither packet rates nor the sizes of bursts. The model: flows send packets at
//! random (Poisson), all at one rate; each flow's thread is pinned, 83 or 84 flows to a CPU, and
//! consumes every packet; RSS spreads over 2048 entries; backlogs are idle; the global table has
//! 144 x rps_flow_cnt entries rounded down; no `rps_cpus`.
//!
//! Two numbers are fitted, from one row each, and every other row is a prediction:
//! - `RATE_PPS`, packets per second and flow, from the adds of row 4096 (original kernel);
//! - `WRITE_NS`, the driver's time per filter write, from the adds of row 1024, the largest rate
//!   published: 16.5 M adds and 16.5 M deletes in 480 s are 14.5 us a write if the task never rests.

use flowyard_adapter::linux::{
    Arfs, ArfsConfig, ArfsFix, ArfsStats, CpuQueues, RfsConfig, ServiceTask,
};
use flowyard_frame::{FlowKey, Nanos, Rng, proto};
use std::net::Ipv4Addr;

const FLOWS: usize = 12_000;
const QUEUES: u16 = 144;
const SECONDS: f64 = 480.0;
/// Fitted from row 4096.
const RATE_PPS: f64 = 105.0;
/// Fitted from row 1024.
const WRITE_NS: Nanos = 14_500;

/// By then every flow has sent and asked.
const WARM_UP: f64 = 0.5;

/// Published: `rps_flow_cnt`, then adds, steer calls and list walk of the original kernel, then
/// adds and steer calls of the new one.
const PUBLISHED: [(u32, [f64; 3], [f64; 2]); 8] = [
    (256, [1.6e6, 121.7e6, 267.6e6], [13.4e3, 13.7e3]),
    (512, [11.5e6, 65.7e6, 199.6e6], [11.2e3, 11.2e3]),
    (1024, [16.5e6, 27.1e6, 187.3e6], [11.5e3, 11.5e3]),
    (2048, [10.5e6, 12.5e6, 115.2e6], [11.8e3, 15.5e3]),
    (4096, [5.5e6, 7.2e6, 65.9e6], [11.8e3, 11.8e3]),
    (8192, [2.7e6, 3.0e6, 29.9e6], [11.9e3, 11.9e3]),
    (16384, [1.3e6, 1.4e6, 13.9e6], [11.9e3, 11.9e3]),
    (32768, [838.1e3, 965.1e3, 8.9e6], [11.9e3, 11.9e3]),
];

/// Backlogs that are always drained.
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
    random: Rng,
    now: f64,
}

impl Experiment {
    fn new(flow_cnt: u32, fix: ArfsFix, write: Nanos, seed: u64) -> Self {
        let mut random = Rng::new(seed);
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
                let hash = random.bits() as u32;
                let ip = |x: usize| Ipv4Addr::from(0x0a00_0000 + x as u32).into();
                let key = FlowKey::five_tuple(proto::TCP, ip(i), 40000, ip(0), 80);
                Flow { key, hash, rss: (hash & 2047) as u16 % QUEUES, cpu: (i % 144) as u16 }
            })
            .collect();
        Self {
            arfs: Arfs::new(ArfsConfig { task, ..ArfsConfig::e810(rfs, fix) }),
            idle: Idle(vec![0; usize::from(QUEUES)]),
            flows,
            random,
            now: 0.0,
        }
    }

    /// Flows that share a slot of one queue's device table with another flow, of those that RSS
    /// does not already deliver to the right queue.
    fn rivals(&self, flow_cnt: u32) -> f64 {
        let mut slots = std::collections::HashMap::new();
        for flow in self.flows.iter().filter(|flow| flow.rss != flow.cpu) {
            let slot = flow.hash.wrapping_mul(0x61c8_8647) >> (32 - flow_cnt.ilog2());
            *slots.entry((flow.cpu, slot)).or_insert(0u32) += 1;
        }
        slots.values().filter(|&&n| n > 1).map(|&n| f64::from(n)).sum()
    }

    /// The number of such flows over all draws of hashes.
    fn expected_rivals(&self, flow_cnt: u32) -> f64 {
        let moving = FLOWS as f64 * (1.0 - 1.0 / f64::from(QUEUES));
        let alone = (1.0 - 1.0 / f64::from(flow_cnt)).powf(moving / f64::from(QUEUES) - 1.0);
        moving * (1.0 - alone)
    }

    /// Lets every flow send for `seconds`, and gives the counters since the start.
    fn run(&mut self, seconds: f64) -> ArfsStats {
        let step = 1e9 / (FLOWS as f64 * RATE_PPS);
        for _ in 0..(seconds * 1e9 / step) as u64 {
            self.now += step;
            let now = self.now as Nanos;
            let flow = &self.flows[self.random.below(FLOWS as u64) as usize];
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

/// What a row comes to after eight minutes: the warm-up as it is, then `seconds` of the steady
/// state stretched to the rest.
fn eight_minutes(flow_cnt: u32, fix: ArfsFix, write: Nanos, seconds: f64, seed: u64) -> [f64; 3] {
    let mut experiment = Experiment::new(flow_cnt, fix, write, seed);
    let warm = experiment.run(WARM_UP);
    let end = experiment.run(seconds);
    let total = |of: fn(&ArfsStats) -> u64| {
        of(&warm) as f64 + (of(&end) - of(&warm)) as f64 * (SECONDS - WARM_UP) / seconds
    };
    [total(|s| s.built), total(|s| s.steer_calls), total(|s| s.list_walk)]
}

/// A row of the original kernel: one draw of hashes, or the mean of two where rivals are few, each
/// scaled to the expected number of rivals (a draw of row 32768 has 30 +- 8 of them, and so had the
/// published one).
fn original(flow_cnt: u32) -> [f64; 3] {
    let draws = if flow_cnt < 8192 { 1 } else { 2 };
    let mut mean = [0.0; 3];
    for seed in 0..draws {
        let draw = Experiment::new(flow_cnt, ArfsFix::Before, WRITE_NS, seed);
        let scale = draw.expected_rivals(flow_cnt) / draw.rivals(flow_cnt);
        let row = eight_minutes(flow_cnt, ArfsFix::Before, WRITE_NS, 0.6, seed);
        for (sum, value) in mean.iter_mut().zip(row) {
            *sum += value * scale / draws as f64;
        }
    }
    mean
}

/// Original kernel, `rps_flow_cnt` 1024 and up: the slot logic decides. Each pair of rivals costs
/// one add and one delete per packet of the flow that is without its filter; the number of rivals
/// halves as the table doubles. Model over published, with the fitted cells in brackets:
///
/// ```text
///  rps_flow_cnt   1024   2048   4096   8192  16384  32768
///  adds          [1.01]  1.01 [0.99]   1.04   1.08   0.83
///  steer calls    0.92   0.94   0.84   1.04   1.16   0.92
///  list walk      1.06   1.08   0.99   1.12   1.25   1.03
/// ```
///
/// The list walk is not asserted: it needs to know how soon a burst asks again. Nor are the adds of
/// rows 256 and 512: there the driver wrote 3.3 and 24 thousand filters a second although it
/// managed 34 thousand in row 1024 and even more flows were asking (see the next test), so it was
/// held up elsewhere, most likely by the lock it shares with 140 to 250 thousand calls a second.
/// That is a matter of CPU time, which this model does not have.
#[test]
fn original_kernel_thrashes_as_published() {
    for (flow_cnt, published, _) in &PUBLISHED[2..] {
        let [adds, calls, walk] = original(*flow_cnt);
        println!("rps_flow_cnt {flow_cnt}: list walk {:.2}", walk / published[2]);
        for (what, model, published) in
            [("adds", adds, published[0]), ("steer calls", calls, published[1])]
        {
            let ratio = model / published;
            println!("rps_flow_cnt {flow_cnt}: {what} {model:.3e} of {published:.3e}: {ratio:.2}");
            assert!((0.8..=1.2).contains(&ratio), "{flow_cnt} {what}: {ratio:.2}");
        }
    }
}

/// Original kernel, rows 256 and 512: what slot logic alone bounds. A rival without its filter asks
/// with every packet, so calls cannot exceed the rivals' packets; the published calls are 74 %
/// of that in both rows. And the task cannot add more than it did where nothing held it up.
#[test]
fn small_tables_are_bounded_by_the_rivals_packets_and_the_tasks_pace() {
    for (flow_cnt, published, _) in &PUBLISHED[..2] {
        let draw = Experiment::new(*flow_cnt, ArfsFix::Before, WRITE_NS, 1);
        let most = draw.expected_rivals(*flow_cnt) * RATE_PPS * SECONDS;
        let ratio = published[1] / most;
        println!("rps_flow_cnt {flow_cnt}: calls {ratio:.2} of the rivals' packets");
        assert!((0.7..1.0).contains(&ratio), "{flow_cnt}: {ratio:.2}");
        let [adds, _, _] = original(*flow_cnt);
        assert!(adds > published[0], "{flow_cnt}: the model's task is never held up");
    }
}

/// New kernel: one add per flow that finds its slot free, whatever the packet rates. Nothing is
/// fitted. 12,000 flows less 1/144 that RSS delivers right, less the later rivals.
///
/// Row 256 is out (10.2 K against 13.4 K published): 5.0 K filters were deleted there, so flows
/// paused for longer than 10 x 256 packets of their CPU, about a third of a second, and came back.
/// Which flows paused is not published; flows that never pause give the lower bound.
#[test]
fn new_kernel_adds_one_filter_per_free_slot() {
    for (flow_cnt, _, published) in PUBLISHED {
        let [adds, calls, _] = {
            let mut experiment = Experiment::new(flow_cnt, ArfsFix::After, WRITE_NS, 1);
            let end = experiment.run(0.5);
            [end.built as f64, end.steer_calls as f64, end.list_walk as f64]
        };
        println!("rps_flow_cnt {flow_cnt}: adds {adds} of {}, calls {calls}", published[0]);
        if flow_cnt == 256 {
            assert!(adds < published[0]);
            continue;
        }
        assert!((0.95..=1.05).contains(&(adds / published[0])), "{flow_cnt}: {adds}");
        // Row 2048's 15.5 K calls for 11.8 K adds stand alone in the publication.
        if flow_cnt != 2048 {
            assert!((0.9..=1.1).contains(&(calls / published[1])), "{flow_cnt}: {calls}");
        }
    }
}

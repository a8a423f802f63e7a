use std::net::Ipv4Addr;

use flowyard_frame::{Action, Batch, Edit, Frame, LANES, proto};
use proptest::prelude::*;

use super::*;

const MS: Nanos = 1_000_000;
const FRAME: f64 = 100.0; // bytes
/// Heavy work: one core serves a million frames per second.
const HEAVY: Costs = Costs { rx_ns: 50.0, work_ns: 950.0, handoff_ns: 10.0, commit_ns: 10.0 };

fn key(n: u32) -> FlowKey {
    let [src, dst] = [0x0a00_0000 + n, 0x0a80_0001].map(Ipv4Addr::from_bits);
    FlowKey::five_tuple(proto::UDP, src.into(), 1024, dst.into(), 53)
}

/// Cores, an indirection table of 64 entries, and flows with rates; flow `n` has hash `n`. Checks and
/// carries out the decisions.
struct Host {
    spread: Spread,
    costs: Costs,
    /// Frames per second, by flow.
    flows: Vec<f64>,
    seen: Vec<Seen>,
    elephants: Elephants,
    now: Nanos,
    log: Vec<Decision>,
    last_change: Vec<Option<Nanos>>,
    /// The rate of a split flow, as a factor of the rate that one core serves; 1 for no limit.
    split_factor: f64,
}

impl Host {
    fn new(cores: usize, flows: Vec<f64>, settings: Settings) -> Self {
        Self {
            spread: Spread::new(64, cores).unwrap(),
            costs: HEAVY,
            last_change: vec![None; flows.len()],
            flows,
            seen: vec![Seen { entries: vec![0; 64], ..Seen::default() }; cores],
            elephants: Elephants::new(settings, 0),
            now: 0,
            log: Vec::new(),
            split_factor: 1.0,
        }
    }

    fn home(&self, flow: usize) -> usize {
        match self.spread.to(flow as u32) {
            To::Queue(queue) => queue.into(),
            other => panic!("{other:?}"),
        }
    }

    /// The rate of each flow at each core, in frames per second; split flows fill spare capacity.
    fn sent(&self) -> Vec<Vec<f64>> {
        let cores = self.seen.len();
        let mut sent = vec![vec![0.0; self.flows.len()]; cores];
        let split: Vec<_> = self.elephants.promoted().copied().collect();
        for (flow, rate) in self.flows.iter().enumerate() {
            if !split.contains(&key(flow as u32)) {
                sent[self.home(flow)][flow] = *rate;
            }
        }
        for (flow, rate) in self.flows.iter().enumerate() {
            if split.contains(&key(flow as u32)) {
                let limited = 1e6 * self.split_factor;
                let rate = &if self.split_factor < 1.0 { rate.min(limited) } else { *rate };
                let spare = |core: &Vec<f64>| (1e6 - core.iter().sum::<f64>()).max(1.0);
                let spare: Vec<_> = sent.iter().map(spare).collect();
                let all: f64 = spare.iter().sum();
                sent.iter_mut()
                    .zip(spare)
                    .for_each(|(core, spare)| core[flow] = rate * spare / all);
            }
        }
        sent
    }

    /// A window of 100 ms.
    fn window(&mut self) -> Vec<Decision> {
        let mut loads = Vec::new();
        for (core, sent) in self.sent().into_iter().enumerate() {
            let needed: f64 = sent.iter().sum::<f64>() / 1e6;
            let frames = needed.min(1.0) * 1e5;
            let drops = ((needed - 1.0).max(0.0) * 1e5) as u64;
            // Other programs take the workers' time: they are busy all the time.
            let is_slow = self.split_factor < 1.0 && self.elephants.promoted().count() > 0;
            let busy = if is_slow { 1.0 } else { needed.min(1.0) };
            loads.push(Load { busy, queue_len: drops.min(4096), drops });
            let seen = &mut self.seen[core];
            seen.frames = frames as u64;
            seen.samples = seen.samples / 2 + seen.frames / 64;
            seen.entries.iter_mut().for_each(|bytes| *bytes /= 2);
            let old = std::mem::take(&mut seen.flows);
            seen.bytes /= 2;
            for (flow, rate) in sent.iter().enumerate() {
                let new = rate * 0.1 / needed.max(1.0) * FRAME / 64.0;
                let before = old.iter().find(|f| f.hash == flow as u32).map_or(0, |f| f.bytes);
                let bytes = before / 2 + new as u32;
                seen.entries[flow % 64] += new as u32;
                seen.bytes += u64::from(new as u32);
                let flow = flow as u32;
                seen.flows.push(Flow { key: key(flow), hash: flow, bytes, at_least: bytes });
            }
        }
        self.now += 100 * MS;
        let Self { spread, costs, seen, .. } = self;
        let window = Window { loads: &loads, seen, spread, costs: *costs };
        let decisions = self.elephants.window(self.now, &window);
        for decision in &decisions {
            self.carry_out(decision);
        }
        self.log.extend(&decisions);
        decisions
    }

    fn carry_out(&mut self, decision: &Decision) {
        assert!(!decision.to_string().is_empty());
        match decision.what {
            What::Rebalance { entry, to, .. } => {
                let own = |key: &FlowKey| key.src[3] as u32 % 64;
                assert!(self.elephants.promoted().all(|key| own(key) != entry));
                self.spread.set(entry as usize, To::Queue(to)).unwrap();
            }
            What::Promote { key, .. } | What::Demote { key, .. } | What::Undo { key, .. } => {
                let last = &mut self.last_change[usize::from(key.src[3])];
                let dwell = self.elephants.settings.dwell;
                assert!(last.is_none_or(|last| self.now - last >= dwell), "{decision}");
                *last = Some(self.now);
            }
            What::Outcome { .. } | What::Refuse { .. } => {}
        }
    }

    fn windows(&mut self, count: usize) -> Vec<Decision> {
        (0..count).flat_map(|_| self.window()).collect()
    }
}

/// 63 mice and an elephant, flow 0, whose home is core 0.
fn flows(elephant: f64, mouse: f64) -> Vec<f64> {
    (0..64).map(|n| if n == 0 { elephant } else { mouse }).collect()
}

fn promotions(log: &[Decision]) -> usize {
    log.iter().filter(|decision| matches!(decision.what, What::Promote { .. })).count()
}

fn demotions(log: &[Decision]) -> usize {
    let is_down = |what| matches!(what, What::Demote { .. } | What::Undo { .. });
    log.iter().filter(|decision| is_down(decision.what)).count()
}

#[test]
fn without_overload_nothing_happens() {
    let mut host = Host::new(4, flows(900_000.0, 0.0), Settings::default());
    assert_eq!(host.windows(50), [], "a core that is 90 % busy with one flow keeps up");
}

#[test]
fn mice_go_first_and_the_elephant_stays_when_that_is_enough() {
    // Core 0 gets 700,000 + 15 x 40,000 frames per second, 1.3 cores; the others 0.64 cores.
    let mut host = Host::new(4, flows(700_000.0, 40_000.0), Settings::default());
    host.windows(2);
    assert_eq!(host.log, [], "patience");
    let moves = host.window();
    assert!(moves.len() >= 9, "{moves:?}");
    for Decision { core, what, .. } in &moves {
        let What::Rebalance { entry, to, .. } = *what else { panic!("{what:?}") };
        assert!(*core == 0 && to != 0 && entry != 0 && entry % 4 == 0);
    }
    assert!(host.sent()[0].iter().sum::<f64>() < 0.95e6);
    assert_eq!(host.windows(50), [], "no further decisions");
}

#[test]
fn the_elephants_own_entry_never_moves() {
    // All flows are on core 0, the other cores are idle. The elephant would fit on another core.
    let home = |n: usize, rate| if n.is_multiple_of(4) { rate } else { 0.0 };
    let flows = (0..64).map(|n| if n == 0 { 400_000.0 } else { home(n, 45_000.0) }).collect();
    let mut host = Host::new(4, flows, Settings::default());
    let log = host.windows(20);
    assert!(log.len() >= 6, "{log:?}");
    for Decision { what, .. } in log {
        assert!(matches!(what, What::Rebalance { entry: 1.., .. }), "{what:?}");
    }
}

#[test]
fn an_entry_that_was_moved_rests_for_the_dwell_time() {
    let settings = Settings { patience: 1, ..Settings::default() };
    let mut elephants = Elephants::new(settings, 0);
    let mut spread = Spread::new(64, 2).unwrap();
    // Entry 0 has 30 % of the bytes of its core, and fits on the other core. Entries 1 and 2 do not.
    let mut seen = Seen { frames: 1000, samples: 100, bytes: 1000, ..Seen::default() };
    seen.entries = vec![0; 64];
    seen.entries[..3].copy_from_slice(&[300, 700, 700]);
    let seen = [seen.clone(), seen];
    let mut moves = |now: Nanos, busy: usize, spread: &Spread| {
        let mut loads = [Load { busy: 0.2, queue_len: 0, drops: 0 }; 2];
        loads[busy] = Load { busy: 1.0, queue_len: 4096, drops: 0 };
        let window = Window { loads: &loads, seen: &seen, spread, costs: HEAVY };
        let decisions = elephants.window(now, &window).into_iter();
        let moved = decisions.filter_map(|decision| match decision.what {
            What::Rebalance { entry, to, .. } => Some((entry, to)),
            _ => None,
        });
        moved.collect::<Vec<_>>()
    };
    let start = 100 * MS;
    assert_eq!(moves(start, 0, &spread), [(0, 1)]);
    spread.set(0, To::Queue(1)).unwrap();
    for now in [start + 1, start + settings.dwell / 2, start + settings.dwell - 1] {
        assert_eq!(moves(now, 1, &spread), [], "at {now} ns");
    }
    assert_eq!(moves(start + settings.dwell, 1, &spread), [(0, 0)]);
}

#[test]
fn an_elephant_is_split_when_moving_mice_is_not_enough_and_comes_back() {
    let mut host = Host::new(4, flows(1_800_000.0, 10_000.0), Settings::default());
    let log = host.windows(12);
    let first = log.iter().position(|d| matches!(d.what, What::Promote { .. })).unwrap();
    assert!(first > 0 && log[..first].iter().all(|d| matches!(d.what, What::Rebalance { .. })));
    let What::Promote { key: found, share, estimate } = log[first].what else { return };
    assert_eq!((found, promotions(&log)), (key(0), 1));
    assert!(share > 0.9 && estimate.gain() > 2.0 && estimate.break_even_ns < 100.0);
    let ordered = To::Queue(100);
    let action = Action { to: ordered, counter: 0, mark: 0 };
    assert_eq!(log[first].edit(ordered), Some(Edit::Put(key(0), action)));
    // While it is large it stays promoted, and after the dwell time the outcome is reported.
    let log = host.windows(100);
    let [Decision { what: What::Outcome { expected, gain, .. }, .. }] = log[..] else {
        panic!("{log:?}")
    };
    assert!(gain > 1.6 && gain < expected, "{gain} of {expected}");
    // Its rate falls: it is demoted after some windows, not at once.
    host.flows[0] = 100_000.0;
    host.windows(2);
    assert_eq!(demotions(&host.log), 0);
    let log = host.windows(10);
    assert_eq!(demotions(&log), 1);
    assert_eq!(log[0].edit(ordered), Some(Edit::Del(key(0))));
    assert_eq!(host.windows(50), []);
    assert_eq!(host.elephants.promoted().count(), 0);
}

#[test]
fn below_the_break_even_it_is_refused_with_the_figure() {
    let mut host = Host::new(2, flows(1_800_000.0, 0.0), Settings::default());
    // The same cost per frame, but most of it is receiving: the work is 20 ns.
    host.costs = Costs { rx_ns: 80.0, work_ns: 20.0, handoff_ns: 30.0, commit_ns: 20.0 };
    let log = host.windows(15);
    let [Decision { what: What::Refuse { key: Some(flow), reason }, .. }] = log[..] else {
        panic!("{log:?}")
    };
    let Refused::NotWorthIt { work_ns, estimate } = reason else { panic!("{reason}") };
    assert_eq!((flow, work_ns), (key(0), 20.0));
    // Two cores share 80 + w + 4 x 30 + 20 ns; a gain of 1.1 requires 2 (80 + w) = 1.1 (220 + w).
    assert!((estimate.break_even_ns - 82.0 / 0.9).abs() < 1e-6, "{estimate:?}");
    assert!(
        log[0].to_string().contains("pays from 91 ns of work per frame, and this flow takes 20 ns")
    );
    assert!(promotions(&host.windows(30)) == 0);
    // The same flow with more work per frame is split.
    host.costs.work_ns = 200.0;
    assert_eq!(promotions(&host.windows(5)), 1);
}

#[test]
fn without_an_elephant_the_refusal_is_reported() {
    let mut host = Host::new(2, vec![45_000.0; 64], Settings::default());
    let log = host.windows(10);
    assert_eq!(log.len(), 2, "one for each core: {log:?}");
    for decision in log {
        assert!(matches!(decision.what, What::Refuse { reason: Refused::NoElephant { .. }, .. }));
    }
}

#[test]
fn promotions_are_bounded() {
    let settings = Settings { promoted_max: 1, ..Settings::default() };
    let mut host = Host::new(8, vec![1_500_000.0, 1_500_000.0], settings);
    let log = host.windows(20);
    assert_eq!(promotions(&log), 1);
    let full = |d: &&Decision| {
        matches!(d.what, What::Refuse { reason: Refused::Full { promoted: 1 }, .. })
    };
    assert_eq!(log.iter().filter(full).count(), 1, "{log:?}");
}

#[test]
fn a_failed_promotion_is_not_tried_at_once() {
    let mut host = Host::new(4, flows(1_800_000.0, 0.0), Settings::default());
    host.windows(3);
    assert_eq!(host.elephants.promoted().count(), 1);
    host.elephants.failed(&key(0), host.now);
    let log = host.windows(15);
    let [Decision { what: What::Refuse { reason: Refused::Resting { left }, .. }, .. }] = log[..]
    else {
        panic!("{log:?}")
    };
    assert!(left > 0 && left <= 2000 * MS);
    assert_eq!(promotions(&host.windows(10)), 1);
}

/// An overloaded core with one flow, beside an idle core: the flow is split at once, unless it may not.
fn overload(elephants: &mut Elephants, now: Nanos, costs: Costs) -> Vec<What> {
    let spread = Spread::new(64, 2).unwrap();
    let mut entries = vec![0; 64];
    entries[0] = 1000;
    let flows = vec![Flow { key: key(0), hash: 0, bytes: 1000, at_least: 1000 }];
    let busy = Seen { frames: 1000, samples: 100, bytes: 1000, flows, entries };
    let loads = [Load { busy: 1.0, queue_len: 4096, drops: 0 }, Load::default()];
    let seen = [busy, Seen::default()];
    let window = Window { loads: &loads, seen: &seen, spread: &spread, costs };
    elephants.window(now, &window).iter().map(|decision| decision.what).collect()
}

#[test]
fn a_flow_rests_up_to_its_time_and_not_longer() {
    let settings = Settings { patience: 1, ..Settings::default() };
    let (now, until) = (100 * MS, 150 * MS);
    let rests: [fn(&mut Elephants, Nanos); 2] = [
        |elephants, until| elephants.flows_resting.push((key(0), until)),
        |elephants, until| elephants.undone.push((key(0), 0.5, until)),
    ];
    for rest in rests {
        for (at, left) in [(now, Some(until - now)), (until - 1, Some(1)), (until, None)] {
            let mut elephants = Elephants::new(settings, 0);
            rest(&mut elephants, until);
            let [what] = overload(&mut elephants, at, HEAVY)[..] else { panic!("at {at}") };
            let refused = match what {
                What::Refuse {
                    key: Some(flow),
                    reason: Refused::Resting { left } | Refused::Undone { left, .. },
                } => Some((flow, left)),
                What::Promote { .. } => None,
                other => panic!("at {at}: {other:?}"),
            };
            assert_eq!(refused, left.map(|left| (key(0), left)), "at {at}");
        }
    }
}

/// A refusal is reported once in the dwell time, and a refusal for another reason at once.
#[test]
fn the_same_refusal_is_reported_once_in_the_dwell_time() {
    let settings = Settings { patience: 1, ..Settings::default() };
    let mut elephants = Elephants::new(settings, 0);
    let light = Costs { work_ns: 1.0, ..HEAVY };
    let start = 100 * MS;
    let count = |elephants: &mut Elephants, at| overload(elephants, at, light).len();
    assert_eq!(count(&mut elephants, start), 1, "it does not pay");
    assert_eq!(count(&mut elephants, start + 1), 0);
    assert_eq!(count(&mut elephants, start + settings.dwell - 1), 0);
    assert_eq!(count(&mut elephants, start + settings.dwell), 1, "the dwell time is over");
    elephants.flows_resting.push((key(0), Nanos::MAX));
    assert_eq!(count(&mut elephants, start + settings.dwell + 1), 1, "it rests");
    assert_eq!(count(&mut elephants, start + settings.dwell + 2), 0);
}

/// The flow's rate falls when it is split, as on a machine whose other processor is in use.
#[test]
fn a_split_that_slows_the_flow_down_is_undone_and_not_repeated_soon() {
    let mut host = Host::new(4, flows(1_800_000.0, 0.0), Settings::default());
    host.split_factor = 0.38;
    let log = host.windows(25);
    let whats: Vec<_> = log.iter().map(|decision| decision.what).collect();
    let [.., What::Outcome { gain, .. }, What::Undo { key: undone, gain: same, .. }] = whats[..]
    else {
        panic!("{log:?}")
    };
    assert!(gain < 1.0 && gain == same && undone == key(0), "{gain}");
    let edit = log.last().unwrap().edit(To::Queue(100));
    assert_eq!((edit, host.elephants.promoted().count()), (Some(Edit::Del(key(0))), 0));
    // The core is overloaded again. Within the next 30 s the flow is not split.
    let log = host.windows(280);
    assert_eq!(promotions(&log), 0, "{log:?}");
    let why = |d: &&Decision| matches!(d.what, What::Refuse { reason: Refused::Undone { .. }, .. });
    let refused = log.iter().find(why).unwrap().to_string();
    assert!(refused.contains("times its rate on one core; it stays"), "{refused}");
    // Later it is tried again.
    host.split_factor = 1.0;
    assert_eq!(promotions(&host.windows(60)), 1);
    assert_eq!(host.elephants.promoted().count(), 1);
}

#[test]
fn a_load_that_alternates_does_not_make_it_flap() {
    for half in [1, 2, 4, 10, 35] {
        let mut host = Host::new(4, flows(0.0, 1_000.0), Settings::default());
        for n in 0..400 {
            host.flows[0] = if n / half % 2 == 0 { 1_800_000.0 } else { 50_000.0 };
            host.window(); // checks the dwell time
        }
        let (up, down) = (promotions(&host.log), demotions(&host.log));
        // 40 s with a dwell time of 2 s: at most 20 changes; the fastest changes are not followed.
        assert!(up + down <= 20 && up - down <= 1, "half {half}: {up} up, {down} down");
        if half < 3 {
            assert_eq!(up, 0, "half {half}: shorter than patience");
        }
        if half == 35 {
            assert!(up >= 4, "half {half}: {up}; seconds of overload justify a promotion");
        }
    }
}

#[test]
fn between_the_thresholds_nothing_changes() {
    let mut host = Host::new(4, flows(1_500_000.0, 0.0), Settings::default());
    host.windows(10);
    assert_eq!((promotions(&host.log), demotions(&host.log)), (1, 0));
    host.flows[0] = 750_000.0; // would fit on its core, but leave it busier than busy_low
    host.windows(100);
    assert_eq!((promotions(&host.log), demotions(&host.log)), (1, 0));
    host.flows[0] = 550_000.0;
    host.windows(20);
    assert_eq!((promotions(&host.log), demotions(&host.log)), (1, 1));
    host.flows[0] = 900_000.0;
    host.windows(100);
    assert_eq!((promotions(&host.log), demotions(&host.log)), (1, 1));
}

/// With real samplers: an elephant is found among mice by samples.
#[test]
fn samples_are_enough() {
    let mut random = flowyard_frame::Rng::new(1);
    let mut samplers: Vec<_> = (0..2).map(|core| Sampler::new(64, 64, core)).collect();
    let mut seen = vec![Seen::default(); 2];
    let spread = Spread::new(64, 2).unwrap();
    let mut elephants = Elephants::new(Settings::default(), 0);
    let mut log = Vec::new();
    for n in 1..=6_u64 {
        for _ in 0..2000 {
            let mut batches = [Batch::default(), Batch::default()];
            for _ in 0..LANES {
                // A third of the frames is flow 0; the others are flows of many sizes, on both cores.
                let r = random.bits();
                let other = 1 + (10_000.0 * (r as f64 / u64::MAX as f64).powi(6)) as u32;
                let flow = if r.is_multiple_of(3) { 0 } else { other };
                let mut frame = Frame::unbacked(500);
                frame.hash = flow.wrapping_mul(0x9e37_79b1) >> 3 & !1 | flow & 1;
                let core = usize::from(flow & 1 == 1);
                let _ = batches[core].push(frame, FlowKey { tos: 3, ..key(flow) });
            }
            for (sampler, batch) in samplers.iter_mut().zip(&batches) {
                sampler.sample(batch, batch.lanes());
            }
        }
        samplers.iter_mut().zip(&mut seen).for_each(|(sampler, seen)| sampler.window(seen));
        // Core 0 serves a third of its frames: flow 0 alone overloads it.
        let over = Load { busy: 1.0, queue_len: 5000, drops: 2 * seen[0].frames };
        let loads = [over, Load { busy: 0.3, ..Load::default() }];
        let window = Window { loads: &loads, seen: &seen, spread: &spread, costs: HEAVY };
        log.extend(elephants.window(n * 100 * MS, &window));
    }
    let promoted: Vec<_> = elephants.promoted().copied().collect();
    assert_eq!(promoted, [key(0)], "{log:?}");
}

proptest! {
    /// No input causes a panic, and the limit of promoted flows holds.
    #[test]
    fn any_figures_are_safe(
        windows in prop::collection::vec(
            (any::<u64>(), prop::collection::vec((any::<f64>(), any::<u64>(), any::<u64>(),
                prop::collection::vec((0..8_u32, any::<u32>(), any::<u32>()), 0..6)), 0..4)), 1..12),
        costs in any::<[f64; 4]>(),
        promoted_max in 0..3_usize,
    ) {
        let settings = Settings { patience: 1, promoted_max, samples_min: 0, ..Settings::default() };
        let mut elephants = Elephants::new(settings, 0);
        let spread = Spread::new(8, 3).unwrap();
        let [rx_ns, work_ns, handoff_ns, commit_ns] = costs;
        let costs = Costs { rx_ns, work_ns, handoff_ns, commit_ns };
        for (now, cores) in windows {
            let mut loads = Vec::new();
            let mut seen = Vec::new();
            for (busy, queue_len, drops, flows) in cores {
                loads.push(Load { busy, queue_len, drops });
                let flow = |&(n, bytes, at_least)| Flow { key: key(n), hash: n, bytes, at_least };
                let flows: Vec<_> = flows.iter().map(flow).collect();
                let bytes = flows.iter().map(|flow| u64::from(flow.bytes)).sum();
                seen.push(Seen { frames: 1, samples: 1, bytes, flows, entries: vec![9; 8] });
            }
            let window = Window { loads: &loads, seen: &seen, spread: &spread, costs };
            for decision in elephants.window(now, &window) {
                prop_assert!(!decision.to_string().is_empty());
            }
            prop_assert!(elephants.promoted().count() <= promoted_max);
        }
    }
}

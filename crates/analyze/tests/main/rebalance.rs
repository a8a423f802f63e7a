//! The policy `rebalance`: a skewed load becomes even, no packet is overtaken if each entry paused for longer than its
//! old core was behind, and what never pauses stays.

use flowyard_adapter::rss::RssConfig;
use flowyard_analyze::{Analysis, Delays, RebalanceSummary, Setup, Spec};
use flowyard_flow::learn::rebalance::Limits;
use flowyard_frame::{FlowKey, proto};
use flowyard_ports::mem::Frames;
use flowyard_testkit::{Build, Rng};
use flowyard_wire::LinkType;

use crate::common::{analyze, assert_conserved, policy, setup};

flowyard_testkit::tests! {
    a_skewed_load_becomes_even_without_reordering,
    packets_are_overtaken_only_after_moves_that_came_too_early,
    a_flow_that_never_pauses_stays_unless_it_is_forced,
    an_even_load_is_left_alone,
}

const MS: u64 = 1_000_000;

fn key(flow: u32) -> FlowKey {
    let ip = |n: u32| std::net::Ipv4Addr::from(0x0a00_0000 | n).into();
    FlowKey::five_tuple(proto::UDP, ip(1 + flow), 1024 + (flow * 7919 % 50_000) as u16, ip(0), 53)
}

/// Flows that send bursts of some milliseconds, with pauses between them; flow 0 sends all the time if `elephant`.
fn bursts(seed: u64, flows: u32, ms: u64, elephant: bool) -> Frames {
    let mut random = Rng::new(seed);
    let frames: Vec<_> =
        (0..flows).map(|flow| Build::new(&key(flow)).frame_len(100).bytes()).collect();
    let mut until = vec![(0, false); flows as usize];
    let mut all = Frames::new();
    for tick in 0..ms * 2 {
        let now = tick * MS / 2;
        for (flow, bytes) in frames.iter().enumerate() {
            let (end, sends) = &mut until[flow];
            if now >= *end {
                (*end, *sends) =
                    (now + (2 + random.below(28)) * MS, !*sends && random.below(3) > 0);
            }
            let number = if elephant && flow == 0 { 8 } else { u64::from(*sends) };
            for n in 0..number {
                all.push(
                    1_000_000_000 + now + n * 10_000 + random.below(5_000),
                    LinkType::Ethernet,
                    bytes,
                );
            }
        }
    }
    all
}

/// Eight queues; queue 0 has three quarters of the table.
fn skewed(limits: Limits) -> Setup {
    let mut setup = setup("x710", vec![Spec::Rss, Spec::Rebalance]);
    let queue = |entry: u16| if entry % 4 < 3 { 0 } else { entry / 4 % 8 };
    setup.rss = RssConfig { reta: Some((0..512).map(queue).collect()), ..RssConfig::default() };
    (setup.queues, setup.cores) = (8, 8);
    setup.rebalance = limits;
    setup
}

fn limits() -> Limits {
    Limits { window: 20 * MS, moves: 10_000, ..Limits::default() }
}

fn moves(analysis: &Analysis) -> &RebalanceSummary {
    policy(analysis, "rebalance").rebalance.as_ref().expect("the policy moves entries")
}

fn a_skewed_load_becomes_even_without_reordering() {
    for seed in 0..4 {
        let mut frames = bursts(seed, 400, 1000, false);
        let analysis = analyze(skewed(limits()), &mut frames);
        assert_conserved(&analysis, "skewed");
        let moves = moves(&analysis);
        let (before, after) = (moves.mean_imbalance_of_rss.unwrap(), moves.mean_imbalance.unwrap());
        assert!(before > 5.0 && after < before / 2.0, "{before} {after}");
        // At first the table is as it was; at the end the load is even.
        let (first, last) = (moves.windows[0], moves.windows[moves.windows.len() - 1]);
        assert_eq!(first.rss, first.rebalanced);
        assert!(last.rebalanced < 1.6 && last.rss > 5.0, "{last:?}");
        assert!(moves.moves > 100 && moves.moved_entries <= moves.moves, "{moves:?}");
        assert_eq!(moves.windows.iter().map(|one| one.moves).sum::<u64>(), moves.moves);
        // A core is behind by some microseconds, and entries pause for a millisecond.
        let reorder = policy(&analysis, "rebalance").reorder;
        assert_eq!((moves.early, moves.forced, reorder.packets), (0, 0, 0));
        assert!(reorder.moves > 50, "{reorder:?}");
        let rss = policy(&analysis, "rss");
        assert!(rss.rebalance.is_none() && rss.reorder.moves == 0);
        let least = policy(&analysis, "rebalance").imbalance.queues.unwrap();
        assert!(least < rss.imbalance.queues.unwrap() / 2.0, "{least}");
    }
}

fn packets_are_overtaken_only_after_moves_that_came_too_early() {
    let (mut overtaken, mut early, mut clean) = (0, 0, 0);
    for seed in 0..12 {
        let mut random = Rng::new(seed);
        let mut setup = skewed(Limits {
            pause: 100_000 + random.below(4) * MS,
            force_after: (seed % 4 == 0).then_some(30 * MS),
            ..limits()
        });
        // Slow cores, of which some are far behind.
        let extra = |_| if random.below(3) == 0 { random.below(3 * MS) } else { 0 };
        setup.delays =
            Delays { service: 2_000, extra: (0..8).map(extra).collect(), ..Delays::default() };
        let analysis = analyze(setup, &mut bursts(seed, 300, 500, seed % 2 == 0));
        assert_conserved(&analysis, &format!("seed {seed}"));
        let (moves, reorder) = (moves(&analysis), policy(&analysis, "rebalance").reorder);
        assert!(moves.moves > 0, "seed {seed}");
        assert!(moves.early > 0 || reorder.packets == 0, "seed {seed}: {reorder:?}");
        overtaken += reorder.packets;
        early += moves.early;
        clean += u64::from(moves.early == 0);
    }
    flowyard_testkit::note!(
        "{overtaken} packets overtaken after {early} early moves; {clean} runs without"
    );
    assert!(overtaken > 0 && early > 0 && clean > 0, "{overtaken} {early} {clean}");
}

fn a_flow_that_never_pauses_stays_unless_it_is_forced() {
    // The elephant is in an entry of queue 0 or not: the seed of the hash key decides, so its entry is put there.
    let run = |force_after| {
        let mut setup = skewed(Limits { force_after, ..limits() });
        setup.rss.reta = Some(vec![0; 511].into_iter().chain([1]).collect());
        analyze(setup, &mut bursts(7, 60, 800, true))
    };
    let stays = run(None);
    let entry = |analysis: &Analysis| moves(analysis).busy.first().map(|one| one.entry);
    let busiest = moves(&stays).busy.first().copied().expect("the elephant's entry");
    assert!(busiest.packets > 300 && busiest.queue == 0, "{busiest:?}");
    let reorder = policy(&stays, "rebalance").reorder;
    assert_eq!((moves(&stays).forced, reorder.packets), (0, 0));
    let note = stays.notes.iter().find(|note| note.contains("no pause")).expect("it is said");
    assert!(note.contains(&format!("entry {}", busiest.entry)), "{note}");
    assert_eq!(stays.elephants[0].policies["rebalance"].moves, 0);
    let forced = run(Some(60 * MS));
    assert!(moves(&forced).forced > 0 && entry(&forced).is_none());
}

fn an_even_load_is_left_alone() {
    let mut frames = Frames::new();
    let bytes: Vec<_> = (0..4096).map(|flow| Build::new(&key(flow)).bytes()).collect();
    for round in 0..100 {
        for (flow, bytes) in bytes.iter().enumerate() {
            let now = 1_000_000_000 + round * 10 * MS + flow as u64 * 2_000;
            frames.push(now, LinkType::Ethernet, bytes);
        }
    }
    let mut setup = skewed(limits());
    setup.rss.reta = None;
    let analysis = analyze(setup, &mut frames);
    let moves = moves(&analysis);
    assert_eq!((moves.moves, moves.busy_entries), (0, 0));
    assert_eq!(moves.mean_imbalance, moves.mean_imbalance_of_rss);
    assert!(moves.mean_imbalance.unwrap() < 1.25, "{moves:?}");
}

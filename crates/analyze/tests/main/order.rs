//! Which policies reorder: learners that move a flow immediately do, as the papers measured; RSS and
//! yard never do. And which policies reach the core of the consumer.

use flowyard_analyze::{Analysis, Delays, Local, Setup, Spec};
use flowyard_ports::mem::Frames;
use flowyard_testkit::{Arrivals, Popularity, Profile as Mix, Rng, Sizes};

use crate::common::{analyze, assert_conserved, policy, setup, traffic};

flowyard_testkit::tests! {
    atr_and_arfs_reorder_where_rss_and_yard_do_not,
    yard_and_rss_keep_the_order_of_both_directions,
    rfs_keeps_the_order_of_flows_that_have_been_consumed,
    without_migration_learners_reach_the_consumer_with_one_move,
    a_long_flow_reaches_the_core_of_its_service,
    fewer_samples_reorder_less,
}

const SEEDS: u64 = 8;

/// Traffic at high and low rates, with few and many flows, and with short connections.
fn mixes() -> Vec<(&'static str, Mix)> {
    let busy = Mix { flows: 64, rate_pps: 4e6, exchanges: 0, ..Mix::default() };
    vec![
        ("busy", busy),
        ("uniform", Mix { popularity: Popularity::Uniform, ..busy }),
        (
            "constant, large",
            Mix { arrivals: Arrivals::Constant, sizes: Sizes::Fixed(1514), ..busy },
        ),
        ("sparse", Mix { rate_pps: 2e5, ..busy }),
        ("one flow", Mix { flows: 1, rate_pps: 5e5, ..busy }),
        ("short connections", Mix { flows: 300, exchanges: 6, ..busy }),
        ("overload", Mix { rate_pps: 5e7, ..busy }),
    ]
}

/// A setup with threads that move often, and cores with different delays.
fn unruly(adapter: &str, policies: Vec<Spec>, seed: u64) -> Setup {
    let mut rng = Rng::new(seed);
    let mut setup = setup(adapter, policies);
    setup.seed = seed;
    setup.migrate_every = 20_000 + rng.below(200_000);
    setup.sample_rate = 1 + rng.below(20) as u32;
    let extra = |_| if rng.below(3) == 0 { rng.below(300_000) } else { 0 };
    setup.delays = Delays { extra: (0..16).map(extra).collect(), ..Delays::default() };
    setup
}

fn overtakes(analysis: &Analysis, name: &str) -> u64 {
    policy(analysis, name).reorder.packets
}

fn atr_and_arfs_reorder_where_rss_and_yard_do_not() {
    let cases = [
        ("x520", "atr", vec![Spec::Rss, Spec::Atr, Spec::Yard]),
        ("x710", "atr", vec![Spec::Rss, Spec::Atr, Spec::Yard]),
        ("x722", "atr", vec![Spec::Rss, Spec::Atr, Spec::Yard]),
        ("e810", "arfs", vec![Spec::Rss, Spec::Arfs, Spec::Yard]),
    ];
    let (mut by_atr, mut by_arfs, mut moved) = (0, 0, 0);
    for (name, mix) in mixes() {
        for seed in 0..SEEDS {
            let mut frames = traffic(mix, seed, 3000);
            for (adapter, learner, policies) in &cases {
                let analysis = analyze(unruly(adapter, policies.clone(), seed), &mut frames);
                let what = format!("{name}, {adapter}, seed {seed}");
                assert_conserved(&analysis, &what);
                assert_eq!(overtakes(&analysis, "rss"), 0, "{what}");
                assert_eq!(policy(&analysis, "rss").reorder.moves, 0, "{what}");
                assert_eq!(overtakes(&analysis, "yard"), 0, "{what}");
                moved += policy(&analysis, "yard").reorder.moves;
                let count = if *learner == "atr" { &mut by_atr } else { &mut by_arfs };
                *count += overtakes(&analysis, learner);
            }
        }
    }
    flowyard_testkit::note!(
        "could overtake: ATR {by_atr}, aRFS {by_arfs}; yard moved flows {moved} times"
    );
    // yard moves flows as well, but only when their old queue is drained.
    assert!(by_atr > 1000 && by_arfs > 100 && moved > 1000, "{by_atr} {by_arfs} {moved}");
}

/// A monitor receives both directions of a connection, each of which has its own order.
fn yard_and_rss_keep_the_order_of_both_directions() {
    for (name, mix) in mixes() {
        for seed in 0..4 {
            let mut frames = traffic(mix, seed, 3000);
            for local in [Local::All, Local::Client] {
                let mut setup = unruly("x520", vec![Spec::Rss, Spec::Yard], seed);
                setup.local = local;
                let analysis = analyze(setup, &mut frames);
                for policy in ["rss", "yard"] {
                    assert_eq!(overtakes(&analysis, policy), 0, "{name}, seed {seed}, {policy}");
                }
            }
        }
    }
}

/// The mix after a start at a low rate, in which every flow is consumed.
fn after_a_quiet_start(mix: Mix, seed: u64) -> Frames {
    let quiet = Mix { rate_pps: 1e3, popularity: Popularity::Uniform, ..mix };
    let mut frames = traffic(quiet, seed, 1500);
    let last = frames.iter().last().map_or(0, |(record, _)| record.time);
    let busy = traffic(Mix { start: last + 1_000_000_000, ..mix }, seed + 1, 3000);
    for (record, bytes) in busy.iter() {
        frames.push(record.time, record.link, bytes);
    }
    frames
}

/// RFS waits until the backlog of the old core is drained. An exception are frames before the flow is
/// first consumed: RPS steers them, and the first frame that RFS steers may overtake them
/// (`get_rps_cpu`: a flow table entry without a core is used immediately).
fn rfs_keeps_the_order_of_flows_that_have_been_consumed() {
    let (mut moves, mut at_the_start) = (0, 0);
    for (name, mix) in mixes().into_iter().filter(|(_, mix)| mix.exchanges == 0) {
        for seed in 0..SEEDS {
            let run = |mut frames| {
                let mut setup = unruly("x520", vec![Spec::Rps, Spec::Rfs], seed);
                // The tables are so large that no two of these flows share an entry.
                (setup.sock_flow_entries, setup.flow_cnt) = (1 << 20, 1 << 16);
                let analysis = analyze(setup, &mut frames);
                assert_eq!(overtakes(&analysis, "rps"), 0, "{name}, seed {seed}");
                let rfs = &policy(&analysis, "rfs").reorder;
                (rfs.packets, rfs.moves)
            };
            let known = run(after_a_quiet_start(mix, seed));
            assert_eq!(known.0, 0, "{name}, seed {seed}");
            moves += known.1;
            at_the_start += run(traffic(mix, seed, 3000)).0;
        }
    }
    flowyard_testkit::note!(
        "RFS moved flows {moves} times in order; {at_the_start} overtook at the start"
    );
    assert!(moves > 1000 && at_the_start > 0, "{moves} {at_the_start}");
}

/// If threads do not move and all cores are equal, a learner moves each flow once, to its consumer.
fn without_migration_learners_reach_the_consumer_with_one_move() {
    let mix = Mix {
        flows: 100,
        udp_every: 0, // ATR samples TCP only
        rate_pps: 1e5,
        exchanges: 0,
        popularity: Popularity::Uniform,
        ..Mix::default()
    };
    let mut frames = traffic(mix, 5, 60_000);
    let mut setup = setup("x520", Spec::all_of(flowyard_adapter::Profile::find("x520").unwrap()));
    setup.sock_flow_entries = 32_768;
    setup.flow_cnt = 2048;
    let analysis = analyze(setup, &mut frames);
    let local = |name| policy(&analysis, name).locality.unwrap();
    // A hash selects the right one of 16 cores only by chance.
    for hash in ["rss", "rps"] {
        assert!((0.0..0.2).contains(&local(hash)), "{hash}: {}", local(hash));
    }
    for learner in ["atr", "rfs", "yard"] {
        assert!(local(learner) > 0.8, "{learner}: {}", local(learner));
        assert!(policy(&analysis, learner).reorder.moves <= 100 + 10, "{learner}");
    }
}

/// Nearly all packets of one long flow reach the core that is given for its service.
fn a_long_flow_reaches_the_core_of_its_service() {
    let mix = Mix { flows: 1, rate_pps: 1e5, exchanges: 0, ..Mix::default() };
    let mut frames = traffic(mix, 1, 40_000);
    for core in [0, 5, 11, 15] {
        for (adapter, learner) in [
            ("x520", "atr"),
            ("x710", "atr"),
            ("e810", "arfs"),
            ("software", "rfs"),
            ("virtio", "yard"),
        ] {
            let adapter_profile = flowyard_adapter::Profile::find(adapter).unwrap();
            let mut setup = setup(adapter, Spec::all_of(adapter_profile));
            setup.consumers = format!("80={core}").parse().unwrap();
            let analysis = analyze(setup, &mut frames);
            let policy = policy(&analysis, learner);
            let what = format!("{adapter} {learner} core {core}: {:?}", policy.locality);
            assert!(policy.locality.unwrap() > 0.995, "{what}");
            assert!(
                policy.cores[core].packets as f64 > 0.995 * analysis.traffic.received as f64,
                "{what}"
            );
            assert_eq!(analysis.elephants.len(), 1, "{what}");
            let there = &analysis.elephants[0].policies[learner];
            assert_eq!(usize::from(there.final_core), core, "{what}");
            assert!(there.share_of_core > 0.99 && analysis.elephants[0].share == 1.0, "{what}");
        }
    }
}

/// With fewer samples of ATR fewer packets can overtake (Wu and others, "Why does Flow Director cause
/// packet reordering?", 2011).
fn fewer_samples_reorder_less() {
    let mix = Mix { flows: 64, rate_pps: 4e6, exchanges: 0, ..Mix::default() };
    let exposed = |sample_rate| {
        (0..8)
            .map(|seed| {
                let mut setup = unruly("x520", vec![Spec::Atr], seed);
                setup.sample_rate = sample_rate;
                overtakes(&analyze(setup, &mut traffic(mix, seed, 6000)), "atr")
            })
            .sum::<u64>()
    };
    let by_rate = [1, 10, 100, 1000].map(exposed);
    flowyard_testkit::note!(
        "packets that could overtake at sample rate 1, 10, 100, 1000: {by_rate:?}"
    );
    assert!(by_rate.is_sorted_by(|often, rarely| often > rarely), "{by_rate:?}");
}

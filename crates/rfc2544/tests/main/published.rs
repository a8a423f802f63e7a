//! Comparison with published data, which is not part of this repository.

use flowyard_rfc2544::line::Line;
use flowyard_rfc2544::search::Goal;
use flowyard_rfc2544::search::mlr::{Class, Stats, classify, conditional_throughput};
use flowyard_rfc2544::traffic::Model;
use flowyard_rfc2544::trial::SECOND;
use flowyard_testkit::Rng;
use flowyard_testkit::harness::{self, Need};
use serde_json::Value;

const MLR: &str = "vectors/mlrsearch_load_classification.json";
const OFFLOADS: &str = "vectors/offload_vectors.json";

flowyard_testkit::tests! {
    loads_are_classified_as_in_the_draft needs [Need::Shared(MLR)],
    maximum_rates_are_those_of_the_standards needs [Need::Shared(OFFLOADS)],
    workloads_are_those_of_homa needs [Need::Shared("models/homa_w1.tsv")],
}

/// The maximum rate of each medium at each frame size. An interval is a whole number of picoseconds, rounded up.
fn maximum_rates_are_those_of_the_standards() {
    let text = std::fs::read(harness::shared(OFFLOADS)).unwrap();
    let vectors: Value = serde_json::from_slice(&text).unwrap();
    let mut compared = 0;
    for (medium, rates) in vectors["max_frame_rate"].as_object().unwrap() {
        let gbit: u64 = medium.strip_suffix('G').unwrap().parse().unwrap();
        let line = Line { bps: gbit * 1_000_000_000 };
        for (size, rate) in rates.as_object().unwrap() {
            let rate = rate.as_f64().unwrap();
            let interval = line.max_load(size.parse().unwrap()).interval_ps as f64;
            // The published rates have three decimals.
            let exact = 1e12 / rate;
            let error = exact * 0.0006 / rate;
            assert!(
                (exact - error..exact + 1.0 + error).contains(&interval),
                "{medium} {size}: {interval} ps, not {exact}"
            );
            compared += 1;
        }
    }
    assert!(compared >= 65, "only {compared} rates");
}

/// The load classification of the code in draft-ietf-bmwg-mlrsearch.
fn loads_are_classified_as_in_the_draft() {
    let text = std::fs::read(harness::shared(MLR)).unwrap();
    let vectors: Value = serde_json::from_slice(&text).unwrap();
    let float = |value: &Value| value.as_f64().unwrap();
    let goal = |goal: &Value| {
        let seconds = |name: &str| (float(&goal[name]) * 1e9) as u64;
        let name = goal["name"].as_str().unwrap();
        Goal::new(
            name,
            seconds("final"),
            seconds("dsum"),
            float(&goal["loss"]),
            float(&goal["exceed"]),
        )
    };
    let goals: Vec<_> = vectors["goals"].as_array().unwrap().iter().map(goal).collect();
    let (mut compared, mut last) = (0, Stats::default());
    for point in vectors["points"].as_array().unwrap() {
        let mut stats = Stats::default();
        for trial in point["trials"].as_array().unwrap() {
            for _ in 0..trial["count"].as_u64().unwrap() {
                stats.add(
                    trial["duration_s"].as_u64().unwrap() * SECOND,
                    float(&trial["loss_ratio"]),
                );
            }
        }
        for goal in &goals {
            let want = match point["expected_by_code"][&goal.name].as_str().unwrap() {
                "Lower Bound" => Class::LowerBound,
                "Upper Bound" => Class::UpperBound,
                "Undecided" => Class::Undecided,
                other => panic!("{other}"),
            };
            assert_eq!(
                classify(&stats, goal),
                want,
                "point {}, goal {}",
                point["point"],
                goal.name
            );
            compared += 1;
        }
        last = stats;
    }
    assert_eq!(compared, 24);
    for goal in &goals {
        if let Some(want) = vectors["conditional_throughput_at_point6"][&goal.name].as_f64() {
            let got = conditional_throughput(1e6, &last, goal);
            assert!((got - want).abs() < 1e-6, "{}: {got}", goal.name);
        }
    }
}

/// The embedded flow sizes of Homa's workloads are close to the published distributions.
fn workloads_are_those_of_homa() {
    for number in 1..=5 {
        let file = harness::shared(&format!("models/homa_w{number}.tsv"));
        let text = std::fs::read_to_string(file).unwrap();
        let mut rng = Rng::new(number);
        let model = Model::find(&format!("homa-w{number}")).unwrap();
        let mut sizes: Vec<u64> = (0..100_000).map(|_| model.draw(&mut rng)).collect();
        sizes.sort_unstable();
        let mut upto = 0.0;
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split_whitespace().map(|word| word.parse::<f64>().unwrap());
            let bytes = words.next().unwrap();
            upto += words.next().unwrap();
            let got = sizes.partition_point(|&size| size as f64 <= bytes) as f64 / 1e5;
            // 0.01 for the values that were merged, and the error of 100,000 samples.
            assert!((got - upto).abs() < 0.015, "homa-w{number}: {got} up to {bytes}, not {upto}");
        }
    }
}

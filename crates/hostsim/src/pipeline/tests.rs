use super::*;
use proptest::prelude::*;

fn role(roles: [bool; 3], stages: Stages) -> Role {
    Role { receives: roles[0], works: roles[1], transmits: roles[2], stages }
}

const STAGES: Stages =
    Stages { rx: 30.0, enqueue: 5.0, dequeue: 5.0, work: 300.0, complete: 5.0, tx: 20.0 };

fn workers(n: usize, stages: Stages) -> Pipeline {
    let ends = [role([true, false, false], stages), role([false, false, true], stages)];
    let mut pipeline = Pipeline::yard(ends.to_vec());
    pipeline.roles.extend(vec![role([false, true, false], stages); n]);
    pipeline
}

#[test]
fn one_core_takes_the_sum_of_its_stages() {
    let flow = Pipeline::yard(vec![role([true; 3], STAGES)]).run();
    assert!((flow.pps * 365.0 / 1e9 - 1.0).abs() < 0.01, "{flow:?}");
    assert!(flow.is_balanced() && flow.busy[0] > 0.99);
}

#[test]
fn workers_gain_in_line_until_the_producer_is_the_limit() {
    let rates: Vec<f64> = (1..=12).map(|n| workers(n, STAGES).run().pps).collect();
    for (n, rate) in rates.iter().enumerate() {
        // A worker does 1 in 310 ns, the producer 1 in 35.
        let expected = ((n + 1) as f64 / 310.0).min(1.0 / 35.0) * 1e9;
        assert!((rate / expected - 1.0).abs() < 0.05, "{n}: {rate} {expected}");
    }
}

#[test]
fn a_consumer_can_be_the_limit_and_a_small_window_is_one() {
    let slow = Stages { tx: 200.0, ..STAGES };
    let flow = workers(4, slow).run();
    assert!((flow.pps / 5e6 - 1.0).abs() < 0.03, "{flow:?}");
    let narrow = Pipeline { window: 32, ..workers(4, STAGES) }.run();
    assert!(
        narrow.pps < 1.1 * workers(1, STAGES).run().pps,
        "only one batch is in the window at a time"
    );
}

/// Decision 0033: the core that receives does so for both while the other works, and works itself when
/// the other has enough.
#[test]
fn a_core_that_receives_leaves_the_work_to_others_until_they_have_enough() {
    let two = |work: f64| {
        let stages = Stages { work, ..STAGES };
        let roles = vec![role([true, true, false], stages), role([false, true, true], stages)];
        Pipeline::yard(roles).run()
    };
    // 35 ns to receive, 35 ns to serve and transmit: the cores do one each, side by side.
    let even = two(5.0);
    assert!((even.pps * 35.0 / 1e9 - 1.0).abs() < 0.05, "{even:?}");
    // Work for more than one core is shared: 365 ns for each frame on two cores.
    let much = two(300.0);
    assert!((much.pps * 365.0 / 2e9 - 1.0).abs() < 0.05, "{much:?}");
    assert!(much.busy.iter().all(|busy| *busy > 0.95), "{much:?}");
}

/// One core processes the flow alone; further cores without a part have no effect.
#[test]
fn cores_without_a_part_change_nothing() {
    let alone = vec![role([true; 3], STAGES)];
    let baseline = Pipeline::yard(alone.clone()).run().pps;
    for idle in 1..=9 {
        let roles = [alone.clone(), vec![role([false; 3], STAGES); idle]].concat();
        assert_eq!(Pipeline::yard(roles).run().pps, baseline, "{idle}");
    }
}

#[test]
fn offered_load_is_met_or_dropped() {
    let below = Pipeline { offered_pps: Some(1e6), ..workers(1, STAGES) }.run();
    assert!((below.pps / 1e6 - 1.0).abs() < 0.01 && below.dropped == 0, "{below:?}");
    let above = Pipeline { offered_pps: Some(9e6), ..workers(1, STAGES) }.run();
    assert!(above.dropped > 0 && (above.pps / workers(1, STAGES).run().pps - 1.0).abs() < 0.02);
}

proptest! {
    /// Whatever the roles and costs: the counters balance, and no more frames leave than the cores can
    /// process.
    #[test]
    fn the_counters_balance(
        roles in prop::collection::vec((any::<bool>(), any::<bool>(), any::<bool>(), 1.0f64..500.0), 1..6),
        window in 1u64..600, tx_window in 1u64..300,
    ) {
        let make = |(receives, works, transmits, ns): (bool, bool, bool, f64)| {
            let stages = Stages { rx: ns, enqueue: 1.0, dequeue: 1.0, work: ns, complete: 1.0, tx: ns };
            Role { receives, works, transmits, stages }
        };
        let roles: Vec<Role> = roles.into_iter().map(make).collect();
        let bound = |on: fn(&Role) -> bool| {
            roles.iter().filter(|role| on(role)).map(|role| 1e9 / role.stages.rx).sum::<f64>()
        };
        let bounds = [bound(|r| r.receives), bound(|r| r.works), bound(|r| r.transmits)];
        let pipeline = Pipeline { window, tx_window, time: [100_000, 1_000_000], ..Pipeline::yard(roles) };
        let flow = pipeline.run();
        prop_assert!(flow.is_balanced(), "{:?}", flow);
        let most = bounds.into_iter().fold(f64::MAX, f64::min);
        // A window of frames may have been waiting when the measurement began.
        prop_assert!(flow.pps <= most * 1.02 + 1e3 * (window + tx_window + 600) as f64);
    }
}

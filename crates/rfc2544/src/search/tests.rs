use flowyard_testkit::Rng;
use proptest::prelude::*;

use super::model::{buffered, curve, pps, result, run};
use super::*;
use crate::line::{Line, Load};
use crate::search::learning::Probed;
use crate::trial::{SECOND, Shape, Trial, TrialResult};

proptest! {
    /// The throughput of a device with a fixed capacity is found within the width, never above it.
    #[test]
    fn throughput_is_found(capacity in 20.0_f64..20_000.0, width_ppm in 50_u64..20_000) {
        let max = Line::MBIT_10.max_load(64);
        let config = throughput::Config { width_ppm, ..throughput::Config::rfc2544(max) };
        let mut search = Throughput::new(config);
        let (trials, _) = run(&mut search, |trial| buffered(trial, capacity, 0.0));
        let answer = search.answer();
        let got = answer.load.unwrap().pps();
        let want = capacity.min(max.pps());
        // A fraction of a frame per trial is no loss: 60 s resolve the capacity to 1/60 pps.
        prop_assert!(got <= want + 0.02, "{got} {want}");
        prop_assert!(got >= want * (1.0 - width_ppm as f64 / 1e6) - 0.02, "{got} {want} in {trials}");
        prop_assert_eq!(answer.duration, 60 * SECOND);
        prop_assert!(trials < 60);
        prop_assert_eq!(answer.lossy.is_none(), capacity >= max.pps());
    }

    /// A buffer hides loss in short trials; only full trials decide (section 24).
    #[test]
    fn short_trials_do_not_decide(capacity in 1000.0_f64..14_000.0, buffer in 1.0_f64..2000.0) {
        let max = Line::MBIT_10.max_load(64);
        let mut search = Throughput::new(throughput::Config::rfc2544(max));
        let mut full_trials = 0;
        run(&mut search, |trial| {
            full_trials += u32::from(trial.duration == 60 * SECOND);
            buffered(trial, capacity, buffer)
        });
        let answer = search.answer();
        let full = Trial::new(answer.load.unwrap(), 60 * SECOND);
        prop_assert_eq!(buffered(&full, capacity, buffer).counts.lost(), 0);
        let above = Trial::new(answer.lossy.unwrap_or(max), 60 * SECOND);
        prop_assert!(answer.lossy.is_none() || buffered(&above, capacity, buffer).counts.lost() > 0);
        prop_assert!(full_trials < 25, "{}", full_trials);
    }

    /// On devices with a known loss curve the bounds contain the true value, for every goal.
    #[test]
    fn mlrsearch_bounds_contain_the_truth(
        knee in 0.05_f64..0.95,
        slope in 0.5_f64..8.0,
        seed in any::<u64>(),
    ) {
        let max = Line::GBIT_1.max_load(512);
        let min = max.part(1, 1000);
        let knee = knee * max.pps();
        // No loss up to the knee, then a share of the load above it.
        let loss = move |pps: f64| (slope * (pps - knee) / pps).clamp(0.0, 1.0);
        let truth = |ratio: f64| knee * slope / (slope - ratio);
        let mut goals = Goal::csit();
        goals.push(Goal::rfc2544());
        let mut search = MlrSearch::new(goals, min, max, 2000);
        let mut rng = Rng::new(seed);
        run(&mut search, |trial| curve(trial, loss, 0.0, &mut rng));
        for found in search.answer() {
            let truth = truth(found.goal.loss_ratio);
            let name = &found.goal.name;
            let lower = found.lower.map(Load::pps);
            // In a trial of one second, rounding may hide the loss of one frame.
            prop_assert!(lower.unwrap() <= truth * (1.0 + 1e-4) + 1.0, "{} {:?} {}", name, lower, truth);
            match found.upper.map(Load::pps) {
                Some(upper) => {
                    // In a trial of one second, half a lost frame may be rounded up to one.
                    prop_assert!(upper >= truth - 1.0 / slope, "{} {} {}", name, upper, truth);
                    let width = 1.0 - lower.unwrap() / upper;
                    prop_assert!(width <= found.goal.width_ppm as f64 / 1e6 + 1e-9, "{}", width);
                    prop_assert_eq!(found.irregular, None);
                }
                None => {
                    prop_assert!(truth >= max.pps());
                    prop_assert!(found.irregular.unwrap().contains("no upper bound"));
                }
            }
            let conditional = found.throughput_pps.unwrap();
            prop_assert!(conditional <= lower.unwrap() * (1.0 + 1e-12));
        }
    }

    /// With noise the bounds vary, but the search ends and stays within its limits.
    #[test]
    fn mlrsearch_ends_under_noise(seed in any::<u64>(), noise in 0.0_f64..2.0) {
        let (min, max) = (pps(100.0), pps(10_000.0));
        let mut search = MlrSearch::new(Goal::csit(), min, max, 500);
        let mut rng = Rng::new(seed);
        let loss = |pps: f64| ((pps - 4000.0) / pps).clamp(0.0, 1.0);
        let (trials, _) = run(&mut search, |trial| {
            assert!(trial.load.interval_ps <= min.interval_ps && trial.load.interval_ps >= max.interval_ps);
            curve(trial, loss, noise, &mut rng)
        });
        prop_assert!(trials <= 500);
    }

    /// The longest burst gives the buffer size in frames.
    #[test]
    fn back_to_back_finds_the_buffer(buffer in 1.0_f64..50_000.0, share in 0.1_f64..0.99) {
        let max = Line::GBIT_1.max_load(64);
        let capacity = max.pps() * share;
        let config = back_to_back::Config {
            max,
            throughput: pps(capacity),
            longest: 2 * SECOND,
            step_frames: 1,
            repeats: 3,
        };
        let mut search = BackToBack::new(config);
        run(&mut search, |trial| buffered(trial, capacity, buffer));
        let answer = search.answer();
        let want = (buffer / (1.0 - share)).min(answer.limit_frames as f64);
        prop_assert!((answer.mean - want).abs() <= want * 1e-3 + 3.0, "{} {}", answer.mean, want);
        prop_assert_eq!((answer.bursts.len(), answer.stddev, answer.min), (3, 0.0, answer.max));
        if !answer.is_unlimited {
            let frames = answer.corrected_buffer_s * max.pps();
            prop_assert!((frames - buffer).abs() < buffer * 2e-3 + 4.0, "{} {}", frames, buffer);
        }
    }
}

#[test]
fn the_buffer_of_rfc_9004() {
    // Section 6.4 and table 1: 26,000 frames of 64 bytes on 10 Gbit/s imply 1.747 ms.
    let max = Line::GBIT_10.max_load(64);
    let (implied, corrected) = BackToBack::buffer_s(26_000.0, max, max.part(977, 1000));
    assert!((implied - 0.001_747).abs() < 5e-7, "{implied}");
    assert!((corrected - 0.000_04).abs() < 5e-6, "{corrected}");
}

#[test]
fn loss_rate_stops_after_two_clean_trials() {
    let max = Line::MBIT_10.max_load(64);
    let mut search = LossRate::new(max, 10, 60 * SECOND);
    run(&mut search, |trial| buffered(trial, max.pps() * 0.75, 0.0));
    let steps = search.answer();
    let percents: Vec<_> = steps.iter().map(|step| step.percent).collect();
    assert_eq!(percents, [100, 90, 80, 70, 60]);
    let lost = steps.iter().map(|step| step.counts.loss_ratio());
    for (got, want) in lost.zip([0.25, 0.15 / 0.9, 0.05 / 0.8, 0.0, 0.0]) {
        assert!((got - want).abs() < 1e-4, "{got} {want}");
    }
    let mut never = LossRate::new(max, 25, SECOND);
    run(&mut never, |trial| result(trial, 1));
    assert_eq!(never.answer().len(), 10, "the standard allows steps of 10 % at most");
}

#[test]
fn nothing_at_all_comes_through() {
    let max = Line::MBIT_10.max_load(64);
    let mut search = Throughput::new(throughput::Config::rfc2544(max));
    run(&mut search, |trial| result(trial, trial.frames()));
    assert_eq!(search.answer().load, None);
    let mut search = MlrSearch::new(vec![Goal::rfc2544()], max.part(1, 100), max, 100);
    run(&mut search, |trial| result(trial, trial.frames()));
    let found = &search.answer()[0];
    assert!(found.irregular.as_ref().unwrap().contains("no lower bound"), "{found:?}");
}

#[test]
fn what_the_tester_spoils_is_measured_again() {
    let max = Line::MBIT_10.max_load(64);
    let mut search = Throughput::new(throughput::Config::rfc2544(max));
    let mut calls = 0;
    run(&mut search, |trial| {
        calls += 1;
        let mut result = result(trial, 0);
        if calls == 1 {
            result.counts.tester_rx_drops = 5;
            result.counts.good -= 5;
        }
        result
    });
    let answer = search.answer();
    assert_eq!((answer.load, answer.invalid_trials, answer.trials), (Some(max), 1, 3));
}

/// A cable with a tester that sends at most `most` frames per second: it loses no frame.
fn slow_tester(trial: &Trial, most: f64) -> TrialResult {
    let mut result = result(trial, 0);
    let sent = (most * trial.duration as f64 / 1e9) as u64;
    if sent < result.counts.intended {
        (result.counts.sent, result.counts.good) = (sent, sent);
        result.counts.received = sent;
        result.latency.count = sent;
    }
    result
}

#[test]
fn a_rate_that_the_tester_cannot_send_is_no_loss_of_the_device() {
    let max = Line::GBIT_1.max_load(64);
    let mut search = Throughput::new(throughput::Config::rfc2544(max));
    run(&mut search, |trial| slow_tester(trial, 140_000.0));
    let answer = search.answer();
    let load = answer.load.unwrap().pps();
    assert!((139_000.0..=140_001.0).contains(&load), "{load}");
    assert!(answer.tester_limit && answer.lossy.is_none(), "{answer:?}");
    assert!(answer.unreached.unwrap().pps() > load, "{answer:?}");

    // The device is the limit, although the tester did not reach the highest rates tried.
    let mut search = Throughput::new(throughput::Config::rfc2544(max));
    run(&mut search, |trial| match trial.load.pps() {
        rate if rate > 140_000.0 => slow_tester(trial, 140_000.0),
        _ => buffered(trial, 100_000.0, 0.0),
    });
    let answer = search.answer();
    assert!((99_800.0..=100_001.0).contains(&answer.load.unwrap().pps()), "{answer:?}");
    assert!(!answer.tester_limit && answer.lossy.unwrap().pps() < 140_000.0, "{answer:?}");

    let mut search = MlrSearch::new(vec![Goal::rfc2544()], max.part(1, 1000), max, 1000);
    run(&mut search, |trial| slow_tester(trial, 140_000.0));
    let found = &search.answer()[0];
    assert!(found.tester_limit && found.lower.is_some(), "{found:?}");
    assert!(found.irregular.as_ref().unwrap().contains("tester"), "{found:?}");

    // No step of the loss rate that the tester did not reach counts as free of loss.
    let mut search = LossRate::new(max, 10, SECOND);
    run(&mut search, |trial| slow_tester(trial, max.pps() * 0.45));
    let percents: Vec<_> = search.answer().iter().map(|step| step.percent).collect();
    assert_eq!(percents, [100, 90, 80, 70, 60, 50, 40, 30]);

    let config = back_to_back::Config {
        max,
        throughput: max.part(1, 2),
        longest: SECOND,
        step_frames: 1,
        repeats: 2,
    };
    let mut search = BackToBack::new(config);
    run(&mut search, |trial| {
        let mut result = result(trial, 0);
        if result.counts.sent > 1000 {
            (result.counts.sent, result.counts.good) = (1000, 1000);
        }
        result
    });
    let answer = search.answer();
    assert!(answer.tester_limit && !answer.is_unlimited && answer.max <= 1001, "{answer:?}");
}

#[test]
fn latency_is_of_the_tagged_frames() {
    let config = latency::Config::standard(pps(1000.0));
    let mut one = Rfc2544Latency::new(config);
    let mut count = 0;
    let (trials, time) = run(&mut one, |trial| {
        count += 1;
        let mut result = result(trial, 0);
        assert_eq!(result.tagged.len(), 1);
        result.tagged = vec![if count == 20 { None } else { Some(count * 10) }];
        result
    });
    assert_eq!((trials, time), (20, 2400 * SECOND));
    let delay = one.answer();
    assert_eq!((delay.samples_ns.len(), delay.lost, delay.mean_ns), (19, 1, 100.0));
    let mut many = Rfc8219Latency::new(config, 500);
    run(&mut many, |trial| {
        let mut result = result(trial, 0);
        result.tagged = (1..=500).map(Some).collect();
        (result.latency.pdv_ns, result.latency.ipdv_ns) = (77, [-5, 0, 6]);
        result
    });
    let variation = many.answer();
    assert_eq!((variation.tl_ns, variation.wcl_ns), ([250; 3], [500; 3]));
    assert_eq!((variation.pdv_ns, variation.ipdv_ns), ([77; 3], [-5, 0, 6]));
}

#[test]
fn recovery_is_the_time_to_the_last_loss() {
    let max = pps(1000.0);
    let mut search = Recovery::new(max, pps(500.0), 60 * SECOND, 2);
    let mut lasts = [Some(61 * SECOND), Some(30 * SECOND)].into_iter();
    run(&mut search, |trial| {
        let Shape::Step { at, then } = trial.shape else { panic!("no step") };
        assert!((trial.load.pps() - 550.0).abs() < 1e-6 && (then.pps() - 275.0).abs() < 1e-6);
        assert_eq!((at, trial.duration), (60 * SECOND, 120 * SECOND));
        let mut result = result(trial, 9);
        result.losses.last = lasts.next().unwrap();
        result
    });
    assert_eq!(search.answer(), [SECOND, 0]);
    let capped = Recovery::new(max, max, SECOND, 1).next_trial().unwrap();
    assert_eq!(capped.load, max);
}

#[test]
fn recovery_and_reset_tell_that_the_tester_was_the_limit() {
    let max = Line::GBIT_1.max_load(64);
    for (rate, is_limited) in [(140_000.0, true), (2_000_000.0, false)] {
        let mut recovery = Recovery::new(max, max, SECOND, 1);
        run(&mut recovery, |trial| slow_tester(trial, rate));
        assert_eq!((recovery.answer().len(), recovery.tester_limit()), (1, is_limited), "{rate}");
        let mut reset = Reset::new(max, 4 * SECOND, 1, 1);
        run(&mut reset, |trial| slow_tester(trial, rate));
        assert_eq!(reset.answer()[0].tester_limit, is_limited, "{rate}");
    }
}

#[test]
fn both_ways_of_timing_a_reset() {
    let mut search = Reset::new(pps(1000.0), 60 * SECOND, 1, 2);
    run(&mut search, |trial| {
        let mut result = result(trial, 4000);
        result.losses.silence = Some((15 * SECOND, 17 * SECOND + 1));
        result
    });
    let time = search.answer()[0];
    assert_eq!((time.by_frames_ns, time.by_time_ns, time.lost), (2 * SECOND, 2 * SECOND + 1, 4000));
}

#[test]
fn caches_and_their_rates_are_found() {
    for capacity in [1_u32, 7, 1024, 65_536] {
        let mut search = Caching::new(100_000, 1000);
        while let Some(probe) = search.next_probe() {
            let forwarded = probe.addresses.min(capacity);
            let flooded = probe.addresses - forwarded;
            search.record(probe, Probed { forwarded, flooded, lost: 0 });
        }
        assert_eq!(search.answer(), capacity);
    }
    let mut search = LearningRate::new(1000, 10_000);
    while let Some(probe) = search.next_probe() {
        let missed = u32::from(probe.learning_pps > 6_000) * 5;
        search.record(probe, Probed { forwarded: 1000 - missed, flooded: missed, lost: 0 });
    }
    assert!((5_900..=6_000).contains(&search.answer()), "{}", search.answer());
    let none = Probed::default();
    assert!(!none.is_clean());
}

#[test]
fn a_search_given_the_same_results_returns_the_same_trials() {
    let max: Load = Line::GBIT_1.max_load(64);
    let goals = || vec![Goal::rfc2544(), Goal::csit().remove(1)];
    let mut first = MlrSearch::new(goals(), max.part(1, 100), max, 1000);
    let mut written = Vec::new();
    run(&mut first, |trial| {
        let result = buffered(trial, 1e6, 50.0);
        written.push(result.clone());
        result
    });
    // As from a file: the results are converted to text and back.
    let mut again = MlrSearch::new(goals(), max.part(1, 100), max, 1000);
    for result in &written {
        let text = serde_json::to_string(result).unwrap();
        let back: TrialResult = serde_json::from_str(&text).unwrap();
        assert_eq!(again.next_trial(), Some(back.trial));
        again.record(&back);
    }
    assert_eq!((again.next_trial(), again.answer()), (None, first.answer()));
}

/// A device that forwards `capacity` frames per second and buffers `buffer` frames. A burst may
/// exceed the buffer by the frames that leave meanwhile, and the next burst may arrive when the
/// buffer is empty.
#[test]
fn the_least_interval_between_bursts_is_what_the_device_takes() {
    let (line, capacity, buffer) = (pps(100_000.0), 10_000.0, 200.0);
    for (frames, fits) in [(16, true), (64, true), (1024, false)] {
        let config =
            throughput::Config { short: SECOND, full: SECOND, ..throughput::Config::rfc2544(line) };
        let mut search = Bursts::new(frames, config);
        run(&mut search, |trial| {
            let Shape::Bursts { frames, line } = trial.shape else { panic!("{trial:?}") };
            let n = frames as f64;
            // The frames buffered at the end of a burst must fit, and must leave before the next
            // one.
            let waits = n - n * capacity / line.pps();
            let clean = waits <= buffer && trial.load.pps() <= capacity;
            result(trial, u64::from(!clean))
        });
        let answer = search.answer();
        assert_eq!(answer.interval_ns.is_some(), fits, "{frames}: {answer:?}");
        if let Some(interval) = answer.interval_ns {
            let want = frames as f64 * 1e9 / capacity;
            assert!((1.0..1.002).contains(&(interval / want)), "{frames}: {interval} for {want}");
        }
    }
}

/// A trial that the tester missed by little is repeated; one far beyond its capability is not.
#[test]
fn only_a_near_miss_of_the_tester_is_made_again() {
    let trial = Trial::new(pps(1000.0), SECOND);
    let short = |missing: u64| {
        let mut result = result(&trial, 0);
        result.counts.sent -= missing;
        result.counts.good -= missing;
        result
    };
    assert!(Retry::default().accepts(&short(0)));
    assert!(!Retry::default().accepts(&short(5)));
    assert!(Retry::default().accepts(&short(500)));
}

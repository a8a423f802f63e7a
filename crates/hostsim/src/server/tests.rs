use super::*;
use crate::profile::Profile;

fn profile() -> Profile {
    Profile::named("rose-city").unwrap()
}

/// Short runs: the tests compare results with each other and do not check exact numbers.
fn short(setup: Setup) -> Setup {
    Setup { warmup: 3_000_000, measure: 8_000_000, ..setup }
}

const RATES: [f64; 9] = [0.5e6, 1.0e6, 1.5e6, 2.0e6, 2.5e6, 3.0e6, 4.0e6, 5.0e6, 6.0e6];

fn curve(profile: &Profile, steering: Steering) -> Curve {
    let setup = match steering {
        Steering::Rss | Steering::Rps | Steering::Rfs => Setup::cx3(profile, steering, 1.0),
        _ => Setup::x520(profile, 1.0).map(|setup| Setup { steering, ..setup }),
    };
    Curve::run(&short(setup.unwrap()), &RATES).unwrap()
}

#[test]
fn the_order_of_the_papers_curves_and_of_their_walls() {
    let profile = profile();
    let [rss, rfs, atr] =
        [Steering::Rss, Steering::Rfs, Steering::Atr].map(|steering| curve(&profile, steering));
    for curve in [&rss, &rfs, &atr] {
        assert!(curve.points.iter().all(|(_, outcome)| outcome.is_balanced()));
        assert!(curve.points.iter().all(|(rate, o)| o.answered_rps < rate * 1.1));
    }
    // "up to 5 M", "never above 3 M", "cannot get above 4 M".
    assert!(rss.peak() < rfs.peak() && rfs.peak() < atr.peak(), "{rss:?} {rfs:?} {atr:?}");
    assert!(rss.peak() < 3e6 && (4.5e6..5.5e6).contains(&atr.peak()));
    let [rss, rfs, atr] = [rss, rfs, atr].map(|curve| curve.wall().unwrap());
    assert!(rss < rfs && rfs < atr, "{rss} {rfs} {atr}");
    assert!(rss < 2e6 && (3.3e6..4.7e6).contains(&atr));
}

#[test]
fn equal_seeds_give_equal_runs_and_the_counters_balance() {
    let setup = short(Setup::x520(&profile(), 3e6).unwrap());
    for steering in [
        Steering::Rss,
        Steering::Rps,
        Steering::Rfs,
        Steering::Atr,
        Steering::Settled,
        Steering::Ep,
    ] {
        for placement in [Placement::Pinned, Placement::Wandering] {
            let setup = Setup { steering, placement, measure: 2_000_000, ..setup.clone() };
            let outcome = setup.run().unwrap();
            assert!(outcome.is_balanced(), "{steering:?} {placement:?}: {:?}", outcome.accounting);
            assert_eq!(outcome, setup.run().unwrap());
            assert_ne!(outcome, Setup { seed: 2, ..setup }.run().unwrap());
        }
    }
}

#[test]
fn a_flow_director_reorders_when_threads_wander_and_settle_does_not() {
    let setup = short(Setup::x520(&profile(), 2.5e6).unwrap());
    let run = |steering, placement| {
        let setup = Setup { steering, placement, seed: 3, measure: 30_000_000, ..setup.clone() };
        setup.run().unwrap()
    };
    let atr = run(Steering::Atr, Placement::Wandering);
    assert!(atr.migrations > 100 && atr.reordered > 0, "{atr:?}");
    let settled = run(Steering::Settled, Placement::Wandering);
    assert!(settled.migrations > 100 && settled.segments > 50_000);
    assert_eq!(settled.reordered, 0);
    assert_eq!(run(Steering::Rfs, Placement::Wandering).reordered, 0, "RFS has the same rule");
    assert_eq!(run(Steering::Rss, Placement::Wandering).reordered, 0);
    // The same holds when a scheduler moves threads; and rarer samples reorder less.
    let moved = Placement::Moved(100_000);
    let atr = run(Steering::Atr, moved);
    assert!(atr.reordered > 10, "{atr:?}");
    assert_eq!(run(Steering::Settled, moved).reordered, 0);
    let rare = Setup { sample_rate: 10_000, placement: moved, seed: 3, ..setup.clone() };
    let rare = Setup { measure: 30_000_000, ..rare }.run().unwrap();
    assert!(rare.reordered < atr.reordered / 2, "{} {}", rare.reordered, atr.reordered);
}

#[test]
fn perfect_filters_are_right_from_the_first_packet() {
    let setup = short(Setup::x520(&profile(), 0.2e6).unwrap());
    let local = |steering| {
        let setup = Setup { steering, warmup: 0, ..setup.clone() };
        setup.run().unwrap().local_share
    };
    let [atr, ep, rss] = [Steering::Atr, Steering::Ep, Steering::Rss].map(local);
    assert_eq!(ep, 1.0);
    assert!(rss < 0.1 && rss < atr && atr < ep, "{rss} {atr} {ep}");
}

#[test]
fn closed_clients_keep_to_one_request_each() {
    let setup = Setup::x520(&profile(), 1.0).unwrap();
    let setup = short(Setup { load: Load::Closed { think: 20_000 }, ..setup });
    let outcome = setup.run().unwrap();
    // Little's law: 120 = rate x (think + latency).
    let seconds = (outcome.latency_us_mean + 20.0) / 1e6;
    let busy = outcome.answered_rps * seconds;
    assert!((118.0..122.0).contains(&busy), "{busy} {outcome:?}");
    assert!(outcome.is_balanced());
}

#[test]
fn moderation_trades_interrupts_for_latency_and_low_latency_bypasses_it() {
    let setup = short(Setup::x520(&profile(), 0.3e6).unwrap());
    let run =
        |moderation, low_latency| Setup { moderation, low_latency, ..setup.clone() }.run().unwrap();
    let off = run(Moderation::Off, false);
    let gap = run(Moderation::Gap(100_000), false);
    assert!(gap.irqs * 2 < off.irqs && gap.latency_us_mean > 1.5 * off.latency_us_mean);
    let bypass = run(Moderation::Gap(100_000), true);
    assert!((bypass.latency_us_mean / off.latency_us_mean - 1.0).abs() < 0.05);
    let count = run(Moderation::Count { ns: 50_000, frames: 8 }, false);
    assert!(count.irqs < off.irqs && count.latency_us_mean > off.latency_us_mean);
}

#[test]
fn a_full_ring_drops_and_the_frame_comes_again() {
    let setup = Setup::cx3(&profile(), Steering::Rss, 6e6).unwrap();
    let setup = Setup { ring: 32, warmup: 1_000_000, measure: 250_000_000, ..setup };
    let setup = Setup { connections: 2000, load: Load::Open { rate: 2.2e6 }, ..setup };
    let outcome = setup.run().unwrap();
    assert!(outcome.dropped > 0 && outcome.is_balanced(), "{outcome:?}");
    assert_eq!(outcome.reordered, 0, "a frame that is sent again does not count as reordered");
}

#[test]
fn setups_that_cannot_run_are_refused() {
    let setup = Setup::x520(&profile(), 1e6).unwrap();
    assert!(Setup { queues: 0, ..setup.clone() }.run().is_err());
    assert!(Setup { load: Load::Open { rate: f64::NAN }, ..setup.clone() }.run().is_err());
    assert!(Setup { queues: 64, ..setup }.run().is_err(), "ixgbe has 63 queues for ATR");
}

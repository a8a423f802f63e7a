use proptest::prelude::*;

use super::*;

const MS: Nanos = 1_000_000;

fn rules() -> Rules {
    Rules { interval: 1000 * MS, timeout: 300 * MS, rise: 2, fall: 3 }
}

/// The start of each check, and its backend.
type Asked = Vec<(Nanos, u32)>;

/// A schedule of `backends` backends.
fn health(backends: u32, per_second: u32, seed: u64) -> Health {
    let mut health = Health::new(per_second, seed);
    (0..backends).for_each(|backend| health.add(backend, rules(), true, 0));
    health
}

/// Runs checks until `end`. `answer` gets the backend and the number of its earlier checks. Returns
/// the changes of state, and the start of each check.
fn run(
    health: &mut Health,
    end: Nanos,
    answer: impl Fn(u32, usize) -> Option<bool>,
) -> (Vec<(Nanos, Change)>, Asked) {
    let (mut changes, mut asked) = (Vec::new(), Vec::new());
    for now in (0..end).step_by(MS as usize) {
        while let Some(backend) = health.due(now) {
            let times = asked.iter().filter(|(_, other)| *other == backend).count();
            asked.push((now, backend));
            if let Some(ok) = answer(backend, times) {
                changes.extend(health.record(backend, ok, now).map(|change| (now, change)));
            }
        }
        while let Some((_, change)) = health.late(0, now) {
            changes.extend(change.map(|change| (now, change)));
        }
    }
    (changes, asked)
}

#[test]
fn three_failures_take_down_and_two_passes_bring_up() {
    let script = [true, false, false, true, false, false, false, true, false, true, true, true];
    let mut health = health(1, 0, 1);
    let (changes, asked) =
        run(&mut health, 14_000 * MS, |_, n| Some(script.get(n).copied().unwrap_or(true)));
    let up: Vec<bool> = changes.iter().map(|(_, change)| change.is_up).collect();
    assert_eq!(up, [false, true]);
    let at = |n: usize| asked[n].0;
    assert_eq!([changes[0].0, changes[1].0], [at(6), at(10)]);
}

#[test]
fn a_check_without_a_result_has_failed() {
    let mut health = health(2, 0, 1);
    let (changes, asked) = run(&mut health, 6000 * MS, |backend, _| (backend == 1).then_some(true));
    assert_eq!(changes.len(), 1);
    let third = asked.iter().filter(|(_, b)| *b == 0).nth(2).unwrap().0;
    assert_eq!(changes[0], (third + 300 * MS, Change { backend: 0, is_up: false }));
    assert_eq!(health.record(0, true, 0), None, "no check in progress");
    assert_eq!((health.is_up(0), health.is_up(1), health.is_up(2)), (false, true, false));
}

#[test]
fn rules_can_change_and_backends_come_and_go() {
    let mut health = health(3, 0, 1);
    let (changes, _) = run(&mut health, 4000 * MS, |backend, _| Some(backend != 1));
    assert_eq!(changes.len(), 1);
    // New rules; one backend is removed and one added.
    health.retain(|backend| backend != 2);
    let quick = Rules { interval: 100 * MS, rise: 1, ..rules() };
    health.add(0, quick, true, 4000 * MS);
    health.add(1, quick, false, 4000 * MS);
    health.add(7, quick, true, 4000 * MS);
    let mut asked = Vec::new();
    for now in (4000 * MS..4500 * MS).step_by(MS as usize) {
        while let Some(backend) = health.due(now) {
            asked.push(backend);
            let change = health.record(backend, true, now);
            assert_eq!(
                change.is_some(),
                backend == 1 && health.is_up(1) && asked.iter().filter(|b| **b == 1).count() == 1
            );
        }
    }
    let times = |backend| asked.iter().filter(|b| **b == backend).count();
    assert!([0, 1, 7].iter().all(|&b| (3..=6).contains(&times(b))) && times(2) == 0, "{asked:?}");
    assert!(health.is_up(1) && !health.is_up(2));
    assert!(health.behind(5000 * MS) >= 390 * MS && health.behind(0) == 0);
}

proptest! {
    #[test]
    fn checks_are_spread_and_rate_limited(seed: u64, backends in 1u32..60, per_second in prop::sample::select(vec![0u32, 10, 50])) {
        let (changes, asked) = run(&mut health(backends, per_second, seed), 5000 * MS, |_, _| Some(true));
        prop_assert!(changes.is_empty());
        if per_second > 0 {
            let least = 1000 * MS / Nanos::from(per_second);
            prop_assert!(asked.windows(2).all(|pair| pair[1].0 - pair[0].0 >= least));
            return Ok(());
        }
        for backend in 0..backends {
            let times: Vec<_> = asked.iter().filter(|(_, b)| *b == backend).map(|(at, _)| *at).collect();
            prop_assert!(times[0] <= 1000 * MS && (4..=6).contains(&times.len()), "{times:?}");
            prop_assert!(times.windows(2).all(|p| (900 * MS..=1102 * MS).contains(&(p[1] - p[0]))));
        }
    }
}

/// The wait between two checks is the interval, give or take a tenth of it.
#[test]
fn checks_wait_an_interval_more_or_less_a_tenth_of_it() {
    for (interval, wanted) in [(10, 9..=11), (20, 18..=22), (40, 36..=44), (9, 9..=9), (1, 1..=1)] {
        let mut health = Health::new(0, 5);
        health.add(0, Rules { interval, timeout: 1, rise: 1, fall: 1 }, true, 0);
        let (mut last, mut waits) = (None, std::collections::BTreeSet::new());
        for now in 0..10_000 {
            if health.due(now) == Some(0) {
                assert_eq!(health.record(0, true, now), None);
                waits.extend(last.map(|last| now - last));
                last = Some(now);
            }
        }
        assert_eq!(waits, wanted.collect(), "every wait of an interval of {interval} ns");
    }
    // A result that comes late does not make two checks at once.
    let mut health = Health::new(0, 5);
    health.add(0, Rules { interval: 10, timeout: 100, rise: 1, fall: 1 }, true, 0);
    let now = (0..).find(|now| health.due(*now).is_some()).expect("the first check");
    assert_eq!(health.record(0, true, now + 50), None);
    assert_eq!((health.due(now + 49), health.due(now + 50)), (None, Some(0)));
}

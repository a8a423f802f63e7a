use flowyard_frame::Rng;
use proptest::prelude::*;

use super::*;

const MS: Nanos = 1_000_000;

/// Queues without packets of their own.
fn queues(number: u32) -> Vec<(u32, u64)> {
    (0..number).map(|queue| (queue, 0)).collect()
}

/// The largest load of a queue, computed without sharing code with the mechanism.
fn most(table: &[u32], entries: &[u64], fixed: &[(u32, u64)]) -> u64 {
    let of = |&(queue, own): &(u32, u64)| {
        let entries = table.iter().zip(entries).filter(|(at, _)| **at == queue);
        own + entries.map(|(_, load)| load).sum::<u64>()
    };
    fixed.iter().map(of).max().unwrap_or(0)
}

/// The smallest possible largest load, by trying every table.
fn optimum(entries: &[u64], fixed: &[(u32, u64)]) -> u64 {
    let queues = fixed.len();
    let tables = queues.pow(entries.len() as u32);
    let table = |mut number: usize| -> Vec<u32> {
        let mut digit = || {
            let queue = fixed[number % queues].0;
            number /= queues;
            queue
        };
        entries.iter().map(|_| digit()).collect()
    };
    (0..tables).map(|number| most(&table(number), entries, fixed)).min().unwrap_or(0)
}

proptest! {
    /// A table from which no single move helps is at most 2 - 2 / (queues + 1) times as high as the best one (Finn and
    /// Horowitz, "A linear time approximation algorithm for multiprocessor scheduling", 1979).
    #[test]
    fn levelling_is_near_the_best_of_all_tables(
        entries in proptest::collection::vec(0_u64..1000, 1..8),
        queues_of in 2_u32..4,
        seed in any::<u64>(),
    ) {
        let mut random = Rng::new(seed);
        let mut table: Vec<u32> = entries.iter().map(|_| random.below(queues_of.into()) as u32).collect();
        let fixed = queues(queues_of);
        let (before, best) = (most(&table, &entries, &fixed), optimum(&entries, &fixed));
        let load = Load { entries: &entries, fixed: &fixed };
        let old = table.clone();
        let moved = level(&mut table, load, 0, |_| true);
        let after = most(&table, &entries, &fixed);
        prop_assert!(best <= after && after <= before);
        prop_assert_eq!(moved, old.iter().zip(&table).filter(|(old, new)| old != new).count());
        let bound = 2.0 - 2.0 / f64::from(queues_of + 1);
        // A gain of a thousandth is left.
        prop_assert!(after as f64 <= bound * best as f64 * 1.002 + 1.0, "{after} {best} {table:?}");
    }

    #[test]
    fn levelling_obeys_its_limits(
        entries in proptest::collection::vec(0_u64..1000, 32),
        own in proptest::collection::vec(0_u64..3000, 1..6),
        enough in 0_u64..8000,
        locked in proptest::collection::vec(any::<bool>(), 32),
    ) {
        let fixed: Vec<_> = own.iter().enumerate().map(|(at, own)| (2 * at as u32, *own)).collect();
        // The last entries name a queue that is not in the list.
        let queue = |entry: usize| if entry < 30 { fixed[entry % fixed.len()].0 } else { 99 };
        let before: Vec<u32> = (0..32).map(queue).collect();
        let mut table = before.clone();
        let load = Load { entries: &entries, fixed: &fixed };
        let moved = level(&mut table, load, enough, |entry| !locked[entry]);
        let (was, is) = (most(&before, &entries, &fixed), most(&table, &entries, &fixed));
        prop_assert!(is <= was);
        prop_assert!(was > enough || moved == 0);
        for entry in 0..32 {
            let stays = locked[entry] || entry >= 30 || entries[entry] == 0;
            prop_assert!(table[entry] == before[entry] || !stays, "{entry}");
        }
    }

    /// Against all packets that there were: no entry moves within the pause, too often, or too soon after its last move.
    #[test]
    fn entries_move_only_in_pauses(
        seed in any::<u64>(),
        moves in 1_u32..20,
        pause in 1_u64..8,
        force in proptest::option::of(50_u64..400),
    ) {
        let limits = Limits {
            moves,
            pause: pause * MS,
            force_after: force.map(|time| time * MS),
            ..Limits::default()
        };
        let mut random = Rng::new(seed);
        let mut table: Vec<u32> = (0..16).map(|entry| entry / 4).collect();
        let mut rebalance = Rebalance::new(table.clone(), limits);
        let mut packets: Vec<Vec<Nanos>> = vec![Vec::new(); 16];
        let mut made: Vec<(Nanos, Move)> = Vec::new();
        // Entries have bursts of different lengths, and one never pauses.
        let mut burst = [(0_u64, false); 16];
        for now in (0..4000).map(|tick| tick * MS / 2) {
            for entry in 0..16 {
                let (until, sends) = &mut burst[entry];
                if now >= *until {
                    (*until, *sends) = (now + random.below(60) * MS, random.below(3) > 0);
                }
                if *sends || entry == 3 {
                    let count = 1 + random.below(3) * (16 - entry as u64);
                    rebalance.count(entry, count, now);
                    packets[entry].push(now);
                }
            }
            rebalance.decide(now);
            while let Some(one) = rebalance.next(now) {
                prop_assert_eq!(std::mem::replace(&mut table[one.entry], one.to), one.from);
                let last = packets[one.entry].last().copied().unwrap_or(0);
                prop_assert_eq!(now - last < limits.pause, one.forced);
                prop_assert!(force.is_some() || !one.forced);
                let again = made.iter().rfind(|(_, before)| before.entry == one.entry);
                prop_assert!(again.is_none_or(|(at, _)| now - at >= REST * limits.window));
                made.push((now, one));
                let recent = made.iter().filter(|(at, _)| now - at < SECOND).count();
                prop_assert!(recent <= moves as usize);
            }
            prop_assert_eq!(rebalance.table(), &table[..]);
        }
    }
}

/// Loads of entries in each window, with a millisecond of silence before its end.
fn run(
    rebalance: &mut Rebalance,
    windows: u64,
    mut load: impl FnMut(u64, usize) -> u64,
) -> Vec<Move> {
    let mut made = Vec::new();
    let start = rebalance.end.unwrap_or(0);
    for window in 0..windows {
        let now = start + window * 100 * MS;
        for entry in 0..rebalance.table().len() {
            rebalance.count(entry, load(window, entry), now);
        }
        let end = now + 100 * MS;
        rebalance.decide(end);
        made.extend(std::iter::from_fn(|| rebalance.next(end)));
    }
    made
}

/// A table whose queue 0 has most of the entries.
fn skewed() -> Rebalance {
    let table = (0..64).map(|entry| if entry < 52 { 0 } else { entry % 4 }).collect();
    Rebalance::new(table, Limits::default())
}

#[test]
fn a_skewed_load_becomes_even_and_then_nothing_moves() {
    let mut random = Rng::new(3);
    let mut rebalance = skewed();
    let mut noisy = |_: u64, entry: usize| (100 + entry as u64) * (80 + random.below(41)) / 100;
    let made = run(&mut rebalance, 20, &mut noisy);
    assert!((20..52).contains(&made.len()), "{} moves", made.len());
    let loads: Vec<_> = (0..64).map(|entry| 100 + entry).collect();
    let even = ratio(rebalance.table(), Load { entries: &loads, fixed: &queues(4) }).unwrap();
    assert!(even < 1.15, "{even}");
    assert_eq!(run(&mut rebalance, 500, &mut noisy), [], "the load is even, apart from noise");
}

#[test]
fn a_load_that_alternates_does_not_make_entries_alternate() {
    let mut rebalance = skewed();
    // Every second window is the mirror of the other: moving after each would only chase it.
    let made =
        run(
            &mut rebalance,
            1000,
            |window, entry| {
                if (window % 2 == 0) == (entry % 2 == 0) { 300 } else { 10 }
            },
        );
    assert!(made.len() < 64, "{} moves in 1000 windows", made.len());
}

#[test]
fn one_window_is_not_enough() {
    let mut rebalance = Rebalance::new((0..64).map(|entry| entry % 4).collect(), Limits::default());
    let made = run(
        &mut rebalance,
        60,
        |window, entry| {
            if window % 3 == 0 && entry % 4 == 0 { 200 } else { 50 }
        },
    );
    assert_eq!(made, []);
}

#[test]
fn an_entry_that_never_pauses_stays_and_others_move() {
    // Queue 0 has an elephant in entry 0, and four mice; queue 1 has mice.
    let mut rebalance = Rebalance::new(vec![0, 0, 0, 0, 0, 1, 1, 1], Limits::default());
    let (mut made, mut busy) = (Vec::new(), Vec::new());
    for now in (0..2000).map(|at| at * MS) {
        rebalance.count(0, 6, now);
        // A mouse sends for 5 ms, and pauses for 15.
        for entry in (1..8).filter(|entry| (now / MS + entry * 3) % 20 < 5) {
            rebalance.count(entry as usize, 4, now);
        }
        busy.extend(rebalance.decide(now).into_iter().flat_map(|window| window.busy));
        made.extend(std::iter::from_fn(|| rebalance.next(now)));
    }
    assert!(made.iter().all(|one| one.entry != 0 && !one.forced), "{made:?}");
    assert!(made.len() >= 3 && rebalance.table()[0] == 0, "{made:?}");
    assert!(busy.iter().all(|one| one.entry == 0 && one.packets > 500), "{busy:?}");
}

#[test]
fn a_busy_entry_can_be_forced() {
    let limits = Limits { force_after: Some(150 * MS), ..Limits::default() };
    let mut rebalance = Rebalance::new(vec![0, 0, 1], limits);
    let mut made = Vec::new();
    for now in (0..1000).map(|at| at * MS) {
        rebalance.count(0, 5, now);
        rebalance.count(1, 5, now);
        rebalance.decide(now);
        made.extend(std::iter::from_fn(|| rebalance.next(now)));
    }
    assert_eq!(made.len(), 1, "{made:?}");
    assert!(made[0].forced && made[0].to == 1, "{made:?}");
}

#[test]
fn missed_packets_are_no_pause() {
    let mut rebalance = skewed();
    let mut made = 0;
    for now in (0..1000).map(|at| at * MS) {
        if now % (20 * MS) == 0 {
            (0..64).for_each(|entry| rebalance.count(entry, 10, now));
        }
        rebalance.decide(now);
        rebalance.missed(now);
        made += usize::from(rebalance.next(now).is_some());
    }
    assert_eq!(made, 0);
}

#[test]
fn queues_that_the_table_leaves_out_stay_out_and_all_entries_return() {
    let first: Vec<u32> = (0..32).map(|entry| if entry < 28 { 1 } else { 3 }).collect();
    let mut rebalance = Rebalance::new(first.clone(), Limits::default());
    let made = run(&mut rebalance, 10, |_, _| 50);
    assert!(made.len() > 8 && made.iter().all(|one| [1, 3].contains(&one.to)), "{made:?}");
    let now = 2000 * MS;
    rebalance.count(made[0].entry, 1, now);
    rebalance.return_all(now);
    while rebalance.next(now).is_some() {}
    assert!(rebalance.is_waiting() && rebalance.table() != first);
    while rebalance.next(now + MS).is_some() {}
    assert!(!rebalance.is_waiting() && rebalance.table() == first);
}

#[test]
fn packets_that_no_entry_decides_count_for_their_queue() {
    // Queue 0 has the frames without a hash, so the entries leave it.
    let mut rebalance = Rebalance::new((0..32).map(|entry| entry % 2).collect(), Limits::default());
    let mut made = Vec::new();
    for now in (0..1000).map(|at| at * MS) {
        rebalance.count_fixed(0, 40, now);
        rebalance.count_fixed(7, 1000, now);
        if now % (2 * MS) == 0 {
            (0..32).for_each(|entry| rebalance.count(entry, 1, now));
        }
        rebalance.decide(now);
        made.extend(std::iter::from_fn(|| rebalance.next(now)));
    }
    assert!(made.iter().all(|one| one.to == 1) && made.len() >= 12, "{made:?}");
}

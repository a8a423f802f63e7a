use std::net::Ipv4Addr;

use flowyard_frame::{Rng, proto};

use super::*;
use crate::apply::{Undone, undo};
use crate::fake::Fake;
use crate::journal;

const MS: Nanos = 1_000_000;

fn key(flow: u32) -> FlowKey {
    let ip = |n: u32| Ipv4Addr::from(0x0a00_0000 | n).into();
    FlowKey::five_tuple(
        proto::TCP,
        ip(9 + flow * 31),
        1024 + (flow * 7919 % 60_000) as u16,
        ip(1),
        80,
    )
}

/// A card whose queue 0 has three quarters of the table.
fn skewed() -> Fake {
    let mut fake = Fake::virtio();
    let queue = |entry: u32| if entry % 4 < 3 { 0 } else { entry / 4 % 4 };
    fake.rss.as_mut().unwrap().table = (0..128).map(queue).collect();
    fake
}

fn limits() -> Limits {
    Limits { window: 50 * MS, moves: 1000, ..Limits::default() }
}

fn rebalancer(fake: &Fake, folder: Option<&Path>) -> Rebalancer {
    let state = State::read(fake, "eth0").unwrap();
    Rebalancer::new(fake, &state, limits(), folder).unwrap()
}

/// What a run saw: the frames of each flow with their queues, in the order in which they came.
#[derive(Default)]
struct Ran {
    news: Vec<News>,
    halt: Option<Halt>,
    /// Frames by queue in the last hundred milliseconds.
    last: [u64; 4],
}

/// The traffic of `ms` milliseconds of flows that send in bursts; the card puts each frame into the queue that its own
/// table says.
fn run(fake: &mut Fake, rebalancer: &mut Rebalancer, from: u64, ms: u64) -> Ran {
    let mut random = Rng::new(from + 1);
    let mut ran = Ran::default();
    let mut burst = vec![(0_u64, false); 400];
    for now in (from..from + ms).map(|at| at * MS) {
        for (flow, (until, sends)) in burst.iter_mut().enumerate() {
            if now >= *until {
                (*until, *sends) = (now + (2 + random.below(20)) * MS, random.below(2) == 0);
            }
            if !*sends {
                continue;
            }
            let key = key(flow as u32);
            let entry = rebalancer.card.entry(&key).unwrap();
            let queue = fake.rss.as_ref().unwrap().table[entry];
            rebalancer.count(&key, 1, Some(queue), now);
            if now >= (from + ms - 100) * MS {
                ran.last[queue as usize] += 1;
            }
        }
        let mut news = rebalancer.tick(fake, now, false);
        while let (Ok(all), true) = (&mut news, rebalancer.is_prepared()) {
            match rebalancer.commit(fake, now) {
                Ok(more) => all.extend(more),
                Err(halt) => news = Err(halt),
            }
        }
        match news {
            Ok(news) => ran.news.extend(news),
            Err(halt) => {
                ran.halt = Some(halt);
                break;
            }
        }
    }
    ran
}

fn uneven(queues: [u64; 4]) -> f64 {
    *queues.iter().max().unwrap() as f64 * 4.0 / queues.iter().sum::<u64>() as f64
}

#[test]
fn a_skewed_load_becomes_even_and_the_table_returns() {
    let folder = tempfile::tempdir().unwrap();
    let mut fake = skewed();
    let before = fake.clone();
    let mut rebalancer = rebalancer(&fake, Some(folder.path()));
    let ran = run(&mut fake, &mut rebalancer, 0, 2000);
    assert!(ran.halt.is_none(), "{:?}", ran.halt);
    assert!(uneven(ran.last) < 1.4, "{:?}", ran.last);
    let totals = rebalancer.totals();
    assert!(totals.moves > 30 && totals.forced == 0 && totals.could_overtake == 0, "{totals:?}");
    assert!(totals.writes > 1 && totals.writes <= totals.moves, "{totals:?}");
    let moved: usize =
        ran.news.iter().map(|one| if let News::Moved(all) = one { all.len() } else { 0 }).sum();
    assert_eq!(moved as u64, totals.moves);
    let first = ran.news.iter().find_map(|one| match one {
        News::Window { imbalance: Some(now), first: Some(first), .. } => Some((*now, *first)),
        _ => None,
    });
    let first = first.unwrap();
    assert!(first.0 == first.1 && first.0 > 2.5, "{first:?}");
    assert_eq!(journal::list(folder.path(), "eth0").unwrap(), [rebalancer.journal().unwrap()]);
    // Another process cannot undo what this one does.
    assert!(undo(&mut fake, "eth0", folder.path()).is_err());
    // Entries return as they pause; the rest at once.
    rebalancer.return_all(2000 * MS);
    let displaced = rebalancer.displaced();
    run(&mut fake, &mut rebalancer, 2000, 200);
    assert!(rebalancer.displaced() < displaced / 4, "{displaced}, {}", rebalancer.displaced());
    assert_eq!(rebalancer.totals().could_overtake, 0);
    rebalancer.restore(&mut fake).unwrap();
    assert_eq!(fake, before);
    assert!(journal::list(folder.path(), "eth0").unwrap().is_empty());
}

#[test]
fn without_a_folder_nothing_is_changed() {
    let mut fake = skewed();
    let before = fake.clone();
    let mut rebalancer = rebalancer(&fake, None);
    let ran = run(&mut fake, &mut rebalancer, 0, 500);
    assert!(rebalancer.totals().moves > 10 && rebalancer.totals().writes == 0);
    assert!(ran.halt.is_none(), "frames come by the table of the card: {:?}", ran.halt);
    rebalancer.restore(&mut fake).unwrap();
    assert_eq!(fake, before);
}

/// Killed at any call that changes the card, before or after it takes effect, the journal restores the table.
#[test]
fn killed_at_any_write_it_can_be_undone() {
    for takes_effect in [false, true] {
        for (call, again) in (1..12).zip([1, 2].into_iter().cycle()) {
            let folder = tempfile::tempdir().unwrap();
            let mut fake = skewed();
            let before = fake.clone();
            let mut rebalancer = rebalancer(&fake, Some(folder.path()));
            (fake.takes_effect, fake.left) = (takes_effect, std::cell::Cell::new(Some(call)));
            let ran = run(&mut fake, &mut rebalancer, 0, 600);
            assert!(ran.halt.is_some(), "call {call}");
            drop(rebalancer);
            (fake.takes_effect, fake.left) = (false, std::cell::Cell::new(None));
            // Undoing is killed, too, after its first or second write.
            fake.left.set(Some(again));
            fake.takes_effect = true;
            let killed = undo(&mut fake, "eth0", folder.path()).is_err();
            (fake.takes_effect, fake.left) = (false, std::cell::Cell::new(None));
            if killed {
                let Ok(Undone::Restored(_)) = undo(&mut fake, "eth0", folder.path()) else {
                    panic!("call {call}")
                };
            }
            assert_eq!(fake, before, "call {call}");
            assert!(journal::list(folder.path(), "eth0").unwrap().is_empty());
        }
    }
}

#[test]
fn a_change_by_another_program_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    // The table: it stays as the other program set it, and the journal is kept.
    let mut fake = skewed();
    let mut one = rebalancer(&fake, Some(folder.path()));
    run(&mut fake, &mut one, 0, 500);
    let foreign = vec![2; 128];
    fake.set_table("eth0", &foreign).unwrap();
    let halt = run(&mut fake, &mut one, 500, 500).halt.unwrap();
    assert!(matches!(&halt, Halt::Foreign(lines) if lines[0].contains("rss.table was")), "{halt}");
    assert!(matches!(one.restore(&mut fake), Err(Halt::Undo(Failure::Foreign(_)))));
    assert_eq!(fake.rss.as_ref().unwrap().table, foreign);
    assert_eq!(journal::list(folder.path(), "eth0").unwrap().len(), 1);
    // The key: the table is still this program's, and is restored.
    let folder = tempfile::tempdir().unwrap();
    let mut fake = skewed();
    let before = fake.rss.clone().unwrap().table;
    let mut one = rebalancer(&fake, Some(folder.path()));
    run(&mut fake, &mut one, 0, 500);
    fake.set_key("eth0", &[7; 40]).unwrap();
    let halt = run(&mut fake, &mut one, 500, 500).halt.unwrap();
    assert!(matches!(&halt, Halt::Foreign(lines) if lines[0].contains("rss.key")), "{halt}");
    one.restore(&mut fake).unwrap();
    assert_eq!(fake.rss.as_ref().unwrap().table, before);
}

#[test]
fn an_interface_without_a_table_is_refused_with_the_reason() {
    let refused = |fake: &Fake| {
        let state = State::read(fake, "eth0").unwrap();
        Rebalancer::new(fake, &state, limits(), None).unwrap_err().to_string()
    };
    let veth = refused(&Fake::veth());
    assert!(veth.contains("EOPNOTSUPP") && veth.contains("RPS has no such table"), "{veth}");
    let mut fake = skewed();
    fake.rss.as_mut().unwrap().table = vec![1; 128];
    assert!(refused(&fake).contains("all entries are of queue 1"), "{}", refused(&fake));
    fake.rss.as_mut().unwrap().function = 2;
    assert!(refused(&fake).contains("the hash function is xor"), "{}", refused(&fake));
}

#[test]
fn frames_that_a_rule_steers_count_for_their_queue_only() {
    let folder = tempfile::tempdir().unwrap();
    let fake = skewed();
    let mut one = rebalancer(&fake, Some(folder.path()));
    let flow = (0..).map(key).find(|flow| one.card.queue(flow) == Some(0)).unwrap();
    for at in 0..10 {
        one.count(&flow, 5, Some(3), at * MS);
        one.count(&flow, 20, Some(0), at * MS);
    }
    assert_eq!(one.elsewhere, 50);
    // If most frames come elsewhere, the model of the card is wrong.
    let mut fake = fake;
    (0..100).for_each(|at| one.count(&flow, 5, Some(3), at * MS));
    let halt = one.tick(&mut fake, 100 * MS, false).unwrap_err().to_string();
    assert!(halt.starts_with("550 of 750 frames came to other queues"), "{halt}");
}

#[test]
fn frames_that_could_be_overtaken_are_counted() {
    let one = |forced| Move { entry: 7, from: 0, to: 1, forced, since: 0 };
    let mut watch = Watch::new(MS);
    watch.moved(&[one(false)], 10 * MS);
    assert!(!watch.see(7, Some(1), 1, 10 * MS), "paused before the move");
    assert_eq!(watch.could_overtake(), 0);
    assert!(watch.see(7, Some(0), 2, 11 * MS), "late in the old queue, after one in the new queue");
    assert_eq!(watch.could_overtake(), 2);
    watch.see(7, Some(1), 3, 11 * MS + 500);
    assert_eq!(watch.could_overtake(), 5, "within the pause after it");
    watch.see(7, Some(1), 3, 13 * MS);
    watch.see(8, Some(1), 3, 11 * MS);
    assert_eq!(watch.could_overtake(), 5);
    watch.moved(&[one(true)], 20 * MS);
    watch.see(7, Some(1), 4, 20 * MS + 100);
    assert_eq!(watch.could_overtake(), 9, "forced: the old queue may still have some");
    assert!(!watch.see(7, Some(0), 1, 3000 * MS), "long ago");
}

#[test]
fn lost_frames_and_a_reader_that_is_behind_stop_moves() {
    let folder = tempfile::tempdir().unwrap();
    let mut fake = skewed();
    let before = fake.clone();
    let mut one = rebalancer(&fake, Some(folder.path()));
    for now in (0..400).map(|at| at * MS) {
        (0..64).filter(|flow| now / MS % 20 == flow % 4).for_each(|flow| {
            let flow = key(flow as u32);
            let queue = one.card.queue(&flow);
            one.count(&flow, 10, queue, now);
        });
        if now < 200 * MS {
            one.lost(1, now);
            one.tick(&mut fake, now, false).unwrap();
        } else {
            one.tick(&mut fake, now, true).unwrap();
        }
    }
    assert_eq!(fake, before);
    assert_eq!((one.totals().lost, one.totals().moves), (200, 0));
    one.tick(&mut fake, 401 * MS, false).unwrap();
    one.commit(&mut fake, 401 * MS).unwrap();
    assert!(one.totals().moves > 0, "{:?}", one.totals());
}

/// Entries that resume while the journal is written do not move; the others do.
#[test]
fn entries_that_resume_before_the_write_stay() {
    let folder = tempfile::tempdir().unwrap();
    let mut fake = skewed();
    let before = fake.rss.clone().unwrap().table;
    let mut one = rebalancer(&fake, Some(folder.path()));
    let flows: Vec<_> = (0..400).map(key).collect();
    for now in (0..151).map(|at| at * MS) {
        if now % (20 * MS) == 0 {
            flows.iter().for_each(|flow| {
                let queue = one.card.queue(flow);
                one.count(flow, 10, queue, now);
            });
        }
        one.tick(&mut fake, now, true).unwrap();
    }
    let now = 151 * MS;
    assert!(one.tick(&mut fake, now, false).unwrap().is_empty() && one.is_prepared());
    assert_eq!(fake.rss.as_ref().unwrap().table, before, "only the journal is written");
    let resumes = one.prepared.as_ref().unwrap().moves[0].entry;
    let resumed = flows.iter().find(|flow| one.card.entry(flow) == Some(resumes)).unwrap();
    one.count(resumed, 1, Some(before[resumes]), now + 100);
    assert_eq!(one.commit(&mut fake, now + 100).unwrap(), None);
    assert!(one.is_prepared() && one.is_waiting());
    let Some(News::Moved(moved)) = one.commit(&mut fake, now + 200).unwrap() else { panic!() };
    let now_is = fake.rss.clone().unwrap().table;
    assert!(moved.iter().all(|one| one.entry != resumes && now_is[one.entry] == one.to));
    assert_eq!(now_is[resumes], before[resumes]);
    // It moves when it pauses again.
    let later = now + 3 * MS;
    one.tick(&mut fake, later, false).unwrap();
    let Some(News::Moved(moved)) = one.commit(&mut fake, later).unwrap() else { panic!() };
    assert!(moved.len() == 1 && moved[0].entry == resumes, "{moved:?}");
    assert_eq!(one.totals().could_overtake, 0);
    // Entries that resume each time are given up for now, and nothing was written.
    drop(one);
    undo(&mut fake, "eth0", folder.path()).unwrap();
    assert_eq!(fake.rss.unwrap().table, before);
}

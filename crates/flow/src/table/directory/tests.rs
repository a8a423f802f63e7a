use std::collections::HashMap;
use std::sync::Barrier;

use flowyard_frame::Rng;
use proptest::prelude::*;

use super::*;

fn may_have(directory: &Directory, hash: u64, core: u16) -> bool {
    match directory.find(hash) {
        Listed::Only(cores, len) => cores[..len].contains(&core),
        Listed::None => false,
        Listed::Any => true,
    }
}

/// No word and no count is left.
fn is_empty(directory: &Directory) -> bool {
    let mut numbers = directory.buckets.iter().flat_map(|bucket| &bucket.0);
    numbers.all(|number| number.load(Relaxed) == 0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Beside a map of all entries. With few buckets, most of them get more entries than words.
    #[test]
    fn the_directory_equals_the_reference_model(
        steps in prop::collection::vec((any::<bool>(), 0u64..40, 0u16..6), 1..400), entries in 0usize..60, key: u64,
    ) {
        let directory = Directory::new(6, entries, key);
        let mut model: HashMap<(u64, u16), usize> = HashMap::new();
        let hash = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for (adds, number, core) in steps {
            let known = model.entry((number, core)).or_default();
            if adds {
                directory.add(hash(number), core);
                *known += 1;
            } else if *known > 0 {
                directory.remove(hash(number), core);
                *known -= 1;
            }
            let mut in_bucket: HashMap<*const Bucket, usize> = HashMap::new();
            for (&(number, _), &count) in &model {
                *in_bucket.entry(std::ptr::from_ref(directory.place(hash(number)).0)).or_default() += count;
            }
            for number in 0..40 {
                let found = directory.find(hash(number));
                let has = |core: u16| model.get(&(number, core)).is_some_and(|&count| count > 0);
                for core in 0..6 {
                    prop_assert!(!has(core) || may_have(&directory, hash(number), core), "{number} {core}");
                }
                let bucket = std::ptr::from_ref(directory.place(hash(number)).0);
                if let Listed::Only(cores, len) = found {
                    // What is named has an entry whose bucket and tag are the same.
                    let (at, tag) = directory.place(hash(number));
                    let alike = |other: u64, core: u16| {
                        let (bucket, other_tag) = directory.place(hash(other));
                        std::ptr::eq(bucket, at) && other_tag == tag && model.get(&(other, core)).is_some_and(|&count| count > 0)
                    };
                    prop_assert!(cores[..len].iter().all(|&core| (0..40).any(|n| alike(n, core))), "{number}: {found:?}");
                    prop_assert!(cores[..len].is_sorted());
                } else if found == Listed::Any {
                    let most = in_bucket.get(&bucket).copied().unwrap_or(0);
                    prop_assert!(most > 0, "an empty bucket excludes every core");
                }
            }
        }
        for ((number, core), count) in model {
            (0..count).for_each(|_| directory.remove(hash(number), core));
        }
        prop_assert!(is_empty(&directory));
    }
}

/// With all tables full, few buckets are, and a lookup of an unknown hash names next to no core.
#[test]
fn a_full_directory_excludes_nearly_every_core() {
    let mut random = Rng::new(5);
    let directory = Directory::new(16, 100_000, 9);
    for number in 0..100_000 {
        directory.add(random.bits(), (number % 16) as u16);
    }
    let (mut any, mut named) = (0, 0);
    for _ in 0..100_000 {
        match directory.find(random.bits()) {
            Listed::Any => any += 1,
            Listed::Only(_, len) => named += len,
            Listed::None => {}
        }
    }
    assert!(any < 500 && named < 500, "any core in {any} of 100,000, {named} cores named");
    assert_eq!((size_of::<Bucket>(), Directory::bytes(7_000_000)), (32, 32_000_032));
}

/// What is fetched in front of a lookup is of the bucket that the lookup reads, whose first word is the first taken.
#[test]
fn the_bucket_of_a_hash_is_fetched() {
    let directory = Directory::new(16, 70_000, 1);
    let mut random = Rng::new(3);
    for core in 0..16 {
        let hash = random.bits();
        assert_eq!(directory.fetch(hash), 0);
        directory.add(hash, core);
        let number = directory.fetch(hash);
        assert!(number != 0 && number == directory.place(hash).0.0[0].load(Relaxed));
        directory.remove(hash, core);
        assert_eq!(directory.fetch(hash), 0);
    }
}

#[test]
fn cores_have_different_words_whatever_their_number() {
    for cores in [2, 3, 4, 15, 16, 1023, 1024, Directory::CORES] {
        let directory = Directory::new(cores, 1000, 3);
        let mut random = Rng::new(cores as u64);
        for core in [0, 1, cores / 2, cores - 2, cores - 1] {
            let (hash, core) = (random.bits(), core as u16);
            directory.add(hash, core);
            let Listed::Only(named, len) = directory.find(hash) else { panic!("{cores}") };
            assert!(named[..len].contains(&core), "{core} of {cores}: {:?}", &named[..len]);
            assert!(named[..len].iter().all(|&core| usize::from(core) < cores));
            directory.remove(hash, core);
        }
        assert!(is_empty(&directory));
    }
}

/// Who knows the hashes of a full bucket under one key has no full bucket under another one.
#[test]
fn a_bucket_that_was_filled_on_purpose_is_not_full_under_another_key() {
    let known = Directory::new(16, 70_000, 1);
    let aim = std::ptr::from_ref(known.place(0).0);
    let mut random = Rng::new(3);
    let alike = std::iter::repeat_with(|| random.bits());
    let alike: Vec<u64> = alike.filter(|&h| std::ptr::eq(known.place(h).0, aim)).take(40).collect();
    let secret = Directory::new(16, 70_000, 2);
    for &hash in &alike {
        known.add(hash, 0);
        secret.add(hash, 0);
    }
    assert!(alike.iter().all(|&hash| known.find(hash) == Listed::Any));
    assert!(alike.iter().all(|&hash| secret.find(hash) != Listed::Any));
}

/// Cores add and remove at once, in buckets that are too small. Each finds its own entries all the time, and
/// those of others that it knows of.
#[test]
fn cores_do_not_lose_the_entries_of_others() {
    const CORES: u16 = 4;
    let rounds: u64 = if cfg!(miri) { 20 } else { 3000 };
    let directory = Directory::new(CORES.into(), 20, 7);
    let barrier = Barrier::new(CORES.into());
    std::thread::scope(|scope| {
        for core in 0..CORES {
            let (directory, barrier) = (&directory, &barrier);
            scope.spawn(move || {
                let mut random = Rng::new(core.into());
                let kept = u64::from(core) << 32;
                directory.add(kept, core);
                barrier.wait(); // from now on, all know that all have added theirs
                let mut mine = Vec::new();
                for _ in 0..rounds {
                    if mine.len() < 12 && random.bits() & 1 == 0 {
                        let hash = random.bits();
                        directory.add(hash, core);
                        mine.push(hash);
                    } else if let Some(hash) = mine.pop() {
                        directory.remove(hash, core);
                    }
                    assert!(mine.iter().all(|&hash| may_have(directory, hash, core)));
                    for other in 0..CORES {
                        assert!(may_have(directory, u64::from(other) << 32, other));
                    }
                }
                barrier.wait();
                mine.into_iter().for_each(|hash| directory.remove(hash, core));
                directory.remove(kept, core);
            });
        }
    });
    assert!(is_empty(&directory));
}

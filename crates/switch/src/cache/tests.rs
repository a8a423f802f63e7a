use flowyard_flow::Secret;
use flowyard_openflow::{Match, Oxm};
use smallvec::smallvec;

use super::*;

/// Flows of two tables combine to 1600 paths, each of which a stranger's frame can make.
#[test]
fn frames_cannot_make_paths_without_end() {
    let mut cache = Cache::new(64, 1);
    cache.reserve(80);
    // Two for each of 64 entries, and one for each of 128 flows that the cache has memory for.
    let most = 2 * 64 + 128;
    let mut reached = 0;
    for (first, second) in (0..40).flat_map(|first| (40..80).map(move |second| (first, second))) {
        let path = Path { flows: smallvec![first, second], miss: None };
        let (number, generation) = cache.known(&path, Ends::default);
        assert_eq!(cache.known(&path, Ends::default), (number, generation), "it is kept");
        reached = reached.max(cache.paths());
        cache.find(&[], &mut [], &mut [], 0);
        assert!(cache.paths() <= most, "{} paths", cache.paths());
    }
    assert_eq!(reached, most + 1, "that of the last frame ends with the next batch");
    assert!(
        cache.paths.len() <= most + 1 && cache.fast.len() <= most + 1,
        "numbers are used again"
    );
}

/// Entries of the cache in the next test: 64 sets.
const ENTRIES: usize = 64 * WAYS;

/// A cache of a switch whose rules compare addresses and ports.
fn cache(key: u64) -> Cache {
    let mut cache = Cache::new(ENTRIES, key);
    let fields = [Oxm::exact(Field::Ipv4Src, 0), Oxm::exact(Field::UdpSrc, 0)];
    cache.rule(0, &Pattern::from(&Match(fields.to_vec()).normal()), |_| true);
    cache.reserve(1);
    cache
}

/// The key of a frame whose sender chooses address and port.
fn frame(n: u32) -> Key {
    let mut key = Key::ZERO;
    key.set(Field::Ipv4Src, (0x0a00_0000 + (n >> 12)).into());
    key.set(Field::UdpSrc, (n & 0xfff).into());
    key
}

/// The frames that miss if each of these flows sends ten.
fn misses(cache: &mut Cache, flows: &[u32]) -> usize {
    let path = Path { flows: smallvec![0], miss: None };
    let mut misses = 0;
    for n in (0..10).flat_map(|_| flows) {
        let (key, spot, found) = (frame(*n), &mut [None], &mut [None]);
        cache.find(&[key], spot, found, 0);
        if found[0].is_none() {
            misses += 1;
            cache.put(&key, spot[0].unwrap(), &path, Ends::default);
        }
    }
    misses
}

/// Flows of one set take each other's entries, so that their frames are looked up in the tables. An adversary who
/// knows the key can compute them; with a secret key they miss no more often than others.
#[test]
fn crafted_flows_miss_as_often_as_others() {
    const COUNT: usize = 24;
    let known = cache(Secret::FIXED.key("flow cache"));
    let set = |n: &u32| known.place(Spot(known.words.hash(&frame(*n).0, &known.seeds))).0;
    let crafted: Vec<_> = (0..).filter(|n| set(n) == set(&0)).take(COUNT).collect();
    let others: Vec<_> = (1 << 20..).take(COUNT).collect();
    let of_known = misses(&mut cache(Secret::FIXED.key("flow cache")), &crafted);
    assert!(of_known > 8 * COUNT, "{of_known} of {} frames missed", 10 * COUNT);
    for byte in 2..80 {
        let secret = || cache(Secret::drawn([byte; 16]).key("flow cache"));
        let usual = misses(&mut secret(), &others);
        let all = misses(&mut secret(), &crafted);
        assert!(
            usual < 2 * COUNT && all <= 2 * usual,
            "secret {byte}: {all} misses, usual {usual}"
        );
    }
}

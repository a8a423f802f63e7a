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

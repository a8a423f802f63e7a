use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// Reference implementation: keeps every arrival and counts from scratch.
fn slow(arrivals: &[(u64, u16)], sent: u64) -> Known {
    let mut known = Known::default();
    let mut firsts: Vec<(u64, u16)> = Vec::new();
    for &(index, flow) in arrivals {
        if firsts.iter().any(|&(i, _)| i == index) {
            known.duplicates += 1;
            continue;
        }
        let mine = firsts.iter().filter(|&&(_, f)| f == flow);
        if let Some(overtook) = mine.clone().position(|&(i, _)| i > index) {
            known.reordered += 1;
            known.max_extent = known.max_extent.max((mine.count() - overtook) as u64);
        }
        firsts.push((index, flow));
    }
    known.good = firsts.len() as u64;
    let came: BTreeSet<_> = firsts.iter().map(|&(i, _)| i).collect();
    let lost: Vec<_> = (0..sent).filter(|i| !came.contains(i)).collect();
    known.lost = lost.len() as u64;
    known.gaps = lost.iter().filter(|&&i| i == 0 || came.contains(&(i - 1))).count() as u64;
    (known.first_lost, known.last_lost) = (lost.first().copied(), lost.last().copied());
    known
}

fn fast(arrivals: &[(u64, u16)], sent: u64) -> Known {
    let mut tracker = Tracker::new(4, 1024, 1024);
    for &(index, flow) in arrivals {
        assert_eq!(tracker.widen(index as u32), index);
        tracker.see(index, flow);
    }
    tracker.finish(sent)
}

proptest! {
    #[test]
    fn as_the_slow_twin(
        arrivals in prop::collection::vec((0_u64..300, 0_u16..4), 0..400),
        more in 0_u64..100,
    ) {
        // A frame has one flow.
        let arrivals: Vec<_> = arrivals.iter().map(|&(i, _)| (i, (i % 4) as u16)).collect();
        let sent = 300 + more;
        prop_assert_eq!(fast(&arrivals, sent), slow(&arrivals, sent));
    }

    /// Frames in order with losses, over many windows: the counters stay exact.
    #[test]
    fn long_runs_with_losses(keep in prop::collection::vec(any::<bool>(), 1..5000), chunk in 1_usize..50) {
        let mut tracker = Tracker::new(1, 128, 16);
        let came: Vec<_> = (0_u64..).zip(&keep).filter(|(_, keep)| **keep).map(|(i, _)| (i, 0)).collect();
        for part in came.chunks(chunk) {
            part.iter().for_each(|&(i, flow)| { tracker.see(i, flow); });
        }
        prop_assert_eq!(tracker.finish(keep.len() as u64), slow(&came, keep.len() as u64));
    }
}

#[test]
fn the_simple_cases() {
    let of = |indexes: &[u64], sent| {
        let arrivals: Vec<_> = indexes.iter().map(|&i| (i, 0)).collect();
        let known = fast(&arrivals, sent);
        assert_eq!(known, slow(&arrivals, sent));
        known
    };
    assert_eq!(of(&[0, 1, 2], 3), Known { good: 3, ..Known::default() });
    // RFC 4737 section 7.1, packets 1 2 3 7 8 9 10 4 5 6 11: extents of 4, 5 and 6 are 4, 5, 6.
    let known = of(&[0, 1, 2, 6, 7, 8, 9, 3, 4, 5, 10], 11);
    assert_eq!((known.reordered, known.max_extent), (3, 6));
    let known = of(&[2, 2, 5], 9);
    assert_eq!((known.duplicates, known.lost, known.gaps), (1, 7, 3));
    assert_eq!((known.first_lost, known.last_lost), (Some(0), Some(8)));
    assert_eq!(of(&[], 5).gaps, 1);
}

#[test]
fn more_frames_than_two_to_the_32() {
    let mut tracker = Tracker::new(1, 1 << 12, 16);
    let end = (1_u64 << 33) + 5;
    // The first frame received is number 2^33 - 995: one long run of losses, then the wrap-around.
    for index in end - 1000..end {
        let half = index as u32;
        let whole = if tracker.next == 0 { index } else { tracker.widen(half) };
        assert_eq!(whole, index);
        tracker.see(whole, 0);
    }
    let known = tracker.finish(end);
    assert_eq!((known.good, known.lost, known.gaps), (1000, end - 1000, 1));
    assert_eq!(known.last_lost, Some(end - 1001));
}

#[test]
fn too_old_is_said_to_be_too_old() {
    let mut tracker = Tracker::new(1, 64, 2);
    for index in 0..1000 {
        tracker.see(index, 0);
    }
    assert_eq!(tracker.see(3, 0), Arrival::Stale);
    assert_eq!(tracker.see(990, 0), Arrival::Duplicate);
    let known = tracker.finish(1000);
    assert_eq!((known.stale, known.lost, known.good), (1, 0, 1000));
}

#[test]
fn an_extent_that_is_not_remembered_is_marked() {
    let mut tracker = Tracker::new(1, 1024, 4);
    (1..=20).for_each(|index| {
        tracker.see(index, 0);
    });
    tracker.see(0, 0);
    assert_eq!((tracker.known.reordered, tracker.known.max_extent), (1, 4));
    assert_eq!(tracker.known.extent_beyond, 1);
}

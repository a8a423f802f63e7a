use std::collections::HashMap;

use flowyard_frame::{LANES, To, proto};
use flowyard_testkit::batch;
use proptest::prelude::*;

use super::*;

fn key(n: u32) -> FlowKey {
    let [src, dst] = [0x0a00_0000 + n, 0x0a80_0001].map(std::net::Ipv4Addr::from_bits);
    FlowKey::five_tuple(proto::TCP, src.into(), 4000, dst.into(), 80)
}

fn rfs(entries: usize, sample_every: u32) -> Rfs {
    Rfs::new(Settings { entries, sample_every, idle: 1000 }, 1)
}

/// The edits after core `home` worked on frames of flow `n` at `now`.
fn work(rfs: &mut Rfs, home: u16, n: u32, frames: usize, now: Nanos) -> Vec<Edit> {
    let (batch, mut edits) = (batch(std::iter::repeat_n(key(n), frames)), Vec::new());
    rfs.observe(home, &batch, batch.lanes(), now, &mut edits);
    edits
}

#[test]
fn the_core_that_works_on_a_flow_becomes_its_home() {
    let mut rfs = rfs(4, 1);
    assert_eq!(work(&mut rfs, 2, 1, 3, 0), [Edit::Put(key(1), Action::queue(2))]);
    assert_eq!(work(&mut rfs, 2, 1, 3, 200), [], "known");
    assert_eq!(work(&mut rfs, 5, 1, 1, 210), [Edit::Put(key(1), Action::queue(5))], "moved");
    assert_eq!(work(&mut rfs, 5, 1, 1, 461), [Edit::Put(key(1), Action::queue(5))], "renewed");
    assert_eq!(work(&mut rfs, 5, 2, 0, 1462), [Edit::Del(key(1))], "idle");
    assert!(rfs.is_empty());
}

#[test]
fn fragments_and_what_is_not_ip_teach_nothing() {
    let (mut rfs, mut edits) = (rfs(4, 1), Vec::new());
    for key in [FlowKey { frag: 1, ..key(1) }, FlowKey { eth_type: 0x0806, ..FlowKey::ZERO }] {
        rfs.consumed(0, &key, 0, &mut edits);
    }
    assert_eq!((edits.len(), rfs.len()), (0, 0));
    rfs.consumed(0, &FlowKey { vlan_tci: 9, tos: 1, ..key(1) }, 0, &mut edits);
    assert_eq!(edits, [Edit::Put(key(1), Action::queue(0))], "the flow alone");
}

#[test]
fn one_of_n_frames_is_sampled() {
    for every in [1, 7, 20, 100] {
        let mut rfs = rfs(1 << 16, every);
        // Each frame is of another flow, so that each sample adds a flow.
        for first in (0..64_000).step_by(LANES) {
            let batch = batch((first..first + 32).map(key));
            rfs.observe(0, &batch, batch.lanes(), 0, &mut Vec::new());
        }
        let wanted = 64_000 / every as usize;
        assert!(rfs.len().abs_diff(wanted) <= wanted / 10, "{} of {wanted}", rfs.len());
    }
    let mut none = rfs(4, 0);
    assert_eq!(work(&mut none, 0, 1, 32, 0), []);
}

#[test]
fn the_flow_that_is_not_sampled_makes_room() {
    let mut rfs = rfs(2, 1);
    for n in [1, 2] {
        work(&mut rfs, 0, n, 1, 0);
    }
    // Both were sampled: the hand clears both marks and evicts the first.
    let [del, put] = work(&mut rfs, 0, 3, 1, 1)[..] else { panic!("a Del and a Put") };
    assert_eq!(put, Edit::Put(key(3), Action::queue(0)));
    assert!(matches!(del, Edit::Del(gone) if gone == key(1) || gone == key(2)));
    let left = if del == Edit::Del(key(1)) { 2 } else { 1 };
    assert_eq!(work(&mut rfs, 0, 4, 1, 2)[0], Edit::Del(key(left)), "3 was sampled later");
}

proptest! {
    /// A table that applies every edit has the flows that the learner steers, each with the home
    /// that was sampled last. With enough entries it has every flow worked on within the idle time.
    #[test]
    fn the_table_has_what_was_sampled(
        steps in prop::collection::vec((0..40_u32, 0..3_u16, 0..300_u64), 1..200),
        entries in 1..50_usize,
    ) {
        let mut rfs = rfs(entries, 1);
        let (mut table, mut model) = (HashMap::new(), HashMap::new());
        let mut now = 0;
        for (n, home, gap) in steps {
            now += gap;
            for edit in work(&mut rfs, home, n, 1, now) {
                match edit {
                    Edit::Put(key, action) => { table.insert(key, action.to); }
                    Edit::Del(key) => prop_assert!(table.remove(&key).is_some()),
                }
                prop_assert!(table.len() <= entries);
            }
            model.insert(key(n), (To::Queue(home), now));
            prop_assert_eq!(table.get(&key(n)), Some(&To::Queue(home)));
            prop_assert_eq!(table.len(), rfs.len());
            for (key, to) in &table {
                prop_assert_eq!(model[key].0, *to);
            }
            if entries >= 40 {
                for (key, (_, last)) in &model {
                    prop_assert!(now - last > 1000 || table.contains_key(key));
                }
            }
        }
        // Everything is deleted when no core works on the flows any more.
        let mut edits = Vec::new();
        rfs.expire(entries, now + 2000, &mut edits);
        prop_assert!(rfs.is_empty());
        prop_assert_eq!(edits.len(), table.len());
    }
}

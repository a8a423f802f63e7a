//! The budget of a frame: how many buckets of groups it may meet, and how many frames may come of it.

use super::*;
use crate::effects::{BUCKETS_MAX, COPIES_MAX};

/// Groups in a row: each but the first names the one before it in two buckets.
fn row(bed: &mut Bed, groups: u32, with: &[Action]) {
    let any = reserved::ANY;
    for number in 1..=groups {
        let to = if number == 1 { output(2) } else { Action::Group(number - 1) };
        let actions = [with, &[to]].concat();
        let buckets = vec![bucket(0, any, &actions), bucket(0, any, &actions)];
        bed.group(number, GroupType::All, buckets);
    }
    let then = vec![Instruction::ApplyActions(vec![Action::Group(groups)])];
    bed.flow(1, 0, 1, &[], then);
}

#[test]
fn a_frame_through_26_groups_of_two_buckets_is_dropped_within_its_budget() {
    for with in [vec![], vec![Action::SetField(Oxm::exact(Field::Ipv4Dst, 0x0a00_0007))]] {
        let mut bed = Bed::new(&settings(Lookup::Merged, 64));
        row(&mut bed, 26, &with);
        for round in 1..=3 {
            assert_eq!(bed.frame(1, &udp(1, 2, 9)).0, []);
            assert_eq!(bed.out.reason, Some(Reason::TooManyCopies));
            assert_eq!(bed.datapath.totals.over, round);
        }
        // The next frame has its whole budget.
        bed.flow(1, 0, 1, &[], vec![Instruction::ApplyActions(vec![Action::Group(11)])]);
        assert_eq!(bed.frame(1, &udp(1, 2, 9)).0.len(), 1 << 11);
        assert_eq!((bed.out.reason, bed.datapath.totals.over), (None, 3));
    }
}

#[test]
fn a_frame_meets_no_more_buckets_than_its_budget_covers() {
    let mut bed = Bed::new(&settings(Lookup::Merged, 64));
    let any = reserved::ANY;
    let buckets = counts(1024);
    let list: Vec<_> = (0..1024).map(|_| bucket(0, any, &[])).collect();
    let desc = GroupDesc { kind: GroupType::All, group: 1, buckets: list };
    let group = Group { desc, counts: counts(1), buckets: Arc::clone(&buckets) };
    bed.apply(&Change::Group(Arc::new(group)));
    let met = || buckets.iter().map(|counts| counts.read().0).sum::<u64>();
    for (groups, expected, is_over) in [(4, 4096, false), (5, 4096, true), (1024, 4096, true)] {
        let before = met();
        let mut list = vec![output(3)];
        list.extend(vec![Action::Group(1); groups]);
        bed.flow(1, 0, 1, &[], vec![Instruction::ApplyActions(list)]);
        let sent = bed.ports(1, &udp(1, 2, 9));
        assert_eq!((met() - before, sent.is_empty()), (expected, is_over));
        assert!(expected <= BUCKETS_MAX.into());
    }
}

#[test]
fn outputs_have_a_budget_without_groups_too() {
    let mut bed = Bed::new(&settings(Lookup::Merged, 64));
    let flood = || vec![output(reserved::ALL); 1024];
    // Three other ports: 3,072 frames; and with another table too many.
    bed.flow(1, 0, 1, &[], vec![Instruction::ApplyActions(flood())]);
    assert_eq!(bed.ports(1, &udp(1, 2, 9)).len(), 3072);
    bed.flow(2, 1, 1, &[], vec![Instruction::ApplyActions(flood())]);
    let then = vec![Instruction::ApplyActions(flood()), Instruction::GotoTable(1)];
    bed.flow(3, 0, 1, &[], then);
    assert_eq!(bed.ports(1, &udp(1, 2, 9)), []);
    assert_eq!(bed.out.reason, Some(Reason::TooManyCopies));
    assert!(bed.out.sent.capacity() <= 2 * COPIES_MAX);
}

#[test]
fn a_controllers_frame_has_the_same_budget() {
    let mut bed = Bed::new(&settings(Lookup::Merged, 64));
    row(&mut bed, 26, &[]);
    let send = |group| {
        let actions = vec![Action::Group(group)];
        let message = PacketOut { actions, data: udp(1, 2, 9), in_port: 1, ..PacketOut::default() };
        Change::Send(Arc::new(message))
    };
    bed.apply(&send(26));
    assert_eq!((bed.out.sent.len(), bed.datapath.totals.over), (0, 1));
    bed.out.clear();
    bed.apply(&send(10));
    assert_eq!((bed.out.sent.len(), bed.datapath.totals.over), (1 << 10, 1));
}

#[test]
fn an_explanation_has_a_greatest_length() {
    let mut bed = Bed::new(&settings(Lookup::Merged, 64));
    row(&mut bed, 26, &[]);
    let mut key = Key::ZERO;
    key.set(Field::InPort, 1);
    let why = bed.datapath.why(&key);
    assert_eq!(why.outputs.len(), 256);
    assert!(why.outputs[255].starts_with("and more"), "{}", why.outputs[255]);
}

fn watching(port: u32, group: u32) -> Bucket {
    Bucket { weight: 0, watch_port: port, watch_group: group, actions: vec![output(2)] }
}

#[test]
fn a_chain_of_watched_groups_is_looked_at_once_after_a_change() {
    let mut bed = Bed::new(&settings(Lookup::Merged, 64));
    let any = reserved::ANY;
    bed.port(4, 0, 1);
    // Each group watches the next in 256 buckets; the last one watches a port that is down.
    bed.group(32, GroupType::FastFailover, vec![watching(4, any)]);
    for number in (1..32).rev() {
        bed.group(number, GroupType::FastFailover, vec![watching(any, number + 1); 256]);
    }
    bed.flow(1, 0, 1, &[], vec![Instruction::ApplyActions(vec![Action::Group(1)])]);
    assert_eq!(bed.ports(1, &udp(1, 2, 9)), []);
    bed.port(4, 0, 0);
    assert_eq!(bed.ports(1, &udp(1, 2, 9)), [2]);
    bed.apply(&Change::GroupGone(20));
    assert_eq!(bed.ports(1, &udp(1, 2, 9)), []);
    bed.group(20, GroupType::FastFailover, vec![watching(1, any)]);
    assert_eq!(bed.ports(1, &udp(1, 2, 9)), [2]);
}

/// Whether a group is live, found by walking. No chain of this test is longer than its groups.
fn lives(groups: &[Vec<Bucket>], down: u32, group: u32, depth: usize) -> bool {
    let Some(buckets) = groups.get(group as usize - 1) else { return false };
    depth <= groups.len()
        && buckets.iter().any(|bucket| {
            bucket.watch_port != down
                && (bucket.watch_group == reserved::ANY
                    || lives(groups, down, bucket.watch_group, depth + 1))
        })
}

#[test]
fn groups_are_live_as_a_walk_of_every_chain_says() {
    let mut rng = flowyard_frame::rng::Rng::new(3);
    let mut draw = move |below: u64| rng.below(below) as u32;
    for _ in 0..300 {
        let mut bed = Bed::new(&settings(Lookup::Merged, 64));
        let mut groups = Vec::new();
        for _ in 0..5 {
            let mut one = || match draw(3) {
                0 => watching(1 + draw(4), reserved::ANY),
                1 => watching(1 + draw(4), 1 + draw(6)),
                _ => watching(reserved::ANY, 1 + draw(6)),
            };
            groups.push((0..2).map(|_| one()).collect::<Vec<_>>());
        }
        for (number, buckets) in (1..).zip(&groups) {
            bed.group(number, GroupType::FastFailover, buckets.clone());
        }
        for down in 1..=4 {
            bed.port(down, 0, 1);
            bed.datapath.ready();
            for group in 1..=5 {
                let bucket = watching(reserved::ANY, group);
                let found = bed.datapath.world.is_live(&bucket);
                assert_eq!(found, lives(&groups, down, group, 0), "{groups:?} {down} {group}");
            }
            bed.port(down, 0, 0);
        }
    }
}

//! Chains of groups: what may refer to what, and that a group-mod costs time linear in buckets.

use super::*;
use crate::agent::chains::{CHAIN, WORK};

const MANY: Limits = Limits { tables: 1, flows: 8, groups: 1 << 16, meters: 1 };

fn many() -> Agent {
    let mut agent = Agent::new(1, MANY, 1);
    agent.connect(1, Version::V13);
    agent
}

/// A group-mod for a group whose buckets name these groups; a bucket with 0 is an output.
fn group(command: GroupCommand, kind: GroupType, number: u32, to: &[u32]) -> Message {
    let bucket = |to: &u32| {
        let action = match to {
            0 => Action::Output { port: 1, max_len: 0 },
            to => Action::Group(*to),
        };
        Bucket {
            weight: u16::from(kind == GroupType::Select),
            watch_port: if kind == GroupType::FastFailover { 1 } else { reserved::ANY },
            watch_group: crate::group::ANY,
            actions: vec![action],
        }
    };
    let buckets = to.iter().map(bucket).collect();
    Message::GroupMod(GroupMod { command, kind, group: number, buckets })
}

fn add_group(agent: &mut Agent, kind: GroupType, number: u32, to: &[u32]) -> Option<(u16, u16)> {
    refusal(agent, group(GroupCommand::Add, kind, number, to))
}

/// Groups in a row, each of which names the next in all of its buckets.
fn row(kind: GroupType, groups: u32, buckets: usize) -> (Vec<Option<(u16, u16)>>, u64) {
    let mut agent = many();
    let refused =
        (1..=groups).map(|number| add_group(&mut agent, kind, number, &vec![number - 1; buckets]));
    (refused.collect(), agent.chains.looked_at.get())
}

#[test]
fn s6_5_a_group_that_is_named_many_times_is_walked_once() {
    for (groups, buckets) in [(5, 256), (4, 1000), (32, 1024)] {
        let (refused, looked_at) = row(GroupType::Select, groups, buckets);
        assert!(refused.iter().all(Option::is_none), "{groups} groups of {buckets}");
        let all = u64::from(groups) * buckets as u64;
        assert!(looked_at <= 4 * all, "{looked_at} looks at {all} buckets");
        // A group of type all would make a copy for each bucket of each group below it.
        let (refused, looked_at) = row(GroupType::All, groups, buckets);
        assert_eq!(refused[0], None);
        assert_eq!(refused[1], code(problem::GROUP_OUT_OF_BUCKETS), "{groups} groups of {buckets}");
        assert!(looked_at <= 4 * all, "{looked_at} looks at {all} buckets");
    }
}

#[test]
fn s6_5_the_first_group_of_a_chain_that_costs_too_much_is_refused() {
    // Group n costs 2^(n+1) - 2 buckets.
    let (refused, _) = row(GroupType::All, 26, 2);
    let most = (1..).take_while(|n| (1_u32 << (n + 1)) - 2 <= WORK).count();
    assert_eq!(refused.iter().take_while(|refused| refused.is_none()).count(), most);
    assert_eq!(refused[most], code(problem::GROUP_OUT_OF_BUCKETS));
}

#[test]
fn s6_5_a_chain_has_a_greatest_length_and_a_modified_group_lengthens_those_above_it() {
    let (refused, _) = row(GroupType::Indirect, CHAIN + 2, 1);
    assert!(refused[..=CHAIN as usize].iter().all(Option::is_none));
    assert_eq!(refused[CHAIN as usize + 1], code(problem::GROUP_LOOP));

    let mut agent = many();
    for number in 1..=CHAIN {
        assert_eq!(add_group(&mut agent, GroupType::Indirect, number, &[number - 1]), None);
        let other = 100 + number;
        let below = if number == 1 { 0 } else { other - 1 };
        assert_eq!(add_group(&mut agent, GroupType::Indirect, other, &[below]), None);
    }
    let change = |agent: &mut Agent, number, to: &[u32]| {
        refusal(agent, group(GroupCommand::Modify, GroupType::All, number, to))
    };
    assert_eq!(change(&mut agent, 1, &[100 + CHAIN]), code(problem::GROUP_LOOP));
    assert_eq!(change(&mut agent, 1, &[101]), None);
    assert_eq!(change(&mut agent, 1, &[102]), code(problem::GROUP_LOOP));
    // The groups above have the cost of the changed one.
    assert_eq!(change(&mut agent, 1, &[0; WORK as usize / 4]), None);
    assert_eq!(change(&mut agent, 101, &[0; 512]), None);
    assert_eq!(change(&mut agent, 102, &[101; 4]), None);
    assert_eq!(change(&mut agent, 101, &[0; 1024]), code(problem::GROUP_OUT_OF_BUCKETS));
}

#[test]
fn s6_5_all_groups_together_have_a_greatest_number_of_buckets() {
    let mut agent = many();
    for number in 1..=128 {
        assert_eq!(add_group(&mut agent, GroupType::All, number, &[0; 1024]), None);
    }
    assert_eq!(
        add_group(&mut agent, GroupType::All, 200, &[0]),
        code(problem::GROUP_OUT_OF_BUCKETS)
    );
    let delete = group(GroupCommand::Delete, GroupType::All, 7, &[]);
    assert_eq!(refusal(&mut agent, delete), None);
    assert_eq!(add_group(&mut agent, GroupType::All, 200, &[0; 1024]), None);
}

/// The depth and the number of buckets of a group, found by walking every chain; `None` if a chain
/// leads to a loop.
fn walked(agent: &Agent, number: u32, depth: u32) -> Option<(u32, u64)> {
    if depth > 7 {
        return None;
    }
    let desc = &agent.groups[&number].group.desc;
    let (mut deep, mut all, mut most) = (0, 0, 0);
    for bucket in &desc.buckets {
        let below = match bucket.actions[0] {
            Action::Group(to) => {
                let (more, buckets) = walked(agent, to, depth + 1)?;
                deep = deep.max(more + 1);
                buckets
            }
            _ => 0,
        };
        (all, most) = (all + below + 1, most.max(below + 1));
    }
    Some((deep, if desc.kind == GroupType::All { all } else { most }))
}

#[test]
fn s6_5_random_changes_of_groups_keep_every_chain_within_its_limits() {
    let mut rng = flowyard_frame::rng::Rng::new(5);
    let mut draw = move |below: u64| rng.below(below);
    let mut agent = many();
    let (mut taken, mut loops, mut costly) = (0, 0, 0);
    for _ in 0..800 {
        let number = 1 + draw(7) as u32;
        let kind = [GroupType::All, GroupType::Select][usize::from(draw(8) == 0)];
        let is_row = draw(4) != 0;
        let buckets = if is_row { 5 } else { 1 + draw(5) as usize };
        let to: Vec<u32> = (0..buckets)
            .map(|_| if is_row { number - 1 } else { draw(14) as u32 })
            .map(|to| if agent.groups.contains_key(&to) { to } else { 0 })
            .collect();
        let is_there = agent.groups.contains_key(&number);
        let command = match draw(12) {
            0 => GroupCommand::Delete,
            _ if is_there => GroupCommand::Modify,
            _ => GroupCommand::Add,
        };
        let before = agent.groups.clone();
        let refused = refusal(&mut agent, group(command, kind, number, &to));
        if command != GroupCommand::Delete {
            // What a walk of every chain would say of the change.
            let mut model = many();
            model.groups = before;
            let counts = counts(1);
            let Message::GroupMod(m) = group(command, kind, number, &to) else { unreachable!() };
            let desc = crate::multipart::GroupDesc { kind, group: number, buckets: m.buckets };
            let new = crate::change::Group { desc, counts: Arc::clone(&counts), buckets: counts };
            model.groups.insert(number, GroupState { group: Arc::new(new), since: 0 });
            let all: Option<Vec<_>> =
                model.groups.keys().map(|number| walked(&model, *number, 0)).collect();
            let expected = match all {
                None => code(problem::GROUP_LOOP),
                Some(all) if all.iter().any(|(_, buckets)| *buckets > WORK.into()) => {
                    code(problem::GROUP_OUT_OF_BUCKETS)
                }
                Some(_) => None,
            };
            assert_eq!(refused, expected);
        }
        taken += u32::from(refused.is_none());
        loops += u32::from(refused == code(problem::GROUP_LOOP));
        costly += u32::from(refused == code(problem::GROUP_OUT_OF_BUCKETS));
    }
    assert!(taken > 300 && loops > 30 && costly > 0, "{taken} {loops} {costly}");
}

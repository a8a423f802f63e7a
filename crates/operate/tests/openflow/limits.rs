//! What a controller can make the agent do and store is limited, and other controllers are served meanwhile.

use flowyard_openflow::act::Action;
use flowyard_openflow::group::{Bucket, GroupCommand, GroupMod, GroupType};

use super::*;

flowyard_testkit::tests! {
    groups_with_a_thousand_buckets_that_name_each_other_do_not_keep_the_agent_busy,
}

/// A group all of whose buckets name another one, or a port if that is 0.
fn group(kind: GroupType, number: u32, to: u32) -> Message {
    let action = match to {
        0 => Action::Output { port: 1, max_len: 0 },
        to => Action::Group(to),
    };
    let bucket = Bucket {
        weight: u16::from(kind == GroupType::Select),
        watch_port: reserved::ANY,
        watch_group: flowyard_openflow::group::ANY,
        actions: vec![action],
    };
    let (command, buckets) = (GroupCommand::Add, vec![bucket; 1000]);
    Message::GroupMod(GroupMod { command, kind, group: number, buckets })
}

fn groups_with_a_thousand_buckets_that_name_each_other_do_not_keep_the_agent_busy() {
    let switch = switch(listening(), true);
    let (mut one, mut other) = (Controller::dial(&switch), Controller::dial(&switch));
    for number in 1..=4 {
        one.say(number, &group(GroupType::Select, number, number - 1));
        // The first group costs as much as it has buckets; each further one would cost a thousand times as much.
        one.say(
            10 + number,
            &group(GroupType::All, 10 + number, if number == 1 { 0 } else { 9 + number }),
        );
    }
    other.barrier(7);
    one.say(20, &Message::BarrierRequest);
    let mut refused = Vec::new();
    while let Some((xid, message)) = one.message() {
        match message {
            Message::BarrierReply => break,
            Message::Error(error) => refused.push((xid, error.kind, error.code)),
            _ => {}
        }
    }
    let named = |at: u32| {
        lock(&switch.applied)
            .iter()
            .filter(|(_, change)| {
                matches!(change,
        Change::Group(group) if group.desc.group == at)
            })
            .count()
    };
    assert_eq!([1, 2, 3, 4, 11, 12].map(named), [1, 1, 1, 1, 1, 0]);
    // Too many buckets; then groups that name one which does not exist.
    assert_eq!(refused, [(12, 6, 4), (13, 2, 9), (14, 2, 9)]);
}

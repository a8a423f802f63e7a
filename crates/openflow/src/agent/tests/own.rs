//! Tests of the switch's own flow entries.

use super::channel::with_ports;
use super::*;
use crate::change::Place;

/// Without a controller, an operator's flows answer, and `NORMAL` handles what they do not match.
#[test]
fn standalone_mode_without_controllers_is_below_the_flows_and_listed_on_request() {
    let mut agent = with_ports();
    agent.drain();
    agent.standalone(Standalone::Unmatched, SECOND);
    let to = |changes: Vec<(u64, Change)>| -> Vec<Option<u32>> {
        let port = |(_, change): (u64, Change)| match change {
            Change::Own(Place::Below, entry) => entry.map(|entry| match &entry.instructions[0] {
                Instruction::ApplyActions(list) => match list[..] {
                    [Action::Output { port, .. }] => port,
                    _ => panic!("{list:?}"),
                },
                other => panic!("{other:?}"),
            }),
            other => panic!("{other:?}"),
        };
        changes.into_iter().map(port).collect()
    };
    assert_eq!(to(agent.drain()), [Some(reserved::NORMAL)]);
    // It is listed only for its cookie, and never counts as a flow.
    let filter = FlowFilter {
        table: crate::table::ALL,
        out_port: reserved::ANY,
        out_group: crate::group::ANY,
        ..FlowFilter::default()
    };
    let own = FlowFilter { cookie: u64::MAX, cookie_mask: u64::MAX, ..filter.clone() };
    let mut listed = |filter: &FlowFilter| {
        let body = Request::Flow(filter.clone());
        let said = ask(&mut agent, &Message::MultipartRequest { more: false, body }, 3 * SECOND);
        match &said[..] {
            [Message::MultipartReply { body: Reply::Flow(flows), .. }] => flows.clone(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(listed(&filter), []);
    let flows = listed(&own);
    assert_eq!((flows.len(), flows[0].priority, flows[0].duration_sec), (1, 0, 2));
    assert_eq!(listed(&FlowFilter { table: 1, ..own }), []);
    // A controller of 1.0 gets these frames while it is connected.
    agent.connect(2, Version::V10);
    assert_eq!(to(agent.drain()), [Some(reserved::CONTROLLER)]);
    agent.disconnect(2);
    assert_eq!(to(agent.drain()), [Some(reserved::NORMAL)]);
    agent.standalone(Standalone::Off, 0);
    assert_eq!(to(agent.drain()), [None]);
}

//! The checker against a model: the whole history in a list, searched for every frame.

use flowyard_testkit::{Checker, Violation};
use proptest::prelude::*;

/// A frame of a flow enters, one with this number leaves, or one is dropped.
#[derive(Clone, Copy, Debug)]
enum Event {
    Enter(u64),
    Leave(u64, u64),
    Drop,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0..3_u64).prop_map(Event::Enter),
        6 => (0..3_u64, 0..6_u64).prop_map(|(flow, seq)| Event::Leave(flow, seq)),
        1 => Just(Event::Drop),
    ]
}

/// The first violation that the list of events shows, conservation last.
fn model(events: &[Event], any_order: bool, held: u64) -> Option<Violation> {
    let entered_of = |events: &[Event], flow| {
        events.iter().filter(|event| matches!(event, Event::Enter(f) if *f == flow)).count() as u64
    };
    for (now, event) in events.iter().enumerate() {
        let Event::Leave(flow, seq) = *event else { continue };
        let before = &events[..now];
        let entered = entered_of(before, flow);
        let left = before.iter().filter_map(|event| match *event {
            Event::Leave(f, s) if f == flow => Some(s),
            _ => None,
        });
        let left: Vec<u64> = left.collect();
        if seq >= entered {
            return Some(Violation::Unknown { flow, seq, entered });
        }
        if left.contains(&seq) {
            return Some(Violation::Twice { flow, seq });
        }
        match left.iter().max() {
            Some(&after) if after > seq && !any_order => {
                return Some(Violation::Order { flow, seq, after });
            }
            _ => {}
        }
    }
    let count = |of: fn(&Event) -> bool| events.iter().filter(|event| of(event)).count() as u64;
    let entered = count(|event| matches!(event, Event::Enter(_)));
    let left = count(|event| matches!(event, Event::Leave(..)));
    let dropped = count(|event| matches!(event, Event::Drop));
    let conserved = entered == left + dropped + held;
    (!conserved).then_some(Violation::Conservation { entered, copied: 0, left, dropped, held })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_checker_agrees_with_the_whole_history(
        events in prop::collection::vec(event(), 0..30), any_order: bool, held in 0..8_u64,
    ) {
        let mut checker = if any_order { Checker::any_order() } else { Checker::new() };
        for event in &events {
            match *event {
                Event::Enter(flow) => drop(checker.enter(flow)),
                Event::Leave(flow, seq) => checker.leave(flow, seq),
                Event::Drop => checker.drop("any"),
            }
        }
        prop_assert_eq!(checker.finish(held).err(), model(&events, any_order, held));
    }
}

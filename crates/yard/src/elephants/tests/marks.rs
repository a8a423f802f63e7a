//! Promoted flows are offered to adapters, named to the cores, and withdrawn.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::*;
use crate::elephants::marks::Marks;
use crate::front::{AFTER, Entry, Front};

/// A front whose first port has an adapter.
#[derive(Debug, Default)]
struct Adapter(Mutex<Flows>);

#[derive(Debug, Default)]
struct Flows {
    next: u32,
    there: BTreeMap<u32, Entry>,
    freed: Vec<u32>,
    /// The generation of the user's entries, if they leave the flow free.
    generation: Option<u8>,
}

impl Adapter {
    fn with(generation: Option<u8>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Flows { generation, ..Flows::default() })))
    }

    fn set(&self, generation: Option<u8>) {
        self.0.lock().unwrap().generation = generation;
    }

    fn there(&self) -> Vec<u32> {
        self.0.lock().unwrap().there.keys().copied().collect()
    }
}

impl Front for Adapter {
    fn reaches(&self, port: u16) -> bool {
        port == 0
    }

    fn put(&self, entries: &[Entry], _now: Nanos) -> Option<u32> {
        let mut flows = self.0.lock().unwrap();
        flows.next += 1;
        let number = flows.next;
        flows.there.insert(number, entries[0]);
        Some(number)
    }

    fn remove(&self, flow: u32) {
        assert!(self.0.lock().unwrap().there.remove(&flow).is_some(), "{flow}");
    }

    fn free(&self, flow: u32) {
        self.0.lock().unwrap().freed.push(flow);
    }

    fn answers(&self) -> bool {
        false
    }

    fn uncontested(&self, key: &FlowKey) -> Option<u8> {
        assert_eq!(*key, flow().key);
        self.0.lock().unwrap().generation
    }
}

/// What messages name: number and generation.
fn named(messages: &[Message]) -> Vec<(u32, Option<u8>)> {
    let one = |message: &Message| match message {
        Message::Name { number, flow: named } => {
            assert!(named.is_none_or(|named| named.key == flow().key && named.number == *number));
            Some((*number, named.map(|named| named.generation)))
        }
        _ => None,
    };
    messages.iter().filter_map(one).collect()
}

#[test]
fn a_promoted_flow_is_named_behind_its_entry() {
    let (config, adapter) = (config(), Adapter::with(Some(3)));
    let (mut decider, mut counters) = (decider(&config), Counters::default());
    decider.set_marks(Arc::clone(&adapter) as _, 2);
    decider.take(report(0, 0, true));
    decider.take(report(1, 0, false));
    decider.decide(WINDOW, &mut counters, &mut |_| false);
    let sent: Vec<_> =
        decider.unsent.iter().map(|(core, message)| (*core, message.clone())).collect();
    let [
        (0, Message::Promote(Edit::Put(key, action))),
        (0, Message::Name { number, flow: Some(named) }),
    ] = &sent[..]
    else {
        panic!("{sent:?}")
    };
    assert_eq!(
        (named.key, named.action, named.number, named.generation),
        (*key, *action, *number, 3)
    );
    let entry = adapter.0.lock().unwrap().there[number];
    assert_eq!(
        (entry.key.flow(), entry.key.in_port),
        (*key, 0),
        "only of the port with an adapter"
    );
}

#[test]
fn a_demoted_flow_is_removed_and_its_number_freed_later() {
    let adapter = Adapter::with(Some(3));
    let mut marks = Marks::new(Arc::clone(&adapter) as _, 2);
    let action = flowyard_frame::Action::queue(2);
    assert_eq!(named(&marks.promoted(flow().key, action, 0)), [(1, Some(3))]);
    marks.demoted(&flow().key, 5);
    assert_eq!(adapter.there(), []);
    marks.free(5 + AFTER);
    assert_eq!(adapter.0.lock().unwrap().freed, []);
    marks.free(6 + AFTER);
    assert_eq!(adapter.0.lock().unwrap().freed, [1]);
    assert_eq!(named(&marks.reloaded(7)), [], "it is forgotten");
}

#[test]
fn after_a_reload_a_flow_is_named_again_unless_an_entry_of_the_user_matches_it() {
    let adapter = Adapter::with(None);
    let mut marks = Marks::new(Arc::clone(&adapter) as _, 2);
    let action = flowyard_frame::Action::queue(2);
    assert_eq!(named(&marks.promoted(flow().key, action, 0)), [], "an entry matches it");
    assert_eq!(adapter.there(), []);
    adapter.set(Some(4));
    assert_eq!(named(&marks.reloaded(1)), [(1, Some(4))]);
    adapter.set(Some(5));
    assert_eq!(named(&marks.reloaded(2)), [(1, Some(5))], "with the rule that it has");
    adapter.set(None);
    assert_eq!(named(&marks.reloaded(3)), [(1, None)]);
    assert_eq!(adapter.there(), []);
    adapter.set(Some(7));
    assert_eq!(named(&marks.reloaded(4)), [(2, Some(7))]);
}

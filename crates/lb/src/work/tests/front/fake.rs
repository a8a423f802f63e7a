//! A front for tests.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use flowyard_frame::Nanos;
use flowyard_yard::front::{Entry, Front, Seen};

/// A front that answers nothing by itself: the test says what it has seen.
#[derive(Debug, Default)]
pub(super) struct Fake(Mutex<Flows>);

#[derive(Debug, Default)]
pub(super) struct Flows {
    next: u32,
    /// Whether it refuses new flows.
    pub(super) is_full: bool,
    pub(super) there: BTreeMap<u32, Vec<Entry>>,
    pub(super) seen: BTreeMap<u32, [Seen; 2]>,
    /// Flows that were removed and not freed yet, and those that were freed.
    pub(super) removed: Vec<u32>,
    pub(super) freed: Vec<u32>,
    /// How often a flow was offered.
    pub(super) offers: usize,
}

impl Fake {
    pub(super) fn flows(&self) -> MutexGuard<'_, Flows> {
        self.0.lock().expect("no test panics while it holds the lock")
    }

    /// The front answers packets of an entry.
    pub(super) fn answers(&self, flow: u32, entry: usize, packets: u64, bytes: u64, now: Nanos) {
        let mut flows = self.flows();
        let seen = &mut flows.seen.get_mut(&flow).expect("a flow that was put")[entry];
        *seen = Seen { packets: seen.packets + packets, bytes: seen.bytes + bytes, last: now };
    }

    pub(super) fn numbers(&self) -> Vec<u32> {
        self.flows().there.keys().copied().collect()
    }

    /// The entries of the flow that was put last.
    pub(super) fn last(&self) -> Vec<Entry> {
        self.flows().there.last_key_value().expect("a flow").1.clone()
    }
}

impl Front for Fake {
    fn reaches(&self, _port: u16) -> bool {
        true
    }

    fn put(&self, entries: &[Entry], _now: Nanos) -> Option<u32> {
        let mut flows = self.flows();
        flows.offers += 1;
        if flows.is_full {
            return None;
        }
        flows.next += 1;
        let number = flows.next;
        flows.there.insert(number, entries.to_vec());
        flows.seen.insert(number, Default::default());
        Some(number)
    }

    fn remove(&self, flow: u32) {
        let mut flows = self.flows();
        if flows.there.remove(&flow).is_some() {
            flows.removed.push(flow);
        }
        assert!(flows.removed.contains(&flow), "flow {flow} was never put, or is freed");
    }

    fn seen(&self, flow: u32, entry: usize) -> Seen {
        self.flows().seen.get(&flow).expect("the number of a freed flow is not used")[entry]
    }

    /// What is answered is counted at once.
    fn settle(&self) {}

    fn free(&self, flow: u32) {
        let mut flows = self.flows();
        let at = flows.removed.iter().position(|one| *one == flow);
        flows.removed.remove(at.expect("only a removed flow is freed"));
        flows.seen.remove(&flow);
        flows.freed.push(flow);
    }

    fn passed(&self, _port: u16, _core: u16) -> Option<u64> {
        None
    }

    fn time(&self) -> u64 {
        0
    }

    fn drained(&self, _time: u64) {}
}

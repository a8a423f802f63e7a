//! What crafted flows cost the learners, in buckets that are read: never in time.
//!
//! The adversary knows the program and takes the secret for the fixed one. He computes flows that share a
//! bucket and a tag of a learner's index.

use std::net::Ipv4Addr;

use flowyard_frame::{Action, Batch, Edit, FlowKey, Frame, Lanes, proto};

use super::*;
use crate::Secret;
use crate::table::Exact;
use crate::table::exact::READS;

/// Flows that a learner has room for; its index has 128 buckets of 8 places.
const ENTRIES: usize = 512;
/// Flows of the adversary: more than two buckets hold.
const CRAFTED: usize = 24;

/// Flow `n` of a sender who chooses addresses and ports.
fn flow(n: u32) -> FlowKey {
    let [src, dst] = [0x0a00_0000 + (n >> 12), 0xc000_0201].map(Ipv4Addr::from_bits);
    let key =
        FlowKey::five_tuple(proto::TCP, src.into(), 1024 + (n & 0xfff) as u16, dst.into(), 80);
    key.flow()
}

/// A learner, and how it learns a received flow: the number of edits.
trait Subject {
    fn new(secret: Secret) -> Self;
    fn learn(&mut self, flow: &FlowKey) -> usize;
    fn len(&self) -> usize;
}

impl Subject for Atr {
    fn new(secret: Secret) -> Self {
        let settings = atr::Settings { entries: ENTRIES, ..atr::Settings::default() };
        Self::new(1, settings, secret.key("atr"))
    }

    fn learn(&mut self, flow: &FlowKey) -> usize {
        let mut edits = Vec::new();
        let sent = FlowKey { tcp_flags: FlowKey::SYN, ..flow.reversed() };
        self.transmitted(0, &sent, 0, &mut edits);
        edits.len()
    }

    fn len(&self) -> usize {
        self.len()
    }
}

impl Subject for Rfs {
    fn new(secret: Secret) -> Self {
        let settings = rfs::Settings { entries: ENTRIES, ..rfs::Settings::default() };
        Self::new(settings, secret.key("rfs"))
    }

    fn learn(&mut self, flow: &FlowKey) -> usize {
        let mut edits = Vec::new();
        self.consumed(0, flow, 0, &mut edits);
        edits.len()
    }

    fn len(&self) -> usize {
        self.len()
    }
}

impl Subject for Cache {
    fn new(secret: Secret) -> Self {
        let settings = cache::Settings { entries: ENTRIES, ..cache::Settings::default() };
        Self::new(settings, &FlowKey::FLOW, secret.key("cache"))
    }

    fn learn(&mut self, flow: &FlowKey) -> usize {
        let (mut batch, mut edits) = (Batch::default(), Vec::new());
        let lane = batch.push(Frame::unbacked(60), *flow).unwrap();
        batch.actions[lane] = Action::queue(0);
        self.observe(0, &batch, Lanes(1), 0, &mut edits);
        edits.iter().filter(|edit| matches!(edit, Edit::Put(..))).count()
    }

    fn len(&self) -> usize {
        self.len()
    }
}

/// The exact table into which learnt flows are put.
impl Subject for Exact {
    fn new(secret: Secret) -> Self {
        Self::new(ENTRIES, &FlowKey::FLOW, secret.key("learnt"))
    }

    fn learn(&mut self, flow: &FlowKey) -> usize {
        self.put(flow, Action::queue(0)).is_ok().into()
    }

    fn len(&self) -> usize {
        self.len()
    }
}

/// Flows with one bucket and one tag under the fixed secret.
fn crafted() -> Vec<FlowKey> {
    let index = Exact::new(ENTRIES, &FlowKey::FLOW, Secret::FIXED.key("any"));
    let wanted = index.spot(&flow(0));
    (0..).map(flow).filter(|flow| index.spot(flow) == wanted).take(CRAFTED).collect()
}

/// The buckets that are read when each of these flows is learnt.
fn costs<L: Subject>(learner: &mut L, flows: &[FlowKey]) -> Vec<u64> {
    let cost = |flow: &FlowKey| {
        let before = READS.get();
        learner.learn(flow);
        READS.get() - before
    };
    flows.iter().map(cost).collect()
}

fn mean(costs: &[u64]) -> f64 {
    costs.iter().sum::<u64>() as f64 / costs.len() as f64
}

fn median(mut costs: Vec<u64>) -> f64 {
    costs.sort_unstable();
    costs[costs.len() / 2] as f64
}

fn check<L: Subject>(name: &str, crafted: &[FlowKey]) {
    let usual: Vec<_> = (1_000_000..).map(flow).take(ENTRIES / 2).collect();
    let mut known = L::new(Secret::FIXED);
    let middle = median(costs(&mut known, &usual));
    let all = costs(&mut known, crafted);
    assert!(
        mean(&all) > 2.0 * middle,
        "{name}: the flows are crafted well: {all:?}, usual {middle}"
    );
    for byte in 2..40 {
        let mut learner = L::new(Secret::drawn([byte; 16]));
        let middle = median(costs(&mut learner, &usual));
        let before = learner.len();
        for round in 0..10 {
            let all = costs(&mut learner, crafted);
            assert!(
                mean(&all) <= 2.0 * middle,
                "{name}, secret {byte}, round {round}: {all:?}, usual {middle}"
            );
        }
        assert_eq!(learner.len() - before, CRAFTED, "{name}, secret {byte}: all are learnt");
    }
}

#[test]
fn without_the_secret_crafted_flows_cost_learners_what_others_cost() {
    let crafted = crafted();
    check::<Atr>("atr", &crafted);
    check::<Rfs>("rfs", &crafted);
    check::<Cache>("cache", &crafted);
    check::<Exact>("learnt entries", &crafted);
}

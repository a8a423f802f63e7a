//! What an adversary can make an insertion cost, in buckets that are read: never in time.

use std::cell::Cell;
use std::net::Ipv4Addr;

use flowyard_frame::{FlowKey, proto};

use super::*;
use crate::Secret;
use crate::mix::{Mix, words};

/// An index that counts how often the tags of a bucket are read.
struct Counted {
    tags: Vec<Tags>,
    spilled: Vec<u32>,
    reads: Cell<u64>,
}

impl Buckets for Counted {
    fn count(&self) -> usize {
        self.tags.len()
    }

    fn tags(&self, bucket: usize) -> &Tags {
        self.reads.set(self.reads.get() + 1);
        &self.tags[bucket]
    }

    fn tags_mut(&mut self, bucket: usize) -> &mut Tags {
        &mut self.tags[bucket]
    }

    fn spilled(&self, bucket: usize) -> u32 {
        self.spilled[bucket]
    }

    fn spilled_mut(&mut self, bucket: usize) -> &mut u32 {
        &mut self.spilled[bucket]
    }

    fn relocate(&mut self, _: Place, _: Place) {}
}

const BUCKETS: usize = 64;

fn index() -> Cuckoo<Counted> {
    let (tags, spilled) = (vec![Tags::default(); BUCKETS], vec![0; BUCKETS]);
    Cuckoo::new(Counted { tags, spilled, reads: Cell::new(0) })
}

/// Flow `n` of an adversary who chooses his addresses and ports.
fn flow(n: u32) -> FlowKey {
    let [src, dst] = [0x0a00_0000 + (n >> 12), 0xc000_0201].map(Ipv4Addr::from_bits);
    FlowKey::five_tuple(proto::TCP, src.into(), 1024 + (n & 0xfff) as u16, dst.into(), 80)
}

fn hash(mix: &Mix, flow: &FlowKey) -> u64 {
    mix.slim(&words(flow).0)
}

/// 24 flows with one bucket and one tag, computed by an adversary who knows the key.
fn crafted(key: u64) -> Vec<FlowKey> {
    let (mix, index) = (Mix::new(key), index());
    let spot = |flow: &FlowKey| (index.first(hash(&mix, flow)), tag(hash(&mix, flow)));
    let wanted = spot(&flow(0));
    (0..).map(flow).filter(|flow| spot(flow) == wanted).take(24).collect()
}

/// The buckets read for a packet of a flow: by its lookup, and by its insertion if it has no entry.
fn cost(index: &mut Cuckoo<Counted>, hash: u64) -> u64 {
    let before = index.buckets().reads.get();
    if index.find(hash, |_, _| false).is_none() {
        index.insert(hash);
    }
    index.buckets().reads.get() - before
}

fn median(mut costs: Vec<u64>) -> u64 {
    costs.sort_unstable();
    costs[costs.len() / 2]
}

#[test]
fn who_knows_the_key_cannot_exceed_the_bound() {
    let (mix, flows) = (Mix::new(1), crafted(1));
    for others in [0, 100, BUCKETS * WAYS] {
        let mut index = index();
        (1_000_000..).map(flow).take(others).for_each(|flow| {
            index.insert(hash(&mix, &flow));
        });
        for flow in flows.iter().cycle().take(1000) {
            let before = index.buckets().reads.get();
            index.insert(hash(&mix, flow));
            let reads = index.buckets().reads.get() - before;
            // The buckets themselves are read twice, and each of the sixteen that are looked into.
            assert!(reads <= 2 + u64::from(LOOKS) + 4 + 16, "{reads} buckets read");
        }
        index.check();
    }
}

#[test]
fn crafted_flows_cost_what_others_cost_under_a_secret() {
    let flows = crafted(1);
    for byte in 0..50 {
        let mix = Mix::new(Secret::drawn([byte; 16]).key("connections"));
        let mut index = index();
        let usual = (1_000_000..).map(flow).take(BUCKETS * WAYS / 2);
        let usual: Vec<u64> = usual.map(|flow| cost(&mut index, hash(&mix, &flow))).collect();
        let spread: std::collections::BTreeSet<_> =
            flows.iter().map(|flow| index.first(hash(&mix, flow))).collect();
        assert!(spread.len() > 10, "secret {byte}: 24 flows in {} buckets", spread.len());
        let all: u64 = flows.iter().map(|flow| cost(&mut index, hash(&mix, flow))).sum();
        let (mean, median) = (all as f64 / 24.0, median(usual) as f64);
        assert!(mean <= 2.0 * median, "secret {byte}: {mean} buckets for a packet, usual {median}");
    }
}

#[test]
fn an_entry_moves_for_another_and_both_are_found() {
    let mix = Mix::new(5);
    let mut index = index();
    let all: Vec<u64> =
        (0..(BUCKETS * WAYS) as u32 * 8 / 10).map(|n| hash(&mix, &flow(n))).collect();
    for hash in &all {
        assert!(index.insert(*hash).is_some());
    }
    index.check();
    assert!(all.iter().all(|hash| index.candidate(*hash).is_some()));
}

//! The cost of a lookup in the rules, in nanoseconds per packet, with 1, 16 and 64 masks and 8,192 flows.
//!
//! ```text
//! cargo bench -p flowyard-flow --bench wildcard
//! ```
//!
//! `flat` has one priority: a lane with an answer must still look up every tuple that has a rule added
//! earlier. `steep` has one priority for each mask: a lane stops at the first answer. `miss` matches
//! nothing, and looks up all tuples. `linear` is the list that the wildcard table replaces, `cached` the
//! exact table in front.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::hint::black_box;
use std::time::Instant;

use flowyard_flow::Table;
use flowyard_flow::table::{Exact, Linear, Rule, Wildcard};
use flowyard_frame::{Action, Batch, FlowKey, LANES, Rng};
use flowyard_testkit::batch;

const FLOWS: u32 = 8192;

/// Flow `n`: UDP from adjacent hosts and sequential ports to one server.
fn flow(n: u32) -> FlowKey {
    let [src, dst] = [0x0a00_0000 + (n >> 12), 0x0a80_0001].map(std::net::Ipv4Addr::from_bits);
    FlowKey::five_tuple(17, src.into(), 1024 + (n & 4095) as u16, dst.into(), 11211)
}

/// Mask `m` of 64: source and destination prefixes of different lengths, and the ports.
fn mask(m: u32) -> FlowKey {
    let mut mask = FlowKey { sport: 0xffff, proto: 0xff, eth_type: 0xffff, ..FlowKey::ZERO };
    mask.src[..4].copy_from_slice(&(u32::MAX << (m % 8)).to_be_bytes());
    mask.dst[..4].copy_from_slice(&(u32::MAX << (m / 8)).to_be_bytes());
    mask
}

/// The rule of flow `n`, under one of `masks` masks.
fn rule(n: u32, masks: u32, steep: bool) -> Rule {
    let m = n % masks;
    let priority = if steep { (masks - m) as u16 } else { 0 };
    let action = Action::queue(n as u16 & 15);
    Rule { key: flow(n).masked(&mask(m)), mask: mask(m), priority, action }
}

/// Batches of all flows, shuffled; with `miss`, of frames to other destinations that match no rule.
fn batches(miss: bool) -> Vec<Batch> {
    let mut order: Vec<_> = (0..FLOWS).collect();
    let mut random = Rng::new(1);
    for i in (1..order.len()).rev() {
        order.swap(i, random.below(i as u64 + 1) as usize);
    }
    let key = |&n: &u32| {
        let mut key = flow(n);
        key.dst[0] += u8::from(miss);
        key
    };
    order.chunks(LANES).map(|numbers| batch(numbers.iter().map(key))).collect()
}

/// Median nanoseconds per packet of `rounds` rounds over all batches. Each sample is short, so that most
/// lie within one time slice of a busy machine.
fn time(table: &mut dyn Table, batches: &mut [Batch], rounds: usize) -> f64 {
    let mut times = Vec::new();
    for _ in 0..rounds {
        for some in batches.chunks_mut(16) {
            let start = Instant::now();
            for batch in &mut *some {
                let all = batch.lanes();
                black_box(table.lookup(black_box(batch), all));
            }
            times.push(start.elapsed().as_nanos() as f64 / (some.len() * LANES) as f64);
        }
    }
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let (mut hits, mut misses) = (batches(false), batches(true));
    let mut exact = Exact::new(FLOWS as usize, &FlowKey::FLOW, 1);
    (0..FLOWS).for_each(|n| exact.put(&flow(n), Action::queue(1)).unwrap());
    let cached = time(&mut exact, &mut hits, 101);
    println!("8192 flows, a rule for each; ns per packet, median of 101 (linear: of 1)\n");
    println!("masks    flat   steep    miss  linear  cached   put");
    for masks in [1, 16, 64] {
        let mut times = Vec::new();
        let mut put = 0.0;
        for steep in [false, true] {
            let mut table = Wildcard::new(FLOWS as usize, 64, 1);
            let start = Instant::now();
            (0..FLOWS).for_each(|n| table.put(&rule(n, masks, steep)).unwrap());
            put = start.elapsed().as_nanos() as f64 / f64::from(FLOWS);
            assert_eq!(table.masks(), masks as usize);
            times.push(time(&mut table, &mut hits, 101));
            if steep {
                times.push(time(&mut table, &mut misses, 101));
            }
        }
        let mut linear = Linear::new(FLOWS as usize);
        (0..FLOWS).for_each(|n| linear.put(&rule(n, masks, false)).unwrap());
        let slow = time(&mut linear, &mut hits[..4], 1);
        let [flat, steep, miss] = times[..] else { return };
        println!(
            "{masks:>5} {flat:>7.1} {steep:>7.1} {miss:>7.1} {slow:>7.0} {cached:>7.1} {put:>5.0}"
        );
    }
}

//! The cost of finding large flows: samples against counting every frame, in nanoseconds per packet.
//!
//! ```text
//! cargo bench -p flowyard-flow --bench elephant
//! ```
//!
//! Paired rounds: each round runs every variant once over the same batches. Every variant first reads
//! each handle and key, because in the engine the parser has just written them. A variant that only
//! reads them runs too; printed are the lower quartile and the median of the difference to it.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::collections::HashMap;
use std::hint::black_box;
use std::time::Instant;

use flowyard_flow::learn::elephant::{Sampler, Seen};
use flowyard_frame::{Batch, FlowKey, Frame, LANES};
use flowyard_testkit::{Popularity, Profile, Traffic};

/// Number of batches of each mix.
const BATCHES: usize = 4096;

/// Batches of this traffic, with keys and lengths only.
fn batches(flows: u32, popularity: Popularity) -> Vec<Batch> {
    let profile = Profile { flows, popularity, exchanges: 0, ..Profile::default() };
    let mut traffic = Traffic::new(profile, 1);
    let mut bytes = Vec::new();
    let mut batch = || {
        let mut batch = Batch::default();
        for _ in 0..LANES {
            let packet = traffic.next_into(&mut bytes);
            let mut frame = Frame::unbacked(bytes.len() as u16);
            frame.hash = packet.slot.wrapping_mul(0x9e37_79b1);
            let _ = batch.push(frame, packet.key);
        }
        batch
    };
    (0..BATCHES).map(|_| batch()).collect()
}

/// Reads handles and keys.
fn touch(batch: &Batch) {
    let read =
        |sum: u32, lane: usize| sum ^ batch.frames[lane].hash ^ u32::from(batch.keys[lane].sport);
    black_box(batch.lanes().fold(0, read));
}

fn main() {
    let mixes = [
        ("Zipf 1.0, 200,000 slots", 200_000, Popularity::Zipf(1.0)),
        ("Zipf 1.1, 1 M slots", 1 << 20, Popularity::Zipf(1.1)),
        ("uniform, 1 M slots", 1 << 20, Popularity::Uniform),
    ];
    println!("{:<28} {:<10} {:>8} {:>8}   ns per packet", "", "", "quarter", "median");
    for (mix, flows, popularity) in mixes {
        let batches = batches(flows, popularity);
        let mut samplers = [64, 16, 1].map(|every| Sampler::new(every, 512, 1));
        let mut exact: HashMap<FlowKey, u64> = HashMap::new();
        let mut seen = Seen::default();
        let mut rounds = [const { Vec::new() }; 5];
        for _ in 0..31 {
            let mut timed = |which: usize, run: &mut dyn FnMut()| {
                let start = Instant::now();
                run();
                let ns = start.elapsed().as_nanos() as f64;
                rounds[which].push(ns / (BATCHES * LANES) as f64);
            };
            timed(0, &mut || {
                for batch in &batches {
                    touch(batch);
                }
            });
            for (which, sampler) in samplers.iter_mut().enumerate() {
                timed(which + 1, &mut || {
                    for batch in &batches {
                        touch(batch);
                        sampler.sample(batch, batch.lanes());
                    }
                });
                sampler.window(&mut seen);
            }
            timed(4, &mut || {
                for batch in &batches {
                    touch(batch);
                    for lane in batch.lanes() {
                        let len = batch.frames[lane].len() as u64;
                        *exact.entry(batch.keys[lane].flow()).or_default() += len;
                    }
                }
            });
        }
        let [touching, rounds @ ..] = rounds;
        for (name, rounds) in ["1 of 64", "1 of 16", "all", "HashMap"].into_iter().zip(rounds) {
            let mut added: Vec<_> = rounds.iter().zip(&touching).map(|(a, b)| a - b).collect();
            added.sort_by(f64::total_cmp);
            let (quarter, median) = (added[added.len() / 4], added[added.len() / 2]);
            println!("{mix:<28} {name:<10} {quarter:>8.2} {median:>8.2}");
        }
    }
}

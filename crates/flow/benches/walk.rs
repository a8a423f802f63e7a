//! The cost of the path from bytes to action, in nanoseconds per packet.
//!
//! ```text
//! cargo bench -p flowyard-flow                     each stage by itself, then paired rounds
//! valgrind --tool=callgrind --toggle-collect='*count_*' target/release/deps/walk-* --count
//! ```
//!
//! The machine may be busy, so variants are compared in paired rounds: each round runs every variant
//! once. Printed are the median and the minimum of the rounds.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::hint::black_box;
use std::time::Instant;

use flowyard_flow::table::{Exact, Spread};
use flowyard_flow::toeplitz::{HashTypes, MICROSOFT_KEY, Toeplitz};
use flowyard_flow::{Steer, Table, parse};
use flowyard_frame::{Action, Batch, FlowKey, LANES, Rng};
use flowyard_testkit::{Build, batch};

/// Flow `n` of a load generator: UDP from adjacent hosts and sequential ports to one server.
fn flow(n: u32) -> FlowKey {
    let [src, dst] = [0x0a00_0000 + (n >> 12), 0x0a80_0001].map(std::net::Ipv4Addr::from_bits);
    FlowKey::five_tuple(17, src.into(), 1024 + (n & 4095) as u16, dst.into(), 11211)
}

/// A 60-byte frame with `key`.
fn bytes(key: &FlowKey) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[..60].copy_from_slice(&Build::new(key).frame_len(60).bytes());
    bytes
}

/// The packets, tables and hash of one variant.
struct Walk {
    packets: Vec<[u8; 64]>,
    /// Packet numbers, shuffled: the buffers of a pool are in no particular order.
    order: Vec<u32>,
    toeplitz: Toeplitz,
    types: HashTypes,
    steer: Steer,
    at: usize,
}

impl Walk {
    /// `entries` flows in the table; of `packets` packets, one of eight is of a flow that is not.
    fn new(entries: u32, packets: usize, portable: bool) -> Self {
        let mut exact = Exact::new(entries as usize, &FlowKey::FLOW, 1);
        for n in 0..entries {
            exact.put(&flow(n), Action::queue(n as u16 & 15)).unwrap();
        }
        let mut random = Rng::new(1);
        let all = (0..packets).map(|i| {
            let n = random.below(u64::from(entries)) as u32;
            bytes(&flow(if i % 8 == 7 { n + entries } else { n }))
        });
        let all = all.collect();
        let mut order: Vec<_> = (0..packets as u32).collect();
        for i in (1..packets).rev() {
            order.swap(i, random.below(i as u64 + 1) as usize);
        }
        let toeplitz = Toeplitz::new(&MICROSOFT_KEY).unwrap();
        Self {
            packets: all,
            order,
            toeplitz: if portable { toeplitz.portable() } else { toeplitz },
            types: HashTypes::default(),
            steer: Steer::new(vec![Box::new(exact)], Spread::new(512, 16).unwrap()),
            at: 0,
        }
    }

    /// Processes `batches` batches from bytes to actions.
    #[inline(never)]
    fn count_walk(&mut self, batches: usize) {
        let mut batch = full(1); // as if rx had received the frames
        for _ in 0..batches {
            let order = &self.order[self.at..self.at + LANES];
            // These fetches overlap; parsing alone would wait for each frame.
            let first = |sum, &number: &u32| sum | self.packets[number as usize][12];
            black_box(order.iter().fold(0, first));
            for (key, &number) in batch.keys.iter_mut().zip(order) {
                assert!(parse::fast(&self.packets[number as usize], 0, key));
            }
            self.at = (self.at + LANES) % self.order.len();
            self.toeplitz.hash_batch(&self.types, &mut batch);
            self.steer.walk(&mut batch);
            black_box(&batch);
        }
    }
}

/// A full batch of keys.
fn full(entries: u32) -> Batch {
    batch((0..LANES as u32).map(|n| flow(n * 97 % entries)))
}

/// Time of 32 packets; only the hash.
#[divan::bench(args = ["portable", "wide"])]
fn hash_32(bencher: divan::Bencher<'_, '_>, path: &str) {
    let toeplitz = Toeplitz::new(&MICROSOFT_KEY).unwrap();
    let toeplitz = if path == "portable" { toeplitz.portable() } else { toeplitz };
    let (types, mut batch) = (HashTypes::default(), full(8192));
    bencher.counter(LANES).bench_local(|| {
        toeplitz.hash_batch(&types, black_box(&mut batch));
    });
}

/// Time of 32 packets; only parsing and checking.
#[divan::bench]
fn parse_32(bencher: divan::Bencher<'_, '_>) {
    let packets: Vec<_> = (0..LANES as u32).map(|n| bytes(&flow(n))).collect();
    let mut keys = [FlowKey::ZERO; LANES];
    bencher.counter(LANES).bench_local(|| {
        for (bytes, key) in black_box(&packets).iter().zip(&mut keys) {
            assert!(parse::fast(bytes, 0, key));
        }
        black_box(&mut keys);
    });
}

/// Time of 32 packets; only the exact table.
#[divan::bench]
fn exact_32(bencher: divan::Bencher<'_, '_>) {
    let mut exact = Exact::new(8192, &FlowKey::FLOW, 1);
    for n in 0..8192 {
        exact.put(&flow(n), Action::queue(n as u16 & 15)).unwrap();
    }
    let mut batch = full(8192);
    bencher.counter(LANES).bench_local(|| {
        let all = batch.lanes();
        exact.lookup(black_box(&mut batch), all)
    });
}

/// Median and minimum of the rounds, in nanoseconds per packet.
fn summary(mut rounds: Vec<f64>) -> (f64, f64) {
    rounds.sort_by(f64::total_cmp);
    (rounds[rounds.len() / 2], rounds[0])
}

fn main() {
    let argument = std::env::args().nth(1).unwrap_or_default();
    if argument == "--count" {
        // For callgrind: the difference of two runs of different lengths excludes the setup.
        let batches = std::env::args().nth(2).and_then(|n| n.parse().ok()).unwrap_or(1000);
        Walk::new(8192, 512, true).count_walk(batches);
        return;
    }
    if argument != "--paired" {
        divan::main();
    }
    let cases = [
        ("8192 entries, 512 packets, portable", 8192, 512, true),
        ("8192 entries, 512 packets, wide", 8192, 512, false),
        ("1 M entries, 32 MB of packets, portable", 1 << 20, 1 << 19, true),
        ("1 M entries, 32 MB of packets, wide", 1 << 20, 1 << 19, false),
    ];
    let mut walks: Vec<_> = cases.map(|(_, e, p, portable)| Walk::new(e, p, portable)).into();
    let mut rounds = vec![Vec::new(); walks.len()];
    let batches = 2000;
    for _ in 0..101 {
        for (walk, rounds) in walks.iter_mut().zip(&mut rounds) {
            let start = Instant::now();
            walk.count_walk(batches);
            rounds.push(start.elapsed().as_nanos() as f64 / (batches * LANES) as f64);
        }
    }
    println!("\n{:<44} {:>10} {:>10}   ns per packet, bytes to action", "", "median", "least");
    for ((name, ..), rounds) in cases.iter().zip(rounds) {
        let (median, least) = summary(rounds);
        println!("{name:<44} {median:>10.2} {least:>10.2}");
    }
}

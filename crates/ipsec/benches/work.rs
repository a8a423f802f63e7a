//! The work of a gateway for whole batches: nanoseconds a megabyte, with long frames and with the segments that a port cuts of them.
//!
//! ```text
//! cargo bench -p flowyard-ipsec --bench work              long and cut in turn, nine rounds; the result is the median ratio
//! cargo bench -p flowyard-ipsec --bench work -- seal      finished frames of 1,400 bytes only, sealed: for callgrind
//! cargo bench -p flowyard-ipsec --bench work -- open      as `seal`, sealed and opened
//! ```
//!
//! A batch has 32 frames. Segments are made by the work, or in front of it as ports make them, so both ways start with the same
//! bytes and end with the same packets. Input and output, and what a yard does for each frame, are not in the times: the long
//! frame saves those.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::sync::Arc;
use std::time::Instant;

use flowyard_flow::parse;
use flowyard_frame::{Action, Batch, FlowKey};
use flowyard_ipsec::{Ipsec, IpsecHub, Settings, xfrm};
use flowyard_pool::{Meta, Pool};
use flowyard_testkit::stacks::Stack;
use flowyard_wire::segment::Cut;
use flowyard_wire::{Offload, Segment};
use flowyard_works::{Hop, Router, Routes};
use flowyard_yard::Work;

fn gateway(is_first: bool) -> Ipsec {
    let (here, there) =
        if is_first { ("10.0.0.1", "10.0.0.200") } else { ("10.0.0.200", "10.0.0.1") };
    let state = "src 192.0.2.1 dst 192.0.2.2\n proto esp spi 4096 reqid 1 mode tunnel\n replay-window 64 flag esn\n aead \
                 rfc4106(gcm(aes)) 0x000102030405060708090a0b0c0d0e0f10111213 128\n";
    let (dir, src, dst) = if is_first { ("out", here, there) } else { ("fwd", there, here) };
    let policy = format!(
        "src {src}/32 dst {dst}/32\n dir {dir} priority 1\n tmpl src 192.0.2.1 dst 192.0.2.2\n proto esp reqid 1 mode tunnel\n"
    );
    let settings = Settings {
        sas: xfrm::states(state).unwrap(),
        policies: xfrm::policies(&policy).unwrap(),
        mtu: 9000,
        discards_unmatched: true,
        slack: 0,
        stamps: 0,
        seeds: [1, 2],
    };
    let mut routes = Routes::new(2);
    let hop = Hop { port: 1, src: [2; 6], dst: [4; 6] };
    routes.put(&"0.0.0.0/0".parse().unwrap(), hop).unwrap();
    Ipsec::new(Arc::new(IpsecHub::new(&settings).unwrap()), Router::new(routes))
}

fn key_of(bytes: &[u8]) -> FlowKey {
    let mut key = FlowKey::ZERO;
    assert!(parse::fast(bytes, 0, &mut key));
    key
}

/// Adds a frame to a batch.
fn push(batch: &mut Batch, pool: &mut Pool, bytes: &[u8]) {
    let key = key_of(bytes);
    let meta = Meta { wire_len: bytes.len() as u32, ..Meta::default() };
    let lane = batch.push(pool.copy(bytes, meta).unwrap(), key).unwrap();
    batch.actions[lane] = Action::queue(0);
}

/// Finished frames, sealed and perhaps opened.
fn finished(rounds: usize, opens: bool) {
    let mut pool = Pool::new(256, 2048);
    let (mut one, mut two) = (gateway(true), gateway(false));
    let frame = Stack { payload: vec![7; 1346], ..Stack::tcp4() }.frame();
    let (mut first, mut second) = (Batch::default(), Batch::default());
    for _ in 0..rounds {
        (0..32).for_each(|_| push(&mut first, &mut pool, &frame));
        one.work(&mut first, &pool, 0);
        if opens {
            (0..32).for_each(|lane| {
                let bytes = pool.bytes(&first.frames[lane]).to_vec();
                push(&mut second, &mut pool, &bytes);
            });
            two.work(&mut second, &pool, 0);
            pool.put_batch(&mut second);
        }
        pool.put_batch(&mut first);
    }
}

/// A frame of a kernel, to be cut into 45 segments.
fn long() -> (Vec<u8>, Offload) {
    let stack = Stack { payload: (0..65_000).map(|n| n as u8).collect(), ..Stack::tcp4() };
    let offload = Offload {
        segment: Segment::Tcp4,
        flags: Offload::PARTIAL,
        segment_bytes: 1448,
        checksum_start: 34,
        checksum_offset: 16,
        transport_len: 20,
    };
    (stack.partial(), offload)
}

/// Takes all frames of a batch back, and those tied to them. Returns how many packets there were.
fn put(batch: &mut Batch, pool: &mut Pool) -> usize {
    let mut count = 0;
    for mut frame in batch.drain() {
        while let Some((other, _)) = pool.untie(&mut frame) {
            pool.put(other);
            count += 1;
        }
        pool.put(frame);
        count += 1;
    }
    count
}

/// Nanoseconds for each megabyte of long frames that are sealed; `is_cut` says whether they are cut in front of the work.
fn rate(is_cut: bool, rounds: usize) -> f64 {
    let mut pool = Pool::new(4096, 2048).with_large(64).unwrap();
    let (mut work, mut batch) = (gateway(true), Batch::default());
    let (bytes, offload) = long();
    let meta = Meta { wire_len: bytes.len() as u32, offload, ..Meta::default() };
    let (start, mut packets) = (Instant::now(), 0);
    for _ in 0..rounds {
        if !is_cut {
            let key = key_of(&bytes);
            let lane = batch.push(pool.copy(&bytes, meta).unwrap(), key).unwrap();
            batch.actions[lane] = Action::queue(0);
            work.work(&mut batch, &pool, 0);
            packets += put(&mut batch, &mut pool);
            continue;
        }
        let received = pool.copy(&bytes, meta).unwrap();
        let cut = Cut::new(pool.bytes(&received), offload).unwrap();
        for n in 0..cut.count() {
            let len = cut.len(n);
            let meta = Meta { wire_len: len as u32, ..Meta::default() };
            let mut segment = pool.take(len, meta).unwrap();
            cut.write(pool.bytes(&received), n, pool.bytes_mut(&mut segment));
            let key = key_of(pool.bytes(&segment));
            let lane = batch.push(segment, key).unwrap();
            batch.actions[lane] = Action::queue(0);
            if batch.len() == 32 || n + 1 == cut.count() {
                work.work(&mut batch, &pool, 0);
                packets += put(&mut batch, &mut pool);
            }
        }
        pool.put(received);
    }
    let spent = start.elapsed().as_nanos() as f64;
    assert_eq!(packets, rounds * 45, "each segment left");
    spent / (rounds * bytes.len()) as f64 * 1e6
}

/// Long frames whole and cut, in turn.
fn compare() {
    let mut ratios = Vec::new();
    for round in 0..9 {
        let mut ways = [false, true];
        ways.rotate_left(round % 2);
        let mut times = ways.map(|is_cut| (is_cut, rate(is_cut, 2000)));
        times.sort_by_key(|(is_cut, _)| *is_cut);
        let [(_, whole), (_, cut)] = times;
        println!(
            "round {round}: whole {whole:.0} ns/MB, cut in front {cut:.0} ns/MB, ratio {:.3}",
            cut / whole
        );
        ratios.push(cut / whole);
    }
    ratios.sort_by(f64::total_cmp);
    println!("median ratio {:.3}", ratios[ratios.len() / 2]);
}

fn main() {
    let words: Vec<_> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let start = Instant::now();
    match words.first().map(String::as_str) {
        Some("open") => finished(1000, true),
        Some("seal") => finished(1000, false),
        _ => compare(),
    }
    println!("{:?}", start.elapsed());
}

//! Checksums, segmentation and coalescing: `cargo bench -p flowyard-wire --bench offload`. The counter is bytes.
#![allow(missing_docs, reason = "a benchmark has no public items")]

use divan::{Bencher, black_box, counter::BytesCount};
use flowyard_testkit::stacks::Stack;
use flowyard_wire::checksum::{checksum, crc32c};
use flowyard_wire::coalesce::{Rules, Table, Then};
use flowyard_wire::segment::Cut;
use flowyard_wire::{Offload, Segment};

fn main() {
    divan::main();
}

const SIZES: [usize; 5] = [20, 64, 256, 1448, 65_000];

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7) as u8).collect()
}

#[divan::bench(args = SIZES)]
fn internet_checksum(bencher: Bencher<'_, '_>, len: usize) {
    let bytes = bytes(len);
    bencher.counter(BytesCount::new(len)).bench_local(|| checksum(black_box(&bytes)));
}

/// As RFC 1071 shows it: word by word.
#[divan::bench(args = SIZES)]
fn internet_checksum_by_words(bencher: Bencher<'_, '_>, len: usize) {
    let bytes = bytes(len);
    bencher.counter(BytesCount::new(len)).bench_local(|| {
        let pairs = black_box(&bytes).as_chunks::<2>().0;
        let sum: u64 = pairs.iter().map(|pair| u64::from(u16::from_be_bytes(*pair))).sum();
        let sum = (sum >> 16) + (sum & 0xffff);
        !(sum as u16)
    });
}

#[divan::bench(args = SIZES)]
fn crc32c_of_sctp(bencher: Bencher<'_, '_>, len: usize) {
    let bytes = bytes(len);
    bencher.counter(BytesCount::new(len)).bench_local(|| crc32c(&[black_box(&bytes)]));
}

/// Byte by byte with one table.
#[divan::bench(args = SIZES)]
fn crc32c_by_bytes(bencher: Bencher<'_, '_>, len: usize) {
    let table: [u32; 256] = std::array::from_fn(|n| {
        (0..8).fold(n as u32, |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
    });
    let bytes = bytes(len);
    bencher.counter(BytesCount::new(len)).bench_local(|| {
        let step = |crc: u32, byte: &u8| crc >> 8 ^ table[usize::from(crc as u8 ^ byte)];
        !black_box(&bytes).iter().fold(u32::MAX, step)
    });
}

fn long() -> (Vec<u8>, Offload) {
    let stack = Stack { payload: bytes(64_000), ..Stack::tcp4() };
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

/// A frame of 64,000 bytes into 45 segments, headers and payload.
#[divan::bench]
fn segment(bencher: Bencher<'_, '_>) {
    let (frame, offload) = long();
    let mut out = vec![0; 2000];
    bencher.counter(BytesCount::new(frame.len())).bench_local(|| {
        let cut = Cut::new(black_box(&frame), offload).unwrap();
        for n in 0..cut.count() {
            black_box(cut.write(&frame, n, &mut out));
        }
    });
}

/// The same, the headers alone.
#[divan::bench]
fn segment_headers(bencher: Bencher<'_, '_>) {
    let (frame, offload) = long();
    let mut out = vec![0; 100];
    bencher.counter(BytesCount::new(frame.len())).bench_local(|| {
        let cut = Cut::new(black_box(&frame), offload).unwrap();
        for n in 0..cut.count() {
            black_box(cut.write_headers(&frame, n, &mut out));
        }
    });
}

/// 45 frames into one, whose checksums are verified or are known to be good.
#[divan::bench(args = [false, true])]
fn coalesce(bencher: Bencher<'_, '_>, checked: bool) {
    let stack = Stack { payload: bytes(64_000), ..Stack::tcp4() };
    let frames: Vec<_> = stack.segments(1448, [false; 2]).iter().map(Stack::frame).collect();
    let mut long = Vec::with_capacity(65_536);
    bencher.counter(BytesCount::new(stack.payload.len())).bench_local(|| {
        let mut table = Table::new(Rules { udp: false, tunnels: false, longest: 65_536 });
        let mut open = 0;
        for frame in black_box(&frames) {
            match table.offer(frame, checked).then {
                Then::Pass => {}
                Then::Open(slot) => {
                    open = slot;
                    long.clear();
                    long.extend_from_slice(frame);
                }
                Then::Append { payload, .. } => long.extend_from_slice(&frame[payload]),
            }
        }
        black_box(table.close(open, &mut long))
    });
}

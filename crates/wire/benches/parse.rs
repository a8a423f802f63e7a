//! Time of `Headers::parse` for batches of 32 frames in cache: `cargo bench -p flowyard-wire`. The counter
//! is frames.
#![allow(missing_docs, reason = "a benchmark has no public items")]

use divan::{Bencher, counter::ItemsCount};
use flowyard_wire::{Headers, LinkType};

fn main() {
    divan::main();
}

/// An Ethernet frame with these headers after the MAC addresses, and 32 bytes of payload.
fn frame(parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = vec![2; 12];
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes.resize(bytes.len() + 32, 0);
    bytes
}

const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];

fn ipv4(proto: u8, len: u8) -> [u8; 20] {
    [0x45, 0, 0, 20 + len, 0, 0, 0x40, 0, 64, proto, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]
}

fn ipv6(proto: u8, len: u8) -> [u8; 40] {
    let mut ip = [1; 40];
    ip[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, len, proto, 64]);
    ip
}

fn tcp() -> [u8; 20] {
    [0x9c, 0x40, 0x2b, 0xcb, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]
}

fn udp(dport: u16) -> [u8; 8] {
    let [high, low] = dport.to_be_bytes();
    [0x9c, 0x40, high, low, 0, 40, 0, 0]
}

fn bench(bencher: Bencher<'_, '_>, frame: &[u8]) {
    let frames: Vec<Vec<u8>> = (0..32).map(|_| frame.to_vec()).collect();
    assert!(Headers::parse(LinkType::Ethernet, &frames[0]).fault.is_none());
    bencher.counter(ItemsCount::new(frames.len())).bench_local(|| {
        for frame in &frames {
            let headers = Headers::parse(LinkType::Ethernet, divan::black_box(frame));
            divan::black_box(&headers);
        }
    });
}

#[divan::bench]
fn ipv4_tcp(bencher: Bencher<'_, '_>) {
    bench(bencher, &frame(&[&IPV4, &ipv4(6, 52), &tcp()]));
}

#[divan::bench]
fn ipv4_udp(bencher: Bencher<'_, '_>) {
    bench(bencher, &frame(&[&IPV4, &ipv4(17, 40), &udp(53)]));
}

#[divan::bench]
fn ipv6_tcp(bencher: Bencher<'_, '_>) {
    bench(bencher, &frame(&[&IPV6, &ipv6(6, 52), &tcp()]));
}

#[divan::bench]
fn qinq_ipv4_tcp(bencher: Bencher<'_, '_>) {
    bench(bencher, &frame(&[&[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2], &IPV4, &ipv4(6, 52), &tcp()]));
}

/// Kinds of frames in an irregular order, which branch predictors cannot learn.
#[divan::bench]
fn mixed(bencher: Bencher<'_, '_>) {
    let kinds = [
        frame(&[&IPV4, &ipv4(6, 52), &tcp()]),
        frame(&[&IPV4, &ipv4(17, 40), &udp(53)]),
        frame(&[&IPV6, &ipv6(6, 52), &tcp()]),
        frame(&[&[0x81, 0, 0, 2], &IPV4, &ipv4(17, 40), &udp(53)]),
    ];
    let frames: Vec<&[u8]> =
        (0..1024u32).map(|i| &kinds[(i.wrapping_mul(2_654_435_761) >> 30) as usize][..]).collect();
    bencher.counter(ItemsCount::new(frames.len())).bench_local(|| {
        for frame in &frames {
            let headers = Headers::parse(LinkType::Ethernet, divan::black_box(frame));
            divan::black_box(&headers);
        }
    });
}

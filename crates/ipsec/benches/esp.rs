//! The cost of one packet: sealed, and opened, by the algorithms and the length of the inner packet.
//!
//! ```text
//! cargo bench -p flowyard-ipsec
//! ```
//!
//! The times have everything that ESP does for a packet: headers, padding, encryption, the window, counters. They do not
//! have the search for its policy and its route. The packet is in the cache.

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use flowyard_ipsec::esp::{self, Kind};
use flowyard_ipsec::sa::{Flags, Limits, Mode, Sa, SaConfig, Tally};
use flowyard_ipsec::suite::{KeyMaterial, Suite};
use flowyard_wire::checksum;

fn main() {
    divan::main();
}

const LENGTHS: [usize; 3] = [64, 512, 1450];

fn sa(suite: Suite, window: u32) -> Sa {
    let len = if suite == Suite::AesGcm128 { 20 } else { 36 };
    let config = SaConfig {
        src: [192, 0, 2, 1].into(),
        dst: [192, 0, 2, 2].into(),
        spi: 0x1000,
        reqid: 1,
        mode: Mode::Tunnel,
        suite,
        key: KeyMaterial::new((0..len).collect()),
        is_extended: true,
        window,
        encap: None,
        limits: Limits::NONE,
        flags: Flags::default(),
        seq: 0,
        oseq: 0,
        line: 1,
    };
    Sa::new(config, 7, 0).unwrap()
}

/// An IPv4 packet of `len` bytes.
fn packet(len: usize) -> Vec<u8> {
    let mut packet = vec![0x5a; len];
    let [high, low] = (len as u16).to_be_bytes();
    packet[..20].copy_from_slice(&[
        0x45, 0, high, low, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 1, 0, 1, 10, 2, 0, 1,
    ]);
    let sum = checksum::checksum(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

fn seal(bencher: Bencher<'_, '_>, suite: Suite, len: usize) {
    let (sa, packet) = (sa(suite, 64), packet(len));
    let plan = esp::plan(&sa, &packet).unwrap();
    let mut bytes = vec![0; plan.total()];
    bencher.counter(BytesCount::new(len)).bench_local(|| {
        let plan = esp::plan(&sa, black_box(&packet)).unwrap();
        let number = sa.take().unwrap();
        esp::seal(&sa, number, &plan, black_box(&mut bytes), &mut Tally::default()).unwrap();
    });
}

/// Opens the same packet again and again, without a window. The copy into the buffer is a part of the time.
fn open(bencher: Bencher<'_, '_>, suite: Suite, len: usize) {
    let (sa, packet) = (sa(suite, 0), packet(len));
    let plan = esp::plan(&sa, &packet).unwrap();
    let mut sealed = vec![0; plan.head];
    sealed.extend(packet);
    sealed.resize(plan.total(), 0);
    esp::seal(&sa, sa.take().unwrap(), &plan, &mut sealed, &mut Tally::default()).unwrap();
    let mut bytes = sealed.clone();
    bencher.counter(BytesCount::new(len)).bench_local(|| {
        bytes.copy_from_slice(&sealed);
        let Kind::Esp(arrived) = esp::kind(black_box(&bytes), |_| false) else { unreachable!() };
        esp::open(&sa, &arrived, black_box(&mut bytes), &mut Tally::default()).unwrap()
    });
}

#[divan::bench(args = LENGTHS)]
fn seal_aes_gcm_128(bencher: Bencher<'_, '_>, len: usize) {
    seal(bencher, Suite::AesGcm128, len);
}

#[divan::bench(args = LENGTHS)]
fn seal_aes_gcm_256(bencher: Bencher<'_, '_>, len: usize) {
    seal(bencher, Suite::AesGcm256, len);
}

#[divan::bench(args = LENGTHS)]
fn seal_chacha20_poly1305(bencher: Bencher<'_, '_>, len: usize) {
    seal(bencher, Suite::ChaCha20Poly1305, len);
}

#[divan::bench(args = LENGTHS)]
fn open_aes_gcm_128(bencher: Bencher<'_, '_>, len: usize) {
    open(bencher, Suite::AesGcm128, len);
}

#[divan::bench(args = LENGTHS)]
fn open_aes_gcm_256(bencher: Bencher<'_, '_>, len: usize) {
    open(bencher, Suite::AesGcm256, len);
}

#[divan::bench(args = LENGTHS)]
fn open_chacha20_poly1305(bencher: Bencher<'_, '_>, len: usize) {
    open(bencher, Suite::ChaCha20Poly1305, len);
}

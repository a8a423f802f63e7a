//! Reading allocates memory when a capture is opened, and none per packet: a capture with a hundred
//! times the packets needs no additional allocation.
//!
//! Only allocations of the test's own thread are counted, because the harness has threads too.

use std::io::Cursor;

use crate::common::{Out, Packet, Variant, gzip, pcap};
use flowyard_ports::{Source, pcap::Reader};
use flowyard_testkit::alloc::{Count, Counting};

flowyard_testkit::tests! {
    reading_allocates_nothing_per_packet,
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The number of allocations and bytes needed to read `file` to its end.
fn cost(file: Vec<u8>, packets: usize) -> (u64, u64) {
    let bytes = Box::new(Cursor::new(file));
    let before = Count::of_this_thread();
    let mut reader = Reader::new("test", bytes, None).unwrap();
    let mut seen = 0;
    loop {
        let burst = reader.read().unwrap();
        if burst.is_empty() {
            break;
        }
        seen += burst.len();
    }
    assert_eq!(seen, packets);
    let after = Count::of_this_thread();
    (after.calls - before.calls, after.bytes - before.bytes)
}

fn reading_allocates_nothing_per_packet() {
    let micros = Variant { big: false, nanos: false, modified: false };
    let classic = |n: usize| {
        let packet = Packet { time: 0, wire_len: 60, interface: 0, data: vec![7; 60] };
        pcap(micros, (2, 4), 1, &vec![packet; n])
    };
    let ng = |n| {
        let mut out = Out::new(true);
        out.section(u64::MAX).interface(1, 0, None, 0);
        for _ in 0..n {
            out.enhanced(0, 1, 60, &[7; 60]).block(4, |out| out.u32(0));
        }
        out.bytes
    };
    let gz = |n| gzip(&classic(n));
    let makers: [&dyn Fn(usize) -> Vec<u8>; 3] = [&classic, &ng, &gz];
    for make in makers {
        let (few, many) = (cost(make(400), 400), cost(make(40_000), 40_000));
        assert_eq!(few.0, many.0);
        // The buffer of 1 MiB; for gzip also two copies of the first chunk, which was read to
        // detect the format.
        assert!(few.1.max(many.1) < (1 << 20) + 2 * (1 << 18) + 100_000, "{few:?} {many:?}");
    }
}

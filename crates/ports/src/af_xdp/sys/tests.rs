//! Rings without a socket: both sides share one memory.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// Both sides of a ring of `size` entries.
fn pair(size: u32) -> (Ring<u64>, Ring<u64>) {
    let at = xdp_ring_offset { producer: 0, consumer: 64, desc: 192, flags: 128 };
    // SAFETY: a new file in memory without another owner.
    let file = owned(check(unsafe { libc::memfd_create(c"ring".as_ptr(), 0) }).unwrap());
    // SAFETY: no memory is passed.
    check(unsafe { libc::ftruncate(file.as_raw_fd(), 192 + 8 * i64::from(size)) }).unwrap();
    let side = || Ring::map(&file, size, &at, 0).unwrap();
    (side(), side())
}

proptest! {
    /// A ring is a queue of bounded length, also when its indices wrap around.
    #[test]
    fn a_ring_is_a_queue(
        start in prop::sample::select(vec![0u32, u32::MAX - 5, u32::MAX / 2]),
        steps in prop::collection::vec((any::<bool>(), 0usize..12), 1..200),
    ) {
        let (mut producer, mut consumer) = pair(8);
        for ring in [&mut producer, &mut consumer] {
            (ring.mine, ring.theirs) = (start, start);
        }
        producer.submit();
        consumer.release();
        let (mut model, mut next) = (VecDeque::new(), 0);
        for (put, count) in steps {
            if put {
                let room = producer.room() as usize;
                // The producer may underestimate the free entries, but only if there are many.
                prop_assert!(room <= 8 - model.len() && (room >= 4 || room == 8 - model.len()));
                for _ in 0..count.min(room) {
                    producer.put(next);
                    model.push_back(next);
                    next += 1;
                }
                producer.submit();
                prop_assert_eq!(producer.pending() as usize, model.len());
            } else {
                for _ in 0..count {
                    prop_assert_eq!(consumer.take(), model.pop_front());
                }
                consumer.release();
            }
        }
    }
}

#[test]
fn entries_are_not_torn_between_threads() {
    let (mut producer, mut consumer) = pair(64);
    let sender = std::thread::spawn(move || {
        let mut next = 0u64;
        while next < 200_000 {
            for _ in 0..producer.room().min(7) {
                producer.put(next.wrapping_mul(0x0101_0101_0101_0101));
                next += 1;
            }
            producer.submit();
            std::thread::yield_now();
        }
        next
    });
    let mut next = 0u64;
    while next < 200_000 {
        while let Some(got) = consumer.take() {
            assert_eq!(got, next.wrapping_mul(0x0101_0101_0101_0101));
            next += 1;
        }
        consumer.release();
        std::thread::yield_now();
    }
    sender.join().unwrap();
}

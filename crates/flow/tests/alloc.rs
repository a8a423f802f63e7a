//! Nothing on the way from bytes to settled action allocates.
#![allow(unsafe_code, reason = "a global allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use flowyard_flow::table::{Exact, Spread};
use flowyard_flow::toeplitz::{HashTypes, Toeplitz, random_key};
use flowyard_flow::{Settle, Steer, Tails, parse};
use flowyard_frame::{Action, Batch, FlowKey, Frame, LANES, To};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Queues that are always done with what they got.
struct Done;

impl Tails for Done {
    fn tail(&self, _: To) -> u64 {
        0
    }
    fn head(&self, _: To) -> u64 {
        u64::MAX
    }
}

/// A UDP frame with source port `n`, and its checksum.
fn bytes(n: u16) -> [u8; 60] {
    let mut b = [0; 60];
    b[12..26].copy_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0x3a, 0xc0]);
    b[34..36].copy_from_slice(&n.to_be_bytes());
    b[39] = 26;
    b
}

#[test]
fn bytes_to_settled_action_without_allocation() {
    let key = |n| {
        let mut key = FlowKey::ZERO;
        assert!(parse::fast(&bytes(n), 0, &mut key));
        key
    };
    let mut exact = Exact::new(512, &FlowKey::FLOW, 1);
    let mut wide = Exact::new(64, &FlowKey { eth_dst: [255; 6], ..FlowKey::FLOW }, 1);
    for n in 0..512 {
        exact.put(&key(n).flow(), Action::queue(n & 7)).unwrap();
        if n < 64 {
            wide.put(&FlowKey { eth_src: [0; 6], ..key(n + 512).flow() }, Action::queue(9))
                .unwrap();
        }
    }
    let spread = Spread::new(128, 8).unwrap();
    let mut steer = Steer::new(vec![Box::new(exact), Box::new(wide)], spread);
    let mut settle = Settle::new(1024, 1);
    let fast = Toeplitz::new(&random_key(1)).unwrap();
    let types = HashTypes::default();
    let mut batch = Batch::default();
    for toeplitz in [fast.clone().portable(), fast] {
        let before = ALLOCATIONS.get();
        for first in (0..1024).step_by(LANES) {
            for n in first..first + LANES as u16 {
                let mut key = FlowKey::ZERO;
                assert!(parse::fast(&bytes(n), 0, &mut key));
                assert!(batch.push(Frame::new(u32::from(n), 0, 60), key).is_ok());
            }
            toeplitz.hash_batch(&types, &mut batch);
            steer.walk(&mut batch);
            let all = batch.lanes();
            settle.settle(&mut batch, all, &Done);
            drop(batch.drain());
            settle.enqueued(&Done);
        }
        assert_eq!(ALLOCATIONS.get() - before, 0, "{}", toeplitz.path());
    }
    assert_eq!(steer.hits(), [2 * 512, 2 * 64, 2 * 448]);
    let before = ALLOCATIONS.get();
    drop(std::hint::black_box(Box::new(7)));
    assert_eq!(ALLOCATIONS.get() - before, 1, "the counter counts");
}

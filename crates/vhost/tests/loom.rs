//! All interleavings, up to a number of preemptions, of a core and the thread that gives it rings and takes them back.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p flowyard-vhost --release --test loom
//! ```

#![cfg(loom)]

use flowyard_vhost::handover::seat;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

fn check(preemptions: usize, case: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(case);
}

/// A value that the core uses is not used by it any more when it has been recalled: loom reports accesses to the cell
/// at the same time.
#[test]
fn a_recalled_value_is_not_in_use() {
    check(3, || {
        let (seat, mut holder) = seat::<Arc<UnsafeCell<u32>>>();
        let core = thread::spawn(move || {
            for _ in 0..3 {
                if let Some(value) = holder.attend() {
                    value.with_mut(|_| ());
                }
            }
        });
        for _ in 0..2 {
            let cell = Arc::new(UnsafeCell::new(0));
            seat.place(Arc::clone(&cell));
            assert!(seat.recall().is_some(), "it was offered, held, or given back at the end");
            cell.with_mut(|_| ());
        }
        assert!(seat.recall().is_none(), "nothing was placed");
        core.join().unwrap();
    });
}

/// A core that ends gives its value back.
#[test]
fn a_core_that_ends_returns_its_value() {
    check(3, || {
        let (seat, mut holder) = seat::<u32>();
        seat.place(1);
        let core = thread::spawn(move || {
            let _value = holder.attend();
        });
        assert_eq!(seat.recall(), Some(1));
        core.join().unwrap();
        assert_eq!(seat.recall(), None);
    });
}

/// A core that stays gives its value back when it is recalled, also if it takes the value while it is recalled.
#[test]
fn a_core_that_stays_returns_its_value() {
    check(3, || {
        let (seat, mut holder) = seat::<u32>();
        let ends = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ends);
        seat.place(1);
        let core = thread::spawn(move || {
            while !end.load(Ordering::Acquire) {
                let _value = holder.attend();
                thread::yield_now();
            }
        });
        seat.ask();
        assert_eq!(seat.recall(), Some(1));
        ends.store(true, Ordering::Release);
        core.join().unwrap();
    });
}

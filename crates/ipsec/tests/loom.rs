//! All interleavings, up to a number of preemptions, of cores that use one SA.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p flowyard-ipsec --release --test loom
//! ```

#![cfg(loom)]

use flowyard_ipsec::replay::Window;
use loom::sync::Arc;
use loom::thread;

fn check(preemptions: usize, case: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(case);
}

/// As a core does it: a check, the decryption, and the update.
fn arrives(window: &Window, number: u64) -> bool {
    window.check(number).is_ok() && window.accept(number).is_ok()
}

/// Two cores have the same packet: one of them accepts it, also while the window moves by more than its words.
#[test]
fn a_number_is_accepted_once() {
    check(3, || {
        let window = Arc::new(Window::new(64, 10));
        let other = Arc::clone(&window);
        let core = thread::spawn(move || [arrives(&other, 12), arrives(&other, 300)]);
        let here = arrives(&window, 12);
        let [there, later] = core.join().unwrap();
        assert!(later);
        // Whichever core was first; the second comes after the window moved on if it is late.
        assert!(here ^ there, "accepted {here} and {there}");
        assert!(!arrives(&window, 12) && !arrives(&window, 300) && arrives(&window, 299));
    });
}

/// Packets that arrived in order, and are accepted in another order, are all accepted.
#[test]
fn overtaking_in_the_window_loses_nothing() {
    check(3, || {
        let window = Arc::new(Window::new(64, 0));
        let other = Arc::clone(&window);
        let core = thread::spawn(move || [arrives(&other, 1), arrives(&other, 2)]);
        let here = [arrives(&window, 63), arrives(&window, 64)];
        assert_eq!((here, core.join().unwrap()), ([true; 2], [true; 2]));
        assert_eq!(window.top(), 64);
    });
}

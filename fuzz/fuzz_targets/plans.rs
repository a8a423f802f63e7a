//! Calls [`flowyard_fuzz::plans`] for libFuzzer, within its limits.
#![no_main]

use flowyard_fuzz::{PLANS, bounded, plans};

libfuzzer_sys::fuzz_target!(|data: &[u8]| bounded(PLANS, data, plans));

//! Calls [`flowyard_fuzz::sync`] for libFuzzer, within its limits.
#![no_main]

use flowyard_fuzz::{SYNC, bounded, sync};

libfuzzer_sys::fuzz_target!(|data: &[u8]| bounded(SYNC, data, sync));

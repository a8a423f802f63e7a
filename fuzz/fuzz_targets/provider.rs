//! Calls [`flowyard_fuzz::provider`] for libFuzzer, within its limits.
#![no_main]

use flowyard_fuzz::{PROVIDER, bounded, provider};

libfuzzer_sys::fuzz_target!(|data: &[u8]| bounded(PROVIDER, data, provider));

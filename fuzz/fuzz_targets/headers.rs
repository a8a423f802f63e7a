//! Calls [`flowyard_fuzz::headers`] for libFuzzer, within its limits.
#![no_main]

use flowyard_fuzz::{HEADERS, bounded, headers};

libfuzzer_sys::fuzz_target!(|data: &[u8]| bounded(HEADERS, data, headers));

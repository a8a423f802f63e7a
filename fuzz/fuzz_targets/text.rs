//! Calls [`flowyard_fuzz::text`] for libFuzzer, within its limits.
#![no_main]

use flowyard_fuzz::{TEXT, bounded, text};

libfuzzer_sys::fuzz_target!(|data: &[u8]| bounded(TEXT, data, text));

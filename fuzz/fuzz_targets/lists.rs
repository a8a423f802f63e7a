//! Calls [`flowyard_fuzz::lists`] for libFuzzer, within its limits.
#![no_main]

use flowyard_fuzz::{LISTS, bounded, lists};

libfuzzer_sys::fuzz_target!(|data: &[u8]| bounded(LISTS, data, lists));

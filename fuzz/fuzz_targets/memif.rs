//! Calls [`flowyard_fuzz::memif`] for libFuzzer, within its limits.
#![no_main]

use flowyard_fuzz::{MEMIF, bounded, memif};

libfuzzer_sys::fuzz_target!(|data: &[u8]| bounded(MEMIF, data, memif));

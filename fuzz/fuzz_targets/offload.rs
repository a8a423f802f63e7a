//! Calls [`flowyard_fuzz::offload`] for libFuzzer, within its limits.
#![no_main]

use flowyard_fuzz::{OFFLOAD, bounded, offload};

libfuzzer_sys::fuzz_target!(|data: &[u8]| bounded(OFFLOAD, data, offload));

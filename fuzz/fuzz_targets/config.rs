//! Calls [`flowyard_fuzz::config`] for libFuzzer, within its limits.
#![no_main]

use flowyard_fuzz::{CONFIG, bounded, config};

libfuzzer_sys::fuzz_target!(|data: &[u8]| bounded(CONFIG, data, config));

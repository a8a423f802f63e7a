//! Calls [`flowyard_fuzz::channel`] for libFuzzer, within its limits.
#![no_main]

use flowyard_fuzz::{CHANNEL, bounded, channel};

libfuzzer_sys::fuzz_target!(|data: &[u8]| bounded(CHANNEL, data, channel));

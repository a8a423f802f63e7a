//! Calls [`flowyard_fuzz::switch`] for libFuzzer, within its limits.
#![no_main]

use flowyard_fuzz::{SWITCH, bounded, switch};

libfuzzer_sys::fuzz_target!(|data: &[u8]| bounded(SWITCH, data, switch));

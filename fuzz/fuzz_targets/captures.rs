//! Calls [`flowyard_fuzz::captures`] for libFuzzer, within its limits.
#![no_main]

use flowyard_fuzz::{bounded, captures, captures_limits};

libfuzzer_sys::fuzz_target!(|data: &[u8]| bounded(captures_limits(data), data, captures));

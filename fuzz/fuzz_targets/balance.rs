//! Calls [`flowyard_fuzz::balance`] for libFuzzer, within its limits.
#![no_main]

use flowyard_fuzz::{BALANCE, balance, bounded};

libfuzzer_sys::fuzz_target!(|data: &[u8]| bounded(BALANCE, data, balance));

//! Calls [`flowyard_fuzz::openflow`] for libFuzzer, within its limits.
#![no_main]

use flowyard_fuzz::{OPENFLOW, bounded, openflow};

libfuzzer_sys::fuzz_target!(|data: &[u8]| bounded(OPENFLOW, data, openflow));

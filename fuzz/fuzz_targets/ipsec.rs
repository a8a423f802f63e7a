//! Calls [`flowyard_fuzz::ipsec`] for libFuzzer, within its limits.
#![no_main]

use flowyard_fuzz::{IPSEC, bounded, ipsec};

libfuzzer_sys::fuzz_target!(|data: &[u8]| bounded(IPSEC, data, ipsec));

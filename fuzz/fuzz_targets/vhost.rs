//! Calls [`flowyard_fuzz::vhost`] for libFuzzer, within its limits.
#![no_main]

use flowyard_fuzz::{VHOST, bounded, vhost};

libfuzzer_sys::fuzz_target!(|data: &[u8]| bounded(VHOST, data, vhost));

//! Calls [`flowyard_fuzz::images`] for libFuzzer, within its limits.
#![no_main]

use flowyard_fuzz::{IMAGES, bounded, images};

libfuzzer_sys::fuzz_target!(|data: &[u8]| bounded(IMAGES, data, images));

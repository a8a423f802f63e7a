//! Calls [`flowyard_fuzz::images`] for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flowyard_fuzz::images(data));

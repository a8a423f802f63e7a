//! Calls [`flowyard_fuzz::headers`] for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flowyard_fuzz::headers(data));

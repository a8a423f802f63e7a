//! Calls [`flowyard_fuzz::lists`] for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flowyard_fuzz::lists(data));

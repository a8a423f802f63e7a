//! Calls [`flowyard_fuzz::text`] for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flowyard_fuzz::text(data));

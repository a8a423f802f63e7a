//! Calls [`flowyard_fuzz::channel`] for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flowyard_fuzz::channel(data));

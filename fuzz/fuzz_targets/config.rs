//! Calls [`flowyard_fuzz::config`] for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flowyard_fuzz::config(data));

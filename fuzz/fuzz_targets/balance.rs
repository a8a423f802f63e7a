//! Calls [`flowyard_fuzz::balance`] for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flowyard_fuzz::balance(data));

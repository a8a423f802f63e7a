//! Calls [`flowyard_fuzz::captures`] for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flowyard_fuzz::captures(data));

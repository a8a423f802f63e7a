//! Calls [`flowyard_fuzz::openflow`] for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flowyard_fuzz::openflow(data));

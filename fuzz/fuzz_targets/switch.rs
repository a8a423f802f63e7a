//! Calls [`flowyard_fuzz::switch`] for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flowyard_fuzz::switch(data));

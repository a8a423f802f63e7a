//! libFuzzer's way into [`flowyard_fuzz::balance`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flowyard_fuzz::balance(data));
